//! The plan: every byte placed in a heap before anything is allocated, or a refusal with the sum.

mod pack;
#[cfg(test)]
mod tests;

use crate::model::WeightFormat;
use crate::schedule::Schedule;
use crate::schedule::layout::BufferLayout;
use crate::schedule::step::WeightBuffer;
use crate::{Error, Result};

/// Bytes as a person reads them, in decimal units as bandwidths and file sizes are: `27.0 GB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// How to write two sums of bytes, one beside its limit: to the byte where they would read the same otherwise.
pub(crate) fn writer(needed: u64, limit: u64) -> fn(u64) -> String {
    match bytes(needed) == bytes(limit) {
        true => |n| format!("{n} B"),
        false => bytes,
    }
}

/// One heap of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heap {
    /// As messages name it.
    pub name: String,
    /// Bytes that may still be allocated, without those that are reserved.
    pub available: u64,
    /// Free bytes that are left to others; see [`reserve`].
    pub reserved: u64,
    /// The device reads it at its full rate.
    pub device_local: bool,
    /// The host can map it.
    pub host_visible: bool,
}

/// A device's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The device, as messages name it.
    pub device: String,
    /// Its heaps.
    pub heaps: Vec<Heap>,
    /// The largest single allocation, in bytes.
    pub max_allocation: u64,
    /// All heaps are the same DRAM, as on an APU: the arena then lies where the NPU and the host see it too.
    pub unified: bool,
    /// What the heaps are parts of, where that is known and may be less than their sum.
    pub pool: Option<Pool>,
}

impl Memory {
    /// Bytes that may still be allocated, in all heaps together.
    fn available(&self) -> u64 {
        let heaps = self.heaps.iter().fold(0u64, |sum, h| sum.saturating_add(h.available));
        self.pool.map_or(heaps, Pool::available)
    }
}

/// The memory of an AMD APU, as its driver counts it: whatever heaps Vulkan shows, they are this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Free bytes of the carve-out (VRAM).
    pub vram: u64,
    /// Bytes of system memory that the driver lets the GPU have (GTT).
    pub gtt: u64,
    /// Those of them that are taken, and those that are kept free.
    pub gtt_used: u64,
    /// See [`Pool::gtt_used`].
    pub gtt_reserved: u64,
    /// Bytes of system memory that may still be taken, without those that are reserved.
    pub system: u64,
}

impl Pool {
    /// Bytes that may still be allocated, in whichever heap.
    pub fn available(self) -> u64 {
        self.vram
            .saturating_add(self.gtt.saturating_sub(self.gtt_used).saturating_sub(self.gtt_reserved).min(self.system))
    }

    /// The kernel's parameters with which `needed` bytes would fit, if the system's memory has so much.
    pub fn parameters(self, needed: u64) -> Option<String> {
        const GIB: u64 = 1 << 30;
        let from_system = needed.checked_sub(self.vram)?;
        let taken = self.gtt_used.checked_add(self.gtt_reserved)?;
        let gtt = taken.checked_add(from_system)?.checked_next_multiple_of(GIB)?;
        let (mib, pages) = (gtt >> 20, gtt / 4096);
        let would = from_system <= self.system && gtt > self.gtt;
        would.then(|| format!("amdgpu.gttsize={mib} ttm.pages_limit={pages} ttm.page_pool_size={pages}"))
    }
}

/// Bytes of `free` ones to leave to a desktop or whatever else shares the memory: a sixteenth, and no more than a GiB.
pub fn reserve(free: u64) -> u64 {
    (free / 16).min(1 << 30)
}

/// What a region of memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// One of the weight buffers.
    Weights(WeightBuffer),
    /// A layer's KV ring, all sequences.
    Kv(usize),
    /// Activations and step state.
    Arena,
    /// Where the host reads logits, if it cannot read the arena at speed; or where uploads pass through.
    Staging,
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Purpose::Weights(WeightBuffer::Embedding) => f.write_str("embedding"),
            Purpose::Weights(WeightBuffer::Layer(i)) => write!(f, "layer {i}"),
            Purpose::Weights(WeightBuffer::Head) => f.write_str("head"),
            Purpose::Kv(i) => write!(f, "KV of layer {i}"),
            Purpose::Arena | Purpose::Staging => f.write_str(self.kind()),
        }
    }
}

