//! The CPU executor: the schedule's steps with the processor's vector units, on threads of its own.
//!
//! Weights lie in panels of sixteen rows ([`panels`]), in their file's format. A product's inputs are rounded to fifteen bits
//! with a scale for each 32 columns ([`inputs`]), except for BF16 weights; sums are exact integers within 32 columns, and f32
//! beyond.
//! Keys and values are f16 or bf16. Everything else is f32, as in the reference executor, which this one is compared with.

mod attend;
mod elementwise;
mod inputs;
pub mod lanes;
mod panels;
mod pool;
mod product;

use crate::Result;
use crate::executor::host::{HostExecutor, PassKernels, StepKernels, StepState};
use crate::executor::weights::{self, Progress};
use crate::executor::zeroed::{Zeroed, zeroed};
use crate::executor::{PageId, Tolerance};
use crate::machine::threads;
use crate::model::checkpoint::Checkpoint;
use crate::model::{TensorId, WeightFormat};
use crate::reference::choice::{self, EligibleLogits};
use crate::schedule::choice::{BLOCK, blocks};
use crate::schedule::kv::{KvLayer, KvLayout, Pool as KvPool};
use crate::schedule::layout::{Placement, WeightLayout};
use crate::schedule::step::{Matrix, Op, Slot, Vector, WeightBuffer};
use crate::schedule::{KvType, Schedule, Step};
use attend::{Attend, AttentionScratch, KvView};
use elementwise::{GatedGelu, Largest, Norm, NormRope, NormUse, SoftCap, SumOfExp, ToHalf, WeightedSum};
use half::bf16;
use inputs::Inputs;
use lanes::{LARGEST_INPUT, VectorUnits};
use panels::Panels;
use pool::ThreadPool;
use product::{PanelProduct, ResultRows, SortedRows};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fewest rows of a pass whose steps between products run on several threads.
const MANY_ROWS: usize = 4;
/// Bytes of inputs that one panel is multiplied with before the next panel: they stay in the core's own cache.
const INPUT_BYTES: usize = 256 << 10;
/// Parts of a product for each thread, so that the wait for a late thread is short.
const PARTS: usize = 8;

/// The executor that computes on the processor with vector units.
pub type Cpu = HostExecutor<CpuKernels>;

/// The buffer of a tensor of the schedule, and the offset of its first byte in it.
type TensorLocation = (WeightBuffer, u64);

/// The kernels of the CPU executor, on the best vector units that the processor has.
pub struct CpuKernels {
    units: VectorUnits,
    pool: ThreadPool,
    matrices: HashMap<TensorLocation, Panels>,
    vectors: HashMap<TensorLocation, Vec<f32>>,
    layout: WeightLayout,
    /// The pools of KV pages: f16 or bf16.
    kv: [Zeroed<u16>; 2],
    kv_layout: KvLayout,
    inputs: Inputs,
    /// By vector of frequencies and positions ahead: cosines and sines of the pass's rows, computed by the first step that uses them.
    turns: HashMap<(WeightBuffer, u64, u32), RopeAngles>,
    /// Rows at consecutive positions of one sequence, processed together by attention: the first, and their number.
    runs: Vec<(usize, usize)>,
    device: String,
}

/// Cosines and sines of a pass's positions, `[rows][2][half]`.
#[derive(Default)]
struct RopeAngles {
    is_known: bool,
    values: Vec<f32>,
}

impl Cpu {
    /// Loads the checkpoint's weights into system memory and allocates the arena and the KV cache. Runs on `most`
    /// threads, or on one per core.
    ///
    /// # Errors
    /// Input: a tensor cannot be read. Refused: not enough memory. Interrupted: the load was cancelled.
    ///
    /// # Panics
    /// If the schedule's KV cache is f32.
    pub fn load(checkpoint: &Checkpoint, schedule: Schedule, most: Option<usize>, progress: &Progress) -> Result<Cpu> {
        Cpu::load_with(VectorUnits::best(), checkpoint, schedule, most, progress)
    }

