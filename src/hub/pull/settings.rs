//! Settings of downloads, from the environment variables of the hub's own client.

use std::path::Path;
use std::time::Duration;

use super::super::{Cache, place};
use crate::model::text_file;
use crate::{Error, Result};

/// The URL of the public hub.
const PUBLIC: &str = "https://huggingface.co";
/// The longest token that is read, in bytes. The hub's tokens have 37.
const MAX_TOKEN: usize = 4096;

/// The hub that files are downloaded from, and the cache that they are written to.
#[derive(Clone)]
pub struct PullSettings {
    /// The hub's URL, without a trailing slash.
    pub endpoint: String,
    /// The user's access token for the hub.
    pub token: Option<String>,
    /// The cache that files are written to.
    pub cache: Cache,
    /// The timeouts and the number of retries of requests.
    pub patience: Patience,
}

/// Timeouts and retries of requests.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The longest time without a byte from the server.
    pub silence: Duration,
    /// The most retries in a row without a byte gained.
    pub retries: u32,
    /// The wait before the first retry. It doubles with each retry.
    pub first_wait: Duration,
    /// The longest wait before a retry, unless the server asks for a longer one.
    pub longest_wait: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let seconds = Duration::from_secs;
        Patience { silence: seconds(30), retries: 7, first_wait: seconds(1), longest_wait: seconds(30) }
    }
}

impl PullSettings {
    /// The user's settings: `HF_ENDPOINT`, `HF_TOKEN` or the file that `hf auth login` writes, and the cache.
    ///
    /// # Errors
    /// Input: `HF_HUB_OFFLINE` is set, a variable is not a URL or token, or there is no home directory.
    pub fn of_user() -> Result<PullSettings> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let is_on = |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on");
        if variable("HF_HUB_OFFLINE").is_some_and(is_on) {
            return Err(Error::input("HF_HUB_OFFLINE is set, and a download needs the network", "unset it"));
        }
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| PUBLIC.into());
        let endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        let is_address = ["https://", "http://"].iter().any(|scheme| endpoint.starts_with(scheme));
        if !is_address || endpoint.contains(char::is_whitespace) {
            let cause = format!("HF_ENDPOINT is {endpoint:?}, which is no address of a server");
            return Err(Error::input(cause, format!("set it as in {PUBLIC}, or unset it")));
        }
        let token = variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
        let token = match token {
            Some(token) => Some(token),
            None => place::token_file().map(|file| read_token(&file)).transpose()?.flatten(),
        };
        let token = token.map(|token| token.trim().to_owned());
        if token.as_ref().is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            let cause =
                "the token of the hub (HF_TOKEN, or the file of `hf auth login`) has characters that no token has";
            return Err(Error::input(cause, "copy it anew from https://huggingface.co/settings/tokens"));
        }
        let Some(cache) = Cache::of_user() else {
            return Err(Error::input("there is no home directory for the cache of models", "set HF_HOME"));
        };
        Ok(PullSettings { endpoint, token, cache, patience: Patience::default() })
    }
}

fn read_token(file: &Path) -> Result<Option<String>> {
    let text = text_file::read(file, MAX_TOKEN, "set HF_TOKEN, or log in again with `hf auth login`")?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}
