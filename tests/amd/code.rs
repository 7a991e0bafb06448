//! The code of all kernels ahead of time (src/amdgpu/code): KILN_BLESS=1 compiles what [`list`] has and writes the streams;
//! else a sample is compiled and compared with them, and all with KILN_TEST_ALL.
//!
//! Code that was compiled before lies in target/amd-code, by a digest of what it depends on.

use super::list::{self, Model, Weights};
use super::{SAMPLE, hex, order, radv, takes_all};
use gfx11::kernel::Kernel as Compiled;
use kiln::model::{TensorId, WeightFormat};
use kiln::schedule::{Extent, KvType, Schedule};
use kiln::testing::amdgpu::code::{Chip, CodeSet, KernelCode, KernelRegisters, UserSgprs};
use kiln::testing::lower::kernels::constants::Constants;
use kiln::testing::lower::kernels::{Kernel, Module, checksum};
use kiln::testing::lower::{PassKind, TokenSource};
use kiln::testing::vulkan::pipelines::Pipelines;
use kiln::testing::vulkan::{DeviceChoice, Gpu};
use radv::MESA;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;

/// In the child process on RADV for a chip: the file for the code, and that of the kernels.
const CHILD: &str = "KILN_TEST_CODE_CHILD";
const KERNELS: &str = "KILN_TEST_CODE_KERNELS";
const TEST: &str = "code::sets_are_what_the_compiler_makes";
/// Most bytes of a chip's set in the executable.
const MOST_BYTES: usize = 3 << 20;
/// The streams, each with its chips.
const STREAMS: [(&str, &[Chip]); 2] =
    [("gfx11.lzma", &[Chip::Gfx1103]), ("gfx115.lzma", &[Chip::Gfx1150, Chip::Gfx1151])];

