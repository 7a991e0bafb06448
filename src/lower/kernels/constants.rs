//! The specialization constants: one structure per shader, whose fields are named as in the GLSL, in lower case.
//!
//! Two constants are in every shader (common.glsl): 0 is the workgroup's size, [`super::Kernel::workgroup`]; 8 is set
//! by [`Constants::set_single_row`]. Constants 15 to 19 are in every module for weights with scales of groups
//! (weights.glsl), and are set by [`Constants::set_weights`]; 20 is in those of products, and is set by
//! [`Constants::set_experts`]. No structure has a field for these; the compiler checks
//! that. A test compares names and numbers with the SPIR-V.

use crate::model::grouped::Grouped;

/// Number of the constant that is 1 for passes of one row: SINGLE in common.glsl.
pub(crate) const SINGLE: u32 = 8;
/// Number and name of the constants that describe a format with scales of groups.
pub(crate) const WEIGHTS: [(u32, &str); 5] = [(15, "low"), (16, "high"), (17, "zero"), (18, "table"), (19, "scales")];
/// Number and name of the constant of products that says whether they are of experts (experts.glsl).
pub(crate) const EXPERTS: (u32, &str) = (20, "experts");
/// The highest number of a constant.
const LAST: u32 = EXPERTS.0;

/// The specialization constants of a pipeline, from constant 1 on. Constants that its shader does not have are 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Constants([u32; LAST as usize]);

impl std::fmt::Debug for Constants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Constants {
    /// The values of the specialization constants: index i holds the value of constant i + 1.
    pub fn values(&self) -> &[u32] {
        &self.0
    }

    /// All constants' values; `None` if there are not as many.
    #[cfg(feature = "amdgpu")]
    pub fn read(values: &[u32]) -> Option<Constants> {
        values.try_into().ok().map(Constants)
    }

    /// For passes of one row, whose kernels do not read the row count from the step state.
    pub fn set_single_row(&mut self) {
        self.0[SINGLE as usize - 1] = 1;
    }
}

impl Constants {
    /// Other values of the constants of a structure.
    pub fn replace<S: Specialization>(&mut self, own: S) {
        let values = own.constants();
        S::NAMES.iter().for_each(|(number, _)| self.0[*number as usize - 1] = values.0[*number as usize - 1]);
    }

    /// For a product of experts, of whose rows so many read one row of the inputs. 0: a product that is not of experts.
    pub fn set_experts(&mut self, share: u32) {
        self.0[EXPERTS.0 as usize - 1] = share;
    }

    /// For a module of weights with scales of groups: the format's layout.
    pub fn set_weights(&mut self, format: Grouped) {
        let Grouped { low, high, zero, table, scales } = format;
        let values = [low as u32, high as u32, u32::from(zero), u32::from(table), scales as u32];
        for ((number, _), value) in WEIGHTS.into_iter().zip(values) {
            self.0[number as usize - 1] = value;
        }
    }
}

/// The specialization constants of one shader.
pub trait Specialization: Copy {
    /// The number and the name of each constant.
    const NAMES: &'static [(u32, &'static str)];

    /// The constants of a pipeline.
    fn constants(self) -> Constants;

    /// Reads the constants of this shader from those of a pipeline.
    fn of(constants: &Constants) -> Self;
}

/// Index of constant `number` among those that [`Constants`] holds.
const fn place(number: u32) -> usize {
    assert!(number != 0 && number != SINGLE && number < WEIGHTS[0].0);
    number as usize - 1
}

macro_rules! constants {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident = $number:literal,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: u32,)* }

        impl Specialization for $name {
            const NAMES: &'static [(u32, &'static str)] = &[$(($number, stringify!($field)),)*];

            fn constants(self) -> Constants {
                #[allow(unused_mut)]
                let mut all = Constants::default();
                $(all.0[const { place($number) }] = self.$field;)*
                all
            }

            fn of(_all: &Constants) -> $name {
                $name { $($field: _all.0[const { place($number) }],)* }
            }
        }
    )*};
}

