//! Runs a chat template in bounded memory, depth and steps.
//!
//! MiniJinja counts steps. It does not limit what a step makes: `x ~ x` doubles a text, so 33 steps make 8 GB of it, and
//! one `replace` or one look through nested iterators can do as much. So a template's instructions are changed after it
//! is compiled:
//!
//! - A value that an instruction has made is *charged*: there is a limit on one value, and a budget for all of a run. As
//!   an operator makes no more than the sum of its operands, no value is far above the limit when it is refused.
//! - Text between tags is written as values are, so that captured output is charged too.
//! - Iterators become lists when they are charged, so that none is nested in another.
//! - `*` takes numbers only. Filters and methods that make much of little judge their operands first. Those that chat
//!   templates have no use for are removed.
//! - A namespace holds plain data. Otherwise it could hold itself.
//!
//! How deep expressions nest is limited before they are parsed, by the number of tokens in a tag.
//!
//! The stable interface of MiniJinja has no hook at operators, so this uses the unstable one, and Cargo.toml keeps its
//! version. A child process with limits would contain any template, but a library has no executable to start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minijinja::machinery::{
    self, CodeGenerator, Instruction, Instructions, Token, Vm, WhitespaceConfig, make_string_output,
};
use minijinja::value::{Kwargs, StringInput, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter, filters, tests as predicates,
};

/// The template's name in MiniJinja's errors.
const NAME: &str = "chat template";

/// Steps of a run. Gemma's template takes some fifty per message.
pub(super) const FUEL: u64 = 5_000_000;
/// CPU time that a run takes. Looking through text costs time and makes nothing.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Bytes of a template. Gemma 3's has 1.5 KB.
pub(super) const MAX_SOURCE: usize = 256 << 10;
/// Tokens between two braces, which bound the depth of an expression.
const MAX_TAG: usize = 512;
/// `elif`s, each of which is parsed inside the one before it.
const MAX_ELIFS: usize = 128;
/// Nested blocks and, four times, macro calls while a template runs.
const MAX_FRAMES: usize = 128;
/// Size of one value. The longest context is about a megabyte of text.
const MAX_VALUE: u64 = 16 << 20;
/// Sizes of all values that a run makes.
const MAX_MADE: u64 = 256 << 20;
/// Values inside of each other.
const MAX_DEPTH: usize = 64;
/// Size of a value beside its text or items, about what it takes in memory.
const HEAD: u64 = 32;

/// Why a template is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error("has more than {} KiB", MAX_SOURCE >> 10)]
    Source,
    #[error("has a tag of more than {MAX_TAG} words and signs")]
    Tag,
    #[error("has more than {MAX_ELIFS} `elif`s")]
    Elifs,
    #[error("makes a text or list of more than {} MiB", MAX_VALUE >> 20)]
    Value,
    #[error("makes more than {} MiB of text and lists", MAX_MADE >> 20)]
    Made,
    #[error("takes more than {} s", MAX_TIME.as_secs())]
    Time,
    #[error("puts more than {MAX_DEPTH} lists inside of each other")]
    Depth,
    #[error("multiplies something other than plain numbers")]
    Product,
    #[error("puts a namespace or a macro into a list, a map or a namespace")]
    Holder,
    #[error("counts the places of no text in a text")]
    Nothing,
    #[error("indents JSON by more than 16")]
    Indent,
}

impl Excess {
    /// What an error of MiniJinja says of a bound, if it is about one.
    pub(super) fn of(error: &Error) -> Option<Excess> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(e) = cause {
            if let Some(excess) = e.downcast_ref() {
                return Some(*excess);
            }
            cause = e.source();
        }
        None
    }
}

impl From<Excess> for Error {
    fn from(excess: Excess) -> Error {
        Error::new(ErrorKind::InvalidOperation, "out of bounds").with_source(excess)
    }
}

/// A template, compiled with charges.
pub(super) struct Program<'s> {
    main: Instructions<'s>,
    blocks: BTreeMap<&'s str, Instructions<'s>>,
}

