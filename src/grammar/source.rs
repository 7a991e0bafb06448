//! Prepares a grammar, compiles it by llguidance, and words its refusals.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llguidance::api::{GrammarInit, GrammarWithLexer, StopReason, TopLevelGrammar};
use llguidance::earley::{CGrammar, CSymIdx, ParamExpr};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{CancellationHandle, Logger, panic_utils};

use super::calls::{Beside, Calls};
use super::compile::CompiledGrammar;
use super::vocabulary::Vocabulary;
use super::{Grammar, LIMITS, exact, lower, marked, sizes};
use crate::display::quote;
use crate::text::CallSyntax;
use crate::{Error, Result};
use serde_json::{Value, json};

/// Bytes of the longest JSON schema, or of all tools together. An agent's tools take up to 100 KB.
const LONGEST_SCHEMA: usize = 256 << 10;
/// Bytes of the longest Lark grammar: two bytes may become a part, and each part takes 400 bytes.
const LONGEST_LARK: usize = 64 << 10;
/// Measured bytes of a node of the lexemes' expressions; the grammar and its lexer both have copies.
const NODE_BYTES: usize = 150;
/// The longest reason in an error, in characters.
const LONGEST_REASON: usize = 300;

/// The name of the document's grammar inside the grammar that adds the stop tokens.
const DOCUMENT: &str = "document";

/// Stops a compilation, on request or after a time limit.
#[derive(Clone)]
pub(super) struct StopSignal(Arc<StopState>);

struct StopState {
    time: Duration,
    begun: OnceLock<Instant>,
    /// True after a stop was requested. Beside it the parser's handle, once there is a parser to cancel.
    asked: Mutex<(bool, Option<CancellationHandle>)>,
}

impl StopSignal {
    /// A signal with a limit of `time`, counted from [`StopSignal::begin`].
    pub fn within(time: Duration) -> StopSignal {
        StopSignal(Arc::new(StopState { time, begun: OnceLock::new(), asked: Mutex::default() }))
    }

    /// Starts the time limit, at the first call.
    pub fn begin(&self) {
        self.0.begun.get_or_init(Instant::now);
    }

    /// Requests the stop of the compilation, and cancels its parser if there is one.
    pub fn ask(&self) {
        let mut asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.0 = true;
        if let Some(parser) = &asked.1 {
            parser.cancel();
        }
    }

