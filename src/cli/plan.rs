//! `kiln plan`: where each byte goes, whether it fits, the tokens/s that the memory allows, and the schedule.

use super::column::column;
use super::model::ModelArgs;
use super::{face, print, print_json};
use crate::display::{bytes, counted};
use crate::engine::{self, Device, ModelFiles};
use crate::gpu;
use crate::gpu::measure::estimate;
use crate::machine::heaps::{Heap, Memory, host_memory};
use crate::machine::profile::{Profile, profile};
use crate::model::{Shape, TensorId, WeightFormat};
use crate::plan::{Needs, Plan, Purpose, kernel_parameters, sums};
use crate::schedule::cost::step_cost;
use crate::schedule::{Pass, Schedule};
use crate::sequence::draft::MOST_DRAFTED;
use crate::sequence::draft::gain::expected_tokens;
use crate::{Error, Result};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

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

/// Batches that the roofline is printed for.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Bytes read to measure this machine's memory: more than any cache holds, few enough to be quick.
const MEASURE_BYTES: u64 = 1 << 30;

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
            let draft = Draft::plan(word, engine::draft_options(&options, extent.context), &target)?;
            target.memory = target.memory.less(draft.plan.regions.iter().map(|r| (r.heap, r.bytes)));
            Some(draft)
        }
        None => None,
    };
    let target = target;
    let formats = read_formats(args, &shape);
    let build = |extent| {
        let schedule = Schedule::build(&shape, extent, &formats);
        let needs = target.staged.map_or(Needs::of(&schedule), |staged| gpu::replay::results::needs(&schedule, staged));
        (schedule, needs)
    };
    let (schedule, placed) = match Plan::fit(extent, &target.memory, build) {
        Ok((schedule, plan)) => (schedule, Ok(plan)),
        Err(e) => (build(extent).0, Err(e)),
    };
    let room = |batch: usize| {
        let extent = engine::Options { context: Some(shape.max_context), ..of_batch(batch) }.extent(&shape).ok()?;
        Some((batch, Plan::room(extent, &target.memory, build)))
    };
    let view = View {
        args,
        wanted: Plan::wanted(&schedule, build(schedule.extent).1),
        schedule: &schedule,
        placed,
        room: BATCHES.into_iter().filter_map(room).collect(),
        target: &target,
        draft: draft.as_ref(),
    };
    // The figures are printed even for a model that does not fit.
    match json {
        true => print_json(&view.to_json())?,
        false => print(&view.to_text())?,
    }
    view.placed.map(drop)
}

/// Everything that is shown of a plan.
struct View<'a> {
    args: &'a PlanArgs,
    schedule: &'a Schedule,
    wanted: Vec<(Purpose, u64)>,
    placed: Result<Plan>,
    /// By sequences: the most tokens of KV that there is room for, of all of them together.
    room: Vec<(usize, usize)>,
    target: &'a PlannedMachine,
    draft: Option<&'a Draft>,
}

/// A draft model, and where it goes before the model.
struct Draft {
    name: String,
    schedule: Schedule,
    plan: Plan,
}

impl Draft {
    /// Plans the model that `word` names.
    ///
    /// # Errors
    /// Input: there is no such model, or its context is shorter. Refused: it does not fit.
    fn plan(word: &str, options: engine::Options, target: &PlannedMachine) -> Result<Draft> {
        let files = ModelFiles::of_draft(Path::new(word));
        let is_model = Path::new(word).is_dir() || !matches!(files, ModelFiles::Directory(_));
        let shape = if is_model { files.shape()? } else { super::forge::find_shape(word)? };
        engine::check_draft_context(&shape, options.context)?;
        let formats: Box<dyn Fn(TensorId) -> WeightFormat> = match is_model {
            true => Box::new(files.formats(options.weights, &shape)),
            false => {
                let shape = shape.clone();
                Box::new(move |id| options.weights.of_matrix(id, &shape, None))
            }
        };
        let (schedule, plan) = Plan::fit(options.extent(&shape)?, &target.memory, |extent| {
            let schedule = Schedule::build(&shape, extent, &formats);
            let needs =
                target.staged.map_or(Needs::of(&schedule), |staged| gpu::replay::results::needs(&schedule, staged));
            (schedule, needs)
        })?;
        let name = if is_model { files.name() } else { word.to_owned() };
        Ok(Draft { name, schedule, plan })
    }
}

fn read_shape(args: &PlanArgs) -> Result<Shape> {
    match &args.shape {
        Some(word) => super::forge::find_shape(word),
        None => args.model.files().shape(),
    }
}

