//! Kiln: a synchronous, bare-metal-style runtime for Gemma 3 text models.
//!
//! # Principles
//!
//! - **Baked once, replayed for every token.** Loading a model bakes lists of commands. Decoding replays them. Nothing
//!   is recorded, bound or allocated while tokens flow; what changes from token to token is data in device memory.
//! - **Every byte is placed before anything is allocated.** A model that does not fit is refused with the sum.
//! - **One schedule, several executors.** A forward pass is a list of steps as plain data. The executor on a
//!   device turns it into dispatches; the CPU executor runs it with the processor's vector units; the reference
//!   executor interprets it as its formulas read. Altering a step alters all alike.
//! - **Synchronous.** Threads and waits with deadlines; no async runtime, no graph framework.
//! - **Claims are checked.** Offsets in a file, answers of a driver and words of a user are claims until validated. A
//!   rate is printed with its share of the roofline, and one above it is an error.
//!
//! # The flow
//!
//! ```text
//! safetensors ──► checkpoint ──► plan ──► upload ──► bake ──► replay ──► logits ──► sampler ──► text
//!  (files)        (views)      (bytes)   (once)    (once)   (per token)
//! ```
//!
//! | module | what it does |
//! | --- | --- |
//! | [`model`] | shape, tensors and weight formats; reads checkpoints, writes and forges them |
//! | [`hub`] | models in the Hugging Face hub's cache, by their names there, and downloads (feature `pull`, on by default) |
//! | [`schedule`] | the steps of a forward pass, where their operands lie, and what they cost |
//! | [`machine`] | what this machine has: files, device nodes, heaps |
//! | [`plan`] | places every byte of a schedule in heaps, or refuses with the sum |
//! | [`executor`] | what runs a schedule, and what measures it |
//! | `reference` | the reference executor: each step as its formula reads |
//! | `cpu` | the CPU executor: the steps with vector units, on threads of its own |
//! | `lower` | from steps to dispatches of kernels, as plain data |
//! | `replay` | the executor on a device: bakes every kind of pass once, and replays it |
//! | `vulkan` | the driver of devices by Vulkan |
//! | [`engine`] | from a model's files and [`engine::Options`] to a loaded executor |
//! | [`sequence`] | sessions, prompts, choosing tokens, replies, conversations |
//! | [`serve`] | answers other programs over HTTP (feature `serve`, on by default) |
//! | [`grammar`] | what an answer may be: JSON schemas and grammars (feature `serve`) |
//! | [`text`] | tokenizer, chat template, sampler, streaming of text |
//! | [`diagnose`] | what a machine is and reaches: probe, bench, the live view; where two executors differ |
//! | [`cancel`] | a flag that ends long work early |
//! | [`error`] | causes and remedies, as values that each face words for itself |
//! | `npu` | programs of `aie/` on the NPU: loads and runs them through the kernel's driver or libxrt |
//! | `sys` | the kernel's and libxrt's interfaces |
//! | `cli` | the command line (feature `cli`, on by default) |
//!
//! To answer a prompt: [`engine::ModelFiles`] names the model, [`engine::load`] gives an executor, and
//! [`sequence::generate()`] runs a [`sequence::Session`] on it. Another thread stops any of this by a [`Cancel`]. Many at once, from
//! any thread, are answered by an `Engine` of `serve::embedded`, which the C interface wraps.
//!
//! # Glossary
//!
//! - **Activation layout**: how a row of activations lies in memory for the kernel that reads it: f32, f16 with a scale
//!   a row, or 16-bit fixed point in two planes of int8.
//! - **Arena**: the one allocation that holds the step state and every activation.
//! - **Arithmetic**: in what a matrix product is computed: f32, packed integer dot products, or matrix units on f16 or
//!   s8.
//! - **Chunk**: rows of a prompt that one pass takes; made in [`sequence::session::Session::propose`].
//! - **Closing**: the way from a place in a document to its end, in tokens ([`grammar`]).
//! - **Draft**: tokens that may come next, guessed without the model; a pass *verifies* them ([`sequence::draft`]).
//! - **Driver**: a way to a device: what replaying needs of it (`replay::driver`).
//! - **Edge**: what a dispatch, a fill, a copy or the host waits for of the work before it (`lower::dispatch`).
//! - **Edit**: a token whose logit the sampler changes, by a penalty or a bias; the host reads its logit for itself.
//! - **Eligible**: of a row's tokens those that are allowed, are no edits, and have a logit above −∞.
//! - **Fragment**: the part of a matrix that one lane holds while its subgroup multiplies it.
//! - **Group**: the 32 weights of a row that share a scale in INT4, Q8_0 and Q4_K ([`model::WeightFormat`]).
//! - **Guest**: what computes steps of a device's passes in its place, between two submits ([`executor::guest`]).
//! - **Head rows**: the rows of a pass whose logits are wanted.
//! - **Kind of pass**: what is baked for: how many rows, how they stand to each other, and where their tokens come
//!   from.
//! - **List**: commands that are baked once and submitted any number of times: dispatches, fills, copies, stamps, and
//!   edges.
//! - **Mixed pass**: a pass with a chunk of one sequence, and after it rows of others that decode.
//! - **Next token** of a head row: its argmax, or the one token that it asked for. The next pass may take it before the
//!   host does.
//! - **Panel**: sixteen rows of a matrix as the CPU executor reads them, a lane each.
//! - **Packed slot**: a copy of a slot in the activation layout of the linear step that reads it.
//! - **Pass**: one run of the schedule over some rows.
//! - **Piece**: a part of a pass that one executor runs without a break: dispatches of the device, or a guest's step.
//!   What passes from one to the next lies in slots, in f32.
//! - **Plan**: where each byte goes: weights, KV cache, arena, staging.
//! - **Prefix**: what a KV slot that is free keeps of its last sequence, for prompts that begin alike.
//! - **Relay**: dispatches that depend on each other without a barrier between them: each starts early, asks for its
//!   weights, and waits for the one before it by a counter in the arena (shaders/relay.glsl, `replay::list`). On AMD it
//!   starts behind that one, by an edge that writes no cache back.
//! - **Page**: keys and values of 64 positions of a sequence, for all local or all global layers ([`schedule::kv`]). A
//!   sequence's *page table* says which page holds which positions; sequences that begin alike share pages.
//! - **Row**: a token at a position of a sequence.
//! - **Run ahead**: of a pass, to start before the host has the tokens of the one before
//!   ([`executor::Executor::is_ahead`]).
//! - **Sample request**: what the host asks of a head row's logits where the row's token is not their argmax
//!   ([`schedule::choice`]).
//! - **Segment**: the part of a pass that one layer, the embedding or the head makes.
//! - **Slot**: an activation's place in the arena: `[rows, width]` of f32.
//! - **Stage**: a part of a relayed dispatch's output that the next dispatch waits for by itself.
//! - **Staging**: memory that the host maps, which uploads and results pass through where the host cannot map the
//!   device's.
//! - **Step state**: what changes from token to token: ids, positions, sequences, and each row's next token.
//! - **Tile**: how a product is divided among workgroups and lanes.
//! - **Tuning**: measuring which tiles a device runs fastest.
#![warn(missing_docs)]

pub mod cancel;
#[cfg(feature = "cli")]
pub mod cli;
mod cpu;
pub mod diagnose;
mod display;
pub mod engine;
pub mod error;
pub mod executor;
#[cfg(feature = "serve")]
pub mod grammar;
pub mod hub;
mod lower;
pub mod machine;
pub mod model;
// A part of it serves tests alone.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
mod npu;
pub mod plan;
mod reference;
mod replay;
pub mod schedule;
pub mod sequence;
#[cfg(feature = "serve")]
pub mod serve;
// Some of it only tests drive.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
mod sys;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod version;
mod vulkan;

pub use cancel::Cancel;
pub use error::{Error, Result, Setting};
pub use executor::Executor;
