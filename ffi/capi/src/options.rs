//! The settings of an engine and of a plan.

use crate::fault::Fault;
use kiln::engine::{Device, ModelFiles, Options};
use kiln::model::WeightFormat;
use kiln::serve::embedded::{EngineOptions, ForecastOptions};
use kiln::serve::http::Listen;
use std::path::PathBuf;

/// The settings of an engine, as Rust holds them. Zero and empty are the defaults.
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
        let mut asked = EngineOptions::from(files(self.model));
        let options = &mut asked.options;
        (options.context, options.threads) = (size(self.context), size(self.threads));
        options.sequences = size(self.batch).unwrap_or(options.sequences);
        options.head_rows = options.sequences;
        (options.device, options.weights) = (device(self.device)?, weights(self.weights)?);
        asked.listen = places(self.listen)?;
        asked.settings.system = Some(self.system.to_owned()).filter(|text| !text.is_empty());
        Ok(asked)
    }
}

/// The settings of a plan, as Rust holds them. Zero and empty are the defaults.
#[derive(Debug, Default)]
pub(crate) struct Planned<'a> {
    pub model: &'a str,
    pub shape: &'a str,
    pub machine: &'a str,
    pub device: &'a str,
    pub weights: &'a str,
    pub draft: &'a str,
    pub context: u32,
    pub batch: u32,
    pub kv_tokens: u32,
    pub ram: u32,
    pub with_schedule: bool,
}

impl Planned<'_> {
    pub fn asked(&self) -> Result<ForecastOptions, Fault> {
        let text = |of: &str| Some(of.to_owned()).filter(|text| !text.is_empty());
        if !self.shape.is_empty() && !self.model.is_empty() {
            return Err(Fault::input(
                "a model and a shape are given, of which one is planned",
                "leave one of them empty",
            ));
        }
        let options = Options {
            device: device(self.device)?,
            weights: weights(self.weights)?,
            context: size(self.context),
            sequences: size(self.batch).unwrap_or(1),
            kv_tokens: size(self.kv_tokens),
            ..Options::default()
        };
        Ok(ForecastOptions {
            files: files(self.model),
            shape: text(self.shape),
            machine: text(self.machine).unwrap_or_else(|| "this".into()),
            mix: None,
            ram: (self.ram > 0).then_some(self.ram.into()),
            draft: text(self.draft),
            options,
            with_schedule: self.with_schedule,
        })
    }
}

/// A count; `None` for 0, with which Kiln chooses.
fn size(n: u32) -> Option<usize> {
    (n > 0).then_some(n as usize)
}

fn files(model: &str) -> ModelFiles {
    ModelFiles::from(Some(PathBuf::from(model)).filter(|path| !path.as_os_str().is_empty()))
}

fn device(word: &str) -> Result<Device, Fault> {
    match word {
        "" => Ok(Device::Auto),
        word => word.parse().map_err(|e| Fault::input(format!("device {word:?}"), e)),
    }
}

fn weights(word: &str) -> Result<WeightFormat, Fault> {
    match word {
        "" | "int8" => Ok(WeightFormat::Int8),
        "int4" => Ok(WeightFormat::Int4),
        "bf16" => Ok(WeightFormat::Bf16),
        other => Err(Fault::input(format!("weights {other:?}"), "use int8, int4 or bf16")),
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
