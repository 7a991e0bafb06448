//! Servers: places where other programs reach an engine.

use super::{engine_of, enter, give_text, handle, kiln_engine, kiln_server, kiln_text, out, read_options};
use crate::handles::SERVERS;
use serde_json::json;
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a server. Zero and empty are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kiln_serve_options {
    /// sizeof(struct kiln_serve_options), set by the caller. Fields beyond that size have their defaults.
    pub size: usize,
    /// The places to listen at: ADDRESS:PORT or unix:PATH, with commas between several. Port 0 is any free port. Empty:
    /// 127.0.0.1:8080.
    pub listen: kiln_text,
    /// A file of API keys, one on each line, of which a request needs one. An address that other machines reach needs
    /// such a file.
    pub keys: kiln_text,
}

/// Opens an engine to other programs, by HTTP, until kiln_serve_stop. `places` gets a JSON array of the places where
/// the server listens. `places` and `length` may be NULL. A server keeps its engine, as a session does.
///
/// # Safety
/// `options` is NULL or begins with its size, and its texts may be read; `server` may be written; `places` and `length` are NULL
/// or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_serve_start(
    engine: *mut kiln_engine,
    options: *const kiln_serve_options,
    server: *mut *mut kiln_server,
    places: *mut *mut c_char,
    length: *mut usize,
) -> i32 {
    enter(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { out(server, "server") }?;
        *place = std::ptr::null_mut();
        let none = kiln_serve_options { size: 0, listen: kiln_text::NONE, keys: kiln_text::NONE };
        // SAFETY: as the caller promises; any bytes are valid for the fields.
        let options = unsafe { read_options(options, none) }?;
        // SAFETY: as the caller promises of the texts.
        let (listen, keys) = unsafe { (options.listen.read("listen")?, options.keys.read("keys")?) };
        let listen = crate::options::places(if listen.is_empty() { "127.0.0.1:8080" } else { listen })?;
        let keys = Some(Path::new(keys)).filter(|path| !path.as_os_str().is_empty());
        let serving = engine_of(engine)?.serve(&listen, keys)?;
        if !places.is_null() {
            // SAFETY: as the caller promises.
            unsafe { give_text(&json!(serving.places()).to_string(), places, length) }?;
        }
        *place = handle(SERVERS.add(Arc::new(serving)));
        Ok(())
    })
}

/// Closes a server: takes no more connections, and returns once the requests under way are answered, or are cut after
/// `grace_seconds`.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_serve_stop(server: *mut kiln_server, grace_seconds: u32) -> i32 {
    enter(|| {
        // No other call holds the server.
        if let Some(serving) = Arc::into_inner(SERVERS.take(server.addr() as u64)?) {
            serving.stop(Duration::from_secs(grace_seconds.into()));
        }
        Ok(())
    })
}
