//! The C functions. Each turns C's arguments into values, calls safe code, and keeps the error for its thread.
// Types have the names that C programs use.
#![allow(non_camel_case_types)]

mod machine;
mod server;
mod session;

pub use machine::*;
pub use server::*;
pub use session::*;

use crate::apart::apart;
use crate::fault::{self, Fault};
use crate::handles::ENGINES;
use crate::logging;
use crate::options::Given;
use kiln::serve::embedded::Engine;
use kiln::text::Message;
use serde_json::json;
use std::ffi::{c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The interface's version. It changes when a program that was compiled for the version before may no longer run.
pub const KILN_ABI_VERSION: u32 = 1;

/// The call did its work.
pub const KILN_OK: i32 = 0;
/// A valid request failed while it ran.
pub const KILN_FAILED: i32 = 1;
/// An argument, a file or a request is wrong.
pub const KILN_INPUT: i32 = 2;
/// A model or a request does not fit this machine's memory, or there is no place for it now.
pub const KILN_REFUSED: i32 = 3;
/// A device is absent, unusable or lost.
pub const KILN_DEVICE: i32 = 4;
/// The work was cancelled, or the caller's function ended it.
pub const KILN_INTERRUPTED: i32 = 5;

/// A loaded model. Several may be open at once.
pub struct kiln_engine {
    _private: [u8; 0],
}

/// A conversation with an engine, and the tokens that the session was brought to. All sessions of an engine share the
/// engine's batch. Any thread may use a session.
pub struct kiln_session {
    _private: [u8; 0],
}

/// Places where other programs reach an engine.
pub struct kiln_server {
    _private: [u8; 0],
}

/// A UTF-8 text. `data` may be NULL if `length` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_text {
    /// The text's first byte.
    pub data: *const c_char,
    /// The number of bytes.
    pub length: usize,
}

/// The result of the thread's last call. The texts belong to Kiln, and are valid until the thread's next call of any
/// function but kiln_last_error.
#[repr(C)]
pub struct kiln_error {
    /// sizeof(struct kiln_error), set by the caller.
    pub size: usize,
    /// KILN_OK, or the kind of error.
    pub code: i32,
    /// The error.
    pub message: kiln_text,
    /// The remedy.
    pub remedy: kiln_text,
}

/// The settings of an engine. Zero and empty are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_engine_options {
    /// sizeof(struct kiln_engine_options), set by the caller. Fields beyond that size have their defaults.
    pub size: usize,
    /// The model: a directory, a GGUF file, or the id of a model in the Hugging Face hub's cache. Empty: the built-in one.
    pub model: kiln_text,
    /// auto, vulkan, vulkan:N, amdgpu, amdgpu:N, cpu or reference.
    pub device: kiln_text,
    /// int8, int4 or bf16.
    pub weights: kiln_text,
    /// The system message of conversations that have none of their own.
    pub system: kiln_text,
    /// The places where other programs may reach the engine by HTTP: ADDRESS:PORT or unix:PATH, with commas between
    /// several.
    pub listen: kiln_text,
    /// The longest sequence, in tokens.
    pub context: u32,
    /// The number of replies made at once.
    pub batch: u32,
    /// Threads on the CPU.
    pub threads: u32,
    /// Called with the progress of the load; may be NULL.
    pub on_progress: kiln_progress_function,
    /// The `user` argument of calls of `on_progress`.
    pub user: *mut c_void,
}

/// The caller's function that gets a load's stage (loading, tuning, first token, ready) and the share of the stage that
/// is done, from 0 to 1. The loading thread calls it. A result other than 0 ends the load.
pub type kiln_progress_function =
    Option<unsafe extern "C" fn(user: *mut c_void, stage: kiln_text, share: f64) -> c_int>;

/// The caller's function that gets a piece of a reply's text. A result other than 0 ends the reply.
pub type kiln_text_function = Option<unsafe extern "C" fn(user: *mut c_void, text: kiln_text) -> c_int>;
/// The caller's function that gets a line of the log: the level, 1 (error) to 5 (trace), and the text. Any thread may
/// call it.
pub type kiln_log_function = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, line: kiln_text)>;

