//! The schedule is what runs: its counts are right, its dispatches cover all steps, and a changed operand changes the
//! output of every executor alike.

use crate::common::{self, DOT, F32};
use crate::common::{golden, max_abs, nvidia_units, relative_rms};
use kiln::executor::weights::Progress;
use kiln::executor::{DraftRow, Executor, Row, Submission};
use kiln::model::checkpoint::Checkpoint;
use kiln::model::{BlockFormat, Rope, Shape, TensorId, WeightFormat, presets};
use kiln::schedule::kv::PAGE;
use kiln::schedule::layout::{Placement, StateLayout};
use kiln::schedule::step::Slot;
use kiln::schedule::{Extent, KvLayout, KvType, Op, PassShape, Pool, Schedule, Segment, Step};
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::{ActivationLayout, Arithmetic, Operand};
use kiln::testing::lower::attend_tile::{self, AttendTile};
use kiln::testing::lower::dispatch::{Addresses, Dispatch, Edge};
use kiln::testing::lower::fragment::{FragmentTile, InputPath};
use kiln::testing::lower::kernels::Module;
use kiln::testing::lower::kernels::constants::{AttendConstants, LinearFragmentTallConstants, Specialization};
use kiln::testing::lower::layout::{COUNTER_BYTES, GpuLayout, PRODUCT_SCRATCH, RELAY_STRIDE};
use kiln::testing::lower::matrix::{self, MatrixShape, MatrixTile, MatrixVariant};
use kiln::testing::lower::target::Target;
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::lower::{Lowering, PassKind, RowOrder, TokenSource};
use kiln::testing::plan::{Needs, Plan};
use kiln::testing::reference::Reference;
use kiln::testing::replay::Replay;
use kiln::testing::vulkan::Vulkan;
use std::rc::Rc;

fn extent(rows: usize) -> Extent {
    Extent { context: 256, max_rows: rows, head_rows: 1, sequences: 1, kv: KvType::F32, kv_tokens: None }
}

fn int8(_: TensorId) -> WeightFormat {
    WeightFormat::Int8
}

fn gemma_27b() -> Shape {
    presets::preset("gemma3-27b").unwrap()
}

#[test]
fn a_27b_token_reads_27_gigabytes() {
    let schedule = Schedule::build(&gemma_27b(), extent(1), int8);
    let cost = schedule.cost(PassShape::Decode { sequences: 1, depth: 0 });

    // By hand: INT8 elements of the matrices, their f32 row scales, f32 norms.
    let qkv = (32 + 16 + 16) * 128;
    let matrices: u64 = [(qkv, 5376), (5376, 4096), (2 * 21504, 5376), (5376, 21504)].iter().map(|(r, c)| r * c).sum();
    let scales = 4 * (qkv + 5376 + 2 * 21504 + 5376);
    // Four norms of the hidden size, the two over heads, and RoPE's 64 frequencies read for Q and for K.
    let vectors = 4 * (4 * 5376 + 2 * 128 + 2 * 64);
    let head = 262_208 * 5376 + 4 * 262_208 + 4 * 5376;
    let embedding_row = 5376 + 4;
    let weights = 62 * (matrices + scales + vectors) + head + embedding_row;
    assert_eq!(cost.weight_bytes, weights);
    assert_eq!(62 * matrices + 262_208 * 5376, 27_007_991_808, "the elements alone");
    // One key and one value per head, written and read again.
    assert_eq!(cost.kv_bytes, 62 * 2 * (4 * 2 * 16 * 128));
    assert_eq!(cost.memory_bytes(), cost.weight_bytes + cost.kv_bytes);
    assert_eq!(format!("{:.1} GB", cost.memory_bytes() as f64 / 1e9), "27.0 GB");
    assert_eq!(cost.operations, 2 * 27_007_991_808 + 62 * 4 * 32 * 128, "each element twice, and one key a head");

    // At depth 4095, 52 local layers see 1024 keys and 10 global ones 4096, each 2 x 16 x 128 values.
    let deep = schedule.cost(PassShape::Decode { sequences: 1, depth: 4095 });
    let kv_element = 4 * 2 * 16 * 128;
    assert_eq!(deep.kv_bytes, kv_element * (52 * (1024 + 1) + 10 * (4096 + 1)), "keys read, and one written");
    // A batch reads the weights once.
    let batch = schedule.cost(PassShape::Decode { sequences: 32, depth: 0 });
    assert_eq!(batch.weight_bytes, weights + 31 * embedding_row);
}

