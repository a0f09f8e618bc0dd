//! `forward` of an authenticator: the service that is asked, what it gets, and what is taken from
//! its answers.

use http::HeaderName;

use crate::config::file::health::ProbePath;
use crate::config::file::scalar::number::{BoundedDuration, DAY};
use crate::config::file::scalar::text::DefinedName;
use crate::config::yaml::collection::NonEmptyList;
use crate::config::yaml::decode::Located;
use crate::config::yaml::record::record;
use crate::config::yaml::words::words;
use crate::identity::forward::spec::{IgnoredPart, OnServiceFailure};

record! {
    /// A service that is asked about each request.
    RawForwardAuth {
        /// The upstream that the service is.
        required upstream: Located<DefinedName>,
        /// The path that is asked for, with a query if it has one.
        default("/") path: Located<ProbePath>,
        /// The fields of requests that the service gets. Default: all but those of a connection and
        /// of a body.
        optional request_headers: NonEmptyList<Located<HeaderName>>,
        /// The fields of its answers that go upstream with the request. Clients cannot set them.
        optional copy_headers: NonEmptyList<Located<HeaderName>>,
        /// The field of its answers that has the client's id.
        optional id_header: Located<HeaderName>,
        /// The field of its answers that has the client's plan.
        optional plan_header: Located<HeaderName>,
        /// For its whole answer.
        default("5s") timeout: Located<BoundedDuration<DAY>>,
        /// Requests while the service fails: refuse them (503), or allow them, without an identity.
        default("refuse") on_failure: Located<OnServiceFailure>,
        /// Keeps answers that let a request pass. Default: the service is asked about every
        /// request.
        optional cache: RawAnswerCache,
    }
}

record! {
    /// How answers of a service are kept.
    RawAnswerCache at location {
        /// How long at most, such as 30s. The answer's Cache-Control may say less.
        required max_age: Located<BoundedDuration<3_600_000, 100>>,
        /// Parts of a request that the answer does not depend on: uri, method, client_ip. Default:
        /// it depends on all that the service gets.
        optional ignore: NonEmptyList<Located<IgnoredPart>>,
    }
}

words! {
    IgnoredPart: "a part of a request" { "uri" => Uri, "method" => Method, "client_ip" => ClientIp }
}

words! {
    OnServiceFailure: "refuse or allow" { "refuse" => Refuse, "allow" => Allow }
}
