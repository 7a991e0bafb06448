//! A forecast in one line: whether the model fits, with the best rates or with remedies.

use super::ForecastView;
use super::form::ModelForm;
use super::machine::{Named, gib};
use super::rates::{Prefill, draft_rate, roof};
use crate::display::{bytes, duration, excess};
use crate::engine;
use crate::model::WeightFormat;
use crate::plan::Plan;
use crate::schedule::kv::PAGE;
use crate::sequence::draft::gain::expected_tokens;
use serde_json::{Value, json};

/// Tokens per draft for the rate with drafts, each right with the probability [`RIGHT`]. Longer drafts gain more if
/// passes with more rows take no longer.
pub(crate) const DRAFTED: usize = 1;
pub(crate) const RIGHT: f64 = 0.6;
/// The shortest context, in tokens, that counts as a remedy. A shorter one holds no conversation.
const LEAST_CONTEXT: usize = 1024;
/// The factor by which a smaller form must be faster, or smaller, to be mentioned.
const WORTH: f64 = 1.05;

/// Whether the model fits into the machine, with rates or remedies.
pub(crate) enum FitVerdict {
    /// The model fits.
    Fits(BestRates),
    /// The model does not fit; with remedies.
    DoesNotFit(Shortage),
}

/// The best rates that the machine allows.
pub(crate) struct BestRates {
    /// The tokens per second of one sequence.
    one: f64,
    /// The number of planned sequences, if above one, and their total tokens per second.
    together: Option<(usize, f64)>,
    /// Tokens per second of one sequence with the matrices in 4 bits, if that is faster.
    in_4_bits: Option<f64>,
    /// Tokens per second of one sequence with drafts, in 4 bits if that is faster, and the matrices' formats at that
    /// rate. `None`: drafts gain nothing.
    pub(crate) with_draft: Option<(f64, String)>,
    /// `None` if the rate of the device's arithmetic is unknown.
    pub(crate) prefill: Option<Prefill>,
}

/// The shortage of memory, and remedies for it.
pub(crate) struct Shortage {
    cause: String,
    smaller: Option<Smaller>,
    ways: Vec<FitOption>,
}

/// The model in a smaller form: the largest that fits, or the smallest.
struct Smaller {
    format: WeightFormat,
    /// True if Kiln can make this format of the weights at hand. False: another file is needed.
    is_made: bool,
    bytes: u64,
    fits: bool,
    /// The most tokens per second of one sequence.
    tokens_s: f64,
}

/// A change of settings that makes the model fit, in the same format.
struct FitOption {
    /// The name and the value of the setting in the report.
    key: &'static str,
    value: Value,
    /// The change as the verdict's line describes it.
    words: String,
}

impl FitVerdict {
    pub(crate) fn of(view: &ForecastView) -> FitVerdict {
        match &view.placed {
            Ok(_) => FitVerdict::Fits(BestRates::of(view)),
            Err(e) => {
                let (needed, free) = (view.total(), view.target.memory.available());
                let cause = match needed > free {
                    true => {
                        let excess = excess(needed, free).map_or(String::new(), |excess| format!(" ({excess})"));
                        format!("needs {}{excess}, this machine gives {}", bytes(needed), bytes(free))
                    }
                    false => (view.words)(e.parts().0),
                };
                FitVerdict::DoesNotFit(Shortage { cause, smaller: Smaller::find(view), ways: FitOption::all(view) })
            }
        }
    }

    /// The verdict as one line without a line end.
    pub(crate) fn line(&self) -> String {
        match self {
            FitVerdict::Fits(rates) => rates.line(),
            FitVerdict::DoesNotFit(shortage) => shortage.line(),
        }
    }

    /// The best rates; null if the model does not fit.
    pub(crate) fn rates_json(&self) -> Value {
        let FitVerdict::Fits(rates) = self else { return Value::Null };
        let draft = rates.with_draft.as_ref().map(|(rate, weights)| {
            json!({
                "weights": weights, "drafted": DRAFTED, "right": RIGHT,
                "tokens_a_pass": expected_tokens(DRAFTED, RIGHT), "tokens_s": rate,
            })
        });
        let prefill = rates.prefill.as_ref().map(|p| {
            json!({
                "tokens": p.tokens, "operations": p.operations, "peak_operations_s": p.peak,
                "share_of_peak": crate::machine::profile::PREFILL_SHARE, "seconds": p.seconds,
                "seconds_at_peak": p.seconds_at_peak,
            })
        });
        json!({
            "tokens_s": rates.one,
            "int4_tokens_s": rates.in_4_bits,
            "with_draft": draft,
            "prefill": prefill,
        })
    }

