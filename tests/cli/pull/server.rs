//! A hub on this machine: it lists a repository's files and sends them, and is at fault where a test asks for it.

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// What goes wrong with the answer to one request for a file.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The connection is closed after so many bytes.
    Cut(usize),
    /// Nothing comes after so many bytes, and the connection stays.
    Stall(usize),
    /// The answer says that it has so many bytes less than there are, and has no more.
    Short(usize),
    /// The answer says that it has so many bytes more, and has them.
    Long(usize),
    /// The answer says that it has so many bytes more, and ends without them.
    LongAndCut(usize),
    /// The answer says no length, and ends with the connection.
    NoLength,
    /// The whole file, whichever part was asked for.
    NoRange,
    /// So many bytes of the whole file, whichever part was asked for.
    NoRangeCut(usize),
    /// Another part than was asked for.
    OtherRange,
    /// Other bytes of the same length.
    WrongBytes,
    /// A status, with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// The file has another etag than the list says.
    OtherEtag,
    /// Something that is no HTTP.
    Garbage,
}

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

#[derive(Default)]
pub struct State {
    pub commit: String,
    /// By their paths.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Git's ids of files that are no LFS files.
    pub git: BTreeMap<String, String>,
    /// The next faults of answers to requests for files, and for the list.
    pub faults: VecDeque<Fault>,
    pub list_faults: VecDeque<Fault>,
    /// Where files are sent on to.
    pub elsewhere: Option<String>,
    /// What the list says the model is.
    pub architecture: Option<String>,
    /// Requests for files, and for lists.
    pub requests: Vec<Request>,
    pub lists: Vec<Request>,
}

/// The hub. It ends with the test.
#[derive(Clone)]
pub struct Hub {
    pub address: String,
    state: Arc<Mutex<State>>,
}