constants! {
    /// No specialization constants, for shaders that have none of their own.
    NoConstants {}

    /// Specialization constants of embed.comp.
    EmbedConstants {
        /// 1: tokens are the next tokens of the pass before; 2: those of the draft's step before, at the same positions.
        chosen = 1,
    }

    /// Specialization constants of norm.comp.
    NormConstants {
        /// Vectors of four elements of a row per lane.
        vecs = 1,
        /// The activation layout of the output (activation_layout.glsl).
        form = 2,
        /// 1: the output is written in f32 as well.
        keep = 3,
        /// 1: the sum with the residual is multiplied by a number.
        scaled = 4,
        /// 1: the shader also writes the residual's norm by a second norm's weights, `out2`.
        twice = 5,
    }

    /// Specialization constants of linear.comp.
    LinearConstants {
        /// Number of outputs that a subgroup computes.
        rows = 1,
        /// Rows of x that share a load of weights.
        columns = 2,
    }

    /// Specialization constants of linear_dot.comp.
    LinearDotConstants {
        /// Number of outputs that a lane computes at a time.
        rows = 1,
        /// Rows of x that share a load of weights.
        columns = 2,
        /// Loads in flight for each output.
        unroll = 3,
        /// Inputs, in loads of weights ([`crate::model::WeightFormat::per_load`]).
        blocks = 4,
        /// Number of lanes in a subgroup.
        subgroup = 5,
        /// Relay stages of `linear_dot_gelu`; 1 without.
        stages = 6,
        /// Layout of the output of `linear_dot_gelu` (activation_layout.glsl).
        form = 7,
        /// Number of lanes that share an output.
        sharers = 9,
    }

    /// Specialization constants of linear_matrix.comp.
    LinearMatrixConstants {
        /// Number of rows in a workgroup's tile.
        bm = 1,
        /// Number of outputs in a workgroup's tile.
        bn = 2,
        /// Number of inputs that the loop consumes in a step.
        bk = 3,
        /// Number of rows that a subgroup computes.
        wm = 4,
        /// Number of outputs that a subgroup computes.
        wn = 5,
        /// Number of subgroups that share an output: each sums over its own range of the inputs.
        ksplit = 6,
        /// Number of steps to which the loop is unrolled.
        round = 7,
        /// Number of steps whose loads from memory are in flight.
        depth = 9,
        /// Rows of the matrix units' operand A.
        m = 10,
        /// Columns of the matrix units' operand B.
        n = 11,
        /// Columns of the matrix units' operand A.
        k = 12,
    }

    /// linear_fragment.comp, inputs from memory to registers.
    LinearFragmentConstants {
        /// Number of rows that a workgroup computes.
        bm = 1,
        /// Number of outputs that a subgroup computes.
        outputs = 2,
        /// Subgroups side by side along the outputs.
        subs_n = 3,
        /// Number of subgroups that share an output: each sums over its own range of the inputs.
        parts = 4,
        /// Lane loads per weight row and step.
        span = 5,
        /// Steps of weights in flight from memory.
        depth = 6,
        /// Lanes per row of the matrix units' operand A.
        sharers = 9,
        /// Rows of the matrix units' operand A.
        m = 10,
        /// Columns of the matrix units' operand B.
        n = 11,
        /// Columns of the matrix units' operand A.
        k = 12,
        /// 1: gate and up, with their gated GELU in F16Block.
        gated = 13,
        /// 1: inputs in F16Block.
        blocks = 14,
    }

    /// linear_fragment.comp built with TALL, its variant for many rows, which reads its inputs through shared memory.
    LinearFragmentTallConstants {
        /// Number of rows that a workgroup computes.
        bm = 1,
        /// Number of outputs that a subgroup computes.
        outputs = 2,
        /// Subgroups side by side along the outputs.
        subs_n = 3,
        /// Subgroups that divide the rows.
        parts = 4,
        /// Lane loads per weight row, in the steps that share them.
        span = 5,
        /// Steps of weights in flight from memory; steps that share a load count once.
        depth = 6,
        /// Steps of inputs that shared memory holds.
        stages = 7,
        /// Lanes per row of the matrix units' operand A.
        sharers = 9,
        /// Rows of the matrix units' operand A.
        m = 10,
        /// Columns of the matrix units' operand B.
        n = 11,
        /// Columns of the matrix units' operand A.
        k = 12,
        /// Steps that share a load of weights, one or two; two only with 32 elements a load.
        halves = 13,
        /// 1: eight f16 scales of a row come through shared memory together; 0: each comes with its load of weights.
        in_batches = 14,
    }

    /// Specialization constants of attend.comp.
    AttendConstants {
        /// Number of elements in a head.
        dim = 1,
        /// Number of query heads that a workgroup computes.
        group = 2,
        /// Most keys of the pass that a row sees, if fused with norm, RoPE and the KV write; else 0.
        fused = 3,
        /// The activation layout of the output (activation_layout.glsl).
        form = 4,
        /// Number of lanes in a subgroup.
        subgroup = 5,
        /// 1: only the rows after the pass's chunk.
        behind = 6,
        /// 1: with `fused`, values of the pass are normed.
        norm_v = 7,
        /// 1: queries alone are prepared, for the position behind the row's.
        ahead = 9,
    }

    /// Specialization constants of attend_matrix.comp.
    AttendMatrixConstants {
        /// Number of elements in a head.
        dim = 1,
        /// Number of keys in a tile.
        kt = 2,
        /// Number of lanes in a subgroup.
        subgroup = 3,
        /// Rows of the matrix units' operand A.
        m = 4,
        /// Columns of the matrix units' operand B.
        n = 5,
        /// Columns of the matrix units' operand A.
        k = 6,
        /// 1: keys are divided among workgroups.
        divided = 7,
    }

    /// Specialization constants of pack.comp.
    PackConstants {
        /// Vectors of four elements of a row per lane.
        vecs = 1,
        /// The activation layout of the output (activation_layout.glsl).
        form = 2,
        /// Number of workgroups that share a row.
        parts = 3,
        /// Row r is made of row `list[r] / gather`; 0: of row r.
        gather = 4,
    }

    /// Specialization constants of route.comp.
    RouteConstants {
        /// Rows of x that share a load of the router's weights.
        columns = 1,
        /// 1: the router's scores were computed before, and the shader only chooses experts.
        choose_only = 2,
        /// Experts whose scores a subgroup computes at a time.
        each = 3,
    }

    /// Specialization constants of group.comp.
    GroupConstants {
        /// 0: rows stay in their order, each a tile.
        sorts = 1,
    }

    /// Specialization constants of join.comp.
    JoinConstants {
        /// Vectors of four elements of a row per lane.
        vecs = 1,
        /// The activation layout of the output (activation_layout.glsl).
        form = 2,
        /// 1: the expert rows are in the order that group.comp gave them.
        grouped_rows = 3,
        /// 1: the shader also computes the next layer's first norm.
        next = 4,
        /// 1: the sum with the residual is multiplied by a number.
        scaled = 5,
        /// Number of experts that each row uses.
        used = 6,
    }

    /// Specialization constants of expert_sum.comp.
    ExpertSumConstants {
        /// 1: the expert rows are in the order that group.comp gave them.
        grouped_rows = 1,
    }

    /// Specialization constants of argmax.comp.
    ArgmaxConstants {
        /// Number of workgroups that share a row.
        groups = 1,
    }

    /// Specialization constants of fragment.comp.
    FragmentConstants {
        /// Rows of the matrix units' operand A.
        m = 10,
        /// Columns of the matrix units' operand B.
        n = 11,
        /// Columns of the matrix units' operand A.
        k = 12,
    }

    /// Specialization constants of matrix_rate.comp.
    MatrixRateConstants {
        /// Rows of the matrix units' operand A.
        m = 1,
        /// Columns of the matrix units' operand B.
        n = 2,
        /// Columns of the matrix units' operand A.
        k = 3,
        /// Number of subgroups in a workgroup.
        subgroups = 4,
    }
}
