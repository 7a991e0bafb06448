//! Compares the structures of constants and push blocks with the SPIR-V. A field that moves in only one of them fails
//! here.

use super::of;
use crate::lower::kernels::push::{
    Field, FieldType, PUSH_BYTES, ProductRelayPush, PushBlock, RelayPush, StagedRelayPush,
};
use crate::lower::kernels::{Module, Relaying, constants};
use rspirv::binary::{Consumer, ParseAction, parse_words};
use rspirv::dr::{Instruction, ModuleHeader, Operand};
use rspirv::spirv::{Decoration, Op, StorageClass};
use std::collections::BTreeSet;

/// The instructions of a module. rspirv's own module type refuses OpExecutionModeId.
#[derive(Default)]
struct Reflection(Vec<Instruction>);

impl Consumer for Reflection {
    fn initialize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn finalize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_header(&mut self, _: ModuleHeader) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_instruction(&mut self, instruction: Instruction) -> ParseAction {
        self.0.push(instruction);
        ParseAction::Continue
    }
}

impl Reflection {
    fn of(module: Module) -> Reflection {
        let mut reflection = Reflection::default();
        parse_words(of(module).unwrap(), &mut reflection).unwrap();
        reflection
    }

    /// The operands of all instructions of a kind.
    fn all(&self, op: Op) -> impl Iterator<Item = &[Operand]> {
        self.0.iter().filter(move |i| i.class.opcode == op).map(|i| &i.operands[..])
    }

    /// The instruction with result `id`.
    fn made(&self, id: u32) -> &Instruction {
        self.0.iter().find(|i| i.result_id == Some(id)).unwrap()
    }

    /// Number and name of every specialization constant. A constant without a name repeats the workgroup's size. Of two
    /// names, the first is used.
    fn constants(&self) -> BTreeSet<(u32, String)> {
        let name = |id: &Operand| {
            let of = self.all(Op::Name).find(|o| o[0] == *id)?;
            Some(of[1].unwrap_literal_string().to_owned())
        };
        let numbered = self.all(Op::Decorate).filter(|o| o[1] == Operand::Decoration(Decoration::SpecId));
        numbered.filter_map(|o| Some((o[2].unwrap_literal_bit32(), name(&o[0])?))).collect()
    }

    /// Name, offset and type of every field of the push block.
    fn push(&self) -> Vec<(String, usize, FieldType)> {
        let push_constant = Operand::StorageClass(StorageClass::PushConstant);
        let blocks: Vec<_> = self.0.iter().filter(|i| i.class.opcode == Op::Variable).collect();
        let blocks: Vec<_> = blocks.into_iter().filter(|i| i.operands[0] == push_constant).collect();
        let [variable] = blocks[..] else { panic!("{} push blocks", blocks.len()) };
        let block = &self.made(variable.result_type.unwrap()).operands[1];
        let fields = self.made(block.unwrap_id_ref()).operands.iter().enumerate();
        let field = |(i, of): (usize, &Operand)| {
            let is_it = |o: &&[Operand]| o[0] == *block && o[1] == Operand::LiteralBit32(i as u32);
            let name = self.all(Op::MemberName).find(is_it).unwrap()[2].unwrap_literal_string();
            let mut decorations = self.all(Op::MemberDecorate).filter(is_it);
            let offset = decorations.find(|o| o[2] == Operand::Decoration(Decoration::Offset)).unwrap();
            (name.to_owned(), offset[3].unwrap_literal_bit32() as usize, self.field_type(of.unwrap_id_ref()))
        };
        fields.map(field).collect()
    }

    fn field_type(&self, id: u32) -> FieldType {
        let of = self.made(id);
        let bits = || of.operands[0].unwrap_literal_bit32();
        match of.class.opcode {
            Op::TypePointer => FieldType::Address,
            Op::TypeInt if bits() == 64 => FieldType::Address,
            Op::TypeInt if bits() == 32 => FieldType::Word,
            Op::TypeFloat if bits() == 32 => FieldType::Float,
            other => panic!("a push block with {other:?}"),
        }
    }
}

/// A module's push block, followed by the relay's words.
fn whole_block(module: Module) -> Vec<(String, usize, FieldType)> {
    let relay = match module.relaying() {
        Relaying::Never => &[],
        Relaying::Whole => RelayPush::FIELDS,
        Relaying::Product => ProductRelayPush::FIELDS,
        Relaying::Staged => StagedRelayPush::FIELDS,
    };
    let end = module.push().last().map_or(0, |f| f.offset + bytes(f));
    let own = module.push().iter().map(|f| (f.name.to_owned(), f.offset, f.kind));
    own.chain(relay.iter().map(|f| (f.name.to_owned(), end + f.offset, f.kind))).collect()
}

fn bytes(field: &Field) -> usize {
    match field.kind {
        FieldType::Address => 8,
        FieldType::Word | FieldType::Float => 4,
    }
}

#[test]
fn push_blocks_are_those_of_the_spirv() {
    for &module in Module::ALL {
        let block = whole_block(module);
        assert_eq!(block, Reflection::of(module).push(), "{}", module.name());
        assert!(module.push().iter().all(|f| f.offset.is_multiple_of(bytes(f))), "{}", module.name());
        assert!(block.last().unwrap().1 + 4 <= PUSH_BYTES, "{}", module.name());
    }
}

#[test]
fn specialization_constants_are_those_of_the_spirv() {
    for &module in Module::ALL {
        let own = module.constants().iter().map(|&(number, name)| (number, name.to_uppercase()));
        let mut expected: BTreeSet<_> = own.collect();
        expected.insert((constants::SINGLE, "SINGLE".into()));
        if module.name().contains("grouped") {
            expected.extend(constants::WEIGHTS.map(|(number, name)| (number, name.to_uppercase())));
        }
        if ["linear", "linear_dot", "linear_matrix", "linear_fragment"].contains(&module.source()) {
            expected.insert((constants::EXPERTS.0, constants::EXPERTS.1.to_uppercase()));
        }
        let mut found = Reflection::of(module).constants();
        // Shaders may name the workgroup's size (constant 0) twice.
        found.retain(|&(number, _)| number != 0);
        assert_eq!(expected, found, "{}", module.name());
    }
}

#[test]
fn every_file_is_a_module() {
    let listed: BTreeSet<_> = Module::ALL.iter().map(|m| format!("{}.spv", m.name())).collect();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/spv");
    let files = std::fs::read_dir(directory).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    assert_eq!(listed, files.collect());
    assert_eq!(listed.len(), Module::ALL.len(), "no two modules are one file");
}

/// RADV's acquire makes later loads bypass the cache, but not those of readonly blocks. So only weights, the KV cache
/// and page tables may be readonly: no kernel writes weights, a pass reads only keys and values that earlier passes
/// wrote, and the host writes page tables.
#[test]
fn what_a_relay_orders_is_not_readonly() {
    let readonly = Operand::Decoration(Decoration::NonWritable);
    for &module in Module::ALL.iter().filter(|m| m.relaying() != Relaying::Never) {
        let spirv = Reflection::of(module);
        let members = spirv.all(Op::MemberDecorate).filter(|o| o[2] == readonly).map(|o| &o[0]);
        let name = |block: &Operand| spirv.all(Op::Name).find(|o| o[0] == *block).unwrap()[1].unwrap_literal_string();
        let blocks: BTreeSet<&str> = members.map(name).collect();
        assert!(blocks.iter().all(|block| ["Words4", "PageTables"].contains(block)), "{}: {blocks:?}", module.name());
    }
}
