//! What instructions do.

use super::super::number::{halves, widen};
use super::decode::{Address, Branch, Operation, Scalars, Step, Value, fixed};
use super::registers::{Parts, Scalar, Span, named};
use super::vector::{self, Kind, Modes};
use super::{Action, Core, Fault};

/// Its own memory, as the core addresses it.
const OWN: u32 = 0x70000;
/// Where a core's dimension registers stand, by their file.
const MODIFIERS: [u8; 4] = [40, 48, 56, 64];

impl Core {
    /// Reads what is read in stage 1, and schedules the rest.
    pub(super) fn execute(&mut self, operation: &Operation) -> Result<(), Fault> {
        let (scalar, memory) = (self.latencies.scalar, self.latencies.memory);
        match *operation {
            Operation::Move { to, from } => self.write_scalar(to, self.value(from), scalar),
            Operation::Scalars { kind, to, left, right } => {
                let value = self.registers.scalar(left).zip(self.value(right));
                let stage = if kind == Scalars::Multiply { self.latencies.multiply } else { scalar };
                self.write_scalar(to, value.map(|(left, right)| calculate(kind, left, right)), stage);
            }
            Operation::Select { to, set, clear } => {
                let choice = self.registers.scalar(fixed().choice);
                let choice = choice.ok_or("a choice by a value that nothing has written")?;
                self.write_scalar(to, self.registers.scalar(if choice != 0 { set } else { clear }), scalar);
            }
            Operation::Pointer(address) => {
                self.pointer(address)?;
            }
            Operation::LoadScalar { to, address } => {
                let address = own(self.pointer(address)?)?;
                self.schedule(memory, Action::LoadScalar { address, to });
            }
            Operation::StoreScalar { from, address } => {
                let address = own(self.pointer(address)?)?;
                let value = self.registers.scalar(from).ok_or("it stores what nothing has written")?;
                self.schedule(memory, Action::StoreScalar { address, value });
            }
            Operation::Load { to, address, kind } => {
                let address = own(self.pointer(address)?)?;
                self.schedule(memory, Action::Load { address, to, kind });
            }
            Operation::Store { from, address, kind } => {
                let address = own(self.pointer(address)?)?;
                let parts = self.registers.parts(from).ok_or("it stores what nothing has written")?;
                let (parts, stage) = match kind {
                    None => (parts, memory),
                    Some((kind, shift)) => {
                        let shift = self.value(shift).ok_or("a shift that nothing has written")?;
                        let parts = vector::convert(kind, &parts, from.count, shift, self.modes(kind))?;
                        (parts, self.latencies.narrowing_store)
                    }
                };
                self.schedule(stage, Action::Store { address, part: parts[0] });
            }
            Operation::Vector { kind, to, mask, left, right, control } => {
                self.vector(kind, to, mask, left, right, control)?;
            }
            Operation::Compare { kind, mask, left, right } => {
                let operands = self.forwarded_parts(left).zip(self.forwarded_parts(right));
                let value = operands.map(|(left, right)| vector::compare(kind, &left, &right)).transpose()?;
                self.write_scalar(mask, value, self.latencies.vector);
            }
            Operation::Extract { kind, to, from, index } => {
                let operands = self.forwarded_parts(from).zip(self.registers.scalar(index));
                let value = operands.map(|(from, index)| vector::extract(kind, &from, index)).transpose()?;
                self.write_scalar(to, value, self.latencies.vector);
            }
            // Lane by lane: 32 products of signed halves of words, and sums of words.
            Operation::Product { to, accumulator, negative, left, right, control } if to.count == 4 => {
                let control = self.registers.scalar(control);
                if control != Some(824) {
                    return Err(format!("configuration {control:?} is not modelled"));
                }
                let factors = self.registers.parts(left).zip(self.registers.parts(right));
                let products = factors.map(|(left, right)| integer_products(&left, &right, negative));
                self.schedule(self.latencies.product_read, Action::Integers { to, accumulator, terms: products });
            }
            Operation::Product { to, accumulator, negative, left, right, control } => {
                // Bit 0 takes the accumulator as zero; the rest is a tile of 4 x 8 by one of 8 x 4 bf16, or the lanes
                // of the vectors' halves, one by one.
                let control = self.registers.scalar(control);
                let multiply = match control.map(|control| control & !1) {
                    Some(28) => tile_product,
                    Some(60) => lane_product,
                    _ => return Err(format!("configuration {control:?} is not modelled")),
                };
                let fresh = control.is_some_and(|control| control & 1 == 1);
                let factors = self.registers.parts(left).zip(self.registers.parts(right));
                let products = factors.map(|(left, right)| multiply(&left, &right));
                let products = products.map(|products| if negative { products.map(|value| -value) } else { products });
                let accumulator = accumulator.filter(|_| !fresh);
                self.schedule(self.latencies.product_read, Action::Product { to, accumulator, products });
            }
            Operation::Sum { to, left, right, control, negative, integers } => {
                let control = self.registers.scalar(control);
                if control != Some(if integers { 0 } else { 28 }) {
                    return Err(format!("configuration {control:?} is not modelled"));
                }
                self.schedule(self.latencies.sum_read, Action::Sum { to, left, right, negative, integers });
            }
            Operation::Clear { to, integers } => {
                let stage = if integers { self.latencies.product - 1 } else { self.latencies.product };
                self.write_parts(to, Some(&[[0; 8]; 4]), stage);
            }
            Operation::Lock { lock, value, acquire } => {
                let value = self.registers.scalar(value).ok_or("a lock's value that nothing has written")? as i32;
                let lock = self.value(lock).ok_or("a lock's number that nothing has written")?;
                self.locks.push_back(self.cycle);
                self.schedule(self.latencies.lock_stall, Action::Lock { lock, value, acquire });
            }
            Operation::Jump { branch, target } => self.jump(branch, target)?,
            Operation::Unknown(why) => return Err(why.into()),
        }
        Ok(())
    }

