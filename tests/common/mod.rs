//! What the tests share: the golden cases, and executors to hold against them.
#![allow(dead_code)]

pub mod vgem;

use ash::vk;
use kiln::engine::{self, Device, Options};
use kiln::executor::weights::Progress;
use kiln::executor::{Executor, HeadRows, Measure};
use kiln::gpu::device::units::Units;
use kiln::gpu::kernels::pipelines::Pipelines;
use kiln::gpu::lower::arithmetic::{Arithmetic, Operand};
use kiln::gpu::lower::matrix::MatrixTile;
use kiln::gpu::measure::fragment;
use kiln::gpu::memory::arena::{Allocator, ArenaSource, DMA_HEAP, MEMFD, UDMABUF_MEMFD};
use kiln::gpu::queue::Queue;
use kiln::gpu::replay::options::VulkanOptions;
use kiln::gpu::{Choice, Gpu};
use kiln::model::checkpoint::Checkpoint;
use kiln::schedule::{KvType, Segment};
use kiln::sequence::session::Session;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// A file of tests/golden.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path)
}

/// What the executor is to compute products in.
pub const AUTO: Option<Arithmetic> = None;
pub const F32: Option<Arithmetic> = Some(Arithmetic::F32);
pub const DOT: Option<Arithmetic> = Some(Arithmetic::IntegerDot);
pub const MATRIX_F16: Option<Arithmetic> = Some(Arithmetic::Matrix(Operand::F16));
pub const MATRIX_S8: Option<Arithmetic> = Some(Arithmetic::Matrix(Operand::S8));

/// A golden case: its prompts with what the model should say of each.
pub struct Case {
    pub name: &'static str,
    pub json: serde_json::Value,
    tensors: HashMap<String, Vec<f32>>,
}

