//! The text side of a loaded model: everything but its weights.

use super::http::ApiError;
use super::published::Published;
use super::service::Replaceable;
use crate::engine::ModelFiles;
use crate::engine::prefixes::Identity;
use crate::engine::queue::ModelSide;
use crate::error::Error;
use crate::executor::DeviceInfo;
use crate::grammar::Grammars;
use crate::model::Shape;
use crate::schedule::Schedule;
use crate::sequence::SequenceLimits;
use crate::sequence::reply::stop_tokens;
use crate::text::{ChatTemplate, Tokenizer};
use std::sync::Arc;
use std::time::SystemTime;

/// A loaded model as the server's API needs it: its name, limits, tokenizer and chat template.
pub struct Model {
    /// The model's number in this process. Each load has a new one.
    pub(super) id: u64,
    /// The model's name, by which requests ask for it.
    pub name: String,
    /// The model's layers, heads and sizes.
    pub shape: Shape,
    /// The most positions of a sequence, prompt and reply together.
    pub context: usize,
    /// The tokenizer, which turns texts into tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The compiled grammars over the tokenizer's tokens.
    pub grammars: Grammars,
    /// The chat template, which turns a conversation into a prompt.
    pub template: ChatTemplate,
    /// The name of the device that the model runs on ([`Model::device`]).
    pub(super) device: Replaceable<String>,
    /// The number of sequences that run at the same time.
    pub slots: usize,
    /// The time at which it was loaded.
    pub loaded: SystemTime,
    /// The format and the size of the model's files, for the API's lists of models.
    pub published: Published,
    /// True if the model runs on the CPU.
    pub(super) is_on_cpu: bool,
    /// A digest of all that keys and values depend on. Saved ones are used only if it is equal.
    pub(super) identity: Identity,
    /// The tokens that end a reply.
    stops: Vec<u32>,
}

impl Model {
    /// Opens the text side of a model loaded from `files` with this schedule, on this device.
    ///
    /// # Errors
    /// Input: there is no tokenizer, or a file is damaged.
    pub(super) fn open(
        id: u64,
        files: &ModelFiles,
        schedule: &Schedule,
        device: DeviceInfo<'_>,
    ) -> crate::Result<Model> {
        let shape = schedule.shape.clone();
        if !files.has_tokenizer() {
            let cause = format!("the model {} has no tokenizer, and a server speaks text", files.name());
            return Err(Error::input(cause, "put its tokenizer.json beside config.json"));
        }
        let tokenizer = Arc::new(files.tokenizer_for(shape.vocab)?);
        tokenizer.require_bos()?;
        let stops = stop_tokens(&shape, Some(&tokenizer));
        Ok(Model {
            id,
            name: files.name(),
            identity: Identity::new(files, schedule, device.hardware)?,
            grammars: Grammars::new(tokenizer.clone(), stops.clone()),
            stops,
            template: files.template()?,
            tokenizer,
            context: schedule.extent.context,
            slots: schedule.extent.sequences,
            published: Published::of(files, &shape)?,
            is_on_cpu: device.is_cpu,
            device: Replaceable::new(device.name.to_owned()),
            loaded: SystemTime::now(),
            shape,
        })
    }

    /// The device, including the offload for attention, updated every second.
    pub fn device(&self) -> String {
        self.device.get()
    }

    /// The model's number, limits, tokenizer and stop tokens, for requests to the engine.
    pub(super) fn target(&self) -> ModelSide<'_> {
        ModelSide { model: self.id, limits: self.limits(), tokenizer: Some(&self.tokenizer), stops: &self.stops }
    }

    /// The limits of every sequence of the model: its vocabulary and the context.
    pub fn limits(&self) -> SequenceLimits<'_> {
        SequenceLimits { shape: &self.shape, context: self.context }
    }

    /// The tokens that end a reply.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }
}

/// 400, or 500 if the server is at fault. The message is the error's.
impl From<&Error> for ApiError {
    fn from(e: &Error) -> ApiError {
        let error = match e {
            Error::Input { .. } => ApiError::bad(e.to_string()),
            Error::Refused { .. } => ApiError::unavailable(e.to_string(), 1),
            Error::Failed { .. } | Error::Interrupted { .. } | Error::Device { .. } => {
                ApiError::new(500, e.to_string()).code("internal_error")
            }
        };
        error.caused_by(e)
    }
}
