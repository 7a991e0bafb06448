//! A driver whose device is the interpreter: it runs RADV's code of the kernels that replay asks for. Between two of them the
//! interpreter's caches are invalidated where an edge says so, and nowhere else.

use crate::code::Compiler;
use gfx11::fault::Fault;
use gfx11::kernel::{self, Launch, PUSH_HIGH};
use gfx11::machine::{Config, Machine, Report};
use gfx11::memory::Memory as DeviceMemory;
use kiln::testing::lower::caps::Caps;
use kiln::testing::lower::dispatch::Edge;
use kiln::testing::lower::kernels::Kernel;
use kiln::testing::lower::kernels::push::Push;
use kiln::testing::replay::driver::{DeviceCommand, Driver, HostAccess, Memory, MemorySource, Stamps};
use kiln::{Error, Result};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The first allocation's address.
const FIRST: u64 = 1 << 36;
/// Bytes between allocations, so that what is read past one is in none.
const APART: u64 = 1 << 20;
/// Bytes of a dispatch's push constants.
const PUSH_BYTES: u32 = 128;
/// Most dispatches beside each other.
const MOST_BESIDE: u32 = 4096;
/// What the host sees of a word that nothing has written: no number.
const UNWRITTEN: u32 = 0x7fff_dead;
/// The constant of linear_fragment.comp that says that it makes a gated GELU.
const GATED: usize = 13;
/// Seconds of an instruction: the interpreter has no clock.
const TICK: f64 = 1e-9;

/// What a test sees and changes of a driver that is replay's.
#[derive(Default)]
pub struct Watch {
    /// Instructions so far, over all waves.
    pub steps: Cell<u64>,
    /// What kernels that ran alone have cost, with the weights that they multiplied.
    pub costs: RefCell<HashMap<Kernel, (Report, u64)>>,
    /// The last fault, and the kernel that it is in.
    pub fault: RefCell<Option<(Kernel, Fault)>>,
    /// Edges between kernels so far.
    pub edges: Cell<usize>,
    /// An edge that is passed over, by its number.
    pub passed_over: Cell<Option<usize>>,
    /// Dispatches so far, and the most that ran beside each other.
    pub dispatches: Cell<usize>,
    pub most_beside: Cell<usize>,
    /// Kernels between which there was nothing, and the bytes that they stored.
    pub groups: RefCell<Vec<Group>>,
}

/// Kernels with their workgroups, and bytes.
pub type Group = (Vec<(Kernel, [u32; 3])>, u64);

/// See the module.
pub struct Interpreter {
    caps: Caps,
    compiler: Rc<RefCell<Compiler>>,
    lists: Vec<Vec<Op>>,
    machine: RefCell<Machine>,
    memory: RefCell<DeviceMemory>,
    /// What the host maps.
    mappings: RefCell<Vec<Weak<Mapping>>>,
    next: Cell<u64>,
    watch: Rc<Watch>,
}

/// A command of a list.
enum Op {
    Wait(Edge),
    Run(Run),
    Fill(u64, usize),
    Copy { from: u64, to: u64, words: usize },
    Stamp(Rc<RefCell<Vec<u64>>>, usize),
}

#[derive(Clone)]
struct Run {
    kernel: Kernel,
    push: Vec<u32>,
    groups: [u32; 3],
    /// Weights of the matrix that it multiplies; 0 where it multiplies none.
    weights: u64,
}

/// Rows times columns of the weight of a product's push block.
fn weights(kernel: Kernel, push: &Push) -> u64 {
    let word = |name: &str| {
        let field = push.fields().iter().find(|field| field.name == name)?;
        Some(u64::from(u32::from_le_bytes(push.bytes()[field.offset..][..4].try_into().unwrap())))
    };
    // Gate and up in one: its outputs are half of the weight's rows.
    let name = kernel.module.name();
    let constant = |number: usize| kernel.constants.values()[number - 1];
    let is_gated = name.contains("_gelu")
        || name.starts_with("linear_fragment") && !name.contains("_tall") && constant(GATED) == 1;
    let halves = if is_gated { 2 } else { 1 };
    let inputs = word("k").or_else(|| word("x_padded"));
    word("n").zip(inputs).map_or(0, |(outputs, inputs)| halves * outputs * inputs)
}

