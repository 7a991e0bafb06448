//! What this crate's own tests reach into, behind the feature `testing`. No interface for others: it changes with the code.

/// The Vulkan executor.
pub mod gpu {
    pub use crate::gpu::*;
}

/// Programs on the NPU.
pub mod npu {
    pub use crate::npu::*;
}

/// The CPU executor.
pub mod cpu {
    pub use crate::cpu::Cpu;
}

/// The reference executor.
pub mod reference {
    pub use crate::reference::*;
}

/// The drivers' interfaces.
pub mod sys {
    pub use crate::sys::*;
}
