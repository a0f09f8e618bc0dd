//! Forward authentication as data.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::uri::PathAndQuery;

use crate::method::MethodSpec;

/// A service that is asked about each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSpec {
    pub upstream: Arc<str>,
    pub path: PathAndQuery,
    /// The fields of requests that it gets. `None`: all but those of a connection and of a body.
    pub request_headers: Option<Vec<HeaderName>>,
    /// The fields of its answers that upstreams get.
    pub copy_headers: Vec<HeaderName>,
    /// The field of its answers that has the client's id.
    pub id_header: Option<HeaderName>,
    /// The field of its answers that has the client's plan.
    pub plan_header: Option<HeaderName>,
    /// For its whole answer.
    pub timeout: Duration,
    pub on_failure: OnServiceFailure,
    /// How answers are kept. `None`: they are not.
    pub cache: Option<AnswerCacheSpec>,
}

/// How answers are kept that let a request pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerCacheSpec {
    /// An answer may say less.
    pub max_age: Duration,
    /// An answer does not depend on these.
    pub ignore: Vec<IgnoredPart>,
}

/// A part of a request that an answer may not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredPart {
    Uri,
    Method,
    ClientIp,
}

/// The fate of requests while the service fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnServiceFailure {
    /// Requests are refused.
    Refuse,
    /// Requests go on without an identity.
    Allow,
}

impl MethodSpec for ForwardSpec {
    fn takes_any_place(&self) -> bool {
        true
    }

    /// The fields that only the service can set.
    fn own_fields(&self) -> Vec<HeaderName> {
        let mut fields = self.copy_headers.clone();
        fields.extend(self.id_header.clone());
        fields.extend(self.plan_header.clone());
        fields
    }
}
