//! Runs a chat template in bounded memory, depth and steps.
//!
//! MiniJinja counts steps but does not limit the size of their results: `x ~ x` doubles a text, so 33 steps make 8 GB
//! of it, and one `replace` or one pass over nested iterators can do as much. So a template's instructions are changed
//! after it is compiled:
//!
//! - The result of an instruction is *charged*: one value has a size limit, and a run has a budget for all of them. An
//!   operator makes no more than the sum of its operands, so a refused value is not far above the limit.
//! - Text between tags is written like values, so that captured output is charged too.
//! - Iterators become lists when they are charged, so that iterators are never nested.
//! - Filters and methods that can make much of little check their operands first (filters.rs, methods.rs, json.rs).
//! - A namespace holds plain data, so that it cannot hold itself.
//!
//! The depth of expressions is limited before they are parsed, and products of constants are not computed before a run
//! (source.rs).
//!
//! MiniJinja's stable interface has no hook at operators, so this uses the unstable one, and Cargo.toml pins the
//! version. A child process with limits could contain any template, but a library has no executable to start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions, Vm, make_string_output};
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value, escape_formatter};

use super::python::text_of;
use super::source::{self, MAX_ELIFS, MAX_SOURCE, MAX_TAG};
use super::{filters, methods};

/// The template's name in MiniJinja's errors.
const NAME: &str = "chat template";

/// Steps of a run. Gemma's template takes about fifty per message.
pub(super) const FUEL: u64 = 5_000_000;
/// CPU time of a run. Scanning text takes time but makes no value.
const MAX_TIME: Duration = Duration::from_secs(5);
/// The deepest nesting of blocks while a template runs; a macro call counts four times.
const MAX_FRAMES: usize = 128;
/// Size of one value. The longest context is about a megabyte of text.
const MAX_VALUE: u64 = 16 << 20;
/// Total size of all values of a run.
const MAX_MADE: u64 = 256 << 20;
/// The deepest nesting of values that a template may make.
const MAX_DEPTH: usize = 64;
/// Size of a value without its text or items, about its size in memory.
const HEAD: u64 = 32;

/// The limit that a template or its rendering exceeds.
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
    #[error("puts a namespace or a macro into a list, a map or a namespace")]
    Holder,
    #[error("indents JSON by more than 16")]
    Indent,
}

impl Excess {
    /// The bound that an error of MiniJinja's reports, if it reports one.
    pub(super) fn of(error: &Error) -> Option<Excess> {
        cause_of(error).copied()
    }
}

/// The first error of a type among an error and its causes.
pub(super) fn cause_of<T: std::error::Error + 'static>(error: &Error) -> Option<&T> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = cause {
        if let Some(found) = e.downcast_ref() {
            return Some(found);
        }
        cause = e.source();
    }
    None
}

impl From<Excess> for Error {
    fn from(excess: Excess) -> Error {
        Error::new(ErrorKind::InvalidOperation, "out of bounds").with_source(excess)
    }
}

/// A compiled template with charges.
pub(super) struct ChargedTemplate<'s> {
    main: Instructions<'s>,
    blocks: BTreeMap<&'s str, Instructions<'s>>,
}

impl<'s> ChargedTemplate<'s> {
    /// Compiles a source that is [prepared](source::prepare).
    ///
    /// # Errors
    /// The source is not a valid template.
    pub(super) fn compile(source: &'s str) -> Result<ChargedTemplate<'s>, Error> {
        let parsed = machinery::parse(source, NAME, Default::default(), source::blanks())?;
        let mut generator = CodeGenerator::new(NAME, source);
        generator.compile_stmt(&parsed);
        let (main, blocks) = generator.finish();
        let blocks = blocks.into_iter().map(|(name, block)| (name, charged(&block))).collect();
        Ok(ChargedTemplate { main: charged(&main), blocks })
    }

    /// Runs the template. `extend` adds functions and filters to the environment.
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

/// Names of filters that the changed instructions call. Each takes one value and returns it.
const CHARGE: &str = "charge";
const TICK: &str = "tick";
const PLAIN: &str = "plain";

/// Inserts charges between the instructions of a program.
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

/// The instructions that replace one of the template's, so that its work is charged.
fn change<'s>(instruction: &Instruction<'s>) -> Vec<Instruction<'s>> {
    use Instruction as I;
    // Without a local id (`!0`), so that the filter is looked up by name.
    let call = |name| I::ApplyFilter(name, Some(1), !0);
    let same = instruction.clone();
    match instruction {
        I::ApplyFilter(source::FACTOR, Some(1), _) => vec![],
        I::EmitRaw(text) => vec![I::LoadConst(Value::from_safe_string((*text).to_owned())), I::Emit],
        I::Rem => vec![I::ApplyFilter(filters::REMAINDER, Some(2), !0), call(CHARGE)],
        I::PushLoop(_) => vec![call(CHARGE), same],
        I::Add
        | I::Sub
        | I::Mul
        | I::Div
        | I::IntDiv
        | I::Pow
        | I::StringConcat
        | I::Slice
        | I::BuildList(Some(_))
        | I::BuildMap(_)
        | I::ApplyFilter(..)
        | I::CallFunction(..)
        | I::CallMethod(..)
        | I::CallObject(_)
        | I::EndCapture => vec![same, call(CHARGE)],
        // Instructions that make nothing, but may scan a whole text.
        I::GetItem | I::PerformTest(..) | I::Eq | I::Ne | I::Lt | I::Lte | I::Gt | I::Gte | I::In => {
            vec![same, call(TICK)]
        }
        // The namespace is on top of the stack.
        I::SetAttr(_) => vec![I::Swap, call(PLAIN), I::Swap, same],
        _ => vec![same],
    }
}

