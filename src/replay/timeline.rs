//! Records when the device and the offload work on a pass.

use super::Replay;
use super::driver::{Driver, Stamps};
use super::passes::OffloadPiece;
use crate::Result;
use crate::error::{Error, Setting, text};
use crate::executor::{EngineKind, EngineSpan, HeadRows, Row};
use std::time::Instant;

/// A step of an offload with its start and end.
pub(super) struct OffloadSpan {
    pub piece: OffloadPiece,
    pub start: Instant,
    pub end: Instant,
}

impl<D: Driver> Replay<D> {
    /// Runs a pass's embedding and layers once to warm up, and once more to record the engines' spans.
    ///
    /// # Errors
    /// As [`crate::executor::Measure::timeline`].
    pub(super) fn time_engines(&mut self, rows: &[Row], head: HeadRows) -> Result<Vec<EngineSpan>> {
        let mut ran = None;
        for _ in 0..2 {
            let kind = self.begin(rows, Some(head))?;
            self.handover.spans = Some(Vec::new());
            // The device is idle: it begins at the submit, up to the driver's latency.
            let origin = Instant::now();
            let submitted = self.submit_pieces(kind).and_then(|()| self.queue.drain());
            let offloaded = self.handover.spans.take().unwrap_or_default();
            submitted.inspect_err(|_| self.flight.forget())?;
            ran = Some((kind, origin, offloaded));
        }
        let Some((kind, origin, offloaded)) = ran else { return Ok(Vec::new()) };
        let count = self.flight.rows.len();
        let baked = &mut self.passes.kinds[kind];
        let Some(stamps) = &mut baked.segments.stamps else {
            let remedy = text!("leave out ", Setting::Timeline.the());
            return Err(Error::device("the device's queue has no timestamps to see its work by", remedy));
        };
        stamps.fetch()?;
        let lists: Vec<[f64; 2]> =
            (0..baked.parts.len()).map(|i| [2 * i, 2 * i + 1].map(|s| stamps.seconds(0, s))).collect();
        let device = baked.parts.iter().zip(lists).map(|(part, [start, end])| EngineSpan {
            engine: EngineKind::Device,
            segment: part.segment,
            rows: baked.rows_of(part.half, count),
            start,
            end,
        });
        let since = |moment: Instant| moment.saturating_duration_since(origin).as_secs_f64();
        let offloaded = offloaded.iter().map(|OffloadSpan { piece, start, end }| EngineSpan {
            engine: EngineKind::Offload,
            segment: self.schedule.steps[piece.step].segment,
            rows: baked.rows_of(piece.half, count),
            start: since(*start),
            end: since(*end),
        });
        let mut spans: Vec<EngineSpan> = device.chain(offloaded).collect();
        spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(spans)
    }
}
