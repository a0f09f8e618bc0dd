//! `openid_connect` of the admin server: the provider that people sign in at, and what its groups
//! may do.

use http::Uri;
use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::path::FilePath;
use crate::scalar::pem::{PemPath, pem};
use crate::scalar::text::PlainText;
use crate::settings::SignInSpec;
use crate::yaml::collection::{Mapping, NonEmptyList, OneOrMore};
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use crate::yaml::schema::or_variable;
use tollgate_identity::openid::spec::{ClientSecret, GroupRole, OpenIdSpec, is_this_machine};
use tollgate_wire::regular_file;
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsSpec};

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
        let problem = ValueProblem::new(format!("{} is not the URL of an issuer", quote(text)))
            .hint("write it exactly as the provider does, such as https://id.example.com");
        let Ok(uri) = text.parse::<Uri>() else {
            return Err(problem);
        };
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(problem),
        };
        let Some(authority) = uri.authority() else {
            return Err(problem);
        };
        if authority.as_str().contains('@') || text.contains(['?', '#']) {
            return Err(problem);
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
        let role = match text.split_once('=') {
            None => match text {
                "admin" => Some(Self::Admin),
                "operator" => Some(Self::Operator),
                "viewer" => Some(Self::Viewer),
                _ => None,
            },
            Some(("", _)) => None,
            Some((application, role)) => match role {
                "viewer" => Some(Self::ViewerOf(application.to_owned())),
                "editor" => Some(Self::EditorOf(application.to_owned())),
                "owner" => Some(Self::OwnerOf(application.to_owned())),
                _ => None,
            },
        };
        role.ok_or_else(|| {
            ValueProblem::new(format!("{} is not a role", quote(text))).hint("write admin, operator, viewer, or APPLICATION=viewer, editor or owner, such as shop=editor")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("admin|operator|viewer|[^=]+=(viewer|editor|owner)") })
    }
}

/// The scope without which there is no ID token (OpenID Connect Core §3.1.2.1).
const OPENID: &str = "openid";

const LONGEST_SECRET: u64 = 4_096;

/// How people sign in at a provider. `None`: a mistake was reported.
pub fn sign_in(raw: &RawOpenId, report: &mut Report) -> Option<SignInSpec> {
    let tls = tls(raw, report);
    let secret = raw.client_secret_file.build(|path| secret(path, report));
    let scopes = raw.scopes.build(|list| {
        Some(
            list.0
                .iter()
                .map(|at| at.value.0.to_string())
                .collect::<Vec<_>>(),
        )
    });
    let mut scopes = scopes?.unwrap_or_default();
    if !scopes.iter().any(|scope| scope == OPENID) {
        scopes.insert(0, OPENID.to_owned());
    }
    let roles = raw.roles.build(|groups| {
        let mut roles = Vec::new();
        for entry in &groups.0 {
            roles.push((entry.text.clone(), listed(&entry.value.as_ref()?.0)));
        }
        Some(roles)
    });
    let roles = roles?;
    let creates_accounts = raw.create_accounts.value()?;
    if creates_accounts && roles.is_none() {
        let problem =
            ValueProblem::new("accounts that are made at the first sign-in could do nothing");
        report.mistake(
            &raw.location,
            problem.hint("say under roles what each group of the provider may do"),
        );
        return None;
    }
    let issuer = raw.issuer.value()?;
    Some(SignInSpec {
        provider: OpenIdSpec {
            issuer: issuer.text,
            client_id: raw.client_id.value()?.0.to_string(),
            client_secret: secret??,
            scopes,
            name_claim: raw.name_claim.value()?.0.to_string(),
            groups_claim: raw.groups_claim.value()?.0.to_string(),
            tls: tls?,
        },
        roles,
        creates_accounts,
    })
}

fn listed(roles: &[Located<GroupRole>]) -> Vec<GroupRole> {
    roles.iter().map(|role| role.value.clone()).collect()
}

fn tls(raw: &RawOpenId, report: &mut Report) -> Option<Option<ClientTls>> {
    let issuer = raw.issuer.valid()?;
    if !issuer.value.is_secure {
        if let Some(ca) = raw.ca.valid() {
            let problem = ValueProblem::new("only an https:// issuer has a certificate to verify");
            report.mistake(&ca.location, problem.hint("leave ca out"));
            return None;
        }
        if issuer.value.is_here {
            return Some(None);
        }
        let problem = ValueProblem::new(
            "the provider would be asked in the clear: anybody on the way could sign in",
        );
        report.mistake(
            &issuer.location,
            problem.hint("write https://; http:// is for a provider on this machine"),
        );
        return None;
    }
    let ca = raw.ca.build(|path| pem(path, report))?;
    let location = raw.ca.location_or(&issuer.location);
    let spec = ClientTlsSpec {
        ca: ca.map(Into::into),
        ..ClientTlsSpec::default()
    };
    match ClientTls::new(spec) {
        Ok(tls) => Some(Some(tls)),
        Err(error) => {
            let problem = ValueProblem::new(format!("no certificate can be verified: {error}"));
            report.mistake(
                location,
                problem.hint("give a PEM file of certificate authorities under ca"),
            );
            None
        }
    }
}

/// The secret in a file, without the end of its line.
fn secret(at: &Located<FilePath>, report: &mut Report) -> Option<ClientSecret> {
    let path = &at.value.0;
    let why = match regular_file::read(path, LONGEST_SECRET) {
        Err(error) => format!("cannot be read: {error}"),
        Ok(bytes) => match str::from_utf8(&bytes).map(str::trim) {
            Err(_) => "has no text".to_owned(),
            Ok("") => "is empty".to_owned(),
            Ok(secret) => return Some(ClientSecret(secret.into())),
        },
    };
    let problem = ValueProblem::new(format!("{} {why}", quote(&path.to_string_lossy())));
    let hint = "write the path of a file with the client secret that the provider gave";
    report.mistake(&at.location, problem.hint(hint));
    None
}
