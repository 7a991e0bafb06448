//! The places of the schedule's operands: tensors in weight buffers, activations and step state in the arena.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::build::DRAFT_STEPS;
use super::kv::{KvLayout, Pool};
use super::step::{Matrix, Slot, Vector, WeightBuffer};
use crate::model::{LayerKind, Role, Rope, Shape, TensorId, Values, WeightFormat};

/// Alignment of offsets within buffers: the widest load of any kernel, and enough for a cache line of the CPU and NPU.
pub const ALIGN: u64 = 128;

/// Words of the step state before its arrays: `rows`, `head_first`, `head_rows`, one for the executor's own use,
/// `chunk`, `expert_rows`, and padding.
const STATE_HEADER: usize = 8;

/// The step state: the data that changes from token to token, as u32 words at the arena's start. The host writes it
/// before a replay. Kernels read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateLayout {
    /// The most rows that a pass may have.
    pub max_rows: usize,
    /// Rows of logits that one replay of the head computes.
    pub head_rows: usize,
    /// Rows of a draft; 0 without a drafter.
    pub draft_rows: usize,
    /// Experts that a row uses; 0 without experts.
    pub used_experts: usize,
}

impl StateLayout {
    /// The index of the word with the pass's number of live rows.
    pub const ROWS: usize = 0;
    /// Word index: first row whose logits are computed.
    pub const HEAD_FIRST: usize = 1;
    /// Word index: number of rows whose logits are computed.
    pub const HEAD_ROWS: usize = 2;
    /// Word index: set by a relayed dispatch that gives up waiting. The pass's results are invalid then.
    pub const RELAY_TIMEOUT: usize = 3;
    /// Word index: number of rows at the pass's start that stand at consecutive positions of one sequence.
    pub const CHUNK: usize = 4;
    /// Word index: expert rows of the pass, its rows times the experts that each uses.
    pub const EXPERT_ROWS: usize = 5;

    fn array(self, i: usize) -> usize {
        STATE_HEADER + i * self.max_rows.next_multiple_of(4)
    }

    /// The words of all rows' tokens, of their positions and of their sequences, within `words`.
    #[inline]
    pub fn rows_mut(self, words: &mut [u32]) -> [&mut [u32]; 3] {
        let most = self.max_rows.next_multiple_of(4);
        let (tokens, others) = words[STATE_HEADER..].split_at_mut(most);
        let (positions, others) = others.split_at_mut(most);
        [tokens, positions, &mut others[..most]]
    }

    /// The index of the word with row 0's token id.
    pub fn token(self) -> usize {
        self.array(0)
    }

    /// The index of the word with row 0's position.
    pub fn position(self) -> usize {
        self.array(1)
    }

    /// Word index of row 0's sequence (its KV slot).
    pub fn sequence(self) -> usize {
        self.array(2)
    }

    /// Word index of head row 0's next token: its argmax, or the token of its sample request.
    pub fn next(self) -> usize {
        self.array(3)
    }

    /// Word index of head row 0's flag: 1 if its argmax is a finite logit, else 0.
    pub fn finite(self) -> usize {
        self.next() + self.head_rows.next_multiple_of(4)
    }

    /// Word index of head row 0's experts in the last layer, [`StateLayout::used_experts`] of each head row.
    pub fn chosen(self) -> usize {
        self.finite() + self.head_rows.next_multiple_of(4)
    }

    /// The experts that head row `row` used in the last layer; none without a mixture. `words` are the state's.
    pub fn experts_of(self, words: &[u32], row: usize) -> &[u32] {
        words
            .get(self.chosen() + row * self.used_experts..)
            .and_then(|of| of.get(..self.used_experts))
            .unwrap_or_default()
    }

    /// Word index of draft row 0's position plus one: that of the token that it begins with.
    pub fn ahead(self) -> usize {
        self.chosen() + (self.head_rows * self.used_experts).next_multiple_of(4)
    }

    /// Word index of draft row 0's source: the row of the last pass whose state it begins with.
    pub fn source(self) -> usize {
        self.ahead() + self.draft_rows.next_multiple_of(4)
    }

    /// Word index of draft row 0's token by a step of a device's draft.
    pub fn drafted(self, step: usize) -> usize {
        self.source() + (1 + 2 * step) * self.draft_rows.next_multiple_of(4)
    }

