//! The element types of GGUF's tensors.

/// An element type: values are stored in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GgmlType {
    /// The number that stands for the type in a file.
    pub code: u32,
    /// The type's name in GGUF's documents.
    pub name: &'static str,
    /// Elements of a block. A row is whole blocks.
    pub block: usize,
    /// The size of a block in bytes.
    pub block_bytes: usize,
}

const fn ggml(code: u32, name: &'static str, block: usize, block_bytes: usize) -> GgmlType {
    GgmlType { code, name, block, block_bytes }
}

/// IEEE single.
pub const F32: GgmlType = ggml(0, "F32", 1, 4);
/// IEEE half.
pub const F16: GgmlType = ggml(1, "F16", 1, 2);
/// One bfloat16 per element.
pub const BF16: GgmlType = ggml(30, "BF16", 1, 2);
/// Every type of the format: unsupported ones are refused by their name.
const ALL: [GgmlType; 34] = [
    F32,
    F16,
    ggml(2, "Q4_0", 32, 18),
    ggml(3, "Q4_1", 32, 20),
    ggml(6, "Q5_0", 32, 22),
    ggml(7, "Q5_1", 32, 24),
    ggml(8, "Q8_0", 32, 34),
    ggml(9, "Q8_1", 32, 40),
    ggml(10, "Q2_K", 256, 84),
    ggml(11, "Q3_K", 256, 110),
    ggml(12, "Q4_K", 256, 144),
    ggml(13, "Q5_K", 256, 176),
    ggml(14, "Q6_K", 256, 210),
    ggml(15, "Q8_K", 256, 292),
    ggml(16, "IQ2_XXS", 256, 66),
    ggml(17, "IQ2_XS", 256, 74),
    ggml(18, "IQ3_XXS", 256, 98),
    ggml(19, "IQ1_S", 256, 50),
    ggml(20, "IQ4_NL", 32, 18),
    ggml(21, "IQ3_S", 256, 110),
    ggml(22, "IQ2_S", 256, 82),
    ggml(23, "IQ4_XS", 256, 136),
    ggml(24, "I8", 1, 1),
    ggml(25, "I16", 1, 2),
    ggml(26, "I32", 1, 4),
    ggml(27, "I64", 1, 8),
    ggml(28, "F64", 1, 8),
    ggml(29, "IQ1_M", 256, 56),
    BF16,
    ggml(34, "TQ1_0", 256, 54),
    ggml(35, "TQ2_0", 256, 66),
    ggml(39, "MXFP4", 32, 17),
    ggml(40, "NVFP4", 64, 36),
    ggml(41, "Q1_0", 128, 18),
];

impl GgmlType {
    /// The type for which a file has the number `code`.
    pub fn of(code: u32) -> Option<GgmlType> {
        ALL.into_iter().find(|t| t.code == code)
    }

    /// Bytes of a tensor of these dimensions, row-major.
    ///
    /// # Errors
    /// The fault: a row is not whole blocks, or the size overflows.
    pub(super) fn bytes(self, shape: &[usize]) -> std::result::Result<usize, String> {
        let cols = shape.last().copied().unwrap_or(1);
        if !cols.is_multiple_of(self.block) {
            return Err(format!("is {} in rows of {cols}, which are not whole blocks of {}", self.name, self.block));
        }
        let rows = shape.iter().rev().skip(1).try_fold(1usize, |product, n| product.checked_mul(*n));
        rows.and_then(|rows| rows.checked_mul(cols / self.block)?.checked_mul(self.block_bytes))
            .ok_or_else(|| format!("has the shape {shape:?}, whose size overflows"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_number_and_rows_are_whole_blocks() {
        for (i, t) in ALL.iter().enumerate() {
            assert_eq!(GgmlType::of(t.code), Some(*t));
            assert!(ALL[..i].iter().all(|other| other.code != t.code && other.name != t.name), "{}", t.name);
        }
        assert_eq!((GgmlType::of(4), GgmlType::of(36), GgmlType::of(u32::MAX)), (None, None, None));
        let [q4_k, q6_k] = [12, 14].map(|code| GgmlType::of(code).unwrap());
        assert_eq!(q6_k.bytes(&[3, 512]), Ok(3 * 2 * 210));
        assert_eq!(F32.bytes(&[]), Ok(4));
        assert!(q4_k.bytes(&[2, 128]).unwrap_err().contains("rows of 128, which are not whole blocks of 256"));
        assert!(F32.bytes(&[usize::MAX, 2]).unwrap_err().contains("overflows"));
        assert!(F32.bytes(&[1, usize::MAX / 2]).unwrap_err().contains("overflows"));
    }
}
