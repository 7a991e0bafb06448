//! The kernels that passes of models ask for: those that code is compiled ahead of time for, and those of amd-isa.md.

use super::common::gguf::MOST_USED_MIXES;
use super::common::golden;
use kiln::model::checkpoint::Checkpoint;
use kiln::model::{BlockFormat, FileMix, Shape, TensorId, WeightFormat, presets};
use kiln::schedule::step::Op;
use kiln::schedule::{Extent, KvType, Schedule, Segment};
use kiln::testing::amdgpu::code::Chip;
use kiln::testing::lower::arithmetic::{Arithmetic, Operand};
use kiln::testing::lower::dispatch::Addresses;
use kiln::testing::lower::figures::Figures;
use kiln::testing::lower::kernels::constants::{Constants, NoConstants};
use kiln::testing::lower::kernels::{Kernel, Module};
use kiln::testing::lower::layout::GpuLayout;
use kiln::testing::lower::target::Target;
use kiln::testing::lower::units::MatrixUnits;
use kiln::testing::lower::{Lowering, PassKind, RowOrder, TokenSource};
use kiln::testing::replay::measure::{ceiling, fragment};
use std::collections::HashSet;
use std::ops::Range;

/// Lanes of a wave.
const SUBGROUP: u32 = 32;
/// The matrix units of these chips as RADV reports them, and as replay finds their lanes.
pub const UNITS: MatrixUnits = MatrixUnits {
    m: 16,
    n: 16,
    k: 16,
    least_n: 16,
    row_lanes: Some(1),
    s8_k: Some(16),
    subgroup: SUBGROUP,
    shared_bytes: 65536,
    max_workgroup: 1024,
    sum_bytes: 256,
    unrolled_steps: u32::MAX,
};

/// Units with the lanes that running a kernel would find. The value is from the instruction set's manual: how a wave holds its
/// matrices.
pub fn with_lanes(units: MatrixUnits) -> MatrixUnits {
    MatrixUnits { row_lanes: Some(1), ..units }
}

/// A chip as the cost model knows it, untuned.
pub fn usual(chip: Chip) -> Target {
    let name = match chip {
        Chip::Gfx1103 => "780m",
        Chip::Gfx1150 => "890m",
        Chip::Gfx1151 => "8060s",
    };
    Target { figures: Some(Figures::named(name).unwrap()), ..Target::new(SUBGROUP, true, Some(UNITS)) }
}

/// Types of the KV cache that a device has.
const KV: [KvType; 2] = [KvType::F16, KvType::Bf16];
/// Rows of passes: the powers of two that are baked, and sizes between them that a chunk may have.
const ROWS: [usize; 31] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 33, 48, 64, 96, 100, 128, 192, 256, 384, 512, 1024,
    2048, 4096,
];
/// The first shows every product.
pub const ORDERS: [RowOrder; 4] = [RowOrder::Consecutive, RowOrder::Apart, RowOrder::Mixed, RowOrder::Any];
/// Most rows of a draft, and of a head whose products are enumerated for each number of rows.
const DRAFTED: usize = 8;
const HEAD_ROWS: usize = 64;

/// A model: its name, its shape and its drafter's.
pub type Model = (String, Shape, Option<Shape>);

/// The public models, each with its drafter.
pub fn public() -> impl Iterator<Item = Model> {
    presets::NAMES.into_iter().map(|name| {
        let drafter = presets::preset(&format!("{name}-drafter"));
        (name.into(), presets::preset(name).unwrap(), drafter)
    })
}

/// The models of the tests, and the one in the executable with its draft.
pub fn small() -> impl Iterator<Item = Model> {
    let shape = |name: &str| presets::find(&golden(name).join("config.json").to_string_lossy()).unwrap();
    let golden_names = ["tiny", "wide_small", "deep62", "tiny4", "wide4", "moe4", "moe_wide4", "thinker"].into_iter();
    let small = golden_names.map(move |name| (name.into(), shape(name), (name == "tiny4").then(|| shape("drafter4"))));
    let gguf = Checkpoint::open(&golden("gguf/model.gguf")).unwrap();
    let demo = kiln::engine::demo::checkpoint().unwrap();
    let draft = kiln::engine::demo::draft_checkpoint().unwrap();
    let others = [("gguf", gguf), ("demo", demo), ("demo's draft", draft)];
    small.chain(others.into_iter().map(|(name, checkpoint)| (name.into(), checkpoint.shape().clone(), None)))
}

/// The formats of a model's matrices.
#[derive(Debug, Clone, Copy)]
pub enum Weights {
    /// All in one format, where they can be.
    Of(WeightFormat),
    /// As in a file.
    In(FileMix),
}

/// The mixes of files that there is code for. All of them would take 5.9 MB of a chip's set, most of it integer dot products
/// of each type and each length of a row.
pub fn mixes() -> impl Iterator<Item = FileMix> {
    MOST_USED_MIXES.into_iter().map(|name| FileMix::of_name(name).unwrap())
}

