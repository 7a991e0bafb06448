//! Bundles, taken apart.

use kiln_aie::isa::{Instruction, Isa, Operand, Syntax};
use kiln_aie::register::Register;

use super::Fault;

/// What issues in one cycle.
pub struct Bundle {
    pub bytes: u32,
    pub instructions: Vec<Operands>,
}

/// An instruction: its operands by their letters.
pub struct Operands {
    pub mnemonic: String,
    /// As it is written in source.
    pub text: String,
    operands: Vec<(char, Operand)>,
    /// Whether it accesses where the pointer is and moves it then; else the step is added for the access alone.
    pub moves_pointer: bool,
}

impl Operands {
    pub fn of(isa: &Isa, instruction: &Instruction) -> Operands {
        let op = isa.op(instruction);
        let letters = op.operands.iter().map(|spec| spec.letter);
        let moves_pointer = op.syntax.windows(2).any(|pair| pair == [Syntax::Mark(']'), Syntax::Mark(',')]);
        Operands {
            mnemonic: op.mnemonic.clone(),
            text: isa.write(instruction),
            operands: letters.zip(instruction.operands.iter().copied()).collect(),
            moves_pointer,
        }
    }

    fn get(&self, letter: char) -> Option<Operand> {
        self.operands.iter().find(|(known, _)| *known == letter).map(|(_, operand)| *operand)
    }

    pub fn register(&self, letter: char) -> Result<Register, Fault> {
        match self.get(letter) {
            Some(Operand::Register(register)) => Ok(register),
            _ => Err("this form is not modelled".into()),
        }
    }

    pub fn immediate(&self, letter: char) -> Option<i64> {
        match self.get(letter) {
            Some(Operand::Immediate(value)) => Some(value),
            _ => None,
        }
    }
}