    /// The changes that make the model fit, as JSON; null if it fits.
    pub(crate) fn remedies_json(&self) -> Value {
        let FitVerdict::DoesNotFit(shortage) = self else { return Value::Null };
        let smaller = shortage
            .smaller
            .as_ref()
            .map(|s| json!({"weights": s.format.name(), "bytes": s.bytes, "fits": s.fits, "tokens_s": s.tokens_s}));
        let mut value = json!({"smaller": smaller});
        for way in &shortage.ways {
            value[way.key] = way.value.clone();
        }
        value
    }
}

impl BestRates {
    fn of(view: &ForecastView) -> BestRates {
        let (s, target) = (&view.schedule, &view.target);
        let one = roof(s, target, 1).tokens_s;
        let sequences = view.asked.options.sequences;
        let int4 = view.in_4_bits().map(|form| form.build(s.extent).0);
        let int4 = int4.map(|int4| (roof(&int4, target, 1).tokens_s, int4)).filter(|(rate, _)| *rate > WORTH * one);
        let in_4_bits = int4.as_ref().map(|(rate, _)| *rate);
        let fastest = int4.as_ref().map_or(s, |(_, int4)| int4);
        let drafted = draft_rate(fastest, view.draft.as_ref().map(|draft| &draft.schedule), target, DRAFTED, RIGHT);
        BestRates {
            one,
            together: (sequences > 1).then(|| (sequences, roof(s, target, sequences).tokens_s)),
            in_4_bits,
            with_draft: (drafted > in_4_bits.unwrap_or(one)).then(|| (drafted, fastest.weights.format_names())),
            prefill: Prefill::of(s, target),
        }
    }

    fn line(&self) -> String {
        let mut line = format!("fits; at most {} tokens/s", shown(self.one));
        if let Some((sequences, rate)) = self.together {
            line += &format!(" ({sequences} sequences together {})", shown(rate));
        }
        line += &self.in_4_bits.map_or(String::new(), |rate| format!(": {} in 4 bits", shown(rate)));
        line += &self
            .with_draft
            .as_ref()
            .map_or(String::new(), |(rate, _)| format!(", about {} with a draft", about(*rate)));
        if let Some(p) = &self.prefill {
            line += &format!("; first token of a prompt of {} after {} at best", prompt(p.tokens), duration(p.seconds));
        }
        line
    }
}

impl Smaller {
    fn find(view: &ForecastView) -> Option<Smaller> {
        let (shape, target, extent) = (&view.schedule.shape, &view.target, view.extent);
        let now = view.schedule.weights.format();
        let is_made = WeightFormat::MADE.contains(&now);
        // A GGUF file's types are not converted, but a 4-bit file may exist.
        let first = if is_made { now.smaller() } else { view.in_4_bits().map(|_| WeightFormat::Int4) };
        let mut found = None;
        for format in std::iter::successors(first, |format| format.smaller()) {
            let form = ModelForm::made(shape, format, target.staged);
            let bytes = form.bytes(extent);
            if !is_worth(bytes, view) {
                continue;
            }
            let (fits, tokens_s) =
                (form.fit(extent, &target.memory).is_ok(), roof(&form.build(extent).0, target, 1).tokens_s);
            found = Some(Smaller { format, is_made, bytes, fits, tokens_s });
            if fits {
                break;
            }
        }
        found
    }

    fn line(&self) -> String {
        let name = match self.is_made {
            true => format!("{} needs", self.format.name().to_uppercase()),
            false => "a file of 4 bits needs about".into(),
        };
        let fits = match self.fits {
            true => format!("and fits, at most {} tokens/s", shown(self.tokens_s)),
            false => "and does not fit either".into(),
        };
        format!("{name} {} {fits}", bytes(self.bytes))
    }
}

