//! Any text as config.json: read or refused. What is read survives its own spelling.
#![no_main]

use kiln::model::config;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(shape) = config::parse(text, Some(text)) {
        assert_eq!(config::parse(&config::to_json(&shape), None).as_ref(), Ok(&shape));
    }
});
