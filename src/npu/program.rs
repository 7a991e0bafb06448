//! What a program is: its bytes as `aie/` packs them, and the buffers that it takes.

/// A program of the array.
#[derive(Debug)]
pub struct Program {
    /// Its name, which libxrt finds it by.
    pub name: &'static str,
    /// Columns of the array that it takes.
    pub columns: u32,
    /// The host's buffers that a run takes, in order.
    pub arguments: &'static [Argument],
    /// The image of its partition (PDI), for the kernel's driver.
    pub image: &'static [u8],
    /// The instruction stream of one run.
    pub sequence: &'static [u8],
    /// The image in a container (xclbin), for libxrt.
    pub container: &'static [u8],
}

/// A buffer of the host that a run takes.
#[derive(Debug)]
pub struct Argument {
    /// Its name, as the program's source has it.
    pub name: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
}
