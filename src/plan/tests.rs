//! The planner over thousands of generated heap layouts, checked against an oracle that tries every placement.

use super::*;
use crate::machine::heaps::{self, ApuMemory, Heap, reserve};
use crate::model::presets;
use crate::schedule::{Extent, KvType};
use crate::text::testing::Random;
use std::collections::HashSet;

fn needs(schedule: &Schedule, staging: u64) -> Needs {
    Needs { staging, ..Needs::of(schedule) }
}

/// A heap that the host maps.
fn heap(available: u64, device_local: bool) -> Heap {
    Heap { name: "heap".into(), available, reserved: 0, device_local, host_visible: true }
}

fn below(random: &mut Random, n: u64) -> u64 {
    random.next() % n
}

fn toss(random: &mut Random) -> bool {
    random.below(2) == 1
}

fn shape(tied: bool) -> crate::model::Shape {
    let json = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tiny/config.json")).unwrap();
    let mut shape = crate::model::config::parse(&json, None).unwrap();
    shape.tied = tied;
    shape
}

fn int8(_: crate::model::TensorId) -> crate::model::WeightFormat {
    crate::model::WeightFormat::Int8
}

fn schedule(dice: &mut Random) -> Schedule {
    let shape = shape(toss(dice));
    let (context, sequences) = (16 + below(dice, 400) as usize, 1 + below(dice, 4) as usize);
    let extent =
        Extent { context, max_rows: 16.max(sequences), head_rows: 1, sequences, kv: KvType::F16, kv_tokens: None };
    Schedule::build(&shape, extent, int8)
}

/// One to three heaps. Some have random sizes; others exactly or nearly hold `wanted`, so that packing is hard.
fn memory(dice: &mut Random, wanted: &[(Purpose, u64)]) -> DeviceMemory {
    let total: u64 = wanted.iter().map(|w| w.1).sum();
    let count = if below(dice, 8) == 0 { 3 } else { 1 + below(dice, 2) };
    let mut sizes: Vec<u64> = (0..count).map(|_| below(dice, total * 3 / 2)).collect();
    if toss(dice) {
        sizes.iter_mut().for_each(|s| *s = if toss(dice) { 0 } else { below(dice, total / 100) });
        wanted.iter().for_each(|w| sizes[below(dice, count) as usize] += w.1);
    }
    let heap = |(i, available): (usize, u64)| {
        let (device_local, host_visible) = (toss(dice), below(dice, 4) > 0);
        Heap { name: format!("heap {i}"), available, reserved: 0, device_local, host_visible }
    };
    let heaps = sizes.into_iter().enumerate().map(heap).collect();
    let pool = (below(dice, 4) == 0).then(|| {
        let vram = below(dice, total);
        heaps::ApuMemory {
            vram,
            gtt: below(dice, 2 * total),
            gtt_used: below(dice, total / 4),
            gtt_reserved: below(dice, total / 16),
            system: below(dice, 2 * total),
        }
    });
    // No cap, a random one, or one just at or just below the largest allocation.
    let largest = wanted.iter().map(|w| w.1).max().unwrap();
    let max_allocation = match below(dice, 8) {
        0 => below(dice, largest * 2),
        1 => largest - below(dice, 2),
        _ => u64::MAX,
    };
    DeviceMemory { device: "a device".into(), heaps, max_allocation, unified: toss(dice), pool }
}

fn exceeds_cap(wanted: &[(Purpose, u64)], memory: &DeviceMemory) -> bool {
    wanted.iter().any(|w| w.1 > memory.max_allocation)
}

/// Whether any placement fits. Tracks every reachable filling of the heaps, item by item.
fn oracle(wanted: &[(Purpose, u64)], memory: &DeviceMemory) -> bool {
    let total: u64 = wanted.iter().map(|w| w.1).sum();
    if exceeds_cap(wanted, memory) {
        return false;
    }
    if memory
        .pool
        .is_some_and(|p| total > p.vram + p.system.min(p.gtt.saturating_sub(p.gtt_used).saturating_sub(p.gtt_reserved)))
    {
        return false;
    }
    let mut fillings = HashSet::from([vec![0u64; memory.heaps.len()]]);
    for &(purpose, bytes) in wanted {
        let host = matches!(purpose, Purpose::Arena | Purpose::Staging);
        let mut next = HashSet::new();
        for filling in &fillings {
            for (i, heap) in memory.heaps.iter().enumerate() {
                if filling[i] + bytes <= heap.available && (heap.host_visible || !host) {
                    let mut filling = filling.clone();
                    filling[i] += bytes;
                    next.insert(filling);
                }
            }
        }
        fillings = next;
    }
    !fillings.is_empty()
}

