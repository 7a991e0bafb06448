//! Gemma 4's drafter on the golden case: its logits and states step by step, on every executor; drafts of several
//! sequences at once; replies with its drafts, right and wrong, which are those of plain decoding.

use crate::common::check::{check_drafts, draft, run_prompt};
use crate::common::{
    self, AUTO, Case, DOT, F32, MATRIX_F16, MATRIX_S8, forced, golden, ids, listen, relative_rms, vulkan,
};
use kiln::engine::{self, Device, Options};
use kiln::executor::weights::Progress;
use kiln::executor::{DraftRow, Executor, ExecutorExt, HeadRows, Row, Stepwise};
use kiln::model::WeightFormat;
use kiln::model::checkpoint::Checkpoint;
use kiln::schedule::KvType;
use kiln::sequence::draft::{AttachedDrafter, DraftRequest, MOST_DRAFTED, Proposer};
use kiln::sequence::{Batch, Chooser, Generation, SequenceRequest};
use kiln::testing::lower::arithmetic::Arithmetic;
use kiln::text::SamplerConfig;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

/// The golden prompts, each in a sequence of its own.
const PROMPTS: usize = 6;
/// Steps of the golden drafts.
const STEPS: usize = 5;

fn checkpoint() -> Checkpoint {
    let drafter = Checkpoint::open(&golden("drafter4")).unwrap();
    Checkpoint::open(&golden("tiny4")).unwrap().with_drafter(drafter).unwrap()
}

fn options(device: Device, weights: WeightFormat, kv: KvType, arithmetic: Option<Arithmetic>) -> Options {
    Options {
        device,
        weights,
        kv,
        sequences: PROMPTS,
        head_rows: PROMPTS,
        drafted: MOST_DRAFTED,
        context: Some(160),
        vulkan: forced(arithmetic),
        ..Options::default()
    }
}

