//! The report of `kiln bench` as text.

use super::column::column;
use crate::diagnose::bench::kernels::group;
use crate::diagnose::bench::{BenchLine, Ceilings, EngineTimeline, KernelTime, LayerTime, MeasuredRates};
use crate::diagnose::energy::Energy;
use crate::display::{bytes, counted, duration, moved};
use crate::executor::EngineKind;
use crate::executor::offload::{OffloadedPasses, PlacementTiming};
use std::fmt::{Result, Write};

/// All results of a bench.
pub(super) struct BenchReport {
    pub model: String,
    pub device: String,
    /// How the kernels' tiles were chosen; `None` if the device's kernels have no tiles.
    pub tiles: Option<&'static str>,
    pub load: LoadTime,
    pub ceilings: Ceilings,
    pub lines: Vec<BenchLine>,
    pub layers: Vec<LayerTime>,
    /// The passes in which attention runs on the NPU; `None` if the NPU was never considered.
    pub attends: Option<OffloadedPasses>,
    /// The times of attention on the GPU and on the NPU, by which `attends` was chosen.
    pub placements: Vec<PlacementTiming>,
    /// Bytes of anonymous memory: before the model, and at its peak.
    pub memory: Option<[u64; 2]>,
    /// The number of layers, and the name of the weight format.
    pub shape: (usize, &'static str),
    /// The most positions of a sequence, the most rows of a pass, and the number of sequences.
    pub extent: [usize; 3],
}

/// Time of loading the model.
pub(super) struct LoadTime {
    pub bytes: u64,
    pub seconds: f64,
    /// Seconds to open the device, before anything is loaded.
    pub open_seconds: f64,
}

/// The sum of seconds of a pass's kernels.
pub(super) fn seconds(kernels: &[KernelTime]) -> f64 {
    kernels.iter().map(|k| k.seconds).sum()
}

/// Writes the whole report.
///
/// # Errors
/// Errors of the writer.
pub(super) fn write_report(t: &mut String, r: &BenchReport) -> Result {
    let [context, chunk, sequences] = r.extent;
    let (layers, weights) = r.shape;
    writeln!(t, "{}: {layers} layers, {weights} weights, on {}", r.model, r.device)?;
    let tiles = r.tiles.map_or_else(String::new, |tiles| format!(", tiles: {tiles}"));
    let sequences = counted(sequences, "sequence");
    writeln!(t, "context {context}, prefill in chunks of {chunk}, up to {sequences}{tiles}\n")?;
    let (load, opened) = (moved(r.load.bytes, r.load.seconds), duration(r.load.open_seconds));
    writeln!(t, "load           {load}, device opened in {opened}")?;
    if let Some([baseline, peak]) = r.memory {
        let (above, baseline) = (bytes(peak - baseline), bytes(baseline));
        writeln!(t, "memory         peak anonymous RSS {above} above the {baseline} of the open device")?;
    }
    writeln!(t, "read ceiling   {:.1} GB/s, reading the model's own weights", r.ceilings.read / 1e9)?;
    match r.ceilings.matrix {
        Some(m) => writeln!(t, "matrix ceiling {:.1} TFLOP/s", m / 1e12)?,
        None => writeln!(t, "matrix ceiling none: the device has no matrix units that Kiln can measure")?,
    }
    if let Some(attends) = r.attends {
        write_placements(t, attends, &r.placements)?;
    }
    if !r.lines.is_empty() {
        write_lines(t, r)?;
    }
    for line in r.lines.iter().filter(|l| !l.kernels.is_empty()) {
        write_kernels(t, r, line)?;
    }
    for line in &r.lines {
        line.timeline
            .iter()
            .try_for_each(|timeline| write_timeline(t, &line.case.name(), timeline, r.attends.is_some()))?;
    }
    r.layers.iter().try_for_each(|l| {
        write_layer(t, l, layers)?;
        write_own_attention(t, r.attends)
    })
}

/// The placement of attention, with the measurements behind it.
fn write_placements(t: &mut String, attends: OffloadedPasses, placements: &[PlacementTiming]) -> Result {
    writeln!(t, "attention      on the NPU: {}", attends.name())?;
    for p in placements {
        let PlacementTiming { rows, depth, device, offload } = p;
        let [device, offload] = [device, offload].map(|seconds| 1e3 * seconds);
        let rows = counted(*rows, "row");
        writeln!(t, "               layers of {rows} behind {depth}: GPU {device:.2} ms, NPU {offload:.2} ms")?;
    }
    Ok(())
}

/// A part of the energy of a token.
type EnergyPart = fn(Energy) -> Option<f64>;

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |s| format!("{:.1} %", 100.0 * s))
}

