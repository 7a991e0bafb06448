//! Tuned choices, stored in the cache directory: one file for each device, driver and set of kernels.

use crate::lower::PassKind;
use crate::lower::arithmetic::{Arithmetic, Operand};
use crate::lower::caps::Caps;
use crate::lower::target::{AttendBy, AttendHeads, Product, Tile};
use crate::machine::cache;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Raise this when choices change meaning while the kernels stay the same: another criterion, or another layout of
/// tiles.
const VERSION: u32 = 7;

/// Largest file that is read, in bytes. Usual ones have a few KB.
const MAX_BYTES: u64 = 16 << 20;

/// The choices for a device, and their file.
#[derive(Default)]
pub struct Choices {
    file: Option<PathBuf>,
    known: TuningFile,
}

/// The contents of the file that stores the choices.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct TuningFile {
    /// The chosen tiles, by [`product_name`].
    tiles: BTreeMap<String, Tile>,
    /// True if relayed dispatches are faster, by the bytes of the model's weights.
    relay: BTreeMap<u64, bool>,
    /// The arithmetic of products, by the model's bytes of weights and the pass's rows.
    arithmetic: BTreeMap<String, Arithmetic>,
    /// True if matrix units compute the gated GELU right after gate and up, by the same key.
    gated: BTreeMap<String, bool>,
    /// Tiles of products whose tile is not chosen yet, with the seconds of a dispatch alone, by [`product_name`].
    #[serde(default)]
    tried: BTreeMap<String, Vec<(Tile, f64)>>,
    /// Methods that came near the chosen one and are to be tuned too, by the model's bytes of weights and the pass's
    /// rows.
    #[serde(default)]
    rivals: BTreeMap<String, Vec<ProductMethod>>,
    /// Method of attention for rows of one sequence, by [`attend_name`].
    attend: BTreeMap<String, AttendBy>,
    /// Seconds of a pass, by [`pass_name`].
    seconds: BTreeMap<String, f64>,
}

/// The method of products in passes of some number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct ProductMethod {
    /// The arithmetic of the products.
    pub arithmetic: Arithmetic,
    /// True if matrix units compute the gated GELU right after gate and up.
    pub gated: bool,
}

impl Choices {
    /// Reads a device's file. An unreadable or malformed one counts as empty.
    pub fn open(caps: &Caps) -> Choices {
        let name = format!("tuning-{VERSION}-{}.json", caps.cache_id);
        let file = cache::directory().map(|directory| directory.join(name));
        let known = file.as_ref().and_then(|f| cache::read(f, MAX_BYTES));
        let known = known.and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
        Choices { file, known }
    }

    /// Choices that are not stored in a file.
    pub fn unkept() -> Choices {
        Choices { file: None, known: TuningFile::default() }
    }

    /// Writes the file. If that fails, the next start measures again.
    pub fn save(&self) {
        let Some(file) = &self.file else { return };
        let text = serde_json::to_vec_pretty(&self.known).unwrap_or_default();
        if let Err(e) = cache::write(file, &text) {
            log::warn!("the tuning file {} cannot be written, every start measures anew: {e}", file.display());
        }
    }

    /// The tile chosen for the product with this name.
    pub fn tile(&self, name: &str) -> Option<Tile> {
        self.known.tiles.get(name).copied()
    }

    /// The measurements of a product whose tile is not chosen yet.
    pub fn tried(&self, name: &str) -> &[(Tile, f64)] {
        self.known.tried.get(name).map_or(&[], Vec::as_slice)
    }

    /// Sets these measurements, given as seconds and tile.
    pub fn set_tried(&mut self, name: String, judged: &[(f64, Tile)]) {
        self.known.tried.insert(name, judged.iter().map(|&(seconds, tile)| (tile, seconds)).collect());
    }

    /// The methods that came near the chosen one.
    pub fn rivals(&self, weights: u64, rows: usize) -> &[ProductMethod] {
        self.known.rivals.get(&rows_name(weights, rows)).map_or(&[], Vec::as_slice)
    }