impl<'s> Program<'s> {
    /// Compiles `source`, whose lines end in `\n`.
    ///
    /// # Errors
    /// It is no template, or too large or deep.
    pub(super) fn compile(source: &'s str) -> Result<Program<'s>, Error> {
        // As transformers configures Jinja.
        let blanks = || WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
        check_tags(source, blanks())?;
        let parsed = machinery::parse(source, NAME, Default::default(), blanks())?;
        let mut generator = CodeGenerator::new(NAME, source);
        generator.compile_stmt(&parsed);
        let (main, blocks) = generator.finish();
        let blocks = blocks.into_iter().map(|(name, block)| (name, charged(&block))).collect();
        Ok(Program { main: charged(&main), blocks })
    }

    /// Runs the program. `extend` adds what templates may call.
    ///
    /// # Errors
    /// The template fails, raises an exception, or exceeds a bound.
    pub(super) fn run(&self, context: Value, extend: impl FnOnce(&mut Environment<'s>)) -> Result<String, Error> {
        let mut environment = bounded_environment();
        extend(&mut environment);
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        Vm::new(&environment).eval(&self.main, context, &self.blocks, &mut output, AutoEscape::None)?;
        Ok(text)
    }
}

/// Refuses a template whose expressions may be too deep for the stack of a parser that calls itself. Pairs of constant
/// texts do not count, which deepen nothing: TranslateGemma's template has a table of 500 languages. Also one that may
/// multiply constant text or lists, since the compiler works out constants before any run: beside a `*` there is a
/// number or a name.
fn check_tags(source: &str, blanks: WhitespaceConfig) -> Result<(), Excess> {
    if source.len() > MAX_SOURCE {
        return Err(Excess::Source);
    }
    let (mut tokens, mut elifs) = (0, 0);
    let mut before = Token::BlockEnd;
    // Of the pair `"text": "text",` how many tokens are there.
    let mut pair = 0;
    // The parser reports what cannot be split into tokens.
    for (token, _) in machinery::tokenize(source, false, Default::default(), blanks).map_while(Result::ok) {
        tokens += 1;
        pair = match (&token, pair) {
            (Token::Str(_) | Token::String(_), 0 | 2) | (Token::Colon, 1) => pair + 1,
            (Token::Str(_) | Token::String(_), _) => 1,
            (Token::Comma, 3) => {
                tokens -= 4;
                0
            }
            _ => 0,
        };
        match (&before, &token) {
            (_, Token::VariableStart | Token::BlockStart) => tokens = 0,
            (Token::BlockStart, Token::Ident("elif")) => elifs += 1,
            // These arguments are the items of a list: `f(*items)`.
            (Token::ParenOpen | Token::Comma, Token::Mul) => {}
            (before, Token::Mul) if !is_number_or_name(before) => return Err(Excess::Product),
            (Token::Mul, after) if !is_number_or_name(after) => return Err(Excess::Product),
            _ => {}
        }
        if tokens > MAX_TAG {
            return Err(Excess::Tag);
        }
        if elifs > MAX_ELIFS {
            return Err(Excess::Elifs);
        }
        before = token;
    }
    Ok(())
}

fn is_number_or_name(token: &Token) -> bool {
    matches!(token, Token::Int(_) | Token::Float(_) | Token::Ident(_))
}

/// Filters that the changed instructions call. Each takes one value and returns it.
const CHARGE: &str = "charge";
const SCAN: &str = "scan";
const LOOK: &str = "look";
const PLAIN: &str = "plain";
const NUMBER: &str = "number";

/// The instructions with charges between them.
fn charged<'s>(old: &Instructions<'s>) -> Instructions<'s> {
    let all: Vec<&Instruction<'s>> = (0..old.len() as u32).filter_map(|i| old.get(i)).collect();
    let changed: Vec<Vec<Instruction<'s>>> = all.into_iter().map(change).collect();
    let mut starts = vec![0];
    for (i, part) in changed.iter().enumerate() {
        starts.push(starts[i] + part.len() as u32);
    }
    let mut new = Instructions::new(old.name(), old.source());
    for (i, part) in (0..).zip(changed) {
        for mut instruction in part {
            if let Instruction::Iterate(to)
            | Instruction::Jump(to)
            | Instruction::JumpIfFalse(to)
            | Instruction::JumpIfFalseOrPop(to)
            | Instruction::JumpIfTrueOrPop(to)
            | Instruction::BuildMacro(_, to, _) = &mut instruction
            {
                *to = starts[*to as usize];
            }
            match (old.get_span(i), old.get_line(i)) {
                (Some(span), _) => new.add_with_span(instruction, span),
                (None, Some(line)) => new.add_with_line(instruction, line as u16),
                (None, None) => new.add(instruction),
            };
        }
    }
    new
}