impl Interpreter {
    /// An interpreter with nothing in its memory. `seed` chooses the order of waves; `relays`: dispatches beside each other
    /// read what others of them write; `behind`: relayed ones start behind each other.
    pub fn new(compiler: &Rc<RefCell<Compiler>>, seed: u64, relays: bool, behind: bool) -> Interpreter {
        let mut memory = DeviceMemory::default();
        memory.add("push constants", PUSH_HIGH, u64::from(MOST_BESIDE * PUSH_BYTES));
        let config = Config { apart: !relays, ..compiler.borrow().chip.config(seed) };
        Interpreter {
            caps: Caps { has_clock: true, relays_behind: behind, ..compiler.borrow().gpu.caps.clone() },
            compiler: compiler.clone(),
            lists: Vec::new(),
            machine: RefCell::new(Machine::new(config)),
            memory: RefCell::new(memory),
            mappings: RefCell::default(),
            next: Cell::new(FIRST),
            watch: Rc::default(),
        }
    }

    pub fn watch(&self) -> Rc<Watch> {
        self.watch.clone()
    }

    fn run(&self, list: &[Op]) -> Result<()> {
        let mut beside: Vec<&Run> = Vec::new();
        for op in list {
            match op {
                Op::Wait(Edge::None) => {}
                Op::Wait(edge) => self.wait(*edge, &mut beside)?,
                Op::Run(run) => beside.push(run),
                // The edge before it has ended what it waits for.
                Op::Fill(..) | Op::Copy { .. } if !beside.is_empty() => {
                    return Err(failed("a fill or a copy runs beside kernels: no edge is between"));
                }
                Op::Fill(address, words) => self.write(*address, &vec![0; *words])?,
                Op::Copy { from, to, words } => self.copy(*from, *to, *words)?,
                Op::Stamp(stamps, number) => {
                    self.flush(&mut beside)?;
                    stamps.borrow_mut()[*number] = self.watch.steps.get();
                }
            }
        }
        self.flush(&mut beside)
    }

    fn wait(&self, edge: Edge, beside: &mut Vec<&Run>) -> Result<()> {
        if edge == Edge::Kernels {
            let number = self.watch.edges.get();
            self.watch.edges.set(number + 1);
            if self.watch.passed_over.get() == Some(number) {
                return Ok(());
            }
        }
        self.flush(beside)?;
        if matches!(edge, Edge::Kernels | Edge::Relayed | Edge::Device) {
            self.machine.borrow_mut().invalidate();
        }
        Ok(())
    }

    /// Runs kernels with nothing between them.
    fn flush(&self, beside: &mut Vec<&Run>) -> Result<()> {
        let runs = std::mem::take(beside);
        if runs.is_empty() {
            return Ok(());
        }
        assert!(runs.len() <= MOST_BESIDE as usize);
        let watch = &self.watch;
        watch.dispatches.set(watch.dispatches.get() + runs.len());
        watch.most_beside.set(watch.most_beside.get().max(runs.len()));
        let codes: Vec<_> = runs.iter().map(|run| self.compiler.borrow_mut().get(run.kernel)).collect();
        let places = (0..).map(|i| i * PUSH_BYTES);
        let launches = runs.iter().zip(&codes).zip(places).map(|((run, kernel), push_low)| {
            self.write(PUSH_HIGH + u64::from(push_low), &run.push)?;
            Ok(Launch { kernel, grid: run.groups, push: &run.push, push_low })
        });
        let launches = launches.collect::<Result<Vec<_>>>()?;
        match kernel::run(&mut self.machine.borrow_mut(), &self.memory.borrow(), &launches) {
            Ok(report) => {
                watch.steps.set(watch.steps.get() + report.steps);
                let kernels = runs.iter().map(|run| (run.kernel, run.groups)).collect();
                watch.groups.borrow_mut().push((kernels, report.traffic.stored));
                if let [run] = runs.as_slice() {
                    let mut costs = watch.costs.borrow_mut();
                    let (sum, weights) = costs.entry(run.kernel).or_default();
                    *sum += report;
                    *weights += run.weights;
                }
                Ok(())
            }
            Err(fault) => {
                let run = runs[fault.dispatch];
                let listing = self.compiler.borrow().listing(run.kernel, fault.at);
                let text = format!("{:?}, {:?} workgroups: {fault}\n{listing}\n", run.kernel, run.groups);
                *watch.fault.borrow_mut() = Some((run.kernel, fault));
                Err(failed(text))
            }
        }
    }

