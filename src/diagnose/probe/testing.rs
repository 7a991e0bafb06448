//! Machines for tests: their files (tests/machines) and their drivers' answers. Both are written by hand in the formats
//! documented by the kernel. Neither was recorded on such a machine.

use crate::machine::files::Files;
use crate::npu::fake::FakeNpu;
use crate::sys::bindings as b;
use crate::sys::fake::{AMDGPU_INFO, FakeDrmDriver, FakeIoctls, XDNA_ARRAY, XDNA_INFO, bytes};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A machine's files in a temporary directory, and its drivers.
pub struct TestMachine {
    pub dir: TempDir,
    pub files: Files,
    pub gpu: FakeDrmDriver,
    pub npu: FakeDrmDriver,
}

/// A machine: name, files, compute units, engine clock (MHz), kind, width and clock (MHz) of the memory, NPU columns.
type MachineRow = (&'static str, &'static str, u32, u64, u32, u32, u64, u16);
const MACHINES: [MachineRow; 3] = [
    ("8945hs", include_str!("../../../tests/machines/8945hs"), 12, 2800, b::AMDGPU_VRAM_TYPE_DDR5, 128, 2800, 5),
    ("890m", include_str!("../../../tests/machines/890m"), 16, 2900, 12, 128, 937, 8),
    ("8060s", include_str!("../../../tests/machines/8060s"), 40, 2900, 12, 256, 1000, 8),
];

/// The names of all machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|m| m.0)
}

impl TestMachine {
    /// Creates the machine `name`. Its drivers answer once [`TestMachine::drive`] is called.
    pub fn new(name: &str) -> TestMachine {
        let &(_, text, units, mhz, kind, bits, memory_mhz, columns) = MACHINES.iter().find(|m| m.0 == name).unwrap();
        let dir = tempfile::tempdir().unwrap();
        write_tree(dir.path(), text);
        let files = Files::under(dir.path());
        let value = |path: &str| files.value::<u64>(&format!("/sys/class/drm/renderD128/device/{path}")).unwrap();
        let heap = |total: u64, used: u64| b::drm_amdgpu_heap_info {
            total_heap_size: total,
            usable_heap_size: total - (64 << 20),
            heap_usage: used,
            max_allocation: total / 4 * 3,
        };
        let vram = heap(value("mem_info_vram_total"), value("mem_info_vram_used"));
        let memory = b::drm_amdgpu_memory_info {
            vram,
            cpu_accessible_vram: vram,
            gtt: heap(value("mem_info_gtt_total"), value("mem_info_gtt_used")),
        };
        let device = b::drm_amdgpu_info_device {
            cu_active_number: units,
            max_engine_clock: 1000 * mhz,
            max_memory_clock: 1000 * memory_mhz,
            vram_type: kind,
            vram_bit_width: bits,
            ids_flags: u64::from(b::AMDGPU_IDS_FLAGS_FUSION),
            wave_front_size: 32,
            ..Default::default()
        };
        let firmware = |ver| bytes(b::drm_amdgpu_info_firmware { ver, feature: 0 });
        let sensor = |value: u32| bytes(value);
        let gpu = FakeDrmDriver { name: "amdgpu", version: [3, 64, 0], ..Default::default() }
            .with(AMDGPU_INFO, b::AMDGPU_INFO_DEV_INFO, 0, bytes(device))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_MEMORY, 0, bytes(memory))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_NUM_EVICTIONS, 0, bytes(17u64))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_VRAM_LOST_COUNTER, 0, bytes(0u32))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_FW_VERSION, b::AMDGPU_INFO_FW_GFX_MEC, firmware(0x2e))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_FW_VERSION, b::AMDGPU_INFO_FW_GFX_RLC, firmware(0x52))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_SENSOR, b::AMDGPU_INFO_SENSOR_GFX_SCLK, sensor(800))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_SENSOR, b::AMDGPU_INFO_SENSOR_GPU_TEMP, sensor(43_000))
            .with(AMDGPU_INFO, b::AMDGPU_INFO_SENSOR, b::AMDGPU_INFO_SENSOR_GPU_AVG_POWER, sensor(9));
        TestMachine { npu: npu(columns), dir, files, gpu }
    }

    /// Gives the NPU an emulated array that runs programs.
    pub fn with_array(mut self) -> TestMachine {
        self.npu.array = Some(FakeNpu::new(&self.files.at("/dev/accel/accel0")));
        self
    }

    /// Activates the drivers.
    pub fn drive(&self) -> [FakeIoctls; 2] {
        let at = |path| self.files.at(path);
        [self.gpu.clone().at(&at("/dev/dri/renderD128")), self.npu.clone().at(&at("/dev/accel/accel0"))]
    }
}

