//! Lowering of attention: dividing heads, rows and keys among workgroups. shaders/attend.comp is for few rows;
//! shaders/attend_matrix.comp for prompts on matrix units. In a mixed pass each runs for its rows, side by side.

use super::arithmetic::ActivationLayout;
use super::attend_tile::{self, AttendTile};
use super::heads::{Heads, KvEntries, by_kv, paging};
use super::layout::{COUNTER_BYTES, PackedSlot, SPLIT_ROWS};
use super::lowering::{LoweredKernel, Lowering, RowOrder};
use super::measured;
use super::piece::PieceLowering;
use super::row::whole_blocks;
use super::target::{AttendBy, AttendHeads};
use crate::lower::kernels::constants::AttendConstants;
use crate::lower::kernels::push::{AttendMatrixPush, AttendPush, word};
use crate::lower::kernels::{Kernel, Module};
use crate::lower::units::MatrixUnits;
use crate::schedule::Step;
use crate::schedule::kv::KvLayer;
use crate::schedule::step::{KvType, Op, Rows, Slot};
use std::collections::BTreeMap;

/// Most subgroups in a workgroup. More would keep more keys in flight than the registers hold.
const SUBGROUPS: u32 = 16;
/// Most query heads in a workgroup, and most of wide heads.
const GROUP: usize = 4;
const WIDE_GROUP: usize = 2;
/// Elements of a head beyond which it is wide: a lane then has several turns of it, and registers for half as many
/// heads and keys.
const NARROW: usize = 256;
/// Keys of a tile that one lane loads parts of, and those of wide heads: LOADS in the shader.
const LOADS: usize = 4;
const WIDE_LOADS: usize = 2;
/// Most lanes that share a key: ENOUGH in the shader.
const LANES: usize = 32;
/// Most bytes of shared memory for the subgroups' sums.
const SUMS_BYTES: usize = 17 << 10;
/// A row's keys are divided until a dispatch has this many workgroups of [`SUBGROUPS`], or as many lanes in smaller
/// ones: about one per processor on the largest GPUs. More would only add parts to sum.
const WORKGROUPS: usize = 128;
/// The most parts into which the keys of one row are divided.
const MAX_SPLITS: usize = 32;
/// Most rows of one sequence for which attention is fused with the preparation of its heads. Every workgroup prepares
/// the keys of the rows before its own again, each by a subgroup. The first value that fits is used; one kernel serves
/// fewer rows too.
const FUSED_ROWS: [usize; 2] = [16, 8];
/// Most bytes of shared memory for queries and for keys of the pass, such that together with the sums they fit every
/// device.
const VECTOR_BYTES: usize = 12 << 10;
/// Fewest rows of a prompt for which attention uses matrix units, and most for which attention row by row is also
/// tried.
const MATRIX_QUERIES: usize = 16;
const MOST_ROWS: usize = 128;

/// The operands of an [`crate::schedule::Op::Attend`].
pub(super) struct AttendOperands {
    pub(super) q: Slot,
    pub(super) kv: KvLayer,
    pub(super) out: Slot,
    pub(super) heads: usize,
    pub(super) scale: f32,
    pub(super) window: Option<usize>,
}

impl AttendOperands {
    /// The operands of an Attend; `None` for any other op.
    pub(super) fn of(op: &Op) -> Option<AttendOperands> {
        match *op {
            Op::Attend { q, kv, out, heads, scale, window } => {
                Some(AttendOperands { q, kv, out, heads, scale, window })
            }
            _ => None,
        }
    }

    /// The heads by which attention's tile is chosen.
    fn of_tiles(&self) -> AttendHeads {
        AttendHeads { heads: self.heads, kv_heads: self.kv.kv_heads, dim: self.kv.head_dim }
    }
}

/// The preparation of heads that attention does itself.
#[derive(Clone, Copy)]
pub(super) struct Prepare {
    pub(super) q: Heads,
    /// The keys of the pass and their entries; `None` for a drafter, which has queries alone.
    pub(super) entries: Option<(Heads, KvEntries)>,
}

/// How the work of attend.comp is divided among workgroups.
struct Division {
    /// The number of query heads that a workgroup computes.
    group: usize,
    /// The number of lanes in a workgroup.
    workgroup: u32,
    /// The most parts into which the keys of one row are divided.
    splits: usize,
}

/// The number of query heads that a workgroup computes.
fn group(a: &AttendOperands) -> usize {
    let sharing = a.heads / a.kv.kv_heads;
    let most = if a.kv.head_dim > NARROW { WIDE_GROUP } else { GROUP };
    (1..=most).rev().find(|g| sharing.is_multiple_of(*g)).unwrap_or(1)
}