    /// Word index of its flag: 1 if its logit is finite, else 0.
    pub fn drafted_finite(self, step: usize) -> usize {
        self.drafted(step) + self.draft_rows.next_multiple_of(4)
    }

    /// The number of words in the step state.
    pub fn words(self) -> usize {
        self.drafted(DRAFT_STEPS)
    }
}

/// Sequences' page tables of a pool: u64 `[sequences][entries]`. An entry is the address of a page's start. Executors
/// on the CPU keep tables of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLayout {
    /// The offset of the tables from the arena's start, in bytes.
    pub offset: u64,
    /// Entries of a sequence, a power of two.
    pub entries: usize,
}

impl TableLayout {
    /// Word index, from the arena's start, of the lower word of the entry for page `number` of a sequence. The higher
    /// word follows it.
    pub fn word(self, sequence: usize, number: usize) -> usize {
        self.offset as usize / 4 + 2 * (sequence * self.entries + (number & (self.entries - 1)))
    }
}

/// The arena: the step state, the page tables, then every activation slot. No two share bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ArenaLayout {
    /// The layout of the step state, which is at offset 0.
    pub state: StateLayout,
    /// The page tables of each pool.
    pub tables: [TableLayout; 2],
    /// Every slot with its name, by ascending offset.
    pub slots: Vec<(&'static str, Slot)>,
    /// The size of the arena in bytes.
    pub bytes: u64,
}

impl ArenaLayout {
    /// An arena with only the step state and the page tables of `sequences` sequences.
    pub fn new(state: StateLayout, kv: &KvLayout, sequences: usize) -> Self {
        let mut bytes = (4 * state.words() as u64).next_multiple_of(ALIGN);
        let tables = Pool::ALL.map(|pool| {
            let table = TableLayout { offset: bytes, entries: kv.pool(pool).entries() };
            bytes += (8 * (sequences * table.entries) as u64).next_multiple_of(ALIGN);
            table
        });
        ArenaLayout { state, tables, slots: Vec::new(), bytes }
    }

    /// The name of a view's slot, with the view's columns if it has only some: `qkv[128..192]`.
    pub fn name_of(&self, view: Slot) -> String {
        let holds = |slot: &Slot| (slot.offset..slot.row(1)).contains(&view.offset);
        match self.slots.iter().find(|(_, slot)| holds(slot)) {
            Some((name, slot)) if slot.width == view.width => (*name).to_owned(),
            Some((name, slot)) => {
                let first = (view.offset - slot.offset) as usize / 4;
                format!("{name}[{first}..{}]", first + view.width)
            }
            None => format!("the arena from byte {}", view.offset),
        }
    }

    /// Adds a slot of `rows` rows of `width` f32. Rows are padded as weight rows are. The pad columns stay zero, so
    /// that a kernel can read whole 16-byte groups.
    pub fn add(&mut self, name: &'static str, rows: usize, width: usize) -> Slot {
        let slot = Slot { offset: self.bytes, width, stride: WeightFormat::padded(width) };
        self.bytes += (4 * (rows * slot.stride) as u64).next_multiple_of(ALIGN);
        self.slots.push((name, slot));
        slot
    }
}

/// The range of a weight buffer that one tensor of the checkpoint fills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Placement {
    /// Rows of a matrix, possibly of a stacked one. `offset`, `scales` and `rows` are those of the tensor's own part.
    Matrix(TensorId, Matrix),
    /// A vector of the file, widened to f32.
    Vector(TensorId, Vector),
    /// RoPE's inverse frequencies, computed from its constants.
    Frequencies(Rope, Vector),
}

/// The tensors that one weight buffer consists of.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferLayout {
    /// The weight buffer that is laid out.
    pub buffer: WeightBuffer,
    /// The size of the buffer in bytes.
    pub bytes: u64,
    /// The tensors in the buffer, in order.
    pub tensors: Vec<Placement>,
}

/// The vectors that all layers of a kind share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KindVectors {
    /// RoPE's inverse frequencies, `[head_dim / 2]`.
    pub rope: Vector,
    /// The weights and the frequencies of the values' norm, which has none: zeros, `[head_dim]` and `[head_dim / 2]`.
    /// `None` if values are not normed.
    pub plain: Option<[Vector; 2]>,
}

