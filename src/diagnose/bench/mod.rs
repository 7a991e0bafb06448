//! The bench: rates of a model on a device, each relative to the measured ceilings of memory and matrix units.

mod drafts;
pub mod kernels;
pub mod measure;
pub mod profile;
pub mod roof;
pub mod stats;
pub mod timeline;
pub mod usage;

pub use drafts::Stated;
pub use kernels::KernelTime;
pub use measure::{Bench, BenchLine};
pub use profile::LayerTime;
pub use roof::{Ceilings, MeasuredRates};
pub use stats::Sample;
pub use timeline::EngineTimeline;

use crate::error::{Setting, Text, text};
use crate::model::Shape;
use crate::{Error, Result};

/// The most repetitions of a line. The figures of each take memory.
const MOST_REPETITIONS: usize = 1_000_000;

/// Settings of the bench: every prefill and every decode is measured at every depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchSettings {
    /// The lengths of prompts whose prefill is measured; empty for none.
    pub prefill: Vec<usize>,
    /// Tokens that each sequence decodes in a repetition; 0 for no decode.
    pub decode: usize,
    /// The numbers of sequences that decode together, each measured by itself.
    pub batch: Vec<usize>,
    /// Rows per pass of one sequence; a repetition has `decode` passes.
    pub rows: Vec<usize>,
    /// Other sequences with a row each in additional passes of these rows.
    pub beside: usize,
    /// The drafts with which decoding of one sequence is measured.
    pub drafts: Vec<Stated>,
    /// Positions already in the cache when timing starts.
    pub depth: Vec<usize>,
    /// The number of timed repetitions of each line.
    pub repetitions: usize,
}

/// The work that one line times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A prompt of this many tokens, in chunks.
    Prefill(usize),
    /// Repetitions of the same pass, with `rows` rows of one sequence and one row for each of `beside` others, and the
    /// logits of the last row and of the others. It gives the time of a prompt's chunk, of a draft's verification, or
    /// of a mixed pass at a depth.
    Rows {
        /// The number of rows of the prompt's sequence.
        rows: usize,
        /// The number of other sequences in each pass.
        beside: usize,
        /// The number of passes.
        passes: usize,
    },
    /// Each of `sequences` decodes `tokens` tokens. One pass makes one token of every sequence.
    Decode {
        /// The number of sequences.
        sequences: usize,
        /// The number of tokens that each sequence decodes.
        tokens: usize,
    },
    /// Each of `sequences` decodes `tokens` tokens with drafts. A pass gives one token of every sequence, and the
    /// accepted drafted tokens.
    Draft {
        /// The drafts that passes verify.
        stated: Stated,
        /// The number of sequences.
        sequences: usize,
        /// The number of tokens that each sequence decodes.
        tokens: usize,
    },
}

/// The work and the depth that one line measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The work that is timed.
    pub work: Work,
    /// The number of positions that are in the cache before the work.
    pub depth: usize,
}

impl Case {
    /// The line's name in tables and errors.
    pub fn name(&self) -> String {
        let depth = if self.depth > 0 { format!(" at depth {}", self.depth) } else { String::new() };
        match self.work {
            Work::Prefill(tokens) => format!("prefill {tokens}{depth}"),
            Work::Rows { rows, beside: 0, .. } => format!("{rows} rows of one sequence{depth}"),
            Work::Rows { rows, beside, .. } => format!("{rows} rows of one sequence beside {beside}{depth}"),
            Work::Decode { sequences: 1, .. } => format!("decode{depth}"),
            Work::Decode { sequences, .. } => format!("decode x {sequences}{depth}"),
            Work::Draft { stated: Stated { drafted, right }, sequences, .. } => {
                let share = f64::from(right) / 1000.0;
                let drafted = drafted.map_or("drafted as it pays".into(), |drafted| format!("{drafted} drafted"));
                let several = if sequences > 1 { format!(" x {sequences}") } else { String::new() };
                format!("decode{several}, {drafted}, each right with a stated {share}{depth}")
            }
        }
    }

    /// The number of sequences; each has one row of logits.
    fn sequences(&self) -> usize {
        match self.work {
            Work::Prefill(_) => 1,
            Work::Rows { beside, .. } => 1 + beside,
            Work::Decode { sequences, .. } | Work::Draft { sequences, .. } => sequences,
        }
    }
}

