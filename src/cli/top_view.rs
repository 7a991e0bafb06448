//! Samples as lines of text, for the live view and for `--once`.

use crate::diagnose::status::url_of;
use crate::diagnose::top::{ContextSample, Fill, GpuSample, KilnSample, NpuSample, Process, Snapshot};
use crate::display::{bytes, counted, plain};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// The width of a bar, in character cells.
const BAR: usize = 20;
/// The most processes shown per GPU.
const PROCESSES: usize = 8;

/// The number of samples in a graph, one per cell.
const HISTORY: usize = 60;

/// The order in which a GPU's processes are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SortKey {
    /// By memory, largest first.
    #[default]
    Memory,
    /// By load, largest first.
    Busy,
    /// By process id.
    Pid,
    /// By process name.
    Name,
}

impl SortKey {
    /// The sort key chosen by a keyboard key.
    pub fn of_key(key: u8) -> Option<SortKey> {
        match key {
            b'm' => Some(SortKey::Memory),
            b'b' => Some(SortKey::Busy),
            b'p' => Some(SortKey::Pid),
            b'n' => Some(SortKey::Name),
            _ => None,
        }
    }

    fn sort(self, processes: &mut [&Process]) {
        match self {
            SortKey::Memory => processes.sort_by_key(|p| Reverse(p.vram.saturating_add(p.gtt))),
            SortKey::Busy => processes.sort_by(|a, b| b.busy.unwrap_or(-1.0).total_cmp(&a.busy.unwrap_or(-1.0))),
            SortKey::Pid => processes.sort_by_key(|p| p.pid),
            SortKey::Name => processes.sort_by(|a, b| a.name.cmp(&b.name)),
        }
    }
}

/// The state of the live view: sort key and graphs.
#[derive(Debug, Default)]
pub struct TopView {
    /// The order in which processes are listed.
    pub order: SortKey,
    /// Columns of the terminal; `None` for no limit.
    pub columns: Option<usize>,
    /// The latest values of each graph, by its name.
    history: HashMap<String, VecDeque<f64>>,
}

impl TopView {
    /// A view for `columns` columns, without graphs.
    pub fn of_width(columns: Option<usize>) -> TopView {
        TopView { columns, ..TopView::default() }
    }

    /// Adds a sample to the graphs. Graphs without a value in the sample are removed.
    pub fn note(&mut self, sample: &Snapshot) {
        let gpus = sample.gpus.iter().filter_map(|gpu| Some((load_of(gpu), gpu.busy?)));
        let kilns = sample.kilns.iter().map(|kiln| (rate_of(kiln), kiln.status.decode_tokens_s));
        let values: HashMap<String, f64> = gpus.chain(kilns).collect();
        self.history.retain(|key, _| values.contains_key(key));
        for (key, value) in values {
            let history = self.history.entry(key).or_default();
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(value);
        }
    }

    /// The whole sample: GPUs, NPUs, Kilns. Long lines continue below.
    pub fn lines(&self, sample: &Snapshot) -> Vec<Line<'static>> {
        let mut out = Vec::new();
        for gpu in &sample.gpus {
            self.show_gpu(&mut out, gpu);
        }
        show_others(&mut out, sample, self);
        match self.columns {
            Some(columns) => out.into_iter().flat_map(|line| fold(line, columns)).collect(),
            None => out,
        }
    }

    /// Adds the graph of `key`, in which a full cell is `most`, once there are two samples.
    fn show_graph(&self, out: &mut Vec<Line<'static>>, what: &str, key: &str, most: Option<f64>) {
        let Some(values) = self.history.get(key).filter(|values| values.len() > 1) else { return };
        let most = most.unwrap_or_else(|| values.iter().copied().fold(0.0, f64::max));
        let name = Span::raw(format!("    {what:<7}"));
        let room = self.columns.map_or(HISTORY, |columns| columns.saturating_sub(name.width()));
        let mut spans = vec![name];
        spans.extend(values.iter().skip(values.len().saturating_sub(room)).map(|&value| cell(value / most)));
        out.push(Line::from(spans));
    }
}

