//! PEM files: the path of one, and its content.

use std::io;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::decode::{Located, Scalar};

/// The path of a PEM file.
#[derive(Clone)]
pub struct PemPath(pub PathBuf);

impl Scalar for PemPath {
    const WHAT: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem =
            || ValueProblem::new("the path is empty").hint("write the path of a PEM file");
        (!text.is_empty())
            .then(|| Self(text.into()))
            .ok_or_else(problem)
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// Bytes of a PEM file at most. Bundles of every public authority have a fifth of it.
const MAX_PEM: u64 = 1 << 20;

/// The content of a PEM file. `None`: a mistake was reported.
pub fn pem(Located { location, value }: &Located<PemPath>, report: &mut Report) -> Option<Vec<u8>> {
    let problem = |error: io::Error| {
        let path = quote(&value.0.to_string_lossy());
        ValueProblem::new(format!("cannot read {path}: {error}")).hint(
            "a path counts from the directory that the gateway is started in, and its user must be able to read it",
        )
    };
    let content = report.named_files.read(&value.0, MAX_PEM);
    content
        .map_err(|error| report.mistake(location, problem(error)))
        .ok()
}
