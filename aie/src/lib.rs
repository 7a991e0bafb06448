//! The assembler and packer of Kiln's NPU programs: AIE2, the array of XDNA 1 (Phoenix, Hawk Point).
//!
//! # Principles
//!
//! - Sources are what a person reads: one file a kernel, one line a cycle. Nothing is scheduled behind the writer's back.
//! - The core has no interlocks, so a hazard is an error of assembly, never a wrong result of a run.
//! - What the machine is stands in one table, `data/aie2.isa`. Bytes of independent source hold it to account.
//! - Instructions are data: what is encoded can be decoded, walked and executed by whoever has the table.
//! - What surrounds a kernel stands beside it: which tiles, which buffers and locks, which routes. Nothing is laid out
//!   elsewhere.
//! - Packed bytes are run before hardware sees them: a model of the array, written from the documents alone (tests/model),
//!   takes them as the firmware does.
//!
//! # Flow
//!
//! [`source`] reads lines into instructions whose immediates may name labels. [`assemble()`] chooses the width of each
//! bundle, gives labels their addresses and encodes by [`isa`]. [`flow`] follows branches and hardware loops, [`hazard`]
//! checks what can meet in the pipeline along them. [`listing`] writes what came out; [`disassemble`] reads it back.
//!
//! A [`pack::Design`] ([`designs`]) places programs on tiles, and rings of buffers between the channels that fill and drain
//! them. It becomes [commands](pack::command), which are writes of the
//! array's registers, and [operations](pack::sequence) of a [run](pack::run). The commands go into a partition's
//! [image](pack::image), which the driver takes, and that into a [container](pack::container), which libxrt takes. A table
//! in Rust ([`host`]) embeds them in the executable.
//!
//! # Glossary
//!
//! - Slot: a place of a bundle; each belongs to a unit of the core. Bundle: what issues in one cycle.
//! - Stage: cycle of an instruction's way through the pipeline; it issues in stage 1.
//! - Delay slots: the five bundles behind a branch that issue before it takes effect.
//! - Hardware loop: bundles from `ls` to `le`, repeated `lc` times with no branch.
//! - `x`, `w`: vector registers of 512 bits and their halves. `cm`, `bm`, `am`: accumulators of 1024 bits, their halves
//!   and quarters.
//! - Shim: the tile through which a column reaches the host's memory. Memory tile: 512 KiB between it and the cores.
//! - Ring: buffers of a tile that are filled and drained in turn, with a lock that counts the empty ones and one that counts
//!   the full ones.
//! - Descriptor: what a DMA channel moves in one go, in a walk of up to four dimensions; its locks say when.
//! - Input, output: a channel that writes a tile's memory from a stream (S2MM), or reads it into one (MM2S).
//! - Token: what a shim's channel sends the firmware when a task is done.

pub mod assemble;
pub mod designs;
pub mod disassemble;
pub mod error;
pub mod expression;
pub mod flow;
pub mod hazard;
pub mod host;
pub mod isa;
pub mod listing;
pub mod pack;
pub mod register;
pub mod source;
pub mod table;
pub mod timing;

pub use assemble::{Program, assemble, assemble_all};
pub use error::Error;
pub use isa::{Bundle, Instruction, Isa, Operand};
