//! The tables of a plan.

use crate::cli::column::column;
use crate::cli::wrap::wrapped;
use crate::diagnose::forecast::ForecastView;
use crate::diagnose::forecast::machine::{Named, gib};
use crate::diagnose::forecast::rates::{Attention, BATCHES, DRAFTED, RIGHT, roof};
use crate::diagnose::forecast::verdict::{self, BestRates, FitVerdict, is_worth, least_ram, prompt, shown};
use crate::display::{bytes, counted, duration};
use crate::machine::heaps::{DeviceMemory, Heap};
use crate::machine::profile::PREFILL_SHARE;
use crate::plan::Plan;
use crate::schedule::cost::step_cost;
use crate::schedule::step::WeightBuffer;
use crate::schedule::{PassShape, Schedule};
use crate::sequence::draft::gain::expected_tokens;
use std::fmt::Write;

/// A forecast as text, wrapped at `columns`.
pub(super) fn of(view: &ForecastView<'_>, columns: usize) -> String {
    let mut t = String::new();
    // Writing to a String cannot fail.
    let _ = view.write_text(&mut t, &FitVerdict::of(view));
    // Wide rows of a table are left for the terminal to break.
    t.lines().map(|line| if line.contains("  ") { line.to_owned() } else { wrapped(line, columns) } + "\n").collect()
}

