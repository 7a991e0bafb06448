//! The C functions. Each turns what C hands over into values, calls safe code, and keeps what went wrong for the thread.
// Types have the names that C programs use.
#![allow(non_camel_case_types)]

use crate::fault::{self, Fault};
use crate::generate::generate;
use crate::handles::{ENGINES, SESSIONS, Session};
use crate::logging;
use crate::options::Given;
use kiln::Cancel;
use kiln::serve::embedded::Engine;
use kiln::serve::http::Method;
use kiln::text::Message;
use serde_json::json;
use std::ffi::{c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The interface's version. It changes where a program that was compiled before may not run any more.
pub const KILN_ABI_VERSION: u32 = 1;

/// Nothing went wrong.
pub const KILN_OK: i32 = 0;
/// A valid request failed while it ran.
pub const KILN_FAILED: i32 = 1;
/// An argument, a file or a request is wrong.
pub const KILN_INPUT: i32 = 2;
/// It does not fit this machine's memory, or there is no place for it now.
pub const KILN_REFUSED: i32 = 3;
/// A device is absent, unusable or lost.
pub const KILN_DEVICE: i32 = 4;
/// It was cancelled, or the caller's function asked for its end.
pub const KILN_INTERRUPTED: i32 = 5;

/// A loaded model. Several may be open at once.
pub struct kiln_engine {
    _private: [u8; 0],
}

/// A thread of questions to an engine. All of an engine share its batch, and each may be used by any thread.
pub struct kiln_session {
    _private: [u8; 0],
}

/// A UTF-8 text. `data` may be NULL where `length` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_text {
    /// Its first byte.
    pub data: *const c_char,
    /// Its bytes.
    pub length: usize,
}

/// What the thread's last call said. The texts are Kiln's, until the thread's next call of any function but
/// kiln_last_error.
#[repr(C)]
pub struct kiln_error {
    /// sizeof(struct kiln_error), set by the caller.
    pub size: usize,
    /// KILN_OK, or what went wrong.
    pub code: i32,
    /// What went wrong.
    pub message: kiln_text,
    /// What to do about it.
    pub remedy: kiln_text,
}

/// How an engine is opened. Zero and empty are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_engine_options {
    /// sizeof(struct kiln_engine_options), set by the caller. Fields beyond it have their defaults.
    pub size: usize,
    /// The model: a directory, a GGUF file, or the id of a model in the Hugging Face hub's cache. Empty: the built-in one.
    pub model: kiln_text,
    /// auto, vulkan, vulkan:N, cpu or reference.
    pub device: kiln_text,
    /// int8, int4 or bf16.
    pub weights: kiln_text,
    /// The system message of conversations that bring none.
    pub system: kiln_text,
    /// Where others may reach the engine by HTTP: ADDRESS:PORT or unix:PATH, several with commas between.
    pub listen: kiln_text,
    /// Longest sequence, in tokens.
    pub context: u32,
    /// Replies at once.
    pub batch: u32,
    /// Threads on the CPU.
    pub threads: u32,
}

/// Takes a piece of a reply's text. Anything but 0 ends the reply.
pub type kiln_text_function = Option<unsafe extern "C" fn(user: *mut c_void, text: kiln_text) -> c_int>;
/// Takes a line of the log: its level, 1 (error) to 5 (trace), and its text. Any thread may call it.
pub type kiln_log_function = Option<unsafe extern "C" fn(user: *mut c_void, level: u32, line: kiln_text)>;

impl kiln_text {
    fn of(text: &str) -> kiln_text {
        kiln_text { data: text.as_ptr().cast(), length: text.len() }
    }

    /// # Safety
    /// `data` points to `length` bytes that nobody changes for `'a`, or is NULL.
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

/// Runs the body of a function: no panic gets out, and the thread keeps what went wrong.
fn enter(body: impl FnOnce() -> Result<(), Fault>) -> i32 {
    // Unwind safe: handles hold what the rest of the library unwinds through safely, and the body's own values are gone.
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

fn session_of(session: *mut kiln_session) -> Result<Arc<Session>, Fault> {
    SESSIONS.get(session.addr() as u64)
}

fn handle<T>(number: u64) -> *mut T {
    std::ptr::without_provenance_mut(number as usize)
}

/// KILN_ABI_VERSION of the library that runs.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_abi_version() -> u32 {
    KILN_ABI_VERSION
}

/// What this thread's last call said. Keeps it as it is.
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

/// Frees what a function gave. NULL is nothing to free.
///
/// # Safety
/// A function of this library gave it, and it was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_free(given: *mut c_void) {
    // SAFETY: `give` made it with malloc.
    unsafe { libc::free(given) };
}

/// Hands what is logged up to `level`, 1 (error) to 5 (trace), to `function`. NULL ends that. Any thread may call it.
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

/// Loads a model, and returns once it answers.
///
/// # Safety
/// `options` is NULL or begins with its size, and its texts may be read; `engine` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_engine_open(options: *const kiln_engine_options, engine: *mut *mut kiln_engine) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { out(engine, "engine") }?;
        *place = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let options = unsafe { read_options(options) }?;
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
        let opened = Engine::open(given.engine()?)?;
        *place = handle(ENGINES.add(Arc::new(opened)));
        Ok(())
    })
}

