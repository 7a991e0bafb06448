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

/// The text side of a loaded model.
pub struct Model {
    /// The number of the model in this process.
    pub(super) id: u64,
    /// The name.
    pub name: String,
    /// The shape.
    pub shape: Shape,
    /// Positions of a sequence.
    pub context: usize,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Grammars over its tokens.
    pub grammars: Grammars,
    /// The chat template.
    pub template: ChatTemplate,
    /// See [`Model::device`].
    pub(super) device: Replaceable<String>,
    /// Sequences at once.
    pub slots: usize,
    /// The time at which it was loaded.
    pub loaded: SystemTime,
    /// The format of its files.
    pub published: Published,
    /// Whether the model runs on the CPU.
    pub(super) is_on_cpu: bool,
    /// The identity of its keys and values.
    pub(super) identity: Identity,
    /// Tokens that end a reply.
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

    /// The text side for the engine's requests.
    pub(super) fn target(&self) -> ModelSide<'_> {
        ModelSide { model: self.id, limits: self.limits(), tokenizer: Some(&self.tokenizer), stops: &self.stops }
    }

    /// The limits of a sequence.
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
