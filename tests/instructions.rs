//! Instructions that the host spends per decoded token, besides the executor's work: session, pass, choosing the token,
//! text. The device waits while they run. Callgrind counts them, with the same result on any machine for the same
//! compiler. tools/test prints the counts and fails if one has grown.

use kiln::executor::{self, DeviceInfo, Executor, HeadRows, Pages, Row, RowResult, Submission};
use kiln::model::presets;
use kiln::schedule::choice::{self, SampleRequest, SampleResult};
use kiln::schedule::{Extent, KvType, Schedule};
use kiln::sequence::draft::{MOST_DRAFTED, Repeats};
use kiln::sequence::{Batch, Chooser, Finish, Generation, SequenceRequest};
use kiln::testing::generate;
use kiln::text::SamplerConfig;
use std::ops::ControlFlow;
use std::process::Command;

/// One way to decode, and its instructions per token in the dev profile when last updated.
struct Case {
    name: &'static str,
    vocab: Vocab,
    sampler: SamplerConfig,
    /// Whether each token becomes text, as in `kiln run`.
    text: bool,
    /// Whether drafts are looked for in tokens that never repeat.
    drafts: bool,
    instructions: f64,
    /// Tokens of the shorter of two runs. The longer one has twice as many, so the difference is the cost of these
    /// tokens alone.
    tokens: usize,
}

#[derive(Clone, Copy)]
enum Vocab {
    Demo,
    Gemma27b,
}

/// Growth by more than this factor is a regression. Rust 1.95 and 1.96 agree within 1 %.
const TOLERANCE: f64 = 1.2;
/// Environment variable for the counted process: which case to run, and for how many tokens.
const CHILD: &str = "KILN_TEST_INSTRUCTIONS";

fn cases() -> [Case; 7] {
    let sampled = SamplerConfig { seed: Some(1), ..SamplerConfig::default() };
    let unfiltered = SamplerConfig { top_k: 0, top_p: 1.0, repeat_penalty: 1.1, ..sampled.clone() };
    let greedy = SamplerConfig::greedy();
    let case = |name, vocab, sampler: &SamplerConfig, text, instructions, tokens| Case {
        name,
        vocab,
        sampler: sampler.clone(),
        text,
        drafts: false,
        instructions,
        tokens,
    };
    [
        case("greedy, demo", Vocab::Demo, &greedy, false, 597.0, 128),
        case("greedy, demo, to text", Vocab::Demo, &greedy, true, 972.0, 128),
        case("greedy, 27B", Vocab::Gemma27b, &greedy, false, 597.0, 128),
        Case { drafts: true, ..case("greedy, 27B, no draft found", Vocab::Gemma27b, &greedy, false, 3_655.0, 128) },
        case("sampled, demo", Vocab::Demo, &sampled, false, 32_608.0, 16),
        case("sampled, 27B", Vocab::Gemma27b, &sampled, false, 36_424.0, 16),
        case("sampled from all tokens, penalised, 27B", Vocab::Gemma27b, &unfiltered, false, 179_520.0, 8),
    ]
}

/// An executor whose passes do only what each must do on the host: check and write the step state. Its logits are noise
/// that differs between passes.
struct Free {
    schedule: Schedule,
    pages: Pages,
    state: Vec<u32>,
    noise: Vec<f32>,
    /// The arena, for what is asked, and what is found.
    arena: Vec<u32>,
    found: Vec<u32>,
    /// Whether the last pass had a sample request.
    asked: [bool; 1],
    passes: usize,
    /// Passes until the tokens repeat.
    period: usize,
}

/// Passes until the noise repeats.
const PERIOD: usize = 61;