/// A mixed pass reads the weights once, and of keys and values what both parts read.
#[test]
fn a_mixed_pass_costs_what_its_parts_cost_but_the_weights() {
    let schedule = Schedule::build(&gemma_27b(), Extent { context: 8192, ..extent(512) }, int8);
    let chunk = schedule.cost(PassShape::Prefill { rows: 480, depth: 900 });
    let beside = schedule.cost(PassShape::Decode { sequences: 31, depth: 2000 });
    let mixed = |ends| schedule.cost(PassShape::Mixed { chunk: 480, depth: 900, ends, sequences: 31, beside: 2000 });
    let (whole, part) = (mixed(true), mixed(false));
    assert_eq!(whole.kv_bytes, chunk.kv_bytes + beside.kv_bytes);
    assert_eq!(whole.operations, chunk.operations + beside.operations);
    assert_eq!(whole.activation_bytes, chunk.activation_bytes + beside.activation_bytes);
    assert_eq!(whole.weight_bytes, chunk.weight_bytes + 31 * (5376 + 4), "and the other rows' embeddings");
    // Without a head row of the chunk.
    assert_eq!(whole.operations - part.operations, 2 * 262_208 * 5376);
    assert_eq!((part.kv_bytes, part.weight_bytes), (whole.kv_bytes, whole.weight_bytes));
}

#[test]
fn a_sequence_holds_its_context_and_of_local_layers_the_window_and_the_chunk() {
    let most = |kv: &KvLayout| Pool::ALL.map(|pool| kv.pool(pool).most);
    let schedule = Schedule::build(&gemma_27b(), Extent { context: 4096, ..extent(512) }, int8);
    assert_eq!(most(&schedule.kv), [4096 / PAGE, (1024 + 512) / PAGE + 1]);
    let short = Schedule::build(&gemma_27b(), Extent { context: 100, ..extent(64) }, int8);
    assert_eq!(most(&short.kv), [2, 2]);
    // K and V of 16 heads of 128 in f32, for 10 and 52 layers.
    let token = 4 * 2 * 16 * 128;
    assert_eq!(
        Pool::ALL.map(|pool| schedule.kv.pool(pool).page_bytes),
        [10, 52].map(|layers| layers * token * PAGE as u64)
    );
    // As many tokens as are asked for, and never more than the sequences can have, but for what fills the last block.
    let of = |kv_tokens| {
        let extent = Extent { context: 4096, sequences: 8, kv_tokens, ..extent(512) };
        Pool::ALL.map(|pool| KvLayout::new(&gemma_27b(), &extent).pool(pool).pages)
    };
    assert_eq!((of(None), of(Some(usize::MAX))), ([512, 200], [512, 200]));
    assert_eq!((of(Some(8192)), of(Some(9999))), ([128, 128], [158, 160]), "157 pages are asked for");
}

#[test]
fn dispatches_cover_every_step_once_and_wait_for_what_they_read() {
    check_dispatches(&Schedule::build(&gemma_27b(), extent(64), int8), 7);
    let [model, drafter] = ["gemma4-31b", "gemma4-31b-drafter"].map(|name| presets::preset(name).unwrap());
    let schedule = Schedule::build_with(&model, extent(64), int8, Some((&drafter, &int8)));
    let steps = schedule.steps_of(Segment::Draft);
    assert!(steps.len() > 40 && steps.end == schedule.steps.len(), "{steps:?}");
    check_dispatches(&schedule, 8);
}

/// Checks the dispatches of every segment; a layer has `most` at most.
fn check_dispatches(schedule: &Schedule, most: usize) {
    let addresses =
        Addresses::new(1 << 40, (0..schedule.weights.buffers.len() as u64).map(|i| (i + 2) << 40).collect());
    let layout = GpuLayout::new(schedule);
    let bytes = |step: &Step| match step.op {
        Op::Linear { weight, .. } => weight.bytes(weight.rows),
        _ => 0,
    };
    let matrices: u64 = schedule.steps.iter().map(bytes).sum();
    for (subgroup, dot) in [(8, false), (8, true), (32, true), (64, true)] {
        let target = Target::new(subgroup, dot, None);
        for rows in [1, 3, 8, 64] {
            let kind = PassKind { rows, head_rows: 1, order: RowOrder::Consecutive, tokens: TokenSource::Host };
            let (mut covered, mut read) = (0, 0);
            for segment in schedule.segments().chain([Segment::Choice, Segment::Draft]) {
                let range = schedule.steps_of(segment);
                let dispatches = Lowering { schedule, layout: &layout, addresses: &addresses, target: &target, kind }
                    .segment(segment);
                let mut settled = range.start;
                for d in &dispatches {
                    assert_eq!(d.steps.start, covered, "steps in order, none left out");
                    covered = d.steps.end;
                    if d.edge == Edge::Kernels {
                        settled = d.steps.start;
                    }
                    for step in &schedule.steps[d.steps.clone()] {
                        let pending = step.after.iter().filter(|&&a| a >= settled && a < d.steps.start);
                        assert_eq!(pending.count(), 0, "{segment} {} does not wait", step.label);
                        // Work of another segment is ordered by the barrier at the segment's start.
                        assert!(step.after.iter().all(|&a| a < d.steps.end));
                    }
                    assert_limits(d);
                    read += d.weights.end - d.weights.start;
                    let buffer = (d.weights.start >> 40) as usize;
                    let bytes = |buffer: usize| schedule.weights.buffers[buffer - 2].bytes;
                    assert!(d.weights.is_empty() || d.weights.end - ((buffer as u64) << 40) <= bytes(buffer));
                }
                if matches!(segment, Segment::Layer(_)) && rows == 1 {
                    let kernels: Vec<_> = dispatches.iter().map(|d| d.kernel.module.name()).collect();
                    assert!(dispatches.len() <= most, "fusions hold: {kernels:?}");
                }
            }
            assert_eq!(covered, schedule.steps.len());
            assert_eq!(read, matrices, "products ask for the weights of all others");
        }
    }
}

