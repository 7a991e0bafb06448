//! A pass with a guest: another executor attends between submits of the device. It computes what a plain pass does, by other
//! kernels, and the same bits every time.

mod halves;

use crate::common::check::{F16_SHALLOW, F32_SHALLOW, check_prompts};
use crate::common::{self, Case, DOT, F32, Forged, bits, golden, load, relative_rms, small_shape};
use kiln::engine::{self, Device, OffloadKind, Options, ReplayOptions};
use kiln::executor::offload::{Offload, OffloadStep, OffloadedPasses, StepOutcome};
use kiln::executor::pages::PageChange;
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, ExecutorExt, HeadRows, Measure, PageId, Row, Tolerance};
use kiln::model::checkpoint::Checkpoint;
use kiln::model::{LayerKind, Shape, WeightFormat};
use kiln::schedule::kv::{KvLayer, Pool};
use kiln::schedule::step::Op;
use kiln::schedule::{Extent, KvType, Schedule};
use kiln::sequence::session::Session;
use kiln::testing::lower::arithmetic::Arithmetic;
use kiln::testing::offload::{CheckedOffload, OffloadLoader, OffloadOwner, place};
use kiln::testing::plan::{Needs, Plan};
use kiln::testing::replay::Replay;
use kiln::testing::vulkan::Vulkan;
use kiln::{Error, Result};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// Both guests beside each arithmetic, or alone a sample in which each comes up once; with how far results may be apart.
fn guests() -> Vec<(Option<Arithmetic>, f32, &'static [OffloadKind])> {
    const BOTH: &[OffloadKind] = &[OffloadKind::Reference, OffloadKind::Cpu];
    let of = |sample| if common::runs_all() { BOTH } else { sample };
    vec![(F32, 2e-3, of(&BOTH[1..])), (DOT, 5e-3, of(&BOTH[..1]))]
}

fn with_guest(arithmetic: Option<Arithmetic>, guest: Option<OffloadKind>) -> Options {
    Options { offload: guest, vulkan: common::forced(arithmetic), ..Options::default() }
}