/// The options, with zeros for what the caller's version of them does not have.
///
/// # Safety
/// `options` is NULL, or so many bytes may be read as its first field says.
unsafe fn read_options(options: *const kiln_engine_options) -> Result<kiln_engine_options, Fault> {
    let none = kiln_text { data: std::ptr::null(), length: 0 };
    let mut read = kiln_engine_options {
        size: 0,
        model: none,
        device: none,
        weights: none,
        system: none,
        listen: none,
        context: 0,
        batch: 0,
        threads: 0,
    };
    if options.is_null() {
        return Ok(read);
    }
    // SAFETY: as the caller promises, the size is there.
    let size = unsafe { options.cast::<usize>().read() };
    let (least, whole) = (size_of::<usize>() + size_of::<kiln_text>(), size_of::<kiln_engine_options>());
    if size < least || size > 16 * whole {
        let remedy = "set size to sizeof(struct kiln_engine_options)";
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

/// Gives an engine back. What is under way ends, and its memory is freed once the last call that uses it has returned.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_engine_close(engine: *mut kiln_engine) -> i32 {
    enter(|| {
        let taken = ENGINES.take(engine.addr() as u64)?;
        match Arc::try_unwrap(taken) {
            Ok(engine) => Ok(engine.close()?),
            // Sessions hold it on; each ends its part.
            Err(_) => Ok(()),
        }
    })
}

/// What answers: a JSON object of model, device, context, batch, seconds to the first token, and the places where others reach
/// it.
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

/// The tokens of a text. `begins`: whether the beginning-of-text token goes before them.
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
        let bytes = kiln_text { data: tokens.cast(), length: count.saturating_mul(size_of::<u32>()) };
        // SAFETY: as the caller promises.
        let bytes = unsafe { bytes.bytes("tokens") }?;
        let ids: Vec<u32> = bytes
            .chunks_exact(size_of::<u32>())
            .map(|id| id.try_into().map(u32::from_ne_bytes).unwrap_or_default())
            .collect();
        let model = engine_of(engine)?.model()?;
        ids.iter().try_for_each(|&id| model.tokenizer.check(id))?;
        let found = model.tokenizer.decode(&ids, false)?;
        // SAFETY: as the caller promises.
        unsafe { give_text(&found, text, length) }
    })
}

/// The text that the model's chat template makes of messages: a JSON array of objects with role and content. `opens`: whether
/// the model's turn is opened behind them.
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
        let messages: Vec<Message> = serde_json::from_str(messages).map_err(|e| {
            Fault::input(format!("the messages are none: {e}"), r#"pass [{"role": "user", "content": "..."}]"#)
        })?;
        let rendered = engine_of(engine)?.model()?.template.render(&messages, opens)?;
        // SAFETY: as the caller promises.
        unsafe { give_text(&rendered, text, length) }
    })
}

/// A session of an engine.
///
/// # Safety
/// `session` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_session_new(engine: *mut kiln_engine, session: *mut *mut kiln_session) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { out(session, "session") }?;
        *place = std::ptr::null_mut();
        let new = Session { engine: engine_of(engine)?, cancel: Cancel::default() };
        *place = handle(SESSIONS.add(Arc::new(new)));
        Ok(())
    })
}

/// Gives a session back. A call that uses it ends first, as if it were cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_session_free(session: *mut kiln_session) -> i32 {
    enter(|| {
        SESSIONS.take(session.addr() as u64)?.cancel.set();
        Ok(())
    })
}

/// Ends what the session's calls do, from any thread. They return KILN_INTERRUPTED. The next call runs again.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_cancel(session: *mut kiln_session) -> i32 {
    enter(|| {
        session_of(session)?.cancel.set();
        Ok(())
    })
}

/// Makes a reply to `request`, the JSON of a chat completion (messages, sampling, response_format, tools). `on_text` gets its
/// text as it comes, on this thread. `result` is a JSON object of text, finish_reason, usage, and tool_calls where there are
/// some; it is given for a reply that was cut too. What the cache holds of the conversation is taken over.
///
/// # Safety
/// `request` may be read; `on_text` may be called with `user`; `result` and `length` may be written or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_generate(
    session: *mut kiln_session,
    request: kiln_text,
    on_text: kiln_text_function,
    user: *mut c_void,
    result: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let request = unsafe { request.read("request") }?;
        let session = session_of(session)?;
        session.cancel.clear();
        let mut hear = |text: &str| match on_text {
            // SAFETY: as the caller promises of the function and of `user`.
            Some(on_text) if unsafe { on_text(user, kiln_text::of(text)) } != 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let (reply, ended) = generate(&session, request, &mut hear)?;
        if !result.is_null() {
            // SAFETY: as the caller promises.
            unsafe { give_text(&reply.to_string(), result, length) }?;
        }
        ended
    })
}

/// Asks any path of the HTTP interface, such as GET /metrics or POST /v1/completions, without a port. `on_body` gets the
/// answer's body as it comes, which need not end where a character does. An answer that is an error is KILN_OK, with its status.
///
/// # Safety
/// `method`, `path` and `body` may be read; `on_body` may be called with `user`; `status` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_request(
    session: *mut kiln_session,
    method: kiln_text,
    path: kiln_text,
    body: kiln_text,
    on_body: kiln_text_function,
    user: *mut c_void,
    status: *mut u16,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let (method, path, body, status) =
            unsafe { (method.read("method")?, path.read("path")?, body.bytes("body")?, out(status, "status")?) };
        let known = Method::ALL.into_iter().find(|known| known.to_string() == method);
        let method = known.ok_or_else(|| Fault::input(format!("{method:?} is no method"), "use GET or POST"))?;
        let session = session_of(session)?;
        session.cancel.clear();
        *status = session.engine.request(method, path, body, &session.cancel, &mut |_, bytes| match on_body {
            // SAFETY: as the caller promises of the function and of `user`.
            Some(on_body) => {
                match unsafe { on_body(user, kiln_text { data: bytes.as_ptr().cast(), length: bytes.len() }) } {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            }
            None => ControlFlow::Continue(()),
        })?;
        Ok(())
    })
}
