//! Decides how many drafted tokens pay, from measured times of passes by number of rows, and from the acceptance of
//! drafts of the same grade in each sequence.
//!
//! A pass with a row for each sequence and `n` drafted rows gives a token for each sequence, plus the drafted tokens
//! before the first wrong one. It pays if it gives more tokens per second than a pass without drafts. Across all drafts
//! the likeliest tokens are taken first. If no number of them pays, nothing is drafted except for an occasional trial:
//! at first after 32 skipped drafts, later after up to 1,024.

/// Classes of passes by rows: 1, 2, 4 ... 64.
const KINDS: usize = 7;
/// The number of next larger classes of passes that trials measure in turn.
const TRIED: usize = 3;
/// Weight of a new measurement in the average.
const NEW: f64 = 0.2;
/// A measurement counts at most as this many times the average, because a single delay says nothing of later passes.
const MOST_GROWTH: f64 = 8.0;
/// In each pass the slower classes' averages move by this share toward that of the class just run, so that they are
/// tried again eventually.
const FADING: f64 = 1.0 / 512.0;
/// The number of drafts that are skipped before a trial: the first number, which doubles up to the second one.
const LEAST_PATIENCE: u32 = 32;
const MOST_PATIENCE: u32 = 1024;

/// The measured times of passes, in classes by their number of rows.
#[derive(Debug, Clone)]
pub struct PassTimes {
    /// Average seconds of a pass in each class; 0 if not measured yet.
    seconds: [f64; KINDS],
    /// Drafts skipped since the last one that ran, and the number of them before the next trial.
    passed_up: u32,
    patience: u32,
    /// The number of trials so far, by which they take the classes in turn.
    tries: usize,
}

impl Default for PassTimes {
    fn default() -> PassTimes {
        PassTimes { seconds: [0.0; KINDS], passed_up: 0, patience: LEAST_PATIENCE, tries: 0 }
    }
}

/// A draft that may be verified in a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DraftCandidate {
    /// The length of the draft, or the most that can be drafted.
    pub length: usize,
    /// The probability that a token is right if all before it are.
    pub share: f64,
    /// The number of tokens that the draft should have.
    pub drafted: usize,
    /// The probability that the drafted tokens and the next one are all right.
    next: f64,
}

impl DraftCandidate {
    /// A candidate of which all tokens are drafted, until [`PassTimes::choose`] reduces them.
    pub fn new(length: usize, share: f64) -> DraftCandidate {
        DraftCandidate { length, share, drafted: length, next: share }
    }
}

/// The class of a pass of `rows` rows.
fn kind(rows: usize) -> usize {
    (rows.next_power_of_two().trailing_zeros() as usize).min(KINDS - 1)
}

/// Adds the likeliest token among all drafts. Returns its probability; `None` if all drafts are complete.
fn take_likeliest(candidates: &mut [DraftCandidate]) -> Option<f64> {
    let left = candidates.iter_mut().filter(|candidate| candidate.drafted < candidate.length);
    // Among equals the first, so that one draft is completed before the next.
    let best = left.reduce(|best, other| if other.next > best.next { other } else { best })?;
    let taken = best.next;
    best.drafted += 1;
    best.next *= best.share;
    Some(taken)
}

fn take_back(candidates: &mut [DraftCandidate]) {
    candidates.iter_mut().for_each(|candidate| (candidate.drafted, candidate.next) = (0, candidate.share));
}

impl PassTimes {
    /// Records the seconds of a pass of `rows` rows for `sequences` sequences.
    pub fn note_pass(&mut self, sequences: usize, rows: usize, seconds: f64) {
        let average = &mut self.seconds[kind(rows)];
        *average = match *average {
            0.0 => seconds,
            known => known + NEW * (seconds.min(MOST_GROWTH * known) - known),
        };
        if rows > sequences {
            let (this, now) = (kind(rows), self.seconds[kind(rows)]);
            let others = self.seconds.iter_mut().enumerate().skip(kind(sequences) + 1);
            for (_, other) in others.filter(|(other, _)| *other != this) {
                *other -= FADING * (*other - now).max(0.0);
            }
            let was_try = self.passed_up >= self.patience;
            self.tries += usize::from(was_try);
            self.patience = if was_try { (2 * self.patience).min(MOST_PATIENCE) } else { LEAST_PATIENCE };
            self.passed_up = 0;
        }
    }

    /// Expected seconds of a pass of `rows` rows. A class without a measurement counts as the next smaller one, so that
    /// it gets tried. The class without drafts is measured before.
    fn seconds(&self, rows: usize) -> f64 {
        let known = self.seconds[..=kind(rows)].iter().rev().copied().find(|seconds| *seconds > 0.0);
        known.unwrap_or(1.0)
    }

