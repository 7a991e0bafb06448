//! Lowering of the work on heads before attention: norm and RoPE of Q and K, and the KV write.

use super::lowering::{LoweredKernel, Lowering};
use crate::lower::kernels::constants::NoConstants;
use crate::lower::kernels::push::{HeadPreparePush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::schedule::kv::KvLayer;
use crate::schedule::step::{KvType, Op, Rows, Slot, Vector};

/// Lanes of a workgroup for one head of a row.
const HEAD_WORKGROUP: u32 = 128;

/// The operands of a [`crate::schedule::Op::HeadNormRope`].
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) x: Slot,
    pub(super) weight: Vector,
    pub(super) eps: f32,
    pub(super) inv_freq: Vector,
    pub(super) heads: usize,
    /// True if queries are rotated for the position after each row's, as a drafter needs.
    pub(super) is_ahead: bool,
}

impl Heads {
    /// The operands of a HeadNormRope; `None` for any other op.
    pub(super) fn of(op: &Op) -> Option<Heads> {
        match *op {
            Op::HeadNormRope { x, weight, eps, inv_freq, heads, ahead } => {
                Some(Heads { x, weight, eps, inv_freq, heads, is_ahead: ahead > 0 })
            }
            _ => None,
        }
    }
}

/// The operands of a [`crate::schedule::Op::KvWrite`].
#[derive(Clone, Copy)]
pub(super) struct KvEntries {
    pub(super) k: Slot,
    pub(super) v: Slot,
    pub(super) kv: KvLayer,
    /// Eps of V's norm over each head, which has no weights; `None` if V is written as it is.
    pub(super) v_eps: Option<f32>,
}

/// The module for a type of KV cache.
pub(super) fn by_kv(kv: KvType, f16: Module, bf16: Module, f32: Module) -> Module {
    match kv {
        KvType::F16 => f16,
        KvType::Bf16 => bf16,
        KvType::F32 => f32,
    }
}

impl Lowering<'_> {
    /// Norm and RoPE of `q`, norm and RoPE of `k`, and the KV write, as far as the operands are given.
    pub(super) fn head_prepare(
        &self,
        rows: Rows,
        q: Option<Heads>,
        k: Option<Heads>,
        write: Option<KvEntries>,
        taken: usize,
    ) -> LoweredKernel {
        // No workgroup accesses an operand that is not given. Any valid address fills its field.
        let some = q.or(k);
        let slot = |s: Option<Slot>| s.or(some.map(|h| h.x)).map_or(0, |s| self.slot(s));
        let vector = |h: Option<Heads>, of: fn(Heads) -> Vector| h.or(some).map_or(0, |h| self.vector(of(h)));
        let state = self.schedule.arena.state;
        let (heads, kv_heads) = (q.map_or(0, |q| q.heads), write.map_or(0, |w| w.kv.kv_heads));
        let dim = some.map_or_else(|| write.map_or(0, |w| w.kv.head_dim), |h| h.x.width / h.heads);
        let stride = some.map(|h| h.x.stride).or(write.map(|w| w.k.stride)).unwrap_or(0);
        let v_eps = write.and_then(|w| w.v_eps);
        let push = HeadPreparePush {
            state: self.addresses.state,
            q: slot(q.map(|q| q.x)),
            k: slot(write.map(|w| w.k)),
            v: slot(write.map(|w| w.v)),
            wq: vector(q, |h| h.weight),
            wk: vector(k, |h| h.weight),
            frequencies_q: vector(q, |h| h.inv_freq),
            frequencies_k: vector(k, |h| h.inv_freq),
            table: write.map_or(0, |w| self.table(w.kv.pool)),
            position: word(if q.is_some_and(|q| q.is_ahead) { state.ahead() } else { state.position() }),
            sequence: word(state.sequence()),
            heads: word(heads),
            kv_heads: word(kv_heads),
            dim: word(dim),
            stride: word(stride),
            paging: write.map_or(0, |w| paging(&w.kv)),
            norm_k: u32::from(k.is_some()),
            norm_v: u32::from(v_eps.is_some()),
            eps_q: q.map_or(0.0, |q| q.eps),
            eps_k: k.map_or(0.0, |k| k.eps),
            eps_v: v_eps.unwrap_or(0.0),
        };
        let kv = write.map_or(KvType::F16, |w| w.kv.element);
        let module = by_kv(kv, Module::HeadPrepareF16, Module::HeadPrepareBf16, Module::HeadPrepareF32);
        let groups = [(heads + 2 * kv_heads) as u32, self.count(rows) as u32, 1];
        let kernel = Kernel::new(module, HEAD_WORKGROUP, NoConstants {});
        LoweredKernel::new(kernel, &push, groups, taken)
    }
}

/// A push block's encoding of a layer's pages: see shaders/kv.glsl.
pub(crate) fn paging(kv: &KvLayer) -> u32 {
    kv.entries.trailing_zeros() | word(kv.place * kv.block_pages) << 8
}