impl Weights {
    /// Of the tests' models: the formats that Kiln makes (INT4 is Q4_0), and the most used types of GGUF files.
    pub const OF_SMALL: [Weights; 6] = [
        Weights::Of(WeightFormat::Int8),
        Weights::Of(WeightFormat::Int4),
        Weights::Of(WeightFormat::Bf16),
        Weights::Of(WeightFormat::Blocks(BlockFormat::Q8_0)),
        Weights::Of(WeightFormat::Blocks(BlockFormat::Q4K)),
        Weights::Of(WeightFormat::Blocks(BlockFormat::Q6K)),
    ];

    /// Of the public models: those of the tests' models, and the mixes of files that are most used.
    pub fn of_public() -> impl Iterator<Item = Weights> {
        Weights::OF_SMALL.into_iter().chain(mixes().map(Weights::In))
    }

    pub fn of(self, shape: &Shape, id: TensorId) -> WeightFormat {
        match self {
            Weights::Of(_) if id.is_router() => WeightFormat::Bf16,
            Weights::Of(format) if format.holds(id.dims(shape)[1]) => format,
            Weights::Of(_) => WeightFormat::Int8,
            Weights::In(mix) => WeightFormat::Int8.of_matrix(id, shape, Some(mix.stored(id, shape))),
        }
    }

    fn is(self, format: WeightFormat) -> bool {
        matches!(self, Weights::Of(of) if of == format)
    }

    /// Whether it is one of those that show all of attention: that depends on the activation layout alone, which formats
    /// with scales of groups share. So does what the order of rows and the type of the cache change.
    fn shows_attention(self) -> bool {
        WeightFormat::MADE.into_iter().any(|made| self.is(made))
    }
}

/// Every kernel that a chip has code for, for the public models and the small ones: what the cost model chooses, f32 where
/// matrices of several formats read one input, the other operands of matrix units, and what `compare` and an offload run
/// alone. Of kernels that measure, all.
///
/// Some kernels have sizes of the model for constants: the length of a row (norms, packing, integer dot products), outputs
/// (stages of gated dot products), heads and their width (attention), experts of a row, and whether the vocabulary is large
/// (argmax). So another model may ask for others. Kernels of f32 products and, but for one flag, of products on matrix units
/// have the format and the tile alone.
pub fn kernels(chip: Chip) -> HashSet<Kernel> {
    let mut kernels = HashSet::new();
    let public = public().flat_map(|model| Weights::of_public().map(move |weights| (model.clone(), weights)));
    let small = small().flat_map(|model| Weights::OF_SMALL.map(|weights| (model.clone(), weights)));
    for ((_, shape, drafter), weights) in public.chain(small) {
        kernels.extend(of_model(&shape, drafter.as_ref(), chip, weights));
    }
    kernels.extend([ceiling::matrix_rate_kernel(UNITS), fragment::kernel(UNITS)]);
    kernels.extend([SUBGROUP, 256].map(|workgroup| Kernel::new(Module::Read, workgroup, NoConstants {})));
    // A module that is asked for elsewhere.
    for &module in Module::ALL {
        if module != Module::LinearMatrixS8NarrowInt8 && !kernels.iter().any(|k| k.module == module) {
            kernels.insert(Kernel { module, workgroup: 256, constants: Constants::default() });
        }
    }
    kernels
}

/// A model's.
pub fn of_model(shape: &Shape, drafter: Option<&Shape>, chip: Chip, weights: Weights) -> HashSet<Kernel> {
    let usual = usual(chip);
    let by = |operand| Target { chosen: [(usize::MAX, Arithmetic::Matrix(operand))].into(), ..usual.clone() };
    let mut targets = vec![usual.clone(), Target::new(SUBGROUP, false, None)];
    targets.extend(weights.is(WeightFormat::Int8).then(|| by(Operand::S8)));
    let shows_attention = weights.shows_attention();
    let mut kernels = HashSet::new();
    for kv in KV.into_iter().take(if shows_attention { KV.len() } else { 1 }) {
        let schedule = schedule(shape, drafter, weights, kv);
        let mut passes = Passes::new(&schedule);
        for (target, rows) in targets.iter().flat_map(|target| ROWS.map(|rows| (target, rows))) {
            let is_usual = target.figures.is_some() && target.chosen.is_empty();
            let kind = |order| PassKind { rows, head_rows: rows.min(HEAD_ROWS), order, tokens: TokenSource::Host };
            if !rows.is_power_of_two() {
                if is_usual && kv == KvType::F16 {
                    passes.of_layers(target, kind(RowOrder::Consecutive));
                    passes.of_head(target, rows);
                }
                continue;
            }
            for order in ORDERS.into_iter().take(if shows_attention { ORDERS.len() } else { 1 }) {
                passes.of_layers(target, kind(order));
                if is_usual {
                    passes.of_pieces(target, kind(order));
                }
            }
            passes.of_head(target, rows);
            if rows <= DRAFTED {
                passes.of_draft(target, rows);
            }
        }
        kernels.extend(passes.kernels);
    }
    kernels
}