fn write_lines(t: &mut String, r: &BenchReport) -> Result {
    let width = r.lines.iter().map(|l| l.case.name().len()).max().unwrap_or(0);
    // Columns without any value are left out.
    let has = |part: EnergyPart| r.lines.iter().any(|l| l.energy_per_token.and_then(part).is_some());
    let columns: [(&str, EnergyPart); 2] = [("J/tok GPU", |energy| energy.gpu), ("J/tok pkg", |energy| energy.package)];
    let columns: Vec<_> = columns.into_iter().filter(|(_, part)| has(*part)).collect();
    let heads: String = columns.iter().map(|(head, _)| format!(" {head:>9}")).collect();
    writeln!(
        t,
        "\n{:<width$} {:>10} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8}{heads}",
        "",
        "tokens/s",
        "spread",
        "GB/s",
        "of read",
        "TFLOP/s",
        "of matrix",
        "ms/pass",
        "ms/layer",
        "submits",
        "CPU us",
        "GPU busy"
    )?;
    for l in &r.lines {
        let (rate, rates) = (l.tokens_per_second(), l.rates);
        let joules = |part: EnergyPart| match l.energy_per_token.and_then(part) {
            Some(joules) => format!(" {joules:>9.3}"),
            None => format!(" {:>9}", "-"),
        };
        let energy: String = columns.iter().map(|(_, part)| joules(*part)).collect();
        writeln!(
            t,
            "{:<width$} {:>10.2} {:>7} {:>9.2} {:>8} {:>9.3} {:>9} {:>9.3} {:>9.4} {:>8.3} {:>9.1} {:>8}{energy}",
            l.case.name(),
            rate.median(),
            percent(Some(rate.spread())),
            rates.bytes / 1e9,
            percent(Some(rates.read_share)),
            rates.operations / 1e12,
            percent(rates.matrix_share),
            1e3 * l.pass_seconds(),
            1e3 * l.pass_seconds() / r.shape.0 as f64,
            l.submits_per_token,
            1e6 * l.cpu_per_token.process,
            percent(l.busy),
        )?;
    }
    let repetitions = counted(r.lines[0].seconds.values.len(), "repetition");
    writeln!(
        t,
        "\nMedian of {repetitions}; spread: largest less smallest. GB/s: weights and KV. ms/layer: a pass's time over \
         its layers.\nSubmits and CPU time are per token; CPU time is that of all threads, what the driver spins in waits included.\n\
         GPU busy: by timestamps, against wall time."
    )?;
    match columns.is_empty() {
        true => Ok(()),
        false => writeln!(
            t,
            "J/tok: joules a token, over all repetitions, of the GPU and of the processor's package, each of all that runs there; \
             an APU's hold each other."
        ),
    }
}

