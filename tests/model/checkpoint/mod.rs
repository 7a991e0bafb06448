//! From model files to validated rows: golden checkpoints in every spelling, the earlier engine's files, and every kind
//! of wrong file. Also the files that `quantize` and `forge` write.

mod bad_config;
mod bad_files;
mod earlier_engine;
mod experts;
mod files;
mod gguf;
mod gguf_header;
mod golden;
mod int4;
mod llm_compressor;
mod mutations;
mod write;
