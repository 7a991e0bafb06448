//! A modelled device with its own clock, to test the time and the results of tuning without hardware.
//!
//! A dispatch takes the time of its bytes at the memory's rate or of its operations at the arithmetic's, whichever is
//! longer, divided by the efficiency of its tile, plus a launch. The efficiency is a pseudo-random number per tile. A
//! submit takes some time of the host. Kernels are compiled on a few threads in the background. Everything is
//! deterministic.

use super::agenda::{Allowance, TileKey};
use super::bed::{Testbed, depth};
use super::choices::Choices;
use super::estimate;
use super::timing::fastest_of;
use super::tuning::{Advance, Tuner, Tuning};
use crate::lower::arithmetic::{Arithmetic, Operand};
use crate::lower::dispatch::{Addresses, Dispatch};
use crate::lower::figures::Figures;
use crate::lower::kernels::constants::WEIGHTS;
use crate::lower::kernels::{Kernel, Module};
use crate::lower::layout::GpuLayout;
use crate::lower::target::Target;
use crate::lower::units::MatrixUnits;
use crate::lower::units::{HOPPER, RDNA3};
use crate::lower::{Lowering, PassKind};
use crate::model::{BlockFormat, Role, Shape, TensorId, WeightFormat, presets};
use crate::replay::driver::Readiness;
use crate::replay::tuned_kinds;
use crate::schedule::cost::{PassShape, step_cost};
use crate::schedule::{Extent, KvType, Schedule, Segment};
use crate::{Cancel, Result};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The properties of a modelled device.
#[derive(Debug, Clone, Copy)]
struct ModelledDevice {
    /// Its name, one that the cost model knows.
    name: &'static str,
    units: MatrixUnits,
    /// Bytes per second, operations per second on f16 and of integer dot products.
    memory: f64,
    matrix: f64,
    dot: f64,
    processors: u32,
    /// Seconds of a dispatch's launch.
    launch: f64,
    /// Seconds added for each workgroup of a dispatch that waits for another: more than an H100 takes, so that it
    /// decides.
    wait: f64,
}

const RADEON_780M: ModelledDevice = ModelledDevice {
    name: "780m",
    units: RDNA3,
    memory: 89.6e9,
    matrix: 8e12,
    dot: 4e12,
    processors: 12,
    launch: 8e-6,
    wait: 0.0,
};

const H100: ModelledDevice = ModelledDevice {
    name: "H100",
    units: HOPPER,
    memory: 3.35e12,
    matrix: 500e12,
    dot: 60e12,
    processors: 132,
    launch: 3e-6,
    wait: 2e-8,
};

/// Seconds of a submit on the host, with baking and the wait.
const SUBMIT: f64 = 150e-6;
/// Threads that compile.
const THREADS: usize = 4;
/// The executor's default.
const SUBMIT_BUDGET: Duration = Duration::from_millis(500);

/// A pseudo-random number from 0 to 1 that depends only on `what`.
fn chance(what: impl Hash) -> f64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
}

/// Modules that only a mixture of experts runs.
const OF_EXPERTS: [Module; 4] = [Module::Route, Module::Group, Module::ExpertSum, Module::Join];

/// What draws for a kernel depend on. Modules and constants that the modelled devices do not run leave them as they are.
fn drawn(kernel: &Kernel) -> (isize, u32, &[u32]) {
    let mut modules = Module::ALL.iter().filter(|module| !OF_EXPERTS.contains(module));
    let place = modules.position(|module| *module == kernel.module).unwrap_or_default();
    (place as isize, kernel.workgroup, &kernel.constants.values()[..WEIGHTS[4].0 as usize])
}

/// The modelled device.
struct ModelledBed<'a> {
    machine: ModelledDevice,
    schedule: &'a Schedule,
    /// Seconds since the start.
    clock: f64,
    /// Seconds that the device worked.
    busy: f64,
    /// Times at which each compiler thread is free, and at which each kernel is compiled.
    threads: [f64; THREADS],
    made: HashMap<Kernel, f64>,
    waiting: VecDeque<Kernel>,
    asked: f64,
    submits: u64,
    longest: f64,
    /// The kernels that there are, if none is compiled.
    shipped: Option<Shipped>,
}

