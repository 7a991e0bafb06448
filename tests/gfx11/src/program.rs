//! A kernel's code, made into one closure an instruction, once.

use crate::cache::Ctx;
use crate::decode::{Inst, Variant, decode_all};
use crate::fault::{Fault, What};
use crate::isa::Operand;
use crate::wave::{EXEC, NULL, Regs, Span, State, VCC, Wave};
use crate::{buffer, ds, lanes, matrix, scalar, scratch, smem, vector, vmem};
use std::collections::HashMap;
use std::sync::Arc;

/// What an instruction does to its wave. The next step's index is set before.
pub type Step = Box<dyn Fn(&mut Wave, &mut Ctx) -> Result<(), What> + Send + Sync>;

/// What executes an instruction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unit {
    /// A SIMD's lanes.
    Vector,
    /// A SIMD's matrix products.
    Matrix,
    /// LDS.
    Lds,
    /// Vector memory.
    Memory,
    /// Scalar arithmetic and loads, branches, waits and hints.
    Scalar,
}

impl Unit {
    /// How many there are.
    pub const COUNT: usize = 5;

    fn of(inst: &Inst) -> Self {
        match inst.encoding() {
            "SOPP" | "SOP1" | "SOP2" | "SOPC" | "SOPK" | "SMEM" => Self::Scalar,
            "DS" => Self::Lds,
            "GLOBAL" | "FLAT" | "MUBUF" | "SCRATCH" => Self::Memory,
            _ if inst.opcode.name.starts_with("v_wmma") => Self::Matrix,
            _ => Self::Vector,
        }
    }
}

/// An instruction, ready to run.
pub struct Ready {
    /// What it does.
    pub step: Step,
    /// Registers that it reads or writes.
    uses: Regs,
    /// Of these, destinations of a load whose counter is that of vector memory.
    vm: Regs,
    /// The same of LDS and scalar memory.
    lgkm: Regs,
    /// What executes it.
    unit: Unit,
    /// For messages.
    pub inst: Inst,
}

/// See the module.
pub struct Program {
    /// Instructions in order.
    pub ready: Vec<Ready>,
}

/// Cuts padding off: what stands behind the last `s_endpgm` is data for the fetcher.
fn body(code: &[u32]) -> &[u32] {
    let last = code.iter().rposition(|word| *word == 0xbfb0_0000);
    let padding = |end: usize| code[end..].iter().all(|word| *word == 0xbf9f_0000);
    match last {
        Some(last) if padding(last + 1) => &code[..=last],
        _ => code,
    }
}

impl Program {
    /// Decodes and prepares all of a kernel. Nothing in it may be unknown.
    pub fn new(code: &[u32]) -> Result<Self, Fault> {
        let insts = decode_all(body(code))?;
        let index: Arc<HashMap<usize, usize>> =
            Arc::new(insts.iter().enumerate().map(|(i, inst)| (inst.at, i)).collect());
        let end = insts.len();
        let ready = insts.iter().map(|inst| {
            let place = |what| Fault { what, inst: inst.name(), at: inst.at * 4, wave: ([0; 3], 0), dispatch: 0 };
            let step = step(inst, &index, end).map_err(place)?;
            let (uses, vm, lgkm) = registers(inst).map_err(place)?;
            Ok(Ready { step, uses, vm, lgkm, unit: Unit::of(inst), inst: *inst })
        });
        Ok(Self { ready: ready.collect::<Result<_, Fault>>()? })
    }

    /// Vector registers that it needs: one more than the number of the highest.
    pub fn vector_registers(&self) -> usize {
        let highest = |ready: &Ready| (0..256).rfind(|r| ready.uses.v[r / 64] >> (r % 64) & 1 != 0);
        self.ready.iter().filter_map(highest).max().map_or(0, |r| r + 1)
    }

    /// Takes a wave's next step. The end of the code ends the wave.
    #[inline]
    pub fn step(&self, w: &mut Wave, ctx: &mut Ctx) -> Result<(), What> {
        let Some(ready) = self.ready.get(w.pc) else {
            return end(w, ctx);
        };
        // A load may go where an earlier load of the same kind goes: those come back in order.
        if ready.uses.meets(&w.busy_vm) || ready.uses.meets(&w.busy_lgkm) {
            return Err(not_waited(ready.uses, w));
        }
        if ready.vm.meets(&w.busy_lgkm) || ready.lgkm.meets(&w.busy_vm) {
            return Err(not_waited(if ready.vm.meets(&w.busy_lgkm) { ready.vm } else { ready.lgkm }, w));
        }
        w.pc += 1;
        w.steps += 1;
        w.by_unit[ready.unit as usize] += 1;
        (ready.step)(w, ctx)
    }
}

