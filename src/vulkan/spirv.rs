//! The kernels' checked-in SPIR-V.

#[cfg(test)]
mod tests;

use crate::lower::kernels::{Module, checksum, spirv_modules};
use crate::{Error, Result};
use miniz_oxide::inflate::decompress_to_vec;
use std::fmt::Display;
use std::io::Cursor;

macro_rules! modules {
    ($(#[doc = $doc:literal] $module:ident { name: $name:literal, $($rest:tt)* })*) => {
        /// A module's SPIR-V, deflated by the build script.
        fn deflated(module: Module) -> &'static [u8] {
            match module {
                $(Module::$module => include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".spv.deflate")),)*
            }
        }
    };
}

spirv_modules!(modules);

/// A module's SPIR-V.
///
/// # Errors
/// Device: the executable is damaged.
pub(super) fn of(module: Module) -> Result<Vec<u32>> {
    let damaged = |e: &dyn Display| {
        let cause = format!("the SPIR-V of {} in this executable is damaged: {e}", module.name());
        Error::device(cause, "rebuild Kiln")
    };
    let bytes = decompress_to_vec(deflated(module)).map_err(|e| damaged(&e))?;
    ash::util::read_spv(&mut Cursor::new(bytes)).map_err(|e| damaged(&e))
}

/// A checksum of the SPIR-V of all modules.
pub(super) fn fingerprint() -> u64 {
    Module::ALL.iter().fold(0, |sum: u64, &module| sum.rotate_left(1) ^ checksum(deflated(module)))
}
