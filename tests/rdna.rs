//! RADV's code of Kiln's kernels for gfx1103, gfx1150 and gfx1151, executed: replay itself runs whole passes of small models on a driver
//! that interprets that code (tests/gfx11/), beside the golden logits and the reference. A fault that the interpreter finds ends the
//! test: a wait that is missing, a cache that is stale, a byte that nothing wrote, two dispatches that use one place with no
//! edge between.
//!
//! The same passes run through the product's own driver, src/amdgpu, on a fake render node (rdna/node.rs): rdna/pm4.rs reads
//! the packets, strictly, and rdna/differences.rs compares them with RADV's.
//!
//! Each test runs in a child process on Mesa's driver, which compiles without the hardware (`tools/fetch-mesa`). What takes
//! minutes is run by `tools/test --full`.

mod common;

#[path = "rdna/broken.rs"]
mod broken;
#[path = "rdna/code.rs"]
mod code;
#[path = "rdna/costs.rs"]
mod costs;
#[path = "rdna/device.rs"]
mod device;
#[path = "rdna/differences.rs"]
mod differences;
#[path = "rdna/driver.rs"]
mod driver;
#[path = "rdna/host.rs"]
mod host;
#[path = "rdna/node.rs"]
mod node;
#[path = "rdna/packets.rs"]
mod packets;
#[path = "rdna/pm4.rs"]
mod pm4;
#[path = "common/radv.rs"]
mod radv;

use code::Compiler;
use common::check::{
    F16_DEEP, F16_EXPERTS, F16_GEMMA4, F16_SHALLOW, F32_DEEP, F32_GEMMA4, F32_SHALLOW, check_drafts, check_prompt,
};
use common::gguf::random_model;
use common::{AUTO, Case, DOT, F32, MATRIX_F16, MATRIX_S8, floats, golden, golden_dir, ids, observe, relative_rms};
use driver::{Interpreter, Watch};
use gfx11::machine::Config;
use kiln::engine::{ReplayOptions, Tune};
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, ExecutorExt, HeadRows, Row};
use kiln::model::checkpoint::Checkpoint;
use kiln::model::{BlockFormat, LayerKind, Shape, WeightFormat};
use kiln::schedule::choice::SampleRequest;
use kiln::schedule::{Extent, KvType, Schedule};
use kiln::sequence::session::Session;
use kiln::testing::diagnose::compare::{Compared, HEAD_ROWS, compare, passes};
use kiln::testing::lower::arithmetic::Arithmetic;
use kiln::testing::lower::kernels::{Kernel, Module};
use kiln::testing::lower::target::{DotTile, Tile};
use kiln::testing::machine::heaps::{DeviceMemory, Heap};
use kiln::testing::plan::{Needs, Plan};
use kiln::testing::reference::Reference;
use kiln::testing::replay::Replay;
use kiln::testing::replay::driver::{Driver, MemorySource};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Set in the child process.
const CHILD: &str = "KILN_TEST_RDNA_CHILD";

type Shared = Rc<RefCell<Compiler>>;

/// The chips whose code runs here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chip {
    Gfx1103,
    /// RDNA 3.5: arithmetic of floats on scalar registers.
    Gfx1150,
    /// The same, with registers for half as many waves more.
    Gfx1151,
}

impl Chip {
    fn name(self) -> &'static str {
        match self {
            Chip::Gfx1103 => "gfx1103",
            Chip::Gfx1150 => "gfx1150",
            Chip::Gfx1151 => "gfx1151",
        }
    }

    /// The chip as the product knows it.
    fn code(self) -> kiln::testing::amdgpu::code::Chip {
        use kiln::testing::amdgpu::code::Chip as Code;
        match self {
            Chip::Gfx1103 => Code::Gfx1103,
            Chip::Gfx1150 => Code::Gfx1150,
            Chip::Gfx1151 => Code::Gfx1151,
        }
    }

    /// Shader engines.
    fn engines(self) -> u32 {
        match self {
            Chip::Gfx1103 | Chip::Gfx1150 => 1,
            Chip::Gfx1151 => 2,
        }
    }

    /// A part of the name of the device that RADV then shows.
    fn device(self) -> &'static str {
        match self {
            Chip::Gfx1103 => "PHOENIX",
            Chip::Gfx1150 => "GFX1150",
            Chip::Gfx1151 => "GFX1151",
        }
    }

    fn config(self, seed: u64) -> Config {
        match self {
            Chip::Gfx1103 => Config::gfx1103(seed),
            Chip::Gfx1150 => Config::gfx1150(seed),
            Chip::Gfx1151 => Config::gfx1151(seed),
        }
    }
}

