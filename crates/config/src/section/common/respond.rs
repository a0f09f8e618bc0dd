//! `respond`: a fixed answer, of a route or of a limit that degrades.

use http::{HeaderName, HeaderValue, StatusCode};
use tollgate_limiter::limit::fixed_response::FixedResponse;

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::text::PlainText;
use crate::section::common::header::{check_names, is_connection_header};
use crate::yaml::collection::Mapping;
use crate::yaml::decode::{Located, Setting};
use crate::yaml::record::record;

record! {
    /// A fixed answer.
    RawRespond {
        /// The status code.
        default(200) status: Located<StatusCode>,
        /// Header fields.
        optional headers: Mapping<HeaderName, Located<HeaderValue>>,
        /// The body. Default: empty.
        optional body: Located<PlainText>,
    }
}

impl RawRespond {
    /// The answer. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<FixedResponse> {
        let headers = self
            .headers
            .build(|headers| answer_headers(headers, report));
        let status = self.status.value();
        if let (Some(status), Setting::Valid(body)) = (status, &self.body) {
            // RFC 9110 §15.3.5, §15.3.6, §15.4.5.
            let empty = [
                StatusCode::NO_CONTENT,
                StatusCode::RESET_CONTENT,
                StatusCode::NOT_MODIFIED,
            ];
            if empty.contains(&status) && !body.value.0.is_empty() {
                let problem = ValueProblem::new(format!(
                    "an answer with status {} has no body",
                    status.as_u16()
                ));
                report.mistake(
                    &body.location,
                    problem.hint("remove the body or change the status"),
                );
            }
        }
        let body = self.body.build(|body| Some(body.value.bytes()));
        Some(FixedResponse {
            status: status?,
            headers: headers?.unwrap_or_default(),
            body: body?.unwrap_or_default(),
        })
    }
}

/// The header fields of an answer. `None`: a mistake was reported.
pub fn answer_headers(
    headers: &Mapping<HeaderName, Located<HeaderValue>>,
    report: &mut Report,
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    check_names(headers, report);
    for entry in &headers.0 {
        let Some(name) = &entry.key else { continue };
        if !is_connection_header(name) {
            continue;
        }
        let problem = ValueProblem::new(format!(
            "{} is about the connection: the gateway sets it",
            quote(&entry.text)
        ));
        report.mistake(&entry.location, problem.hint("remove it"));
    }
    headers
        .0
        .iter()
        .map(|entry| Some((entry.key.clone()?, entry.value.as_ref()?.value.clone())))
        .collect()
}
