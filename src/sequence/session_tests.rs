//! Sessions on an executor that only records its passes.

use super::*;
use crate::executor::fake::{CONTEXT, FakeExecutor, WINDOW, at};
use crate::schedule::kv::PAGE;

#[test]
fn a_prompt_is_run_in_chunks_and_only_its_last_row_has_a_head() {
    let mut executor = FakeExecutor::new();
    let mut session = Session::new(1, CONTEXT);
    let tokens: Vec<u32> = (0..20).collect();
    let before = counts::read();
    session.prefill(&mut executor, &tokens).unwrap();
    session.decode(&mut executor, 5).unwrap();
    session.decode(&mut executor, 6).unwrap();
    let passes: Vec<(usize, bool)> = executor.passes.iter().map(|(rows, head)| (rows.len(), head.is_some())).collect();
    assert_eq!(passes, [(8, false), (8, false), (4, true), (1, true), (1, true)]);
    assert!(executor.passes.iter().flat_map(|(rows, _)| rows).all(|r| r.sequence == 1));
    assert_eq!(executor.take(), at(0, &[&tokens[..], &[5, 6]].concat()));
    // Other tests of this process change the counts too.
    let after = counts::read();
    assert!(after.prefilled >= before.prefilled + 20 && after.decoded >= before.decoded + 2, "{after:?}");
}

#[test]
fn what_the_cache_holds_of_a_prompt_is_not_run_again() {
    let mut executor = FakeExecutor::new();
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
    let mut executor = FakeExecutor::new();
    let mut session = Session::new(0, CONTEXT);
    session.sync(&mut executor, &[1, 2, 3]).unwrap();
    executor.take();
    for (tokens, what) in [(&[][..], "empty"), (&[1, 64], "vocabulary"), (&[2; CONTEXT + 1], "longer than")] {
        let e = session.sync(&mut executor, tokens).unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains(what), "{e}");
    }
    assert_eq!((session.tokens(), executor.take()), (&[1, 2, 3][..], vec![]));
}

/// After a failure no token of the prompt counts as cached, because a chunk before it may be wrong.
#[test]
fn a_prompt_that_fails_is_not_a_prefix() {
    let mut executor = FakeExecutor::new();
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

/// A local layer has given back the page with keys that the first new token would see.
#[test]
fn a_prefix_that_a_local_layer_has_lost_is_run_again() {
    let mut executor = FakeExecutor::of(5 * PAGE, None);
    let tokens: Vec<u32> = (0..4 * PAGE as u32 + 4).map(|i| i % 60).collect();
    // It holds two pages: that of the last tokens and the one before.
    let least = 3 * PAGE + WINDOW - 1;
    for (keep, kept) in [(least, least), (least - 1, 0)] {
        let mut session = Session::new(0, 5 * PAGE);
        session.sync(&mut executor, &tokens).unwrap();
        executor.take();
        let other = [&tokens[..keep], &[63]].concat();
        assert_eq!(session.sync(&mut executor, &other).unwrap(), kept);
        assert_eq!(executor.take(), at(kept as u32, &other[kept..]));
    }
}
