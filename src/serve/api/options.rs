//! Reads the generation options shared by all APIs, under the names in OpenAI's API, llama.cpp and vLLM.

use super::fields::{Fields, as_integer, shown, wrong_kind};
use crate::engine::request::{MOST_CHOICES, Request};
use crate::serve::http::ApiError;
use crate::serve::service::Defaults;
use crate::text::SamplerConfig;
use serde_json::Value;
use std::ops::RangeInclusive;

/// The most stop texts. OpenAI allows 4.
const MOST_STOPS: usize = 16;
/// The longest stop text, in characters.
const LONGEST_STOP: usize = 1024;
/// The most tokens in `logit_bias`.
const MOST_BIASES: usize = 1024;
/// The range of repetition penalties.
const REPEAT: RangeInclusive<f32> = 0.01..=10.0;
/// The value of `logit_bias` that forbids a token.
const FORBIDS: f32 = -100.0;

/// Options of Ollama and llama.cpp for the scope of penalties, with the only supported value.
const PENALTIES_ARE: [(&str, &str); 2] = [("penalize_newline", "true"), ("penalize_nl", "true")];
/// llama.cpp's number of tokens for the repetition penalty, with the only supported value.
const REPEATS_ARE: [(&str, &str); 1] = [("repeat_last_n", "64")];
/// The names of the limit on a reply's tokens. A path's preferred name comes first.
pub(super) const LIMITS: [&str; 4] = ["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict"];

/// Reads the options. `limits` are the names of the token limit; the first one present counts. Missing options are
/// taken from `d`. The result has no prompt yet.
///
/// # Errors
/// 400: a value is wrong.
pub(super) fn read(fields: &Fields<'_>, limits: &[&str], vocab: usize, d: &Defaults) -> Result<Request, ApiError> {
    let mut ask = read_lenient(fields, vocab, d)?;
    if ask.sampler.repeat_penalty != 1.0 {
        fields.refuse_unserved(&REPEATS_ARE)?;
    }
    for name in limits.iter().rev() {
        ask.limit = limit(fields, name, -1)?.unwrap_or(ask.limit);
    }
    Ok(ask)
}

/// Reads a limit on a reply's tokens. Negative numbers, down to `least`, are no limit, as in llama.cpp and Ollama.
///
/// # Errors
/// 400: the value is wrong.
pub(super) fn limit(fields: &Fields<'_>, name: &str, least: i64) -> Result<Option<usize>, ApiError> {
    match fields.integer(name, least..=i64::from(i32::MAX))? {
        Some(0) => Err(fields.wrong(name, "has to be 1 or more, or -1 for no limit")),
        limit => Ok(limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))),
    }
}

/// Reads the options that Ollama's API has too. The limit is the server's default.
///
/// # Errors
/// 400: a value is wrong.
pub(super) fn read_lenient(fields: &Fields<'_>, vocab: usize, d: &Defaults) -> Result<Request, ApiError> {
    let sampler = sampler(fields, vocab, &d.sampler)?;
    let mut ask = Request { sampler, limit: d.limit, ..Request::new(Vec::new()) };
    if ask.sampler.penalizes() {
        fields.refuse_unserved(&PENALTIES_ARE)?;
    }
    ask.stop = stops(fields, "stop")?;
    ask.ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(ask.ignore_eos);
    ask.reuse = fields.boolean("cache_prompt")?.unwrap_or(ask.reuse);
    Ok(ask)
}

fn sampler(fields: &Fields<'_>, vocab: usize, d: &SamplerConfig) -> Result<SamplerConfig, ApiError> {
    Ok(SamplerConfig {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(d.temperature),
        // vLLM's -1 means all tokens, as 0 does.
        top_k: fields.integer("top_k", -1..=i64::from(i32::MAX))?.map_or(d.top_k, |k| k.max(0) as u32),
        // Even the smallest top-p keeps the likeliest token; 0 does the same.
        top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(d.top_p),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(d.min_p),
        repeat_penalty: repeat_penalty(fields)?.unwrap_or(d.repeat_penalty),
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(d.presence_penalty),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(d.frequency_penalty),
        bias: biases(fields, vocab)?,
        seed: seed(fields)?,
    })
}

/// Any 64 bits, signed or unsigned. -1 asks for a random seed, as in llama.cpp and Ollama.
fn seed(fields: &Fields<'_>) -> Result<Option<u64>, ApiError> {
    Ok(match fields.get("seed").and_then(Value::as_u64) {
        Some(seed) => Some(seed),
        None => fields.integer("seed", i64::MIN..=i64::MAX)?.filter(|seed| *seed != -1).map(|seed| seed as u64),
    })
}

