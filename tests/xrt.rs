//! The bridge to libxrt does what its header says, and lets no exception through. The tests use a fake of libxrt
//! (tests/xrt/fake), which can be made to fail. If tools/fetch-xrt has been run, they also use the real one, without a
//! device.

#[path = "../ffi/xrt/compile.rs"]
mod compile;

use kiln::testing::npu::trial::VECTOR_ADD;
use kiln::testing::npu::{BufferId, LoadedProgram};
use kiln::testing::sys::dma_buf::{DmaBuf, sealed_memfd};
use kiln::testing::sys::xrt::{
    Library, Missing, NAME, Run, XrtBuffer, XrtBufferKind, XrtDevice, XrtKernel, XrtProgram,
};
use kiln::{Error, Result};
use libloading::os::unix::Library as Object;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Bytes of a buffer.
const SIZE: usize = 4096;
const SECOND: Duration = Duration::from_secs(1);
const SLOT: &str = "0000:c6:00.1";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The fake, and a bridge linked with it.
struct Fake {
    library: Library,
    object: Object,
    /// Which exception the fake throws is one setting for the whole process.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// The bridge's bytes and the fake's path. Compiled once: the loader takes a second library of the same name for the
/// first.
fn built() -> &'static (Vec<u8>, PathBuf) {
    static BUILT: OnceLock<(Vec<u8>, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("xrt");
        fs::create_dir_all(&directory).unwrap();
        let include = repository("tests/xrt/fake");
        let (fake, bridge) = (directory.join(NAME), directory.join("bridge.so"));
        compile::compile(&[&include.join("fake.cpp")], &include, &[&format!("-Wl,-soname,{NAME}")], &fake).unwrap();
        let installed = compile::Installed { include, library: fake.clone() };
        compile::compile_bridge(&repository("ffi/xrt/kiln_xrt.cpp"), &installed, &bridge).unwrap();
        (fs::read(bridge).unwrap(), fake)
    })
}

impl Fake {
    fn new() -> Fake {
        let alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
        let (bridge, fake) = built();
        let candidates = [PathBuf::from("/nonexistent").join(NAME), fake.clone()];
        // SAFETY: the bridge is compiled from its source.
        let library = unsafe { Library::of(bridge, &candidates) }.unwrap();
        // SAFETY: it is loaded already.
        let object = unsafe { Object::new(fake) }.unwrap();
        Fake { library, object, _alone: alone }
    }

    /// Makes every step throw one kind of exception; 0 for none.
    fn fail(&self, how: i32) {
        // SAFETY: as fake.cpp declares it.
        unsafe { self.object.get::<unsafe extern "C" fn(i32)>(b"fake_fail\0").unwrap()(how) }
    }

    /// Number of allocations that are still held; they are not counted any more.
    fn forget(&self) -> i32 {
        // SAFETY: as fake.cpp declares it.
        unsafe { self.object.get::<unsafe extern "C" fn() -> i32>(b"fake_forget\0").unwrap()() }
    }

    /// Number of allocations that are still held.
    fn alive(&self) -> i32 {
        // SAFETY: as fake.cpp declares it.
        unsafe { self.object.get::<unsafe extern "C" fn() -> i32>(b"fake_alive\0").unwrap()() }
    }
}

/// A device with a program, a kernel, buffers for its arguments and a run.
struct Parts<'x> {
    device: XrtDevice<'x>,
    program: XrtProgram<'x>,
    kernel: XrtKernel<'x>,
    from: XrtBuffer<'x>,
    to: XrtBuffer<'x>,
    run: Run<'x>,
}