/// The indent of continued lines.
const INDENT: usize = 6;
/// The least number of columns for folding. On fewer, little would fit beside the indent.
const NARROWEST: usize = 20;

/// Breaks a line into lines of at most `columns` columns, before a figure if possible.
fn fold(line: Line<'static>, columns: usize) -> Vec<Line<'static>> {
    if line.width() <= columns || columns < NARROWEST {
        return vec![line];
    }
    let width = |c: char| Span::raw(c.to_string()).width();
    let mut cells: Vec<(char, Style)> =
        line.spans.iter().flat_map(|span| span.content.chars().map(|c| (c, span.style))).collect();
    let mut folded = Vec::new();
    loop {
        let mut taken = 0;
        let fits = cells.iter().take_while(|(c, _)| {
            taken += width(*c);
            taken <= columns
        });
        let fits = fits.count();
        let start = cells.iter().take_while(|(c, _)| *c == ' ').count();
        let end = if fits == cells.len() { fits } else { break_of(&cells, start, fits) };
        let part = cells[..end].iter().map(|(c, style)| Span::styled(c.to_string(), *style));
        folded.push(Line::from_iter(part).style(line.style));
        let rest: Vec<(char, Style)> = cells[end..].iter().copied().skip_while(|(c, _)| *c == ' ').collect();
        if rest.is_empty() {
            return folded;
        }
        cells = std::iter::repeat_n((' ', Style::new()), INDENT).chain(rest).collect();
    }
}

/// The place to break at or before the cell `fits`: the last two spaces, which separate figures, else the last space,
/// else `fits`.
fn break_of(cells: &[(char, Style)], start: usize, fits: usize) -> usize {
    let is_blank = |at: usize| cells.get(at).is_some_and(|(c, _)| *c == ' ');
    let places = || (start + 1..=fits).rev().filter(|&at| is_blank(at) && !is_blank(at - 1));
    let between = places().find(|&at| is_blank(at + 1));
    between.or_else(|| places().next()).unwrap_or(fits.max(start + 1)).min(cells.len())
}

/// The key of the graph of a GPU's load.
fn load_of(gpu: &GpuSample) -> String {
    format!("load of {}", gpu.name)
}

/// The key of the graph of a Kiln's rate.
fn rate_of(kiln: &KilnSample) -> String {
    format!("rate of {}", kiln.status.pid)
}

/// The cell of a graph for a share from 0 to 1.
fn cell(share: f64) -> Span<'static> {
    const LEVELS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let share = clamped(share);
    Span::styled(LEVELS[(share * 8.0).round() as usize], Style::new().fg(color(share)))
}

fn clamped(share: f64) -> f64 {
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// Red for nearly full, yellow for busy.
fn color(share: f64) -> Color {
    match share {
        s if s > 0.95 => Color::Red,
        s if s > 0.8 => Color::Yellow,
        _ => Color::Green,
    }
}

/// Adds everything but the GPUs.
fn show_others(out: &mut Vec<Line<'static>>, sample: &Snapshot, view: &TopView) {
    if sample.gpus.is_empty() {
        out.push(faint("no GPU: /sys/class/drm has no render node (`kiln probe` says more)"));
    }
    for npu in &sample.npus {
        show_npu(out, npu);
    }
    if sample.npus.is_empty() {
        out.push(faint("no NPU"));
    }
    for kiln in &sample.kilns {
        show_kiln(out, kiln);
        view.show_graph(out, "decode", &rate_of(kiln), None);
    }
    if sample.kilns.is_empty() {
        out.push(faint("no Kiln is running"));
    }
}

fn faint(text: impl Into<String>) -> Line<'static> {
    Line::from(Span::styled(text.into(), Style::new().add_modifier(Modifier::DIM)))
}

fn bold(text: String) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// `[######----]` for a share from 0 to 1; red if nearly full.
fn bar(share: f64) -> Span<'static> {
    let share = clamped(share);
    let full = (share * BAR as f64).round() as usize;
    Span::styled(format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full)), Style::new().fg(color(share)))
}