/// Scales of one f16 a group come in batches where rows have whole ones and a load of weights is two steps. Then small workgroups
/// hold one step of inputs.
#[test]
fn scales_of_groups_come_in_batches() {
    let tall = |units: MatrixUnits, format, inputs: usize| -> Vec<LinearFragmentTallConstants> {
        let tiles = matrix::tiles(units, format, Operand::F16, [512, 8192, inputs]);
        let kernels = tiles.iter().filter_map(|tile| tile.kernel(units, format, inputs, MatrixVariant::Plain));
        let modules = [Module::LinearFragmentTallGrouped, Module::LinearFragmentTallInt8];
        let tall = kernels.filter(|kernel| modules.contains(&kernel.module));
        tall.map(|kernel| LinearFragmentTallConstants::of(&kernel.constants)).collect()
    };
    let [int4, int8] = [WeightFormat::Int4, WeightFormat::Int8];
    let [q5_0, q4_k] = [BlockFormat::Q5_0, BlockFormat::Q4K].map(WeightFormat::Blocks);
    for (format, inputs, row_lanes, in_batches) in [
        (int4, 5376, 4, 1),
        (int4, 5376, 8, 1),
        (int4, 5376, 2, 0),
        (int4, 1152, 4, 0),
        (int8, 5376, 4, 0),
        (q5_0, 5376, 4, 1),
        (q4_k, 5376, 4, 0),
    ] {
        let tall = tall(MatrixUnits { row_lanes: Some(row_lanes), ..nvidia_units() }, format, inputs);
        let small = |t: &&LinearFragmentTallConstants| t.subs_n * t.parts <= 4;
        assert!(tall.iter().any(|t| small(&t)) && (row_lanes != 4 || tall.iter().any(|t| t.stages == 2)), "{tall:?}");
        for t in &tall {
            assert_eq!(t.in_batches, in_batches, "{format:?}, {inputs} inputs, {row_lanes} lanes a row: {t:?}");
            assert!(t.stages == 1 || format == int8 || !small(&t), "{t:?}");
        }
    }
}

/// The kernel finds a row's largest scale by halving, so outputs of a workgroup that makes the gated GELU are a power of two.
#[test]
fn gated_tiles_have_a_power_of_two_of_outputs() {
    let gates = |outputs, subgroups| {
        let inputs = InputPath::Direct { parts: 2, span: 1 };
        let tile = FragmentTile { rows: 16, outputs, subgroups, depth: 1, inputs };
        let shape = MatrixShape::Fragment(tile);
        MatrixTile { operand: Operand::F16, shape, splits: 1 }.has(nvidia_units(), MatrixVariant::Gated)
    };
    assert_eq!([gates(32, 1), gates(64, 2), gates(16, 4)], [true; 3]);
    assert_eq!([gates(48, 2), gates(48, 1), gates(16, 1)], [false; 3]);
}

/// In a mixed pass, each part takes the kernel that suits it, side by side; the others are those of consecutive rows.
/// Where matrix units cannot attend, all rows attend one by one.
#[test]
fn a_chunk_and_the_rows_behind_it_attend_side_by_side() {
    let addresses = Addresses::new(0, vec![0; 64]);
    for (kv, units, rows, sequences) in [
        (KvType::F16, Some(nvidia_units()), 32, 64),
        (KvType::F16, Some(nvidia_units()), 512, 20),
        (KvType::F32, Some(nvidia_units()), 512, 20),
        (KvType::F16, None, 64, 20),
    ] {
        let extent = Extent { sequences, head_rows: sequences, kv, ..extent(512) };
        let schedule = Schedule::build(&gemma_27b(), extent, int8);
        let (layout, target) = (GpuLayout::new(&schedule), Target::new(32, true, units));
        let layer = |order| {
            let kind = PassKind { rows, head_rows: sequences, order, tokens: TokenSource::Host };
            Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target: &target, kind }
                .segment(Segment::Layer(5))
        };
        let (mut mixed, consecutive) = (layer(RowOrder::Mixed), layer(RowOrder::Consecutive));
        let attends = |d: &Dispatch| d.kernel.module == Module::AttendF16 || d.kernel.module == Module::AttendF32;
        let at = mixed.iter().position(attends).unwrap();
        let behind = AttendConstants::of(&mixed[at].kernel.constants).behind;
        if kv == KvType::F16 && units.is_some() {
            let beside = mixed.remove(at);
            assert_eq!((behind, beside.edge, beside.steps.len()), (1, Edge::None, 0));
            assert_eq!(beside.groups[1] as usize, (rows - 1).min(sequences - 1), "a row of each other sequence");
            assert_eq!(mixed[at - 1].kernel.module, Module::AttendMatrixF16);
            assert!(mixed[at].edge == Edge::Kernels, "what reads both waits for both");
        } else {
            assert_eq!((behind, mixed[at].groups[1] as usize), (0, rows));
        }
        assert_eq!(mixed, consecutive, "{kv:?}, {rows} rows");
    }
}

