//! Drafts from repeats: the index gives the same results as a search through all tokens.

use super::*;
use crate::text::testing::Random;

/// The expected draft of [`Repeats`], by a search through all tokens.
fn searched(tokens: &[u32], text: &[u32], most: usize) -> (Vec<u32>, usize) {
    for length in (SHORTEST..=LONGEST.min(tokens.len())).rev() {
        let run = &tokens[tokens.len() - length..];
        let latest = |all: &[u32]| (length..all.len()).rev().find(|&end| &all[end - length..end] == run);
        if let Some(from) = latest(tokens) {
            let mut draft: Vec<u32> = Vec::new();
            for at in from..from + most {
                draft.push(if at < tokens.len() { tokens[at] } else { draft[at - tokens.len()] });
            }
            return (draft, length - SHORTEST);
        }
        if let Some(from) = latest(text) {
            return (text[from..].iter().copied().take(most).collect(), length - SHORTEST);
        }
    }
    (Vec::new(), 0)
}

fn propose(repeats: &mut Repeats, tokens: &[u32], most: usize) -> (Vec<u32>, usize) {
    repeats.ask(DraftRequest { slot: 0, tokens, most, head: None }).unwrap();
    let mut draft = Vec::new();
    let grade = repeats.copy_draft(0, &mut draft);
    (draft, grade)
}

#[test]
fn the_longest_run_goes_on_as_it_did_last_and_the_sequence_comes_before_the_text() {
    let text = Arc::new(DraftText::new(vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 51]));
    let mut repeats = Repeats::new(1, 64, Some(text));
    let mut drafted = |tokens: &[u32], most| {
        repeats.begin(0);
        propose(&mut repeats, tokens, most)
    };
    assert_eq!(drafted(&[], 7), (vec![], 0));
    assert_eq!(drafted(&[9], 7), (vec![], 0), "a single token is no run");
    assert_eq!(drafted(&[40, 41, 42], 7), (vec![], 0));
    assert_eq!(drafted(&[40, 2, 3], 4), (vec![4, 5, 6, 7], 0), "of the text");
    assert_eq!(drafted(&[2, 3, 30, 31, 2, 3], 2), (vec![30, 31], 0), "of the sequence");
    assert_eq!(drafted(&[2, 3, 30, 2, 3, 31, 2, 3], 1), (vec![31], 0), "the latest");
    assert_eq!(drafted(&[2, 3, 30, 1, 2, 3], 2), (vec![4, 5], 1), "the text has the longer one");
    assert_eq!(drafted(&[8, 9, 50], 7), (vec![51], 1), "no further than the text goes");
    assert_eq!(drafted(&[60, 61, 60, 61], 5), (vec![60, 61, 60, 61, 60], 0), "what repeats itself goes round");
    assert_eq!(drafted(&[5; 20], 3), (vec![5; 3], LONGEST - SHORTEST));
    assert_eq!(drafted(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 0), (vec![], LONGEST - SHORTEST));
}

#[test]
fn drafts_are_those_of_a_search_of_all_tokens() {
    let mut random = Random(11);
    for vocab in [2, 5, 40] {
        let text: Vec<u32> = (0..300).map(|_| random.below(vocab)).collect();
        let mut repeats = Repeats::new(1, 600, Some(Arc::new(DraftText::new(text.clone()))));
        for _ in 0..3 {
            repeats.begin(0);
            let mut tokens: Vec<u32> = Vec::new();
            while tokens.len() < 500 {
                // A token, or many as in a prompt.
                let count = if random.below(20) == 0 { 30 } else { 1 };
                tokens.extend((0..count).map(|_| random.below(vocab)));
                let most = random.below(8) as usize;
                assert_eq!(propose(&mut repeats, &tokens, most), searched(&tokens, &text, most), "{tokens:?}");
            }
        }
    }
}

/// An index that is far too small forgets runs, but never gives a wrong draft.
#[test]
fn an_index_that_is_too_small_forgets_and_takes_no_more_memory() {
    let mut random = Random(12);
    let mut repeats = Repeats::new(1, 1, None);
    let size = repeats.slots[0].index.places.len();
    let mut tokens: Vec<u32> = Vec::new();
    let mut drafts = 0;
    for _ in 0..3000 {
        tokens.push(random.below(6));
        let (draft, grade) = propose(&mut repeats, &tokens, 1);
        drafts += draft.len();
        if let [next] = draft[..] {
            let run = &tokens[tokens.len() - (grade + SHORTEST)..];
            assert!(tokens.windows(run.len() + 1).any(|seen| seen[..run.len()] == *run && seen[run.len()] == next));
        }
    }
    assert!(drafts > 0);
    assert_eq!(repeats.slots[0].index.places.len(), size);
}

/// The cost per token is constant: probes are bounded, and each run is added once.
#[test]
fn a_run_is_noted_once() {
    let mut repeats = Repeats::new(1, 100, None);
    let tokens: Vec<u32> = (0..50).collect();
    propose(&mut repeats, &tokens, 1);
    assert_eq!(repeats.slots[0].index.noted, 50);
    let places = repeats.slots[0].index.places.clone();
    propose(&mut repeats, &tokens, 1);
    assert_eq!(repeats.slots[0].index.places, places);
    let notes = |repeats: &Repeats| repeats.slots[0].index.places.iter().filter(|place| **place != 0).count();
    // A run of each length for each token with a successor.
    assert_eq!(notes(&repeats), (2..50).map(|end: usize| end.min(LONGEST) - SHORTEST + 1).sum::<usize>());
    repeats.begin(0);
    assert_eq!(notes(&repeats), 0);
}
