//! Bundles, taken apart once: what each instruction is to do, with the places of its registers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use kiln_aie::isa::{Instruction, Isa, Op, Operand, Syntax};

use super::Fault;
use super::registers::{Scalar, Span, named, scalar, span};
use super::vector::Kind;

/// What issues in one cycle.
pub struct Bundle {
    pub bytes: u32,
    pub instructions: Vec<Decoded>,
}

pub struct Decoded {
    pub operation: Operation,
    /// As it is written in source.
    pub text: String,
}

/// A register's value or a constant.
#[derive(Clone, Copy)]
pub enum Value {
    Register(Scalar),
    Constant(u32),
}

/// Where an instruction accesses memory.
#[derive(Clone, Copy)]
pub struct Address {
    pub pointer: Scalar,
    pub step: Step,
    /// Whether it accesses where the pointer is and moves it then; else the step is added for the access alone.
    pub moves: bool,
}

/// What is added to a pointer.
#[derive(Clone, Copy)]
pub enum Step {
    By(Value),
    /// In two dimensions: by `dj` where the counter `dc` wraps at `dn`, else by `m`, all of one index.
    Plane(u8),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scalars {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Equal,
    Differ,
    Less,
    AtLeast,
    LessUnsigned,
    AtLeastUnsigned,
    ShiftLogical,
    ShiftArithmetic,
    Multiply,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Branch {
    Always,
    IfZero(Scalar),
    IfNotZero(Scalar),
    /// Writes the register less one, and jumps where that is not 0.
    Count {
        to: Scalar,
        from: Scalar,
    },
}

#[derive(Clone, Copy)]
pub enum Operation {
    Move {
        to: Scalar,
        from: Value,
    },
    Scalars {
        kind: Scalars,
        to: Scalar,
        left: Scalar,
        right: Value,
    },
    Select {
        to: Scalar,
        set: Scalar,
        clear: Scalar,
    },
    Pointer(Address),
    LoadScalar {
        to: Scalar,
        address: Address,
    },
    StoreScalar {
        from: Scalar,
        address: Address,
    },
    /// 32 bytes, as `kind` makes them a register.
    Load {
        to: Span,
        address: Address,
        kind: Option<(Kind, Value)>,
    },
    Store {
        from: Span,
        address: Address,
        kind: Option<(Kind, Value)>,
    },
    /// `mask` is written too, where there is one.
    Vector {
        kind: Kind,
        to: Span,
        mask: Option<Scalar>,
        left: Span,
        right: Span,
        control: Value,
    },
    Compare {
        kind: Kind,
        mask: Scalar,
        left: Span,
        right: Span,
    },
    Extract {
        kind: Kind,
        to: Scalar,
        from: Span,
        index: Scalar,
    },
    /// Products added to an accumulator, or taken from it.
    Product {
        to: Span,
        accumulator: Option<Span>,
        negative: bool,
        left: Span,
        right: Span,
        control: Scalar,
    },
    Sum {
        to: Span,
        left: Span,
        right: Span,
        control: Scalar,
        negative: bool,
        integers: bool,
    },
    Clear {
        to: Span,
        integers: bool,
    },
    Lock {
        lock: Value,
        value: Scalar,
        acquire: bool,
    },
    Jump {
        branch: Branch,
        target: Value,
    },
    /// Nothing that the model knows.
    Unknown(&'static str),
}

/// The disassembler's table, read once.
fn isa() -> &'static Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    ISA.get_or_init(Isa::aie2)
}

/// The bundle of these bytes, which are as long as their first one says.
pub fn bundle(bytes: &[u8]) -> Result<Arc<Bundle>, Fault> {
    type Known = Mutex<HashMap<Vec<u8>, Result<Arc<Bundle>, Fault>>>;
    static KNOWN: OnceLock<Known> = OnceLock::new();
    let known = KNOWN.get_or_init(Known::default);
    if let Some(bundle) = known.lock().map_err(|_| "a decoder has panicked")?.get(bytes) {
        return bundle.clone();
    }
    let isa = isa();
    let decoded = isa.decode_bundle(bytes).map(|bundle| {
        let busy = bundle.instructions.iter().filter(|instruction| !isa.op(instruction).is_nop());
        let instructions = busy.map(|instruction| decode(isa, instruction)).collect();
        Arc::new(Bundle { bytes: bytes.len() as u32, instructions })
    });
    known.lock().map_err(|_| "a decoder has panicked")?.insert(bytes.to_vec(), decoded.clone());
    decoded
}

fn decode(isa: &Isa, instruction: &Instruction) -> Decoded {
    let operands = Operands { isa, instruction, op: isa.op(instruction) };
    let operation = operands.operation().unwrap_or(Operation::Unknown("this form is not modelled"));
    Decoded { operation, text: isa.write(instruction) }
}

/// An instruction and its operands by their letters.
struct Operands<'a> {
    isa: &'a Isa,
    instruction: &'a Instruction,
    op: &'a Op,
}

impl Operands<'_> {
    fn scalar(&self, letter: char) -> Option<Scalar> {
        match self.isa.operand(self.instruction, letter)? {
            Operand::Register(register) => scalar(register),
            Operand::Immediate(_) => None,
        }
    }

