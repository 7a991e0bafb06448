//! Vector arithmetic: VOP1, VOP2, VOPC, VOP3, VOP3SD, VOP3P and VOPD.

use crate::decode::Inst;
use crate::fault::What;
use crate::float::{Mode, f16_to_f32};
use crate::isa::{Opcode, Operand};
use crate::operand::{Source, WideSource};
use crate::ops::{Lanes, Op, compare, lane_op, wide};
use crate::program::Step;
use crate::spread::Spread;
use crate::wave::{EXEC, Span, VCC, Wave};

/// What happens to a float result.
#[derive(Debug, Clone, Copy, PartialEq)]
struct After {
    omod: u32,
    clamp: bool,
    bits: u32,
}

impl After {
    fn of(inst: &Inst, dst: Operand) -> Option<Self> {
        let float = matches!(dst.format, "f16" | "f32" | "f64" | "pk2_f16");
        let bits = if dst.format == "pk2_f16" { 0 } else { dst.bits };
        let after = Self { omod: inst.get("omod"), clamp: inst.has("clmp"), bits };
        (float && (after.omod != 0 || after.clamp)).then_some(after)
    }

    /// The factor counts only where denormals of results are flushed, and not in IEEE mode.
    fn number(&self, mode: &Mode, x: f64) -> f64 {
        let kept = if self.bits == 32 { mode.float & 0x20 } else { mode.float & 0x80 };
        let omod = if mode.ieee || kept != 0 { 0 } else { self.omod };
        let x = x * [1.0, 2.0, 4.0, 0.5][omod as usize];
        match (self.clamp, x.is_nan()) {
            (true, true) if mode.dx10_clamp => 0.0,
            (true, false) => x.clamp(0.0, 1.0) + 0.0,
            _ => x,
        }
    }

    fn apply(&self, mode: &Mode, x: &mut Lanes) {
        let half = |x: u32| mode.exact16(self.number(mode, f16_to_f32(x) as f64), 0.0);
        for x in x {
            *x = match self.bits {
                0 => half(*x & 0xffff) | half(*x >> 16) << 16,
                16 => half(*x),
                _ => mode.exact32(self.number(mode, f32::from_bits(*x) as f64), 0.0),
            };
        }
    }
}

/// Where a result of at most 32 bits goes.
#[derive(Debug, Clone, Copy)]
struct Target {
    r: usize,
    /// The half of the register, for a result of 16 bits.
    half: Option<bool>,
}

impl Target {
    fn of(inst: &Inst, dst: Operand) -> Self {
        let r = inst.get("vdst") as usize;
        let name = inst.opcode.name;
        match inst.encoding() {
            "VOP3P" if name == "v_fma_mixlo_f16" => Self { r, half: Some(false) },
            "VOP3P" if name == "v_fma_mixhi_f16" => Self { r, half: Some(true) },
            _ if dst.bits != 16 => Self { r, half: None },
            "VOP3" => Self { r, half: Some(inst.get("opsel") & 8 != 0) },
            _ => Self { r: r & 127, half: Some(r >= 128) },
        }
    }

    fn write(&self, w: &mut Wave, half: usize, lanes: u32, x: &Lanes, [low, high]: [u32; 2]) {
        match self.half {
            None => w.write_v(half, self.r, lanes, x, [low, high]),
            Some(up) => w.write_v16(half, self.r, up, lanes, x, low | high),
        }
    }
}

/// An operation of 32-bit lanes with its sources and its target.
struct Compute {
    op: Op,
    sources: [Source; 3],
    spread: Spread,
    after: Option<After>,
    target: Target,
}

/// Lanes, their poison, and which of them are written.
type Computed = (Lanes, [u32; 2], u32);

impl Compute {
    #[inline]
    fn run(&self, w: &Wave, half: usize) -> Computed {
        let mut result = [0; 32];
        let (poison, written) = self.run_to(w, half, &mut result);
        (result, poison, written)
    }