fn write_kernels(t: &mut String, r: &BenchReport, line: &BenchLine) -> Result {
    let (groups, pass) = (group(&line.kernels, r.ceilings), seconds(&line.kernels));
    let widest =
        |f: fn(&crate::diagnose::bench::KernelTime) -> usize| groups.iter().map(|g| f(&g.kernel)).max().unwrap_or(0);
    let (label, kernel) = (widest(|k| k.label.len()), widest(|k| k.kernel.len()));
    writeln!(t, "\nkernels of a pass of {}, each behind a barrier and stamped:\n", line.case.name())?;
    writeln!(
        t,
        "{:<label$} {:<kernel$} {:>5} {:>10} {:>10} {:>9} {:>9} {:>9} {:>8} {:>9} {:>8}",
        "steps", "kernel", "count", "bytes", "G ops", "us each", "us all", "GB/s", "of read", "TFLOP/s", "of pass"
    )?;
    let write = column(groups.iter().map(|g| g.kernel.cost.memory_bytes()));
    for g in &groups {
        let k = &g.kernel;
        let number = |f: fn(MeasuredRates) -> f64, digits: usize| {
            k.rates.map_or_else(|| "-".into(), |rates| format!("{:.digits$}", f(rates)))
        };
        writeln!(
            t,
            "{:<label$} {:<kernel$} {:>5} {:>10} {:>10.3} {:>9.2} {:>9.1} {:>9} {:>8} {:>9} {:>8}",
            k.label,
            k.kernel,
            g.count,
            write(k.cost.memory_bytes()),
            k.cost.operations as f64 / 1e9,
            1e6 * k.seconds / g.count as f64,
            1e6 * k.seconds,
            number(|r| r.bytes / 1e9, 1),
            percent(k.rates.map(|r| r.read_share)),
            number(|r| r.operations / 1e12, 2),
            percent(Some(k.seconds / pass)),
        )?;
    }
    let without = 1e3 * line.pass_seconds();
    writeln!(t, "\nall {:.3} ms; without stamps a pass took {without:.3} ms of wall time", 1e3 * pass)?;
    if groups.iter().any(|g| g.kernel.rates.is_none()) {
        writeln!(t, "-: too short for the device's clock, or served by a cache faster than the ceiling's reads")?;
    }
    write_own_attention(t, r.attends)
}

/// Notes that the GPU's attention was timed, if whole passes use the NPU's.
fn write_own_attention(t: &mut String, attends: Option<OffloadedPasses>) -> Result {
    match attends.filter(|attends| attends.any()) {
        Some(attends) => writeln!(t, "attention here is the GPU's, and in {} the NPU's", attends.name()),
        None => Ok(()),
    }
}

/// Columns of a timeline, and the characters for increasing shares of a column's time. Tiny shares from rounding show
/// as blank.
const COLUMNS: usize = 100;
const LEVELS: [char; 5] = [' ', '.', '-', '=', '#'];

/// The engines' activity during a pass: shares for all of it, and the course of the layers in its middle.
fn write_timeline(t: &mut String, case: &str, timeline: &EngineTimeline, with_offload: bool) -> Result {
    let &EngineTimeline { seconds, device, offload, both, .. } = timeline;
    write!(t, "\ntimeline of a pass of {}, {:.3} ms: ", case, 1e3 * seconds)?;
    let [device, offload, both] = [device, offload, both].map(|share| percent(Some(share)));
    match with_offload {
        true => writeln!(t, "the GPU works for {device} of it, the NPU for {offload}, both at once for {both}")?,
        false => writeln!(t, "the device works for {device} of it")?,
    }
    let Some((layers, time)) = timeline.window() else { return Ok(()) };
    let (first, last, width) = (layers.start, layers.end - 1, 1e3 * (time.end - time.start) / COLUMNS as f64);
    writeln!(t, "layers {first} to {last}, {width:.4} ms a column:\n")?;
    let rows: &[_] = match with_offload {
        true => &[("GPU", EngineKind::Device), ("NPU", EngineKind::Offload)],
        false => &[("device", EngineKind::Device)],
    };
    for (name, engine) in rows {
        let shares = timeline.columns(*engine, time.clone(), COLUMNS);
        let shown: String =
            shares.iter().map(|share| LEVELS[(share * 4.0 - 1e-6).ceil().clamp(0.0, 4.0) as usize]).collect();
        writeln!(t, "{name:<6} |{shown}|")?;
    }
    Ok(())
}

