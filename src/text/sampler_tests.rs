//! Tests of the sampler against a plain definition and against known numbers.

use super::super::testing::Random;
use super::*;
use crate::error::Setting;
use crate::schedule::choice::{ASK_WORDS, EDIT_IDS, EDITS, set_words};

/// A configuration without filters and penalties, at temperature 1.
fn open(seed: u64) -> SamplerConfig {
    SamplerConfig { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(seed), ..SamplerConfig::default() }
}

/// The ids that may be drawn, by definition: everything sorted, and every step over the whole list.
fn survivors(config: &SamplerConfig, logits: &[f32], history: &[u32], allowed: Option<&TokenSet>) -> Vec<u32> {
    let mut list: Vec<(f64, u32)> = Vec::new();
    for (id, &logit) in logits.iter().enumerate() {
        let repeated = history[history.len().saturating_sub(64)..].contains(&(id as u32));
        let logit = logit + config.bias.iter().filter(|b| b.0 == id as u32).map(|b| b.1).sum::<f32>();
        let logit = match (repeated, logit > 0.0) {
            (false, _) => logit,
            (true, true) => logit / config.repeat_penalty,
            (true, false) => logit * config.repeat_penalty,
        };
        if allowed.is_none_or(|allowed| allowed.contains(id as u32)) {
            list.push((f64::from(logit), id as u32));
        }
    }
    list.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    list.retain(|c| c.0 > f64::NEG_INFINITY);
    if config.top_k > 0 {
        list.truncate(config.top_k as usize);
    }
    let peak = list[0].0;
    let total: f64 = list.iter().map(|c| (c.0 - peak).exp()).sum();
    let mut sum = 0.0;
    let mut nucleus = 0;
    while nucleus < list.len() && (nucleus == 0 || sum < f64::from(config.top_p) * total) {
        sum += (list[nucleus].0 - peak).exp();
        nucleus += 1;
    }
    if config.top_p < 1.0 {
        list.truncate(nucleus);
    }
    list.retain(|c| (c.0 - peak).exp() >= f64::from(config.min_p) * (1.0 - 1e-12));
    if config.temperature == 0.0 {
        list.truncate(1);
    }
    let mut ids: Vec<u32> = list.into_iter().map(|c| c.1).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn the_filters_leave_what_their_definition_leaves_and_nothing_is_allocated() {
    let mut random = Random(3);
    for round in 0..400 {
        let vocab = 1 + random.below(3000) as usize;
        let spread = [0.5, 3.0, 20.0][random.below(3) as usize];
        // Every third round has many equal logits, and some masked ones.
        let coarse = round % 3 == 0;
        let mut logits: Vec<f32> = (0..vocab)
            .map(|_| match (coarse, random.below(8)) {
                (true, 0) => f32::NEG_INFINITY,
                (true, step) => step as f32 * spread,
                _ => (random.unit() - 0.5) * spread,
            })
            .collect();
        logits[0] = 0.25;
        let config = SamplerConfig {
            temperature: [0.0, 0.7, 2.0][random.below(3) as usize],
            top_k: [0, 1, 5, 64, 300, 5000][random.below(6) as usize],
            top_p: [0.0, 0.1, 0.9, 1.0][random.below(4) as usize],
            min_p: [0.0, 0.05, 0.3][random.below(3) as usize],
            repeat_penalty: [0.8, 1.0, 1.3][random.below(3) as usize],
            bias: (0..random.below(4)).map(|i| (random.below(vocab as u32), [1.5, -3.0, 0.25][i as usize])).collect(),
            seed: Some(round),
            ..SamplerConfig::default()
        };
        let mut sampler = Sampler::new(config.clone(), vocab).unwrap();
        let mut allowed = TokenSet::new(vocab);
        allowed.insert(0);
        (0..vocab / 2).for_each(|_| allowed.insert(random.below(vocab as u32)));
        let allowed = (round % 5 == 0).then_some(allowed);
        sampler.allow(allowed.clone());
        let mut history: Vec<u32> = (0..random.below(100)).map(|_| random.below(vocab as u32)).collect();
        sampler.begin(&history);
        let room = |s: &Sampler| {
            let lists = [s.edits.capacity(), s.drawn.capacity(), s.sums.capacity(), s.history.capacity()];
            (lists, s.candidates.list.capacity())
        };
        let before = room(&sampler);
        for _ in 0..3 {
            let id = sampler.sample(&logits).unwrap();
            let expected = survivors(&config, &logits, &history, allowed.as_ref());
            // A draw from all tokens keeps no list of them.
            if sampler.reach != FilterScope::Open {
                let mut left: Vec<u32> = sampler.candidates.list.iter().map(|c| c.id).collect();
                left.sort_unstable();
                assert_eq!(left, expected, "{config:?}, vocabulary {vocab}");
            }
            assert!(expected.contains(&id), "{config:?}, vocabulary {vocab}");
            history.push(id);
        }
        assert_eq!(room(&sampler), before);
    }
}

#[test]
fn draws_follow_the_probabilities_at_the_temperature() {
    // Probabilities 0.1, 0.2, 0.3, 0.4 at temperature 1; at 0.5 they are squared: 1, 4, 9, 16 of 30.
    let logits = [0.1_f32.ln(), 0.2_f32.ln(), 0.3_f32.ln(), 0.4_f32.ln()];
    for (temperature, expected) in [(1.0, [0.1, 0.2, 0.3, 0.4]), (0.5, [1.0, 4.0, 9.0, 16.0].map(|w| w / 30.0))] {
        let mut sampler = Sampler::new(SamplerConfig { temperature, ..open(5) }, 4).unwrap();
        let mut counts = [0_u32; 4];
        (0..40_000).for_each(|_| counts[sampler.sample(&logits).unwrap() as usize] += 1);
        for (count, share) in counts.iter().zip(expected) {
            assert!((f64::from(*count) / 40_000.0 - share).abs() < 0.01, "{counts:?} at {temperature}");
        }
    }
}

#[test]
fn top_p_and_min_p_are_not_moved_by_the_temperature() {
    let logits = [0.5_f32.ln(), 0.3_f32.ln(), 0.2_f32.ln()];
    for config in [SamplerConfig { top_p: 0.6, ..open(1) }, SamplerConfig { min_p: 0.5, ..open(1) }] {
        // At this temperature all three would be equally likely.
        let mut sampler = Sampler::new(SamplerConfig { temperature: 1e6, ..config }, 3).unwrap();
        let mut seen = [false; 3];
        (0..200).for_each(|_| seen[sampler.sample(&logits).unwrap() as usize] = true);
        assert_eq!(seen, [true, true, false]);
    }
}

#[test]
fn a_seed_gives_the_same_tokens_on_every_platform() {
    // The generator's published first outputs for seed 1234567.
    let mut random = SplitMix64(1_234_567);
    assert_eq!(
        [random.next(), random.next(), random.next()],
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
    );
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 * 0.05).collect();
    let draw = |seed| -> Vec<u32> {
        let mut sampler = Sampler::new(SamplerConfig { seed: Some(seed), ..SamplerConfig::default() }, 1000).unwrap();
        (0..8).map(|_| sampler.sample(&logits).unwrap()).collect()
    };
    assert_eq!(draw(42), PINNED);
    assert_ne!(draw(43), draw(42));
    let unseeded = || Sampler::new(SamplerConfig::default(), 8).unwrap().seed();
    assert_ne!(unseeded(), unseeded());
    // As a JSON number it survives readers that use f64.
    assert!((0..64).all(|_| unseeded() < 1 << 53));
}

