//! The provider of a gateway, and what its groups may do.

use tollgate_policies::people::Rights;

use crate::config::SignInSpec;
use crate::identity::openid::provider::{OpenIdPerson, OpenIdProvider};

/// The provider that people sign in at, and what its groups may do.
pub struct ProviderSignIn {
    pub provider: OpenIdProvider,
    spec: SignInSpec,
}

/// The provider does not say somebody's groups: the claim that should have them is missing, or is
/// no list of texts.
#[derive(Debug, thiserror::Error)]
#[error("the provider does not say what your groups are (claim {0})")]
pub struct UnknownGroups(String);

impl ProviderSignIn {
    pub fn new(spec: SignInSpec) -> Self {
        Self {
            provider: OpenIdProvider::new(spec.provider.clone()),
            spec,
        }
    }

    /// The rights of somebody's groups. `None`: groups do not decide.
    ///
    /// # Errors
    /// When they decide, and the provider does not say them. That is no word on the roles that
    /// somebody has.
    pub fn rights(&self, person: &OpenIdPerson) -> Result<Option<Rights>, UnknownGroups> {
        let Some(roles) = &self.spec.roles else {
            return Ok(None);
        };
        let groups = person
            .groups
            .as_ref()
            .ok_or_else(|| UnknownGroups(self.spec.provider.groups_claim.clone()))?;
        let mut rights = Rights::default();
        for (_, more) in roles.iter().filter(|(group, _)| groups.contains(group)) {
            rights.fleet = rights.fleet.max(more.fleet);
            for (application, role) in &more.applications {
                let known = rights
                    .applications
                    .entry(application.clone())
                    .or_insert(*role);
                *known = (*known).max(*role);
            }
        }
        Ok(Some(rights))
    }

    pub const fn creates_accounts(&self) -> bool {
        self.spec.creates_accounts
    }
}