/// What runs instead of an instruction.
fn change<'s>(instruction: &Instruction<'s>) -> Vec<Instruction<'s>> {
    use Instruction as I;
    // No number of a local: the filter is looked up by its name.
    let call = |name| I::ApplyFilter(name, Some(1), !0);
    let same = instruction.clone();
    match instruction {
        I::EmitRaw(text) => vec![I::LoadConst(Value::from_safe_string((*text).to_owned())), I::Emit],
        I::LoadConst(value) if value.kind() == ValueKind::Iterable => vec![same, call(CHARGE)],
        I::Add
        | I::StringConcat
        | I::Slice
        | I::BuildList(Some(_))
        | I::BuildMap(_)
        | I::ApplyFilter(..)
        | I::CallFunction(..)
        | I::CallMethod(..)
        | I::CallObject(_)
        | I::EndCapture => vec![same, call(CHARGE)],
        I::Mul => vec![call(NUMBER), I::Swap, call(NUMBER), I::Swap, same],
        // A comparison takes as long as its shorter operand. The container is on top for `in`.
        I::Eq | I::Ne | I::Lt | I::Lte | I::Gt | I::Gte | I::In | I::CompareAndPreserve(_) => vec![call(SCAN), same],
        // Both may go through a whole text. The index is on top, and so are a test's arguments.
        I::GetItem => vec![I::Swap, call(LOOK), I::Swap, same],
        I::PerformTest(_, Some(1), _) => vec![call(LOOK), same],
        I::PerformTest(_, Some(_), _) => vec![I::Swap, call(LOOK), I::Swap, same],
        // The namespace is on top.
        I::SetAttr(_) => vec![I::Swap, call(PLAIN), I::Swap, same],
        _ => vec![same],
    }
}

/// What a run has made, and when it ends.
struct Budget {
    made: AtomicU64,
    spends: AtomicU64,
    /// CPU time of this thread at which the run ends.
    end: Duration,
}

/// CPU time of this thread, which other work on the machine does not lengthen.
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Budget {
    fn new() -> Budget {
        Budget { made: AtomicU64::new(0), spends: AtomicU64::new(0), end: cpu_time() + MAX_TIME }
    }

    fn spend(&self, size: u64) -> Result<(), Excess> {
        // To ask for the time costs more than most steps, but less than those that go through much text.
        if (self.spends.fetch_add(1, Ordering::Relaxed) % 64 == 63 || size >= 4 << 10) && cpu_time() >= self.end {
            return Err(Excess::Time);
        }
        let made = self.made.fetch_add(size, Ordering::Relaxed).saturating_add(size);
        if made > MAX_MADE { Err(Excess::Made) } else { Ok(()) }
    }

    /// Spends the size of a value that is about to be made.
    fn make(&self, size: u64) -> Result<(), Excess> {
        if size > MAX_VALUE { Err(Excess::Value) } else { self.spend(size) }
    }

    fn charge(&self, value: Value) -> Result<Value, Error> {
        let value = if value.kind() == ValueKind::Iterable { list(&value)? } else { value };
        self.spend(weigh(&value)?)?;
        Ok(value)
    }

    /// Spends for going over a value, which is faster than to make it.
    fn scan(&self, value: &Value) -> Result<(), Excess> {
        self.spend(weigh(value)? / 16)
    }

    /// Spends for going over a text.
    fn look(&self, value: &Value) -> Result<(), Excess> {
        self.spend(value.as_str().map_or(0, |text| text.len() as u64 / 16))
    }

    /// Spends for the parts of a text. A part takes more memory than its text.
    fn split(&self, text: &Value) -> Result<(), Excess> {
        self.spend(text.as_str().map_or(0, |text| text.len() as u64 * HEAD))
    }

    /// Spends for removing characters at the ends of a text, each of which is compared with all of `characters`.
    fn strip(&self, text: &str, characters: &str) -> Result<(), Excess> {
        self.spend((text.len() as u64).saturating_mul(characters.len() as u64) / 16)
    }

    fn replace(&self, text: &str, old: &str, new: &str) -> Result<(), Excess> {
        self.make((text.len() as u64).saturating_add(text.matches(old).count() as u64 * new.len() as u64))
    }

    fn join(&self, items: &Value, between: &str) -> Result<(), Excess> {
        let separators = items.len().unwrap_or(0) as u64 * between.len() as u64;
        self.make(weigh(items)?.saturating_add(separators))
    }
}

