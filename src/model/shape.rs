//! The shape of a text model: every number that the forward pass needs besides the weights.

use crate::model::architecture::Architecture;

/// The kinds of layer, by the keys that attention sees. Each has an attention shape of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Sliding window: positions `q - window + 1 ..= q`.
    Local,
    /// Full causal attention: positions `0 ..= q`.
    Global,
}

impl LayerKind {
    /// The local and the global kind.
    pub const ALL: [LayerKind; 2] = [LayerKind::Local, LayerKind::Global];

    /// The kind's name in output.
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Local => "local",
            LayerKind::Global => "global",
        }
    }
}

/// The most tokens that a model may suppress.
pub(crate) const MOST_SUPPRESSED: usize = 1024;

/// The constants of RoPE, by which queries and keys are rotated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f32,
    /// Divides the frequencies (linear scaling); 1 without scaling.
    pub factor: f32,
    /// Share of a head's pairs that turn, the first ones. The others' frequencies are 0.
    pub rotated: f32,
}

impl Rope {
    /// No rotation: all frequencies are 0.
    pub const NONE: Rope = Rope { rotated: 0.0, ..Rope::of(1.0) };

    /// RoPE of all pairs, without scaling.
    pub const fn of(theta: f32) -> Rope {
        Rope { theta, factor: 1.0, rotated: 1.0 }
    }

    /// The number of pairs that are rotated, of `half_dim` pairs.
    pub fn turning(self, half_dim: usize) -> usize {
        (self.rotated * half_dim as f32) as usize
    }

    /// `inv_freq_j = theta^(-2j/D) / factor`, j < D/2 = `half_dim`, and 0 for pairs that do not turn. Each operation
    /// rounds to f32, as the model's own code does: at position 100,000 a frequency's last bit turns an angle by a
    /// hundredth.
    pub fn inverse_frequencies(self, half_dim: usize) -> Vec<f32> {
        let exponent = |j: usize| (2 * j) as f32 / (2 * half_dim) as f32;
        let turning = (0..self.turning(half_dim)).map(|j| 1.0 / self.theta.powf(exponent(j)) / self.factor);
        turning.chain(std::iter::repeat(0.0)).take(half_dim).collect()
    }
}

/// Where attention takes its values from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// The values have a projection of their own.
    Projected,
    /// The keys as projected, before norm and RoPE.
    Keys,
}

/// The attention of one kind of layer. Sizes are in elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// The number of query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head j reads KV head `j / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Width of one head, D. Even, at most 512; not `hidden / heads`.
    pub head_dim: usize,
    /// Keys that a row sees, its own included; `None` for all.
    pub window: Option<usize>,
    /// The RoPE of queries and keys.
    pub rope: Rope,
    /// Where attention takes its values from.
    pub values: Values,
}

impl AttentionShape {
    /// Width of all query heads, `heads * head_dim`.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads (and of all value heads), `kv_heads * head_dim`.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of a layer's projections in a model of width `hidden`: of queries, keys and output, and of values if
    /// these have one.
    fn matrix_elements(&self, hidden: usize) -> u64 {
        let values = if self.values == Values::Projected { self.kv_width() } else { 0 };
        ((2 * self.q_width() + self.kv_width() + values) * hidden) as u64
    }
}

/// The experts of every layer's FFN, beside its dense half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Experts {
    /// The number of experts in a layer, at most 256.
    pub count: usize,
    /// Experts that a row takes, at most 8 and at most `count`.
    pub used: usize,
    /// Width of one expert. A multiple of 8.
    pub ffn: usize,
}

