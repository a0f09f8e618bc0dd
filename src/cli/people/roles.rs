//! Roles, as the command line takes and shows them.

use clap::Args;
use tollgate_policies::people::{ApplicationRole, FleetRole, Rights, RoleChange};

use tollgate_team::accounts::role_words::{application_word, fleet_word};

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
    /// The role in the fleet. `None`: none was named.
    pub fn fleet(&self) -> Option<FleetRole> {
        if self.admin {
            Some(FleetRole::Admin)
        } else if self.operator {
            Some(FleetRole::Operator)
        } else if self.viewer {
            Some(FleetRole::Viewer)
        } else {
            None
        }
    }

    /// Whether no role was named.
    pub fn is_empty(&self) -> bool {
        self.fleet().is_none() && self.role.is_empty()
    }

    /// The changes that were asked for.
    pub fn changes(&self) -> Vec<RoleChange> {
        let mut changes = Vec::new();
        if let Some(role) = self.fleet() {
            changes.push(RoleChange::Fleet(Some(role)));
        }
        for (application, role) in &self.role {
            changes.push(RoleChange::Application(application.clone(), *role));
        }
        changes
    }

    pub fn rights(&self) -> Rights {
        let mut rights = Rights::default();
        for change in self.changes() {
            rights.give(&change);
        }
        rights
    }
}

fn role(text: &str) -> Result<(String, Option<ApplicationRole>), &'static str> {
    const FORM: &str =
        "write APPLICATION=ROLE with viewer, editor, owner or none, such as shop=editor";
    let (application, role) = text.split_once('=').ok_or(FORM)?;
    if application.is_empty() {
        return Err(FORM);
    }
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
    let mut all = Vec::new();
    if let Some(role) = rights.fleet {
        all.push(fleet_word(role).to_owned());
    }
    for (name, role) in &rights.applications {
        all.push(format!("{name}={}", application_word(*role)));
    }
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
        let mut rights = Rights::new("shop", ApplicationRole::Viewer);
        args.changes().iter().for_each(|change| rights.give(change));
        assert_eq!(show_rights(&rights), "operator, bank=owner");
        for odd in ["shop", "=viewer", "shop=admin", "shop="] {
            role(odd).unwrap_err();
        }
    }
}