/// A drafter's step has a dispatch for its embedding, its two inputs in one, seven for each layer, its ends and its choice:
/// attention prepares its queries. The steps of a draft leave their tokens side by side.
#[test]
fn a_drafters_step_has_few_dispatches() {
    let [model, drafter] = ["gemma4-12b", "gemma4-12b-drafter"].map(|name| presets::preset(name).unwrap());
    let extent = Extent { head_rows: 8, kv: KvType::F16, ..extent(64) };
    let schedule = Schedule::build_with(&model, extent, int8, Some((&drafter, &int8)));
    let (layout, addresses) = (GpuLayout::new(&schedule), Addresses::new(0, vec![0; 64]));
    let target = Target::new(32, true, None);
    let of = |tokens| {
        let kind = PassKind { rows: 1, head_rows: 1, order: RowOrder::Consecutive, tokens };
        let lowering = Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target: &target, kind };
        let steps = schedule.steps_of(Segment::Draft);
        lowering.lower(steps.start + 1..steps.end)
    };
    let step = of(TokenSource::Drafted(0));
    let modules: Vec<Module> = step.iter().map(|d| d.kernel.module).collect();
    let layer = [
        Module::LinearDotInt8,
        Module::AttendF16,
        Module::LinearDotInt8,
        Module::NormAddNorm,
        Module::LinearDotGeluInt8,
        Module::LinearDotInt8,
        Module::NormAddNorm,
    ];
    let first = [Module::EmbedInt8, Module::Pack, Module::LinearDotInt8, Module::RmsNorm];
    let last = [Module::LinearDotInt8, Module::LinearDotInt8, Module::Argmax];
    assert_eq!(modules, [&first[..], &layer.repeat(drafter.layers.len()), &last].concat());
    let ahead = |d: &&Dispatch| d.kernel.module == Module::AttendF16;
    assert!(step.iter().filter(ahead).all(|d| AttendConstants::of(&d.kernel.constants).ahead == 1));
    // Each step has its own place for its choice, and begins with that of the one before.
    let places = |step: &[Dispatch]| [step[0].push, step[step.len() - 1].push];
    let ([embed, argmax], [embed_next, argmax_next]) = (places(&step), places(&of(TokenSource::Drafted(1))));
    assert!(embed != embed_next && argmax != argmax_next);
}

/// Keys are divided where few rows leave processors idle, and their parts have room in the scratch; the tile that is taken
/// untuned divides none.
#[test]
fn few_rows_share_keys_among_workgroups() {
    let shape = gemma_27b();
    let of =
        |rows| attend_tile::tiles(nvidia_units(), rows, shape.local.heads, shape.local.kv_heads, shape.local.head_dim);
    let splits = |rows| of(rows).iter().map(|t| ([t.keys, t.subgroups], t.splits)).collect::<Vec<_>>();
    let whole = [([32, 8], 1), ([32, 4], 1), ([48, 4], 1), ([16, 8], 1), ([16, 4], 1)];
    let divided = |splits: [u32; 4]| [0, 1, 3, 4].into_iter().zip(splits).map(|(i, n)| (whole[i].0, n)).collect();
    let both = |n| [whole.to_vec(), divided(n)].concat();
    assert_eq!((splits(16), splits(128)), (both([8, 8, 8, 8]), both([4, 2, 4, 2])));
    assert_eq!(splits(512), whole);
    for tile in [1, 16, 17, 64, 100, 128].into_iter().flat_map(|rows| of(rows).into_iter().map(move |t| (rows, t))) {
        let (rows, tile): (usize, AttendTile) = tile;
        let bytes = tile.scratch_bytes(nvidia_units(), rows, shape.local.heads);
        assert!(bytes.iter().zip(PRODUCT_SCRATCH).all(|(&bytes, most)| bytes <= most), "{rows} rows, {tile:?}");
    }
}

