//! The assembler's tests. Encodings are held against vectors, hazards against distances, both of independent source.

mod designs;
mod distances;
mod encoding;
mod hazards;
mod kernels;
mod language;
mod mutations;
mod packing;
mod vectors;