/// Runs `body` in a child process on RADV for a chip.
fn on_chip(chip: Chip, test: &str, body: impl FnOnce(&Shared)) {
    if std::env::var_os(CHILD).is_some() {
        let start = Instant::now();
        body(&Rc::new(RefCell::new(Compiler::new(chip))));
        println!("{:.1} s", start.elapsed().as_secs_f64());
    } else if !radv::is_missing() {
        println!("{}", radv::run(test, chip.name(), &[(CHILD, Path::new("1"))]));
    }
}

/// The same for gfx1103.
fn on_radv(test: &str, body: impl FnOnce(&Shared)) {
    on_chip(Chip::Gfx1103, test, body);
}

/// What a model is loaded as.
#[derive(Debug, Clone, Copy)]
struct Setup {
    weights: WeightFormat,
    arithmetic: Option<Arithmetic>,
    kv: KvType,
    context: usize,
    chunk: usize,
    sequences: usize,
    head_rows: usize,
    tile: Option<Tile>,
    relay: bool,
    /// Relayed dispatches start behind each other, as they do on AMD.
    behind: bool,
    seed: u64,
    /// The arena's memory.
    arena: MemorySource,
}

/// The interpreter's memory.
fn memory() -> DeviceMemory {
    let heap = Heap { name: "memory".into(), available: 8 << 30, reserved: 0, device_local: true, host_visible: true };
    let (device, max_allocation) = ("interpreter".into(), 4 << 30);
    DeviceMemory { device, heaps: vec![heap], max_allocation, unified: true, pool: None }
}

/// INT8 as the product chooses its kernels.
const INT8: Setup = Setup {
    weights: WeightFormat::Int8,
    arithmetic: AUTO,
    kv: KvType::F16,
    context: 160,
    chunk: 160,
    sequences: 1,
    head_rows: 8,
    tile: None,
    relay: false,
    behind: false,
    seed: 1,
    arena: MemorySource::Ordinary,
};

impl Setup {
    fn extent(&self, kv: KvType) -> Extent {
        let Setup { context, chunk, sequences, head_rows, .. } = *self;
        let max_rows = chunk.max(sequences);
        Extent { context, max_rows, head_rows: head_rows.min(max_rows), sequences, kv, kv_tokens: None }
    }

    /// Loads a model onto the interpreter.
    fn load(&self, compiler: &Shared, checkpoint: &Checkpoint) -> (Replay<Interpreter>, Rc<Watch>) {
        let driver = Interpreter::new(compiler, self.seed, self.relay, self.behind);
        let watch = driver.watch();
        (self.load_on(driver, &memory(), checkpoint), watch)
    }

    /// With room for the rows of many sequences.
    fn of_rows(self) -> Setup {
        Setup { chunk: 64, sequences: 32, head_rows: 32, ..self }
    }

    /// Loads a model onto a driver with memory.
    fn load_on<D: Driver>(&self, driver: D, memory: &DeviceMemory, checkpoint: &Checkpoint) -> Replay<D> {
        self.try_load_on(driver, memory, checkpoint).unwrap_or_else(|e| panic!("{e}"))
    }

