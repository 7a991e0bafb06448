//! `kiln plan`: whether a model fits and what the machine allows, where each byte goes, and the schedule.

mod form;
mod machine;
mod rates;
mod table;
mod verdict;

use super::model::ModelArgs;
use super::{face, print, print_json};
use crate::Result;
use crate::engine;
use crate::machine::heaps::Memory;
use crate::model::Shape;
use crate::plan::{Plan, Purpose, kernel_parameters, sums};
use crate::replay::measure::estimate::seconds_for;
use crate::schedule::cost::step_cost;
use crate::schedule::{Extent, Pass, Schedule};
use crate::sequence::draft::MOST_DRAFTED;
use form::{Draft, Form};
use machine::PlannedMachine;
use rates::{BATCHES, DRAFTED, Prediction, RIGHT, draft_rate, roof};
use serde_json::{Value, json};
use verdict::Verdict;

/// Plans a model for a machine; of a model directory, config.json and the headers of the weights are read.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Plan a model by name, or by its config.json, without its directory
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "model")]
    shape: Option<String>,
    /// The machine to plan for: this, 780m, 890m or 8060s; with GiB of carve-out as in 780m:4
    #[arg(long, default_value = "this", value_name = "MACHINE")]
    machine: String,
    /// GiB of RAM of a machine by name, its carve-out included: 32, 32GB and 32GiB are the same [default: 96 of a 780m, 64
    /// of an 890m, 128 of an 8060s]
    #[arg(long, value_name = "N", value_parser = machine::parse_ram, allow_negative_numbers = true)]
    ram: Option<u64>,
    /// Sequences at once
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true)]
    batch: usize,
    /// Tokens that the KV cache has room for, of all sequences together [default: all of their contexts, or what fits]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    kv_tokens: Option<usize>,
    /// Plan a smaller model beside it that drafts, by name, by its config.json, as -m, or demo
    #[arg(long, value_name = "NAME|MODEL")]
    draft: Option<String>,
    /// Print every step of a decode pass with its operands' sizes, bytes and operations
    #[arg(long)]
    schedule: bool,
}

/// Runs the command.
///
/// # Errors
/// Input: the model is wrong, or the machine is unknown. Refused: it does not fit. Device: this machine has no such
/// device, or an NPU is required.
pub fn run(args: &PlanArgs, json: bool) -> Result<()> {
    args.model.check_npu()?;
    let shape = read_shape(args)?;
    let mut target = PlannedMachine::find(args)?;
    let of_batch = |batch| engine::Options {
        sequences: batch,
        head_rows: batch,
        drafted: if args.draft.is_some() { MOST_DRAFTED } else { 0 },
        kv_tokens: args.kv_tokens,
        ..args.model.options()
    };
    let options = of_batch(args.batch);
    let extent = options.extent(&shape)?;
    let draft = match &args.draft {
        Some(word) => {
            let draft = Draft::plan(word, engine::draft_options(&options, extent.context), &target);
            let draft = draft.map_err(engine::without_draft)?;
            target.memory = draft.beside(&target.memory)?;
            Some(draft)
        }
        None => None,
    };
    let target = target;
    // By name there are no files that could have the matrices in another format.
    let form = match args.shape {
        Some(_) => Form::made(&shape, options.weights, &target),
        None => Form::of_files(&args.model.files(), &shape, options.weights, &target),
    };
    let (schedule, placed) = match form.fit(extent, &target.memory) {
        Ok((schedule, plan)) => (schedule, Ok(plan)),
        Err(e) => (form.build(extent).0, Err(e)),
    };
    let room = |batch: usize| {
        let extent = engine::Options { context: Some(shape.max_context), ..of_batch(batch) }.extent(&shape).ok()?;
        Some((batch, Plan::room(extent, &target.memory, |extent| form.build(extent))))
    };
    let view = View {
        args,
        options,
        extent,
        wanted: Plan::wanted(&schedule, form.build(schedule.extent).1),
        schedule: &schedule,
        form: &form,
        placed,
        room: BATCHES.into_iter().filter_map(room).collect(),
        target: &target,
        draft: draft.as_ref(),
    };
    let verdict = Verdict::of(&view);
    match json {
        true => print_json(&view.to_json(&verdict))?,
        false => print(&view.to_text(&verdict))?,
    }
    view.placed.map(drop)
}

fn read_shape(args: &PlanArgs) -> Result<Shape> {
    match &args.shape {
        Some(word) => super::forge::find_shape(word),
        None => args.model.files().shape(),
    }
}

/// Everything that is shown of a plan.
struct View<'a> {
    args: &'a PlanArgs,
    options: engine::Options,
    /// As asked for: the KV cache of [`View::schedule`] may be smaller.
    extent: Extent,
    schedule: &'a Schedule,
    form: &'a Form,
    wanted: Vec<(Purpose, u64)>,
    placed: Result<Plan>,
    /// By sequences: the most tokens of KV that there is room for, of all of them together.
    room: Vec<(usize, usize)>,
    target: &'a PlannedMachine,
    draft: Option<&'a Draft>,
}

