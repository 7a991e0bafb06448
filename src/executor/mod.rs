//! The interface of every executor: it runs a schedule over the rows of a pass. The executor on a device replays baked
//! lists of commands. The CPU executor and the reference executor interpret the steps ([`host`]). All have the same
//! interface, and their results agree to within rounding. Only benchmarks and tuning use [`measure`].

pub mod guest;
pub mod host;
pub mod measure;
pub mod pages;
pub mod stepwise;
pub mod weights;
pub(crate) mod zeroed;

pub use crate::schedule::{Row, Tolerance};
pub use measure::{EngineKind, EngineSpan, KernelTiming, Measure};
pub use pages::{PageId, Pages};
pub use stepwise::Stepwise;

use crate::error::{Setting, text};
use crate::executor::guest::{GuestReport, PlacementTiming};
use crate::schedule::choice::{SampleRequest, SampleResult};
use crate::schedule::kv::{KvLayer, Pool};
use crate::schedule::layout::{ArenaLayout, StateLayout};
use crate::schedule::rows::{follows, leading_run};
use crate::schedule::step::{Slot, WeightBuffer};
use crate::schedule::{Schedule, Segment};
use crate::{Error, Result};
use std::ops::Range;
use std::time::Duration;

/// A range of rows of the last pass whose logits are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadRows {
    /// Index of the first head row in the pass.
    pub first: usize,
    /// Number of head rows, at most [`crate::schedule::Extent::head_rows`].
    pub count: usize,
}

/// Called after each segment of a watched pass with the residual stream of the pass's last row, `[hidden]`. After the head
/// it is the final norm's output for the first head row.
pub type Watch<'a> = &'a mut dyn FnMut(Segment, &[f32]);

/// The sample requests of a pass's head rows.
pub struct SampleRequests<'a> {
    /// Called with each head row and its sample request, to fill it in for a row whose token is not its argmax.
    pub fill: &'a mut dyn FnMut(usize, &mut SampleRequest<'_>),
    /// Whether `fill` takes so long that the pass should begin before it, at the cost of one more submit.
    pub is_slow: bool,
    /// Whether the next pass may start before the host has chosen, as by [`Executor::forward_ahead`], with each row's
    /// [`Executor::next`] as its token. No choice may need logits then. The caller runs a row again if it chooses
    /// another token.
    pub may_run_ahead: bool,
    /// Called once the pass is under way, if the executor can: its work costs the device no time.
    pub meanwhile: &'a mut dyn FnMut(),
}

/// Runs a schedule.
///
/// An executor that wraps another one and forwards the calls that start passes ahead also forwards
/// [`Executor::is_ahead`].
///
/// A pass fails with [`Error::Interrupted`] once the flag that the executor was loaded with is set
/// ([`weights::Progress::new`]): between steps on the CPU, between submits on a device, each of which keeps the device
/// busy for half a second at most. The results of the last pass are then lost.
pub trait Executor {
    /// The schedule that this executor runs.
    fn schedule(&self) -> &Schedule;

    /// The device's name for the user, with the guest that attends in its place.
    fn device(&self) -> &str;

    /// The device's own name, the same with and without a guest.
    fn hardware(&self) -> &str {
        self.device()
    }

    /// Whether it computes on the CPU, in the host's memory.
    fn is_on_cpu(&self) -> bool {
        false
    }

    /// The state of the guest that attends in the device's place; `None` if there never was one.
    fn guest(&self) -> Option<GuestReport> {
        None
    }

    /// The measurements by which attention was placed; empty without any.
    fn placements(&self) -> &[PlacementTiming] {
        &[]
    }

    /// The pages of the KV cache.
    fn pages(&self) -> &Pages;

    /// The pages of the KV cache, to truncate a sequence or to share pages with another.
    fn pages_mut(&mut self) -> &mut Pages;

    /// Waits for passes in flight, then copies a page of the KV cache to `bytes`, which are
    /// [`crate::schedule::kv::PoolLayout::page_bytes`] long. The results of the last pass may be lost.
    ///
    /// # Errors
    /// Input: there is no such page, or `bytes` are not as long as a page. Device: the device failed or was lost.
    fn read_page(&mut self, pool: Pool, page: PageId, bytes: &mut [u8]) -> Result<()> {
        check_page(self.schedule(), pool, page, bytes.len()).and(Err(no_content()))
    }

    /// Sets the content of a page to `bytes` from [`Executor::read_page`].
    ///
    /// # Errors
    /// As [`Executor::read_page`].
    fn write_page(&mut self, pool: Pool, page: PageId, bytes: &[u8]) -> Result<()> {
        check_page(self.schedule(), pool, page, bytes.len()).and(Err(no_content()))
    }