    /// [`Cpu::load`] with `units`, which the CPU must have.
    ///
    /// # Errors
    /// As [`Cpu::load`].
    pub fn load_with(
        units: VectorUnits,
        checkpoint: &Checkpoint,
        schedule: Schedule,
        most: Option<usize>,
        progress: &Progress,
    ) -> Result<Cpu> {
        let steps = CpuKernels::load(units, checkpoint, &schedule, &schedule.steps, most, progress)?;
        HostExecutor::new(schedule, steps, progress.cancel.clone())
    }
}

impl CpuKernels {
    /// Loads the weights of some of the schedule's steps, and allocates the KV cache.
    ///
    /// # Errors
    /// As [`Cpu::load`].
    ///
    /// # Panics
    /// As [`Cpu::load`].
    pub(crate) fn load(
        units: VectorUnits,
        checkpoint: &Checkpoint,
        schedule: &Schedule,
        of: &[Step],
        most: Option<usize>,
        progress: &Progress,
    ) -> Result<CpuKernels> {
        assert_ne!(schedule.extent.kv, KvType::F32, "the CPU executor keeps keys and values in two bytes");
        let used: HashSet<TensorLocation> = of.iter().flat_map(|step| step.op.weights()).collect();
        let (mut matrices, mut vectors) = (HashMap::new(), HashMap::new());
        for (buffer, placement) in schedule.weights.buffers.iter().flat_map(|b| b.tensors.iter().map(|t| (b.buffer, t)))
        {
            let checkpoint = weights::source(checkpoint, buffer);
            match *placement {
                Placement::Vector(id, v) if used.contains(&(v.buffer, v.offset)) => {
                    vectors.insert((v.buffer, v.offset), checkpoint.read_vector(id)?);
                }
                Placement::Frequencies(rope, v) if used.contains(&(v.buffer, v.offset)) => {
                    vectors.insert((v.buffer, v.offset), rope.inverse_frequencies(v.len));
                }
                Placement::Vector(..) | Placement::Frequencies(..) | Placement::Matrix(..) => {}
            }
        }
        for vector in vectors.values() {
            progress.add(4 * vector.len() as u64);
        }
        for step in of {
            let (matrix, width) = match &step.op {
                Op::Linear { weight: matrix, .. } | Op::Embed { table: matrix, .. } => (matrix, matrix.rows),
                Op::ExpertLinear { weight, out, .. } => (weight, out.width),
                _ => continue,
            };
            let place = (matrix.buffer, matrix.offset);
            if matrices.contains_key(&place) {
                continue;
            }
            let tensors = stacked(&schedule.weights, matrix);
            let checkpoint = weights::source(checkpoint, matrix.buffer);
            let read = |first: usize, data: &mut [u8], scales: &mut [u8]| {
                progress.cancel.check()?;
                panels::read_stacked(checkpoint, &tensors, first, data, scales)?;
                progress.add((data.len() + scales.len()) as u64);
                Ok(())
            };
            let size = [matrix.rows / width, width, matrix.cols];
            let panels = Panels::pack(size, matrix.format, units.offset(), read)?;
            matrices.insert(place, panels);
        }
        let kv = |pool| {
            let layout = schedule.kv.pool(pool);
            zeroed(layout.pages * (layout.page_bytes / 2) as usize, "KV cache")
        };
        let kv = [kv(KvPool::Global)?, kv(KvPool::Local)?];
        let pool = ThreadPool::start(most.unwrap_or_else(threads::cores));
        let threads = pool.threads();
        let device = format!("CPU, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, units.name());
        Ok(CpuKernels {
            units,
            pool,
            matrices,
            vectors,
            layout: schedule.weights.clone(),
            kv,
            kv_layout: schedule.kv,
            inputs: Inputs::default(),
            turns: HashMap::new(),
            runs: Vec::new(),
            device,
        })
    }
}

/// The tensors that are stacked in a matrix.
fn stacked(layout: &WeightLayout, matrix: &Matrix) -> Vec<(TensorId, Matrix)> {
    let buffer = &layout.buffers[layout.index(matrix.buffer)];
    let end = matrix.offset + (matrix.rows * matrix.format.row_bytes(matrix.cols)) as u64;
    let within = |part: &Matrix| (matrix.offset..end).contains(&part.offset);
    buffer
        .tensors
        .iter()
        .filter_map(|placement| match placement {
            Placement::Matrix(id, part) if within(part) => Some((*id, *part)),
            _ => None,
        })
        .collect()
}

impl StepKernels for CpuKernels {
    fn device(&self) -> &str {
        &self.device
    }