/// The offsets of a layer's weights in its buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerWeights {
    /// The weights of the norm before attention, `[hidden]`.
    pub input_norm: Vector,
    /// The weights of the norm after attention, `[hidden]`.
    pub post_attention_norm: Vector,
    /// The weights of the norm before the feed-forward network, `[hidden]`.
    pub pre_ffn_norm: Vector,
    /// The weights of the norm after the feed-forward network, `[hidden]`.
    pub post_ffn_norm: Vector,
    /// The weights of the norm over each query head, `[head_dim]`.
    pub q_norm: Vector,
    /// `[head_dim]`; `None` in a drafter's layer, which has no keys of its own.
    pub k_norm: Option<Vector>,
    /// Q, K and V stacked: `[q_width + 2 kv_width, hidden]`; one matrix for each run of equal formats. A drafter's: Q.
    /// Where the keys are the source of the values, K stands in V's place too: a second product of so few rows costs
    /// less than a copy between two steps.
    pub qkv: Vec<Matrix>,
    /// The projection of attention's output, `[hidden, q_width]`.
    pub o: Matrix,
    /// Gate and up stacked: `[2 ffn, hidden]`; two matrices if their formats differ.
    pub gate_up: Vec<Matrix>,
    /// The down projection of the feed-forward network, `[hidden, ffn]`.
    pub down: Matrix,
    /// The number that multiplies the layer's output, `[1]`; `None` if the model has none.
    pub scalar: Option<Vector>,
    /// The experts beside gate, up and down; `None` if the model has none.
    pub experts: Option<ExpertWeights>,
}

/// The offsets of a layer's experts and of their router.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertWeights {
    /// The weights of the norm before the router, `[hidden]`.
    pub router_norm: Vector,
    /// The router's projection, `[count, hidden]`.
    pub router: Matrix,
    /// The factor of each expert's output, `[count]`.
    pub factors: Vector,
    /// The weights of the norm before the experts, `[hidden]`.
    pub input_norm: Vector,
    /// The weights of the norm after the dense half, `[hidden]`.
    pub post_dense_norm: Vector,
    /// The weights of the norm after the experts' sum, `[hidden]`.
    pub post_norm: Vector,
    /// The experts' gate projections, one expert after the other: `[count * ffn, hidden]`.
    pub gate: Matrix,
    /// The experts' up projections, `[count * ffn, hidden]`. They follow the gates in memory if the formats are equal.
    pub up: Matrix,
    /// The experts' down projections, `[count * hidden, ffn]`.
    pub down: Matrix,
}

/// The offsets of a drafter's weights, all in one buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct DrafterWeights {
    /// The projection of the drafter's input, `[hidden, 2 * backbone]`.
    pub pre_projection: Matrix,
    /// The projection to the drafter's next state, `[backbone, hidden]`.
    pub post_projection: Matrix,
    /// The drafter's head, `[vocab, hidden]`.
    pub head: Matrix,
    /// The weights of the drafter's final norm, `[hidden]`.
    pub final_norm: Vector,
    /// The weights of the drafter's layers, first to last.
    pub layers: Vec<LayerWeights>,
}

/// The offsets of all weights of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightLayout {
    /// All buffers: embedding, layers in order, the head unless it is tied, then the drafter's.
    pub buffers: Vec<BufferLayout>,
    /// The table of token embeddings, `[vocab, hidden]`.
    pub embedding: Matrix,
    /// `[vocab, hidden]`; the same as `embedding` if tied.
    pub head: Matrix,
    /// The weights of the final norm, `[hidden]`.
    pub final_norm: Vector,
    /// The vectors that all local layers share.
    pub local: KindVectors,
    /// The vectors that all global layers share.
    pub global: KindVectors,
    /// The weights of the layers, first to last.
    pub layers: Vec<LayerWeights>,
    /// The weights of the drafter, if there is one.
    pub drafter: Option<DrafterWeights>,
}

/// Allocates tensors in one buffer, each after the one before.
struct Packer {
    layout: BufferLayout,
}

