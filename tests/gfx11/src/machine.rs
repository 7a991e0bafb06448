//! Shader arrays that run a grid: workgroups on WGPs, waves in an order that a seed chooses, all cores.

use crate::cache::{Caches, Ctx, Traffic};
use crate::fault::{Fault, What};
use crate::float::Mode;
use crate::lds::Lds;
use crate::memory::{Memory, SEVERAL, User};
use crate::program::{Program, Unit};
use crate::wave::{State, Wave};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The shape of a chip and how it is run.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Shader arrays: each has a GL1.
    pub arrays: usize,
    /// WGPs of an array: each has two CUs and a scalar cache.
    pub pairs: usize,
    /// Workgroups that a WGP holds at a time.
    pub resident: usize,
    /// Chooses the order of waves. With one thread the same seed gives the same run.
    pub seed: u64,
    /// One in so many vector memory accesses waits for its counter before it touches memory; 0: none.
    pub defer: u64,
    /// Whether dispatches that run beside each other must not use what another of them writes. Those that wait for each
    /// other by counters in memory may.
    pub apart: bool,
    /// Threads of this machine; arrays are divided among them.
    pub threads: usize,
    /// Most instructions of a wave.
    pub budget: u64,
}

impl Config {
    /// A Radeon 780M: two arrays of three WGPs.
    pub fn gfx1103(seed: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(2);
        Self { arrays: 2, pairs: 3, resident: 2, seed, defer: 8, apart: true, threads, budget: 100_000_000 }
    }

    /// A Radeon 890M: two arrays of four WGPs.
    pub fn gfx1150(seed: u64) -> Self {
        Self { pairs: 4, ..Self::gfx1103(seed) }
    }

    /// A Radeon 8060S: four arrays of five WGPs.
    pub fn gfx1151(seed: u64) -> Self {
        Self { arrays: 4, pairs: 5, ..Self::gfx1103(seed) }
    }
}

/// A kernel with what the hardware is told of it.
pub struct Dispatch<'a> {
    /// Its code.
    pub program: &'a Program,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Threads of a workgroup.
    pub threads: [u32; 3],
    /// Bytes of LDS.
    pub lds: usize,
    /// 64 lanes a wave.
    pub wave64: bool,
    /// MODE at entry.
    pub mode: Mode,
    /// Sets a wave's scalar registers, and what else it starts with; workgroup and number of the wave.
    pub enter: &'a (dyn Fn(&mut Wave, [u32; 3]) + Sync),
}

/// What a run cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Report {
    /// Instructions, summed over waves.
    pub steps: u64,
    /// Of these, by what executes them ([`crate::program::Unit`]).
    pub by_unit: [u64; Unit::COUNT],
    /// Of these, waits for the counters of loads.
    pub waits: u64,
    /// Waves.
    pub waves: u64,
    /// Most bytes of vector loads that a wave has in flight where it waits.
    pub most_in_flight: u64,
    /// Bytes.
    pub traffic: Traffic,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.by_unit.iter_mut().zip(other.by_unit).for_each(|(sum, n)| *sum += n);
        self.waits += other.waits;
        self.waves += other.waves;
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
        self.traffic += other.traffic;
    }
}

/// See the module. Its caches live from one dispatch to the next.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    caches: Vec<Caches>,
    /// Runs so far.
    runs: u32,
}

struct Group {
    dispatch: usize,
    id: [u32; 3],
    pair: usize,
    waves: Vec<Wave>,
    lds: Lds,
}

/// What all threads of one run share.
struct Shared<'a> {
    config: Config,
    run: u32,
    dispatches: &'a [Dispatch<'a>],
    memory: &'a Memory,
    next: AtomicUsize,
    failed: AtomicBool,
    fault: Mutex<Option<Fault>>,
    report: Mutex<Report>,
}

