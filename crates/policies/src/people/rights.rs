//! The rights of somebody: a role in each application, and perhaps one in the fleet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{ObjectEdit, ObjectKind};

/// In one application. Each has what those before it have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplicationRole {
    /// Looks.
    Viewer,
    /// Changes strategies, plans and assignments.
    Editor,
    /// Also changes resources and keys, takes objects away, and says who may do what in the
    /// application.
    Owner,
}

/// In all of the fleet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetRole {
    /// Looks at everything.
    Viewer,
    /// Also acts on buckets and nodes.
    Operator,
    /// Everything.
    Admin,
}

/// The roles of an account or the scope of a token.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rights {
    pub fleet: Option<FleetRole>,
    pub applications: BTreeMap<String, ApplicationRole>,
}

/// A role that somebody gets, or loses. Others stay what they are by then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleChange {
    Fleet(Option<FleetRole>),
    Application(String, Option<ApplicationRole>),
}

/// An operation that somebody asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Looks at an application, its history too.
    View,
    /// Makes or changes an object.
    Change(ObjectKind),
    /// Takes an object away.
    Delete(ObjectKind),
    /// Says who has which role in the application.
    ManageRights,
    /// Looks at nodes, buckets, accounts and the audit log.
    ViewFleet,
    /// Resets buckets, drains nodes.
    ActOnFleet,
    ManageAccounts,
}

impl Operation {
    /// The operation of an edit. Its application is the one that the object belongs to.
    pub fn new(edit: &ObjectEdit) -> Self {
        let kind = edit.id.kind();
        if edit.body.is_some() {
            Self::Change(kind)
        } else {
            Self::Delete(kind)
        }
    }
}

impl Rights {
    pub fn admin() -> Self {
        Self {
            fleet: Some(FleetRole::Admin),
            applications: BTreeMap::new(),
        }
    }

    pub fn new(application: &str, role: ApplicationRole) -> Self {
        Self {
            fleet: None,
            applications: [(application.to_owned(), role)].into(),
        }
    }

    pub fn is_admin(&self) -> bool {
        self.fleet == Some(FleetRole::Admin)
    }

    /// Gives one role, or takes it.
    pub fn give(&mut self, change: &RoleChange) {
        match change {
            RoleChange::Fleet(role) => self.fleet = *role,
            RoleChange::Application(application, Some(role)) => {
                self.applications.insert(application.clone(), *role);
            }
            RoleChange::Application(application, None) => {
                self.applications.remove(application);
            }
        }
    }

    /// With what the role in the fleet brings along.
    fn role_in(&self, application: &str) -> Option<ApplicationRole> {
        let fleet = self.fleet.map(|role| match role {
            FleetRole::Viewer | FleetRole::Operator => ApplicationRole::Viewer,
            FleetRole::Admin => ApplicationRole::Owner,
        });
        fleet.max(self.applications.get(application).copied())
    }

    /// The rights that both have.
    pub fn common(&self, other: &Self) -> Self {
        let names = self.applications.keys().chain(other.applications.keys());
        let applications = names.filter_map(|name| {
            let role = self.role_in(name).min(other.role_in(name))?;
            Some((name.clone(), role))
        });
        Self {
            fleet: self.fleet.min(other.fleet),
            applications: applications.collect(),
        }
    }

    /// Whether `other` may do all of what these may.
    pub fn is_within(&self, other: &Self) -> bool {
        self.fleet <= other.fleet
            && self
                .applications
                .keys()
                .all(|name| self.role_in(name) <= other.role_in(name))
    }
}

