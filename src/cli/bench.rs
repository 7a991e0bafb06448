//! `kiln bench`: a model's rates on a device, relative to the device's ceilings.

use super::bench_table::{BenchReport, LoadTime, seconds, write_report};
use super::model::ModelArgs;
use super::progress::{self, LiveBar};
use super::{note, print, print_json};
use crate::diagnose::bench::kernels::group;
use crate::diagnose::bench::profile::check_layer;
use crate::diagnose::bench::usage::MemoryWatch;
use crate::diagnose::bench::{
    Bench, BenchLine, BenchSettings, Ceilings, EngineTimeline, KernelTime, LayerTime, MeasuredRates, Sample, Stated,
    Work, ascending,
};
use crate::diagnose::status::Reporter;
use crate::engine::device::OpenDevice;
use crate::engine::{self, DraftFiles, ModelFiles, default_chunk};
use crate::executor::measure::TuningState;
use crate::executor::offload::PlacementTiming;
use crate::executor::{EngineKind, EngineSpan, ExecutorExt, Measure};
use crate::sequence::draft::{MOST_DRAFTED, Proposer};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;

/// Measures prefill and decode, each rate beside its share of the rate that the device's memory and matrix units allow.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Work")]
pub struct BenchArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Prompt lengths to prefill; 0 leaves prefill out
    #[arg(long, value_name = "N,N..", default_value = "512", value_delimiter = ',')]
    prefill: Vec<usize>,
    /// Tokens that each sequence decodes in a repetition; 0 leaves decode out
    #[arg(long, value_name = "N", default_value_t = 128)]
    decode: usize,
    /// Sequences that decode at once
    #[arg(long, value_name = "N,N..", default_value = "1,8,32", value_delimiter = ',')]
    batch: Vec<usize>,
    /// Time passes of so many rows instead, of as many sequences and of one, at a depth of 1024: the cost of a pass by
    /// its rows
    #[arg(long, value_name = "N,N..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["prefill", "batch"])]
    rows: Vec<usize>,
    /// Time the passes of --rows without and with a row of each of N other sequences beside them, and these rows alone
    #[arg(long, value_name = "N", default_value_t = 0, requires = "rows")]
    // clap does not enforce `requires = rows` next to arguments that conflict with it.
    #[arg(conflicts_with_all = ["prefill", "batch"])]
    beside: usize,
    /// Let sequences decode with drafts as well. Each of their tokens is right with the probability P, which is given,
    /// because the cost of the passes is measured and not the quality of drafts
    #[arg(help_heading = "Drafts", long, value_name = "P,P..", value_delimiter = ',')]
    accept: Vec<f64>,
    /// Tokens of each draft, at most 7 [default: as many as pay]
    #[arg(help_heading = "Drafts", long, value_name = "N", requires = "accept")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=MOST_DRAFTED as i64))]
    speculate: Option<u8>,
    /// A smaller model with the same tokenizer, to draft with, as -m, or demo: its time counts
    #[arg(help_heading = "Drafts", long, value_name = "MODEL", requires = "accept")]
    draft: Option<PathBuf>,
    /// Positions in the cache before the timed ones; every prefill and every decode is measured at each
    #[arg(long, value_name = "N,N..", default_value = "0", value_delimiter = ',')]
    #[arg(default_value_if("rows", clap::builder::ArgPredicate::IsPresent, "1024"))]
    depth: Vec<usize>,
    /// Timed repetitions of each line
    #[arg(long, value_name = "N", default_value_t = 5)]
    reps: usize,
    /// Let sequences that decode sample with the default settings, where each takes its likeliest token otherwise
    #[arg(long)]
    sampled: bool,
    /// Time every kernel of each line's pass as well
    #[arg(help_heading = "More figures", long)]
    kernels: bool,
    /// Show the work on each line's pass over time as well: of the device, and of the NPU where it attends
    #[arg(help_heading = "More figures", long)]
    timeline: bool,
    /// Time this layer alone as well, for 1, 10 and 50 tokens
    #[arg(help_heading = "More figures", long, value_name = "N")]
    layer: Option<usize>,
    /// Rows of a prefill pass
    #[arg(long, value_name = "N", hide = true)]
    chunk: Option<usize>,
}