impl Machine {
    /// A machine with empty caches.
    pub fn new(config: Config) -> Self {
        Self { config, caches: (0..config.arrays).map(|_| Caches::new(config.pairs)).collect(), runs: 0 }
    }

    /// Invalidates all caches, as an edge between dispatches does.
    pub fn invalidate(&mut self) {
        self.invalidate_some(true, true, true);
    }

    /// Invalidates the scalar caches, those of CUs, and those of arrays.
    pub fn invalidate_some(&mut self, scalar: bool, vector: bool, array: bool) {
        for caches in &mut self.caches {
            if array {
                caches.gl1.invalidate();
            }
            for pair in &mut caches.pairs {
                if vector {
                    pair.l0.iter_mut().for_each(|l0| l0.invalidate());
                }
                if scalar {
                    pair.scalar.invalidate();
                }
            }
        }
    }

    /// Runs a grid to its end, or to the first fault.
    pub fn run(&mut self, memory: &Memory, dispatch: &Dispatch) -> Result<Report, Fault> {
        self.run_beside(memory, std::slice::from_ref(dispatch))
    }

    /// Runs grids with nothing between them: workgroups start in the order of dispatches, the next one's as soon as
    /// there is room. Panics where they are apart and more than [`SEVERAL`].
    pub fn run_beside(&mut self, memory: &Memory, dispatches: &[Dispatch]) -> Result<Report, Fault> {
        let config = self.config;
        assert!(!config.apart || dispatches.len() <= SEVERAL as usize, "too many dispatches beside each other");
        self.runs += 1;
        let shared = Shared {
            config,
            run: self.runs,
            dispatches,
            memory,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            fault: Mutex::new(None),
            report: Mutex::default(),
        };
        let share = config.arrays.div_ceil(config.threads.max(1));
        std::thread::scope(|scope| {
            for (i, caches) in self.caches.chunks_mut(share).enumerate() {
                let shared = &shared;
                let seed = (config.seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * i as u64 + 1);
                scope.spawn(move || shared.run(caches, seed));
            }
        });
        let report = *shared.report.lock().unwrap_or_else(|e| e.into_inner());
        match shared.fault.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(fault) => Err(fault),
            None => Ok(report),
        }
    }
}

/// A step of xorshift.
fn chance(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random >> 11
}

