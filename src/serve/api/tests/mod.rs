//! The API over loopback sockets, answered by the demo model on the CPU.

mod access;
mod anthropic;
mod broken;
mod calls;
mod clients;
mod completions;
mod fields;
mod messages;
mod ollama;
mod page;
mod refusals;
mod responses;
mod text;

use super::Api;
use crate::Cancel;
use crate::engine::core::{EngineMonitor, Figure};
use crate::engine::request::{ReplyEnd, ReplyToken};
use crate::engine::{self, Device, ModelFiles, Options};
use crate::executor::DeviceInfo;
use crate::executor::weights::Progress;
use crate::schedule::Schedule;
use crate::sequence::{Batch, Chooser, Finish, Generation, SequenceRequest};
use crate::serve::health::Phase;
use crate::serve::http::{AccessLog, AccessRecord, Guard, Limits, Listen, Server};
use crate::serve::load::loader;
use crate::serve::model::Model;
use crate::serve::served::{LoadedState, ServedModel};
use crate::serve::service::{ServerSettings, Service};
use crate::testing::generate;
use crate::text::SamplerConfig;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// The longest wait of a test for an expected event, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server that runs until the tests end.
pub(super) struct TestServer {
    pub service: Arc<Service>,
    address: SocketAddr,
}

/// The requests that [`DEMO`] has answered.
static DEMO_LOG: Mutex<Vec<AccessRecord>> = Mutex::new(Vec::new());

/// The demo model on the CPU, four sequences at once. All tests share it.
pub(super) static DEMO: LazyLock<TestServer> = LazyLock::new(|| {
    let settings = ServerSettings { aliases: vec!["alias".into()], ..ServerSettings::default() };
    let log = AccessLog::new(|access| DEMO_LOG.lock().unwrap().push(access.clone()));
    start(settings, log, ModelFiles::BuiltIn, 256, ())
});

/// The demo model with a context that has room for tools.
pub(super) static DEMO_WITH_ROOM: LazyLock<TestServer> = LazyLock::new(|| {
    let log = AccessLog::new(|_| {});
    start(ServerSettings::default(), log, ModelFiles::BuiltIn, 1024, ())
});

/// Starts a server with a model on the CPU, four sequences at once. It keeps `held` alive.
fn start(
    settings: ServerSettings,
    log: AccessLog,
    files: ModelFiles,
    context: usize,
    held: impl Send + 'static,
) -> TestServer {
    let served = TestServer::logged(settings, Guard::default(), log);
    let service = served.service.clone();
    let options = Options { context: Some(context), ..options() };
    // The executor cannot leave the thread that made it.
    std::thread::spawn(move || {
        let load = loader(files.clone(), None, options, false);
        let (files, load, service, cancel) = (&files, &load, &*service, Cancel::default());
        let loaded = LoadedState::default();
        let model = ServedModel { id: 1, files, load, service, prefix_file: None, cancel, send: &|_| (), loaded };
        let thread = Rc::new(model).thread();
        let mut core = thread.load().unwrap().unwrap();
        thread.owner.note(Figure::Ready { core: &core, again: false });
        core.run(Duration::MAX).unwrap();
        drop(held);
    });
    wait("the model is loaded", || served.service.model().is_ok());
    served
}

/// A server without an engine: its jobs wait for ever.
pub(super) fn without_engine(settings: ServerSettings) -> TestServer {
    with_model(TestServer::new(settings))
}

/// Adds the demo model to a server without an engine.
fn with_model(served: TestServer) -> TestServer {
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let extent = options().extent(checkpoint.shape()).unwrap();
    let schedule = Schedule::build(checkpoint.shape(), extent, checkpoint.formats(options().weights));
    served.service.set_model(Arc::new(open(&schedule)));
    served.service.health.enter(Phase::Ready);
    served
}

fn options() -> Options {
    Options { device: Device::Cpu, context: Some(256), sequences: 4, head_rows: 4, ..Options::default() }
}

