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
    let mut roles = Vec::new();
    if let Some(role) = rights.fleet {
        roles.push(fleet_word(role).to_owned());
    }
    for (name, role) in &rights.applications {
        roles.push(format!("{name}: {}", application_word(*role)));
    }
    if roles.is_empty() {
        "none".to_owned()
    } else {
        roles.join("; ")
    }
}

/// `shop: owner, was none`.
pub fn show_role_change(change: &RoleChange, before: &Rights, now: &Rights) -> String {
    let place = match change {
        RoleChange::Fleet(_) => "fleet",
        RoleChange::Application(name, _) => name,
    };
    let now = role_at(change, now);
    let before = role_at(change, before);
    format!("{place}: {now}, was {before}")
}

/// The role that `rights` have at the place of a `change`, as people write it.
fn role_at(change: &RoleChange, rights: &Rights) -> &'static str {
    match change {
        RoleChange::Fleet(_) => rights.fleet.map_or("none", fleet_word),
        RoleChange::Application(name, _) => match rights.applications.get(name) {
            Some(role) => application_word(*role),
            None => "none",
        },
    }
}