    fn try_load_on<D: Driver>(
        &self,
        driver: D,
        memory: &DeviceMemory,
        checkpoint: &Checkpoint,
    ) -> kiln::Result<Replay<D>> {
        let extent = self.extent(self.kv);
        let formats = checkpoint.drafter().map(|drafter| (drafter.shape(), drafter.formats(self.weights)));
        let drafter = formats.as_ref().map(|(shape, formats)| (*shape, formats as &dyn Fn(_) -> _));
        let of = checkpoint.formats(self.weights);
        let schedule = Schedule::build_with(checkpoint.shape(), extent, of, drafter);
        let plan = Plan::place(&schedule, memory, Needs::on_device(&schedule, false)).unwrap();
        let options = ReplayOptions {
            arithmetic: self.arithmetic,
            tile: self.tile,
            relay: Some(self.relay),
            tune: Some(Tune::Off),
            arena: self.arena,
            ..ReplayOptions::default()
        };
        Replay::load(None, driver, checkpoint, schedule, &plan, options, &Progress::default())
    }

    /// The same on the reference executor.
    fn reference(&self, checkpoint: &Checkpoint) -> Reference {
        let formats = checkpoint.formats(self.weights);
        let schedule = Schedule::build(checkpoint.shape(), self.extent(KvType::F32), formats);
        Reference::load(checkpoint, schedule, &Progress::default()).unwrap()
    }

    /// Runs a prompt of a golden case, and the tokens that follow it.
    fn check(&self, compiler: &Shared, name: &'static str, prompt: &str) {
        let (mut replay, watch) = self.load(compiler, &Checkpoint::open(&golden_dir(name)).unwrap());
        self.check_on(&mut replay, &watch, name, prompt);
    }

    fn check_on<D: Driver>(&self, replay: &mut Replay<D>, watch: &Watch, name: &'static str, prompt: &str) {
        let (case, start) = (Case::open(name), Instant::now());
        let is_exact = self.arithmetic == F32 && self.kv == KvType::F32;
        let tolerance = match (is_exact, name) {
            (true, "tiny4" | "wide4" | "moe4" | "moe_wide4") => F32_GEMMA4,
            (false, "tiny4") => F16_GEMMA4,
            (false, "moe4" | "moe_wide4") => F16_EXPERTS,
            (true, "deep62") => F32_DEEP,
            (false, "deep62") => F16_DEEP,
            (true, _) => F32_SHALLOW,
            (false, _) => F16_SHALLOW,
        };
        check_prompt(&case, replay, case.prompt(prompt), self.weights, tolerance, &format!("{self:?}"));
        println!("{} instructions, {:.1} s", watch.steps.get(), start.elapsed().as_secs_f64());
    }
}

/// What the product chooses, in chunks of every size of kernel; then each arithmetic that it may choose.
const RUNS: [(&str, &str, Setup); 9] = [
    ("tiny", "len100", INT8),
    ("tiny", "len33", Setup { chunk: 16, ..INT8 }),
    ("tiny", "len16", Setup { chunk: 7, seed: 2, ..INT8 }),
    ("tiny", "len17", Setup { chunk: 1, ..INT8 }),
    ("wide_small", "len33", INT8),
    ("tiny", "len17", Setup { arithmetic: F32, kv: KvType::F32, chunk: 7, ..INT8 }),
    ("tiny", "len17", Setup { arithmetic: DOT, chunk: 7, ..INT8 }),
    ("tiny", "len17", Setup { weights: WeightFormat::Bf16, arithmetic: F32, kv: KvType::F32, ..INT8 }),
    ("wide_small", "len7", Setup { weights: WeightFormat::Bf16, ..INT8 }),
];

#[test]
fn passes_have_the_golden_logits() {
    on_radv("passes_have_the_golden_logits", |compiler| {
        RUNS.into_iter().for_each(|(name, prompt, setup)| setup.check(compiler, name, prompt));
    });
}

