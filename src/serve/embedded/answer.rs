//! Parses an HTTP answer of the server while it arrives.

use crate::{Error, Result};

/// The most headers of an answer.
const MOST_HEADERS: usize = 64;

/// The end of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// After this many more bytes.
    Length(u64),
    /// With the last chunk. The number is the rest of the current chunk, without its line end; `None`: a chunk line is
    /// next.
    Chunks(Option<u64>),
    /// Reached.
    Done,
}

/// An incremental parser of an answer.
#[derive(Debug, Default)]
pub(super) struct ResponseParser {
    /// Bytes not parsed yet.
    raw: Vec<u8>,
    pub status: Option<u16>,
    framing: Option<BodyState>,
    /// Bytes of the body that have not been taken.
    pub body: Vec<u8>,
}

impl ResponseParser {
    pub fn is_done(&self) -> bool {
        self.framing == Some(BodyState::Done)
    }

    pub fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.raw.extend_from_slice(bytes);
        if self.framing.is_none() && !self.take_head()? {
            return Ok(());
        }
        while self.take_part()? {}
        Ok(())
    }

    /// Parses the head if it is complete. Returns whether it is.
    fn take_head(&mut self) -> Result<bool> {
        let wrong = |what: &str| Error::failed(format!("the engine's answer has {what}"), "report this");
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&self.raw).map_err(|e| wrong(&format!("a head that is none: {e}")))?;
        let httparse::Status::Complete(length) = parsed else { return Ok(false) };
        let value = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        self.framing = Some(match (value("transfer-encoding"), value("content-length")) {
            (Some(_), _) => BodyState::Chunks(None),
            (None, Some(length)) => match length.parse().map_err(|_| wrong("a length that is none"))? {
                0 => BodyState::Done,
                length => BodyState::Length(length),
            },
            (None, None) => BodyState::Done,
        });
        self.status = response.code;
        self.raw.drain(..length);
        Ok(true)
    }

    /// Parses a part of the body. Returns whether there may be another.
    fn take_part(&mut self) -> Result<bool> {
        match self.framing {
            Some(BodyState::Length(left)) => {
                let length = self.raw.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.body.extend(self.raw.drain(..length));
                let left = left - length as u64;
                self.framing = Some(if left == 0 { BodyState::Done } else { BodyState::Length(left) });
                Ok(false)
            }
            Some(BodyState::Chunks(None)) => match httparse::parse_chunk_size(&self.raw) {
                Ok(httparse::Status::Partial) => Ok(false),
                Ok(httparse::Status::Complete((_, 0))) => {
                    self.framing = Some(BodyState::Done);
                    Ok(false)
                }
                Ok(httparse::Status::Complete((line, size))) => {
                    self.raw.drain(..line);
                    self.framing = Some(BodyState::Chunks(Some(size)));
                    Ok(true)
                }
                Err(_) => Err(Error::failed("the engine's answer has a chunk that is none", "report this")),
            },
            Some(BodyState::Chunks(Some(size))) => {
                // Includes the line end after the chunk.
                let whole = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(2);
                if self.raw.len() < whole {
                    return Ok(false);
                }
                self.body.extend_from_slice(&self.raw[..whole - 2]);
                self.raw.drain(..whole);
                self.framing = Some(BodyState::Chunks(None));
                Ok(true)
            }
            Some(BodyState::Done) | None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that arrives byte by byte is parsed like one that arrives at once.
    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        for (raw, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, ""),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nb\r\n defghijkl\n\r\n0\r\n\r\n",
                200,
                "abc defghijkl\n",
            ),
        ] {
            for step in [1, 2, 7, raw.len()] {
                let mut answer = ResponseParser::default();
                for piece in raw.as_bytes().chunks(step) {
                    answer.take(piece).unwrap();
                }
                assert_eq!((answer.status, answer.is_done()), (Some(status), true), "{raw:?} by {step}");
                assert_eq!(String::from_utf8(answer.body).unwrap(), body);
            }
        }
        assert!(ResponseParser::default().take(b"no head\r\n\r\n").is_err());
        let mut cut = ResponseParser::default();
        cut.take(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").unwrap();
        assert!(!cut.is_done());
    }
}
