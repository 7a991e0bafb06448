//! The host side against a fake of the driver's interface: correct results, and for a refusal of any step one line with
//! a remedy, no leaks, and no wait past the deadline.

use super::fake::{ArrayState, Behaviour, FakeNpu};
use super::trial::{self, ProgramTrial};
use super::{BufferId, CommandId, LoadedProgram};
use crate::Result;
use crate::sys::dma_buf::{DmaBuf, sealed_memfd};
use crate::sys::drm::Node;
use crate::sys::fake::FakeIoctls;
use half::bf16;
use nix::errno::Errno;
use std::path::Path;
use std::time::Duration;
use tempfile::NamedTempFile;

const DEADLINE: Duration = Duration::from_secs(2);

pub(super) struct NpuMachine {
    pub(super) file: NamedTempFile,
    npu: FakeNpu,
    _fake: FakeIoctls,
}

impl NpuMachine {
    pub(super) fn new() -> NpuMachine {
        // In memory if possible: thousands of files with mapped pages keep a disk busy for minutes.
        let file = NamedTempFile::new_in("/dev/shm").or_else(|_| NamedTempFile::new()).unwrap();
        let npu = FakeNpu::new(file.path());
        NpuMachine { _fake: npu.at(file.path()), npu, file }
    }

    fn load(&self, trial: &ProgramTrial) -> Result<LoadedProgram<'static>> {
        LoadedProgram::through_kernel(open(self.file.path())?, trial.program)
    }

    /// Loads, runs on own buffers and on imported ones.
    fn try_all(&self, trial: &ProgramTrial) -> Result<()> {
        let mut context = self.load(trial)?;
        let own = trial.allocate(&mut context)?;
        trial.run(&mut context, &own, DEADLINE)?;
        let imported = trial.import(&mut context, &dma_bufs())?;
        trial.run(&mut context, &imported, DEADLINE).map(drop)
    }

    fn with<T>(&self, change: impl FnOnce(&mut ArrayState) -> T) -> T {
        change(&mut self.npu.state())
    }

    #[track_caller]
    pub(super) fn assert_clean(&self) {
        self.with(|array| {
            assert_eq!(array.held(), 0, "{array:?}");
            assert!(array.violations.is_empty(), "{:?}", array.violations);
        });
    }
}

fn open(path: &Path) -> Result<Node> {
    Ok(Node::open(path)?)
}

fn dma_bufs() -> [DmaBuf; 3] {
    [0; 3].map(|_| DmaBuf::from_fd(sealed_memfd(16384).unwrap()).unwrap())
}

#[test]
fn programs_run_on_own_and_on_imported_buffers_and_all_is_given_back() {
    for trial in [trial::VECTOR_ADD, trial::PRODUCT] {
        let machine = NpuMachine::new();
        machine.try_all(&trial).unwrap();
        assert_eq!(machine.with(|array| array.log.iter().filter(|&&n| n == 0x46).count()), 6, "runs");
        machine.assert_clean();
    }
}

#[test]
fn a_wrong_value_is_found() {
    for trial in [trial::VECTOR_ADD, trial::PRODUCT] {
        let machine = NpuMachine::new();
        machine.with(|array| array.behaviour = Behaviour::Wrong);
        let e = machine.try_all(&trial).unwrap_err();
        assert!(e.to_string().starts_with("1 of "), "{e}");
        assert_eq!(e.exit_code(), 4);
        machine.assert_clean();
    }
}

