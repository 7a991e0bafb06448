//! The tensors of a model by role, independent of their names in a file.

use crate::model::shape::{Experts, Shape, Values};
use std::ops::Range;

/// How a tensor is stored: as a norm, a vector or a matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoleKind {
    /// The weights of a norm.
    Norm,
    /// Other numbers that are stored in f32.
    Vector,
    /// A matrix.
    Matrix,
}

/// Declares the roles. A line has a role and its kind, and the names of its tensor within a layer in safetensors files
/// and in GGUF files.
macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident: $kind:ident = $suffix:literal, $gguf:literal;)*) => {
        /// The purpose of a tensor within a layer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Role {
            $($(#[$doc])* $role,)*
        }

        impl Role {
            /// All roles. A model may lack [`Role::V`] and [`Role::LayerScalar`]; a drafter has no keys and values, and
            /// a dense model none of the roles behind the scalar.
            pub const ALL: [Role; 23] = [$(Role::$role),*];

            /// The name within a layer in safetensors files (`self_attn.q_proj.weight`). The experts' gate and up
            /// projections are one tensor there ([`TensorId::half`]).
            pub fn suffix(self) -> &'static str {
                match self { $(Role::$role => $suffix,)* }
            }

            /// The name within a layer in GGUF files (`attn_q.weight`). Vectors of factors stand beside a matrix under
            /// its name.
            pub fn gguf_suffix(self) -> &'static str {
                match self { $(Role::$role => $gguf,)* }
            }

            fn kind(self) -> RoleKind {
                match self { $(Role::$role => RoleKind::$kind,)* }
            }
        }
    };
}

roles! {
    /// RMSNorm weight before attention, `[hidden]`.
    InputNorm: Norm = "input_layernorm.weight", "attn_norm.weight";
    /// RMSNorm weight on the attention's output, before its residual add, `[hidden]`.
    PostAttentionNorm: Norm = "post_attention_layernorm.weight", "post_attention_norm.weight";
    /// RMSNorm weight before the FFN, `[hidden]`.
    PreFfnNorm: Norm = "pre_feedforward_layernorm.weight", "ffn_norm.weight";
    /// RMSNorm weight on the FFN's output, before its residual add, `[hidden]`.
    PostFfnNorm: Norm = "post_feedforward_layernorm.weight", "post_ffw_norm.weight";
    /// RMSNorm weight over each query head, `[head_dim]`.
    QNorm: Norm = "self_attn.q_norm.weight", "attn_q_norm.weight";
    /// RMSNorm weight over each key head, `[head_dim]`.
    KNorm: Norm = "self_attn.k_norm.weight", "attn_k_norm.weight";
    /// Query projection, `[heads * head_dim, hidden]`.
    Q: Matrix = "self_attn.q_proj.weight", "attn_q.weight";
    /// Key projection, `[kv_heads * head_dim, hidden]`.
    K: Matrix = "self_attn.k_proj.weight", "attn_k.weight";
    /// Value projection, `[kv_heads * head_dim, hidden]`.
    V: Matrix = "self_attn.v_proj.weight", "attn_v.weight";
    /// Attention output projection, `[hidden, heads * head_dim]`.
    O: Matrix = "self_attn.o_proj.weight", "attn_output.weight";
    /// FFN gate projection, `[ffn, hidden]`.
    Gate: Matrix = "mlp.gate_proj.weight", "ffn_gate.weight";
    /// FFN up projection, `[ffn, hidden]`.
    Up: Matrix = "mlp.up_proj.weight", "ffn_up.weight";
    /// FFN down projection, `[hidden, ffn]`.
    Down: Matrix = "mlp.down_proj.weight", "ffn_down.weight";
    /// The number that multiplies the residual stream at the layer's end, `[1]`.
    LayerScalar: Vector = "layer_scalar", "layer_output_scale.weight";
    /// RMSNorm weight on the output of the dense half of an FFN with experts, `[hidden]`.
    PostDenseNorm: Norm = "post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight";
    /// RMSNorm weight before the experts, `[hidden]`.
    PreExpertNorm: Norm = "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight";
    /// RMSNorm weight on the sum of the experts' outputs, `[hidden]`.
    PostExpertNorm: Norm = "post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight";
    /// RMSNorm weight before the router, without its factor `hidden ^ -0.5`, `[hidden]`.
    RouterNorm: Norm = "router.scale", "ffn_gate_inp.scale";
    /// The factors of the experts' outputs, `[experts]`.
    ExpertScales: Vector = "router.per_expert_scale", "ffn_down_exps.scale";
    /// The router's projection to a score for each expert, `[experts, hidden]`. BF16 in every weight format.
    Router: Matrix = "router.proj.weight", "ffn_gate_inp.weight";
    /// The experts' gate projections, one expert behind the other, `[experts * expert ffn, hidden]`.
    ExpertGate: Matrix = "experts.gate_up_proj", "ffn_gate_exps.weight";
    /// The experts' up projections, `[experts * expert ffn, hidden]`.
    ExpertUp: Matrix = "experts.gate_up_proj", "ffn_up_exps.weight";
    /// The experts' down projections, `[experts * hidden, expert ffn]`.
    ExpertDown: Matrix = "experts.down_proj", "ffn_down_exps.weight";
}