    fn begin(&mut self, state: &StepState) {
        self.turns.values_mut().for_each(|turns| turns.is_known = false);
        self.runs.clear();
        let follows =
            |r: usize| state.sequence[r] == state.sequence[r - 1] && state.position[r] == state.position[r - 1] + 1;
        for r in 0..state.token.len() {
            match self.runs.last_mut() {
                Some((_, count)) if *count < attend::ROWS && follows(r) => *count += 1,
                _ => self.runs.push((r, 1)),
            }
        }
    }

    fn run(&mut self, op: &Op, state: &StepState, arena: &mut [f32]) -> Result<()> {
        let rows = state.rows;
        match *op {
            Op::Embed { table, scale, out } => {
                let table = &self.matrices[&(table.buffer, table.offset)];
                let arena = Arena::new(arena);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own row.
                    let row = unsafe { arena.row_mut(out, r) };
                    table.decode_row(state.token[r] as usize, row);
                    row.iter_mut().for_each(|x| *x *= scale);
                });
            }
            Op::RmsNorm { x, weight, eps, out } => {
                let weight = vector(&self.vectors, weight);
                let (arena, units) = (Arena::new(arena), self.units);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own row; `x` and `out` are different slots. The CPU has the units.
                    unsafe {
                        let (x, out) = (arena.row(x, state.read_row(r)), arena.row_mut(out, r));
                        units.run(Norm { x, weight, eps, then: NormUse::Written, out });
                    }
                });
            }
            Op::NormAdd { x, weight, eps, residual, scalar } => {
                let weight = vector(&self.vectors, weight);
                let then = NormUse::Added { scalar: scalar.map_or(1.0, |scalar| vector(&self.vectors, scalar)[0]) };
                let (arena, units) = (Arena::new(arena), self.units);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own row; `x` and `residual` are different slots. The CPU has the units.
                    unsafe {
                        let (x, out) = (arena.row(x, r), arena.row_mut(residual, r));
                        units.run(Norm { x, weight, eps, then, out });
                    }
                });
            }
            Op::Linear { weight, x, out } => self.linear(weight, x, out, rows, arena),
            Op::HeadNormRope { x, weight, eps, inv_freq, heads: _, ahead } => {
                self.find_turns(inv_freq, ahead, state);
                let turns = &self.turns[&(inv_freq.buffer, inv_freq.offset, ahead)].values;
                let weight = vector(&self.vectors, weight);
                let (arena, units, width) = (Arena::new(arena), self.units, 2 * inv_freq.len);
                each_row(&mut self.pool, rows, &|r| {
                    let turns = &turns[r * width..(r + 1) * width];
                    // SAFETY: each part writes its own row. The CPU has the units.
                    unsafe { units.run(NormRope { x: arena.row_mut(x, r), weight, eps, turns }) }
                });
            }
            Op::KvWrite { k, v, kv } => self.write_kv([k, v], kv, state, arena),
            Op::Attend { q, kv, out, heads, scale, window } => {
                let (arena, units, runs) = (Arena::new(arena), self.units, &self.runs);
                let pool = &self.kv[kv.pool as usize];
                self.pool.run(runs.len() * heads, &|part| {
                    let ((row, count), head) = (runs[part / heads], part % heads);
                    let position = state.position[row] as usize;
                    // SAFETY: each part writes its own head of its own row. The schedule gives each visible position a
                    // page.
                    unsafe {
                        let page = |number| state.page_at(kv.pool, row, number);
                        let at =
                            |slot: Slot| (arena.at(slot.columns(head * kv.head_dim, kv.head_dim), row), slot.stride);
                        SCRATCH.with_borrow_mut(|scratch| {
                            let cache = KvView { pool, kv, page: &page };
                            let (q, out) = (at(q), at(out));
                            let kv_head = head / (heads / kv.kv_heads);
                            Attend {
                                q: (q.0, q.1),
                                rows: count,
                                position,
                                cache,
                                kv_head,
                                scale,
                                window,
                                out,
                                scratch,
                            }
                            .run(units);
                        });
                    }
                });
            }
            Op::GatedGelu { gate, up, out } => {
                let (arena, units) = (Arena::new(arena), self.units);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own row; `out` is a separate slot. The CPU has the units.
                    unsafe {
                        let (gate, up) = (arena.row(gate, r), arena.row(up, r));
                        units.run(GatedGelu { gate, up, out: arena.row_mut(out, r) });
                    }
                });
            }
            Op::Route { scores, scale, factors, chosen, gains, .. } => {
                let factors = vector(&self.vectors, factors);
                let arena = Arena::new(arena);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own rows of `chosen` and `gains`, which are separate slots.
                    let (scores, chosen, gains) =
                        unsafe { (arena.row(scores, r), arena.row_mut(chosen, r), arena.row_mut(gains, r)) };
                    let (experts, of) = crate::reference::route(scores, scale, factors, chosen.len());
                    chosen.iter_mut().zip(experts).for_each(|(to, expert)| *to = f32::from_bits(expert as u32));
                    gains.copy_from_slice(&of);
                });
            }
            Op::ExpertLinear { weight, chosen, x, share, out } => {
                let panels = &self.matrices[&(weight.buffer, weight.offset)];
                let experts = weight.rows / panels.rows;
                let expert = |r: usize| {
                    crate::executor::slot_row(arena, chosen, r / chosen.width)[r % chosen.width].to_bits() as usize
                };
                let by_expert = RowsByExpert::new(experts, &(0..rows).map(expert).collect::<Vec<_>>());
                self.expert_linear(weight, x, share, out, &by_expert, arena);
            }
            Op::ExpertSum { x, gains, out } => {
                let (arena, units) = (Arena::new(arena), self.units);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own row; `out` is a separate slot. The CPU has the units.
                    unsafe {
                        let gains = arena.row(gains, r);
                        let last = arena.at(x, (r + 1) * gains.len() - 1);
                        let x = (last.sub((gains.len() - 1) * x.stride).cast_const(), x.stride);
                        units.run(WeightedSum { x, gains, out: arena.row_mut(out, r) });
                    }
                });
            }
            Op::SoftCap { x, cap } => {
                let (arena, units) = (Arena::new(arena), self.units);
                each_row(&mut self.pool, rows, &|r| {
                    // SAFETY: each part writes its own row. The CPU has the units.
                    unsafe { units.run(SoftCap { x: arena.row_mut(x, r), cap }) }
                });
            }
            Op::Argmax { x } => {
                let units = self.units;
                for r in 0..rows {
                    let row = crate::executor::slot_row(arena, x, r);
                    let (best, logit) = largest(&mut self.pool, units, row);
                    arena[state.next + r] = f32::from_bits(best as u32);
                    arena[state.finite + r] = f32::from_bits(u32::from(logit.is_finite()));
                }
            }
            Op::BlockSums { x, ask, allowed, sums, tops } => {
                let units = self.units;
                for r in 0..rows {
                    let Some(asked) = EligibleLogits::of(arena, x, ask, allowed, r) else { continue };
                    let found: Vec<_> = (0..blocks(x.width)).map(|_| Mutex::default()).collect();
                    each_row(&mut self.pool, found.len(), &|block| {
                        // SAFETY: the CPU has the units.
                        let sum = |logits: &[f32; BLOCK], largest, scale| unsafe {
                            units.run(SumOfExp { x: logits, largest, scale })
                        };
                        *locked(&found[block]) = asked.sums(block, sum);
                    });
                    let found: Vec<_> = found.iter().map(|found| *locked(found)).collect();
                    choice::write_sums(arena, sums, tops, r, &found);
                }
            }
            Op::Candidates { x, ask, allowed, sums, tops, found } => {
                for r in 0..rows {
                    if let Some(id) = choice::candidates(arena, [x, ask, allowed], sums, tops, found, r) {
                        arena[state.next + r] = f32::from_bits(id);
                    }
                }
            }
        }
        Ok(())
    }

    fn tolerance(&self, op: &Op) -> Tolerance {
        match op {
            // Half of an input's last bit, with a scale for each block.
            Op::Linear { weight, .. } | Op::ExpertLinear { weight, .. } if weight.format != WeightFormat::Bf16 => {
                Tolerance { inputs: 0.5 / LARGEST_INPUT, block: 32, ..Tolerance::ABOUT_F32 }
            }
            Op::KvWrite { kv, .. } if kv.element == KvType::Bf16 => Tolerance::BF16,
            Op::KvWrite { .. } => Tolerance::F16,
            _ => Tolerance::ABOUT_F32,
        }
    }
}