/// As above, in chunks of each size of kernel and relayed: the compiler's code for RDNA 3.5 is other code.
#[test]
#[ignore = "a minute long: tools/test --full runs it"]
fn passes_on_gfx1151_have_the_golden_logits() {
    on_chip(Chip::Gfx1151, "passes_on_gfx1151_have_the_golden_logits", |compiler| {
        for (prompt, setup) in [
            ("len33", INT8),
            ("len16", Setup { chunk: 7, seed: 2, ..INT8 }),
            ("len17", Setup { chunk: 1, relay: true, ..INT8 }),
            ("len17", Setup { arithmetic: F32, kv: KvType::F32, chunk: 7, ..INT8 }),
        ] {
            setup.check(compiler, "tiny", prompt);
        }
        // Not gfx1103's code by another name.
        let is_scalar = |name: &str| name.starts_with("s_") && name.ends_with("_f32");
        let count = |kernel| {
            compiler.borrow_mut().get(kernel).program.ready.iter().filter(|r| is_scalar(r.inst.opcode.name)).count()
        };
        let kernels = compiler.borrow().kernels();
        let floats: usize = kernels.into_iter().map(count).sum();
        assert!(floats > 20, "{floats} instructions of floats on scalar registers");
    });
}

/// Gemma 4's heads of two widths, and its drafter.
fn check_gemma4(compiler: &Shared) {
    for (name, prompt, setup) in [
        ("tiny4", "len33", INT8),
        ("tiny4", "len17", Setup { chunk: 7, arithmetic: F32, kv: KvType::F32, ..INT8 }),
        ("tiny4", "len16", Setup { chunk: 1, ..INT8 }),
        ("wide4", "len33", INT8),
        ("wide4", "len7", Setup { chunk: 1, arithmetic: DOT, ..INT8 }),
    ] {
        setup.check(compiler, name, prompt);
    }
    let model = with_drafter();
    for (setup, tolerance) in
        [(INT8, 0.03), (Setup { arithmetic: F32, kv: KvType::F32, weights: WeightFormat::Bf16, ..INT8 }, 1e-4)]
    {
        let setup = Setup { sequences: 6, ..setup };
        check_drafts(&mut setup.load(compiler, &model).0, setup.weights, tolerance, &format!("{setup:?}"));
    }
}

/// Gemma 4's model with its drafter.
fn with_drafter() -> Checkpoint {
    let drafter = Checkpoint::open(&golden("drafter4")).unwrap();
    Checkpoint::open(&golden("tiny4")).unwrap().with_drafter(drafter).unwrap()
}

/// A mixture of experts: expert rows in the pass's order, and by expert, with few rows of an expert and with many.
fn check_experts(compiler: &Shared) {
    for (name, prompt, setup) in [
        ("moe4", "len100", INT8),
        ("moe4", "len33", Setup { chunk: 16, ..INT8 }),
        ("moe4", "len17", Setup { chunk: 7, arithmetic: F32, kv: KvType::F32, ..INT8 }),
        ("moe4", "len16", Setup { chunk: 1, ..INT8 }),
        ("moe_wide4", "len33", INT8),
        ("moe_wide4", "len7", Setup { chunk: 1, arithmetic: DOT, ..INT8 }),
    ] {
        setup.check(compiler, name, prompt);
    }
}

#[test]
fn experts_have_the_golden_logits() {
    on_radv("experts_have_the_golden_logits", check_experts);
}

#[test]
#[ignore = "a minute long: tools/test --full runs it"]
fn experts_on_gfx1151_have_the_golden_logits() {
    on_chip(Chip::Gfx1151, "experts_on_gfx1151_have_the_golden_logits", check_experts);
}

#[test]
#[ignore = "minutes long, and the driver's passes show it: tools/test --full runs it"]
fn gemma_4_has_the_golden_logits() {
    on_radv("gemma_4_has_the_golden_logits", check_gemma4);
}

#[test]
#[ignore = "a minute long: tools/test --full runs it"]
fn gemma_4_on_gfx1151_has_the_golden_logits() {
    on_chip(Chip::Gfx1151, "gemma_4_on_gfx1151_has_the_golden_logits", check_gemma4);
}

