//! The arithmetics of matrix products, and the activation layout and kernels of each.

use crate::lower::kernels::Module;
use crate::model::WeightFormat;

/// The number types and instructions that compute a matrix product `out[r] = weight · x[r]`. All tiles of one
/// arithmetic add the same terms, possibly in another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Arithmetic {
    /// Weights widened to f32, f32 inputs and sums.
    F32,
    /// Packed integer dot products: weights of at most 8 bits times 16-bit inputs.
    IntegerDot,
    /// Products on matrix units, of f16 or s8 operands.
    Matrix(Operand),
}

/// Element types of a product on matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Operand {
    /// f16 × f16 + f32: weights widened to f16, multiplied by their groups' scales but not by a row's scale; f16
    /// inputs.
    F16,
    /// s8 × s8 + s32: INT8 weights unconverted, 16-bit inputs as two planes of int8. One product of each plane.
    S8,
}

/// The layout of a row of activations in memory (shaders/activation_layout.glsl). The value is the FORM constant of the
/// kernels that write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivationLayout {
    /// Elements in f32, read from the slot itself.
    F32 = 0,
    /// 16-bit fixed point in two planes of int8, one f32 scale a block of 16 elements.
    Int16Block = 1,
    /// Elements in f16, with one f32 scale for each row.
    F16Row = 2,
    /// 16-bit fixed point in two planes of int8, one f32 scale per row.
    Int16Row = 3,
    /// As `Int16Block`, with the sum of the 16 whole numbers beside each scale.
    Int16Sums = 4,
    /// f16, one f32 scale per block of 16 elements. The largest scale of a row is the row's, and lies after the scale
    /// of the row that the writer reads.
    F16Block = 5,
}

impl ActivationLayout {
    /// True if the layout has one scale per row. The row's largest element must then be known before the first is
    /// written.
    pub fn is_scaled_by_row(self) -> bool {
        matches!(self, ActivationLayout::F16Row | ActivationLayout::Int16Row)
    }

    /// True if each 16 elements have a scale of their own.
    pub fn is_scaled_by_block(self) -> bool {
        matches!(self, ActivationLayout::Int16Block | ActivationLayout::Int16Sums)
    }

    /// Bytes of a row of `padded` elements, a multiple of 32.
    pub fn row_bytes(self, padded: usize) -> usize {
        match self {
            ActivationLayout::F32 => 4 * padded,
            ActivationLayout::Int16Block | ActivationLayout::F16Block => 2 * padded + padded / 4,
            ActivationLayout::Int16Sums => 2 * padded + padded / 2,
            // The scale, and the place of a row's largest scale in F16Block.
            ActivationLayout::F16Row | ActivationLayout::Int16Row => 2 * padded + 8,
        }
    }
}

/// The modules that read one weight format. All formats with scales of groups share their modules, whose constants
/// describe the format ([`crate::lower::kernels::Kernel::of_weights`]).
pub struct FormatModules {
    /// The look-up of token embeddings.
    pub embed: Module,
    /// The product in f32, for few rows.
    pub linear: Module,
    /// The products of the gate and up matrices in f32 for few rows, and the gated GELU of the two.
    pub linear_gelu: Module,
    /// The product in f32, for many rows.
    pub linear_tile: Module,
    /// [`Arithmetic::IntegerDot`]; `None` if the format has no kernels for it.
    pub dot: Option<DotModules>,
    /// [`Arithmetic::Matrix`]; `None` if the format has no kernels for it.
    pub matrix: Option<MatrixModules>,
}

impl FormatModules {
    /// The activation layout that the kernels of an arithmetic read.
    pub fn inputs(&self, arithmetic: Arithmetic) -> ActivationLayout {
        match arithmetic {
            Arithmetic::F32 => ActivationLayout::F32,
            Arithmetic::IntegerDot => self.dot.as_ref().map_or(ActivationLayout::F32, |dot| dot.inputs),
            Arithmetic::Matrix(Operand::F16) => ActivationLayout::F16Row,
            Arithmetic::Matrix(Operand::S8) => ActivationLayout::Int16Row,
        }
    }

    /// Bytes of a packed row of `padded` elements, the most over all arithmetics.
    pub fn packed_bytes(&self, padded: usize) -> usize {
        let dot = self.dot.iter().map(|dot| dot.inputs.row_bytes(padded));
        // The other packed layouts have one scale per row instead of one per 16 elements.
        dot.fold(ActivationLayout::Int16Block.row_bytes(padded), usize::max)
    }
}

/// The modules that compute products by [`Arithmetic::IntegerDot`].
pub struct DotModules {
    /// The activation layout in which the modules read their inputs.
    pub inputs: ActivationLayout,
    /// The product for few rows.
    pub linear: Module,
    /// Gate and up of few rows, with their gated GELU.
    pub linear_gelu: Module,
    /// The product for many rows.
    pub linear_tile: Module,
}

/// The modules that compute products by [`Arithmetic::Matrix`].
#[derive(Debug)]
pub struct MatrixModules {
    /// The product of f16 operands, whose tiles go through shared memory.
    pub shared: Module,
    /// s8, tiles through shared memory: for devices whose A has 8 columns, and for devices with more. `None` if the
    /// format's sums of s8 products do not have one scale per row.
    pub shared_s8: Option<[Module; 2]>,
    /// f16, weights and inputs from memory to registers.
    pub fragment: Module,
    /// f16, weights from memory to registers; inputs through shared memory.
    pub fragment_tall: Module,
}

/// The modules that read weights in this format.
pub fn modules(format: WeightFormat) -> &'static FormatModules {
    match format {
        WeightFormat::Int8 => &FormatModules {
            embed: Module::EmbedInt8,
            linear: Module::LinearInt8,
            linear_gelu: Module::LinearGeluInt8,
            linear_tile: Module::LinearTileInt8,
            dot: Some(DotModules {
                inputs: ActivationLayout::Int16Block,
                linear: Module::LinearDotInt8,
                linear_gelu: Module::LinearDotGeluInt8,
                linear_tile: Module::LinearDotTileInt8,
            }),
            matrix: Some(MatrixModules {
                shared: Module::LinearMatrixInt8,
                shared_s8: Some([Module::LinearMatrixS8NarrowInt8, Module::LinearMatrixS8Int8]),
                fragment: Module::LinearFragmentInt8,
                fragment_tall: Module::LinearFragmentTallInt8,
            }),
        },
        WeightFormat::Int4 | WeightFormat::Blocks(_) => &FormatModules {
            embed: Module::EmbedGrouped,
            linear: Module::LinearGrouped,
            linear_gelu: Module::LinearGeluGrouped,
            linear_tile: Module::LinearTileGrouped,
            dot: Some(DotModules {
                inputs: ActivationLayout::Int16Sums,
                linear: Module::LinearDotGrouped,
                linear_gelu: Module::LinearDotGeluGrouped,
                linear_tile: Module::LinearDotTileGrouped,
            }),
            matrix: Some(MatrixModules {
                shared: Module::LinearMatrixGrouped,
                shared_s8: None,
                fragment: Module::LinearFragmentGrouped,
                fragment_tall: Module::LinearFragmentTallGrouped,
            }),
        },
        WeightFormat::Bf16 => &FormatModules {
            embed: Module::EmbedBf16,
            linear: Module::LinearBf16,
            linear_gelu: Module::LinearGeluBf16,
            linear_tile: Module::LinearTileBf16,
            dot: None,
            matrix: None,
        },
    }
}