/// Whether these rights are enough. Operations on the fleet and on accounts are of no application:
/// any will do for them.
pub fn may(rights: &Rights, operation: Operation, application: &str) -> bool {
    let role = rights.role_in(application);
    match operation {
        Operation::View => role >= Some(ApplicationRole::Viewer),
        // An application's bounds are what its owners must keep.
        Operation::Change(ObjectKind::Application) | Operation::Delete(ObjectKind::Application) => {
            rights.is_admin()
        }
        Operation::Change(ObjectKind::Strategy | ObjectKind::Plan | ObjectKind::Assignment) => {
            role >= Some(ApplicationRole::Editor)
        }
        Operation::Change(ObjectKind::Resource | ObjectKind::ApiKey)
        | Operation::Delete(_)
        | Operation::ManageRights => role >= Some(ApplicationRole::Owner),
        Operation::ViewFleet => rights.fleet.is_some(),
        Operation::ActOnFleet => rights.fleet >= Some(FleetRole::Operator),
        Operation::ManageAccounts => rights.is_admin(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations() -> Vec<Operation> {
        let of_kinds = ObjectKind::ALL
            .into_iter()
            .flat_map(|kind| [Operation::Change(kind), Operation::Delete(kind)]);
        let others = [
            Operation::View,
            Operation::ManageRights,
            Operation::ViewFleet,
            Operation::ActOnFleet,
            Operation::ManageAccounts,
        ];
        of_kinds.chain(others).collect()
    }

    /// None, each role in the shop, each in the fleet.
    fn roles() -> [Rights; 7] {
        [
            Rights::default(),
            Rights::new("shop", ApplicationRole::Viewer),
            Rights::new("shop", ApplicationRole::Editor),
            Rights::new("shop", ApplicationRole::Owner),
            Rights {
                fleet: Some(FleetRole::Viewer),
                ..Rights::default()
            },
            Rights {
                fleet: Some(FleetRole::Operator),
                ..Rights::default()
            },
            Rights::admin(),
        ]
    }

    #[test]
    fn every_role_may_do_what_the_table_says() {
        // In their own application, and in another: nobody, viewer, editor, owner, viewer of the
        // fleet, operator, admin.
        let table = [
            (Operation::View, ".vwoVOA", "....VOA"),
            (
                Operation::Change(ObjectKind::Application),
                "......A",
                "......A",
            ),
            (
                Operation::Change(ObjectKind::Resource),
                "...o..A",
                "......A",
            ),
            (
                Operation::Change(ObjectKind::Strategy),
                "..wo..A",
                "......A",
            ),
            (Operation::Change(ObjectKind::Plan), "..wo..A", "......A"),
            (
                Operation::Change(ObjectKind::Assignment),
                "..wo..A",
                "......A",
            ),
            (Operation::Change(ObjectKind::ApiKey), "...o..A", "......A"),
            (
                Operation::Delete(ObjectKind::Application),
                "......A",
                "......A",
            ),
            (
                Operation::Delete(ObjectKind::Resource),
                "...o..A",
                "......A",
            ),
            (
                Operation::Delete(ObjectKind::Strategy),
                "...o..A",
                "......A",
            ),
            (Operation::Delete(ObjectKind::Plan), "...o..A", "......A"),
            (
                Operation::Delete(ObjectKind::Assignment),
                "...o..A",
                "......A",
            ),
            (Operation::Delete(ObjectKind::ApiKey), "...o..A", "......A"),
            (Operation::ManageRights, "...o..A", "......A"),
            (Operation::ViewFleet, "....VOA", "....VOA"),
            (Operation::ActOnFleet, ".....OA", ".....OA"),
            (Operation::ManageAccounts, "......A", "......A"),
        ];
        assert_eq!(
            table.len(),
            operations().len(),
            "every operation has its row"
        );
        for (operation, own, other) in table {
            for (application, row) in [("shop", own), ("bank", other)] {
                for (rights, allowed) in roles().iter().zip(row.chars()) {
                    let found = may(rights, operation, application);
                    assert_eq!(
                        found,
                        allowed != '.',
                        "{rights:?} {operation:?} in {application}"
                    );
                }
            }
        }
    }

    #[test]
    fn common_rights_are_what_both_may() {
        let mut all = roles().to_vec();
        all.push(Rights::new("bank", ApplicationRole::Owner));
        all.push(Rights {
            fleet: Some(FleetRole::Operator),
            ..Rights::new("shop", ApplicationRole::Editor)
        });
        for one in &all {
            for other in &all {
                let common = one.common(other);
                let mut covered = true;
                for operation in operations() {
                    for application in ["shop", "bank", "else"] {
                        let [by_one, by_other, by_common] =
                            [one, other, &common].map(|rights| may(rights, operation, application));
                        assert_eq!(
                            by_common,
                            by_one && by_other,
                            "{one:?} {other:?} {operation:?}"
                        );
                        covered &= !by_one || by_other;
                    }
                }
                assert_eq!(one.is_within(other), covered, "{one:?} within {other:?}");
                assert!(common.is_within(one) && common.is_within(other));
            }
        }
    }

    #[test]
    fn rights_are_written_and_read_as_words() {
        let rights = Rights {
            fleet: Some(FleetRole::Operator),
            ..Rights::new("shop", ApplicationRole::Owner)
        };
        let text = r#"{"fleet":"operator","applications":{"shop":"owner"}}"#;
        assert_eq!(serde_json::to_string(&rights).unwrap(), text);
        assert_eq!(serde_json::from_str::<Rights>(text).unwrap(), rights);
        assert_eq!(
            serde_json::from_str::<Rights>("{}").unwrap(),
            Rights::default()
        );
        assert!(serde_json::from_str::<Rights>(r#"{"fleet":"root"}"#).is_err());
    }
}