impl Packer {
    fn new(buffer: WeightBuffer) -> Self {
        Packer { layout: BufferLayout { buffer, bytes: 0, tensors: Vec::new() } }
    }

    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.layout.bytes;
        self.layout.bytes += bytes.next_multiple_of(ALIGN);
        at
    }

    fn place(&mut self, len: usize) -> Vector {
        Vector { buffer: self.layout.buffer, offset: self.take(4 * len as u64), len }
    }

    fn vector(&mut self, shape: &Shape, id: TensorId) -> Vector {
        let v = self.place(id.dims(shape)[1]);
        self.layout.tensors.push(Placement::Vector(id, v));
        v
    }

    fn kind(&mut self, shape: &Shape, kind: LayerKind) -> KindVectors {
        let attention = shape.attention(kind);
        let mut frequencies = |rope: Rope, len: usize| {
            let v = self.place(len);
            self.layout.tensors.push(Placement::Frequencies(rope, v));
            v
        };
        let half = attention.head_dim / 2;
        let rope = frequencies(attention.rope, half);
        let plain = shape.norms_values.then(|| [2 * half, half].map(|len| frequencies(Rope::NONE, len)));
        KindVectors { rope, plain }
    }

    /// Stacks the rows of consecutive tensors that have one format.
    fn stacked(&mut self, shape: &Shape, formats: &dyn Fn(TensorId) -> WeightFormat, ids: &[TensorId]) -> Vec<Matrix> {
        ids.chunk_by(|a, b| formats(*a) == formats(*b)).map(|ids| self.matrix(shape, formats(ids[0]), ids)).collect()
    }

    /// Allocates the tensors of a layer.
    fn layer(&mut self, shape: &Shape, formats: &dyn Fn(TensorId) -> WeightFormat, layer: usize) -> LayerWeights {
        let id = |role| TensorId::Layer(layer, role);
        let format = |role| formats(id(role));
        let values = match shape.attention_of(layer).values {
            Values::Projected => Role::V,
            Values::Keys => Role::K,
        };
        let has_keys = shape.backbone.is_none();
        let qkv: &[Role] = if has_keys { &[Role::Q, Role::K, values] } else { &[Role::Q] };
        let qkv: Vec<TensorId> = qkv.iter().copied().map(id).collect();
        LayerWeights {
            input_norm: self.vector(shape, id(Role::InputNorm)),
            post_attention_norm: self.vector(shape, id(Role::PostAttentionNorm)),
            pre_ffn_norm: self.vector(shape, id(Role::PreFfnNorm)),
            post_ffn_norm: self.vector(shape, id(Role::PostFfnNorm)),
            q_norm: self.vector(shape, id(Role::QNorm)),
            k_norm: has_keys.then(|| self.vector(shape, id(Role::KNorm))),
            qkv: self.stacked(shape, formats, &qkv),
            o: self.matrix(shape, format(Role::O), &[id(Role::O)]),
            gate_up: self.stacked(shape, formats, &[id(Role::Gate), id(Role::Up)]),
            down: self.matrix(shape, format(Role::Down), &[id(Role::Down)]),
            scalar: shape.scales_layers.then(|| self.vector(shape, id(Role::LayerScalar))),
            experts: shape.experts.map(|_| self.experts(shape, formats, layer)),
        }
    }

    /// Allocates the tensors of a layer's experts.
    fn experts(&mut self, shape: &Shape, formats: &dyn Fn(TensorId) -> WeightFormat, layer: usize) -> ExpertWeights {
        let id = |role| TensorId::Layer(layer, role);
        let mut matrix = |role| self.matrix(shape, formats(id(role)), &[id(role)]);
        let router = matrix(Role::Router);
        let down = matrix(Role::ExpertDown);
        let gate_up = self.stacked(shape, formats, &[id(Role::ExpertGate), id(Role::ExpertUp)]);
        let (gate, up) = match gate_up[..] {
            [gate, up] => (gate, up),
            _ => {
                let rows = gate_up[0].rows / 2;
                (gate_up[0].rows_from(0, rows), gate_up[0].rows_from(rows, rows))
            }
        };
        let mut vector = |role| self.vector(shape, id(role));
        ExpertWeights {
            router_norm: vector(Role::RouterNorm),
            router,
            factors: vector(Role::ExpertScales),
            input_norm: vector(Role::PreExpertNorm),
            post_dense_norm: vector(Role::PostDenseNorm),
            post_norm: vector(Role::PostExpertNorm),
            gate,
            up,
            down,
        }
    }

    /// Allocates the tensors of a drafter.
    fn drafter(&mut self, shape: &Shape, formats: &dyn Fn(TensorId) -> WeightFormat) -> DrafterWeights {
        let mut matrix = |id| self.matrix(shape, formats(id), &[id]);
        let head = if shape.tied { TensorId::Embedding } else { TensorId::Head };
        DrafterWeights {
            pre_projection: matrix(TensorId::PreProjection),
            post_projection: matrix(TensorId::PostProjection),
            head: matrix(head),
            final_norm: self.vector(shape, TensorId::FinalNorm),
            layers: (0..shape.layers.len()).map(|layer| self.layer(shape, formats, layer)).collect(),
        }
    }

    /// Stacks the tensors' rows into one matrix: all rows, then all scales.
    ///
    /// # Panics
    /// If the format does not hold the rows ([`WeightFormat::holds`]).
    fn matrix(&mut self, shape: &Shape, format: WeightFormat, ids: &[TensorId]) -> Matrix {
        let cols = ids[0].dims(shape)[1];
        assert!(format.holds(cols), "{format:?} does not hold rows of {cols}, as {:?} has", ids[0]);
        let rows = ids.iter().map(|id| id.dims(shape)[0]).sum();
        let offset = self.take((rows * format.row_bytes(cols)) as u64);
        let scales = self.take((rows * format.scale_bytes(cols)) as u64);
        let whole = Matrix { buffer: self.layout.buffer, offset, scales, rows, cols, format };
        let mut first = 0;
        for &id in ids {
            let rows = id.dims(shape)[0];
            self.layout.tensors.push(Placement::Matrix(id, whole.rows_from(first, rows)));
            first += rows;
        }
        whole
    }
}