    pub fn is_asked(&self) -> bool {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// True if the compilation has taken longer than the time limit.
    pub fn is_late(&self) -> bool {
        self.0.begun.get().is_some_and(|begun| begun.elapsed() >= self.0.time)
    }

    /// Stores the parser's handle, so that a request to stop cancels it. Cancels it at once after such a request.
    fn reach(&self, handle: CancellationHandle) {
        let mut asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.0 {
            handle.cancel();
        }
        asked.1 = Some(handle);
    }

    fn check(&self) -> Result<()> {
        match self.is_asked() || self.is_late() {
            true => Err(too_long()),
            false => Ok(()),
        }
    }
}

pub(super) fn too_long() -> Error {
    Error::input("the grammar takes too long to compile", "use a smaller one")
}

/// A grammar from a request, and its key in the cache.
pub(super) struct GrammarSource {
    asked: Grammar,
    key: String,
}

/// A grammar ready for llguidance, with the notes that Kiln needs beside it.
struct Prepared {
    document: GrammarWithLexer,
    /// Regular expressions of the numbers that llguidance would round.
    exact: Vec<exact::NumberPattern>,
    ignored: Vec<String>,
    /// True if a reply may begin with text that starts no document of the grammar, and have a document after it.
    is_optional: bool,
    /// True if the grammar has special tokens, such as those around a call.
    has_marks: bool,
}

impl Prepared {
    fn of(document: GrammarWithLexer, exact: Vec<exact::NumberPattern>) -> Prepared {
        Prepared { document, exact, ignored: Vec::new(), is_optional: false, has_marks: false }
    }
}

impl GrammarSource {
    /// # Errors
    /// Input: it is too large, or certainly wrong.
    pub fn of(grammar: &Grammar) -> Result<GrammarSource> {
        let asked = match grammar {
            Grammar::JsonObject => Grammar::JsonSchema(json!({"type": "object"})),
            other => other.clone(),
        };
        let key = match &asked {
            Grammar::Lark(text) => format!("lark {text}"),
            Grammar::Calls(calls) => format!("calls {}", calls.key()),
            Grammar::JsonSchema(schema) => format!("json {schema}"),
            Grammar::JsonObject => String::new(),
        };
        let longest = if matches!(asked, Grammar::Lark(_)) { LONGEST_LARK } else { LONGEST_SCHEMA };
        if key.len() > longest {
            return Err(Error::input(
                format!("the grammar has {} bytes, and {longest} are supported", key.len()),
                "use a smaller one",
            ));
        }
        Ok(GrammarSource { asked, key })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// # Errors
    /// Input: llguidance refuses the grammar, or `stop` has ended it.
    pub fn compile(self, vocabulary: Arc<Vocabulary>, stop: &StopSignal) -> Result<CompiledGrammar> {
        stop.begin();
        let is_json = !matches!(self.asked, Grammar::Lark(_));
        match &self.asked {
            Grammar::Calls(calls) => compile_calls(calls, &vocabulary, stop),
            Grammar::JsonSchema(schema) => {
                let (schema, exact) = lower::lower_whole(schema)?.into_schema("", &lower::bounded_blanks());
                Prepared::of(GrammarWithLexer::from_json_schema(schema), exact).compile(&vocabulary, is_json, stop)
            }
            Grammar::Lark(text) => {
                sizes::check_lark(text)?;
                let (text, exact) = lower::lower_embedded(text, &|| stop.check())?;
                let document = GrammarWithLexer::from_lark(text);
                Prepared::of(document, exact).compile(&vocabulary, is_json, stop)
            }
            Grammar::JsonObject => Err(Error::failed("an object has no schema", "report this")),
        }
    }
}

/// Compiles the grammar of calls. If it is too large, the schemas of functions that are not strict are left out.
fn compile_calls(calls: &Calls, vocabulary: &Arc<Vocabulary>, stop: &StopSignal) -> Result<CompiledGrammar> {
    let compile = |free: bool| {
        let (lark, has_marks) = match calls.syntax {
            CallSyntax::Json => (calls.to_lark(free, &|| stop.check())?, false),
            CallSyntax::Marked(marks) => (marked::to_lark(calls, marks, vocabulary)?, true),
        };
        let document = GrammarWithLexer::from_lark(lark.text);
        let is_optional = !matches!(calls.beside, Beside::Document(_));
        Prepared { document, exact: lark.exact, ignored: lark.ignored, is_optional, has_marks }
            .compile(vocabulary, !has_marks, stop)
    };
    match compile(false) {
        Err(Error::Input { .. }) if calls.has_advice() && stop.check().is_ok() => compile(true),
        done => done,
    }
}

impl Prepared {
    fn compile(self, vocabulary: &Arc<Vocabulary>, is_json: bool, stop: &StopSignal) -> Result<CompiledGrammar> {
        let refused = |reason: &str| if is_json { refusal(reason) } else { lark_refusal(reason) };
        let Prepared { mut document, exact, ignored, is_optional, has_marks } = self;
        document.name = Some(DOCUMENT.into());
        let stops: Vec<String> = vocabulary.stops.iter().map(u32::to_string).collect();
        let whole = GrammarWithLexer::from_lark(format!("start: @{DOCUMENT} <[{}]>", stops.join(",")));
        let init = GrammarInit::Serialized(TopLevelGrammar { grammars: vec![whole, document], max_tokens: None });
        sheltered(refused, || {
            stop.check()?;
            let env = vocabulary.factory.tok_env().clone();
            let (grammar, mut lexemes) = init.to_internal(Some(env), LIMITS).map_err(|e| refused(&said(&e)))?;
            exact::put(&mut lexemes, &exact)?;
            stop.check()?;
            let init = GrammarInit::Internal(grammar, lexemes);
            let caps = InferenceCapabilities::default();
            let mut parser = vocabulary
                .factory
                .create_parser_from_init_ext(init, Logger::new(0, 0), caps, LIMITS)
                .map_err(|e| refused(&said(&e)))?;
            stop.reach(parser.enable_cancellation());
            let rules = read_rules(parser.parser.grammar(), has_marks)?;
            parser.start_without_prompt();
            stop.check()?;
            // Computes the first set now, so that a grammar without any document is refused here.
            parser.compute_mask().map_err(|e| match parser.stop_reason() {
                StopReason::NoExtensionBias => refused("no text is one of it"),
                _ if stop.is_asked() => too_long(),
                _ => refused(&said(&e)),
            })?;
            let lexer = parser.parser.lexer_stats();
            let bytes = vocabulary.memory.hold(rules + lexer.num_bytes + lexer.num_ast_nodes * NODE_BYTES);
            Ok(CompiledGrammar { vocabulary: vocabulary.clone(), parser, is_json, ignored, is_optional, bytes })
        })
    }
}

/// The bytes of a grammar's rules. `has_marks`: calls are written between special tokens.
///
/// # Errors
/// Input: a Lark grammar uses a feature that replies do not support.
fn read_rules(grammar: &CGrammar, has_marks: bool) -> Result<usize> {
    // Each position of a rule has a symbol, a parameter, and a reference back to the rule.
    const PLACE: usize = 3 * size_of::<CSymIdx>() + size_of::<ParamExpr>();
    let (mut open, mut seen) = (vec![grammar.start()], HashSet::new());
    let (mut bytes, mut has_temperature) = (0, false);
    while let Some(symbol) = open.pop() {
        if !seen.insert(symbol.as_index()) {
            continue;
        }
        let data = grammar.sym_data(symbol);
        has_temperature |= data.props.temperature != 0.0;
        bytes += size_of_val(data) + data.name.len() + size_of_val(&data.rules[..]) + size_of_val(&data.rules_cond[..]);
        for &rule in &data.rules {
            let (places, ..) = grammar.rule_rhs(rule);
            bytes += (places.len() + 1) * PLACE;
            open.extend(places.iter().filter(|place| !seen.contains(&place.as_index())));
        }
    }
    let lexemes = grammar.lexer_spec();
    let unsupported = [
        (lexemes.has_stop, "`stop`"),
        (lexemes.has_max_tokens, "`max_tokens`"),
        (has_temperature, "`temperature`"),
        (!has_marks && lexemes.token_range_lexemes(&lexemes.all_lexemes()).len() > 1, "special tokens"),
    ];
    match unsupported.iter().find(|(is_used, _)| *is_used) {
        Some((_, what)) => {
            Err(Error::input(format!("the grammar uses {what}, which is not supported"), "leave it out"))
        }
        // Measured: the rules exist twice, in their original and their optimised form.
        None => Ok(2 * bytes),
    }
}

/// Runs a call into llguidance. `failure` makes an error of the message of a panic.
pub(super) fn sheltered<T>(failure: impl Fn(&str) -> Error, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let ran = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| Ok(run())));
    ran.unwrap_or_else(|e| Err(failure(&said(&e))))
}

