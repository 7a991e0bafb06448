//! The kernels: their checked-in SPIR-V, and the constants that each is specialised by.

pub mod inspect;
pub mod pipelines;

/// Bytes of push constants, the least that every Vulkan device offers.
pub const PUSH_BYTES: usize = 128;

macro_rules! modules {
    ($($variant:ident $file:literal $doc:literal,)*) => {
        /// A SPIR-V module: one kernel for one set of formats. Its source's first lines say what it computes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Module { $(#[doc = $doc] $variant,)* }

        impl Module {
            /// Every module.
            pub const ALL: &[Module] = &[$(Module::$variant,)*];

            /// Its name, that of its file in shaders/spv.
            pub fn name(self) -> &'static str {
                match self { $(Module::$variant => $file,)* }
            }

            /// Whether only devices with matrix units can make pipelines of it.
            pub fn needs_matrix_units(self) -> bool {
                use Module::*;
                matches!(
                    self,
                    LinearMatrixInt8
                        | LinearBytesInt8
                        | LinearBytesNarrowInt8
                        | LinearFragmentInt8
                        | LinearFragmentTallInt8
                        | Fragment
                        | AttendMatrixF16
                        | MatrixRate
                )
            }

            /// Whether its workgroups can wait for a dispatch that they start beside, and count themselves (relay.glsl).
            pub fn relays(self) -> bool {
                use Module::*;
                matches!(
                    self,
                    RmsNorm
                        | NormAdd
                        | NormAddNorm
                        | LinearDotInt8
                        | LinearDotGeluInt8
                        | LinearMatrixInt8
                        | LinearBytesInt8
                        | LinearBytesNarrowInt8
                        | LinearFragmentInt8
                        | LinearFragmentTallInt8
                        | AttendF16
                        | AttendF32
                        | Pack
                        | GatedGelu
                )
            }

            /// Whether it is told the stages of the dispatch that it waits for.
            pub fn takes_stages(self) -> bool {
                matches!(self, Module::LinearDotInt8 | Module::LinearDotGeluInt8)
            }

            pub(crate) fn spirv(self) -> &'static [u8] {
                match self { $(Module::$variant => include_bytes!(concat!("../../../shaders/spv/", $file, ".spv")),)* }
            }
        }
    };
}

modules! {
    EmbedInt8 "embed_int8" "Token embedding from INT8 rows.",
    EmbedBf16 "embed_bf16" "Token embedding from BF16 rows.",
    RmsNorm "rms_norm" "RMSNorm.",
    NormAdd "norm_add" "RMSNorm, added to the residual.",
    NormAddNorm "norm_add_norm" "RMSNorm added to the residual, and the RMSNorm of that.",
    LinearInt8 "linear_int8" "Matrix product of few rows, INT8.",
    LinearBf16 "linear_bf16" "Matrix product of few rows, BF16.",
    LinearGeluInt8 "linear_gelu_int8" "Gate and up products of few rows with their gated GELU, INT8.",
    LinearGeluBf16 "linear_gelu_bf16" "Gate and up products of few rows with their gated GELU, BF16.",
    LinearDotInt8 "linear_dot_int8" "Matrix product of few rows by integer dot products, INT8.",
    LinearDotGeluInt8 "linear_dot_gelu_int8" "As above, gate and up with their gated GELU.",
    LinearDotTileInt8 "linear_dot_tile_int8" "Matrix product of many rows by integer dot products, INT8.",
    LinearTileInt8 "linear_tile_int8" "Matrix product of many rows, INT8.",
    LinearTileBf16 "linear_tile_bf16" "Matrix product of many rows, BF16.",
    HeadPrepareF16 "head_prepare_f16" "QK-norm, RoPE and KV write, f16 cache.",
    HeadPrepareF32 "head_prepare_f32" "QK-norm, RoPE and KV write, f32 cache.",
    AttendF16 "attend_f16" "Attention over an f16 cache.",
    AttendF32 "attend_f32" "Attention over an f32 cache.",
    Pack "pack" "A linear step's input into the form that its kernel reads.",
    GatedGelu "gated_gelu" "Gated GELU.",
    Argmax "argmax" "Greedy choice.",
    Read "read" "The read ceiling.",
    LinearMatrixInt8 "linear_matrix_int8" "Matrix product of many rows by matrix units, INT8.",
    LinearBytesInt8 "linear_bytes_int8" "Matrix product of many rows by matrices of bytes, INT8.",
    LinearBytesNarrowInt8 "linear_bytes_narrow_int8" "As above, where they are 8 inputs wide.",
    Fragment "fragment" "How a subgroup holds matrices.",
    LinearFragmentInt8 "linear_fragment_int8" "Matrix product of few rows by matrix units, INT8 weights out of registers.",
    LinearFragmentTallInt8 "linear_fragment_tall_int8" "As above, of many rows.",
    AttendMatrixF16 "attend_matrix_f16" "Attention of consecutive rows by matrix units, f16 cache.",
    MatrixRate "matrix_rate" "The matrix units' ceiling.",
}

/// A pipeline: a module and the constants that it is specialised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel {
    /// The module.
    pub module: Module,
    /// Invocations of a workgroup (constant 0).
    pub workgroup: u32,
    /// Constants from 1 on; their meaning is the module's.
    pub constants: Constants,
}

impl Kernel {
    /// Index of the constant that says that a pass has one row (common.glsl).
    pub const SINGLE: usize = 7;
    /// Index of the constant that says how many stages of a relay `linear_dot_gelu` has.
    const STAGES: usize = 5;

    /// The stages in which its workgroups count themselves.
    pub fn stages(&self) -> usize {
        match self.module {
            Module::LinearDotGeluInt8 => self.constants[Kernel::STAGES] as usize,
            _ => 1,
        }
    }
}

/// Specialization constants of a kernel, from constant 1 on.
pub type Constants = [u32; 12];

/// The first constants as given, the others 0.
pub const fn constants<const N: usize>(first: [u32; N]) -> Constants {
    let mut all = [0; 12];
    let mut i = 0;
    while i < N {
        all[i] = first[i];
        i += 1;
    }
    all
}

/// What tells one set of kernels from another: what was measured with other ones says nothing of these.
pub(crate) fn fingerprint() -> u64 {
    Module::ALL.iter().fold(0, |sum: u64, module| sum.rotate_left(1) ^ checksum(module.spirv()))
}

/// FNV-1a.
pub(crate) fn checksum(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