impl WeightLayout {
    /// Places every tensor of `shape`. `formats` gives each tensor's weight format. Q, K and V are stacked, and gate
    /// and up, as far as their formats are equal.
    ///
    /// # Panics
    /// If a format does not hold its tensor's rows ([`WeightFormat::holds`]).
    pub fn new(shape: &Shape, formats: impl Fn(TensorId) -> WeightFormat) -> Self {
        let formats: &dyn Fn(TensorId) -> WeightFormat = &formats;
        let mut buffers = Vec::with_capacity(shape.layers.len() + 2);
        let mut p = Packer::new(WeightBuffer::Embedding);
        let embedding = p.matrix(shape, formats(TensorId::Embedding), &[TensorId::Embedding]);
        let final_norm = p.vector(shape, TensorId::FinalNorm);
        let [local, global] = LayerKind::ALL.map(|kind| p.kind(shape, kind));
        buffers.push(p.layout);

        let mut layers = Vec::with_capacity(shape.layers.len());
        for i in 0..shape.layers.len() {
            let mut p = Packer::new(WeightBuffer::Layer(i));
            layers.push(p.layer(shape, formats, i));
            buffers.push(p.layout);
        }
        let head = if shape.tied {
            embedding
        } else {
            let mut p = Packer::new(WeightBuffer::Head);
            let head = p.matrix(shape, formats(TensorId::Head), &[TensorId::Head]);
            buffers.push(p.layout);
            head
        };
        WeightLayout { buffers, embedding, head, final_norm, local, global, layers, drafter: None }
    }

    /// The same layout and the tensors of a drafter of shape `shape`; `formats` as for [`WeightLayout::new`].
    ///
    /// # Panics
    /// As [`WeightLayout::new`].
    pub fn with_drafter(mut self, shape: &Shape, formats: &dyn Fn(TensorId) -> WeightFormat) -> WeightLayout {
        let mut p = Packer::new(WeightBuffer::Drafter);
        self.drafter = Some(p.drafter(shape, formats));
        self.buffers.push(p.layout);
        self
    }

    /// The vectors that all layers of this kind share.
    pub fn kind(&self, kind: LayerKind) -> &KindVectors {
        match kind {
            LayerKind::Local => &self.local,
            LayerKind::Global => &self.global,
        }
    }

