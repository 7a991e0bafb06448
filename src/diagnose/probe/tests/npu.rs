//! Checks of an NPU: libxrt, programs, power, and shared memory.

use super::{assert_sound, checks, find, made_by};
use crate::diagnose::probe::reads::ReadProbe;
use crate::diagnose::probe::testing::TestMachine;
use crate::diagnose::probe::{Verdict, npu};
use crate::machine::files::Files;
use crate::machine::nodes::DriverApi;
use crate::npu::fake::Behaviour;
use crate::sys::bindings as b;
use crate::sys::fake::{FakeIoctls, XDNA_INFO, bytes};
use crate::sys::xrt::Missing;
use std::cell::Cell;
use std::fs;

#[test]
fn libxrt_is_said_to_be_left_out_absent_broken_blind_or_of_a_version() {
    let machine = TestMachine::new("8945hs");
    let (here, nowhere) = (machine.files.clone(), Files::under("/nonexistent"));
    let slot = "0000:c7:00.1";
    let found = |devices| Ok(npu::XrtProbe { version: [2, 25, 0], devices });
    let device = |slot: &str| vec![("RyzenAI-npu1".to_owned(), slot.to_owned())];
    let failed = || crate::Error::device("libxrt failed to open device 0: no \u{1b}[1mmemory", "see `dmesg`");
    let cases = [
        (
            &here,
            Err(Missing::NotBuilt("no headers".into())),
            Verdict::Skip,
            "no bridge to libxrt: no headers; nothing needs",
        ),
        (&here, Err(Missing::NotInstalled), Verdict::Skip, "libxrt is not installed; nothing needs"),
        (&nowhere, Err(Missing::NotInstalled), Verdict::Skip, "libxrt is not installed"),
        (&here, Err(Missing::Unloadable("libuuid.so.1: gone\n".into())), Verdict::Warn, "loaded: libuuid.so.1: gone"),
        (&here, found(Ok(device(slot))), Verdict::Ok, "libxrt 2.25.0: RyzenAI-npu1 at 0000:c7:00.1"),
        (
            &here,
            found(Ok(device("0000:01:00.0"))),
            Verdict::Warn,
            "does not find the NPU at 0000:c7:00.1: RyzenAI-npu1",
        ),
        (&here, found(Ok(Vec::new())), Verdict::Warn, "does not find the NPU at 0000:c7:00.1: no device"),
        (&nowhere, found(Ok(Vec::new())), Verdict::Ok, "libxrt 2.25.0: no device"),
        (&here, found(Err(failed())), Verdict::Warn, "libxrt 2.25.0: libxrt failed to open device 0: no  [1mmemory"),
    ];
    for (files, xrt, verdict, words) in cases {
        let checks = made_by(|checks| npu::check(checks, files, &xrt, None, None));
        assert_sound(&checks, words);
        let found = find(&checks, "npu.xrt");
        assert!(found.verdict == verdict && found.evidence.to_string().contains(words), "{words}: {found:?}");
        assert!(verdict == Verdict::Ok || std::ptr::eq(files, &nowhere) || found.remedy.is_some(), "{found:?}");
    }
}

/// A driver whose mappings show other memory than its dma-bufs. Only comparing bytes reveals that.
#[test]
fn an_npu_that_shares_only_by_name_fails() {
    let mut machine = TestMachine::new("8945hs");
    let node = machine.files.at("/dev/accel/accel0");
    machine.npu.map_offset = 1 << 16;
    fs::OpenOptions::new().write(true).open(&node).unwrap().set_len(1 << 17).unwrap();
    let udmabuf = machine.files.at("/dev/udmabuf");
    fs::write(&udmabuf, "").unwrap();
    // Returns the memfd itself, whose bytes are those of a dma-buf made of it.
    let _wraps = FakeIoctls::new(&udmabuf, |_, create| {
        // SAFETY: udmabuf has a single request, with this argument.
        let memfd = unsafe { &*create.cast::<b::udmabuf_create>() }.memfd;
        // SAFETY: the caller holds it open.
        let memfd = unsafe { std::os::fd::BorrowedFd::borrow_raw(memfd as i32) };
        Ok(std::os::fd::IntoRawFd::into_raw_fd(memfd.try_clone_to_owned().unwrap()))
    });
    let _drivers = machine.drive();
    let checks = checks(&machine.files);
    assert_eq!(find(&checks, "share.udmabuf").verdict, Verdict::Ok);
    for name in ["share.npu0.export", "share.npu0.import"] {
        let check = find(&checks, name);
        assert_eq!(check.verdict, Verdict::Fail, "{check:?}");
        assert!(check.evidence.to_string().contains("bytes of its own"), "{check:?}");
    }
}

