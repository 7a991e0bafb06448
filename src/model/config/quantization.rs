//! Reads from a config.json how another program has quantised the matrices.

use serde_json::Value;

use super::keys::ConfigReader;
use crate::Result;
use crate::display::quote;

/// How another program has quantised a checkpoint's matrices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Quantization {
    /// The matrices are not quantised, or the config does not tell.
    None,
    /// INT8 of llm-compressor (w8a8 of compressed-tensors): a symmetric scale for each row, as in Kiln's own INT8.
    RowInt8,
    /// A scheme that Kiln cannot read, by its name.
    Other(String),
}

impl Quantization {
    /// Reads `quantization_config` of the config's object `outer`, or of its `text`.
    ///
    /// # Errors
    /// [`crate::Error::Input`]: it is not an object, or a value has the wrong type.
    pub(super) fn parse(outer: &ConfigReader, text: &ConfigReader) -> Result<Quantization> {
        // Older versions of compressed-tensors write `compression_config`.
        for key in ["quantization_config", "compression_config"] {
            for keys in [outer, text] {
                if let Some(found) = keys.object(key)? {
                    return read(&found);
                }
            }
        }
        Ok(Quantization::None)
    }
}

/// A text of the object. A value of another type is an error: its default would mean another scheme.
fn word(keys: &ConfigReader, key: &str) -> Result<Option<String>> {
    match keys.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(quote(text))),
        Some(other) => Err(keys.wrong(key, other, "text")),
    }
}

fn read(config: &ConfigReader) -> Result<Quantization> {
    let method = word(config, "quant_method")?.unwrap_or_else(|| "another program".into());
    if method != "compressed-tensors" {
        return Ok(Quantization::Other(method));
    }
    let format = word(config, "format")?;
    let sparsity = config.object("sparsity_config")?.map_or(Ok(None), |sparse| word(&sparse, "format"))?;
    if let Some(sparsity) = sparsity.filter(|format| format != "dense") {
        return Ok(Quantization::Other(format!("{method}, {sparsity}")));
    }
    let groups = config.object("config_groups")?;
    let names = groups.iter().flat_map(|groups| groups.map.keys().map(move |name| (groups, name)));
    for (groups, name) in names {
        let Some(group) = groups.object(name)? else { continue };
        // Without weights the group describes the rounding of activations, which Kiln does not do.
        let Some(weights) = group.object("weights")? else { continue };
        let format = word(&group, "format")?.or_else(|| format.clone());
        let is_plain =
            !matches!(format.as_deref(), Some(other) if !matches!(other, "int-quantized" | "naive-quantized"));
        let bits = weights.get("num_bits").and_then(Value::as_u64);
        let (kind, strategy) = (word(&weights, "type")?, word(&weights, "strategy")?);
        let is_symmetric = weights.flag("symmetric")?.unwrap_or(true);
        let is_int8 = bits == Some(8) && kind.as_deref().unwrap_or("int") == "int";
        if is_plain && is_int8 && is_symmetric && strategy.as_deref() == Some("channel") {
            continue;
        }
        let mut words = vec![format.unwrap_or_else(|| "no format".into())];
        words.extend(bits.map(|bits| format!("{bits} bits")));
        words.extend(kind.filter(|kind| kind != "int"));
        words.extend(strategy.map(|strategy| format!("a scale for each {strategy}")));
        words.extend((!is_symmetric).then(|| "with zero points".into()));
        return Ok(Quantization::Other(format!("{method}, {}", words.join(", "))));
    }
    Ok(Quantization::RowInt8)
}
