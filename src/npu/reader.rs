//! Reads by the NPU that go on without a pause, each proven by its sums.

use super::context::MOST_RUNNING;
use super::reads::{CHANNELS, HEADERS_BYTES, ReadLayout, SUMS_BYTES, wrong_channels};
use super::{BufferId, CommandId, LoadedProgram};
use crate::executor::measure::MemoryReader;
use crate::{Error, Result};
use std::time::Duration;

/// Longest time for a read, which takes tens of milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// Room for a stream: some 30 words a transfer, and two transfers a channel beside headers and sums.
const STREAM_BYTES: usize = 16 << 10;

/// The program `read_sum` with a buffer that its commands read.
pub struct NpuReader<'x> {
    program: LoadedProgram<'x>,
    headers: BufferId,
    buffer: BufferId,
    data: Vec<u8>,
    passes: u32,
    /// Commands, each with a buffer of sums. They end in the order in which they are started.
    commands: Vec<(CommandId, BufferId)>,
    /// The command that is the next to end, and how many are under way.
    oldest: usize,
    running: usize,
    layout: ReadLayout,
    /// What each command is to leave.
    expected: Vec<u8>,
}

impl<'x> NpuReader<'x> {
    /// That of `data`, which each command reads so many times, through all channels.
    ///
    /// # Errors
    /// Refused: memory is short. Device: the driver refuses.
    pub fn new(mut program: LoadedProgram<'x>, data: Vec<u8>, passes: u32) -> Result<NpuReader<'x>> {
        let (headers, buffer) = (program.allocate(HEADERS_BYTES as u64)?, program.allocate(data.len() as u64)?);
        program.write(buffer, &data)?;
        let mut commands = Vec::new();
        for _ in 0..MOST_RUNNING {
            commands.push((program.add_command(STREAM_BYTES)?, program.allocate(SUMS_BYTES as u64)?));
        }
        let layout = ReadLayout::new(CHANNELS, data.len(), passes).map_err(unreadable)?;
        let (oldest, running, expected) = (0, 0, Vec::new());
        let mut reader =
            NpuReader { program, headers, buffer, data, passes, commands, oldest, running, layout, expected };
        reader.use_channels(CHANNELS)?;
        Ok(reader)
    }

    /// Reads through so many channels from now on. Nothing is under way.
    ///
    /// # Errors
    /// Input: there are not so many, or parts are not whole. Device: the driver refuses, or a command failed.
    pub fn use_channels(&mut self, channels: usize) -> Result<()> {
        self.layout = ReadLayout::new(channels, self.data.len(), self.passes).map_err(unreadable)?;
        self.expected = self.layout.sums(&self.data);
        self.program.write(self.headers, &self.layout.headers())?;
        let stream = self.layout.stream().map_err(unreadable)?.bytes();
        self.commands.iter().try_for_each(|(command, _)| self.program.set_stream(*command, &stream))
    }

    fn start_one(&mut self) -> Result<()> {
        let (command, sums) = self.commands[(self.oldest + self.running) % self.commands.len()];
        // What a command does not write is not what one before it wrote.
        self.program.write(sums, &[0; SUMS_BYTES])?;
        self.program.start(command, &[(self.headers, 0), (self.buffer, 0), (sums, 0)])?;
        self.running += 1;
        Ok(())
    }

    /// Takes in that the oldest read has ended.
    fn end_one(&mut self) -> Result<()> {
        let mut found = [0; SUMS_BYTES];
        self.program.read(self.commands[self.oldest].1, &mut found)?;
        (self.oldest, self.running) = ((self.oldest + 1) % self.commands.len(), self.running - 1);
        check_sums(&found, &self.expected)
    }

    /// The program, for other commands. Nothing is under way.
    pub fn into_program(self) -> LoadedProgram<'x> {
        self.program
    }
}

impl MemoryReader for NpuReader<'_> {
    fn name(&self) -> &'static str {
        "the NPU"
    }

    fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    fn start(&mut self) -> Result<()> {
        (0..self.commands.len()).try_for_each(|_| self.start_one())
    }

    fn poll(&mut self) -> Result<bool> {
        if !self.program.poll(self.commands[self.oldest].0)? {
            return Ok(false);
        }
        self.end_one()?;
        self.start_one()?;
        Ok(true)
    }

    fn stop(&mut self) -> Result<()> {
        while self.running > 0 {
            self.program.wait(self.commands[self.oldest].0, DEADLINE, DEADLINE)?;
            self.end_one()?;
        }
        Ok(())
    }
}

/// That the sums are those of what was to be read.
///
/// # Errors
/// Device: they are not.
pub fn check_sums(found: &[u8], expected: &[u8]) -> Result<()> {
    match wrong_channels(found, expected) {
        0 => Ok(()),
        wrong => Err(Error::device(
            format!("the sums of {wrong} of the NPU's {CHANNELS} channels are not those of what was there to be read"),
            "do not use this NPU: look for newer firmware, a BIOS update or a newer kernel, and report this",
        )),
    }
}

fn unreadable(cause: String) -> Error {
    Error::input(cause, "report this")
}
