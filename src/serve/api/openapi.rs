//! `/openapi.json`: a description of the server's API.

use super::Call;
use super::answer::ApiAnswer;
use crate::serve::http::{ApiError, JSON};

const DESCRIPTION: &str = include_str!("openapi.json");

/// The description.
///
/// # Errors
/// None.
pub(super) fn show(_: &Call<'_>) -> Result<ApiAnswer, ApiError> {
    Ok(ApiAnswer::of(JSON, &[], DESCRIPTION.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::api::fields::Fields;
    use crate::serve::api::{ROUTES, options};
    use crate::serve::service::Defaults;
    use serde_json::{Value, json};

    fn description() -> Value {
        serde_json::from_str(DESCRIPTION).unwrap()
    }

    #[test]
    fn what_is_described_is_what_is_served() {
        let description = description();
        assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
        let paths = description["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        let mut described: Vec<String> = described.collect();
        let mut served: Vec<String> =
            ROUTES.iter().map(|(method, path, _)| format!("{method} {}", path.replace("{}", "{model}"))).collect();
        described.sort_unstable();
        served.sort_unstable();
        assert_eq!(described, served);
    }

    /// Calls `see` with each reference in a value.
    fn references(value: &Value, see: &mut dyn FnMut(&str)) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| match value {
                Value::String(to) if name == "$ref" => see(to),
                value => references(value, see),
            }),
            Value::Array(values) => values.iter().for_each(|value| references(value, see)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_nothing_is_left_over() {
        let description = description();
        let mut used = Vec::new();
        references(&description, &mut |to| {
            assert!(description.pointer(to.strip_prefix('#').unwrap()).is_some(), "{to}");
            used.push(to.to_owned());
        });
        for kind in ["schemas", "responses"] {
            for name in description["components"][kind].as_object().unwrap().keys() {
                assert!(used.contains(&format!("#/components/{kind}/{name}")), "{name}");
            }
        }
    }

    #[test]
    fn the_described_ranges_are_those_that_are_read() {
        let description = description();
        let mut checked = 0;
        for schema in ["Options", "Completing"] {
            for (name, of) in description["components"]["schemas"][schema]["properties"].as_object().unwrap() {
                let read = |value: &Value| {
                    let body = json!({name: value});
                    let fields = Fields::of_body(&body).unwrap();
                    options::read(&fields, &options::LIMITS, 100, &Defaults::default())
                        .and_then(|_| options::choices(&fields))
                        .map_err(|e| e.param)
                };
                for (bound, away) in [("minimum", -1.0), ("maximum", 1.0), ("exclusiveMinimum", -1.0)] {
                    let Some(value) = of.get(bound) else { continue };
                    let within = if bound == "exclusiveMinimum" { json!(1e-300) } else { value.clone() };
                    assert!(read(&within).is_ok(), "{name}: {within}");
                    // A step that f64 can represent at 2^63.
                    let number = value.as_f64().unwrap();
                    let outside = json!(number + away * (number.abs() * 1e-9).max(1.0));
                    assert_eq!(read(&outside), Err(Some(name.clone())), "{name}: {outside}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 20, "{checked}");
    }
}
