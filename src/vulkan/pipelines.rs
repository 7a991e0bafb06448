//! Pipelines: compiles kernels on several threads, and keeps the driver's cache on disk.

use crate::Result;
use crate::lower::kernels::push::PUSH_BYTES;
use crate::lower::kernels::{Kernel, checksum};
use crate::machine::cache;
use crate::replay::driver::{KernelCompiler, Readiness};
use crate::sys::exit;
use crate::vulkan::compiler::{Background, LATE};
use crate::vulkan::device::{Gpu, failure};
use crate::vulkan::spirv;
use ash::vk;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Largest cache that is read, in bytes. Drivers write a few MB.
const MAX_CACHE: u64 = 256 << 20;

static PIPELINES_CREATED: AtomicU64 = AtomicU64::new(0);

/// Pipelines that this process has created. Baking creates some; replaying must not.
#[cfg(feature = "testing")]
pub fn pipelines_created() -> u64 {
    PIPELINES_CREATED.load(Ordering::Relaxed)
}

/// Creates each pipeline once, and stores the driver's cache.
pub struct Pipelines {
    pub(crate) gpu: Rc<Gpu>,
    /// The layout of all pipelines: push constants only.
    pub layout: vk::PipelineLayout,
    cache: vk::PipelineCache,
    made: HashMap<Kernel, vk::Pipeline>,
    compiler: Arc<Compiler>,
    /// Compiles kernels in the background that may be needed later.
    background: Background<vk::Pipeline>,
    file: Option<PathBuf>,
}

impl Pipelines {
    /// Reads the cache file of this device and driver, if there is one.
    ///
    /// # Errors
    /// Device: the driver refuses.
    pub fn new(gpu: &Rc<Gpu>) -> Result<Pipelines> {
        let file = cache::directory().map(|d| d.join(format!("pipelines-{}.bin", gpu.features.cache_id)));
        let data = file.as_ref().and_then(|f| cache::read(f, MAX_CACHE)).and_then(unseal).unwrap_or_default();
        let info = vk::PipelineCacheCreateInfo::default().initial_data(&data);
        let ranges =
            [vk::PushConstantRange::default().stage_flags(vk::ShaderStageFlags::COMPUTE).size(PUSH_BYTES as u32)];
        let layout_info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&ranges);
        // SAFETY: the device lives as long as `gpu`; all structures live through the calls.
        unsafe {
            let cache = gpu.device.create_pipeline_cache(&info, None).map_err(failure("make a pipeline cache"))?;
            let layout = gpu.device.create_pipeline_layout(&layout_info, None).inspect_err(|_| {
                gpu.device.destroy_pipeline_cache(cache, None);
            });
            let layout = layout.map_err(failure("make a pipeline layout"))?;
            let compiler = Arc::new(Compiler::new(gpu, cache, layout));
            let compile = compiler.clone();
            let background = Background::new(threads(), LATE, Arc::new(move |kernel| compile.compile(kernel)));
            Ok(Pipelines { gpu: gpu.clone(), layout, cache, made: HashMap::new(), compiler, background, file })
        }
    }

    /// The pipelines of `kernels`. New ones are compiled in parallel.
    ///
    /// # Errors
    /// Device: the driver cannot compile a kernel.
    pub fn get(&mut self, kernels: &[Kernel]) -> Result<Vec<vk::Pipeline>> {
        self.take_made();
        let mut new: Vec<Kernel> = kernels.iter().copied().filter(|k| !self.made.contains_key(k)).collect();
        new.sort_unstable();
        new.dedup();
        let made = self.compiler.compile_all(&new);
        // If one fails, the others are kept, and destroyed with the rest.
        let mut failed = None;
        for (kernel, pipeline) in new.into_iter().zip(made) {
            match pipeline {
                Ok(pipeline) => drop(self.made.insert(kernel, pipeline)),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        match failed {
            Some(e) => Err(e),
            None => Ok(kernels.iter().map(|k| self.made[k]).collect()),
        }
    }

    fn take_made(&mut self) {
        for (kernel, pipeline) in self.background.take() {
            self.keep(kernel, pipeline);
        }
    }

    fn keep(&mut self, kernel: Kernel, pipeline: vk::Pipeline) {
        if let Some(twice) = self.made.insert(kernel, pipeline) {
            // Compiled twice, by `get` and in the background. Baked lists use the first pipeline.
            self.made.insert(kernel, twice);
            // SAFETY: no list uses this second pipeline.
            unsafe { self.gpu.device.destroy_pipeline(pipeline, None) };
        }
    }
}

impl KernelCompiler for &mut Pipelines {
    fn request(&mut self, kernels: &[Kernel]) {
        self.take_made();
        self.background.ask_for(kernels.iter().copied().filter(|k| !self.made.contains_key(k)));
    }

    fn readiness(&mut self, kernel: Kernel) -> Readiness {
        // Queried before the results are taken, so that a compile that ends in between is not missed.
        let readiness = self.background.readiness(kernel);
        self.take_made();
        if self.made.contains_key(&kernel) { Readiness::Ready } else { readiness }
    }

    fn wait(&self, most: Duration) {
        self.background.wait(most);
    }

    fn is_busy(&self) -> bool {
        self.background.is_busy()
    }

    /// Writes the driver's cache to disk, for the next start. If that fails, the next start compiles again.
    fn save(&self) {
        let Some(file) = &self.file else { return };
        // SAFETY: the cache is alive and not in use.
        let Ok(data) = (unsafe { self.gpu.device.get_pipeline_cache_data(self.cache) }) else { return };
        let data = seal(data);
        if cache::read(file, MAX_CACHE).is_some_and(|old| old == data) {
            return;
        }
        if let Err(e) = cache::write(file, &data) {
            log::warn!("the pipeline cache {} cannot be written, every start compiles anew: {e}", file.display());
        }
    }
}

/// Most compiler threads. A driver's compiler needs tens of megabytes per thread.
const THREADS: usize = 4;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS)
}

