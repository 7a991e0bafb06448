//! Comparing executors step by step: equal ones are equal, and a fault that is planted into a step of one is found there.

use crate::common::{self, DOT, F32, MATRIX_F16, golden};
use kiln::engine::{self, OffloadKind};
use kiln::executor::offload::{Offload, OffloadStep, StepOutcome};
use kiln::executor::pages::PageChange;
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, ExecutorExt, HeadRows, PageId, Row, Stepwise, Submission, Tolerance};
use kiln::model::WeightFormat;
use kiln::model::checkpoint::Checkpoint;
use kiln::schedule::kv::KvLayer;
use kiln::schedule::{Extent, KvType, Op, Schedule};
use kiln::testing::cpu::Cpu;
use kiln::testing::diagnose::compare::{Compared, HEAD_ROWS, compare, passes};
use kiln::testing::lower::arithmetic::Arithmetic;
use kiln::testing::offload::{CheckedOffload, OffloadOwner};
use kiln::testing::plan::{Needs, Plan};
use kiln::testing::reference::Reference;
use kiln::testing::replay::Replay;
use kiln::testing::vulkan::Vulkan;
use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// An executor to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Which {
    Reference,
    Cpu,
    Vulkan(Option<Arithmetic>, KvType),
}

/// More tokens than the window has.
const TOKENS: usize = 28;

fn tokens(vocab: usize) -> Vec<u32> {
    (0..TOKENS as u32).map(|i| (2 + 37 * i * i) % vocab as u32).collect()
}

fn schedule(checkpoint: &Checkpoint, kv: KvType, format: WeightFormat) -> Schedule {
    let extent = Extent { context: 64, max_rows: 32, head_rows: HEAD_ROWS, sequences: 1, kv, kv_tokens: None };
    Schedule::build(checkpoint.shape(), extent, checkpoint.formats(format))
}

/// Loads the model in `dir` with a schedule that `alter` has changed.
fn load(which: Which, dir: &Path, format: WeightFormat, alter: fn(&mut Schedule)) -> Box<dyn Stepwise> {
    common::listen();
    let checkpoint = Checkpoint::open(dir).unwrap();
    let kv = match which {
        Which::Reference => KvType::F32,
        Which::Cpu => KvType::F16,
        Which::Vulkan(_, kv) => kv,
    };
    let mut schedule = schedule(&checkpoint, kv, format);
    alter(&mut schedule);
    let progress = Progress::default();
    match which {
        Which::Reference => Box::new(Reference::load(&checkpoint, schedule, &progress).unwrap()),
        Which::Cpu => Box::new(Cpu::load(&checkpoint, schedule, Some(2), &progress).unwrap()),
        Which::Vulkan(arithmetic, _) => Box::new(on_vulkan(arithmetic, &checkpoint, schedule)),
    }
}

fn on_vulkan(arithmetic: Option<Arithmetic>, checkpoint: &Checkpoint, schedule: Schedule) -> Replay<Vulkan> {
    let gpu = Rc::new(common::open_gpu());
    let needs = Needs::on_device(&schedule, true);
    let heaps = kiln::testing::vulkan::memory::heaps::describe(&gpu);
    let plan = Plan::place(&schedule, &heaps, needs).unwrap();
    let (options, progress) = (common::forced(arithmetic), Progress::default());
    Replay::load(None, Vulkan::new(&gpu).unwrap(), checkpoint, schedule, &plan, options, &progress).unwrap()
}