impl Role {
    /// True if only models with experts have such a tensor.
    pub fn is_of_experts(self) -> bool {
        self > Role::LayerScalar
    }
}

/// A tensor of the model: one outside of layers, or one of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorId {
    /// Token embedding, `[vocab, hidden]`.
    Embedding,
    /// Output head, `[vocab, hidden]`; the same tensor as the embedding if [`Shape::tied`].
    Head,
    /// RMSNorm weight before the head, `[hidden]`.
    FinalNorm,
    /// A layer's tensor: layer index from 0, and its role.
    Layer(usize, Role),
    /// A drafter's input projection of an embedding and a state of its model, `[hidden, 2 * backbone]`.
    PreProjection,
    /// A drafter's projection to the next state, `[backbone, hidden]`.
    PostProjection,
}

impl TensorId {
    /// Every tensor of a model in the order of the forward pass. A tied head is left out.
    pub fn all(shape: &Shape) -> impl Iterator<Item = TensorId> + use<> {
        let (scales_layers, is_drafter) = (shape.scales_layers, shape.backbone.is_some());
        let has_experts = shape.experts.is_some();
        let values: Vec<Values> = (0..shape.layers.len()).map(|layer| shape.attention_of(layer).values).collect();
        let layers = values.into_iter().enumerate().flat_map(move |(layer, values)| {
            let has = move |role: &Role| match role {
                Role::K | Role::V | Role::KNorm if is_drafter => false,
                Role::V => values == Values::Projected,
                Role::LayerScalar => scales_layers,
                role => has_experts || !role.is_of_experts(),
            };
            Role::ALL.into_iter().filter(has).map(move |role| TensorId::Layer(layer, role))
        });
        let head = (!shape.tied).then_some(TensorId::Head);
        let projections = [TensorId::PreProjection, TensorId::PostProjection].into_iter().filter(move |_| is_drafter);
        std::iter::once(TensorId::Embedding).chain(layers).chain([TensorId::FinalNorm]).chain(head).chain(projections)
    }

    /// `[rows, cols]`; a norm's vector has one row.
    pub fn dims(self, shape: &Shape) -> [usize; 2] {
        let (h, f) = (shape.hidden, shape.ffn);
        let Experts { count, ffn, .. } = shape.experts.unwrap_or_default();
        match self {
            TensorId::Embedding | TensorId::Head => [shape.vocab, h],
            TensorId::FinalNorm => [1, h],
            TensorId::PreProjection => [h, 2 * shape.backbone.unwrap_or(h)],
            TensorId::PostProjection => [shape.backbone.unwrap_or(h), h],
            TensorId::Layer(layer, role) => {
                let attention = shape.attention_of(layer);
                match role {
                    Role::InputNorm | Role::PostAttentionNorm | Role::PreFfnNorm | Role::PostFfnNorm => [1, h],
                    Role::QNorm | Role::KNorm => [1, attention.head_dim],
                    Role::Q => [attention.q_width(), h],
                    Role::K | Role::V => [attention.kv_width(), h],
                    Role::O => [h, attention.q_width()],
                    Role::Gate | Role::Up => [f, h],
                    Role::Down => [h, f],
                    Role::LayerScalar => [1, 1],
                    Role::PostDenseNorm | Role::PreExpertNorm | Role::PostExpertNorm | Role::RouterNorm => [1, h],
                    Role::ExpertScales => [1, count],
                    Role::Router => [count, h],
                    Role::ExpertGate | Role::ExpertUp => [count * ffn, h],
                    Role::ExpertDown => [count * h, ffn],
                }
            }
        }
    }