/// The repetition penalty, under llama.cpp's or vLLM's name.
fn repeat_penalty(fields: &Fields<'_>) -> Result<Option<f32>, ApiError> {
    let [theirs, other] = ["repetition_penalty", "repeat_penalty"];
    match (fields.number(theirs, REPEAT)?, fields.number(other, REPEAT)?) {
        (Some(a), Some(b)) if a != b => Err(fields.wrong(theirs, format!("is not {other}, which means the same"))),
        (a, b) => Ok(a.or(b)),
    }
}

/// Reads the stop texts.
///
/// # Errors
/// 400: they are not strings, too many, or too long.
pub(super) fn stops(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    let stops = fields.texts(name)?;
    if stops.len() > MOST_STOPS {
        return Err(fields.wrong(name, format!("has {} texts, and at most {MOST_STOPS} are taken", stops.len())));
    }
    if stops.iter().any(|stop| stop.chars().count() > LONGEST_STOP) {
        return Err(fields.wrong(name, format!("has a text of more than {LONGEST_STOP} characters")));
    }
    // An empty text would end every reply at once.
    Ok(stops.into_iter().filter(|stop| !stop.is_empty()).map(str::to_owned).collect())
}

fn biases(fields: &Fields<'_>, vocab: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let Some(given) = fields.object(NAME)? else { return Ok(Vec::new()) };
    let mut biases = Vec::new();
    for (key, _) in given.entries() {
        let Some(id) = key.parse().ok().filter(|id| (*id as usize) < vocab) else {
            let key = shown(&key.into());
            return Err(fields.wrong(NAME, format!("names {key}, and has to name token ids below {vocab}")));
        };
        // A path with the token would make a separate `param` for each token.
        let wrong = |e: ApiError| e.param(fields.path(NAME));
        let Some(bias) = given.number(key, FORBIDS..=-FORBIDS).map_err(wrong)? else { continue };
        biases.push((id, if bias == FORBIDS { f32::NEG_INFINITY } else { bias }));
    }
    if biases.len() > MOST_BIASES {
        let what = format!("names {} tokens, and at most {MOST_BIASES} are taken", biases.len());
        return Err(fields.wrong(NAME, what));
    }
    Ok(biases)
}

/// Reads the number of replies.
///
/// # Errors
/// 400: it is not in `1..=`[`MOST_CHOICES`], or `best_of` is larger.
pub(super) fn choices(fields: &Fields<'_>) -> Result<usize, ApiError> {
    let n = fields.integer("n", 1..=MOST_CHOICES as i64)?.unwrap_or(1);
    if fields.integer("best_of", 1..=i64::from(i32::MAX))?.is_some_and(|best_of| best_of != n) {
        return Err(fields.unserved("best_of", "all replies of n are returned"));
    }
    Ok(n as usize)
}

/// Whether the answer is a stream, and whether the stream ends with a chunk with the usage.
///
/// # Errors
/// 400: a value is wrong.
pub(super) fn stream(fields: &Fields<'_>) -> Result<(bool, bool), ApiError> {
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let Some(options) = fields.object("stream_options")? else { return Ok((stream, false)) };
    Ok((stream, options.boolean("include_usage")?.unwrap_or(false)))
}

/// Whether the model is to think before it answers, by the fields of all APIs, else by the server's defaults. The first
/// one in this list counts. They are advice, so that a value of another kind has no effect.
pub(super) fn thinking(fields: &Fields<'_>, defaults: &Defaults) -> Option<bool> {
    let at = |name: &str, within: &str| match fields.get(name)? {
        Value::Object(object) => object.get(within),
        value => Some(value),
    };
    let is_on = |value: &Value| match value {
        Value::Bool(on) => Some(*on),
        Value::String(word) => Some(!["none", "disabled"].contains(&word.as_str())),
        _ => None,
    };
    let places = [
        ("enable_thinking", ""),
        ("chat_template_kwargs", "enable_thinking"),
        ("think", ""),
        ("thinking", "type"),
        ("reasoning_effort", "effort"),
        ("reasoning", "effort"),
        ("reasoning", "enabled"),
    ];
    let given = places.into_iter().find_map(|(name, within)| is_on(at(name, within)?));
    given.or(defaults.think.then_some(true))
}