    /// Sets the near methods. An empty list makes the present choice final.
    pub fn set_rivals(&mut self, weights: u64, rows: usize, rivals: Vec<ProductMethod>) {
        match rivals.is_empty() {
            true => drop(self.known.rivals.remove(&rows_name(weights, rows))),
            false => drop(self.known.rivals.insert(rows_name(weights, rows), rivals)),
        }
    }

    /// Stores the tile chosen for the product with this name.
    pub fn set_tile(&mut self, name: String, tile: Tile) {
        self.known.tried.remove(&name);
        self.known.tiles.insert(name, tile);
    }

    /// Whether dispatches are relayed, for a model of `weights` bytes. `None`: not measured.
    pub fn relay(&self, weights: u64) -> Option<bool> {
        self.known.relay.get(&weights).copied()
    }

    /// Stores whether dispatches are relayed, for a model of `weights` bytes.
    pub fn set_relay(&mut self, weights: u64, relay: bool) {
        self.known.relay.insert(weights, relay);
    }

    /// The method of products in passes of `rows` rows. `weights`: bytes of the model's weights.
    pub fn way(&self, weights: u64, rows: usize) -> Option<ProductMethod> {
        let name = rows_name(weights, rows);
        Some(ProductMethod { arithmetic: *self.known.arithmetic.get(&name)?, gated: *self.known.gated.get(&name)? })
    }

    /// Stores the method of products in passes of `rows` rows, for a model of `weights` bytes.
    pub fn set_way(&mut self, weights: u64, rows: usize, way: ProductMethod) {
        self.known.arithmetic.insert(rows_name(weights, rows), way.arithmetic);
        self.known.gated.insert(rows_name(weights, rows), way.gated);
    }

    /// The method of attention that has a name ([`attend_name`]).
    pub fn attend(&self, name: &str) -> Option<AttendBy> {
        self.known.attend.get(name).copied()
    }

    /// Stores the method of attention for the passes with this name.
    pub fn set_attend(&mut self, name: String, way: AttendBy) {
        self.known.attend.insert(name, way);
    }

    /// The measured seconds of the kind of pass with this name.
    pub fn seconds(&self, name: &str) -> Option<f64> {
        self.known.seconds.get(name).copied().filter(|s| s.is_finite() && *s > 0.0)
    }

    /// Stores the measured seconds of the kind of pass with this name.
    pub fn set_seconds(&mut self, name: String, seconds: f64) {
        self.known.seconds.insert(name, seconds);
    }
}

fn rows_name(weights: u64, rows: usize) -> String {
    format!("{weights} bytes of weights, {rows} rows")
}

/// The name of a kind of pass in the file and in the log.
pub fn pass_name(weights: u64, kind: PassKind, depth: usize) -> String {
    format!("{weights} bytes of weights, {kind}, depth {depth}")
}

/// The name of a pass's attention over some heads in the file and in the log. `pass` is the pass's.
pub fn attend_name(pass: &str, AttendHeads { heads, kv_heads, dim }: AttendHeads) -> String {
    format!("{pass}, {heads}/{kv_heads} heads of {dim}")
}

/// The name of a product in the file and in the log.
pub fn product_name((arithmetic, p): (Arithmetic, Product), relay: bool) -> String {
    let by = match arithmetic {
        Arithmetic::Matrix(Operand::S8) => ", s8",
        Arithmetic::Matrix(Operand::F16) => ", f16",
        Arithmetic::F32 | Arithmetic::IntegerDot => "",
    };
    let blocks = if p.blocks { ", in blocks" } else { "" };
    let relayed = if relay { ", relayed" } else { "" };
    let two = if p.gelu { "2 x " } else { "" };
    format!("{} {two}{} x {}, {} rows{by}{blocks}{relayed}", p.format.name(), p.outputs, p.inputs, p.rows)
}
