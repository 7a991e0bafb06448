//! Weights in the layout of the CPU's kernels: panels of sixteen rows, a lane each.
//!
//! A panel begins with its scales, followed by its planes. Planes are vectors of 64 bytes: lane r has four bytes of row
//! r. These are the words of the planes of [`crate::model::grouped`], so that packing only transposes words, and a
//! shift and a mask of a vector give four weights of each row for a dot product.
//!
//! ```text
//! INT8          f32 of each row; then for each 32 columns 8 vectors
//! BF16          nothing; then for each column 16 bfloat16
//! grouped       f16 d and, with offsets, f16 m of each row, for each 32 columns or for each 256; if these scale
//!               scales, bytes s and n of each row for each 32 columns, or a byte for each 16; then for each 32 columns
//!               the words of the first plane and of the second
//! ```
//!
//! The last panel is padded with rows of zeros, and INT8's columns are padded to a multiple of 32.

use super::lanes::{BYTES, LANES};
use crate::Result;
use crate::executor::zeroed::{Zeroed, zeroed};
use crate::model::checkpoint::Checkpoint;
use crate::model::grouped::{Grouped, LOAD, SUPER, ScaleParts, Scales};
use crate::model::{TensorId, WeightFormat};
use crate::schedule::step::Matrix;
use half::{bf16, f16};
use rayon::prelude::*;

/// Bytes of rows that are read at a time.
const READ: usize = 1 << 20;
/// The number of loads that share a scale of scales.
pub const LOADS: usize = SUPER / LOAD;

/// A cache line, for the alignment of panels.
#[derive(Debug, Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct CacheLine([u8; BYTES]);

// SAFETY: every bit pattern is a valid value, and the type has no padding.
unsafe impl bytemuck::Pod for CacheLine {}

/// A matrix in panels, or several of one size, each with panels of its own: a layer's experts.
pub struct Panels {
    /// The format of the packed weights.
    pub format: WeightFormat,
    /// The number of output features of one matrix.
    pub rows: usize,
    /// The number of input features.
    pub cols: usize,
    /// The offset that 8-bit elements are stored with.
    offset: u8,
    lines: Zeroed<CacheLine>,
}

/// The layout of a grouped format's scales in a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleForm {
    /// True if `d` and `m` are shared by [`SUPER`] columns, with separate scale bytes for each group.
    pub is_shared: bool,
    /// True if each 16 columns have a scale byte of their own.
    pub by_16: bool,
    /// True if the format subtracts an offset from each element.
    pub has_offsets: bool,
}

impl ScaleForm {
    /// The layout for a format's scales.
    pub const fn of(scales: Scales) -> ScaleForm {
        let (is_shared, by_16, has_offsets) = match scales {
            Scales::Half => (false, false, false),
            Scales::HalfOffset => (false, false, true),
            Scales::SixOffset => (true, false, true),
            Scales::Six => (true, false, false),
            Scales::Bytes | Scales::SixBy16 => (true, true, false),
            Scales::FourOffset => (true, true, true),
        };
        ScaleForm { is_shared, by_16, has_offsets }
    }

    /// Bytes of d, and m, of a record.
    pub const fn record(self) -> usize {
        if self.has_offsets { 4 * LANES } else { 2 * LANES }
    }

    /// The number of scale bytes that a load has.
    pub const fn small(self) -> usize {
        match self {
            ScaleForm { is_shared: false, .. } => 0,
            ScaleForm { by_16: false, has_offsets: false, .. } => LANES,
            _ => 2 * LANES,
        }
    }

    /// Bytes of the records of `loads` loads, which come before their scale bytes.
    pub const fn records(self, loads: usize) -> usize {
        (if self.is_shared { loads / LOADS } else { loads }) * self.record()
    }
}