fn write_layer(t: &mut String, l: &LayerTime, layers: usize) -> Result {
    let (layer, kind, depth) = (l.layer, l.kind.name(), l.depth);
    writeln!(t, "\nlayer {layer} ({kind}) alone, one sequence at position {depth}:\n")?;
    for &(tokens, s) in &l.runs {
        writeln!(t, "{:>9}  {:.4} ms each", counted(tokens, "token"), 1e3 * s)?;
    }
    let (rate, ceiling) = (l.rates.bytes / 1e9, l.ceiling / 1e9);
    let share = percent(Some(l.rates.read_share));
    writeln!(t, "{rate:.1} GB/s, {share} of the {ceiling:.1} GB/s at which its weights alone are read")?;
    writeln!(
        t,
        "{layers} such layers, embedding {:.4} ms and head {:.4} ms make a pass of {:.3} ms: {:.2} tokens/s",
        1e3 * l.ends[0],
        1e3 * l.ends[1],
        1e3 * l.pass_seconds,
        1.0 / l.pass_seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::bench::usage::CpuTime;
    use crate::diagnose::bench::{Case, Sample, Work};
    use crate::executor::EngineSpan;
    use crate::model::LayerKind;
    use crate::schedule::{Cost, Segment};

    /// Times of single kernels and layers are the device's own.
    #[test]
    fn kernels_and_a_layer_say_whose_attention_they_have() {
        let (cost, sample) = (Cost::default(), || Sample::new([1e-3]));
        let rates = MeasuredRates { bytes: 1e9, read_share: 0.5, operations: 1e9, matrix_share: None };
        let (segment, label, variant) = (Segment::Layer(0), "attend".to_owned(), String::new());
        let kernel = KernelTime { segment, label, kernel: "attend", variant, cost, seconds: 1e-4, rates: Some(rates) };
        let case = Case { work: Work::Prefill(512), depth: 0 };
        let cpu_per_token = CpuTime { process: 0.0, thread: 0.0 };
        let line = || BenchLine {
            case,
            tokens: 512,
            passes: 1,
            cost,
            seconds: sample(),
            rates,
            submits_per_token: 0.0,
            cpu_per_token,
            busy: None,
            energy_per_token: None,
            kernels: vec![kernel.clone()],
            timeline: None,
        };
        let (layer, kind, runs, ends) = (0, LayerKind::Global, vec![(1, 1e-3)], [1e-3; 2]);
        let alone = LayerTime { layer, kind, depth: 0, cost, ceiling: 2e9, runs, rates, ends, pass_seconds: 1e-2 };
        let report = |attends| BenchReport {
            model: "a model".into(),
            device: "a device".into(),
            tiles: None,
            load: LoadTime { bytes: 1, seconds: 1.0, open_seconds: 1.0 },
            ceilings: Ceilings { read: 2e9, matrix: None },
            lines: vec![line()],
            layers: vec![alone.clone()],
            attends,
            placements: Vec::new(),
            memory: None,
            shape: (1, "int8"),
            extent: [1024, 512, 1],
        };
        let said = |attends| {
            let mut text = String::new();
            write_report(&mut text, &report(attends)).unwrap();
            text.matches("attention here is the GPU's, and in long chunks the NPU's").count()
        };
        let prefill = OffloadedPasses { prefill: true, ..OffloadedPasses::NONE };
        assert_eq!([None, Some(OffloadedPasses::NONE), Some(prefill)].map(said), [0, 0, 2]);
    }

    #[test]
    fn a_timeline_shows_both_engines_of_the_layers_in_the_middle() {
        let span = |engine, layer, start: f64, end: f64| EngineSpan {
            engine,
            segment: Segment::Layer(layer),
            rows: 0..1,
            start,
            end,
        };
        let spans = vec![
            span(EngineKind::Device, 0, 0.0, 0.005),
            span(EngineKind::Offload, 0, 0.005, 0.01),
            span(EngineKind::Device, 0, 0.0075, 0.01),
        ];
        let timeline = EngineTimeline::of(spans).unwrap();
        let mut text = String::new();
        write_timeline(&mut text, "prefill 512", &timeline, true).unwrap();
        let [half, quarter] = [50, 25].map(|columns| "#".repeat(columns));
        let [no_half, no_quarter] = [50, 25].map(|columns| " ".repeat(columns));
        let want = format!(
            "\ntimeline of a pass of prefill 512, 10.000 ms: the GPU works for 75.0 % of it, the NPU for 50.0 %, both at once for \
             25.0 %\nlayers 0 to 0, 0.1000 ms a column:\n\nGPU    |{half}{no_quarter}{quarter}|\nNPU    |{no_half}{half}|\n"
        );
        assert_eq!(text, want);
    }
}