impl Free {
    fn new(vocab: Vocab, head_rows: usize, period: usize) -> Free {
        let shape = match vocab {
            Vocab::Demo => kiln::engine::demo::checkpoint().unwrap().shape().clone(),
            Vocab::Gemma27b => presets::preset("gemma3-27b").unwrap(),
        };
        let weights = kiln::model::WeightFormat::Int8;
        let extent = Extent { context: 512, max_rows: 8, head_rows, sequences: 1, kv: KvType::F16, kv_tokens: None };
        let mut bits = 1u32;
        let noise = (0..shape.vocab + PERIOD).map(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (bits >> 8) as f32 / f32::from(1u16 << 12) / 256.0
        });
        let noise: Vec<f32> = noise.collect();
        let schedule = Schedule::build(&shape, extent, |_| weights);
        let arena = vec![0; schedule.arena.bytes as usize / 4];
        let found = Free::find(&noise, schedule.shape.vocab);
        let pages = Pages::new(&schedule);
        Free {
            state: vec![0; schedule.arena.state.words()],
            schedule,
            pages,
            noise,
            arena,
            found,
            asked: [false],
            passes: 0,
            period,
        }
    }

    /// What a device finds in noise: some more tokens than are wanted by default, and blocks with equal sums.
    fn find(noise: &[f32], vocab: usize) -> Vec<u32> {
        let mut ids: Vec<usize> = (0..vocab).collect();
        ids.select_nth_unstable_by(70, |&a, &b| noise[b].total_cmp(&noise[a]));
        let mut found = vec![0; choice::found_words(vocab)];
        found[choice::COUNT] = 70;
        found[choice::FLOOR] = ids[..70].iter().map(|&id| noise[id]).fold(f32::INFINITY, f32::min).to_bits();
        for (entry, &id) in found[choice::LIST..choice::EDITED].chunks_exact_mut(2).zip(&ids[..70]) {
            entry.copy_from_slice(&[id as u32, noise[id].to_bits()]);
        }
        for block in found[choice::SUMS..].chunks_exact_mut(2) {
            block.copy_from_slice(&[1f32.to_bits(), 600f32.to_bits()]);
        }
        found
    }
}

impl Executor for Free {
    fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    fn device_info(&self) -> DeviceInfo<'_> {
        DeviceInfo { name: "none", hardware: "none", is_cpu: false }
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    fn submit(&mut self, work: Submission<'_>) -> kiln::Result<bool> {
        match work {
            Submission::Pass { rows, head, .. } => self.submit_pass(rows, head),
            Submission::Head(head) => {
                executor::write_head(&mut self.state, head);
                Ok(true)
            }
            Submission::Next { .. } | Submission::Resume | Submission::Draft { .. } => Ok(false),
            Submission::Samples(fill) => self.submit_samples(fill),
        }
    }

    fn wait(&mut self) -> kiln::Result<()> {
        Ok(())
    }

    fn result(&self, _: usize) -> RowResult<'_> {
        // Ordinary tokens of the demo vocabulary: ids below are special tokens or bytes.
        let next = 600 + (self.passes % self.period) as u32;
        RowResult { next, is_finite: true, found: self.asked[0].then(|| SampleResult::new(&self.found)), experts: &[] }
    }

    fn logits(&mut self, _: usize) -> kiln::Result<&[f32]> {
        Ok(&self.noise[self.passes % PERIOD..][..self.schedule.shape.vocab])
    }
}

impl Free {
    fn submit_pass(&mut self, rows: &[Row], head: Option<HeadRows>) -> kiln::Result<bool> {
        executor::admit_pass(&self.schedule, &mut self.pages, rows, head)?;
        executor::write_tables(&mut self.arena, &self.schedule.arena, &mut self.pages, |_, page| page as u64);
        executor::write_pass(&mut self.state, self.schedule.arena.state, rows, head);
        (self.passes, self.asked) = (self.passes + 1, [false]);
        Ok(true)
    }

