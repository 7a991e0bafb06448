//! A cost model of products on a device: the time of a tile, from the bytes and operations of the product, the bytes
//! that the tile has in flight, and the number of its workgroups that the device's limits let run at once. It chooses
//! among tiles that were never measured, and gives the order of measurements.
//!
//! It knows some devices by name and others by their features. It is meant to rank tiles; its seconds are rough.

use super::arithmetic::{Arithmetic, Operand};
use super::caps::{Caps, DeviceKind};
use super::fragment::InputPath;
use super::matrix::{MatrixShape, MatrixTile};
use super::target::{DotTile, Product, Tile};
use crate::lower::units::MatrixUnits;
use crate::model::{BlockFormat, WeightFormat};

/// The figures of a device that the choice of tiles depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// The number of compute units, or of streaming multiprocessors.
    pub processors: u32,
    /// The number of lanes that a processor has in flight at once.
    pub lanes: u32,
    /// 32-bit registers of a processor, over all lanes.
    pub registers: u32,
    /// Bytes of shared memory that a processor has.
    pub shared_bytes: u32,
    /// The rate of reading memory, in bytes per second.
    pub memory: f64,
    /// Bytes per second from the cache that all processors share.
    pub cache: f64,
    /// Multiplications and additions per second of matrix units on f16.
    pub matrix: f64,
    /// Multiplications and additions per second of packed integer dot products on bytes. A product of 16-bit inputs
    /// with bytes counts as two.
    pub dot: f64,
    /// Vector instructions of a subgroup per second, if [`INSTRUCTIONS`] apply to this device.
    pub issue: Option<f64>,
    /// Seconds from a load to its data, under load.
    pub latency: f64,
    /// Seconds of a dispatch behind a barrier, beside its work.
    pub dispatch: f64,
    /// True if the lists of tiles are in the order of measurements on this kind of device. Then the first tile is
    /// chosen.
    pub is_listed: bool,
    /// True if the figures were measured on this device, false if on a similar one.
    pub is_known: bool,
    /// True if relayed dispatches were measured to be faster on this device.
    pub relays: bool,
}

const HOPPER: Figures = Figures {
    processors: 132,
    lanes: 2048,
    registers: 65536,
    shared_bytes: 228 << 10,
    memory: 3.35e12,
    cache: 7e12,
    matrix: 800e12,
    dot: 60e12,
    issue: None,
    latency: 1e-6,
    dispatch: 3e-6,
    is_listed: true,
    is_known: true,
    relays: true,
};

/// Vector instructions per weight: in the dot products of one row, mostly to convert the weight, and for each time that
/// a workgroup widens it for matrix units. Counted in RADV 25.0.7's code for gfx1103 by an interpreter on 2026-11-27
/// (docs/figures.md; `cargo test --test rdna costs_of_products -- --ignored --nocapture`).
const INSTRUCTIONS: [(WeightFormat, [f64; 2]); 5] = [
    (WeightFormat::Int8, [0.044, 0.086]),
    (WeightFormat::Int4, [0.052, 0.105]),
    (WeightFormat::Blocks(BlockFormat::Q4K), [0.058, 0.116]),
    (WeightFormat::Blocks(BlockFormat::Q6K), [0.089, 0.184]),
    (WeightFormat::Blocks(BlockFormat::Q8_0), [0.035, 0.109]),
];
/// The instructions assumed for formats that were not counted: the largest counts of the others.
const MOST_INSTRUCTIONS: [f64; 2] = [0.089, 0.184];
/// The factor for weights that go from memory straight into fragments: 155 instructions for 1,000 weights of INT4, and
/// 105 through shared memory.
const IN_FRAGMENTS: f64 = 1.5;
/// Vector instructions per weight for each further row: two dot products for four weights, and the loads of its inputs.
const OF_ROW: f64 = 0.02;

/// Share of the matrix units' rate that attention of a prompt reaches, given that its scores pass through shared
/// memory. An estimate.
const ATTENDS: f64 = 0.25;

