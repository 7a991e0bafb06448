//! The shape of a Gemma 3 text model: every number that the forward pass needs besides the weights.

/// The kinds of layer, by the keys that attention sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Sliding window: positions `q - window + 1 ..= q`, RoPE with the local base.
    Local,
    /// Full causal attention: positions `0 ..= q`, RoPE with the global base and its linear factor.
    Global,
}

impl LayerKind {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Local => "local",
            LayerKind::Global => "global",
        }
    }
}

/// Dimensions and constants of one model. All sizes are in elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Rows of the embedding table and of the head.
    pub vocab: usize,
    /// Width of the residual stream, H. A multiple of 8.
    pub hidden: usize,
    /// Width of the gated FFN, F. A multiple of 8.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`. Query head j reads KV head `j / (heads / kv_heads)`.
    pub kv_heads: usize,
    /// Width of one head, D. Even, at most 256; not `hidden / heads`.
    pub head_dim: usize,
    /// One entry per layer, first to last.
    pub layers: Vec<LayerKind>,
    /// Keys that a local layer sees, the query's own included.
    pub window: usize,
    /// Added to the mean square inside RMSNorm's root.
    pub eps: f32,
    /// Scores are multiplied by `query_pre_attn_scalar ^ -0.5`; this is the base, not the power.
    pub query_pre_attn_scalar: f32,
    /// RoPE base of the local layers.
    pub rope_theta_local: f32,
    /// RoPE base of the global layers.
    pub rope_theta_global: f32,
    /// Divides the global layers' inverse frequencies (linear scaling); 1 without scaling.
    pub rope_factor_global: f32,
    /// The longest context that the model was trained for, in tokens.
    pub max_context: usize,
    /// The head is the embedding table.
    pub tied: bool,
    /// First token of every prompt.
    pub bos: u32,
    /// Tokens that end a reply.
    pub eos: Vec<u32>,
}

impl Shape {
    /// Width of all query heads, `heads * head_dim`.
    pub fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads (and of all value heads), `kv_heads * head_dim`.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Weight elements that one token's pass multiplies by: every matrix of every layer, and the head.
    pub fn matrix_elements_per_token(&self) -> u64 {
        let h = self.hidden as u64;
        let layer = (self.q_width() as u64 + 2 * self.kv_width() as u64) * h
            + h * self.q_width() as u64
            + 3 * h * self.ffn as u64;
        layer * self.layers.len() as u64 + self.vocab as u64 * h
    }
}