/// Reads token ids.
///
/// # Errors
/// 400: an id is not in the vocabulary.
pub(super) fn tokens(values: &[Value], path: &str, vocab: usize) -> Result<Vec<u32>, ApiError> {
    let read = |value: &Value| {
        let id = as_integer(value).ok_or_else(|| wrong_kind(path, value, "token ids"))?;
        u32::try_from(id).ok().filter(|&id| (id as usize) < vocab).ok_or_else(|| {
            let message = format!("{path} has the token {}, and the vocabulary ends below {vocab}", shown(value));
            ApiError::bad(message).param(path).code("invalid_value")
        })
    };
    values.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(body: Value) -> Result<Request, ApiError> {
        read(&Fields::of_body(&body).unwrap(), &["max_completion_tokens", "max_tokens"], 100, &Defaults::default())
    }

    #[test]
    fn each_apis_field_says_whether_to_think_and_another_value_says_nothing() {
        for (body, thinks) in [
            (json!({"enable_thinking": true}), Some(true)),
            (json!({"chat_template_kwargs": {"enable_thinking": false}}), Some(false)),
            (json!({"think": "low"}), Some(true)),
            (json!({"think": false}), Some(false)),
            (json!({"thinking": {"type": "adaptive", "budget_tokens": 1024}}), Some(true)),
            (json!({"thinking": {"type": "disabled"}}), Some(false)),
            (json!({"reasoning_effort": "none"}), Some(false)),
            (json!({"reasoning_effort": {"effort": "high"}}), Some(true)),
            (json!({"reasoning": {"effort": "minimal"}}), Some(true)),
            (json!({"reasoning": {"enabled": false}}), Some(false)),
            (json!({"reasoning": {"summary": "auto"}, "think": 5, "thinking": {}}), None),
            (json!({}), None),
        ] {
            let [of, with] = [false, true].map(|think| Defaults { think, ..Defaults::default() });
            let fields = Fields::of_body(&body).unwrap();
            assert_eq!(thinking(&fields, &of), thinks, "{body}");
            assert_eq!(thinking(&fields, &with), thinks.or(Some(true)), "{body}");
        }
    }

    fn param(body: Value) -> String {
        let Err(e) = ask(body.clone()) else { panic!("{body} is taken") };
        assert_eq!((e.status, e.code.is_some()), (400, true), "{body}");
        e.param.unwrap()
    }

    #[test]
    fn nothing_and_null_give_the_defaults() {
        let default = ask(json!({})).unwrap();
        assert_eq!((default.sampler.clone(), default.limit), (SamplerConfig::default(), usize::MAX));
        assert!(default.reuse && !default.ignore_eos && default.stop.is_empty());
        let null = json!({
            "temperature": null, "top_p": null, "top_k": null, "seed": null, "stop": null, "logit_bias": null,
            "max_tokens": null, "cache_prompt": null, "mirostat": null,
        });
        assert_eq!(ask(null).unwrap().sampler, default.sampler);
    }

    #[test]
    fn what_a_request_leaves_out_is_the_servers_and_what_it_sends_its_own() {
        let sampler = SamplerConfig { temperature: 0.25, top_k: 3, min_p: 0.5, ..SamplerConfig::default() };
        let own = Defaults { sampler: sampler.clone(), limit: 9, ..Defaults::default() };
        let of = |body: Value| read(&Fields::of_body(&body).unwrap(), &["max_tokens"], 100, &own).unwrap();
        let none = of(json!({"temperature": null}));
        assert_eq!((none.sampler, none.limit), (sampler.clone(), 9));
        let some = of(json!({"top_k": 64, "max_tokens": -1}));
        assert_eq!((some.sampler, some.limit), (SamplerConfig { top_k: 64, ..sampler.clone() }, usize::MAX));
        let body = json!({"temperature": 1});
        let lenient = read_lenient(&Fields::of_body(&body).unwrap(), 100, &own).unwrap();
        assert_eq!((lenient.sampler.temperature, lenient.sampler.top_k, lenient.limit), (1.0, 3, 9));
    }

    #[test]
    fn options_arrive_under_all_their_names() {
        let ask = ask(json!({
            "temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0.25, "seed": -2, "presence_penalty": -2,
            "frequency_penalty": 2.0, "repeat_penalty": 1.5, "max_tokens": 7, "max_completion_tokens": 5.0,
            "stop": ["a", "", "b"], "ignore_eos": true, "cache_prompt": false, "typical_p": 1.0, "repeat_last_n": 64,
            "logit_bias": {"3": -100, "4": 0.5, "5": null}, "user": 5, "metadata": [],
        }))
        .unwrap();
        let expected = SamplerConfig {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.25,
            seed: Some(u64::MAX - 1),
            presence_penalty: -2.0,
            frequency_penalty: 2.0,
            repeat_penalty: 1.5,
            bias: vec![(3, f32::NEG_INFINITY), (4, 0.5)],
        };
        assert_eq!((ask.sampler, ask.limit, ask.stop), (expected, 5, vec!["a".to_owned(), "b".to_owned()]));
        assert!(ask.ignore_eos && !ask.reuse);
    }

    #[test]
    fn values_at_the_edges_of_what_clients_send_are_taken() {
        let of = |body: Value| ask(body).unwrap();
        assert_eq!(of(json!({"top_p": 0})).sampler.top_p, 0.0);
        assert_eq!(of(json!({"max_tokens": -1})).limit, usize::MAX);
        assert_eq!(of(json!({"seed": -1})).sampler.seed, None, "a seed is drawn");
        for (given, seed) in [(json!(u64::MAX), u64::MAX), (json!(1_u64 << 63), 1 << 63), (json!(i64::MIN), 1 << 63)] {
            assert_eq!(of(json!({"seed": given})).sampler.seed, Some(seed));
        }
    }

    #[test]
    fn ollamas_options_that_are_not_served_are_left_out() {
        let body = json!({"repeat_last_n": 33, "repeat_penalty": 1.5, "mirostat": 2, "seed": 3, "top_p": 0.5});
        let ask = read_lenient(&Fields::of_body(&body).unwrap(), 100, &Defaults::default()).unwrap();
        assert_eq!((ask.sampler.seed, ask.sampler.top_p), (Some(3), 0.5));
        let wrong = json!({"typical_p": 0.7, "temperature": 9});
        assert_eq!(
            read_lenient(&Fields::of_body(&wrong).unwrap(), 100, &Defaults::default()).err().unwrap().param.unwrap(),
            "temperature"
        );
    }

    /// The largest integer below the range of 64 bits. serde_json reads it as a float, which equals the range's
    /// smallest value.
    fn just_outside() -> Value {
        serde_json::from_str("-9223372036854775809").unwrap()
    }

    #[test]
    fn each_wrong_option_is_named() {
        for (name, values) in [
            ("temperature", vec![json!(-0.1), json!(2.1), json!("1"), json!(true)]),
            ("top_p", vec![json!(-0.1), json!(1.01)]),
            ("top_k", vec![json!(-2), json!(1.5), json!(1e12)]),
            ("min_p", vec![json!(-0.1), json!(1.1)]),
            ("seed", vec![json!("1"), json!(0.5), json!(1e30), json!(-1e30), just_outside()]),
            ("presence_penalty", vec![json!(2.5)]),
            ("frequency_penalty", vec![json!(-2.5), json!([])]),
            ("repeat_penalty", vec![json!(0), json!(10.5)]),
            ("repetition_penalty", vec![json!(-1)]),
            ("max_tokens", vec![json!(0), json!(-2), json!("5")]),
            ("max_completion_tokens", vec![json!(0)]),
            ("stop", vec![json!(1), json!([1]), json!({}), json!(vec!["a"; 17]), json!("a".repeat(1025))]),
            ("logit_bias", vec![json!([]), json!({"a": 1}), json!({"100": 1}), json!({"1": 101}), json!({"1": "1"})]),
            ("ignore_eos", vec![json!(1)]),
            ("cache_prompt", vec![json!("no")]),
        ] {
            for value in values {
                assert_eq!(param(json!({name: value})), name, "{value}");
            }
        }
        assert_eq!(param(json!({"repeat_penalty": 1.5, "repetition_penalty": 1.25})), "repetition_penalty");
    }

    /// Penalties apply to line ends as to all tokens, which Ollama and llama.cpp express by true.
    #[test]
    fn line_ends_without_their_penalty_are_refused_where_there_is_one() {
        for (name, _) in PENALTIES_ARE {
            for penalty in ["repeat_penalty", "presence_penalty", "frequency_penalty"] {
                assert!(ask(json!({name: true, penalty: 1.5})).is_ok(), "{name}");
                assert_eq!(param(json!({name: false, penalty: 1.5})), name);
            }
            assert!(ask(json!({name: false})).is_ok() && ask(json!({name: true, "repeat_penalty": 1})).is_ok());
        }
        assert!(ask(json!({"repeat_last_n": 33, "presence_penalty": 1})).is_ok());
        assert_eq!(param(json!({"repeat_last_n": 33, "repeat_penalty": 1.1})), "repeat_last_n");
    }

    #[test]
    fn many_replies_are_counted_and_the_best_of_more_is_refused() {
        let of = |body: Value| choices(&Fields::of_body(&body).unwrap()).map_err(|e| e.param.unwrap());
        assert_eq!(
            (of(json!({})), of(json!({"n": 128.0})), of(json!({"n": 2, "best_of": 2}))),
            (Ok(1), Ok(128), Ok(2))
        );
        for n in [json!(0), json!(129), json!("2")] {
            assert_eq!(of(json!({"n": n})), Err("n".into()));
        }
        assert_eq!(of(json!({"n": 2, "best_of": 3})), Err("best_of".into()));
    }

    #[test]
    fn tokens_are_those_of_the_vocabulary() {
        let of = |body: Value| tokens(body.as_array().unwrap(), "prompt", 100).map_err(|e| e.param.unwrap());
        assert_eq!(of(json!([0, 99.0])), Ok(vec![0, 99]));
        for bad in [json!([100]), json!([-1]), json!([0.5]), json!(["a"]), json!([null]), json!([1e40])] {
            assert_eq!(of(bad), Err("prompt".into()));
        }
    }
}