/// RDNA 3 and 3.5 in an APU: per processor two SIMDs, with 1024 registers for each of 32 lanes.
const fn rdna3(processors: u32, memory: f64, ghz: f64) -> Figures {
    Figures {
        processors,
        lanes: 1024,
        registers: 2 * 1024 * 32,
        shared_bytes: 64 << 10,
        memory,
        cache: 10.0 * memory,
        matrix: 512.0 * processors as f64 * ghz * 1e9 / 2.2,
        dot: 512.0 * processors as f64 * ghz * 1e9 / 2.0,
        issue: Some(2.0 * processors as f64 * ghz * 1e9),
        latency: 1.2e-6,
        dispatch: 8e-6,
        is_listed: false,
        is_known: true,
        relays: false,
    }
}

/// A part of the device's name as its driver gives it, in lower case, and its figures. The first match is used.
const KNOWN: &[(&[&str], Figures)] = &[
    (&["h200", "gh200"], Figures { memory: 4.8e12, ..HOPPER }),
    (&["h100", "h800", "h20"], HOPPER),
    (&["gfx1103", "phoenix", "780m", "hawk"], rdna3(12, 89.6e9, 2.8)),
    (&["gfx1151", "strix halo", "strix_halo", "8060s", "8050s"], rdna3(40, 256e9, 2.9)),
    (&["gfx1150", "890m", "strix"], rdna3(16, 120e9, 2.9)),
];

impl Figures {
    /// The figures of an open device. `None` for a driver on the CPU, to which the model does not apply.
    pub fn of(caps: &Caps) -> Option<Figures> {
        let name = caps.name.to_lowercase();
        if caps.is_cpu() {
            return None;
        }
        Some(Figures::named(&name).unwrap_or(match caps.kind {
            DeviceKind::Integrated => Figures { is_known: false, ..rdna3(12, 80e9, 2.5) },
            // A medium-sized GPU: the choice depends little on the size.
            _ => Figures {
                processors: 60,
                lanes: 1536,
                shared_bytes: 100 << 10,
                memory: 500e9,
                cache: 2e12,
                matrix: if caps.matrix.is_some() { 100e12 } else { 20e12 },
                dot: 40e12,
                dispatch: 5e-6,
                is_listed: false,
                is_known: false,
                relays: false,
                ..HOPPER
            },
        }))
    }

    /// The figures of the known device whose name `name` contains.
    pub fn named(name: &str) -> Option<Figures> {
        let name = name.to_lowercase();
        let known = KNOWN.iter().find(|(parts, _)| parts.iter().any(|part| name.contains(part)));
        known.map(|(_, figures)| *figures)
    }

    /// A lower bound of a product's seconds on this device.
    pub fn least_seconds(&self, arithmetic: Arithmetic, p: Product) -> f64 {
        (p.weight_bytes() / self.memory).max(p.operations() / self.rate(arithmetic)) + self.dispatch
    }

    /// Multiplications and additions per second in attention of a prompt, on matrix units or without them.
    pub fn attention(self, on_units: bool) -> f64 {
        if on_units { ATTENDS * self.matrix } else { self.float() }
    }

    /// The number of multiplications and additions in f32 per second.
    pub(super) fn float(&self) -> f64 {
        0.25 * self.dot
    }

    fn rate(&self, arithmetic: Arithmetic) -> f64 {
        match arithmetic {
            Arithmetic::Matrix(Operand::F16) => self.matrix,
            // Two planes: RDNA 3 multiplies bytes as fast as f16, and other devices at most twice as fast.
            Arithmetic::Matrix(Operand::S8) if self.issue.is_some() => 0.5 * self.matrix,
            Arithmetic::Matrix(Operand::S8) => 0.8 * self.matrix,
            Arithmetic::IntegerDot => self.dot,
            Arithmetic::F32 => self.float(),
        }
    }

