//! The plan: every byte placed in a heap before anything is allocated, or a refusal with the sum.

mod pack;
#[cfg(test)]
mod tests;

use crate::display::{bytes, excess};
use crate::error::{Setting, Text, text};
use crate::machine::heaps::DeviceMemory;
use crate::model::WeightFormat;
use crate::schedule::kv::PAGE;
use crate::schedule::layout::{BufferLayout, Placement};
use crate::schedule::step::WeightBuffer;
use crate::schedule::{Extent, Pool, Schedule};
use crate::{Error, Result};

/// What a region of memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A weight buffer.
    Weights(WeightBuffer),
    /// An allocation of KV pages: its pool, and its number among the pool's.
    Kv(Pool, usize),
    /// The arena: activations and the step state.
    Arena,
    /// Host-mapped memory for uploads, and for logits if the host cannot read the arena at speed.
    Staging,
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Purpose::Weights(WeightBuffer::Embedding) => f.write_str("embedding"),
            Purpose::Weights(WeightBuffer::Layer(i)) => write!(f, "layer {i}"),
            Purpose::Weights(WeightBuffer::Head) => f.write_str("head"),
            Purpose::Weights(WeightBuffer::Drafter) => f.write_str("drafter"),
            Purpose::Kv(Pool::Global, i) => write!(f, "KV pages of the global layers, {i}"),
            Purpose::Kv(Pool::Local, i) => write!(f, "KV pages of the local layers, {i}"),
            Purpose::Arena | Purpose::Staging => f.write_str(self.kind()),
        }
    }
}

impl Purpose {
    /// The kind, as [`Plan::sums`] groups regions: `weights`, `KV cache`, `arena`, `staging`.
    pub fn kind(self) -> &'static str {
        match self {
            Purpose::Weights(_) => "weights",
            Purpose::Kv(..) => "KV cache",
            Purpose::Arena => "arena",
            Purpose::Staging => "staging",
        }
    }
}

/// An allocation of device memory that the plan makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// What the region is used for.
    pub purpose: Purpose,
    /// The size of the region in bytes.
    pub bytes: u64,
    /// Index of the heap in [`DeviceMemory::heaps`].
    pub heap: usize,
    /// Bytes of earlier regions in the same heap. For accounting only: drivers choose addresses themselves.
    pub offset: u64,
}

/// The bytes that an executor needs besides weights and KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The arena: the schedule's slots, and any that the executor adds.
    pub arena: u64,
    /// Memory that the host maps, for uploads and results; 0 for none.
    pub staging: u64,
}

impl Needs {
    /// The needs of an executor that adds nothing to the schedule's arena.
    pub fn of(schedule: &Schedule) -> Needs {
        Needs { arena: schedule.arena.bytes, staging: 0 }
    }
}

/// The allocations that a model needs, each assigned to a heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The heaps that the allocations are assigned to.
    pub memory: DeviceMemory,
    /// All planned allocations.
    pub regions: Vec<Region>,
}

impl Plan {
    /// Every allocation that a schedule needs, hottest first.
    ///
    /// Every step reads and writes the arena. Staging comes next, then the weights that a pass reads once. The KV cache
    /// is read only up to a sequence's position. An untied embedding comes last: a pass reads one row of it per token.
    pub fn wanted(schedule: &Schedule, needs: Needs) -> Vec<(Purpose, u64)> {
        let is_cold = |b: WeightBuffer| b == WeightBuffer::Embedding && !schedule.shape.tied;
        let weights = |cold: bool| {
            let of = move |b: &&BufferLayout| is_cold(b.buffer) == cold;
            schedule.weights.buffers.iter().filter(of).map(|b| (Purpose::Weights(b.buffer), b.bytes))
        };
        let kv = Pool::ALL.into_iter().flat_map(|pool| {
            let layout = *schedule.kv.pool(pool);
            (0..layout.blocks()).map(move |i| (Purpose::Kv(pool, i), layout.block_bytes()))
        });
        let mut wanted = vec![(Purpose::Arena, needs.arena)];
        if needs.staging > 0 {
            wanted.push((Purpose::Staging, needs.staging));
        }
        wanted.extend(weights(false).chain(kv).chain(weights(true)));
        wanted
    }

    /// Places a schedule's weights, KV, arena and staging in `memory`: the hottest bytes first, each in the fastest
    /// heap with room. If that fails, any packing that fits is taken.
    ///
    /// # Errors
    /// Refused, with the sum if the model does not fit, or with the allocation that is larger than the device allows.
    /// Nothing has been allocated.
    pub fn place(schedule: &Schedule, memory: &DeviceMemory, needs: Needs) -> Result<Plan> {
        let wanted = Plan::wanted(schedule, needs);
        // Checked first: more room would not help.
        if let Some(&(purpose, bytes)) = too_large(&wanted, memory) {
            return Err(refuse_allocation(purpose, bytes, schedule, memory));
        }
        let Some(heaps) = place(&wanted, memory) else { return Err(refuse_sum(&wanted, schedule, memory)) };
        let mut used = vec![0; memory.heaps.len()];
        let mut regions = Vec::with_capacity(wanted.len());
        for (&(purpose, bytes), heap) in wanted.iter().zip(heaps) {
            regions.push(Region { purpose, bytes, heap, offset: used[heap] });
            used[heap] += bytes;
        }
        Ok(Plan { memory: memory.clone(), regions })
    }