    /// Sets the number of drafted tokens for each sequence of a pass, at most `most` in total. Returns their total. Nothing
    /// is drafted until a pass without drafts was measured, since the others are compared with it.
    pub fn choose(&mut self, candidates: &mut [DraftCandidate], most: usize) -> usize {
        take_back(candidates);
        let sequences = candidates.len();
        if self.seconds[kind(sequences)] == 0.0 {
            return 0;
        }
        let (mut tokens, mut best) = (sequences as f64, (sequences as f64 / self.seconds(sequences), 0));
        let mut length = 0;
        while let Some(right) = (length < most).then(|| take_likeliest(candidates)).flatten() {
            (tokens, length) = (tokens + right, length + 1);
            let rate = tokens / self.seconds(sequences + length);
            if rate > best.0 {
                best = (rate, length);
            }
        }
        if length == 0 {
            return 0;
        }
        let mut chosen = best.1;
        if chosen == 0 {
            self.passed_up = self.passed_up.saturating_add(1);
            if self.passed_up >= self.patience {
                let rows = (sequences + 1).next_power_of_two() << (self.tries % TRIED);
                chosen = (rows - sequences).min(length);
            }
        }
        take_back(candidates);
        (0..chosen).for_each(|_| {
            take_likeliest(candidates);
        });
        chosen
    }
}

/// The expected number of tokens from a pass over a draft of `count` tokens, each of which is right with probability
/// `share` if all before it are.
pub fn expected_tokens(count: usize, share: f64) -> f64 {
    let (mut tokens, mut all_right) = (1.0, 1.0);
    for _ in 0..count {
        all_right *= share;
        tokens += all_right;
    }
    tokens
}

/// The acceptance of drafted tokens of one grade, weighted toward the latest.
#[derive(Debug, Clone, Copy)]
pub struct Acceptance {
    right: f64,
    tried: f64,
}

/// The factor by which the weight of earlier drafts decays with each new one.
const KEPT: f64 = 0.9;

impl Default for Acceptance {
    /// Three right out of four, until drafts have been tried.
    fn default() -> Acceptance {
        Acceptance { right: 3.0, tried: 4.0 }
    }
}

impl Acceptance {
    /// Records a draft whose first `accepted` tokens were right, and whose next one was wrong if `missed`.
    pub fn note(&mut self, accepted: usize, missed: bool) {
        self.right = KEPT * self.right + accepted as f64;
        self.tried = KEPT * self.tried + accepted as f64 + f64::from(u8::from(missed));
    }