#[test]
fn programs_are_run_on_an_npu_that_they_are_for() {
    let checks_of = |machine: &TestMachine, api| {
        made_by(|checks| npu::check(checks, &machine.files, &Err(Missing::NotInstalled), api, None))
    };
    let machine = TestMachine::new("8945hs").with_array();
    let _drivers = machine.drive();
    let checks = checks_of(&machine, Some(DriverApi::Kernel));
    for (name, words) in
        [("npu0.add", "vector add of 4,096 bf16 on four"), ("npu0.product", "bf16 block product of 64 x 128")]
    {
        let check = find(&checks, name);
        let evidence = check.evidence.to_string();
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert!(evidence.starts_with(words) && evidence.contains("through the kernel's driver: exact, "), "{evidence}");
    }
    let commands = find(&checks, "npu0.commands");
    let evidence = commands.evidence.to_string();
    assert!(evidence.contains(" us alone, and ") && evidence.ends_with(" us where four run"), "{evidence}");
    let skipped = checks_of(&machine, None);
    assert_eq!(find(&skipped, "npu0.program").verdict, Verdict::Skip);
    assert!(!skipped.iter().any(|c| c.name == "npu0.add"));
    // libxrt is requested, but missing or without a device.
    let through_xrt = checks_of(&machine, Some(DriverApi::Xrt));
    assert_eq!(find(&through_xrt, "npu0.add").verdict, Verdict::Fail);
    assert_sound(&through_xrt, "xrt");

    let strix = TestMachine::new("890m").with_array();
    let _drivers = strix.drive();
    assert_eq!(find(&checks_of(&strix, Some(DriverApi::Kernel)), "npu0.program").verdict, Verdict::Skip);
}

/// Reads are measured after correct programs, and only if rates are requested. The fake driver has no array for
/// reading, so the failure is a single line.
#[test]
fn reads_are_measured_on_an_npu_whose_programs_are_right() {
    let asked = Cell::new(0);
    let progress = |part: &str| asked.set(asked.get() + u32::from(part == "NPU reads"));
    let measured = |behaviour| {
        let machine = TestMachine::new("8945hs").with_array();
        let array = machine.npu.array.clone().unwrap();
        array.state().behaviour = behaviour;
        let _drivers = machine.drive();
        let (api, read) = (Some(DriverApi::Kernel), Some(ReadProbe { gpu: None, progress: &progress }));
        let checks = made_by(|checks| npu::check(checks, &machine.files, &Err(Missing::NotInstalled), api, read));
        assert_sound(&checks, "reads");
        assert_eq!(array.state().held(), 0);
        checks
    };
    let checks = measured(Behaviour::Right);
    let read = find(&checks, "npu0.read");
    assert!(read.verdict == Verdict::Fail && read.evidence.to_string().contains("EINVAL"), "{read:?}");
    assert!(!checks.iter().any(|check| check.name == "npu0.together"));
    let checks = measured(Behaviour::Wrong);
    assert!(!checks.iter().any(|check| check.name == "npu0.read"));
    assert_eq!(asked.get(), 1);
}

/// Modes of the driver's interface that limit the clocks.
#[test]
fn power_modes_that_lower_the_npus_clocks_are_warned_of() {
    for (mode, name, verdict) in [
        (0, "default", Verdict::Ok),
        (1, "low", Verdict::Warn),
        (2, "medium", Verdict::Warn),
        (3, "high", Verdict::Ok),
        (4, "turbo", Verdict::Ok),
    ] {
        let mut machine = TestMachine::new("8945hs");
        let answer = bytes(b::amdxdna_drm_power_mode { power_mode: mode, ..Default::default() });
        machine.npu = machine.npu.with(XDNA_INFO, b::DRM_AMDXDNA_GET_POWER_MODE, 0, answer);
        let _drivers = machine.drive();
        let checks = checks(&machine.files);
        let check = find(&checks, "npu0.power");
        assert_eq!(check.verdict, verdict, "{name}");
        assert!(check.evidence.to_string().contains(&format!("power mode {name}")), "{check:?}");
    }
}

#[test]
fn an_npu_that_computes_wrongly_or_not_at_all_fails() {
    for (behaviour, words) in [
        (Behaviour::Wrong, "vector add of 4,096 bf16 on four columns: 1 of 4096 values of the NPU's vector add"),
        (Behaviour::Late, "vector add of 4,096 bf16 on four columns: vector_add_bf16 on the NPU did not end within"),
        (Behaviour::State(5), "vector add of 4,096 bf16 on four columns: the NPU reports an error"),
    ] {
        let machine = TestMachine::new("8945hs").with_array();
        let array = machine.npu.array.clone().unwrap();
        array.state().behaviour = behaviour;
        let _drivers = machine.drive();
        let checks = checks(&machine.files);
        assert_sound(&checks, words);
        let check = find(&checks, "npu0.add");
        assert!(check.verdict == Verdict::Fail && check.evidence.to_string().starts_with(words), "{check:?}");
        assert!(!checks.iter().any(|c| c.name == "npu0.product"));
        assert_eq!(array.state().held(), 0);
    }
}
