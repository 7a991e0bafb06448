//! Whole passes on every executor: the golden logits, odd shapes, batches, matrix units, every tile, and the step at which
//! two executors differ. `tools/matrix-test` runs them on a driver with matrix units.

#[path = "../common/mod.rs"]
mod common;

mod arena;
mod batch;
mod compare;
mod goldens;
mod matrix;
mod mixed;
mod pieces;
mod shapes;
mod variants;
