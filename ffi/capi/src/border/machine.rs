//! Checks of a machine, and the forecast of whether a model fits it.

use super::{enter, give_text, kiln_text, out, read_options};
use crate::apart::apart;
use crate::options::Planned;
use kiln::serve::embedded::{plan_json, probe_json};
use std::ffi::c_char;

/// Checks of this machine, as `kiln probe --json` prints them: a JSON object of checks, each with its verdict, and a
/// summary. `measures`: whether a GPU is measured too, which takes seconds and wakes a suspended GPU. No engine is
/// needed.
///
/// # Safety
/// `json` and `length` may be written; `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_probe_json(measures: bool, json: *mut *mut c_char, length: *mut usize) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises. A missing place is said before seconds are spent.
        unsafe { out(json, "the place of the answer") }?;
        let report = apart(|| Ok(probe_json(measures)))?;
        // SAFETY: as the caller promises.
        unsafe { give_text(&report, json, length) }
    })
}

/// The settings of a plan. Zero and empty are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_plan_options {
    /// sizeof(struct kiln_plan_options), set by the caller. Fields beyond that size have their defaults.
    pub size: usize,
    /// The model, as kiln_engine_open takes it. Empty: the built-in one.
    pub model: kiln_text,
    /// A model by name (gemma3-27b), or its config.json, in the place of `model`.
    pub shape: kiln_text,
    /// The machine: this, 780m, 890m or 8060s; with GiB of carve-out as in 780m:4. Empty: this one.
    pub machine: kiln_text,
    /// The device of this machine, as kiln_engine_open takes it.
    pub device: kiln_text,
    /// int8, int4 or bf16.
    pub weights: kiln_text,
    /// A smaller model that drafts for the model: by name, as `model`, or demo.
    pub draft: kiln_text,
    /// The longest sequence, in tokens.
    pub context: u32,
    /// The number of sequences that run at once.
    pub batch: u32,
    /// Tokens that the cache has room for, of all sequences together.
    pub kv_tokens: u32,
    /// GiB of RAM of a machine by name, its carve-out included.
    pub ram_gib: u32,
    /// Other than 0: the object has every step of a pass, too.
    pub with_schedule: u32,
}

/// Whether a model fits a machine, the use of each byte, and the speed to expect: the object that `kiln plan --json`
/// prints, whose settings have the command line's names. A model that does not fit is no error: `fits` is false then.
/// No engine is needed.
///
/// # Safety
/// `options` is NULL or begins with its size, and its texts may be read; `json` and `length` may be written; `length` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_plan_json(
    options: *const kiln_plan_options,
    json: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        let none = kiln_plan_options {
            size: 0,
            model: kiln_text::NONE,
            shape: kiln_text::NONE,
            machine: kiln_text::NONE,
            device: kiln_text::NONE,
            weights: kiln_text::NONE,
            draft: kiln_text::NONE,
            context: 0,
            batch: 0,
            kv_tokens: 0,
            ram_gib: 0,
            with_schedule: 0,
        };
        // SAFETY: as the caller promises; any bytes are valid for the fields.
        let options = unsafe { out(json, "the place of the answer").and_then(|_| read_options(options, none)) }?;
        // SAFETY: as the caller promises of the texts.
        let planned = unsafe {
            Planned {
                model: options.model.read("model")?,
                shape: options.shape.read("shape")?,
                machine: options.machine.read("machine")?,
                device: options.device.read("device")?,
                weights: options.weights.read("weights")?,
                draft: options.draft.read("draft")?,
                context: options.context,
                batch: options.batch,
                kv_tokens: options.kv_tokens,
                ram: options.ram_gib,
                with_schedule: options.with_schedule != 0,
            }
        };
        let forecast = apart(|| Ok(plan_json(&planned.asked()?)?))?;
        // SAFETY: as the caller promises.
        unsafe { give_text(&forecast, json, length) }
    })
}
