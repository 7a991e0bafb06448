//! `--device amdgpu` as a whole: a machine whose render node is a fake with the interpreter behind it, and the code that
//! ships in the executable. No compiler is needed.

use super::*;
use crate::common::gguf::MOST_USED_MIXES;
use crate::node::ExecutingGpu;
use kiln::engine::core::CoreSettings;
use kiln::engine::open::OpenEngine;
use kiln::engine::request::{Event, Request};
use kiln::engine::{self, Device, ModelFiles, Options};
use kiln::executor::Measure;
use kiln::model::{FileMix, presets};
use kiln::sequence::draft::Drafts;
use kiln::testing::amdgpu::code;
use kiln::testing::amdgpu::device::RenderDevice;
use kiln::testing::amdgpu::fake::{Alive, FakeNode};
use kiln::testing::amdgpu::shipped;
use kiln::testing::diagnose::probe::{self, ProbeOptions, Verdict};

fn node(chip: code::Chip) -> FakeNode {
    let config = match chip {
        code::Chip::Gfx1103 => Config::gfx1103(1),
        code::Chip::Gfx1150 | code::Chip::Gfx1151 => Config::gfx1151(1),
    };
    FakeNode::new(chip, ExecutingGpu::new(Config { apart: true, ..config }))
}

fn options(device: &str) -> Options {
    let vulkan = ReplayOptions { tune: Some(Tune::Off), ..ReplayOptions::default() };
    Options {
        device: device.parse::<Device>().unwrap(),
        context: Some(64),
        chunk: Some(16),
        vulkan,
        ..Options::default()
    }
}

#[test]
fn a_model_on_an_amdgpu_device_has_the_golden_logits() {
    for (chip, device) in [(code::Chip::Gfx1103, "amdgpu"), (code::Chip::Gfx1151, "amdgpu:128")] {
        let (node, start) = (node(chip), Instant::now());
        let (_root, files) = node.machine();
        let (checkpoint, case) = (Checkpoint::open(&golden("tiny")).unwrap(), Case::open("tiny"));
        let mut executor: Box<dyn Measure> =
            engine::load_in(&files, &checkpoint, &options(device)).unwrap_or_else(|e| panic!("{e}"));
        assert!(executor.hardware().contains(chip.name()), "{}", executor.hardware());
        check_prompt(&case, executor.as_mut(), case.prompt("len33"), WeightFormat::Int8, F16_SHALLOW, chip.name());
        drop(executor);
        assert_eq!(node.kernel().complaints, [""; 0]);
        assert_eq!(node.alive(), Alive::default());
        println!("{:.1} s", start.elapsed().as_secs_f64());
    }
}

/// The built-in model's first tokens.
#[test]
fn the_built_in_model_replies_on_an_amdgpu_device_as_on_the_cpu() {
    let node = node(code::Chip::Gfx1103);
    let (_root, files) = node.machine();
    let reply = |device: &'static str| {
        let files = files.clone();
        let load = move || Ok((engine::load_in(&files, &ModelFiles::BuiltIn.checkpoint()?, &options(device))?, None));
        let settings = CoreSettings { gap: None, kept: u64::MAX, drafts: Drafts::default() };
        let engine = OpenEngine::open(load, settings, ()).unwrap_or_else(|e| panic!("{e}"));
        let mut request = Request { limit: 3, ..Request::new(vec![2, 105, 364, 107]) };
        request.sampler.temperature = 0.0;
        let events: Vec<_> = engine.submit(&request, None).unwrap().collect();
        let Some((0, Event::End(end))) = events.last() else { panic!("{events:?}") };
        end.generation.tokens.clone()
    };
    let start = Instant::now();
    assert_eq!(reply("amdgpu"), reply("cpu"));
    println!("{:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(node.kernel().complaints, [""; 0]);
    assert_eq!(node.alive(), Alive::default());
}

