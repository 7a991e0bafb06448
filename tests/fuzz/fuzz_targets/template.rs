//! Any text as a chat template: refused, or rendered within its bounds.
#![no_main]

use kiln::model::architecture::GEMMA3;
use kiln::text::{ChatTemplate, Message};

libfuzzer_sys::fuzz_target!(|source: &[u8]| {
    let Ok(template) = ChatTemplate::from_files(Some(source), None, &GEMMA3) else { return };
    let messages = [Message::new("user", "question"), Message::new("assistant", "answer"), Message::new("user", "more")];
    let _ = template.render(&messages, true);
});
