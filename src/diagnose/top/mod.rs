//! A machine's devices over time: load, temperature, memory, their processes, and the reports of running Kilns. A value
//! that cannot be read is `None`. If a device goes away, that is reported and sampling continues.

pub mod clients;
#[cfg_attr(not(feature = "vulkan"), path = "no_nvidia.rs")]
pub(super) mod nvidia;
pub mod recording;
// The tests check the terminal's view of samples, too.
#[cfg(all(test, feature = "cli"))]
mod tests;

use crate::diagnose::status::{self, Environment, Status};
use crate::machine::files::{Files, Reading};
use crate::machine::gpu_metrics::{GpuMetrics, Throttle};
use crate::machine::nodes::{DeviceNode, Nvidia, SUSPENDED, gfx_name};
use crate::sys::amdgpu::{self, GpuSensor};
use crate::sys::{self, Failure, amdxdna, drm};
use clients::DrmClient;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The size of a heap, and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// The size of the heap in bytes.
    pub total: u64,
    /// Bytes of the heap that are in use.
    pub used: u64,
}

/// A process that uses a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The process's id.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// Bytes of VRAM that the process uses.
    pub vram: u64,
    /// Bytes of GTT that the process uses.
    pub gtt: u64,
    /// Percent of the time since the last sample in which engines worked for it; above 100 with several engines.
    pub busy: Option<f64>,
}

/// The measurements of one GPU.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    /// The node, and the GPU's instruction set if known: `renderD128 gfx1103`.
    pub name: String,
    /// The name of the GPU's driver.
    pub driver: String,
    /// The share of the time in which the GPU worked, in percent.
    pub busy: Option<f64>,
    /// The clock of the GPU's engine, in MHz.
    pub engine_mhz: Option<f64>,
    /// The clock of the GPU's memory, in MHz.
    pub memory_mhz: Option<f64>,
    /// The power that the GPU draws, in W.
    pub power: Option<f64>,
    /// The GPU's temperature, in °C.
    pub temperature: Option<f64>,
    /// The use of the GPU's VRAM.
    pub vram: Option<Fill>,
    /// The use of GTT, system memory that the GPU maps.
    pub gtt: Option<Fill>,
    /// Clock of the data fabric between memory and the engines, MHz.
    #[serde(default)]
    pub fabric_mhz: Option<f64>,
    /// The reasons for which its clocks are throttled, by the kernel's names.
    #[serde(default)]
    pub throttled_by: Vec<String>,
    /// The engines, with the percent of the time since the last sample in which each worked for the processes below.
    #[serde(default)]
    pub engines: Vec<(String, f64)>,
    /// The processes that are visible to this user.
    pub processes: Vec<Process>,
    /// The reason why values are missing.
    pub fault: Option<String>,
}

/// A hardware context of an NPU, which runs a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContextSample {
    /// The id of the process that owns the context.
    pub pid: i64,
    /// The first column of the array that the context occupies.
    pub first_column: u32,
    /// The number of columns that the context occupies.
    pub columns: u32,
    /// The number of commands submitted to the context.
    pub submitted: u64,
    /// The number of commands that the context has completed.
    pub completed: u64,
    /// Commands completed per second.
    pub completed_s: Option<f64>,
    /// The number of errors in the context.
    pub errors: u64,
}

/// The measurements of one NPU.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct NpuSample {
    /// The node, and the NPU's name: `accel0 RyzenAI-npu1`.
    pub name: String,
    /// The number of columns in the array.
    pub columns: Option<u32>,
    /// The number of columns that contexts occupy. A column that several contexts share counts once.
    pub columns_used: Option<u64>,
    /// The clock of the array, in MHz.
    pub array_mhz: Option<f64>,
    /// The power mode that the driver reports.
    pub power_mode: Option<String>,
    /// The values of the NPU's sensors.
    pub sensors: Vec<amdxdna::NpuSensor>,
    /// The contexts that this user may see.
    pub contexts: Vec<ContextSample>,
    /// The values that could not be read, with reasons.
    pub fault: Option<String>,
}

/// A running Kiln process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KilnSample {
    /// The status that the process itself reports.
    #[serde(flatten)]
    pub status: Status,
    /// The GPU's power divided by the decode rate. Set only if a single GPU and a single Kiln are active.
    pub joules_per_token: Option<f64>,
}

