//! Routes that go by their clients' certificates, through a listener that asks for none.

use tollgate_limiter::limit::key::KeyPart;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::DefinedName;
use crate::section::common::named::NamedSection;
use crate::section::limit::uses::{CheckedUse, parts};
use crate::yaml::decode::{Located, Setting};
use tollgate_identity::spec::{AuthenticationMethod, AuthenticatorSpec};
use tollgate_spec::route::template::{Template, Variable};

/// The parts of a route that may go by a certificate.
pub struct CertificateUses<'a> {
    pub authenticate: &'a Setting<Vec<Located<DefinedName>>>,
    pub authenticators: &'a NamedSection<AuthenticatorSpec>,
    pub limits: &'a [CheckedUse],
}

/// Warns of the first part of a route that goes by a certificate, where `listener` serves it and
/// asks no client for one.
pub fn warn_without_certificates<'t>(
    uses: &CertificateUses<'_>,
    templates: impl Iterator<Item = &'t Located<Template>>,
    listener: &str,
    report: &mut Report,
) {
    let found = uses.authenticator().or_else(|| uses.limit());
    let Some((location, what)) = found.or_else(|| text(templates)) else {
        return;
    };
    let problem = ValueProblem::new(format!(
        "{what} goes by the client's certificate, and {listener} serves the route and asks for none"
    ));
    let hint = "name the listeners with client_ca, and list them under \"listeners\" of the route";
    report.warning(location, problem.hint(hint));
}

fn text<'t>(
    mut templates: impl Iterator<Item = &'t Located<Template>>,
) -> Option<(&'t Location, String)> {
    let at = templates.find(|at| {
        let mut variables = at.value.variables();
        variables.any(|variable| *variable == Variable::CertificateSubject)
    })?;
    Some((&at.location, "this text".to_owned()))
}

impl CertificateUses<'_> {
    /// The authenticator that knows clients by certificates, if no other is asked.
    fn authenticator(&self) -> Option<(&Location, String)> {
        let listed = self.authenticate.valid()?;
        let first = listed.first()?;
        let all = listed.iter().all(|name| {
            let member = self.authenticators.get(&name.value.0);
            member.is_some_and(|spec| {
                matches!(spec.method, AuthenticationMethod::ClientCertificate(_))
            })
        });
        if all {
            let what = format!("authenticator {}", quote(&first.value.0));
            Some((&first.location, what))
        } else {
            None
        }
    }

    fn limit(&self) -> Option<(&Location, String)> {
        let used = self.limits.iter().find(|used| {
            parts(&used.limit_use.limit).any(|part| matches!(part, KeyPart::ClientCertificate(_)))
        })?;
        let what = format!("limit {}", quote(&used.limit_use.limit.name));
        Some((&used.location, what))
    }
}
