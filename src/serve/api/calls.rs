//! Separates function calls from text in replies.

use super::run::unique;
use super::tools::Callable;
use crate::text::CallSyntax;
use crate::text::calls::CallMarks;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

/// A function call in a reply: the function, and the arguments that the model wrote.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    pub id: String,
    pub called: Callable,
    /// The arguments as JSON of an object, exactly as the model wrote it, so that numbers keep all digits.
    pub arguments: String,
}

impl ToolCall {
    /// The call in the format of chat completions.
    pub fn to_json(&self) -> Value {
        let name = &self.called.name;
        match self.called.is_custom {
            true => json!({"id": self.id, "type": "custom", "custom": {"name": name, "input": self.custom_input()}}),
            false => {
                json!({"id": self.id, "type": "function", "function": {"name": name, "arguments": self.arguments}})
            }
        }
    }

    /// The arguments of the call as a JSON object.
    pub fn input(&self) -> Value {
        serde_json::from_str(&self.arguments).unwrap_or_default()
    }

    /// The field `input` of the arguments: the text for a custom tool. Empty if it is missing.
    pub fn custom_input(&self) -> String {
        self.input().get("input").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// A piece of a reply: text, or a function call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    Text(String),
    Call(ToolCall),
}

/// Appends a piece of text to `said`, unless it is empty.
fn add_text(said: &mut Vec<Said>, text: impl Into<String>) {
    said.extend(Some(text.into()).filter(|text| !text.is_empty()).map(Said::Text));
}

/// Separates the pieces of a reply into the joined text and the calls.
pub(super) fn split(said: Vec<Said>) -> (String, Vec<ToolCall>) {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for part in said {
        match part {
            Said::Text(part) => text.push_str(&part),
            Said::Call(call) => calls.push(call),
        }
    }
    (text, calls)
}

/// Separates calls from text in a reply that arrives in pieces. Without tools, everything is text.
#[derive(Debug, Clone)]
pub(super) struct CallDetector {
    state: DetectorState,
    syntax: CallSyntax,
    /// The functions that may be called.
    callable: Vec<Callable>,
    /// The text of an incomplete call, or a beginning that may still become one.
    held: String,
    /// The number of bytes at the start of `held` that the request supplied, and the model has not written.
    begun: usize,
    /// The number of calls found in the reply so far.
    pub calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DetectorState {
    Undecided,
    Text,
    Calls,
}

impl Default for CallDetector {
    /// A detector without functions: all of the reply is text.
    fn default() -> CallDetector {
        CallDetector::new(Vec::new(), CallSyntax::Json)
    }
}

impl CallDetector {
    /// A detector of calls of the functions `callable`, written in `syntax`.
    pub fn new(callable: Vec<Callable>, syntax: CallSyntax) -> CallDetector {
        let state = if callable.is_empty() { DetectorState::Text } else { DetectorState::Undecided };
        CallDetector { state, syntax, callable, held: String::new(), begun: 0, calls: 0 }
    }

    /// For a reply that continues `begun`, the beginning of the assistant's message. It may be the beginning of a call;
    /// after other text the reply may have calls too.
    pub fn going_on(mut self, begun: &str) -> CallDetector {
        if self.state == DetectorState::Undecided && self.syntax == CallSyntax::Json && !begun.trim().is_empty() {
            self.held = begun.to_owned();
            match self.begins_call() {
                Some(true) => self.state = DetectorState::Calls,
                Some(false) => self.held.clear(),
                None => {}
            }
            self.begun = self.held.len();
        }
        self
    }

    /// Adds a piece of the reply, and returns the text and the calls that are now certain.
    pub fn push(&mut self, piece: &str) -> Vec<Said> {
        let mut said = Vec::new();
        if self.state == DetectorState::Text {
            add_text(&mut said, piece);
            return said;
        }
        self.held.push_str(piece);
        match self.syntax {
            CallSyntax::Json => self.push_json(piece, &mut said),
            CallSyntax::Marked(marks) => self.push_marked(marks, &mut said),
        }
        self.calls += said.iter().filter(|part| matches!(part, Said::Call(_))).count();
        said
    }

    fn push_json(&mut self, piece: &str, said: &mut Vec<Said>) {
        if self.state == DetectorState::Undecided {
            match self.begins_call() {
                None => return,
                Some(true) => self.state = DetectorState::Calls,
                Some(false) => self.state = DetectorState::Text,
            }
        }
        match self.state {
            DetectorState::Calls if piece.contains('}') => self.take_calls(said),
            DetectorState::Calls => {}
            _ => add_text(said, self.take_held()),
        }
    }

    /// Takes the text of `held` that the model wrote, without the bytes that the request supplied.
    fn take_held(&mut self) -> String {
        let begun = std::mem::take(&mut self.begun);
        std::mem::take(&mut self.held).split_off(begun)
    }

