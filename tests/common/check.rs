//! Compares an executor with a golden case.

use super::{Case, floats, ids, max_abs, observe, relative_rms, rms};
use kiln::executor::{DraftRow, Executor, ExecutorExt, HeadRows, Measure, Row, Stepwise, Submission};
use kiln::model::WeightFormat;
use kiln::schedule::Op;
use kiln::sequence::session::Session;
use std::collections::BTreeSet;

pub const F32_SHALLOW: Tolerance = Tolerance::MaxAbs(3e-4);
/// Of Gemma 4's few layers: its scores are not scaled, so that rounding counts more (3.1e-4 at most).
pub const F32_GEMMA4: Tolerance = Tolerance::MaxAbs(5e-4);
pub const F16_GEMMA4: Tolerance = Tolerance::RelativeRms(0.03);
/// Of a mixture, whose experts a rounding may change.
pub const F16_EXPERTS: Tolerance = Tolerance::RelativeRms(0.05);
pub const F32_DEEP: Tolerance = Tolerance::MaxAbs(2e-3);
pub const F16_SHALLOW: Tolerance = Tolerance::RelativeRms(0.015);
/// With keys and values in bf16, of eight bits: of few layers.
pub const BF16_KV: f32 = 0.02;
pub const F16_DEEP: Tolerance = Tolerance::RelativeRms(0.12);

/// How close a result must be.
#[derive(Clone, Copy)]
pub enum Tolerance {
    MaxAbs(f32),
    RelativeRms(f32),
}

impl Tolerance {
    pub fn check(self, got: &[f32], want: &[f32], what: &str) {
        let (error, limit) = match self {
            Tolerance::MaxAbs(t) => (max_abs(got, want), t),
            Tolerance::RelativeRms(t) => (relative_rms(got, want), t),
        };
        println!("{what}: {error:.2e} of {limit:.2e}");
        assert!(error <= limit, "{what}: {error} is past the tolerance of {limit}");
    }

    /// The margin below which a row may take other experts.
    fn route(self) -> f32 {
        match self {
            Tolerance::MaxAbs(_) => 0.0,
            // With keys and values in bf16.
            Tolerance::RelativeRms(t) if t > 0.05 => 0.1,
            Tolerance::RelativeRms(_) => 0.03,
        }
    }

    /// The largest change of one logit that the tolerance allows, for judging margins.
    fn logit(self, rms: f32) -> f32 {
        match self {
            Tolerance::MaxAbs(t) => t,
            // The sum of many rounding errors is nearly normal: allow four standard deviations.
            Tolerance::RelativeRms(t) => 4.0 * t * rms,
        }
    }
}

/// Compares a model's prompts with the golden case: logits, choices, and hidden rows.
pub fn check_prompts(case: &Case, executor: &mut dyn Measure, weights: WeightFormat, tolerance: Tolerance, what: &str) {
    for prompt in case.prompts() {
        check_prompt(case, executor, prompt, weights, tolerance, what);
    }
}

/// As [`check_prompts`], one of them.
pub fn check_prompt(
    case: &Case,
    executor: &mut dyn Measure,
    prompt: &serde_json::Value,
    weights: WeightFormat,
    tolerance: Tolerance,
    what: &str,
) {
    let name = prompt["name"].as_str().unwrap();
    let (key, prefix) = match weights {
        WeightFormat::Int8 => ("int8", "int8."),
        WeightFormat::Bf16 => ("f32", ""),
        format => panic!("the golden cases have no logits of {}", format.name()),
    };
    let what = format!("{} {name} {key}, {what}", case.name);
    let golden = &prompt[key];
    let want = case.tensor(&format!("{name}.{prefix}logits"));
    let slack = 2.0 * tolerance.logit(rms(want));

    let tokens = ids(&prompt["ids"]);
    let mut session = Session::new(0, 160);
    let out = observe(executor, &mut session, &tokens);
    tolerance.check(out.logits.last().unwrap(), want, &format!("{what} last logits"));

    let near = if executor.schedule().shape.experts.is_some() {
        let set = |experts: &[u32]| experts.iter().copied().collect::<BTreeSet<u32>>();
        let found = executor.result(0).experts;
        let routes = case.tensor(&format!("{name}.{prefix}routes"));
        let last: Vec<u32> = routes[routes.len() - found.len()..].iter().map(|expert| *expert as u32).collect();
        assert!(!last.is_empty() && set(found) == set(&last), "{what}: the last row's experts {found:?}, not {last:?}");
        let margins = case.tensor(&format!("{name}.{prefix}route_margin"));
        (0..margins.len()).filter(|i| margins[*i] <= tolerance.route()).map(|i| i % tokens.len()).collect()
    } else {
        BTreeSet::new()
    };
    check_positions(&out.logits, golden, &tokens, &near, slack, &what);
    if weights == WeightFormat::Bf16 {
        let layers = executor.schedule().shape.layers.len();
        assert_eq!(out.hidden.len(), layers + 2, "{what}: embedding, layers, final norm");
        let hidden: Vec<f32> = out.hidden.concat();
        match tolerance {
            // Hidden rows are larger than logits, and rounding grows with them.
            Tolerance::MaxAbs(t) => {
                let want = case.tensor(&format!("{name}.hidden"));
                let largest = want.iter().fold(1f32, |m, x| m.max(x.abs()));
                Tolerance::MaxAbs(t * largest.max(1.0)).check(&hidden, want, &format!("{what} hidden rows"));
            }
            t => t.check(&hidden, case.tensor(&format!("{name}.hidden")), &format!("{what} hidden rows")),
        }
        if name == "len33" {
            tolerance.check(&out.logits.concat(), case.tensor("len33.all_logits"), &format!("{what} all logits"));
        }
    }
    check_greedy(executor, &mut session, out.next, golden, [slack, tolerance.route()], &what);
}

