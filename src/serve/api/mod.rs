//! The paths of the server's API: OpenAI's, Ollama's, Anthropic's, llama.cpp's, and its own.
//!
//! All requests for text take the same way: `table` lists every field of the published interfaces, `fields` reads JSON
//! strictly, `options`, `messages`, `form` and `tools` build a [`Request`](crate::engine::request::Request), and `run`
//! puts it into the queue and formats the answer in the request's API (`run::Wording`). None of them has a connection:
//! `send` writes an answer to a peer, and `own` passes it to a caller in this process.

mod answer;
mod anthropic;
mod calls;
mod chat;
mod completions;
mod dialogue;
mod fields;
mod form;
mod llama;
mod logprobs;
mod messages;
mod models;
mod ollama;
mod once;
mod openapi;
mod options;
mod own;
mod page;
mod probes;
mod responses;
mod run;
mod send;
mod table;
#[cfg(test)]
mod tests;
mod tokenize;
mod tools;

use super::http::{ApiError, Body, ErrorWording, Gone, Handler, HttpRequest, Method, Responder};
use super::model::Model;
use super::service::Service;
use answer::ApiAnswer;
pub(super) use chat::empty_reply;
use dialogue::Dialogue;
use fields::{Fields, shown};
use std::cell::Cell;
use std::sync::Arc;
use tools::Tools;

/// Answers requests for one [`Service`].
pub struct Api {
    service: Arc<Service>,
}

impl Api {
    /// The paths that need no key: health checks for supervisors, and the page's files.
    pub fn open_paths() -> Vec<String> {
        ["/livez", "/readyz", "/health"].into_iter().map(str::to_owned).chain(page::paths()).collect()
    }

    /// An API that answers requests on all of its paths with `service`.
    pub fn new(service: Arc<Service>) -> Api {
        Api { service }
    }
}

/// A method, a path and its handler. A path that ends in `{}` matches any rest.
type Route = (Method, &'static str, fn(&Call<'_>) -> Result<ApiAnswer, ApiError>);

const ROUTES: [Route; 28] = [
    (Method::Post, "/v1/chat/completions", |call| call.read(chat::complete)),
    (Method::Post, "/v1/completions", |call| call.read(completions::complete)),
    (Method::Post, "/v1/responses", |call| call.read(responses::respond)),
    (Method::Get, "/v1/models", models::list),
    (Method::Get, "/v1/models/{}", models::show),
    (Method::Post, "/v1/messages", |call| call.read(anthropic::respond)),
    (Method::Post, "/v1/messages/count_tokens", |call| call.read(anthropic::count)),
    (Method::Post, "/v1/embeddings", probes::no_embeddings),
    (Method::Post, "/tokenize", |call| call.read(tokenize::tokenize)),
    (Method::Post, "/detokenize", |call| call.read(tokenize::detokenize)),
    (Method::Get, "/tokenizer_info", tokenize::info),
    (Method::Post, "/api/chat", |call| call.read(ollama::reply)),
    (Method::Post, "/api/generate", |call| call.read(ollama::reply)),
    (Method::Get, "/api/tags", ollama::tags),
    (Method::Post, "/api/show", |call| call.read(ollama::show)),
    (Method::Get, "/api/version", ollama::version),
    (Method::Get, "/api/ps", ollama::running),
    (Method::Post, "/api/embed", probes::no_embeddings),
    (Method::Post, "/api/embeddings", probes::no_embeddings),
    (Method::Get, "/livez", probes::live),
    (Method::Get, "/readyz", probes::ready),
    (Method::Get, "/health", probes::health),
    (Method::Get, "/metrics", probes::metrics),
    (Method::Get, "/status", probes::status),
    (Method::Get, "/props", llama::props),
    (Method::Get, "/slots", llama::slots),
    (Method::Get, "/openapi.json", openapi::show),
    (Method::Get, "/", page::show),
];

impl Api {
    /// The answer to a request.
    fn answer(&self, request: &HttpRequest, body: Body) -> Result<ApiAnswer, ApiError> {
        let (body, path) = (Cell::new(body), request.path.as_str());
        let of_path = || ROUTES.iter().filter_map(|route| Some((route, rest(route.1, path)?)));
        let call = |rest| Call { service: &self.service, request, body: &body, rest };
        if let Some(((_, _, answer), rest)) = of_path().find(|((method, ..), _)| *method == request.method) {
            return answer(&call(rest));
        }
        let mut allowed: Vec<Method> = of_path().map(|((method, ..), _)| *method).collect();
        if page::has(path) {
            if request.method == Method::Get {
                return page::show(&call(""));
            }
            allowed.push(Method::Get);
        }
        Err(match allowed.is_empty() {
            true => nothing_at(path),
            false => ApiError::method_not_allowed(&allowed),
        })
    }
}

impl Handler for Api {
    fn handle(&self, mut request: HttpRequest, reply: Responder<'_>) -> Result<(), Gone> {
        let body = std::mem::take(&mut request.body);
        let answer = self.answer(&request, body);
        send::send(&self.service, &request, reply, answer)
    }