/// The tokens drawn by seed 42 in the test above. Changing them changes the meaning of users' seeds.
const PINNED: [u32; 8] = [352, 838, 565, 868, 232, 180, 161, 756];

#[test]
fn greedy_takes_the_likeliest_and_the_lower_id_among_equals() {
    let mut sampler = Sampler::new(SamplerConfig::greedy(), 5).unwrap();
    assert_eq!(sampler.sample(&[0.0, 2.0, -1.0, 2.0, 1.0]).unwrap(), 1);
    assert_eq!(sampler.sample(&[-0.0, 0.0, -1.0, f32::NEG_INFINITY, 0.0]).unwrap(), 0);
    let rising: Vec<f32> = (0..5000).map(|i| i as f32).collect();
    assert_eq!(Sampler::new(SamplerConfig::greedy(), 5000).unwrap().sample(&rising).unwrap(), 4999);
}

#[test]
fn the_penalty_counts_prompt_and_sampled_tokens_for_64_tokens() {
    let config = SamplerConfig { repeat_penalty: 2.0, ..SamplerConfig::greedy() };
    let mut sampler = Sampler::new(config, 4).unwrap();
    let logits = [3.0, 2.0, 1.9, -1.0];
    sampler.begin(&[0]);
    assert_eq!(sampler.sample(&logits).unwrap(), 1, "3 is halved to 1.5");
    assert_eq!(sampler.sample(&logits).unwrap(), 2);
    assert_eq!(sampler.sample(&logits).unwrap(), 0, "all are halved");
    // Tokens outside the vocabulary only fill the window.
    sampler.begin(&[&[0][..], &[1_000_000; 64]].concat());
    assert_eq!(sampler.sample(&logits).unwrap(), 0);
}

