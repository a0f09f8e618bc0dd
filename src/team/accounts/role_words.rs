//! Roles in words.

use tollgate_policies::people::{ApplicationRole, FleetRole, Rights, RoleChange};

/// A role in the fleet, as people write it.
pub fn fleet_word(role: FleetRole) -> &'static str {
    match role {
        FleetRole::Viewer => "viewer",
        FleetRole::Operator => "operator",
        FleetRole::Admin => "admin",
    }
}

/// A role in an application, as people write it.
pub fn application_word(role: ApplicationRole) -> &'static str {
    match role {
        ApplicationRole::Viewer => "viewer",
        ApplicationRole::Editor => "editor",
        ApplicationRole::Owner => "owner",
    }
}

/// `operator; shop: owner`.
pub fn show_rights(rights: &Rights) -> String {
    let fleet = rights.fleet.map(|role| fleet_word(role).to_owned());
    let applications = rights
        .applications
        .iter()
        .map(|(name, role)| format!("{name}: {}", application_word(*role)));
    let all: Vec<_> = fleet.into_iter().chain(applications).collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join("; ")
    }
}

/// `shop: owner, was none`.
pub fn show_role_change(change: &RoleChange, before: &Rights, now: &Rights) -> String {
    let role = |rights: &Rights| match change {
        RoleChange::Fleet(_) => rights.fleet.map(fleet_word),
        RoleChange::Application(name, _) => {
            rights.applications.get(name).copied().map(application_word)
        }
    };
    let place = match change {
        RoleChange::Fleet(_) => "fleet",
        RoleChange::Application(name, _) => name,
    };
    format!(
        "{place}: {}, was {}",
        role(now).unwrap_or("none"),
        role(before).unwrap_or("none")
    )
}