fn check(plan: &Plan, wanted: &[(Purpose, u64)]) {
    let memory = &plan.memory;
    let placed: Vec<_> = plan.regions.iter().map(|r| (r.purpose, r.bytes)).collect();
    assert_eq!(placed, wanted, "each once, whole");
    for (i, heap) in memory.heaps.iter().enumerate() {
        let mut spans: Vec<_> = plan.regions.iter().filter(|r| r.heap == i).map(|r| (r.offset, r.bytes)).collect();
        spans.sort_unstable();
        let mut end = 0;
        for (offset, bytes) in spans {
            assert!(offset >= end, "regions overlap in {}: {plan:?}", heap.name);
            end = offset + bytes;
        }
        assert!(end <= heap.available, "{} has {} and is given {end}", heap.name, heap.available);
    }
    for r in &plan.regions {
        let host = matches!(r.purpose, Purpose::Arena | Purpose::Staging);
        assert!(!host || memory.heaps[r.heap].host_visible, "{} where the host cannot map it", r.purpose);
    }
    assert!(plan.regions.iter().all(|r| r.bytes <= memory.max_allocation));
    assert!(memory.pool.is_none_or(|p| plan.bytes() <= p.available()));
}

#[test]
fn generated_heaps_are_never_overfilled_and_refused_only_where_nothing_fits() {
    let dice = &mut Random(0x9e37_79b9_7f4a_7c15);
    let (mut placed, mut refused, mut hard, mut capped) = (0, 0, 0, 0);
    for _ in 0..200 {
        let schedule = schedule(dice);
        for _ in 0..20 {
            let staging = if toss(dice) { below(dice, 1 << 20) } else { 0 };
            let wanted = Plan::wanted(&schedule, needs(&schedule, staging));
            let memory = memory(dice, &wanted);
            match Plan::place(&schedule, &memory, needs(&schedule, staging)) {
                Ok(plan) => {
                    check(&plan, &wanted);
                    placed += 1;
                    hard += usize::from(hottest_first(&wanted, &memory).is_none());
                }
                Err(e) => {
                    assert_eq!(e.exit_code(), 3, "{e}");
                    assert!(!oracle(&wanted, &memory), "refused, though it fits: {e}\n{memory:?}\n{wanted:?}");
                    let exceeds = exceeds_cap(&wanted, &memory);
                    assert_eq!(e.to_string().contains("in one allocation"), exceeds, "{e}\n{memory:?}\n{wanted:?}");
                    assert!(!exceeds || kernel_parameters(&wanted, &memory).is_none(), "{memory:?}");
                    refused += 1;
                    capped += usize::from(exceeds);
                }
            }
        }
    }
    println!("{placed} placed ({hard} by search), {refused} refused ({capped} for one allocation)");
    assert!(placed > 1000 && refused > 1000 && hard > 50 && capped > 200);
}

/// A 27B model's layers, in heaps without a byte to spare, are placed or refused without a long search.
#[test]
fn large_models_are_placed_to_the_last_byte() {
    let shape = presets::preset("gemma3-27b").unwrap();
    let extent = Extent { context: 4096, max_rows: 512, head_rows: 1, sequences: 1, kv: KvType::F16, kv_tokens: None };
    let schedule = Schedule::build(&shape, extent, int8);
    let wanted = Plan::wanted(&schedule, needs(&schedule, 0));
    let total: u64 = wanted.iter().map(|w| w.1).sum();
    let layer = schedule.weights.buffers[1].bytes;
    for first in (0..10).map(|i| i * total / 10) {
        for spare in [0, 1, layer / 2, layer, 2 * layer] {
            let heaps = vec![heap(first, true), heap(total - first + spare, false)];
            let memory =
                DeviceMemory { device: "d".into(), heaps, max_allocation: u64::MAX, unified: true, pool: None };
            match Plan::place(&schedule, &memory, needs(&schedule, 0)) {
                Ok(plan) => check(&plan, &wanted),
                Err(_) => assert!(spare < layer, "{spare} bytes to spare, and refused"),
            }
        }
    }
}

