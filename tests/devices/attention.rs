//! Attention over long contexts on a device, with the keys split among several workgroups. Covers positions at and
//! around the boundaries of these parts, a window whose ring has wrapped, and every number of heads per KV head. Also
//! the norm that values may pass on their way into a page.

use crate::common::{
    self, F32, Forged, Random, max_abs, open_gpu, relative_rms, rms, runs_all, shared_heap, small_shape, vulkan,
};
use kiln::engine::{Device, Options};
use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure, Row};
use kiln::model::{LayerKind, Shape, WeightFormat};
use kiln::schedule::KvType;
use kiln::schedule::kv::PAGE;
use kiln::schedule::layout::StateLayout;
use kiln::sequence::session::Session;
use kiln::testing::lower::dispatch::Dispatch;
use kiln::testing::lower::kernels::constants::{AttendConstants, NoConstants};
use kiln::testing::lower::kernels::push::{AttendPush, HeadPreparePush, Push, word};
use kiln::testing::lower::kernels::{Kernel, Module};
use kiln::testing::replay::device_queue::DeviceQueue;
use kiln::testing::replay::driver::{HostAccess, Memory};
use kiln::testing::vulkan::Vulkan;
use kiln::testing::vulkan::memory::Buffer;
use std::rc::Rc;

const CONTEXT: usize = 1500;
const CHUNK: usize = 64;
/// Longer than two parts. The ring (window + chunk - 1) wraps four times.
const WINDOW: usize = 300;

/// A local and a global layer.
fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> Shape {
    Shape {
        vocab: 97,
        hidden: 32,
        ffn: 16,
        layers: vec![LayerKind::Local, LayerKind::Global],
        query_pre_attn_scalar: head_dim as f32,
        max_context: CONTEXT,
        ..small_shape().with_heads(heads, kv_heads, head_dim).with_window(WINDOW)
    }
}

/// Rows of each pass, at most a chunk. Keys are split for passes of one row and of a few.
fn passes() -> Vec<usize> {
    let mut passes = Vec::new();
    let mut at = 0;
    // Rows that see 127, 128, 129 keys and so on: one at a time, then several of them together, which see each other.
    let several = [
        [1, 1, 1, 1, 1, 4],
        [1, 2, 1, 1, 2, 2],
        [3, 1, 1, 1, 1, 2],
        [1, 1, 0, 7, 0, 0],
        [0, 8, 0, 0, 0, 1],
        [9, 0, 0, 0, 0, 0],
    ];
    let boundaries = [128, 256, WINDOW, 384, 512, 1024, 1280, CONTEXT - 6];
    for (boundary, together) in boundaries.into_iter().zip(several.iter().cycle()) {
        let from = boundary - 3;
        while at < from {
            passes.push(CHUNK.min(from - at));
            at += CHUNK.min(from - at);
        }
        for &rows in together.iter().filter(|&&rows| rows > 0) {
            passes.push(rows);
            at += rows;
        }
    }
    assert_eq!(at, CONTEXT);
    passes
}

/// The logits after each pass.
fn run(executor: &mut dyn Executor, tokens: &[u32], passes: &[usize]) -> Vec<Vec<f32>> {
    let mut session = Session::new(0, CONTEXT);
    let mut rest = tokens;
    passes
        .iter()
        .map(|&rows| {
            let (part, behind) = rest.split_at(rows);
            rest = behind;
            session.prefill(executor, part).unwrap();
            executor.logits(0).unwrap().to_vec()
        })
        .collect()
}

fn tokens() -> Vec<u32> {
    (0..CONTEXT).map(|i| (2 + 37 * i * i) as u32 % 97).collect()
}

fn load(model: &Forged, weights: WeightFormat, device: Device, kv: KvType, sequences: usize) -> Box<dyn Measure> {
    // f32 arithmetic, so that errors can only come from attention.
    let options = Options {
        weights,
        vulkan: common::forced(F32),
        kv,
        sequences,
        head_rows: sequences,
        chunk: Some(CHUNK),
        context: Some(CONTEXT),
        ..Options::default()
    };
    model.load(device, options)
}