    #[inline]
    fn run_to(&self, w: &Wave, half: usize, result: &mut Lanes) -> ([u32; 2], u32) {
        let mut buffers = [[0; 32]; 3];
        let [b0, b1, b2] = &mut buffers;
        let (x0, p0, lanes) = self.sources[0].fetch(w, half, b0);
        let (x1, p1, _) = self.sources[1].fetch(w, half, b1);
        let (x2, p2, _) = self.sources[2].fetch(w, half, b2);
        self.op.run(&w.mode, [x0, x1, x2], result, w.fast);
        if let Some(after) = &self.after {
            after.apply(&w.mode, result);
        }
        (self.spread.apply([p0, p1, p2], [x0, x1, x2]), w.exec(half) & lanes)
    }
}

/// Fields of the sources, of a plain instruction or one slot of VOPD.
fn fields(inst: &Inst, slot: Option<usize>) -> [&'static str; 3] {
    match (slot, inst.encoding()) {
        (Some(0), _) => ["srcx0", "vsrcx1", ""],
        (Some(_), _) => ["srcy0", "vsrcy1", ""],
        (_, "VOP1" | "VOP2" | "VOPC") => ["src0", "vsrc1", ""],
        _ => ["src0", "src1", "src2"],
    }
}

/// The three sources in the order of the operation, implicit ones included.
fn sources(inst: &Inst, opcode: &Opcode, slot: Option<usize>, dst: usize) -> Result<[Source; 3], What> {
    let names = fields(inst, slot);
    let source = |i: usize| {
        let field = if slot.is_some() { ["src0", "vsrc1", ""][i] } else { names[i] };
        match opcode.operand(field) {
            Some(operand) => Source::of(inst, names[i], operand, i as u32),
            None => Ok(Source::zero()),
        }
    };
    let (a, b) = (source(0)?, source(1)?);
    let name = opcode.name;
    let bits = opcode.operand("vdst").map_or(32, |o| o.bits);
    Ok(match name {
        _ if name.ends_with("fmaak_f32") || name.ends_with("fmaak_f16") => [a, b, Source::literal(inst, bits)],
        _ if name.ends_with("fmamk_f32") || name.ends_with("fmamk_f16") => [a, Source::literal(inst, bits), b],
        _ if name.contains("fmac") || name.contains("dot2acc") => {
            // The sum is the destination: of 16 bits the half that is written.
            let target =
                Target::of(inst, opcode.operand("vdst").unwrap_or(Operand { kind: "vgpr", format: "f32", bits }));
            let c = if bits == 16 { Source::half(target.r, target.half == Some(true)) } else { Source::vgpr(dst) };
            [a, b, c]
        }
        _ => [a, b, source(2)?],
    })
}

fn compute(inst: &Inst, opcode: &Opcode, slot: Option<usize>) -> Result<Compute, What> {
    let name = opcode.name;
    let unknown = || What::NotExecuted(name.to_string());
    let operand = opcode.operand("vdst").ok_or_else(unknown)?;
    let dst = match slot {
        Some(0) => inst.get("vdstx") as usize,
        Some(_) => (inst.get("vdsty") << 1 | (inst.get("vdstx") & 1 ^ 1)) as usize,
        None => inst.get("vdst") as usize,
    };
    let integer_dot = name.starts_with("v_dot4_") || name.starts_with("v_dot8_");
    let (clamp, neg) = (inst.has("clmp"), inst.get("neg"));
    let key = if integer_dot {
        let sign = |i: u32| if neg >> i & 1 != 0 { 's' } else { 'u' };
        let signs = if name.contains("_iu") { format!(":{}{}", sign(0), sign(1)) } else { String::new() };
        format!("{name}{signs}{}", if clamp { "!" } else { "" })
    } else {
        name.to_string()
    };
    let op = lane_op(&key, clamp).ok_or_else(unknown)?;
    let names = fields(inst, slot);
    let constant = |field: &str| {
        let at = ["src0", "src1", "src2"].iter().position(|f| *f == field)?;
        let code = inst.get(names[at]);
        match code {
            128..=192 => Some(code - 128),
            255 => inst.literal,
            _ => None,
        }
    };
    let target = if slot.is_some() { Target { r: dst, half: None } } else { Target::of(inst, operand) };
    Ok(Compute {
        op,
        sources: sources(inst, opcode, slot, dst)?,
        spread: Spread::of(name, constant),
        after: if slot.is_some() { None } else { After::of(inst, operand) },
        target,
    })
}