    /// Workgroups that a processor holds: by lanes, registers of a lane, and bytes of shared memory.
    fn resident(&self, workgroup: u32, registers: u32, shared: u32) -> u32 {
        let by_lanes = self.lanes / workgroup.max(1);
        let by_registers = self.registers / (registers * workgroup).max(1);
        let by_shared = self.shared_bytes / shared.max(1);
        by_lanes.min(by_registers).min(by_shared).max(1)
    }

    /// Seconds of `groups` workgroups, of which `resident` run at once on a processor. `seconds` is their time if no
    /// processor is ever idle.
    fn in_rounds(&self, seconds: f64, groups: u32, resident: u32) -> f64 {
        let slots = f64::from(self.processors * resident);
        let rounds = f64::from(groups) / slots;
        // Workgroups do not end together: with many rounds, the last one's idle places are partly filled.
        let idle = if rounds <= 1.0 { 1.0 } else { (rounds.ceil() / rounds + 1.0) / 2.0 };
        seconds * idle
    }

    /// Bytes per second from memory with `bytes` in flight.
    fn reached(&self, bytes: f64) -> f64 {
        let needed = self.memory * self.latency;
        // The rate saturates: with half of the bytes that latency needs in flight it is two thirds of the memory's.
        self.memory * (bytes / (bytes + 0.25 * needed)).min(bytes / (0.5 * needed)).min(1.0)
    }

    /// Seconds of the dot products' instructions if no unit is ever idle.
    fn dot_instructions(&self, p: Product) -> f64 {
        let Some(issue) = self.issue else { return p.operations() / self.dot };
        let [of_first, _] = instructions(p.format);
        let weights = p.weight_rows(p.outputs) as f64 * p.inputs as f64;
        weights * (of_first + OF_ROW * (p.rows - 1) as f64) / issue
    }

    /// Seconds of the instructions that widen all weights `times` for matrix units. They do not overlap with products:
    /// both are issued to the same units.
    fn widening(&self, p: Product, times: f64) -> f64 {
        let Some(issue) = self.issue else { return 0.0 };
        let [_, to_widen] = instructions(p.format);
        p.weight_rows(p.outputs) as f64 * p.inputs as f64 * to_widen * times / issue
    }

    /// The predicted seconds of a product with a tile.
    pub fn seconds(&self, subgroup: u32, units: Option<MatrixUnits>, p: Product, tile: Tile, groups: [u32; 3]) -> f64 {
        self.dispatch
            + match (tile, units) {
                (Tile::Dot(t), _) => self.dot_seconds(subgroup, p, t, groups),
                (Tile::Matrix(t), Some(units)) => self.matrix_seconds(units, p, t),
                (Tile::Matrix(_), None) => f64::INFINITY,
            }
    }

    fn dot_seconds(&self, subgroup: u32, p: Product, t: DotTile, groups: [u32; 3]) -> f64 {
        let groups: u32 = groups.iter().product();
        let width = p.weight_rows(t.outputs as usize) as u32;
        let columns = p.rows.next_power_of_two().min(8) as u32;
        let workgroup = subgroup * t.subgroups;
        // Registers of weights in flight with their scales, of sums, inputs and addresses.
        let registers = 5 * width * t.unroll + width * columns + 8 * columns + 28;
        let resident = self.resident(workgroup, registers, 1);
        let loads = (p.inputs / p.format.per_load()).max(1) as u32;
        let turn = t.sharers * t.unroll;
        // The share of lanes that are not idle at the end of a row.
        let used = f64::from(loads) / f64::from(loads.div_ceil(turn) * turn);
        let running = f64::from(resident.min(groups.div_ceil(self.processors)) * self.processors.min(groups));
        let in_flight = running * f64::from(workgroup * width * t.unroll * 16) * used;
        let memory = p.weight_bytes() / self.reached(in_flight);
        // Each output's sums are added up over its sharers; each workgroup begins with loads that no work overlaps.
        let sums = p.outputs as f64 * p.rows as f64 * f64::from(t.sharers.ilog2()) * 2.0 * 32.0 / self.dot;
        let begun = self.latency * f64::from(groups) / (running * 4.0);
        let operations = self.dot_instructions(p) / used;
        self.in_rounds(memory.max(operations) + sums, groups, resident) + begun
    }

