//! What the executable makes at run time: its own files, which need nothing else of it.

// The executable's other files use the rest.
#[allow(dead_code)]
#[path = "../../../src/npu/attend/mod.rs"]
pub mod attend;
#[allow(dead_code)]
#[path = "../../../src/npu/reads.rs"]
pub mod reads;
#[allow(dead_code)]
#[path = "../../../src/npu/stream.rs"]
pub mod stream;