/// One slot of VOPD: an operation, or a choice by VCC.
enum Slot {
    Compute(Compute),
    Select([Source; 2], usize),
}

impl Slot {
    fn of(inst: &Inst, opcode: &Opcode, slot: usize) -> Result<Self, What> {
        if opcode.name != "v_dual_cndmask_b32" {
            return Ok(Self::Compute(compute(inst, opcode, Some(slot))?));
        }
        let dst = if slot == 0 { inst.get("vdstx") } else { inst.get("vdsty") << 1 | (inst.get("vdstx") & 1 ^ 1) };
        let [a, b, _] = sources(inst, opcode, Some(slot), dst as usize)?;
        Ok(Self::Select([a, b], dst as usize))
    }

    #[inline]
    fn run(&self, w: &Wave) -> Computed {
        match self {
            Self::Compute(compute) => compute.run(w, 0),
            Self::Select([a, b], _) => select(w, 0, a, b, (w.s[VCC], w.s_poison[VCC])),
        }
    }

    fn write(&self, w: &mut Wave, (x, poison, lanes): &Computed) {
        match self {
            Self::Compute(compute) => compute.target.write(w, 0, *lanes, x, *poison),
            Self::Select(_, r) => w.write_v(0, *r, *lanes, x, *poison),
        }
    }
}

/// Lanes of b where the mask has a bit, else of a.
fn select(w: &Wave, half: usize, a: &Source, b: &Source, (mask, bad): (u32, u32)) -> Computed {
    let [mut b0, mut b1] = [[0; 32]; 2];
    let (a, pa, lanes) = a.fetch(w, half, &mut b0);
    let (b, pb, _) = b.fetch(w, half, &mut b1);
    let x = std::array::from_fn(|i| if mask >> i & 1 != 0 { b[i] } else { a[i] });
    let poison = [0, 1].map(|h| pa[h] & !mask | pb[h] & mask | bad);
    (x, poison, lanes & w.exec(half))
}

/// The step of any vector instruction that does not move values between lanes.
pub fn step(inst: &Inst) -> Result<Step, What> {
    if let Some(second) = inst.second {
        let slots = [Slot::of(inst, inst.opcode, 0)?, Slot::of(inst, second, 1)?];
        return Ok(Box::new(move |w: &mut Wave, _| {
            if w.halves != 1 {
                return Err(What::NotExecuted("VOPD in wave64".into()));
            }
            let (x, y) = (slots[0].run(w), slots[1].run(w));
            slots[0].write(w, &x);
            slots[1].write(w, &y);
            Ok(())
        }));
    }
    let name = inst.opcode.name;
    match name {
        "v_nop" | "v_pipeflush" => return Ok(Box::new(|_, _| Ok(()))),
        "v_cndmask_b32" | "v_cndmask_b16" => return select_step(inst),
        "v_swap_b32" | "v_swap_b16" => return swap_step(inst),
        "v_div_fmas_f32" | "v_div_fmas_f64" => return div_fmas_step(inst),
        _ => {}
    }
    if name.starts_with("v_cmp") {
        return compare_step(inst);
    }
    if name.contains("_co_") {
        return carry_step(inst);
    }
    if let Some(f) = wide(name) {
        return wide_step(inst, f);
    }
    let c = compute(inst, inst.opcode, None)?;
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let (x, poison, lanes) = c.run(w, half);
            c.target.write(w, half, lanes, &x, poison);
        }
        Ok(())
    }))
}