impl kiln_text {
    const NONE: kiln_text = kiln_text { data: std::ptr::null(), length: 0 };

    fn of(text: &str) -> kiln_text {
        kiln_text { data: text.as_ptr().cast(), length: text.len() }
    }

    /// # Safety
    /// `data` points to `length` bytes that do not change for `'a`, or is NULL.
    unsafe fn read<'a>(self, name: &str) -> Result<&'a str, Fault> {
        // SAFETY: as the caller promises.
        let bytes = unsafe { self.bytes(name) }?;
        std::str::from_utf8(bytes).map_err(|e| Fault::input(format!("{name} is not UTF-8: {e}"), "pass UTF-8"))
    }

    /// # Safety
    /// As [`kiln_text::read`].
    unsafe fn bytes<'a>(self, name: &str) -> Result<&'a [u8], Fault> {
        match (self.data.is_null(), self.length) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(Fault::input(format!("{name} is NULL"), "pass its bytes, or the length 0")),
            // SAFETY: as the caller promises; the length is no more than an object can have.
            (false, length) if length <= isize::MAX as usize => unsafe {
                Ok(std::slice::from_raw_parts(self.data.cast(), length))
            },
            _ => Err(Fault::input(format!("{name} is longer than memory"), "pass its length in bytes")),
        }
    }
}

/// Runs the body of a function. A panic does not leave it, and the thread keeps the error.
fn enter(body: impl FnOnce() -> Result<(), Fault>) -> i32 {
    // Unwind safe: the library's values behind handles stay consistent through a panic, and the body's own values are
    // dropped.
    let outcome = catch_unwind(AssertUnwindSafe(body));
    fault::keep(outcome.unwrap_or_else(|payload| Err(Fault::panicked(&*payload))))
}

/// A place for an answer.
///
/// # Safety
/// `place` is NULL, or may be written for `'a`.
unsafe fn out<'a, T>(place: *mut T, name: &str) -> Result<&'a mut T, Fault> {
    // SAFETY: as the caller promises.
    unsafe { place.as_mut() }.ok_or_else(|| Fault::input(format!("{name} is NULL"), "pass where the answer goes"))
}

/// A copy of `bytes` for C, with a 0 behind them that the length does not count.
fn give<T: Copy>(items: &[T]) -> Result<*mut T, Fault> {
    let bytes = size_of_val(items);
    // SAFETY: malloc of at least one byte; the copy is of as many bytes as were allocated, and the byte behind them is too.
    unsafe {
        let copy = libc::malloc(bytes + 1);
        if copy.is_null() {
            return Err(Fault { code: KILN_REFUSED, message: "there is no memory".into(), remedy: "free some".into() });
        }
        std::ptr::copy_nonoverlapping(items.as_ptr().cast::<u8>(), copy.cast::<u8>(), bytes);
        copy.cast::<u8>().add(bytes).write(0);
        Ok(copy.cast())
    }
}

fn engine_of(engine: *mut kiln_engine) -> Result<Arc<Engine>, Fault> {
    ENGINES.get(engine.addr() as u64)
}

fn handle<T>(number: u64) -> *mut T {
    std::ptr::without_provenance_mut(number as usize)
}

/// KILN_ABI_VERSION of the loaded library.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_abi_version() -> u32 {
    KILN_ABI_VERSION
}

/// Writes the result of this thread's last call to `error`. That result stays.
///
/// # Safety
/// `error` may be written, and its size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_last_error(error: *mut kiln_error) -> i32 {
    // SAFETY: as the caller promises.
    let Some(error) = (unsafe { error.as_mut() }) else { return KILN_INPUT };
    if error.size < size_of::<kiln_error>() {
        return KILN_INPUT;
    }
    fault::with_last(|last| {
        (error.code, error.message, error.remedy) =
            (last.code, kiln_text::of(&last.message), kiln_text::of(&last.remedy));
    });
    KILN_OK
}

/// Frees memory that a function has given. Does nothing for NULL.
///
/// # Safety
/// A function of this library gave it, and it was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_free(given: *mut c_void) {
    // SAFETY: `give` made it with malloc.
    unsafe { libc::free(given) };
}