/// The measurements of all devices and Kilns at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The time of the sample, in seconds since 1970.
    pub time: f64,
    /// The measurements of each GPU.
    pub gpus: Vec<GpuSample>,
    /// The measurements of each NPU.
    pub npus: Vec<NpuSample>,
    /// The running Kiln processes.
    pub kilns: Vec<KilnSample>,
}

/// Takes samples, and keeps the counters for computing rates.
pub struct Monitor {
    files: Files,
    environment: Environment,
    /// Open devices by path. They stay open, because each open makes amdgpu create an address space and amdxdna bind
    /// the process's.
    open: HashMap<String, drm::Node>,
    /// The number of columns of each open NPU, by its name.
    columns: HashMap<String, u32>,
    last: Option<Instant>,
    /// The time that each engine has worked for a client, in nanoseconds.
    engines: HashMap<(String, u64), Vec<(String, u64)>>,
    /// The throttling that each GPU reported in the last sample.
    throttle: HashMap<String, Throttle>,
    completed: HashMap<(String, u32, i64), u64>,
    nvidia: nvidia::NvmlLibrary,
}

impl Monitor {
    /// A monitor of a machine. `environment` locates the reports of Kilns.
    pub fn new(files: Files, environment: Environment) -> Monitor {
        Monitor {
            files,
            environment,
            open: HashMap::new(),
            columns: HashMap::new(),
            last: None,
            engines: HashMap::new(),
            throttle: HashMap::new(),
            completed: HashMap::new(),
            nvidia: nvidia::NvmlLibrary::default(),
        }
    }

