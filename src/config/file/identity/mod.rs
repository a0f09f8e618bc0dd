//! `authenticators`: how clients say who they are. `basic` has the keys of passwords, `forward`
//! those of a service that is asked, `jwt` those of tokens, `keys` mirrors a file of API keys.

pub mod basic;
pub mod forward;
pub mod jwt;
pub mod keys;
pub mod openid;

use http::HeaderName;
use tollgate_limiter::limit::key::CertificatePart;

use self::basic::{RawBasic, RawFailedAttempts};
use self::forward::RawForwardAuth;
use self::jwt::RawJwt;
use crate::config::file::limit::CookieName;
use crate::config::file::scalar::number::{BoundedDuration, DAY};
use crate::config::file::scalar::path::FilePath;
use crate::config::file::scalar::text::{DefinedName, OnlyTrue, PlainText};
use crate::config::yaml::decode::Located;
use crate::config::yaml::record::record;

record! {
    /// A way in which clients say who they are. Exactly one of its methods.
    RawAuthenticator at location {
        /// By an API key, whose hash a file has.
        optional api_key: RawApiKeys,
        /// By a user name and a password.
        optional basic: RawBasic,
        /// By a service that is asked about each request.
        optional forward: RawForwardAuth,
        /// By a token of an issuer.
        optional jwt: RawJwt,
        /// By a part of its certificate: subject, san or fingerprint.
        optional client_certificate: Located<CertificatePart>,
        /// Whether the upstream gets the credential too.
        default(false) forward_credential: Located<bool>,
    }
}

record! {
    /// API keys. Exactly one of header, query and cookie, and one of keys, redis and policies.
    RawApiKeys at location {
        /// The header field that has the key.
        optional header: Located<HeaderName>,
        /// The query parameter that has the key.
        optional query: Located<PlainText>,
        /// The cookie that has the key.
        optional cookie: Located<CookieName>,
        /// The file of keys, which is read again when it changes; `tollgate key new` makes an
        /// entry.
        optional keys: Located<FilePath>,
        /// A hash in Redis that has the keys.
        optional redis: RawStoredKeys,
        /// The keys of policies: a route takes those of the application that it is of.
        optional policies: Located<OnlyTrue>,
    }
}

record! {
    /// API keys in a hash of the store: clients, as JSON, by the SHA-256 of their keys.
    RawStoredKeys at location {
        /// The name of the hash, behind the store's key_prefix.
        required hash: Located<DefinedName>,
        /// How long a key that was read is not read again.
        default("30s") remember: Located<BoundedDuration<DAY>>,
        /// How long a key is taken after that while the store is away.
        default("10m") grace: Located<BoundedDuration<DAY, 0>>,
        /// How many unknown keys of a client address are looked up. Default: {rate: 10/m, burst:
        /// 10}.
        optional failed_attempts: RawFailedAttempts,
    }
}
