//! The interface of every executor: it runs a schedule over the rows of a pass. The executor on a device replays baked
//! lists of commands. The CPU executor and the reference executor interpret the steps ([`host`]). All have the same
//! interface, and their results agree to within rounding. Only benchmarks and tuning use [`measure`].

#[cfg(test)]
pub(crate) mod fake;
pub mod host;
pub mod measure;
pub mod offload;
pub mod pages;
pub mod stepwise;
pub mod weights;
pub(crate) mod zeroed;

pub use crate::schedule::{Row, Tolerance};
pub use measure::{EngineKind, EngineSpan, KernelTiming, Measure, Watch};
pub use pages::{PageId, Pages};
pub use stepwise::Stepwise;

use crate::error::{Setting, text};
use crate::schedule::choice::{SampleRequest, SampleResult};
use crate::schedule::kv::{KvLayer, Pool};
use crate::schedule::layout::{ArenaLayout, StateLayout};
use crate::schedule::rows::{follows, leading_run};
use crate::schedule::step::{Slot, WeightBuffer};
use crate::schedule::{DRAFT_STEPS, Schedule, Segment};
use crate::{Error, Result};
use std::ops::Range;

/// A range of rows of the last pass whose logits are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadRows {
    /// Index of the first head row in the pass.
    pub first: usize,
    /// The number of head rows, at most [`crate::schedule::Extent::head_rows`].
    pub count: usize,
}

/// When the sample requests of a pass come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleTiming {
    /// No sample requests come for this pass.
    Never,
    /// At once: an executor may start the pass with them, which saves a submit.
    AtOnce,
    /// Later: computing them takes so long that the pass starts before.
    Later,
}

/// Work for an executor, in the order in which it runs.
pub enum Submission<'a> {
    /// A pass: every layer over `rows`, and the head over `head` if given. Allocates pages for the rows' positions.
    ///
    /// If [`Submission::Next`] has already started this pass, it goes on. If that started another pass, the executor
    /// waits for it and its results are lost; it has still written keys and values at each row's position.
    Pass {
        /// The rows of the pass, at most [`crate::schedule::Extent::max_rows`].
        rows: &'a [Row],
        /// The rows whose logits are computed; `None` for none.
        head: Option<HeadRows>,
        /// The time at which [`Submission::Samples`] comes for this pass.
        samples: SampleTiming,
    },
    /// The head over other rows of the last pass, whose results are lost.
    Head(HeadRows),
    /// The sample requests of the pass: the closure is called once with each head row and its request, to fill it in
    /// for a row whose token is not its argmax. The pass may be running by then.
    Samples(&'a mut dyn FnMut(usize, &mut SampleRequest<'_>)),
    /// The pass after the submitted one, whose results are not known yet: each row's next token
    /// ([`RowResult::next`]) at the next position, with a head for every row.
    Next {
        /// True if [`Submission::Samples`] will come for this pass.
        samples: bool,
    },
    /// A draft by the schedule's drafter: for each row the `count` tokens after it, one step of the drafter after the
    /// other. [`Executor::result`] then has the i-th token of row r at `i * rows.len() + r`, and the last step's logits
    /// are in the place of the last pass's. Refused if there is no drafter, if a pass is in flight, or if the results
    /// of the last pass are lost.
    Draft {
        /// The rows, each of another sequence, at most [`crate::schedule::Drafter::rows`].
        rows: &'a [DraftRow],
        /// The number of tokens to draft for each row, at most [`DRAFT_STEPS`].
        count: usize,
    },
    /// Goes on with the pass that [`Submission::Next`] has started, whatever tokens were chosen since. Refused if that
    /// pass is not in flight any more, because a page was copied or kernels were tuned.
    Resume,
}

impl<'a> Submission<'a> {
    /// A pass whose tokens the device chooses, without sample requests.
    pub fn pass(rows: &'a [Row], head: Option<HeadRows>) -> Submission<'a> {
        Submission::Pass { rows, head, samples: SampleTiming::Never }
    }
}

/// The row from which a draft starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftRow {
    /// The last token and its position, which no pass has run.
    pub row: Row,
    /// The head row of the last pass that chose this token.
    pub head: usize,
}

