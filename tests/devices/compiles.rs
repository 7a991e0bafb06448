//! How long a driver takes to compile each kernel that a model of Gemma 3 27B's shape can have, in each weight format: what is
//! usual, and every tile that tuning may try. A driver that does not end with one kernel keeps that model from being loaded at all.
//!
//! It runs for minutes, and says something of the device alone on which it runs, so it is not part of the suite:
//! `KILN_TEST_DEVICE=vulkan cargo test --test devices compiles:: -- --ignored --nocapture`. KILN_TEST_FORMATS names formats, KILN_TEST_USUAL
//! leaves out what only tuning tries. Where RADV_FORCE_FAMILY names a chip, RADV compiles for it without one:
//! `RADV_FORCE_FAMILY=phoenix MESA_SHADER_CACHE_DISABLE=1 target/mesa-25.0.7/run target/debug/deps/compiles-… --ignored --nocapture`.

use crate::common;
use kiln::model::{WeightFormat, presets};
use kiln::schedule::{Extent, KvType, Schedule, Segment};
use kiln::testing::lower::arithmetic::Arithmetic;
use kiln::testing::lower::dispatch::Addresses;
use kiln::testing::lower::kernels::Kernel;
use kiln::testing::lower::layout::GpuLayout;
use kiln::testing::lower::target::{Product, Target};
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::lower::{Lowering, PassKind, RowOrder, TokenSource};
use kiln::testing::vulkan::pipelines::Pipelines;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest that a kernel may take.
const LONGEST: Duration = Duration::from_secs(2);
/// Longest of the processor's time by RADV, which compiles on the thread that asks: a busy machine does not make it longer.
const LONGEST_RADV: Duration = Duration::from_millis(500);
/// Then a kernel counts as one that never ends.
const NEVER: Duration = Duration::from_secs(45);

/// What a schedule's passes use, and where `all`, what each of their products may use.
fn kernels(target: &Target, weights: WeightFormat, all: bool) -> BTreeSet<Kernel> {
    let shape = presets::preset("gemma3-27b").unwrap();
    let extent = Extent { context: 4096, max_rows: 512, head_rows: 8, sequences: 64, kv: KvType::F16, kv_tokens: None };
    let schedule = Schedule::build(&shape, extent, |id| match weights {
        WeightFormat::Blocks(_) => weights,
        other => other.of_matrix(id, &shape, None),
    });
    let addresses = Addresses::new(1 << 40, vec![1 << 41; schedule.weights.buffers.len()]);
    let layout = GpuLayout::new(&schedule);
    let prompts = [1, 2, 4, 8, 16, 64, 512].map(|rows| (rows, RowOrder::Consecutive));
    let batches = [2, 4, 8, 16, 32, 64].map(|rows| (rows, RowOrder::Apart));
    let mut found = BTreeSet::new();
    for (rows, order) in prompts.into_iter().chain(batches) {
        let kind = PassKind { rows, head_rows: rows.min(8), order, tokens: TokenSource::Host };
        // One local and one global layer represent all.
        let is_seen = |s: &Segment| !matches!(s, Segment::Layer(i) if *i != 0 && *i != 5);
        let pass = |target: &Target| {
            let lowering = Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target, kind };
            schedule.segments().filter(is_seen).flat_map(|s| lowering.segment(s)).collect::<Vec<_>>()
        };
        for arithmetic in target.arithmetics(weights, rows) {
            let mut target = target.clone();
            target.chosen.insert(rows, arithmetic);
            let dispatches = pass(&target);
            found.extend(dispatches.iter().map(|d| d.kernel));
            let products: Vec<(Arithmetic, Product)> = dispatches.iter().filter_map(|d| d.product).collect();
            for key in products.into_iter().filter(|_| all) {
                for tile in target.tiles(key.0, key.1) {
                    let mut tried = target.clone();
                    tried.tuned.insert(key, tile);
                    found.extend(pass(&tried).into_iter().filter(|d| d.product == Some(key)).map(|d| d.kernel));
                }
            }
        }
    }
    found
}