/// All that a comparison finds, up to the first difference unless `all`.
fn found(a: &mut dyn Stepwise, b: &mut dyn Stepwise, all: bool) -> Vec<Compared> {
    let (mut seen, tokens) = (Vec::new(), tokens(a.schedule().shape.vocab));
    compare([a, b], &passes(&tokens, 32, HEAD_ROWS), 1.0, &mut |compared| {
        let ends = compared.differs() && !all;
        seen.push(compared);
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    seen
}

/// Those that this machine has.
fn executors() -> Vec<Which> {
    let mut all = vec![Which::Reference, Which::Cpu, Which::Vulkan(F32, KvType::F32), Which::Vulkan(DOT, KvType::F16)];
    all.extend(common::open_gpu().caps.matrix.map(|_| Which::Vulkan(MATRIX_F16, KvType::F16)));
    all
}

/// Each beside the one before it, and where all is to be run, the reference beside each.
fn pairs(all: &[Which]) -> Vec<(Which, Which)> {
    let with_reference =
        all.iter().take(if common::runs_all() { all.len() } else { 2 }).map(|b| (Which::Reference, *b));
    with_reference.chain(all.windows(2).skip(1).map(|pair| (pair[0], pair[1]))).collect()
}

#[test]
fn executors_that_compute_the_same_are_equal() {
    let formats = if common::runs_all() { 2 } else { 1 };
    for format in [WeightFormat::Int8, WeightFormat::Bf16].into_iter().take(formats) {
        for (a, b) in pairs(&executors()) {
            let [mut one, mut other] = [a, b].map(|which| load(which, &golden("tiny"), format, |_| {}));
            let seen = found(one.as_mut(), other.as_mut(), true);
            let worst = seen.iter().max_by(|x, y| x.share.total_cmp(&y.share)).unwrap();
            println!("{format:?} {a:?} {b:?}: {worst:?}");
            assert!(seen.iter().all(|compared| !compared.differs()), "{format:?} {a:?} {b:?}: {worst:?}");
            // Every step of both passes was compared, and what some executor fuses also as one.
            let steps = one.schedule().steps_of(kiln::schedule::Segment::Head).end;
            for pass in [0, 1] {
                let singly = |step: &usize| seen.iter().any(|c| c.pass == pass && c.steps == (*step..*step + 1));
                assert!((0..steps).all(|step| singly(&step)));
            }
            let fuses = [a, b].iter().any(|which| matches!(which, Which::Vulkan(..)));
            assert_eq!(seen.iter().any(|compared| compared.steps.len() > 1), fuses);
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Changes the op of the step of a layer with this label.
fn change(schedule: &mut Schedule, layer: Option<usize>, label: &str, change: impl FnOnce(&mut Op)) {
    let of_layer = |segment| layer.is_none_or(|layer| segment == kiln::schedule::Segment::Layer(layer));
    let step = schedule.steps.iter_mut().find(|step| step.label == label && of_layer(step.segment));
    change(&mut step.expect("such a step").op);
}

/// A fault: its name, the step that it is in and what that leaves, and how it comes into the schedule.
type Fault = (&'static str, &'static str, &'static str, fn(&mut Schedule));

const FAULTS: [Fault; 9] = [
    ("another scale of the embedding", "embed", "residual", |s| {
        change(s, None, "embed", |op| {
            let Op::Embed { scale, .. } = op else { panic!("{op:?}") };
            *scale *= 1.01;
        });
    }),
    ("RoPE scaled as in a global layer", "q_norm_rope", "qkv[0..128]", |s| {
        let global = s.weights.global.rope;
        change(s, Some(1), "q_norm_rope", |op| {
            let Op::HeadNormRope { inv_freq, .. } = op else { panic!("{op:?}") };
            *inv_freq = global;
        });
    }),
    ("K and V swapped", "kv_write", "keys", |s| {
        change(s, Some(2), "kv_write", |op| {
            let Op::KvWrite { k, v, .. } = op else { panic!("{op:?}") };
            std::mem::swap(k, v);
        });
    }),
    ("a window that is one key longer", "attend", "attended", |s| {
        change(s, Some(3), "attend", |op| {
            let Op::Attend { window, .. } = op else { panic!("{op:?}") };
            *window = window.map(|keys| keys + 1);
        });
    }),
    ("all heads in one group", "attend", "attended", |s| {
        change(s, Some(0), "attend", |op| {
            let Op::Attend { kv, .. } = op else { panic!("{op:?}") };
            kv.kv_heads = 1;
        });
    }),
    ("scores by another scale", "attend", "attended", |s| {
        change(s, Some(5), "attend", |op| {
            let Op::Attend { scale, .. } = op else { panic!("{op:?}") };
            *scale *= 1.05;
        });
    }),
    ("a residual that is dropped", "post_attention", "residual", |s| {
        change(s, Some(4), "post_attention", |op| {
            let Op::NormAdd { x, weight, eps, residual, .. } = *op else { panic!("{op:?}") };
            *op = Op::RmsNorm { x, weight, eps, out: residual };
        });
    }),
    ("GELU of the other half", "gated_gelu", "gated", |s| {
        change(s, Some(2), "gated_gelu", |op| {
            let Op::GatedGelu { gate, up, .. } = op else { panic!("{op:?}") };
            std::mem::swap(gate, up);
        });
    }),
    ("logits of the row before", "final_norm", "head_in", |s| {
        change(s, None, "final_norm", |op| {
            let Op::RmsNorm { x, .. } = op else { panic!("{op:?}") };
            x.offset -= 4 * x.stride as u64;
        });
    }),
];

/// Faults of experts.
const EXPERT_FAULTS: [Fault; 8] = [
    ("the router fed with the experts' input", "router", "scores", |s| {
        let mut input = None;
        change(s, Some(1), "pre_expert_norm", |op| {
            let Op::RmsNorm { out, .. } = op else { panic!("{op:?}") };
            input = Some(*out);
        });
        change(s, Some(1), "router", |op| {
            let Op::Linear { x, .. } = op else { panic!("{op:?}") };
            *x = input.unwrap();
        });
    }),
    ("experts by other scores", "route", "chosen", |s| {
        let mut input = None;
        change(s, Some(2), "router", |op| {
            let Op::Linear { x, .. } = op else { panic!("{op:?}") };
            input = Some(*x);
        });
        change(s, Some(2), "route", |op| {
            let Op::Route { scores, .. } = op else { panic!("{op:?}") };
            *scores = input.unwrap().columns(0, scores.width);
        });
    }),
    ("gains without the width's root", "route", "gains", |s| {
        change(s, Some(0), "route", |op| {
            let Op::Route { scale, .. } = op else { panic!("{op:?}") };
            *scale = 1.0;
        });
    }),
    ("gate and up swapped", "expert_gate", "expert_gate_up[0..32]", |s| {
        let mut other = None;
        change(s, Some(3), "expert_up", |op| {
            let Op::ExpertLinear { weight, .. } = op else { panic!("{op:?}") };
            other = Some(*weight);
        });
        change(s, Some(3), "expert_gate", |op| {
            let Op::ExpertLinear { weight, .. } = op else { panic!("{op:?}") };
            *weight = other.unwrap();
        });
    }),
    ("each expert's weights are the next one's", "expert_down", "expert_parts", |s| {
        change(s, Some(3), "expert_down", |op| {
            let Op::ExpertLinear { weight, out, .. } = op else { panic!("{op:?}") };
            let next = weight.rows_from(out.width, out.width);
            (weight.offset, weight.scales) = (next.offset, next.scales);
        });
    }),
    ("experts fed with the dense half's input", "expert_up", "expert_gate_up[32..64]", |s| {
        let mut input = None;
        change(s, Some(4), "pre_ffn_norm", |op| {
            let Op::RmsNorm { out, .. } = op else { panic!("{op:?}") };
            input = Some(*out);
        });
        change(s, Some(4), "expert_up", |op| {
            let Op::ExpertLinear { x, .. } = op else { panic!("{op:?}") };
            *x = input.unwrap();
        });
    }),
    ("one expert's output left out", "expert_sum", "expert_sum", |s| {
        change(s, Some(1), "expert_sum", |op| {
            let Op::ExpertSum { x, gains, .. } = op else { panic!("{op:?}") };
            // Each row's first expert, of two.
            (x.stride, gains.width) = (2 * x.stride, 1);
        });
    }),
    ("the dense half's norm behind the experts", "post_experts", "halves", |s| {
        let mut other = None;
        change(s, Some(2), "post_dense", |op| {
            let Op::RmsNorm { weight, .. } = op else { panic!("{op:?}") };
            other = Some(*weight);
        });
        change(s, Some(2), "post_experts", |op| {
            let Op::NormAdd { weight, .. } = op else { panic!("{op:?}") };
            *weight = other.unwrap();
        });
    }),
];

/// Compares a sound reference with an executor that has a fault, and checks where that is found.
fn check(which: Which, dir: &Path, fault: Fault) {
    check_in("tiny", which, dir, fault);
}

/// As [`check`], of the sound model `case`.
fn check_in(case: &str, which: Which, dir: &Path, (name, label, tensor, alter): Fault) {
    let mut sound = load(Which::Reference, &golden(case), WeightFormat::Int8, |_| {});
    let mut faulty = load(which, dir, WeightFormat::Int8, alter);
    let seen = found(sound.as_mut(), faulty.as_mut(), false);
    let last = seen.last().unwrap();
    println!("{which:?}, {name}: {last:?}");
    assert!(last.differs(), "{which:?}: {name} is not found");
    assert_eq!((last.label.as_str(), last.tensor.as_str()), (label, tensor), "{which:?}: {name}");
}

/// Every fault is looked for in the executors that load at once, and alone a sample in those that compile kernels for each.
fn part_of(faults: &'static [Fault], which: Which) -> impl Iterator<Item = Fault> {
    let has_all = common::runs_all() || matches!(which, Which::Reference | Which::Cpu);
    faults.iter().copied().step_by(if has_all { 1 } else { 3 })
}

fn check_all(which: Which) {
    for fault in part_of(&FAULTS, which) {
        check(which, &golden("tiny"), fault);
    }
    let unscaled = norm_without_its_one("model.layers.3.pre_feedforward_layernorm.weight");
    check(which, unscaled.path(), ("a norm without its +1", "pre_ffn_norm", "normed", |_| {}));
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// `tiny` with a norm whose weights are less by what the norm adds.
fn norm_without_its_one(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden("tiny/config.json"), dir.path().join("config.json")).unwrap();
    let mut bytes = std::fs::read(golden("tiny/model.safetensors")).unwrap();
    let (header, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let (start, end) = metadata.info(name).unwrap().data_offsets;
    for weight in bytes[8 + header + start..8 + header + end].chunks_exact_mut(2) {
        let less = half::bf16::from_le_bytes([weight[0], weight[1]]).to_f32() - 1.0;
        weight.copy_from_slice(&half::bf16::from_f32(less).to_le_bytes());
    }
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

#[test]
fn a_fault_of_the_reference_is_found() {
    check_all(Which::Reference);
}

#[test]
fn a_fault_of_the_cpu_is_found() {
    check_all(Which::Cpu);
}

/// A wrong choice is named by its experts, before any number that follows from it.
#[test]
fn a_fault_of_experts_is_found() {
    for which in [Which::Reference, Which::Cpu, Which::Vulkan(DOT, KvType::F16)] {
        let [mut one, mut other] =
            [Which::Reference, which].map(|which| load(which, &golden("moe4"), WeightFormat::Int8, |_| {}));
        let seen = found(one.as_mut(), other.as_mut(), true);
        let worst = seen.iter().max_by(|x, y| x.share.total_cmp(&y.share)).unwrap();
        assert!(seen.iter().all(|compared| !compared.differs()), "{which:?}: {worst:?}");
        // By itself, and as part of a fusion.
        assert!(seen.iter().filter(|compared| compared.tensor == "chosen").count() >= 2 * 5);
        part_of(&EXPERT_FAULTS, which).for_each(|fault| check_in("moe4", which, &golden("moe4"), fault));
    }
}

#[test]
#[ignore = "a minute long: tools/test --full runs it"]
fn a_fault_of_vulkan_is_found() {
    check_all(Which::Vulkan(F32, KvType::F32));
}

#[test]
#[ignore = "a minute long: tools/test --full runs it"]
fn a_fault_of_vulkan_with_packed_inputs_is_found() {
    check_all(Which::Vulkan(DOT, KvType::F16));
}

#[test]
fn a_fault_of_vulkan_on_matrix_units_is_found() {
    match common::open_gpu().caps.matrix {
        Some(_) => check_all(Which::Vulkan(MATRIX_F16, KvType::F16)),
        None => println!("not checked here: the device has no matrix units"),
    }
}

/// Spoils a slot where steps run as one, as a kernel for several of them would that is wrong itself.
struct Fused {
    inner: Box<dyn Stepwise>,
    label: &'static str,
}

impl Executor for Fused {
    kiln::executor_methods!(of inner);

    fn submit(&mut self, work: Submission<'_>) -> kiln::Result<bool> {
        self.inner.submit(work)
    }
    fn logits(&mut self, row: usize) -> kiln::Result<&[f32]> {
        self.inner.logits(row)
    }
}

impl Stepwise for Fused {
    fn begin_pass(&mut self, rows: &[Row], head: Option<HeadRows>) -> kiln::Result<()> {
        self.inner.begin_pass(rows, head)
    }
    fn run_steps(&mut self, steps: Range<usize>) -> kiln::Result<()> {
        self.inner.run_steps(steps.clone())?;
        let last = &self.inner.schedule().steps[steps.end - 1];
        let Op::Attend { out, .. } = last.op else { return Ok(()) };
        if steps.len() == 1 || last.label != self.label {
            return Ok(());
        }
        self.inner.access_arena(&mut |arena| arena[out.offset as usize / 4 + 5] *= 1.1)
    }
    fn ranges(&self) -> kiln::Result<Vec<Range<usize>>> {
        self.inner.ranges()
    }
    fn access_arena(&mut self, access: &mut dyn FnMut(&mut [f32])) -> kiln::Result<()> {
        self.inner.access_arena(access)
    }
    fn read_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &mut [u8]) -> kiln::Result<()> {
        self.inner.read_kv(layer, page, bytes)
    }
    fn write_kv(&mut self, layer: &KvLayer, page: PageId, bytes: &[u8]) -> kiln::Result<()> {
        self.inner.write_kv(layer, page, bytes)
    }
    fn tolerance(&self, step: usize) -> Tolerance {
        self.inner.tolerance(step)
    }
}

/// A fault of what runs several steps is named as theirs: each of them alone is sound. The steps behind it are judged by sound
/// inputs.
#[test]
fn a_fault_of_a_fusion_is_found_and_spoils_no_step_behind() {
    let sound = || load(Which::Vulkan(F32, KvType::F32), &golden("tiny"), WeightFormat::Int8, |_| {});
    let mut faulty = Fused { inner: sound(), label: "attend" };
    let mut reference = load(Which::Reference, &golden("tiny"), WeightFormat::Int8, |_| {});
    let seen = found(reference.as_mut(), &mut faulty, true);
    let differ: Vec<&Compared> = seen.iter().filter(|compared| compared.differs()).collect();
    let layers = faulty.schedule().shape.layers.len();
    // The prompt is of more rows than are fused with attention.
    assert_eq!(differ.len(), layers, "{differ:?}");
    for found in differ {
        let what = (found.pass, found.label.as_str(), found.tensor.as_str(), found.row, found.column);
        assert_eq!(what, (1, "q_norm_rope to attend", "attended", 0, 5));
    }
}

/// What a guest of tests does with the attention of one layer.
#[derive(Clone, Copy)]
enum OfOneLayer {
    Times(f32),
    Fails,
}

/// The reference's formulas as a guest, with as much room as one of bf16 allows itself.
struct OddGuest {
    inner: Box<dyn Offload>,
    layer: usize,
    does: OfOneLayer,
    rows: usize,
    steps: Rc<Cell<usize>>,
}

impl Offload for OddGuest {
    fn name(&self) -> &str {
        "an odd guest"
    }
    fn begin(&mut self, rows: &[Row]) {
        self.rows = rows.len();
        self.inner.begin(rows);
    }
    fn set_page(&mut self, entry: &PageChange) {
        self.inner.set_page(entry);
    }
    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> kiln::Result<()> {
        self.inner.copy_kv(layer, page, element, bytes)
    }
    fn raw(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }
    fn run(&mut self, step: &OffloadStep, arena: &mut [f32]) -> kiln::Result<StepOutcome> {
        self.steps.set(self.steps.get() + 1);
        self.inner.run(step, arena)?;
        match step.op {
            Op::Attend { kv, out, .. } if kv.layer == self.layer => match self.does {
                OfOneLayer::Fails => Err(kiln::Error::device("a command is late", "wait")),
                OfOneLayer::Times(times) => {
                    let rows = (0..self.rows).map(|row| (out.row(row) / 4) as usize);
                    rows.for_each(|first| arena[first..first + out.width].iter_mut().for_each(|x| *x *= times));
                    Ok(StepOutcome::Done)
                }
            },
            _ => Ok(StepOutcome::Done),
        }
    }
    fn tolerance(&self, _: &Op) -> Tolerance {
        Tolerance { outputs: 4e-2, ..Tolerance::BF16 }
    }
}

/// The golden model on Vulkan with such a guest, and how many steps that has run.
fn beside_an_odd_guest(b: Which, layer: usize, does: OfOneLayer) -> (Replay<Vulkan>, Rc<Cell<usize>>) {
    let Which::Vulkan(arithmetic, kv) = b else { panic!("{b:?} has no guest") };
    common::listen();
    let checkpoint = Rc::new(Checkpoint::open(&golden("tiny")).unwrap());
    let schedule = schedule(&checkpoint, kv, WeightFormat::Int8);
    let steps = Rc::<Cell<usize>>::default();
    let (own, counted) = (schedule.clone(), steps.clone());
    let mut replay = on_vulkan(arithmetic, &checkpoint, schedule);
    let load = move || -> kiln::Result<Box<dyn Offload>> {
        let inner = engine::load_offload(OffloadKind::Reference, &checkpoint, &own, &Progress::default())?;
        Ok(Box::new(OddGuest { inner, layer, does, rows: 0, steps: counted.clone() }))
    };
    let offload = CheckedOffload::due(replay.schedule(), Box::new(load), Duration::ZERO, 0);
    replay.set_offload(Some(Box::new(offload))).unwrap();
    (replay, steps)
}

/// Steps of a guest are run by it, by themselves, and judged by what it allows itself. A wrong one is found, whether or not the
/// device would have noticed it in a pass.
#[test]
fn a_fault_of_a_guest_is_found() {
    for b in [Which::Vulkan(F32, KvType::F32), Which::Vulkan(DOT, KvType::F16)] {
        let mut reference = load(Which::Reference, &golden("tiny"), WeightFormat::Int8, |_| {});
        let layers = reference.schedule().shape.layers.len();
        for (layer, times, is_sound) in [(2, 1.0, true), (2, 1.03, true), (0, 1.5, false), (layers - 1, -1.0, false)] {
            let (mut beside, steps) = beside_an_odd_guest(b, layer, OfOneLayer::Times(times));
            let seen = found(reference.as_mut(), &mut beside, true);
            let differ: Vec<&Compared> = seen.iter().filter(|compared| compared.differs()).collect();
            assert!(beside.device().ends_with("attention on an odd guest"), "{}", beside.device());
            assert!(steps.get() >= 2 * layers, "{b:?}: the guest ran {} steps", steps.get());
            let wrong = |pass| (pass, kiln::schedule::Segment::Layer(layer), "attend", "attended");
            let what: Vec<_> =
                differ.iter().map(|c| (c.pass, c.segment, c.label.as_str(), c.tensor.as_str())).collect();
            let want = if is_sound { Vec::new() } else { vec![wrong(0), wrong(1)] };
            assert_eq!(what, want, "{b:?}, {times} times what it should be");
            let is_attention = |step: usize| matches!(reference.schedule().steps[step].op, Op::Attend { .. });
            assert!(seen.iter().all(|c| c.steps.len() == 1 || !c.steps.clone().any(is_attention)));
        }
        let (mut beside, _) = beside_an_odd_guest(b, 1, OfOneLayer::Fails);
        let passes = passes(&tokens(512), 32, HEAD_ROWS);
        let ran = compare([reference.as_mut(), &mut beside], &passes, 1.0, &mut |_| ControlFlow::Continue(()));
        let e = ran.unwrap_err();
        assert!(e.to_string().contains("a command is late"), "{e}");
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn a_comparison_needs_tokens_and_one_schedule() {
    let mut a = load(Which::Reference, &golden("tiny"), WeightFormat::Int8, |_| {});
    let mut b = load(Which::Cpu, &golden("tiny"), WeightFormat::Int8, |_| {});
    let e = compare([a.as_mut(), b.as_mut()], &[], 1.0, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(e.exit_code(), 2);
    let mut other = load(Which::Cpu, &golden("tiny"), WeightFormat::Int8, |s| {
        s.steps.pop();
    });
    let passes = passes(&tokens(512), 32, HEAD_ROWS);
    let e = compare([a.as_mut(), other.as_mut()], &passes, 1.0, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(e.to_string().contains("same schedule"), "{e}");
}

/// Lets attention weigh every key alike.
fn all_keys_alike(schedule: &mut Schedule) {
    for layer in 0..schedule.shape.layers.len() {
        change(schedule, Some(layer), "attend", |op| {
            let Op::Attend { scale, .. } = op else { panic!("{op:?}") };
            *scale = 0.0;
        });
    }
}

/// Attention averages the errors of what it reads, and the product behind it rounds that average anew: where both run as one,
/// the bound of what they leave is not below that of the product alone.
#[test]
fn what_is_rounded_within_a_fusion_counts_in_its_bound() {
    let bounds = |b: Which, fused: bool| -> Vec<f32> {
        let [mut cpu, mut other] =
            [Which::Cpu, b].map(|which| load(which, &golden("tiny"), WeightFormat::Int8, all_keys_alike));
        let mut bounds = Vec::new();
        // So small a scale puts everything past its bound, so that what rounding does is looked at everywhere.
        compare([cpu.as_mut(), other.as_mut()], &passes(&tokens(512), 32, HEAD_ROWS), 1e-6, &mut |compared| {
            let ends = compared.label.ends_with("attention_out") && compared.tensor == "sublayer" && compared.pass == 1;
            if ends && (compared.steps.len() > 1) == fused {
                bounds.push(compared.bound);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        bounds
    };
    let alone = bounds(Which::Reference, false);
    let together = bounds(Which::Vulkan(DOT, KvType::F16), true);
    println!("alone {alone:?}\ntogether {together:?}");
    assert!(alone.len() == together.len() && !alone.is_empty());
    assert!(alone.iter().zip(&together).all(|(alone, together)| together > &(0.7 * alone)), "{alone:?} {together:?}");
}