    /// Whether the held text begins a call in the grammar's syntax. `None`: still undecided. A document that begins
    /// differently is passed on as text at once.
    fn begins_call(&self) -> Option<bool> {
        let held = self.held.trim_start();
        let Some(rest) = held.strip_prefix(NAME) else { return (!NAME.starts_with(held)).then_some(false) };
        let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        match names.next() {
            Some(Ok(name)) if self.find(&name).is_some() => {
                let rest = &rest[names.byte_offset()..];
                let begins = rest.starts_with(PARAMETERS);
                (begins || !PARAMETERS.starts_with(rest)).then_some(begins)
            }
            Some(Err(e)) if e.is_eof() => None,
            None => None,
            Some(_) => Some(false),
        }
    }

    fn find(&self, told: &str) -> Option<&Callable> {
        self.callable.iter().find(|callable| callable.told() == told)
    }

    /// A call of `name`, in the prompt's naming. `None`: there is no such function, or the arguments are not an object.
    fn called(&self, name: &str, arguments: &str) -> Option<Said> {
        let called = self.find(name).filter(|_| arguments.starts_with('{'))?.clone();
        Some(Said::Call(ToolCall { id: unique("call_"), called, arguments: arguments.to_owned() }))
    }

    /// Takes complete calls from the text in `held`. Anything else, and all that follows it, is text.
    fn take_calls(&mut self, said: &mut Vec<Said>) {
        let mut written = serde_json::Deserializer::from_str(&self.held).into_iter::<IgnoredAny>();
        let mut done = 0;
        while let Some(Ok(IgnoredAny)) = written.next() {
            // The reply may also be an object of the requested form.
            let call = read_json(&self.held[done..written.byte_offset()]);
            let Some(call) = call.and_then(|(name, arguments)| self.called(&name, arguments)) else {
                self.state = DetectorState::Text;
                break;
            };
            said.push(call);
            done = written.byte_offset();
        }
        self.held.drain(..done);
        self.begun = self.begun.saturating_sub(done);
        if self.state == DetectorState::Text {
            add_text(said, self.take_held());
        }
    }

    /// Takes text and complete calls from `held`. Text that may be the start of a call remains there.
    fn push_marked(&mut self, marks: &CallMarks, said: &mut Vec<Said>) {
        let [open, close] = marks.call;
        loop {
            let begin = self.held.find(open).unwrap_or_else(|| {
                let may_begin = |at: &usize| self.held.is_char_boundary(*at) && open.starts_with(&self.held[*at..]);
                let from = self.held.len().saturating_sub(open.len() - 1);
                (from..self.held.len()).find(may_begin).unwrap_or(self.held.len())
            });
            // Some models write each call on its own line; such blanks between calls are dropped.
            let text: String = self.held.drain(..begin).collect();
            if self.calls == 0 && !said.iter().any(|part| matches!(part, Said::Call(_))) || !text.trim().is_empty() {
                add_text(said, text);
            }
            let Some(end) = self.held.strip_prefix(open).and_then(|rest| rest.find(close)) else { return };
            let whole: String = self.held.drain(..open.len() + end + close.len()).collect();
            let call = marks.read(&whole[open.len()..open.len() + end]);
            match call.and_then(|(name, arguments)| self.called(&name, &arguments)) {
                Some(call) => said.push(call),
                None => add_text(said, whole),
            }
        }
    }