    /// Runs every layer over `rows`, then the head over `head` if given. Allocates pages for the rows' positions.
    ///
    /// # Errors
    /// Input: rows or head rows outside of the schedule's extent. Refused: no page is free. Interrupted: the pass was
    /// cancelled. Device: the device failed or was lost.
    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()>;

    /// Runs this pass and may start the next one with each row's next token. If the next call is for another pass, the
    /// started one is discarded.
    ///
    /// The discarded pass has still written keys and values at each row's next position. While the next pass runs,
    /// [`Executor::next`] and [`Executor::is_finite`] return this pass's results; [`Executor::logits`] and
    /// [`Executor::project`] fail.
    ///
    /// # Errors
    /// As [`Executor::forward`].
    fn forward_ahead(&mut self, rows: &[Row], head: HeadRows) -> Result<()> {
        self.forward(rows, Some(head))
    }

    /// Whether the next pass was already started, by [`Executor::forward_ahead`] or under
    /// [`SampleRequests::may_run_ahead`].
    fn is_ahead(&self) -> bool {
        false
    }

    /// [`Executor::forward`] that also answers the head rows' sample requests `asks` ([`Executor::found`]). An executor
    /// without sample results only runs the pass.
    ///
    /// # Errors
    /// As [`Executor::forward`].
    fn forward_choosing(&mut self, rows: &[Row], head: HeadRows, asks: SampleRequests<'_>) -> Result<()> {
        (asks.meanwhile)();
        self.forward(rows, Some(head))
    }

    /// The sample result of head row `row` of the last pass. `None` if the row had no request or this executor answers
    /// none: then the host reads the logits.
    fn found(&self, row: usize) -> Option<SampleResult<'_>> {
        let _ = row;
        None
    }

    /// Runs the head over other rows of the last pass.
    ///
    /// # Errors
    /// As [`Executor::forward`].
    fn project(&mut self, head: HeadRows) -> Result<()>;

    /// [`Executor::forward`] segment by segment. `watch` is called with each segment's output.
    ///
    /// # Errors
    /// As [`Executor::forward`].
    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, watch: Watch<'_>) -> Result<()>;

    /// The next token of head row `row` of the last pass: the argmax of its logits, or the one token of its sample
    /// request if that was found ([`SampleRequest::set`]).
    fn next(&self, row: usize) -> u32;

    /// Whether the largest logit of head row `row` is finite. A NaN anywhere in the last layers makes every logit NaN.
    fn is_finite(&self, row: usize) -> bool;

    /// Logits of head row `row` of the last pass, `[vocab]`. The first call fetches them from the device.
    ///
    /// # Errors
    /// Input: the last pass has no such head row. Device: the device failed or was lost.
    fn logits(&mut self, row: usize) -> Result<&[f32]>;

    /// The most prompt rows for one pass. Shrinks when a layer over that many rows keeps the device busy for longer
    /// than the submit budget.
    fn prefill_rows(&self) -> usize {
        self.schedule().extent.max_rows
    }

    /// [`Executor::prefill_rows`] after `depth` positions: attention of a whole chunk may take too long there.
    fn rows_at(&self, depth: usize) -> usize {
        let _ = depth;
        self.prefill_rows()
    }

    /// Works for some tens of milliseconds on making later passes faster: call it between passes while the executor is
    /// idle. The results of the last pass are lost; the KV cache stays. Returns the time to wait before the next call;
    /// `None` if no work is left.
    ///
    /// # Errors
    /// Interrupted: the work was cancelled. Device: the device failed or was lost.
    fn improve(&mut self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// The number of a prompt's next rows, 1 to `most`, for a pass with `beside` rows of other sequences: the number
    /// with the most rows a second.
    fn chunk_rows(&self, most: usize, beside: usize) -> usize {
        let _ = beside;
        most
    }
}

/// Checks a pass against the schedule's extent.
///
/// # Errors
/// Input, naming the row and the limit.
pub fn check_pass(schedule: &Schedule, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
    let e = &schedule.extent;
    if rows.is_empty() || rows.len() > e.max_rows {
        return Err(Error::input(
            format!("a pass of {} rows is not in 1..={}", rows.len(), e.max_rows),
            "split it into chunks of that size",
        ));
    }
    for r in rows {
        if r.token as usize >= schedule.shape.vocab {
            return Err(Error::input(
                format!("token id {} is outside of the vocabulary of {}", r.token, schedule.shape.vocab),
                "use ids from this model's tokenizer",
            ));
        }
        if r.position as usize >= e.context || r.sequence as usize >= e.sequences {
            return Err(Error::input(
                format!(
                    "position {} of sequence {} is past the context of {} or the {} sequences",
                    r.position, r.sequence, e.context, e.sequences
                ),
                "shorten the prompt, or ask for a larger context or more sequences",
            ));
        }
    }
    head.map_or(Ok(()), |h| check_head(schedule, rows.len(), h))
}

