//! What an engine is opened with.

use crate::fault::Fault;
use kiln::engine::{ModelFiles, Options};
use kiln::model::WeightFormat;
use kiln::serve::embedded::EngineOptions;
use kiln::serve::http::Listen;
use kiln::serve::service::Settings;
use std::path::PathBuf;

/// Sequences at once where the caller does not say.
const DEFAULT_BATCH: usize = 8;

/// The options' values, as Rust holds them. Zero and empty are the defaults.
#[derive(Debug, Default)]
pub(crate) struct Given<'a> {
    pub model: &'a str,
    pub device: &'a str,
    pub weights: &'a str,
    pub system: &'a str,
    pub listen: &'a str,
    pub context: u32,
    pub batch: u32,
    pub threads: u32,
}

impl Given<'_> {
    pub fn engine(&self) -> Result<EngineOptions, Fault> {
        let size = |n: u32| (n > 0).then_some(n as usize);
        let mut options = Options { context: size(self.context), threads: size(self.threads), ..Options::default() };
        options.sequences = size(self.batch).unwrap_or(DEFAULT_BATCH);
        options.head_rows = options.sequences;
        if !self.device.is_empty() {
            options.device = self.device.parse().map_err(|e| Fault::input(format!("device {:?}", self.device), e))?;
        }
        options.weights = match self.weights {
            "" | "int8" => WeightFormat::Int8,
            "int4" => WeightFormat::Int4,
            "bf16" => WeightFormat::Bf16,
            other => return Err(Fault::input(format!("weights {other:?}"), "use int8, int4 or bf16")),
        };
        let listen = places(self.listen)?;
        let system = Some(self.system.to_owned()).filter(|text| !text.is_empty());
        let model = Some(PathBuf::from(self.model)).filter(|path| !path.as_os_str().is_empty());
        let settings = Settings { system, ..Settings::default() };
        Ok(EngineOptions { files: ModelFiles::from(model), options, settings, listen })
    }
}

/// Places with commas between them.
pub(crate) fn places(list: &str) -> Result<Vec<Listen>, Fault> {
    list.split(',').filter(|place| !place.is_empty()).map(place).collect()
}

/// `ADDRESS:PORT`, or `unix:PATH` for a socket that this user alone may use.
fn place(text: &str) -> Result<Listen, Fault> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Listen::Unix { path: path.into(), mode: 0o600 });
    }
    let address = text
        .parse()
        .map_err(|_| Fault::input(format!("{text:?} is no place to listen at"), "use ADDRESS:PORT, or unix:PATH"))?;
    Ok(Listen::Tcp(address))
}
