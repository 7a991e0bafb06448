//! Defaults for requests without settings of their own.

use crate::Result;
use crate::cli::reply::number;
use crate::serve::service::Defaults;
use crate::text::SamplerConfig;

/// How replies are made where a request does not say.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SamplingArgs {
    /// Sampling temperature of replies whose request sends none; 0 always takes the likeliest token
    #[arg(help_heading = "Replies without settings of their own", long, default_value_t = 1.0, value_name = "T", allow_negative_numbers = true, value_parser = number)]
    temp: f32,
    /// As it, among the K likeliest tokens; 0: all
    #[arg(
        help_heading = "Replies without settings of their own",
        long,
        default_value_t = 64,
        value_name = "K",
        allow_negative_numbers = true
    )]
    top_k: u32,
    /// As it, among the likeliest tokens that make up this probability
    #[arg(help_heading = "Replies without settings of their own", long, default_value_t = 0.95, value_name = "P", allow_negative_numbers = true, value_parser = number)]
    top_p: f32,
    /// As it, among tokens with at least this share of the likeliest one's probability
    #[arg(help_heading = "Replies without settings of their own", long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = number)]
    min_p: f32,
    /// As it, by what the logits of recent tokens are divided; 1: off
    #[arg(help_heading = "Replies without settings of their own", long, default_value_t = 1.0, value_name = "R", allow_negative_numbers = true, value_parser = number)]
    repeat_penalty: f32,
    /// As it, what is subtracted from the logits of tokens that the reply has
    #[arg(help_heading = "Replies without settings of their own", long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = number)]
    presence_penalty: f32,
    /// As it, what is subtracted for each time that the reply has them
    #[arg(help_heading = "Replies without settings of their own", long, default_value_t = 0.0, value_name = "P", allow_negative_numbers = true, value_parser = number)]
    frequency_penalty: f32,
    /// Most tokens of replies whose request does not say [default: until the model stops, or the context is full]
    #[arg(help_heading = "Replies without settings of their own", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
}

impl SamplingArgs {
    /// The server's defaults.
    ///
    /// # Errors
    /// Input: a value is out of its range.
    pub fn defaults(&self) -> Result<Defaults> {
        let sampler = SamplerConfig {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            ..SamplerConfig::default()
        };
        sampler.validate()?;
        Ok(Defaults { sampler, limit: self.max_tokens.map_or(usize::MAX, |most| most as usize) })
    }
}