/// Compares the experts of every row and layer with the golden ones, as sets, in passes of at most `chunk` rows. A row's may
/// differ where its margin allows; then rows that see it in later layers are not judged. The last position's never differ.
pub fn check_routes(
    case: &Case,
    executor: &mut dyn Stepwise,
    weights: WeightFormat,
    tolerance: Tolerance,
    chunk: usize,
    what: &str,
) {
    let prefix = if weights == WeightFormat::Int8 { "int8." } else { "" };
    for prompt in case.prompts() {
        let (name, tokens) = (prompt["name"].as_str().unwrap(), ids(&prompt["ids"]));
        let found = observe_routes(executor, &tokens, chunk);
        let used = executor.schedule().shape.experts.unwrap().used;
        let [routes, margins] = ["routes", "route_margin"].map(|of| case.tensor(&format!("{name}.{prefix}{of}")));
        let set = |experts: &[u32]| experts.iter().copied().collect::<BTreeSet<u32>>();
        let (mut seen, mut changed) = (tokens.len(), 0);
        for (layer, found) in found.iter().enumerate() {
            let mut first = seen;
            for (position, found) in found.iter().enumerate() {
                let at = layer * tokens.len() + position;
                let wanted: Vec<u32> = routes[at * used..(at + 1) * used].iter().map(|expert| *expert as u32).collect();
                assert_eq!(set(found).len(), used, "{what} {name}, layer {layer}, row {position}: {found:?}");
                if set(found) == set(&wanted) {
                    continue;
                }
                let may = position + 1 < tokens.len() && (position >= seen || margins[at] <= tolerance.route());
                let margin = margins[at];
                assert!(may, "{what} {name}, layer {layer}, row {position}: {found:?}, not {wanted:?} by {margin}");
                (first, changed) = (first.min(position), changed + 1);
            }
            seen = first;
        }
        println!("{} {name} {prefix} {what}: {changed} rows with other experts", case.name);
    }
}

/// The experts of a prompt's rows, `[layers][rows][used]`.
fn observe_routes(executor: &mut dyn Stepwise, tokens: &[u32], chunk: usize) -> Vec<Vec<Vec<u32>>> {
    let schedule = executor.schedule().clone();
    let mut found = vec![Vec::new(); schedule.shape.layers.len()];
    let rows: Vec<Row> =
        (0..).zip(tokens).map(|(position, token)| Row { token: *token, position, sequence: 0 }).collect();
    for rows in rows.chunks(chunk) {
        executor.begin_pass(rows, None).unwrap();
        let mut layer = 0;
        for range in executor.ranges().unwrap() {
            if schedule.steps[range.start].segment == kiln::schedule::Segment::Head {
                break;
            }
            executor.run_steps(range.clone()).unwrap();
            for step in &schedule.steps[range] {
                let Op::Route { chosen, .. } = step.op else { continue };
                executor
                    .access_arena(&mut |arena| {
                        let row = |r| &arena[chosen.row(r) as usize / 4..][..chosen.width];
                        let experts = (0..rows.len()).map(|r| row(r).iter().map(|word| word.to_bits()).collect());
                        found[layer].extend(experts);
                    })
                    .unwrap();
                layer += 1;
            }
        }
    }
    found
}

/// Each position's argmax (where its margin allows) and negative log likelihood. A position that is `near` a choice of
/// other experts may be off; then those behind it, which see it, are not judged.
fn check_positions(
    logits: &[Vec<f32>],
    golden: &serde_json::Value,
    tokens: &[u32],
    near: &BTreeSet<usize>,
    slack: f32,
    what: &str,
) {
    let at = &golden["per_position"];
    let (argmax, margin, nll) = (ids(&at["argmax"]), floats(&at["margin"]), floats(&at["nll"]));
    assert_eq!(logits.len(), argmax.len(), "{what}: one row of logits a position");
    for (i, row) in logits.iter().enumerate() {
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
        let mut fault = None;
        if best != argmax[i] && margin[i] > slack {
            fault = Some(format!("position {i} chose {best}, not {}", argmax[i]));
        }
        if i + 1 < tokens.len() {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let log_sum = row.iter().map(|x| f64::from(x - max).exp()).sum::<f64>().ln() as f32 + max;
            let got = log_sum - row[tokens[i + 1] as usize];
            if (got - nll[i]).abs() > slack.max(2e-3) {
                fault = Some(format!("nll at {i} is {got}, not {}", nll[i]));
            }
        }
        let Some(fault) = fault else { continue };
        assert!(near.contains(&i), "{what}: {fault}");
        println!("{what}: {fault}, near a choice of other experts");
        return;
    }
}