/// The numbers of a list in ascending order, each once.
pub fn ascending(list: &[usize]) -> Vec<usize> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list.dedup();
    list
}

impl BenchSettings {
    /// The lines to measure, shallow ones first, so that each prefill continues the one before.
    pub fn cases(&self) -> Vec<Case> {
        let prefill: Vec<Work> = ascending(&self.prefill).into_iter().map(Work::Prefill).collect();
        let tokens = self.decode;
        let batch: Vec<usize> = ascending(&self.batch).into_iter().filter(|_| tokens > 0).collect();
        let decode: Vec<Work> = batch.iter().map(|&sequences| Work::Decode { sequences, tokens }).collect();
        let rows = ascending(&self.rows).into_iter().filter(|_| tokens > 0);
        let beside = [0].into_iter().chain((self.beside > 0).then_some(self.beside));
        let rows = rows.flat_map(|rows| beside.clone().map(move |beside| Work::Rows { rows, beside, passes: tokens }));
        let rows: Vec<Work> = rows.collect();
        let drafts = batch
            .iter()
            .flat_map(|&sequences| self.drafts.iter().map(move |&stated| Work::Draft { stated, sequences, tokens }));
        let drafts: Vec<Work> = drafts.collect();
        let at = |depth: usize| {
            prefill.iter().chain(&decode).chain(&drafts).chain(&rows).map(move |&work| Case { work, depth })
        };
        ascending(&self.depth).into_iter().flat_map(at).collect()
    }

    /// The largest number of sequences that any line decodes together.
    pub fn sequences(&self) -> usize {
        let mixed = if self.rows.is_empty() { 0 } else { self.beside.saturating_add(1) };
        let most = self.batch.iter().copied().max().map(|most| most.max(mixed));
        most.filter(|_| self.decode > 0).unwrap_or(1)
    }

    /// Rows of the largest pass outside of a prefill.
    pub fn largest_pass(&self) -> usize {
        let rows = self.rows.iter().max().map_or(0, |rows| rows.saturating_add(self.beside));
        // A pass that verifies drafts has the drafted tokens of all sequences.
        let verified = self.drafts.iter().map(|stated| self.sequences().saturating_mul(1 + stated.most()));
        verified.max().unwrap_or(0).max(rows)
    }

    /// Tokens of the longest prefill, or rows of one sequence if that is more.
    pub fn longest_prefill(&self) -> usize {
        self.prefill.iter().chain(&self.rows).copied().max().unwrap_or(0)
    }

    /// The number of positions that a sequence needs for all lines.
    pub fn context(&self) -> usize {
        let deepest = self.depth.iter().copied().max().unwrap_or(0);
        // At least one decoded token, for the timing of a single layer.
        deepest.saturating_add(self.longest_prefill().max(self.decode).max(1))
    }

