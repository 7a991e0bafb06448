//! RADV's code of kernels, as the interpreter takes it.

use crate::Chip;
use gfx11::kernel::Kernel as Code;
use gfx11::program::Program;
use kiln::testing::amdgpu::code::{KernelCode, KernelRegisters, UserSgprs};
use kiln::testing::lower::kernels::Kernel;
use kiln::testing::vulkan::pipelines::Pipelines;
use kiln::testing::vulkan::{DeviceChoice, Gpu};
use std::collections::HashMap;
use std::rc::Rc;

/// Compiles each kernel once.
pub struct Compiler {
    pub chip: Chip,
    pub gpu: Rc<Gpu>,
    pipelines: Pipelines,
    made: HashMap<Kernel, Rc<Code>>,
}

impl Compiler {
    /// On the device that RADV was told of, which is that chip.
    pub fn new(chip: Chip) -> Compiler {
        let gpu = Rc::new(Gpu::open(DeviceChoice::Best).unwrap());
        assert!(gpu.caps.name.contains(chip.device()), "{}", gpu.caps.name);
        assert_eq!(gpu.caps.subgroup, 32);
        let pipelines = Pipelines::new(&gpu).unwrap();
        Compiler { chip, gpu, pipelines, made: HashMap::new() }
    }

    /// A kernel's code.
    pub fn get(&mut self, kernel: Kernel) -> Rc<Code> {
        if !self.made.contains_key(&kernel) {
            let code = Rc::new(self.compile(kernel));
            self.made.insert(kernel, code);
        }
        self.made[&kernel].clone()
    }

    /// A kernel's code as the product has it.
    pub fn product_code(&mut self, kernel: Kernel) -> KernelCode {
        let code = self.get(kernel);
        let [pointer, inline, groups] = code.places.map(|place| place.map(|r| r as u32));
        let user = UserSgprs { pointer, inline, inline_words: code.inline, groups };
        // The packets' writer puts them behind each other.
        let sgprs = user.words(&[], 0, &[0; 3]).map(|(sgpr, _)| sgpr);
        assert!(sgprs.eq((2..).take(user.words(&[], 0, &[0; 3]).count())), "{kernel:?}: {user:?}");
        let [rsrc1, rsrc2, rsrc3] = code.rsrc;
        let registers = KernelRegisters { rsrc1, rsrc2, rsrc3, limits: code.limits, lds: code.lds as u32, user };
        KernelCode { words: code.code.clone().into(), registers }
    }

    /// A kernel's code as RADV makes it.
    pub fn compile(&self, kernel: Kernel) -> Code {
        let blob = self.pipelines.cached(kernel).unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        let mut all = Code::all(&blob).unwrap_or_else(|e| panic!("{kernel:?}: {e}"));
        assert_eq!(all.len(), 1, "{kernel:?}");
        all.remove(0)
    }

    /// Waves of a kernel that a SIMD holds at a time, and its registers, as the driver says.
    pub fn occupancy(&self, kernel: Kernel) -> [u64; 2] {
        let gpu = Rc::new(Gpu::open_for_inspection(DeviceChoice::Best).unwrap());
        let compiled = Pipelines::new(&gpu).unwrap().inspect(kernel).unwrap();
        ["Subgroups per SIMD", "VGPRs"].map(|name| compiled.figure(name).unwrap() as u64)
    }

    /// The kernels that have run.
    pub fn kernels(&self) -> Vec<Kernel> {
        let mut kernels: Vec<Kernel> = self.made.keys().copied().collect();
        kernels.sort_unstable();
        kernels
    }

    /// Puts other words in a kernel's place; `None`: its own again.
    pub fn replace(&mut self, kernel: Kernel, words: Option<&[u32]>) {
        let mut code = self.compile(kernel);
        if let Some(words) = words {
            (code.code, code.program) = (words.to_vec(), Program::new(words).unwrap());
        }
        self.made.insert(kernel, Rc::new(code));
    }

    /// The driver's listing of a kernel around a byte of its code.
    pub fn listing(&self, kernel: Kernel, at: usize) -> String {
        let gpu = Rc::new(Gpu::open_for_inspection(DeviceChoice::Best).unwrap());
        let compiled = Pipelines::new(&gpu).unwrap().inspect(kernel).unwrap();
        let mut byte = 0;
        let line = |line: &str| {
            let words = line.rsplit_once("; ").map_or(0, |(_, words)| words.split_whitespace().count());
            byte += 4 * words;
            format!("{:#x} {line}", byte - 4 * words)
        };
        let lines: Vec<String> = compiled.text("Assembly").unwrap().lines().map(line).collect();
        let reached = |line: &&String| {
            let byte = line.split_once(' ').and_then(|(byte, _)| usize::from_str_radix(&byte[2..], 16).ok());
            byte.is_some_and(|byte| byte <= at)
        };
        let end = lines.iter().take_while(reached).count();
        lines[end.saturating_sub(40)..(end + 5).min(lines.len())].join("\n")
    }
}