fn not_waited(uses: Regs, w: &Wave) -> What {
    let vm = uses.meets(&w.busy_vm);
    let register = uses.common(if vm { &w.busy_vm } else { &w.busy_lgkm });
    What::NotWaited { register, counter: if vm { "vmcnt" } else { "lgkmcnt" } }
}

/// Ends a wave: what is in flight reaches memory.
fn end(w: &mut Wave, ctx: &mut Ctx) -> Result<(), What> {
    vmem::wait(w, ctx, true, 0)?;
    vmem::wait(w, ctx, false, 0)?;
    ds::wait(w, ctx, 0)?;
    w.state = State::Ended;
    Ok(())
}

fn step(inst: &Inst, index: &Arc<HashMap<usize, usize>>, end: usize) -> Result<Step, What> {
    match inst.encoding() {
        "SOPP" => control(inst, index, end),
        "SOP1" | "SOP2" | "SOPC" | "SOPK" => match jump(inst, index, end)? {
            Some(step) => Ok(step),
            None => scalar::step(inst),
        },
        "SMEM" => smem::step(inst),
        "DS" => ds::step(inst),
        "GLOBAL" | "FLAT" => vmem::step(inst),
        "MUBUF" => buffer::step(inst),
        "SCRATCH" => scratch::step(inst),
        _ => match matrix::step(inst)? {
            Some(step) => Ok(step),
            None => match lanes::step(inst)? {
                Some(step) => Ok(step),
                None => vector::step(inst),
            },
        },
    }
}

/// SOPP.
fn control(inst: &Inst, index: &Arc<HashMap<usize, usize>>, last: usize) -> Result<Step, What> {
    let name = inst.opcode.name;
    let imm = inst.get("simm16") as usize;
    if let Some(condition) = name.strip_prefix("s_cbranch_").or_else(|| name.strip_prefix("s_"))
        && (name.starts_with("s_cbranch_") || condition == "branch")
    {
        return branch(inst, condition, index, last);
    }
    Ok(match name {
        "s_endpgm" => Box::new(end),
        "s_barrier" => Box::new(|w, _| {
            if w.lgkm.iter().any(|f| f.writes) {
                return Err(What::BarrierBeforeStore);
            }
            w.state = State::Barrier;
            Ok(())
        }),
        "s_waitcnt" => {
            let (vm, lgkm) = (imm >> 10 & 63, imm >> 4 & 63);
            Box::new(move |w, ctx| {
                w.waits += 1;
                w.most_in_flight = w.most_in_flight.max(vmem::in_flight(w));
                vmem::wait(w, ctx, true, vm)?;
                ds::wait(w, ctx, lgkm)
            })
        }
        "s_wait_idle" => Box::new(|w, ctx| {
            vmem::wait(w, ctx, true, 0)?;
            vmem::wait(w, ctx, false, 0)?;
            ds::wait(w, ctx, 0)
        }),
        "s_round_mode" => Box::new(move |w, _| {
            w.mode.float = w.mode.float & 0xf0 | imm as u8 & 15;
            Ok(())
        }),
        "s_denorm_mode" => Box::new(move |w, _| {
            w.mode.float = w.mode.float & 15 | (imm as u8) << 4;
            Ok(())
        }),
        "s_nop"
        | "s_sleep"
        | "s_set_inst_prefetch_distance"
        | "s_clause"
        | "s_delay_alu"
        | "s_waitcnt_depctr"
        | "s_wakeup"
        | "s_setprio"
        | "s_incperflevel"
        | "s_decperflevel"
        | "s_icache_inv"
        | "s_ttracedata_imm" => Box::new(|_, _| Ok(())),
        // Message 3 gives the VGPRs back.
        "s_sendmsg" if imm == 3 => Box::new(|_, _| Ok(())),
        _ => return Err(What::NotExecuted(format!("{name} {imm:#x}"))),
    })
}

fn target(inst: &Inst, index: &HashMap<usize, usize>, last: usize) -> Result<usize, What> {
    let to = inst.at as i64 + inst.dwords as i64 + inst.simm16() as i64;
    let at = index.get(&(to as usize)).copied();
    let behind = index.keys().max().is_some_and(|at| to > *at as i64);
    at.or(behind.then_some(last))
        .ok_or_else(|| What::Refused(format!("branch to {:#x}, inside an instruction", to * 4)))
}