impl PassKernels for CpuKernels {
    fn page(&mut self, pool: KvPool, page: PageId) -> &mut [u8] {
        let bytes = self.kv_layout.pool(pool).page_bytes as usize;
        &mut bytemuck::cast_slice_mut(&mut self.kv[pool as usize])[page as usize * bytes..][..bytes]
    }

    fn weights(&self, buffer: usize) -> Vec<&[u64]> {
        let own = |place: &TensorLocation| self.layout.index(place.0) == buffer;
        self.matrices.iter().filter(|(place, _)| own(place)).map(|(_, panels)| panels.words()).collect()
    }

    fn read(words: &[u64]) -> f32 {
        lanes::read(words)
    }
}

thread_local! {
    static SCRATCH: RefCell<AttentionScratch> = RefCell::default();
}

fn vector(vectors: &HashMap<TensorLocation, Vec<f32>>, v: Vector) -> &[f32] {
    &vectors[&(v.buffer, v.offset)]
}

/// Calls `row` for each row; many rows are divided among threads.
fn each_row(pool: &mut ThreadPool, rows: usize, row: &(dyn Fn(usize) + Sync)) {
    if rows < MANY_ROWS {
        return (0..rows).for_each(row);
    }
    let each = rows.div_ceil(pool.threads() * 2);
    pool.run(rows.div_ceil(each), &|part| (part * each..rows.min((part + 1) * each)).for_each(row));
}

