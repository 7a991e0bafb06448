//! A sample as lines of text, for the live view and for `--once`.

use crate::diagnose::top::{ContextSample, Fill, GpuSample, KilnSample, NpuSample, Process, Snapshot};
use crate::display::{bytes, plain};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Width of a bar, in cells.
const BAR: usize = 20;
/// Most processes shown per GPU.
const PROCESSES: usize = 8;

/// The whole sample, in the order GPUs, NPUs, Kilns.
pub fn lines(sample: &Snapshot) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for gpu in &sample.gpus {
        show_gpu(&mut out, gpu);
    }
    if sample.gpus.is_empty() {
        out.push(faint("no GPU: /sys/class/drm has no render node (`kiln probe` says more)"));
    }
    for npu in &sample.npus {
        show_npu(&mut out, npu);
    }
    if sample.npus.is_empty() {
        out.push(faint("no NPU"));
    }
    for kiln in &sample.kilns {
        show_kiln(&mut out, kiln);
    }
    if sample.kilns.is_empty() {
        out.push(faint("no Kiln is running"));
    }
    out
}

fn faint(text: impl Into<String>) -> Line<'static> {
    Line::from(Span::styled(text.into(), Style::new().add_modifier(Modifier::DIM)))
}

fn bold(text: String) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// `[######----]` for a share of 0 to 1; red if it is nearly full.
fn bar(share: f64) -> Span<'static> {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * BAR as f64).round() as usize;
    let color = match share {
        s if s > 0.95 => Color::Red,
        s if s > 0.8 => Color::Yellow,
        _ => Color::Green,
    };
    Span::styled(format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full)), Style::new().fg(color))
}

fn show_gpu(out: &mut Vec<Line<'static>>, gpu: &GpuSample) {
    let mut spans = vec![bold(format!("GPU {}", plain(&gpu.name)))];
    if let Some(fault) = &gpu.fault {
        spans.push(Span::raw(format!("  {}", plain(fault))));
        out.push(Line::from(spans));
        return show_processes(out, &gpu.processes);
    }
    if let Some(busy) = gpu.busy {
        spans.extend([Span::raw("  busy "), bar(busy / 100.0), Span::raw(format!(" {busy:>3.0} %"))]);
    }
    let mut figure = |value: Option<f64>, text: fn(f64) -> String| {
        if let Some(v) = value {
            spans.push(Span::raw(format!("  {}", text(v))));
        }
    };
    figure(gpu.engine_mhz, |v| format!("{v:.0} MHz"));
    figure(gpu.memory_mhz, |v| format!("memory {v:.0} MHz"));
    figure(gpu.power, |v| format!("{v:.1} W"));
    figure(gpu.temperature, |v| format!("{v:.0} °C"));
    out.push(Line::from(spans));
    let mut spans = Vec::new();
    for (name, fill) in [("VRAM", gpu.vram), ("GTT", gpu.gtt)] {
        if let Some(Fill { total, used }) = fill {
            let share = used as f64 / total.max(1) as f64;
            spans.extend([Span::raw(format!("    {name} ")), bar(share)]);
            spans.push(Span::raw(format!(" {} of {}", bytes(used), bytes(total))));
        }
    }
    if !spans.is_empty() {
        out.push(Line::from(spans));
    }
    show_processes(out, &gpu.processes);
}

fn show_processes(out: &mut Vec<Line<'static>>, processes: &[Process]) {
    if processes.is_empty() {
        return;
    }
    out.push(faint(format!("    {:>8} {:>10} {:>10} {:>7}  name", "pid", "VRAM", "GTT", "busy")));
    for p in processes.iter().take(PROCESSES) {
        let busy = p.busy.map_or_else(|| "-".into(), |b| format!("{b:.0} %"));
        let (pid, vram, gtt, name) = (p.pid, bytes(p.vram), bytes(p.gtt), plain(&p.name));
        out.push(Line::from(format!("    {pid:>8} {vram:>10} {gtt:>10} {busy:>7}  {name}")));
    }
    if let Some(more) = processes.len().checked_sub(PROCESSES).filter(|&n| n > 0) {
        out.push(faint(format!("    and {more} more")));
    }
}

fn show_npu(out: &mut Vec<Line<'static>>, npu: &NpuSample) {
    let mut spans = vec![bold(format!("NPU {}", plain(&npu.name)))];
    match (npu.columns_used, npu.columns) {
        (Some(used), Some(all)) => {
            let share = used as f64 / f64::from(all.max(1));
            spans.extend([Span::raw("  columns "), bar(share), Span::raw(format!(" {used} of {all}"))]);
        }
        (None, Some(all)) => spans.push(Span::raw(format!("  {all} columns"))),
        _ => {}
    }
    if let Some(mhz) = npu.array_mhz {
        spans.push(Span::raw(format!("  {mhz:.0} MHz")));
    }
    if let Some(mode) = &npu.power_mode {
        spans.push(Span::raw(format!("  power mode {}", plain(mode))));
    }
    for s in &npu.sensors {
        spans.push(Span::raw(format!("  {} {:.1} {}", plain(&s.label), s.value, plain(&s.unit))));
    }
    out.push(Line::from(spans));
    if let Some(fault) = &npu.fault {
        out.push(Line::from(format!("    {}", plain(fault))));
    }
    if npu.contexts.is_empty() {
        return;
    }
    out.push(faint(format!(
        "    {:>8} {:>8} {:>12} {:>12} {:>10} {:>7}",
        "pid", "columns", "submitted", "completed", "per s", "errors"
    )));
    for c in &npu.contexts {
        let ContextSample { pid, first_column, columns, submitted, completed, completed_s, errors } = *c;
        let held = format!("{first_column}+{columns}");
        let rate = completed_s.map_or_else(|| "-".into(), |r| format!("{r:.1}"));
        out.push(Line::from(format!("    {pid:>8} {held:>8} {submitted:>12} {completed:>12} {rate:>10} {errors:>7}")));
    }
}

fn show_kiln(out: &mut Vec<Line<'static>>, kiln: &KilnSample) {
    let s = &kiln.status;
    let head = format!("Kiln {} {}", s.pid, plain(&s.command));
    out.push(Line::from(vec![bold(head), Span::raw(format!("  {} on {}", plain(&s.model), plain(&s.device)))]));
    let mut text = format!(
        "    decode {:.1} tokens/s of {} sequence(s)  prefill {:.1} tokens/s  queue {}",
        s.decode_tokens_s, s.sequences, s.prefill_tokens_s, s.queue
    );
    if let Some(joules) = kiln.joules_per_token {
        text += &format!("  {joules:.2} J/token");
    }
    out.push(Line::from(format!("{text}  ({} decoded, {} of prompts)", s.decoded, s.prefilled)));
}