/// Takes ten minutes.
#[test]
#[ignore]
fn passes_of_every_arithmetic_have_the_golden_logits() {
    on_radv("passes_of_every_arithmetic_have_the_golden_logits", |compiler| {
        for name in ["tiny", "wide_small"] {
            for weights in [WeightFormat::Int8, WeightFormat::Bf16] {
                for arithmetic in [AUTO, F32, DOT, MATRIX_F16, MATRIX_S8] {
                    for (kv, chunk) in [(KvType::F16, 160), (KvType::F32, 16), (KvType::F16, 7), (KvType::F32, 1)] {
                        for seed in [1, 7] {
                            let setup = Setup { weights, arithmetic, kv, chunk, seed, ..INT8 };
                            setup.check(compiler, name, "len33");
                        }
                    }
                }
            }
        }
    });
}

/// Runs a pass of many rows and one of a row step by step, beside the reference.
fn check_steps(compiler: &Shared, setup: Setup) {
    let setup = Setup { context: 64, chunk: 32, head_rows: HEAD_ROWS, ..setup };
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let tokens: Vec<u32> = (0..28).map(|i| (2 + 37 * i * i) % 512).collect();
    let (mut replay, _) = setup.load(compiler, &checkpoint);
    let mut steps = 0;
    let seen = &mut |compared: Compared| {
        steps += 1;
        assert!(!compared.differs(), "{setup:?}: {compared:?}");
        ControlFlow::Continue(())
    };
    let passes = passes(&tokens, 32, HEAD_ROWS);
    compare([&mut setup.reference(&checkpoint), &mut replay], &passes, 1.0, seen).unwrap();
    assert!(steps > 100, "{steps}");
}

#[test]
fn steps_compute_what_the_reference_does() {
    on_radv("steps_compute_what_the_reference_does", |compiler| {
        check_steps(compiler, INT8);
        check_steps(compiler, Setup { arithmetic: DOT, kv: KvType::F32, ..INT8 });
        check_steps(compiler, Setup { arithmetic: MATRIX_S8, ..INT8 });
        check_steps(compiler, Setup { weights: WeightFormat::Int4, ..INT8 });
        check_steps(compiler, Setup { weights: WeightFormat::Bf16, ..INT8 });
    });
}

/// Takes four minutes.
#[test]
#[ignore]
fn steps_of_every_arithmetic_compute_what_the_reference_does() {
    on_radv("steps_of_every_arithmetic_compute_what_the_reference_does", |compiler| {
        for weights in [WeightFormat::Int8, WeightFormat::Bf16, WeightFormat::Int4] {
            for arithmetic in [AUTO, F32, DOT, MATRIX_F16, MATRIX_S8] {
                for kv in [KvType::F16, KvType::F32] {
                    check_steps(compiler, Setup { weights, arithmetic, kv, ..INT8 });
                }
            }
        }
    });
}

/// Prompts of eight sequences, passes with a row of each, one with a chunk beside such rows, and one of rows in any order.
fn check_rows(compiler: &Shared, name: &str, setup: Setup) {
    check_rows_of(compiler, &Checkpoint::open(&golden(name)).unwrap(), setup);
}

/// The same of a model.
fn check_rows_of(compiler: &Shared, checkpoint: &Checkpoint, setup: Setup) {
    let setup = setup.of_rows();
    check_rows_on(&mut setup.load(compiler, checkpoint).0, checkpoint, setup);
}

/// The same on a driver.
fn check_rows_on<D: Driver>(replay: &mut Replay<D>, checkpoint: &Checkpoint, setup: Setup) {
    let mut reference = setup.reference(checkpoint);
    let token = |s: usize, p: usize| ((2 + 31 * s + 7 * p * p) % 257) as u32;
    let row = |s: usize, p: usize| Row { token: token(s, p), position: p as u32, sequence: s as u32 };
    let depth = |s: usize| 1 + 5 * s % 40;
    let prompts = (0..8).map(|s| (0..depth(s)).map(|p| row(s, p)).collect::<Vec<_>>());
    let apart = |extra: usize| (0..8).map(|s| row(s, depth(s) + extra)).collect::<Vec<_>>();
    let mixed = (0..20).map(|p| row(8, p)).chain(apart(2)).collect();
    let any = (0..8).flat_map(|s| (3..6).map(move |extra| row(s, depth(s) + extra))).collect();
    for rows in prompts.chain([apart(0), apart(1), mixed, any]) {
        let count = rows.len().min(8);
        let head = Some(HeadRows { first: rows.len() - count, count });
        replay.forward(&rows, head).unwrap_or_else(|e| panic!("{setup:?}: {e}"));
        reference.forward(&rows, head).unwrap();
        for row in 0..count {
            let error = relative_rms(replay.logits(row).unwrap(), reference.logits(row).unwrap());
            assert!(error < 0.015, "{setup:?}: {} rows, head row {row}: {error}", rows.len());
        }
    }
}