/// Sums are taken in another order, and keys may round to the neighbouring f16; bf16 is eight times as coarse. On the CPU
/// inputs are rounded with INT8 weights, so that what attention adds shows best with BF16.
fn runs() -> [(Device, WeightFormat, KvType, f32); 5] {
    let int8 = WeightFormat::Int8;
    [
        (vulkan(), int8, KvType::F32, 2e-5),
        (vulkan(), int8, KvType::F16, 2e-3),
        (vulkan(), int8, KvType::Bf16, 8.0 * 2e-3),
        (Device::Cpu, WeightFormat::Bf16, KvType::F16, 2e-3),
        (Device::Cpu, WeightFormat::Bf16, KvType::Bf16, 8.0 * 2e-3),
    ]
}

#[test]
fn parts_of_a_long_context_make_the_whole() {
    let tokens = tokens();
    // Every number of heads per KV head, and heads narrower and wider than a subgroup's octets.
    let all = [(4, 2, 32), (3, 1, 40), (8, 1, 64), (2, 2, 16), (4, 1, 16)];
    let shapes = if runs_all() { &all[..] } else { &all[..2] };
    for &(heads, kv_heads, dim) in shapes {
        let references = [WeightFormat::Int8, WeightFormat::Bf16].map(|weights| {
            let model = Forged::new(&shape(heads, kv_heads, dim), weights);
            let want = run(load(&model, weights, Device::Reference, KvType::F32, 1).as_mut(), &tokens, &passes());
            (weights, model, want)
        });
        for (device, weights, kv, tolerance) in runs() {
            // Two shapes show what differs: whole loads of eight lanes, and others. Alone a sample of the other has f16.
            let has_types = if runs_all() { [32, 40].contains(&dim) } else { dim == 32 };
            if kv == KvType::Bf16 && !has_types || kv == KvType::F32 && !has_types && !runs_all() {
                continue;
            }
            let (_, model, want) = references.iter().find(|(of, ..)| *of == weights).unwrap();
            let got = run(load(model, weights, device, kv, 1).as_mut(), &tokens, &passes());
            let errors: Vec<f32> = got.iter().zip(want).map(|(g, w)| relative_rms(g, w)).collect();
            let worst = errors.iter().copied().fold(0.0, f32::max);
            println!("{heads}/{kv_heads} heads of {dim}, {device:?} {kv:?}: at most {worst:.1e} of {tolerance:.1e}");
            let mut seen = 0;
            for (rows, error) in passes().into_iter().zip(errors) {
                seen += rows;
                assert!(
                    error < tolerance,
                    "{heads}/{kv_heads} heads of {dim}, {device:?} {kv:?}: {error:.1e} off behind {seen} tokens, {rows} in one pass"
                );
            }
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Heads whose keys take a lane several turns: chunks, passes of one row and of few, at and around the end of the window.
/// A part of a row's keys has a few of them.
#[test]
fn wide_heads_attend_too() {
    let passes = [64, 64, 1, 1, 2, 64, 9, 64, 1, 16, 13, 1, 3, 17, 1, 1];
    let tokens = &tokens()[..passes.iter().sum()];
    let shapes: &[_] = if runs_all() { &[(8, 1, 512), (16, 1, 512), (3, 1, 328)] } else { &[(8, 1, 512)] };
    for &(heads, kv_heads, dim) in shapes {
        let shape = shape(heads, kv_heads, dim).with_window(130);
        for (device, weights, kv, tolerance) in runs() {
            if kv == KvType::Bf16 && heads != 8 {
                continue;
            }
            let model = Forged::new(&shape, weights);
            let want = run(load(&model, weights, Device::Reference, KvType::F32, 1).as_mut(), tokens, &passes);
            let got = run(load(&model, weights, device, kv, 1).as_mut(), tokens, &passes);
            let errors: Vec<f32> = got.iter().zip(&want).map(|(g, w)| relative_rms(g, w)).collect();
            let worst = errors.iter().copied().fold(0.0, f32::max);
            println!("{heads}/{kv_heads} heads of {dim}, {device:?} {kv:?}: at most {worst:.1e} of {tolerance:.1e}");
            assert!(worst < tolerance, "{heads}/{kv_heads} heads of {dim}, {device:?} {kv:?}: {errors:?}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Rows that see only some of the rows before them in their pass, since the window is shorter than the pass.
#[test]
fn a_window_may_be_shorter_than_the_rows_of_a_pass() {
    let tokens = &tokens()[..40];
    let rows = [8, 5, 1, 8, 3, 7, 8];
    let run = |executor: &mut dyn Executor| {
        let mut session = Session::new(0, CONTEXT);
        let mut logits = Vec::new();
        let mut at = 0;
        for rows in rows {
            session.prefill(executor, &tokens[at..at + rows]).unwrap();
            logits.push(executor.logits(0).unwrap().to_vec());
            at += rows;
        }
        logits
    };
    for (device, weights, kv, tolerance) in runs() {
        let model = Forged::new(&shape(4, 2, 32).with_window(3), weights);
        let want = run(load(&model, weights, Device::Reference, KvType::F32, 1).as_mut());
        let got = run(load(&model, weights, device, kv, 1).as_mut());
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let error = relative_rms(g, w);
            assert!(error < tolerance, "{device:?} {kv:?}: pass {i} of {} rows is {error:.1e} off", rows[i]);
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Each row of a batch has as many parts as its own context needs: a short row among long ones.
#[test]
fn rows_of_a_batch_have_parts_of_their_own() {
    let tokens = tokens();
    let lengths = [1400, 129, 3, 700];
    let decode = |executor: &mut dyn Executor| {
        for (i, &n) in lengths.iter().enumerate() {
            Session::new(i as u32, CONTEXT).prefill(executor, &tokens[i..][..n]).unwrap();
        }
        let row = |(i, &n): (usize, &usize)| Row { token: 5, position: n as u32, sequence: i as u32 };
        let rows: Vec<Row> = lengths.iter().enumerate().map(row).collect();
        executor.forward(&rows, Some(HeadRows { first: 0, count: rows.len() })).unwrap();
        (0..rows.len()).map(|i| executor.logits(i).unwrap().to_vec()).collect::<Vec<_>>()
    };
    // What is combined is of f32, whatever the cache is of.
    for (device, weights, kv, tolerance) in runs().into_iter().filter(|(.., kv, _)| runs_all() || *kv != KvType::Bf16) {
        let model = Forged::new(&shape(4, 2, 32), weights);
        let want = decode(load(&model, weights, Device::Reference, KvType::F32, lengths.len()).as_mut());
        let mut executor = load(&model, weights, device, kv, lengths.len());
        let got = decode(executor.as_mut());
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let error = relative_rms(g, w);
            assert!(error < tolerance, "{device:?} {kv:?}: sequence {i} is {error:.1e} off");
        }
        // The workgroup that combines the parts must reset the counters.
        assert!(
            got.iter().zip(decode(executor.as_mut())).all(|(a, b)| max_abs(a, &b) == 0.0),
            "{device:?} {kv:?}: not repeatable"
        );
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// The first row of a sequence attends to itself alone: its output is its own value, as its page has it. The norm
/// divides a value by its root mean square, in the kernel that prepares heads and in the fused one.
#[test]
fn values_are_normed_on_their_way_into_a_page() {
    const HEADS: usize = 4;
    const KV_HEADS: usize = 2;
    const EPS: f32 = 1e-2;
    let gpu = Rc::new(open_gpu());
    let heap = shared_heap(&gpu);
    let mut queue = DeviceQueue::new(Vulkan::new(&gpu).unwrap());
    let subgroup = gpu.caps.subgroup;
    let buffer = |bytes: &[u8]| {
        let mut b = Buffer::new(&gpu, bytes.len() as u64, heap, HostAccess::Host).unwrap();
        b.copy_from(bytes).unwrap();
        b
    };
    let of_floats = |x: &[f32]| buffer(bytemuck::cast_slice(x));
    let read = |b: &Buffer| {
        let mut x = vec![0f32; b.size() as usize / 4];
        b.copy_to(bytemuck::cast_slice_mut(&mut x)).unwrap();
        x
    };
    let mut state = [0u32; 10];
    state[StateLayout::ROWS] = 1;
    let state = buffer(bytemuck::cast_slice(&state));
    // CPU drivers take minutes over the fused kernel for heads of 512.
    let widest_fused = match subgroup {
        32.. => 512,
        _ if runs_all() => 264,
        _ => 136,
    };
    for (dim, is_fused) in [(24, false), (24, true), (512, false), (widest_fused, true)] {
        let mut random = Random(dim as u64);
        // Far from one, and each head's of another size.
        let values: Vec<f32> = (0..KV_HEADS * dim).map(|i| (1 + i / dim) as f32 * 20.0 * random.real()).collect();
        let keys: Vec<f32> = (0..(HEADS + KV_HEADS) * dim).map(|_| random.real()).collect();
        let [q, v, zeros] = [of_floats(&keys), of_floats(&values), of_floats(&vec![0.0; dim])];
        let padded = dim.next_multiple_of(8);
        let root = |x: &[f32]| (rms(x) * rms(x) + EPS).sqrt();
        let want: Vec<f32> = values.chunks_exact(dim).flat_map(|x| x.iter().map(move |e| e / root(x))).collect();
        let page = of_floats(&vec![f32::NAN; 2 * KV_HEADS * PAGE * padded]);
        let (table, scratch) = (buffer(bytemuck::cast_slice(&[page.address()])), buffer(&[0; 4096]));
        let out = of_floats(&vec![f32::NAN; HEADS * dim]);
        let k = q.address() + (HEADS * dim * 4) as u64;
        let stride = word((HEADS + KV_HEADS) * dim);
        let prepare = HeadPreparePush {
            state: state.address(),
            q: q.address(),
            k,
            v: v.address(),
            wq: zeros.address(),
            wk: zeros.address(),
            frequencies_q: zeros.address(),
            frequencies_k: zeros.address(),
            table: table.address(),
            position: 8,
            sequence: 9,
            heads: word(HEADS),
            kv_heads: word(KV_HEADS),
            dim: word(dim),
            stride,
            paging: 0,
            norm_k: 1,
            norm_v: 1,
            eps_q: EPS,
            eps_k: EPS,
            eps_v: EPS,
        };
        let kernel = Kernel::new(Module::HeadPrepareF32, 128, NoConstants {});
        let prepare = Dispatch::new(kernel, Push::new(&prepare), [word(HEADS + 2 * KV_HEADS), 1, 1]);
        let attend = AttendPush {
            state: state.address(),
            q: q.address(),
            k,
            v: v.address(),
            wq: zeros.address(),
            wk: zeros.address(),
            frequencies: zeros.address(),
            table: table.address(),
            y_out: out.address(),
            scratch: scratch.address(),
            position: 8,
            sequence: 9,
            heads: word(HEADS),
            kv_heads: word(KV_HEADS),
            stride,
            out_stride: word(HEADS * dim),
            paging: 0,
            window: 0,
            scale: 1.0,
            eps: EPS,
        };
        let (group, fused) = (2, u32::from(is_fused));
        let constants =
            AttendConstants { dim: word(dim), group, fused, form: 0, subgroup, behind: 0, norm_v: 1, ahead: 0 };
        let kernel = Kernel::new(Module::AttendF32, 4 * subgroup, constants);
        let attend = Dispatch::new(kernel, Push::new(&attend), [word(HEADS) / group, 1, 1]);
        let dispatches = if is_fused { vec![attend] } else { vec![prepare, attend] };
        for dispatch in dispatches {
            let list = queue.bake(&[&[dispatch]], None, None, None).unwrap();
            // SAFETY: the buffers live until the wait.
            unsafe { queue.run(list) }.unwrap();
        }
        let name = format!("heads of {dim}, fused {is_fused}");
        let page = read(&page);
        let in_page = |head: usize| &page[(KV_HEADS + head) * PAGE * padded..][..dim];
        let out = read(&out);
        for head in 0..HEADS {
            let kv_head = head / (HEADS / KV_HEADS);
            let want = &want[kv_head * dim..][..dim];
            let errors = [in_page(kv_head), &out[head * dim..][..dim]].map(|got| relative_rms(got, want));
            assert!(errors.iter().all(|&e| e < 1e-6), "{name}: head {head} is off by {errors:?}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}
