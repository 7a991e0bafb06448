//! Continuous reads by the NPU, each verified by checksums.

use super::context::MOST_RUNNING;
use super::reads::{CHANNELS, HEADERS_BYTES, ReadLayout, SUMS_BYTES, wrong_channels};
use super::{BufferId, CommandId, LoadedProgram};
use crate::executor::measure::MemoryReader;
use crate::{Error, Result};
use std::time::Duration;

/// Longest time for a read, which takes tens of milliseconds.
const DEADLINE: Duration = Duration::from_secs(5);
/// Room for a stream: some 30 words per transfer, and two transfers per channel beside headers and sums.
const STREAM_BYTES: usize = 16 << 10;

/// The program `read_sum` with a buffer that its commands read.
pub struct NpuReader<'x> {
    program: LoadedProgram<'x>,
    headers: BufferId,
    buffer: BufferId,
    data: Vec<u8>,
    passes: u32,
    /// Commands, each with a buffer of sums. They end in the order of their starts.
    commands: Vec<(CommandId, BufferId)>,
    /// The command that ends next, and the number of commands in flight.
    oldest: usize,
    running: usize,
    layout: ReadLayout,
    /// The sums that each command must write, if it read all bytes.
    expected: Vec<u8>,
}

impl<'x> NpuReader<'x> {
    /// A reader of `data`, which each command reads `passes` times through all channels.
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

    /// Sets the number of channels for later reads. No command may be in flight.
    ///
    /// # Errors
    /// Input: there are not as many, or the data does not divide into whole parts. Device: the driver refuses, or a
    /// command failed.
    pub fn use_channels(&mut self, channels: usize) -> Result<()> {
        self.layout = ReadLayout::new(channels, self.data.len(), self.passes).map_err(unreadable)?;
        self.expected = self.layout.sums(&self.data);
        self.program.write(self.headers, &self.layout.headers())?;
        let stream = self.layout.stream().map_err(unreadable)?.bytes();
        self.commands.iter().try_for_each(|(command, _)| self.program.set_stream(*command, &stream))
    }

    fn start_one(&mut self) -> Result<()> {
        let (command, sums) = self.commands[(self.oldest + self.running) % self.commands.len()];
        // Sums of an earlier command must not be taken for those of this one.
        self.program.write(sums, &[0; SUMS_BYTES])?;
        self.program.start(command, &[(self.headers, 0), (self.buffer, 0), (sums, 0)])?;
        self.running += 1;
        Ok(())
    }

    /// Takes the oldest command, which has ended, off the queue, and checks the sums that it wrote.
    fn end_one(&mut self) -> Result<()> {
        let mut found = [0; SUMS_BYTES];
        self.program.read(self.commands[self.oldest].1, &mut found)?;
        (self.oldest, self.running) = ((self.oldest + 1) % self.commands.len(), self.running - 1);
        check_sums(&found, &self.expected)
    }

    /// The program, for other commands. No command may be in flight.
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

/// Checks the sums of a read.
///
/// # Errors
/// Device: they differ from the expected ones.
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