    /// Takes a sample. Searches for devices each time, since they may come and go.
    pub fn sample(&mut self) -> Snapshot {
        let now = Instant::now();
        let seconds = self.last.replace(now).map(|last| (now - last).as_secs_f64()).filter(|&s| s > 0.0);
        let clients = clients::find(&self.files);
        let nodes = DeviceNode::gpus(&self.files);
        let accelerators = DeviceNode::accelerators(&self.files);
        self.open.retain(|path, _| nodes.iter().chain(&accelerators).any(|n| n.path == *path));
        self.columns.retain(|path, _| self.open.contains_key(path));
        let mut gpus: Vec<GpuSample> = nodes.iter().map(|node| self.sample_gpu(node, &clients, seconds)).collect();
        for nvidia in Nvidia::all(&self.files) {
            let is_suspended = nvidia.is_suspended(&self.files);
            let i = match nodes.iter().position(|node| node.slot == nvidia.slot) {
                Some(i) => {
                    gpus[i].name = name_of(&nodes[i].name, nvidia.model);
                    i
                }
                None => {
                    gpus.push(closed(name_of(&nvidia.slot, nvidia.model)));
                    gpus.len() - 1
                }
            };
            match is_suspended {
                true => gpus[i].fault = Some(SUSPENDED.into()),
                false => self.nvidia.complete(&self.files, &nvidia.slot, &mut gpus[i]),
            }
        }
        self.engines = clients.into_iter().map(|c| ((c.slot, c.id), c.engines)).collect();
        let npus: Vec<NpuSample> =
            accelerators.iter().filter(|n| n.is_amdxdna()).map(|node| self.sample_npu(node, seconds)).collect();
        let kilns = with_energy(status::read_all(&self.files, &self.environment), &gpus);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_micros() as f64 / 1e6);
        Snapshot { time, gpus, npus, kilns }
    }

    fn sample_gpu(&mut self, node: &DeviceNode, clients: &[DrmClient], seconds: Option<f64>) -> GpuSample {
        let files = &self.files;
        if node.is_suspended(files) {
            let processes = self.processes(node, clients, seconds);
            return GpuSample {
                fault: Some(SUSPENDED.into()),
                processes,
                driver: node.driver.clone(),
                ..closed(node.name.clone())
            };
        }
        let metrics = files.bytes(&node.file("gpu_metrics")).ok().and_then(|table| GpuMetrics::parse(&table));
        let metrics = metrics.unwrap_or_default();
        let number = |path: String| files.value::<u64>(&path).ok().map(|v| v as f64);
        let hwmon = files.list(&node.file("hwmon")).ok().and_then(|all| all.into_iter().next()).unwrap_or_default();
        let meter = |name: &str| number(node.file(&format!("hwmon/{hwmon}/{name}")));
        let fill = |heap: &str| -> Option<Fill> {
            let read = |what: &str| files.value::<u64>(&node.file(&format!("mem_info_{heap}_{what}")));
            Some(Fill { total: read("total").ok()?, used: read("used").ok()? })
        };
        let busy: Reading<u64> = files.value(&node.file("gpu_busy_percent"));
        let mut gpu = GpuSample {
            name: gfx_name(files, node).map_or(node.name.clone(), |gfx| format!("{} {gfx}", node.name)),
            driver: node.driver.clone(),
            busy: busy.as_ref().ok().map(|&b| b.min(100) as f64),
            engine_mhz: meter("freq1_input").map(|hz| hz / 1e6),
            memory_mhz: meter("freq2_input").map(|hz| hz / 1e6),
            power: meter("power1_average").or_else(|| meter("power1_input")).map(|uw| uw / 1e6),
            temperature: meter("temp1_input").map(|mc| mc / 1e3),
            vram: fill("vram"),
            gtt: fill("gtt"),
            fabric_mhz: metrics.fabric_mhz.map(f64::from),
            throttled_by: metrics
                .throttle
                .reasons(self.throttle.get(&node.path))
                .unwrap_or_default()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            engines: self.engines(node, clients, seconds),
            processes: self.processes(node, clients, seconds),
            fault: None,
        };
        self.throttle.insert(node.path.clone(), metrics.throttle);
        if node.is_amdgpu() {
            self.complete(&mut gpu, node);
        }
        let nothing = gpu.busy.is_none() && gpu.vram.is_none() && gpu.power.is_none();
        gpu.fault = nothing.then(|| match node.is_amdgpu() {
            true => busy.err().map_or_else(|| "it says nothing".into(), |f| format!("it says nothing: {f}")),
            false if node.driver == "nvidia" => CLOSED.into(),
            false if node.driver.is_empty() => "its driver says nothing in sysfs".into(),
            false => format!("its driver, {}, says nothing in sysfs", node.driver),
        });
        gpu
    }

    /// Adds values that only the driver knows, such as an APU's memory clock.
    fn complete(&mut self, gpu: &mut GpuSample, node: &DeviceNode) {
        if gpu.engine_mhz.is_some() && gpu.memory_mhz.is_some() && gpu.power.is_some() && gpu.temperature.is_some() {
            return;
        }
        let Ok(opened) = opened(&mut self.open, &self.files, node) else { return };
        let mut gone = false;
        let mut ask = |sensor| {
            let answer = amdgpu::sensor(opened, sensor);
            gone |= answer.as_ref().is_err_and(Failure::may_be_gone);
            answer.ok().map(f64::from)
        };
        gpu.engine_mhz = gpu.engine_mhz.or_else(|| ask(GpuSensor::EngineClock));
        gpu.memory_mhz = gpu.memory_mhz.or_else(|| ask(GpuSensor::MemoryClock));
        gpu.power = gpu.power.or_else(|| ask(GpuSensor::Power));
        gpu.temperature = gpu.temperature.or_else(|| ask(GpuSensor::Temperature).map(|mc| mc / 1e3));
        if gone {
            self.open.remove(&node.path);
        }
    }

    /// The engines of a GPU used by its clients, each with its share of the time, the busiest first.
    fn engines(&self, node: &DeviceNode, clients: &[DrmClient], seconds: Option<f64>) -> Vec<(String, f64)> {
        let mut all: Vec<(String, f64)> = Vec::new();
        let Some(seconds) = seconds else { return all };
        for c in clients.iter().filter(|c| c.slot == node.slot && !c.slot.is_empty()) {
            let Some(before) = self.engines.get(&(c.slot.clone(), c.id)) else { continue };
            for (name, now) in &c.engines {
                let then = before.iter().find(|(of, _)| of == name).map_or(0, |(_, ns)| *ns);
                let busy = now.saturating_sub(then) as f64 / 1e7 / seconds;
                match all.iter_mut().find(|(of, _)| of == name) {
                    Some((_, sum)) => *sum += busy,
                    None => all.push((name.clone(), busy)),
                }
            }
        }
        all.retain(|(_, busy)| *busy > 0.0);
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        all
    }

    /// The processes on a GPU, each with the sum of its clients, the largest first.
    fn processes(&self, node: &DeviceNode, clients: &[DrmClient], seconds: Option<f64>) -> Vec<Process> {
        let mut all: Vec<Process> = Vec::new();
        for c in clients.iter().filter(|c| c.slot == node.slot && !c.slot.is_empty()) {
            let before = self.engines.get(&(c.slot.clone(), c.id));
            let then = before.map(|engines| engines.iter().fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns)));
            let busy = seconds.zip(then).map(|(s, then)| c.engine_ns().saturating_sub(then) as f64 / 1e7 / s);
            match all.iter_mut().find(|p| p.pid == c.pid) {
                Some(p) => {
                    (p.vram, p.gtt) = (p.vram.saturating_add(c.vram), p.gtt.saturating_add(c.gtt));
                    p.busy = p.busy.zip(busy).map(|(a, b)| a + b).or(p.busy).or(busy);
                }
                None => all.push(Process { pid: c.pid, name: c.name.clone(), vram: c.vram, gtt: c.gtt, busy }),
            }
        }
        all.sort_by_key(|p| std::cmp::Reverse(p.vram.saturating_add(p.gtt)));
        all
    }

    fn sample_npu(&mut self, node: &DeviceNode, seconds: Option<f64>) -> NpuSample {
        let name = self.files.text(&node.file("vbnv"));
        let mut npu = NpuSample {
            name: name.map_or(node.name.clone(), |n| format!("{} {n}", node.name)),
            ..NpuSample::default()
        };
        let opened = match opened(&mut self.open, &self.files, node) {
            Ok(opened) => opened,
            Err(e) => {
                npu.fault = Some(e.to_string());
                return npu;
            }
        };
        // Every request wakes the NPU and keeps it awake, so constants are requested once.
        npu.columns = self.columns.get(&node.path).copied();
        if npu.columns.is_none() {
            npu.columns = amdxdna::array(opened).ok().map(|a| u32::from(a.columns));
            self.columns.extend(npu.columns.map(|columns| (node.path.clone(), columns)));
        }
        npu.array_mhz = amdxdna::clocks(opened).ok().map(|c| f64::from(c.array));
        npu.power_mode = amdxdna::power_mode(opened).ok();
        npu.sensors = amdxdna::sensors(opened).unwrap_or_default();
        match amdxdna::contexts(opened) {
            Ok(contexts) => {
                npu.columns_used = Some(amdxdna::columns_held(&contexts));
                let key = |c: &amdxdna::ContextInfo| (node.path.clone(), c.id, c.pid);
                let rate = |c: &amdxdna::ContextInfo| {
                    let then = self.completed.get(&key(c))?;
                    Some(c.completed.saturating_sub(*then) as f64 / seconds?)
                };
                npu.contexts = contexts.iter().map(|c| context_sample(c, rate(c))).collect();
                self.completed.retain(|k, _| k.0 != node.path);
                self.completed.extend(contexts.iter().map(|c| (key(c), c.completed)));
            }
            Err(e) => {
                // A device that is gone must be opened again when it returns.
                if e.may_be_gone() {
                    self.open.remove(&node.path);
                    self.columns.remove(&node.path);
                }
                npu.fault = Some(e.to_string());
            }
        }
        npu
    }
}