/// The format of each matrix: by name there are no files that could have them in another.
fn read_formats(args: &PlanArgs, shape: &Shape) -> Box<dyn Fn(TensorId) -> WeightFormat> {
    let (asked, shape) = (args.model.options().weights, shape.clone());
    match args.shape {
        Some(_) => Box::new(move |id| asked.of_matrix(id, &shape, None)),
        None => Box::new(args.model.files().formats(asked, &shape)),
    }
}

/// The machine that is planned for.
struct PlannedMachine {
    memory: Memory,
    /// Bytes per second of its memory.
    bandwidth: f64,
    /// Where that figure comes from.
    source: String,
    /// Multiplications and additions per second of its matrix units, where known.
    operations: Option<f64>,
    /// Whether uploads go through staging; `None` if there is no device.
    staged: Option<bool>,
}

impl PlannedMachine {
    fn find(args: &PlanArgs) -> Result<PlannedMachine> {
        match args.machine.as_str() {
            "this" => PlannedMachine::this(args.model.device),
            name => {
                if args.model.device != Device::Auto {
                    let cause = format!("--device chooses among this machine's, and the plan is for {name}");
                    return Err(Error::input(cause, "leave out --device or --machine"));
                }
                let p: Profile = profile(name)?;
                let source = "the memory's peak".into();
                let operations = Some(p.operations);
                Ok(PlannedMachine { memory: p.memory, bandwidth: p.bandwidth, source, operations, staged: Some(true) })
            }
        }
    }

    fn this(device: Device) -> Result<PlannedMachine> {
        let Some(gpu) = engine::open(device)?.gpu else { return PlannedMachine::cpu() };
        let memory = gpu::memory::heaps::describe(&gpu);
        let heap = (0..memory.heaps.len()).max_by_key(|&i| (memory.heaps[i].device_local, memory.heaps[i].available));
        let heap = heap.ok_or_else(|| Error::device("the device has no memory", "use --device cpu"))?;
        let size = MEASURE_BYTES.min(memory.heaps[heap].available / 4).min(memory.max_allocation);
        let bandwidth = gpu::measure::ceiling::measure_alone(&gpu, size, heap)?;
        let source = format!("measured, reading {}", bytes(size));
        Ok(PlannedMachine {
            memory,
            bandwidth,
            source,
            operations: None,
            staged: Some(gpu::memory::heaps::needs_staging(&gpu)),
        })
    }

    fn cpu() -> Result<PlannedMachine> {
        let size = MEASURE_BYTES.min(crate::machine::available_memory() / 4);
        let bandwidth = crate::machine::measure_read(size as usize)?;
        let source = format!("measured, reading {}", bytes(size));
        Ok(PlannedMachine { memory: host_memory(), bandwidth, source, operations: None, staged: None })
    }
}

/// The roofline of a batch: tokens per second of all sequences together.
struct Roof {
    batch: usize,
    bytes: u64,
    tokens_s: f64,
    bound: &'static str,
}

fn roofs(schedule: &Schedule, target: &PlannedMachine, depth: usize) -> Vec<Roof> {
    let roof = |sequences: usize| {
        let cost = schedule.cost(Pass::Decode { sequences, depth });
        let memory = cost.memory_bytes() as f64 / target.bandwidth;
        let matrix = target.operations.map_or(0.0, |o| cost.operations as f64 / o);
        Roof {
            batch: sequences,
            bytes: cost.memory_bytes(),
            tokens_s: sequences as f64 / memory.max(matrix),
            bound: if memory >= matrix { "memory" } else { "matrix units" },
        }
    };
    BATCHES.into_iter().map(roof).collect()
}

/// Drafted tokens that fill a kind of pass with the row before them.
const DRAFTED: [usize; 3] = [1, 3, 7];
/// Probabilities that a drafted token is right, once those before it are.
const RIGHT: [f64; 4] = [0.5, 0.6, 0.7, 0.8];

/// Tokens per second of one sequence with so many drafted, for each of [`RIGHT`]: of a draft model, or at no cost.
fn draft_rates(schedule: &Schedule, draft: Option<&Schedule>, target: &PlannedMachine, drafted: usize) -> [f64; 4] {
    let seconds = |schedule: &Schedule, pass| {
        let cost = schedule.cost(pass);
        let matrix = target.operations.map_or(0.0, |o| cost.operations as f64 / o);
        (cost.memory_bytes() as f64 / target.bandwidth).max(matrix)
    };
    let one = |draft| seconds(draft, Pass::Decode { sequences: 1, depth: 0 });
    let drafting = drafted as f64 * draft.map_or(0.0, one);
    let all = drafting + seconds(schedule, Pass::Verify { sequences: 1, rows: 1 + drafted, depth: 0 });
    RIGHT.map(|right| expected_tokens(drafted, right) / all)
}