    /// Whether this is a vector, which is stored in f32, or a matrix, which is stored in the weight format.
    pub fn is_vector(self) -> bool {
        self.is_norm() || matches!(self, TensorId::Layer(_, role) if role.kind() == RoleKind::Vector)
    }

    /// True for a router's projection. It decides which experts run, so no format quantises it.
    pub fn is_router(self) -> bool {
        matches!(self, TensorId::Layer(_, Role::Router))
    }

    /// True if no weight format quantises the tensor.
    pub fn is_never_quantized(self) -> bool {
        self.is_vector() || self.is_router()
    }

    /// The place of this matrix's rows in a tensor that has both the experts' gate and their up projections; `None` for
    /// other matrices.
    pub fn half(self, shape: &Shape) -> Option<Half> {
        let is_second = match self {
            TensorId::Layer(_, Role::ExpertGate) => false,
            TensorId::Layer(_, Role::ExpertUp) => true,
            _ => return None,
        };
        Some(Half { rows: shape.experts?.ffn, is_second })
    }

    /// The matrix under whose name safetensors files have this tensor: the gate projections for the up projections,
    /// else the tensor itself.
    pub fn holder(self) -> TensorId {
        match self {
            TensorId::Layer(layer, Role::ExpertUp) => TensorId::Layer(layer, Role::ExpertGate),
            other => other,
        }
    }

    /// `[rows, cols]` of the tensor of a safetensors file that holds this one.
    pub fn file_rows(self, shape: &Shape) -> [usize; 2] {
        let [rows, cols] = self.dims(shape);
        if self.half(shape).is_some() { [2 * rows, cols] } else { [rows, cols] }
    }

    /// The dimensions in a file of a tensor that has `dims` by rows: the experts' matrices have the expert in front.
    pub fn file_dims(self, shape: &Shape, mut dims: Vec<usize>) -> Vec<usize> {
        if let TensorId::Layer(_, Role::ExpertGate | Role::ExpertUp | Role::ExpertDown) = self
            && let Some(Experts { count, .. }) = shape.experts
        {
            dims[0] /= count;
            dims.insert(0, count);
        }
        dims
    }

    /// True if the tensor is a norm's weights.
    pub fn is_norm(self) -> bool {
        match self {
            TensorId::FinalNorm => true,
            TensorId::Layer(_, role) => role.kind() == RoleKind::Norm,
            _ => false,
        }
    }

    /// The name in files that Kiln writes, as in a `ForCausalLM` of transformers.
    pub fn name(self) -> String {
        match self {
            TensorId::Embedding => "model.embed_tokens.weight".into(),
            TensorId::Head => "lm_head.weight".into(),
            TensorId::FinalNorm => "model.norm.weight".into(),
            TensorId::PreProjection => "pre_projection.weight".into(),
            TensorId::PostProjection => "post_projection.weight".into(),
            TensorId::Layer(i, role) => format!("model.layers.{i}.{}", role.suffix()),
        }
    }
}

/// The place of a matrix's rows in a tensor that has two matrices: of each expert the rows of the first, then those of
/// the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Half {
    /// Rows of one expert in one of the two.
    pub rows: usize,
    /// True if the matrix is the second half of the stored tensor.
    pub is_second: bool,
}

/// Cuts rows of a matrix into runs of at most `most` that follow one another in its file's tensor; `half` is the
/// matrix's place there, if the tensor has another matrix too.
pub fn runs(half: Option<Half>, rows: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let mut next = rows.start;
    std::iter::from_fn(move || {
        let first = next;
        next = half.map_or(rows.end, |half| half.end(first)).min(rows.end).min(first.saturating_add(most));
        (first < next).then_some(first..next)
    })
}

impl Half {
    /// The tensor's row that is row `row` of the matrix.
    pub fn place(self, row: usize) -> usize {
        row + (row / self.rows + usize::from(self.is_second)) * self.rows
    }

    /// The matrix's first row behind the ones that follow `row` without a gap in the tensor.
    pub fn end(self, row: usize) -> usize {
        (row / self.rows + 1) * self.rows
    }
}