/// If VRAM is short, the arena and weights get it. Rarely read bytes go elsewhere.
#[test]
fn the_hottest_bytes_have_the_fastest_heap() {
    for tied in [true, false] {
        let extent =
            Extent { context: 400, max_rows: 16, head_rows: 1, sequences: 4, kv: KvType::F16, kv_tokens: None };
        let schedule = Schedule::build(&shape(tied), extent, int8);
        let wanted = Plan::wanted(&schedule, needs(&schedule, 1 << 20));
        let kv: u64 = wanted.iter().filter(|w| w.0.kind() == "KV cache").map(|w| w.1).sum();
        let cold: u64 = if tied { 0 } else { schedule.weights.buffers[0].bytes };
        let total: u64 = wanted.iter().map(|w| w.1).sum();
        let heaps = vec![heap(1 << 30, false), heap(total - (1 << 20) - kv - cold, true)];
        let memory = DeviceMemory { device: "d".into(), heaps, max_allocation: u64::MAX, unified: false, pool: None };
        let plan = Plan::place(&schedule, &memory, needs(&schedule, 1 << 20)).unwrap();
        for r in plan.regions {
            let is_cold = match r.purpose {
                Purpose::Weights(WeightBuffer::Embedding) => !tied,
                p => matches!(p.kind(), "KV cache" | "staging"),
            };
            assert_eq!(r.heap, usize::from(!is_cold), "{} (tied: {tied})", r.purpose);
        }
    }
}

#[test]
fn a_refusal_names_the_kernel_parameter_that_would_help_and_no_other() {
    const GIB: u64 = 1 << 30;
    let pool = heaps::ApuMemory { vram: 16 * GIB, gtt: 24 * GIB, gtt_used: GIB, gtt_reserved: 0, system: 44 * GIB };
    assert_eq!(pool.available(), (16 + 23) * GIB);
    let parameters = "amdgpu.gttsize=36864 ttm.pages_limit=9437184 ttm.page_pool_size=9437184";
    assert_eq!(pool.parameters(51 * GIB), Some(parameters.into()), "35 GiB from the system and the one in use");
    assert_eq!(pool.parameters(39 * GIB), None, "fits as it is");
    assert_eq!(pool.parameters(61 * GIB), None, "more than the system has");
    // System memory is short here, not GTT's limit.
    let full = heaps::ApuMemory { system: 2 * GIB, ..pool };
    assert_eq!((full.available(), full.parameters(20 * GIB)), (18 * GIB, None));
    assert_eq!(pool.parameters(u64::MAX), None);
}

/// An allocation above the device's cap is refused for that reason: neither more room nor kernel parameters would help.
#[test]
fn an_allocation_above_the_devices_cap_is_refused_for_that_wherever_there_is_room() {
    use crate::machine::profile::profile;
    // With room for it, and without. A KV cache is divided into blocks, none of which is too large.
    let extent =
        Extent { context: 131_072, max_rows: 512, head_rows: 8, sequences: 8, kv: KvType::F16, kv_tokens: None };
    let schedule = Schedule::build(&presets::preset("gemma3-27b").unwrap(), extent, int8);
    for machine in ["8060s", "8060s:0.5", "890m"] {
        let memory = profile(machine, None).unwrap().memory;
        let said = Plan::place(&schedule, &memory, needs(&schedule, 0)).unwrap_err().to_string();
        assert!(!said.contains("in one allocation"), "{machine}: {said}");
    }
    // The refusal names the allocation that is too large.
    let memory = DeviceMemory { max_allocation: 5_000_000, ..profile("8060s", None).unwrap().memory };
    for (purpose, words) in [
        (Purpose::Weights(WeightBuffer::Layer(3)), "the weights of layer 3: 6.0 MB needed"),
        (Purpose::Weights(WeightBuffer::Embedding), "the weights of the embedding or the head: 6.0 MB needed"),
        (Purpose::Weights(WeightBuffer::Head), "the weights of the embedding or the head: 6.0 MB needed"),
        (Purpose::Arena, "the arena: 6.0 MB needed"),
        (Purpose::Staging, "the staging: 6.0 MB needed"),
    ] {
        let said = refuse_allocation(purpose, 6_000_000, &schedule, &memory).to_string();
        assert!(said.starts_with(words) && said.contains("allows 5.0 MB in one allocation"), "{said}");
    }
}

