//! Properties of all code that reads what a peer, a proxy or an operator wrote. Built for fuzzing
//! and for tests only.
//!
//! A property takes any bytes and panics where a promise is broken. `fuzz/` runs properties on new
//! inputs; the test below runs them on the committed ones, so that every test run tries an input
//! that once broke something.

#![expect(clippy::panic, reason = "a promise that is broken ends the run")]

mod configuration;
mod content;
mod forwarded;
mod frames;
mod hyper_server;
mod path;
mod pieces;
mod redis_reply;
mod request;
mod response_head;

/// A property, by the name of its target and of its corpus.
pub type Property = (&'static str, fn(&[u8]));

/// Every property.
pub const PROPERTIES: [Property; 10] = [
    ("configuration", configuration::any_text_is_read_or_refused),
    ("content", content::pieces_make_no_difference),
    ("forwarded", forwarded::a_client_is_its_peer_or_was_named),
    (
        "forwarded_request",
        request::a_forwarded_request_is_one_request,
    ),
    (
        "frames",
        frames::a_forwarded_request_says_what_its_frames_say,
    ),
    ("path", path::a_settled_path_has_one_meaning),
    ("redis_reply", redis_reply::only_a_grant_is_read_as_one),
    ("request_head", request::pieces_make_no_difference),
    (
        "request_against_hyper",
        request::hyper_reads_the_same_requests,
    ),
    ("response_head", response_head::pieces_make_no_difference),
];

/// Checks one property on one input.
pub fn check(name: &str, data: &[u8]) {
    if let Some((_, property)) = PROPERTIES.iter().find(|(known, _)| *known == name) {
        property(data);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fastrand::Rng;

    use super::*;

    /// Pieces with a meaning for some reader.
    const WORDS: [&[u8]; 24] = [
        b"\r\n",
        b"\n",
        b"\r",
        b": ",
        b" ",
        b"\t",
        b"\0",
        b",",
        b";",
        b"0\r\n\r\n",
        b"\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Host: b\r\n",
        b"Connection: close, content-length\r\n",
        b"GET / HTTP/1.1\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"/../",
        b"%2e%2E",
        b"%2F",
        b"..;",
        b"\xff",
        b"ffffffffffffffff",
    ];

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(name);
        let inputs = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        inputs
            .map(|input| std::fs::read(input.unwrap().path()).unwrap())
            .collect()
    }

    /// An input changed in a few places.
    fn mutate(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[rng.usize(..inputs.len())].clone();
        for _ in 0..rng.usize(1..5) {
            let at = rng.usize(..=bytes.len());
            let end = (at + rng.usize(..12)).min(bytes.len());
            match rng.u8(..5) {
                0 => drop(bytes.splice(at..end, [])),
                1 => bytes.insert(at, rng.u8(..)),
                2 => drop(bytes.splice(at..at, WORDS[rng.usize(..WORDS.len())].iter().copied())),
                3 => {
                    let other = &inputs[rng.usize(..inputs.len())];
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[rng.usize(..=other.len())..]);
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
                _ => {}
            }
        }
        bytes
    }

    /// A fuzzer's work of hours, for a moment. `FUZZ_ROUNDS=100000` goes on longer.
    #[test]
    fn changed_inputs_hold_every_property() {
        let rounds = match std::env::var("FUZZ_ROUNDS") {
            Ok(rounds) => rounds.parse().unwrap(),
            Err(_) => 2_000,
        };
        for (name, property) in PROPERTIES {
            let mut rng = Rng::with_seed(7);
            let inputs = corpus(name);
            for _ in 0..rounds {
                let input = mutate(&mut rng, &inputs);
                let held = std::panic::catch_unwind(|| property(&input));
                assert!(
                    held.is_ok(),
                    "{name} does not hold for {:?}",
                    input.escape_ascii().to_string()
                );
            }
        }
    }

    #[test]
    fn every_input_that_was_kept_holds_every_property() {
        for (name, property) in PROPERTIES {
            let inputs = corpus(name);
            assert!(!inputs.is_empty(), "the corpus of {name} is empty");
            inputs.iter().for_each(|input| property(input));
        }
    }
}
