//! `kiln serve`: answers other programs over HTTP with one loaded model.

mod access;
mod allowed;
pub mod config;
mod page;

use self::access::AccessLogFile;
use self::config::Configured;
use self::page::PageArgs;
use super::batch::MOST_SEQUENCES;
use super::drafts::DraftArgs;
use super::model::ModelArgs;
use super::reply::{SamplingArgs, number};
use super::{Cli, Command, note, print_json, read_file, signals};
use crate::diagnose::status::url_of;
use crate::display::duration;
use crate::engine::{ModelFiles, Options};
use crate::machine::regular::{self, Links};
use crate::machine::threads;
use crate::serve::api::Api;
use crate::serve::http::{AccessLog, ApiKeys, Guard, Limits, Listen, ListenAddress};
use crate::serve::server::{self, Notice, Reread, ServerOrder, Setup, Started};
use crate::serve::service::{Defaults, ServerSettings};
use crate::text::SamplerConfig;
use crate::version;
use crate::{Error, Result};
use clap::{Args, Parser};
use serde_json::json;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Answers other programs over HTTP, with OpenAI's, Ollama's and Anthropic's interfaces.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = include_str!("help/serve.txt"))]
pub struct ServeArgs {
    /// A file of these options by their long names, in TOML; those of the command line come first. The files of the
    /// folder FILE.d are read after it, in the order of their names [default: $KILN_CONFIG, else /etc/kiln.toml if it
    /// is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Load the model, answer once, and exit
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    model: ModelArgs,
    /// Address to listen at; may be given several times [default: 127.0.0.1:8080, unless --unix or a service manager
    /// says otherwise]
    #[arg(help_heading = "Listening", long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Vec<SocketAddr>,
    /// Unix socket to listen at; may be given several times
    #[arg(help_heading = "Listening", long, value_name = "PATH")]
    unix: Vec<PathBuf>,
    /// Who may connect to the Unix sockets, as permission bits
    #[arg(help_heading = "Listening", long, value_name = "BITS", default_value = "660", value_parser = mode)]
    unix_mode: u32,
    /// Most replies made at once [default: up to 32, as many as fit]
    #[arg(help_heading = "Memory", long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Tokens that the KV cache has room for, of all replies together [default: all of their contexts, or as many as
    /// fit]
    #[arg(help_heading = "Memory", long, value_name = "N")]
    kv_tokens: Option<usize>,
    /// Replies of one client that may wait for a place, and twice as many of all clients; more are answered 503
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    queue: u32,
    /// Another name of the model; may be given several times
    #[arg(help_heading = "Model", long, value_name = "NAME")]
    alias: Vec<String>,
    /// Answer 404 to requests that name another model; without it any name is answered
    #[arg(help_heading = "Model", long)]
    strict_model: bool,
    /// A file with the system message of conversations that bring none
    #[arg(help_heading = "Replies without settings of their own", long, value_name = "FILE")]
    system_prompt: Option<PathBuf>,
    /// Most MiB of the KV cache for prefixes that no reply in progress uses [default: all that replies leave free]
    #[arg(help_heading = "Memory", long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(..1 << 40))]
    prefix_cache: Option<u64>,
    /// A file that keeps the system prompt's part of the KV cache, and that of the prefixes used most, for the next
    /// start
    #[arg(help_heading = "Memory", long, value_name = "FILE")]
    prefix_file: Option<PathBuf>,
    #[command(flatten)]
    defaults: DefaultArgs,
    /// A file of API keys, of which requests need one: on each line a key, or `NAME: KEY`; lines that begin with `#`
    /// are comments. It is read anew when it changes
    #[arg(help_heading = "Access", long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Another file of API keys for one of the places that are listened at, or `none`: an address, a Unix socket's
    /// path, or the FileDescriptorName= of a service manager's; may be given several times
    #[arg(help_heading = "Access", long, value_name = "PLACE=FILE", value_parser = keys_at)]
    keys_at: Vec<KeysAt>,
    /// Let other machines ask without a key
    #[arg(help_heading = "Access", long)]
    allow_all: bool,
    /// A name of this machine that requests may be meant for, beside localhost and its addresses; may be given several
    /// times
    #[arg(help_heading = "Access", long, value_name = "NAME", value_parser = allowed::host)]
    host: Vec<String>,
    /// A site whose pages may call the server from a browser, such as `https://example.org`, or `*` for every site; may
    /// be given several times
    #[arg(help_heading = "Access", long, value_name = "ORIGIN", value_parser = allowed::origin)]
    cors_origin: Vec<String>,
    /// Longest time in milliseconds that prompts hold up other replies' next tokens
    #[arg(help_heading = "Limits", long, value_name = "MS", default_value_t = 250, value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS * 1000))]
    max_gap: u64,
    /// Longest time in seconds that a reply may take, waiting included [default: any]
    #[arg(help_heading = "Limits", long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    deadline: Option<u64>,
    /// Free the model's memory after so many seconds without a request; the next one loads it again [default: never]
    #[arg(help_heading = "Memory", long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    idle_unload: Option<u64>,
    /// Seconds that replies under way may take once the server is told to stop
    #[arg(help_heading = "Limits", long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=MOST_SECONDS))]
    drain: u64,
    /// Largest request in MiB
    #[arg(help_heading = "Limits", long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..1024))]
    max_body: u64,
    /// Most connections at once
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections: u32,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    drafts: DraftArgs,
    /// A file for a line of JSON on each request, without its texts; -: standard error
    #[arg(help_heading = "Log", long, value_name = "FILE", allow_hyphen_values = true)]
    access_log: Option<PathBuf>,
    /// Check the model's files against the sums of its bundle's manifest before each load
    #[arg(help_heading = "Model", long)]
    verify: bool,
    /// The options in the configuration files.
    #[arg(skip)]
    pub(super) configured: Configured,
    /// The arguments that were parsed.
    #[arg(skip)]
    pub(super) arguments: Vec<OsString>,
}

