//! The assembler of Kiln's NPU programs: AIE2, the core of XDNA 1 (Phoenix, Hawk Point).
//!
//! # Principles
//!
//! - Sources are what a person reads: one file a kernel, one line a cycle. Nothing is scheduled behind the writer's back.
//! - The core has no interlocks, so a hazard is an error of assembly, never a wrong result of a run.
//! - What the machine is stands in one table, `data/aie2.isa`. Bytes of independent source hold it to account.
//! - Instructions are data: what is encoded can be decoded, walked and executed by whoever has the table.
//!
//! # Flow
//!
//! [`source`] reads lines into instructions whose immediates may name labels. [`assemble()`] chooses the width of each
//! bundle, gives labels their addresses and encodes by [`isa`]. [`flow`] follows branches and hardware loops, [`hazard`]
//! checks what can meet in the pipeline along them. [`listing`] writes what came out; [`disassemble`] reads it back.
//!
//! # Glossary
//!
//! - Slot: a place of a bundle; each belongs to a unit of the core. Bundle: what issues in one cycle.
//! - Stage: cycle of an instruction's way through the pipeline; it issues in stage 1.
//! - Delay slots: the five bundles behind a branch that issue before it takes effect.
//! - Hardware loop: bundles from `ls` to `le`, repeated `lc` times with no branch.
//! - `x`, `w`: vector registers of 512 bits and their halves. `cm`, `bm`, `am`: accumulators of 1024 bits, their halves
//!   and quarters.

pub mod assemble;
pub mod disassemble;
pub mod error;
pub mod expression;
pub mod flow;
pub mod hazard;
pub mod isa;
pub mod listing;
pub mod register;
pub mod source;
pub mod table;
pub mod timing;

pub use assemble::{Program, assemble};
pub use error::Error;
pub use isa::{Bundle, Instruction, Isa, Operand};