/// The budget of a run: the size of its values so far, and its deadline.
pub(super) struct Budget {
    made: AtomicU64,
    spends: AtomicU64,
    /// CPU time of this thread at which the run ends.
    end: Duration,
}

/// CPU time of this thread, which does not depend on other work on the machine.
fn cpu_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Budget {
    fn new() -> Budget {
        Budget { made: AtomicU64::new(0), spends: AtomicU64::new(0), end: cpu_time() + MAX_TIME }
    }

    /// Charges for a value, or for work of this size.
    pub(super) fn spend(&self, size: u64) -> Result<(), Excess> {
        // Reading the clock costs more than most steps, but less than steps over much text.
        if (self.spends.fetch_add(1, Ordering::Relaxed) % 64 == 63 || size >= 4 << 10) && cpu_time() >= self.end {
            return Err(Excess::Time);
        }
        let made = self.made.fetch_add(size, Ordering::Relaxed).saturating_add(size);
        if made > MAX_MADE { Err(Excess::Made) } else { Ok(()) }
    }

    /// Charges for a value of this size before it is made.
    pub(super) fn make(&self, size: u64) -> Result<(), Excess> {
        if size > MAX_VALUE { Err(Excess::Value) } else { self.spend(size) }
    }

    fn charge(&self, value: Value) -> Result<Value, Error> {
        let value = if value.kind() == ValueKind::Iterable { list(&value)? } else { value };
        self.spend(weigh(&value)?)?;
        Ok(value)
    }
}

/// The items of an iterator as a list.
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

/// The size of a value with all nested values. A value nested twice counts twice, as it does when it is written.
pub(super) fn weigh(value: &Value) -> Result<u64, Excess> {
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

/// Whether a value can contain itself: a namespace, which can be changed, or a macro, which holds the namespaces around
/// it. MiniJinja does not export their types.
fn is_holder(value: &Value) -> bool {
    let name = value.as_object().map_or("", |object| object.type_name());
    name.ends_with("::Namespace") || name.ends_with("::Macro")
}

/// An environment in which all results are charged.
fn bounded_environment<'s>() -> Environment<'s> {
    let mut e = Environment::new();
    e.set_fuel(Some(FUEL));
    e.set_recursion_limit(MAX_FRAMES);
    e.remove_global("debug");

    let budget = Arc::new(Budget::new());
    let b = budget.clone();
    e.add_filter(CHARGE, move |value: Value| b.charge(value));
    let b = budget.clone();
    e.add_filter(TICK, move |value: Value| -> Result<Value, Error> {
        b.spend(0)?;
        Ok(value)
    });
    e.add_filter(PLAIN, |value: Value| -> Result<Value, Error> {
        if is_holder(&value) { Err(Excess::Holder.into()) } else { Ok(value) }
    });
    let b = budget.clone();
    e.set_formatter(move |out, state, value| {
        b.spend(weigh(value)?)?;
        match (state.auto_escape(), value.as_str()) {
            (AutoEscape::None, Some(text)) => Ok(out.write_str(text)?),
            (AutoEscape::None, None) => Ok(out.write_str(&text_of(value))?),
            _ => escape_formatter(out, state, value),
        }
    });
    let b = budget.clone();
    e.set_unknown_method_callback(move |_, value, name, arguments| methods::call(&b, value, name, arguments));
    filters::add(&mut e, &budget);
    e
}

#[cfg(test)]
mod tests;
