//! The table of SPIR-V modules: the one place that lists them.
//!
//! build.rs includes this file too, to know what to compile. So the file holds only the table, as a macro that passes
//! it to another macro. Each entry has a doc comment that says what the module computes, and these fields:
//!
//! - `name`: its file in shaders/spv, and its name in profiles and logs
//! - `source`: the file in shaders that it is compiled from
//! - `defines`: preprocessor definitions
//! - `constants`: its specialization constants, a structure of constants.rs
//! - `push`: its push constants, a structure of push/blocks.rs
//! - `relay`: `Never`, `Whole`, `Product` or `Staged` (`Relaying` in mod.rs)
//! - `matrix_units`: whether only devices with matrix units can make pipelines of it

/// Hands the table to the macro `$with`.
macro_rules! spirv_modules {
    ($with:ident) => {
        $with! {
            /// Token embedding from INT8 rows.
            EmbedInt8 {
                name: "embed_int8", source: "embed", defines: ["WEIGHT_INT8"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// Token embedding from INT4 rows.
            EmbedInt4 {
                name: "embed_int4", source: "embed", defines: ["WEIGHT_INT4"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// Token embedding from Q5_0 rows.
            EmbedQ5_0 {
                name: "embed_q5_0", source: "embed", defines: ["WEIGHT_Q5_0"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// Token embedding from Q8_0 rows.
            EmbedQ8_0 {
                name: "embed_q8_0", source: "embed", defines: ["WEIGHT_Q8_0"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// Token embedding from Q4_K rows.
            EmbedQ4K {
                name: "embed_q4_k", source: "embed", defines: ["WEIGHT_Q4_K"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// Token embedding from Q6_K rows.
            EmbedQ6K {
                name: "embed_q6_k", source: "embed", defines: ["WEIGHT_Q6_K"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// Token embedding from BF16 rows.
            EmbedBf16 {
                name: "embed_bf16", source: "embed", defines: ["WEIGHT_BF16"],
                constants: EmbedConstants, push: EmbedPush, relay: Never, matrix_units: false,
            }
            /// RMSNorm.
            RmsNorm {
                name: "rms_norm", source: "norm", defines: ["RMS_NORM"],
                constants: NormConstants, push: NormPush, relay: Whole, matrix_units: false,
            }
            /// RMSNorm, added to the residual.
            NormAdd {
                name: "norm_add", source: "norm", defines: ["NORM_ADD"],
                constants: NormConstants, push: NormPush, relay: Whole, matrix_units: false,
            }
            /// RMSNorm added to the residual, and the RMSNorm of that.
            NormAddNorm {
                name: "norm_add_norm", source: "norm", defines: ["NORM_ADD_NORM"],
                constants: NormConstants, push: NormPush, relay: Whole, matrix_units: false,
            }
            /// Matrix product of few rows in f32, INT8.
            LinearInt8 {
                name: "linear_int8", source: "linear", defines: ["WEIGHT_INT8"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows in f32, INT4.
            LinearInt4 {
                name: "linear_int4", source: "linear", defines: ["WEIGHT_INT4"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows in f32, Q5_0.
            LinearQ5_0 {
                name: "linear_q5_0", source: "linear", defines: ["WEIGHT_Q5_0"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows in f32, Q8_0.
            LinearQ8_0 {
                name: "linear_q8_0", source: "linear", defines: ["WEIGHT_Q8_0"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows in f32, Q4_K.
            LinearQ4K {
                name: "linear_q4_k", source: "linear", defines: ["WEIGHT_Q4_K"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows in f32, Q6_K.
            LinearQ6K {
                name: "linear_q6_k", source: "linear", defines: ["WEIGHT_Q6_K"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows in f32, BF16.
            LinearBf16 {
                name: "linear_bf16", source: "linear", defines: ["WEIGHT_BF16"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, INT8.
            LinearGeluInt8 {
                name: "linear_gelu_int8", source: "linear", defines: ["WEIGHT_INT8", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, INT4.
            LinearGeluInt4 {
                name: "linear_gelu_int4", source: "linear", defines: ["WEIGHT_INT4", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, Q5_0.
            LinearGeluQ5_0 {
                name: "linear_gelu_q5_0", source: "linear", defines: ["WEIGHT_Q5_0", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, Q8_0.
            LinearGeluQ8_0 {
                name: "linear_gelu_q8_0", source: "linear", defines: ["WEIGHT_Q8_0", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, Q4_K.
            LinearGeluQ4K {
                name: "linear_gelu_q4_k", source: "linear", defines: ["WEIGHT_Q4_K", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, Q6_K.
            LinearGeluQ6K {
                name: "linear_gelu_q6_k", source: "linear", defines: ["WEIGHT_Q6_K", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Gate and up products of few rows in f32 with their gated GELU, BF16.
            LinearGeluBf16 {
                name: "linear_gelu_bf16", source: "linear", defines: ["WEIGHT_BF16", "GELU"],
                constants: LinearConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of few rows by integer dot products, INT8.
            LinearDotInt8 {
                name: "linear_dot_int8", source: "linear_dot", defines: [],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Matrix product of few rows by integer dot products, INT4.
            LinearDotInt4 {
                name: "linear_dot_int4", source: "linear_dot", defines: ["WEIGHT_INT4"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Matrix product of few rows by integer dot products, Q5_0.
            LinearDotQ5_0 {
                name: "linear_dot_q5_0", source: "linear_dot", defines: ["WEIGHT_Q5_0"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Matrix product of few rows by integer dot products, Q8_0.
            LinearDotQ8_0 {
                name: "linear_dot_q8_0", source: "linear_dot", defines: ["WEIGHT_Q8_0"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Matrix product of few rows by integer dot products, Q4_K.
            LinearDotQ4K {
                name: "linear_dot_q4_k", source: "linear_dot", defines: ["WEIGHT_Q4_K"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Matrix product of few rows by integer dot products, Q6_K.
            LinearDotQ6K {
                name: "linear_dot_q6_k", source: "linear_dot", defines: ["WEIGHT_Q6_K"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, INT8.
            LinearDotGeluInt8 {
                name: "linear_dot_gelu_int8", source: "linear_dot", defines: ["GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, INT4.
            LinearDotGeluInt4 {
                name: "linear_dot_gelu_int4", source: "linear_dot", defines: ["WEIGHT_INT4", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, Q5_0.
            LinearDotGeluQ5_0 {
                name: "linear_dot_gelu_q5_0", source: "linear_dot", defines: ["WEIGHT_Q5_0", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, Q8_0.
            LinearDotGeluQ8_0 {
                name: "linear_dot_gelu_q8_0", source: "linear_dot", defines: ["WEIGHT_Q8_0", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, Q4_K.
            LinearDotGeluQ4K {
                name: "linear_dot_gelu_q4_k", source: "linear_dot", defines: ["WEIGHT_Q4_K", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Gate and up products of few rows by integer dot products with their gated GELU, Q6_K.
            LinearDotGeluQ6K {
                name: "linear_dot_gelu_q6_k", source: "linear_dot", defines: ["WEIGHT_Q6_K", "GELU"],
                constants: LinearDotConstants, push: LinearDotPush, relay: Staged, matrix_units: false,
            }
            /// Matrix product of many rows by integer dot products, INT8.
            LinearDotTileInt8 {
                name: "linear_dot_tile_int8", source: "linear_dot_tile", defines: [],
                constants: NoConstants, push: LinearDotTilePush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows by integer dot products, INT4.
            LinearDotTileInt4 {
                name: "linear_dot_tile_int4", source: "linear_dot_tile", defines: ["WEIGHT_INT4"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows by integer dot products, Q5_0.
            LinearDotTileQ5_0 {
                name: "linear_dot_tile_q5_0", source: "linear_dot_tile", defines: ["WEIGHT_Q5_0"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows by integer dot products, Q8_0.
            LinearDotTileQ8_0 {
                name: "linear_dot_tile_q8_0", source: "linear_dot_tile", defines: ["WEIGHT_Q8_0"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows by integer dot products, Q4_K.
            LinearDotTileQ4K {
                name: "linear_dot_tile_q4_k", source: "linear_dot_tile", defines: ["WEIGHT_Q4_K"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows by integer dot products, Q6_K.
            LinearDotTileQ6K {
                name: "linear_dot_tile_q6_k", source: "linear_dot_tile", defines: ["WEIGHT_Q6_K"],
                constants: NoConstants, push: LinearDotTilePush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, INT8.
            LinearTileInt8 {
                name: "linear_tile_int8", source: "linear_tile", defines: ["WEIGHT_INT8"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, INT4.
            LinearTileInt4 {
                name: "linear_tile_int4", source: "linear_tile", defines: ["WEIGHT_INT4"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, Q5_0.
            LinearTileQ5_0 {
                name: "linear_tile_q5_0", source: "linear_tile", defines: ["WEIGHT_Q5_0"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, Q8_0.
            LinearTileQ8_0 {
                name: "linear_tile_q8_0", source: "linear_tile", defines: ["WEIGHT_Q8_0"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, Q4_K.
            LinearTileQ4K {
                name: "linear_tile_q4_k", source: "linear_tile", defines: ["WEIGHT_Q4_K"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, Q6_K.
            LinearTileQ6K {
                name: "linear_tile_q6_k", source: "linear_tile", defines: ["WEIGHT_Q6_K"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows in f32, BF16.
            LinearTileBf16 {
                name: "linear_tile_bf16", source: "linear_tile", defines: ["WEIGHT_BF16"],
                constants: NoConstants, push: LinearPush, relay: Never, matrix_units: false,
            }
            /// QK-norm, RoPE and KV write, f16 cache.
            HeadPrepareF16 {
                name: "head_prepare_f16", source: "head_prepare", defines: ["KV_F16"],
                constants: NoConstants, push: HeadPreparePush, relay: Never, matrix_units: false,
            }
            /// QK-norm, RoPE and KV write, f32 cache.
            HeadPrepareF32 {
                name: "head_prepare_f32", source: "head_prepare", defines: ["KV_F32"],
                constants: NoConstants, push: HeadPreparePush, relay: Never, matrix_units: false,
            }
            /// Attention over an f16 cache.
            AttendF16 {
                name: "attend_f16", source: "attend", defines: ["KV_F16"],
                constants: AttendConstants, push: AttendPush, relay: Whole, matrix_units: false,
            }
            /// Attention over an f32 cache.
            AttendF32 {
                name: "attend_f32", source: "attend", defines: ["KV_F32"],
                constants: AttendConstants, push: AttendPush, relay: Whole, matrix_units: false,
            }
            /// Packs a linear step's input from f32 into the activation layout that its kernel reads.
            Pack {
                name: "pack", source: "pack", defines: [],
                constants: PackConstants, push: PackPush, relay: Whole, matrix_units: false,
            }
            /// Gated GELU.
            GatedGelu {
                name: "gated_gelu", source: "pack", defines: ["GELU"],
                constants: PackConstants, push: PackPush, relay: Whole, matrix_units: false,
            }
            /// Argmax of the logits.
            Argmax {
                name: "argmax", source: "argmax", defines: [],
                constants: ArgmaxConstants, push: ArgmaxPush, relay: Never, matrix_units: false,
            }
            /// Each block's largest logit and sum, for a choice other than argmax.
            BlockSums {
                name: "block_sums", source: "block_sums", defines: [],
                constants: NoConstants, push: BlockSumsPush, relay: Never, matrix_units: false,
            }
            /// The likeliest tokens, for a choice other than argmax.
            Candidates {
                name: "candidates", source: "candidates", defines: [],
                constants: NoConstants, push: CandidatesPush, relay: Never, matrix_units: false,
            }
            /// The read ceiling.
            Read {
                name: "read", source: "read", defines: [],
                constants: NoConstants, push: ReadPush, relay: Never, matrix_units: false,
            }
            /// Matrix product of many rows by matrix units that multiply f16, INT8.
            LinearMatrixInt8 {
                name: "linear_matrix_int8", source: "linear_matrix", defines: [],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of many rows by matrix units that multiply s8, INT8.
            LinearMatrixS8Int8 {
                name: "linear_matrix_s8_int8", source: "linear_matrix", defines: ["BYTES"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, where the units' matrices are 8 inputs wide.
            LinearMatrixS8NarrowInt8 {
                name: "linear_matrix_s8_narrow_int8", source: "linear_matrix", defines: ["BYTES", "NARROW"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of many rows by matrix units that multiply f16, INT4.
            LinearMatrixInt4 {
                name: "linear_matrix_int4", source: "linear_matrix", defines: ["WEIGHT_INT4"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of many rows by matrix units that multiply f16, Q5_0.
            LinearMatrixQ5_0 {
                name: "linear_matrix_q5_0", source: "linear_matrix", defines: ["WEIGHT_Q5_0"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of many rows by matrix units that multiply f16, Q8_0.
            LinearMatrixQ8_0 {
                name: "linear_matrix_q8_0", source: "linear_matrix", defines: ["WEIGHT_Q8_0"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of many rows by matrix units that multiply f16, Q4_K.
            LinearMatrixQ4K {
                name: "linear_matrix_q4_k", source: "linear_matrix", defines: ["WEIGHT_Q4_K"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of many rows by matrix units that multiply f16, Q6_K.
            LinearMatrixQ6K {
                name: "linear_matrix_q6_k", source: "linear_matrix", defines: ["WEIGHT_Q6_K"],
                constants: LinearMatrixConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Finds the layout of fragments.
            Fragment {
                name: "fragment", source: "fragment", defines: [],
                constants: FragmentConstants, push: FragmentPush, relay: Never, matrix_units: true,
            }
            /// Matrix product of few rows by matrix units, INT8 weights and inputs from memory to registers.
            LinearFragmentInt8 {
                name: "linear_fragment_int8", source: "linear_fragment", defines: [],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, of many rows, whose inputs come through shared memory.
            LinearFragmentTallInt8 {
                name: "linear_fragment_tall_int8", source: "linear_fragment", defines: ["TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of few rows by matrix units, INT4 weights and inputs from memory to registers.
            LinearFragmentInt4 {
                name: "linear_fragment_int4", source: "linear_fragment", defines: ["WEIGHT_INT4"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of few rows by matrix units, Q5_0 weights and inputs from memory to registers.
            LinearFragmentQ5_0 {
                name: "linear_fragment_q5_0", source: "linear_fragment", defines: ["WEIGHT_Q5_0"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of few rows by matrix units, Q8_0 weights and inputs from memory to registers.
            LinearFragmentQ8_0 {
                name: "linear_fragment_q8_0", source: "linear_fragment", defines: ["WEIGHT_Q8_0"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of few rows by matrix units, Q4_K weights and inputs from memory to registers.
            LinearFragmentQ4K {
                name: "linear_fragment_q4_k", source: "linear_fragment", defines: ["WEIGHT_Q4_K"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Matrix product of few rows by matrix units, Q6_K weights and inputs from memory to registers.
            LinearFragmentQ6K {
                name: "linear_fragment_q6_k", source: "linear_fragment", defines: ["WEIGHT_Q6_K"],
                constants: LinearFragmentConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, of many rows, whose inputs come through shared memory.
            LinearFragmentTallInt4 {
                name: "linear_fragment_tall_int4", source: "linear_fragment", defines: ["WEIGHT_INT4", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, of many rows, whose inputs come through shared memory.
            LinearFragmentTallQ5_0 {
                name: "linear_fragment_tall_q5_0", source: "linear_fragment", defines: ["WEIGHT_Q5_0", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, of many rows, whose inputs come through shared memory.
            LinearFragmentTallQ8_0 {
                name: "linear_fragment_tall_q8_0", source: "linear_fragment", defines: ["WEIGHT_Q8_0", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, of many rows, whose inputs come through shared memory.
            LinearFragmentTallQ4K {
                name: "linear_fragment_tall_q4_k", source: "linear_fragment", defines: ["WEIGHT_Q4_K", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// As above, of many rows, whose inputs come through shared memory.
            LinearFragmentTallQ6K {
                name: "linear_fragment_tall_q6_k", source: "linear_fragment", defines: ["WEIGHT_Q6_K", "TALL"],
                constants: LinearFragmentTallConstants, push: LinearMatrixPush, relay: Product, matrix_units: true,
            }
            /// Attention of consecutive rows by matrix units, f16 cache.
            AttendMatrixF16 {
                name: "attend_matrix_f16", source: "attend_matrix", defines: [],
                constants: AttendMatrixConstants, push: AttendMatrixPush, relay: Never, matrix_units: true,
            }
            /// The matrix units' ceiling.
            MatrixRate {
                name: "matrix_rate", source: "matrix_rate", defines: [],
                constants: MatrixRateConstants, push: MatrixRatePush, relay: Never, matrix_units: true,
            }
        }
    };
}
