//! Compiles every kernel with AMD's compiler, without AMD hardware: RADV makes machine code for a GPU that it is told
//! of. The code of each kernel must keep the rules below and match amd-isa.md. KILN_BLESS=1 rewrites that page.
//!
//! The page has a digest of the kernels that it was made of. As long as it is theirs, a sample is compiled, and all with
//! KILN_TEST_ALL, as `tools/test --full` does.
//!
//! Mesa's version is fixed, so that the page changes only with the kernels. `tools/fetch-mesa` gets the driver.

mod common;

#[path = "amd/code.rs"]
mod code;
#[path = "amd/isa.rs"]
mod isa;
#[path = "amd/list.rs"]
mod list;
#[path = "amd/page.rs"]
mod page;
#[path = "common/radv.rs"]
mod radv;
#[path = "amd/registers.rs"]
mod registers;

use isa::Isa;
use kiln::model::{BlockFormat, Shape, WeightFormat, presets};
use kiln::schedule::{Extent, KvType, Schedule, Segment};
use kiln::testing::amdgpu::code::Chip;
use kiln::testing::lower::arithmetic::{Arithmetic, Operand, modules};
use kiln::testing::lower::attend_tile;
use kiln::testing::lower::kernels::constants::Constants;
use kiln::testing::lower::kernels::{Kernel, Module, Relaying};
use kiln::testing::lower::matrix::{self, MatrixTile, MatrixVariant};
use kiln::testing::lower::target::{Product, Target};
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::lower::{PassKind, RowOrder, TokenSource};
use kiln::testing::replay::measure::{ceiling, fragment};
use kiln::testing::vulkan::inspect::CompiledKernel;
use kiln::testing::vulkan::pipelines::Pipelines;
use kiln::testing::vulkan::{DeviceChoice, Gpu};
use radv::MESA;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The GPUs to compile for: the instruction set, and the device name that the driver then reports.
const CHIPS: [(&str, &str); 3] = [("gfx1103", "PHOENIX"), ("gfx1150", "GFX1150"), ("gfx1151", "GFX1151")];
/// Environment variable for the child process on that driver: the file to write its results to.
const CHILD: &str = "KILN_TEST_AMD_CHILD";

/// The types of GGUF files that are most used.
const MOST_USED: [WeightFormat; 2] = [WeightFormat::Blocks(BlockFormat::Q4K), WeightFormat::Blocks(BlockFormat::Q6K)];

/// One of so many kernels is in a sample.
const SAMPLE: usize = 60;

/// Least waves per SIMD for a kernel that waits for memory; a SIMD holds 16.
const WAVES: u64 = 8;
/// Most bytes of a kernel's code. Far larger ones keep a compiler busy for seconds.
const MOST_CODE: u64 = 52_000;

/// The figures of all kernels on one chip, or of a sample.
#[derive(Serialize, Deserialize)]
struct Compiled {
    /// The device's name.
    device: String,
    /// Of all kernels ([`digest`]).
    digest: String,
    /// Whether the page has the same digest, so that a sample is enough.
    is_sample: bool,
    figures: Vec<Figures>,
}

/// Figures of one kernel on one chip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Figures {
    /// Whether the page has it. The others only keep the rules, and are compiled for the first chip alone.
    is_listed: bool,
    module: String,
    workgroup: u32,
    /// The module's other constants.
    constants: String,
    vgprs: u64,
    /// Spilled registers, scalar and vector.
    spilled: u64,
    /// Bytes per lane.
    scratch: u64,
    /// Bytes per workgroup.
    lds: u64,
    /// Waves that fit on a SIMD at a time.
    waves: u64,
    code: u64,
    isa: Isa,
}