impl BenchArgs {
    fn settings(&self) -> Result<BenchSettings> {
        let by_rows = !self.rows.is_empty();
        let prefill = if self.prefill == [0] || by_rows { Vec::new() } else { self.prefill.clone() };
        let drafts = self.accept.iter().map(|&share| Stated::new(self.speculate.map(usize::from), share));
        Ok(BenchSettings {
            prefill,
            decode: self.decode,
            batch: match by_rows {
                true if self.beside > 0 => vec![self.beside],
                true => self.rows.clone(),
                false => self.batch.clone(),
            },
            // A pass of one row is measured as decoding already.
            rows: self.rows.iter().copied().filter(|&rows| rows != 1).collect(),
            beside: self.beside,
            drafts: drafts.collect::<Result<_>>()?,
            depth: self.depth.clone(),
            repetitions: self.reps,
        })
    }
}

/// Runs the command.
///
/// # Errors
/// Input: the model or the arguments are wrong. Refused: the model does not fit. Failed: a rate is above the roofline.
/// Device: it failed.
pub fn run(args: &BenchArgs, json: bool) -> Result<()> {
    let settings = args.settings()?;
    let name = args.model.files().name();
    let checkpoint = args.model.files().checkpoint()?;
    let shape = checkpoint.shape();
    let context = settings.check(shape, args.model.ctx)?;
    args.layer.map_or(Ok(()), |layer| check_layer(layer, shape.layers.len()))?;
    let cases = settings.cases();
    if cases.is_empty() && args.layer.is_none() {
        return Err(Error::input("there is nothing to measure", "ask for --prefill, --decode or --layer"));
    }
    let mut options = args.model.tuned_options();
    options.context = Some(context);
    options.sequences = settings.sequences();
    options.head_rows = settings.sequences();
    options.drafted = settings.drafts.iter().map(|stated| stated.most()).max().unwrap_or(0);
    // A larger chunk than the longest prefill, measured or up to a depth, would only take memory.
    let longest = settings
        .longest_prefill()
        .max(settings.largest_pass())
        .max(settings.depth.iter().copied().max().unwrap_or(0))
        .max(1);
    options.chunk = Some(args.chunk.unwrap_or(default_chunk(shape)).min(longest));
    options.extent(shape)?;
    let draft = args.draft.as_deref().map(ModelFiles::of_draft);
    let draft = draft.map(|draft| DraftFiles::new(draft, &args.model.files(), context)).transpose()?;

    let checkpoint = engine::with_drafter(checkpoint, draft.as_ref())?;

    let start = Instant::now();
    let opened = engine::open_for(&checkpoint, &options)?;
    let open_seconds = start.elapsed().as_secs_f64();
    let is_tuned = opened.device.is_some() && options.vulkan.tune == Some(engine::Tune::Now);
    let tuning = if is_tuned { "; the first load of a shape measures which kernels are fastest" } else { "" };
    note(&format!("kiln bench: loading {name}{tuning}"));
    let watch = MemoryWatch::start();
    let start = Instant::now();
    let (mut executor, draft) = args.model.load_on(&opened, &checkpoint, draft.as_ref(), &options, false, json)?;
    let bytes = executor.schedule().weights.bytes() + draft.as_ref().map_or(0, |draft| draft.weight_bytes());
    let load = LoadTime { bytes, seconds: start.elapsed().as_secs_f64(), open_seconds };
    drop(checkpoint);
    let _status = Reporter::start("bench", &name, executor.hardware());
    if let Some(watch) = &watch {
        watch.loaded();
    }

    let bar = progress::is_shown(json).then(LiveBar::spinner);
    let said = RefCell::default();
    let measured = measure(args, &settings, executor.as_mut(), draft, opened.device.as_ref(), &|text| match &bar {
        Some(bar) => bar.say(text),
        None => say_case(text, &said),
    });
    drop(bar);
    let (ceilings, lines, layers) = measured?;
    let schedule = executor.schedule();
    let report = BenchReport {
        model: name,
        device: executor.device().to_string(),
        tiles: match (executor.is_on_cpu(), executor.tuning()) {
            (true, _) => None,
            (_, TuningState::Untuned) => Some("default"),
            (_, TuningState::Open) => Some("tuned in part"),
            (_, TuningState::Tuned) => Some("tuned"),
        },
        load,
        ceilings,
        lines,
        layers,
        attends: executor.offload().map(|offload| offload.attends),
        placements: executor.placements().to_vec(),
        memory: watch.map(|w| [w.baseline, w.peak()]),
        shape: (schedule.shape.layers.len(), schedule.weights.format().name()),
        extent: [schedule.extent.context, schedule.extent.max_rows, schedule.extent.sequences],
    };
    match json {
        true => print_json(&report.to_json()),
        false => {
            let mut text = String::new();
            // Writing to a String cannot fail.
            let _ = write_report(&mut text, &report);
            print(&text)
        }
    }
}

