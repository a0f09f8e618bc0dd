//! The client of a request, by name: authenticators by API key, password, token and client
//! certificate, and by a service that is asked.
//!
//! A kind of authenticator is a folder: `api_key`, `password`, `jwt`, `forward` and
//! `client_certificate`. Its settings implement the trait of `method`, and its check of a request
//! the trait of `authenticator`. Kinds are registered in `spec` with their settings, and here with
//! their check. `route` has the authenticators of a route together, `credential` finds and removes
//! credentials, and `attempts` bounds those that fail. People sign in to the console by `openid`.

pub mod api_key;
pub mod attempts;
pub mod authenticator;
mod client_certificate;
pub mod credential;
pub mod forward;
mod generations;
pub mod jwt;
pub mod key_table;
pub mod method;
mod metrics;
pub mod openid;
pub mod password;
pub mod refusal;
pub mod route;
pub mod source;
pub mod spec;

use std::collections::HashMap;
use std::sync::Arc;

use api_key::authenticator::ApiKeyAuthenticator;
use authenticator::{Authenticator, BuildContext, CredentialSet, Finding};
use client_certificate::CertificateAuthenticator;
use forward::authenticator::ForwardAuthenticator;
use jwt::authenticator::JwtAuthenticator;
use key_table::ApiKeyTable;
use metrics::AuthenticatorMetrics;
use password::authenticator::BasicAuthenticator;
use source::CredentialSource;
use spec::{AuthenticationMethod, AuthenticatorSpec};

/// The authenticators of the node by name.
pub type Authenticators = HashMap<Arc<str>, Arc<NamedAuthenticator>>;

/// An authenticator with its name, its settings and its metrics. Survives a reload that does not
/// change it.
pub struct NamedAuthenticator {
    pub spec: Arc<AuthenticatorSpec>,
    pub metrics: Arc<AuthenticatorMetrics>,
    kind: Box<dyn Authenticator>,
}

/// The authenticator of a kind at work.
fn build(method: &AuthenticationMethod, context: BuildContext<'_>) -> Box<dyn Authenticator> {
    match method {
        AuthenticationMethod::ApiKey(spec) => Box::new(ApiKeyAuthenticator::new(spec, context)),
        AuthenticationMethod::Basic(spec) => Box::new(BasicAuthenticator::new(spec, context)),
        AuthenticationMethod::Forward(spec) => Box::new(ForwardAuthenticator::new(spec, context)),
        AuthenticationMethod::Jwt(spec) => Box::new(JwtAuthenticator::new(spec, context)),
        AuthenticationMethod::ClientCertificate(part) => {
            Box::new(CertificateAuthenticator::new(*part, context))
        }
    }
}

impl NamedAuthenticator {
    /// An authenticator in place of the one `before` by its name. Metrics go to the recorder that
    /// is installed by now.
    pub fn new(spec: Arc<AuthenticatorSpec>, before: Option<&Self>) -> Self {
        let metrics = Arc::new(AuthenticatorMetrics::new(&spec.name));
        let context = BuildContext {
            name: &spec.name,
            metrics: &metrics,
            predecessor: before.map(|before| &*before.kind),
        };
        let kind = build(&spec.method, context);
        Self {
            spec,
            metrics,
            kind,
        }
    }

    /// Looks for a credential in a request, and checks it.
    pub fn check(
        &self,
        source: CredentialSource<'_>,
        policy_keys: Option<&ApiKeyTable>,
    ) -> Finding {
        self.kind.check(source, policy_keys)
    }

    /// Checks credentials by those that its file has from now on.
    pub fn install(&self, credentials: Box<dyn CredentialSet>) {
        self.metrics.reloaded(Some(credentials.count()));
        self.kind.install(credentials);
    }

    /// Begins the authenticator's work on the control plane, if there is any. Must run inside that
    /// runtime.
    pub fn start_upkeep(&self) {
        if let Some(upkeep) = self.kind.upkeep() {
            tokio::spawn(upkeep);
        }
    }
}