impl View<'_> {
    fn to_text(&self) -> String {
        let mut t = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut t);
        t
    }

    fn sums(&self) -> Vec<(&'static str, u64)> {
        sums(self.wanted.iter().copied())
    }

    /// Kernel parameters with which the model would fit; `None` if it fits or none would help.
    fn parameters(&self) -> Option<String> {
        self.placed.is_err().then(|| kernel_parameters(&self.wanted, &self.target.memory))?
    }

    fn total(&self) -> u64 {
        self.wanted.iter().fold(0, |sum, w| sum.saturating_add(w.1))
    }

    fn write_text(&self, t: &mut String) -> std::fmt::Result {
        let (s, target) = (self.schedule, self.target);
        write_model(t, self.args, s)?;
        if let Some(draft) = self.draft {
            let d = &draft.schedule;
            let weights = d.weights.format().name();
            let (layers, all) = (counted(d.shape.layers.len(), "layer"), bytes(draft.plan.bytes()));
            writeln!(t, "beside {}, which drafts: {layers}, {weights} weights, {all}\n", draft.name)?;
        }
        match &self.placed {
            Ok(plan) => write_placement(t, plan)?,
            Err(e) => {
                for heap in &target.memory.heaps {
                    writeln!(t, "{}: {} free{}", heap.name, bytes(heap.available), kept(heap))?;
                }
                write_pool(t, &target.memory)?;
                let write = column(self.sums().into_iter().map(|(_, sum)| sum));
                for (kind, sum) in self.sums() {
                    writeln!(t, "    {kind:<10} {:>12}", write(sum))?;
                }
                writeln!(t, "    {:<10} {:>12}", "together", write(self.total()))?;
                writeln!(t, "does not fit: {}", face::words(e.parts().0))?;
                if let Some(parameters) = self.parameters() {
                    writeln!(t, "would fit with the kernel's parameters {parameters}")?;
                }
                writeln!(t)?;
            }
        }
        writeln!(t, "room for tokens of KV beside the model")?;
        writeln!(t, "{:>9} {:>12} {:>12}", "sequences", "tokens", "of each")?;
        for (sequences, tokens) in &self.room {
            writeln!(t, "{sequences:>9} {tokens:>12} {:>12}", tokens / sequences)?;
        }
        writeln!(t, "\nroofline at a short context: {:.1} GB/s ({})", target.bandwidth / 1e9, target.source)?;
        writeln!(t, "{:>6} {:>14} {:>12}  bound by", "batch", "bytes a pass", "tokens/s")?;
        let roofs = roofs(s, target, 0);
        let write = column(roofs.iter().map(|r| r.bytes));
        for r in &roofs {
            writeln!(t, "{:>6} {:>14} {:>12.1}  {}", r.batch, write(r.bytes), r.tokens_s, r.bound)?;
        }
        if let Some(seconds) = estimate::seconds_for(&self.args.machine, self.args.model.device, s) {
            writeln!(
                t,
                "\ntuning takes about {seconds:.0} s of idle moments, or of `kiln tune`; the first token waits for 3 s of it at most"
            )?;
        }
        self.write_drafts(t)?;
        match self.args.schedule {
            true => write_schedule(t, s, self.args.batch),
            false => Ok(()),
        }
    }

    fn write_drafts(&self, t: &mut String) -> std::fmt::Result {
        let by = self.draft.map_or("of a text, at no cost".into(), |draft| format!("by {}", draft.name));
        writeln!(t, "\none sequence with drafts {by}: tokens/s where a drafted token is right with a probability of")?;
        let heads: Vec<String> = RIGHT.iter().map(|right| format!("{right:>8}")).collect();
        writeln!(t, "{:>7} {}", "drafted", heads.concat())?;
        for drafted in DRAFTED {
            let rates = draft_rates(self.schedule, self.draft.map(|draft| &draft.schedule), self.target, drafted);
            let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:>8.1}")).collect();
            writeln!(t, "{drafted:>7} {}", rates.concat())?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
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
        let roofline: Vec<Value> = roofs(s, target, 0)
            .into_iter()
            .map(|r| json!({"batch": r.batch, "bytes": r.bytes, "tokens_s": r.tokens_s, "bound": r.bound}))
            .collect();
        let mut value = json!({
            "model": args.shape.clone().unwrap_or_else(|| args.model.files().name()),
            "device": target.memory.device,
            "fits": plan.is_some(),
            "reason": self.placed.as_ref().err().map(|e| face::words(e.parts().0)),
            "bytes": self.total(),
            "sums": self.sums().into_iter().map(|(k, b)| (k.to_string(), json!(b))).collect::<serde_json::Map<_, _>>(),
            "kv_tokens": s.kv.tokens(),
            "kv_room": self.room.iter().map(|(n, tokens)| json!({"sequences": n, "tokens": tokens})).collect::<Vec<_>>(),
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
            "tuning_s": estimate::seconds_for(&args.machine, args.model.device, s),
            "roofline": roofline,
        });
        value["drafts"] = DRAFTED
            .into_iter()
            .map(|drafted| {
                let rates = draft_rates(s, self.draft.map(|draft| &draft.schedule), target, drafted);
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

fn write_model(t: &mut String, args: &PlanArgs, s: &Schedule) -> std::fmt::Result {
    let e = &s.extent;
    writeln!(
        t,
        "{}: {} layers, hidden {}, FFN {}, {}/{} heads x {}, vocabulary {}, {} weights",
        args.shape.clone().unwrap_or_else(|| args.model.files().name()),
        s.shape.layers.len(),
        s.shape.hidden,
        s.shape.ffn,
        s.shape.heads,
        s.shape.kv_heads,
        s.shape.head_dim,
        s.shape.vocab,
        s.weights.format_names()
    )?;
    let (sequences, tokens) = (counted(e.sequences, "sequence"), counted(e.context, "token"));
    let kv = counted(s.kv.tokens(), "token");
    writeln!(t, "for {sequences} of up to {tokens}, {kv} of KV in all, prefill in chunks of {}\n", e.max_rows)
}

fn write_placement(t: &mut String, plan: &Plan) -> std::fmt::Result {
    let write_part = column(plan.sums().into_iter().map(|(_, sum)| sum));
    for (i, heap) in plan.memory.heaps.iter().enumerate() {
        let used: u64 = plan.regions.iter().filter(|r| r.heap == i).map(|r| r.bytes).sum();
        writeln!(t, "{}: uses {} of {} free{}", heap.name, bytes(used), bytes(heap.available), kept(heap))?;
        for (kind, _) in plan.sums() {
            let part = plan.regions.iter().filter(|r| r.heap == i && r.purpose.kind() == kind);
            let sum: u64 = part.map(|r| r.bytes).sum();
            if sum > 0 {
                writeln!(t, "    {kind:<10} {:>12}", write_part(sum))?;
            }
        }
    }
    write_pool(t, &plan.memory)?;
    let device = &plan.memory.device;
    let allocations = counted(plan.regions.len(), "allocation");
    writeln!(t, "fits on {device}: {} in {allocations}\n", bytes(plan.bytes()))
}

/// Text on the part of a heap that is kept free for the desktop and other programs.
fn kept(heap: &Heap) -> String {
    match heap.reserved {
        0 => String::new(),
        reserved => format!(", {} kept free", bytes(reserved)),
    }
}

fn write_pool(t: &mut String, memory: &Memory) -> std::fmt::Result {
    let Some(p) = memory.pool else { return Ok(()) };
    writeln!(
        t,
        "together {} free: {} of the carve-out, and of system memory at most {} ({} of GTT's {} taken)",
        bytes(p.available()),
        bytes(p.vram),
        bytes(p.system),
        bytes(p.gtt_used),
        bytes(p.gtt)
    )
}

fn write_schedule(t: &mut String, s: &Schedule, batch: usize) -> std::fmt::Result {
    writeln!(t, "\none decode pass of {}, at position 0\n", counted(batch, "sequence"))?;
    let write = column(s.steps.iter().map(|step| step_cost(step, Pass::Decode { sequences: batch, depth: 0 }).bytes()));
    let columns = ["step", "segment", "label", "kernel", "operands", "bytes", "operations", "after"];
    let [a, b, c, d, e, f, g, h] = columns;
    writeln!(t, "{a:>5} {b:<9} {c:<15} {d:<14} {e:<24} {f:>10} {g:>12}  {h}")?;
    for (i, step) in s.steps.iter().enumerate() {
        let cost = step_cost(step, Pass::Decode { sequences: batch, depth: 0 });
        let after: Vec<String> = step.after.iter().map(ToString::to_string).collect();
        let (segment, operands) = (step.segment.to_string(), step.op.operands());
        writeln!(
            t,
            "{i:>5} {segment:<9} {:<15} {:<14} {operands:<24} {:>10} {:>12}  {}",
            step.label,
            step.op.name(),
            write(cost.bytes()),
            cost.operations,
            after.join(",")
        )?;
    }
    let sum = s.cost(Pass::Decode { sequences: batch, depth: 0 });
    writeln!(
        t,
        "\n{} steps, {}: weights {}, KV {}, activations {}; {:.1} G operations",
        s.steps.len(),
        bytes(sum.bytes()),
        bytes(sum.weight_bytes),
        bytes(sum.kv_bytes),
        bytes(sum.activation_bytes),
        sum.operations as f64 / 1e9
    )
}