/// The result of a head row.
#[derive(Clone, Copy)]
pub struct RowResult<'a> {
    /// The next token: the argmax of the row's logits, or the one token of its sample request if that was found
    /// ([`SampleRequest::set`]).
    pub next: u32,
    /// True if the largest logit is finite. A NaN anywhere in the last layers makes every logit NaN.
    pub is_finite: bool,
    /// The result of the row's sample request. `None` if the row had no request or this executor answers none: then the
    /// host reads the logits.
    pub found: Option<SampleResult<'a>>,
    /// The experts that the row used in the last layer, if it was a head row of its pass; none without a mixture.
    pub experts: &'a [u32],
}

/// A description of an executor's device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceInfo<'a> {
    /// The device's name for the user, with the offload that computes some of its steps.
    pub name: &'a str,
    /// The device's own name, the same with and without an offload.
    pub hardware: &'a str,
    /// True if the executor computes on the CPU, in the host's memory.
    pub is_cpu: bool,
}

/// Bytes to copy between the host and a page of the KV cache, [`crate::schedule::kv::PoolLayout::page_bytes`] long.
pub enum PageCopy<'a> {
    /// Copies bytes of the page to this slice.
    Read(&'a mut [u8]),
    /// Copies this slice to the page.
    Write(&'a [u8]),
}

impl PageCopy<'_> {
    /// The number of bytes to copy.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            PageCopy::Read(bytes) => bytes.len(),
            PageCopy::Write(bytes) => bytes.len(),
        }
    }
}

/// A chunk of a prompt that a pass is to run.
#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    /// The most rows that the chunk may have: those of the prompt that have not run.
    pub most: usize,
    /// The number of the sequence's positions before these rows.
    pub depth: usize,
    /// Rows of other sequences in the pass, if it may have any: then the size with the most rows a second is found.
    pub beside: Option<usize>,
}

/// Runs a schedule. Work is submitted in order, and waited for: at most a pass and the one after it are in flight.
///
/// Work fails with [`Error::Interrupted`] once the flag that the executor was loaded with is set
/// ([`weights::Progress::new`]): between steps on the CPU, between submits on a device, each of which keeps the device
/// busy for half a second at most. The results of the last pass are then lost.
///
/// [`ExecutorExt`] has methods for single passes.
pub trait Executor {
    /// The schedule that this executor runs.
    fn schedule(&self) -> &Schedule;

    /// The name and the kind of the executor's device.
    fn device_info(&self) -> DeviceInfo<'_>;

    /// The executor's pages of the KV cache, and the sequences that have them.
    fn pages(&self) -> &Pages;

    /// The pages of the KV cache, to truncate a sequence or to share pages with another.
    fn pages_mut(&mut self) -> &mut Pages;

    /// Waits for passes in flight, then copies a page of the KV cache. The results of the last pass may be lost.
    ///
    /// # Errors
    /// Input: there is no such page, or the bytes are not as long as a page. Device: the device failed or was lost.
    fn copy_page(&mut self, pool: Pool, page: PageId, copy: PageCopy<'_>) -> Result<()> {
        check_page(self.schedule(), pool, page, copy.len()).and(Err(no_content()))
    }

    /// Starts work. Returns whether it was taken: an executor may refuse [`Submission::Next`] and
    /// [`Submission::Resume`], and [`Submission::Samples`] if it has no sample results.
    ///
    /// # Errors
    /// Input: rows or head rows outside of the schedule's extent. Refused: no page is free. Interrupted: the work was
    /// cancelled. Device: the device failed or was lost.
    fn submit(&mut self, work: Submission<'_>) -> Result<bool>;

    /// Waits for the submitted pass or head. A pass that [`Submission::Next`] has started goes on.
    ///
    /// # Errors
    /// Interrupted: the work was cancelled. Device: the device failed or was lost.
    fn wait(&mut self) -> Result<()>;

    /// The result of head row `row` of the last pass that was waited for.
    fn result(&self, row: usize) -> RowResult<'_>;

    /// Logits of head row `row` of the last pass, `[vocab]`. The first call fetches them from the device.
    ///
    /// # Errors
    /// Input: the last pass has no such head row. Failed: the pass after it has begun. Device: the device failed or was
    /// lost.
    fn logits(&mut self, row: usize) -> Result<&[f32]>;

    /// The number of a chunk's rows for the next pass, at least 1. It is limited by the submit budget: a layer over
    /// more rows would keep the device busy for too long.
    fn chunk(&self, chunk: Chunk) -> usize {
        chunk.most.min(self.schedule().extent.max_rows - chunk.beside.unwrap_or(0)).max(1)
    }
}

/// Single passes on an executor, each of which is waited for, and parts of its answers by name.
pub trait ExecutorExt: Executor {
    /// Runs a pass.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        self.submit(Submission::pass(rows, head))?;
        self.wait()
    }