impl Purpose {
    /// The kind, for sums: `weights`, `KV cache`, `arena`, `staging`.
    pub fn kind(self) -> &'static str {
        match self {
            Purpose::Weights(_) => "weights",
            Purpose::Kv(_) => "KV cache",
            Purpose::Arena => "arena",
            Purpose::Staging => "staging",
        }
    }
}

/// One allocation to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// What it is for.
    pub purpose: Purpose,
    /// Bytes.
    pub bytes: u64,
    /// Index of its heap.
    pub heap: usize,
    /// Bytes of the heap's free ones that lie before it. Drivers choose addresses themselves: this only counts.
    pub offset: u64,
}

/// Where each byte goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The memory that it was made for.
    pub memory: Memory,
    /// Every allocation.
    pub regions: Vec<Region>,
}

impl Plan {
    /// Every allocation that a schedule needs, hottest first, and `staging` bytes that the host can map. The arena is read
    /// and written by every step; weights are read once a pass; KV as far as a sequence has come. Of an embedding that is
    /// not the head, too, a pass reads a row.
    pub fn wanted(schedule: &Schedule, staging: u64) -> Vec<(Purpose, u64)> {
        let sequences = schedule.extent.sequences as u64;
        let is_cold = |b: WeightBuffer| b == WeightBuffer::Embedding && !schedule.shape.tied;
        let weights = |cold: bool| {
            let of = move |b: &&BufferLayout| is_cold(b.buffer) == cold;
            schedule.weights.buffers.iter().filter(of).map(|b| (Purpose::Weights(b.buffer), b.bytes))
        };
        let kv = schedule.rings.iter().map(|r| (Purpose::Kv(r.layer), r.sequence_bytes().saturating_mul(sequences)));
        let mut wanted = vec![(Purpose::Arena, schedule.arena.bytes)];
        if staging > 0 {
            wanted.push((Purpose::Staging, staging));
        }
        wanted.extend(weights(false).chain(kv).chain(weights(true)));
        wanted
    }

    /// Places a schedule's weights, KV and arena (and `staging` bytes that the host can map) in `memory`, the hottest
    /// bytes first and in the fastest heap that still has room; in any way that fits where that does not.
    ///
    /// # Errors
    /// Refused when it does not fit, with the sum, or with the allocation that is larger than the device allows; nothing has
    /// been allocated.
    pub fn place(schedule: &Schedule, memory: &Memory, staging: u64) -> Result<Plan> {
        let wanted = Plan::wanted(schedule, staging);
        // First: no room would help.
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

    /// The heap that a region was given.
    pub fn heap(&self, purpose: Purpose) -> Option<usize> {
        self.regions.iter().find(|r| r.purpose == purpose).map(|r| r.heap)
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|r| r.bytes).sum()
    }

    /// Bytes by kind, in the order weights, KV cache, arena, staging; kinds without bytes are left out.
    pub fn sums(&self) -> Vec<(&'static str, u64)> {
        self::sums(self.regions.iter().map(|r| (r.purpose, r.bytes)))
    }
}

/// The heap of each allocation, or none where they do not fit.
fn place(wanted: &[(Purpose, u64)], memory: &Memory) -> Option<Vec<usize>> {
    let total = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1))?;
    if memory.pool.is_some_and(|pool| total > pool.available()) {
        return None;
    }
    hottest_first(wanted, memory).or_else(|| {
        let items: Vec<_> = wanted.iter().map(|&(purpose, bytes)| (bytes, needs_host(purpose))).collect();
        pack::pack(&items, &memory.heaps)
    })
}