/// The largest element and its index, found on all threads.
fn largest(pool: &mut ThreadPool, units: VectorUnits, x: &[f32]) -> (usize, f32) {
    let each = x.len().div_ceil(pool.threads()).next_multiple_of(lanes::LANES);
    let found = Mutex::new((0, f32::NEG_INFINITY));
    pool.run(x.len().div_ceil(each), &|part| {
        // SAFETY: the CPU has the units.
        let (at, logit) = unsafe { units.run(Largest(&x[part * each..x.len().min((part + 1) * each)])) };
        let mut best = locked(&found);
        let at = at + part * each;
        if logit > best.1 || logit == best.1 && at < best.0 {
            *best = (at, logit);
        }
    });
    *locked(&found)
}

/// Locks a mutex even after a panic: a panic leaves no partial state here, and the pool panics too.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CpuKernels {
    /// Multiplies rows by a matrix: `out[r] = weight · x[r]`.
    fn linear(&mut self, weight: Matrix, x: Slot, out: Slot, rows: usize, arena: &mut [f32]) {
        let panels = &self.matrices[&(weight.buffer, weight.offset)];
        let (arena, units) = (Arena::new(arena), self.units);
        if weight.format != WeightFormat::Bf16 {
            self.inputs.resize(rows, weight.cols, product::correction(weight.format, units));
            // SAFETY: no thread writes the slot meanwhile.
            quantize(&mut self.pool, &mut self.inputs, units, &|r| unsafe { arena.row(x, r) });
        }
        // Each part has some panels and some rows.
        let most_rows = most_rows(weight.cols);
        let row_parts = rows.div_ceil(most_rows);
        let each = panels.count().div_ceil(self.pool.threads() * PARTS).max(1);
        let panel_parts = panels.count().div_ceil(each);
        let inputs = &self.inputs;
        self.pool.run(panel_parts * row_parts, &|part| {
            let (panel, row) = (part / row_parts * each, part % row_parts * most_rows);
            // SAFETY: `inputs` are those of this product, each part writes its own results, and the slots have the
            // rows.
            unsafe {
                let product = PanelProduct {
                    weights: panels,
                    matrix: 0,
                    panels: panel..panels.count().min(panel + each),
                    rows: row..rows.min(row + most_rows),
                    sorted: None,
                    x: (arena.at(x, 0), x.stride),
                    inputs,
                    out: ResultRows { start: arena.at(out, 0), stride: out.stride },
                };
                product.run(units);
            }
        });
    }

    /// `out[r] = weight[expert of r] · x[r / share]`, for the rows that are sorted by expert. Each expert's weights are read
    /// once for all of its rows.
    fn expert_linear(
        &mut self,
        weight: Matrix,
        x: Slot,
        share: usize,
        out: Slot,
        by_expert: &RowsByExpert,
        arena: &mut [f32],
    ) {
        let panels = &self.matrices[&(weight.buffer, weight.offset)];
        let (arena, units) = (Arena::new(arena), self.units);
        let sorted = SortedRows { rows: &by_expert.rows, share };
        if weight.format != WeightFormat::Bf16 {
            self.inputs.resize(sorted.rows.len(), weight.cols, product::correction(weight.format, units));
            let from = |i: usize| sorted.rows[i] as usize / share;
            // SAFETY: no thread writes the slot meanwhile.
            quantize(&mut self.pool, &mut self.inputs, units, &|i| unsafe { arena.row(x, from(i)) });
        }
        // Each part has some of the panels of all chosen experts.
        let all = by_expert.chosen.len() * panels.count();
        let each = all.div_ceil(self.pool.threads() * PARTS).max(1);
        let (most_rows, inputs) = (most_rows(weight.cols), &self.inputs);
        self.pool.run(all.div_ceil(each), &|part| {
            let (mut next, end) = (part * each, all.min((part + 1) * each));
            while next < end {
                let (expert, rows) = &by_expert.chosen[next / panels.count()];
                let first = next % panels.count();
                let own = first..panels.count().min(first + end - next);
                for row in rows.clone().step_by(most_rows) {
                    // SAFETY: `inputs` are those of this product, each part writes its own results, and the slots have
                    // the rows.
                    unsafe {
                        let product = PanelProduct {
                            weights: panels,
                            matrix: *expert,
                            panels: own.clone(),
                            rows: row..rows.end.min(row + most_rows),
                            sorted: Some(sorted),
                            x: (arena.at(x, 0), x.stride),
                            inputs,
                            out: ResultRows { start: arena.at(out, 0), stride: out.stride },
                        };
                        product.run(units);
                    }
                }
                next += own.len();
            }
        });
    }

    fn write_kv(&mut self, of: [Slot; 2], kv: KvLayer, state: &StepState, arena: &[f32]) {
        for r in 0..state.rows {
            for (half, slot) in of.into_iter().enumerate() {
                let x = crate::executor::slot_row(arena, slot, r);
                for (head, x) in x.chunks_exact(kv.head_dim).enumerate() {
                    let at = state.kv_at(&kv, r, half, head, state.position[r] as usize);
                    let out = &mut self.kv[kv.pool as usize][at..at + kv.head_dim];
                    match kv.element {
                        KvType::Bf16 => x.iter().zip(out).for_each(|(x, out)| *out = bf16::from_f32(*x).to_bits()),
                        // SAFETY: the CPU has the units.
                        KvType::F16 | KvType::F32 => unsafe { self.units.run(ToHalf { x, out }) },
                    }
                }
            }
        }
    }

    /// Computes the cosines and sines of the pass's positions with these frequencies, unless they are known.
    fn find_turns(&mut self, inv_freq: Vector, ahead: u32, state: &StepState) {
        let frequencies = &self.vectors[&(inv_freq.buffer, inv_freq.offset)];
        let turns = self.turns.entry((inv_freq.buffer, inv_freq.offset, ahead)).or_default();
        if turns.is_known {
            return;
        }
        turns.is_known = true;
        turns.values.clear();
        for &position in &state.position {
            let angles = || frequencies.iter().map(|f| (position + ahead) as f32 * f);
            turns.values.extend(angles().map(f32::cos));
            turns.values.extend(angles().map(f32::sin));
        }
    }
}