fn open(options: &Options) -> Box<dyn Stepwise> {
    listen();
    engine::load_stepwise(&checkpoint(), options, &Progress::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Compares drafts behind each golden prompt with the golden ones.
fn check(options: &Options, tolerance: f32) {
    let what = format!("{:?} {} {:?}", options.device, options.weights.name(), options.kv);
    check_drafts(open(options).as_mut(), options.weights, tolerance, &what);
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

#[test]
fn the_reference_drafts_as_transformers_does() {
    check(&options(Device::Reference, WeightFormat::Bf16, KvType::F32, AUTO), 1e-4);
    check(&options(Device::Reference, WeightFormat::Int8, KvType::F32, AUTO), 1e-4);
}

#[test]
fn the_cpu_drafts_as_transformers_does() {
    check(&options(Device::Cpu, WeightFormat::Bf16, KvType::F16, AUTO), 0.01);
    check(&options(Device::Cpu, WeightFormat::Int8, KvType::F16, AUTO), 0.01);
}

#[test]
fn vulkan_drafts_as_transformers_does() {
    let device = vulkan();
    let gpu = common::open_gpu();
    if common::takes_all(&gpu) {
        check(&options(device, WeightFormat::Int8, KvType::F32, F32), 1e-4);
    }
    check(&options(device, WeightFormat::Bf16, KvType::F32, F32), 1e-4);
    check(&options(device, WeightFormat::Int8, KvType::F16, DOT), 0.01);
    let units = gpu.caps.matrix;
    if units.is_some() {
        check(&options(device, WeightFormat::Bf16, KvType::F16, MATRIX_F16), 0.03);
        check(&options(device, WeightFormat::Int8, KvType::F16, AUTO), 0.03);
    }
    if units.is_some_and(|units| units.s8_k.is_some()) {
        check(&options(device, WeightFormat::Int8, KvType::F16, MATRIX_S8), 0.03);
    }
}

/// Writes the logits of each step of a draft behind each golden prompt, as f32, for tests/llama_cpp: of the model, with the
/// drafter and on the device that the environment names, to the file that it names.
#[test]
#[ignore = "tests/llama_cpp runs it"]
fn writes_the_logits_of_drafts() {
    let [model, drafter, device, out] =
        ["MODEL", "DRAFTER", "DEVICE", "OUT"].map(|name| std::env::var(format!("KILN_{name}")).unwrap());
    let [model, drafter] = [model, drafter].map(|path| Checkpoint::open(path.as_ref()).unwrap());
    let (device, arithmetic) = match device.as_str() {
        "reference" => (Device::Reference, AUTO),
        "cpu" => (Device::Cpu, AUTO),
        _ => (vulkan(), F32),
    };
    let options = options(device, WeightFormat::Bf16, KvType::F16, arithmetic);
    let checkpoint = model.with_drafter(drafter).unwrap();
    let mut executor = engine::load_stepwise(&checkpoint, &options, &Progress::default()).unwrap();
    let mut logits: Vec<f32> = Vec::new();
    for (sequence, prompt) in Case::open("drafter4").prompts().iter().enumerate() {
        let tokens = ids(&prompt["ids"]);
        run_prompt(executor.as_mut(), &tokens, sequence);
        let token = prompt["f32"]["token"].as_u64().unwrap() as u32;
        let row = Row { token, position: tokens.len() as u32, sequence: sequence as u32 };
        for steps in 1..=STEPS {
            draft(executor.as_mut(), &[DraftRow { row, head: 0 }], steps);
            logits.extend(executor.logits(0).unwrap());
        }
    }
    std::fs::write(out, bytemuck::cast_slice(&logits)).unwrap();
}

/// The prompts' drafts at once, in an order of its own, are each prompt's alone: on the CPU to the bit.
fn check_together(options: &Options) {
    let case = Case::open("drafter4");
    let mut executor = open(options);
    let prompts: Vec<Vec<u32>> = case.prompts().iter().map(|prompt| ids(&prompt["ids"])).collect();
    let mut alone = Vec::new();
    for (sequence, prompt) in prompts.iter().enumerate() {
        run_prompt(executor.as_mut(), prompt, sequence);
        let token = executor.next(0);
        let row = Row { token, position: prompt.len() as u32, sequence: sequence as u32 };
        let drafted = draft(executor.as_mut(), &[DraftRow { row, head: 0 }], STEPS).remove(0);
        alone.push((row, drafted, executor.logits(0).unwrap().to_vec()));
    }
    // A driver for the processor compiles for each number of rows.
    let is_sample = options.device == vulkan() && !common::takes_all(&common::open_gpu());
    let orders: [&[usize]; 3] = [&[5, 2, 0], &[0, 1, 2, 3, 4, 5], &[3, 4]];
    for order in &orders[..if is_sample { 1 } else { 3 }] {
        // The last rows once more, in one pass: head row i is that of sequence i.
        let last: Vec<Row> = prompts
            .iter()
            .enumerate()
            .map(|(sequence, prompt)| Row {
                token: *prompt.last().unwrap(),
                position: prompt.len() as u32 - 1,
                sequence: sequence as u32,
            })
            .collect();
        executor.forward(&last, Some(HeadRows { first: 0, count: last.len() })).unwrap();
        let rows: Vec<DraftRow> = order.iter().map(|&i| DraftRow { row: alone[i].0, head: i }).collect();
        let together = draft(executor.as_mut(), &rows, STEPS);
        for (row, (&i, drafted)) in order.iter().zip(&together).enumerate() {
            let error = relative_rms(executor.logits(row).unwrap(), &alone[i].2);
            let limit = if options.device == Device::Reference { 1e-5 } else { 0.03 };
            assert!(error <= limit, "prompt {i} of {order:?}: {error}");
            assert_eq!(drafted[0], alone[i].1[0], "prompt {i} of {order:?}");
        }
    }
    assert_eq!(kiln::testing::vulkan::device::instance::validation_messages(), 0);
}

/// The other spellings of the drafter give the same drafts, to the bit.
#[test]
fn every_spelling_of_the_drafter_is_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(golden("drafter4/config.hub.json"), dir.path().join("config.json")).unwrap();
    std::fs::copy(golden("drafter4/model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let file = dir.path().join("drafter.gguf");
    std::fs::write(&file, common::gguf::golden_drafter(common::gguf::Float::Bf16).bytes()).unwrap();
    let mut of = Vec::new();
    for path in [golden("drafter4"), dir.path().to_owned(), file] {
        let model = Checkpoint::open(&golden("tiny4")).unwrap();
        let model = model.with_drafter(Checkpoint::open(&path).unwrap()).unwrap_or_else(|e| panic!("{e}"));
        let options = options(Device::Reference, WeightFormat::Bf16, KvType::F32, AUTO);
        let mut executor = engine::load_stepwise(&model, &options, &Progress::default()).unwrap();
        let prompt = ids(&Case::open("drafter4").prompts()[2]["ids"]);
        run_prompt(executor.as_mut(), &prompt, 0);
        let row = Row { token: executor.next(0), position: prompt.len() as u32, sequence: 0 };
        draft(executor.as_mut(), &[DraftRow { row, head: 0 }], STEPS);
        of.push(common::bits(executor.as_mut(), 0));
    }
    assert!(of[0] == of[1] && of[0] == of[2]);
}

#[test]
fn several_sequences_draft_at_once() {
    check_together(&options(Device::Reference, WeightFormat::Bf16, KvType::F32, AUTO));
    check_together(&options(Device::Cpu, WeightFormat::Int8, KvType::F16, AUTO));
    check_together(&options(vulkan(), WeightFormat::Int8, KvType::F32, F32));
}

/// Drafts by position in a sequence.
type Seen = Rc<RefCell<HashMap<Vec<u32>, Vec<u32>>>>;

/// A drafter whose drafts are noted, and replaced by the first tokens of the known replies: so many are right, and the
/// others are wrong.
struct Spy {
    drafter: AttachedDrafter,
    /// The known sequences, prompts included.
    known: Vec<Vec<u32>>,
    asked: HashMap<usize, (Vec<u32>, usize)>,
    seen: Seen,
    round: usize,
}

impl Proposer for Spy {
    fn begin(&mut self, slot: usize) {
        self.drafter.begin(slot);
    }

    fn ask(&mut self, request: DraftRequest<'_>) -> kiln::Result<()> {
        self.asked.insert(request.slot, (request.tokens.to_vec(), request.most));
        self.drafter.ask(request)
    }

    fn make(&mut self, executor: &mut dyn Executor) -> kiln::Result<()> {
        self.round += 1;
        self.drafter.make(executor)
    }

    fn copy_draft(&self, slot: usize, draft: &mut Vec<u32>) -> usize {
        let mut own = Vec::new();
        self.drafter.copy_draft(slot, &mut own);
        let (tokens, most) = &self.asked[&slot];
        assert_eq!(own.len(), *most, "every sequence's state is there");
        self.seen.borrow_mut().insert(tokens.clone(), own);
        let known = self.known.iter().find(|known| known.starts_with(tokens)).expect("the reply is a known one");
        let right = (self.round + slot) % (most + 1);
        draft.extend(known[tokens.len()..].iter().take(right));
        draft.extend((draft.len()..*most).map(|_| 7));
        0
    }

    fn grade(&self) -> Option<usize> {
        Some(0)
    }

    fn most_sequences(&self) -> usize {
        self.drafter.most_sequences()
    }
}

/// Replies to the golden prompts, greedy and sampled, all at once.
fn replies(executor: &mut dyn Executor, drafter: Option<Box<dyn Proposer>>) -> Vec<Generation> {
    let case = Case::open("drafter4");
    let mut batch = Batch::new(executor.schedule());
    if let Some(drafter) = drafter {
        batch.speculate(MOST_DRAFTED, false, drafter);
    }
    let vocab = executor.schedule().shape.vocab;
    let mut slots = Vec::new();
    for (i, prompt) in case.prompts().iter().enumerate() {
        let config = match i % 2 {
            0 => SamplerConfig::greedy(),
            _ => SamplerConfig { temperature: 0.7, seed: Some(i as u64), ..SamplerConfig::default() },
        };
        let chooser = Chooser::new(config, vocab).unwrap();
        let request =
            SequenceRequest { prompt: ids(&prompt["ids"]), chooser, stops: Vec::new(), limit: 30, reuse: false };
        slots.push(batch.join(executor, request).unwrap());
    }
    let mut replies: Vec<Option<Generation>> = slots.iter().map(|_| None).collect();
    while !batch.is_empty() {
        batch.step(executor, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        for ended in std::iter::from_fn(|| batch.take_ended()) {
            let at = slots.iter().position(|slot| *slot == ended.slot).unwrap();
            replies[at] = Some(ended.reply.unwrap());
        }
    }
    replies.into_iter().flatten().collect()
}

/// Replies do not depend on drafts; a draft does not depend on how many drafts before it were right.
fn check_replies(device: Device) {
    let options =
        options(device, WeightFormat::Int8, if device == Device::Cpu { KvType::F16 } else { KvType::F32 }, F32);
    let mut executor = open(&options);
    let plain = replies(executor.as_mut(), None);
    let own = AttachedDrafter::of(executor.schedule()).unwrap();
    let drafted = replies(executor.as_mut(), Some(Box::new(own)));
    let tokens = |replies: &[Generation]| replies.iter().map(|reply| reply.tokens.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(&drafted), tokens(&plain));
    assert!(drafted.iter().all(|reply| reply.drafted > 20 && reply.draft_bytes > 0), "{drafted:?}");

    let case = Case::open("drafter4");
    let prompts = case.prompts().iter().map(|prompt| ids(&prompt["ids"]));
    let known: Vec<Vec<u32>> =
        prompts.zip(&plain).map(|(prompt, reply)| [&prompt[..], &reply.tokens[..]].concat()).collect();
    let spied = |known: Vec<Vec<u32>>, round: usize, executor: &mut dyn Stepwise| {
        let seen = Seen::default();
        let drafter = AttachedDrafter::of(executor.schedule()).unwrap();
        let spy = Spy { drafter, known, asked: HashMap::new(), seen: seen.clone(), round };
        let replies = replies(executor, Some(Box::new(spy)));
        (replies, seen.take())
    };
    let (first, of_first) = spied(known.clone(), 0, executor.as_mut());
    let (second, of_second) = spied(known, 3, executor.as_mut());
    assert_eq!((tokens(&first), tokens(&second)), (tokens(&plain), tokens(&plain)));
    let accepted: usize = first.iter().map(|reply| reply.accepted).sum();
    assert!(accepted > 60, "{accepted}");
    let both: Vec<_> = of_first.iter().filter_map(|(at, draft)| Some((draft, of_second.get(at)?))).collect();
    let alike = |(a, b): &&(&Vec<u32>, &Vec<u32>)| a.iter().zip(b.iter()).take(1).all(|(a, b)| a == b);
    let same = both.iter().filter(alike).count();
    println!("{same} of {} first tokens alike", both.len());
    assert!(both.len() >= 8 && same == both.len(), "{same} of {}", both.len());
}

#[test]
fn replies_are_those_without_drafts() {
    check_replies(Device::Reference);
    check_replies(Device::Cpu);
    // A driver for the processor compiles for minutes.
    if common::takes_all(&common::open_gpu()) {
        check_replies(vulkan());
    }
}

#[test]
fn another_models_drafter_is_refused() {
    let open = |name: &str| Checkpoint::open(&golden(name)).unwrap();
    for (model, drafter, named) in [
        ("wide4", "drafter4", "the width is 256 in the model and 96 in the drafter"),
        ("tiny", "drafter4", "drafts for no Gemma 3"),
        ("tiny4", "tiny", "no drafter"),
    ] {
        let e = open(model).with_drafter(open(drafter)).unwrap_err();
        assert!(e.exit_code() == 2 && e.to_string().contains(named), "{e}");
    }
    let options = Options { device: Device::Reference, ..Options::default() };
    let e = engine::load(&open("drafter4"), &options, &Progress::default()).err().unwrap();
    assert!(e.to_string().contains("only drafts"), "{e}");
}
