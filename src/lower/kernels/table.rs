//! The table of SPIR-V modules: the one place that lists them.
//!
//! build.rs includes this file too, to compile the modules. So the file holds only the table, as a macro that passes it
//! to another macro. Each entry has a doc comment about the module's computation, and these fields:
//!
//! - `name`: its file in shaders/spv, and its name in profiles and logs
//! - `source`: the file in shaders that it is compiled from
//! - `defines`: preprocessor definitions
//! - `constants`: its specialization constants, a structure of constants.rs
//! - `push`: its push constants, a structure of push/blocks.rs
//! - `relay`: `Never`, `Whole`, `Product` or `Staged` (`Relaying` in mod.rs)

/// Passes the table to the macro `$with`.
macro_rules! spirv_modules {
    ($with:ident) => {
        $with! {
            /// Token embedding from INT8 rows.
            EmbedInt8 {
                name: "embed_int8", source: "embed", defines: ["WEIGHT_INT8"],
                constants: EmbedConstants, push: EmbedPush, relay: Never,
            }
            /// Token embedding from rows with scales of groups.
            EmbedGrouped {
                name: "embed_grouped", source: "embed", defines: ["WEIGHT_GROUPED"],
                constants: EmbedConstants, push: EmbedPush, relay: Never,
            }
            /// Token embedding from BF16 rows.
            EmbedBf16 {
                name: "embed_bf16", source: "embed", defines: ["WEIGHT_BF16"],
                constants: EmbedConstants, push: EmbedPush, relay: Never,
            }
            /// RMSNorm.
            RmsNorm {
                name: "rms_norm", source: "norm", defines: ["RMS_NORM"],
                constants: NormConstants, push: NormPush, relay: Whole,
            }
            /// RMSNorm, added to the residual.
            NormAdd {
                name: "norm_add", source: "norm", defines: ["NORM_ADD"],
                constants: NormConstants, push: NormPush, relay: Whole,
            }
            /// RMSNorm added to the residual, and the RMSNorm of the sum.
            NormAddNorm {
                name: "norm_add_norm", source: "norm", defines: ["NORM_ADD_NORM"],
                constants: NormConstants, push: NormPush, relay: Whole,
            }
            /// Matrix product of few rows in f32, INT8.
            LinearInt8 {
                name: "linear_int8", source: "linear", defines: ["WEIGHT_INT8"],
                constants: LinearConstants, push: LinearPush, relay: Never,
            }
            /// Matrix product of few rows in f32, scales of groups.
            LinearGrouped {
                name: "linear_grouped", source: "linear", defines: ["WEIGHT_GROUPED"],
                constants: LinearConstants, push: LinearPush, relay: Never,
            }
            /// Matrix product of few rows in f32, BF16.
            LinearBf16 {
                name: "linear_bf16", source: "linear", defines: ["WEIGHT_BF16"],
                constants: LinearConstants, push: LinearPush, relay: Never,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, INT8.
            LinearGeluInt8 {
                name: "linear_gelu_int8", source: "linear", defines: ["WEIGHT_INT8", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, scales of groups.
            LinearGeluGrouped {
                name: "linear_gelu_grouped", source: "linear", defines: ["WEIGHT_GROUPED", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, BF16.
            LinearGeluBf16 {
                name: "linear_gelu_bf16", source: "linear", defines: ["WEIGHT_BF16", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never,
            }
            /// Matrix product of few rows by integer dot products, INT8.
            LinearDotInt8 {
                name: "linear_dot_int8", source: "linear_dot", defines: ["WEIGHT_INT8"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged,
            }
            /// Matrix product of few rows by integer dot products, scales of groups.
            LinearDotGrouped {
                name: "linear_dot_grouped", source: "linear_dot", defines: ["WEIGHT_GROUPED"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, INT8.
            LinearDotGeluInt8 {
                name: "linear_dot_gelu_int8", source: "linear_dot", defines: ["WEIGHT_INT8", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, scales of groups.
            LinearDotGeluGrouped {
                name: "linear_dot_gelu_grouped", source: "linear_dot", defines: ["WEIGHT_GROUPED", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged,
            }
            /// Matrix product of many rows by integer dot products, INT8.
            LinearDotTileInt8 {
                name: "linear_dot_tile_int8", source: "linear_dot_tile", defines: ["WEIGHT_INT8"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never,
            }
            /// Matrix product of many rows by integer dot products, scales of groups.
            LinearDotTileGrouped {
                name: "linear_dot_tile_grouped", source: "linear_dot_tile", defines: ["WEIGHT_GROUPED"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never,
            }
            /// Matrix product of many rows in f32, INT8.
            LinearTileInt8 {
                name: "linear_tile_int8", source: "linear_tile", defines: ["WEIGHT_INT8"],
                constants: NoConstants, push: LinearPush, relay: Never,
            }
            /// Matrix product of many rows in f32, scales of groups.
            LinearTileGrouped {
                name: "linear_tile_grouped", source: "linear_tile", defines: ["WEIGHT_GROUPED"],
                constants: NoConstants, push: LinearPush, relay: Never,
            }
            /// Matrix product of many rows in f32, BF16.
            LinearTileBf16 {
                name: "linear_tile_bf16", source: "linear_tile", defines: ["WEIGHT_BF16"],
                constants: NoConstants, push: LinearPush, relay: Never,
            }
            /// QK-norm, RoPE and KV write, f16 cache.
            HeadPrepareF16 {
                name: "head_prepare_f16", source: "head_prepare", defines: ["KV_F16"],
                constants: NoConstants, push: HeadPreparePush, relay: Never,
            }
            /// QK-norm, RoPE and KV write, bf16 cache.
            HeadPrepareBf16 {
                name: "head_prepare_bf16", source: "head_prepare", defines: ["KV_BF16"],
                constants: NoConstants, push: HeadPreparePush, relay: Never,
            }
            /// QK-norm, RoPE and KV write, f32 cache.
            HeadPrepareF32 {
                name: "head_prepare_f32", source: "head_prepare", defines: ["KV_F32"],
                constants: NoConstants, push: HeadPreparePush, relay: Never,
            }
            /// Attention over an f16 cache.
            AttendF16 {
                name: "attend_f16", source: "attend", defines: ["KV_F16"],
                constants: AttendConstants, push: AttendPush, relay: Whole,
            }
            /// Attention over a bf16 cache.
            AttendBf16 {
                name: "attend_bf16", source: "attend", defines: ["KV_BF16"],
                constants: AttendConstants, push: AttendPush, relay: Whole,
            }
            /// Attention over an f32 cache.
            AttendF32 {
                name: "attend_f32", source: "attend", defines: ["KV_F32"],
                constants: AttendConstants, push: AttendPush, relay: Whole,
            }
            /// Packs a linear step's input from f32 into the activation layout that its kernel reads.
            Pack {
                name: "pack", source: "pack", defines: [],
                constants: PackConstants, push: PackPush, relay: Whole,
            }
            /// Gated GELU.
            GatedGelu {
                name: "gated_gelu", source: "pack", defines: ["GELU"],
                constants: PackConstants, push: PackPush, relay: Whole,
            }
            /// The experts of each row and their gains.
            Route {
                name: "route", source: "route", defines: [],
                constants: RouteConstants, push: RoutePush, relay: Whole,
            }
            /// Brings the rows that use one expert together.
            Group {
                name: "group", source: "group", defines: [],
                constants: GroupConstants, push: GroupPush, relay: Whole,
            }
            /// The weighted sum of the experts' outputs.
            ExpertSum {
                name: "expert_sum", source: "expert_sum", defines: [],
                constants: ExpertSumConstants, push: ExpertSumPush, relay: Whole,
            }
            /// The end of a layer with experts: sum, norms and the next layer's first norm.
            Join {
                name: "join", source: "join", defines: [],
                constants: JoinConstants, push: JoinPush, relay: Whole,
            }
            /// Cap of the logits.
            SoftCap {
                name: "soft_cap", source: "soft_cap", defines: [],
                constants: NoConstants, push: SoftCapPush, relay: Never,
            }
            /// Argmax of the logits.
            Argmax {
                name: "argmax", source: "argmax", defines: [],
                constants: ArgmaxConstants, push: ArgmaxPush, relay: Never,
            }
            /// Each block's largest logit and sum, for a choice other than argmax.
            BlockSums {
                name: "block_sums", source: "block_sums", defines: [],
                constants: NoConstants, push: BlockSumsPush, relay: Never,
            }
            /// The likeliest tokens, for a choice other than argmax.
            Candidates {
                name: "candidates", source: "candidates", defines: [],
                constants: NoConstants, push: CandidatesPush, relay: Never,
            }
            /// The read ceiling.
            Read {
                name: "read", source: "read", defines: [],
                constants: NoConstants, push: ReadPush, relay: Never,
            }
            /// Matrix product of many rows by matrix units that multiply f16, INT8.
            LinearMatrixInt8 {
                name: "linear_matrix_int8", source: "linear_matrix", defines: ["WEIGHT_INT8"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Matrix product of many rows by matrix units that multiply s8, INT8.
            LinearMatrixS8Int8 {
                name: "linear_matrix_s8_int8", source: "linear_matrix", defines: ["WEIGHT_INT8", "BYTES"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Matrix product of many rows by matrix units that multiply s8 in matrices 8 inputs wide, INT8.
            LinearMatrixS8NarrowInt8 {
                name: "linear_matrix_s8_narrow_int8", source: "linear_matrix", defines: ["WEIGHT_INT8", "BYTES", "NARROW"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Matrix product of many rows by matrix units that multiply f16, scales of groups.
            LinearMatrixGrouped {
                name: "linear_matrix_grouped", source: "linear_matrix", defines: ["WEIGHT_GROUPED"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Finds the layout of fragments.
            Fragment {
                name: "fragment", source: "fragment", defines: [],
                constants: FragmentConstants, push: FragmentPush, relay: Never,
            }
            /// Matrix product of few rows by matrix units, INT8 weights and inputs from memory to registers.
            LinearFragmentInt8 {
                name: "linear_fragment_int8", source: "linear_fragment", defines: ["WEIGHT_INT8"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Matrix product of many rows by matrix units, INT8 weights, inputs through shared memory.
            LinearFragmentTallInt8 {
                name: "linear_fragment_tall_int8", source: "linear_fragment", defines: ["WEIGHT_INT8", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Matrix product of few rows by matrix units, weights with scales of groups and inputs from memory to registers.
            LinearFragmentGrouped {
                name: "linear_fragment_grouped", source: "linear_fragment", defines: ["WEIGHT_GROUPED"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Matrix product of many rows by matrix units, weights with scales of groups, inputs through shared memory.
            LinearFragmentTallGrouped {
                name: "linear_fragment_tall_grouped", source: "linear_fragment", defines: ["WEIGHT_GROUPED", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product,
            }
            /// Attention of consecutive rows by matrix units, f16 cache.
            AttendMatrixF16 {
                name: "attend_matrix_f16", source: "attend_matrix", defines: [],
                constants: AttendMatrixConstants, push: AttendMatrixPush, relay: Never,
            }
            /// Attention of consecutive rows by matrix units, f16 cache, queries in shared memory.
            AttendMatrixReloadF16 {
                name: "attend_matrix_reload_f16", source: "attend_matrix", defines: ["RELOAD"],
                constants: AttendMatrixConstants, push: AttendMatrixPush, relay: Never,
            }
            /// Attention of consecutive rows by matrix units, bf16 cache.
            AttendMatrixBf16 {
                name: "attend_matrix_bf16", source: "attend_matrix", defines: ["KV_BF16"],
                constants: AttendMatrixConstants, push: AttendMatrixPush, relay: Never,
            }
            /// Attention of consecutive rows by matrix units, bf16 cache, queries in shared memory.
            AttendMatrixReloadBf16 {
                name: "attend_matrix_reload_bf16", source: "attend_matrix", defines: ["RELOAD", "KV_BF16"],
                constants: AttendMatrixConstants, push: AttendMatrixPush, relay: Never,
            }
            /// The matrix units' ceiling.
            MatrixRate {
                name: "matrix_rate", source: "matrix_rate", defines: [],
                constants: MatrixRateConstants, push: MatrixRatePush, relay: Never,
            }
            /// Fills and copies, for a driver that has none of its own.
            Copy {
                name: "copy", source: "copy", defines: [],
                constants: NoConstants, push: CopyPush, relay: Never,
            }
        }
    };
}
