//! Instructions that the host spends on a pass of one row, by amdgpu's own requests and by RADV: from the row to its token,
//! without those of the kernel's stand-ins. Neither runs a kernel; the lists of both are the same model's.

use super::*;
use kiln::testing::amdgpu::device::RenderDevice;
use kiln::testing::amdgpu::driver::Amdgpu;
use kiln::testing::amdgpu::fake::FakeNode;
use kiln::testing::vulkan::memory::heaps::describe;
use kiln::testing::vulkan::{DeviceChoice, Gpu, Vulkan};
use std::process::Command;

/// In the counted process: the driver, and the passes.
const COUNTED: &str = "KILN_TEST_COUNTED";
const TEST: &str = "host::a_pass_takes_fewer_instructions_than_by_radv";
/// Passes of the shorter of two runs. The longer one has twice as many, and the difference is theirs.
const PASSES: usize = 32;

#[test]
#[ignore = "needs valgrind and minutes: tools/test --full runs it"]
fn a_pass_takes_fewer_instructions_than_by_radv() {
    if let Ok(told) = std::env::var(COUNTED) {
        let (driver, passes) = told.split_once(',').unwrap();
        return run(driver, passes.parse().unwrap());
    }
    if radv::is_missing() {
        return;
    }
    let of = |driver: &str| (count(driver, 2 * PASSES) - count(driver, PASSES)) / PASSES as f64;
    let [own, radv] = ["amdgpu", "vulkan"].map(of);
    println!("host instructions of a pass: {own:.0} by amdgpu's own requests, {radv:.0} by RADV");
    assert!(own < radv);
}

/// Instructions of [`counted`], without those in ioctl, which is the stand-in's.
fn count(driver: &str, passes: usize) -> f64 {
    let mut counter = Command::new("valgrind");
    counter.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--trace-children=yes"]);
    counter.args(["--toggle-collect=*host*counted*", "--toggle-collect=ioctl"]);
    let told = format!("{driver},{passes}");
    // The stand-in of RADV's kernel takes submits where it has a place for them.
    let packets = tempfile::NamedTempFile::new().unwrap();
    let variables = [(COUNTED, Path::new(&told)), (packets::PACKETS, packets.path())];
    let said = radv::run_under(counter, TEST, Chip::Gfx1103.name(), &variables);
    // The launcher's own processes have counts, too.
    let counts = said.lines().filter_map(|l| l.split_once("Collected : ")?.1.trim().parse::<f64>().ok());
    counts.max_by(f64::total_cmp).unwrap_or_else(|| panic!("callgrind says no count: {said}"))
}

fn run(driver: &str, passes: usize) {
    let checkpoint = Checkpoint::open(&golden("tiny")).unwrap();
    let setup = Setup { context: 128, chunk: 1, ..INT8 };
    if driver == "vulkan" {
        let gpu = Rc::new(Gpu::open(DeviceChoice::Best).unwrap());
        let driver = Vulkan::new(&gpu).unwrap();
        return counted(&mut setup.load_on(driver, &describe(&gpu), &checkpoint), passes);
    }
    let node = FakeNode::new(Chip::Gfx1103.code(), ());
    let device = Rc::new(RenderDevice::open(&node.path()).unwrap());
    let driver = Amdgpu::new(&device, Box::new(|_: &Kernel| Ok(node::code_that_ends()))).unwrap();
    let mut replay = setup.load_on(driver, &device.memory().unwrap(), &checkpoint);
    counted(&mut replay, passes);
    assert_eq!(node.kernel().complaints, [""; 0]);
}

/// Callgrind counts this function, by its name.
#[inline(never)]
fn counted<D: Driver>(replay: &mut Replay<D>, passes: usize) {
    for position in 0..passes {
        let row = Row { token: 5, position: position as u32, sequence: 0 };
        replay.forward(&[row], Some(HeadRows { first: 0, count: 1 })).unwrap_or_else(|e| panic!("{e}"));
        std::hint::black_box(replay.next(0));
    }
}