/// Dimensions and constants of one model. All sizes are in elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// The family: names of tensors and keys, and the form of its files.
    pub architecture: &'static Architecture,
    /// Rows of the embedding table and of the head.
    pub vocab: usize,
    /// Width of the residual stream, H. A multiple of 8.
    pub hidden: usize,
    /// Width of the gated FFN, F. A multiple of 8.
    pub ffn: usize,
    /// The experts beside the FFN; `None` in a dense model.
    pub experts: Option<Experts>,
    /// The attention heads of local layers.
    pub local: AttentionShape,
    /// The attention heads of global layers.
    pub global: AttentionShape,
    /// The kind of each layer, first to last.
    pub layers: Vec<LayerKind>,
    /// Added to the mean square inside RMSNorm's root.
    pub eps: f32,
    /// Scores are multiplied by `query_pre_attn_scalar ^ -0.5`; this is the base, not the power.
    pub query_pre_attn_scalar: f32,
    /// True if each head of the values passes an RMSNorm without weights.
    pub norms_values: bool,
    /// Whether each layer ends with a product of the residual stream and a number of its own.
    pub scales_layers: bool,
    /// Logits are `cap * tanh(x / cap)`; `None` for x itself.
    pub softcap: Option<f32>,
    /// The longest context that the model was trained for, in tokens.
    pub max_context: usize,
    /// True if the head uses the embedding table, false if it has a matrix of its own.
    pub tied: bool,
    /// The first token of every prompt.
    pub bos: u32,
    /// Tokens that end a reply.
    pub eos: Vec<u32>,
    /// Width of the residual stream of the model that this one drafts for; `None` if it is no drafter.
    pub backbone: Option<usize>,
    /// Tokens that are never chosen, such as marks of images. At most 1024.
    pub suppressed: Vec<u32>,
}

impl Shape {
    /// The attention heads of layers of this kind.
    pub fn attention(&self, kind: LayerKind) -> &AttentionShape {
        match kind {
            LayerKind::Local => &self.local,
            LayerKind::Global => &self.global,
        }
    }

    /// The attention heads of the layer with this index.
    pub fn attention_of(&self, layer: usize) -> &AttentionShape {
        self.attention(self.layers[layer])
    }

    /// Keys that a local layer sees; the whole context if there is no window.
    pub fn window(&self) -> usize {
        self.local.window.unwrap_or(self.max_context)
    }

    /// The same shape with these numbers of heads and elements in all layers.
    pub fn with_heads(self, heads: usize, kv_heads: usize, head_dim: usize) -> Shape {
        let of = |kind: AttentionShape| AttentionShape { heads, kv_heads, head_dim, ..kind };
        Shape { local: of(self.local), global: of(self.global), ..self }
    }

    /// The same shape with `window` as the window of local layers.
    pub fn with_window(self, window: usize) -> Shape {
        Shape { local: AttentionShape { window: Some(window), ..self.local }, ..self }
    }

    /// Heads and their width, by kind of layer where the kinds differ: `32/16 heads x 128`.
    pub fn head_names(&self) -> String {
        let name = |a: &AttentionShape| format!("{}/{} heads x {}", a.heads, a.kv_heads, a.head_dim);
        let (local, global) = (name(&self.local), name(&self.global));
        if local == global { local } else { format!("{local} local, {global} global") }
    }

    /// Width of the FFN, and its experts: `2112 beside 8 of 128 experts of 704`.
    pub fn ffn_name(&self) -> String {
        match self.experts {
            Some(Experts { count, used, ffn }) => format!("{} beside {used} of {count} experts of {ffn}", self.ffn),
            None => self.ffn.to_string(),
        }
    }

    /// Weight elements that one token's pass multiplies by: the matrices of every layer, of its experts those that the
    /// token takes, and the head.
    pub fn matrix_elements_per_token(&self) -> u64 {
        self.elements_with(self.experts.map_or(0, |experts| experts.used))
    }

    /// Weight elements of all matrices, every expert's included.
    pub fn matrix_elements(&self) -> u64 {
        self.elements_with(self.experts.map_or(0, |experts| experts.count))
    }

    /// Weight elements of the matrices with so many experts in each layer.
    fn elements_with(&self, used: usize) -> u64 {
        let Experts { count, ffn, .. } = self.experts.unwrap_or_default();
        let h = self.hidden as u64;
        let ffn = h * (3 * self.ffn + 3 * used * ffn + count) as u64;
        let Some(backbone) = self.backbone else {
            let layer = |kind: &LayerKind| self.attention(*kind).matrix_elements(self.hidden) + ffn;
            return self.layers.iter().map(layer).sum::<u64>() + self.vocab as u64 * h;
        };
        // Queries and output alone, and the projections of the model's embedding and states.
        let layer = |kind: &LayerKind| 2 * self.attention(*kind).q_width() as u64 * h + ffn;
        self.layers.iter().map(layer).sum::<u64>() + (self.vocab + 3 * backbone) as u64 * h
    }
}