impl Division {
    fn new(a: &AttendOperands, rows: usize, subgroup: u32) -> Division {
        let group = group(a);
        // Per head: its sums, then four floats for the highest score and the sum of weights.
        let found = |subgroups: u32| subgroups as usize * group * (a.kv.dim_stride() / 4 + 1) * 16;
        let mut subgroups = SUBGROUPS;
        while found(subgroups) > SUMS_BYTES && subgroups > 1 {
            subgroups /= 2;
        }
        let workgroup = subgroups * subgroup;
        let lanes = (a.kv.dim_stride() / 8).next_power_of_two().min(LANES).min(subgroup as usize);
        let loads = if a.kv.head_dim > NARROW { WIDE_LOADS } else { LOADS };
        // A part has at least the keys of one turn of a workgroup: with smaller parts, some lanes would have none.
        let turn = workgroup as usize / lanes * loads;
        let context = a.kv.context;
        let keys = a.window.map_or(context, |w| w.min(context));
        let most = keys.div_ceil(turn).clamp(1, MAX_SPLITS);
        let alone = rows * a.heads / group;
        let counted = (alone * 4) as u64 <= COUNTER_BYTES;
        let wanted = WORKGROUPS * (SUBGROUPS / subgroups) as usize / alone;
        let splits = if counted { wanted.min(SPLIT_ROWS / rows).clamp(1, most) } else { 1 };
        Division { group, workgroup, splits }
    }
}

impl Lowering<'_> {
    /// The methods of attention that are worth measuring, for each kind of heads. Every layer with such heads uses the
    /// same.
    pub fn attends(&self) -> BTreeMap<AttendHeads, Vec<AttendBy>> {
        let Some(units) = self.target.units.filter(|_| self.kind.rows <= MOST_ROWS) else { return BTreeMap::new() };
        let whole = PieceLowering::new(*self, 0..self.schedule.steps.len());
        let mut attends = BTreeMap::new();
        for (at, step) in self.schedule.steps.iter().enumerate() {
            let Some(a) = AttendOperands::of(&step.op).filter(|a| whole_blocks(a.kv.head_dim)) else { continue };
            attends.entry(a.of_tiles()).or_insert_with(|| {
                let layout = whole.written(at, a.out, Rows::Pass).0;
                let tiles = (0..self.attend_tiles(units, &a, layout).len()).map(AttendBy::Tile);
                tiles.chain([AttendBy::Row]).collect()
            });
        }
        attends
    }

    /// The tiles that attention on matrix units can have.
    fn attend_tiles(&self, units: MatrixUnits, a: &AttendOperands, layout: ActivationLayout) -> Vec<AttendTile> {
        let fits = layout == ActivationLayout::F16Row
            && matches!(self.kind.order, RowOrder::Consecutive | RowOrder::Mixed)
            && self.kind.rows >= MATRIX_QUERIES
            && a.kv.element != KvType::F32;
        if fits { attend_tile::tiles(units, self.kind.rows, a.heads, a.kv.kv_heads, a.kv.head_dim) } else { Vec::new() }
    }
}