impl FakeDrmDriver {
    /// Activates the GPU's driver with this version of a firmware.
    pub fn with_firmware(self, number: u32, ver: u32) -> FakeDrmDriver {
        self.with(
            AMDGPU_INFO,
            b::AMDGPU_INFO_FW_VERSION,
            number,
            bytes(b::drm_amdgpu_info_firmware { ver, feature: 0 }),
        )
    }
}

fn npu(columns: u16) -> FakeDrmDriver {
    let version = b::amdxdna_drm_query_aie_version { major: 2, minor: 1 };
    let tiles =
        |row_start, row_count| b::amdxdna_drm_query_aie_tile_metadata { row_count, row_start, ..Default::default() };
    let array = b::amdxdna_drm_query_aie_metadata {
        cols: columns,
        rows: 6,
        version,
        shim: tiles(0, 1),
        mem: tiles(1, 1),
        core: tiles(2, 4),
        ..Default::default()
    };
    let clock = |freq_mhz| b::amdxdna_drm_query_clock { freq_mhz, ..Default::default() };
    let clocks = b::amdxdna_drm_query_clock_metadata { mp_npu_clock: clock(600), h_clock: clock(1000) };
    // Two contexts with the same columns.
    let context = |context_id| b::amdxdna_drm_hwctx_entry {
        context_id,
        start_col: 1,
        num_col: 4,
        pid: 4242,
        command_submissions: 1001,
        command_completions: 1000,
        ..Default::default()
    };
    let size = size_of::<b::amdxdna_drm_hwctx_entry>() as u32;
    let contexts = [size.to_ne_bytes().to_vec(), bytes(context(1)), bytes(context(2))].concat();
    let nothing = [24u32.to_ne_bytes().to_vec(), vec![0; 24]].concat();
    FakeDrmDriver { name: "amdxdna_accel_driver", version: [0, 6, 0], ..Default::default() }
        .with(XDNA_INFO, b::DRM_AMDXDNA_QUERY_AIE_METADATA, 0, bytes(array))
        .with(XDNA_INFO, b::DRM_AMDXDNA_QUERY_CLOCK_METADATA, 0, bytes(clocks))
        .with(XDNA_INFO, b::DRM_AMDXDNA_GET_POWER_MODE, 0, bytes(b::amdxdna_drm_power_mode::default()))
        .with(XDNA_ARRAY, b::DRM_AMDXDNA_HW_CONTEXT_ALL, 0, contexts)
        .with(XDNA_ARRAY, b::DRM_AMDXDNA_HW_LAST_ASYNC_ERR, 0, nothing)
}

/// Creates the tree of files described by a text in tests/machines.
fn write_tree(root: &Path, text: &str) {
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let parent = |path: &str| {
            let at = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            at
        };
        if let Some((path, target)) = line.split_once(" -> ") {
            std::os::unix::fs::symlink(target, parent(path)).unwrap();
        } else if let Some((path, content)) = line.split_once(" = ") {
            fs::write(parent(path), content.replace("\\n", "\n").replace("\\t", "\t")).unwrap();
        } else {
            fs::write(parent(line), "").unwrap();
        }
    }
}

/// Every regular file of a tree, each once.
pub fn all_files(root: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap() {
                t if t.is_dir() => left.push(entry.path()),
                t if t.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
