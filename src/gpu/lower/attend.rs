//! Lowering of attention: dividing heads, rows and keys among workgroups. shaders/attend.comp takes few rows;
//! shaders/attend_matrix.comp takes prompts on matrix units.

use super::arithmetic::ActivationLayout;
use super::attend_tile::{self, AttendTile};
use super::heads::{Heads, by_kv};
use super::layout::{COUNTER_BYTES, PackedSlot, SPLIT_ROWS};
use super::lowering::{Lowered, Lowering, RowOrder};
use super::row::whole_blocks;
use crate::gpu::device::units::Units;
use crate::gpu::kernels::constants::AttendConstants;
use crate::gpu::kernels::push::{AttendMatrixPush, AttendPush, Push, word};
use crate::gpu::kernels::{Kernel, Module};
use crate::schedule::step::{KvType, Ring, Rows, Slot};

/// Most subgroups in a workgroup. More would keep more keys in flight than the registers hold.
const SUBGROUPS: u32 = 16;
/// Most query heads in a workgroup.
const GROUP: usize = 4;
/// Keys of a tile that one lane loads parts of: LOADS in the shader.
const LOADS: usize = 4;
/// Most bytes of shared memory for the subgroups' sums.
const FOUND_BYTES: usize = 17 << 10;
/// A row's keys are divided until a dispatch has this many workgroups: about one per processor on the largest GPUs.
/// More would only add parts to sum.
const WORKGROUPS: usize = 128;
/// Most parts of one row's keys.
const MAX_SPLITS: usize = 32;
/// Fewest rows of a prompt for which attention uses matrix units.
const MATRIX_QUERIES: usize = 16;

/// The operands of an [`crate::schedule::Op::Attend`].
pub(super) struct AttendOperands {
    pub(super) q: Slot,
    pub(super) ring: Ring,
    pub(super) out: Slot,
    pub(super) heads: usize,
    pub(super) scale: f32,
    pub(super) window: Option<usize>,
}

/// How attend.comp divides its work.
struct Division {
    /// Query heads of a workgroup.
    group: usize,
    /// Lanes of a workgroup.
    workgroup: u32,
    /// Most parts of a row's keys.
    splits: usize,
}

impl Division {
    fn new(a: &AttendOperands, rows: usize, subgroup: u32) -> Division {
        let group = a.heads / a.ring.kv_heads;
        let group = (1..=GROUP).rev().find(|g| group.is_multiple_of(*g)).unwrap_or(1);
        // Per head: its sums, then four floats that hold the highest score and the sum of weights.
        let found = |subgroups: u32| subgroups as usize * group * (a.ring.dim_stride() / 4 + 1) * 16;
        let mut subgroups = SUBGROUPS;
        while found(subgroups) > FOUND_BYTES && subgroups > 1 {
            subgroups /= 2;
        }
        let workgroup = subgroups * subgroup;
        let lanes = (a.ring.dim_stride() / 8).next_power_of_two().min(subgroup as usize);
        // A part has at least the keys of one turn of a workgroup. Further parts would be empty.
        let turn = workgroup as usize / lanes * LOADS;
        let keys = a.window.map_or(a.ring.capacity, |w| w.min(a.ring.capacity));
        let most = keys.div_ceil(turn).clamp(1, MAX_SPLITS);
        let alone = rows * a.heads / group;
        let counted = (alone * 4) as u64 <= COUNTER_BYTES;
        let splits = if counted { (WORKGROUPS / alone).min(SPLIT_ROWS / rows).clamp(1, most) } else { 1 };
        Division { group, workgroup, splits }
    }
}

impl Lowering<'_> {
    /// `at`: index of the attend step. With `prepare` (Q, K, V), the kernel also applies norm and RoPE and writes the
    /// KV cache; each row must then be of another sequence.
    pub(super) fn attend(
        &self,
        at: usize,
        a: AttendOperands,
        prepare: Option<(Heads, Heads, Slot)>,
        taken: usize,
    ) -> Lowered {
        let state = self.schedule.arena.state;
        let (layout, packed) = match whole_blocks(a.ring.head_dim) {
            true => self.written(at, a.out, Rows::Pass),
            false => (ActivationLayout::F32, None),
        };
        if let (Some(units), Some(p), None) = (self.target.units, packed, prepare) {
            let fits = layout == ActivationLayout::F16Row
                && self.kind.order == RowOrder::Consecutive
                && a.ring.element == KvType::F16;
            let dim = a.ring.head_dim;
            let variants = attend_tile::tiles(units, a.heads, a.ring.kv_heads, dim);
            if let Some(attend) = variants.first().filter(|_| fits && self.kind.rows >= MATRIX_QUERIES) {
                return self.attend_matrix(&a, *attend, units, p);
            }
        }
        let rows = self.kind.rows;
        let Division { group, workgroup, splits } = Division::new(&a, rows, self.target.subgroup);
        let constants = AttendConstants {
            dim: a.ring.head_dim as u32,
            group: group as u32,
            fused: u32::from(prepare.is_some()),
            form: layout as u32,
            subgroup: self.target.subgroup,
        };
        let q = prepare.map(|p| p.0);
        let k = prepare.map(|p| p.1);
        let push = AttendPush {
            state: self.addresses.arena,
            q: self.slot(a.q),
            k: k.map_or(0, |k| self.slot(k.x)),
            v: prepare.map_or(0, |p| self.slot(p.2)),
            wq: q.map_or(0, |q| self.vector(q.weight)),
            wk: k.map_or(0, |k| self.vector(k.weight)),
            frequencies: q.map_or(0, |q| self.vector(q.inv_freq)),
            ring: self.addresses.kv[a.ring.layer],
            y_out: packed.map_or(self.slot(a.out), |p| self.addresses.arena + p.offset),
            scratch: self.addresses.arena + self.layout.scratch.attend,
            position: word(state.position()),
            sequence: word(state.sequence()),
            heads: word(a.heads),
            kv_heads: word(a.ring.kv_heads),
            stride: word(a.q.stride),
            out_stride: word(packed.map_or(a.out.stride, |p| p.stride)),
            capacity: word(a.ring.capacity),
            window: word(a.window.unwrap_or(0)),
            scale: a.scale,
            eps: q.map_or(0.0, |q| q.eps),
        };
        let module = by_kv(a.ring.element, Module::AttendF16, Module::AttendF32);
        let groups = [(a.heads / group) as u32, rows as u32, splits as u32];
        Lowered {
            kernel: Kernel::new(module, workgroup, constants),
            push: Push::new(&push),
            groups,
            taken,
            product: None,
        }
    }

    /// Attention of consecutive rows by matrix units.
    fn attend_matrix(&self, a: &AttendOperands, attend: AttendTile, units: Units, out: PackedSlot) -> Lowered {
        let state = self.schedule.arena.state;
        let push = AttendMatrixPush {
            state: self.addresses.arena,
            q: self.slot(a.q),
            ring: self.addresses.kv[a.ring.layer],
            y_out: self.addresses.arena + out.offset,
            position: word(state.position()),
            sequence: word(state.sequence()),
            heads: word(a.heads),
            kv_heads: word(a.ring.kv_heads),
            group: attend.group,
            q_stride: word(a.q.stride),
            out_stride: word(out.stride),
            capacity: word(a.ring.capacity),
            window: word(a.window.unwrap_or(0)),
            scale: a.scale,
        };
        let groups = attend.groups(units, self.kind.rows, a.heads);
        Lowered { kernel: attend.kernel(units), push: Push::new(&push), groups, taken: 1, product: None }
    }
}