/// Checks head rows against the last pass and the schedule's extent.
///
/// # Errors
/// Input, naming the limit.
pub fn check_head(schedule: &Schedule, rows: usize, head: HeadRows) -> Result<()> {
    if head.count == 0 || head.count > schedule.extent.head_rows || head.first + head.count > rows {
        return Err(Error::input(
            format!(
                "head rows {}..{} are not within a pass of {rows}, {} at a time",
                head.first,
                head.first + head.count,
                schedule.extent.head_rows
            ),
            "ask for fewer rows at a time",
        ));
    }
    Ok(())
}

/// Checks that the last pass made logits for head row `row`.
///
/// # Errors
/// Input, naming the row.
pub fn check_logits(row: usize, head_rows: usize) -> Result<()> {
    if row < head_rows {
        return Ok(());
    }
    Err(Error::input(format!("the last pass made {head_rows} rows of logits, not row {row}"), "ask for one of them"))
}

/// Checks that a pool has a page, and that `bytes` is a page's size.
///
/// # Errors
/// Input, naming both.
pub fn check_page(schedule: &Schedule, pool: Pool, page: PageId, bytes: usize) -> Result<()> {
    let layout = schedule.kv.pool(pool);
    if (page as usize) < layout.pages && bytes as u64 == layout.page_bytes {
        return Ok(());
    }
    let cause = format!(
        "{bytes} B of page {page} are asked for, and the pool has {} pages of {} B",
        layout.pages, layout.page_bytes
    );
    Err(Error::input(cause, "report this"))
}

/// Checks that a pool has a page, and that a layer's part of it has `bytes` bytes. Returns the part's range within the
/// page, in bytes.
///
/// # Errors
/// As [`check_page`].
pub fn page_part(schedule: &Schedule, layer: &KvLayer, page: PageId, bytes: usize) -> Result<Range<usize>> {
    let part = layer.elements() * layer.element.bytes();
    check_page(schedule, layer.pool, page, schedule.kv.pool(layer.pool).page_bytes as usize)?;
    if bytes != part {
        return Err(Error::input(format!("a layer's part of a page is {part} B, not {bytes} B"), "report this"));
    }
    Ok(layer.place * part..(layer.place + 1) * part)
}

/// The error of an executor without a KV cache that can be read.
fn no_content() -> Error {
    Error::failed("this executor keeps no keys and values", "report this")
}

/// Writes a pass's rows and head rows into the step state. `words` is the arena from its start, at least
/// `layout.words()` long.
pub fn write_pass(words: &mut [u32], layout: StateLayout, rows: &[Row], head: Option<HeadRows>) {
    words[StateLayout::ROWS] = rows.len() as u32;
    words[StateLayout::CHUNK] = if rows.len() == 1 { 1 } else { leading_run(rows) as u32 };
    let (token, position, sequence) = (layout.token(), layout.position(), layout.sequence());
    for (i, r) in rows.iter().enumerate() {
        words[token + i] = r.token;
        words[position + i] = r.position;
        words[sequence + i] = r.sequence;
    }
    write_head(words, head.unwrap_or(HeadRows { first: 0, count: 0 }));
}

/// Checks a pass as [`check_pass`] does, and allocates the pages that its rows lack.
///
/// # Errors
/// As [`check_pass`]. Refused, naming the sequence: no page is free.
#[inline]
pub fn admit_pass(schedule: &Schedule, pages: &mut Pages, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
    // A position that has a page is within the context, and its sequence is one of the executor's.
    let is_ready = |row: &Row| {
        (row.token as usize) < schedule.shape.vocab && pages.is_ready(row.sequence as usize, row.position as usize)
    };
    match (1..=schedule.extent.max_rows).contains(&rows.len()) && rows.iter().all(is_ready) {
        true => head.map_or(Ok(()), |h| check_head(schedule, rows.len(), h)),
        false => check_pass(schedule, rows, head).and_then(|()| take_missing_pages(pages, rows)),
    }
}