/// Has `function` called with each line of the log up to `level`, 1 (error) to 5 (trace). NULL ends that. Any thread
/// may call `function`.
///
/// # Safety
/// `function` may be called by any thread with `user` until another is set and the call that is under way has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_set_log(level: u32, function: kiln_log_function, user: *mut c_void) -> i32 {
    enter(|| {
        let user = user.expose_provenance();
        let sink = function.map(|function| -> logging::Sink {
            Arc::new(move |level, line| {
                // SAFETY: as the caller promises of the function and of `user`.
                unsafe { function(std::ptr::with_exposed_provenance_mut(user), level, kiln_text::of(line)) };
            })
        });
        logging::set(level, sink);
        Ok(())
    })
}

/// Loads a model, and returns once the model answers. KILN_INTERRUPTED: `on_progress` ended the load.
///
/// # Safety
/// `options` is NULL or begins with its size, its texts may be read, and `on_progress` may be called with `user`; `engine` may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_open(options: *const kiln_engine_options, engine: *mut *mut kiln_engine) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { out(engine, "engine") }?;
        *place = std::ptr::null_mut();
        let none = kiln_engine_options {
            size: 0,
            model: kiln_text::NONE,
            device: kiln_text::NONE,
            weights: kiln_text::NONE,
            system: kiln_text::NONE,
            listen: kiln_text::NONE,
            context: 0,
            batch: 0,
            threads: 0,
            on_progress: None,
            user: std::ptr::null_mut(),
        };
        // SAFETY: as the caller promises; any bytes are valid for the fields.
        let options = unsafe { read_options(options, none) }?;
        // SAFETY: as the caller promises of the texts.
        let given = unsafe {
            Given {
                model: options.model.read("model")?,
                device: options.device.read("device")?,
                weights: options.weights.read("weights")?,
                system: options.system.read("system")?,
                listen: options.listen.read("listen")?,
                context: options.context,
                batch: options.batch,
                threads: options.threads,
            }
        };
        let opened = Engine::open_watched(given.engine()?, &mut |stage, share| match options.on_progress {
            // SAFETY: as the caller promises of the function and of `user`.
            Some(tell) if unsafe { tell(options.user, kiln_text::of(stage), share) } != 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })?;
        *place = handle(ENGINES.add(Arc::new(opened)));
        Ok(())
    })
}

/// The caller's options, with the fields of `none` where the caller's version of the structure has none.
///
/// # Safety
/// `options` is NULL, or so many bytes may be read as its first field, a size_t, says; any bytes are valid for a `T`.
unsafe fn read_options<T: Copy>(options: *const T, none: T) -> Result<T, Fault> {
    let mut read = none;
    if options.is_null() {
        return Ok(read);
    }
    // SAFETY: as the caller promises, the size is there.
    let size = unsafe { options.cast::<usize>().read() };
    let (least, whole) = (size_of::<usize>() + size_of::<kiln_text>(), size_of::<T>());
    if size < least || size > 16 * whole {
        let remedy = "set size to what sizeof says of the structure";
        return Err(Fault::input(format!("the options say that they have {size} bytes"), remedy));
    }
    // SAFETY: as the caller promises, `size` bytes are there; any bytes are valid for the fields.
    unsafe {
        let (from, to) = (options.cast::<u8>(), (&raw mut read).cast::<u8>());
        std::ptr::copy_nonoverlapping(from, to, size.min(whole));
        let unknown = std::slice::from_raw_parts(from.add(size.min(whole)), size.saturating_sub(whole));
        if unknown.iter().any(|byte| *byte != 0) {
            let cause = "the options set fields that this version of libkiln does not have";
            return Err(Fault::input(cause, "install a newer libkiln, or leave them 0"));
        }
    }
    Ok(read)
}