#[test]
fn a_refusal_never_says_that_as_much_is_free_as_is_needed() {
    let schedule = schedule(&mut Random(1));
    let total: u64 = Plan::wanted(&schedule, needs(&schedule, 0)).iter().map(|w| w.1).sum();
    let said = |missing: u64, pooled: bool| {
        let available = total - missing;
        let heap = Heap { name: "VRAM".into(), available, reserved: 0, device_local: true, host_visible: true };
        let pool =
            pooled.then_some(heaps::ApuMemory { vram: available, gtt: 0, gtt_used: 0, gtt_reserved: 0, system: 0 });
        let heaps = vec![Heap { available: if pooled { total } else { available }, ..heap }];
        let memory = DeviceMemory { device: "d".into(), heaps, max_allocation: u64::MAX, unified: true, pool };
        Plan::place(&schedule, &memory, needs(&schedule, 0)).unwrap_err().to_string()
    };
    let needs_too_much = format!("needs {} (1 B too much; weights ", bytes(total));
    for (pooled, free) in [(false, "in VRAM"), (true, "together")] {
        let (said, free) = (said(1, pooled), format!("{} {free}", bytes(total)));
        assert!(said.contains(&needs_too_much) && said.contains(&free), "{said}");
    }
    let words = [format!("needs {}", bytes(total)), format!("{} in VRAM", bytes(total / 2))];
    assert!(words.iter().all(|w| said(total - total / 2, false).contains(w)), "{}", said(total - total / 2, false));
}

/// A KV cache of open size is as large as possible, and holds at least one sequence of the whole context.
#[test]
fn the_kv_cache_takes_what_the_model_leaves() {
    let memory = |bytes| {
        let heap = Heap { name: "VRAM".into(), available: bytes, reserved: 0, device_local: true, host_visible: true };
        DeviceMemory { device: "d".into(), heaps: vec![heap], max_allocation: u64::MAX, unified: true, pool: None }
    };
    let shape = presets::preset("gemma3-1b").unwrap();
    let build = |extent| {
        let schedule = Schedule::build(&shape, extent, int8);
        let needs = needs(&schedule, 0);
        (schedule, needs)
    };
    let of = |sequences, kv_tokens| {
        let (context, head_rows) = (2048, sequences);
        Extent { context, max_rows: 512, head_rows, sequences, kv: KvType::F16, kv_tokens }
    };
    for sequences in [1, 3, 100, 500] {
        let whole = Plan::wanted(&build(of(sequences, None)).0, build(of(sequences, None)).1);
        let whole: u64 = whole.iter().map(|w| w.1).sum();
        let (schedule, plan) = Plan::fit(of(sequences, None), &memory(whole), build).unwrap();
        assert_eq!((schedule.kv.tokens(), plan.bytes()), (2048 * sequences, whole));
        let (least, needs) = build(of(sequences, Some(2048)));
        let least: u64 = Plan::wanted(&least, needs).iter().map(|w| w.1).sum();
        let refused = Plan::fit(of(sequences, None), &memory(least - 1), build).unwrap_err();
        assert!(refused.exit_code() == 3 && !refused.names(Setting::KvTokens), "{refused}");
        for bytes in [least, (least + whole) / 2, whole.max(least + 1) - 1] {
            if sequences == 1 && bytes < whole {
                continue;
            }
            let (schedule, plan) = Plan::fit(of(sequences, None), &memory(bytes), build).unwrap();
            let page: u64 = Pool::ALL.into_iter().map(|pool| schedule.kv.pool(pool).page_bytes).sum();
            assert!(schedule.kv.holds_one() && plan.bytes() <= bytes && plan.bytes() + page > bytes, "{sequences}");
            assert_eq!(Plan::room(of(sequences, None), &memory(bytes), build), schedule.kv.tokens());
        }
        // A requested size is granted or refused.
        let asked = of(sequences, Some(2048 * sequences));
        let refused = Plan::fit(asked, &memory(whole - 1), build).unwrap_err();
        assert_eq!(refused.names(Setting::KvTokens), sequences > 1, "{refused}");
    }
}

