//! Any bytes as what a peer sends: requests within their limits, and at most one refusal, at the end.
#![no_main]

use kiln::serve::http::{Limits, Peer, requests};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { head_bytes: 1 << 10, line_bytes: 256, fields: 8, body_bytes: 1 << 10, ..Limits::default() };
    let read = requests(bytes, &Peer::Tcp(([127, 0, 0, 1], 1).into()), &limits);
    for (at, one) in read.iter().enumerate() {
        match one {
            Ok(request) => assert!(request.body.len() <= limits.body_bytes),
            Err(e) => assert!((400..=505).contains(&e.status) && at + 1 == read.len()),
        }
    }
});