/// Refuses each request in turn: once with each error, and with EIO for this and all later ones of its kind.
#[test]
fn whatever_is_refused_at_whatever_step_is_one_line_and_leaves_nothing() {
    let counted = NpuMachine::new();
    counted.try_all(&trial::VECTOR_ADD).unwrap();
    let log = counted.with(|array| array.log.clone());
    // The host gives up handles even if the driver refuses to close them.
    let cleans = |number: u8| matches!(number, 0x09 | 0x41 | 0xc0);
    let errnos = [
        Errno::EPERM,
        Errno::ENOENT,
        Errno::EIO,
        Errno::ENXIO,
        Errno::EBADF,
        Errno::ENOMEM,
        Errno::EACCES,
        Errno::EFAULT,
        Errno::EBUSY,
        Errno::ENODEV,
        Errno::EINVAL,
        Errno::ENFILE,
        Errno::EMFILE,
        Errno::ENOTTY,
        Errno::ENOSPC,
        Errno::ERANGE,
        Errno::ENOSYS,
        Errno::ETIME,
        Errno::EOVERFLOW,
        Errno::EOPNOTSUPP,
        Errno::ETIMEDOUT,
        Errno::EAGAIN,
    ];
    assert!(log.len() > 30 && log.iter().filter(|n| !cleans(**n)).count() > 20, "{log:x?}");
    for (index, &number) in log.iter().enumerate() {
        for errno in errnos {
            for always in [false, true] {
                // A driver that stays busy is retried a thousand times, so only at one step: each takes seconds under
                // load.
                let submits = number == 0x46;
                if always && !(errno == Errno::EIO || errno == Errno::EAGAIN && submits) {
                    continue;
                }
                let machine = NpuMachine::new();
                machine.with(|array| array.refuse = Some((index, errno, always)));
                let answer = machine.try_all(&trial::VECTOR_ADD);
                let what = format!("request {number:#x}, number {index}, {errno}, always: {always}");
                // A request to a busy driver is repeated.
                let passes = cleans(number) || errno == Errno::EAGAIN && !always;
                match answer {
                    Ok(()) => assert!(passes, "{what}: nothing was said"),
                    Err(e) => {
                        assert!(!passes, "{what}: {e}");
                        let line = e.to_string();
                        assert!(line.contains("; ") && !line.contains('\n'), "{what}: {line}");
                        assert!([3, 4].contains(&e.exit_code()), "{what}: {line}");
                        // Memory in several pieces.
                        assert!((number, errno) != (0x2e, Errno::EINVAL) || line.contains("IOMMU"), "{line}");
                        // No free columns.
                        let taken = [Errno::ENODEV, Errno::ENOENT, Errno::EBUSY, Errno::ENOSPC, Errno::EAGAIN];
                        if number == 0x40 && taken.contains(&errno) {
                            assert!(line.contains("end what else uses the NPU") && e.exit_code() == 4, "{line}");
                        }
                    }
                }
                // A handle that the driver refused to close counts as the driver's.
                if !cleans(number) {
                    machine.assert_clean();
                }
                machine.with(|array| assert!(array.violations.is_empty(), "{what}: {:?}", array.violations));
            }
        }
    }
}

#[test]
fn a_signal_at_any_step_changes_nothing() {
    let counted = NpuMachine::new();
    counted.try_all(&trial::VECTOR_ADD).unwrap();
    for index in 0..counted.with(|array| array.log.len()) {
        let machine = NpuMachine::new();
        machine.with(|array| array.refuse = Some((index, Errno::EINTR, false)));
        machine.try_all(&trial::VECTOR_ADD).unwrap();
        machine.assert_clean();
    }
}

/// A context of the vector add with its buffers, whose last run failed through this behaviour.
fn failed(machine: &NpuMachine, behaviour: Behaviour) -> (LoadedProgram<'static>, [BufferId; 3], crate::Error) {
    let mut context = machine.load(&trial::VECTOR_ADD).unwrap();
    let buffers = [0; 3].map(|_| context.allocate(8192).unwrap());
    context.write(buffers[0], &[1; 8192]).unwrap();
    context.run(&buffers, DEADLINE).unwrap();
    machine.with(|array| array.behaviour = behaviour);
    let e = context.run(&buffers, DEADLINE).unwrap_err();
    machine.with(|array| array.behaviour = Behaviour::Right);
    (context, buffers, e)
}