    /// Checks the settings against a model. Returns the context to load it with: `asked`, or the smallest possible.
    ///
    /// # Errors
    /// Input: nothing to do, a count of 0, or more positions than `asked` or the model has.
    pub fn check(&self, shape: &Shape, asked: Option<usize>) -> Result<usize> {
        let nothing = [
            ("a count of repetitions", Setting::Repetitions, self.repetitions == 0),
            ("a prefill", Setting::Prefill, self.prefill.contains(&0)),
            ("a pass of rows", Setting::Rows, self.rows.contains(&0)),
            ("a batch", Setting::Batch, self.batch.contains(&0)),
        ];
        if let Some((what, setting, _)) = nothing.into_iter().find(|(.., is_zero)| *is_zero) {
            let remedy = text!("choose ", setting.a(), " of 1 or more");
            return Err(Error::input(format!("{what} of 0 measures nothing"), remedy));
        }
        if self.repetitions > MOST_REPETITIONS {
            let what = format!("{} repetitions are more than {MOST_REPETITIONS}", self.repetitions);
            return Err(Error::input(what, text!("choose a smaller ", Setting::Repetitions)));
        }
        let (needed, limit) = (self.context(), asked.unwrap_or(shape.max_context).min(shape.max_context));
        if needed > limit {
            let (whose, larger) = match limit < shape.max_context {
                true => (Setting::Context.the(), text!(", or a larger ", Setting::Context)),
                false => ("the model".into(), Text::default()),
            };
            return Err(Error::input(
                text!(format!("the deepest line needs {needed} positions, and "), whose, format!(" has {limit}")),
                text!("choose a smaller ", Setting::Depth, ", ", Setting::Prefill, " or ", Setting::Decode, larger),
            ));
        }
        Ok(asked.unwrap_or(needed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::presets;

    fn settings() -> BenchSettings {
        BenchSettings {
            prefill: vec![16],
            decode: 8,
            batch: vec![4, 1, 4],
            rows: vec![],
            beside: 0,
            drafts: vec![],
            depth: vec![32, 0],
            repetitions: 2,
        }
    }

    #[test]
    fn every_work_is_measured_at_every_depth_shallow_ones_first() {
        let names: Vec<String> = settings().cases().iter().map(Case::name).collect();
        let expected = ["prefill 16", "decode", "decode x 4"];
        let deep = expected.map(|n| format!("{n} at depth 32"));
        assert_eq!(names, [expected.map(String::from), deep].concat());
        assert_eq!((settings().context(), settings().sequences()), (48, 4));
        let rows = BenchSettings { prefill: vec![], rows: vec![40, 2], depth: vec![0], ..settings() };
        let names: Vec<String> = rows.cases().iter().map(Case::name).collect();
        assert_eq!(names, ["decode", "decode x 4", "2 rows of one sequence", "40 rows of one sequence"]);
        assert_eq!((rows.context(), rows.sequences(), rows.largest_pass()), (40, 4, 40));
        let mixed = BenchSettings { rows: vec![40], beside: 6, batch: vec![6], depth: vec![0], ..rows };
        let names: Vec<String> = mixed.cases().iter().map(Case::name).collect();
        assert_eq!(names, ["decode x 6", "40 rows of one sequence", "40 rows of one sequence beside 6"]);
        assert_eq!((mixed.context(), mixed.sequences(), mixed.largest_pass()), (40, 7, 46));
        let none = BenchSettings { decode: 0, prefill: vec![], ..settings() };
        assert_eq!((none.cases().len(), none.context(), none.sequences()), (0, 33, 1));
    }

    #[test]
    fn drafts_are_measured_behind_plain_decoding() {
        let drafts = vec![Stated::new(Some(2), 0.25).unwrap(), Stated::new(None, 0.5).unwrap()];
        let names: Vec<String> = BenchSettings { drafts, ..settings() }.cases().iter().map(Case::name).collect();
        assert_eq!(
            names[3..7],
            [
                "decode, 2 drafted, each right with a stated 0.25",
                "decode, drafted as it pays, each right with a stated 0.5",
                "decode x 4, 2 drafted, each right with a stated 0.25",
                "decode x 4, drafted as it pays, each right with a stated 0.5",
            ]
        );
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let shape = presets::preset("gemma3-1b").unwrap();
        let refusal = |s: BenchSettings, asked| {
            let e = s.check(&shape, asked).unwrap_err();
            assert_eq!(e.exit_code(), 2, "{e}");
            e
        };
        let refused = |s: BenchSettings, setting| {
            let e = refusal(s, None);
            assert!(e.names(setting), "{e}");
        };
        refused(BenchSettings { repetitions: 0, ..settings() }, Setting::Repetitions);
        refused(BenchSettings { batch: vec![1, 0], ..settings() }, Setting::Batch);
        refused(BenchSettings { prefill: vec![0], ..settings() }, Setting::Prefill);
        refused(BenchSettings { rows: vec![8, 0], ..settings() }, Setting::Rows);
        for depth in [shape.max_context, usize::MAX] {
            let full = refusal(BenchSettings { depth: vec![depth], ..settings() }, None);
            assert!(full.to_string().contains("the model") && !full.names(Setting::Context), "{full}");
        }
        let small = refusal(settings(), Some(47));
        assert!(small.to_string().ends_with(", or a larger context") && small.names(Setting::Context), "{small}");
        assert_eq!(settings().check(&shape, Some(100)).unwrap(), 100);
        assert_eq!(settings().check(&shape, None).unwrap(), 48);
    }
}
