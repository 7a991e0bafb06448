//! `kiln top`: the devices and running Kilns, live on the terminal, as a stream of JSON, or once.

use super::terminal::{has_color, json_for_terminal, painted};
use super::top_view::{SortKey, TopView};
use super::{output_columns, signals};
use crate::diagnose::status::Environment;
use crate::diagnose::top::recording::{Recorder, Recording};
use crate::diagnose::top::{Monitor, Snapshot};
use crate::machine::files::Files;
use crate::{Error, Result};
use clap::builder::styling::{AnsiColor, Style as AnsiStyle};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::crossterm::execute;
use ratatui::crossterm::style;
use ratatui::crossterm::terminal::{self, EnterAlternateScreen};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame, TerminalOptions, Viewport};
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Shows GPU, NPU and running Kilns. With --json, one object a line for each sample, until the reader goes away.
#[derive(Debug, Clone, clap::Args)]
pub struct TopArgs {
    /// Show one sample and exit
    #[arg(long)]
    once: bool,
    /// Seconds between samples
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    interval: f64,
    /// Write every sample to a new file too, one JSON object a line; without a terminal, do that alone until a signal
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show a file of --record or --json, as fast as it was written; with --once the last sample, with --json all at
    /// once
    #[arg(long, value_name = "FILE", conflicts_with = "interval")]
    replay: Option<PathBuf>,
}

/// The source of the samples that are shown: this machine, or a file.
enum SampleSource {
    /// Samples of this machine, taken at an interval.
    Machine { monitor: Box<Monitor>, interval: Duration, recorder: Option<Recorder> },
    /// A file. The sample after the current one has already been read.
    File { recording: Recording, upcoming: Option<Snapshot>, pause: Duration },
}

impl SampleSource {
    fn open(args: &TopArgs) -> Result<SampleSource> {
        if let Some(path) = &args.replay {
            let mut recording = Recording::open(path)?;
            let upcoming = recording.next()?;
            if upcoming.is_none() {
                let cause = format!("{} has no samples", path.display());
                return Err(Error::input(cause, "give a file that `kiln top --record` or `kiln top --json` wrote"));
            }
            return Ok(SampleSource::File { recording, upcoming, pause: Duration::ZERO });
        }
        let recorder = args.record.as_deref().map(Recorder::create).transpose()?;
        let monitor = Box::new(Monitor::new(Files::system(), Environment::of_process()));
        Ok(SampleSource::Machine { monitor, interval: Duration::from_secs_f64(args.interval), recorder })
    }

    /// The next sample; `None` at the end of the recording.
    fn next(&mut self) -> Result<Option<Snapshot>> {
        match self {
            SampleSource::Machine { monitor, recorder, .. } => {
                let sample = monitor.sample();
                recorder.iter_mut().try_for_each(|recorder| recorder.add(&sample))?;
                Ok(Some(sample))
            }
            SampleSource::File { recording, upcoming, pause } => {
                let Some(sample) = upcoming.take() else { return Ok(None) };
                *upcoming = recording.next()?;
                // Long gaps in the recording are shortened.
                let between = upcoming.as_ref().map_or(0.0, |next| next.time - sample.time).clamp(0.0, LONGEST_PAUSE);
                *pause = Duration::from_secs_f64(between);
                Ok(Some(sample))
            }
        }
    }

    /// The time for which the last sample is shown.
    fn pause(&self) -> Duration {
        match self {
            SampleSource::Machine { interval, .. } => *interval,
            SampleSource::File { pause, .. } => *pause,
        }
    }

    /// A single sample: from a machine with rates over a moment, from a recording the last one.
    fn once(&mut self) -> Result<Option<Snapshot>> {
        if let SampleSource::Machine { monitor, .. } = self {
            monitor.sample();
            std::thread::sleep(Duration::from_secs_f64(FIRST_SECONDS));
            return self.next();
        }
        let mut last = None;
        while let Some(sample) = self.next()? {
            last = Some(sample);
        }
        Ok(last)
    }
}