#[test]
fn sets_are_what_the_compiler_makes() {
    if let Some(out) = std::env::var_os(CHILD) {
        let chip = std::env::var("KILN_TEST_CHIP").unwrap();
        let kernels = read_kernels(&words_of(Path::new(&std::env::var_os(KERNELS).unwrap())));
        return compile_all(&chip, &kernels, Path::new(&out));
    }
    let digest = digest();
    let is_blessed = std::env::var_os("KILN_BLESS").is_some();
    if !is_blessed {
        let kept = std::fs::read_to_string(folder().join("code.sha256")).unwrap_or_default();
        assert_eq!(kept.trim(), digest, "run `KILN_BLESS=1 cargo test --test amd code::` and commit src/amdgpu/code");
    }
    if radv::is_missing() {
        return;
    }
    let compiled = std::thread::scope(|scope| {
        let chips = Chip::ALL.map(|chip| scope.spawn(move || compile_for(chip)));
        chips.map(|chip| chip.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let compiled = Chip::ALL.into_iter().zip(compiled).map(|(chip, words)| (chip, read_all(chip, &words)));
    let compiled: HashMap<Chip, Vec<(Kernel, KernelCode)>> = compiled.collect();
    if !is_blessed {
        for (chip, compiled) in compiled {
            let set = CodeSet::of(chip).unwrap();
            for (kernel, code) in compiled {
                assert!(
                    set.get(&kernel).is_ok_and(|kept| *kept == code),
                    "{kernel:?} on {}: run KILN_BLESS=1",
                    chip.name()
                );
            }
        }
        return;
    }
    for (chip, compiled) in &compiled {
        let spilled: Vec<_> =
            compiled.iter().filter(|(_, code)| code.words.is_empty()).map(|(k, _)| shown(k)).collect();
        assert!(
            spilled.is_empty(),
            "on {} these spill registers, for which the driver has no memory: {spilled:?}",
            chip.name()
        );
    }
    for (name, chips) in STREAMS {
        let words = stream(&chips.iter().map(|chip| &compiled[chip][..]).collect::<Vec<_>>());
        let packed = compress(&words);
        let kernels: Vec<usize> = chips.iter().map(|chip| compiled[chip].len()).collect();
        println!("{name}: {kernels:?} kernels, {} bytes, {} compressed", 4 * words.len(), packed.len());
        assert!(packed.len() <= MOST_BYTES * chips.len(), "{name} has {} bytes", packed.len());
        std::fs::write(folder().join(name), sealed(packed)).unwrap();
    }
    std::fs::write(folder().join("code.sha256"), format!("{digest}\n")).unwrap();
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/amdgpu/code")
}

/// The kernels to compile: all, or a sample.
fn wanted(chip: Chip) -> Vec<Kernel> {
    let step = if takes_all() { 1 } else { SAMPLE };
    sorted(chip).iter().copied().step_by(step).collect()
}

/// All kernels of a chip, those alike beside each other.
fn sorted(chip: Chip) -> &'static [Kernel] {
    static OF_CHIPS: [OnceLock<Vec<Kernel>>; Chip::ALL.len()] = [const { OnceLock::new() }; Chip::ALL.len()];
    OF_CHIPS[chip as usize].get_or_init(|| {
        let mut kernels: Vec<Kernel> = list::kernels(chip).into_iter().collect();
        kernels.sort_by_key(order);
        kernels
    })
}

/// A digest of all that the sets depend on: the compiler, the kernels of each chip and their SPIR-V.
fn digest() -> String {
    let mut hash = Sha256::new_with_prefix(MESA);
    for chip in Chip::ALL {
        sorted(chip).iter().for_each(|kernel| hash.update(format!("{}\n", shown(kernel))));
    }
    Module::ALL.iter().for_each(|module| hash.update(spirv(*module)));
    hex(hash)
}

fn shown(kernel: &Kernel) -> String {
    format!("{} {} {:?}", kernel.module.name(), kernel.workgroup, kernel.constants.values())
}

fn spirv(module: Module) -> Vec<u8> {
    let path = format!("{}/shaders/spv/{}.spv", env!("CARGO_MANIFEST_DIR"), module.name());
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Compiles for a chip in a child process; the codes' words.
fn compile_for(chip: Chip) -> Vec<u32> {
    let [out, kernels] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    let words: Vec<u32> = wanted(chip).iter().flat_map(kernel_words).collect();
    std::fs::write(kernels.path(), bytemuck::cast_slice(&words)).unwrap();
    radv::run(TEST, chip.name(), &[(CHILD, out.path()), (KERNELS, kernels.path())]);
    words_of(out.path())
}

fn words_of(file: &Path) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(&std::fs::read(file).unwrap())
}

/// A kernel as a stream has it: its module's number, its workgroup and its constants.
fn kernel_words(kernel: &Kernel) -> Vec<u32> {
    let module = Module::ALL.iter().position(|module| *module == kernel.module).unwrap();
    [&[module as u32, kernel.workgroup], kernel.constants.values()].concat()
}

fn read_kernels(words: &[u32]) -> Vec<Kernel> {
    let kernel = |words: &[u32]| {
        let constants = Constants::read(&words[2..]).unwrap();
        Kernel { module: Module::ALL[words[0] as usize], workgroup: words[1], constants }
    };
    words.chunks_exact(2 + Constants::default().values().len()).map(kernel).collect()
}

/// The codes of the wanted kernels, from their words.
fn read_all(chip: Chip, words: &[u32]) -> Vec<(Kernel, KernelCode)> {
    let mut rest = words;
    let compiled = wanted(chip).into_iter().map(|kernel| (kernel, read(&mut rest))).collect();
    assert!(rest.is_empty());
    compiled
}

/// In the child process.
fn compile_all(chip: &str, kernels: &[Kernel], out: &Path) {
    let gpu = Rc::new(Gpu::open(DeviceChoice::Best).unwrap());
    assert_eq!(gpu.caps.matrix.map(list::with_lanes), Some(list::UNITS), "{}", gpu.caps.name);
    let pipelines = Pipelines::new(&gpu).unwrap();
    let mut of_modules: BTreeMap<&str, String> = BTreeMap::new();
    let mut words = Vec::new();
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/amd-code").join(chip);
    std::fs::create_dir_all(&made).unwrap();
    for kernel in kernels {
        let of_module = of_modules
            .entry(kernel.module.name())
            .or_insert_with(|| hex(Sha256::new_with_prefix(spirv(kernel.module))));
        let key = hex(Sha256::new_with_prefix(format!("{MESA} {of_module} {}", shown(kernel))));
        let file = made.join(&key[..32]);
        let known = std::fs::read(&file).ok().filter(|_| std::env::var_os("KILN_BLESS").is_some());
        let known = known.unwrap_or_else(|| {
            let mut words = Vec::new();
            write(&compile(&pipelines, *kernel), &mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(&file, &bytes).unwrap();
            bytes
        });
        words.extend(known);
    }
    std::fs::write(out, words).unwrap();
}

/// A kernel's code as RADV makes it; empty where it spills registers.
fn compile(pipelines: &Pipelines, kernel: Kernel) -> KernelCode {
    let blob = pipelines.cached(kernel).unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
    let mut all = Compiled::all(&blob).unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
    assert_eq!(all.len(), 1, "{kernel:?}");
    let compiled = all.remove(0);
    let Compiled { threads, limits, wave64, scratch, float_mode, rsrc: [rsrc1, rsrc2, rsrc3], .. } = compiled;
    // All that the driver takes for granted.
    assert_eq!(threads, [kernel.workgroup, 1, 1], "{kernel:?}");
    assert_eq!((wave64, u32::from(float_mode)), (false, rsrc1 >> 12 & 0xff), "{kernel:?}");
    assert_eq!(compiled.lds as u32, 512 * (rsrc2 >> 15 & 0x1ff), "{kernel:?}");
    let [pointer, inline, groups] = compiled.places.map(|place| place.map(|sgpr| sgpr as u32));
    let user = UserSgprs { pointer, inline, inline_words: compiled.inline, groups };
    let push: Vec<u32> = (0..64).collect();
    let first_sgprs = user.words(&push, 0, &[0; 3]).map(|(sgpr, _)| sgpr);
    assert!(first_sgprs.eq(2..rsrc2 >> 1 & 0x1f), "{kernel:?}: {user:?}");
    let words = if scratch == 0 { compiled.code.into() } else { [].into() };
    KernelCode { words, registers: KernelRegisters { rsrc1, rsrc2, rsrc3, limits, lds: compiled.lds as u32, user } }
}

type Header = [u32; 11];

/// A code's header, as src/amdgpu/code.rs reads it.
fn header(code: &KernelCode) -> Header {
    let KernelRegisters { rsrc1, rsrc2, rsrc3, limits, lds, user } = code.registers;
    let UserSgprs { pointer, inline, inline_words, groups } = user;
    let [pointer, inline, groups] = [pointer, inline, groups].map(Option::unwrap_or_default);
    let (low, high) = (inline_words as u32, (inline_words >> 32) as u32);
    [rsrc1, rsrc2, rsrc3, limits, lds, pointer, inline, low, high, groups, code.words.len() as u32]
}

fn write(code: &KernelCode, words: &mut Vec<u32>) {
    words.extend(header(code));
    words.extend(&*code.words);
}

fn read(words: &mut &[u32]) -> KernelCode {
    let (header, rest) = words.split_first_chunk().unwrap();
    let &[rsrc1, rsrc2, rsrc3, limits, lds, pointer, inline, low, high, groups, length]: &Header = header;
    let (code, rest) = rest.split_at(length as usize);
    *words = rest;
    let [pointer, inline, groups] = [pointer, inline, groups].map(|word| (word != 0).then_some(word));
    let user = UserSgprs { pointer, inline, inline_words: u64::from(low) | u64::from(high) << 32, groups };
    KernelCode { words: code.into(), registers: KernelRegisters { rsrc1, rsrc2, rsrc3, limits, lds, user } }
}

/// The words of a stream, by the order of its kernels. A code that several kernels or chips have is there once.
fn stream(chips: &[&[(Kernel, KernelCode)]]) -> Vec<u32> {
    let mut words = vec![0x4b43_0001, Module::ALL.len() as u32];
    for name in Module::ALL.iter().map(|module| module.name()) {
        words.push(name.len() as u32);
        let bytes: Vec<u8> = name.bytes().chain([0; 3]).collect();
        words.extend(bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())));
    }
    words.push(chips[0][0].0.constants.values().len() as u32);
    let mut all: Vec<(&Kernel, usize, &KernelCode)> = chips
        .iter()
        .enumerate()
        .flat_map(|(chip, kernels)| kernels.iter().map(move |(kernel, code)| (kernel, chip, code)))
        .collect();
    all.sort_by_key(|(kernel, chip, _)| (order(kernel), *chip));
    let mut known: HashMap<(Header, &[u32]), u32> = HashMap::new();
    let (mut headers, mut codes) = (Vec::<u32>::new(), Vec::<u32>::new());
    let mut of_chips: Vec<Vec<u32>> = vec![Vec::new(); chips.len()];
    for (kernel, chip, code) in all {
        let next = known.len() as u32;
        let at = *known.entry((header(code), &code.words)).or_insert_with(|| {
            headers.extend(header(code));
            codes.extend(&*code.words);
            next
        });
        of_chips[chip].extend(kernel_words(kernel));
        of_chips[chip].push(at);
    }
    words.push(known.len() as u32);
    words.extend(headers);
    words.extend(codes);
    for (kernels, of_chip) in chips.iter().zip(of_chips) {
        words.push(kernels.len() as u32);
        words.extend(of_chip);
    }
    words
}

/// A window over everything, and contexts of whole words.
const XZ: [&str; 4] =
    ["--format=lzma", "--lzma1=dict=64MiB,lc=1,lp=2,pb=2,nice=273,mf=bt4,depth=2000", "--compress", "--stdout"];

fn compress(words: &[u32]) -> Vec<u8> {
    let mut xz = Command::new("xz").args(XZ).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("xz");
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut input = xz.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let done = xz.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(done.status.success());
    done.stdout
}

/// A stream behind its checksum.
fn sealed(stream: Vec<u8>) -> Vec<u8> {
    [&checksum(&stream).to_le_bytes(), &stream[..]].concat()
}

/// Rows of the largest pass, sequences and head rows, as a chat, servers and tests have them.
const EXTENTS: [[usize; 3]; 9] =
    [[512, 1, 1], [512, 8, 8], [1024, 32, 64], [512, 1, 8], [160, 1, 8], [100, 4, 4], [33, 1, 1], [7, 3, 3], [1, 1, 1]];

/// Lowers every layer as replay does, for the sizes of passes that it bakes.
#[test]
fn no_pass_asks_for_a_kernel_that_is_missing() {
    let sizes = |most: usize| (0..).map(|i| 1 << i).take_while(move |n| *n < most).chain([most]);
    let mut asked = 0;
    for chip in Chip::ALL {
        let (set, target) = (CodeSet::of(chip).unwrap(), list::usual(chip));
        let with = |model: Model, extents: &'static [[usize; 3]]| {
            Weights::OF_SMALL.map(move |weights| (model.clone(), weights, extents)).into_iter()
        };
        let small = list::small().flat_map(|model| with(model, &EXTENTS));
        let public = list::public().flat_map(|model| with(model, &EXTENTS[..2]));
        let of_mixes = |model: Model| list::mixes().map(move |mix| (model.clone(), Weights::In(mix), &EXTENTS[..1]));
        let mixes = list::public().flat_map(of_mixes);
        // Each chip has its part, with other formats of each model, unless all is to be checked.
        let has = |i: usize| takes_all() || (i + i / Weights::OF_SMALL.len()) % Chip::ALL.len() == chip as usize;
        let all = small.chain(public).chain(mixes).enumerate().filter(|(i, _)| has(*i));
        for (_, ((name, shape, drafter), weights, extents)) in all {
            for &[max_rows, sequences, head_rows] in extents {
                let extent = Extent { context: 512, max_rows, head_rows, sequences, kv: KvType::F16, kv_tokens: None };
                let of_drafter = |id| weights.of(drafter.as_ref().unwrap_or(&shape), id);
                let drafter = drafter.as_ref().map(|shape| (shape, &of_drafter as &dyn Fn(TensorId) -> WeightFormat));
                let schedule = Schedule::build_with(&shape, extent, |id| weights.of(&shape, id), drafter);
                let mut passes = list::Passes::new(&schedule);
                let orders = match sequences {
                    1 => &list::ORDERS[..1],
                    _ => &list::ORDERS[..],
                };
                for (order, rows) in orders.iter().flat_map(|order| sizes(max_rows).map(move |rows| (*order, rows))) {
                    let kind = PassKind { rows, head_rows, order, tokens: TokenSource::Host };
                    passes.of_layers(&target, kind);
                }
                (1..=head_rows).for_each(|rows| passes.of_head(&target, rows));
                sizes(sequences.min(head_rows).min(8)).for_each(|rows| passes.of_draft(&target, rows));
                for kernel in &passes.kernels {
                    assert!(set.get(kernel).is_ok(), "{} of {name} in {weights:?}: {kernel:?}", chip.name());
                }
                asked += passes.kernels.len();
            }
        }
    }
    assert!(asked > if takes_all() { 50_000 } else { 20_000 }, "{asked}");
}