fn select_step(inst: &Inst) -> Result<Step, What> {
    let unknown = || What::NotExecuted(inst.name());
    let [a, b, _] = {
        let names = fields(inst, None);
        let of = |i: usize| -> Result<Source, What> {
            // neg and abs of floats count although the operands are bits.
            let operand = inst.opcode.operand(names[i]).ok_or_else(unknown)?;
            let format = if operand.bits == 16 { "f16" } else { "f32" };
            Source::of(inst, names[i], Operand { format, ..operand }, i as u32)
        };
        [of(0)?, of(1)?, Source::zero()]
    };
    let mask = if inst.encoding() == "VOP2" { VCC } else { inst.get("src2") as usize };
    let target = Target::of(inst, inst.opcode.operand("vdst").ok_or_else(unknown)?);
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let bits = match mask {
                0..128 => w.read_mask(mask, half),
                193 => (u32::MAX, 0),
                _ => (0, 0),
            };
            let (x, poison, lanes) = select(w, half, &a, &b, bits);
            target.write(w, half, lanes, &x, poison);
        }
        Ok(())
    }))
}

fn swap_step(inst: &Inst) -> Result<Step, What> {
    let (a, b) = (inst.get("vdst") as usize, inst.get("src0") as usize & 255);
    if inst.opcode.name == "v_swap_b32" {
        return Ok(Box::new(move |w: &mut Wave, _| {
            for half in 0..w.halves {
                let lanes = w.exec(half);
                let (x, y) = (w.v[half * 256 + a], w.v[half * 256 + b]);
                let (p, q) = (w.v_poison[half * 256 + a], w.v_poison[half * 256 + b]);
                w.write_v(half, a, lanes, &y, q);
                w.write_v(half, b, lanes, &x, p);
            }
            Ok(())
        }));
    }
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let lanes = w.exec(half);
            let read = |r: usize| {
                let at = half * 256 + (r & 127);
                let high = (r >= 128) as usize;
                (w.v[at].map(|x| x >> (16 * high) & 0xffff), w.v_poison[at][high])
            };
            let ((x, p), (y, q)) = (read(a), read(b));
            w.write_v16(half, a & 127, a >= 128, lanes, &y, q);
            w.write_v16(half, b & 127, b >= 128, lanes, &x, p);
        }
        Ok(())
    }))
}

/// The mask that a compare writes.
fn compare_step(inst: &Inst) -> Result<Step, What> {
    let name = inst.opcode.name;
    let unknown = || What::NotExecuted(name.to_string());
    let writes_exec = name.starts_with("v_cmpx");
    let dst = match (writes_exec, inst.encoding()) {
        (true, _) => EXEC,
        (_, "VOPC") => VCC,
        _ => inst.get("vdst") as usize,
    };
    let names = fields(inst, None);
    if let Some(f) = wide(name) {
        let of = |i: usize| {
            let operand = inst.opcode.operand(names[i]).ok_or_else(unknown)?;
            WideSource::of(inst, names[i], operand, i as u32)
        };
        let (a, b) = (of(0)?, of(1)?);
        return Ok(Box::new(move |w: &mut Wave, _| {
            for half in 0..w.halves {
                let ((a, pa), (b, pb)) = (a.fetch(w, half), b.fetch(w, half));
                let lanes = w.exec(half);
                let bits = (0..32).filter(|i| f(&w.mode, [a[*i], b[*i], 0]).1).fold(0u32, |all, i| all | 1 << i);
                w.write_mask(dst, half, bits & lanes, (pa | pb) & lanes)?;
            }
            Ok(())
        }));
    }
    let op = compare(name).ok_or_else(unknown)?;
    let [a, b, _] = sources(inst, inst.opcode, None, 0)?;
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let [mut b0, mut b1] = [[0; 32]; 2];
            let (x0, p0, written) = a.fetch(w, half, &mut b0);
            let (x1, p1, _) = b.fetch(w, half, &mut b1);
            let mut bits = [0; 32];
            op.run(&w.mode, [x0, x1, x1], &mut bits, w.fast);
            let lanes = w.exec(half) & written;
            let poison = (p0[0] | p0[1] | p1[0] | p1[1]) & lanes;
            let mask = (0..32).fold(0, |all, i| all | bits[i] << i);
            w.write_mask(dst, half, mask & lanes, poison)?;
        }
        Ok(())
    }))
}