/// The inputs of pipeline creation, shared by the compiler threads.
pub(crate) struct Compiler {
    device: ash::Device,
    /// Vulkan lets several threads use it at once.
    cache: vk::PipelineCache,
    layout: vk::PipelineLayout,
    flags: vk::PipelineCreateFlags,
    /// The number of lanes in a subgroup.
    subgroup: u32,
    /// The subgroup size that pipelines must request, if the driver offers several.
    required: Option<u32>,
}

impl Compiler {
    /// `cache` and `layout` are the device's, and live as long as a compile may run.
    pub(crate) fn new(gpu: &Gpu, cache: vk::PipelineCache, layout: vk::PipelineLayout) -> Compiler {
        let required = gpu.features.subgroup_choice.then_some(gpu.caps.subgroup);
        let (device, flags, subgroup) = (gpu.device.clone(), gpu.pipeline_flags(), gpu.caps.subgroup);
        Compiler { device, cache, layout, flags, subgroup, required }
    }

    /// A pipeline per kernel, in the order of `kernels`.
    fn compile_all(&self, kernels: &[Kernel]) -> Vec<Result<vk::Pipeline>> {
        let threads = threads().min(kernels.len());
        if threads <= 1 {
            return kernels.iter().map(|&k| self.compile(k)).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let taken = taken.take_while(|&i| i < kernels.len());
            taken.map(|i| (i, self.compile(kernels[i]))).collect::<Vec<_>>()
        };
        let mut made = std::thread::scope(|scope| {
            // If no thread can be spawned, this one does all the work.
            let spawn = |_| std::thread::Builder::new().name("compiler".into()).spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads).filter_map(spawn).collect();
            let mut made = work();
            for other in others {
                // Join, so that no driver code still runs when this returns.
                made.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            made
        });
        made.sort_unstable_by_key(|m| m.0);
        made.into_iter().map(|m| m.1).collect()
    }

    pub(crate) fn compile(&self, kernel: Kernel) -> Result<vk::Pipeline> {
        let name = kernel.module.name();
        let code = spirv::of(kernel.module)?;
        let constants: Vec<u32> =
            [kernel.workgroup].into_iter().chain(kernel.constants.values().iter().copied()).collect();
        let entries: Vec<_> = (0..constants.len() as u32)
            .map(|i| vk::SpecializationMapEntry::default().constant_id(i).offset(4 * i).size(4))
            .collect();
        let specialization =
            vk::SpecializationInfo::default().map_entries(&entries).data(bytemuck::cast_slice(&constants));
        let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
            .required_subgroup_size(self.required.unwrap_or_default());
        let module_info = vk::ShaderModuleCreateInfo::default().code(&code);
        // SAFETY: the SPIR-V is the checked-in one; all objects live through the calls; the module is destroyed
        // afterwards.
        unsafe {
            let module = self.device.create_shader_module(&module_info, None).map_err(failure("load a shader"))?;
            let mut stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main")
                .specialization_info(&specialization);
            if kernel.workgroup.is_multiple_of(self.subgroup) {
                stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
            }
            if self.required.is_some() {
                stage = stage.push_next(&mut size);
            }
            let info = vk::ComputePipelineCreateInfo::default().flags(self.flags).stage(stage).layout(self.layout);
            let made = self.device.create_compute_pipelines(self.cache, &[info], None);
            self.device.destroy_shader_module(module, None);
            PIPELINES_CREATED.fetch_add(1, Ordering::Relaxed);
            let what = format!("compile the kernel {name}");
            made.map(|p| p[0]).map_err(|(_, r)| failure(&what)(r))
        }
    }
}

/// Puts a checksum before a driver's cache data. A driver may check only its own header and trust the rest.
fn seal(data: Vec<u8>) -> Vec<u8> {
    [&checksum(&data).to_le_bytes(), &data[..]].concat()
}

/// The data of a sealed cache; `None` if the checksum does not match.
fn unseal(sealed: Vec<u8>) -> Option<Vec<u8>> {
    let (sum, data) = sealed.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == checksum(data)).then(|| data.to_vec())
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        let (made, is_done) = self.background.close();
        for (kernel, pipeline) in made {
            self.keep(kernel, pipeline);
        }
        if !is_done {
            // The driver still compiles with the device, the cache and the layout, so they live as long as the process.
            self.gpu.kept.set(true);
            exit::abandon_thread();
        }
        if self.gpu.hung.get() || !is_done {
            return;
        }
        // SAFETY: executors wait for the device before they drop their pipelines.
        unsafe {
            for &p in self.made.values() {
                self.gpu.device.destroy_pipeline(p, None);
            }
            self.gpu.device.destroy_pipeline_layout(self.layout, None);
            self.gpu.device.destroy_pipeline_cache(self.cache, None);
        }
    }
}