/// Kernels that ship: these, and a third of all others.
#[derive(Clone)]
struct Shipped(HashSet<Kernel>);

impl Shipped {
    fn has(&self, kernel: &Kernel) -> bool {
        self.0.contains(kernel) || chance(("ships", drawn(kernel))) < 0.3
    }
}

impl<'a> ModelledBed<'a> {
    fn new(case: &'a Scenario) -> ModelledBed<'a> {
        let Scenario { machine, schedule, .. } = case;
        ModelledBed {
            machine: *machine,
            schedule,
            clock: 0.0,
            busy: 0.0,
            threads: [0.0; THREADS],
            made: HashMap::new(),
            waiting: VecDeque::new(),
            asked: 0.0,
            submits: 0,
            longest: 0.0,
            shipped: None,
        }
    }

    /// Seconds of a kernel's compile.
    fn compile(kernel: Kernel) -> f64 {
        0.05 + 0.45 * chance(("compile", drawn(&kernel))).powi(2)
    }

    /// Advances the compiler threads to the clock.
    fn begin_compiles(&mut self) {
        while let Some(thread) = self.threads.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            let start = thread.max(self.asked);
            let Some(kernel) = self.waiting.front().copied().filter(|_| start <= self.clock) else { return };
            self.waiting.pop_front();
            *thread = start + Self::compile(kernel);
            self.made.insert(kernel, *thread);
        }
    }

    /// Seconds of a dispatch that waits for another.
    fn waiting_seconds(&self, kind: PassKind, d: &Dispatch) -> f64 {
        let groups: u32 = d.groups.iter().product();
        self.seconds(kind, d) + f64::from(groups) * self.machine.wait
    }

    /// Seconds of a dispatch that waits for none.
    fn seconds(&self, kind: PassKind, d: &Dispatch) -> f64 {
        let ModelledDevice { memory, matrix, dot, processors, launch, .. } = self.machine;
        let groups: u32 = d.groups.iter().product();
        let busy = f64::from(groups.min(processors)) / f64::from(processors);
        let Some((arithmetic, p)) = d.product else {
            let pass = PassShape::Prefill { rows: kind.rows, depth: depth(self.schedule, kind) };
            let cost = d.steps.clone().map(|at| step_cost(&self.schedule.steps[at], pass));
            let (bytes, operations) = cost.fold((0, 0), |sum, c| (sum.0 + c.bytes(), sum.1 + c.operations));
            return launch + (bytes as f64 / memory + operations as f64 / (0.2 * matrix)) / busy.max(0.1);
        };
        // The pseudo-random efficiencies of a tile in reading and in multiplying.
        let tile = (drawn(&d.kernel), d.groups);
        let [reads, multiplies] = ["reads", "multiplies"].map(|what| 0.6 + 0.38 * chance((what, tile)));
        let rate = match arithmetic {
            Arithmetic::Matrix(Operand::F16) => matrix,
            Arithmetic::Matrix(Operand::S8) => matrix / 1.5,
            Arithmetic::IntegerDot => dot,
            Arithmetic::F32 => dot / 4.0,
        };
        // Matrix units process whole matrices.
        let rows = if matches!(arithmetic, Arithmetic::Matrix(_)) { p.rows.next_multiple_of(16) } else { p.rows };
        let operations = p.operations() * rows as f64 / p.rows as f64;
        let bytes = (d.weights.end - d.weights.start) as f64;
        launch + (bytes / (memory * reads)).max(operations / (rate * multiplies)) / busy
    }
}