/// The items of an iterator.
fn list(iterator: &Value) -> Result<Value, Error> {
    let mut items = Vec::new();
    for item in iterator.try_iter()? {
        items.push(item);
        if items.len() as u64 * HEAD > MAX_VALUE {
            return Err(Excess::Value.into());
        }
    }
    Ok(Value::from(items))
}

/// The size of a value with all that it holds. What it holds twice counts twice, as it does when it is written.
fn weigh(value: &Value) -> Result<u64, Excess> {
    let mut size = 0;
    add_size(value, 0, &mut size)?;
    Ok(size)
}

fn add_size(value: &Value, depth: usize, size: &mut u64) -> Result<(), Excess> {
    let held = |item: &Value, size: &mut u64| match is_holder(item) {
        true => Err(Excess::Holder),
        false => add_size(item, depth + 1, size),
    };
    if depth > MAX_DEPTH {
        return Err(Excess::Depth);
    }
    *size += HEAD + value.as_bytes().map_or(0, |bytes| bytes.len() as u64);
    if *size > MAX_VALUE {
        return Err(Excess::Value);
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().into_iter().flatten().try_for_each(|item| held(&item, size))
        }
        ValueKind::Map => value.try_iter().into_iter().flatten().try_for_each(|key| {
            held(&key, size)?;
            value.get_item(&key).ok().map_or(Ok(()), |item| held(&item, size))
        }),
        _ => Ok(()),
    }
}

/// Whether a value is a namespace, which can be changed so that it holds itself, or a macro, which holds the namespaces
/// around it. Their types are not public.
fn is_holder(value: &Value) -> bool {
    let name = value.as_object().map_or("", |object| object.type_name());
    name.ends_with("::Namespace") || name.ends_with("::Macro")
}

