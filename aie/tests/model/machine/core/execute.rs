//! What instructions do.

use super::bundle::Operands;
use super::{Action, Core, Fault};
use crate::machine::number::{narrow, to_bf16, to_f32};

/// Its own memory, as the core addresses it.
const OWN: u32 = 0x70000;

impl Core {
    /// Reads what is read in stage 1, and schedules the rest.
    pub(super) fn execute(&mut self, operands: &Operands) -> Result<(), Fault> {
        let mnemonic = operands.mnemonic.as_str();
        let (scalar, memory) = (self.latencies.scalar, self.latencies.memory);
        match mnemonic {
            "mov" | "movx" | "mova" | "movxm" => {
                let value = match operands.immediate('i') {
                    Some(value) => Some(value as u32),
                    None => self.scalar(operands.register('x')?),
                };
                self.write_scalar(operands.register('d')?, value, scalar);
            }
            "add" | "and" | "ltu" => {
                let left = self.scalar(operands.register('x')?);
                let right = match operands.immediate('i') {
                    Some(value) => Some(value as u32),
                    None => self.scalar(operands.register('y')?),
                };
                let value = left.zip(right).map(|(left, right)| match mnemonic {
                    "add" => left.wrapping_add(right),
                    "and" => left & right,
                    _ => u32::from(left < right),
                });
                self.write_scalar(operands.register('d')?, value, scalar);
            }
            "sel.nez" => {
                let choice = self.named("r27").ok_or("a choice by a value that nothing has written")?;
                let chosen = operands.register(if choice != 0 { 'x' } else { 'y' })?;
                let value = self.scalar(chosen);
                self.write_scalar(operands.register('d')?, value, scalar);
            }
            "padda" | "paddb" | "padds" => {
                self.pointer(operands)?;
            }
            "vlda" | "vldb" => {
                let address = own(self.pointer(operands)?)?;
                let target = operands.register('d')?;
                let wait = self.latencies.load + 1 - memory;
                self.schedule(memory, Action::Load { address, target, widen: false, wait });
            }
            "vlda.conv.fp32.bf16" => {
                let address = own(self.pointer(operands)?)?;
                let target = operands.register('d')?;
                let wait = self.latencies.widening_load + 1 - memory;
                self.schedule(memory, Action::Load { address, target, widen: true, wait });
            }
            "vst" | "vst.conv.bf16.fp32" => {
                let narrows = mnemonic != "vst";
                let address = own(self.pointer(operands)?)?;
                let bytes = self.vector(operands.register('x')?).ok_or("it stores what nothing has written")?;
                let bytes = if narrows { self.round(&bytes)? } else { bytes };
                let stage = if narrows { self.latencies.narrowing_store } else { memory };
                self.schedule(stage, Action::Store { address, bytes });
            }
            "vmac.f" => {
                // Bit 0 takes the accumulator as zero; the rest is a tile of 4 x 8 by one of 8 x 4 bf16.
                let configuration = self.scalar(operands.register('c')?);
                let fresh = match configuration {
                    Some(28) => false,
                    Some(29) => true,
                    other => return Err(format!("configuration {other:?} is not modelled")),
                };
                let factors = self.vector(operands.register('x')?).zip(self.vector(operands.register('y')?));
                let products = factors.map(|(left, right)| tile_product(&to_bf16(&left), &to_bf16(&right)));
                let accumulator = if fresh { None } else { Some(operands.register('a')?) };
                let target = operands.register('d')?;
                self.schedule(self.latencies.product_read, Action::Product { target, accumulator, products });
            }
            "vadd.f" => {
                let configuration = self.scalar(operands.register('c')?);
                if configuration != Some(28) {
                    return Err(format!("configuration {configuration:?} is not modelled"));
                }
                let [target, left, right] = ['d', 'a', 'b'].map(|letter| operands.register(letter));
                let action = Action::Sum { target: target?, left: left?, right: right? };
                self.schedule(self.latencies.sum_read, action);
            }
            "acq" | "rel" => {
                let lock = operands.immediate('i').ok_or("a lock by register is not modelled")? as u32;
                let value = self.scalar(operands.register('y')?);
                let value = value.ok_or("a lock's value that nothing has written")? as i32;
                self.locks.push_back(self.cycle);
                self.schedule(self.latencies.lock_stall, Action::Lock { lock, value, acquire: mnemonic == "acq" });
            }
            "j" | "jnz" => {
                let target = operands.immediate('i').ok_or("a branch by pointer is not modelled")? as u32;
                let taken = match operands.register('x') {
                    Ok(register) => self.scalar(register).ok_or("a branch on what nothing has written")? != 0,
                    Err(_) => true,
                };
                if self.branch.is_some() {
                    return Err("a branch in the delay slots of another".into());
                }
                if taken {
                    self.branch = Some((self.cycle + self.latencies.delay_slots + 1, target));
                }
            }
            _ => return Err("this instruction is not modelled".into()),
        }
        Ok(())
    }

    /// The address that an instruction accesses; it moves the pointer where the instruction does.
    fn pointer(&mut self, operands: &Operands) -> Result<u32, Fault> {
        let pointer = operands.register('p')?;
        let base = self.scalar(pointer).ok_or("a pointer that nothing has written")?;
        let step = match (operands.immediate('i'), operands.register('m')) {
            (Some(step), _) => step as u32,
            (None, Ok(register)) => self.scalar(register).ok_or("a step that nothing has written")?,
            (None, Err(_)) => return Err("this way to address is not modelled".into()),
        };
        let moved = base.wrapping_add(step) & 0xF_FFFF;
        if !operands.moves_pointer {
            return Ok(moved);
        }
        self.write_scalar(pointer, Some(moved), self.latencies.pointer);
        Ok(base)
    }

    fn round(&self, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        if self.named("crrnd") != Some(12) {
            return Err(format!("rounding mode {:?} is not modelled", self.named("crrnd")));
        }
        Ok(to_f32(bytes).into_iter().flat_map(|value| narrow(value).to_le_bytes()).collect())
    }
}

/// The offset of an address in the core's own memory.
fn own(address: u32) -> Result<u64, Fault> {
    if !address.is_multiple_of(32) {
        return Err(format!("an access of 32 bytes at {address:#x}, which is no multiple of 32"));
    }
    match address.checked_sub(OWN) {
        Some(own) if own < 0x10000 => Ok(u64::from(own)),
        _ => Err(format!("a neighbour's memory, {address:#x}, is not modelled")),
    }
}

/// A tile of 4 x 8 by one of 8 x 4, row by row: 4 x 4 sums.
fn tile_product(left: &[f32], right: &[f32]) -> Vec<f64> {
    let sum = |row: usize, column: usize| {
        (0..8).map(|k| f64::from(left[8 * row + k]) * f64::from(right[4 * k + column])).sum()
    };
    (0..16).map(|index| sum(index / 4, index % 4)).collect()
}