    /// Runs a pass and starts the next one. Returns whether that one was started.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn forward_ahead(&mut self, rows: &[Row], head: HeadRows) -> Result<bool> {
        self.submit(Submission::pass(rows, Some(head)))?;
        let is_ahead = self.submit(Submission::Next { samples: false })?;
        self.wait()?;
        Ok(is_ahead)
    }

    /// Runs a pass with sample requests. With `ahead`, also starts the next one; returns whether that was started.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn forward_sampling(
        &mut self,
        rows: &[Row],
        head: HeadRows,
        ahead: bool,
        fill: &mut dyn FnMut(usize, &mut SampleRequest<'_>),
    ) -> Result<bool> {
        self.submit(Submission::Pass { rows, head: Some(head), samples: SampleTiming::AtOnce })?;
        self.submit(Submission::Samples(fill))?;
        let is_ahead = ahead && self.submit(Submission::Next { samples: true })?;
        self.wait()?;
        Ok(is_ahead)
    }

    /// Runs the head over other rows of the last pass.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn project(&mut self, head: HeadRows) -> Result<()> {
        self.submit(Submission::Head(head))?;
        self.wait()
    }

    /// Copies a page of the KV cache to `bytes`.
    ///
    /// # Errors
    /// As [`Executor::copy_page`].
    fn read_page(&mut self, pool: Pool, page: PageId, bytes: &mut [u8]) -> Result<()> {
        self.copy_page(pool, page, PageCopy::Read(bytes))
    }

    /// Sets the content of a page to `bytes` from [`ExecutorExt::read_page`].
    ///
    /// # Errors
    /// As [`Executor::copy_page`].
    fn write_page(&mut self, pool: Pool, page: PageId, bytes: &[u8]) -> Result<()> {
        self.copy_page(pool, page, PageCopy::Write(bytes))
    }

    /// [`RowResult::next`] of a head row.
    fn next(&self, row: usize) -> u32 {
        self.result(row).next
    }

    /// [`RowResult::is_finite`] of a head row.
    fn is_finite(&self, row: usize) -> bool {
        self.result(row).is_finite
    }

    /// [`RowResult::found`] of a head row.
    fn found(&self, row: usize) -> Option<SampleResult<'_>> {
        self.result(row).found
    }

    /// The most rows of a chunk that begins a sequence.
    fn prefill_rows(&self) -> usize {
        self.rows_at(0)
    }

    /// The most rows of a chunk after `depth` positions.
    fn rows_at(&self, depth: usize) -> usize {
        self.chunk(Chunk { most: usize::MAX, depth, beside: None })
    }

    /// [`DeviceInfo::name`] of the device.
    fn device(&self) -> &str {
        self.device_info().name
    }

    /// [`DeviceInfo::hardware`] of the device.
    fn hardware(&self) -> &str {
        self.device_info().hardware
    }

    /// [`DeviceInfo::is_cpu`] of the device.
    fn is_on_cpu(&self) -> bool {
        self.device_info().is_cpu
    }
}

impl<E: Executor + ?Sized> ExecutorExt for E {}

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
#[inline]
pub fn check_head(schedule: &Schedule, rows: usize, head: HeadRows) -> Result<()> {
    let (most, end) = (schedule.extent.head_rows, head.first + head.count);
    match head.count > 0 && head.count <= most && end <= rows {
        true => Ok(()),
        false => Err(wrong_head(head.first..end, rows, most)),
    }
}

#[cold]
fn wrong_head(head: Range<usize>, rows: usize, most: usize) -> Error {
    let cause = format!("head rows {head:?} are not within a pass of {rows}, {most} at a time");
    Error::input(cause, "ask for fewer rows at a time")
}