    /// The size of all weight buffers in bytes.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.bytes).sum()
    }

    /// The formats of the matrices, those of more bytes first. Each matrix's own format is [`Matrix::format`].
    pub fn formats(&self) -> Vec<WeightFormat> {
        let mut bytes: BTreeMap<WeightFormat, u64> = BTreeMap::new();
        for tensor in self.buffers.iter().flat_map(|b| &b.tensors) {
            if let Placement::Matrix(_, m) = tensor {
                *bytes.entry(m.format).or_default() += m.bytes(m.rows);
            }
        }
        let mut formats: Vec<WeightFormat> = bytes.keys().copied().collect();
        formats.sort_by_key(|format| Reverse(bytes[format]));
        formats
    }

    /// The format with the most bytes of the matrices.
    pub fn format(&self) -> WeightFormat {
        self.formats().first().copied().unwrap_or(self.embedding.format)
    }

    /// The formats of the matrices as text: `q4_k, q6_k`.
    pub fn format_names(&self) -> String {
        self.formats().into_iter().map(WeightFormat::name).collect::<Vec<_>>().join(", ")
    }

    /// The index of a buffer in [`WeightLayout::buffers`].
    pub fn index(&self, buffer: WeightBuffer) -> usize {
        match buffer {
            WeightBuffer::Embedding => 0,
            WeightBuffer::Layer(i) => 1 + i,
            WeightBuffer::Head => 1 + self.layers.len(),
            WeightBuffer::Drafter => self.buffers.len() - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;

    /// 16 bytes and a scale of 2 for each 32 weights of the layers, a byte for each of the embedding's.
    #[test]
    fn a_27b_in_int4_takes_15_8_gb() {
        let shape = presets::preset("27b").unwrap();
        let layout = WeightLayout::new(&shape, |id| WeightFormat::Int4.of_matrix(id, &shape, None));
        assert_eq!((layout.format(), layout.head.format), (WeightFormat::Int4, WeightFormat::Int8));
        let layer = (8192 + 4096 + 3 * 21504) * 5376 / 32 * 18 + 4 * (4 * 5376 + 2 * 128);
        let embedding = 262_208 * (5376 + 4) + 4 * (5376 + 2 * 64);
        assert_eq!((layout.buffers[1].bytes, layout.buffers[0].bytes), (layer, embedding));
        assert_eq!(layout.bytes(), 15_815_175_936);
    }

    #[test]
    #[should_panic(expected = "does not hold rows of 1000")]
    fn a_format_that_does_not_hold_a_row_is_a_mistake() {
        let shape = Shape { hidden: 1000, ..presets::preset("1b").unwrap() };
        WeightLayout::new(&shape, |_| WeightFormat::Int4);
    }

    #[test]
    fn tensors_are_stacked_where_their_formats_agree() {
        let shape = presets::preset("1b").unwrap();
        let mixed = |id| match id {
            TensorId::Embedding | TensorId::Layer(3, Role::Q) => WeightFormat::Bf16,
            TensorId::Layer(3, Role::Gate) | TensorId::Layer(4, Role::K) => WeightFormat::Int4,
            _ => WeightFormat::Int8,
        };
        let layout = WeightLayout::new(&shape, mixed);
        assert_eq!(layout.head, layout.embedding);
        assert_eq!((layout.head.format, layout.format()), (WeightFormat::Bf16, WeightFormat::Int8));
        for (i, layer) in layout.layers.iter().enumerate() {
            let (q, kv, int8) = (shape.local.q_width(), shape.local.kv_width(), WeightFormat::Int8);
            let parts = |of: &[Matrix]| of.iter().map(|m| (m.format, m.rows)).collect::<Vec<_>>();
            assert_eq!(
                parts(&layer.qkv),
                match i {
                    3 => vec![(WeightFormat::Bf16, q), (int8, 2 * kv)],
                    4 => vec![(int8, q), (WeightFormat::Int4, kv), (int8, kv)],
                    _ => vec![(int8, q + 2 * kv)],
                }
            );
            assert_eq!(
                parts(&layer.gate_up),
                match i {
                    3 => vec![(WeightFormat::Int4, shape.ffn), (int8, shape.ffn)],
                    _ => vec![(int8, 2 * shape.ffn)],
                }
            );
            assert_eq!([layer.o, layer.down].map(|m| m.format), [int8; 2]);
        }
        for buffer in &layout.buffers {
            let ends = buffer.tensors.iter().filter_map(|tensor| match tensor {
                Placement::Matrix(_, m) => {
                    let end = |at: u64, bytes: usize| at + (m.rows * bytes) as u64;
                    let scales = end(m.scales, m.format.scale_bytes(m.cols));
                    Some(end(m.offset, m.format.row_bytes(m.cols)).max(scales))
                }
                _ => None,
            });
            assert!(ends.max() <= Some(buffer.bytes), "{:?}", buffer.buffer);
        }
    }
}
