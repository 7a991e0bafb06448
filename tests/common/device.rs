//! The device under test, and models loaded on it.

use kiln::engine::ReplayOptions;
use kiln::engine::{self, Device, Options};
use kiln::executor::Measure;
use kiln::executor::weights::Progress;
use kiln::model::WeightFormat;
use kiln::model::checkpoint::Checkpoint;
use kiln::testing::lower::arithmetic::{Arithmetic, Operand};
use kiln::testing::lower::matrix::MatrixTile;
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::replay::device_queue::DeviceQueue;
use kiln::testing::replay::driver::{Driver, HostAccess, MemorySource};
use kiln::testing::replay::measure::fragment;
use kiln::testing::vulkan::memory::heaps::describe;
use kiln::testing::vulkan::{DeviceChoice, Gpu, Vulkan};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The arithmetic that the executor chooses by itself.
pub const AUTO: Option<Arithmetic> = None;
pub const F32: Option<Arithmetic> = Some(Arithmetic::F32);
pub const DOT: Option<Arithmetic> = Some(Arithmetic::IntegerDot);
pub const MATRIX_F16: Option<Arithmetic> = Some(Arithmetic::Matrix(Operand::F16));
pub const MATRIX_S8: Option<Arithmetic> = Some(Arithmetic::Matrix(Operand::S8));

/// The Vulkan device for tests: lavapipe, or a GPU that KILN_TEST_DEVICE names.
pub fn vulkan() -> Device {
    std::env::var("KILN_TEST_DEVICE").map_or(Device::Vulkan(None), |d| d.parse().unwrap())
}

/// Opens that device.
pub fn open_gpu() -> Gpu {
    listen();
    match vulkan() {
        Device::Vulkan(n) => {
            Gpu::open(n.map_or(DeviceChoice::Best, DeviceChoice::Index)).unwrap_or_else(|e| panic!("{e}"))
        }
        other => panic!("KILN_TEST_DEVICE must name a Vulkan device, not {other:?}"),
    }
}

/// The index of a heap of the device's own memory that the host sees.
pub fn shared_heap(gpu: &Gpu) -> usize {
    let heaps = describe(gpu).heaps;
    heaps.iter().position(|h| h.device_local && h.host_visible).expect("memory that host and device see")
}

/// A device's matrix units, with the properties that are found by running kernels.
pub fn units(gpu: &Rc<Gpu>) -> Option<MatrixUnits> {
    let mut queue = DeviceQueue::new(Vulkan::new(gpu).unwrap());
    let heap = shared_heap(gpu);
    let mut found = queue.driver.allocate(64, heap, HostAccess::Host, MemorySource::Ordinary).unwrap();
    gpu.caps.matrix.map(|units| fragment::find(&mut queue, &mut found, units).unwrap())
}

/// The matrix units of recent NVIDIA GPUs.
pub fn nvidia_units() -> MatrixUnits {
    MatrixUnits {
        m: 16,
        n: 16,
        k: 16,
        least_n: 8,
        row_lanes: Some(4),
        s8_k: Some(32),
        subgroup: 32,
        shared_bytes: 48 << 10,
        max_workgroup: 1024,
        sum_bytes: 512,
        unrolled_steps: 8,
    }
}

/// Whether all of what is alike runs, and not a sample of it: where KILN_TEST_ALL is set, as `tools/test --full` does.
pub fn runs_all() -> bool {
    std::env::var_os("KILN_TEST_ALL").is_some()
}

/// [`runs_all`] on a driver for the processor, which compiles some kernels for seconds; on a GPU always.
pub fn takes_all(gpu: &Gpu) -> bool {
    !gpu.caps.is_cpu() || runs_all()
}

/// Whether a tile compiles in seconds. A CPU driver takes minutes for a large tile, unrolled in matrices of 8 x 8.
pub fn worth_compiling(gpu: &Gpu, units: MatrixUnits, format: WeightFormat, tile: &MatrixTile) -> bool {
    !gpu.caps.is_cpu() || tile.unrolled(units, format) <= 128
}

/// Loads a model with the validation layer on.
pub fn load(dir: &Path, options: Options) -> Box<dyn Measure> {
    listen();
    let checkpoint = Checkpoint::open(dir).unwrap();
    engine::load(&checkpoint, &options, &Progress::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// A submit budget so long that a pass is one submit even with a CPU driver on a busy machine.
pub const ONE_SUBMIT: Duration = Duration::from_secs(600);

/// Settings that force an arithmetic.
pub fn forced(arithmetic: Option<Arithmetic>) -> ReplayOptions {
    ReplayOptions { arithmetic, ..ReplayOptions::default() }
}

/// Turns on the validation layer and the log of its messages. KILN_VALIDATION=0 leaves it off.
pub fn listen() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let _ = env_logger::builder().is_test(true).try_init();
        if std::env::var_os(kiln::testing::vulkan::device::instance::VALIDATION_VARIABLE).is_none() {
            // SAFETY: `Once` runs this before any test of this process opens a device.
            unsafe { std::env::set_var(kiln::testing::vulkan::device::instance::VALIDATION_VARIABLE, "1") };
        }
    });
}