/// An environment in which everything is charged.
fn bounded_environment<'s>() -> Environment<'s> {
    let mut e = Environment::new();
    e.set_fuel(Some(FUEL));
    e.set_recursion_limit(MAX_FRAMES);
    for name in ["batch", "chain", "format", "indent", "pprint", "slice", "sum"] {
        e.remove_filter(name);
    }
    e.remove_global("debug");

    let budget = Arc::new(Budget::new());
    let b = budget.clone();
    e.add_filter(CHARGE, move |value: Value| b.charge(value));
    let b = budget.clone();
    e.add_filter(SCAN, move |value: Value| -> Result<Value, Error> {
        b.scan(&value)?;
        Ok(value)
    });
    let b = budget.clone();
    e.add_filter(LOOK, move |value: Value| -> Result<Value, Error> {
        b.look(&value)?;
        Ok(value)
    });
    e.add_filter(PLAIN, |value: Value| -> Result<Value, Error> {
        if is_holder(&value) { Err(Excess::Holder.into()) } else { Ok(value) }
    });
    e.add_filter(NUMBER, |value: Value| -> Result<Value, Error> {
        if value.as_str().is_some() || value.as_object().is_some() { Err(Excess::Product.into()) } else { Ok(value) }
    });
    let b = budget.clone();
    e.set_formatter(move |out, state, value| {
        b.spend(weigh(value)?)?;
        escape_formatter(out, state, value)
    });
    let b = budget.clone();
    e.set_unknown_method_callback(move |state, value, name, arguments| call_method(&b, state, value, name, arguments));

    let b = budget.clone();
    e.add_filter("replace", move |state: &State, text: Value, old: Value, new: Value| -> Result<Value, Error> {
        let input = |value| StringInput::new(state, value);
        let (text, old, new) = (input(&text)?, input(&old)?, input(&new)?);
        b.replace(text.as_str(), old.as_str(), new.as_str())?;
        filters::replace(state, text, old, new)
    });
    let b = budget.clone();
    e.add_filter("join", move |state: &State, items: Value, between: Option<Value>| -> Result<Value, Error> {
        let between = between.as_ref().map(|value| StringInput::new(state, value)).transpose()?;
        b.join(&items, between.as_ref().map_or("", |text| text.as_str()))?;
        filters::join(state, &items, between)
    });
    let b = budget.clone();
    e.add_filter("tojson", move |value: Value, indent: Option<Value>, named: Kwargs| -> Result<Value, Error> {
        let given = indent.clone().or(named.peek::<Option<Value>>("indent").ok().flatten());
        let indent_by = given.and_then(|value| value.as_i64()).unwrap_or(2).unsigned_abs();
        if indent_by > 16 {
            return Err(Excess::Indent.into());
        }
        // A character may become six, and an item gets a line with blanks for its depth.
        b.make(weigh(&value)?.saturating_mul(6 + indent_by))?;
        filters::tojson(&value, indent, named)
    });
    let b = budget.clone();
    e.add_filter("trim", move |value: Value, characters: Option<Arc<str>>| -> Result<String, Error> {
        let text = if value.is_undefined() { String::new() } else { value.to_string() };
        b.strip(&text, characters.as_deref().unwrap_or_default())?;
        Ok(super::trim(&text, characters.as_deref()).to_owned())
    });
    let b = budget.clone();
    e.add_filter("list", move |state: &State, value: Value| -> Result<Value, Error> {
        b.split(&value)?;
        filters::list(state, value)
    });
    let b = budget.clone();
    e.add_filter("split", move |text: Value, at: Option<Arc<str>>, most: Option<i64>| -> Result<Value, Error> {
        b.split(&text)?;
        filters::split(&text, at, most)
    });
    let b = budget.clone();
    e.add_filter("lines", move |text: Value| -> Result<Value, Error> {
        b.split(&text)?;
        filters::lines(&text)
    });
    e.add_test("in", move |state: &State, value: Value, container: Value| -> Result<bool, Error> {
        budget.scan(&container)?;
        predicates::is_in(state, &value, &container)
    });
    e
}

