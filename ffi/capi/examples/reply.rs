//! The engine inside a program in Rust: asks a question, prints its answer as it comes, and goes on from what the cache holds.
//!
//! usage: reply [MODEL [QUESTION]], as in `cargo run -p kiln-capi --example reply -- model.gguf "What is a kiln?"`

use kiln::engine::ModelFiles;
use kiln::serve::embedded::{CompletionRequest, Engine, EngineOptions, EngineSession};
use kiln::text::Message;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Asks the model of `files`, hands the answer's text to `on_text` as it comes, and returns its object.
///
/// # Errors
/// As [`Engine::open`] and [`EngineSession::generate`].
pub fn reply(files: ModelFiles, question: &str, on_text: &mut dyn FnMut(&str)) -> kiln::Result<Value> {
    let engine = Arc::new(Engine::open(EngineOptions::from(files))?);
    let messages = [Message::new("user", question)];

    // A prompt may be brought into the cache before anybody asks it.
    let model = engine.model()?;
    let prompt = model.tokenizer.encode(&model.template.render(&messages, true)?, false)?;
    let session = EngineSession::new(engine);
    session.sync(prompt)?;

    let request = CompletionRequest::parse(&json!({"messages": messages, "temperature": 0}).to_string())?;
    let (answer, ended) = session.generate(&request, &mut |piece| {
        on_text(piece);
        ControlFlow::Continue(())
    })?;
    ended.map(|()| answer)
}

// A test includes this file for `reply`.
#[allow(dead_code)]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().filter(|model| !model.is_empty()).map(PathBuf::from);
    let question = arguments.next().unwrap_or_else(|| "How much is the museum for 2 adults?".into());
    let mut print = |piece: &str| {
        print!("{piece}");
        // A reader that is gone is no reason to stop.
        let _ = std::io::stdout().flush();
    };
    match reply(ModelFiles::from(model), &question, &mut print) {
        Ok(answer) => {
            eprintln!("\n{answer}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(e.exit_code())
        }
    }
}
