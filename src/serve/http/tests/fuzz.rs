//! Valid requests with random damage. `KILN_FUZZ_ROUNDS` sets their number, `KILN_FUZZ_SEED` the seed.

use super::super::incoming::{Incoming, TimedRead};
use super::super::socket::ReadStop;
use super::super::testing::requests_of;
use super::*;
use crate::text::testing::Random;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

const VALID: [&str; 6] = [
    "GET /v1/models?a=b%20c&d HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n",
    "POST /v1/chat HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n{\"a\": [1, 2]}",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\na\r\n, worldly!\r\n0\r\nT: 1\r\n\r\n",
    "HEAD http://127.0.0.1/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\r\nAccess-Control-Request-Method: GET\r\n\r\n",
    "DELETE /%C3%A9 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
];
const PIECES: [&str; 16] = [
    "\r\n",
    "\n",
    "\r",
    " ",
    "\0",
    ":",
    ",",
    "chunked",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 3\r\n",
    "Host: a\r\n",
    "\r\n\r\n",
    "ffffffffffffffff",
    "-1",
    "%",
    "\u{e9}",
];

/// One or several valid requests in sequence, with a few damaged places.
fn damaged(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.index(3) {
        bytes.extend_from_slice(VALID[random.index(VALID.len())].as_bytes());
    }
    for _ in 0..random.index(5) {
        let at = random.index(bytes.len());
        let end = (at + random.index(20)).min(bytes.len());
        match random.index(5) {
            0 => bytes[at] = random.index(256) as u8,
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(at..at, PIECES[random.index(PIECES.len())].bytes())),
            3 => {
                let copied = bytes[at..end].to_vec();
                bytes.splice(at..at, copied.repeat(1 + random.index(3)));
            }
            _ => bytes.truncate(at.max(1)),
        }
        if bytes.is_empty() {
            bytes.push(b'\n');
        }
    }
    bytes
}

/// Bytes that arrive in pieces of random lengths.
struct RandomChunks<'a>(&'a [u8], Random);

impl TimedRead for RandomChunks<'_> {
    fn read(&mut self, into: &mut [u8], deadline: Instant) -> Result<usize, ReadStop> {
        let most = 1 + self.1.index(12);
        let length = into.len().min(most);
        TimedRead::read(&mut self.0, &mut into[..length], deadline)
    }
}

#[test]
fn damaged_requests_are_read_or_refused_in_one_way_however_they_are_cut_into_pieces() {
    let seed = setting("KILN_FUZZ_SEED", 1);
    let mut random = Random(seed | 1 << 40);
    let limits = Limits { head_bytes: 300, line_bytes: 100, fields: 5, body_bytes: 40, ..patient() };
    let peer = Peer::Tcp(([127, 0, 0, 1], 1).into());
    let (mut read, mut refused) = (0, 0);
    for round in 0..setting("KILN_FUZZ_ROUNDS", 20_000) {
        let bytes = damaged(&mut random);
        let whole = requests(&bytes, &peer, &limits);
        let mut pieces = Incoming::new(RandomChunks(&bytes, Random(seed + round)));
        let cut = requests_of(&mut pieces, &peer, &limits);
        // The division into pieces may change which fault is found first, but not whether there is one, nor earlier
        // requests.
        fn shape(all: &[Result<HttpRequest, ApiError>]) -> Vec<Option<&HttpRequest>> {
            all.iter().map(|one| one.as_ref().ok()).collect()
        }
        let name = || format!("seed {seed}, round {round}: {:?}", String::from_utf8_lossy(&bytes));
        assert_eq!(shape(&whole), shape(&cut), "{}", name());
        for one in &whole {
            match one {
                Ok(request) => {
                    assert!(request.body.len() <= limits.body_bytes && request.headers.0.len() <= limits.fields);
                    read += 1;
                }
                Err(e) => {
                    assert!((400..=505).contains(&e.status) && e.status != 408 && e.status != 500, "{}: {e:?}", name());
                    refused += 1;
                }
            }
        }
    }
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}

#[test]
fn a_server_answers_damaged_requests_or_closes_and_goes_on() {
    let seed = setting("KILN_FUZZ_SEED", 1);
    let mut random = Random(seed | 1 << 41);
    let server = RunningServer::echo();
    for round in 0..setting("KILN_FUZZ_ROUNDS", 20_000) / 100 {
        let bytes = damaged(&mut random);
        let mut client = server.connect();
        client.send(&bytes).half_close();
        while client.more() {}
        let answered = client.read.is_empty() || client.read.starts_with(b"HTTP/1.1 ");
        assert!(answered, "seed {seed}, round {round}: {:?}", String::from_utf8_lossy(&bytes));
    }
    assert_eq!(server.connect().get("/").status, 200);
}