/// Reads rows `first ..` of stacked tensors, as many as fit in `data` and `scales`. `tensors`: each with its part of
/// the matrix.
///
/// # Errors
/// As [`Checkpoint::read_rows`].
pub fn read_stacked(
    checkpoint: &Checkpoint,
    tensors: &[(TensorId, Matrix)],
    mut first: usize,
    mut data: &mut [u8],
    mut scales: &mut [u8],
) -> Result<()> {
    for (id, matrix) in tensors {
        if first >= matrix.rows {
            first -= matrix.rows;
            continue;
        }
        let [row_bytes, scale_bytes] = [matrix.format.row_bytes(matrix.cols), matrix.format.scale_bytes(matrix.cols)];
        let count = (matrix.rows - first).min(data.len() / row_bytes);
        let (own, rest) = data.split_at_mut(count * row_bytes);
        let (own_scales, rest_scales) = scales.split_at_mut(count * scale_bytes);
        checkpoint.read_rows(*id, first..first + count, matrix.format, own, own_scales)?;
        (data, scales, first) = (rest, rest_scales, 0);
    }
    Ok(())
}

/// The sizes of a row of weights from a checkpoint, before it is packed into a panel.
struct RowLayout {
    format: WeightFormat,
    cols: usize,
    row_bytes: usize,
    scale_bytes: usize,
}

impl Panels {
    /// Packs matrices whose rows follow one another. `read` reads rows as [`Checkpoint::read_rows`] does, from a given
    /// first row, into buffers of elements and of scales. `offset` is [`super::lanes::Lanes::OFFSET`].
    ///
    /// # Errors
    /// The errors of `read`. Refused: not enough memory.
    pub fn pack(
        [matrices, rows, cols]: [usize; 3],
        format: WeightFormat,
        offset: u8,
        read: impl Fn(usize, &mut [u8], &mut [u8]) -> Result<()> + Sync,
    ) -> Result<Panels> {
        let form = RowLayout { format, cols, row_bytes: format.row_bytes(cols), scale_bytes: format.scale_bytes(cols) };
        let mut panels = Panels { format, rows, cols, offset, lines: Zeroed::default() };
        let stride = panels.stride() / BYTES;
        let own_lines = panels.count() * stride;
        panels.lines = zeroed(matrices * own_lines, "weights")?;
        panels.lines.ask_for_large_pages();
        let together = (READ / (LANES * form.row_bytes)).max(1);
        let parts = panels.lines.par_chunks_mut(own_lines.max(1)).enumerate().flat_map(|(matrix, lines)| {
            lines.par_chunks_mut(together * stride).enumerate().map(move |(i, lines)| (matrix, i, lines))
        });
        parts.try_for_each(|(matrix, i, lines)| {
            let first = i * together * LANES;
            let count = (together * LANES).min(rows - first);
            let (mut data, mut scales) = (vec![0; count * form.row_bytes], vec![0; count * form.scale_bytes]);
            read(matrix * rows + first, &mut data, &mut scales)?;
            let scales = |panel: usize| &scales[(panel * LANES * form.scale_bytes).min(scales.len())..];
            let rows = data.chunks(LANES * form.row_bytes).enumerate();
            for ((panel, rows), lines) in rows.zip(lines.chunks_exact_mut(stride)) {
                pack(&form, offset, rows, scales(panel), bytemuck::cast_slice_mut(lines));
            }
            Ok::<(), crate::Error>(())
        })?;
        Ok(panels)
    }

