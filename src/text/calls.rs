//! Syntaxes in which models write function calls and thoughts.
//!
//! Gemma 3 has no tokens for calls: the system message describes the functions, and a call is JSON, one object a line,
//! `{"name": "..", "parameters": {..}}`. Models tuned for calls have special tokens around them, and a chat template
//! that receives the functions as `tools` and writes those tokens. Each such syntax is an entry of [`MARKED`].

use serde_json::Value;

/// The syntax in which a model writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallSyntax {
    /// `{"name": "..", "parameters": {..}}`, as the system message instructs the model.
    Json,
    /// `call:NAME{key:value,..}` between special tokens, as in the model's chat template.
    Marked(&'static CallMarks),
}

/// The special tokens of a call syntax. A call is `call:NAME{key:value,..}` within [`CallMarks::call`]. Keys are bare,
/// strings stand between two [`CallMarks::quote`], numbers, `true`, `false` and `null` are as in JSON, and lists and
/// objects have brackets.
#[derive(Debug, PartialEq, Eq)]
pub struct CallMarks {
    /// The marks before and after a call.
    pub call: [&'static str; 2],
    /// The mark before and after a string within a call.
    pub quote: &'static str,
    /// Before and behind a function's result. The first one ends a reply, because the client sends the result.
    pub result: [&'static str; 2],
    /// The marks before and after the description of a function in the prompt.
    pub declaration: [&'static str; 2],
    /// The system message of a conversation that has functions but no system message.
    pub system: Option<&'static str>,
}

/// The syntaxes with special tokens. A template that contains a syntax's [`CallMarks::call`] uses it.
pub const MARKED: [CallMarks; 2] = [
    // FunctionGemma: ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices
    CallMarks {
        call: ["<start_function_call>", "<end_function_call>"],
        quote: "<escape>",
        result: ["<start_function_response>", "<end_function_response>"],
        declaration: ["<start_function_declaration>", "<end_function_declaration>"],
        system: Some("You are a model that can do function calling with the following functions"),
    },
    // Gemma 4, whose template puts the functions behind the system message.
    CallMarks {
        call: ["<|tool_call>", "<tool_call|>"],
        quote: "<|\"|>",
        result: ["<|tool_response>", "<tool_response|>"],
        declaration: ["<|tool>", "<tool|>"],
        system: None,
    },
];

/// The special tokens before and behind a thought of Gemma 4. The thought's first line is the channel's name.
pub const THOUGHT: [&str; 2] = ["<|channel>", "<channel|>"];

/// The deepest nesting of values in a call.
const DEEPEST: usize = 64;

impl CallSyntax {
    /// The syntax of a chat template.
    pub fn of_template(source: &str) -> CallSyntax {
        MARKED.iter().find(|marks| source.contains(marks.call[0])).map_or(CallSyntax::Json, CallSyntax::Marked)
    }
}

impl CallMarks {
    /// All special tokens that the syntax uses.
    pub fn tokens(&self) -> impl Iterator<Item = &'static str> {
        [self.call, self.result, self.declaration].into_iter().flatten().chain([self.quote])
    }

    /// Parses the text within [`CallMarks::call`]: the function's name, and its arguments as JSON. `None`: not a call.
    pub fn read(&self, text: &str) -> Option<(String, String)> {
        let (name, _) = text.trim().strip_prefix("call:")?.split_once('{')?;
        let mut reader = CallReader { quote: self.quote, rest: &text.trim()["call:".len() + name.len()..] };
        let mut arguments = String::new();
        reader.read_value(&mut arguments, DEEPEST)?;
        reader.rest.trim().is_empty().then(|| (name.trim().to_owned(), arguments))
    }
}

/// True if a token belongs to a syntax of calls, or encloses a thought.
pub(super) fn is_mark(token: &str) -> bool {
    THOUGHT.contains(&token) || MARKED.iter().any(|marks| marks.tokens().any(|mark| mark == token))
}

/// Reads the values of a call as JSON. Numbers keep their digits.
struct CallReader<'t> {
    quote: &'static str,
    rest: &'t str,
}

impl<'t> CallReader<'t> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.trim_start().strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The text up to the next of `ends`, which is not consumed.
    fn take_until(&mut self, ends: &[char]) -> Option<&'t str> {
        let (text, rest) = self.rest.split_at(self.rest.find(ends)?);
        self.rest = rest;
        Some(text.trim())
    }

    fn take_quoted(&mut self) -> Option<&'t str> {
        let (text, rest) = self.rest.split_once(self.quote)?;
        self.rest = rest;
        Some(text)
    }

    fn read_value(&mut self, out: &mut String, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if self.take(self.quote) {
            out.push_str(&Value::from(self.take_quoted()?).to_string());
        } else if self.take("{") {
            self.read_list(out, ['{', '}'], |reader, out| {
                let key = if reader.take(reader.quote) { reader.take_quoted()? } else { reader.take_until(&[':'])? };
                out.push_str(&Value::from(key).to_string());
                out.push(':');
                if reader.take(":") { reader.read_value(out, depth) } else { None }
            })?;
        } else if self.take("[") {
            self.read_list(out, ['[', ']'], |reader, out| reader.read_value(out, depth))?;
        } else {
            let word = self.take_until(&[',', '}', ']'])?;
            match serde_json::from_str::<Value>(word) {
                Ok(_) => out.push_str(word),
                // Models sometimes omit the quotes around a string.
                Err(_) => out.push_str(&Value::from(word).to_string()),
            }
        }
        Some(())
    }

    /// Reads items separated by commas, up to the closing bracket.
    fn read_list(
        &mut self,
        out: &mut String,
        [open, close]: [char; 2],
        mut read: impl FnMut(&mut Self, &mut String) -> Option<()>,
    ) -> Option<()> {
        out.push(open);
        let end = close.to_string();
        let mut is_first = true;
        while !self.take(&end) {
            if !is_first {
                if !self.take(",") {
                    return None;
                }
                out.push(',');
            }
            is_first = false;
            read(self, out)?;
        }
        out.push(close);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_call_is_read_as_json() {
        let read = |text: &str| MARKED[0].read(text).map(|(name, arguments)| format!("{name} {arguments}"));
        for (text, expected) in [
            ("call:f{}", "f {}"),
            ("call:get_weather{city:<escape>Paris<escape>,days:3}", "get_weather {\"city\":\"Paris\",\"days\":3}"),
            (
                "call:f{b:true,l:[1,<escape>x}, \"y\"<escape>],o:{k:null,<escape>q:<escape>:-1.5e3}}",
                "f {\"b\":true,\"l\":[1,\"x}, \\\"y\\\"\"],\"o\":{\"k\":null,\"q:\":-1.5e3}}",
            ),
            (" call:f{ a : <escape>\n<escape> , b : Paris }\n", "f {\"a\":\"\\n\",\"b\":\"Paris\"}"),
            ("call:f{id:123456789012345678901234567890}", "f {\"id\":123456789012345678901234567890}"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
        let deep = format!("call:f{{a:{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        for text in
            ["", "call:f", "call:f{", "call:f{a}", "call:f{a:1", "call:f{a:<escape>x}", "f{}", "call:f{} x", &deep]
        {
            assert_eq!(read(text), None, "{text:.40}");
        }
    }

    #[test]
    fn a_string_of_gemma_4s_calls_stands_between_two_tokens() {
        let text = "call:f{city:<|\"|>São \"Paulo\"<|\"|>,days:[1,true],o:{k:<|\"|><|\"|>}}";
        let (name, arguments) = MARKED[1].read(text).unwrap();
        let expected = r#"{"city":"São \"Paulo\"","days":[1,true],"o":{"k":""}}"#;
        assert_eq!((name.as_str(), arguments.as_str()), ("f", expected));
    }

    #[test]
    fn a_template_has_the_syntax_whose_tokens_it_writes() {
        assert_eq!(CallSyntax::of_template("{{ messages }}{% if tools %}{% endif %}"), CallSyntax::Json);
        let source = "{{- '<start_function_call>call:' + function['name'] -}}";
        assert_eq!(CallSyntax::of_template(source), CallSyntax::Marked(&MARKED[0]));
        let source = "{{- '<|tool_call>call:' + function['name'] + '{' -}}";
        assert_eq!(CallSyntax::of_template(source), CallSyntax::Marked(&MARKED[1]));
    }
}