/// The longest time in seconds for which a recorded sample is shown.
const LONGEST_PAUSE: f64 = 10.0;
/// Seconds over which a single sample's rates are measured.
const FIRST_SECONDS: f64 = 0.25;
/// The area to draw on if the terminal does not report its size, as on a serial line.
const USUAL: Rect = Rect::new(0, 0, 80, 24);
/// The most columns and rows to draw on: a terminal may report a wrong size, and each cell takes memory.
const LARGEST: (u16, u16) = (1000, 500);
/// The longest time before the loop notices a signal.
const PATIENCE: Duration = Duration::from_millis(200);

/// Runs the command.
///
/// # Errors
/// Input: the arguments are wrong, or there is no terminal for the live view. Failed: the output cannot be written.
pub fn run(args: &TopArgs, json: bool) -> Result<()> {
    if !(0.05..=3600.0).contains(&args.interval) {
        return Err(Error::input(
            format!("an interval of {:?} seconds is not in 0.05..=3600", args.interval),
            "choose another --interval",
        ));
    }
    let is_live = !args.once && !json;
    // Checked before a file is created.
    if is_live && args.record.is_none() && !std::io::stdout().is_terminal() {
        return Err(Error::input("standard output is no terminal", "use --once or --json"));
    }
    if is_live && std::io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        let remedy = "use --once or --json, or set TERM to its type";
        return Err(Error::input("a dumb terminal cannot be drawn on", remedy));
    }
    let mut source = SampleSource::open(args)?;
    match (args.once, json) {
        (true, json) => {
            let Some(sample) = source.once()? else { return Ok(()) };
            if json { super::print(&to_json(&sample)?) } else { print_text(&sample) }
        }
        (false, true) => stream(&mut source),
        (false, false) if !std::io::stdout().is_terminal() => record(&mut source),
        (false, false) => live(&mut source),
    }
}

/// Takes and records samples until a signal arrives.
fn record(source: &mut SampleSource) -> Result<()> {
    signals::catch(signals::stops().iter().copied());
    let stopped = signals::cancel();
    let mut next = Instant::now();
    while !stopped.is_set() {
        source.next()?;
        next = (next + source.pause()).max(Instant::now());
        while !stopped.is_set() && Instant::now() < next {
            std::thread::sleep((next - Instant::now()).min(PATIENCE));
        }
    }
    Ok(())
}

fn to_json(sample: &Snapshot) -> Result<String> {
    let text = serde_json::to_string(sample);
    text.map(|t| format!("{}\n", json_for_terminal(&t)))
        .map_err(|e| Error::failed(format!("a sample is no JSON: {e}"), "report this"))
}

/// Prints a sample, in colour and folded if standard output is a suitable terminal.
fn print_text(sample: &Snapshot) -> Result<()> {
    let columns = output_columns();
    let view = TopView::of_width((columns < usize::MAX).then_some(columns));
    let lines = view.lines(sample);
    if !has_color() {
        return super::print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
    let spans = |line: &Line<'_>| line.spans.iter().map(|span| span_in_color(span)).collect::<String>() + "\n";
    // All control characters here are the view's own: values from files have had theirs removed.
    super::print_to(super::stdout()?, &lines.iter().map(spans).collect::<String>())
}

/// A span with the colours that the view has.
fn span_in_color(span: &Span<'_>) -> String {
    let color = match span.style.fg {
        Some(Color::Red) => Some(AnsiColor::Red),
        Some(Color::Yellow) => Some(AnsiColor::Yellow),
        Some(Color::Green) => Some(AnsiColor::Green),
        _ => None,
    };
    let mut style = AnsiStyle::new().fg_color(color.map(Into::into));
    style = if span.style.add_modifier.contains(Modifier::BOLD) { style.bold() } else { style };
    style = if span.style.add_modifier.contains(Modifier::DIM) { style.dimmed() } else { style };
    painted(style, &span.content, true).into_owned()
}

/// Writes to standard output. Returns `false` if the reader is gone, which ends a stream.
fn write_out(text: &str) -> Result<bool> {
    let mut out = super::stdout()?;
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(super::unwritten(e)),
    }
}