/// Quantises the rows of a product's inputs; many rows are divided among threads.
fn quantize<'a>(
    pool: &mut ThreadPool,
    inputs: &mut Inputs,
    units: VectorUnits,
    row: &(dyn Fn(usize) -> &'a [f32] + Sync),
) {
    if inputs.rows().len() < MANY_ROWS {
        return inputs.rows().enumerate().for_each(|(r, mut to)| to.quantize(units, row(r)));
    }
    let all: Vec<Mutex<_>> = inputs.rows().map(Mutex::new).collect();
    each_row(pool, all.len(), &|r| locked(&all[r]).quantize(units, row(r)));
}

/// The most rows of `cols` inputs that a panel is multiplied with before the next panel.
fn most_rows(cols: usize) -> usize {
    (INPUT_BYTES / (2 * cols.max(1))).clamp(8, 1024) / 8 * 8
}

/// The expert rows of a pass, sorted by their experts.
struct RowsByExpert {
    /// The indices of all rows, grouped by expert, and in their own order within an expert.
    rows: Vec<u32>,
    /// Each expert that has rows, and where these are.
    chosen: Vec<(usize, Range<usize>)>,
}

impl RowsByExpert {
    /// Sorts rows by their experts, of which there are `count`. A row of another expert is left out.
    fn new(count: usize, experts: &[usize]) -> RowsByExpert {
        let expert = |row: u32| experts[row as usize];
        let mut rows: Vec<u32> = (0..experts.len() as u32).filter(|row| expert(*row) < count).collect();
        rows.sort_by_key(|row| expert(*row));
        let mut end = 0;
        let place = |own: &[u32]| {
            end += own.len();
            (expert(own[0]), end - own.len()..end)
        };
        let chosen = rows.chunk_by(|a, b| expert(*a) == expert(*b)).map(place).collect();
        RowsByExpert { rows, chosen }
    }
}