impl<'x> Parts<'x> {
    fn new(library: &'x Library, kernel: &str) -> Result<Parts<'x>> {
        let device = library.open(SLOT)?;
        let program = device.load(b"xclbin2\0and more")?;
        let kernel = program.kernel(kernel)?;
        let from = program.allocate(SIZE as u64, XrtBufferKind::Data, kernel.group(0)?)?;
        let to = program.allocate(SIZE as u64, XrtBufferKind::Instructions, kernel.group(1)?)?;
        let mut run = kernel.run()?;
        run.set_buffer(0, &from)?;
        run.set_buffer(1, &to)?;
        run.set_number(2, 3u32)?;
        Ok(Parts { device, program, kernel, from, to, run })
    }
}

fn assert_line(e: &Error, words: &str) {
    let line = e.to_string();
    assert!(line.contains(words) && !line.chars().any(char::is_control) && line.len() < 800, "{words}: {line}");
    assert_eq!(e.exit_code(), 4, "{line}");
}

#[test]
fn a_run_reads_and_writes_what_the_host_has_shown_it() {
    let fake = Fake::new();
    assert_eq!(fake.library.version(), [2, 99, 7]);
    assert_eq!(fake.library.count().unwrap(), 1);
    let mut parts = Parts::new(&fake.library, "add").unwrap();
    assert_eq!(parts.device.name().unwrap(), "Fake  [2JNPU", "nothing that a terminal obeys");
    assert_eq!(parts.device.slot().unwrap(), SLOT);
    let mut seen = [0; 4];
    parts.from.write(100, &[1, 2, 3, 4]).unwrap();
    parts.from.sync_to_device(0..SIZE).unwrap();
    parts.run.start().unwrap();
    assert!(parts.run.wait(SECOND).unwrap());
    parts.to.read(100, &mut seen).unwrap();
    assert_eq!(seen, [0; 4], "not before it is shown to the host");
    parts.to.sync_to_host(0..SIZE).unwrap();
    parts.to.read(100, &mut seen).unwrap();
    assert_eq!(seen, [4, 5, 6, 7]);

    // Again, with another number.
    parts.run.set_number(2, 10u32).unwrap();
    parts.run.start().unwrap();
    assert!(parts.run.wait(Duration::MAX).unwrap());
    parts.to.sync_to_host(0..SIZE).unwrap();
    parts.to.read(100, &mut seen).unwrap();
    assert_eq!(seen, [11, 12, 13, 14]);
}

#[test]
fn a_run_keeps_its_buffers_and_all_go_in_the_end() {
    let fake = Fake::new();
    let Parts { device, program, kernel, from, to, mut run } = Parts::new(&fake.library, "add").unwrap();
    assert_eq!(fake.alive(), 2);
    drop((from, to, kernel, program, device));
    assert_eq!(fake.alive(), 2, "the run's");
    run.start().unwrap();
    assert!(run.wait(SECOND).unwrap());
    drop(run);
    assert_eq!(fake.alive(), 0);
}

#[test]
fn memory_is_imported_and_exported_and_no_descriptor_is_lost() {
    let fake = Fake::new();
    let parts = Parts::new(&fake.library, "add").unwrap();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let memfd = sealed_memfd(8192).unwrap();
    let mut shared = parts.program.import(memfd.as_fd()).unwrap();
    assert_eq!(shared.size(), 8192);
    shared.write(8000, b"seen").unwrap();
    let exported = shared.export().unwrap();
    drop(shared);
    // Both descriptors are still this process's, and have the same bytes.
    for end in [exported, memfd] {
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&fs::File::from(end), &mut bytes, 8000).unwrap();
        assert_eq!(&bytes, b"seen");
    }
    assert_eq!(descriptors(), before);
}

/// The vector add through libxrt, with its buffers.
fn vector_add(fake: &Fake) -> (LoadedProgram<'_>, [BufferId; 3]) {
    let mut context = LoadedProgram::through_xrt(&fake.library, SLOT, VECTOR_ADD.program).unwrap();
    let buffers = [0; 3].map(|_| context.allocate(8192).unwrap());
    (context, buffers)
}

#[test]
fn a_program_runs_on_own_and_on_imported_buffers_and_all_go_in_the_end() {
    let fake = Fake::new();
    let (mut context, buffers) = vector_add(&fake);
    VECTOR_ADD.run(&mut context, &buffers, SECOND).unwrap();
    let shared = [0; 3].map(|_| DmaBuf::from_fd(sealed_memfd(8192).unwrap()).unwrap());
    let imported = VECTOR_ADD.import(&mut context, &shared).unwrap();
    VECTOR_ADD.run(&mut context, &imported, SECOND).unwrap();
    fake.fail(9);
    let wrong = VECTOR_ADD.run(&mut context, &buffers, SECOND).unwrap_err();
    fake.fail(0);
    assert_line(&wrong, "1 of 4096 values of the NPU's vector add");
    drop(context);
    assert_eq!(fake.alive(), 0);
}

