//! Kiln: a synchronous, bare-metal-style runtime for the text models of Gemma 3 and Gemma 4, dense and with experts,
//! and their drafters.
//!
//! # Principles
//!
//! - **Baked once, replayed for every token.** Loading a model bakes lists of commands. Decoding replays them. Nothing
//!   is recorded, bound or allocated while tokens flow; the data that changes from token to token lies in device
//!   memory.
//! - **Every byte is placed before anything is allocated.** A model that does not fit is refused with the sum.
//! - **One schedule, several executors.** A forward pass is a list of steps as plain data. The executor on a device
//!   turns it into dispatches; the CPU executor runs it with the processor's vector units; the reference executor
//!   interprets it as its formulas read. A change of a step changes all three.
//! - **Synchronous.** Threads and waits with deadlines; no async runtime, no graph framework.
//! - **Claims are checked.** Offsets in a file, answers of a driver and a user's input are claims until validated. A
//!   rate is printed with its share of the roofline, and one above it is an error.
//!
//! # The flow
//!
//! docs/architecture.md has the way of a model and of a token, the modules in the order in which they use each other,
//! and the invariants.
//!
//! To answer a prompt: [`engine::ModelFiles`] names the model, [`engine::load`] gives an executor, and an engine
//! (`engine::open`) answers requests with it, many at once and from any thread, by the events of their replies. A
//! [`Cancel`] stops any of this. `serve` and the command line ask the same engine; the C interface wraps `serve`'s.
//!
//! # Glossary
//!
//! - **Activation layout**: how a row of activations lies in memory for the kernel that reads it: f32, f16 with a scale
//!   a row, or 16-bit fixed point in two planes of int8.
//! - **Arena**: the one allocation that holds the step state and every activation.
//! - **Arithmetic**: the instructions of a matrix product: f32, packed integer dot products, or matrix units on f16 or
//!   s8.
//! - **Chunk**: rows of a prompt that one pass takes; made in [`sequence::session::Session::propose`].
//! - **Closing**: the way from a place in a document to its end, in tokens (`grammar`).
//! - **Draft**: tokens that may come next, guessed without the model; a pass *verifies* them ([`sequence::draft`]).
//! - **Driver**: the interface to a device that replaying needs (`replay::driver`).
//! - **Edge**: a wait of a dispatch, a fill, a copy or the host for work before it (`lower::dispatch`).
//! - **Edit**: a token whose logit the sampler changes, by a penalty or a bias; the host reads its logit separately.
//! - **Eligible** tokens of a row: allowed, no edits, with a logit above −∞.
//! - **Fragment**: the part of a matrix that one lane holds while its subgroup multiplies it.
//! - **Group**: the 32 weights of a row that share a scale in INT4, Q8_0 and Q4_K ([`model::WeightFormat`]).
//! - **Head rows**: the rows of a pass whose logits are computed.
//! - **Kind of pass**: the number of its rows, their relation to each other, and the source of their tokens. Lists are
//!   baked for each kind.
//! - **List**: commands that are baked once and submitted any number of times: dispatches, fills, copies, stamps, and
//!   edges.
//! - **Mixed pass**: a pass with a chunk of one sequence, and after it rows of others that decode.
//! - **Next token** of a head row: its argmax, or the one token that its sample request chose. The next pass may take
//!   it before the host does.
//! - **Panel**: sixteen rows of a matrix as the CPU executor reads them, a lane each.
//! - **Offload**: computes some steps of a device's passes in the device's place, between two submits
//!   ([`executor::offload`]).
//! - **Packed slot**: a copy of a slot in the activation layout of the linear step that reads it.
//! - **Pass**: one run of the schedule over some rows.
//! - **Piece**: a part of a pass that one executor runs without a break: dispatches of the device, or an offload's
//!   step. Its inputs and outputs lie in slots, in f32.
//! - **Plan**: the place of each byte: weights, KV cache, arena, staging.
//! - **Prefix**: the part of its last sequence that a free KV slot keeps, for prompts that begin alike.
//! - **Relay**: dispatches that depend on each other without a barrier between them: each starts early, loads its
//!   weights, and waits for the one before it by a counter in the arena (shaders/relay.glsl, `replay::list`). On AMD it
//!   starts after that one, by an edge without a cache write-back.
//! - **Page**: keys and values of 64 positions of a sequence, for all local or all global layers ([`schedule::kv`]). A
//!   sequence's *page table* says which page holds which positions; sequences that begin alike share pages.
//! - **Row**: a token at a position of a sequence.
//! - **Run ahead**: to start a pass before the host has the tokens of the one before
//!   ([`executor::Submission::Next`]).
//! - **Sample request**: the host's query of a head row's logits, for a row whose token is not their argmax
//!   ([`schedule::choice`]).
//! - **Segment**: the part of a pass that computes one layer, the embedding or the head.
//! - **Slot**: an activation's place in the arena, `[rows, width]` of f32.
//! - **Stage**: a part of a relayed dispatch's output that the next dispatch waits for separately.
//! - **Staging**: memory that the host maps, through which uploads and results pass if the host cannot map the
//!   device's.
//! - **Step state**: the data that changes from token to token: ids, positions, sequences, and each row's next token.
//! - **Tile**: how a product is divided among workgroups and lanes.
//! - **Tuning**: measuring which tiles a device runs fastest.
#![warn(missing_docs)]
// Without Vulkan much of what runs on devices has no caller.
#![cfg_attr(not(feature = "vulkan"), allow(dead_code, unused_imports))]

#[cfg(feature = "amdgpu")]
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
mod amdgpu;
mod cancel;
#[cfg(feature = "cli")]
#[cfg_attr(not(all(feature = "pull", feature = "serve")), allow(dead_code, unused_imports))]
mod cli;
mod cpu;
// Some items of the modules with such an attribute are used only by one feature, or only in tests.
#[cfg_attr(not(all(feature = "cli", feature = "serve", feature = "testing")), allow(dead_code, unused_imports))]
mod diagnose;
mod display;
pub mod engine;
mod error;
pub mod executor;
#[cfg(feature = "serve")]
#[cfg_attr(not(feature = "testing"), allow(dead_code, unused_imports))]
mod grammar;
#[cfg_attr(not(all(feature = "cli", feature = "pull", feature = "testing")), allow(dead_code, unused_imports))]
mod hub;
mod lower;
#[cfg_attr(not(all(feature = "cli", feature = "serve", feature = "testing")), allow(dead_code, unused_imports))]
mod machine;
pub mod model;
// Some of this module is used only in tests.
#[cfg(feature = "npu")]
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
mod npu;
#[cfg(feature = "npu")]
mod offload;
#[cfg_attr(not(all(feature = "cli", feature = "serve", feature = "testing")), allow(dead_code, unused_imports))]
mod plan;
mod reference;
mod replay;
pub mod schedule;
pub mod sequence;
#[cfg(feature = "serve")]
pub mod serve;
// Some of this module is used only in tests.
#[cfg_attr(not(all(feature = "npu", feature = "testing")), allow(dead_code))]
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod text;
#[cfg_attr(not(all(feature = "cli", feature = "serve")), allow(dead_code, unused_imports))]
mod version;
#[cfg(feature = "vulkan")]
mod vulkan;

pub use cancel::Cancel;
#[cfg(feature = "cli")]
pub use cli::command_line;
pub use error::{Error, Result, Setting, SettingNames, Text};
pub use executor::Executor;