/// The arena, shared by threads that write different rows.
#[derive(Clone, Copy)]
struct Arena {
    start: *mut f32,
    len: usize,
}

// SAFETY: threads that share the arena write different rows, and read only rows that no thread writes.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

impl Arena {
    fn new(arena: &mut [f32]) -> Arena {
        Arena { start: arena.as_mut_ptr(), len: arena.len() }
    }

    /// The start of row `r` of a slot.
    fn at(&self, slot: Slot, r: usize) -> *mut f32 {
        let at = (slot.row(r) / 4) as usize;
        assert!(at + slot.width <= self.len, "row {r} of a slot lies behind the arena");
        // SAFETY: the assertion has checked that the offset lies within the arena.
        unsafe { self.start.add(at) }
    }

    /// # Safety
    /// No thread writes the row while it is borrowed.
    unsafe fn row(&self, slot: Slot, r: usize) -> &[f32] {
        // SAFETY: `at` has checked the row.
        unsafe { std::slice::from_raw_parts(self.at(slot, r), slot.width) }
    }

    /// # Safety
    /// No other thread reads or writes the row while it is borrowed.
    #[allow(clippy::mut_from_ref)] // Rows do not overlap; the caller borrows each once.
    unsafe fn row_mut(&self, slot: Slot, r: usize) -> &mut [f32] {
        // SAFETY: `at` has checked the row.
        unsafe { std::slice::from_raw_parts_mut(self.at(slot, r), slot.width) }
    }
}

#[cfg(test)]
mod tests;
