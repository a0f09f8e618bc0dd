//! `openid_connect` of the admin server.

use crate::config::check::store::pem;
use crate::config::file::identity::openid::RawOpenId;
use crate::config::file::scalar::path::FilePath;
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::settings::SignInSpec;
use crate::config::yaml::decode::Located;
use crate::identity::openid::spec::{ClientSecret, GroupRole, OpenIdSpec};
use crate::transport::tls::client::{ClientTls, ClientTlsSpec};

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
    let (roles, creates_accounts) = (roles?, raw.create_accounts.value()?);
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
    let location = raw.ca.valid().map_or(&issuer.location, |ca| &ca.location);
    let tls = ClientTls::new(ClientTlsSpec {
        ca: ca.map(Into::into),
        ..ClientTlsSpec::default()
    });
    let tls = tls.map_err(|error| {
        let problem = ValueProblem::new(format!("no certificate can be verified: {error}"));
        report.mistake(
            location,
            problem.hint("give a PEM file of certificate authorities under ca"),
        );
    });
    Some(Some(tls.ok()?))
}

/// The secret in a file, without the end of its line.
fn secret(
    Located { location, value }: &Located<FilePath>,
    report: &mut Report,
) -> Option<ClientSecret> {
    let read = report
        .named_files
        .read(&value.0, LONGEST_SECRET)
        .map_err(|error| format!("cannot be read: {error}"));
    let text = read.and_then(|text| String::from_utf8(text).map_err(|_| "has no text".to_owned()));
    match text.as_deref().map(str::trim) {
        Ok(secret) if !secret.is_empty() => Some(ClientSecret(secret.into())),
        wrong => {
            let why = wrong.err().map_or("is empty", |why| why.as_str());
            let problem = ValueProblem::new(format!("{} {why}", quote(&value.0.to_string_lossy())));
            report.mistake(
                location,
                problem
                    .hint("write the path of a file with the client secret that the provider gave"),
            );
            None
        }
    }
}