    /// Adds the reply's last piece. Text in `held` that has not become a call is returned as text.
    pub fn push_last(&mut self, piece: &str) -> Vec<Said> {
        let mut said = self.push(piece);
        let held = self.take_held();
        if self.calls == 0 || !held.trim().is_empty() {
            add_text(&mut said, held);
        }
        said
    }
}

/// The texts before and after the name in a JSON call, as the grammar writes them.
const NAME: &str = "{\"name\":";
const PARAMETERS: &str = ",\"parameters\":";

/// The name and the unparsed arguments of a JSON call. `None`: it is another object.
fn read_json(text: &str) -> Option<(String, &str)> {
    let rest = text.trim().strip_prefix(NAME)?;
    let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let name = names.next()?.ok()?;
    let arguments = rest[names.byte_offset()..].strip_prefix(PARAMETERS)?.strip_suffix('}')?;
    serde_json::from_str::<Map<String, Value>>(arguments).ok()?;
    Some((name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::calls::MARKED;

    /// Passes `text` through a detector in pieces of `length` bytes. Returns the text, and the calls' names and
    /// arguments.
    fn hear(text: &str, length: usize) -> (String, Vec<(String, String)>) {
        hear_in(CallSyntax::Json, text, length)
    }

    fn hear_in(syntax: CallSyntax, text: &str, length: usize) -> (String, Vec<(String, String)>) {
        let mut listener = CallDetector::new(vec!["f".into(), "g".into()], syntax);
        let (mut heard, mut calls) = (String::new(), Vec::new());
        let pieces: Vec<&str> =
            text.as_bytes().chunks(length).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
        let (last, first) = pieces.split_last().unwrap_or((&"", &[]));
        let mut all: Vec<Said> = first.iter().flat_map(|piece| listener.push(piece)).collect();
        all.extend(listener.push_last(last));
        for said in all {
            match said {
                Said::Text(text) => heard.push_str(&text),
                Said::Call(call) => calls.push((call.called.name, call.arguments)),
            }
        }
        assert_eq!(listener.calls, calls.len());
        (heard, calls)
    }

    #[test]
    fn calls_are_heard_in_any_pieces_and_text_stays_text() {
        let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        let two = "{\"name\":\"f\",\"parameters\":{\"a\":{\"b\":\"}\"}}}\n{\"name\":\"g\",\"parameters\":{}}";
        for length in [1, 3, 7, 1000] {
            let calls = vec![call("f", "{\"a\":{\"b\":\"}\"}}"), call("g", "{}")];
            assert_eq!(hear(two, length), (String::new(), calls));
            for text in [
                "Hello {you}",
                "  hi",
                "",
                " \n",
                "{\"name\":\"f\",\"para",
                "{\"no\":1} call",
                "{no}",
                // Documents of the requested form that begin like calls.
                "{\"name\":\"h\",\"parameters\":{}}",
                "{\"name\":\"f\",\"parameters\":{},\"more\":1}",
                "{\"name\":\"f\",\"parameters\":1}",
                "{\"name\": \"f\", \"parameters\": {}}",
                "{\"name\":1}",
            ] {
                assert_eq!(hear(text, length), (text.to_owned(), vec![]), "{length}");
            }
            // A second call, cut off by the token limit.
            let (text, calls) = hear("{\"name\":\"f\",\"parameters\":{}}\n{\"na", length);
            assert_eq!((text.trim_start(), calls.len()), ("{\"na", 1));
        }
        let whole = "{\"name\":\"f\",\"parameters\":{}}";
        assert_eq!(CallDetector::new(Vec::new(), CallSyntax::Json).push(whole), [Said::Text(whole.into())]);
    }

    #[test]
    fn marked_calls_are_heard_in_any_pieces() {
        let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        let one = "<start_function_call>call:f{a:<escape>}x<escape>,b:[1]}<end_function_call>";
        for length in [1, 3, 7, 1000] {
            let hear = |text: &str| hear_in(CallSyntax::Marked(&MARKED[0]), text, length);
            let f = call("f", "{\"a\":\"}x\",\"b\":[1]}");
            assert_eq!(hear(one), (String::new(), vec![f.clone()]));
            let two = format!("{one}<start_function_call>call:g{{}}<end_function_call>");
            assert_eq!(hear(&two), (String::new(), vec![f.clone(), call("g", "{}")]));
            assert_eq!(hear(&format!("Let me see.\n{one}\n")), ("Let me see.\n".into(), vec![f.clone()]));
            for text in [
                "a < b",
                "a <start_function",
                "<start_function_call>call:h{}<end_function_call>",
                "<start_function_call>call:f{",
            ] {
                assert_eq!(hear(text), (text.to_owned(), vec![]));
            }
        }
    }

    #[test]
    fn a_call_that_the_request_has_begun_is_heard_whole_and_other_text_without_what_it_brought() {
        for (begun, reply, text, calls) in [
            ("{\"name\":\"f\",\"parameters\":{\"a\":", "1}}", "", vec!["{\"a\":1}"]),
            ("{\"na", "me\":\"f\",\"parameters\":{}}", "", vec!["{}"]),
            ("{\"na", "il\": 1}", "il\": 1}", vec![]),
            ("Well", ", {\"name\":\"f\"}", ", {\"name\":\"f\"}", vec![]),
            ("", "{\"name\":\"f\",\"parameters\":{}}", "", vec!["{}"]),
        ] {
            let mut detector = CallDetector::new(vec!["f".into()], CallSyntax::Json).going_on(begun);
            let (heard, called) = split(detector.push_last(reply));
            let called: Vec<String> = called.into_iter().map(|call| call.arguments).collect();
            assert_eq!((heard.as_str(), called), (text, calls.into_iter().map(String::from).collect()), "{begun}");
        }
        let long = "{\"name\":\"f\",\"parameters\":{\"n\":123456789012345678901234567890}}";
        let calls = split(CallDetector::new(vec!["f".into()], CallSyntax::Json).push_last(long)).1;
        assert_eq!(calls[0].to_json()["function"]["arguments"], "{\"n\":123456789012345678901234567890}");
    }
}