fn branch(inst: &Inst, condition: &str, index: &HashMap<usize, usize>, last: usize) -> Result<Step, What> {
    let to = target(inst, index, last)?;
    let mask = |w: &Wave, r: usize| w.s[r] as u64 | if w.halves == 2 { (w.s[r + 1] as u64) << 32 } else { 0 };
    let vcc = move |w: &Wave| {
        let bad = w.s_poison[VCC] | if w.halves == 2 { w.s_poison[VCC + 1] } else { 0 };
        if bad != 0 { Err(What::Poison("the VCC of a branch".into())) } else { Ok(mask(w, VCC)) }
    };
    let scc = |w: &Wave| if w.scc_poison { Err(What::Poison("the SCC of a branch".into())) } else { Ok(w.scc) };
    Ok(match condition {
        "branch" => Box::new(move |w, _| {
            w.pc = to;
            Ok(())
        }),
        "scc0" | "scc1" => {
            let wanted = condition == "scc1";
            Box::new(move |w, _| {
                if scc(w)? == wanted {
                    w.pc = to;
                }
                Ok(())
            })
        }
        "vccz" | "vccnz" => {
            let zero = condition == "vccz";
            Box::new(move |w, _| {
                if (vcc(w)? == 0) == zero {
                    w.pc = to;
                }
                Ok(())
            })
        }
        "execz" | "execnz" => {
            let zero = condition == "execz";
            Box::new(move |w, _| {
                if (mask(w, EXEC) == 0) == zero {
                    w.pc = to;
                }
                Ok(())
            })
        }
        _ => return Err(What::NotExecuted(inst.name())),
    })
}

/// Scalar instructions that move the program counter, wait or change MODE. A program counter is a byte of the code.
fn jump(inst: &Inst, index: &Arc<HashMap<usize, usize>>, last: usize) -> Result<Option<Step>, What> {
    let next = 4 * (inst.at + inst.dwords) as u64;
    let (dst, source) = (inst.get("sdst") as usize, inst.get("ssrc0") as usize);
    let imm = inst.get("simm16") as usize;
    let to = target(inst, index, last);
    let index = index.clone();
    let go = move |w: &mut Wave, (to, bad): (u64, u64)| {
        if bad != 0 {
            return Err(What::Poison("the target of a jump".into()));
        }
        let at = index.get(&(to as usize / 4)).copied();
        w.pc = at.ok_or_else(|| What::Refused(format!("jump to {to:#x}, no instruction")))?;
        Ok(())
    };
    let mode_bits = |imm: usize| (imm & 63, imm >> 6 & 31, (imm >> 11 & 31) + 1);
    Ok(Some(match inst.opcode.name {
        "s_getpc_b64" => Box::new(move |w, _| w.write_s(dst, true, next, 0)),
        "s_setpc_b64" => Box::new(move |w, _| {
            let to = w.read_s(source, true);
            go(w, to)
        }),
        "s_swappc_b64" => Box::new(move |w, _| {
            let to = w.read_s(source, true);
            w.write_s(dst, true, next, 0)?;
            go(w, to)
        }),
        "s_call_b64" => Box::new(move |w, _| {
            w.write_s(dst, true, next, 0)?;
            w.pc = to.clone()?;
            Ok(())
        }),
        "s_waitcnt_vscnt" => Box::new(move |w, ctx| vmem::wait(w, ctx, false, imm)),
        "s_waitcnt_vmcnt" => Box::new(move |w, ctx| vmem::wait(w, ctx, true, imm)),
        "s_waitcnt_lgkmcnt" => Box::new(move |w, ctx| ds::wait(w, ctx, imm)),
        "s_waitcnt_expcnt" | "s_version" => Box::new(|_, _| Ok(())),
        "s_setreg_b32" | "s_setreg_imm32_b32" => {
            let (id, offset, size) = mode_bits(imm);
            if id != 1 {
                return Err(What::NotExecuted(format!("{} of hardware register {id}", inst.opcode.name)));
            }
            let literal = inst.literal;
            Box::new(move |w, _| {
                let (x, bad) = literal.map_or_else(|| w.read_s(dst, false), |x| (x as u64, 0));
                if bad != 0 {
                    return Err(What::Poison("MODE".into()));
                }
                let mask = (u32::MAX >> (32 - size) << offset) as u8;
                w.mode.float = w.mode.float & !mask | (x << offset) as u8 & mask;
                Ok(())
            })
        }
        "s_getreg_b32" => {
            let (id, offset, size) = mode_bits(imm);
            if id != 1 {
                return Err(What::NotExecuted(format!("s_getreg_b32 of hardware register {id}")));
            }
            Box::new(move |w, _| {
                let x = (w.mode.float as u64 >> offset) & ((1 << size) - 1);
                w.write_s(dst, false, x, 0)
            })
        }
        _ => return Ok(None),
    }))
}