/// The open node of a device; opens it if needed.
fn opened<'a>(
    open: &'a mut HashMap<String, drm::Node>,
    files: &Files,
    node: &DeviceNode,
) -> sys::DriverResult<&'a drm::Node> {
    Ok(match open.entry(node.path.clone()) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(drm::Node::open(&files.at(&node.path))?),
    })
}

/// Shown for a GPU of NVIDIA's driver if NVIDIA's library is missing.
const CLOSED: &str = "its driver keeps load, memory, clocks and power to itself: `nvidia-smi` shows them";

fn name_of(node: &str, model: Option<String>) -> String {
    model.map_or_else(|| node.to_owned(), |model| format!("{node} {model}"))
}

/// The sample of a GPU of which only the name is known.
fn closed(name: String) -> GpuSample {
    GpuSample { name, driver: "nvidia".into(), fault: Some(CLOSED.into()), ..GpuSample::default() }
}

fn context_sample(c: &amdxdna::ContextInfo, completed_s: Option<f64>) -> ContextSample {
    ContextSample {
        pid: c.pid,
        first_column: c.first_column,
        columns: c.columns,
        submitted: c.submitted,
        completed: c.completed,
        completed_s,
        errors: c.errors,
    }
}

/// Adds the energy per token if it is certain which Kiln used the energy.
fn with_energy(all: Vec<Status>, gpus: &[GpuSample]) -> Vec<KilnSample> {
    let alone = all.len() == 1;
    let power = match gpus {
        [gpu] => gpu.power,
        _ => None,
    };
    let energy = |s: &Status| power.filter(|_| alone && s.decode_tokens_s > 0.0).map(|w| w / s.decode_tokens_s);
    all.into_iter().map(|status| KilnSample { joules_per_token: energy(&status), status }).collect()
}
