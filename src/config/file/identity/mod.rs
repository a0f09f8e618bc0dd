//! `authenticators`: how clients say who they are. `basic` has the keys of passwords, `keys` mirrors a file of API keys.

pub mod basic;
pub mod keys;

use http::HeaderName;
use tollgate_limiter::limit::key::CertificatePart;

use self::basic::RawBasic;
use crate::config::file::limit::CookieName;
use crate::config::file::scalar::path::FilePath;
use crate::config::file::scalar::text::PlainText;
use crate::config::yaml::decode::Located;
use crate::config::yaml::record::record;

record! {
    /// A way in which clients say who they are. Exactly one of its methods.
    RawAuthenticator at location {
        /// By an API key, whose hash a file has.
        optional api_key: RawApiKeys,
        /// By a user name and a password.
        optional basic: RawBasic,
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