/// The trial of `auto`, here with the built-in model's draft model: it is refused where the GPU computes nothing.
#[test]
fn auto_tries_an_amdgpu_device_by_its_logits() {
    let draft = || engine::demo::draft_checkpoint().unwrap();
    let trial = |node: FakeNode| {
        let start = Instant::now();
        let (_root, files) = node.machine();
        let seconds = engine::trial_in(&files, Device::Amdgpu(None), draft());
        println!("{:.1} s", start.elapsed().as_secs_f64());
        assert_eq!(node.alive(), Alive::default());
        seconds
    };
    assert!(trial(node(code::Chip::Gfx1103)).unwrap_or_else(|e| panic!("{e}")) > 0.0);
    let e = trial(FakeNode::new(code::Chip::Gfx1103, ())).unwrap_err().to_string();
    assert!(e.starts_with("its logits differ from the CPU's by 1.000 of their size; "), "{e}");
}

/// Files of the public models in the mixes most used load, and those in others are refused by one line that names the type
/// or the kernel that is missing.
#[test]
fn mixes_load_or_are_refused_by_a_line() {
    for chip in code::Chip::ALL {
        let node = FakeNode::new(chip, ());
        let device = RenderDevice::open(&node.path()).unwrap();
        for (name, mix) in presets::NAMES.into_iter().flat_map(|name| FileMix::ALL.map(|mix| (name, mix))) {
            let shape = presets::preset(name).unwrap();
            let schedule = Schedule::build(&shape, INT8.extent(KvType::F16), |id| {
                WeightFormat::Int8.of_matrix(id, &shape, Some(mix.stored(id, &shape)))
            });
            let is_used = MOST_USED_MIXES.contains(&mix.name);
            let Err(e) = shipped::check(&device, &schedule, &ReplayOptions::default()) else { continue };
            let line = e.to_string();
            let missing = ["this executable has no kernels for weights in ", "this executable has no code for "];
            assert!(!is_used && missing.iter().any(|start| line.starts_with(start)), "{name}, {}: {line}", mix.name);
        }
    }
}

/// A kernel's result decides: a GPU that computes nothing opens as well.
#[test]
fn a_probe_runs_a_kernel_on_an_amdgpu_device() {
    for is_sound in [true, false] {
        let node = if is_sound { node(code::Chip::Gfx1103) } else { FakeNode::new(code::Chip::Gfx1103, ()) };
        let (root, files) = node.machine();
        let device = root.path().join("sys/class/drm/renderD128/device");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("uevent"), "DRIVER=amdgpu\n").unwrap();
        let device = Device::Amdgpu(None);
        let request = ProbeOptions { device, npu: None, wakes: true, ..ProbeOptions::of_machine(&files, false) };
        let report = probe::run(&request, &|_| ());
        let found = |name: &str| {
            let check = report.checks.iter().find(|check| check.name == name);
            check.map(|check| (check.verdict, check.evidence.to_string()))
        };
        let free = "free for a model: 503.3 MB of VRAM and 4.3 GB of GTT".to_owned();
        assert_eq!(found("amdgpu.memory"), Some((Verdict::Ok, free)));
        assert!(found("amdgpu.code").unwrap().1.ends_with(" kernels for gfx1103"));
        let shared = "exported from amdgpu: the same bytes on both sides, both ways".to_owned();
        if is_sound {
            assert_eq!(found("amdgpu.kernel"), Some((Verdict::Ok, "one copied 65.5 kB, each byte right".into())));
            assert_eq!(found("share.export"), Some((Verdict::Ok, shared)));
            assert!(report.summary().starts_with("Kiln can run on AMD Radeon (gfx1103), amdgpu 3.61.0"));
        } else {
            assert_eq!(found("amdgpu.kernel"), Some((Verdict::Fail, "what one copied is not what was there".into())));
            assert_eq!((report.device, found("share.export")), (None, None));
        }
        assert_eq!(node.alive(), Alive::default());
    }
}
