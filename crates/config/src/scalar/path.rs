//! Paths of files, and of requests that the gateway itself sends.

use std::path::PathBuf;

use http::uri::PathAndQuery;
use serde_json::{Value as Json, json};

use crate::report::{ValueProblem, quote};
use crate::yaml::decode::Scalar;
use crate::yaml::schema::or_variable;

/// The path of a file.
#[derive(Clone)]
pub struct FilePath(pub PathBuf);

impl Scalar for FilePath {
    const WHAT: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if text.is_empty() {
            return Err(ValueProblem::new("the path is empty").hint("write the path of a file"));
        }
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// The path of a probe, with a query if it has one.
#[derive(Clone)]
pub struct ProbePath(pub PathAndQuery);

impl Scalar for ProbePath {
    const WHAT: &'static str = "a path";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let path = text.parse().ok().filter(|_| text.starts_with('/'));
        path.map(Self).ok_or_else(|| {
            ValueProblem::new(format!("{} is not the path of a request", quote(text)))
                .hint("write /healthz")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("/.*") })
    }
}
