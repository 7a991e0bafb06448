//! What a program is: its bytes as `aie/` packs them, and the buffers that it takes.

/// A program of the array.
#[derive(Debug)]
pub struct Program {
    /// Its name, which libxrt finds it by.
    pub name: &'static str,
    /// Columns of the array that it takes.
    pub columns: u32,
    /// Bytes of the host's buffers that a run takes, in order.
    pub arguments: &'static [u64],
    /// The image of its partition (PDI), for the kernel's driver.
    pub image: &'static [u8],
    /// The instruction stream of one run.
    pub sequence: &'static [u8],
    /// The image in a container (xclbin), for libxrt.
    pub container: &'static [u8],
}