impl TopView {
    fn show_gpu(&self, out: &mut Vec<Line<'static>>, gpu: &GpuSample) {
        let mut spans = vec![bold(format!("GPU {}", plain(&gpu.name)))];
        if let Some(fault) = &gpu.fault {
            spans.push(Span::raw(format!("  {}", plain(fault))));
            out.push(Line::from(spans));
            return self.show_processes(out, &gpu.processes);
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
        figure(gpu.fabric_mhz, |v| format!("fabric {v:.0} MHz"));
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
        let mut words: Vec<String> =
            gpu.engines.iter().map(|(name, busy)| format!("{} {busy:.0} %", plain(name))).collect();
        if !gpu.throttled_by.is_empty() {
            words.push(format!("throttled by {}", plain(&gpu.throttled_by.join(", "))));
        }
        if !words.is_empty() {
            out.push(Line::from(format!("    {}", words.join("  "))));
        }
        self.show_graph(out, "busy", &load_of(gpu), Some(100.0));
        self.show_processes(out, &gpu.processes);
    }

    fn show_processes(&self, out: &mut Vec<Line<'static>>, processes: &[Process]) {
        if processes.is_empty() {
            return;
        }
        out.push(faint(format!("    {:>8} {:>10} {:>10} {:>7}  name", "pid", "VRAM", "GTT", "busy")));
        let mut sorted: Vec<&Process> = processes.iter().collect();
        self.order.sort(&mut sorted);
        for p in sorted.into_iter().take(PROCESSES) {
            let busy = p.busy.map_or_else(|| "-".into(), |b| format!("{b:.0} %"));
            let (pid, vram, gtt, name) = (p.pid, bytes(p.vram), bytes(p.gtt), plain(&p.name));
            let busy = Span::styled(format!("{busy:>7}"), Style::new().fg(color(p.busy.unwrap_or(0.0) / 100.0)));
            out.push(Line::from(vec![
                Span::raw(format!("    {pid:>8} {vram:>10} {gtt:>10} ")),
                busy,
                Span::raw(format!("  {name}")),
            ]));
        }
        if let Some(more) = processes.len().checked_sub(PROCESSES).filter(|&n| n > 0) {
            out.push(faint(format!("    and {more} more")));
        }
    }
}

fn show_npu(out: &mut Vec<Line<'static>>, npu: &NpuSample) {
    let mut spans = vec![bold(format!("NPU {}", plain(&npu.name)))];
    match (npu.columns_used, npu.columns) {
        (Some(used), Some(all)) => {
            let share = used as f64 / f64::from(all.max(1));
            spans.extend([Span::raw("  columns "), bar(share), Span::raw(format!(" {used} of {all}"))]);
        }
        (None, Some(all)) => spans.push(Span::raw(format!("  {}", counted(all as usize, "column")))),
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
    let state = if s.unloaded { ", unloaded" } else { "" };
    out.push(Line::from(vec![bold(head), Span::raw(format!("  {} on {}{state}", plain(&s.model), plain(&s.device)))]));
    if !s.places.is_empty() {
        let places: Vec<String> = s.places.iter().map(|place| plain(&url_of(place))).collect();
        out.push(Line::from(format!("    at {}", places.join("  "))));
    }
    let mut text = format!(
        "    decode {:.1} tokens/s of {}  prefill {:.1} tokens/s  queue {}",
        s.decode_tokens_s,
        counted(s.sequences as usize, "sequence"),
        s.prefill_tokens_s,
        s.queue
    );
    if let Some(share) = s.experts_share {
        text += &format!("  experts {:.0} %", 100.0 * share);
    }
    if let Some(joules) = kiln.joules_per_token {
        text += &format!("  {joules:.2} J/token");
    }
    out.push(Line::from(format!("{text}  ({} decoded, {} of prompts)", s.decoded, s.prefilled)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str, vram: u64, busy: Option<f64>) -> Process {
        Process { pid, name: name.into(), vram, gtt: 0, busy }
    }

    fn gpu(busy: Option<f64>, processes: Vec<Process>) -> Snapshot {
        let gpu = GpuSample {
            name: "renderD128 gfx1103".into(),
            driver: "amdgpu".into(),
            busy,
            fabric_mhz: Some(2000.0),
            throttled_by: vec!["SPPT".into(), "TEMP_CORE".into()],
            engines: vec![("compute".into(), 81.0), ("gfx".into(), 2.0)],
            processes,
            ..GpuSample::default()
        };
        Snapshot { time: 0.0, gpus: vec![gpu], npus: Vec::new(), kilns: Vec::new() }
    }

    fn text(view: &TopView, sample: &Snapshot) -> String {
        view.lines(sample).iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn the_fabric_the_engines_and_what_holds_clocks_down_are_shown() {
        let shown = text(&TopView::default(), &gpu(Some(90.0), Vec::new()));
        for words in ["fabric 2000 MHz", "compute 81 %  gfx 2 %  throttled by SPPT, TEMP_CORE"] {
            assert!(shown.contains(words), "no `{words}` in:\n{shown}");
        }
    }

    #[test]
    fn the_graph_shows_the_latest_samples_and_ends_with_its_gpu() {
        let mut view = TopView::default();
        view.note(&gpu(Some(0.0), Vec::new()));
        assert!(!text(&view, &gpu(Some(0.0), Vec::new())).contains('▁'), "one sample is no history");
        for busy in [50.0, 100.0, 400.0, f64::NAN] {
            view.note(&gpu(Some(busy), Vec::new()));
        }
        let shown = text(&view, &gpu(Some(5.0), Vec::new()));
        assert!(shown.contains("    busy    ▄██ \n"), "{shown}");
        for _ in 0..2 * HISTORY {
            view.note(&gpu(Some(100.0), Vec::new()));
        }
        let shown = text(&view, &gpu(Some(100.0), Vec::new()));
        assert!(shown.contains(&format!("    busy   {}\n", "█".repeat(HISTORY))), "{shown}");
        view.note(&gpu(None, Vec::new()));
        assert!(!text(&view, &gpu(None, Vec::new())).contains('█'));
    }

    #[test]
    fn a_narrow_terminal_shows_all_that_a_wide_one_does() {
        let mut sample = gpu(Some(50.0), vec![process(30, "a-process-of-a-long-name", 5 << 30, Some(5.0))]);
        sample.gpus[0].engine_mhz = Some(1234.0);
        sample.gpus[0].power = Some(98.7);
        sample.gpus[0].vram = Some(Fill { total: 16 << 30, used: 5 << 30 });
        sample.gpus[0].gtt = Some(Fill { total: 32 << 30, used: 1 << 30 });
        let mut view = TopView::default();
        (0..HISTORY).for_each(|_| view.note(&gpu(Some(0.0), Vec::new())));
        view.note(&sample);
        let words = |text: &str| -> Vec<String> {
            let words = text.split_whitespace().filter(|word| !word.starts_with(['▁', '▄', '█']));
            words.map(str::to_owned).collect()
        };
        let wide = words(&text(&view, &sample));
        for columns in [20, 40, 60, 80] {
            view.columns = Some(columns);
            let shown = text(&view, &sample);
            assert!(view.lines(&sample).iter().all(|line| line.width() <= columns), "{columns}:\n{shown}");
            assert!(shown.contains('▄'), "the latest sample, {columns}:\n{shown}");
            // Only words wider than the terminal are cut.
            if columns > 20 {
                assert_eq!(words(&shown), wide, "{columns}:\n{shown}");
            }
        }
    }

    #[test]
    fn keys_choose_the_order_of_the_processes() {
        let sample = gpu(
            None,
            vec![process(30, "alpha", 1, Some(5.0)), process(10, "gamma", 3, None), process(20, "beta", 2, Some(90.0))],
        );
        for (key, names) in [
            (b'm', ["gamma", "beta", "alpha"]),
            (b'b', ["beta", "alpha", "gamma"]),
            (b'p', ["gamma", "beta", "alpha"]),
            (b'n', ["alpha", "beta", "gamma"]),
        ] {
            let view = TopView { order: SortKey::of_key(key).unwrap(), ..TopView::default() };
            let shown = text(&view, &sample);
            let mut found: Vec<&str> = names.to_vec();
            found.sort_by_key(|name| shown.find(name).unwrap());
            assert_eq!(found, names, "{}", char::from(key));
        }
        assert_eq!(SortKey::of_key(b'x'), None);
    }
}