#[test]
fn after_a_failed_run_nothing_is_answered() {
    let cases = [
        (Behaviour::Late, "vector_add_bf16 on the NPU did not end within 2.0 s"),
        (Behaviour::State(5), "the NPU reports an error in the program"),
        (Behaviour::State(8), "the program on the NPU timed out"),
        (Behaviour::State(1), "the program on the NPU ended in state 1"),
    ];
    for (behaviour, words) in cases {
        let machine = NpuMachine::new();
        let (mut context, buffers, e) = failed(&machine, behaviour);
        assert!(e.to_string().starts_with(words), "{e}");
        for refused in [
            context.run(&buffers, DEADLINE).map(drop),
            context.write(buffers[0], &[0]),
            context.read(buffers[2], &mut [0]),
        ] {
            assert!(refused.unwrap_err().to_string().contains("failed before"));
        }
        drop(context);
        machine.assert_clean();
    }
}

/// A context of the vector add with `count` commands, and three buffers of four parts, one for each command.
fn with_commands(machine: &NpuMachine, count: usize) -> (LoadedProgram<'static>, Vec<CommandId>, [BufferId; 3]) {
    let mut context = machine.load(&trial::VECTOR_ADD).unwrap();
    let buffers = [0; 3].map(|_| context.allocate(4 * 8192).unwrap());
    let stream = trial::VECTOR_ADD.program.sequence;
    let commands = (0..count)
        .map(|_| {
            // More room than the stream needs.
            let command = context.add_command(stream.len() + 4096).unwrap();
            context.set_stream(command, stream).unwrap();
            command
        })
        .collect();
    (context, commands, buffers)
}

#[test]
fn commands_in_flight_are_polled_and_end_in_their_order() {
    let machine = NpuMachine::new();
    let (mut context, commands, buffers) = with_commands(&machine, 5);
    let numbers: Vec<u8> =
        (0..4u8).flat_map(|part| (0..4096).flat_map(move |_| bf16::from_f32(f32::from(part)).to_le_bytes())).collect();
    context.write(buffers[0], &numbers).unwrap();
    context.write(buffers[1], &numbers).unwrap();
    machine.with(|array| array.behaviour = Behaviour::Held);
    let part = |index: u64| buffers.map(|buffer| (buffer, 8192 * index));
    for (index, command) in (0u64..4).zip(&commands) {
        context.start(*command, &part(index)).unwrap();
    }
    let refused = |result: Result<()>, words: &str| {
        let e = result.unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains(words), "{e}");
    };
    refused(context.start(commands[4], &part(0)), "4 commands run on the NPU");
    refused(context.start(commands[0], &part(0)), "while it runs");
    refused(context.set_stream(commands[1], trial::VECTOR_ADD.program.sequence), "while it runs");
    refused(context.write(buffers[0], &[0]), "while a command runs on it");
    refused(context.read(buffers[2], &mut [0]), "while a command runs on it");
    for ended in 0..4 {
        for (index, command) in commands[..4].iter().enumerate() {
            assert_eq!(context.poll(*command).unwrap(), index < ended, "{index} of {ended}");
        }
        machine.with(|array| array.let_go(4));
    }
    for command in &commands[..4] {
        context.wait(*command, DEADLINE, DEADLINE).unwrap();
    }
    let mut sums = vec![0; 4 * 8192];
    context.read(buffers[2], &mut sums).unwrap();
    for (index, sums) in sums.chunks(8192).enumerate() {
        let all = sums.chunks(2).all(|sum| bf16::from_le_bytes([sum[0], sum[1]]).to_f32() == 2.0 * index as f32);
        assert!(all, "part {index}");
    }
    drop(context);
    machine.assert_clean();
}