    /// The probability that the next token of a draft is right.
    pub fn share(&self) -> f64 {
        self.right / self.tried.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PassTimes {
        /// The number of tokens to draft out of `length` for a sequence that decodes alone, with an acceptance of
        /// `share`.
        fn drafted(&mut self, length: usize, share: f64) -> usize {
            let mut alone = [DraftCandidate::new(length, share)];
            self.choose(&mut alone, length);
            alone[0].drafted
        }
    }

    /// Pass times after measurements of passes of 1, 2, 4 and 8 rows.
    fn measured(seconds: [f64; 4]) -> PassTimes {
        let mut gain = PassTimes::default();
        for (rows, seconds) in [1, 2, 4, 8].into_iter().zip(seconds) {
            gain.note_pass(1, rows, seconds);
        }
        gain
    }

    #[test]
    fn the_size_with_the_most_tokens_a_second_is_drafted_and_none_where_all_lose() {
        // A device limited by reading weights.
        let mut device = measured([8.0, 9.4, 10.3, 10.4]);
        assert_eq!([0.95, 0.6, 0.3, 0.1].map(|share| device.drafted(7, share)), [7, 7, 1, 0]);
        assert_eq!((device.drafted(5, 0.95), device.drafted(2, 0.95), device.drafted(0, 0.95)), (5, 2, 0));
        // A device limited by arithmetic: twice the rows take twice as long.
        let mut processor = measured([1.0, 2.0, 4.0, 8.0]);
        assert_eq!([1.0, 0.9, 0.1].map(|share| processor.drafted(7, share)), [0, 0, 0]);
    }

    #[test]
    fn what_was_never_measured_is_tried() {
        let mut gain = PassTimes::default();
        assert_eq!(gain.drafted(7, 0.75), 0, "nothing to compare drafts with");
        gain.note_pass(1, 1, 1.0);
        assert_eq!(gain.drafted(7, 0.75), 7);
        gain.note_pass(1, 8, 8.0);
        assert_eq!(gain.drafted(7, 0.75), 3);
        gain.note_pass(1, 4, 4.0);
        assert_eq!(gain.drafted(7, 0.75), 1);
        gain.note_pass(1, 2, 2.0);
        assert_eq!(gain.drafted(7, 0.75), 0);
    }

    /// Trials become rare on a device where every draft loses; a draft that pays again is found.
    #[test]
    fn where_drafts_lose_one_is_tried_now_and_then() {
        let mut gain = measured([1.0, 2.0, 4.0, 8.0]);
        let mut extra = 0.0;
        let mut tried = Vec::new();
        for at in 0..10_000 {
            let size = gain.drafted(7, 0.5);
            if size > 0 {
                tried.push((at, size));
                extra += size as f64;
                gain.note_pass(1, 1 + size, 1.0 + size as f64);
            }
        }
        assert_eq!(tried.iter().map(|(_, size)| *size).take(4).collect::<Vec<_>>(), [1, 3, 7, 1]);
        assert!(tried.len() > 8 && extra < 0.01 * 10_000.0, "{extra} passes' time for {tried:?}");
        // The same device without other work.
        for _ in 0..20_000 {
            let size = gain.drafted(7, 0.9);
            gain.note_pass(1, 1 + size, 1.0);
        }
        assert_eq!(gain.drafted(7, 0.9), 7);
    }

    /// A drafter that drafts for every pass gets the number that pays, not the largest.
    #[test]
    fn the_size_that_pays_is_found_where_every_pass_could_have_a_draft() {
        let mut gain = PassTimes::default();
        let mut sizes = Vec::new();
        for _ in 0..20 {
            let size = gain.drafted(7, 0.6);
            sizes.push(size);
            gain.note_pass(1, 1 + size, [2.7, 3.5, 0.0, 5.1, 0.0, 0.0, 0.0, 7.6][size]);
        }
        assert_eq!(sizes[..5], [0, 7, 3, 1, 1]);
        assert!(sizes[5..].iter().all(|size| *size == 1), "{sizes:?}");
    }

    #[test]
    fn one_pass_that_was_held_up_counts_for_little() {
        let mut gain = measured([1.0, 1.1, 1.2, 1.3]);
        gain.note_pass(1, 1, 1000.0);
        assert!(gain.seconds(1) <= 1.0 + NEW * MOST_GROWTH, "{}", gain.seconds(1));
        for _ in 0..30 {
            gain.note_pass(1, 1, 1.0);
        }
        assert!((gain.seconds(1) - 1.0).abs() < 0.01);
    }

    /// A pass of several sequences takes the likeliest tokens of all drafts, as many as pay.
    #[test]
    fn sequences_that_decode_together_share_a_pass() {
        let mut gain = PassTimes::default();
        for (rows, seconds) in [(4, 10.0), (8, 10.5), (16, 12.0), (32, 40.0)] {
            gain.note_pass(4, rows, seconds);
        }
        let chosen = |gain: &mut PassTimes, drafts: [(usize, f64); 4], most| {
            let mut candidates = drafts.map(|(length, share)| DraftCandidate::new(length, share));
            assert_eq!(gain.choose(&mut candidates, most), candidates.iter().map(|c| c.drafted).sum::<usize>());
            candidates.map(|candidate| candidate.drafted)
        };
        // At most 16 rows pay, and the certain draft comes first.
        assert_eq!(chosen(&mut gain, [(7, 0.9), (7, 1.0), (0, 1.0), (7, 0.1)], 28), [5, 7, 0, 0]);
        assert_eq!(chosen(&mut gain, [(7, 0.9), (7, 1.0), (0, 1.0), (7, 0.1)], 3), [0, 3, 0, 0]);
        assert_eq!(chosen(&mut gain, [(2, 0.9), (1, 1.0), (0, 1.0), (0, 0.1)], 28), [2, 1, 0, 0]);
        assert_eq!(chosen(&mut gain, [(7, 0.01); 4], 28), [0; 4]);
        // The eventual trial fills a class of passes.
        let tries = (0..2 * LEAST_PATIENCE).map(|_| chosen(&mut gain, [(7, 0.01); 4], 28).iter().sum::<usize>());
        assert_eq!(tries.max(), Some(4));
    }

    #[test]
    fn acceptance_follows_the_latest_drafts() {
        let mut acceptance = Acceptance::default();
        assert_eq!(acceptance.share(), 0.75);
        (0..50).for_each(|_| acceptance.note(7, false));
        assert!(acceptance.share() > 0.99);
        (0..50).for_each(|_| acceptance.note(0, true));
        assert!(acceptance.share() < 0.05, "{}", acceptance.share());
        (0..50).for_each(|_| acceptance.note(1, true));
        assert!((acceptance.share() - 0.5).abs() < 0.01);
    }
}