impl ForecastView<'_> {
    fn write_text(&self, t: &mut String, verdict: &FitVerdict) -> std::fmt::Result {
        writeln!(t, "{}", verdict.line())?;
        if let Some(named) = &self.target.named {
            writeln!(t, "{}", assumptions(self, named))?;
        }
        self.write_model(t)?;
        if let Some(draft) = &self.draft {
            let d = &draft.schedule;
            let weights = d.weights.format().name();
            let (layers, all) = (counted(d.shape.layers.len(), "layer"), bytes(draft.plan.bytes()));
            writeln!(t, "beside {}, which drafts: {layers}, {weights} weights, {all}\n", draft.name)?;
        }
        if let (Some((name, form)), Some(weights)) = (&self.drafter, &self.schedule.weights.drafter) {
            let all = self.schedule.weights.buffers[self.schedule.weights.index(WeightBuffer::Drafter)].bytes;
            let layers = counted(form.shape.layers.len(), "layer");
            let format = weights.head.format.name();
            writeln!(t, "with {name}, which drafts: {layers}, {format} weights, {}\n", bytes(all))?;
        }
        match (&self.placed, verdict) {
            (Ok(plan), FitVerdict::Fits(rates)) => {
                write_placement(t, plan)?;
                self.write_room(t)?;
                self.write_roofline(t)?;
                self.write_prediction(t)?;
                write!(t, "{}", figures(rates))?;
                self.write_drafts(t)?;
                if let Some(seconds) = self.tuning_seconds() {
                    let takes = format!("tuning takes about {seconds:.0} s of idle moments, or of `kiln tune`");
                    writeln!(t, "\n{takes}; a first token waits for 3 s of it at most")?;
                }
            }
            _ => {
                self.write_shortage(t)?;
                self.write_room(t)?;
            }
        }
        match self.asked.with_schedule {
            true => write_schedule(t, &self.schedule, self.asked.options.sequences),
            false => Ok(()),
        }
    }

    fn write_model(&self, t: &mut String) -> std::fmt::Result {
        let (s, e) = (&self.schedule, &self.schedule.extent);
        writeln!(
            t,
            "\n{}: {} layers, hidden {}, FFN {}, {}, vocabulary {}, {} weights",
            self.name(),
            s.shape.layers.len(),
            s.shape.hidden,
            s.shape.ffn_name(),
            s.shape.head_names(),
            s.shape.vocab,
            self.weights()
        )?;
        if let Some((mix, length)) = self.file() {
            writeln!(t, "as a GGUF file in {} of about {}", mix.name.to_uppercase(), bytes(length))?;
        }
        let (sequences, tokens) = (counted(e.sequences, "sequence"), counted(e.context, "token"));
        let kv = counted(s.kv.tokens(), "token");
        writeln!(t, "for {sequences} of up to {tokens}, {kv} of KV in all, prefill in chunks of {}\n", e.max_rows)
    }

    /// Writes each heap's free memory and the memory that the model needs.
    fn write_shortage(&self, t: &mut String) -> std::fmt::Result {
        for heap in &self.target.memory.heaps {
            writeln!(t, "{}: {} free{}", heap.name, bytes(heap.available), kept(heap))?;
        }
        write_pool(t, &self.target.memory)?;
        let write = column(self.sums().into_iter().map(|(_, sum)| sum));
        for (kind, sum) in self.sums() {
            writeln!(t, "    {kind:<10} {:>12}", write(sum))?;
        }
        writeln!(t, "    {:<10} {:>12}", "together", write(self.total()))?;
        if let Some(parameters) = self.parameters() {
            writeln!(t, "would fit with the kernel's parameters {parameters}")?;
        }
        Ok(())
    }

    /// The numbers of sequences for which there is room.
    fn write_room(&self, t: &mut String) -> std::fmt::Result {
        let mut rows = self.room.iter().filter(|(_, tokens)| *tokens > 0).peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        writeln!(t, "\nroom for tokens of KV beside the model")?;
        writeln!(t, "{:>9} {:>12} {:>12}", "sequences", "tokens", "of each")?;
        rows.try_for_each(|(sequences, tokens)| writeln!(t, "{sequences:>9} {tokens:>12} {:>12}", tokens / sequences))
    }

    fn write_roofline(&self, t: &mut String) -> std::fmt::Result {
        let target = &self.target;
        writeln!(t, "\nroofline at a short context: {:.1} GB/s ({})", target.bandwidth / 1e9, target.source)?;
        writeln!(t, "{:>6} {:>14} {:>12}  bound by", "batch", "bytes a pass", "tokens/s")?;
        let roofs = BATCHES.map(|batch| roof(&self.schedule, target, batch));
        let write = column(roofs.iter().map(|r| r.bytes));
        for r in &roofs {
            writeln!(t, "{:>6} {:>14} {:>12.1}  {}", r.batch, write(r.bytes), r.tokens_s, r.bound)?;
        }
        Ok(())
    }

    /// The cost model's prediction, beside the ceilings of memory and matrix units.
    fn write_prediction(&self, t: &mut String) -> std::fmt::Result {
        let Some(predicted) = self.prediction() else { return Ok(()) };
        writeln!(t, "\nprediction, from the kernels' instructions, bytes and edges: nothing of it was measured")?;
        writeln!(t, "{:>14} {:>12} {:>12}", "sequences", "tokens/s", "of roofline")?;
        for (sequences, rate) in predicted.decode {
            let share = 100.0 * rate / roof(&self.schedule, &self.target, sequences).tokens_s;
            writeln!(t, "{sequences:>14} {rate:>12.1} {share:>10.0} %")?;
        }
        let (rows, rate) = predicted.prefill;
        writeln!(t, "{:>14} {rate:>12.1}\n", format!("prefill {rows}"))?;
        write_attention(t, &predicted.attention)
    }

    fn write_drafts(&self, t: &mut String) -> std::fmt::Result {
        let name = self.draft.as_ref().map(|draft| &draft.name).or(self.drafter.as_ref().map(|(name, _)| name));
        let by = name.map_or("of a text, at no cost".into(), |name| format!("by {name}"));
        writeln!(t, "\none sequence with drafts {by}: tokens/s where a drafted token is right with a probability of")?;
        let heads: Vec<String> = RIGHT.iter().map(|right| format!("{right:>8}")).collect();
        writeln!(t, "{:>7} {}", "drafted", heads.concat())?;
        for drafted in DRAFTED {
            let rates = self.draft_rates(drafted).map(|rate| format!("{rate:>8.1}"));
            writeln!(t, "{drafted:>7} {}", rates.concat())?;
        }
        Ok(())
    }
}

/// The faster engine for attention at each depth, for one token of each sequence and for a prompt's chunk.
fn write_attention(t: &mut String, attention: &[Attention]) -> std::fmt::Result {
    if attention.is_empty() {
        return Ok(());
    }
    writeln!(
        t,
        "attention on the NPU, a prediction too: what --npu auto measures of one sequence decides; a prompt in halves, both at work"
    )?;
    let (of_attention, of_pass) = ("attention on", "the pass");
    writeln!(t, "{:>8} {:>12} {:>12} {of_attention:>17} {of_pass:>19}", "", "", "NPU reads")?;
    let heads = ["GPU", "NPU", "GPU", "with NPU"].map(|head| format!("{head:>9}")).join(" ");
    writeln!(t, "{:>8} {:>12} {:>12} {heads}  auto", "behind", "tokens", "K and V")?;
    for Attention { behind, sequences, tokens, placements: p } in attention {
        let pass = if *sequences == 1 { tokens.to_string() } else { format!("{sequences} x {tokens}") };
        let times = [p.on_gpu, p.on_npu, p.all, p.with_npu].map(|s| format!("{:>9}", duration(s))).join(" ");
        writeln!(t, "{behind:>8} {pass:>12} {:>12} {times}  {}", bytes(p.npu_bytes as u64), p.chosen())?;
    }
    writeln!(t)
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
    writeln!(t, "fits on {device}: {} in {allocations}", bytes(plan.bytes()))
}