fn assert_limits(d: &Dispatch) {
    assert!(d.groups.iter().all(|&g| g > 0 && g <= 65_535), "no device need take more workgroups: {d:?}");
}

/// A reader of a packed input waits for the dispatch that packs it, though that dispatch runs no step.
#[test]
fn a_packed_input_is_waited_for() {
    let shape = gemma_27b().with_heads(32, 16, 34);
    let schedule = Schedule::build(&shape, extent(64), int8);
    let addresses = Addresses::new(0, vec![0; 64]);
    let (layout, target) = (GpuLayout::new(&schedule), Target::new(32, true, None));
    for rows in [1, 3, 8] {
        let kind = PassKind { rows, head_rows: 1, order: RowOrder::Consecutive, tokens: TokenSource::Host };
        let dispatches =
            Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target: &target, kind }
                .segment(Segment::Layer(3));
        let pack =
            dispatches.iter().position(|d| d.kernel.module == Module::Pack).expect("attention's output is packed");
        assert!([pack, pack + 1].iter().all(|&i| dispatches[i].edge == Edge::Kernels), "{:?}", dispatches[pack + 1]);
        assert_eq!(schedule.steps[dispatches[pack + 1].steps.start].label, "attention_out");
    }
}

/// Many rows of logits, or a vocabulary larger than the grid: kernels stride over the rest.
#[test]
fn large_heads_stay_within_the_dispatch_limit() {
    for vocab in [3, 262_208, 1 << 24] {
        let shape = Shape { vocab, ..gemma_27b() };
        let schedule = Schedule::build(&shape, extent(16), int8);
        let addresses = Addresses::new(0, vec![0; 64]);
        let layout = GpuLayout::new(&schedule);
        for head_rows in [1, 2, 3, 5, 8, 16] {
            for subgroup in [4, 8, 32, 64] {
                for dot in [false, true] {
                    let kind = PassKind { rows: 1, head_rows, order: RowOrder::Consecutive, tokens: TokenSource::Host };
                    let target = Target::new(subgroup, dot, None);
                    Lowering { schedule: &schedule, layout: &layout, addresses: &addresses, target: &target, kind }
                        .lower(schedule.steps_of(Segment::Head).start..schedule.steps.len())
                        .iter()
                        .for_each(assert_limits);
                }
            }
        }
    }
}

/// The logits after a prompt, by the reference or by Vulkan with an arithmetic.
fn outputs(schedule: &Schedule, vulkan: Option<Option<Arithmetic>>) -> Vec<f32> {
    common::listen();
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| 2 + 11 * i % 500).collect();
    let progress = Progress::default();
    let mut executor: Box<dyn Executor> = if let Some(arithmetic) = vulkan {
        let options = common::forced(arithmetic);
        let gpu = Rc::new(common::open_gpu());
        let plan = Plan::place(
            schedule,
            &kiln::testing::vulkan::memory::heaps::describe(&gpu),
            Needs::on_device(schedule, true),
        )
        .unwrap();
        Box::new(
            Replay::load(None, Vulkan::new(&gpu).unwrap(), &checkpoint, schedule.clone(), &plan, options, &progress)
                .unwrap(),
        )
    } else {
        Box::new(Reference::load(&checkpoint, schedule.clone(), &progress).unwrap())
    };
    let mut session = Session::new(0, 256);
    session.prefill(executor.as_mut(), &tokens).unwrap();
    executor.logits(0).unwrap().to_vec()
}