#[test]
#[ignore = "minutes, and about the device alone"]
fn every_kernel_compiles_in_time() {
    let gpu = Rc::new(common::open_gpu());
    // Such a driver runs no kernel that could tell how a wave holds its matrices; tests/amd.rs says where 1 is from.
    let only_compiles = std::env::var_os("RADV_FORCE_FAMILY").is_some();
    let units = match only_compiles {
        true => gpu.caps.matrix.map(|units| MatrixUnits { row_lanes: Some(1), ..units }),
        false => common::units(&gpu),
    };
    let longest = if only_compiles { LONGEST_RADV } else { LONGEST };
    let target = Target::new(gpu.caps.subgroup, gpu.caps.dot_accelerated, units);
    let named = std::env::var("KILN_TEST_FORMATS").ok();
    let is_named = |format: &WeightFormat| named.as_ref().is_none_or(|n| n.split(',').any(|n| n == format.name()));
    let all = std::env::var_os("KILN_TEST_USUAL").is_none();
    let mut list: Vec<(&str, Kernel)> = Vec::new();
    for format in WeightFormat::ALL.into_iter().filter(is_named) {
        let known: BTreeSet<Kernel> = list.iter().map(|k| k.1).collect();
        list.extend(
            kernels(&target, format, all).into_iter().filter(|k| !known.contains(k)).map(|k| (format.name(), k)),
        );
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let under_way = Mutex::new(vec![None; threads]);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, done, under_way, list) = (&next, &done, &under_way, &list);
            scope.spawn(move || {
                let gpu = Rc::new(common::open_gpu());
                let mut pipelines = Pipelines::new(&gpu).unwrap();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(_, kernel)) = list.get(i) else { break };
                    let (start, busy) = (Instant::now(), thread_time());
                    under_way.lock().unwrap()[thread] = Some((i, start));
                    pipelines.get(&[kernel]).unwrap();
                    let taken = if only_compiles { thread_time() - busy } else { start.elapsed() };
                    done.lock().unwrap().push((taken, i));
                }
                under_way.lock().unwrap()[thread] = None;
            });
        }
        // A thread in a compiler that does not end cannot be stopped: the process ends with it.
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let running: Vec<(usize, Instant)> = under_way.lock().unwrap().iter().flatten().copied().collect();
            let late = running.iter().filter(|r| r.1.elapsed() > NEVER).count();
            if late < running.len() || running.is_empty() && next.load(Ordering::Relaxed) < list.len() {
                continue;
            }
            report(&list, &mut done.lock().unwrap(), began.elapsed());
            if late > 0 {
                for (i, start) in running {
                    println!(
                        "never ends (after {:.0} s): {} {:?}",
                        start.elapsed().as_secs_f64(),
                        list[i].0,
                        list[i].1
                    );
                }
                std::process::exit(1);
            }
            break;
        }
    });
    let done = done.into_inner().unwrap();
    let late = done.iter().filter(|(time, _)| *time > longest).count();
    assert_eq!(late, 0, "{late} of {} kernels take more than {longest:?}", done.len());
}

/// The processor's time that this thread has taken.
fn thread_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// The time of each format, and the slowest kernels.
fn report(list: &[(&str, Kernel)], done: &mut [(Duration, usize)], wall: Duration) {
    done.sort_unstable();
    let formats: BTreeSet<&str> = list.iter().map(|k| k.0).collect();
    for format in formats {
        let own: Vec<f64> = done.iter().filter(|d| list[d.1].0 == format).map(|d| d.0.as_secs_f64()).collect();
        let slowest = own.last().copied().unwrap_or_default();
        println!(
            "{format}: {} kernels, {:.1} s in all, the slowest {slowest:.2} s",
            own.len(),
            own.iter().sum::<f64>()
        );
    }
    for (time, i) in done.iter().rev().take(12) {
        println!("{:.2} s: {} {:?}", time.as_secs_f64(), list[*i].0, list[*i].1);
    }
    println!("{} of {} kernels in {:.1} s", done.len(), list.len(), wall.as_secs_f64());
}