    fn vector(
        &mut self,
        kind: Kind,
        to: Span,
        mask: Option<Scalar>,
        left: Span,
        right: Span,
        control: Value,
    ) -> Result<(), Fault> {
        if let Kind::Unpack(..) = kind {
            self.schedule(self.latencies.unpacking, Action::Unpack { kind, to, from: left });
            return Ok(());
        }
        let index = self.registers.scalar(fixed().index);
        let read = |span| if forwards(kind) { self.forwarded_parts(span) } else { self.registers.parts(span) };
        let operands = read(left).zip(read(right)).zip(self.value(control));
        // A broadcast has no vector to read.
        let operands = match kind {
            Kind::Broadcast(_) => self.value(control).map(|control| (([[0; 8]; 4], [[0; 8]; 4]), control)),
            _ => operands,
        };
        let stage = match kind {
            Kind::Ups(..) => self.latencies.widening,
            Kind::Srs(..) => self.latencies.narrowing,
            _ => self.latencies.vector,
        };
        let modes = self.modes(kind);
        let converts =
            |kind| matches!(kind, Kind::Widen | Kind::Narrow | Kind::Ups(..) | Kind::Srs(..) | Kind::Pack(..));
        let made = operands.map(|((left_parts, right), control)| match kind {
            _ if converts(kind) => vector::convert(kind, &left_parts, left.count, control, modes),
            _ => vector::combine(kind, &left_parts, &right, control, index),
        });
        let made = made.transpose()?;
        if forwards(kind) {
            let parts = (0..to.count).map(|index| (to.first + index, made.map(|made| made[index as usize])));
            self.forwarding.extend(parts);
        }
        self.write_parts(to, made.as_ref(), stage);
        if let Some(place) = mask {
            let value = operands.map(|((left, right), _)| vector::compare(kind, &left, &right)).transpose()?;
            self.write_scalar(place, value, stage);
        }
        Ok(())
    }