/// Each in turn into the fastest heap that has room for it.
fn hottest_first(wanted: &[(Purpose, u64)], memory: &Memory) -> Option<Vec<usize>> {
    let mut left: Vec<u64> = memory.heaps.iter().map(|h| h.available).collect();
    let heap = |&(purpose, bytes): &(Purpose, u64)| {
        // Staging is never hot: leave the device's own memory to what is.
        let device_first = purpose != Purpose::Staging && !(memory.unified && purpose == Purpose::Arena);
        let heap = (0..left.len())
            .filter(|&i| left[i] >= bytes && (!needs_host(purpose) || memory.heaps[i].host_visible))
            .max_by_key(|&i| (memory.heaps[i].device_local == device_first, left[i]))?;
        left[heap] -= bytes;
        Some(heap)
    };
    wanted.iter().map(heap).collect()
}

/// Whether the host must be able to map it.
fn needs_host(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Arena | Purpose::Staging)
}

/// Bytes by kind; kinds without bytes are left out.
pub fn sums(regions: impl Iterator<Item = (Purpose, u64)> + Clone) -> Vec<(&'static str, u64)> {
    ["weights", "KV cache", "arena", "staging"]
        .into_iter()
        .map(|kind| {
            (kind, regions.clone().filter(|(p, _)| p.kind() == kind).fold(0u64, |sum, (_, b)| sum.saturating_add(b)))
        })
        .filter(|&(_, b): &(_, u64)| b > 0)
        .collect()
}

/// The first allocation that is larger than the device allows in one.
fn too_large<'a>(wanted: &'a [(Purpose, u64)], memory: &Memory) -> Option<&'a (Purpose, u64)> {
    wanted.iter().find(|w| w.1 > memory.max_allocation)
}

/// The kernel's parameters with which what does not fit would, where more memory for the GPU is what it needs.
pub fn kernel_parameters(wanted: &[(Purpose, u64)], memory: &Memory) -> Option<String> {
    let total = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1))?;
    memory.pool.filter(|_| too_large(wanted, memory).is_none())?.parameters(total)
}

fn refuse_allocation(purpose: Purpose, needed: u64, schedule: &Schedule, memory: &Memory) -> Error {
    let e = &schedule.extent;
    let what = match purpose {
        Purpose::Weights(WeightBuffer::Layer(i)) => format!("the weights of layer {i}"),
        Purpose::Weights(_) => "the weights of the embedding or the head".into(),
        Purpose::Kv(i) => format!("the KV cache of layer {i} for {} x {} tokens", e.sequences, e.context),
        p => format!("the {}", p.kind()),
    };
    let write = writer(needed, memory.max_allocation);
    let remedy = match (purpose, e.weights) {
        (Purpose::Weights(_), WeightFormat::Bf16) => "use --weights int8 or another device",
        (Purpose::Weights(_), WeightFormat::Int8) => "use another device",
        _ => "use a smaller --ctx or --batch, or another device",
    };
    Error::refused(
        format!(
            "{what}: {} needed, but {} allows {} in one allocation",
            write(needed),
            memory.device,
            write(memory.max_allocation)
        ),
        remedy,
    )
}

fn refuse_sum(wanted: &[(Purpose, u64)], schedule: &Schedule, memory: &Memory) -> Error {
    let total = wanted.iter().fold(0u64, |sum, w| sum.saturating_add(w.1));
    let write = writer(total, memory.available());
    let parts: Vec<_> = sums(wanted.iter().copied()).into_iter().map(|(k, b)| format!("{k} {}", bytes(b))).collect();
    let heaps: Vec<_> = memory.heaps.iter().map(|h| format!("{} in {}", write(h.available), h.name)).collect();
    let together = match memory.pool {
        Some(pool) => format!(", {} together", write(pool.available())),
        None => String::new(),
    };
    let int8 = if schedule.extent.weights == WeightFormat::Bf16 { "--weights int8, " } else { "" };
    let smaller =
        format!("use {int8}a smaller --ctx (now {}), --batch or model, or free some memory", schedule.extent.context);
    let remedy = match kernel_parameters(wanted, memory) {
        Some(parameters) => format!("boot the kernel with {parameters}, or {smaller}"),
        None => smaller,
    };
    Error::refused(
        format!(
            "the model needs {} ({}), and {} has free {}{together}",
            write(total),
            parts.join(" + "),
            memory.device,
            heaps.join(" and ")
        ),
        remedy,
    )
}