#[cold]
fn take_missing_pages(pages: &mut Pages, rows: &[Row]) -> Result<()> {
    // Rows of one sequence together: a page that an early row sees is not released for a later one.
    for run in rows.chunk_by(|a, b| follows(*a, *b)) {
        let (sequence, position) = (run[0].sequence as usize, run[0].position as usize);
        pages.extend(sequence, position..position + run.len()).map_err(|_| {
            Error::refused(
                format!("no page of the KV cache is free for position {position} of sequence {sequence}"),
                text!("end another sequence, or use a smaller ", Setting::Context),
            )
        })?;
    }
    Ok(())
}

/// Writes an entry for each page of each table, so that a kernel measured before any page is allocated reads valid
/// memory. `words` and `start` as for [`write_tables`].
pub fn fill_tables(words: &mut [u32], schedule: &Schedule, start: impl Fn(Pool, usize) -> u64) {
    for pool in Pool::ALL {
        let (table, pages) = (schedule.arena.tables[pool as usize], schedule.kv.pool(pool).pages);
        for entry in 0..schedule.extent.sequences * table.entries {
            let at = table.word(entry / table.entries, entry % table.entries);
            let start = start(pool, entry % pages.max(1));
            (words[at], words[at + 1]) = (start as u32, (start >> 32) as u32);
        }
    }
}

/// Writes the changed entries of the page tables. `words` is the arena from its start; `start` gives the address of a
/// page.
#[inline]
pub fn write_tables(words: &mut [u32], arena: &ArenaLayout, pages: &mut Pages, start: impl Fn(Pool, usize) -> u64) {
    if !pages.have_changed() {
        return;
    }
    for change in pages.take_changes() {
        let at = arena.tables[change.pool as usize].word(change.sequence, change.number);
        let start = start(change.pool, change.page as usize);
        (words[at], words[at + 1]) = (start as u32, (start >> 32) as u32);
    }
}

/// Writes the head rows into the step state.
pub fn write_head(words: &mut [u32], head: HeadRows) {
    words[StateLayout::HEAD_FIRST] = head.first as u32;
    words[StateLayout::HEAD_ROWS] = head.count as u32;
}

/// The arena's words that hold the head rows' sample requests. Only the choice reads them; no step writes them.
pub fn asks_in(schedule: &Schedule) -> Range<usize> {
    let (ask, allowed) = (schedule.ask, schedule.allowed);
    (ask.offset / 4) as usize..(allowed.row(schedule.extent.head_rows - 1) / 4) as usize + allowed.width
}

/// Lets `fill` ([`SampleRequests::fill`]) write the head rows' sample requests, and sets `asked` for each row that has
/// one. `words` is the part of the arena given by [`asks_in`].
pub fn write_asks(
    words: &mut [u32],
    schedule: &Schedule,
    head: HeadRows,
    fill: &mut dyn FnMut(usize, &mut SampleRequest<'_>),
    asked: &mut [bool],
) {
    let (ask, allowed) = (schedule.ask, schedule.allowed);
    let (asks_words, sets) = words.split_at_mut(((allowed.offset - ask.offset) / 4) as usize);
    asked.fill(false);
    for (row, asked) in asked.iter_mut().enumerate().take(head.count) {
        let words = &mut asks_words[((ask.row(row) - ask.offset) / 4) as usize..][..ask.width];
        let allowed = &mut sets[((allowed.row(row) - allowed.offset) / 4) as usize..][..allowed.width];
        let mut ask = SampleRequest::new(words, allowed);
        fill(row, &mut ask);
        *asked = ask.is_set();
    }
}

/// A slot's row within the arena seen as f32.
pub fn slot_row(arena: &[f32], slot: Slot, row: usize) -> &[f32] {
    let at = (slot.row(row) / 4) as usize;
    &arena[at..at + slot.width]
}

/// [`slot_row`] for writing.
pub fn slot_row_mut(arena: &mut [f32], slot: Slot, row: usize) -> &mut [f32] {
    let at = (slot.row(row) / 4) as usize;
    &mut arena[at..at + slot.width]
}

/// Index into [`crate::schedule::layout::WeightLayout::buffers`] of the buffer with a segment's matrices.
pub fn segment_buffer(schedule: &Schedule, segment: Segment) -> usize {
    let buffer = match segment {
        Segment::Embed => WeightBuffer::Embedding,
        Segment::Layer(i) => WeightBuffer::Layer(i),
        Segment::Head | Segment::Choice => schedule.weights.head.buffer,
    };
    schedule.weights.index(buffer)
}

/// The row that a [`Watch`] sees after `segment`.
pub fn watched_row<'a>(schedule: &Schedule, arena: &'a [f32], segment: Segment, rows: usize) -> &'a [f32] {
    match segment {
        Segment::Head | Segment::Choice => slot_row(arena, schedule.normed, 0),
        _ => slot_row(arena, schedule.residual, rows - 1),
    }
}