impl Case {
    pub fn open(name: &'static str) -> Case {
        let dir = golden(name);
        let json = serde_json::from_slice(&std::fs::read(dir.join("golden.json")).unwrap()).unwrap();
        let bytes = std::fs::read(dir.join("golden.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let floats = |b: &[u8]| b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
        let tensors = file.tensors().into_iter().map(|(n, t)| (n, floats(t.data()))).collect();
        Case { name, json, tensors }
    }

    pub fn prompts(&self) -> &[serde_json::Value] {
        self.json["prompts"].as_array().unwrap()
    }

    pub fn tensor(&self, name: &str) -> &[f32] {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no tensor {name}", self.name))
    }
}

pub fn ids(v: &serde_json::Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect()
}

pub fn floats(v: &serde_json::Value) -> Vec<f32> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// The Vulkan device that tests run on: lavapipe, or a GPU where KILN_TEST_DEVICE names one.
pub fn vulkan() -> Device {
    std::env::var("KILN_TEST_DEVICE").map_or(Device::Vulkan(None), |d| d.parse().unwrap())
}

/// That device, opened by itself.
pub fn open_gpu() -> Gpu {
    listen();
    match vulkan() {
        Device::Vulkan(n) => Gpu::open(n.map_or(Choice::Best, Choice::Index)).unwrap_or_else(|e| panic!("{e}")),
        other => panic!("KILN_TEST_DEVICE must name a Vulkan device, not {other:?}"),
    }
}

/// A device's matrix units, with what is found out about them by running.
pub fn units(gpu: &Rc<Gpu>) -> Option<Units> {
    let (queue, mut pipelines) = (Queue::new(gpu).unwrap(), Pipelines::new(gpu).unwrap());
    gpu.caps.matrix.map(|units| fragment::find(gpu, &queue, &mut pipelines, units).unwrap())
}

/// A CPU driver takes minutes to compile a large tile, all unrolled in matrices of 8 x 8.
pub fn worth_compiling(gpu: &Gpu, units: Units, tile: &MatrixTile) -> bool {
    gpu.caps.kind != vk::PhysicalDeviceType::CPU || tile.unrolled(units) <= 128
}

/// Loads a model, with the validation layer listening.
pub fn load(dir: &Path, options: Options) -> Box<dyn Measure> {
    listen();
    let checkpoint = Checkpoint::open(dir).unwrap();
    engine::load(&checkpoint, &options, &Progress::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Settings that force an arithmetic.
pub fn forced(arithmetic: Option<Arithmetic>) -> VulkanOptions {
    VulkanOptions { arithmetic, ..VulkanOptions::default() }
}

/// Turns the validation layer on, and the log that shows what it says. KILN_VALIDATION=0 leaves it off.
pub fn listen() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let _ = env_logger::builder().is_test(true).try_init();
        if std::env::var_os(kiln::gpu::device::instance::VALIDATION_VARIABLE).is_none() {
            // SAFETY: `Once` runs this before any test of this process opens a device.
            unsafe { std::env::set_var(kiln::gpu::device::instance::VALIDATION_VARIABLE, "1") };
        }
    });
}

/// A command that starts `executable` on the driver that this test runs on.
pub fn start(executable: impl AsRef<OsStr>) -> Command {
    match std::env::var_os("KILN_TEST_LAUNCHER") {
        Some(launcher) => {
            let mut command = Command::new(launcher);
            command.arg(executable);
            command
        }
        None => Command::new(executable),
    }
}

/// A command that starts this test executable again, on the same driver.
pub fn this_test() -> Command {
    match std::env::var_os("KILN_TEST_LAUNCHER") {
        // The process is then the launcher's (see tools/fetch-mesa), and this executable its argument.
        Some(_) => start(std::env::args_os().next().unwrap()),
        None => start(std::env::current_exe().unwrap()),
    }
}

/// What a run over a prompt gives.
pub struct Outputs {
    /// All positions' logits, `[n][vocab]`.
    pub logits: Vec<Vec<f32>>,
    /// The last position's rows: scaled embedding, each layer's output, after the final norm.
    pub hidden: Vec<Vec<f32>>,
    /// The device's own choice at the last position.
    pub next: u32,
}

/// Prefills `tokens` in a new session and collects every position's logits and the last one's hidden rows.
pub fn observe(executor: &mut dyn Executor, session: &mut Session, tokens: &[u32]) -> Outputs {
    let mut out = Outputs { logits: Vec::new(), hidden: Vec::new(), next: 0 };
    let head_rows = executor.schedule().extent.head_rows;
    session
        .prefill_watched(executor, tokens, &mut |executor, rows, last| {
            let mut first = 0;
            executor.forward(rows, None)?;
            while first < rows.len() {
                let count = head_rows.min(rows.len() - first);
                executor.project(HeadRows { first, count })?;
                out.logits.extend((0..count).map(|r| executor.logits(r).unwrap().to_vec()));
                first += count;
            }
            if last {
                // The same pass again, watched: it writes the same keys to the same places.
                let head = Some(HeadRows { first: rows.len() - 1, count: 1 });
                executor.forward_watched(rows, head, &mut |s: Segment, row: &[f32]| {
                    let _ = s;
                    out.hidden.push(row.to_vec());
                })?;
                out.next = executor.next(0);
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    out
}

/// Largest absolute difference.
pub fn max_abs(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().all(|x| x.is_finite()), "not finite");
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

/// Root mean square of the difference over that of `b`.
pub fn relative_rms(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().all(|x| x.is_finite()), "not finite");
    let difference: f32 = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
    (difference / b.iter().map(|y| y * y).sum::<f32>()).sqrt()
}

/// Whether this is a system where dma-bufs must work (tools/vm-test), not one where they may.
pub fn dma_bufs_required() -> bool {
    std::env::var_os("KILN_TEST_DMA_BUF").is_some_and(|v| v == "1")
}

/// Who makes the arenas that are tested: the kernel where dma-bufs must work, else nobody's driver.
pub fn arena_allocators() -> Vec<Allocator> {
    match dma_bufs_required() {
        true => vec![UDMABUF_MEMFD, DMA_HEAP, Allocator { name: "vgem", allocate: vgem::allocate }],
        false => vec![MEMFD],
    }
}

/// Options for that.
pub fn arena_options(arena: ArenaSource) -> Options {
    let vulkan = VulkanOptions { arena, ..forced(F32) };
    Options { device: self::vulkan(), kv: KvType::F32, vulkan, ..Options::default() }
}
