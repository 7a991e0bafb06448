//! Passes that run ahead and passes that ask for tokens, one behind the other.

use super::Fifths;
use kiln::executor::{Executor, ExecutorExt, HeadRows, Row};
use kiln::schedule::choice::SampleRequest;
use kiln::sequence::Chooser;
use kiln::sequence::guide::Guide;
use kiln::sequence::session::Session;
use kiln::text::TokenSet;

/// As [`Session::decode`] for sequence 0, by a pass that the next one follows before the host has seen its result.
pub fn decode_ahead(session: &mut Session, executor: &mut dyn Executor, token: u32) -> kiln::Result<()> {
    let row = Row { token, position: session.tokens().len() as u32, sequence: 0 };
    session.push(executor.schedule(), token)?;
    executor.forward_ahead(&[row], HeadRows { first: 0, count: 1 })?;
    session.commit(1);
    Ok(())
}

/// The tokens that a sequence decodes behind `prompt` where every third is the likeliest of a fifth of all. `on`: most others
/// come of passes that run ahead, and the device takes those too: every other time it goes on with one before the host has
/// seen it; passes must be one submit each ([`ONE_SUBMIT`](super::ONE_SUBMIT)). Else each pass is waited for, and the host
/// looks for them in the logits.
pub fn decode_in_turns(executor: &mut dyn Executor, prompt: &[u32], steps: u32, on: bool) -> Vec<u32> {
    let vocab = executor.schedule().shape.vocab as u32;
    let mut session = Session::new(0, executor.schedule().extent.context);
    session.prefill(executor, prompt).unwrap();
    let mut chosen = vec![executor.next(0)];
    for step in 0..steps {
        let token = *chosen.last().unwrap();
        let is_allowed = |id: u32| step % 3 != 2 || id % 5 == step % 5;
        if !on {
            session.decode(executor, token).unwrap();
            let logits = executor.logits(0).unwrap();
            let better = |best: u32, id: u32| if logits[id as usize] > logits[best as usize] { id } else { best };
            chosen.push((0..vocab).filter(|&id| is_allowed(id)).reduce(better).unwrap());
            continue;
        }
        if step % 3 != 2 {
            match step % 4 == 3 {
                true => session.decode(executor, token).unwrap(),
                false => decode_ahead(&mut session, executor, token).unwrap(),
            }
            assert!(executor.found(0).is_none(), "nothing was asked of it");
        } else {
            let (mut chooser, mut set) = (Chooser::Greedy, TokenSet::new(vocab as usize));
            Fifths(step).fill(&mut set).unwrap();
            chooser.allow(set).unwrap();
            let fill = &mut |_: usize, request: &mut SampleRequest<'_>| chooser.ask(request);
            let row = Row { token, position: session.tokens().len() as u32, sequence: 0 };
            session.push(executor.schedule(), token).unwrap();
            let (head, goes_on) = (HeadRows { first: 0, count: 1 }, step % 2 == 0);
            let is_ahead = executor.forward_sampling(&[row], head, goes_on, fill).unwrap();
            session.commit(1);
            assert_eq!(is_ahead, goes_on, "the pass behind it has begun where it may");
        }
        chosen.push(executor.next(0));
    }
    chosen
}