    fn span(&self, letter: char) -> Option<Span> {
        match self.isa.operand(self.instruction, letter)? {
            Operand::Register(register) => span(register),
            Operand::Immediate(_) => None,
        }
    }

    fn constant(&self) -> Option<u32> {
        match self.isa.operand(self.instruction, 'i')? {
            Operand::Immediate(value) => Some(value as u32),
            Operand::Register(_) => None,
        }
    }

    /// The constant, or the register of this letter.
    fn value(&self, letter: char) -> Option<Value> {
        self.constant().map(Value::Constant).or_else(|| self.scalar(letter).map(Value::Register))
    }

    fn address(&self) -> Option<Address> {
        let plane = match self.isa.operand(self.instruction, 'm') {
            Some(Operand::Register(register)) if scalar(register).is_none() => Some(Step::Plane(register.index)),
            _ => None,
        };
        let step = plane.or_else(|| self.value('m').or_else(|| self.scalar('j').map(Value::Register)).map(Step::By));
        let moves = self.op.syntax.windows(2).any(|pair| pair == [Syntax::Mark(']'), Syntax::Mark(',')]);
        Some(Address { pointer: self.scalar('p')?, step: step?, moves })
    }

    fn operation(&self) -> Option<Operation> {
        let mnemonic = self.op.mnemonic.as_str();
        if let Some(kind) = scalars(mnemonic) {
            let (to, left) = (self.scalar('d')?, self.scalar('x')?);
            let zero = matches!(mnemonic, "eqz" | "nez");
            let right = if zero { Value::Constant(0) } else { self.value('y')? };
            return Some(Operation::Scalars { kind, to, left, right });
        }
        Some(match mnemonic {
            "mov" | "movx" | "mova" | "movxm" => Operation::Move { to: self.scalar('d')?, from: self.value('x')? },
            "sel.nez" | "sel.eqz" => {
                let (x, y) = (self.scalar('x')?, self.scalar('y')?);
                let (set, clear) = if mnemonic == "sel.nez" { (x, y) } else { (y, x) };
                Operation::Select { to: self.scalar('d')?, set, clear }
            }
            "padda" | "paddb" | "padds" | "padda.2d" | "paddb.2d" | "padds.2d" => {
                Operation::Pointer(Address { moves: true, ..self.address()? })
            }
            "lda" => Operation::LoadScalar { to: self.scalar('d')?, address: self.address()? },
            "st" => Operation::StoreScalar { from: self.scalar('x')?, address: self.address()? },
            "acq" | "rel" => {
                Operation::Lock { lock: self.value('x')?, value: self.scalar('y')?, acquire: mnemonic == "acq" }
            }
            "j" | "jz" | "jnz" | "jnzd" => {
                let branch = match mnemonic {
                    "j" => Branch::Always,
                    "jz" => Branch::IfZero(self.scalar('x')?),
                    "jnz" => Branch::IfNotZero(self.scalar('x')?),
                    _ => Branch::Count { to: self.scalar('d')?, from: self.scalar('x')? },
                };
                Operation::Jump { branch, target: self.value('p')? }
            }
            _ => return self.vector_operation(mnemonic),
        })
    }