/// Sums and differences with a carry out, and perhaps in.
fn carry_step(inst: &Inst) -> Result<Step, What> {
    let name = inst.opcode.name;
    let [a, b, _] = sources(inst, inst.opcode, None, 0)?;
    let takes = name.contains("_co_ci_");
    let short = inst.encoding() == "VOP2";
    let carry_in = if short { VCC } else { inst.get("src2") as usize };
    let carry_out = if short { VCC } else { inst.get("sdst") as usize };
    let dst = inst.get("vdst") as usize;
    let (subtract, reverse) = (name.starts_with("v_sub"), name.starts_with("v_subrev"));
    let clamp = inst.has("clmp");
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let [mut b0, mut b1] = [[0; 32]; 2];
            let (x, p, written) = a.fetch(w, half, &mut b0);
            let (y, q, _) = b.fetch(w, half, &mut b1);
            let (x, y) = if reverse { (y, x) } else { (x, y) };
            let (carry, bad) = match carry_in {
                _ if !takes => (0, 0),
                0..128 => w.read_mask(carry_in, half),
                193 => (u32::MAX, 0),
                _ => (0, 0),
            };
            let (mut sum, mut out) = ([0; 32], 0u32);
            for i in 0..32 {
                let c = (carry >> i & 1) as u64;
                let wide = if subtract {
                    (x[i] as u64).wrapping_sub(y[i] as u64).wrapping_sub(c)
                } else {
                    x[i] as u64 + y[i] as u64 + c
                };
                sum[i] = wide as u32;
                out |= ((wide >> 32 & 1) as u32) << i;
            }
            if clamp {
                let limit = if subtract { 0 } else { u32::MAX };
                (0..32).filter(|i| out >> i & 1 != 0).for_each(|i| sum[i] = limit);
            }
            let lanes = w.exec(half) & written;
            let poison = p[0] | p[1] | q[0] | q[1] | bad;
            w.write_v(half, dst, lanes, &sum, [poison; 2]);
            w.write_mask(carry_out, half, out & lanes, poison & lanes)?;
        }
        Ok(())
    }))
}

fn wide_step(inst: &Inst, f: crate::ops::Wide) -> Result<Step, What> {
    let name = inst.opcode.name;
    let unknown = || What::NotExecuted(name.to_string());
    let names = fields(inst, None);
    let mut sources = Vec::new();
    for (i, field) in names.into_iter().enumerate() {
        if let Some(operand) = inst.opcode.operand(field) {
            sources.push(WideSource::of(inst, field, operand, i as u32)?);
        }
    }
    let operand = inst.opcode.operand("vdst").ok_or_else(unknown)?;
    let after = After::of(inst, operand);
    let (dst, is_wide) = (inst.get("vdst") as usize, operand.bits == 64);
    let mask = (inst.encoding() == "VOP3SD").then(|| inst.get("sdst") as usize);
    let saturates = inst.has("clmp") && name.starts_with("v_mad_");
    let signed = name == "v_mad_i64_i32";
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let mut values = [[0; 32]; 3];
            let mut poison = 0;
            for (value, source) in values.iter_mut().zip(&sources) {
                let (x, p) = source.fetch(w, half);
                *value = x;
                poison |= p;
            }
            let lanes = w.exec(half);
            let ([mut low, mut high], mut bits) = ([[0; 32]; 2], 0u32);
            for i in (0..32).filter(|i| lanes >> i & 1 != 0) {
                let (mut x, bit) = f(&w.mode, [values[0][i], values[1][i], values[2][i]]);
                if let Some(after) = &after {
                    x = match is_wide {
                        true => after.number(&w.mode, f64::from_bits(x)).to_bits(),
                        false => w.mode.exact32(after.number(&w.mode, f32::from_bits(x as u32) as f64), 0.0) as u64,
                    };
                }
                if saturates && bit {
                    x = match (signed, x >> 63) {
                        (false, _) => u64::MAX,
                        // A sum that went over has the other sign.
                        (true, 0) => 1 << 63,
                        (true, _) => u64::MAX >> 1,
                    };
                }
                (low[i], high[i]) = (x as u32, (x >> 32) as u32);
                bits |= (bit as u32) << i;
            }
            w.write_v(half, dst, lanes, &low, [poison; 2]);
            if is_wide {
                w.write_v(half, dst + 1, lanes, &high, [poison; 2]);
            }
            if let Some(mask) = mask {
                w.write_mask(mask, half, bits, poison & lanes)?;
            }
        }
        Ok(())
    }))
}

