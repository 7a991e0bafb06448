//! What a program does wrong.

use crate::decode::Refused;
use crate::memory::SEVERAL;
use std::fmt;

/// One fault, without its place.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The words are no instruction.
    Refused(String),
    /// The instruction is known but not executed.
    NotExecuted(String),
    /// A register that an instruction in flight loads is used before its counter was waited for.
    NotWaited {
        /// The register.
        register: String,
        /// The counter that was not waited for.
        counter: &'static str,
    },
    /// Something that depends on what was never written.
    Poison(String),
    /// An access outside each buffer.
    OutOfBounds {
        /// The access' first byte.
        address: u64,
        /// Its size.
        bytes: u32,
        /// The nearest buffer below.
        buffer: String,
    },
    /// An address that is no multiple of its element.
    Misaligned(u64),
    /// A cache gives what memory no longer holds.
    Stale {
        /// Which cache.
        cache: &'static str,
        /// The first such byte's dword.
        address: u64,
    },
    /// Two waves use one byte of LDS with no barrier between, and one writes it.
    Race {
        /// The byte.
        byte: u32,
        /// The two waves of the workgroup.
        waves: [u32; 2],
    },
    /// Two dispatches with nothing between them use one dword, and one writes it.
    Unordered {
        /// The dword.
        address: u64,
        /// What it is in.
        buffer: String,
        /// The two of the run, the one that came first here before the other; [`SEVERAL`] where more than one did.
        dispatches: [u32; 2],
    },
    /// The wave reaches a barrier with stores to LDS in flight.
    BarrierBeforeStore,
    /// All waves wait, or the budget of instructions is spent.
    NoEnd,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::NotExecuted(name) => write!(f, "{name} is not executed"),
            Self::NotWaited { register, counter } => write!(f, "{register} is in flight: {counter} was not waited for"),
            Self::Poison(what) => write!(f, "{what} was never written"),
            Self::OutOfBounds { address, bytes, buffer } => {
                write!(f, "{bytes} bytes at {address:#x} are in no buffer; {buffer}")
            }
            Self::Misaligned(address) => write!(f, "address {address:#x} is not aligned"),
            Self::Stale { cache, address } => write!(f, "the {cache} has stale bytes at {address:#x}"),
            Self::Race { byte, waves: [a, b] } => write!(f, "waves {a} and {b} race for byte {byte} of LDS"),
            Self::Unordered { address, buffer, dispatches: [a, b] } => {
                let a = if *a == SEVERAL { "several others".into() } else { a.to_string() };
                write!(
                    f,
                    "dispatches {a} and {b} of one run use the dword at {address:#x} of {buffer}, and nothing orders them"
                )
            }
            Self::BarrierBeforeStore => write!(f, "a barrier with stores to LDS in flight"),
            Self::NoEnd => write!(f, "the program does not end"),
        }
    }
}

/// A fault and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// What is wrong.
    pub what: What,
    /// The instruction, as far as there is one.
    pub inst: String,
    /// Its byte in the code.
    pub at: usize,
    /// Workgroup and wave.
    pub wave: ([u32; 3], u32),
    /// The dispatch among those of the run.
    pub dispatch: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([x, y, z], wave) = self.wave;
        write!(f, "{} at {:#x}, workgroup {x},{y},{z} wave {wave}: {}", self.inst, self.at, self.what)
    }
}

impl std::error::Error for Fault {}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        let (inst, at) = (format!("{:08x}", refused.word), refused.at * 4);
        Self { what: What::Refused(refused.to_string()), inst, at, wave: ([0; 3], 0), dispatch: 0 }
    }
}