/// A model's schedule, with as many layers as show all kernels: one of each kind with the same formats, and the last.
fn schedule(shape: &Shape, drafter: Option<&Shape>, weights: Weights, kv: KvType) -> Schedule {
    let context = shape.max_context.min(4096);
    let extent = Extent { context, max_rows: 4096, head_rows: 4096, sequences: 64, kv, kv_tokens: None };
    let formats = |layer: usize| {
        let of_layer = TensorId::all(shape).filter(move |id| matches!(id, TensorId::Layer(at, _) if *at == layer));
        of_layer.map(|id| weights.of(shape, id)).collect::<Vec<_>>()
    };
    let mut seen = HashSet::new();
    let layers = 0..shape.layers.len();
    let mut shown: Vec<usize> = layers.filter(|&at| seen.insert((shape.layers[at], formats(at)))).collect();
    shown.push(shape.layers.len() - 1);
    let of_drafter = |id| weights.of(drafter.unwrap_or(shape), id);
    let drafter = drafter.map(|shape| (shape, &of_drafter as &dyn Fn(TensorId) -> WeightFormat));
    let few = &Shape { layers: shown.iter().map(|&at| shape.layers[at]).collect(), ..shape.clone() };
    let of = |id: TensorId| match id {
        TensorId::Layer(at, role) => weights.of(shape, TensorId::Layer(shown[at], role)),
        other => weights.of(shape, other),
    };
    Schedule::build_with(few, extent, of, drafter)
}

/// Collects the kernels of passes of one schedule.
pub struct Passes<'a> {
    schedule: &'a Schedule,
    layout: GpuLayout,
    addresses: Addresses,
    pub kernels: HashSet<Kernel>,
}

impl<'a> Passes<'a> {
    pub fn new(schedule: &'a Schedule) -> Passes<'a> {
        let addresses = Addresses::new(1 << 40, vec![1 << 41; schedule.weights.buffers.len()]);
        Passes { schedule, layout: GpuLayout::new(schedule), addresses, kernels: HashSet::new() }
    }

    fn lowering<'b>(&'b self, target: &'b Target, kind: PassKind) -> Lowering<'b> {
        Lowering { schedule: self.schedule, layout: &self.layout, addresses: &self.addresses, target, kind }
    }

    /// A segment as a part of a whole pass.
    pub fn of_segment(&mut self, target: &Target, kind: PassKind, segment: Segment) {
        let dispatches = self.lowering(target, kind).segment(segment);
        self.kernels.extend(dispatches.into_iter().map(|d| d.kernel));
    }

    /// A range of steps as a piece of its own.
    fn of_piece(&mut self, target: &Target, kind: PassKind, steps: Range<usize>) {
        let dispatches = self.lowering(target, kind).lower(steps);
        self.kernels.extend(dispatches.into_iter().map(|d| d.kernel));
    }

    fn layers(&self) -> impl Iterator<Item = Segment> + use<> {
        (0..self.schedule.shape.layers.len()).map(Segment::Layer)
    }

    /// A kind of pass up to its head.
    pub fn of_layers(&mut self, target: &Target, kind: PassKind) {
        self.of_segment(target, kind, Segment::Embed);
        self.of_segment(target, PassKind { tokens: TokenSource::Next, ..kind }, Segment::Embed);
        self.layers().for_each(|layer| self.of_segment(target, kind, layer));
    }

    /// Each step of the layers as a piece of its own, as `compare` runs them, and layers that are cut at attention, as an
    /// offload has them.
    fn of_pieces(&mut self, target: &Target, kind: PassKind) {
        for layer in self.layers() {
            let steps = self.schedule.steps_of(layer);
            for at in steps.clone() {
                self.of_piece(target, kind, at..at + 1);
                if matches!(self.schedule.steps[at].op, Op::Attend { .. }) {
                    self.of_piece(target, kind, steps.start..at);
                    self.of_piece(target, kind, at + 1..steps.end);
                }
            }
        }
    }

    /// The head of so many rows, and the choice behind it; and each step as a piece of its own.
    pub fn of_head(&mut self, target: &Target, head_rows: usize) {
        let kind = PassKind { rows: 1, head_rows, order: RowOrder::Consecutive, tokens: TokenSource::Host };
        for segment in [Segment::Head, Segment::Choice] {
            self.of_segment(target, kind, segment);
            self.schedule.steps_of(segment).for_each(|at| self.of_piece(target, kind, at..at + 1));
        }
    }

    /// The first and a later step of a draft of so many rows.
    pub fn of_draft(&mut self, target: &Target, rows: usize) {
        let order = if rows == 1 { RowOrder::Consecutive } else { RowOrder::Apart };
        let steps = self.schedule.steps_of(Segment::Draft);
        for (tokens, skipped) in [(TokenSource::Host, 0), (TokenSource::Drafted(0), 1)] {
            let kind = PassKind { rows, head_rows: rows, order, tokens };
            if self.schedule.drafter.is_some() {
                self.of_piece(target, kind, steps.start + skipped..steps.end);
            }
        }
    }
}