impl Hub {
    pub fn start(files: &[(&str, &[u8])]) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        let state = Arc::new(Mutex::new(State { commit: "a".repeat(40), files, ..State::default() }));
        let hub = Hub { address, state };
        let own = hub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                // A client that leaves early is no fault of the hub's.
                std::thread::spawn(move || own.answer(stream));
            }
        });
        hub
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn fail(&self, faults: &[Fault]) {
        self.state().faults.extend(faults.iter().cloned());
    }

    /// What was asked of files since this was asked last.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state().requests)
    }

    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        while let Some(request) = read_request(&mut reader)? {
            let is_list = request.path.starts_with("/api/");
            let fault = {
                let mut state = self.state();
                match is_list {
                    true => state.lists.push(request.clone()),
                    false => state.requests.push(request.clone()),
                }
                if is_list { state.list_faults.pop_front() } else { state.faults.pop_front() }
            };
            let open = match is_list {
                true => self.list(&mut stream, fault)?,
                false => self.file(&mut stream, &request, fault)?,
            };
            if !open {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, stream: &mut TcpStream, fault: Option<Fault>) -> std::io::Result<bool> {
        let body = {
            let state = self.state();
            let siblings: Vec<_> = state
                .files
                .iter()
                .map(|(path, bytes)| match state.git.get(path) {
                    Some(id) => serde_json::json!({"rfilename": path, "size": bytes.len(), "blobId": id}),
                    None => serde_json::json!({
                        "rfilename": path, "size": bytes.len(), "blobId": "0".repeat(40),
                        "lfs": {"sha256": sha256(bytes), "size": bytes.len(), "pointerSize": 134},
                    }),
                })
                .collect();
            let gguf = state.architecture.as_ref().map(|name| serde_json::json!({"architecture": name}));
            serde_json::json!({"sha": state.commit, "siblings": siblings, "gguf": gguf}).to_string().into_bytes()
        };
        match fault {
            Some(Fault::Cut(bytes)) => {
                head(stream, 200, &[("Content-Length", body.len().to_string())])?;
                stream.write_all(&body[..bytes])?;
                Ok(false)
            }
            Some(Fault::Status(status, headers)) => empty(stream, status, &headers),
            Some(Fault::Garbage) => {
                stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")?;
                Ok(false)
            }
            _ => {
                head(stream, 200, &[("Content-Length", body.len().to_string())])?;
                stream.write_all(&body)?;
                Ok(true)
            }
        }
    }

    fn file(&self, stream: &mut TcpStream, request: &Request, fault: Option<Fault>) -> std::io::Result<bool> {
        // `/ORG/NAME/resolve/COMMIT/PATH`, or on the host that files are sent on to `/PATH`.
        let path = request.path.splitn(6, '/').nth(5).unwrap_or(&request.path[1..]).replace("%20", " ");
        let (bytes, etag, elsewhere) = {
            let state = self.state();
            let Some(bytes) = state.files.get(&path).cloned() else {
                return empty(stream, 404, &[("X-Error-Code", "EntryNotFound".into())]);
            };
            let etag = state.git.get(&path).cloned().unwrap_or_else(|| sha256(&bytes));
            (bytes, etag, state.elsewhere.clone())
        };
        let etag = if matches!(fault, Some(Fault::OtherEtag)) { sha256(b"other") } else { etag };
        let linked = [("X-Linked-Etag", format!("\"{etag}\"")), ("X-Linked-Size", bytes.len().to_string())];
        if let Some(host) = elsewhere.filter(|_| fault.is_none()) {
            let mut headers = linked.to_vec();
            headers.push(("Location", format!("{host}/{path}")));
            return empty(stream, 302, &headers);
        }
        let asked =
            request.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let from = match &fault {
            Some(Fault::NoRange | Fault::NoRangeCut(_)) => 0,
            _ => asked.unwrap_or(0usize),
        };
        let mut part = bytes[from.min(bytes.len())..].to_vec();
        let (mut says, mut sent) = (Some(part.len()), part.len());
        let mut first = from;
        match &fault {
            Some(Fault::Status(status, headers)) => return empty(stream, *status, headers),
            Some(Fault::Garbage) => {
                stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")?;
                return Ok(false);
            }
            Some(Fault::Cut(bytes) | Fault::Stall(bytes) | Fault::NoRangeCut(bytes)) => sent = *bytes,
            Some(Fault::Short(less)) => {
                sent -= less;
                says = Some(sent);
            }
            Some(Fault::Long(more)) => {
                part.resize(sent + more, b'!');
                sent = part.len();
                says = Some(sent);
            }
            Some(Fault::LongAndCut(more)) => says = Some(sent + more),
            Some(Fault::NoLength) => says = None,
            Some(Fault::OtherRange) => first = from + 1,
            Some(Fault::WrongBytes) => part.iter_mut().for_each(|byte| *byte ^= 0x55),
            _ => {}
        }
        let mut headers = linked.to_vec();
        headers.extend(says.map(|says| ("Content-Length", says.to_string())));
        if says.is_none() {
            headers.push(("Connection", "close".into()));
        }
        let is_part = asked.is_some() && !matches!(fault, Some(Fault::NoRange | Fault::NoRangeCut(_)));
        if is_part {
            headers.push(("Content-Range", format!("bytes {first}-{}/{}", bytes.len() - 1, bytes.len())));
        }
        head(stream, if is_part { 206 } else { 200 }, &headers)?;
        stream.write_all(&part[..sent])?;
        stream.flush()?;
        match fault {
            None => Ok(true),
            Some(Fault::Stall(_)) => {
                // Until the client has had enough.
                let _ = stream.read(&mut [0]);
                Ok(false)
            }
            Some(_) => Ok(false),
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut request = Request::default();
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let text = line.trim_end();
        match (text, request.path.is_empty()) {
            ("", false) => return Ok(Some(request)),
            (_, true) => request.path = text.split(' ').nth(1).unwrap_or("/").to_owned(),
            _ => {
                let (name, value) = text.split_once(':').unwrap_or((text, ""));
                request.headers.insert(name.to_lowercase(), value.trim().to_owned());
            }
        }
    }
}

fn head(stream: &mut TcpStream, status: u16, headers: &[(&str, String)]) -> std::io::Result<()> {
    let mut text = format!("HTTP/1.1 {status} Said\r\n");
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    stream.write_all((text + "\r\n").as_bytes())
}

fn empty(stream: &mut TcpStream, status: u16, headers: &[(&'static str, String)]) -> std::io::Result<bool> {
    let mut headers = headers.to_vec();
    headers.push(("Content-Length", "0".into()));
    head(stream, status, &headers).map(|()| true)
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
