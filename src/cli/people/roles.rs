//! Roles, as the command line takes and shows them.

use clap::Args;
use tollgate_policies::people::{ApplicationRole, FleetRole, Rights, RoleChange};

use crate::team::accounts::role_words::{application_word, fleet_word};

/// Roles for somebody, or for a token.
#[derive(Clone, Debug, Args)]
pub struct RoleArgs {
    /// May do everything.
    #[arg(long, conflicts_with_all = ["operator", "viewer"])]
    admin: bool,
    /// May look at everything, and change buckets.
    #[arg(long, conflicts_with = "viewer")]
    operator: bool,
    /// May look at everything.
    #[arg(long)]
    viewer: bool,
    /// A role in an application: viewer, editor or owner.
    #[arg(long, value_name = "APPLICATION=ROLE", value_parser = role)]
    role: Vec<(String, Option<ApplicationRole>)>,
}

impl RoleArgs {
    /// The role in the fleet. `None`: nothing was said of it.
    pub fn fleet(&self) -> Option<FleetRole> {
        let said = [
            (self.admin, FleetRole::Admin),
            (self.operator, FleetRole::Operator),
            (self.viewer, FleetRole::Viewer),
        ];
        said.into_iter()
            .find(|(is_said, _)| *is_said)
            .map(|(_, role)| role)
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.fleet().is_none() && self.role.is_empty()
    }

    /// The changes that were asked for.
    pub fn changes(&self) -> Vec<RoleChange> {
        let fleet = self.fleet().map(|role| RoleChange::Fleet(Some(role)));
        let roles = self
            .role
            .iter()
            .map(|(application, role)| RoleChange::Application(application.clone(), *role));
        fleet.into_iter().chain(roles).collect()
    }

    pub fn rights(&self) -> Rights {
        let mut rights = Rights::default();
        self.changes().iter().for_each(|change| rights.give(change));
        rights
    }
}

fn role(text: &str) -> Result<(String, Option<ApplicationRole>), &'static str> {
    const FORM: &str =
        "write APPLICATION=ROLE with viewer, editor, owner or none, such as shop=editor";
    let (application, role) = text
        .split_once('=')
        .filter(|(application, _)| !application.is_empty())
        .ok_or(FORM)?;
    let role = match role {
        "viewer" => Some(ApplicationRole::Viewer),
        "editor" => Some(ApplicationRole::Editor),
        "owner" => Some(ApplicationRole::Owner),
        "none" => None,
        _ => return Err(FORM),
    };
    Ok((application.to_owned(), role))
}

/// `admin, shop=editor`.
pub fn show_rights(rights: &Rights) -> String {
    let fleet = rights.fleet.map(|role| fleet_word(role).to_owned());
    let applications = rights
        .applications
        .iter()
        .map(|(name, role)| format!("{name}={}", application_word(*role)));
    let all: Vec<_> = fleet.into_iter().chain(applications).collect();
    if all.is_empty() {
        "no role".to_owned()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_given_and_taken() {
        let taken = vec![role("shop=none").unwrap(), role("bank=owner").unwrap()];
        let args = RoleArgs {
            admin: false,
            operator: true,
            viewer: false,
            role: taken,
        };
        let mut rights = Rights::of("shop", ApplicationRole::Viewer);
        args.changes().iter().for_each(|change| rights.give(change));
        assert_eq!(show_rights(&rights), "operator, bank=owner");
        for odd in ["shop", "=viewer", "shop=admin", "shop="] {
            role(odd).unwrap_err();
        }
    }
}