type Measured = (Ceilings, Vec<BenchLine>, Vec<LayerTime>);

fn measure(
    args: &BenchArgs,
    settings: &BenchSettings,
    executor: &mut dyn Measure,
    draft: Option<Box<dyn Proposer>>,
    device: Option<&OpenDevice>,
    progress: &dyn Fn(&str),
) -> Result<Measured> {
    let matrix = || device.map_or(Ok(None), OpenDevice::matrix_rate);
    let mut bench = Bench::new(executor, matrix, progress)?;
    if args.sampled {
        bench.sample()?;
    }
    if let Some(draft) = draft {
        bench.draft_with(draft);
    }
    let (mut lines, mut layers) = (Vec::new(), Vec::new());
    for case in settings.cases() {
        let mut line = bench.measure(case, settings.repetitions)?;
        if args.kernels {
            bench.measure_kernels(&mut line, settings.repetitions)?;
        }
        if args.timeline {
            bench.measure_timeline(&mut line)?;
        }
        lines.push(line);
    }
    lines.iter_mut().for_each(|line| line.rates = bench.rates(line));
    if let Some(layer) = args.layer {
        for depth in ascending(&settings.depth) {
            layers.push(bench.measure_layer(layer, depth)?);
        }
    }
    Ok((bench.ceilings(), lines, layers))
}

/// Progress without a spinner: one line per case, without a line for each repetition.
fn say_case(text: &str, said: &RefCell<String>) {
    let case = text.split(": ").next().unwrap_or(text);
    if *said.borrow() != case {
        note(&format!("kiln bench: {case}"));
        said.replace(case.into());
    }
}

fn placement_json(t: &PlacementTiming) -> Value {
    json!({"rows": t.rows, "behind": t.depth, "on_gpu_s": t.device, "on_npu_s": t.offload})
}

impl BenchReport {
    fn to_json(&self) -> Value {
        let [context, chunk, sequences] = self.extent;
        let load = &self.load;
        json!({
            "model": self.model,
            "device": self.device,
            "tiles": self.tiles,
            "weights": self.shape.1,
            "layers": self.shape.0,
            "context": context,
            "chunk": chunk,
            "sequences": sequences,
            "read_ceiling_gb_s": self.ceilings.read / 1e9,
            "matrix_ceiling_tflop_s": self.ceilings.matrix.map(|m| m / 1e12),
            "load": {
                "bytes": load.bytes,
                "seconds": load.seconds,
                "gb_s": load.bytes as f64 / 1e9 / load.seconds,
                "open_seconds": load.open_seconds,
            },
            "memory": self.memory.map(|[baseline, peak]| json!({
                "baseline_bytes": baseline,
                "peak_bytes": peak,
                "above_bytes": peak - baseline,
            })),
            "attention": self.attends.map(|attends| json!({
                "on_npu": {"decode": attends.decode, "prefill": attends.prefill, "others": attends.others},
                "measured": self.placements.iter().map(placement_json).collect::<Vec<_>>(),
            })),
            "lines": self.lines.iter().map(|l| self.line_json(l)).collect::<Vec<_>>(),
            "layer": self.layers.iter().map(layer_json).collect::<Vec<_>>(),
        })
    }