/// a · b + c, scaled where VCC says so.
fn div_fmas_step(inst: &Inst) -> Result<Step, What> {
    let name = inst.opcode.name;
    let double = name.ends_with("f64");
    let names = fields(inst, None);
    let of = |i: usize| {
        let operand = inst.opcode.operand(names[i]).ok_or_else(|| What::NotExecuted(name.to_string()))?;
        WideSource::of(inst, names[i], operand, i as u32)
    };
    let (sources, dst) = ([of(0)?, of(1)?, of(2)?], inst.get("vdst") as usize);
    Ok(Box::new(move |w: &mut Wave, _| {
        for half in 0..w.halves {
            let (vcc, mut poison) = (w.s[VCC + half], w.s_poison[VCC + half]);
            let [a, b, c] = [0, 1, 2].map(|i| {
                let (x, p) = sources[i].fetch(w, half);
                poison |= p;
                x
            });
            let [mut low, mut high] = [[0; 32]; 2];
            for i in 0..32 {
                let scaled = vcc >> i & 1 != 0;
                if double {
                    let sum = f64::from_bits(a[i]).mul_add(f64::from_bits(b[i]), f64::from_bits(c[i]));
                    let scale = if (c[i] >> 52 & 0x7ff) > 1023 { 2f64.powi(128) } else { 2f64.powi(-128) };
                    let x = if scaled { sum * scale } else { sum }.to_bits();
                    (low[i], high[i]) = (x as u32, (x >> 32) as u32);
                } else {
                    let sum = w.mode.fma32(a[i] as u32, b[i] as u32, c[i] as u32);
                    let scale = if (c[i] >> 23 & 0xff) > 127 { 2f32.powi(64) } else { 2f32.powi(-64) };
                    low[i] = if scaled { w.mode.to32(f32::from_bits(sum) * scale) } else { sum };
                }
            }
            let lanes = w.exec(half);
            w.write_v(half, dst, lanes, &low, [poison; 2]);
            if double {
                w.write_v(half, dst + 1, lanes, &high, [poison; 2]);
            }
        }
        Ok(())
    }))
}

/// Registers of VOPD's slots, for what is in flight.
pub fn vopd_spans(inst: &Inst) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut add = |r: u32| spans.push(Span { scalar: false, first: r as usize, count: 1 });
    add(inst.get("vdstx"));
    add(inst.get("vdsty") << 1 | (inst.get("vdstx") & 1 ^ 1));
    let second = inst.second.unwrap_or(inst.opcode);
    for (opcode, source, vsrc) in [(inst.opcode, "srcx0", "vsrcx1"), (second, "srcy0", "vsrcy1")] {
        if inst.get(source) >= 256 {
            add(inst.get(source) - 256);
        }
        if opcode.operand("vsrc1").is_some() {
            add(inst.get(vsrc));
        }
    }
    for source in ["srcx0", "srcy0"] {
        if inst.get(source) < 128 {
            spans.push(Span { scalar: true, first: inst.get(source) as usize, count: 1 });
        }
    }
    spans
}
