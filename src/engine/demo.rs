//! The built-in demo model. It has Gemma 3's architecture with all 62 layers in a small size, and tools/demo-model
//! trains it to answer a kiosk's visitors. A draft model of four layers, trained on the same dialogues, stands beside
//! it. Their files are part of the executable and are never copied; the kernel pages them in as they are read.

use crate::Result;
use crate::model::architecture::GEMMA3;
use crate::model::checkpoint::Checkpoint;
use crate::text::{ChatTemplate, Tokenizer};

const CONFIG: &str = include_str!("../../tools/demo-model/model/config.json");
const TOKENIZER: &[u8] = include_bytes!("../../tools/demo-model/model/tokenizer.json");
const TOKENIZER_CONFIG: &[u8] = include_bytes!("../../tools/demo-model/model/tokenizer_config.json");

/// Alignment for tensors that are read in place, some of them as f32.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);
static WEIGHTS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../tools/demo-model/model/model.safetensors"));
/// The built-in model's safetensors file.
pub(crate) static WEIGHTS_FILE: &[u8] = &WEIGHTS.0;

const DRAFT_CONFIG: &str = include_str!("../../tools/demo-model/draft/config.json");
static DRAFT_WEIGHTS: &Aligned<[u8]> = &Aligned(*include_bytes!("../../tools/demo-model/draft/model.safetensors"));
/// The draft model's safetensors file.
pub(crate) static DRAFT_WEIGHTS_FILE: &[u8] = &DRAFT_WEIGHTS.0;

/// The model's checkpoint.
///
/// # Errors
/// Input: the executable is damaged.
pub fn checkpoint() -> Result<Checkpoint> {
    Checkpoint::from_static(CONFIG, WEIGHTS_FILE)
}

/// The draft model's checkpoint.
///
/// # Errors
/// Input: the executable is damaged.
pub fn draft_checkpoint() -> Result<Checkpoint> {
    Checkpoint::from_static(DRAFT_CONFIG, DRAFT_WEIGHTS_FILE)
}

/// The tokenizer of both models.
///
/// # Errors
/// Input: the executable is damaged.
pub fn tokenizer() -> Result<Tokenizer> {
    Tokenizer::from_bytes(TOKENIZER)
}

/// The chat template of both models.
///
/// # Errors
/// Input: the executable is damaged.
pub fn template() -> Result<ChatTemplate> {
    ChatTemplate::from_files(None, Some(TOKENIZER_CONFIG), &GEMMA3)
}