    fn matrix_seconds(&self, units: MatrixUnits, p: Product, t: MatrixTile) -> f64 {
        let weight_rows = p.weight_rows(p.outputs);
        let [tile_rows, tile_outputs] = t.shape.area();
        let groups: u32 = t.groups(p.rows, weight_rows).iter().product();
        let step = t.shape.inputs(units, p.format);
        let planes = f64::from(t.operand.planes());
        // For a subgroup: its rows and outputs. For a workgroup: its subgroups, steps of weights in flight, shared
        // memory.
        let (part, subgroups, depth, shared) = match t.shape {
            MatrixShape::Shared(s) => {
                let shared = s.shared_bytes(units, t.operand);
                ([s.subgroup_rows, s.subgroup_outputs], s.subgroups(), s.depth, shared)
            }
            MatrixShape::Fragment(f) => {
                let rows = match f.inputs {
                    InputPath::Direct { .. } => f.rows,
                    InputPath::Shared { row_parts, .. } => f.rows / row_parts,
                };
                let stages = match f.inputs {
                    InputPath::Direct { .. } => 0,
                    InputPath::Shared { stages, .. } => stages,
                };
                ([rows, f.outputs], f.subgroups(), f.depth, stages * f.rows * (2 * step + 16))
            }
        };
        let workgroup = subgroups * units.subgroup;
        let sums = planes as u32 * part[0] * part[1] / units.subgroup;
        let per_weight = p.weight_bytes() / (weight_rows * p.inputs) as f64;
        let step_bytes = f64::from(tile_outputs * step * depth) * per_weight;
        let held = step_bytes as u32 / (4 * workgroup) + 1;
        let resident = self.resident(workgroup, sums + 2 * held + 40, shared);
        let running = f64::from(resident.min(groups.div_ceil(self.processors)) * self.processors.min(groups));
        let memory = p.weight_bytes() / self.reached(running * step_bytes);
        // Inputs come from the cache once per workgroup, and weights again for each further tile of rows.
        let row_tiles = (p.rows as u32).div_ceil(tile_rows);
        let inputs = f64::from(groups / t.splits) * f64::from(tile_rows) * p.inputs as f64 * 2.0 * planes;
        let again = f64::from(row_tiles - 1) * p.weight_bytes();
        let parts = if t.splits > 1 { 8.0 * f64::from(groups * tile_rows * tile_outputs) } else { 0.0 };
        let cache = (inputs + again + parts) / self.cache;
        // Each load of a matrix is used for as many products as the other side has matrices.
        let reuse = f64::from(part[0] * part[1]) / f64::from(part[0] + part[1]);
        let padded = f64::from(row_tiles * tile_rows) * weight_rows as f64 * p.inputs as f64 * 2.0 * planes;
        let rate = self.rate(Arithmetic::Matrix(t.operand)) * planes.min(2.0) * reuse / (reuse + 6.0);
        // Either each subgroup widens its own weights, or the workgroup's weights are divided among its subgroups.
        let widened = match t.shape {
            MatrixShape::Fragment(_) => IN_FRAGMENTS * f64::from((row_tiles * tile_rows).div_ceil(part[0])),
            MatrixShape::Shared(_) => f64::from(row_tiles),
        };
        let is_widened = t.operand == Operand::F16;
        let products = padded / rate + if is_widened { self.widening(p, widened) } else { 0.0 };
        let begun = self.latency * f64::from(groups) / (running * 2.0) * if t.splits > 1 { 2.0 } else { 1.0 };
        self.in_rounds(memory.max(products).max(cache) + 0.15 * memory.min(products), groups, resident) + begun
    }
}

