//! Properties of all code that reads what a peer, a proxy or an operator wrote. Built for fuzzing and for tests only.
//!
//! Each takes any bytes and panics where a promise is broken. `fuzz/` runs them on new inputs; the test below runs them
//! on the committed ones, so an input that once broke something is tried in every test run.

mod configuration;
mod content;
mod forwarded;
mod hyper_server;
mod path;
mod request;
mod response_head;

/// A property, by the name of its target and of its corpus.
pub type Property = (&'static str, fn(&[u8]));

/// Every property.
pub const PROPERTIES: [Property; 8] = [
    ("configuration", configuration::any_text_is_read_or_refused),
    ("content", content::pieces_make_no_difference),
    ("forwarded", forwarded::a_client_is_its_peer_or_was_named),
    ("forwarded_request", request::a_forwarded_request_is_one_request),
    ("path", path::a_settled_path_has_one_meaning),
    ("request_head", request::pieces_make_no_difference),
    ("request_against_hyper", request::hyper_reads_the_same_requests),
    ("response_head", response_head::pieces_make_no_difference),
];

/// Checks one property on one input.
pub fn check(name: &str, data: &[u8]) {
    if let Some((_, property)) = PROPERTIES.iter().find(|(known, _)| *known == name) {
        property(data);
    }
}

/// Splits `data` in two, at a place that its first byte says. The rest is what a peer sends.
fn split(data: &[u8]) -> (&[u8], usize) {
    let Some((place, rest)) = data.split_first() else { return (data, 0) };
    (rest, rest.len() * usize::from(*place) / 256)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_input_that_was_kept_holds_every_property() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        for (name, property) in PROPERTIES {
            let folder = corpus.join(name);
            let inputs = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            let mut count = 0;
            for input in inputs {
                property(&std::fs::read(input.unwrap().path()).unwrap());
                count += 1;
            }
            assert!(count > 0, "{} is empty", folder.display());
        }
    }
}
