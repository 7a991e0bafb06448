//! Offloads around which a device's passes are safe: [`checked`] compares their results with the device's and loads
//! them again after failures, [`placement`] measures the passes in which they are faster. [`host`] has the offloads
//! that compute steps with another executor's kernels.

pub(crate) mod checked;
pub(crate) mod host;
pub(crate) mod placement;

pub use checked::{CheckedOffload, OffloadLoader};
pub use placement::{OffloadOwner, place};