impl Testbed for ModelledBed<'_> {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.clock)
    }

    fn ask_for(&mut self, kernels: &[Kernel]) {
        self.begin_compiles();
        self.waiting.clear();
        for kernel in kernels {
            if !self.made.contains_key(kernel) && !self.waiting.contains(kernel) {
                self.waiting.push_back(*kernel);
            }
        }
        self.asked = self.clock;
        self.begin_compiles();
    }

    fn readiness(&mut self, kernels: &[Kernel]) -> Readiness {
        self.begin_compiles();
        if let Some(shipped) = &self.shipped {
            let is_there = kernels.iter().all(|kernel| shipped.has(kernel));
            return if is_there { Readiness::Ready } else { Readiness::LeftOut };
        }
        let of = |k: &Kernel| match self.made.get(k) {
            Some(&at) if at <= self.clock => Readiness::Ready,
            Some(_) => Readiness::NotYet,
            None if self.waiting.contains(k) => Readiness::NotYet,
            None => Readiness::Unasked,
        };
        let all: Vec<Readiness> = kernels.iter().map(of).collect();
        let first = [Readiness::Unasked, Readiness::NotYet].into_iter().find(|r| all.contains(r));
        first.unwrap_or(Readiness::Ready)
    }

    fn wait(&mut self, most: Duration) -> Result<()> {
        self.begin_compiles();
        let next = self.made.values().copied().filter(|&at| at > self.clock).fold(f64::INFINITY, f64::min);
        self.clock = next.min(self.clock + most.as_secs_f64());
        Ok(())
    }

    fn time(&mut self, kind: PassKind, parts: &[&[Dispatch]], _: bool, others: f64) -> Result<Option<f64>> {
        let kernels: Vec<Kernel> = parts.iter().flat_map(|p| p.iter().map(|d| d.kernel)).collect();
        let missing: Vec<Kernel> = kernels.into_iter().filter(|k| !self.made.contains_key(k)).collect();
        if self.shipped.is_some() {
            assert_eq!(self.readiness(&missing), Readiness::Ready, "a kernel that is not there is timed");
        } else if !missing.is_empty() {
            self.ask_for(&missing);
        }
        while self.readiness(&missing) != Readiness::Ready {
            self.wait(Duration::from_secs(1))?;
        }
        let mut dispatches = parts.iter().flat_map(|p| p.iter());
        let first = dispatches.next().map_or(0.0, |d| self.seconds(kind, d));
        let seconds = first + dispatches.map(|d| self.waiting_seconds(kind, d)).sum::<f64>();
        self.longest = self.longest.max(seconds);
        let run = || {
            self.submits += 1;
            let seconds = seconds * (1.0 + 0.004 * chance(self.submits));
            self.busy += seconds;
            self.clock += seconds + SUBMIT;
            Ok(seconds)
        };
        fastest_of(others, run).map(Some)
    }

    fn take_timeout(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// The formats of 27B in llama.cpp's Q4_K_M: six bits for V and down of half of the layers, and for the embedding.
fn q4_k_m(shape: &Shape) -> impl Fn(TensorId) -> WeightFormat + use<> {
    let layers = shape.layers.len();
    move |id| match id {
        TensorId::Layer(i, Role::V | Role::Down)
            if i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2 =>
        {
            WeightFormat::Blocks(BlockFormat::Q6K)
        }
        TensorId::Embedding | TensorId::Head => WeightFormat::Blocks(BlockFormat::Q6K),
        _ => WeightFormat::Blocks(BlockFormat::Q4K),
    }
}

/// 27B on the modelled device.
struct Scenario {
    machine: ModelledDevice,
    schedule: Schedule,
    layout: GpuLayout,
    addresses: Addresses,
    kinds: Vec<PassKind>,
}

/// The flag that ends a call of tuning early, and its progress callback.
type Rest = (Cancel, Box<dyn FnMut(usize, f64)>);

impl Scenario {
    fn new(machine: ModelledDevice, sequences: usize, formats: impl Fn(TensorId) -> WeightFormat) -> Scenario {
        let shape = presets::preset("gemma3-27b").unwrap();
        let kv = KvType::F16;
        let extent = Extent { context: 4096, max_rows: 512, head_rows: sequences, sequences, kv, kv_tokens: None };
        let schedule = Schedule::build(&shape, extent, formats);
        let layout = GpuLayout::new(&schedule);
        let weights = (1..).map(|i| i << 36).take(schedule.weights.buffers.len()).collect();
        let kinds = tuned_kinds(&schedule.extent).collect();
        Scenario { machine, addresses: Addresses::new(1 << 33, weights), schedule, layout, kinds }
    }

    fn target(&self) -> Target {
        let ModelledDevice { name, units, .. } = self.machine;
        Target { figures: Figures::named(name), ..Target::new(units.subgroup, true, Some(units)) }
    }

    fn tuner<'a>(
        &'a self,
        tuning: &'a mut Tuning,
        bed: &'a mut dyn Testbed,
        allowance: Allowance,
        rest: &'a mut Rest,
    ) -> Tuner<'a> {
        Tuner {
            tuning,
            bed,
            schedule: &self.schedule,
            layout: &self.layout,
            addresses: &self.addresses,
            kinds: &self.kinds,
            submit_budget: SUBMIT_BUDGET,
            tries_relay: false,
            allowance,
            cancel: &rest.0,
            progress: &mut *rest.1,
        }
    }

    /// The kernels of all tuned kinds of pass.
    fn kernels(&self, target: &Target) -> HashSet<Kernel> {
        let of = |&kind: &PassKind| {
            let lowering =
                Lowering { schedule: &self.schedule, layout: &self.layout, addresses: &self.addresses, target, kind };
            self.schedule.segments().flat_map(move |s| lowering.segment(s)).map(|d| d.kernel).collect::<Vec<_>>()
        };
        self.kinds.iter().flat_map(of).collect()
    }

    /// Seconds of a pass on the modelled device with the chosen tiles, and with the best tile for each product.
    fn pass(&self, bed: &ModelledBed, target: &Target, kind: PassKind) -> (f64, f64) {
        let of = |target: &Target| -> Vec<Dispatch> {
            let lowering =
                Lowering { schedule: &self.schedule, layout: &self.layout, addresses: &self.addresses, target, kind };
            self.schedule.segments().flat_map(|s| lowering.segment(s)).collect()
        };
        let own = of(target);
        let seconds: f64 = own.iter().map(|d| bed.waiting_seconds(kind, d)).sum();
        let mut best: HashMap<TileKey, f64> = HashMap::new();
        for d in &own {
            let Some(key) = d.product else { continue };
            best.entry(key).or_insert_with(|| {
                let mut tried = target.clone();
                let tiles = target.tiles(key.0, key.1).into_iter().map(|tile| {
                    tried.tuned.insert(key, tile);
                    let d = of(&tried).into_iter().find(|d| d.product == Some(key)).unwrap();
                    bed.waiting_seconds(kind, &d)
                });
                tiles.fold(f64::INFINITY, f64::min)
            });
        }
        let least = own.iter().map(|d| d.product.map_or_else(|| bed.waiting_seconds(kind, d), |key| best[&key])).sum();
        (seconds, least)
    }

    /// Seconds of the head in its chosen tile, and in the best one.
    fn head(&self, bed: &ModelledBed, target: &Target, kind: PassKind) -> (f64, f64) {
        let seconds = |target: &Target| {
            let lowering =
                Lowering { schedule: &self.schedule, layout: &self.layout, addresses: &self.addresses, target, kind };
            let product = lowering.segment(Segment::Head).into_iter().find(|d| d.product.is_some()).unwrap();
            (product.product.unwrap(), bed.waiting_seconds(kind, &product))
        };
        let (key, own) = seconds(target);
        let mut tried = target.clone();
        let tiles = target.tiles(key.0, key.1).into_iter().map(|tile| {
            tried.tuned.insert(key, tile);
            seconds(&tried).1
        });
        (own, tiles.fold(f64::INFINITY, f64::min))
    }
}