    fn jump(&mut self, branch: Branch, target: Value) -> Result<(), Fault> {
        let known = |value: Option<u32>| value.ok_or("a branch on what nothing has written");
        let taken = match branch {
            Branch::Always => true,
            Branch::IfZero(register) => known(self.registers.scalar(register))? == 0,
            Branch::IfNotZero(register) => known(self.registers.scalar(register))? != 0,
            Branch::Count { to, from } => {
                let left = known(self.registers.scalar(from))?.wrapping_sub(1);
                self.write_scalar(to, Some(left), self.latencies.scalar);
                left != 0
            }
        };
        if self.branch.is_some() {
            return Err("a branch in the delay slots of another".into());
        }
        if taken {
            let target = self.value(target).ok_or("a branch to where nothing has written")?;
            self.branch = Some((self.cycle + self.latencies.delay_slots + 1, target));
        }
        Ok(())
    }

    /// The control registers of a conversion.
    pub(super) fn modes(&self, kind: Kind) -> Modes {
        let sign = match kind {
            Kind::Ups(..) => "crupssign",
            Kind::Unpack(..) => "crunpacksign",
            Kind::Pack(..) => "crpacksign",
            Kind::Srs(..) => "crsrssign",
            _ => return Modes { rounding: self.registers.scalar(fixed().rounding), saturation: None, signed: None },
        };
        Modes {
            rounding: self.registers.scalar(fixed().rounding),
            saturation: self.registers.scalar(fixed().saturation),
            signed: self.registers.scalar(named(sign)),
        }
    }

    pub(super) fn value(&self, value: Value) -> Option<u32> {
        match value {
            Value::Constant(value) => Some(value),
            Value::Register(register) => self.registers.scalar(register),
        }
    }

    /// The address that an instruction accesses; it moves the pointer where the instruction does.
    fn pointer(&mut self, address: Address) -> Result<u32, Fault> {
        let base = self.registers.scalar(address.pointer).ok_or("a pointer that nothing has written")?;
        let step = match address.step {
            Step::By(value) => self.value(value).ok_or("a step that nothing has written")?,
            Step::Plane(index) => {
                let read = MODIFIERS.map(|first| self.registers.scalar(first + index));
                let [Some(step), Some(last), Some(jump), Some(count)] = read else {
                    return Err("a plane that nothing has written".into());
                };
                let wraps = count >= last;
                self.write_scalar(64 + index, Some(if wraps { 0 } else { count + 1 }), self.latencies.pointer);
                if wraps { jump } else { step }
            }
        };
        let moved = base.wrapping_add(step) & 0xF_FFFF;
        if !address.moves {
            return Ok(moved);
        }
        self.write_scalar(address.pointer, Some(moved), self.latencies.pointer);
        Ok(base)
    }
}

/// Whether an instruction is one of those that see what others of them write a cycle earlier (MOV_Bypass of the
/// itineraries): not moves and conversions.
fn forwards(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Copy | Kind::Widen | Kind::Narrow | Kind::Ups(..) | Kind::Srs(..) | Kind::Pack(..) | Kind::Unpack(..)
    )
}

fn calculate(kind: Scalars, left: u32, right: u32) -> u32 {
    let (low, high) = (left as i32, right as i32);
    // A negative shift goes the other way.
    let shift = |up: fn(u32, u32) -> Option<u32>, down: fn(u32, u32) -> u32| {
        if high < 0 { down(left, high.unsigned_abs()) } else { up(left, right).unwrap_or(0) }
    };
    match kind {
        Scalars::Add => left.wrapping_add(right),
        Scalars::Sub => left.wrapping_sub(right),
        Scalars::And => left & right,
        Scalars::Or => left | right,
        Scalars::Xor => left ^ right,
        Scalars::Equal => u32::from(left == right),
        Scalars::Differ => u32::from(left != right),
        Scalars::Less => u32::from(low < high),
        Scalars::AtLeast => u32::from(low >= high),
        Scalars::LessUnsigned => u32::from(left < right),
        Scalars::AtLeastUnsigned => u32::from(left >= right),
        Scalars::ShiftLogical => shift(u32::checked_shl, |value, by| value.checked_shr(by).unwrap_or(0)),
        Scalars::ShiftArithmetic => shift(u32::checked_shl, |value, by| (value as i32 >> by.min(31)) as u32),
        Scalars::Multiply => left.wrapping_mul(right),
    }
}