    /// The schedule for `extent` that fits `memory`, and its plan: with the whole KV cache, or if that does not fit and
    /// `extent` leaves its size open, with the largest that fits. It holds at least one sequence of the whole context,
    /// so that a single sequence is never cut short.
    ///
    /// # Errors
    /// As [`Plan::place`].
    pub fn fit(
        extent: Extent,
        memory: &DeviceMemory,
        build: impl Fn(Extent) -> (Schedule, Needs),
    ) -> Result<(Schedule, Plan)> {
        let place = |kv_tokens| {
            let (schedule, needs) = build(Extent { kv_tokens, ..extent });
            Plan::place(&schedule, memory, needs).map(|plan| (schedule, plan))
        };
        let whole = place(extent.kv_tokens);
        if whole.is_ok() || extent.kv_tokens.is_some() || extent.sequences == 1 {
            return whole;
        }
        let one = extent.context.div_ceil(PAGE);
        let mut fits = place(Some(one * PAGE))?;
        most_pages(one, one.saturating_mul(extent.sequences), |pages| {
            place(Some(pages * PAGE)).map(|placed| fits = placed).is_ok()
        });
        Ok(fits)
    }

    /// The most tokens of KV, over all sequences, with which the schedule for `extent` fits `memory`; 0 if none fits.
    pub fn room(extent: Extent, memory: &DeviceMemory, build: impl Fn(Extent) -> (Schedule, Needs)) -> usize {
        let fits = |pages: usize| {
            let (schedule, needs) = build(Extent { kv_tokens: Some(pages * PAGE), ..extent });
            Plan::place(&schedule, memory, needs).is_ok()
        };
        let all = extent.context.div_ceil(PAGE).saturating_mul(extent.sequences);
        if fits(all) { all * PAGE } else { most_pages(0, all, fits) * PAGE }
    }

    /// The index of the heap that a region is assigned to. `None` if the plan has no such region.
    pub fn heap(&self, purpose: Purpose) -> Option<usize> {
        self.regions.iter().find(|r| r.purpose == purpose).map(|r| r.heap)
    }

    /// The size of all regions in bytes.
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|r| r.bytes).sum()
    }

    /// Bytes by kind, in the order weights, KV cache, arena, staging, without empty kinds.
    pub fn sums(&self) -> Vec<(&'static str, u64)> {
        self::sums(self.regions.iter().map(|r| (r.purpose, r.bytes)))
    }
}

/// The most pages from `few` up to, but not including, `many` that fit, by bisection. `few` is assumed to fit, and
/// `many` not to.
fn most_pages(mut few: usize, mut many: usize, mut fits: impl FnMut(usize) -> bool) -> usize {
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        match fits(middle) {
            true => few = middle,
            false => many = middle,
        }
    }
    few
}

/// The heap of each allocation; `None` if they do not fit.
fn place(wanted: &[(Purpose, u64)], memory: &DeviceMemory) -> Option<Vec<usize>> {
    let total = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1))?;
    if memory.pool.is_some_and(|pool| total > pool.available()) {
        return None;
    }
    hottest_first(wanted, memory).or_else(|| {
        let items: Vec<_> = wanted.iter().map(|&(purpose, bytes)| (bytes, needs_host(purpose))).collect();
        pack::pack(&items, &memory.heaps)
    })
}

/// Puts each allocation in turn into the fastest heap with room for it.
fn hottest_first(wanted: &[(Purpose, u64)], memory: &DeviceMemory) -> Option<Vec<usize>> {
    let mut left: Vec<u64> = memory.heaps.iter().map(|h| h.available).collect();
    let heap = |&(purpose, bytes): &(Purpose, u64)| {
        // Staging is rarely accessed: the device's own memory is left to hotter regions.
        let device_first = purpose != Purpose::Staging && !(memory.unified && purpose == Purpose::Arena);
        let heap = (0..left.len())
            .filter(|&i| left[i] >= bytes && (!needs_host(purpose) || memory.heaps[i].host_visible))
            .max_by_key(|&i| (memory.heaps[i].device_local == device_first, left[i]))?;
        left[heap] -= bytes;
        Some(heap)
    };
    wanted.iter().map(heap).collect()
}

/// True if the host must be able to map a region with this purpose.
fn needs_host(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Arena | Purpose::Staging)
}