fn rest() -> Rest {
    (Cancel::default(), Box::new(|_, _| {}))
}

/// The cases: 27B in INT8 and as llama.cpp's Q4_K_M, for one sequence, on a 780M.
fn cases() -> [(&'static str, Scenario); 2] {
    let mixed = q4_k_m(&presets::preset("gemma3-27b").unwrap());
    [("INT8", Scenario::new(RADEON_780M, 1, |_| WeightFormat::Int8)), ("Q4_K_M", Scenario::new(RADEON_780M, 1, mixed))]
}

/// Checks that each kind's pass with the chosen tiles takes at most `most` times its time with the best tiles.
fn check_passes(case: &Scenario, bed: &ModelledBed, target: &Target, most: f64) {
    for &kind in &case.kinds {
        let (seconds, best) = case.pass(bed, target, kind);
        assert!(seconds <= most * best, "{kind}: {:.1} ms, and {:.1} at best", seconds * 1e3, best * 1e3);
    }
}

/// Earlier tuning, which measured everything while the model loaded, took 73.1 s and 70.4 s.
#[test]
fn all_of_27b_is_tuned_within_ninety_seconds_and_the_time_is_known_beforehand() {
    for (name, case) in cases() {
        let (mut bed, mut tuning, mut rest) = (ModelledBed::new(&case), Tuning::new(Choices::unkept()), rest());
        let mut target = case.target();
        let mut tuner = case.tuner(&mut tuning, &mut bed, Allowance::ALL, &mut rest);
        tuner.recall(&mut target);
        let open = tuner.open(&target);
        let estimate = tuner.expected_seconds(&target, &open);
        assert_eq!(tuner.advance(&mut target).unwrap(), Advance::Done);
        println!("{name}: {:.1} s, of which the device worked {:.1} s; expected {estimate:.1} s", bed.clock, bed.busy);
        assert!(bed.clock <= 90.0, "{name}: {:.1} s", bed.clock);
        assert!((0.5..=2.0).contains(&(estimate / bed.clock)), "{name}: {:.1} s, not {estimate:.1}", bed.clock);
        assert!(bed.longest <= SUBMIT_BUDGET.as_secs_f64(), "{name}: a submit of {:.3} s", bed.longest);
        check_passes(&case, &bed, &target, 1.03);
        assert_eq!(estimate::seconds_on("780m", &case.schedule), Some(estimate), "{name}: what kiln plan says");
    }
}

/// A driver that compiles nothing has some kernels: those of passes without tuning, and a third of the others here. In Q4_K_M
/// a product's kernel differs by layers, whose next products read other forms.
#[test]
fn only_kernels_that_are_there_are_chosen() {
    for (name, case) in cases() {
        let (mut tuning, mut rest, untuned) = (Tuning::new(Choices::unkept()), rest(), case.target());
        let shipped = Shipped(case.kernels(&untuned));
        let mut bed = ModelledBed { shipped: Some(shipped.clone()), ..ModelledBed::new(&case) };
        let mut target = untuned.clone();
        let mut tuner = case.tuner(&mut tuning, &mut bed, Allowance::ALL, &mut rest);
        tuner.recall(&mut target);
        assert_eq!(tuner.advance(&mut target).unwrap(), Advance::Done);
        let lacked = case.kernels(&target).into_iter().find(|kernel| !shipped.has(kernel));
        assert_eq!(lacked, None, "{name}");
        let one = case.kinds[0];
        let [before, after] = [&untuned, &target].map(|target| case.pass(&bed, target, one).0);
        println!("{name}: {:.1} ms, untuned {:.1} ms", after * 1e3, before * 1e3);
        assert!(after < before, "{name}: there is something to choose");
    }
}

/// On a fast device most of the time is spent on compiling and on the host's part of each measurement.
#[test]
fn a_fast_device_is_tuned_within_forty_seconds() {
    for sequences in [1, 32] {
        let case = Scenario::new(H100, sequences, |_| WeightFormat::Int8);
        let (mut bed, mut tuning, mut rest) = (ModelledBed::new(&case), Tuning::new(Choices::unkept()), rest());
        let mut target = case.target();
        let mut tuner = case.tuner(&mut tuning, &mut bed, Allowance::ALL, &mut rest);
        tuner.recall(&mut target);
        let kernels = case.kernels(&target).len();
        let mut tuner = case.tuner(&mut tuning, &mut bed, Allowance::ALL, &mut rest);
        assert_eq!(tuner.advance(&mut target).unwrap(), Advance::Done);
        println!(
            "{sequences} sequences: {:.1} s, of which the device worked {:.1} s; {kernels} kernels without tuning, {} with it, \
             {} measurements",
            bed.clock,
            bed.busy,
            bed.made.len(),
            tuning.measurements(),
        );
        assert!(bed.clock <= 40.0, "{:.1} s", bed.clock);
        // The head's one dispatch is measured with a dispatch to wait for: a tile of many workgroups is only better
        // without one.
        let (head, best) = case.head(&bed, &target, case.kinds[0]);
        println!("the head takes {:.1} us, and {:.1} at best", head * 1e6, best * 1e6);
        assert!(head <= 1.02 * best, "the head takes {:.1} us, and {:.1} at best", head * 1e6, best * 1e6);
        assert!(kernels <= 150, "{kernels} kernels");
    }
}

/// The defaults of a kind of device apply until something is measured, the gated GELU included: 64 rows whose products
/// compute it take 1.5 times as long on an H100.
#[test]
fn passes_begin_with_what_is_usual_on_the_device() {
    for (format, most) in [(WeightFormat::Int8, 32), (WeightFormat::Int4, 16)] {
        let case = Scenario::new(H100, 1, |_| format);
        let (mut bed, mut tuning, mut rest) = (ModelledBed::new(&case), Tuning::new(Choices::unkept()), rest());
        let mut target = case.target();
        case.tuner(&mut tuning, &mut bed, Allowance::ALL, &mut rest).recall(&mut target);
        for rows in [8, 16, 32, 64] {
            assert_eq!(target.gated.get(&rows), Some(&(rows <= most)), "{format:?}, {rows} rows");
        }
    }
}

/// Tuning takes seconds before the first token, compiling included. Then it continues in slices, until everything is
/// measured that runs without attention. Its results are no worse.
#[test]
fn tuning_begins_for_three_seconds_and_goes_on_in_slices() {
    for (name, case) in cases() {
        let (mut bed, mut tuning, mut rest) = (ModelledBed::new(&case), Tuning::new(Choices::unkept()), rest());
        let mut target = case.target();
        let first = Allowance::until(Duration::from_secs(3));
        let mut tuner = case.tuner(&mut tuning, &mut bed, first, &mut rest);
        tuner.recall(&mut target);
        let (one, untuned) = (case.kinds[0], target.clone());
        assert_eq!(tuner.advance(&mut target).unwrap(), Advance::Paused);
        assert!(bed.clock <= 3.1, "{name}: {:.2} s", bed.clock);
        let [before, after] = [&untuned, &target].map(|target| case.pass(&bed, target, one).0);
        println!("{name}: one row took {:.1} ms, after three seconds {:.1} ms", before * 1e3, after * 1e3);
        assert!(after < before, "{name}: one row comes first");

        let (mut slices, mut longest) = (0, 0.0f64);
        loop {
            let busy = bed.busy;
            let mut tuner = case.tuner(&mut tuning, &mut bed, Allowance::ONE, &mut rest);
            if tuner.advance(&mut target).unwrap() == Advance::Done {
                break;
            }
            let busy = bed.busy - busy;
            (slices, longest) = (slices + usize::from(busy > 0.0), longest.max(busy));
            bed.wait(Duration::from_millis(20)).unwrap();
        }
        println!("{name}: {slices} slices, the longest of {:.0} ms", longest * 1e3);
        assert!(slices > 100 && longest <= 0.15, "{name}: {slices} slices, the longest of {longest:.3} s");
        check_passes(&case, &bed, &target, 1.06);
    }
}

/// A user who makes one request per load gives tuning three seconds per load. Measurements of earlier loads are not
/// repeated, so that tuning ends.
#[test]
fn loads_of_three_seconds_each_come_to_an_end() {
    let [(_, case), _] = cases();
    let (mut choices, mut rest) = (Choices::unkept(), rest());
    let (mut loads, mut compiled) = (0, HashMap::new());
    loop {
        let (mut bed, mut tuning) = (ModelledBed::new(&case), Tuning::new(choices));
        let mut target = case.target();
        bed.made = std::mem::take(&mut compiled);
        let mut tuner = case.tuner(&mut tuning, &mut bed, Allowance::until(Duration::from_secs(3)), &mut rest);
        tuner.recall(&mut target);
        let advance = tuner.advance(&mut target).unwrap();
        choices = tuning.into_choices();
        compiled = bed.made.keys().map(|&kernel| (kernel, 0.0)).collect();
        loads += 1;
        assert!(bed.clock <= 3.1, "{:.2} s", bed.clock);
        if advance == Advance::Done {
            check_passes(&case, &bed, &target, 1.06);
            break;
        }
        assert!(loads < 60, "no end comes");
    }
    println!("{loads} loads");
}
