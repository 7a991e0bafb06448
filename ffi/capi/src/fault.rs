//! Errors as a C caller gets them.

use crate::border::{KILN_DEVICE, KILN_FAILED, KILN_INPUT, KILN_INTERRUPTED, KILN_REFUSED};
use std::any::Any;
use std::cell::RefCell;

/// An error's code, cause and remedy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub code: i32,
    pub message: String,
    pub remedy: String,
}

thread_local! {
    static LAST: RefCell<Fault> = RefCell::default();
}

impl Fault {
    pub fn input(message: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { code: KILN_INPUT, message: message.into(), remedy: remedy.into() }
    }

    pub fn failed(message: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { code: KILN_FAILED, message: message.into(), remedy: remedy.into() }
    }

    /// The error for a panic, which is Kiln's own fault.
    pub fn panicked(payload: &(dyn Any + Send)) -> Fault {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Fault::failed(format!("libkiln panicked: {text}"), "report this")
    }
}

impl From<kiln::Error> for Fault {
    fn from(e: kiln::Error) -> Fault {
        use kiln::Error;
        let (code, cause, remedy) = match &e {
            Error::Failed { cause, remedy } => (KILN_FAILED, cause, remedy),
            Error::Input { cause, remedy } => (KILN_INPUT, cause, remedy),
            Error::Refused { cause, remedy } => (KILN_REFUSED, cause, remedy),
            Error::Interrupted { cause, remedy } => (KILN_INTERRUPTED, cause, remedy),
            Error::Device { cause, remedy } => (KILN_DEVICE, cause, remedy),
        };
        Fault { code, message: cause.to_string(), remedy: remedy.to_string() }
    }
}

/// Keeps the result of the thread's call, and returns its code.
pub(crate) fn keep(outcome: Result<(), Fault>) -> i32 {
    let fault = outcome.err().unwrap_or_default();
    LAST.with_borrow_mut(|last| {
        *last = fault;
        last.code
    })
}

/// Reads the result of this thread's last call.
pub(crate) fn with_last<T>(read: impl FnOnce(&Fault) -> T) -> T {
    LAST.with_borrow(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln::Error;

    #[test]
    fn each_kind_of_error_has_its_code_and_keeps_its_words() {
        let interrupted = Error::Interrupted { cause: "cause".into(), remedy: "remedy".into() };
        for (e, code) in [
            (Error::failed("cause", "remedy"), KILN_FAILED),
            (Error::input("cause", "remedy"), KILN_INPUT),
            (Error::refused("cause", "remedy"), KILN_REFUSED),
            (Error::device("cause", "remedy"), KILN_DEVICE),
            (interrupted, KILN_INTERRUPTED),
        ] {
            let told = Fault { code, message: "cause".into(), remedy: "remedy".into() };
            assert_eq!(Fault::from(e), told);
        }
    }
}
