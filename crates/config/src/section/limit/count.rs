//! `count`: the responses that a limit counts.

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::algorithm::Algorithm;
use tollgate_limiter::limit::definition::Consistency;
use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};

use crate::report::{Report, ValueProblem, quote};
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;

record! {
    /// The responses that a limit counts. A request takes its cost before, and gets it back if its
    /// response is none.
    RawCount at location {
        /// Status codes such as 401, or classes of them such as 4xx.
        required status: NonEmptyList<Located<StatusRange>>,
    }
}

impl RawCount {
    /// The status codes, of a limit with these. `None`: a mistake was reported.
    pub fn build(
        &self,
        algorithm: Option<&Algorithm>,
        consistency: Option<Consistency>,
        report: &mut Report,
    ) -> Option<StatusSet> {
        let NonEmptyList(ranges) = self.status.valid()?;
        let problem = match (algorithm, consistency) {
            (Some(Algorithm::Concurrency { .. }), _) => {
                let problem = ValueProblem::new(
                    "a limit of requests in flight cannot count by status: it counts before there is one",
                );
                problem.hint("remove \"count\", or take another algorithm")
            }
            (_, Some(Consistency::Leased)) => {
                let problem = ValueProblem::new(
                    "a leased limit cannot count by status: giving tokens back costs the calls that leasing saves",
                );
                problem.hint("remove \"count\" or \"consistency: leased\"")
            }
            _ => return StatusSet::new(ranges.iter().map(|at| at.value.clone())).ok(),
        };
        report.mistake(&self.location, problem);
        None
    }
}

impl Scalar for StatusRange {
    const WHAT: &'static str = "a status code";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        Self::parse(text).map_err(|_| {
            let problem = ValueProblem::new(format!(
                "{} is not a status code of a response",
                quote(text)
            ));
            problem.hint("write 200 to 599, or 2xx, 3xx, 4xx or 5xx")
        })
    }

    fn schema() -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 200, "maximum": 599 },
            { "type": "string", "pattern": or_variable("[2-5]([0-9]{2}|xx)") },
        ] })
    }
}
