//! When an instruction reads, writes and takes what it shares with others. The pipeline has no interlocks: an early
//! read gets the old value, and two writes through one port in one cycle spoil each other.

/// A read or write of an operand (its letter in the syntax) or of a named register.
#[derive(Clone, PartialEq, Debug)]
pub struct Effect {
    pub target: String,
    /// Pipeline stage; the instruction issues in stage 1.
    pub stage: u32,
    /// A write and a read of the same forwarding path meet a cycle earlier.
    pub forwarding: Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Port {
    Fixed(String),
    /// The port through which loads write the file of this operand.
    LoadOf(char),
    /// The port through which moves write the file of this operand.
    MoveOf(char),
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Timing {
    pub name: String,
    pub reads: Vec<Effect>,
    pub writes: Vec<Effect>,
    pub ports: Vec<(Port, u32)>,
    /// The stage that accesses data memory.
    pub memory: Option<u32>,
}