    fn write(&self, address: u64, words: &[u32]) -> Result<()> {
        self.memory.borrow().write(address, words).map_err(|what| failed(what.to_string()))
    }

    /// Copies words, and with them that nothing has written them.
    fn copy(&self, from: u64, to: u64, words: usize) -> Result<()> {
        let memory = self.memory.borrow();
        let find = |address| memory.find(address, 4 * words as u32).map_err(|what| failed(what.to_string()));
        let ((from, i), (to, j)) = (find(from)?, find(to)?);
        for n in 0..words {
            let (word, unwritten) = from.word(i + n);
            to.write(j + n, word, 15, unwritten);
        }
        Ok(())
    }

    /// Calls with each mapping that the host still has.
    fn each_mapping(&self, f: impl Fn(&DeviceMemory, &Mapping)) {
        let memory = self.memory.borrow();
        self.mappings.borrow_mut().retain(|mapping| {
            let mapping = mapping.upgrade();
            mapping.iter().filter(|m| !m.is_hidden.get()).for_each(|mapping| f(&memory, mapping));
            mapping.is_some()
        });
    }
}

fn failed(what: impl Into<String>) -> Error {
    Error::device(what.into(), "mend the kernel, its edges or the interpreter")
}

impl Driver for Interpreter {
    type Memory = Mapped;
    type Baked = usize;
    type Stamps = Steps;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: u64, _: usize, access: HostAccess, _: MemorySource) -> Result<Mapped> {
        let address = self.next.get();
        self.next.set((address + bytes + APART).next_multiple_of(256));
        let name = format!("{access:?} {address:#x}");
        let mut memory = self.memory.borrow_mut();
        memory.add(&name, address, bytes);
        // What the host fills and no kernel writes has no order to keep.
        if access != HostAccess::Device {
            memory.watch(&name);
        }
        let words = vec![UNWRITTEN; bytes.div_ceil(4) as usize];
        let is_hidden = Cell::new(access == HostAccess::None);
        let (host, seen, is_touched) = (UnsafeCell::new(words.clone()), words.into(), Cell::new(false));
        let mapping = Mapping { address, bytes, host, seen, is_hidden, is_touched };
        let mapping = Rc::new(mapping);
        self.mappings.borrow_mut().push(Rc::downgrade(&mapping));
        Ok(Mapped(mapping))
    }

    /// Kernels are compiled when they run: of those that are baked, a test runs few.
    fn compile(&mut self, _: &[Kernel]) -> Result<()> {
        Ok(())
    }

    fn bake(&mut self, commands: &[DeviceCommand<'_, Interpreter>]) -> Result<usize> {
        let op = |command: &DeviceCommand<'_, Interpreter>| match command {
            DeviceCommand::Wait(edge) => Op::Wait(*edge),
            DeviceCommand::Run { kernel, push, groups } => {
                let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
                let weights = weights(*kernel, push);
                let push = push.bytes().chunks_exact(4).map(word).collect();
                Op::Run(Run { kernel: *kernel, push, groups: *groups, weights })
            }
            DeviceCommand::Fill(memory, range) => {
                Op::Fill(memory.address() + range.start, (range.end - range.start) as usize / 4)
            }
            DeviceCommand::Copy(copy) => Op::Copy {
                from: copy.from.address() + copy.from_offset,
                to: copy.to.address() + copy.to_offset,
                words: copy.bytes as usize / 4,
            },
            DeviceCommand::Stamp(stamps, number) => Op::Stamp(stamps.0.clone(), *number),
        };
        self.lists.push(commands.iter().map(op).collect());
        Ok(self.lists.len() - 1)
    }

    fn free(&self, _: &[usize]) {}

    fn stamps(&self, count: usize) -> Result<Option<Steps>> {
        Ok(Some(Steps(Rc::new(RefCell::new(vec![0; count])))))
    }

    /// All is done before it returns. The host sees it once it waits.
    unsafe fn submit(&self, lists: &[usize], _: Option<usize>) -> Result<()> {
        self.each_mapping(|memory, mapping| mapping.to_device(memory));
        lists.iter().try_for_each(|list| self.run(&self.lists[*list]))
    }

    fn is_done(&self, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn wait(&self, _: usize, _: Duration) -> Result<()> {
        self.each_mapping(|memory, mapping| mapping.to_host(memory));
        Ok(())
    }

    fn is_hung(&self) -> bool {
        false
    }

    fn finish(&self) {}
}