#[test]
fn every_kernel_is_good_machine_code_on_amd() {
    if let Some(out) = std::env::var_os(CHILD) {
        return compile_all(Path::new(&out));
    }
    if radv::is_missing() {
        return;
    }
    let all = std::thread::scope(|scope| {
        let chips = CHIPS.map(|(chip, name)| scope.spawn(move || compile_for(chip, name)));
        chips.map(|chip| chip.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let mut broken = Vec::new();
    for ((chip, _), compiled) in CHIPS.into_iter().zip(&all) {
        assert_eq!((&compiled.digest, compiled.is_sample), (&all[0].digest, all[0].is_sample), "{chip}");
        for f in &compiled.figures {
            let header = header_of(&f.module);
            let place = format!("{} ({}, {}) on {chip}", f.module, f.workgroup, f.constants);
            broken.extend(violations(f, &header).into_iter().map(|v| format!("{place}: {v}")));
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
    let (digest, is_sample) = (all[0].digest.clone(), all[0].is_sample);
    let listed = all.map(|compiled| compiled.figures.into_iter().filter(|f| f.is_listed).collect::<Vec<_>>());
    match is_sample {
        true => compare_sample(&listed),
        false => compare(&page::page(&listed, &digest)),
    }
}

/// Compiles every kernel for one chip in a child process.
fn compile_for(chip: &str, name: &str) -> Compiled {
    let out = tempfile::NamedTempFile::new().unwrap();
    radv::run("every_kernel_is_good_machine_code_on_amd", chip, &[(CHILD, out.path())]);
    let compiled: Compiled = serde_json::from_slice(&std::fs::read(out.path()).unwrap()).unwrap();
    let device = &compiled.device;
    assert!(device.contains(name) && device.contains(&format!("Mesa {MESA}")), "{device}");
    compiled
}

fn compile_all(out: &Path) {
    let gpu = Rc::new(Gpu::open_for_inspection(DeviceChoice::Best).unwrap());
    assert_eq!(gpu.caps.subgroup, 32);
    assert!(gpu.caps.relays_behind, "dispatches beside each other have run on no AMD GPU");
    let mut pipelines = Pipelines::new(&gpu).unwrap();
    let units = gpu.caps.matrix.expect("these chips have matrix units");
    // Nothing runs here.
    let units = list::with_lanes(units);
    let (listed, others) = (kernels(gpu.caps.subgroup, units), kernels_of_others());
    let is_first = gpu.caps.name.contains(CHIPS[0].1);
    let digest = digest(&listed, &others);
    let is_sample = !takes_all() && kept_page().contains(&digest);
    let step = if is_sample { SAMPLE } else { 1 };
    let mut others: Vec<Kernel> = others.into_iter().filter(|k| is_first && !listed.contains(k)).collect();
    others.sort_by_key(order);
    let mut all = |kernel: Kernel, is_listed: bool| {
        let compiled = pipelines.inspect(kernel).unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        figures(kernel, &compiled, is_listed)
    };
    let figures: Vec<Figures> = listed.iter().step_by(step).map(|&k| all(k, true)).collect();
    let others: Vec<Figures> = others.iter().step_by(step).map(|&k| all(k, false)).collect();
    let figures = [figures, others].concat();
    let compiled = Compiled { device: gpu.caps.name.clone(), digest, is_sample, figures };
    std::fs::write(out, serde_json::to_vec(&compiled).unwrap()).unwrap();
}

/// Whether every kernel is compiled, though the page was made of the same ones.
fn takes_all() -> bool {
    common::runs_all() || std::env::var_os("KILN_BLESS").is_some()
}

/// A digest of all that the figures and the rules depend on: the kernels with their code, the reasons that their sources
/// give, and the compiler.
fn digest(listed: &[Kernel], others: &HashSet<Kernel>) -> String {
    let mut all: Vec<&Kernel> = listed.iter().chain(others).collect();
    all.sort_by_key(|k| order(k));
    let mut hash = Sha256::new_with_prefix(MESA);
    for kernel in all {
        hash.update(format!("{} {} {:?}", kernel.module.name(), kernel.workgroup, kernel.constants.values()));
    }
    for module in Module::ALL {
        let code = format!("{}/shaders/spv/{}.spv", env!("CARGO_MANIFEST_DIR"), module.name());
        hash.update(std::fs::read(&code).unwrap_or_else(|e| panic!("{code}: {e}")));
        hash.update(header_of(module.name()));
    }
    hex(hash)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn order(kernel: &Kernel) -> (&'static str, u32, Constants) {
    (kernel.module.name(), kernel.workgroup, kernel.constants)
}

/// Every kernel that can be chosen for 27B's shapes and the demo model's, whatever tuning finds, or as without tuning for
/// the types of GGUF files; the other public shapes' attention in every tile; and each module that is chosen for none.
fn kernels(subgroup: u32, units: MatrixUnits) -> Vec<Kernel> {
    let mut kernels = HashSet::new();
    let demo = kiln::engine::demo::checkpoint().unwrap().shape().clone();
    for shape in [presets::preset("gemma3-27b").unwrap(), demo] {
        kernels.extend(linear_kernels(&shape, units));
        kernels.extend(attend_kernels(&shape, units));
        for weights in WeightFormat::ALL {
            kernels.extend(of_passes(&shape, weights, &targets(subgroup, units, weights)));
        }
    }
    kernels.extend([ceiling::matrix_rate_kernel(units), fragment::kernel(units)]);
    other_shapes().chain([wide_heads()]).for_each(|shape| kernels.extend(attend_kernels(&shape, units)));
    for &module in Module::ALL {
        // These chips have no matrices as narrow as that.
        if module != Module::LinearMatrixS8NarrowInt8 && !kernels.iter().any(|k| k.module == module) {
            kernels.insert(Kernel { module, workgroup: 256, constants: Constants::default() });
        }
    }
    let mut kernels: Vec<Kernel> = kernels.into_iter().collect();
    kernels.sort_by_key(order);
    kernels
}

/// The public shapes beside 27B's.
fn other_shapes() -> impl Iterator<Item = Shape> {
    presets::NAMES.into_iter().filter(|name| *name != "gemma3-27b").filter_map(presets::preset)
}

/// Global layers of Gemma 4 31B, with 27B's other sizes.
fn wide_heads() -> Shape {
    presets::preset("gemma3-27b").unwrap().with_heads(32, 4, 512)
}

/// What the cost model chooses on these chips: for the other public shapes in INT8, and for 27B in the formats that are most used.
fn kernels_of_others() -> HashSet<Kernel> {
    let large = presets::preset("gemma3-27b").unwrap();
    let of_large = WeightFormat::MADE.into_iter().chain(MOST_USED).map(|format| (large.clone(), format));
    let all = other_shapes().chain([wide_heads()]).map(|shape| (shape, WeightFormat::Int8)).chain(of_large);
    let targets = Chip::ALL.map(list::usual);
    all.flat_map(|(shape, format)| of_passes(&shape, format, &targets)).chain(of_drafters(&targets)).collect()
}

/// The kernels of the steps of Gemma 4's drafters, in INT8.
fn of_drafters(targets: &[Target]) -> HashSet<Kernel> {
    let mut kernels = HashSet::new();
    for name in presets::DRAFTERS {
        let drafter = presets::preset(name).unwrap();
        let model = presets::preset(name.strip_suffix("-drafter").unwrap()).unwrap();
        let int8 = |_| WeightFormat::Int8;
        let kv = KvType::F16;
        let extent = Extent { context: 4096, max_rows: 512, head_rows: 64, sequences: 8, kv, kv_tokens: None };
        let schedule = Schedule::build_with(&model, extent, int8, Some((&drafter, &int8)));
        let mut passes = list::Passes::new(&schedule);
        for (rows, order) in [(1, RowOrder::Consecutive), (8, RowOrder::Apart)] {
            for (target, tokens) in targets.iter().flat_map(|t| [(t, TokenSource::Host), (t, TokenSource::Drafted(0))])
            {
                let kind = PassKind { rows, head_rows: rows, order, tokens };
                passes.of_segment(target, kind, Segment::Draft);
            }
        }
        kernels.extend(passes.kernels);
    }
    kernels
}

/// The kernels of passes of a shape with its matrices in one format, where they can be.
fn of_passes(shape: &Shape, weights: WeightFormat, targets: &[Target]) -> HashSet<Kernel> {
    let kv = if weights == WeightFormat::Bf16 { KvType::F32 } else { KvType::F16 };
    let extent = Extent { context: 4096, max_rows: 512, head_rows: 8, sequences: 64, kv, kv_tokens: None };
    let schedule = Schedule::build(shape, extent, |id| {
        let holds = |format: &WeightFormat| format.holds(id.dims(shape)[1]);
        Some(weights.of_matrix(id, shape, None)).filter(holds).unwrap_or(WeightFormat::Int8)
    });
    targets.iter().flat_map(|target| kinds().flat_map(|kind| chosen(&schedule, kind, target))).collect()
}

/// Every tile for attention on matrix units, over caches of f16 and of bf16.
fn attend_kernels(shape: &Shape, units: MatrixUnits) -> Vec<Kernel> {
    let tiles = attend_tile::tiles(units, 1, shape.local.heads, shape.local.kv_heads, shape.local.head_dim);
    assert!(!tiles.is_empty(), "heads of {} elements", shape.local.head_dim);
    let types = [KvType::F16, KvType::Bf16];
    types.into_iter().flat_map(|kv| tiles.iter().map(move |tile| tile.kernel(units, kv))).collect()
}

/// Every tile for a pass's products on matrix units; for the types of GGUF files the first of each module.
fn linear_kernels(shape: &Shape, units: MatrixUnits) -> Vec<Kernel> {
    assert!(units.s8_k.is_some(), "these chips have matrices of bytes");
    let mut linear = Vec::new();
    for format in WeightFormat::ALL {
        let Some(modules) = &modules(format).matrix else { continue };
        let s8 = modules.shared_s8.is_some().then_some(Operand::S8);
        for operand in [Operand::F16].into_iter().chain(s8) {
            for rows in [8, 16, 32, 64, 512] {
                let mut seen = HashSet::new();
                let (up, down) = ([rows, 2 * shape.ffn, shape.hidden], [rows, shape.hidden, shape.ffn]);
                let kernels = [(up, MatrixVariant::Gated), (down, MatrixVariant::Blocks)].into_iter().flat_map(
                    |(product, role)| {
                        let roles = [Some(MatrixVariant::Plain), Some(role).filter(|_| operand == Operand::F16)];
                        let of = move |t: MatrixTile| {
                            let roles = roles.into_iter().flatten().filter(move |&role| t.has(units, role));
                            roles.filter_map(move |role| t.kernel(units, format, product[2], role))
                        };
                        matrix::tiles(units, format, operand, product).into_iter().flat_map(of)
                    },
                );
                linear.extend(kernels.filter(|k| seen.insert(k.module) || WeightFormat::MADE.contains(&format)));
            }
        }
    }
    linear
}

/// Targets with f32, with integer dot products and with matrix units, on which nothing was tuned.
fn untuned(subgroup: u32, units: MatrixUnits) -> [Target; 5] {
    let float = Target::new(subgroup, false, None);
    let dot = Target::new(subgroup, true, None);
    let matrix = Target::new(subgroup, true, Some(units));
    let chosen = |operand| [(usize::MAX, Arithmetic::Matrix(operand))].into();
    let [halves, bytes] =
        [Operand::F16, Operand::S8].map(|operand| Target { chosen: chosen(operand), ..matrix.clone() });
    [float, dot, matrix, halves, bytes]
}

/// [`untuned`], and one for each tile that tuning may choose for a product of few rows; [`linear_kernels`] has those for many
/// rows.
fn targets(subgroup: u32, units: MatrixUnits, weights: WeightFormat) -> Vec<Target> {
    let plain = untuned(subgroup, units);
    let dot = plain[1].clone();
    // Of the types of GGUF files, only what is usual: their tiles would take as long again as all others.
    if modules(weights).dot.is_none() || !WeightFormat::MADE.contains(&weights) {
        return plain.into();
    }
    let product =
        |rows, gelu| Product { format: weights, outputs: 5376, inputs: 5376, rows, gelu, blocks: false, experts: 0 };
    let products = [product(1, false), product(1, true), product(8, false), product(8, true)];
    let variants: HashSet<_> = products.into_iter().flat_map(|p| dot.tiles(Arithmetic::IntegerDot, p)).collect();
    let forced = variants.into_iter().map(|v| Target { forced: Some(v), ..dot.clone() });
    plain.into_iter().chain(forced).collect()
}

/// The kinds of passes that are baked: prompts and batches.
fn kinds() -> impl Iterator<Item = PassKind> {
    let prompts = [1, 2, 4, 8, 16, 64, 512].map(|rows| (rows, RowOrder::Consecutive));
    let batches = [2, 4, 8, 16, 32, 64].map(|rows| (rows, RowOrder::Apart));
    let others = [(64, RowOrder::Mixed), (512, RowOrder::Mixed), (512, RowOrder::Any)];
    let given = prompts.into_iter().chain(batches).chain(others).map(|(rows, order)| (rows, order, TokenSource::Host));
    let all = given.chain([(1, RowOrder::Consecutive, TokenSource::Next)]);
    all.map(|(rows, order, tokens)| PassKind { rows, head_rows: rows.min(8), order, tokens })
}

fn chosen(schedule: &Schedule, kind: PassKind, target: &Target) -> HashSet<Kernel> {
    let mut passes = list::Passes::new(schedule);
    // One local and one global layer represent all.
    let layers = schedule.segments().filter(|s| !matches!(s, Segment::Layer(i) if *i != 0 && *i != 5));
    layers.for_each(|segment| passes.of_segment(target, kind, segment));
    passes.kernels
}

fn figures(kernel: Kernel, compiled: &CompiledKernel, is_listed: bool) -> Figures {
    let figure =
        |name| compiled.figure(name).unwrap_or_else(|| panic!("no {name} among {:?}", compiled.statistics)) as u64;
    let text = compiled.text("Assembly").expect("the driver shows its machine code");
    Figures {
        is_listed,
        module: kernel.module.name().into(),
        workgroup: kernel.workgroup,
        constants: shown(kernel.constants.values()),
        vgprs: figure("VGPRs"),
        spilled: figure("Spilled VGPRs") + figure("Spilled SGPRs"),
        scratch: figure("Scratch size"),
        lds: figure("LDS size"),
        waves: figure("Subgroups per SIMD"),
        code: figure("Code size"),
        isa: Isa::read(text),
    }
}

/// The constants that are not 0, with their numbers; unused constants are 0.
fn shown(constants: &[u32]) -> String {
    let used = constants.iter().enumerate().filter(|&(_, &c)| c != 0);
    used.map(|(i, c)| format!("{}={c}", i + 1)).collect::<Vec<_>>().join(" ")
}

/// The rules that a kernel breaks. `header` is the comment at the start of its source. A line of it that begins with a
/// rule's words gives the reason why the rule cannot be kept.
fn violations(f: &Figures, header: &str) -> Vec<String> {
    let is = |prefix: &str| f.module.starts_with(prefix);
    let has_reason = |words: &str| header.lines().any(|l| l.starts_with(&format!("// {words}: ")));
    let mut broken = Vec::new();
    let mut rule = |kept: bool, what: String| {
        if !kept {
            broken.push(what);
        }
    };
    rule(f.spilled == 0, format!("{} registers are spilled", f.spilled));
    rule(f.scratch == 0, format!("{} bytes of scratch", f.scratch));
    rule(f.code <= MOST_CODE, format!("{} bytes of code, more than {MOST_CODE}", f.code));
    if is("linear") {
        let [wide, narrow] = [f.isa.wide_loads, f.isa.narrow_loads];
        let what = format!("{wide} loads of 16 bytes in the loops that load weights");
        rule(wide > 0, what.clone());
        // Beside 16 bytes, a format with scales of groups has up to eight of high bits and three words of scales.
        let is_grouped = f.module.ends_with("_grouped");
        // Weights of two bits come by 8 bytes, so that of them only the inputs are loaded by 16.
        let of_two_bits = is_grouped && f.constants.split(' ').any(|c| c == "15=2");
        let most = if of_two_bits {
            usize::MAX
        } else if is_grouped {
            4 * wide
        } else {
            wide
        };
        rule(narrow == 0 || has_reason("Narrow loads") && narrow < most, format!("{what}, and {narrow} narrower ones"));
    }
    if is("linear") || is("attend") || is("read") {
        let what = format!("{} waves a SIMD, not {WAVES}, and its source gives no reason", f.waves);
        rule(f.waves >= WAVES || has_reason("Few waves"), what);
    }
    if is("linear_matrix") || is("linear_fragment") || is("attend_matrix") {
        rule(f.isa.wmma > 0, "no matrix instruction".into());
    }
    if f.module.split('_').any(|word| word == "dot") {
        rule(f.isa.dot4 > 0, "no packed integer dot product".into());
    }
    if module(&f.module).relaying() != Relaying::Never {
        let [wide, narrow] = [f.isa.cached_wide, f.isa.cached_narrow];
        let cached = |n, what| format!("{n} {what} behind the relay's wait come from a cache that may be stale");
        rule(narrow == 0, cached(narrow, "narrow loads"));
        // Weights and the KV cache lie in memory that no dispatch of the relay writes, and are loaded by 16 bytes; so do the
        // addresses in page tables, by 8.
        let reads_other = is("linear") || is("attend") || is("route");
        rule(f.isa.cached_pairs == 0 || is("attend"), cached(f.isa.cached_pairs, "loads of 8 bytes"));
        rule(wide == 0 || reads_other && f.isa.coherent_wide > 0, cached(wide, "loads of 16 bytes"));
    }
    broken
}

fn module(name: &str) -> Module {
    *Module::ALL.iter().find(|m| m.name() == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// The comment at the start of the source that `module` is compiled from.
fn header_of(module: &str) -> String {
    let source = self::module(module).source();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shaders/{source}.comp"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().take_while(|l| l.starts_with("//")).map(|l| format!("{l}\n")).collect()
}

fn page_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/amd-isa.md")
}

fn kept_page() -> String {
    std::fs::read_to_string(page_path()).unwrap_or_default()
}

/// The page has a sample's figures.
fn compare_sample(sample: &[Vec<Figures>; 3]) {
    let kept = kept_page();
    let rows = page::rows(sample);
    assert!(rows.len() > 20, "a sample of {}", rows.len());
    for (name, [constants, figures @ ..], _) in rows {
        let (begin, end) = (format!("| {name} | "), format!(" | {constants} | {} |", figures.join(" | ")));
        let is_there = kept.lines().any(|line| line.starts_with(&begin) && line.ends_with(&end));
        assert!(is_there, "the compiler says of {name}{end} what tests/amd-isa.md does not");
    }
}

fn compare(page: &str) {
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(page_path(), page).unwrap();
        return;
    }
    let kept = kept_page();
    let lost = kept.lines().filter(|l| !page.contains(l)).map(|l| format!("- {l}"));
    let new = page.lines().filter(|l| !kept.contains(l)).map(|l| format!("+ {l}"));
    let changed: Vec<String> = lost.chain(new).collect();
    assert!(
        kept == page,
        "the compiler no longer says what tests/amd-isa.md says; if that is meant, run `KILN_BLESS=1 cargo test --test \
         amd` and commit the page:\n{}\n",
        changed.join("\n")
    );
}

#[test]
fn each_rule_sees_what_it_is_for() {
    let good = Figures {
        is_listed: true,
        module: "linear_dot_int8".into(),
        workgroup: 128,
        constants: "1, 1".into(),
        vgprs: 64,
        spilled: 0,
        scratch: 0,
        lds: 0,
        waves: 8,
        code: 1000,
        isa: Isa { wide_loads: 4, dot4: 1, coherent_wide: 2, cached_wide: 2, ..Isa::default() },
    };
    assert_eq!(violations(&good, ""), Vec::<String>::new());
    let broken = |change: fn(&mut Figures), header: &str| {
        let mut f = good.clone();
        change(&mut f);
        violations(&f, header).len()
    };
    assert_eq!(broken(|f| f.spilled = 1, ""), 1);
    assert_eq!(broken(|f| f.scratch = 4, ""), 1);
    assert_eq!(broken(|f| f.code = MOST_CODE + 1, ""), 1);
    assert_eq!(broken(|f| f.module = "linear_dot_grouped".into(), ""), 0);
    let of_two_bits = |f: &mut Figures| {
        (f.module, f.constants) = ("linear_dot_grouped".into(), "4=1 15=2".into());
        f.isa.narrow_loads = 100;
    };
    assert_eq!((broken(of_two_bits, "// Narrow loads: of two bits.\n"), broken(of_two_bits, "")), (0, 1));
    assert_eq!(broken(|f| f.module = "linear_dot_tile_int8".into(), ""), 0);
    assert_eq!(broken(|f| f.module = "linear_matrix_int8".into(), ""), 1);
    assert_eq!(broken(|f| f.isa.coherent_wide = 0, ""), 1);
    assert_eq!(broken(|f| f.isa.cached_narrow = 1, ""), 1);
    assert_eq!(broken(|f| f.module = "norm_add_norm".into(), ""), 1);
    assert_eq!(broken(|f| f.isa.dot4 = 0, ""), 1);
    assert_eq!(broken(|f| f.isa.wide_loads = 0, ""), 1);
    assert_eq!(broken(|f| f.isa.narrow_loads = 1, ""), 1);
    assert_eq!(broken(|f| f.isa.narrow_loads = 1, "// x\n// Narrow loads: the scales of x.\n"), 0);
    assert_eq!(broken(|f| f.isa.narrow_loads = 4, "// x\n// Narrow loads: the scales of x.\n"), 1);
    assert_eq!(broken(|f| f.waves = 7, ""), 1);
    assert_eq!(broken(|f| f.waves = 7, "// Few waves: bound by the matrix units.\n"), 0);
}