#[test]
fn rows_of_several_sequences_have_the_references_logits() {
    on_radv("rows_of_several_sequences_have_the_references_logits", |compiler| {
        check_rows(compiler, "tiny", INT8);
        check_rows(compiler, "tiny", Setup { weights: WeightFormat::Int4, seed: 3, ..INT8 });
    });
}

/// Takes six minutes.
#[test]
#[ignore]
fn rows_of_several_sequences_in_every_arithmetic() {
    on_radv("rows_of_several_sequences_in_every_arithmetic", |compiler| {
        for name in ["tiny", "wide_small"] {
            for weights in [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Bf16] {
                for arithmetic in [AUTO, F32, DOT, MATRIX_F16, MATRIX_S8] {
                    check_rows(compiler, name, Setup { weights, arithmetic, ..INT8 });
                }
            }
        }
    });
}

/// Q4_K, Q6_K, Q5_0, Q8_0 and others in one model.
#[test]
fn a_gguf_model_of_every_type_has_its_golden_logits() {
    on_radv("a_gguf_model_of_every_type_has_its_golden_logits", |compiler| {
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(golden("gguf/golden.json")).unwrap()).unwrap();
        let prompt = ids(&json["prompt"]);
        let want: Vec<f32> = json["logits"].as_array().unwrap().iter().flat_map(floats).collect();
        let checkpoint = Checkpoint::open(&golden("gguf/model.gguf")).unwrap();
        for (arithmetic, tolerance) in [(F32, 2e-5), (DOT, 5e-4), (AUTO, 3e-3), (MATRIX_F16, 3e-3)] {
            for chunk in [1, 4, 64] {
                let (weights, kv) = (WeightFormat::Bf16, KvType::F32);
                let setup = Setup { weights, arithmetic, kv, context: 64, chunk, ..INT8 };
                let (mut replay, _) = setup.load(compiler, &checkpoint);
                let got = observe(&mut replay, &mut Session::new(0, 64), &prompt).logits.concat();
                let error = relative_rms(&got, &want);
                println!("{arithmetic:?}, chunks of {chunk}: {error:.1e}");
                assert!(error < tolerance, "{arithmetic:?}, chunks of {chunk}: {error}");
            }
        }
    });
}

/// A workgroup that makes several outputs one after the other keeps each one's scale: RADV of Mesa 25.0 mixes them up where
/// all of an array is copied to another one that changes later.
#[test]
fn every_way_to_divide_a_product_gives_the_same() {
    on_radv("every_way_to_divide_a_product_gives_the_same", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let tokens = ids(&Case::open("tiny").prompt("len7")["ids"]);
        let tiles = [(1, 4, 1), (1, 8, 1), (2, 4, 2), (2, 16, 2), (4, 4, 2)];
        let weights = [WeightFormat::Int8, WeightFormat::Int4];
        let all = tiles.iter().flat_map(|tile| weights.map(|weights| [1, 2].map(|chunk| (*tile, weights, chunk))));
        // A sample has each tile, both formats and both chunks.
        let step = if common::runs_all() { 1 } else { 3 };
        for ((outputs, subgroups, turns), weights, chunk) in all.flatten().step_by(step) {
            let tile = Some(Tile::Dot(DotTile { outputs, sharers: 32, unroll: 1, subgroups, turns }));
            let setup = Setup { weights, arithmetic: DOT, kv: KvType::F32, chunk, tile, ..INT8 };
            let executors: [&mut dyn Executor; 2] =
                [&mut setup.load(compiler, &checkpoint).0, &mut setup.reference(&checkpoint)];
            let [got, want] = executors.map(|executor| {
                Session::new(0, 160).prefill(executor, &tokens).unwrap();
                executor.logits(0).unwrap().to_vec()
            });
            let error = relative_rms(&got, &want);
            assert!(error < 1e-3, "{setup:?}: {error}");
        }
    });
}