fn stream(source: &mut SampleSource) -> Result<()> {
    let mut next = Instant::now();
    while let Some(sample) = source.next()? {
        if !write_out(&to_json(&sample)?)? {
            break;
        }
        if let SampleSource::Machine { interval, .. } = source {
            // The interval does not grow by the time of taking a sample. Missed samples are skipped.
            next = (next + *interval).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(())
}

fn failed(e: std::io::Error) -> Error {
    Error::failed(format!("the terminal failed: {e}"), "use --once or --json")
}

fn live(source: &mut SampleSource) -> Result<()> {
    // Includes Ctrl-C: the key raises no signal in raw mode, but other processes may send it.
    signals::catch(signals::stops().iter().copied());
    style::force_color_output(has_color());
    let keys = open_keys().map_err(failed)?;
    let mut terminal = open_terminal().map_err(failed)?;
    let ended = show(&mut terminal, keys, source);
    let restored = ratatui::try_restore().map_err(failed);
    if terminal.show_cursor().is_err() {
        // Dropping it would restore again, and panic if standard error is gone as well.
        std::mem::forget(terminal);
    }
    match ended? {
        ViewEnd::Asked => restored,
        // There is no terminal to restore.
        ViewEnd::Gone => Ok(()),
    }
}

/// Opens the terminal for reading keys. Kiln reads them itself, because crossterm loops for ever if the terminal is
/// gone.
fn open_keys() -> std::io::Result<File> {
    let stdin = std::io::stdin();
    match stdin.is_terminal() {
        true => stdin.as_fd().try_clone_to_owned().map(File::from),
        false => File::open("/dev/tty"),
    }
}

/// The area to draw on for a terminal of the reported `size`.
fn drawn(size: std::io::Result<(u16, u16)>) -> Rect {
    match size {
        Ok((width, height)) if width > 0 && height > 0 => Rect::new(0, 0, width.min(LARGEST.0), height.min(LARGEST.1)),
        _ => USUAL,
    }
}

/// Opens the terminal's alternate screen. Restores the terminal if that fails.
fn open_terminal() -> std::io::Result<DefaultTerminal> {
    let viewport = Viewport::Fixed(drawn(terminal::size()));
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport });
    let opened = terminal.and_then(|t| execute!(std::io::stdout(), EnterAlternateScreen).map(|()| t));
    opened.inspect_err(|_| {
        // The first error is reported.
        let _ = ratatui::try_restore();
    })
}

/// The reason for which the view ends.
enum ViewEnd {
    /// A key was pressed, or a signal arrived.
    Asked,
    /// The terminal is closed.
    Gone,
}

fn show(terminal: &mut DefaultTerminal, mut keys: File, source: &mut SampleSource) -> Result<ViewEnd> {
    let mut view = TopView::default();
    let Some(mut sample) = source.next()? else { return Ok(ViewEnd::Asked) };
    let mut has_ended = false;
    view.note(&sample);
    let mut taken = Instant::now();
    let mut area = drawn(terminal::size());
    let stopped = signals::cancel();
    while !stopped.is_set() {
        let now = drawn(terminal::size());
        if now != area {
            terminal.resize(now).map_err(failed)?;
            area = now;
        }
        view.columns = Some(usize::from(area.width));
        terminal.draw(|frame| draw(frame, &view, &sample)).map_err(failed)?;
        let left = match has_ended {
            true => PATIENCE,
            false => source.pause().saturating_sub(taken.elapsed()),
        };
        match wait(&mut keys, left.min(PATIENCE)).map_err(failed)? {
            Heard::Nothing => {}
            Heard::End(end) => return Ok(end),
            Heard::Order(order) => view.order = order,
        }
        if !has_ended && taken.elapsed() >= source.pause() {
            match source.next()? {
                Some(next) => {
                    sample = next;
                    view.note(&sample);
                    taken = Instant::now();
                }
                // The last sample of a recording stays until a key ends the view.
                None => has_ended = true,
            }
        }
    }
    Ok(ViewEnd::Asked)
}

