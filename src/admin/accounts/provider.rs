//! The provider of a gateway, and what its groups may do.

use tollgate_policies::people::Rights;

use crate::config::SignInSpec;
use crate::identity::openid::provider::{OpenIdPerson, OpenIdProvider};

/// The provider that people sign in at, and what its groups may do.
pub struct ProviderSignIn {
    pub provider: OpenIdProvider,
    spec: SignInSpec,
}

impl ProviderSignIn {
    pub fn new(spec: SignInSpec) -> Self {
        Self { provider: OpenIdProvider::new(spec.provider.clone()), spec }
    }

    /// What somebody's groups may do. `None`: groups do not decide.
    pub fn rights(&self, person: &OpenIdPerson) -> Option<Rights> {
        let mut rights = Rights::default();
        for (_, more) in self.spec.roles.as_ref()?.iter().filter(|(group, _)| person.groups.contains(group)) {
            rights.fleet = rights.fleet.max(more.fleet);
            for (application, role) in &more.applications {
                let known = rights.applications.entry(application.clone()).or_insert(*role);
                *known = (*known).max(*role);
            }
        }
        Some(rights)
    }

    pub const fn creates_accounts(&self) -> bool {
        self.spec.creates_accounts
    }
}