/// Dispatches that start beside those whose results they need: no barrier between, and loads past the caches. Then the same
/// behind each other.
#[test]
fn relayed_passes_have_the_golden_logits() {
    on_radv("relayed_passes_have_the_golden_logits", |compiler| {
        for (chunk, seed) in [(160, 1), (7, 2), (1, 3)] {
            let setup = Setup { relay: true, chunk, seed, ..INT8 };
            setup.check(compiler, "tiny", "len17");
            let (mut replay, watch) = setup.load(compiler, &Checkpoint::open(&golden("tiny")).unwrap());
            let rows = [Row { token: 5, position: 0, sequence: 0 }];
            // The second pass is one submit.
            for _ in 0..2 {
                replay.forward(&rows, Some(HeadRows { first: 0, count: 1 })).unwrap_or_else(|e| panic!("{e}"));
            }
            assert!(watch.most_beside.get() > 20, "{} dispatches beside each other", watch.most_beside.get());
            // Behind each other, as they are on AMD.
            Setup { behind: true, ..setup }.check(compiler, "tiny", "len17");
        }
    });
}

/// Takes five minutes.
#[test]
#[ignore]
fn relayed_passes_of_every_arithmetic_have_the_golden_logits() {
    on_radv("relayed_passes_of_every_arithmetic_have_the_golden_logits", |compiler| {
        for (name, prompt) in [("tiny", "len33"), ("wide_small", "len33")] {
            for arithmetic in [AUTO, F32, DOT, MATRIX_F16, MATRIX_S8] {
                for (chunk, seed) in [(160, 1), (7, 2), (1, 3)] {
                    Setup { arithmetic, relay: true, chunk, seed, ..INT8 }.check(compiler, name, prompt);
                }
            }
        }
    });
}

/// Passes that start before the host has seen what those before them chose.
#[test]
fn passes_submitted_ahead_choose_what_others_do() {
    on_radv("passes_submitted_ahead_choose_what_others_do", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        check_ahead::<Interpreter>(|setup, check| check(&mut setup.load(compiler, &checkpoint).0));
    });
}

/// Compares passes that start ahead with others. `with` loads a model, and calls with it.
fn check_ahead<D: Driver>(with: impl Fn(Setup, &mut dyn FnMut(&mut Replay<D>))) {
    let run = |is_ahead: bool| {
        let (mut tokens, mut ahead) = (Vec::new(), 0);
        with(Setup { sequences: 4, chunk: 8, ..INT8 }, &mut |replay| {
            let mut rows: Vec<Row> = (0..4).map(|s| Row { token: 7 + 50 * s, position: 0, sequence: s }).collect();
            let head = HeadRows { first: 0, count: 4 };
            for _ in 0..6 {
                let ran = match is_ahead {
                    true => replay.forward_ahead(&rows, head),
                    false => replay.forward(&rows, Some(head)).map(|()| false),
                };
                ahead += usize::from(ran.unwrap_or_else(|e| panic!("{e}")));
                for (i, row) in rows.iter_mut().enumerate() {
                    (row.token, row.position) = (replay.next(i), row.position + 1);
                    tokens.push(row.token);
                }
            }
        });
        (tokens, ahead)
    };
    let ((with, ahead), (without, none)) = (run(true), run(false));
    assert_eq!((with, none), (without, 0));
    assert!(ahead >= 3, "{ahead} passes ran ahead");
}

/// Three layers of deep62's shape, four times as wide, since its rows are no whole blocks of such types; with heads of so many
/// elements.
fn deep3(head_dim: usize) -> Shape {
    let deep = Checkpoint::open(&golden("deep62")).unwrap().shape().clone();
    let (heads, kv_heads) = (deep.local.heads, deep.local.kv_heads);
    Shape {
        hidden: 4 * deep.hidden,
        ffn: 4 * deep.ffn,
        layers: vec![LayerKind::Local, LayerKind::Local, LayerKind::Global],
        ..deep.with_heads(heads, kv_heads, head_dim)
    }
}

