//! Sessions on an executor that only records the passes that it is asked to run.

use super::*;
use crate::executor::Watch;
use crate::model::{Shape, WeightFormat, presets};
use crate::schedule::{Extent, KvType, Schedule};
use crate::sequence::{Chooser, Finish, generate};
use crate::{Cancel, Error};

struct Noting {
    schedule: Schedule,
    /// The rows of each pass, and whether it had a head.
    passes: Vec<(Vec<Row>, bool)>,
    /// Whether a pass with a head fails, as on a device that is lost.
    fails: bool,
    /// Set by the caller after this many passes.
    cancelled_after: usize,
}

/// Window of the local layers. Their ring of 9 + 8 - 1 positions wraps past it.
const WINDOW: usize = 9;
const CHUNK: usize = 8;
const CONTEXT: usize = 64;

impl Noting {
    fn new() -> Noting {
        let full = presets::preset("gemma3-1b").unwrap();
        let layers = full.layers[..2].to_vec();
        let shape = Shape { layers, vocab: 64, hidden: 32, ffn: 64, window: WINDOW, ..full };
        let extent = Extent { context: CONTEXT, max_rows: CHUNK, head_rows: 1, sequences: 2, kv: KvType::F16 };
        Noting {
            schedule: Schedule::build(&shape, extent, |_| WeightFormat::Int8),
            passes: Vec::new(),
            fails: false,
            cancelled_after: usize::MAX,
        }
    }

    /// Token and position of every row run since the last call.
    fn take(&mut self) -> Vec<(u32, u32)> {
        self.passes.drain(..).flat_map(|(rows, _)| rows).map(|r| (r.token, r.position)).collect()
    }
}

impl Executor for Noting {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device(&self) -> &str {
        "noting"
    }

    fn forward(&mut self, rows: &[Row], head: Option<HeadRows>) -> Result<()> {
        crate::executor::check_pass(&self.schedule, rows, head)?;
        if self.passes.len() >= self.cancelled_after {
            let cancel = Cancel::default();
            cancel.set();
            cancel.check()?;
        }
        self.passes.push((rows.to_vec(), head.is_some()));
        match self.fails && head.is_some() {
            true => Err(Error::device("it is lost", "run it again")),
            false => Ok(()),
        }
    }

    fn project(&mut self, _: HeadRows) -> Result<()> {
        Ok(())
    }

    fn forward_watched(&mut self, rows: &[Row], head: Option<HeadRows>, _: Watch<'_>) -> Result<()> {
        self.forward(rows, head)
    }

    fn next(&self, _: usize) -> u32 {
        0
    }

    fn is_finite(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize) -> Result<&[f32]> {
        Ok(&[])
    }
}

fn at(first: u32, tokens: &[u32]) -> Vec<(u32, u32)> {
    tokens.iter().copied().zip(first..).collect()
}

#[test]
fn a_prompt_is_run_in_chunks_and_only_its_last_row_has_a_head() {
    let mut executor = Noting::new();
    let mut session = Session::new(1, CONTEXT);
    let tokens: Vec<u32> = (0..20).collect();
    let before = counts::read();
    session.prefill(&mut executor, &tokens).unwrap();
    session.decode(&mut executor, 5).unwrap();
    session.decode_ahead(&mut executor, 6).unwrap();
    let passes: Vec<(usize, bool)> = executor.passes.iter().map(|(rows, head)| (rows.len(), *head)).collect();
    assert_eq!(passes, [(8, false), (8, false), (4, true), (1, true), (1, true)]);
    assert!(executor.passes.iter().flat_map(|(rows, _)| rows).all(|r| r.sequence == 1));
    assert_eq!(executor.take(), at(0, &[&tokens[..], &[5, 6]].concat()));
    // Other tests of this process add to the counts too.
    let after = counts::read();
    assert!(after.prefilled >= before.prefilled + 20 && after.decoded >= before.decoded + 2, "{after:?}");
}