    #[inline(never)]
    fn submit_samples(&mut self, fill: &mut dyn FnMut(usize, &mut SampleRequest<'_>)) -> kiln::Result<bool> {
        let words = &mut self.arena[executor::asks_in(&self.schedule)];
        executor::write_asks(words, &self.schedule, HeadRows { first: 0, count: 1 }, fill, &mut self.asked);
        let vocab = self.schedule.shape.vocab;
        let unit = f32::from_bits(self.arena[self.schedule.ask.offset as usize / 4 + choice::UNIT]);
        if unit >= 0.0 {
            let picked = (unit * choice::blocks(vocab) as f32) as usize;
            self.found[choice::PICKED] = picked as u32;
            let logits = &self.noise[picked * choice::BLOCK..((picked + 1) * choice::BLOCK).min(vocab)];
            self.found[choice::PICKED_LOGITS..][..logits.len()].copy_from_slice(bytemuck::cast_slice(logits));
        }
        Ok(true)
    }
}

/// The counted process decodes as many tokens as it is told to. Run as a normal test, it does the shortest run of every
/// case.
#[test]
fn decode_without_a_device() {
    let told = std::env::var(CHILD).ok();
    for (i, case) in cases().iter().enumerate() {
        match &told {
            Some(told) => {
                let (wanted, tokens) = told.split_once(',').unwrap();
                if wanted.parse() == Ok(i) {
                    decode(case, tokens.parse().unwrap());
                }
            }
            None => decode(case, 2),
        }
    }
}

fn decode(case: &Case, tokens: usize) {
    let mut executor = match case.drafts {
        true => Free::new(case.vocab, 1 + MOST_DRAFTED, usize::MAX),
        false => Free::new(case.vocab, 1, PERIOD),
    };
    let mut batch = Batch::new(&executor.schedule);
    if case.drafts {
        let context = executor.schedule.extent.context;
        batch.speculate(MOST_DRAFTED, true, Box::new(Repeats::new(batch.slots(), context, None)));
    }
    let chooser = Chooser::new(case.sampler.clone(), executor.schedule.shape.vocab).unwrap();
    let request = SequenceRequest { prompt: vec![2], chooser, stops: Vec::new(), limit: tokens, reuse: true };
    let mut stream = case.text.then(|| kiln::engine::demo::tokenizer().unwrap().stream(true));
    let mut bytes = 0;
    let done = counted(&mut executor, &mut batch, request, &mut |id| {
        bytes += stream.as_mut().map_or(0, |s| s.push(id).len());
        ControlFlow::Continue(())
    });
    assert_eq!(done.tokens.len(), tokens);
    assert_eq!(executor.passes, tokens, "a pass a token, the prompt's included");
    assert_eq!(bytes > 0, case.text);
}

/// Callgrind counts this function, by its name. There are no stop tokens, so that every run has its full length.
#[inline(never)]
fn counted(
    executor: &mut Free,
    batch: &mut Batch,
    request: SequenceRequest,
    on_token: &mut dyn FnMut(u32) -> ControlFlow<Finish>,
) -> Generation {
    generate(executor, batch, request, on_token).unwrap().0
}

#[test]
#[ignore = "needs valgrind and a quarter of a minute: tools/test runs it"]
fn instructions_per_token_have_not_grown() {
    println!("{:44} {:>12} {:>12}", "host instructions per decoded token", "now", "kept");
    let mut grown = Vec::new();
    for (i, case) in cases().iter().enumerate() {
        let now = (count(i, 2 * case.tokens) - count(i, case.tokens)) / case.tokens as f64;
        let growth = now / case.instructions;
        println!("{:44} {now:12.0} {:12.0} {:+6.1} %", case.name, case.instructions, 100.0 * (growth - 1.0));
        if growth > TOLERANCE {
            grown.push(case.name);
        }
    }
    assert!(grown.is_empty(), "more than {TOLERANCE} times what tests/instructions.rs says: {grown:?}");
}

/// Instructions of [`counted`], run in a child process.
fn count(case: usize, tokens: usize) -> f64 {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=instructions::counted*"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "decode_without_a_device", "--test-threads=1"])
        .env(CHILD, format!("{case},{tokens}"))
        .output()
        .expect("valgrind is installed");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}{said}", String::from_utf8_lossy(&out.stdout));
    let collected = said.lines().find_map(|l| l.split_once("Collected : ")).map(|(_, n)| n.trim().parse());
    collected.unwrap_or_else(|| panic!("callgrind says no count: {said}")).unwrap()
}
