//! From bytes back to source.

use crate::isa::{Bundle, Isa};

/// The bundles of a program, each with its address.
///
/// # Errors
/// One line that names the address of what is no bundle.
pub fn decode(isa: &Isa, code: &[u8]) -> Result<Vec<(u32, Bundle)>, String> {
    let mut bundles = Vec::new();
    let mut address = 0;
    while address < code.len() {
        let bundle = isa.decode_bundle(&code[address..]).map_err(|message| format!("{address:#06x}: {message}"))?;
        let bytes = isa.bytes(&bundle);
        bundles.push((address as u32, bundle));
        address += bytes;
    }
    Ok(bundles)
}

/// A program as source that assembles to the same bytes.
///
/// # Errors
/// Those of [`decode`].
pub fn disassemble(isa: &Isa, code: &[u8]) -> Result<String, String> {
    let lines = decode(isa, code)?;
    Ok(lines.iter().map(|(address, bundle)| format!("{} // {address:#06x}\n", isa.write_bundle(bundle))).collect())
}
