//! The push blocks: one structure per shader, whose fields are named as in the GLSL. A test compares names, types and
//! offsets with the SPIR-V.
//!
//! The two or three words of a relay (relay.glsl) follow the blocks of kernels that take part in one. They have
//! separate structures, because their values are known only when a list is baked.

use super::{Field, FieldValue, PUSH_BYTES, PushBlock};
use bytemuck::{Pod, Zeroable};

macro_rules! push_blocks {
    ($($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        // Packed to words. Addresses come first, at multiples of 8, but a block may end between two multiples of 8.
        #[repr(C, packed(4))]
        #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
        pub struct $name { $($(#[$doc])* pub $field: $kind,)* }

        impl PushBlock for $name {
            const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                kind: <$kind as FieldValue>::KIND,
            },)*];
        }

        const _: () = assert!(size_of::<$name>() <= PUSH_BYTES);
    )*};
}

push_blocks! {
    /// The words of a relay, after a block.
    RelayPush {
        /// Counter of the dispatch's workgroups, in words from the arena's start. 0: no dispatch waits for them.
        turn: u32,
        /// Workgroups of the dispatch before to wait for. 0: none, a barrier was recorded instead.
        before: u32,
    }

    /// The words of a relay for a product.
    ProductRelayPush {
        /// The counter of the dispatch's workgroups, as in [`RelayPush`].
        turn: u32,
        /// The number of workgroups of the dispatch before to wait for, as in [`RelayPush`].
        before: u32,
        /// Device address of the weights that the next product reads: bits 0 to 31.
        ahead_low: u32,
        /// Device address of the weights that the next product reads: bits 32 to 63.
        ahead_high: u32,
        /// Number of bytes of these weights. 0: no product follows, or dispatches are not relayed.
        ahead_bytes: u32,
    }

    /// The words of a relay for a product that waits for stages one by one.
    StagedRelayPush {
        /// As in [`RelayPush`], for the first stage; the others follow.
        turn: u32,
        /// As in [`RelayPush`], for each stage.
        before: u32,
        /// Number of stages of the dispatch before.
        stages: u32,
        /// As in [`ProductRelayPush`]: bits 0 to 31 of the address of the next product's weights.
        ahead_low: u32,
        /// As in [`ProductRelayPush`]: bits 32 to 63 of the address of the next product's weights.
        ahead_high: u32,
        /// As in [`ProductRelayPush`]: the number of bytes of the next product's weights.
        ahead_bytes: u32,
    }

    /// Push constants of embed.comp.
    EmbedPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// `[vocab, cols]` in a weight format ([`crate::model::WeightFormat`]).
        table: u64,
        /// The table's scales: INT8: f32 `[vocab]`. INT4: f16 `[vocab, cols / 32]`.
        scales: u64,
        /// Address of the output, f32 `[rows, out_stride]`.
        x_out: u64,
        /// Index of the step state's word with row 0's token.
        token: u32,
        /// Index of the step state's word with row 0's position.
        position: u32,
        /// Index of the step state's word with row 0's next token.
        next: u32,
        /// Columns of the table, padded to 16.
        cols: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
        /// Number of elements in a row.
        count: u32,
        /// The factor by which each embedding is multiplied.
        scale: f32,
    }

    /// norm.comp. Operands that a module does not use may be any address.
    NormPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, x_stride]`.
        x: u64,
        /// Address of the norm's weights, f32 `[width]`.
        w: u64,
        /// Address of the residual, to which the result is added: f32 `[rows, residual_stride]`.
        residual: u64,
        /// f32 `[width]`, of the second norm.
        w2: u64,
        /// f32 `[1]`, multiplies the sum with the residual.
        scalar: u64,
        /// Address of the output, f32 `[rows, out_stride]`.
        y_out: u64,
        /// `[rows]` in a packed activation layout (activation_layout.glsl).
        packed: u64,
        /// f32 `[width]`, of a second output.
        w3: u64,
        /// The second output, `[rows]` in the same packed layout and with the same stride.
        packed2: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// 1: row r is read from row head_first + r; else if not 0: from the row in the state word `gather + r`.
        gather: u32,
        /// Elements of a row, a multiple of 4.
        width: u32,
        /// Distance from one row of x to the next, in elements.
        x_stride: u32,
        /// Elements from row to row of the residual.
        residual_stride: u32,
        /// Elements from row to row of the output in f32.
        out_stride: u32,
        /// Bytes from row to row of the packed output.
        packed_stride: u32,
        /// Elements of a row of the packed output, with its padding.
        padded: u32,
        /// A small number that is added to the mean square, so that its root is never 0.
        eps: f32,
        /// Added to the mean square of the second norm.
        eps2: f32,
    }

    /// linear.comp and linear_tile.comp. Of experts, the weight is `[experts, n, k]`, and rows are expert rows.
    LinearPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// `[n, k]`, with GELU `[2 n, k]`, in a weight format ([`crate::model::WeightFormat`]).
        weight: u64,
        /// Its scales: INT8: f32, one for each row. INT4: f16, one for each 32 inputs of each row.
        scales: u64,
        /// Address of the input, f32 `[rows, x_stride]`.
        x: u64,
        /// Address of the output, f32 `[rows, out_stride]`.
        y_out: u64,
        /// The tiles of expert rows (experts.glsl), four u32 each; unused by other products.
        table: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of outputs of the product.
        n: u32,
        /// Number of inputs of the product, padded to a multiple of 16.
        k: u32,
        /// Elements from row to row of x, a multiple of 16.
        x_stride: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
    }

    /// Push constants of linear_dot.comp.
    LinearDotPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// `[n, K]`, with GELU `[2 n, K]`, in a weight format but BF16, in BLOCKS loads a row.
        weight: u64,
        /// Its scales: INT8: f32, one for each row. INT4: f16, one for each load.
        scales: u64,
        /// Int16Block for INT8, else Int16Sums `[rows, x_padded]`.
        x: u64,
        /// f32 `[rows, out_stride]`, with GELU Int16Block or Int16Sums `[rows, out_padded]`.
        y_out: u64,
        /// The tiles of expert rows (experts.glsl), four u32 each; unused by other products.
        table: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of outputs of the product.
        n: u32,
        /// Elements of a row of x, with its padding.
        x_padded: u32,
        /// Distance from one row of x to the next, in bytes.
        x_stride: u32,
        /// Elements, with GELU bytes, from row to row of the output.
        out_stride: u32,
        /// Elements of a row of the output, with its padding; GELU only.
        out_padded: u32,
        /// Rows of weights from a gate's to its up's; GELU only.
        apart: u32,
    }

    /// Push constants of linear_dot_tile.comp.
    LinearDotTilePush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// `[n, 16 * blocks]` in a weight format but BF16.
        weight: u64,
        /// Its scales: INT8: f32 `[n]`. INT4: f16 `[n, blocks / 2]`.
        scales: u64,
        /// Int16Block for INT8, else Int16Sums `[rows, x_padded]`.
        x: u64,
        /// Address of the output, f32 `[rows, out_stride]`.
        y_out: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of outputs of the product.
        n: u32,
        /// Number of inputs of the product, in blocks of 16.
        blocks: u32,
        /// Elements of a row of x, with its padding.
        x_padded: u32,
        /// Distance from one row of x to the next, in bytes.
        x_stride: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
    }

    /// product.glsl: linear_matrix.comp and linear_fragment.comp. Addresses are multiples of 64 unless said otherwise.
    LinearMatrixPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// `[n, k]`, with GATED `[2 n, k]`, in a weight format but BF16; a multiple of 16.
        weight: u64,
        /// Its scales: INT8: f32, one for each row. INT4: f16, one for each 32 inputs of each row. A multiple of 16.
        scales: u64,
        /// F16Row, Int16Row or F16Block `[rows]`: 2 bytes for each of the inputs padded to 32, then scales.
        x: u64,
        /// The f32 scale of x's row 0; a multiple of 4. With GATED, the word after each row's scale is 0 before the
        /// run, and receives the scale of the output's row.
        x_scales: u64,
        /// f32 `[rows, out_stride]`; a multiple of 4. With GATED F16Block `[rows]`.
        y_out: u64,
        /// f32 `[splits, rows, n]`, rows and outputs rounded up to whole tiles; unused without splits.
        parts: u64,
        /// One counter a tile, zero before the first run (each run leaves them so); unused without splits.
        arrived: u64,
        /// The tiles of expert rows (experts.glsl), four u32 each; unused by other products.
        table: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of outputs of the product.
        n: u32,
        /// Number of inputs of the product, padded to a multiple of 16.
        k: u32,
        /// Bytes from row to row of x, a multiple of 64.
        x_stride: u32,
        /// Bytes from a row's scale to the next row's.
        x_scale_stride: u32,
        /// Elements, with GATED bytes, from row to row of the output.
        out_stride: u32,
        /// Workgroups that divide a tile's inputs among them.
        splits: u32,
    }

    /// head_prepare.comp. Operands that no workgroup accesses may be any address.
    HeadPreparePush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// f32 `[rows, stride]`, of which heads * dim are used.
        q: u64,
        /// f32 `[rows, stride]`, of which kv_heads * dim are used.
        k: u64,
        /// f32 `[rows, stride]`, of which kv_heads * dim are used.
        v: u64,
        /// f32 `[dim]`: the weights of q's norm.
        wq: u64,
        /// f32 `[dim]`: the weights of k's norm.
        wk: u64,
        /// f32 `[dim / 2]`: RoPE's frequencies for q.
        frequencies_q: u64,
        /// f32 `[dim / 2]`: RoPE's frequencies for k.
        frequencies_k: u64,
        /// The sequences' page tables, u64 `[sequence][entries]`.
        table: u64,
        /// Index of the step state's word with row 0's position.
        position: u32,
        /// Index of the step state's word with row 0's sequence.
        sequence: u32,
        /// Number of query heads.
        heads: u32,
        /// Number of key heads, and of value heads.
        kv_heads: u32,
        /// Elements of a head, even and at most 512.
        dim: u32,
        /// Elements from row to row of q, k and v.
        stride: u32,
        /// How page tables are read, and the offset of the layer's data in a page: shaders/kv.glsl.
        paging: u32,
        /// 0: k is already normed and rotated.
        norm_k: u32,
        /// 0: v is written as it is.
        norm_v: u32,
        /// Added to the mean square in q's norm.
        eps_q: f32,
        /// Added to the mean square in k's norm.
        eps_k: f32,
        /// Added to the mean square in v's norm.
        eps_v: f32,
    }

    /// attend.comp. k, v, wq, wk and frequencies are for FUSED.
    AttendPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// f32 `[rows, stride]`, of which heads * DIM are used.
        q: u64,
        /// f32 `[rows, stride]`, of which kv_heads * DIM are used.
        k: u64,
        /// f32 `[rows, stride]`, of which kv_heads * DIM are used.
        v: u64,
        /// f32 `[DIM]`: the weights of q's norm.
        wq: u64,
        /// f32 `[DIM]`: the weights of k's norm.
        wk: u64,
        /// f32 `[DIM / 2]`: RoPE's frequencies.
        frequencies: u64,
        /// The sequences' page tables, u64 `[sequence][entries]`.
        table: u64,
        /// `[rows]` of heads * DIM, in f32 or a packed activation layout.
        y_out: u64,
        /// Counters u32 `[rows of the grid][heads / GROUP]`, then the sums of each part of the keys.
        scratch: u64,
        /// Index of the step state's word with row 0's position.
        position: u32,
        /// Index of the step state's word with row 0's sequence.
        sequence: u32,
        /// Number of query heads.
        heads: u32,
        /// Number of key heads, and of value heads.
        kv_heads: u32,
        /// Elements from row to row of q, k and v.
        stride: u32,
        /// From row to row of the output: elements in f32, bytes in a packed layout.
        out_stride: u32,
        /// How page tables are read, and the offset of the layer's data in a page: shaders/kv.glsl.
        paging: u32,
        /// Number of positions that a row attends to, its own included; 0: all.
        window: u32,
        /// The factor of attention's scores, before softmax.
        scale: f32,
        /// Added to the mean square in the norms.
        eps: f32,
    }

    /// Push constants of attend_matrix.comp.
    AttendMatrixPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// f32 `[rows, q_stride]`, normed and rotated; a multiple of 16.
        q: u64,
        /// The sequences' page tables, u64 `[sequence][entries]`.
        table: u64,
        /// F16Row `[rows]`: heads * DIM padded to 32, then the f32 scale 1; a multiple of 16.
        y_out: u64,
        /// f32 `[grid's z, rows of the grid, heads, DIM + 4]`, where the grid's z is more than 1; a multiple of 16.
        parts: u64,
        /// A counter u32 for each of the grid's x and y, zero before and after.
        arrived: u64,
        /// Index of the step state's word with row 0's position; the rows of the chunk follow it.
        position: u32,
        /// Index of the step state's word with row 0's sequence, which all rows of the chunk share.
        sequence: u32,
        /// Number of query heads.
        heads: u32,
        /// Number of key heads, and of value heads.
        kv_heads: u32,
        /// Query heads of a workgroup, a divisor of heads / kv_heads.
        group: u32,
        /// Elements from row to row of q, a multiple of 4.
        q_stride: u32,
        /// Bytes from row to row of the output, a multiple of 16.
        out_stride: u32,
        /// How page tables are read, and the offset of the layer's data in a page: shaders/kv.glsl.
        paging: u32,
        /// Number of positions that a row attends to, its own included; 0: all.
        window: u32,
        /// The factor of attention's scores, before softmax.
        scale: f32,
    }

    /// Push constants of pack.comp.
    PackPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, in_stride]`.
        x: u64,
        /// f32 `[rows, in_stride]`; GELU only.
        up: u64,
        /// Address of the output, `[rows]` in the activation layout FORM.
        y_out: u64,
        /// u32 `[rows]`: the rows that are gathered; unused without GATHER.
        list: u64,
        /// u32 `[rows, PARTS]`: the bits of each part's largest magnitude; unused with one part.
        tops: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of elements in a row, which is even.
        width: u32,
        /// Elements from row to row of x and up.
        in_stride: u32,
        /// Bytes from row to row of the output.
        out_stride: u32,
        /// Elements of a row of the output, with its padding.
        padded: u32,
    }

    /// route.comp. Without a product, only `scores` is read, not `x`, `w` and `router`.
    RoutePush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, x_stride]`.
        x: u64,
        /// f32 `[width]`: the norm's weights.
        w: u64,
        /// bf16 `[experts, width padded to 16]`.
        router: u64,
        /// Address of the router's scores, f32 `[rows, scores_stride]`.
        scores: u64,
        /// Address of each expert's factor, f32 `[experts]`.
        factors: u64,
        /// Address of the chosen experts of each row, u32 `[rows, used_stride]`.
        chosen: u64,
        /// Address of the gains of the chosen experts, f32 `[rows, used_stride]`.
        gains: u64,
        /// The table of tiles, one for each expert of each row; 0: it is not written.
        table: u64,
        /// A counter for each COLUMNS rows, zero before the first run (each run leaves them so).
        arrived: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Elements of a row, a multiple of 8.
        width: u32,
        /// Distance from one row of x to the next, in elements.
        x_stride: u32,
        /// Number of experts, at most 256.
        experts: u32,
        /// Number of experts that each row uses.
        used: u32,
        /// Elements from row to row of the scores.
        scores_stride: u32,
        /// Elements from row to row of `chosen` and of `gains`.
        used_stride: u32,
        /// State word to which the experts of head row 0 go, too; the next row's follow. 0: they are not kept.
        kept: u32,
        /// The factor of the router's scores.
        scale: f32,
        /// A small number that is added to the mean square, so that its root is never 0.
        eps: f32,
    }

    /// Push constants of group.comp.
    GroupPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the chosen experts of each row, u32 `[rows, used_stride]`.
        chosen: u64,
        /// Address of the table of tiles.
        table: u64,
        /// u32 `[expert rows]`: the expert row, by rows of the pass, that stands at each place.
        list: u64,
        /// u32 `[expert rows]`: its inverse.
        place: u64,
        /// Index of the step state's word with the number of expert rows.
        which: u32,
        /// Number of experts, at most 256.
        experts: u32,
        /// Number of experts that each row uses.
        used: u32,
        /// Elements from row to row of `chosen`.
        used_stride: u32,
        /// The most rows of a tile.
        height: u32,
        /// Number of entries in the table.
        tiles: u32,
    }

    /// Push constants of expert_sum.comp.
    ExpertSumPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[expert rows, x_stride]`.
        x: u64,
        /// Address of the gains of the chosen experts, f32 `[rows, used_stride]`.
        gains: u64,
        /// u32 `[expert rows]`, as in [`GroupPush`].
        place: u64,
        /// Address of the output, f32 `[rows, out_stride]`.
        y_out: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Elements of a row, a multiple of 4.
        width: u32,
        /// Number of experts that each row uses.
        used: u32,
        /// Distance from one row of x to the next, in elements.
        x_stride: u32,
        /// Elements from row to row of the gains.
        used_stride: u32,
        /// Elements from row to row of the output.
        out_stride: u32,
    }

    /// Push constants of join.comp.
    JoinPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// f32 `[rows, stride]`: the dense half's output.
        x: u64,
        /// f32 `[expert rows, stride]`: the experts' outputs.
        parts: u64,
        /// Address of the gains of the chosen experts, f32 `[rows, used_stride]`.
        gains: u64,
        /// u32 `[expert rows]`, as in [`GroupPush`].
        place: u64,
        /// Address of the residual, to which the result is added: f32 `[rows, stride]`.
        residual: u64,
        /// Address of the output, `[rows]` in the activation layout FORM.
        y_out: u64,
        /// Address of the layer's weights.
        weights: u64,
        /// f32 `[width]`: the weights of the next layer's first norm.
        next: u64,
        /// Floats behind `weights` of the norm behind the dense half, `[width]`.
        dense: u32,
        /// The same of the norm behind the experts' sum.
        experts: u32,
        /// The same of the norm behind both.
        w: u32,
        /// The same of the layer's scalar, `[1]`.
        scalar: u32,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Elements of a row, a multiple of 4.
        width: u32,
        /// Elements from row to row of x, the parts and the residual.
        stride: u32,
        /// Elements from row to row of the gains.
        used_stride: u32,
        /// Bytes from row to row of the output.
        out_stride: u32,
        /// Elements of a row of the output, with its padding.
        padded: u32,
        /// A small number that is added to the mean squares, so that their roots are never 0.
        eps: f32,
    }

    /// Push constants of soft_cap.comp.
    SoftCapPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, stride]`.
        x: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of elements in a row.
        width: u32,
        /// Distance from one row to the next, in elements.
        stride: u32,
        /// The bound: a logit x becomes cap * tanh(x / cap).
        cap: f32,
    }

    /// Push constants of argmax.comp.
    ArgmaxPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, stride]`.
        x: u64,
        /// Counters u32 `[rows]`, then `[rows, GROUPS]` of value and index.
        scratch: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Index of the step state's word with row 0's argmax.
        next: u32,
        /// State word of whether row 0's largest is finite.
        finite: u32,
        /// Number of elements in a row.
        width: u32,
        /// Distance from one row to the next, in elements.
        stride: u32,
    }

    /// Push constants of block_sums.comp.
    BlockSumsPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, stride]`.
        x: u64,
        /// u32 `[rows, ask_stride]`: sample requests ([`crate::schedule::choice`]).
        ask: u64,
        /// `[rows, allowed_stride]`: the allowed tokens, a bit each.
        allowed: u64,
        /// f32 `[rows, sums_stride]`: each block's largest eligible logit and sum.
        sums: u64,
        /// f32 `[rows, tops_stride]`: each part's largest eligible logit.
        tops: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of elements in a row.
        width: u32,
        /// Distance from one row of x to the next, in elements.
        stride: u32,
        /// Words from a row of `ask` to the next.
        ask_stride: u32,
        /// Words from a row of `allowed` to the next.
        allowed_stride: u32,
        /// Words from a row of `sums` to the next.
        sums_stride: u32,
        /// Elements from a row of `tops` to the next.
        tops_stride: u32,
    }

    /// Push constants of candidates.comp.
    CandidatesPush {
        /// Address of the step state, which has the pass's rows ([`crate::schedule::layout::StateLayout`]).
        state: u64,
        /// Address of the input, f32 `[rows, stride]`.
        x: u64,
        /// u32 `[rows, ask_stride]`: sample requests ([`crate::schedule::choice`]).
        ask: u64,
        /// `[rows, allowed_stride]`: the allowed tokens, a bit each.
        allowed: u64,
        /// f32 `[rows, sums_stride]`: each block's largest eligible logit and sum.
        sums: u64,
        /// f32 `[rows, tops_stride]`: each part's largest eligible logit.
        tops: u64,
        /// u32 `[rows, found_stride]`: sample results.
        found: u64,
        /// Index of the step state's word with the number of live rows.
        which: u32,
        /// Number of elements in a row.
        width: u32,
        /// Distance from one row of x to the next, in elements.
        stride: u32,
        /// Words from a row of `ask` to the next.
        ask_stride: u32,
        /// Words from a row of `allowed` to the next.
        allowed_stride: u32,
        /// Words from a row of `sums` to the next.
        sums_stride: u32,
        /// Elements from a row of `tops` to the next.
        tops_stride: u32,
        /// Words from a row of `found` to the next.
        found_stride: u32,
        /// Word index of `next[0]`.
        next: u32,
    }

    /// Push constants of copy.comp.
    CopyPush {
        /// The words to copy. 0: zeros.
        source: u64,
        /// Address that the words are copied to.
        target: u64,
        /// Number of words to copy.
        words: u32,
    }

    /// Push constants of read.comp.
    ReadPush {
        /// Address of the bytes to read.
        data: u64,
        /// Address of 16 bytes that may be written.
        sink: u64,
        /// Number of words of 16 bytes to read.
        words: u32,
    }

    /// Push constants of fragment.comp.
    FragmentPush {
        /// u32: a bit set of the values of [`crate::lower::units::MatrixUnits::row_lanes`] that hold.
        found: u64,
    }

    /// Push constants of matrix_rate.comp.
    MatrixRatePush {
        /// Address of 4 bytes that may be written.
        sink: u64,
        /// Number of rounds, each of 16 products.
        rounds: u32,
    }
}