/// Prompts, single rows and rows of several sequences of three deep layers in the usual types of GGUF files.
#[test]
fn three_deep_layers_in_q4_k_and_q6_k_have_the_references_logits() {
    on_radv("three_deep_layers_in_q4_k_and_q6_k_have_the_references_logits", |compiler| {
        // Of heads as wide as 256, attention of many rows leaves its queries in shared memory.
        for (format, head_dim, seed) in [(BlockFormat::Q4K, 256, 5), (BlockFormat::Q6K, 64, 6)] {
            let (_dir, path) = random_model(&deep3(head_dim), 0x6767_0041 + seed, |_| format);
            check_rows_of(compiler, &Checkpoint::open(&path).unwrap(), Setup { seed, ..INT8 });
        }
        let is_it = |k: &Kernel| k.module == Module::AttendMatrixReloadF16;
        assert!(compiler.borrow().kernels().iter().any(is_it), "no queries in shared memory");
    });
}

/// All of deep62, in INT8.
#[test]
fn all_layers_of_deep62_have_the_golden_logits() {
    on_radv("all_layers_of_deep62_have_the_golden_logits", |compiler| {
        let setup = Setup { chunk: 16, ..INT8 };
        setup.check(compiler, "deep62", "len33");
    });
}

/// What a pass finds in the logits for a choice is in the logits.
#[test]
fn what_a_pass_finds_is_in_its_logits() {
    on_radv("what_a_pass_finds_is_in_its_logits", |compiler| {
        let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
        let (mut replay, _) = Setup { sequences: 4, chunk: 8, ..INT8 }.load(compiler, &checkpoint);
        let rows: Vec<Row> = (0..4).map(|s| Row { token: 7 + 50 * s, position: 0, sequence: s }).collect();
        let allowed: Vec<u32> = vec![0x1111_1111; checkpoint.shape().vocab.div_ceil(32)];
        let is_allowed = |id: usize| id.is_multiple_of(4);
        let fill = &mut |row: usize, ask: &mut SampleRequest<'_>| match row {
            0 => ask.set(5, 1.0, None, std::iter::empty(), None),
            1 => ask.set(1, 1.0, None, std::iter::empty(), Some(&allowed)),
            2 => ask.set(3, 0.7, Some(0.5), [3, 9].into_iter(), Some(&allowed)),
            _ => {}
        };
        let head = HeadRows { first: 0, count: 4 };
        replay.forward_sampling(&rows, head, false, fill).unwrap_or_else(|e| panic!("{e}"));
        assert!(replay.found(3).is_none());
        for (row, want, masked) in [(0, 5, false), (1, 1, true), (2, 3, true)] {
            let logits = replay.logits(row).unwrap().to_vec();
            let found = replay.found(row).unwrap();
            let eligible = |id: usize| (!masked || is_allowed(id)) && !(row == 2 && [3, 9].contains(&id));
            let mut best: Vec<f32> = (0..logits.len()).filter(|id| eligible(*id)).map(|id| logits[id]).collect();
            best.sort_by(|a, b| b.total_cmp(a));
            let mut listed: Vec<(u32, f32)> = found.list().unwrap().collect();
            listed.sort_by(|a, b| b.1.total_cmp(&a.1));
            assert!(listed.len() >= want && found.is_sound(), "row {row}: {listed:?}");
            for (i, (id, logit)) in listed.iter().enumerate() {
                assert!(eligible(*id as usize) && logits[*id as usize] == *logit, "row {row}: {id}");
                assert_eq!(*logit, best[i], "row {row}, place {i}");
            }
            if row == 1 {
                assert_eq!((found.has_likeliest(), replay.next(1)), (true, listed[0].0));
            }
            if row == 2 {
                assert_eq!([found.edited(0), found.edited(1)], [logits[3], logits[9]]);
            }
        }
    });
}