/// The offset of an address in the core's own memory.
fn own(address: u32) -> Result<u64, Fault> {
    match address.checked_sub(OWN) {
        Some(own) if own < 0x10000 => Ok(u64::from(own)),
        _ => Err(format!("a neighbour's memory, {address:#x}, is not modelled")),
    }
}

/// The 32 bf16 values of a vector.
fn values(parts: &Parts) -> [f64; 32] {
    let mut values = [0.0; 32];
    for (value, half) in values.iter_mut().zip(halves(parts[..2].as_flattened())) {
        *value = f64::from(widen(half));
    }
    values
}

/// A tile of 4 x 8 by one of 8 x 4, row by row: 4 x 4 sums.
fn tile_product(left: &Parts, right: &Parts) -> [f64; 16] {
    let (left, right) = (values(left), values(right));
    let mut sums = [0.0; 16];
    for (row, sums) in left.chunks_exact(8).zip(sums.chunks_exact_mut(4)) {
        for (factor, column) in row.iter().zip(right.chunks_exact(4)) {
            for (sum, value) in sums.iter_mut().zip(column) {
                *sum += factor * value;
            }
        }
    }
    sums
}

/// 16 sums of two products: of the lanes of the lower halves, and of the upper ones.
fn lane_product(left: &Parts, right: &Parts) -> [f64; 16] {
    let (left, right) = (values(left), values(right));
    std::array::from_fn(|lane| left[lane] * right[lane] + left[lane + 16] * right[lane + 16])
}

/// 32 products of signed lanes of 16 bits.
fn integer_products(left: &Parts, right: &Parts, negative: bool) -> Parts {
    let lanes =
        |parts: &Parts| -> Vec<i32> { halves(parts[..2].as_flattened()).map(|half| i32::from(half as i16)).collect() };
    let mut products: Parts = [[0; 8]; 4];
    let pairs = lanes(left).into_iter().zip(lanes(right));
    for (product, (left, right)) in products.as_flattened_mut().iter_mut().zip(pairs) {
        *product = if negative { -left * right } else { left * right } as u32;
    }
    products
}

/// Sums of words, or their differences.
pub(super) fn add_integers(left: &Parts, right: &Parts, negative: bool) -> Parts {
    let mut sums = *left;
    for (sum, right) in sums.as_flattened_mut().iter_mut().zip(right.as_flattened()) {
        *sum = if negative { sum.wrapping_sub(*right) } else { sum.wrapping_add(*right) };
    }
    sums
}

/// Sums of f32 lanes, each rounded once.
pub(super) fn sums(before: &Parts, products: &[f64; 16]) -> Parts {
    let mut sums = [[0; 8]; 4];
    for ((sum, before), product) in sums.as_flattened_mut().iter_mut().zip(before.as_flattened()).zip(products) {
        *sum = ((f64::from(f32::from_bits(*before)) + product) as f32).to_bits();
    }
    sums
}

/// Both parts of an accumulator's half, f32 by f32.
pub(super) fn add(left: &Parts, right: &Parts, negative: bool) -> Parts {
    let mut sums: Parts = [[0; 8]; 4];
    let lanes = left[..2].as_flattened().iter().zip(right[..2].as_flattened());
    for (sum, (left, right)) in sums.as_flattened_mut().iter_mut().zip(lanes) {
        let (left, right) = (f32::from_bits(*left), f32::from_bits(*right));
        *sum = if negative { left - right } else { left + right }.to_bits();
    }
    sums
}