/// A value of `--keys-at`.
#[derive(Debug, Clone)]
struct KeysAt {
    place: ListenAddress,
    /// The file of keys for this address. `None`: requests to it need no key.
    file: Option<PathBuf>,
}

/// Parses a place and the file of its keys.
fn keys_at(text: &str) -> std::result::Result<KeysAt, String> {
    let (place, file) = text
        .split_once('=')
        .filter(|(place, file)| !place.is_empty() && !file.is_empty())
        .ok_or("give PLACE=FILE, such as 0.0.0.0:8080=/etc/kiln/keys, or PLACE=none")?;
    let is_address = place.contains(':') && !place.contains('/');
    let place = if is_address { ListenAddress::Tcp(address(place)?) } else { ListenAddress::Named(place.into()) };
    Ok(KeysAt { place, file: (file != "none").then(|| file.into()) })
}

/// How replies are made where a request does not say.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Replies without settings of their own", mut_arg("temp", |temp| temp.default_value("1")))]
pub struct DefaultArgs {
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Subtract this from the logits of tokens that the reply has
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = number)]
    presence_penalty: f32,
    /// Subtract this from them for each time that the reply has them
    #[arg(long, default_value_t = 0.0, value_name = "P", value_parser = number)]
    frequency_penalty: f32,
    /// Most tokens of replies whose request sets no limit [default: until the model stops, or the context is full]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Let the model think before it answers, if a request does not say and the model can
    #[arg(long)]
    think: bool,
}

impl DefaultArgs {
    /// The server's defaults.
    ///
    /// # Errors
    /// Input: a value is out of its range.
    pub(super) fn read(&self) -> Result<Defaults> {
        let sampler = SamplerConfig {
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            ..self.sampling.config()
        };
        sampler.validate()?;
        let limit = self.max_tokens.map_or(usize::MAX, |most| most as usize);
        Ok(Defaults { sampler, limit, think: self.think })
    }
}

/// True if a reload reads the option again. Other options need a restart.
fn is_reread(name: &str) -> bool {
    let own = PageArgs::augment_args(DefaultArgs::augment_args(clap::Command::new("serve")));
    name == "system-prompt" || own.get_arguments().any(|arg| arg.get_long() == Some(name))
}

/// The longest duration that an option takes: a year.
const MOST_SECONDS: u64 = 366 * 24 * 60 * 60;

/// Parses an address to listen on. A name is looked up.
fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|e| format!("{e}; give ADDRESS:PORT, such as 127.0.0.1:8080"))?;
    found.into_iter().next().ok_or_else(|| "the name has no address".into())
}

/// Parses permission bits, in octal.
fn mode(text: &str) -> std::result::Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| "give three octal digits, such as 660".into())
}

/// Runs the command.
///
/// # Errors
/// Input: the model or the arguments are wrong. Refused: it does not fit. Device: there is none, or it failed.
pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    args.model.check_npu()?;
    let setup = args.setup()?;
    if args.check {
        return check(&setup, json);
    }
    let orders = orders()?;
    server::serve(&setup, orders, Api::new, &mut |notice| {
        if let Notice::Listening(_) = notice {
            print_event(json, "starting", &args.introduction());
        }
        print_notice(&notice, json);
    })
}