fn open(schedule: &Schedule) -> Model {
    let device = DeviceInfo { name: "the CPU", hardware: "the CPU", is_cpu: true };
    Model::open(1, &ModelFiles::BuiltIn, schedule, device).unwrap()
}

/// Polls until `holds` returns true; `what` describes the event.
pub(super) fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl TestServer {
    pub fn new(settings: ServerSettings) -> TestServer {
        TestServer::guarded(settings, Guard::default())
    }

    pub fn guarded(settings: ServerSettings, guard: Guard) -> TestServer {
        TestServer::logged(settings, guard, AccessLog::default())
    }

    pub fn logged(settings: ServerSettings, guard: Guard, access: AccessLog) -> TestServer {
        let service = Arc::new(Service::new(settings));
        let server = Server::bind(&[Listen::Tcp(([127, 0, 0, 1], 0).into())], Limits::default(), guard).unwrap();
        let server = server.with_access_log(access);
        let address = server.addresses()[0];
        let api = Api::new(service.clone());
        std::thread::spawn(move || server.run(&api));
        TestServer { service, address }
    }

    /// Sends a request as HTTP/1.0 and returns the connection for the answer, whose end is the connection's end.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        self.send(&[head.as_bytes(), body].concat())
    }

    /// Sends raw bytes.
    pub fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> TextResponse {
        TextResponse::read(self.ask("GET", path, b""))
    }

    pub fn post_bytes(&self, path: &str, body: &[u8]) -> TextResponse {
        TextResponse::read(self.ask("POST", path, body))
    }

    pub fn post(&self, path: &str, body: &Value) -> TextResponse {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    /// The answer to a valid request.
    pub fn well(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        answer.json()
    }

    /// The events of a stream that ends cleanly.
    pub fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let answer = self.post(path, &body);
        assert!(answer.is_whole && answer.status == 200, "{answer:?}");
        let mut events: Vec<&str> = answer.body.split("\n\n").filter(|part| !part.is_empty() && *part != ":").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        events.iter().map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct TextResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
    /// Whether the connection ended cleanly.
    pub is_whole: bool,
}

impl TextResponse {
    pub fn read(mut stream: TcpStream) -> TextResponse {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        let is_whole = loop {
            match stream.read(&mut piece) {
                Ok(0) => break true,
                Ok(length) => bytes.extend_from_slice(&piece[..length]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => break false,
                Err(e) => panic!("{e}"),
            }
        };
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        TextResponse { status, head: head.to_owned(), body: body.to_owned(), is_whole }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// The status, `param` and `code` of an error.
    pub fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        let word = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        (self.status, word("param"), word("code"))
    }
}

/// The model's greedy reply without a server.
fn alone(prompt: &[u32], limit: usize) -> Generation {
    let checkpoint = ModelFiles::BuiltIn.checkpoint().unwrap();
    let mut executor = engine::load(&checkpoint, &options(), &Progress::default()).unwrap();
    let model = open(executor.schedule());
    let mut batch = Batch::new(executor.schedule());
    let chooser = Chooser::new(SamplerConfig::greedy(), model.shape.vocab).unwrap();
    let request =
        SequenceRequest { prompt: prompt.to_vec(), chooser, stops: model.stops().to_vec(), limit, reuse: true };
    generate(executor.as_mut(), &mut batch, request, &mut |_| ControlFlow::Continue(())).unwrap().0
}

/// A user's question.
fn question(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

/// A token with this text.
pub(super) fn token(text: &str) -> ReplyToken {
    ReplyToken { id: 0, text: text.into(), thought: String::new(), likelihood: None }
}

/// The end of a reply.
pub(super) fn end() -> ReplyEnd {
    ReplyEnd {
        thought_tokens: 0,
        text: String::new(),
        stop: None,
        generation: Generation { tokens: vec![0; 2], finish: Finish::Stop, ..Generation::new(3, 1) },
        queued: Duration::ZERO,
        prefill: Duration::ZERO,
        decode: Duration::ZERO,
        chooser: Chooser::Greedy,
    }
}
