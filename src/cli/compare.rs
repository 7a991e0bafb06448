//! `kiln compare`: runs two executors step by step from the same inputs.

use super::model::ModelArgs;
use super::{print, print_json, signals};
use crate::diagnose::compare::{Compared, ComparedPass, HEAD_ROWS, compare, passes};
use crate::display::counted;
use crate::engine::{self, DEFAULT_CHUNK, Device, NpuUse, Options};
use crate::executor::ExecutorExt;
use crate::executor::weights::Progress;
use crate::model::Shape;
use crate::sequence::SequenceLimits;
use crate::sequence::prompt::encode_text;
use crate::text::parse_ids;
use crate::{Error, Result};
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::ControlFlow;

/// Runs a model on two executors, step by step from the same inputs, and prints the first step that differs beyond its
/// bound.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/compare.txt"))]
pub struct CompareArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// The executor that is held to be right: reference, cpu, vulkan, vulkan:N, amdgpu or amdgpu:N
    #[arg(help_heading = "Executors", long, default_value = "reference", value_name = "EXECUTOR")]
    a: Device,
    /// The executor that is compared with it [default: that of --device]
    #[arg(help_heading = "Executors", long, value_name = "EXECUTOR")]
    b: Option<Device>,
    /// Token ids, taken verbatim [default: 40 ids from all over the vocabulary]
    #[arg(help_heading = "Input", long, value_name = "IDS", allow_hyphen_values = true, conflicts_with = "prompt")]
    tokens: Option<String>,
    /// A text instead of ids
    #[arg(help_heading = "Input", short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// Rows of a prefill pass; the last token always runs alone [default: 512, or all that come before it if fewer]
    #[arg(help_heading = "Input", long, value_name = "N")]
    chunk: Option<usize>,
    /// Go on after a difference, and print every step
    #[arg(help_heading = "Report", long)]
    all: bool,
    /// Multiplies all bounds: below 1 to find smaller differences
    #[arg(help_heading = "Report", long, default_value = "1", value_name = "X", value_parser = positive)]
    scale: f32,
}

/// The number of tokens compared without `--tokens` or `-p`: more rows than the kernels for few rows take.
const DEFAULT_IDS: usize = 40;

fn positive(word: &str) -> std::result::Result<f32, String> {
    match word.parse::<f32>() {
        Ok(x) if x > 0.0 && x.is_finite() => Ok(x),
        _ => Err("it is no number above 0".into()),
    }
}