impl ServeArgs {
    fn setup(&self) -> Result<Setup> {
        let most = self.batch.map_or(MOST_SEQUENCES, |n| n as usize);
        let system = self.system_prompt.as_deref().map(read_file).transpose()?;
        let system = system.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let defaults = self.defaults.read()?;
        let own_keys = |at: &KeysAt| {
            let keys = at.file.as_deref().map(ApiKeys::read).transpose()?.unwrap_or_default();
            Ok((at.place.clone(), keys))
        };
        let lines = match &self.access_log {
            Some(path) if self.check => AccessLogFile::try_out(path).map(|()| None)?,
            path => path.as_deref().map(AccessLogFile::open).transpose()?.map(Arc::new),
        };
        let access = match lines.clone() {
            Some(lines) => AccessLog::new(move |access| lines.write(access)),
            None => AccessLog::default(),
        };
        let first = self.clone();
        let keys = self.api_key_file.as_deref().map(ApiKeys::read).transpose()?.unwrap_or_default();
        let drafts = self.drafts.read()?;
        let files = self.model.files();
        let own: Vec<ModelFiles> = [files.clone()].into_iter().chain(self.drafts.files()).collect();
        let options = Options {
            sequences: most,
            head_rows: most,
            drafted: drafts.most,
            kv_tokens: self.kv_tokens,
            ..self.model.options()
        };
        options.extent(&files.shape()?)?;
        Ok(Setup {
            load: server::guarded(
                server::loader(files.clone(), self.drafts.files(), options, self.batch.is_none()),
                files.clone(),
                server::BundleRules { verify: self.verify, goes_back: !self.check },
            ),
            files,
            settings: ServerSettings {
                queue: self.queue as usize,
                deadline: self.deadline.map(Duration::from_secs),
                gap: Duration::from_millis(self.max_gap),
                idle_unload: self.idle_unload.map(Duration::from_secs),
                aliases: self.alias.clone(),
                strict_model: self.strict_model,
                system,
                defaults,
                page: self.page.settings()?,
                prefix_bytes: self.prefix_cache.map(|mib| mib << 20),
                prefix_file: self.prefix_file.clone(),
                drafted: drafts.most,
                draft_text: drafts.text,
                ..ServerSettings::default()
            },
            listen: self.places(),
            limits: Limits {
                connections: self.connections as usize,
                body_bytes: (self.max_body as usize) << 20,
                memory_bytes: ((self.max_body as usize) << 24).max(Limits::default().memory_bytes),
                ..Limits::default()
            },
            guard: Guard {
                names: self.host.clone(),
                origins: self.cors_origin.clone(),
                keys,
                keys_at: self.keys_at.iter().map(own_keys).collect::<Result<_>>()?,
                open_paths: Api::open_paths(),
                open_to_all: self.allow_all,
            },
            access,
            is_service: true,
            drain: Duration::from_secs(self.drain),
            stamps: Box::new(move || {
                let stamps = |files: &ModelFiles| files.stamps();
                own.iter().map(stamps).collect::<Option<Vec<_>>>().map(|each| each.concat())
            }),
            reread: Box::new(move || {
                let reopened = lines.as_ref().map_or(Ok(()), |lines| lines.reopen());
                reopened.unwrap_or_else(|e| log::error!("the access log stays where it was: {e}"));
                first.reread()
            }),
        })
    }

    /// The version, and the source of the options.
    fn introduction(&self) -> String {
        let files: Vec<String> = self.configured.files.iter().map(|file| file.display().to_string()).collect();
        let options =
            if files.is_empty() { String::new() } else { format!(", with the options of {}", files.join(", ")) };
        format!("kiln {}{options}", version::describe())
    }

    /// The settings that a reload applies, read from the files again. Reports other changes in the configuration.
    fn reread(&self) -> Result<Reread> {
        let now = match self.arguments.is_empty() {
            true => self.clone(),
            false => match Cli::try_parse_from(&self.arguments).map(|cli| config::apply(cli, &self.arguments)) {
                Ok(Ok(Cli { command: Command::Serve(now), .. })) => *now,
                Ok(Err(e)) => return Err(e),
                Ok(Ok(_)) | Err(_) => self.clone(),
            },
        };
        let differing = self.configured.differing(&now.configured);
        let waiting: Vec<&str> = differing.into_iter().filter(|name| !is_reread(name)).collect();
        if !waiting.is_empty() {
            log::warn!("of the configuration these take a restart: {}", waiting.join(", "));
        }
        // A setting that cannot be read stays as it was.
        let read = |what: &str, e: Error| log::error!("{what} as it was: {e}");
        let system = match &now.system_prompt {
            Some(file) => reread_prompt(file).map_err(|e| read("the system prompt stays", e)).ok().flatten(),
            None => Some(String::new()),
        };
        let defaults = now.defaults.read().map_err(|e| read("the defaults of replies stay", e)).ok();
        let page = now.page.settings().map_err(|e| read("the page stays", e)).ok();
        Ok(Reread { system, defaults, page })
    }