    fn line_json(&self, l: &BenchLine) -> Value {
        let (kind, sequences, length) = match l.case.work {
            Work::Prefill(tokens) => ("prefill", 1, tokens),
            Work::Rows { rows, beside, .. } => ("rows", 1 + beside, rows),
            Work::Decode { sequences, tokens } => ("decode", sequences, tokens),
            Work::Draft { sequences, tokens, .. } => ("draft", sequences, tokens),
        };
        let mut value = json!({
            "name": l.case.name(),
            "kind": kind,
            "sequences": sequences,
            "length": length,
            "depth": l.case.depth,
            "tokens": l.tokens,
            "passes": l.passes,
            "seconds": sample_json(&l.seconds),
            "tokens_s": sample_json(&l.tokens_per_second()),
            "weight_bytes": l.cost.weight_bytes,
            "kv_bytes": l.cost.kv_bytes,
            "operations": l.cost.operations,
            "ms_per_pass": 1e3 * l.pass_seconds(),
            "ms_per_layer": 1e3 * l.pass_seconds() / self.shape.0 as f64,
            "submits_per_token": l.submits_per_token,
            "cpu_us_per_token": 1e6 * l.cpu_per_token.process,
            "thread_cpu_us_per_token": 1e6 * l.cpu_per_token.thread,
            "gpu_busy": l.busy,
            "joules_per_token": l.energy_per_token,
        });
        if let Work::Draft { stated, .. } = l.case.work {
            value["drafted"] = json!(stated.drafted);
            value["stated_share_right"] = json!(f64::from(stated.right) / 1000.0);
        }
        put_rates(&mut value, Some(l.rates));
        if let Some(timeline) = &l.timeline {
            value["timeline"] = timeline_json(timeline);
        }
        if !l.kernels.is_empty() {
            let pass = seconds(&l.kernels);
            value["kernels_seconds"] = json!(pass);
            value["kernels"] = l.kernels.iter().map(|k| kernel_json(k, pass)).collect();
            value["kernel_groups"] = group(&l.kernels, self.ceilings)
                .iter()
                .map(|g| {
                    let mut v = kernel_json(&g.kernel, pass);
                    v["count"] = json!(g.count);
                    v
                })
                .collect();
        }
        value
    }
}

fn sample_json(s: &Sample) -> Value {
    json!({"median": s.median(), "min": s.min(), "max": s.max(), "spread": s.spread(), "values": s.values})
}

fn put_rates(value: &mut Value, rates: Option<MeasuredRates>) {
    value["gb_s"] = json!(rates.map(|r| r.bytes / 1e9));
    value["read_share"] = json!(rates.map(|r| r.read_share));
    value["tflop_s"] = json!(rates.map(|r| r.operations / 1e12));
    value["matrix_share"] = json!(rates.and_then(|r| r.matrix_share));
}

fn kernel_json(k: &KernelTime, pass: f64) -> Value {
    let mut value = json!({
        "segment": k.segment.to_string(),
        "label": k.label,
        "kernel": k.kernel,
        "variant": k.variant,
        "weight_bytes": k.cost.weight_bytes,
        "kv_bytes": k.cost.kv_bytes,
        "activation_bytes": k.cost.activation_bytes,
        "operations": k.cost.operations,
        "seconds": k.seconds,
        "pass_share": k.seconds / pass,
    });
    put_rates(&mut value, k.rates);
    value
}

fn timeline_json(t: &EngineTimeline) -> Value {
    let span = |span: &EngineSpan| {
        json!({
            "engine": match span.engine { EngineKind::Device => "device", EngineKind::Offload => "npu" },
            "segment": span.segment.to_string(),
            "first_row": span.rows.start,
            "rows": span.rows.len(),
            "start_ms": 1e3 * span.start,
            "end_ms": 1e3 * span.end,
        })
    };
    json!({
        "seconds": t.seconds,
        "device_share": t.device,
        "npu_share": t.offload,
        "both_share": t.both,
        "spans": t.spans.iter().map(span).collect::<Vec<_>>(),
    })
}

fn layer_json(l: &LayerTime) -> Value {
    let runs: Vec<Value> = l.runs.iter().map(|&(n, s)| json!({"tokens": n, "ms": 1e3 * s})).collect();
    let mut value = json!({
        "layer": l.layer,
        "kind": l.kind.name(),
        "depth": l.depth,
        "runs": runs,
        "bytes": l.cost.memory_bytes(),
        "operations": l.cost.operations,
        "read_ceiling_gb_s": l.ceiling / 1e9,
        "embed_ms": 1e3 * l.ends[0],
        "head_ms": 1e3 * l.ends[1],
        "implied_pass_ms": 1e3 * l.pass_seconds,
        "implied_tokens_s": 1.0 / l.pass_seconds,
    });
    put_rates(&mut value, Some(l.rates));
    value
}
