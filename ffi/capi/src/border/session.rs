//! Sessions: replies, and the tokens that a session was brought to.

use super::{
    engine_of, enter, give, give_text, handle, kiln_engine, kiln_session, kiln_text, kiln_text_function, out,
    read_tokens,
};
use crate::apart::apart;
use crate::fault::Fault;
use crate::handles::SESSIONS;
use kiln::serve::embedded::{CompletionRequest, EngineSession};
use kiln::serve::http::Method;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn session_of(session: *mut kiln_session) -> Result<Arc<EngineSession>, Fault> {
    SESSIONS.get(session.addr() as u64)
}

/// Counts of a session's tokens by their origin. Each token is in one of the three.
#[repr(C)]
pub struct kiln_synced {
    /// sizeof(struct kiln_synced), set by the caller.
    pub size: usize,
    /// Tokens whose keys and values were in the cache.
    pub reused: usize,
    /// Tokens that were run behind the session's tokens.
    pub extended: usize,
    /// Tokens that were run in the place of other tokens of the session, or of tokens that the cache had lost.
    pub rebuilt: usize,
}

/// Opens a session of an engine.
///
/// # Safety
/// `session` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_session_new(engine: *mut kiln_engine, session: *mut *mut kiln_session) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { out(session, "session") }?;
        *place = std::ptr::null_mut();
        *place = handle(SESSIONS.add(Arc::new(EngineSession::new(engine_of(engine)?))));
        Ok(())
    })
}

/// Closes a session. A call that uses the session ends first, as if it were cancelled.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_session_free(session: *mut kiln_session) -> i32 {
    enter(|| {
        SESSIONS.take(session.addr() as u64)?.close();
        Ok(())
    })
}

/// Opens another session of the same engine with the same tokens. The two go on apart, and share the keys and values in
/// the cache.
///
/// # Safety
/// `clone` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_session_clone(session: *mut kiln_session, clone: *mut *mut kiln_session) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { out(clone, "clone") }?;
        *place = std::ptr::null_mut();
        let new = EngineSession::clone(&*session_of(session)?);
        *place = handle(SESSIONS.add(Arc::new(new)));
        Ok(())
    })
}

/// Brings a session to `tokens`: the engine's cache then holds their keys and values, and a prompt that begins with
/// these tokens goes on behind them. Keys and values that the cache has are kept, and the other tokens are run.
/// `synced` gets the counts of both; it may be NULL. The cache keeps a session as it keeps conversations: when other
/// sequences need the room, its tokens are dropped, and run again with the next call that needs them. Replies of the
/// session do not change its tokens.
///
/// # Safety
/// `count` tokens may be read; `synced` is NULL, or may be written and its size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_session_sync(
    session: *mut kiln_session,
    tokens: *const u32,
    count: usize,
    synced: *mut kiln_synced,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let (tokens, place) = unsafe { (read_tokens(tokens, count)?, synced.as_mut()) };
        if let Some(place) = place.as_ref().filter(|place| place.size < size_of::<kiln_synced>()) {
            let remedy = "set size to sizeof(struct kiln_synced)";
            return Err(Fault::input(format!("synced says that it has {} bytes", place.size), remedy));
        }
        let synced = session_of(session)?.sync(tokens)?;
        if let Some(place) = place {
            (place.reused, place.extended, place.rebuilt) = (synced.reused, synced.extended, synced.rebuilt);
        }
        Ok(())
    })
}

/// Writes a session's tokens with their keys and values to a file, all or nothing. A file at `path` that is no
/// session's is not replaced. The file holds the conversation, and this user alone may read it.
///
/// # Safety
/// `path` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_session_save(session: *mut kiln_session, path: kiln_text) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let path = unsafe { read_path(path) }?;
        Ok(session_of(session)?.save(path)?)
    })
}