/// Closes an engine. Work under way ends, and the engine's memory is freed once the last call that uses the engine has
/// returned.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_engine_close(engine: *mut kiln_engine) -> i32 {
    enter(|| {
        let taken = ENGINES.take(engine.addr() as u64)?;
        match Arc::try_unwrap(taken) {
            Ok(engine) => Ok(engine.close()?),
            // Sessions and servers hold it on; each ends its part.
            Err(_) => Ok(()),
        }
    })
}

/// The engine in figures: a JSON object of model, device, context, batch, seconds to the first token, and the places
/// where other programs reach the engine.
///
/// # Safety
/// `json` and `length` may be written; `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_info_json(
    engine: *mut kiln_engine,
    json: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        let engine = engine_of(engine)?;
        let started = engine.started();
        let info = json!({
            "model": started.model,
            "device": started.device,
            "context": started.context,
            "batch": started.slots,
            "boot_seconds": started.boot.as_secs_f64(),
            "places": started.places,
            "version": env!("CARGO_PKG_VERSION"),
        });
        // SAFETY: as the caller promises.
        unsafe { give_text(&info.to_string(), json, length) }
    })
}

/// # Safety
/// `place` and `length` are NULL or may be written.
unsafe fn give_text(text: &str, place: *mut *mut c_char, length: *mut usize) -> Result<(), Fault> {
    // SAFETY: as the caller promises.
    let place = unsafe { out(place, "the place of the answer") }?;
    *place = give(text.as_bytes())?.cast();
    // SAFETY: as the caller promises.
    if let Some(length) = unsafe { length.as_mut() } {
        *length = text.len();
    }
    Ok(())
}

/// The tokens of a text. `begins`: whether the beginning-of-text token stands before them.
///
/// # Safety
/// `text` may be read; `tokens` and `count` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_tokenize(
    engine: *mut kiln_engine,
    text: kiln_text,
    begins: bool,
    tokens: *mut *mut u32,
    count: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let (text, tokens, count) = unsafe { (text.read("text")?, out(tokens, "tokens")?, out(count, "count")?) };
        let found = engine_of(engine)?.model()?.tokenizer.encode(text, begins)?;
        (*tokens, *count) = (give(&found)?, found.len());
        Ok(())
    })
}

/// # Safety
/// `tokens` is NULL or `count` of them may be read.
unsafe fn read_tokens(tokens: *const u32, count: usize) -> Result<Vec<u32>, Fault> {
    let bytes = kiln_text { data: tokens.cast(), length: count.saturating_mul(size_of::<u32>()) };
    // SAFETY: as the caller promises.
    let bytes = unsafe { bytes.bytes("tokens") }?;
    let ids = bytes.chunks_exact(size_of::<u32>());
    Ok(ids.map(|id| id.try_into().map(u32::from_ne_bytes).unwrap_or_default()).collect())
}

/// The text of tokens.
///
/// # Safety
/// `count` tokens may be read; `text` and `length` may be written; `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_detokenize(
    engine: *mut kiln_engine,
    tokens: *const u32,
    count: usize,
    text: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let ids = unsafe { read_tokens(tokens, count) }?;
        let model = engine_of(engine)?.model()?;
        ids.iter().try_for_each(|&id| model.tokenizer.check(id))?;
        let found = model.tokenizer.decode(&ids, false)?;
        // SAFETY: as the caller promises.
        unsafe { give_text(&found, text, length) }
    })
}

/// The text that the model's chat template makes of messages. `messages` is a JSON array of objects with role and
/// content. `opens`: whether the text opens the model's turn behind the messages.
///
/// # Safety
/// `messages` may be read; `text` and `length` may be written; `length` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_render_chat(
    engine: *mut kiln_engine,
    messages: kiln_text,
    opens: bool,
    text: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let messages = unsafe { messages.read("messages") }?;
        let model = engine_of(engine)?.model()?;
        let rendered = apart(|| {
            let messages: Vec<Message> = serde_json::from_str(messages).map_err(|e| {
                Fault::input(format!("the messages are none: {e}"), r#"pass [{"role": "user", "content": "..."}]"#)
            })?;
            Ok(model.template.render(&messages, opens)?)
        })?;
        // SAFETY: as the caller promises.
        unsafe { give_text(&rendered, text, length) }
    })
}
