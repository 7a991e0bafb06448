//! The activity of the engines during a pass: the device, and the offload that attends in its place.

use crate::executor::{EngineKind, EngineSpan};
use crate::schedule::Segment;
use std::ops::Range;

/// The number of layers that [`EngineTimeline::window`] shows.
const SHOWN: usize = 3;

/// A pass's spans, and the shares of its time in which engines worked.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineTimeline {
    /// The spans of all engines, in the order of their starts.
    pub spans: Vec<EngineSpan>,
    /// Seconds from the first start to the last end.
    pub seconds: f64,
    /// Share of the time in which the device works.
    pub device: f64,
    /// Share of the time in which an offload works.
    pub offload: f64,
    /// Share of the time in which both work.
    pub both: f64,
}

impl EngineTimeline {
    /// The timeline of these spans; `None` if none of them takes time.
    pub fn of(mut spans: Vec<EngineSpan>) -> Option<EngineTimeline> {
        spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        let start = spans.first()?.start;
        let seconds = spans.iter().map(|span| span.end).fold(start, f64::max) - start;
        if seconds <= 0.0 {
            return None;
        }
        let engines = [EngineKind::Device, EngineKind::Offload].map(|engine| at_work(&spans, engine));
        let [device, offload] = [&engines[0], &engines[1]].map(|ranges| length(ranges) / seconds);
        let both = engines[0].iter().flat_map(|a| engines[1].iter().map(|b| overlap(a, b))).sum::<f64>() / seconds;
        Some(EngineTimeline { spans, seconds, device, offload, both })
    }

    /// The layers in the middle of the pass, at most three, and the time from the first start in them to the last end.
    pub fn window(&self) -> Option<(Range<usize>, Range<f64>)> {
        let layer = |span: &EngineSpan| match span.segment {
            Segment::Layer(layer) => Some(layer),
            _ => None,
        };
        let layers = self.spans.iter().filter_map(layer).max()? + 1;
        let shown = layers.min(SHOWN);
        let first = (layers - shown) / 2;
        let of = || self.spans.iter().filter(|span| layer(span).is_some_and(|l| (first..first + shown).contains(&l)));
        let start = of().map(|span| span.start).fold(f64::INFINITY, f64::min);
        let end = of().map(|span| span.end).fold(0.0, f64::max);
        (start < end).then_some((first..first + shown, start..end))
    }

    /// Divides a time into `columns` equal parts, and returns for each the share in which an engine works.
    pub fn columns(&self, engine: EngineKind, time: Range<f64>, columns: usize) -> Vec<f64> {
        let width = (time.end - time.start) / columns as f64;
        let at_work = at_work(&self.spans, engine);
        let of = |column: usize| {
            let start = time.start + column as f64 * width;
            at_work.iter().map(|range| overlap(range, &(start..start + width))).sum::<f64>() / width
        };
        (0..columns).map(of).collect()
    }
}

/// The times in which an engine works, as ranges that do not overlap. `spans` is sorted by start.
fn at_work(spans: &[EngineSpan], engine: EngineKind) -> Vec<Range<f64>> {
    let mut ranges: Vec<Range<f64>> = Vec::new();
    for span in spans.iter().filter(|span| span.engine == engine) {
        match ranges.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => ranges.push(span.start..span.end),
        }
    }
    ranges
}

fn length(ranges: &[Range<f64>]) -> f64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn overlap(a: &Range<f64>, b: &Range<f64>) -> f64 {
    (a.end.min(b.end) - a.start.max(b.start)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(engine: EngineKind, layer: usize, time: Range<f64>) -> EngineSpan {
        EngineSpan { engine, segment: Segment::Layer(layer), rows: 0..1, start: time.start, end: time.end }
    }

    #[test]
    fn a_timeline_counts_the_time_in_which_each_engine_works_and_both_do() {
        let spans = vec![
            span(EngineKind::Offload, 0, 2.0..4.0),
            span(EngineKind::Device, 0, 0.0..2.0),
            span(EngineKind::Device, 0, 3.0..5.0),
            span(EngineKind::Device, 0, 4.5..6.0),
            span(EngineKind::Offload, 1, 7.0..8.0),
        ];
        let timeline = EngineTimeline::of(spans).unwrap();
        let EngineTimeline { seconds, device, offload, both, .. } = timeline;
        assert_eq!((seconds, device, offload, both), (8.0, 5.0 / 8.0, 3.0 / 8.0, 1.0 / 8.0));
        assert!(timeline.spans.is_sorted_by(|a, b| a.start <= b.start));
        assert_eq!(timeline.columns(EngineKind::Offload, 0.0..8.0, 4), [0.0, 1.0, 0.0, 0.5]);
        assert_eq!(timeline.columns(EngineKind::Device, 2.0..4.0, 2), [0.0, 1.0]);
        assert_eq!(timeline.window(), Some((0..2, 0.0..8.0)));
        assert_eq!(EngineTimeline::of(Vec::new()), None);
    }

    #[test]
    fn a_window_is_in_the_middle_of_the_pass() {
        let spans = (0..10).map(|layer| span(EngineKind::Device, layer, layer as f64..layer as f64 + 0.5)).collect();
        assert_eq!(EngineTimeline::of(spans).unwrap().window(), Some((3..6, 3.0..5.5)));
        let embed = EngineSpan { segment: Segment::Embed, ..span(EngineKind::Device, 0, 0.0..1.0) };
        assert_eq!(EngineTimeline::of(vec![embed]).unwrap().window(), None);
    }
}
