//! What this crate's own tests reach into, behind the feature `testing`. No interface for others: it changes with the code.

/// From steps to dispatches.
pub mod lower {
    pub use crate::lower::*;
}

/// The executor on a device.
pub mod replay {
    pub use crate::replay::*;
}

/// The driver by Vulkan.
pub mod vulkan {
    pub use crate::vulkan::*;
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