/// The golden prompts: prefill in one chunk, in several and token by token, hidden rows, and a greedy continuation.
#[test]
fn a_pass_with_a_guest_matches_the_golden_case() {
    let case = Case::open("tiny");
    let all = [
        (OffloadKind::Reference, WeightFormat::Bf16, F32, KvType::F32, 160, F32_SHALLOW),
        (OffloadKind::Reference, WeightFormat::Int8, DOT, KvType::F16, 16, F16_SHALLOW),
        (OffloadKind::Cpu, WeightFormat::Int8, DOT, KvType::F16, 7, F16_SHALLOW),
        (OffloadKind::Cpu, WeightFormat::Bf16, F32, KvType::F32, 16, F16_SHALLOW),
        (OffloadKind::Cpu, WeightFormat::Int8, F32, KvType::F16, 160, F16_SHALLOW),
        (OffloadKind::Reference, WeightFormat::Int8, F32, KvType::F32, 7, F32_SHALLOW),
        (OffloadKind::Reference, WeightFormat::Int8, DOT, KvType::F16, 1, F16_SHALLOW),
    ];
    let cases = if common::runs_all() { &all[..] } else { &all[..3] };
    for &(guest, weights, arithmetic, kv, chunk, tolerance) in cases {
        let options = Options {
            device: common::vulkan(),
            weights,
            kv,
            chunk: Some(chunk),
            context: Some(160),
            head_rows: 8,
            ..with_guest(arithmetic, Some(guest))
        };
        let mut executor = load(&golden("tiny"), options);
        let name = if guest == OffloadKind::Cpu { "attention on CPU, " } else { "attention on CPU reference, " };
        assert!(executor.device().contains(name), "{}", executor.device());
        let what = format!("{guest:?}, {arithmetic:?}, {kv:?}, chunk {chunk}");
        check_prompts(&case, executor.as_mut(), weights, tolerance, &what);
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

const CONTEXT: usize = 256;
const SEQUENCES: usize = 6;

/// A window shorter than a page, and layers of both kinds.
fn shape() -> Shape {
    let layers = vec![LayerKind::Local, LayerKind::Global, LayerKind::Local];
    Shape { layers, max_context: CONTEXT, ..small_shape().with_window(40) }
}

fn loaded(model: &Forged, options: Options) -> Box<dyn Measure> {
    let options =
        Options { sequences: SEQUENCES, head_rows: SEQUENCES, chunk: Some(48), context: Some(CONTEXT), ..options };
    model.load(common::vulkan(), options)
}

fn row(sequence: u32, position: u32) -> Row {
    Row { token: (3 + 31 * sequence + 7 * position) % 257, position, sequence }
}

/// Bits of the logits of passes of every kind: prompts in chunks, rows of several sequences, mixed passes, rows in any order, and
/// a sequence that was rewound and goes on otherwise.
fn every_kind(executor: &mut dyn Executor) -> Vec<Vec<u32>> {
    let mut seen = Vec::new();
    for (sequence, length) in [(0, 130), (1, 70), (2, 5), (3, 64)] {
        let tokens: Vec<u32> = (0..length).map(|position| row(sequence, position).token).collect();
        Session::new(sequence, CONTEXT).prefill(executor, &tokens).unwrap();
        seen.push(bits(executor, 0));
    }
    let ends = [130, 70, 5, 64].into_iter().zip(0..);
    let apart: Vec<Row> = ends.map(|(position, sequence)| row(sequence, position)).collect();
    let chunk: Vec<Row> = (0..40).map(|position| row(4, position)).collect();
    let next = apart.iter().map(|r| Row { position: r.position + 1, ..*r });
    let mixed: Vec<Row> = chunk.iter().copied().chain(next).collect();
    let any: Vec<Row> = (40..44).map(|p| row(4, p)).chain((71..73).map(|p| row(1, p + 1))).collect();
    for rows in [apart.clone(), mixed, any, vec![row(2, 7)]] {
        let count = rows.len().min(SEQUENCES);
        executor.forward(&rows, Some(HeadRows { first: rows.len() - count, count })).unwrap();
        (0..count).for_each(|r| seen.push(bits(executor, r)));
    }
    executor.pages_mut().truncate(0, 100);
    let again: Vec<Row> = (100..120).map(|position| Row { token: 9, ..row(0, position) }).collect();
    executor.forward(&again, Some(HeadRows { first: 19, count: 1 })).unwrap();
    seen.push(bits(executor, 0));
    seen
}

fn floats(bits: &[Vec<u32>]) -> Vec<f32> {
    bits.iter().flatten().map(|word| f32::from_bits(*word)).collect()
}

#[test]
fn every_kind_of_pass_may_have_a_guest_and_gives_the_same_bits_again() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    for (arithmetic, tolerance, guests) in guests() {
        let plain = every_kind(loaded(&model, with_guest(arithmetic, None)).as_mut());
        for &guest in guests {
            let options = with_guest(arithmetic, Some(guest));
            let got = every_kind(loaded(&model, options).as_mut());
            for (i, (got, plain)) in got.iter().zip(&plain).enumerate() {
                let [got, plain] = [got, plain].map(|bits| floats(std::slice::from_ref(bits)));
                let apart = relative_rms(&got, &plain);
                assert!(apart < tolerance, "{arithmetic:?}, {guest:?}, row {i}: {apart}");
            }
            println!("{arithmetic:?}, {guest:?}: {:.1e} apart", relative_rms(&floats(&got), &floats(&plain)));
            assert!(every_kind(loaded(&model, options).as_mut()) == got, "{guest:?}: other bits in another run");
            // Keys and values that the host does not map are copied.
            let staged = Options { vulkan: ReplayOptions { staged: true, ..options.vulkan }, ..options };
            assert!(every_kind(loaded(&model, staged).as_mut()) == got, "{guest:?}: other bits through staging");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// The device stops at every attention, whatever it was found to do in one submit; nothing runs ahead.
#[test]
fn a_pass_with_a_guest_takes_several_submits_and_none_runs_ahead() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let vulkan = ReplayOptions { submit_budget: common::ONE_SUBMIT, ..common::forced(F32) };
    let mut executor = loaded(&model, Options { vulkan, ..with_guest(None, Some(OffloadKind::Cpu)) });
    let head = HeadRows { first: 0, count: 1 };
    for position in 0..4 {
        let before = executor.submits();
        assert!(!executor.forward_ahead(&[row(0, position)], head).unwrap());
        let submits = executor.submits() - before;
        // Once the pass's time is known: what comes before each layer's attention, the rest, and the head.
        assert!(position == 0 || submits == shape().layers.len() as u64 + 2, "{submits} submits");
    }
    let mut filled = false;
    assert!(!executor.forward_sampling(&[row(0, 4)], head, true, &mut |_, _| filled = true).unwrap());
    assert!(filled);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// What a guest of tests does wrong, from which of its steps on, and what became of it.
#[derive(Default)]
struct Faults {
    /// Steps of any guest that fail.
    fails: Cell<Option<u32>>,
    /// Its outputs are this many times what they should be.
    scale: Cell<Option<f32>>,
    /// Those of this step, and of every so many behind it; of all where it is not set.
    scaled: Cell<(u32, u32)>,
    /// It can not be loaded.
    is_missing: Cell<bool>,
    steps: Cell<u32>,
    loads: Cell<u32>,
    alive: Cell<u32>,
    /// A clock in seconds, on which a step of one row and one of several take so long more than the device's.
    now: Cell<f64>,
    takes_more: Cell<[f64; 2]>,
    /// A word of the first query of each step that the guest has run.
    queries: RefCell<Vec<u32>>,
    /// What is to come about in the arena while a step runs.
    watched: Cell<Option<halves::WatchedWord>>,
}

struct FaultyGuest {
    inner: Box<dyn Offload>,
    faults: Rc<Faults>,
    rows: usize,
}

impl Drop for FaultyGuest {
    fn drop(&mut self) {
        self.faults.alive.set(self.faults.alive.get() - 1);
    }
}

impl Offload for FaultyGuest {
    fn name(&self) -> &str {
        "a faulty guest"
    }

    fn begin(&mut self, rows: &[Row]) {
        self.inner.begin(rows);
        self.rows = rows.len();
    }

    fn set_page(&mut self, entry: &PageChange) {
        self.inner.set_page(entry);
    }

    fn copy_kv(&mut self, layer: &KvLayer, page: PageId, element: KvType, bytes: &[u8]) -> Result<()> {
        self.inner.copy_kv(layer, page, element, bytes)
    }

    fn raw(&mut self) -> Option<&mut dyn Offload> {
        Some(self)
    }

    fn run(&mut self, place: &OffloadStep, arena: &mut [f32]) -> Result<StepOutcome> {
        let step = self.faults.steps.get();
        self.faults.steps.set(step + 1);
        self.faults.now.set(self.faults.now.get() + self.faults.takes_more.get()[usize::from(self.rows > 1)]);
        let Op::Attend { q, out, .. } = place.op else { panic!("a guest attends") };
        let first = (out.row(0) / 4) as usize;
        self.faults.queries.borrow_mut().push(arena[(q.row(0) / 4) as usize].to_bits());
        if let Some(watched) = self.faults.watched.get().filter(|watched| watched.step == step) {
            self.faults.watched.set(Some(watched.wait(arena)));
        }
        if self.faults.fails.get() == Some(step) {
            // What it leaves is no number.
            arena[first..first + out.width].fill(f32::NAN);
            return Err(Error::device("a command is late", "wait"));
        }
        self.inner.run(place, arena)?;
        let (from, every) = self.faults.scaled.get();
        let is_scaled = step.checked_sub(from).is_some_and(|behind| behind.is_multiple_of(every.max(1)));
        let scale = self.faults.scale.get().filter(|_| is_scaled).unwrap_or(1.0);
        arena[first..first + out.width].iter_mut().for_each(|x| *x *= scale);
        Ok(StepOutcome::Done)
    }

    fn tolerance(&self, op: &Op) -> Tolerance {
        self.inner.tolerance(op)
    }
}

/// A model on lavapipe to which guests come and go.
struct Seated {
    replay: Replay<Vulkan>,
    faults: Rc<Faults>,
    checkpoint: Rc<Checkpoint>,
}

impl Seated {
    fn new(model: &Forged) -> Seated {
        Seated::of(&model.path(), SEQUENCES, 48, None)
    }

    /// With so many sequences, rows of a pass, and a guest to begin with.
    fn of(model: &Path, sequences: usize, max_rows: usize, guest: Option<OffloadKind>) -> Seated {
        common::listen();
        let checkpoint = Rc::new(Checkpoint::open(model).unwrap());
        let (kv, head_rows) = (KvType::F32, sequences);
        let extent = Extent { context: CONTEXT, max_rows, head_rows, sequences, kv, kv_tokens: None };
        let schedule = Schedule::build(checkpoint.shape(), extent, checkpoint.formats(WeightFormat::Int8));
        let gpu = Rc::new(common::open_gpu());
        let heaps = kiln::testing::vulkan::memory::heaps::describe(&gpu);
        let plan = Plan::place(&schedule, &heaps, Needs::on_device(&schedule, true)).unwrap();
        let progress = Progress::default();
        let offload = guest.map(|kind| {
            let raw = engine::load_offload(kind, &checkpoint, &schedule, &progress).unwrap();
            Box::new(CheckedOffload::new(&schedule, raw, None)) as Box<dyn Offload>
        });
        let options = ReplayOptions { maps_kv: guest.is_some(), ..common::forced(F32) };
        let driver = Vulkan::new(&gpu).unwrap();
        let replay = Replay::load(offload, driver, &checkpoint, schedule, &plan, options, &progress);
        Seated { replay: replay.unwrap(), faults: Rc::default(), checkpoint }
    }

    /// Has a guest from the next pass on, with the faults that it has then.
    fn give(&mut self, first_reload: Duration) {
        let load = self.loader();
        let failures = self.replay.offload().map_or(0, |report| report.failures);
        let offload = CheckedOffload::due(self.replay.schedule(), load, first_reload, failures);
        self.replay.set_offload(Some(Box::new(offload))).unwrap();
    }

    /// Has a guest where it is faster, by a clock on which layers without it take a second, and each of its steps takes so
    /// long more.
    fn give_if_faster(&mut self, takes_more: [f64; 2]) {
        let (load, faults) = (self.loader(), self.faults.clone());
        faults.takes_more.set(takes_more);
        let clock = move || faults.now.replace(faults.now.get() + 1.0);
        place(&mut self.replay, load, &clock).unwrap();
    }

    /// What loads the guest, and counts anew what it does.
    fn loader(&self) -> OffloadLoader {
        let faults = self.faults.clone();
        faults.steps.set(0);
        faults.loads.set(0);
        let (checkpoint, schedule) = (self.checkpoint.clone(), self.replay.schedule().clone());
        Box::new(move || -> Result<Box<dyn Offload>> {
            faults.loads.set(faults.loads.get() + 1);
            if faults.is_missing.get() {
                return Err(Error::device("there is no NPU here", "look"));
            }
            let inner = engine::load_offload(OffloadKind::Reference, &checkpoint, &schedule, &Progress::default())?;
            faults.alive.set(faults.alive.get() + 1);
            Ok(Box::new(FaultyGuest { inner, faults: faults.clone(), rows: 0 }))
        })
    }

    fn is_attended(&self) -> bool {
        self.replay.device().contains("attention on a faulty guest")
    }

    fn report(&self) -> Option<(bool, u32)> {
        self.replay.offload().map(|guest| (guest.attends.any(), guest.failures))
    }

    /// The tokens of a greedy reply to a prompt of two chunks, and the bits of the last logits.
    fn reply(&mut self) -> (Vec<u32>, Vec<u32>) {
        self.reply_to(50)
    }

    /// The same, to a prompt of so many tokens.
    fn reply_to(&mut self, prompt: u32) -> (Vec<u32>, Vec<u32>) {
        self.replay.pages_mut().truncate(0, 0);
        let prompt: Vec<u32> = (0..prompt).map(|position| row(0, position).token).collect();
        let mut session = Session::new(0, CONTEXT);
        session.prefill(&mut self.replay, &prompt).unwrap();
        let mut tokens = vec![self.replay.next(0)];
        for n in 0..3 {
            session.decode(&mut self.replay, tokens[n]).unwrap();
            tokens.push(self.replay.next(0));
        }
        (tokens, bits(&mut self.replay, 0))
    }
}

const LATER: Duration = Duration::from_secs(3600);

/// Two chunks and three tokens of three layers each.
const STEPS: u32 = 15;

/// A step that fails in any layer of any pass is made by the device, and so is all that follows.
#[test]
fn a_guest_that_fails_is_left_and_no_token_is_another() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::new(&model);
    let plain = seated.reply();
    assert_eq!(seated.report(), None);
    for step in 0..=STEPS {
        seated.faults.fails.set(Some(step));
        seated.give(LATER);
        let (tokens, last) = seated.reply();
        assert_eq!(tokens, plain.0, "step {step} fails");
        let apart = relative_rms(&floats(&[last]), &floats(std::slice::from_ref(&plain.1)));
        assert!(apart < 2e-3, "step {step}: {apart}");
        let has_failed = step < STEPS;
        assert_eq!(seated.faults.steps.get(), STEPS.min(step + 1), "no step of a guest that has failed runs");
        assert_eq!((seated.faults.alive.get(), seated.faults.loads.get()), (u32::from(!has_failed), 1));
    }
    // Passes after one that failed are those that there were before.
    seated.faults.fails.set(Some(0));
    seated.give(LATER);
    seated.reply();
    assert!(!seated.is_attended());
    assert_eq!(seated.report(), Some((false, STEPS + 1)));
    assert!(seated.reply() == plain);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// The same at each of 62 layers, of a chunk and of a token.
#[test]
#[ignore = "minutes: tools/test --full runs it"]
fn a_guest_that_fails_at_any_of_62_layers_is_left() {
    const LAYERS: u32 = 62;
    let mut seated = Seated::of(&golden("deep62"), 1, 8, None);
    let vocab = seated.replay.schedule().shape.vocab as u32;
    let row = |position| Row { token: (3 + 7 * position) % vocab, position, sequence: 0 };
    let run = |seated: &mut Seated| {
        seated.replay.pages_mut().truncate(0, 0);
        let chunk: Vec<Row> = (0..8).map(row).collect();
        let mut next = Vec::new();
        for rows in [&chunk[..], &[row(8)]] {
            seated.replay.forward(rows, Some(HeadRows { first: rows.len() - 1, count: 1 })).unwrap();
            next.push(seated.replay.next(0));
        }
        (next, bits(&mut seated.replay, 0))
    };
    let plain = run(&mut seated);
    let mut worst: f64 = 0.0;
    for step in 0..2 * LAYERS {
        // It fails, or is wrong from there on.
        for scale in [None, Some(1.05), Some(f32::NAN)] {
            seated.faults.fails.set(scale.is_none().then_some(step));
            seated.faults.scale.set(scale);
            seated.faults.scaled.set((step, 1));
            seated.give(LATER);
            let (next, last) = run(&mut seated);
            assert_eq!(next, plain.0, "step {step}: {scale:?}");
            worst = worst.max(relative_rms(&floats(&[last]), &floats(std::slice::from_ref(&plain.1))).into());
            assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (step + 1, 0), "{scale:?}");
        }
    }
    println!("{worst:.1e} apart at most");
    assert!(worst < 2e-3, "{worst}");
    seated.faults.fails.set(None);
    seated.faults.scale.set(None);
    seated.give(LATER);
    assert_eq!(run(&mut seated).0, plain.0);
    assert_eq!((seated.faults.steps.get(), seated.report()), (2 * LAYERS, Some((true, 6 * LAYERS))));
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Environment variable for a process of its own: what other tests have in memory does not count there.
const CHILD: &str = "KILN_TEST_FAILURES";

#[test]
#[ignore = "a minute: tools/test --full runs it"]
fn a_thousand_failures_leave_nothing_behind() {
    if std::env::var_os(CHILD).is_none() {
        let own = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guest::a_thousand_failures_leave_nothing_behind", "--include-ignored", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&own.stdout), String::from_utf8_lossy(&own.stderr));
        println!("{said}");
        return assert!(own.status.success() && said.contains(" bytes grown"), "{said}");
    }
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::new(&model);
    let plain = seated.reply();
    let mut resident = 0;
    for n in 0..1_000 {
        seated.faults.fails.set(Some(n % STEPS));
        seated.give(LATER);
        assert_eq!(seated.reply().0, plain.0, "after {n}");
        assert_eq!(seated.faults.alive.get(), 0);
        if n == 200 {
            resident = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(resident);
    println!("{grown} bytes grown");
    assert!(grown < 4 << 20, "800 failures left {grown} bytes");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

/// It is tried again three times, and then no more.
#[test]
fn a_guest_that_failed_is_tried_again_a_bounded_number_of_times() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::new(&model);
    let plain = seated.reply();
    seated.faults.is_missing.set(true);
    seated.give(Duration::ZERO);
    for loads in [3, 3] {
        assert!(seated.reply() == plain && !seated.is_attended());
        assert_eq!(seated.faults.loads.get(), loads, "five passes, and three tries");
    }
    // One that fails, and is well when it comes back.
    seated.faults.is_missing.set(false);
    seated.faults.fails.set(Some(4));
    seated.give(Duration::ZERO);
    assert_eq!(seated.reply().0, plain.0);
    assert!(seated.is_attended());
    assert_eq!((seated.faults.loads.get(), seated.faults.alive.get()), (2, 1));
    assert_eq!(seated.report(), Some((true, 4)), "three loads failed before, and a step");
    // Not before it is time.
    seated.faults.fails.set(Some(0));
    seated.give(LATER);
    seated.reply();
    seated.reply();
    assert_eq!((seated.faults.loads.get(), seated.faults.alive.get()), (1, 0));
}

/// Pages of both pools that nobody has.
fn free_pages(replay: &Replay<Vulkan>) -> [usize; 2] {
    Pool::ALL.map(|pool| replay.pages().free(pool))
}

/// Steps of both halves of a reply's chunk, and of its three tokens.
const PREFILL_STEPS: u32 = 6;
const DECODE_STEPS: u32 = 9;

/// Where a guest is slower it is not kept, which is no failure. What is measured leaves nothing behind.
#[test]
fn a_guest_stays_for_the_passes_in_which_it_is_faster() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::of(&model.path(), SEQUENCES, halves::ROWS, None);
    let plain = seated.reply_to(100);
    assert!(seated.replay.placements().is_empty());
    for (decode, prefill) in [(false, false), (true, true), (false, true), (true, false), (false, false)] {
        seated.replay.pages_mut().truncate(0, 0);
        let before = (free_pages(&seated.replay), seated.replay.submits());
        let more = |is_faster| if is_faster { -0.1 } else { 0.1 };
        seated.give_if_faster([more(decode), more(prefill)]);
        let report = seated.replay.offload().unwrap();
        assert_eq!((report.attends, report.failures), (OffloadedPasses { decode, prefill, others: false }, 0));
        assert_eq!((free_pages(&seated.replay), seated.replay.submits()), before);
        let device = seated.replay.device().to_owned();
        assert_eq!(device.contains(" on a faulty guest"), decode || prefill, "{device}");
        assert_eq!(device.contains("attention of long chunks on"), prefill && !decode, "{device}");
        // Two of three layers have a guest's step each, or of each half one, and the pass has all three.
        let timings = seated.replay.placements().to_vec();
        assert_eq!(timings.iter().map(|t| (t.rows, t.depth)).collect::<Vec<_>>(), CASES);
        for t in timings {
            let steps = if t.rows == 1 { 2.0 * more(decode) } else { 4.0 * more(prefill) };
            let want = 1.5 * (1.0 + steps);
            assert!((t.device - 1.5).abs() < 1e-9 && (t.offload - want).abs() < 1e-9, "{t:?}");
        }
        seated.faults.steps.set(0);
        let got = seated.reply_to(100);
        assert_eq!(got.0, plain.0);
        assert!(decode || prefill || got == plain, "without a guest passes are those that there were before");
        let steps = if decode { DECODE_STEPS } else { 0 } + if prefill { PREFILL_STEPS } else { 0 };
        assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (steps, u32::from(decode || prefill)));
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// Rows and depth of the passes that are measured.
const CASES: [(usize, usize); 6] = [(1, 31), (1, 127), (1, 255), (128, 16), (128, 64), (128, 128)];
/// Steps in which a guest proves itself, and all that it makes before it is chosen, where no chunk is long enough to be measured.
const PROOF_STEPS: u32 = 6;
const MEASURED_STEPS: u32 = PROOF_STEPS + 3 * 2 * 2;

/// One that fails, computes wrong or is not there while it is measured is off, and said to be.
#[test]
fn a_guest_that_fails_while_it_is_measured_is_off() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::new(&model);
    let plain = seated.reply();
    let mut failures = 0;
    let mut check = |seated: &mut Seated, steps: u32, what: &str| {
        failures += 1;
        let report = seated.replay.offload().unwrap();
        assert_eq!((report.attends, report.failures), (OffloadedPasses::NONE, failures), "{what}");
        let counts = [&seated.faults.steps, &seated.faults.loads, &seated.faults.alive].map(Cell::get);
        assert_eq!(counts, [steps, 1, 0], "{what}");
        assert!(seated.replay.placements().is_empty(), "{what}");
        assert!(seated.reply() == plain, "{what}");
        assert_eq!(seated.faults.loads.get(), 1, "{what}: it is loaded again");
    };
    for step in [0, 2, 4, PROOF_STEPS, PROOF_STEPS + 9, MEASURED_STEPS - 1] {
        seated.faults.fails.set(Some(step));
        seated.give_if_faster([-0.1; 2]);
        check(&mut seated, step + 1, &format!("step {step} fails"));
    }
    seated.faults.fails.set(None);
    for scale in [1.05, f32::NAN] {
        seated.faults.scale.set(Some(scale));
        seated.give_if_faster([-0.1; 2]);
        check(&mut seated, 1, &format!("{scale} times what it should be"));
    }
    seated.faults.is_missing.set(true);
    seated.give_if_faster([-0.1; 2]);
    check(&mut seated, 0, "it is not there");
}

/// What computes wrong is found in the first pass that it takes part in, and nothing of it is used.
#[test]
fn a_guest_that_computes_wrong_is_found_before_it_is_relied_on() {
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::new(&model);
    let plain = seated.reply();
    for scale in [1.05, -1.0, 0.0, f32::NAN, f32::INFINITY] {
        seated.faults.scale.set(Some(scale));
        seated.give(LATER);
        assert_eq!(seated.reply().0, plain.0, "{scale}");
        assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (1, 0), "{scale}");
    }
    // What is as far off as arithmetic in bf16 may be is not.
    seated.faults.scale.set(Some(1.01));
    seated.give(LATER);
    seated.reply();
    assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (STEPS, 1));
    // One that is wrong for one row alone.
    seated.faults.scale.set(None);
    seated.give(LATER);
    let prompt: Vec<Row> = (0..40).map(|position| row(1, position)).collect();
    let head = Some(HeadRows { first: 0, count: 1 });
    seated.replay.forward(&prompt, Some(HeadRows { first: 39, count: 1 })).unwrap();
    assert!(seated.is_attended());
    seated.faults.scale.set(Some(1.5));
    seated.replay.forward(&[row(1, 40)], head).unwrap();
    assert_eq!((seated.faults.steps.get(), seated.faults.alive.get()), (4, 0));
}

/// One layer of each pass is checked: what turns wrong in any of them is found in as many passes as there are layers.
#[test]
fn a_guest_that_turns_wrong_is_found_in_as_many_passes_as_layers() {
    const LAYERS: u32 = 3;
    let model = Forged::new(&shape(), WeightFormat::Int8);
    let mut seated = Seated::new(&model);
    let mut found = Vec::new();
    for layer in 0..LAYERS {
        seated.faults.scale.set(None);
        seated.give(LATER);
        seated.reply();
        assert!(seated.is_attended(), "it is proved");
        seated.faults.steps.set(0);
        seated.faults.scaled.set((layer, LAYERS));
        seated.faults.scale.set(Some(1.5));
        let lost = (0..LAYERS).find(|pass| {
            let row = row(0, 53 + pass);
            seated.replay.forward(&[row], Some(HeadRows { first: 0, count: 1 })).unwrap();
            seated.faults.alive.get() == 0
        });
        found.push(lost.unwrap_or_else(|| panic!("layer {layer} is wrong, and nobody sees it")));
    }
    // A pass checks one layer, from the last to the first, and with the first the last again.
    assert_eq!(found, [0, 1, 0]);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn a_guest_is_of_a_vulkan_device_alone_and_verifies_no_drafts() {
    common::listen();
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let refused = |device, drafted| {
        let options = Options { device, drafted, ..with_guest(None, Some(OffloadKind::Cpu)) };
        let Err(e) = engine::load(&checkpoint, &options, &Progress::default()) else { panic!("it was loaded") };
        (e.exit_code(), e.to_string())
    };
    for device in [Device::Cpu, Device::Reference] {
        let (code, said) = refused(device, 0);
        assert!(code == 2 && said.contains("only a device of Vulkan or amdgpu has a guest; "), "{said}");
    }
    let (code, said) = refused(common::vulkan(), 4);
    assert!(code == 2 && said.contains("drafts"), "{said}");
}