#[test]
fn presence_and_frequency_count_the_reply_and_not_the_prompt() {
    let greedy = SamplerConfig::greedy;
    let mut once = Sampler::new(SamplerConfig { presence_penalty: 1.5, ..greedy() }, 3).unwrap();
    let logits = [3.0, 2.0, 1.0];
    once.begin(&[0, 0, 1]);
    let take = |sampler: &mut Sampler, count| (0..count).map(|_| sampler.sample(&logits).unwrap()).collect::<Vec<_>>();
    assert_eq!(take(&mut once, 4), [0, 1, 0, 0], "1.5 and 0.5 from there on, however often");
    once.begin(&[]);
    assert_eq!(take(&mut once, 1), [0], "an earlier reply counts no more");
    let mut often = Sampler::new(SamplerConfig { frequency_penalty: 0.75, ..greedy() }, 3).unwrap();
    assert_eq!(take(&mut often, 7), [0, 0, 1, 0, 1, 2, 0], "each time counts: 3 - 0.75 n, 2 - 0.75 n, 1");
    // A negative penalty makes tokens likelier; the repetition penalty is applied first.
    let both = SamplerConfig { presence_penalty: -3.0, repeat_penalty: 2.0, ..greedy() };
    let mut both = Sampler::new(both, 3).unwrap();
    both.begin(&[0]);
    assert_eq!(take(&mut both, 3), [1, 1, 1], "1.5, 2, 1; then 2 / 2 + 3");
    assert_eq!(both.edits.iter().map(|edit| (edit.id, edit.logit)).collect::<Vec<_>>(), [(0, 1.5), (1, 4.0)]);
}

#[test]
fn logits_that_mean_nothing_are_an_error() {
    let mut sampler = Sampler::new(open(1), 3).unwrap();
    for (logits, what) in [
        (&[0.0, f32::NAN, 0.0][..], "NaN for token 1"),
        (&[0.0, 0.0, f32::INFINITY], "inf for token 2"),
        (&[f32::NEG_INFINITY; 3], "every token"),
        (&[0.0; 4], "4 in number"),
    ] {
        let error = sampler.sample(logits).unwrap_err();
        assert!(error.to_string().contains(what) && error.exit_code() == 1, "{error}");
    }
    // An error caused by biases does not blame the model.
    let bias = vec![(0, f32::NEG_INFINITY), (2, f32::NEG_INFINITY)];
    for config in [open(1), SamplerConfig::greedy(), SamplerConfig { top_p: 0.9, ..open(1) }] {
        let mut sampler = Sampler::new(SamplerConfig { bias: bias.clone(), ..config }, 3).unwrap();
        assert_eq!(sampler.sample(&[1.0, 0.0, 2.0]).unwrap(), 1);
        let error = sampler.sample(&[1.0, f32::NEG_INFINITY, 2.0]).unwrap_err();
        assert!(error.to_string().contains("`logit_bias`") && error.exit_code() == 2, "{error}");
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY; 3]).unwrap_err().exit_code(), 1);
    }
    let mut extreme = Sampler::new(SamplerConfig { temperature: 1e-38, repeat_penalty: 1e-38, ..open(1) }, 2).unwrap();
    extreme.begin(&[0]);
    assert_eq!(extreme.sample(&[f32::MAX, f32::MIN]).unwrap(), 0);
}

#[test]
fn options_out_of_range_are_named() {
    let good = SamplerConfig::default;
    for (config, setting) in [
        (SamplerConfig { temperature: -0.1, ..good() }, Setting::Temperature),
        (SamplerConfig { temperature: f32::NAN, ..good() }, Setting::Temperature),
        (SamplerConfig { temperature: f32::INFINITY, ..good() }, Setting::Temperature),
        (SamplerConfig { top_p: -0.1, ..good() }, Setting::TopP),
        (SamplerConfig { top_p: 1.01, ..good() }, Setting::TopP),
        (SamplerConfig { top_p: f32::NAN, ..good() }, Setting::TopP),
        (SamplerConfig { min_p: -0.1, ..good() }, Setting::MinP),
        (SamplerConfig { min_p: f32::NAN, ..good() }, Setting::MinP),
        (SamplerConfig { repeat_penalty: 0.0, ..good() }, Setting::RepeatPenalty),
        (SamplerConfig { repeat_penalty: f32::NAN, ..good() }, Setting::RepeatPenalty),
    ] {
        let error = Sampler::new(config, 8).unwrap_err();
        assert!(error.names(setting) && error.exit_code() == 2, "{error}");
    }
    for bias in [(8, 0.0), (1, f32::NAN), (1, f32::INFINITY)] {
        let error = Sampler::new(SamplerConfig { bias: vec![bias], ..good() }, 8).unwrap_err();
        assert!(error.to_string().contains("bias") && error.exit_code() == 2, "{error}");
    }
    assert!(SamplerConfig { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 1.0, ..good() }.validate().is_ok());
}