/// Registers that an instruction uses: all but a load's destination, and that one by counter.
///
/// None may lie past the last register.
fn registers(inst: &Inst) -> Result<(Regs, Regs, Regs), What> {
    let [mut uses, mut vm, mut lgkm] = [Regs::default(); 3];
    if inst.second.is_some() {
        vector::vopd_spans(inst).into_iter().for_each(|span| uses.add(span));
        return Ok((uses, vm, lgkm));
    }
    let name = inst.opcode.name;
    for (field, operand) in inst.opcode.operands() {
        if matches!(operand.kind, "sdst" | "sreg") && field != "sbase" && field != "srsrc" && inst.get(field) > 127 {
            return Err(What::Refused(format!("{} {field}: no scalar register", inst.name())));
        }
        let Some(span) = span(inst, field, operand) else { continue };
        let span = match (field, inst.encoding()) {
            ("vaddr", "MUBUF") => Span { count: inst.get("offen") as usize + inst.get("idxen") as usize, ..span },
            _ => span,
        };
        if span.first + span.count > if span.scalar { 128 } else { 256 } && !(span.scalar && span.first == NULL) {
            return Err(What::Refused(format!("{} {field}: past the last register", inst.name())));
        }
        let loads =
            name.contains("load") || name.contains("_rtn_") || name.contains("atomic") || inst.encoding() == "DS";
        match (field, inst.encoding()) {
            ("vdata", "MUBUF") if name.contains("load") => vm.add(span),
            ("addr", "SCRATCH") if !inst.has("sve") => {}
            ("vdst", "GLOBAL" | "FLAT") if name.contains("atomic") && !inst.has("glc") => {}
            ("vdst", "GLOBAL" | "FLAT" | "SCRATCH") if loads => vm.add(span),
            ("vdst", "DS") | ("sdata", "SMEM") => lgkm.add(span),
            _ => uses.add(span),
        }
    }
    if matches!(inst.encoding(), "VOP2" | "VOPC") && (name.contains("_co_") || name.starts_with("v_cndmask")) {
        uses.add(Span { scalar: true, first: VCC, count: 1 });
    }
    Ok((uses, vm, lgkm))
}

fn span(inst: &Inst, field: &str, operand: Operand) -> Option<Span> {
    let (code, count) = (inst.get(field) as usize, operand.bits.div_ceil(32) as usize);
    let vector = |first: usize| Some(Span { scalar: false, first, count });
    let scalar = |first: usize, count: usize| (first < 128).then_some(Span { scalar: true, first, count });
    let mask = if operand.format == "m64" { 1 } else { count };
    // In the short encodings the highest bit of a 16-bit register names its half.
    let is_short = matches!(inst.encoding(), "VOP1" | "VOP2" | "VOPC");
    let low = if operand.bits == 16 && is_short { 127 } else { 255 };
    match operand.kind {
        _ if inst.get("src0") >= 233 && field == "src0" && inst.variant != Variant::Plain => {
            vector(inst.get("vsrc0") as usize)
        }
        "vgpr" if field == "addr" && inst.encoding() == "GLOBAL" && inst.get("saddr") != 124 => {
            Some(Span { scalar: false, first: code, count: 1 })
        }
        "vgpr" => vector(code & low),
        "src" | "src_vgpr" | "src_vgpr_or_inline" if code >= 256 => vector((code - 256) & low),
        "src" | "ssrc" | "ssrc_lanesel" if code < 128 => scalar(code, mask),
        "sdst" | "sreg" if field == "sbase" => scalar(2 * code, count),
        "sdst" | "sreg" if field == "srsrc" => scalar(4 * code, count),
        "sdst" | "sreg" | "smem_offset" => scalar(code, mask),
        _ => None,
    }
}
