//! The header fields that may have credentials: none of the message itself, which the next server
//! would lack.

use http::HeaderName;

use crate::report::{Report, ValueProblem, quote};
use crate::section::common::header::refused_in_requests;
use crate::yaml::decode::Located;

/// The header field of a key or a token. `None`: a mistake was reported.
pub fn field(at: &Located<HeaderName>, report: &mut Report) -> Option<HeaderName> {
    if refused_in_requests(&at.value).is_none() {
        return Some(at.value.clone());
    }
    let problem = ValueProblem::new(format!(
        "{} has no credential: it is of the message itself",
        quote(at.value.as_str())
    ));
    report.mistake(
        &at.location,
        problem.hint("choose another field, such as x-api-key"),
    );
    None
}