/// Brings a session to the tokens of a file that kiln_session_save wrote, of the same model on the same device, in this
/// process or another. A reply behind them is the same as in the saved session. `tokens` gets the tokens, and `count`
/// their number; both may be NULL.
///
/// # Safety
/// `path` may be read; `tokens` and `count` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_session_load(
    session: *mut kiln_session,
    path: kiln_text,
    tokens: *mut *mut u32,
    count: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let (path, place, count) = unsafe { (read_path(path)?, tokens.as_mut(), count.as_mut()) };
        let loaded = session_of(session)?.load(path)?;
        if let Some(place) = place {
            *place = give(&loaded)?;
        }
        count.into_iter().for_each(|count| *count = loaded.len());
        Ok(())
    })
}

/// # Safety
/// The text may be read.
unsafe fn read_path<'a>(path: kiln_text) -> Result<&'a Path, Fault> {
    // SAFETY: as the caller promises.
    match unsafe { path.read("path") }? {
        "" => Err(Fault::input("the path is empty", "name a file")),
        path if path.contains('\0') => Err(Fault::input("the path has a 0 byte", "name a file")),
        path => Ok(Path::new(path)),
    }
}

/// Cancels the session's calls under way, from any thread. These return KILN_INTERRUPTED. The next call runs again.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_cancel(session: *mut kiln_session) -> i32 {
    enter(|| {
        session_of(session)?.cancel();
        Ok(())
    })
}

/// The answer of the caller's function to a piece of text.
///
/// # Safety
/// `function` may be called with `user`, and `text` may be read.
unsafe fn tell(function: kiln_text_function, user: *mut c_void, text: kiln_text) -> ControlFlow<()> {
    match function {
        // SAFETY: as the caller promises.
        Some(function) if unsafe { function(user, text) } != 0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}

/// Asks `text` as the next message of the session's conversation, with the engine's default sampling. `on_text` gets
/// the answer's text piece by piece, on this thread; `answer` gets the whole text, also of an answer that was cut. Each
/// may be NULL. The session keeps the question and its complete answer for the next question and for clones;
/// kiln_session_save does not write them. The model is not asked to think; a thought is no part of the answer.
///
/// # Safety
/// `text` may be read; `on_text` may be called with `user`; `answer` and `length` may be written or are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_ask(
    session: *mut kiln_session,
    text: kiln_text,
    on_text: kiln_text_function,
    user: *mut c_void,
    answer: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let text = unsafe { text.read("text") }?;
        // SAFETY: as the caller promises of the function and of `user`.
        let mut hear = |piece: &str| unsafe { tell(on_text, user, kiln_text::of(piece)) };
        let (said, ended) = session_of(session)?.ask(text, &mut hear)?;
        if !answer.is_null() {
            // SAFETY: as the caller promises.
            unsafe { give_text(&said, answer, length) }?;
        }
        Ok(ended?)
    })
}

/// Makes a reply to `request`, the JSON of a chat completion (messages, sampling, response_format, tools). `on_text`
/// gets the reply's text piece by piece, on this thread. `result` gets a JSON object of text, finish_reason and usage,
/// with tool_calls if the model calls functions, and reasoning_content if the model thinks; a reply that was cut has
/// such an object, too. Tokens of the conversation that the cache holds are not run again.
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
        let request = apart(|| Ok(CompletionRequest::parse(request)?))?;
        // SAFETY: as the caller promises of the function and of `user`.
        let mut hear = |text: &str| unsafe { tell(on_text, user, kiln_text::of(text)) };
        let (reply, ended) = session.generate(&request, &mut hear)?;
        if !result.is_null() {
            // SAFETY: as the caller promises.
            unsafe { give_text(&reply.to_string(), result, length) }?;
        }
        Ok(ended?)
    })
}

/// Asks any path of the HTTP interface, such as GET /metrics or POST /v1/completions, without a port. `on_body` gets
/// the answer's body piece by piece; a piece may end inside a character. An answer that is an error is KILN_OK, with
/// its status.
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
        let known = Method::ALL.into_iter().find(|(known, _)| known.to_string() == method);
        let (method, _) = known.ok_or_else(|| Fault::input(format!("{method:?} is no method"), "use GET or POST"))?;
        let session = session_of(session)?;
        *status = session.request(method, path, body, &mut |_, bytes| {
            // SAFETY: as the caller promises of the function and of `user`.
            unsafe { tell(on_body, user, kiln_text { data: bytes.as_ptr().cast(), length: bytes.len() }) }
        })?;
        Ok(())
    })
}