/// A note on the free bytes of a heap that are left to other programs.
fn kept(heap: &Heap) -> String {
    match heap.reserved {
        0 => String::new(),
        reserved => format!(", {} kept free", bytes(reserved)),
    }
}

fn write_pool(t: &mut String, memory: &DeviceMemory) -> std::fmt::Result {
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
    let write =
        column(s.steps.iter().map(|step| step_cost(step, PassShape::Decode { sequences: batch, depth: 0 }).bytes()));
    let columns = ["step", "segment", "label", "kernel", "operands", "bytes", "operations", "after"];
    let [a, b, c, d, e, f, g, h] = columns;
    writeln!(t, "{a:>5} {b:<9} {c:<15} {d:<14} {e:<24} {f:>10} {g:>12}  {h}")?;
    for (i, step) in s.steps.iter().enumerate() {
        let cost = step_cost(step, PassShape::Decode { sequences: batch, depth: 0 });
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
    let sum = s.cost(PassShape::Decode { sequences: batch, depth: 0 });
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

/// The derivation of the verdict's figures, one line each.
fn figures(rates: &BestRates) -> String {
    let (drafted, right) = (verdict::DRAFTED, verdict::RIGHT);
    let mut t = match &rates.with_draft {
        Some((rate, weights)) => format!(
            "with a draft, in {weights}: a pass with {drafted} drafted token, right with a probability of {right}, gives \
             {} tokens: {} tokens/s\n",
            expected_tokens(drafted, right),
            shown(*rate)
        ),
        None => String::new(),
    };
    t += &match &rates.prefill {
        Some(p) => format!(
            "a prompt of {}: {} operations, {} at the matrix units' {} a second, {} at {} % of that, \
             which Kiln was measured to reach on an H200\n",
            prompt(p.tokens),
            count(p.operations as f64),
            duration(p.seconds_at_peak),
            count(p.peak),
            duration(p.seconds),
            100.0 * PREFILL_SHARE,
        ),
        None => "how long a prompt takes is not known without a GPU's matrix units: `kiln bench` measures it\n".into(),
    };
    t
}

/// The line below the verdict: the assumed memory of a machine by name, and the RAM with which the model fits there.
fn assumptions(view: &ForecastView<'_>, named: &Named) -> String {
    let p = &named.profile;
    let (ram, carve_out) = (p.ram, gib(p.carve_out));
    let has = match (named.has_ram, named.has_carve_out()) {
        (true, true) => format!("with {ram} GiB of RAM, {carve_out} of them carved out for the GPU"),
        (true, false) => format!(
            "with {ram} GiB of RAM; assumes that {carve_out} of them are carved out for the GPU (--machine {}:N takes N)",
            p.name
        ),
        (false, true) => {
            format!("assumes {ram} GiB of RAM (--ram N takes N), with {carve_out} of them carved out for the GPU")
        }
        (false, false) => format!(
            "assumes {ram} GiB of RAM (--ram N takes N), {carve_out} of them carved out for the GPU (--machine {}:N takes N)",
            p.name
        ),
    };
    let from = match least_ram(view, &view.form) {
        Some(gib) => format!("it fits from {gib} GiB of RAM on"),
        None => "it fits with no RAM that is sold".into(),
    };
    let int4 = view.in_4_bits().filter(|int4| is_worth(int4.bytes(view.extent), view));
    let in_4_bits = int4.and_then(|int4| least_ram(view, &int4));
    let in_4_bits = in_4_bits.filter(|gib| least_ram(view, &view.form).is_none_or(|least| *gib < least));
    format!("{has}; {from}{}", in_4_bits.map_or(String::new(), |gib| format!(", in 4 bits from {gib}")))
}

/// A number of operations: `51.7 T`.
fn count(operations: f64) -> String {
    match operations {
        0.0..1e9 => format!("{:.1} M", operations / 1e6),
        1e9..1e12 => format!("{:.1} G", operations / 1e9),
        _ => format!("{:.1} T", operations / 1e12),
    }
}