/// The effect of a pressed key.
enum Heard {
    Nothing,
    End(ViewEnd),
    Order(SortKey),
}

/// Waits for a key, for `most` at most.
fn wait(keys: &mut File, most: Duration) -> std::io::Result<Heard> {
    let mut polled = [PollFd::new(keys.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        // A signal: the loop checks whether it ends the view.
        Ok(0) | Err(Errno::EINTR) => return Ok(Heard::Nothing),
        polled => polled?,
    };
    let mut pressed = [0; 64];
    match keys.read(&mut pressed) {
        Ok(0) => Ok(Heard::End(ViewEnd::Gone)),
        Ok(n) if is_end(&pressed[..n]) => Ok(Heard::End(ViewEnd::Asked)),
        Ok(n) => Ok(order_of(&pressed[..n]).map_or(Heard::Nothing, Heard::Order)),
        Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(Heard::Nothing),
        Err(e) if e.raw_os_error() == Some(Errno::EIO as i32) => Ok(Heard::End(ViewEnd::Gone)),
        Err(e) => Err(e),
    }
}

/// Whether the pressed keys end the view: q, Ctrl-C, or a single Escape that does not begin another key's sequence.
fn is_end(pressed: &[u8]) -> bool {
    pressed == b"\x1b" || (!pressed.starts_with(b"\x1b") && pressed.iter().any(|key| matches!(key, b'q' | b'\x03')))
}

/// The sort order chosen by the pressed keys; the last one counts.
fn order_of(pressed: &[u8]) -> Option<SortKey> {
    // Letters in an escape sequence do not count.
    let letters = if pressed.starts_with(b"\x1b") { &[][..] } else { pressed };
    letters.iter().rev().find_map(|&key| SortKey::of_key(key))
}

fn draw(frame: &mut Frame<'_>, view: &TopView, sample: &Snapshot) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    const TITLE: &str = "kiln top  (q ends; processes by m memory, b busy, p pid, n name)";
    const SHORT: &str = "kiln top  (q ends; order m b p n)";
    let title = if usize::from(head.width) < TITLE.len() { SHORT } else { TITLE };
    let title = Line::styled(title, Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Paragraph::new(title), head);
    frame.render_widget(Paragraph::new(view.lines(sample)), body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn empty() -> Snapshot {
        Snapshot { time: 0.0, gpus: Vec::new(), npus: Vec::new(), kilns: Vec::new() }
    }

    #[test]
    fn any_size_of_terminal_is_drawn_on() {
        for (width, height) in [(1, 1), (3, 2), (80, 24), (400, 3)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &TopView::default(), &empty())).unwrap();
        }
        let mut terminal = Terminal::new(TestBackend::new(40, 4)).unwrap();
        terminal.draw(|frame| draw(frame, &TopView::default(), &empty())).unwrap();
        let text = terminal.backend().to_string();
        assert!(text.contains("kiln top") && text.contains("no Kiln is running"), "{text}");
    }

    #[test]
    fn what_a_terminal_says_of_its_size_is_not_always_believed() {
        assert_eq!(drawn(Ok((1, 1))), Rect::new(0, 0, 1, 1));
        assert_eq!(drawn(Ok((200, 50))), Rect::new(0, 0, 200, 50));
        assert_eq!(drawn(Ok((65535, 65535))), Rect::new(0, 0, 1000, 500));
        assert_eq!(drawn(Ok((0, 24))), USUAL);
        assert_eq!(drawn(Err(ErrorKind::Other.into())), USUAL);
    }

    #[test]
    fn q_escape_and_ctrl_c_end_it_and_nothing_else() {
        for pressed in [&b"q"[..], b"\x1b", b"\x03", b"xq"] {
            assert!(is_end(pressed), "{pressed:?}");
        }
        for pressed in [&b"c"[..], b"\x1b[A", b"\x1bq", b"Q", "ä".as_bytes()] {
            assert!(!is_end(pressed), "{pressed:?}");
        }
        assert_eq!(order_of(b"mxb"), Some(SortKey::Busy));
        assert_eq!((order_of(b"\x1bm"), order_of(b"x")), (None, None));
    }
}