    /// The number of panels in one matrix, each of sixteen rows.
    pub fn count(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// The number of loads in a row, each of [`LOAD`] columns.
    pub fn loads(&self) -> usize {
        self.cols.div_ceil(LOAD)
    }

    /// Bytes of a panel's scales, at its start.
    pub fn scale_bytes(&self) -> usize {
        scale_bytes(self.format, self.loads())
    }

    /// The distance from one panel to the next, in bytes.
    pub fn stride(&self) -> usize {
        self.scale_bytes() + plane_bytes(self.format, self.cols)
    }

    /// The scales of panel `i`, and the planes of its elements.
    pub fn panel(&self, i: usize) -> (&[u8], &[u8]) {
        let bytes: &[u8] = bytemuck::cast_slice(&self.lines);
        bytes[i * self.stride()..(i + 1) * self.stride()].split_at(self.scale_bytes())
    }

    /// All of the panels' memory, as words.
    pub fn words(&self) -> &[u64] {
        bytemuck::cast_slice(&self.lines)
    }

    /// Decodes row `r` of the first matrix to f32. `out` is `cols` long.
    pub fn decode_row(&self, r: usize, out: &mut [f32]) {
        let (scales, planes) = self.panel(r / LANES);
        let lane = r % LANES;
        match self.format.grouped() {
            Some(grouped) => {
                let offset = if grouped.low == 8 { self.offset } else { 0 };
                decode_grouped(grouped, offset, lane, scales, planes, out);
            }
            None if self.format == WeightFormat::Bf16 => {
                for (out, column) in out.iter_mut().zip(planes.chunks_exact(2 * LANES)) {
                    *out = bf16::from_le_bytes([column[2 * lane], column[2 * lane + 1]]).to_f32();
                }
            }
            None => {
                let scale: f32 = bytemuck::pod_read_unaligned(&scales[4 * lane..4 * lane + 4]);
                for (out, vector) in out.chunks_mut(4).zip(planes.chunks_exact(BYTES)) {
                    let bytes = &vector[4 * lane..4 * lane + 4];
                    out.iter_mut().zip(bytes).for_each(|(out, b)| *out = f32::from((b ^ self.offset) as i8) * scale);
                }
            }
        }
    }
}

fn scale_bytes(format: WeightFormat, loads: usize) -> usize {
    let bytes = match format.grouped() {
        Some(grouped) => {
            let form = ScaleForm::of(grouped.scales);
            form.records(loads) + loads * form.small()
        }
        None if format == WeightFormat::Int8 => 4 * LANES,
        None => 0,
    };
    bytes.next_multiple_of(BYTES)
}

/// Words of a row's load in both planes, which are also the vectors of a panel's load.
pub const fn words_of(grouped: Grouped) -> [usize; 2] {
    let first = if grouped.low == 2 { 2 } else { 4 };
    let second = if grouped.low == 8 { 4 } else { grouped.high };
    [first, second]
}

fn plane_bytes(format: WeightFormat, cols: usize) -> usize {
    let loads = cols.div_ceil(LOAD);
    match format.grouped() {
        Some(grouped) => loads * words_of(grouped).iter().sum::<usize>() * BYTES,
        None if format == WeightFormat::Bf16 => (cols * 2 * LANES).next_multiple_of(BYTES),
        None => loads * LOAD / 4 * BYTES,
    }
}

/// Packs up to sixteen rows into one panel.
fn pack(form: &RowLayout, offset: u8, data: &[u8], scales: &[u8], panel: &mut [u8]) {
    let loads = form.cols.div_ceil(LOAD);
    let (panel_scales, planes) = panel.split_at_mut(scale_bytes(form.format, loads));
    let Some(grouped) = form.format.grouped() else {
        for (lane, row) in data.chunks_exact(form.row_bytes).enumerate() {
            if form.format == WeightFormat::Bf16 {
                for (column, w) in planes.chunks_exact_mut(2 * LANES).zip(row.chunks_exact(2)).take(form.cols) {
                    column[2 * lane..2 * lane + 2].copy_from_slice(w);
                }
            } else {
                put(row, lane, offset, planes);
                panel_scales[4 * lane..4 * lane + 4].copy_from_slice(&scales[4 * lane..4 * lane + 4]);
            }
        }
        return;
    };
    let words = words_of(grouped);
    let offset = if grouped.low == 8 { offset } else { 0 };
    let scale_form = ScaleForm::of(grouped.scales);
    let (records, small) = panel_scales.split_at_mut(scale_form.records(loads));
    for (lane, row) in data.chunks_exact(form.row_bytes).enumerate() {
        let row_scales = &scales[lane * form.scale_bytes..(lane + 1) * form.scale_bytes];
        let (first, rest) = row.split_at(loads * 4 * words[0]);
        let (second, row_small) = rest.split_at(loads * 4 * words[1]);
        for load in 0..loads {
            let own = |plane: usize| load * 4 * words[plane]..(load + 1) * 4 * words[plane];
            let vectors = &mut planes[load * (words[0] + words[1]) * BYTES..][..(words[0] + words[1]) * BYTES];
            let (of_first, of_second) = vectors.split_at_mut(words[0] * BYTES);
            put(&first[own(0)], lane, offset, of_first);
            put(&second[own(1)], lane, offset, of_second);
            pack_scales(scale_form, grouped.scale_parts(row_scales, row_small, load), lane, load, records, small);
        }
    }
}

/// Puts a row's words into its lane of consecutive vectors.
fn put(words: &[u8], lane: usize, offset: u8, vectors: &mut [u8]) {
    let offset = u32::from_ne_bytes([offset; 4]);
    for (vector, word) in vectors.as_chunks_mut::<BYTES>().0.iter_mut().zip(words.as_chunks::<4>().0) {
        let word = u32::from_ne_bytes(*word) ^ offset;
        vector[4 * lane..4 * lane + 4].copy_from_slice(&word.to_ne_bytes());
    }
}

fn pack_scales(
    form: ScaleForm,
    parts: [ScaleParts; 2],
    lane: usize,
    load: usize,
    records: &mut [u8],
    small: &mut [u8],
) {
    let record = if form.is_shared { load / LOADS } else { load } * form.record();
    let mut half = |at: usize, x: f16| records[record + at..record + at + 2].copy_from_slice(&x.to_le_bytes());
    half(2 * lane, parts[0].d);
    if form.has_offsets {
        // Formats without scale bytes add the offset instead of subtracting it.
        half(2 * LANES + 2 * lane, if form.is_shared { parts[0].m } else { -parts[0].m });
    }
    if !form.is_shared {
        return;
    }
    let small = &mut small[load * form.small()..(load + 1) * form.small()];
    match (form.by_16, form.has_offsets) {
        (false, false) => small[lane] = parts[0].s as u8,
        (false, true) => (small[lane], small[LANES + lane]) = (parts[0].s as u8, parts[0].n as u8),
        (true, false) => (small[lane], small[LANES + lane]) = (parts[0].s as u8, parts[1].s as u8),
        (true, true) => {
            for (b, part) in parts.iter().enumerate() {
                small[b * LANES + lane] = (part.s | part.n << 4) as u8;
            }
        }
    }
}

fn decode_grouped(grouped: Grouped, offset: u8, lane: usize, scales: &[u8], planes: &[u8], out: &mut [f32]) {
    let (form, words) = (ScaleForm::of(grouped.scales), words_of(grouped));
    let (records, small) = scales.split_at(form.records(out.len() / LOAD));
    let vectors = words[0] + words[1];
    for (load, out) in out.chunks_exact_mut(LOAD).enumerate() {
        let mut row = [[0u8; 4]; 8];
        for (word, vector) in row.iter_mut().zip(planes[load * vectors * BYTES..].chunks_exact(BYTES).take(vectors)) {
            word.copy_from_slice(&vector[4 * lane..4 * lane + 4]);
            word.iter_mut().for_each(|b| *b ^= offset);
        }
        let values = grouped.values(row[..words[0]].as_flattened(), row[words[0]..].as_flattened());
        let record = &records[if form.is_shared { load / LOADS } else { load } * form.record()..];
        let half = |at: usize| f16::from_le_bytes([record[at], record[at + 1]]);
        let (d, m) = (half(2 * lane), if form.has_offsets { half(2 * LANES + 2 * lane) } else { f16::from_bits(0) });
        let byte = |at: usize| small[load * form.small() + at * LANES + lane];
        let parts = |block: usize| match form {
            ScaleForm { is_shared: false, .. } => (1, 1),
            ScaleForm { by_16: false, has_offsets: false, .. } => (i16::from(byte(0) as i8), 0),
            ScaleForm { by_16: false, .. } => (i16::from(byte(0)), i16::from(byte(1))),
            ScaleForm { has_offsets: false, .. } => (i16::from(byte(block) as i8), 0),
            _ => (i16::from(byte(block) & 15), i16::from(byte(block) >> 4)),
        };
        for (block, (out, values)) in out.chunks_mut(LOAD / 2).zip(values.chunks(LOAD / 2)).enumerate() {
            let (s, n) = parts(block);
            let (scale, least) = ScaleParts { d, s, m, n }.factors();
            out.iter_mut().zip(values).for_each(|(o, v)| *o = scale * v - least);
        }
    }
}
