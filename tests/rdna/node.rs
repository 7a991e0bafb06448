//! The GPU behind the fake render node: its submits are read and run by the ring (pm4.rs).

use super::*;
use crate::pm4::{CODE, Ring};
use gfx11::machine::Machine;
use gfx11::memory::Memory;
use kiln::testing::amdgpu::code;
use kiln::testing::amdgpu::device::RenderDevice;
use kiln::testing::amdgpu::driver::Amdgpu;
use kiln::testing::amdgpu::fake::{Alive, Executes, FakeNode, GpuSpace};

/// See the module. Caches live from one submit to the next.
pub struct ExecutingGpu {
    ring: Ring,
    machine: Machine,
}

impl ExecutingGpu {
    pub fn new(config: Config) -> ExecutingGpu {
        ExecutingGpu { ring: Ring::default(), machine: Machine::new(config) }
    }
}

impl Executes for ExecutingGpu {
    fn execute(&mut self, ibs: &[(u64, u32)], space: &mut GpuSpace) -> Result<(), String> {
        let lists = ibs.iter().map(|(address, count)| Ok(space.words(*address, *count as usize)?.to_vec()));
        let lists = lists.collect::<Result<Vec<Vec<u32>>, String>>()?;
        let mut memory = Memory::default();
        let mappings: Vec<_> = space.mappings().cloned().collect();
        for mapping in &mappings {
            let (start, count) = (mapping.addresses.start, (mapping.addresses.end - mapping.addresses.start) / 4);
            let name = if mapping.is_executable { CODE } else { "data" };
            memory.add_words(&format!("{name} {start:#x}"), start, space.words(start, count as usize)?);
            // What was put there just now is no change.
            memory.take_changed(start, 0, |_, _| {}).map_err(|what| what.to_string())?;
        }
        self.ring.submit(&mut self.machine, &memory, &lists.iter().map(|list| &list[..]).collect::<Vec<_>>())?;
        for mapping in &mappings {
            let start = mapping.addresses.start;
            let mut done = Ok(());
            let look = |first: usize, words: &[u32]| {
                let bytes: &[u8] = bytemuck::cast_slice(words);
                match space.bytes_mut(start + 4 * first as u64, bytes.len() as u64) {
                    Ok(place) => place.copy_from_slice(bytes),
                    Err(e) => done = Err(e),
                }
            };
            memory.take_changed(start, 0, look).map_err(|what| what.to_string())?;
            done?;
        }
        Ok(())
    }
}

/// Loads a model onto the product's driver, whose render node is a fake with this GPU.
fn load(compiler: &Shared, setup: Setup, checkpoint: &Checkpoint) -> (FakeNode, Replay<Amdgpu>) {
    let chip = compiler.borrow().chip;
    let of_node = match chip {
        Chip::Gfx1103 => code::Chip::Gfx1103,
        Chip::Gfx1151 => code::Chip::Gfx1151,
    };
    let config = Config { apart: !setup.relay, ..chip.config(setup.seed) };
    let node = FakeNode::new(of_node, ExecutingGpu::new(config));
    let device = Rc::new(RenderDevice::open(&node.path()).unwrap_or_else(|e| panic!("{e}")));
    let compiler = compiler.clone();
    let source = move |kernel: &Kernel| Ok(ring::code_of(&mut compiler.borrow_mut(), *kernel));
    let driver = Amdgpu::new(&device, Box::new(source)).unwrap_or_else(|e| panic!("{e}"));
    let memory = device.memory().unwrap_or_else(|e| panic!("{e}"));
    (node, setup.load_on(driver, &memory, checkpoint))
}

fn check(compiler: &Shared, name: &'static str, prompt: &str, setup: Setup) {
    let (node, replay) = load(compiler, setup, &Checkpoint::open(&golden_dir(name)).unwrap());
    setup.check_on(replay, &Watch::default(), name, prompt);
    assert_eq!(node.kernel().complaints, [""; 0]);
    assert!(node.kernel().requests.contains(&SUBMIT));
    assert_eq!(node.alive(), Alive::default());
}

/// The number of DRM_AMDGPU_CS.
const SUBMIT: u8 = 0x44;

#[test]
fn passes_on_a_fake_node_have_the_golden_logits() {
    on_radv("node::passes_on_a_fake_node_have_the_golden_logits", |compiler| {
        for (name, prompt, setup) in [
            ("tiny", "len33", INT8),
            ("tiny", "len17", Setup { chunk: 1, relay: true, behind: true, ..INT8 }),
            ("tiny4", "len16", Setup { chunk: 7, ..INT8 }),
        ] {
            check(compiler, name, prompt, setup);
        }
    });
}

#[test]
fn passes_on_a_fake_node_of_gfx1151_have_the_golden_logits() {
    on_chip(Chip::Gfx1151, "node::passes_on_a_fake_node_of_gfx1151_have_the_golden_logits", |compiler| {
        check(compiler, "tiny4", "len17", INT8);
    });
}
