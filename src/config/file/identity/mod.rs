//! `authenticators`: how clients say who they are. `keys` mirrors a file of API keys.

pub mod keys;

use std::path::PathBuf;

use http::HeaderName;
use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::CertificatePart;

use crate::config::file::limit::CookieName;
use crate::config::file::scalar::text::PlainText;
use crate::config::report::ValueProblem;
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;

record! {
    /// A way in which clients say who they are. Exactly one of its methods.
    RawAuthenticator at location {
        /// By an API key, whose hash a file has.
        optional api_key: RawApiKeys,
        /// By a part of its certificate: subject, san or fingerprint.
        optional client_certificate: Located<CertificatePart>,
        /// Whether the upstream gets the credential too.
        default(false) forward_credential: Located<bool>,
    }
}

record! {
    /// API keys. Exactly one of header, query and cookie.
    RawApiKeys at location {
        /// The header field that has the key.
        optional header: Located<HeaderName>,
        /// The query parameter that has the key.
        optional query: Located<PlainText>,
        /// The cookie that has the key.
        optional cookie: Located<CookieName>,
        /// The file of keys, which is read again when it changes; `tollgate key new` makes an entry.
        required keys: Located<FilePath>,
    }
}

/// The path of a file.
#[derive(Clone)]
pub struct FilePath(pub PathBuf);

impl Scalar for FilePath {
    const WHAT: &'static str = "the path of a file";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = || ValueProblem::new("the path is empty").hint("write the path of a file");
        (!text.is_empty()).then(|| Self(text.into())).ok_or_else(problem)
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
