use super::*;

fn with(rights: Rights) -> Caller {
    let headers = HeaderMap::new();
    let parts = CallerParts {
        headers: &headers,
        peer: None,
        session: SessionUse::Ignored,
    };
    Caller {
        rights,
        ..Caller::local(Team::default(), parts)
    }
}

#[test]
fn a_refusal_names_the_least_role() {
    let viewer = with(Rights::new("shop", ApplicationRole::Viewer));
    viewer.may(Operation::View, "shop").unwrap();
    for (operation, application, role) in [
        (
            Operation::Change(ObjectKind::Strategy),
            "shop",
            "editor of the application shop",
        ),
        (
            Operation::Delete(ObjectKind::Strategy),
            "shop",
            "owner of the application shop",
        ),
        (Operation::View, "bank", "viewer of the application bank"),
        (Operation::Delete(ObjectKind::Application), "shop", "admin"),
        (Operation::ViewFleet, "", "viewer of the fleet"),
        (Operation::ActOnFleet, "", "operator"),
        (Operation::ManageAccounts, "", "admin"),
    ] {
        let problem = viewer.may(operation, application).unwrap_err();
        assert!(
            problem.detail.ends_with(&format!("needs the role {role}")),
            "{}",
            problem.detail
        );
    }
}

#[test]
fn limits_of_strategies_are_for_those_of_their_application() {
    let editor = with(Rights::new("shop", ApplicationRole::Editor));
    let change = Operation::Change(ObjectKind::Strategy);
    let may = |application| editor.may_with_limit(application, Operation::ActOnFleet, change);
    may(Some("shop")).unwrap();
    for other in [None, Some("bank"), Some("shops"), Some("")] {
        may(other).unwrap_err();
    }
}

#[test]
fn sessions_are_no_tokens() {
    let bearer = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        bearer(&headers).map(ToOwned::to_owned)
    };
    assert_eq!(bearer("bearer  tgt_a").as_deref(), Some("tgt_a"));
    assert_eq!(
        [
            bearer("Bearer tgs_a"),
            bearer("Basic tgt_a"),
            bearer("tgt_a")
        ],
        [None, None, None]
    );
}