/// The host's words of an allocation.
pub struct Mapping {
    address: u64,
    bytes: u64,
    host: UnsafeCell<Vec<u32>>,
    /// What they were when host and device last agreed.
    seen: RefCell<Vec<u32>>,
    is_hidden: Cell<bool>,
    /// Whether the host may have written since it was last looked at.
    is_touched: Cell<bool>,
}

/// Words that are looked at together: most of them have not changed.
const TOGETHER: usize = 4096;

impl Mapping {
    /// Writes what the host has changed.
    fn to_device(&self, memory: &DeviceMemory) {
        if !self.is_touched.replace(false) {
            return;
        }
        // SAFETY: `Driver::submit` is called while the host holds no slice of memory that the device uses.
        let host = unsafe { &*self.host.get() };
        let mut seen = self.seen.borrow_mut();
        let chunks = host.chunks(TOGETHER).zip(seen.chunks_mut(TOGETHER)).zip((self.address..).step_by(4 * TOGETHER));
        for ((host, seen), address) in chunks.filter(|((host, seen), _)| host != seen) {
            let (buffer, index) = memory.find(address, 4).unwrap();
            for (i, (host, seen)) in host.iter().zip(seen).enumerate().filter(|(_, (host, seen))| host != seen) {
                buffer.write(index + i, *host, 15, 0);
                *seen = *host;
            }
        }
    }

    /// Reads what the device has changed, but where the host has written since.
    fn to_host(&self, memory: &DeviceMemory) {
        // SAFETY: as above, of `Driver::wait`.
        let host = unsafe { &mut *self.host.get() };
        let mut seen = self.seen.borrow_mut();
        let look = |first: usize, now: &[u32]| {
            for ((host, seen), now) in host[first..].iter_mut().zip(&mut seen[first..]).zip(now) {
                if *host == *seen {
                    *host = *now;
                }
                *seen = *now;
            }
        };
        memory.take_changed(self.address, UNWRITTEN, look).unwrap();
    }
}

/// An allocation.
pub struct Mapped(Rc<Mapping>);

impl Memory for Mapped {
    fn address(&self) -> u64 {
        self.0.address
    }

    fn size(&self) -> u64 {
        self.0.bytes
    }

    fn is_cached(&self) -> bool {
        true
    }

    fn hide(&mut self) {
        self.0.is_hidden.set(true);
    }

    fn mapping(&self) -> Option<NonNull<u8>> {
        // SAFETY: this borrow of the Vec ends here, and no other lives.
        let start = unsafe { (*self.0.host.get()).as_mut_ptr() };
        NonNull::new(start.cast()).filter(|_| !self.0.is_hidden.get())
    }

    fn mapping_mut(&mut self) -> Option<NonNull<u8>> {
        self.0.is_touched.set(true);
        self.mapping()
    }
}

/// Counts of instructions as a clock.
pub struct Steps(Rc<RefCell<Vec<u64>>>);

impl Stamps for Steps {
    fn count(&self) -> usize {
        self.0.borrow().len()
    }

    fn fetch(&mut self) -> Result<()> {
        Ok(())
    }

    fn seconds(&self, from: usize, to: usize) -> f64 {
        let steps = self.0.borrow();
        (steps[to] - steps[from]) as f64 * TICK
    }
}
