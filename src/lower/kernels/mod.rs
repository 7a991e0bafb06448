//! The kernels: their modules, specialization constants and push constants. Their code is in the form of each driver.
//!
//! table.rs lists the modules. To add a module: its entry there, its constants in constants.rs, its push block in
//! push/blocks.rs, its source in shaders, then `cargo check --features shaders`.

pub mod constants;
pub mod push;
#[macro_use]
mod table;

use crate::model::WeightFormat;
use constants::*;
use push::*;

/// The way in which a kernel takes part in a relay (relay.glsl).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relaying {
    /// The kernel takes no part in a relay: it runs after a barrier.
    Never,
    /// The workgroups wait for the whole dispatch before, and count themselves once. [`RelayPush`] ends the push
    /// constants.
    Whole,
    /// As `Whole`, and its workgroups prefetch the weights of the next product. [`ProductRelayPush`] ends the push
    /// constants.
    Product,
    /// As `Product`, but its workgroups wait for the stages of the dispatch before separately, unless they keep their
    /// inputs in shared memory, and may have stages of their own. [`StagedRelayPush`] ends the push constants.
    Staged,
}

macro_rules! modules {
    ($(#[doc = $doc:literal] $module:ident {
        name: $name:literal, source: $source:literal, defines: [$($define:literal),*],
        constants: $constants:ident, push: $push:ident, relay: $relay:ident,
    })*) => {
        /// A module: one kernel for one set of formats. The first lines of its source say what it computes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Module { $(#[doc = $doc] $module,)* }

        impl Module {
            /// Every module, in the order of the table.
            pub const ALL: &[Module] = &[$(Module::$module,)*];

            /// The module's name, which is that of its file in shaders/spv.
            pub fn name(self) -> &'static str {
                match self { $(Module::$module => $name,)* }
            }

            /// The name of the module's source file in shaders.
            pub fn source(self) -> &'static str {
                match self { $(Module::$module => $source,)* }
            }

            /// Number and name of its specialization constants, without those that every module has.
            pub fn constants(self) -> &'static [(u32, &'static str)] {
                match self { $(Module::$module => $constants::NAMES,)* }
            }

            /// The fields of the push block, without the relay's words.
            pub fn push(self) -> &'static [Field] {
                match self { $(Module::$module => $push::FIELDS,)* }
            }

            /// How the module takes part in a relay.
            pub fn relaying(self) -> Relaying {
                match self { $(Module::$module => Relaying::$relay,)* }
            }
        }
    };
}

spirv_modules!(modules);
#[cfg(feature = "vulkan")]
pub(crate) use spirv_modules;

/// The key of a pipeline: a module and its specialization constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel {
    /// The shader that the kernel is a specialisation of.
    pub module: Module,
    /// The number of lanes in a workgroup (constant 0).
    pub workgroup: u32,
    /// The other specialization constants.
    pub constants: Constants,
}

impl Kernel {
    /// A module with its constants, a structure that the table names for the module.
    pub fn new<S: Specialization>(module: Module, workgroup: u32, constants: S) -> Kernel {
        debug_assert_eq!(module.constants(), S::NAMES, "{module:?}");
        Kernel { module, workgroup, constants: constants.constants() }
    }

    /// The kernel for weights of a format, if the module's constants describe the format.
    pub fn of_weights(self, format: WeightFormat) -> Kernel {
        let mut constants = self.constants;
        if let Some(grouped) = format.grouped() {
            constants.set_weights(grouped);
        }
        Kernel { constants, ..self }
    }

    /// The kernel of a product of experts ([`Constants::set_experts`]).
    pub fn of_experts(self, share: usize) -> Kernel {
        let mut constants = self.constants;
        constants.set_experts(share as u32);
        Kernel { constants, ..self }
    }

    /// The kernel with all of its output in one stage, so that it can share a relay's counter with others.
    pub fn in_one_stage(self) -> Kernel {
        match self.module.relaying() {
            Relaying::Staged => {
                let own = LinearDotConstants { stages: 1, ..LinearDotConstants::of(&self.constants) };
                let mut constants = self.constants;
                constants.replace(own);
                Kernel { constants, ..self }
            }
            Relaying::Never | Relaying::Whole | Relaying::Product => self,
        }
    }

    /// The number of stages in which the kernel's output is counted in a relay.
    pub fn stages(&self) -> usize {
        match self.module.relaying() {
            Relaying::Staged => LinearDotConstants::of(&self.constants).stages as usize,
            Relaying::Never | Relaying::Whole | Relaying::Product => 1,
        }
    }
}

/// The FNV-1a hash of `data`, of 64 bits.
pub fn checksum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