/// Checks the greedy continuation up to the first choice whose margin leaves doubt.
fn check_greedy(
    executor: &mut dyn Measure,
    session: &mut Session,
    first: u32,
    golden: &serde_json::Value,
    [slack, route_slack]: [f32; 2],
    what: &str,
) {
    let routes = golden["greedy"].get("route_margin").map(floats);
    let (want, margin) = (ids(&golden["greedy"]["ids"]), floats(&golden["greedy"]["margin"]));
    let mut next = first;
    for (i, &id) in want.iter().enumerate() {
        if margin[i] <= slack || routes.as_ref().is_some_and(|margin| margin[i] <= route_slack) {
            break;
        }
        assert_eq!(next, id, "{what}: greedy step {i}");
        if session.room(executor.schedule()) == 0 {
            break;
        }
        session.decode(executor, next).unwrap();
        next = executor.next(0);
    }
}

/// Runs a prompt in a sequence, with a head for its last row.
pub fn run_prompt(executor: &mut dyn Stepwise, prompt: &[u32], sequence: usize) {
    let row =
        |(position, token): (usize, &u32)| Row { token: *token, position: position as u32, sequence: sequence as u32 };
    let rows: Vec<Row> = prompt.iter().enumerate().map(row).collect();
    executor.forward(&rows, Some(HeadRows { first: rows.len() - 1, count: 1 })).unwrap();
}

/// Drafts `count` tokens for each row of a draft.
pub fn draft(executor: &mut dyn Stepwise, rows: &[DraftRow], count: usize) -> Vec<Vec<u32>> {
    assert!(executor.submit(Submission::Draft { rows, count }).unwrap(), "the states are there");
    executor.wait().unwrap();
    let tokens = |row| (0..count).map(|step| executor.next(step * rows.len() + row)).collect();
    (0..rows.len()).map(tokens).collect()
}

/// The state that the next step would begin with.
fn draft_state(executor: &mut dyn Stepwise) -> Vec<f32> {
    let slot = executor.schedule().drafter.as_ref().unwrap().state;
    let mut state = Vec::new();
    executor.access_arena(&mut |arena| state = arena[slot.offset as usize / 4..][..slot.width].to_vec()).unwrap();
    state
}

/// Compares drafts behind each prompt of drafter4, each in a sequence of its own, with the golden ones: logits and states
/// step by step, until a choice is too close for the tolerance.
pub fn check_drafts(executor: &mut dyn Stepwise, weights: WeightFormat, tolerance: f32, what: &str) {
    let case = Case::open("drafter4");
    let (key, prefix) = if weights == WeightFormat::Int8 { ("int8", "int8.") } else { ("f32", "") };
    let mut worst = 0f32;
    for (sequence, prompt) in case.prompts().iter().enumerate() {
        let (name, tokens, of) = (prompt["name"].as_str().unwrap(), ids(&prompt["ids"]), &prompt[key]);
        let (want, margins) = (ids(&of["ids"]), floats(&of["margin"]));
        run_prompt(executor, &tokens, sequence);
        let token = of["token"].as_u64().unwrap() as u32;
        let row = Row { token, position: tokens.len() as u32, sequence: sequence as u32 };
        let [logits, states] = ["logits", "states"].map(|what| case.tensor(&format!("{name}.{prefix}{what}")).to_vec());
        let (vocab, hidden) = (logits.len() / want.len(), states.len() / want.len());
        for (step, (logits, state)) in logits.chunks(vocab).zip(states.chunks(hidden)).enumerate() {
            let got = draft(executor, &[DraftRow { row, head: 0 }], step + 1).remove(0);
            let error = relative_rms(executor.logits(0).unwrap(), logits);
            let of_state = relative_rms(&draft_state(executor), state);
            worst = worst.max(error).max(of_state);
            let what = format!("{what} {name} {key} step {step}");
            assert!(error <= tolerance && of_state <= tolerance, "{what}: {error:.2e}, state {of_state:.2e}");
            if margins[step] < 8.0 * tolerance * rms(logits) {
                break;
            }
            assert_eq!(got[step], want[step], "{what}: {got:?} and {want:?}");
        }
    }
    println!("{what}: {worst:.2e} of {tolerance:.2e}");
    assert!(worst > 0.0);
}