/// Checks a draft against the schedule and the pages. `Ok(false)`: the state that a row begins with is lost; `states`
/// are the head rows of the last pass, if its results are there.
///
/// # Errors
/// Input, naming the limit.
pub fn check_draft(
    schedule: &Schedule,
    pages: &Pages,
    rows: &[DraftRow],
    count: usize,
    states: Option<HeadRows>,
) -> Result<bool> {
    let Some(drafter) = &schedule.drafter else { return Ok(false) };
    let (most, wrong) = (drafter.rows, |cause: String| Err(Error::input(cause, "report this")));
    if !(1..=most).contains(&rows.len()) || !(1..=DRAFT_STEPS).contains(&count) {
        return wrong(format!("a draft of {count} tokens for {} rows, {DRAFT_STEPS} for {most} at most", rows.len()));
    }
    for DraftRow { row, .. } in rows {
        let (sequence, position) = (row.sequence as usize, row.position as usize);
        let is_known = sequence < schedule.extent.sequences && (row.token as usize) < schedule.shape.vocab;
        if !is_known || position == 0 || !pages.holds(sequence, &(position - 1..position)) {
            return wrong(format!("a draft after token {} at position {}", row.token, row.position));
        }
    }
    Ok(states.is_some_and(|states| rows.iter().all(|row| row.head < states.count)))
}

/// Writes a draft's rows into the step state: as a pass at the last cached positions, all of whose rows are head rows.
/// `words` as for [`write_pass`]; `states` as for [`check_draft`].
pub fn write_draft(words: &mut [u32], layout: StateLayout, rows: &[DraftRow], states: HeadRows) {
    words[StateLayout::ROWS] = rows.len() as u32;
    words[StateLayout::CHUNK] = 1;
    let [tokens, positions, sequences] = layout.rows_mut(words);
    for (i, DraftRow { row, .. }) in rows.iter().enumerate() {
        (tokens[i], positions[i], sequences[i]) = (row.token, row.position - 1, row.sequence);
    }
    for (i, DraftRow { row, head }) in rows.iter().enumerate() {
        words[layout.ahead() + i] = row.position;
        words[layout.source() + i] = (states.first + head) as u32;
    }
    write_head(words, HeadRows { first: 0, count: rows.len() });
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
#[inline]
pub fn write_pass(words: &mut [u32], layout: StateLayout, rows: &[Row], head: Option<HeadRows>) {
    words[StateLayout::EXPERT_ROWS] = (layout.used_experts * rows.len()) as u32;
    words[StateLayout::CHUNK] = if rows.len() == 1 { 1 } else { leading_run(rows) as u32 };
    words[StateLayout::ROWS] = rows.len() as u32;
    let [tokens, positions, sequences] = layout.rows_mut(words);
    for (i, row) in rows.iter().enumerate() {
        (tokens[i], positions[i], sequences[i]) = (row.token, row.position, row.sequence);
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
#[inline]
pub fn write_head(words: &mut [u32], head: HeadRows) {
    words[StateLayout::HEAD_FIRST] = head.first as u32;
    words[StateLayout::HEAD_ROWS] = head.count as u32;
}

/// The arena's words that hold the head rows' sample requests. Only the choice reads them; no step writes them.
pub fn asks_in(schedule: &Schedule) -> Range<usize> {
    let (ask, allowed) = (schedule.ask, schedule.allowed);
    (ask.offset / 4) as usize..(allowed.row(schedule.extent.head_rows - 1) / 4) as usize + allowed.width
}

/// Lets `fill` ([`Submission::Samples`]) write the head rows' sample requests, and sets `asked` for each row that has
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

/// A row of a slot in the arena as [`slot_row`] finds it, for writing.
pub fn slot_row_mut(arena: &mut [f32], slot: Slot, row: usize) -> &mut [f32] {
    let at = (slot.row(row) / 4) as usize;
    &mut arena[at..at + slot.width]
}

/// Index into [`crate::schedule::layout::WeightLayout::buffers`] of the buffer with a segment's matrices.
pub fn segment_buffer(schedule: &Schedule, segment: Segment) -> usize {
    let buffer = match segment {
        Segment::Draft => WeightBuffer::Drafter,
        Segment::Embed => WeightBuffer::Embedding,
        Segment::Layer(i) => WeightBuffer::Layer(i),
        Segment::Head | Segment::Choice => schedule.weights.head.buffer,
    };
    schedule.weights.index(buffer)
}

/// The row that a [`Watch`] sees after `segment`.
pub fn watched_row<'a>(schedule: &Schedule, arena: &'a [f32], segment: Segment, rows: usize) -> &'a [f32] {
    match segment {
        Segment::Head | Segment::Choice | Segment::Draft => slot_row(arena, schedule.normed, 0),
        _ => slot_row(arena, schedule.residual, rows - 1),
    }
}