    /// The places to listen on: as given, else those of a service manager, else the default.
    fn places(&self) -> Vec<Listen> {
        let tcp = self.listen.iter().map(|&address| Listen::Tcp(address));
        let unix = self.unix.iter().map(|path| Listen::Unix { path: path.clone(), mode: self.unix_mode });
        let mut places: Vec<Listen> = tcp.chain(unix).collect();
        if std::env::var_os("LISTEN_FDS").is_some() {
            places.push(Listen::Activated);
        }
        if places.is_empty() {
            places.push(Listen::default());
        }
        places
    }
}

/// The current system prompt in a file. `None` for a pipe, which cannot be read again.
///
/// # Errors
/// Input: it cannot be read, or is not UTF-8.
fn reread_prompt(path: &Path) -> Result<Option<String>> {
    match regular::open(path, Links::Follow) {
        Err(regular::ReadFault::Io(_)) if path == Path::new("-") => Ok(None),
        Err(regular::ReadFault::Irregular) if !path.is_dir() => {
            log::warn!(
                "the system prompt stays as it was: {} is no file, which could be read once more",
                path.display()
            );
            Ok(None)
        }
        _ => read_file(path).map(|text| Some(text.trim().to_owned())),
    }
}

/// Orders from signals. SIGHUP reloads the keys, the system prompt, the defaults and the page, and the model if its
/// files have changed. The other signals stop the server, and a second one ends it at once.
///
/// # Errors
/// Failed: signals cannot be caught.
fn orders() -> Result<Receiver<ServerOrder>> {
    let failed = |e| Error::failed(format!("signals cannot be caught: {e}"), "report this");
    let mut signals = Signals::new(signals::stops()).map_err(failed)?;
    let (give, orders) = channel();
    let watch = move || {
        let mut stops = false;
        for signal in signals.forever() {
            let order = if signal == SIGHUP { ServerOrder::Reload } else { ServerOrder::Stop };
            if order == ServerOrder::Stop && std::mem::replace(&mut stops, true) {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            if give.send(order).is_err() {
                return;
            }
        }
    };
    let started = std::thread::Builder::new().name("signals".into()).spawn(watch);
    started.map_err(|e| Error::failed(format!("the thread for signals cannot be started: {e}"), threads::REMEDY))?;
    Ok(orders)
}

fn check(setup: &Setup, json: bool) -> Result<()> {
    let (model, time) = server::check(setup, signals::cancel())?;
    let seconds = time.as_secs_f64();
    if json {
        return print_json(&json!({
            "model": model.name, "device": model.device(), "context": model.context, "slots": model.slots, "first_token_s": seconds,
        }));
    }
    note(&format!(
        "kiln serve: {} answers on {} after {seconds:.1} s; {} replies at once, a context of {} tokens",
        model.name,
        model.device(),
        model.slots,
        model.context
    ));
    Ok(())
}

/// The line that is printed when the server is ready: the model, the device and the addresses.
fn ready(started: &Started) -> String {
    let Started { boot, model, device, context, slots, places } = started;
    let urls: Vec<String> = places.iter().map(|place| url_of(place)).collect();
    format!(
        "ready, {} after the start: kiln {} with {model} on {device}, {slots} replies at once, a context of {context} \
         tokens, at {}",
        duration(boot.as_secs_f64()),
        version::VERSION,
        urls.join(", ")
    )
}

/// Prints a notice on standard error; with `json` as an object.
fn print_notice(notice: &Notice, json: bool) {
    let (event, text) = match notice {
        Notice::Listening(at) => ("listening", format!("listening at {}; loading the model", at.join(", "))),
        Notice::Ready(started) => ("ready", ready(started)),
        Notice::Reloaded => ("reloaded", "the model was loaded anew and answers".into()),
        Notice::Reread => {
            ("reloaded", "the options were read anew; the model's files are the same, and it answers on".into())
        }
        Notice::NotReloaded(e) => (
            "not_reloaded",
            format!("the model was not loaded anew, and the old one answers on: {}", super::face::line(e)),
        ),
        Notice::Unloaded => ("unloaded", "no request has come for a while: the model's memory is free".into()),
        Notice::LoadedAgain => ("loaded_again", "the model was loaded again and answers".into()),
        Notice::NotLoadedAgain(e) => (
            "not_loaded_again",
            format!("the model was not loaded again, which the next request tries: {}", super::face::line(e)),
        ),
        Notice::Draining => ("draining", "stopping; completing what is under way".into()),
        Notice::Stopped => ("stopped", "stopped".into()),
    };
    print_event(json, event, &text);
}

/// Prints a message on standard error; with `json` as an object.
fn print_event(json: bool, event: &str, text: &str) {
    match json {
        true => {
            let mut object = super::log_object("info", text);
            object["event"] = event.into();
            note(&super::terminal::json_for_terminal(&object.to_string()));
        }
        false => note(&format!("kiln serve: {text}")),
    }
}