#[test]
fn a_program_that_hangs_or_fails_answers_nothing_more() {
    let fake = Fake::new();
    for (how, words) in [(7, "did not end within 1.0 s"), (8, "libxrt failed to finish a run: kernel aborted")] {
        let (mut context, buffers) = vector_add(&fake);
        context.write(buffers[0], &[1; 8192]).unwrap();
        fake.fail(how);
        assert_line(&context.run(&buffers, SECOND).unwrap_err(), words);
        fake.fail(0);
        assert_line(&context.run(&buffers, SECOND).unwrap_err(), "failed before");
        drop(context);
        // A stream and three buffers, which the NPU may still be at work on.
        assert_eq!(fake.forget(), if how == 7 { 4 } else { 0 });
    }
}

#[test]
fn what_is_thrown_at_any_step_of_a_program_is_an_error() {
    let fake = Fake::new();
    let (mut context, buffers) = vector_add(&fake);
    let shared = DmaBuf::from_fd(sealed_memfd(8192).unwrap()).unwrap();
    fake.fail(1);
    let failures = [
        LoadedProgram::through_xrt(&fake.library, SLOT, VECTOR_ADD.program).map(drop),
        context.allocate(8192).map(drop),
        context.import(&shared).map(drop),
        context.write(buffers[0], &[0]),
        context.read(buffers[0], &mut [0]),
        context.run(&buffers, SECOND).map(drop),
    ];
    fake.fail(0);
    for failure in failures {
        assert_line(&failure.unwrap_err(), "the fake fails");
    }
    drop(context);
    assert_eq!(fake.alive(), 0);
}

#[test]
fn what_is_outside_of_a_buffer_is_not_touched() {
    let fake = Fake::new();
    let mut parts = Parts::new(&fake.library, "add").unwrap();
    for (offset, length) in [(4096, 1), (4095, 2), (usize::MAX, 1), (0, 4097)] {
        let mut bytes = vec![0; length];
        assert_eq!(parts.from.write(offset, &bytes).unwrap_err().exit_code(), 2);
        assert_eq!(parts.from.read(offset, &mut bytes).unwrap_err().exit_code(), 2);
    }
    parts.from.write(4096, &[]).unwrap();
}

#[test]
fn a_run_that_hangs_or_fails_is_told_apart_from_one_that_ends() {
    let fake = Fake::new();
    let mut slow = Parts::new(&fake.library, "slow").unwrap();
    slow.run.start().unwrap();
    // The fake, like libxrt, waits for ever at 0.
    assert!(!slow.run.wait(Duration::ZERO).unwrap());
    let mut broken = Parts::new(&fake.library, "broken").unwrap();
    broken.run.start().unwrap();
    assert_line(&broken.run.wait(SECOND).unwrap_err(), "libxrt failed to finish a run: kernel aborted");
    // libxrt ends a process that lets go of a run whose command has not ended.
    drop((slow, broken));
    assert_eq!(fake.forget(), 2, "what the NPU may still be at work on");
}

#[test]
fn what_does_not_exist_is_an_error_in_libxrts_words() {
    let fake = Fake::new();
    let library = &fake.library;
    assert_line(&library.open("7").unwrap_err(), "libxrt failed to open device 7: No such device with index '7'");
    assert_eq!(library.open("a\0b").unwrap_err().exit_code(), 2);
    let mut parts = Parts::new(library, "add").unwrap();
    for image in [&b""[..], b"xclbin", &[0xff; 64]] {
        assert_line(&parts.device.load(image).unwrap_err(), "libxrt failed to load a program: Invalid xclbin");
    }
    assert_line(&parts.program.kernel("none").unwrap_err(), "No such kernel 'none'");
    assert_line(&parts.program.allocate(0, XrtBufferKind::Data, 10).unwrap_err(), "Invalid argument");
    assert_line(&parts.program.allocate(u64::MAX, XrtBufferKind::Data, 10).unwrap_err(), "libxrt failed to allocate");
    assert_line(&parts.run.set_buffer(9, &parts.from).unwrap_err(), "no such argument");
    assert_line(&parts.run.set_number(2, 3u8).unwrap_err(), "no such argument");
}