impl Shared<'_> {
    fn run(&self, arrays: &mut [Caches], seed: u64) {
        let mut random = seed | 1;
        let mut resident: Vec<Vec<Group>> = arrays.iter().map(|_| Vec::new()).collect();
        let mut report = Report::default();
        loop {
            let mut idle = true;
            for (caches, groups) in arrays.iter_mut().zip(&mut resident) {
                self.fill(groups, &mut random);
                if groups.is_empty() {
                    continue;
                }
                idle = false;
                let at = chance(&mut random) as usize % groups.len();
                let quantum = 1 + chance(&mut random) % 128;
                match self.turn(&mut groups[at], caches, quantum, &mut random) {
                    Ok(false) => {}
                    Ok(true) => {
                        for wave in groups.swap_remove(at).waves {
                            report += Report {
                                steps: wave.steps,
                                by_unit: wave.by_unit,
                                waits: wave.waits,
                                waves: 1,
                                most_in_flight: wave.most_in_flight,
                                traffic: Traffic::default(),
                            };
                        }
                    }
                    Err(fault) => {
                        self.failed.store(true, Relaxed);
                        self.fault.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(fault);
                    }
                }
            }
            if idle || self.failed.load(Relaxed) {
                break;
            }
        }
        for caches in arrays {
            report.traffic += std::mem::take(&mut caches.traffic);
        }
        *self.report.lock().unwrap_or_else(|e| e.into_inner()) += report;
    }

    /// Starts a workgroup where there is room: one at a time, so that arrays take turns.
    fn fill(&self, groups: &mut Vec<Group>, random: &mut u64) {
        let sizes = self.dispatches.iter().map(|d| d.grid.iter().map(|n| *n as usize).product::<usize>());
        let all: usize = sizes.clone().sum();
        // Asked first without taking, so that threads that find nothing do not count on.
        if groups.len() >= self.config.pairs * self.config.resident || self.next.load(Relaxed) >= all {
            return;
        }
        let mut n = self.next.fetch_add(1, Relaxed);
        let Some(dispatch) = sizes.clone().position(|size| {
            let here = n < size;
            n -= if here { 0 } else { size };
            here
        }) else {
            return;
        };
        let [x, y, _] = self.dispatches[dispatch].grid.map(|n| n as usize);
        let id = [n % x, n / x % y, n / (x * y)].map(|n| n as u32);
        let load = |pair: usize| groups.iter().filter(|g| g.pair == pair).count();
        let pair = (0..self.config.pairs).min_by_key(|pair| load(*pair)).unwrap_or(0);
        groups.push(self.group(dispatch, id, pair, random));
    }

    fn group(&self, dispatch: usize, id: [u32; 3], pair: usize, random: &mut u64) -> Group {
        let d = &self.dispatches[dispatch];
        let [x, y, z] = d.threads;
        let (all, lanes) = (x * y * z, if d.wave64 { 64 } else { 32 });
        let waves = (0..all.div_ceil(lanes)).map(|n| {
            let here = (all - n * lanes).min(lanes);
            let exec = if here == 64 { u64::MAX } else { (1 << here) - 1 };
            let mut wave = Wave::new(n, n as usize % 2, d.wave64, exec, d.mode, chance(random));
            for half in 0..wave.halves {
                let local = |i: usize| {
                    let t = n * lanes + (32 * half + i) as u32;
                    (t % x) | ((t / x % y) << 10) | (t / (x * y)) << 20
                };
                wave.set_v(half, 0, std::array::from_fn(local));
            }
            (d.enter)(&mut wave, id);
            wave
        });
        Group { dispatch, id, pair, waves: waves.collect(), lds: Lds::new(d.lds) }
    }

    /// Lets one wave of a workgroup run for a while. Says whether the workgroup has ended.
    fn turn(&self, group: &mut Group, caches: &mut Caches, quantum: u64, random: &mut u64) -> Result<bool, Fault> {
        let first = chance(random) as usize % group.waves.len();
        let runs = |n: &usize| group.waves[*n].state == State::Running;
        let n = (first..group.waves.len()).chain(0..first).find(runs);
        let Some(n) = n else { return Ok(true) };
        let wave = &mut group.waves[n];
        let (pair, program) = (group.pair, self.dispatches[group.dispatch].program);
        let user = User { run: self.run, dispatch: group.dispatch as u32 };
        // One alone has nobody beside it.
        let user = Some(user).filter(|_| self.config.apart && self.dispatches.len() > 1);
        let mut ctx = Ctx { lds: &mut group.lds, caches, pair, memory: self.memory, user, defer: self.config.defer };
        for _ in 0..quantum {
            let at = wave.pc;
            let mut done = program.step(wave, &mut ctx);
            if wave.steps > self.config.budget {
                done = done.and(Err(What::NoEnd));
            }
            if let Err(what) = done {
                let inst = program.ready.get(at).map(|r| (r.inst.name(), r.inst.at * 4));
                let (inst, at) = inst.unwrap_or_default();
                return Err(Fault { what, inst, at, wave: (group.id, wave.id), dispatch: group.dispatch });
            }
            if wave.state != State::Running {
                break;
            }
        }
        if wave.state != State::Running && group.waves.iter().all(|w| w.state != State::Running) {
            // The barrier is met: waves that have ended count as there.
            let waiting = group.waves.iter_mut().filter(|w| w.state == State::Barrier);
            let mut released = 0;
            for wave in waiting {
                (wave.state, wave.epoch) = (State::Running, wave.epoch + 1);
                released += 1;
            }
            return Ok(released == 0);
        }
        Ok(false)
    }
}
