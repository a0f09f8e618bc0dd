//! PEM files: the path of one, and its content.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::yaml::decode::{Located, Scalar};
use tollgate_wire::regular_file;

/// The path of a PEM file.
#[derive(Clone)]
pub struct PemPath(pub PathBuf);

impl Scalar for PemPath {
    const WHAT: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.is_empty() {
            return Err(ValueProblem::new("the path is empty").hint("write the path of a PEM file"));
        }
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// Bytes of a PEM file at most. Bundles of every public authority have a fifth of it.
const MAX_PEM: u64 = 1 << 20;

/// The content of a PEM file. `None`: a mistake was reported.
pub fn pem(at: &Located<PemPath>, report: &mut Report) -> Option<Vec<u8>> {
    let path = &at.value.0;
    match regular_file::read(path, MAX_PEM) {
        Ok(content) => Some(content),
        Err(error) => {
            let shown = quote(&path.to_string_lossy());
            let problem = ValueProblem::new(format!("cannot read {shown}: {error}"));
            let hint = "a path counts from the directory that the gateway is started in, and its user must be able to read it";
            report.mistake(&at.location, problem.hint(hint));
            None
        }
    }
}