#[test]
fn whatever_is_thrown_wherever_becomes_an_error() {
    let fake = Fake::new();
    let library = &fake.library;
    let mut parts = Parts::new(library, "add").unwrap();
    let memfd = sealed_memfd(4096).unwrap();
    let thrown = [
        (1, "the fake fails  [31mas told"),
        (2, "none of the standard's"),
        (3, "std::bad_alloc"),
        (4, "none of the standard's"),
        (5, "without a word"),
        (6, "xxxxx"),
    ];
    for (how, words) in thrown {
        fake.fail(how);
        let failures = [
            library.count().map(drop),
            library.open(SLOT).map(drop),
            parts.device.name().map(drop),
            parts.device.slot().map(drop),
            parts.device.load(b"xclbin2\0").map(drop),
            parts.program.kernel("add").map(drop),
            parts.kernel.group(0).map(drop),
            parts.program.allocate(4096, XrtBufferKind::Data, 10).map(drop),
            parts.program.import(memfd.as_fd()).map(drop),
            parts.from.export().map(drop),
            parts.from.sync_to_device(0..SIZE),
            parts.from.sync_to_host(0..SIZE),
            parts.kernel.run().map(drop),
            parts.run.set_buffer(0, &parts.from),
            parts.run.set_number(2, 3u32),
            parts.run.start(),
            parts.run.wait(SECOND).map(drop),
        ];
        fake.fail(0);
        for failure in failures {
            assert_line(&failure.unwrap_err(), words);
        }
    }
    // It still works.
    parts.run.start().unwrap();
    assert!(parts.run.wait(SECOND).unwrap());
    drop(parts);
    assert_eq!(fake.alive(), 0, "nothing is kept of what failed");
}

#[test]
fn a_library_that_is_not_there_or_does_not_load_says_which() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let directory = tempfile::tempdir().unwrap();
    let (bridge, fake) = built();
    // SAFETY: what is no bridge does not export its name.
    let of = |bridge: &[u8], path: &Path| unsafe { Library::of(bridge, &[path.into()]) }.unwrap_err();
    assert_eq!(of(bridge, &directory.path().join("none.so.2")), Missing::NotInstalled);

    let odd = directory.path().join("odd.so");
    for (content, words) in [(&b""[..], "too short"), (b"#!/bin/sh\n", ""), (&[0x7f; 4096], "invalid ELF header")] {
        fs::write(&odd, content).unwrap();
        let Missing::Unloadable(why) = of(bridge, &odd) else { panic!("{content:?}") };
        assert!(why.contains("odd.so") && why.contains(words), "{why}");
    }
    // A library that it needs is missing. That does not mean that it is itself missing.
    let (needy, gone) = (directory.path().join("needy.so"), directory.path().join("libgone.so.2"));
    let source = directory.path().join("empty.cpp");
    fs::write(&source, "").unwrap();
    compile::compile(&[&source], directory.path(), &["-Wl,-soname,libgone.so.2"], &gone).unwrap();
    let linked = gone.display().to_string();
    compile::compile(&[&source], directory.path(), &["-Wl,--no-as-needed", &linked], &needy).unwrap();
    fs::remove_file(&gone).unwrap();
    let Missing::Unloadable(why) = of(bridge, &needy) else { panic!("needy") };
    assert!(why.contains("libgone.so.2"), "{why}");

    // The bridge is damaged, or is another library.
    let other = fs::read(&needy).unwrap();
    for (bytes, words) in
        [(&bridge[..100], "the bridge: "), (&b"not ELF"[..], "the bridge: "), (&other, "libgone.so.2")]
    {
        let Missing::Unloadable(why) = of(bytes, fake) else { panic!("{words}") };
        assert!(why.contains(words), "{why}");
    }
    let Missing::Unloadable(why) = of(&fs::read(fake).unwrap(), fake) else { panic!("no face") };
    assert!(why.contains("kiln_xrt_face_1"), "{why}");
}

/// The real libxrt of tools/fetch-xrt. tools/xrt-test starts this process with its libraries.
#[test]
#[ignore = "takes libxrt, and its own libraries: tools/xrt-test"]
fn the_real_library_without_a_device_says_that_there_is_none() {
    let root = repository("target/xrt");
    let installed = compile::find(&root).expect("tools/fetch-xrt has put it there");
    let directory = tempfile::tempdir().unwrap();
    let bridge = directory.path().join("bridge.so");
    compile::compile_bridge(&repository("ffi/xrt/kiln_xrt.cpp"), &installed, &bridge).unwrap();
    // SAFETY: the bridge is compiled from its source.
    let library = unsafe { Library::of(&fs::read(bridge).unwrap(), &[PathBuf::from(NAME)]) }.unwrap();
    assert_eq!(library.version()[..2], [2, 25]);
    assert_eq!(library.count().unwrap(), 0, "this machine has no NPU");
    for which in ["0", "7", SLOT, "", "nonsense", "99999999999999999999", "-1", "\u{1b}[31m"] {
        let e = library.open(which).map(drop).unwrap_err();
        assert_line(&e, "libxrt failed to open device");
        println!("{e}");
    }
}