#[test]
fn what_the_cache_holds_of_a_prompt_is_not_run_again() {
    let mut executor = Noting::new();
    let mut session = Session::new(0, CONTEXT);
    let mut sync = |tokens: &[u32]| {
        let kept = session.sync(&mut executor, tokens)?;
        assert_eq!(session.tokens(), tokens);
        Ok::<_, crate::Error>((kept, executor.take()))
    };
    assert_eq!(sync(&[1, 2, 3, 4]).unwrap(), (0, at(0, &[1, 2, 3, 4])));
    assert_eq!(sync(&[1, 2, 3, 4, 5]).unwrap(), (4, at(4, &[5])));
    assert_eq!(sync(&[1, 2, 9, 8]).unwrap(), (2, at(2, &[9, 8])));
    // The last token is run again for its logits.
    assert_eq!(sync(&[1, 2, 9, 8]).unwrap(), (3, at(3, &[8])));
    assert_eq!(sync(&[1, 2]).unwrap(), (1, at(1, &[2])));
    assert_eq!(sync(&[7]).unwrap(), (0, at(0, &[7])));
}

#[test]
fn a_prompt_that_is_refused_leaves_the_sequence_as_it_is() {
    let mut executor = Noting::new();
    let mut session = Session::new(0, CONTEXT);
    session.sync(&mut executor, &[1, 2, 3]).unwrap();
    executor.take();
    for (tokens, what) in [(&[][..], "empty"), (&[1, 64], "vocabulary"), (&[2; CONTEXT + 1], "longer than")] {
        let e = session.sync(&mut executor, tokens).unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains(what), "{e}");
    }
    assert_eq!((session.tokens(), executor.take()), (&[1, 2, 3][..], vec![]));
}

/// Nothing of a prompt that failed counts as held: a chunk before the failure may be wrong.
#[test]
fn a_prompt_that_fails_is_not_a_prefix() {
    let mut executor = Noting::new();
    let mut session = Session::new(0, CONTEXT);
    let prompt: Vec<u32> = (0..20).collect();
    session.sync(&mut executor, &prompt[..3]).unwrap();
    executor.fails = true;
    assert_eq!(session.sync(&mut executor, &prompt).unwrap_err().exit_code(), 4);
    executor.fails = false;
    executor.take();
    let kept = session.sync(&mut executor, &prompt).unwrap();
    assert!(kept <= 3, "{kept}");
    assert_eq!(executor.take(), at(kept as u32, &prompt[kept..]));
}

/// A caller may end a prompt between its chunks, and a reply between its tokens.
#[test]
fn a_generation_that_is_cancelled_ends_there_and_the_prefix_stays() {
    let mut executor = Noting::new();
    let mut session = Session::new(0, CONTEXT);
    let prompt: Vec<u32> = (0..13).collect();
    session.sync(&mut executor, &prompt[..3]).unwrap();
    let mut reply = |after, session: &mut Session| {
        executor.passes.clear();
        executor.cancelled_after = after;
        let go_on = &mut |_| std::ops::ControlFlow::Continue(());
        let g = generate(&mut executor, session, &prompt, &mut Chooser::Greedy, &[], 9, go_on).unwrap();
        (g.kept, g.tokens.len(), g.finish, executor.passes.len())
    };
    assert_eq!(reply(1, &mut session), (0, 0, Finish::Interrupted, 1));
    assert_eq!(session.tokens(), &prompt[..3]);
    // Two chunks from position 3, of 8 rows and of 2. The first token needs no pass.
    assert_eq!(reply(4, &mut session), (3, 3, Finish::Interrupted, 4));
    assert_eq!(session.tokens().len(), 15);
    assert_eq!(reply(usize::MAX, &mut session), (12, 9, Finish::Length, 9));
}

/// The ring of a local layer has lost the keys that the first new token would see.
#[test]
fn a_prefix_that_a_ring_has_lost_is_run_again() {
    let mut executor = Noting::new();
    let ring = WINDOW + CHUNK - 1;
    let tokens: Vec<u32> = (0..60).collect();
    for (keep, kept) in [(60 + WINDOW - 1 - ring, 60 + WINDOW - 1 - ring), (60 + WINDOW - 2 - ring, 0)] {
        let mut session = Session::new(0, CONTEXT);
        session.sync(&mut executor, &tokens).unwrap();
        executor.take();
        let other = [&tokens[..keep], &[63]].concat();
        assert_eq!(session.sync(&mut executor, &other).unwrap(), kept);
        assert_eq!(executor.take(), at(kept as u32, &other[kept..]));
    }
}
