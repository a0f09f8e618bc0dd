//! `openid_connect` of the admin server: the provider that people sign in at, and what its groups
//! may do.

use http::Uri;
use serde_json::{Value as Json, json};

use crate::config::file::scalar::path::FilePath;
use crate::config::file::scalar::text::PlainText;
use crate::config::file::store::PemPath;
use crate::config::report::{ValueProblem, quote};
use crate::config::yaml::collection::{Mapping, NonEmptyList, OneOrMore};
use crate::config::yaml::decode::{Located, Scalar};
use crate::config::yaml::record::record;
use crate::config::yaml::schema::or_variable;
use crate::identity::openid::spec::{GroupRole, is_this_machine};

record! {
    /// A provider of OpenID Connect, at which people sign in to the console.
    RawOpenId at location {
        /// The issuer, exactly as it calls itself, such as https://id.example.com/realms/main.
        required issuer: Located<IssuerUrl>,
        /// The id that the provider knows this gateway by.
        required client_id: Located<PlainText>,
        /// A file with the secret that the provider knows this gateway by.
        required client_secret_file: Located<FilePath>,
        /// The scopes that are asked for. Default: openid alone.
        optional scopes: NonEmptyList<Located<PlainText>>,
        /// The claim of the ID token that lists somebody's groups.
        default("groups") groups_claim: Located<PlainText>,
        /// The roles of each group: admin, operator, viewer, or APPLICATION=viewer, editor or
        /// owner. With this key, groups decide at each sign-in.
        optional roles: Mapping<PlainText, OneOrMore<Located<GroupRole>>>,
        /// Whether an account is made at somebody's first sign-in. Otherwise only those who have
        /// one come in.
        default(false) create_accounts: Located<bool>,
        /// The claim that an account is called by that is made so.
        default("preferred_username") name_claim: Located<PlainText>,
        /// A PEM file of the authorities that the provider's certificate may be of. Default: the
        /// system's.
        optional ca: Located<PemPath>,
    }
}

/// The URL of an issuer, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerUrl {
    pub text: String,
    pub is_secure: bool,
    /// Whether it is on this machine.
    pub is_here: bool,
}

impl Scalar for IssuerUrl {
    const WHAT: &'static str = "the URL of an issuer";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = || {
            ValueProblem::new(format!("{} is not the URL of an issuer", quote(text)))
                .hint("write it exactly as the provider does, such as https://id.example.com")
        };
        let uri: Uri = text.parse().map_err(|_| problem())?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(problem()),
        };
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'))
            .ok_or_else(problem)?;
        if text.contains(['?', '#']) {
            return Err(problem());
        }
        Ok(Self {
            text: text.to_owned(),
            is_secure,
            is_here: is_this_machine(authority.host()),
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("https?://[^?#@]+") })
    }
}

impl Scalar for GroupRole {
    const WHAT: &'static str = "a role";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        let problem = || {
            ValueProblem::new(format!("{} is not a role", quote(text)))
                .hint("write admin, operator, viewer, or APPLICATION=viewer, editor or owner, such as shop=editor")
        };
        match text.split_once('=') {
            None => match text {
                "admin" => Ok(Self::Admin),
                "operator" => Ok(Self::Operator),
                "viewer" => Ok(Self::Viewer),
                _ => Err(problem()),
            },
            Some(("", _)) => Err(problem()),
            Some((application, role)) => match role {
                "viewer" => Ok(Self::ViewerOf(application.to_owned())),
                "editor" => Ok(Self::EditorOf(application.to_owned())),
                "owner" => Ok(Self::OwnerOf(application.to_owned())),
                _ => Err(problem()),
            },
        }
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("admin|operator|viewer|[^=]+=(viewer|editor|owner)") })
    }
}