    /// The error format of a path: Ollama's and Anthropic's on their paths, OpenAI's on all others.
    fn wording(&self, path: &str) -> ErrorWording {
        match path.strip_prefix("/v1/messages") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => anthropic::error,
            None if path.starts_with("/api/") => ollama::error,
            _ => ApiError::to_json,
        }
    }

    fn takes_body(&self, method: Method, path: &str) -> bool {
        method == Method::Post && ROUTES.iter().any(|route| route.0 == method && rest(route.1, path).is_some())
    }
}

/// 404 with a remedy: the alternative for a path of the published interfaces, or the path that the client probably
/// meant. A base URL with `/v1` missing or doubled is the usual cause.
fn nothing_at(path: &str) -> ApiError {
    let absent = table::absent(path).map(str::to_owned);
    let routes = || ROUTES.iter().map(|(_, route, _)| *route).filter(|route| route.len() > 1 && !route.ends_with("{}"));
    let longer = routes().filter(|route| path.ends_with(route)).max_by_key(|route| route.len());
    let shorter = || routes().filter(|route| path.len() > 1 && route.ends_with(path)).min_by_key(|route| route.len());
    let meant = longer.or_else(shorter).map(|route| format!("{route} is answered: correct the client's base URL"));
    let remedy = absent.or(meant).unwrap_or_else(|| "GET /openapi.json has the paths".to_owned());
    let e = ApiError::not_found(path);
    ApiError { message: format!("{}; {remedy}", e.message), ..e }
}

/// The part of a path that matches a route's `{}`; empty for a route without one. `None`: the path does not match.
fn rest<'p>(route: &str, path: &'p str) -> Option<&'p str> {
    match route.strip_suffix("{}") {
        Some(start) => path.strip_prefix(start).filter(|rest| !rest.is_empty()),
        None => (route == path).then_some(""),
    }
}

/// A request that is being answered.
struct Call<'a> {
    service: &'a Service,
    request: &'a HttpRequest,
    /// The request's body, until it is read.
    body: &'a Cell<Body>,
    /// The text in the request's path at the route's `{}`.
    rest: &'a str,
}

impl Call<'_> {
    /// Reads the body by `read`, for the current model, after its fields are checked by the path's table.
    ///
    /// # Errors
    /// 400: the body is not JSON, or a field is unknown. 503: the model is loading. As `read`.
    fn read<T>(&self, read: impl FnOnce(&Self, Arc<Model>, Fields<'_>) -> Result<T, ApiError>) -> Result<T, ApiError> {
        let model = self.service.model()?;
        let coding = self.request.headers.get("content-encoding").map(str::trim);
        if let Some(coding) = coding.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity")) {
            let message = format!("the body is compressed ({}); send it as it is", shown(&coding.into()));
            let e = ApiError::new(415, message).code("unsupported_media_type");
            return Err(e.header("Accept-Encoding", "identity"));
        }
        // Consumed, so that its memory is free during a long reply.
        let body = self.body.take().json()?;
        let fields = Fields::of_body(&body)?;
        table::of(&self.request.path).map_or(Ok(()), |table| table.check(&fields))?;
        read(self, model, fields)
    }

    /// A client's conversation with the server's own parts: its system message if the client sent none, the tools, and
    /// whether the model is to think first.
    fn complete(&self, mut dialogue: Dialogue, fields: &Fields<'_>, tools: Option<&Tools>, model: &Model) -> Dialogue {
        let Service { system, defaults, .. } = self.service;
        dialogue.complete(system.get(), tools, model.template.calls(), options::thinking(fields, &defaults.get()));
        dialogue
    }

    /// The model's name in the answer: the requested name if it is one of the model's. Other names are answered under
    /// the model's own name, because some clients have a fixed one, unless the server is strict about names.
    fn model_name(&self, fields: &Fields<'_>, model: &Model) -> Result<String, ApiError> {
        let Some(asked) = fields.text("model")?.filter(|asked| !asked.is_empty()) else {
            return Ok(model.name.clone());
        };
        match self.own_name(asked, model) {
            Ok(name) => Ok(name.to_owned()),
            Err(e) if self.service.settings.strict_model => Err(e),
            Err(e) => {
                once::warn_once(&format!("{}; requests for it are answered all the same", e.message));
                Ok(model.name.clone())
            }
        }
    }

    /// The model's name that matches `asked`. Ollama's clients add the tag `latest` to a name without a tag.
    ///
    /// # Errors
    /// 404: the name is another model's.
    fn own_name<'n>(&'n self, asked: &str, model: &'n Model) -> Result<&'n str, ApiError> {
        let untagged = asked.strip_suffix(":latest");
        let is_it = |name: &&str| *name == asked || Some(*name) == untagged;
        self.service.names(model).find(is_it).ok_or_else(|| {
            let message = format!("there is no model {}; {} is loaded", shown(&asked.into()), model.name);
            ApiError::new(404, message).param("model").code("model_not_found")
        })
    }
}