    fn vector_operation(&self, mnemonic: &str) -> Option<Operation> {
        let negative = matches!(mnemonic, "vmsc.f" | "vnegmul.f" | "vmsc" | "vnegmul");
        Some(match mnemonic {
            "vlda" | "vldb" => Operation::Load { to: self.span('d')?, address: self.address()?, kind: None },
            "vst" => Operation::Store { from: self.span('x')?, address: self.address()?, kind: None },
            "vmac.f" | "vmsc.f" | "vmul.f" | "vnegmul.f" | "vmac" | "vmsc" | "vmul" | "vnegmul" => Operation::Product {
                to: self.span('d')?,
                accumulator: self.span('a'),
                negative,
                left: self.span('x')?,
                right: self.span('y')?,
                control: self.scalar('c')?,
            },
            "vadd.f" | "vsub.f" | "vadd" | "vsub" => Operation::Sum {
                to: self.span('d')?,
                left: self.span('a')?,
                right: self.span('b')?,
                control: self.scalar('c')?,
                negative: mnemonic.starts_with("vsub"),
                integers: !mnemonic.ends_with(".f"),
            },
            "vclr" => {
                let to = self.span('d')?;
                Operation::Clear { to, integers: to.count == 4 }
            }
            _ => {
                let (kind, place) = Kind::parse(mnemonic)?;
                let control = self.scalar('s').or(self.scalar('c')).map(Value::Register);
                match place {
                    super::vector::Place::Load => {
                        let (to, address) = (self.span('d')?, self.address()?);
                        Operation::Load { to, address, kind: Some((kind, control.unwrap_or(Value::Constant(0)))) }
                    }
                    super::vector::Place::Store => {
                        let (from, address) = (self.span('x')?, self.address()?);
                        Operation::Store { from, address, kind: Some((kind, control.unwrap_or(Value::Constant(0)))) }
                    }
                    super::vector::Place::Compare => Operation::Compare {
                        kind,
                        mask: self.scalar('k')?,
                        left: self.span('x')?,
                        right: self.span('y').or(self.span('x'))?,
                    },
                    super::vector::Place::Extract => Operation::Extract {
                        kind,
                        to: self.scalar('d')?,
                        from: self.span('x')?,
                        index: self.scalar('y')?,
                    },
                    super::vector::Place::Registers => self.of_registers(kind, control)?,
                }
            }
        })
    }

    fn of_registers(&self, kind: Kind, control: Option<Value>) -> Option<Operation> {
        let to = self.span('d')?;
        let (left, right) = (self.span('x'), self.span('y'));
        let single = left.or(right).unwrap_or(to);
        let source = self.scalar('x').or(self.scalar('y')).map(Value::Register);
        // An insertion's index is always in r29.
        let control = control.or(self.constant().map(Value::Constant)).or(source).unwrap_or(Value::Constant(0));
        let mask = self.scalar('k');
        Some(Operation::Vector { kind, to, mask, left: single, right: right.unwrap_or(single), control })
    }
}

fn scalars(mnemonic: &str) -> Option<Scalars> {
    Some(match mnemonic {
        "add" | "add.nc" => Scalars::Add,
        "sub" => Scalars::Sub,
        "and" => Scalars::And,
        "or" => Scalars::Or,
        "xor" => Scalars::Xor,
        "eqz" => Scalars::Equal,
        "ne" | "nez" => Scalars::Differ,
        "lt" => Scalars::Less,
        "ge" => Scalars::AtLeast,
        "ltu" => Scalars::LessUnsigned,
        "geu" => Scalars::AtLeastUnsigned,
        "lshl" => Scalars::ShiftLogical,
        "ashl" => Scalars::ShiftArithmetic,
        "mul" => Scalars::Multiply,
        _ => return None,
    })
}

/// The scalar that chooses in `sel`, the index of insertions, and the registers of the hardware loop.
pub struct Fixed {
    pub choice: Scalar,
    pub index: Scalar,
    pub loop_start: Scalar,
    pub loop_end: Scalar,
    pub loop_count: Scalar,
    pub rounding: Scalar,
    pub saturation: Scalar,
}

/// Registers that instructions name by what they are.
pub fn fixed() -> &'static Fixed {
    static FIXED: OnceLock<Fixed> = OnceLock::new();
    FIXED.get_or_init(|| Fixed {
        choice: named("r27"),
        index: named("r29"),
        loop_start: named("ls"),
        loop_end: named("le"),
        loop_count: named("lc"),
        rounding: named("crrnd"),
        saturation: named("crsat"),
    })
}