impl PieceLowering<'_> {
    /// `at`: index of the attend step. With `prepare`, the kernel also applies norm and RoPE, and writes the KV cache;
    /// the kind of pass must allow it ([`PieceLowering::fuses_attention`]).
    pub(super) fn attend(&self, at: usize, a: AttendOperands, prepare: Option<Prepare>, taken: usize) -> LoweredKernel {
        let (layout, packed) = self.attended(at, &a);
        if let (Some(p), None, Some((units, tile))) = (packed, prepare, self.attend_tile(&a, layout)) {
            return self.attend_matrix(&a, tile, units, p);
        }
        self.attend_rows(at, a, prepare, taken, false)
    }

    /// The second dispatch of the attend step at `at`, beside the first: if the first is for the pass's chunk only, it
    /// is for the rows after it. They write different rows.
    pub(super) fn attend_behind(&self, at: usize, step: &Step) -> Option<LoweredKernel> {
        let a = AttendOperands::of(&step.op).filter(|_| self.kind.order == RowOrder::Mixed)?;
        self.attend_tile(&a, self.written(at, a.out, Rows::Pass).0)?;
        Some(self.attend_rows(at, a, None, 0, true))
    }

    /// Attention row by row: all rows of a pass, or only those after its chunk.
    fn attend_rows(
        &self,
        at: usize,
        a: AttendOperands,
        prepare: Option<Prepare>,
        taken: usize,
        behind: bool,
    ) -> LoweredKernel {
        let state = self.schedule.arena.state;
        let (layout, packed) = self.attended(at, &a);
        let rows = match behind {
            // Each row is of another sequence, and so is the chunk.
            true => (self.kind.rows - 1).min(self.schedule.extent.sequences - 1),
            false => self.kind.rows,
        };
        let Division { group, workgroup, splits } = Division::new(&a, rows, self.target.subgroup);
        let (q, entries) = (prepare.map(|p| p.q), prepare.and_then(|p| p.entries));
        let constants = AttendConstants {
            dim: a.kv.head_dim as u32,
            group: group as u32,
            fused: if entries.is_some() { self.fused_keys(&a) as u32 } else { 0 },
            form: layout as u32,
            subgroup: self.target.subgroup,
            behind: u32::from(behind),
            norm_v: u32::from(entries.is_some_and(|(_, entries)| entries.v_eps.is_some())),
            ahead: u32::from(q.is_some_and(|q| q.is_ahead)),
        };
        let k = entries.map(|(k, _)| k);
        let push = AttendPush {
            state: self.addresses.state,
            q: self.slot(a.q),
            k: k.map_or(0, |k| self.slot(k.x)),
            v: entries.map_or(0, |(_, entries)| self.slot(entries.v)),
            wq: q.map_or(0, |q| self.vector(q.weight)),
            wk: k.map_or(0, |k| self.vector(k.weight)),
            frequencies: q.map_or(0, |q| self.vector(q.inv_freq)),
            table: self.table(a.kv.pool),
            y_out: packed.map_or(self.slot(a.out), |p| self.addresses.arena + p.offset),
            scratch: self.addresses.arena + self.layout.scratch.attend,
            position: word(state.position()),
            sequence: word(state.sequence()),
            heads: word(a.heads),
            kv_heads: word(a.kv.kv_heads),
            stride: word(a.q.stride),
            out_stride: word(packed.map_or(a.out.stride, |p| p.stride)),
            paging: paging(&a.kv),
            window: word(a.window.unwrap_or(0)),
            scale: a.scale,
            eps: q.map_or(0.0, |q| q.eps),
        };
        let module = by_kv(a.kv.element, Module::AttendF16, Module::AttendBf16, Module::AttendF32);
        let groups = [(a.heads / group) as u32, rows as u32, splits as u32];
        LoweredKernel::new(Kernel::new(module, workgroup, constants), &push, groups, taken)
    }

    /// The activation layout of attention's output, and the packed slot that it is written to.
    fn attended(&self, at: usize, a: &AttendOperands) -> (ActivationLayout, Option<PackedSlot>) {
        match whole_blocks(a.kv.head_dim) {
            true => self.written(at, a.out, Rows::Pass),
            false => (ActivationLayout::F32, None),
        }
    }

    /// The tile of attention on matrix units: the tuned one, else the best on most devices. `None`: row by row.
    fn attend_tile(&self, a: &AttendOperands, layout: ActivationLayout) -> Option<(MatrixUnits, AttendTile)> {
        let units = self.target.units?;
        let tiles = self.attend_tiles(units, a, layout);
        let tile = match self.target.attend.get(&(self.kind.rows, a.of_tiles())) {
            Some(AttendBy::Row) => None,
            Some(&AttendBy::Tile(i)) => tiles.get(i).or(tiles.first()),
            None if self.target.is_listed() => match measured::attend(self.kind.rows, &tiles) {
                AttendBy::Row => None,
                AttendBy::Tile(i) => tiles.get(i),
            },
            None => tiles.first(),
        };
        tile.map(|&tile| (units, tile))
    }

    /// Most keys of the pass that one of its rows sees, if few enough for fused attention to prepare them itself; else
    /// 0.
    fn fused_keys(&self, a: &AttendOperands) -> usize {
        let fits = |keys: &usize| 4 * (group(a) + keys) * a.kv.dim_stride().next_power_of_two() <= VECTOR_BYTES;
        match self.kind.order {
            // A lane of a narrow subgroup would have too much of a wide head: CPU drivers take minutes over such code.
            _ if a.kv.head_dim > NARROW && (self.target.subgroup as usize) < LANES => 0,
            _ if self.kind.rows == 1 => 1,
            RowOrder::Apart => 1,
            RowOrder::Consecutive => {
                FUSED_ROWS.into_iter().find(fits).filter(|&most| self.kind.rows <= most).unwrap_or(0)
            }
            RowOrder::Mixed | RowOrder::Any => 0,
        }
    }

    /// True if one kernel computes the attention step at `at` and prepares its heads.
    pub(super) fn fuses_attention(&self, at: usize, a: &AttendOperands) -> bool {
        self.fused_keys(a) > 0 && self.attend_tile(a, self.written(at, a.out, Rows::Pass).0).is_none()
    }

    /// Lowers attention of a chunk of a prompt to kernels on matrix units.
    fn attend_matrix(
        &self,
        a: &AttendOperands,
        attend: AttendTile,
        units: MatrixUnits,
        out: PackedSlot,
    ) -> LoweredKernel {
        let state = self.schedule.arena.state;
        let [parts, arrived] = self.layout.scratch.product.map(|offset| self.addresses.arena + offset);
        let push = AttendMatrixPush {
            state: self.addresses.state,
            q: self.slot(a.q),
            table: self.table(a.kv.pool),
            y_out: self.addresses.arena + out.offset,
            parts,
            arrived,
            position: word(state.position()),
            sequence: word(state.sequence()),
            heads: word(a.heads),
            kv_heads: word(a.kv.kv_heads),
            group: attend.group,
            q_stride: word(a.q.stride),
            out_stride: word(out.stride),
            paging: paging(&a.kv),
            window: word(a.window.unwrap_or(0)),
            scale: a.scale,
        };
        let groups = attend.groups(units, self.kind.rows, a.heads);
        LoweredKernel::new(attend.kernel(units, a.kv.element), &push, groups, 1)
    }
}