/// The bytes of regions, summed by what they are used for. Kinds without bytes are left out.
pub fn sums(regions: impl Iterator<Item = (Purpose, u64)> + Clone) -> Vec<(&'static str, u64)> {
    ["weights", "KV cache", "arena", "staging"]
        .into_iter()
        .map(|kind| {
            (kind, regions.clone().filter(|(p, _)| p.kind() == kind).fold(0u64, |sum, (_, b)| sum.saturating_add(b)))
        })
        .filter(|&(_, b): &(_, u64)| b > 0)
        .collect()
}

/// The first allocation above the device's limit for one allocation.
fn too_large<'a>(wanted: &'a [(Purpose, u64)], memory: &DeviceMemory) -> Option<&'a (Purpose, u64)> {
    wanted.iter().find(|w| w.1 > memory.max_allocation)
}

/// Kernel parameters that would give the GPU enough memory for `wanted`. `None` if more memory would not help.
pub fn kernel_parameters(wanted: &[(Purpose, u64)], memory: &DeviceMemory) -> Option<String> {
    let total = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1))?;
    memory.pool.filter(|_| too_large(wanted, memory).is_none())?.parameters(total)
}

fn refuse_allocation(purpose: Purpose, needed: u64, schedule: &Schedule, memory: &DeviceMemory) -> Error {
    let what = match purpose {
        Purpose::Weights(WeightBuffer::Layer(i)) => format!("the weights of layer {i}"),
        Purpose::Weights(WeightBuffer::Drafter) => "the weights of the drafter".into(),
        Purpose::Weights(_) => "the weights of the embedding or the head".into(),
        p => format!("the {}", p.kind()),
    };
    let remedy = match (purpose, schedule.weights.format().smaller()) {
        (Purpose::Weights(_), Some(smaller)) => {
            text!("use ", Setting::Weights(smaller.name()), " or another device")
        }
        (Purpose::Weights(_), None) => "use another device".into(),
        _ => {
            let smaller = Text::any_of([Setting::Context.into(), Setting::Batch.into()]);
            text!("use a smaller ", smaller, ", or another device")
        }
    };
    Error::refused(
        format!(
            "{what}: {}{} needed, but {} allows {} in one allocation",
            bytes(needed),
            excess(needed, memory.max_allocation).map_or(String::new(), |excess| format!(" ({excess})")),
            memory.device,
            bytes(memory.max_allocation)
        ),
        remedy,
    )
}

/// Bytes of the matrices if all are in `format`: a lower bound, since some may keep a larger one.
fn least_weights(schedule: &Schedule, format: WeightFormat) -> u64 {
    let of = |tensor: &Placement| match tensor {
        Placement::Matrix(_, m) => format.matrix_bytes(m.rows, m.cols),
        _ => 0,
    };
    schedule.weights.buffers.iter().flat_map(|buffer| &buffer.tensors).map(of).sum()
}

fn refuse_sum(wanted: &[(Purpose, u64)], schedule: &Schedule, memory: &DeviceMemory) -> Error {
    let total = wanted.iter().fold(0u64, |sum, w| sum.saturating_add(w.1));
    let parts: Vec<_> = sums(wanted.iter().copied()).into_iter().map(|(k, b)| format!("{k} {}", bytes(b))).collect();
    let heaps: Vec<_> = memory.heaps.iter().map(|h| format!("{} in {}", bytes(h.available), h.name)).collect();
    let together = match memory.pool {
        Some(pool) => format!(", {} together", bytes(pool.available())),
        None => String::new(),
    };
    // A smaller weight format is no remedy if it does not fit either.
    let beside = wanted.iter().filter(|w| !matches!(w.0, Purpose::Weights(_)));
    let beside = beside.fold(0u64, |sum, w| sum.saturating_add(w.1));
    let mut smaller = std::iter::successors(schedule.weights.format().smaller(), |format| format.smaller());
    let format = smaller.find(|&format| beside.saturating_add(least_weights(schedule, format)) <= memory.available());
    let format = format.map_or_else(Text::default, |smaller| text!(Setting::Weights(smaller.name()), ", "));
    let context = text!(Setting::Context, format!(" (now {})", schedule.extent.context));
    let is_more = schedule.kv.tokens() > schedule.extent.context.next_multiple_of(PAGE);
    let kv = is_more.then(|| text!(Setting::KvTokens, format!(" (now {})", schedule.kv.tokens())));
    let others = [Setting::Batch.into(), Text::from("model")];
    let smaller = Text::any_of([context].into_iter().chain(kv).chain(others));
    let smaller = text!(format, "a smaller ", smaller, ", or free some memory");
    let remedy = match kernel_parameters(wanted, memory) {
        Some(parameters) => text!(format!("boot the kernel with {parameters}, or use "), smaller),
        None => text!("use ", smaller),
    };
    Error::refused(
        format!(
            "the model needs {} ({}{}), and {} has free {}{together}",
            bytes(total),
            excess(total, memory.available()).map_or(String::new(), |excess| format!("{excess}; ")),
            parts.join(" + "),
            memory.device,
            heaps.join(" and ")
        ),
        remedy,
    )
}