#[test]
fn a_command_that_fails_ends_them_all() {
    let machine = NpuMachine::new();
    let (mut context, commands, buffers) = with_commands(&machine, 3);
    machine.with(|array| array.behaviour = Behaviour::Held);
    let arguments = buffers.map(|buffer| (buffer, 0));
    commands.iter().for_each(|command| context.start(*command, &arguments).unwrap());
    machine.with(|array| array.let_go(5));
    let e = context.poll(commands[0]).unwrap_err();
    assert!(e.to_string().starts_with("the NPU reports an error"), "{e}");
    for command in &commands {
        assert!(context.poll(*command).unwrap_err().to_string().contains("failed before"));
        assert!(context.start(*command, &arguments).unwrap_err().to_string().contains("failed before"));
    }
    drop(context);
    machine.assert_clean();
}

#[test]
fn a_stream_is_changed_within_its_room_alone() {
    let machine = NpuMachine::new();
    let (mut context, commands, buffers) = with_commands(&machine, 1);
    let stream = trial::VECTOR_ADD.program.sequence;
    let refusals = [
        context.set_stream(commands[0], &vec![0; stream.len() + 4100]),
        context.patch_stream(commands[0], stream.len() - 4, &[0; 8]),
        context.patch_stream(commands[0], usize::MAX, &[0; 4]),
        context.start(commands[0], &buffers.map(|buffer| (buffer, 4 * 8192))),
    ];
    assert!(refusals.into_iter().all(|refusal| refusal.unwrap_err().exit_code() == 2));
    // The fake accepts only the right stream, so the change is undone before the run.
    context.patch_stream(commands[0], 16, &[1; 8]).unwrap();
    context.patch_stream(commands[0], 16, &stream[16..24]).unwrap();
    context.start(commands[0], &buffers.map(|buffer| (buffer, 0))).unwrap();
    assert!(context.poll(commands[0]).unwrap());
    // Another program's ids are not valid commands of this one.
    let other = NpuMachine::new();
    let (_context, others, _) = with_commands(&other, 3);
    assert_eq!(context.set_stream(others[2], stream).unwrap_err().exit_code(), 2);
}

#[test]
fn a_late_context_ends_before_the_memory_that_its_run_uses() {
    let machine = NpuMachine::new();
    let (context, ..) = failed(&machine, Behaviour::Late);
    drop(context);
    machine.assert_clean();
}

#[test]
fn only_the_buffers_that_a_program_takes_are_taken() {
    let machine = NpuMachine::new();
    let mut context = machine.load(&trial::VECTOR_ADD).unwrap();
    let [a, b, c] = [0; 3].map(|_| context.allocate(8192).unwrap());
    let short = context.allocate(4096).unwrap();
    let cases: [&[BufferId]; 5] = [&[], &[a, b], &[a, b, c, c], &[a, b, short], &[short, b, c]];
    for arguments in cases {
        assert_eq!(context.run(arguments, DEADLINE).unwrap_err().exit_code(), 2, "{arguments:?}");
    }
    assert_eq!(context.write(a, &[0; 8193]).unwrap_err().exit_code(), 2);
    assert_eq!(context.read(short, &mut [0; 4097]).unwrap_err().exit_code(), 2);
    context.run(&[a, b, c], DEADLINE).unwrap();
}

#[test]
fn addresses_outside_of_the_heap_are_not_written_to() {
    let machine = NpuMachine::new();
    for shift in [1 << 26, 1 << 40, u64::MAX - (1 << 30), 0u64.wrapping_sub(4096)] {
        machine.with(|array| array.shift = shift);
        let e = machine.load(&trial::VECTOR_ADD).unwrap_err();
        assert!(e.to_string().contains("write to the NPU's heap"), "{e}");
        machine.assert_clean();
    }
}

#[test]
fn a_node_that_is_no_npu_is_refused_in_words() {
    let file = NamedTempFile::new().unwrap();
    let e = LoadedProgram::through_kernel(open(file.path()).unwrap(), trial::VECTOR_ADD.program).unwrap_err();
    assert!(e.to_string().contains("allocate an NPU buffer"), "{e}");
}
