//! What this machine is.

use super::{enter, give_text, out};
use kiln::diagnose::probe::{self, Request};
use kiln::machine::files::Files;
use std::ffi::c_char;

/// Checks of this machine, as `kiln probe --json` prints them: a JSON object of checks, each with its verdict, and a summary.
/// `measures`: whether a GPU is measured too, which takes seconds. It needs no engine.
///
/// # Safety
/// `json` and `length` may be written; `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_probe_json(measures: bool, json: *mut *mut c_char, length: *mut usize) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises. A missing place is said before seconds are spent.
        unsafe { out(json, "the place of the answer") }?;
        let files = Files::system();
        let report = probe::run(&Request::of_machine(&files, measures), &|_| ());
        let report = report.to_json(&|words| words.to_string());
        // SAFETY: as the caller promises.
        unsafe { give_text(&report.to_string(), json, length) }
    })
}
