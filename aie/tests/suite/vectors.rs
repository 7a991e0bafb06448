//! Vectors: pairs of bytes and instruction whose source their files name.

use kiln_aie::assemble;
use kiln_aie::isa::Isa;

pub struct Vector {
    pub file: &'static str,
    pub bytes: Vec<u8>,
    pub text: &'static str,
}

pub fn vectors() -> Vec<Vector> {
    let files = [
        ("llvm.txt", include_str!("../vectors/llvm.txt")),
        ("programs.txt", include_str!("../vectors/programs.txt")),
        ("formats.txt", include_str!("../vectors/formats.txt")),
    ];
    let mut vectors = Vec::new();
    for (file, text) in files {
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (bytes, text) = line.split_once(" = ").expect("bytes = instruction");
            let bytes = bytes.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
            vectors.push(Vector { file, bytes, text });
        }
    }
    vectors
}

impl Vector {
    /// What is wrong with a table by this vector, if anything: both ways, instruction to bytes and bytes to instruction.
    pub fn refute(&self, isa: &Isa) -> Option<String> {
        let encoded = assemble::bundle(isa, self.text)
            .map_err(|error| error.to_string())
            .and_then(|bundle| isa.encode_bundle(&bundle));
        if encoded.as_ref() != Ok(&self.bytes) {
            return Some(format!("{}: {} gives {encoded:02x?}, not {:02x?}", self.file, self.text, self.bytes));
        }
        let decoded = isa.decode_bundle(&self.bytes).map(|bundle| isa.write_bundle(&bundle));
        if decoded.as_deref() != Ok(self.text) {
            return Some(format!("{}: {:02x?} is {decoded:?}, not {}", self.file, self.bytes, self.text));
        }
        None
    }
}
