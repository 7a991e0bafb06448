//! The paths that the server answers: OpenAI's, Ollama's, and its own.
//!
//! A request for text goes one way: `fields` reads its JSON strictly, `options`, `messages`, `form` and `tools` make an
//! [`Ask`](super::job::Ask) of it, and `run` puts that into the queue and answers with what comes of it, in the words of its
//! API (`run::Wording`).

mod chat;
mod completions;
mod fields;
mod form;
mod logprobs;
mod messages;
mod models;
mod ollama;
mod openapi;
mod options;
mod page;
mod probes;
mod responses;
mod run;
#[cfg(test)]
mod tests;
mod tokenize;
mod tools;

use super::http::{ApiError, Body, Gone, Handler, JSON, Json, Method, Reply, Request};
use super::model::Model;
use super::service::Service;
use fields::Fields;
use serde_json::{Value, json};
use std::cell::Cell;
use std::sync::Arc;

/// Answers requests for one [`Service`].
pub struct Api {
    service: Arc<Service>,
}

impl Api {
    /// The paths that need no key: what supervisors ask, and the page's files.
    pub fn open_paths() -> Vec<String> {
        ["/livez", "/readyz", "/health"].into_iter().chain(page::paths()).map(str::to_owned).collect()
    }

    /// The paths of a service.
    pub fn new(service: Arc<Service>) -> Api {
        Api { service }
    }
}

/// A path, its method, and what answers it. A path that ends in `{}` takes any rest.
type Route = (Method, &'static str, fn(&Call<'_>, Reply<'_>) -> Result<(), Gone>);

const ROUTES: [Route; 19] = [
    (Method::Post, "/v1/chat/completions", chat::complete),
    (Method::Post, "/v1/completions", completions::complete),
    (Method::Post, "/v1/responses", responses::respond),
    (Method::Get, "/v1/models", models::list),
    (Method::Get, "/v1/models/{}", models::show),
    (Method::Post, "/tokenize", tokenize::tokenize),
    (Method::Post, "/detokenize", tokenize::detokenize),
    (Method::Post, "/api/chat", ollama::chat),
    (Method::Post, "/api/generate", ollama::generate),
    (Method::Get, "/api/tags", ollama::tags),
    (Method::Post, "/api/show", ollama::show),
    (Method::Get, "/api/version", ollama::version),
    (Method::Get, "/livez", probes::live),
    (Method::Get, "/readyz", probes::ready),
    (Method::Get, "/health", probes::health),
    (Method::Get, "/metrics", probes::metrics),
    (Method::Get, "/status", probes::status),
    (Method::Get, "/openapi.json", openapi::send),
    (Method::Get, "/", page::send),
];

impl Handler for Api {
    fn handle(&self, mut request: Request, reply: Reply<'_>) -> Result<(), Gone> {
        let body = Cell::new(std::mem::take(&mut request.body));
        let path = request.path.as_str();
        let of_path = || ROUTES.iter().filter_map(|route| Some((route, rest(route.1, path)?)));
        let call = |rest| Call { service: &self.service, request: &request, body: &body, rest };
        if let Some(((_, _, answer), rest)) = of_path().find(|((method, ..), _)| *method == request.method) {
            return answer(&call(rest), reply);
        }
        let mut allowed: Vec<Method> = of_path().map(|((method, ..), _)| *method).collect();
        if page::has(path) {
            if request.method == Method::Get {
                return page::send(&call(""), reply);
            }
            allowed.push(Method::Get);
        }
        let e = match allowed.is_empty() {
            true => ApiError::not_found(path),
            false => ApiError::method_not_allowed(&allowed),
        };
        call("").refuse(reply, &e)
    }

    fn takes_body(&self, method: Method, path: &str) -> bool {
        method == Method::Post && ROUTES.iter().any(|route| route.0 == method && rest(route.1, path).is_some())
    }
}

/// What a path has in the place of a route's `{}`; empty where the route has none. `None`: it is another path.
fn rest<'p>(route: &str, path: &'p str) -> Option<&'p str> {
    match route.strip_suffix("{}") {
        Some(start) => path.strip_prefix(start).filter(|rest| !rest.is_empty()),
        None => (route == path).then_some(""),
    }
}

/// A request on its way to an answer.
struct Call<'a> {
    service: &'a Service,
    request: &'a Request,
    /// Until it is read.
    body: &'a Cell<Body>,
    /// What the path has in the place of the route's `{}`.
    rest: &'a str,
}

impl Call<'_> {
    /// The body, which is JSON and is read once: a reply may take long, and its request's memory is others' by then.
    fn body(&self) -> Result<Json, ApiError> {
        self.body.take().json()
    }

    /// What the answer calls the model: the name that it is asked by, where that is one of its own.
    fn model_name(&self, fields: &Fields<'_>, model: &Model) -> Result<String, ApiError> {
        let asked = fields.text("model")?.filter(|asked| self.service.names(model).any(|name| name == *asked));
        Ok(asked.unwrap_or(&model.name).to_owned())
    }

    /// Sends a value, or says why there is none.
    fn answer(&self, reply: Reply<'_>, value: Result<Value, ApiError>) -> Result<(), Gone> {
        match value {
            Ok(value) => reply.json(200, &value),
            Err(e) => self.refuse(reply, &e),
        }
    }

    /// Says what is wrong, as Ollama does on its paths.
    fn refuse(&self, reply: Reply<'_>, e: &ApiError) -> Result<(), Gone> {
        self.note_failure(e);
        if !self.request.path.starts_with("/api/") {
            return reply.error(e);
        }
        let headers: Vec<(&str, &str)> = e.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        reply.send(e.status, JSON, &headers, json!({"error": e.message}).to_string().as_bytes())
    }

    /// Counts an error that is the server's.
    fn note_failure(&self, e: &ApiError) {
        if e.status >= 500 {
            self.service.metrics.errors.inc();
        }
    }
}