/// llguidance's message on one line. Text after an empty line and the backtrace are cut off.
pub(super) fn said(error: &impl std::fmt::Display) -> String {
    let text = format!("{error:#}");
    let text = text.split("<backtrace>").next().unwrap_or_default();
    if text.trim_start().starts_with("panic:") {
        return "the parser fails on it".to_owned();
    }
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let words: Vec<&str> = lines.filter(|line| !line.bytes().all(|byte| byte == b'^')).collect();
    words.join(" ").chars().take(LONGEST_REASON).collect()
}

/// The error for a schema that llguidance refuses with `reason`. It has Kiln's own words, because llguidance speaks of
/// the lowered schema.
pub(super) fn refusal(reason: &str) -> Error {
    const TOO_LARGE: [&str; 6] = ["too big", "too large", "too many", "fuel", "limit", "stack level"];
    let why = if reason.contains("nsatisfiable") || reason.contains("no text") {
        "no document satisfies it"
    } else if reason.contains("circular") {
        "a `$ref` that leads back to itself has other keywords beside it"
    } else if TOO_LARGE.iter().any(|words| reason.contains(words)) {
        "it is too large"
    } else {
        "a part of it is not supported"
    };
    log::debug!("a JSON schema is refused: {reason}");
    Error::input(format!("the JSON schema cannot be used: {why}"), "change the schema")
}

fn lark_refusal(reason: &str) -> Error {
    Error::input(format!("the grammar cannot be used: {}", quote(reason)), "change the grammar")
}

/// True if llguidance compiles a schema without changes, and within its limits.
pub(super) fn takes(schema: &Value) -> bool {
    let options = llguidance::JsonCompileOptions::default();
    let compile = || {
        let builder = llguidance::GrammarBuilder::new(None, LIMITS);
        options.json_to_llg(builder, schema.clone()).and_then(|compiled| compiled.builder.check_limits())
    };
    sheltered(refusal, || compile().map_err(|e| refusal(&said(&e)))).is_ok()
}
