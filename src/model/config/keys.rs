//! The keys of a config's JSON object. Each value is checked as it is read.

use serde_json::{Map, Value};

use crate::display::quote;
use crate::model::Shape;
use crate::model::architecture::Architecture;
use crate::model::shape::MOST_SUPPRESSED;
use crate::{Error, Result};

/// The remedy for a wrong config.json.
pub(super) const REMEDY_CONFIG: &str = "correct it, or take config.json from the model's original download";

/// Reads a JSON object's keys with their defaults. A null counts as absent.
pub(super) struct ConfigReader<'a> {
    /// The object whose keys are read.
    pub(super) map: &'a Map<String, Value>,
    /// The name of the file that the object is in, for errors.
    pub(super) file: &'static str,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn wrong(&self, key: &str, found: &Value, wanted: &str) -> Error {
        Error::input(format!("{}: {key} is {}; wanted {wanted}", self.file, excerpt(found)), self.remedy())
    }

    pub(super) fn remedy(&self) -> String {
        format!("correct it, or take {} from the model's original download", self.file)
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<ConfigReader<'a>>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(ConfigReader { map, file: self.file })),
            Some(other) => Err(self.wrong(key, other, "an object")),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    /// A whole number from 1 to `max`.
    pub(super) fn size(&self, key: &str, default: usize, max: usize) -> Result<usize> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| (1..=max).contains(n))
            .ok_or_else(|| self.wrong(key, value, &format!("a whole number from 1 to {max}")))
    }

    /// A number that is finite and above zero, as given and as f32.
    pub(super) fn positive(&self, key: &str, default: f32) -> Result<f32> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value
            .as_f64()
            .map(|x| x as f32)
            .filter(|x| x.is_finite() && *x > 0.0)
            .ok_or_else(|| self.wrong(key, value, "a finite number above 0"))
    }

    pub(super) fn token(&self, key: &str, value: &Value) -> Result<u32> {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| self.wrong(key, value, "a token id"))
    }

    /// Adds the ids of `eos_token_id` and `suppress_tokens` that `shape` lacks.
    pub(super) fn add_tokens(&self, shape: &mut Shape) -> Result<()> {
        self.add_ids("eos_token_id", 64, &mut shape.eos, shape.vocab)?;
        self.add_ids("suppress_tokens", MOST_SUPPRESSED, &mut shape.suppressed, shape.vocab)
    }

    /// Adds the ids of a key (one or a list of at most `most`) that `ids` lacks.
    fn add_ids(&self, key: &str, most: usize, ids: &mut Vec<u32>, vocab: usize) -> Result<()> {
        let Some(value) = self.get(key) else { return Ok(()) };
        let listed = match value {
            Value::Array(list) if list.len() > most => {
                return Err(self.wrong(key, value, &format!("at most {most} token ids")));
            }
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        for id in listed {
            let id = self.token(key, id)?;
            if id as usize >= vocab {
                let cause = format!("{}: {key} is {id}, past the vocabulary of {vocab}", self.file);
                return Err(Error::input(cause, self.remedy()));
            }
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(())
    }

    /// The divisor of the inverse frequencies: 1, or the factor of linear scaling.
    pub(super) fn rope_factor(&self) -> Result<f32> {
        let Some(kind) = self.get("rope_type").or_else(|| self.get("type")) else { return Ok(1.0) };
        match kind.as_str() {
            Some("default") => Ok(1.0),
            Some("linear") if self.get("factor").is_some() => self.positive("factor", 1.0),
            Some("linear") => {
                Err(Error::input(format!("{}: linear RoPE scaling gives no factor", self.file), REMEDY_CONFIG))
            }
            _ => Err(self.wrong("rope_type", kind, "default or linear")),
        }
    }

    /// The share of a head's pairs that turn by RoPE: the first ones.
    pub(super) fn rope_share(&self) -> Result<f32> {
        let kind = self.get("rope_type").or_else(|| self.get("type"));
        match kind.map(|kind| (kind, kind.as_str())) {
            Some((_, Some("proportional"))) if self.get("partial_rotary_factor").is_some() => {
                let share = self.positive("partial_rotary_factor", 1.0)?;
                let is_scaled = self.get("factor").is_some() && self.positive("factor", 1.0)? != 1.0;
                if share > 1.0 || is_scaled {
                    let cause = format!("{}: proportional RoPE of more than all pairs, or with a factor", self.file);
                    return Err(Error::input(cause, REMEDY_CONFIG));
                }
                Ok(share)
            }
            Some((_, Some("proportional"))) => {
                let cause = format!("{}: proportional RoPE gives no partial_rotary_factor", self.file);
                Err(Error::input(cause, REMEDY_CONFIG))
            }
            Some((_, Some("default"))) | None => Ok(1.0),
            Some((kind, _)) => Err(self.wrong("rope_type", kind, "proportional or default")),
        }
    }

    /// Refuses an object that has keys other than `known`.
    pub(super) fn refuse_others(&self, known: &[&str]) -> Result<()> {
        match self.map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let cause = format!("{}: a layer's own {}, which Kiln does not compute", self.file, quote(key));
                Err(Error::input(cause, REMEDY_CONFIG))
            }
        }
    }

    /// Refuses keys that would change the forward pass in a way that the family's models do not have.
    pub(super) fn refuse_unsupported(&self, family: &Architecture) -> Result<()> {
        let (title, rules) = (family.title, &family.config);
        if let Some(value) = self.get("model_type")
            && !value.as_str().is_some_and(|kind| family.model_types.contains(&kind))
        {
            return Err(self.wrong("model_type", value, family.model_types[0]));
        }
        let refuse = |what: String| {
            let cause = format!("{}: {what}, which Kiln does not compute", self.file);
            Err(Error::input(cause, format!("use a {title} text model without it")))
        };
        for key in rules.flags {
            if self.flag(key)? == Some(true) {
                return refuse(format!("{key} is true"));
            }
        }
        for (key, default) in rules.zeros {
            // A null means that the model has no such feature, and an absent key means the default.
            let found = match self.map.get(*key) {
                None => Some(*default as u64),
                Some(Value::Null) => Some(0),
                Some(value) => value.as_u64(),
            };
            if found != Some(0) {
                let value = self.get(key).map_or_else(|| format!("{default} by default"), excerpt);
                return refuse(format!("{key} is {value}"));
            }
        }
        // Attention of images in both directions does not concern text.
        if let Some(value) = self.get("use_bidirectional_attention")
            && !matches!(value, Value::Bool(false))
            && value.as_str() != Some("vision")
        {
            return refuse(format!("use_bidirectional_attention is {}", excerpt(value)));
        }
        // Gemma 2 caps attention scores and logits; no Gemma 3 does.
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            let is_computed = rules.caps_logits && key == "final_logit_softcapping";
            if let Some(value) = self.get(key).filter(|_| !is_computed) {
                let cause = format!("{}: {key} is {}, which Kiln does not compute", self.file, excerpt(value));
                return Err(Error::input(cause, format!("use a {title} text model, which has it null or absent")));
            }
        }
        match self.get("hidden_activation") {
            None => Ok(()),
            Some(Value::String(name)) if name == "gelu_pytorch_tanh" => Ok(()),
            Some(other) => Err(self.wrong("hidden_activation", other, "gelu_pytorch_tanh")),
        }
    }
}

/// A value, shortened for an error message.
pub(super) fn excerpt(value: &Value) -> String {
    match value {
        Value::Array(list) if list.len() > 4 => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".into(),
        other => quote(&other.to_string()),
    }
}
