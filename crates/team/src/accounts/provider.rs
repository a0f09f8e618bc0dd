//! The provider of a gateway, and what its groups may do.

use tollgate_policies::people::{ApplicationRole, FleetRole, Rights};

use tollgate_config::SignInSpec;
use tollgate_identity::openid::provider::{OpenIdPerson, OpenIdProvider};
use tollgate_identity::openid::spec::GroupRole;

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
        let Some(groups) = &person.groups else {
            return Err(UnknownGroups(self.spec.provider.groups_claim.clone()));
        };
        let mut rights = Rights::default();
        for (group, roles) in roles {
            if groups.contains(group) {
                for role in roles {
                    add_role(&mut rights, role);
                }
            }
        }
        Ok(Some(rights))
    }

    pub const fn creates_accounts(&self) -> bool {
        self.spec.creates_accounts
    }
}

/// Gives `rights` the role of a group, unless they have a greater one.
fn add_role(rights: &mut Rights, role: &GroupRole) {
    let (application, role) = match role {
        GroupRole::Viewer => return rights.fleet = rights.fleet.max(Some(FleetRole::Viewer)),
        GroupRole::Operator => return rights.fleet = rights.fleet.max(Some(FleetRole::Operator)),
        GroupRole::Admin => return rights.fleet = rights.fleet.max(Some(FleetRole::Admin)),
        GroupRole::ViewerOf(application) => (application, ApplicationRole::Viewer),
        GroupRole::EditorOf(application) => (application, ApplicationRole::Editor),
        GroupRole::OwnerOf(application) => (application, ApplicationRole::Owner),
    };
    let known = rights
        .applications
        .entry(application.clone())
        .or_insert(role);
    *known = (*known).max(role);
}