impl View<'_> {
    fn name(&self) -> String {
        self.args.shape.clone().unwrap_or_else(|| self.args.model.files().name())
    }

    /// The matrices' formats as text.
    fn weights(&self) -> String {
        self.schedule.weights.format_names()
    }

    fn sums(&self) -> Vec<(&'static str, u64)> {
        sums(self.wanted.iter().copied())
    }

    fn total(&self) -> u64 {
        self.wanted.iter().fold(0, |sum, w| sum.saturating_add(w.1))
    }

    /// Kernel parameters with which the model would fit; `None` if it fits or none would help.
    fn parameters(&self) -> Option<String> {
        self.placed.is_err().then(|| kernel_parameters(&self.wanted, &self.target.memory))?
    }

    /// Whether a form of the model fits a memory beside the draft model, if there is one.
    fn fits_in(&self, form: &Form, memory: &Memory) -> bool {
        let left = match self.draft {
            Some(draft) => draft.beside(memory),
            None => Ok(memory.clone()),
        };
        left.is_ok_and(|left| form.fit(self.extent, &left).is_ok())
    }

    /// Tokens per second of one sequence with so many drafted, for each of [`RIGHT`].
    fn draft_rates(&self, drafted: usize) -> [f64; 4] {
        let draft = self.draft.map(|draft| &draft.schedule);
        RIGHT.map(|right| draft_rate(self.schedule, draft, self.target, drafted, right))
    }

    fn to_json(&self, verdict: &Verdict) -> Value {
        let (args, s, target) = (self.args, self.schedule, self.target);
        let plan = self.placed.as_ref().ok();
        let regions: Vec<Value> = plan
            .into_iter()
            .flat_map(|p| &p.regions)
            .map(|r| json!({"purpose": r.purpose.to_string(), "kind": r.purpose.kind(), "bytes": r.bytes, "heap": r.heap, "offset": r.offset}))
            .collect();
        let heaps: Vec<Value> = target
            .memory
            .heaps
            .iter()
            .map(|h| {
                json!({
                    "name": h.name, "available": h.available, "reserved": h.reserved, "device_local": h.device_local,
                    "host_visible": h.host_visible,
                })
            })
            .collect();
        // No rate is a figure of a model that does not fit.
        let (batches, drafted): (&[usize], &[usize]) = if plan.is_some() { (&BATCHES, &DRAFTED) } else { (&[], &[]) };
        let roofline: Vec<Value> = batches
            .iter()
            .map(|&batch| roof(s, target, batch))
            .map(|r| json!({"batch": r.batch, "bytes": r.bytes, "tokens_s": r.tokens_s, "bound": r.bound}))
            .collect();
        let prediction = plan.and_then(|_| Prediction::of(self.form, self.extent, target)).map(|p| {
            let decode: Vec<Value> =
                p.decode.iter().map(|(n, rate)| json!({"sequences": n, "tokens_s": rate})).collect();
            json!({"decode": decode, "prefill": {"rows": p.prefill.0, "tokens_s": p.prefill.1}})
        });
        let room = self.room.iter().filter(|(_, tokens)| *tokens > 0);
        let mut value = json!({
            "verdict": verdict.line(),
            "model": self.name(),
            "weights": self.weights(),
            "device": target.memory.device,
            "machine": target.named.as_ref().map(|named| verdict::machine_json(self, named)),
            "fits": plan.is_some(),
            "reason": self.placed.as_ref().err().map(|e| face::words(e.parts().0)),
            "at_best": verdict.rates_json(),
            "remedies": verdict.remedies_json(self),
            "bytes": self.total(),
            "sums": self.sums().into_iter().map(|(k, b)| (k.to_string(), json!(b))).collect::<serde_json::Map<_, _>>(),
            "kv_tokens": s.kv.tokens(),
            "kv_room": room.map(|(n, tokens)| json!({"sequences": n, "tokens": tokens})).collect::<Vec<_>>(),
            "heaps": heaps,
            "pool": target.memory.pool.map(|p| {
                json!({
                    "available": p.available(),
                    "vram": p.vram,
                    "gtt": p.gtt,
                    "gtt_used": p.gtt_used,
                    "gtt_reserved": p.gtt_reserved,
                    "system": p.system,
                })
            }),
            "kernel_parameters": self.parameters(),
            "regions": regions,
            "bandwidth": target.bandwidth,
            "tuning_s": seconds_for(&args.machine, args.model.device, s),
            "roofline": roofline,
            "prediction": prediction,
        });
        value["drafts"] = drafted
            .iter()
            .map(|&drafted| {
                let rates = self.draft_rates(drafted);
                let rates: Vec<Value> =
                    RIGHT.iter().zip(rates).map(|(right, rate)| json!({"right": right, "tokens_s": rate})).collect();
                json!({"drafted": drafted, "rates": rates})
            })
            .collect();
        if let Some(draft) = self.draft {
            let sums = draft.plan.sums().into_iter().map(|(kind, sum)| (kind.to_string(), json!(sum)));
            let sums = sums.collect::<serde_json::Map<_, _>>();
            value["draft"] = json!({"model": draft.name, "bytes": draft.plan.bytes(), "sums": sums});
        }
        if args.schedule {
            let pass = Pass::Decode { sequences: args.batch, depth: 0 };
            value["schedule"] = s
                .steps
                .iter()
                .map(|step| {
                    let c = step_cost(step, pass);
                    json!({
                        "segment": step.segment.to_string(), "label": step.label, "kernel": step.op.name(),
                        "operands": step.op.operands(), "weight_bytes": c.weight_bytes, "kv_bytes": c.kv_bytes,
                        "activation_bytes": c.activation_bytes, "operations": c.operations, "after": step.after,
                    })
                })
                .collect();
        }
        value
    }
}