/// Runs the command.
///
/// # Errors
/// Input: the model or the tokens are wrong. Failed: the executors differ. Refused, Device: as for loading.
pub fn run(args: &CompareArgs, json: bool) -> Result<()> {
    args.model.check_npu()?;
    let checkpoint = args.model.files().checkpoint()?;
    let shape = checkpoint.shape();
    let tokens = tokens(args, shape)?;
    let chunk = args.chunk.unwrap_or(DEFAULT_CHUNK).min(tokens.len().saturating_sub(1).max(1));
    let load = |device| {
        let options = Options {
            device,
            chunk: Some(chunk),
            context: Some(args.model.ctx.unwrap_or(tokens.len())),
            head_rows: HEAD_ROWS.min(chunk),
            // The reference and the CPU have no offload; on Vulkan its speed does not matter here.
            npu: match args.model.options().npu {
                require @ NpuUse::Require(_) if !device.is_host() => require,
                _ => NpuUse::Off,
            },
            ..args.model.options()
        };
        engine::load_stepwise(&checkpoint, &options, &Progress::new(signals::cancel()))
    };
    let (mut a, mut b) = (load(args.a)?, load(args.b.unwrap_or(args.model.device))?);
    let passes = passes(&tokens, chunk, HEAD_ROWS.min(chunk));
    let mut seen = Vec::new();
    compare([a.as_mut(), b.as_mut()], &passes, args.scale, &mut |compared| {
        let ends = compared.differs() && !args.all;
        seen.push(compared);
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let report = ComparisonReport { devices: [a.device(), b.device()], passes: &passes, seen: &seen };
    match json {
        true => print_json(&report.object(&args.model.files().name(), args.all))?,
        false => print(&report.text(args.all))?,
    }
    report.conclude()
}

/// The ids to compare with: those of `--tokens`, or of the text of `-p`, or default ones.
fn tokens(args: &CompareArgs, shape: &Shape) -> Result<Vec<u32>> {
    let limits = SequenceLimits { shape, context: args.model.ctx.unwrap_or(shape.max_context) };
    let tokens = match (&args.tokens, &args.prompt) {
        (Some(ids), _) => parse_ids(ids)?,
        (None, Some(text)) => encode_text(&args.model.files().tokenizer_for(shape.vocab)?, text, limits)?,
        (None, None) => {
            let rest = (1..DEFAULT_IDS.min(limits.context)).map(|i| (37 * i * i % shape.vocab) as u32);
            std::iter::once(shape.bos).chain(rest).collect()
        }
    };
    limits.check(0, &tokens)?;
    Ok(tokens)
}

/// The results of a comparison.
struct ComparisonReport<'a> {
    devices: [&'a str; 2],
    passes: &'a [ComparedPass],
    seen: &'a [Compared],
}

impl ComparisonReport<'_> {
    fn first(&self) -> Option<&Compared> {
        self.seen.iter().find(|compared| compared.differs())
    }

    /// A step with its segment of the pass: `layer 3 attend`.
    fn step(compared: &Compared) -> String {
        match compared.segment.to_string() {
            segment if segment == compared.label => segment,
            segment => format!("{segment} {}", compared.label),
        }
    }

    /// A description of a pass: `pass 1 (39 rows from position 0)`.
    fn pass(&self, index: usize) -> String {
        let rows = &self.passes[index].rows;
        format!("pass {} ({} from position {})", index + 1, counted(rows.len(), "row"), rows[0].position)
    }

    /// The report as text. Writing to a String cannot fail.
    fn text(&self, all: bool) -> String {
        let mut t = format!("a: {}\nb: {}\n", self.devices[0], self.devices[1]);
        if all {
            t += &self.table();
        }
        let worst = || self.seen.iter().max_by(|x, y| x.share.total_cmp(&y.share));
        match self.first() {
            Some(c) => {
                let (step, pass) = (ComparisonReport::step(c), self.pass(c.pass));
                let _ = writeln!(t, "the first step that differs: {step}, in {pass}");
                let _ = writeln!(
                    t,
                    "{}, row {}, element {}: a {:e}, b {:e}, apart by {:e} of {:e}",
                    c.tensor,
                    c.row,
                    c.column,
                    c.a,
                    c.b,
                    (c.a - c.b).abs(),
                    c.bound
                );
            }
            None => {
                let passes = match self.passes.len() {
                    1 => "1 pass".to_owned(),
                    count => format!("{count} passes"),
                };
                let _ = writeln!(t, "equal within their bounds: {} of {passes}", counted(self.seen.len(), "tensor"));
                if let Some(c) = worst() {
                    let (step, share) = (ComparisonReport::step(c), 100.0 * c.share);
                    let _ =
                        writeln!(t, "nearest to its bound: {step}, {}, at {share:.0} % of {:.1e}", c.tensor, c.bound);
                }
            }
        }
        t
    }

    /// All steps, one line per tensor.
    fn table(&self) -> String {
        let steps: Vec<String> = self.seen.iter().map(ComparisonReport::step).collect();
        let step_width = steps.iter().map(String::len).max().unwrap_or(0);
        let width = self.seen.iter().map(|c| c.tensor.len()).max().unwrap_or(0);
        let mut t = String::new();
        let mut pass = None;
        for (c, step) in self.seen.iter().zip(steps) {
            if pass.replace(c.pass) != Some(c.pass) {
                let _ = writeln!(t, "{}", self.pass(c.pass));
                let (step, tensor) = ("step", "tensor");
                let _ = writeln!(
                    t,
                    "  {step:<step_width$}  {tensor:<width$}  {:>5} {:>7} {:>12} {:>12} {:>8} {:>8}",
                    "row", "element", "a", "b", "bound", "share"
                );
            }
            let _ = writeln!(
                t,
                "  {step:<step_width$}  {:<width$}  {:>5} {:>7} {:>12.4e} {:>12.4e} {:>8.1e} {:>8.3}{}",
                c.tensor,
                c.row,
                c.column,
                c.a,
                c.b,
                c.bound,
                c.share,
                if c.differs() { "  differs" } else { "" }
            );
        }
        t
    }

    fn object(&self, model: &str, all: bool) -> Value {
        let compared = |c: &Compared| {
            json!({
                "pass": c.pass,
                "segment": c.segment.to_string(),
                "step": c.label,
                "steps": [c.steps.start, c.steps.end],
                "tensor": c.tensor,
                "row": c.row,
                "element": c.column,
                "a": number(c.a),
                "b": number(c.b),
                "bound": number(c.bound),
                "share": number(c.share),
                "differs": c.differs(),
            })
        };
        let pass = |p: &ComparedPass| json!({"position": p.rows[0].position, "rows": p.rows.len()});
        let mut object = json!({
            "model": model,
            "a": self.devices[0],
            "b": self.devices[1],
            "passes": self.passes.iter().map(pass).collect::<Vec<_>>(),
            "equal": self.first().is_none(),
            "first": self.first().map(compared),
        });
        if all {
            object["steps"] = self.seen.iter().map(compared).collect();
        }
        object
    }

    /// The command's result: an error if the executors differ.
    fn conclude(&self) -> Result<()> {
        let Some(c) = self.first() else { return Ok(()) };
        let cause = format!("{} and {} differ in {}", self.devices[0], self.devices[1], ComparisonReport::step(c));
        Err(Error::failed(cause, "see the element above; --all shows which steps behind it differ too"))
    }
}

/// A JSON number, or the name of a value that JSON has no number for.
fn number(x: f32) -> Value {
    match x.is_finite() {
        true => json!(x),
        false => json!(x.to_string()),
    }
}