/// Name of an alteration, and the function that makes it. Returns whether the schedule had such a step.
type Alteration = (&'static str, fn(&mut Schedule) -> bool);

/// Changes ops that match a pattern. Returns whether the op matched.
macro_rules! change {
    ($op:pat $(if $guard:expr)? => $change:expr) => {
        |op: &mut Op| match op {
            $op $(if $guard)? => {
                $change;
                true
            }
            _ => false,
        }
    };
}

/// Alters operands one at a time, including those inside fusions. Both executors must change to the same result.
#[test]
fn an_altered_operand_changes_both_executors_alike() {
    let shape = Checkpoint::open(&golden("tiny")).unwrap().shape().clone();
    // With chunks of 32 rows, the first chunk uses the arithmetic for many rows; the second, of 8 rows, that for few.
    let original = Schedule::build(&shape, extent(32), int8);
    let base = outputs(&original, None);
    // The second one computes with 16-bit activations.
    let paths = [(F32, 5e-4), (DOT, 5e-3)];
    for (arithmetic, tolerance) in paths {
        assert!(max_abs(&outputs(&original, Some(arithmetic)), &base) < tolerance);
    }

    let alterations: &[Alteration] = &[
        ("embed scale", |s| alter(s, 0, change!(Op::Embed { scale, .. } => *scale *= 1.5))),
        ("q norm weight", |s| {
            let other = s.weights.layers[3].k_norm.unwrap();
            alter(s, 2, change!(Op::HeadNormRope { weight, .. } => *weight = other))
        }),
        ("q frequencies", |s| {
            let other = s.weights.global.rope;
            alter(s, 1, change!(Op::HeadNormRope { inv_freq, heads: 4, .. } => *inv_freq = other))
        }),
        ("k written from another place than it is rotated", |s| {
            let q = s.steps.iter().find_map(|s| match s.op {
                Op::HeadNormRope { x, heads: 4, .. } => Some(x.columns(0, 64)),
                _ => None,
            });
            alter(s, 1, change!(Op::KvWrite { k, .. } => *k = q.unwrap()))
        }),
        ("attention scale", |s| alter(s, 4, change!(Op::Attend { scale, .. } => *scale *= 2.0))),
        ("window", |s| alter(s, 2, change!(Op::Attend { window, .. } => *window = Some(5)))),
        ("linear weight", |s| {
            let other = s.weights.layers[2].down;
            alter(s, 1, change!(Op::Linear { weight, .. } if weight.cols == 512 => *weight = other))
        }),
        ("gate and up swapped", |s| alter(s, 0, change!(Op::GatedGelu { gate, up, .. } => std::mem::swap(gate, up)))),
        ("residual norm's eps", |s| alter(s, 5, change!(Op::NormAdd { eps, .. } => *eps = 0.5))),
        ("pre-norm weight", |s| {
            let other = s.weights.layers[0].input_norm;
            alter(s, 3, change!(Op::RmsNorm { weight, .. } => *weight = other))
        }),
    ];
    for (i, (what, alteration)) in alterations.iter().enumerate() {
        let mut altered = original.clone();
        assert!(alteration(&mut altered), "{what}: no such step");
        let reference = outputs(&altered, None);
        let moved = max_abs(&reference, &base);
        assert!(moved > 1e-2, "{what}: the reference did not follow");
        let paths = if common::runs_all() { &paths[..] } else { &paths[i % 2..][..1] };
        for &(arithmetic, tolerance) in paths {
            let apart = max_abs(&outputs(&altered, Some(arithmetic)), &reference);
            println!("{what}, {arithmetic:?}: moved {moved:.3}, apart {apart:.1e}");
            assert!(apart < tolerance, "{what}, {arithmetic:?}: the executors are {apart} apart");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// A fault in a step or in RoPE's constants of Gemma 4's pass. Each moves the golden case's logits beyond the bound.
#[test]
fn each_fault_of_gemma4s_pass_moves_the_golden_logits() {
    let case = common::Case::open("tiny4");
    let checkpoint = Checkpoint::open(&golden("tiny4")).unwrap();
    let tokens = common::ids(&case.prompt("len33")["ids"]);
    let error = |schedule: &Schedule| {
        let mut executor = Reference::load(&checkpoint, schedule.clone(), &Progress::default()).unwrap();
        Session::new(0, 256).prefill(&mut executor, &tokens).unwrap();
        max_abs(executor.logits(0).unwrap(), case.tensor("len33.logits"))
    };
    let original = Schedule::build(checkpoint.shape(), extent(64), |_| WeightFormat::Bf16);
    let bound = GEMMA4_BOUND;
    let sound = error(&original);
    println!("sound: {sound:.1e}");
    assert!(sound <= bound, "{sound}");

    // The step is there and changes nothing.
    let nothing = |x: Slot| Op::SoftCap { x, cap: 1e5 };
    let faults: &[Fault] = &[
        ("eps of 1e-5", &|s| all(s, change!(Op::RmsNorm { eps, .. } => *eps = 1e-5))),
        ("values not normed", &|s| {
            let plain = s.weights.local.plain.unwrap()[0];
            let global = s.weights.global.plain.unwrap()[0];
            every(s, |op| match *op {
                Op::HeadNormRope { x, weight, .. } if [plain, global].contains(&weight) => Some(nothing(x)),
                _ => None,
            })
        }),
        ("values not normed in global layers", &|s| {
            let plain = s.weights.global.plain.unwrap()[0];
            every(s, |op| match *op {
                Op::HeadNormRope { x, weight, .. } if weight == plain => Some(nothing(x)),
                _ => None,
            })
        }),
        ("values with the keys' weights", &|s| {
            let (plain, keys) = (s.weights.local.plain.unwrap()[0], s.weights.layers[0].k_norm.unwrap());
            all(s, change!(Op::HeadNormRope { weight, .. } if *weight == plain => *weight = keys))
        }),
        ("values from turned keys", &|s| all(s, change!(Op::KvWrite { k, v, kv } if kv.kv_heads == 1 => *v = *k))),
        ("all pairs turn in global layers", &|s| rope(s, 1, &|rope| rope.rotated = 1.0)),
        ("half of the pairs turn in global layers", &|s| rope(s, 1, &|rope| rope.rotated = 0.5)),
        ("a quarter of the pairs turns in local layers", &|s| rope(s, 0, &|rope| rope.rotated = 0.25)),
        ("global layers with the local base", &|s| rope(s, 1, &|rope| rope.theta = 1e4)),
        ("no cap", &|s| {
            every(s, |op| match *op {
                Op::SoftCap { x, .. } => Some(nothing(x)),
                _ => None,
            })
        }),
        ("a cap of 50", &|s| all(s, change!(Op::SoftCap { cap, .. } => *cap = 50.0))),
        ("scores scaled", &|s| {
            all(s, change!(Op::Attend { scale, kv, .. } => *scale = (kv.head_dim as f32).powf(-0.5)))
        }),
        ("no scalar", &|s| all(s, change!(Op::NormAdd { scalar, .. } => *scalar = None))),
        ("another layer's scalar", &|s| {
            let other = s.weights.layers[0].scalar;
            all(s, change!(Op::NormAdd { scalar: scalar @ Some(_), .. } => *scalar = other))
        }),
        ("a window more", &|s| all(s, change!(Op::Attend { window: Some(window), .. } => *window += 1))),
        ("a window less", &|s| all(s, change!(Op::Attend { window: Some(window), .. } => *window -= 1))),
        ("a window in every layer", &|s| all(s, change!(Op::Attend { window, .. } => *window = Some(16)))),
        ("no window", &|s| all(s, change!(Op::Attend { window, .. } => *window = None))),
        ("queries with the keys' weights", &|s| {
            let (queries, keys) = (s.weights.layers[3].q_norm, s.weights.layers[3].k_norm.unwrap());
            all(s, change!(Op::HeadNormRope { weight, .. } if *weight == queries => *weight = keys))
        }),
    ];
    for (what, fault) in faults {
        let mut faulty = original.clone();
        assert!(fault(&mut faulty), "{what}: no such step");
        let error = error(&faulty);
        println!("{what}: {error:.1e}");
        assert!(error > bound, "{what}: {error} is within {bound}");
    }
}

/// The largest error of a logit that the golden case allows in f32.
const GEMMA4_BOUND: f32 = 5e-4;

/// Name of a fault, and the function that makes it. Returns whether the schedule had such a step.
type Fault<'a> = (&'static str, &'a dyn Fn(&mut Schedule) -> bool);

/// Puts another op in the place of each for which `other` has one.
fn every(schedule: &mut Schedule, other: impl Fn(&Op) -> Option<Op>) -> bool {
    let mut any = false;
    for step in &mut schedule.steps {
        if let Some(op) = other(&step.op) {
            (step.op, any) = (op, true);
        }
    }
    any
}

/// A fault in a step of a drafter. Each moves the golden drafter's third token's logits beyond the bound.
#[test]
fn each_fault_of_a_draft_moves_its_golden_logits() {
    const STEPS: usize = 3;
    let case = common::Case::open("drafter4");
    let drafter = Checkpoint::open(&golden("drafter4")).unwrap();
    let checkpoint = Checkpoint::open(&golden("tiny4")).unwrap().with_drafter(drafter).unwrap();
    let of_drafter = checkpoint.drafter().unwrap().shape().clone();
    let prompt = case.prompt("len33");
    let (tokens, token) = (common::ids(&prompt["ids"]), prompt["f32"]["token"].as_u64().unwrap() as u32);
    let all_logits = case.tensor("len33.logits");
    let want = &all_logits[(STEPS - 1) * of_drafter.vocab..][..of_drafter.vocab];
    let error = |schedule: &Schedule| {
        let mut executor = Reference::load(&checkpoint, schedule.clone(), &Progress::default()).unwrap();
        Session::new(0, 256).prefill(&mut executor, &tokens).unwrap();
        let row = Row { token, position: tokens.len() as u32, sequence: 0 };
        let rows = &[DraftRow { row, head: 0 }];
        assert!(executor.submit(Submission::Draft { rows, count: STEPS }).unwrap());
        executor.wait().unwrap();
        relative_rms(executor.logits(0).unwrap(), want)
    };
    let bf16 = |_| WeightFormat::Bf16;
    let original = Schedule::build_with(checkpoint.shape(), extent(64), bf16, Some((&of_drafter, &bf16)));
    let bound = 1e-4;
    let sound = error(&original);
    assert!(sound <= bound, "{sound}");

    let drafted = |s: &mut Schedule, change: &dyn Fn(&mut Op) -> bool| {
        let steps = s.steps_of(Segment::Draft);
        s.steps[steps].iter_mut().filter_map(|step| change(&mut step.op).then_some(())).count() > 0
    };
    let state = original.drafter.as_ref().unwrap().state;
    let embedded = Slot { offset: state.offset - 4 * state.width as u64, ..state };
    let faults: &[Fault] = &[
        ("the input's halves swapped", &|s| {
            drafted(s, &|op| match op {
                Op::Embed { out, .. } => {
                    *out = state;
                    true
                }
                Op::RmsNorm { out, .. } | Op::Linear { out, .. } if *out == state => {
                    *out = embedded;
                    true
                }
                _ => false,
            })
        }),
        ("an embedding without its scale", &|s| drafted(s, &change!(Op::Embed { scale, .. } => *scale = 1.0))),
        ("the state behind another norm", &|s| {
            let other = s.weights.layers[0].input_norm;
            drafted(s, &change!(Op::RmsNorm { weight, out, .. } if *out == state => *weight = other))
        }),
        ("queries at the last key's position", &|s| drafted(s, &change!(Op::HeadNormRope { ahead, .. } => *ahead = 0))),
        ("a key more", &|s| drafted(s, &change!(Op::Attend { window: Some(window), .. } => *window += 1))),
        ("a key less", &|s| drafted(s, &change!(Op::Attend { window: Some(window), .. } => *window -= 1))),
        ("the first local layer's keys", &|s| {
            let first = s.kv_layers[0];
            drafted(s, &change!(Op::Attend { kv, window: Some(_), .. } => *kv = first))
        }),
        ("no scalar", &|s| drafted(s, &change!(Op::NormAdd { scalar, .. } => *scalar = None))),
        ("a state that is not fed back", &|s| {
            let aside = s.normed;
            drafted(s, &change!(Op::Linear { out, .. } if *out == state => *out = aside))
        }),
    ];
    for (what, fault) in faults {
        let mut faulty = original.clone();
        assert!(fault(&mut faulty), "{what}: no such step");
        let error = error(&faulty);
        println!("{what}: {error:.1e}");
        assert!(error > 100.0 * bound, "{what}: {error} is not far from {bound}");
    }
}

/// Alters every op that `change` accepts.
fn all(schedule: &mut Schedule, change: impl Fn(&mut Op) -> bool) -> bool {
    schedule.steps.iter_mut().filter_map(|step| change(&mut step.op).then_some(())).count() > 0
}

/// Alters RoPE's constants of local (0) or global (1) layers.
fn rope(schedule: &mut Schedule, kind: usize, change: &dyn Fn(&mut Rope)) -> bool {
    let vector = [schedule.weights.local.rope, schedule.weights.global.rope][kind];
    schedule.weights.buffers.iter_mut().flat_map(|buffer| &mut buffer.tensors).fold(false, |any, placement| {
        match placement {
            Placement::Frequencies(rope, v) if *v == vector => {
                change(rope);
                true
            }
            _ => any,
        }
    })
}

/// Alters the `n`-th op (from 0) that `change` accepts.
fn alter(schedule: &mut Schedule, mut n: usize, change: impl Fn(&mut Op) -> bool) -> bool {
    for step in &mut schedule.steps {
        let mut op = step.op.clone();
        if change(&mut op) {
            if n == 0 {
                step.op = op;
                return true;
            }
            n -= 1;
        }
    }
    false
}

/// Numbers that both shaders and Rust define for push constants are equal.
#[test]
fn shaders_and_layout_agree() {
    let define = |name: &str, value: u64| format!("#define {name} {value}\n");
    let constant = |name: &str, value: u64| format!("const uint {name} = {value};");
    let common = include_str!("../../shaders/common.glsl");
    let relay = include_str!("../../shaders/relay.glsl");
    for (source, text) in [
        (common, define("STATE_ROWS", StateLayout::ROWS as u64)),
        (common, define("STATE_HEAD_FIRST", StateLayout::HEAD_FIRST as u64)),
        (common, define("STATE_HEAD_ROWS", StateLayout::HEAD_ROWS as u64)),
        (common, define("STATE_CHUNK", StateLayout::CHUNK as u64)),
        (relay, define("STATE_RELAY_TIMEOUT", StateLayout::RELAY_TIMEOUT as u64)),
        (relay, define("RELAY_STRIDE", RELAY_STRIDE / 4)),
        (include_str!("../../shaders/argmax.comp"), define("COUNTER_BYTES", COUNTER_BYTES)),
        (include_str!("../../shaders/attend.comp"), constant("COUNTER_BYTES", COUNTER_BYTES)),
    ] {
        assert!(source.contains(&text), "{text}");
    }
    let forms = [
        ("F32", ActivationLayout::F32),
        ("INT16_BLOCK", ActivationLayout::Int16Block),
        ("F16_ROW", ActivationLayout::F16Row),
        ("INT16_ROW", ActivationLayout::Int16Row),
        ("INT16_SUMS", ActivationLayout::Int16Sums),
        ("F16_BLOCK", ActivationLayout::F16Block),
    ];
    for (name, form) in forms {
        let text = define(&format!("FORM_{name}"), form as u64);
        assert!(include_str!("../../shaders/activation_layout.glsl").contains(&text), "{text}");
    }
}
