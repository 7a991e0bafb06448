//! A program: its bytes as `aie/` packs them, and its buffers.

/// A program of the array.
#[derive(Debug)]
pub struct Program {
    /// The kernel's name in the image, by which libxrt finds it.
    pub name: &'static str,
    /// The number of columns of the NPU's array that the program occupies.
    pub columns: u32,
    /// Bytes of each of a run's host buffers, in order.
    pub arguments: &'static [u64],
    /// The image of its partition (PDI), for the kernel's driver.
    pub image: &'static [u8],
    /// The instruction stream of one run.
    pub sequence: &'static [u8],
    /// The image in a container (xclbin), for libxrt.
    pub container: &'static [u8],
}