/// 32 sequences of 32,768 tokens at 27B, on a GPU with 140 GB.
#[test]
fn a_large_gpu_holds_many_long_sequences() {
    let heap = |available, device_local| {
        let reserved = reserve(available);
        Heap { name: "heap".into(), available: available - reserved, reserved, device_local, host_visible: true }
    };
    let heaps = vec![heap(140_000_000_000, true), heap(64 << 30, false)];
    let memory = DeviceMemory { device: "d".into(), heaps, max_allocation: 4 << 30, unified: false, pool: None };
    let extent =
        Extent { context: 32_768, max_rows: 512, head_rows: 32, sequences: 32, kv: KvType::F16, kv_tokens: None };
    let schedule = Schedule::build(&presets::preset("gemma3-27b").unwrap(), extent, int8);
    let needs = Needs::on_device(&schedule, true);
    let plan = Plan::place(&schedule, &memory, needs).unwrap();
    assert_eq!(schedule.kv.tokens(), 32 * 32_768);
    let spilled = plan.regions.iter().filter(|r| r.heap == 1 && r.purpose != Purpose::Staging);
    assert_eq!(spilled.count(), 0, "all but staging is in the GPU's own memory");
}

/// The APUs of tests/machines: amdgpu reports the memory, and RADV divides the sum into heaps by its own rule.
#[test]
fn an_apu_is_planned_by_what_amdgpu_says_of_it() {
    use crate::diagnose::probe::testing::{self, TestMachine};
    for name in testing::names() {
        let machine = TestMachine::new(name);
        let _drivers = machine.drive();
        let node = crate::sys::drm::Node::open(&machine.files.at("/dev/dri/renderD128")).unwrap();
        let memory = crate::sys::amdgpu::memory(&node).unwrap();
        let free = memory.vram.usable - memory.vram.used + memory.gtt.usable - memory.gtt.used;
        let system = memory.gtt.total * 2;
        let pool = ApuMemory::of(&memory, system);
        assert!(pool.available() <= free && pool.available() > free / 10 * 9, "{name}: {pool:?}");
        let heap = |part, device_local| {
            let name = "heap".into();
            Heap {
                name,
                available: (memory.vram.total + memory.gtt.total) / 3 * part,
                reserved: 0,
                device_local,
                host_visible: true,
            }
        };
        // The heaps claim more than the driver has left, as if another program had taken some.
        let heaps = vec![heap(2, true), heap(1, false)];
        let memory =
            DeviceMemory { device: name.into(), heaps, max_allocation: u64::MAX, unified: true, pool: Some(pool) };
        let layers = |bytes: u64| {
            (0..1000).map(move |i| (Purpose::Kv(Pool::Local, i), (bytes + i as u64) / 1000)).collect::<Vec<_>>()
        };
        let placed = |bytes: u64| place(&layers(bytes), &memory);
        assert!(placed(pool.available()).is_some(), "{name}");
        assert!(placed(pool.available() + 1).is_none(), "{name}");
    }
}

#[test]
fn no_driver_whatever_its_numbers_makes_a_plan_that_is_wrong() {
    use crate::sys::amdgpu::{GpuHeap, GpuMemory};
    const NUMBERS: [u64; 6] = [0, 1, 4096, 1 << 40, i64::MAX as u64, u64::MAX];
    let wanted = [(Purpose::Arena, 4096), (Purpose::Weights(WeightBuffer::Embedding), 1 << 30)];
    for (usable, used) in NUMBERS.into_iter().flat_map(|a| NUMBERS.map(|b| (a, b))) {
        for system in NUMBERS {
            let said = GpuHeap { total: usable, usable, used, max_allocation: usable };
            let pool = ApuMemory::of(&GpuMemory { vram: said, gtt: said }, system);
            let heap = |available| {
                let name = "heap".into();
                Heap { name, available, reserved: reserve(available), device_local: true, host_visible: true }
            };
            let memory = DeviceMemory {
                device: "odd".into(),
                heaps: vec![heap(usable), heap(system)],
                max_allocation: u64::MAX,
                unified: true,
                pool: Some(pool),
            };
            let fits = place(&wanted, &memory).is_some();
            assert!(!fits || pool.available() >= 4096 + (1 << 30), "{usable} {used} {system}");
            NUMBERS.into_iter().for_each(|needed| drop(pool.parameters(needed)));
            let most = [(Purpose::Kv(Pool::Global, 0), u64::MAX), (Purpose::Kv(Pool::Local, 0), u64::MAX)];
            assert!(place(&most, &memory).is_none(), "more than there can be");
        }
    }
}