/// The instructions per weight of a format, from [`INSTRUCTIONS`].
fn instructions(format: WeightFormat) -> [f64; 2] {
    INSTRUCTIONS.iter().find(|(known, _)| *known == format).map_or(MOST_INSTRUCTIONS, |(_, counted)| *counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::target::Target;
    use crate::lower::units::RDNA3;

    fn product(format: WeightFormat, outputs: usize, inputs: usize, rows: usize, gelu: bool) -> Product {
        Product { format, outputs, inputs, rows, gelu, blocks: false, experts: 0 }
    }

    #[test]
    fn devices_are_known_by_name_and_the_others_by_their_kind() {
        let memory = |name| Figures::named(name).map(|f| (f.processors, f.memory));
        assert_eq!(memory("AMD Radeon 780M Graphics (RADV PHOENIX), Mesa 25.0"), Some((12, 89.6e9)));
        assert_eq!(memory("AMD Radeon Graphics (RADV GFX1103_R1)"), Some((12, 89.6e9)));
        assert_eq!(memory("AMD Radeon 890M Graphics (RADV GFX1150)"), Some((16, 120e9)));
        assert_eq!(memory("Radeon 8060S Graphics (RADV GFX1151)"), Some((40, 256e9)));
        assert_eq!(memory("NVIDIA H100 80GB HBM3, 580"), Some((132, 3.35e12)));
        assert_eq!(memory("NVIDIA H200, 580"), Some((132, 4.8e12)));
        assert_eq!(memory("AMD Radeon RX 7900 XTX"), None);
    }

    /// Weights of 4 bits are widened once for many rows, in the tile that does so the fewest times.
    #[test]
    fn what_widening_takes_decides_between_tiles_that_multiply_alike() {
        let units = MatrixUnits { row_lanes: Some(1), ..RDNA3 };
        for machine in ["780m", "890m", "8060s"] {
            let target = Target { figures: Figures::named(machine), ..Target::new(32, true, Some(units)) };
            for format in [WeightFormat::Int4, WeightFormat::Blocks(BlockFormat::Q4K)] {
                let usual = target.usual(Arithmetic::Matrix(Operand::F16), product(format, 8192, 5376, 512, false));
                let Some(Tile::Matrix(tile)) = usual else { panic!("{usual:?}") };
                assert_eq!(tile.shape.area()[0], 128, "{machine} {}: {tile:?}", format.name());
            }
        }
    }

    /// No tile is faster than its bytes and operations allow, none is far slower, and the chosen one is the model's
    /// best.
    #[test]
    fn the_usual_tile_is_the_models_best_and_keeps_to_the_roofline() {
        for machine in ["780m", "890m", "8060s"] {
            let figures = Figures::named(machine).unwrap();
            let target = Target { figures: Some(figures), ..Target::new(32, true, Some(RDNA3)) };
            for format in [
                WeightFormat::Int8,
                WeightFormat::Int4,
                WeightFormat::Blocks(BlockFormat::Q4K),
                WeightFormat::Blocks(BlockFormat::Q6K),
            ] {
                for rows in [1, 2, 8, 32, 512] {
                    for p in [
                        product(format, 21504, 5376, rows, true),
                        product(format, 5376, 21504, rows, false),
                        product(format, 8192, 5376, rows, false),
                    ] {
                        for arithmetic in target.arithmetics(format, rows) {
                            let tiles = target.tiles(arithmetic, p);
                            let p = if tiles.is_empty() { Product { gelu: false, ..p } } else { p };
                            let tiles = target.tiles(arithmetic, p);
                            let seconds = |t: Tile| target.modelled_seconds(arithmetic, p, t).unwrap();
                            let least = figures.least_seconds(arithmetic, p);
                            let best = tiles.iter().map(|&t| seconds(t)).fold(f64::INFINITY, f64::min);
                            assert!(best >= 0.99 * least, "{machine} {p:?}: {best} of {least}");
                            assert!(best < 4.0 * least, "{machine} {p:?}: {best} of {least}");
                            let usual = target.usual(arithmetic, p).unwrap();
                            assert_eq!(seconds(usual), best, "{machine} {p:?}");
                        }
                    }
                }
            }
        }
    }
}