#[test]
fn biases_are_added_and_only_allowed_tokens_are_drawn() {
    let config = SamplerConfig { bias: vec![(3, 2.0), (1, f32::NEG_INFINITY), (3, 2.5)], ..SamplerConfig::greedy() };
    let mut sampler = Sampler::new(config, 5).unwrap();
    let logits = [1.0, 9.0, 2.0, -1.0, 3.0];
    assert_eq!(sampler.sample(&logits).unwrap(), 3, "-1 and 4.5 are 3.5; token 1 is forbidden");
    let mut allowed = TokenSet::new(5);
    [0, 1, 2, 77].iter().for_each(|&id| allowed.insert(id));
    sampler.allow(Some(allowed));
    assert_eq!(sampler.sample(&logits).unwrap(), 2);
    sampler.allowed_mut().unwrap().clear();
    assert_eq!(sampler.sample(&logits).unwrap_err().exit_code(), 1);
    // Half of the draws from all tokens must give the biased one, by its probability.
    let mut open = Sampler::new(SamplerConfig { bias: vec![(0, 3f32.ln())], ..open(9) }, 4).unwrap();
    let draws = (0..8000).filter(|_| open.sample(&[0.0; 4]).unwrap() == 0).count();
    assert!((3800..4200).contains(&draws), "{draws} of 8000");
}

#[test]
fn a_set_takes_over_words_and_no_token_outside_of_its_vocabulary() {
    let mut set = TokenSet::new(70);
    set.copy_from_words(&[1 << 31, 1, u32::MAX, u32::MAX]);
    let tokens: Vec<u32> = (0..200).filter(|&id| set.contains(id)).collect();
    assert_eq!(tokens, [31, 32, 64, 65, 66, 67, 68, 69]);
    let mut same = TokenSet::new(70);
    tokens.iter().for_each(|&id| same.insert(id));
    assert_eq!(set, same);
    // Missing words contain no tokens.
    set.copy_from_words(&[2]);
    assert_eq!((0..200).filter(|&id| set.contains(id)).collect::<Vec<_>>(), [1]);
    let mut whole = TokenSet::new(64);
    whole.copy_from_words(&[u32::MAX; 2]);
    assert!(whole.contains(63) && !whole.contains(64));
}

/// A request for the token after a draft equals the request after choosing the draft, and changes no state.
#[test]
fn a_token_behind_a_draft_is_asked_for_as_if_the_draft_had_been_chosen() {
    const VOCAB: usize = 3000;
    let penalties = SamplerConfig { repeat_penalty: 1.2, presence_penalty: 0.3, frequency_penalty: 0.2, ..open(3) };
    let asked = |sampler: &mut Sampler, drafted: &[u32]| {
        let (mut words, mut allowed) = (vec![0; ASK_WORDS], vec![0; set_words(VOCAB)]);
        match drafted {
            [] => sampler.ask(&mut SampleRequest::new(&mut words, &mut allowed)),
            _ => sampler.ask_after(drafted, &mut SampleRequest::new(&mut words, &mut allowed)),
        }
        // Words after the edits are unused.
        words.truncate(EDIT_IDS + words[EDITS] as usize);
        words
    };
    for config in [
        open(1),
        SamplerConfig { seed: Some(2), ..SamplerConfig::default() },
        SamplerConfig { top_k: 40, ..penalties.clone() },
        penalties,
        SamplerConfig { frequency_penalty: 0.5, ..SamplerConfig::greedy() },
    ] {
        let mut sampler = Sampler::new(config.clone(), VOCAB).unwrap();
        let prompt: Vec<u32> = (0..70).collect();
        sampler.begin(&prompt);
        let mut ahead = sampler.clone();
        let draft = [5, 2999, 5, 1024, 7];
        for drafted in 1..=draft.len() {
            // Only this token can be chosen.
            let mut logits = vec![f32::NEG_INFINITY; VOCAB];
            logits[draft[drafted - 1] as usize] = 1.0;
            assert_eq!(ahead.sample(&logits).unwrap(), draft[drafted - 1]);
            let wanted = asked(&mut ahead, &[]);
            let before = asked(&mut sampler, &[]);
            assert_eq!(asked(&mut sampler, &draft[..drafted]), wanted, "{config:?}, {drafted} drafted");
            assert_eq!(asked(&mut sampler, &[]), before);
        }
        let logits: Vec<f32> = (0..VOCAB).map(|id| (id % 17) as f32 / 5.0).collect();
        let mut fresh = Sampler::new(config.clone(), VOCAB).unwrap();
        fresh.begin(&prompt);
        for _ in 0..20 {
            assert_eq!(sampler.sample(&logits).unwrap(), fresh.sample(&logits).unwrap(), "{config:?}");
        }
    }
}