impl FitOption {
    /// All changes that make the model fit, the cheapest first.
    fn all(view: &ForecastView) -> Vec<FitOption> {
        let fits = |(_, memory): &(u64, _)| view.fits_in(&view.form, memory);
        let way = |key, value: Value, words: String| FitOption { key, value, words };
        let named = view.target.named.as_ref();
        // The smallest that suffices.
        let carve_out = named.and_then(|named| named.larger_carve_outs().find(fits)).map(|(mib, _)| mib);
        let carve_out =
            carve_out.map(|mib| way("carve_out", json!(mib << 20), format!("a carve-out of {} GiB", gib(mib))));
        let parameters = view.parameters();
        let parameters =
            parameters.map(|all| way("kernel_parameters", all.into(), "the kernel's parameters below".into()));
        let ram = least_ram(view, &view.form).map(|gib| way("ram", json!(gib << 30), format!("{gib} GiB of RAM")));
        let kv = FitOption::kv(view);
        let kv = kv.map(|(key, tokens)| way(key, tokens.into(), format!("--{} {tokens}", key.replace('_', "-"))));
        [kv, carve_out, parameters, ram].into_iter().flatten().collect()
    }

    /// A smaller KV cache or a shorter context, if the weights leave room for one: the option, and the most tokens.
    fn kv(view: &ForecastView) -> Option<(&'static str, usize)> {
        let (memory, options) = (&view.target.memory, view.options);
        let open = engine::Options { kv_tokens: None, ..options }.extent(&view.schedule.shape).ok()?;
        let tokens = Plan::room(open, memory, |extent| view.form.build(extent));
        let fits = |options: engine::Options| {
            options.extent(&view.schedule.shape).is_ok_and(|extent| view.form.fit(extent, memory).is_ok())
        };
        if view.asked.options.kv_tokens.is_some() && fits(engine::Options { kv_tokens: Some(tokens), ..options }) {
            return Some(("kv_tokens", tokens));
        }
        let context = tokens.min(view.extent.context.saturating_sub(1)) / PAGE * PAGE;
        let is_remedy =
            context >= LEAST_CONTEXT && fits(engine::Options { kv_tokens: None, context: Some(context), ..options });
        is_remedy.then_some(("ctx", context))
    }
}

impl Shortage {
    fn line(&self) -> String {
        let mut parts = vec![format!("does not fit: {}", self.cause)];
        parts.extend(self.smaller.as_ref().map(Smaller::line));
        let mut ways: Vec<String> = self.ways.iter().map(|way| way.words.clone()).collect();
        if let Some(last) = ways.pop() {
            let all = if ways.is_empty() { last } else { format!("{} or {last}", ways.join(", ")) };
            parts.push(format!("as it is it fits with {all}"));
        }
        parts.join("; ")
    }
}

/// True if a format of `bytes` bytes is enough smaller than the planned one to be worth naming.
pub(crate) fn is_worth(bytes: u64, view: &ForecastView) -> bool {
    view.total() as f64 > WORTH * bytes as f64
}

/// The smallest RAM on sale, in GiB, with which the machine by name has room for `form`.
pub(crate) fn least_ram(view: &ForecastView, form: &ModelForm) -> Option<u64> {
    let mut sizes = view.target.named.as_ref()?.by_ram();
    sizes.find(|(_, memory)| view.fits_in(form, memory)).map(|(gib, _)| gib)
}

/// The assumed memory of a machine by name, in bytes, with the names of the values that were not given.
pub(crate) fn machine_json(view: &ForecastView, named: &Named) -> Value {
    let p = &named.profile;
    let of = |is_assumed: bool, name: &'static str| is_assumed.then_some(name);
    let assumed: Vec<&str> =
        [of(!named.has_ram, "ram"), of(!named.has_carve_out(), "carve_out")].into_iter().flatten().collect();
    json!({
        "name": p.name, "ram": p.ram << 30, "carve_out": p.carve_out << 20, "assumed": assumed,
        "least_ram": least_ram(view, &view.form).map(|gib| gib << 30),
    })
}

pub(crate) fn shown(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn about(rate: f64) -> String {
    if rate < 3.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// A number of tokens, with a comma after the thousands.
pub(crate) fn prompt(tokens: usize) -> String {
    match tokens {
        1 => "1 token".into(),
        0..1000 => format!("{tokens} tokens"),
        _ => format!("{},{:03} tokens", tokens / 1000, tokens % 1000),
    }
}