/// Python's methods of text, lists and maps.
fn call_method(budget: &Budget, state: &State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    budget.look(value)?;
    if let Some(text) = value.as_str() {
        let argument = |i: usize| arguments.get(i).and_then(Value::as_str).unwrap_or_default();
        match name {
            // Its widths would make any amount of text.
            "format" => return Err(ErrorKind::UnknownMethod.into()),
            "replace" => budget.replace(text, argument(0), argument(1))?,
            "strip" | "lstrip" | "rstrip" => budget.strip(text, argument(0))?,
            "join" => arguments.first().map_or(Ok(()), |items| budget.join(items, text))?,
            "split" | "splitlines" => budget.split(value)?,
            // It would not end.
            "count" if argument(0).is_empty() => return Err(Excess::Nothing.into()),
            _ => {}
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(source: &str) -> Result<String, Error> {
        let content = "some text ".repeat(100);
        Program::compile(source)?.run(minijinja::context! { content, items => [1, 2, 3] }, |_| {})
    }

    fn excess(source: &str) -> Option<Excess> {
        Excess::of(&run(source).unwrap_err())
    }

    /// Each of these took gigabytes, minutes or the stack.
    #[test]
    fn a_template_that_grows_ends_with_the_bound_that_it_exceeds() {
        let loops = |body: &str| {
            format!(
                "{{% set ns = namespace(x=content, l=[content]) %}}{{% for i in range(1000) %}}{body}{{% endfor %}}"
            )
        };
        for (body, bound) in [
            ("{% set ns.x = ns.x ~ ns.x %}", Excess::Value),
            ("{% set ns.x = ns.x + ns.x %}", Excess::Value),
            ("{% set ns.x = ns.x.replace('t', ns.x) %}", Excess::Value),
            ("{% set ns.x = ns.x | replace('', ns.x) %}", Excess::Value),
            ("{% set ns.x = ns.x.join([ns.x, ns.x]) %}", Excess::Value),
            ("{% set ns.x = [ns.x, ns.x] | join(ns.x) %}", Excess::Value),
            ("{% set ns.x = ns.x | tojson | tojson %}", Excess::Value),
            ("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}", Excess::Value),
            ("{% set ns.x %}{% filter upper %}{{ ns.x }}ß{{ ns.x }}{% endfilter %}{% endset %}", Excess::Value),
            ("{% set ns.l = ns.l + ns.l %}", Excess::Value),
            ("{% set ns.l = [ns.l, ns.l] %}", Excess::Value),
            ("{% set ns.l = {'a': ns.l, 'b': ns.l} %}", Excess::Value),
            ("{% set ns.l = [ns.l] %}", Excess::Depth),
            (
                "{% set ns.x = ns.x[:-1] %}{% for j in range(1000) %}{% set ns.l = ns.l[0:] %}{% endfor %}{% set ns.x = ns.x ~ ns.x %}",
                Excess::Value,
            ),
            ("{% set ns.x = content %}{{ ns.x * 100000 }}", Excess::Product),
            ("{{ ns.l * 100000 }}", Excess::Product),
            ("{{ 'x' * 100000000 }}", Excess::Product),
            ("{% set ns.x = ns %}", Excess::Holder),
            ("{% set ns.x = [ns] %}", Excess::Holder),
            ("{% macro m() %}{{ ns.x }}{% endmacro %}{% set ns.x = m %}", Excess::Holder),
            ("{{ content.count('') }}", Excess::Nothing),
            ("{{ ns.l | tojson(indent=1000000000) }}", Excess::Indent),
            ("{{ content }}{% for j in range(1000) %}{{ content }}{% endfor %}", Excess::Made),
            ("{% for j in range(1000) %}{% set x = content | list %}{% endfor %}", Excess::Made),
            (
                "{% for j in range(1000) %}{% set x = items | map('replace', '', content) | list %}{% endfor %}",
                Excess::Made,
            ),
        ] {
            assert_eq!(excess(&loops(body)), Some(bound), "{body}");
        }
        let raw =
            format!("{{% set x %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}", "raw ".repeat(1000));
        assert_eq!(excess(&raw), Some(Excess::Made));
        // Twice the size with each call.
        let calls = "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m(content) }}";
        assert_eq!(excess(calls), Some(Excess::Value));
        // Each step looks through a megabyte and makes nothing, or compares it with as much.
        let big = "{% set x = range(99999) | join('aaaaaa') %}";
        // Which bound ends these hangs on how quick the machine is.
        for step in ["x.find('aaaaaaab') > 0", "x is lower", "x[-1]", "x is eq(y)", "x is startingwith(x)"] {
            let steps = format!(
                "{big}{{% set y = x[:-1] ~ 'b' %}}{{% for i in range(99999) %}}{{% if {step} %}}{{% endif %}}{{% endfor %}}"
            );
            assert!(matches!(excess(&steps), Some(Excess::Time | Excess::Made)), "{step}");
        }
        assert_eq!(excess(&format!("{big}{{% if x | trim(x) %}}{{% endif %}}")), Some(Excess::Made));
        assert_eq!(excess(&format!("{big}{{% if x.strip(x) %}}{{% endif %}}")), Some(Excess::Made));
        // The compiler would work these out.
        for constant in
            ["'x' * 100000000", "5 in [0] * 1000000000000", "5 in (1, 2) * 1000000000000", "9 * 'x'", "2 * ('x')"]
        {
            assert_eq!(excess(&format!("{{{{ {constant} }}}}")), Some(Excess::Product), "{constant}");
        }
    }

    #[test]
    fn a_run_ends_at_its_time_whatever_it_makes() {
        let late = || Budget { end: Duration::ZERO, ..Budget::new() };
        assert_eq!(late().spend(4 << 10), Err(Excess::Time));
        // Steps that make nothing look at the clock now and then.
        let budget = late();
        assert_eq!((0..64).find_map(|_| budget.spend(0).err()), Some(Excess::Time));
    }

    #[test]
    fn a_template_of_any_depth_is_refused_and_never_overflows_the_stack() {
        let deep = |part: &str| part.repeat(50_000);
        for (source, bound) in [
            (format!("{{{{ {}1 }}}}", deep("not ")), Excess::Tag),
            (format!("{{{{ {}1 }}}}", deep("-")), Excess::Tag),
            (format!("{{{{ content{} }}}}", deep("|e")), Excess::Tag),
            (format!("{{{{ content{} }}}}", deep(".a")), Excess::Tag),
            (format!("{{{{ 1{} }}}}", deep("+1")), Excess::Tag),
            (format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(10_000)), Excess::Elifs),
            (deep("some text"), Excess::Source),
        ] {
            assert_eq!(excess(&source), Some(bound), "{}", &source[..20]);
        }
        // What is just within the limits, and what MiniJinja limits itself.
        assert_eq!(run(&format!("{{{{ {}1 }}}}", "-".repeat(510))).unwrap(), "1");
        for source in [
            format!("{{{{ {}1{} }}}}", "(".repeat(250), ")".repeat(250)),
            format!("{}{}", "{% if 1 %}".repeat(1000), "{% endif %}".repeat(1000)),
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(),
            "{% block a %}{{ self.a() }}{% endblock %}".into(),
        ] {
            assert_eq!(excess(&source), None);
        }
    }

    #[test]
    fn what_templates_do_works_as_without_bounds() {
        for (source, text) in [
            (
                "{% for i in items[1:] %}{{ loop.index }}{{ i * 2 }}{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}",
                "14, 26",
            ),
            ("{% for i in items recursive %}{{ i }}{% if i == 3 %}{{ loop([4, 5]) }}{% endif %}{% endfor %}", "12345"),
            (
                "{% macro m(a, b='x') %}[{{ a }}{{ b }}]{{ caller() if caller }}{% endmacro %}{{ m(1) }}{% call m(2, b='y') %}c{% endcall %}",
                "[1x][2y]c",
            ),
            ("{% set ns = namespace(n=0) %}{% for i in items %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"),
            ("{% set x %}a{{ 1 }}b{% endset %}{{ x ~ x | upper }}{{ x if 1 < 2 < 3 else '' }}", "a1bA1Ba1b"),
            (
                "{{ ([1] + [2, 3])[1:] | join('-') }}{{ {'a': [1, 'x']} | tojson }}{{ 2 in items }}{{ 'a' is in 'cat' }}",
                r#"2-3{"a":[1,"x"]}TrueTrue"#,
            ),
            ("{{ {'a': 1} | tojson(indent=4) }}", "{\n    \"a\": 1\n}"),
            ("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{% for a, b in [[1, 2]] %}{{ b }}{% endfor %}", "32"),
            (
                "{{ 'a,b'.split(',')[-1] }}{{ 'x'.strip('x') or 'none' }}{{ {'k': 5}.get('k') }}{% for k, v in {'k': 5}.items() %}{{ k }}{{ v }}{% endfor %}",
                "bnone5k5",
            ),
            (
                "{% for i in items %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% for i in items %}{% break %}{% endfor %}",
                "13",
            ),
            ("{% autoescape true %}<b>{{ '<' }}{% endautoescape %}{% raw %}{{ x }}{% endraw %}", "<b>&lt;{{ x }}"),
            ("a\n  {%- if 1 %}\nb\n{% endif %}\n", "ab\n"),
            (
                "{{ items | map('string') | list }}{{ items | select('gt', 1) | first }}{{ 7 // 2 }}{{ -7 % 5 }}{{ 2 ** 3 }}",
                r#"["1", "2", "3"]2338"#,
            ),
        ] {
            assert_eq!(run(source).map_err(|e| format!("{e:?}")).as_deref(), Ok(text), "{source}");
        }
    }
}
