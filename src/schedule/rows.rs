//! The rows of a pass.

/// One row of a pass: a token at a position of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Token id, below the vocabulary's size.
    pub token: u32,
    /// Position in the sequence, from 0, below the context's size.
    pub position: u32,
    /// The sequence, which has its own page table.
    pub sequence: u32,
}

/// The number of rows, from the first on, that stand at consecutive positions of one sequence.
pub fn leading_run(rows: &[Row]) -> usize {
    rows.len().min(1) + rows.windows(2).take_while(|pair| follows(pair[0], pair[1])).count()
}

/// True if `next` is at the position after `row`, in the same sequence.
pub(crate) fn follows(row: Row, next: Row) -> bool {
    row.sequence == next.sequence && row.position + 1 == next.position
}
