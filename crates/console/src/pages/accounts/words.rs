//! Rights, as people read and choose them.

use tollgate_policies::people::{ApplicationRole, EarlierTokens, FleetRole};

use crate::forms::ConsoleForm;
use tollgate_admin::problem_details::ProblemDetails;
pub use tollgate_team::accounts::role_words::{show_rights, show_role_change};

/// The role in an application that a form has chosen. `None`: none.
pub fn chosen_role(word: &str) -> Result<Option<ApplicationRole>, ProblemDetails> {
    match word {
        "none" => Ok(None),
        "viewer" => Ok(Some(ApplicationRole::Viewer)),
        "editor" => Ok(Some(ApplicationRole::Editor)),
        "owner" => Ok(Some(ApplicationRole::Owner)),
        _ => Err(ProblemDetails::bad_request(
            "a role in an application is none, viewer, editor or owner",
        )),
    }
}

/// The role in the fleet that a form has chosen. `None`: none.
pub fn chosen_fleet_role(word: &str) -> Result<Option<FleetRole>, ProblemDetails> {
    match word {
        "none" => Ok(None),
        "viewer" => Ok(Some(FleetRole::Viewer)),
        "operator" => Ok(Some(FleetRole::Operator)),
        "admin" => Ok(Some(FleetRole::Admin)),
        _ => Err(ProblemDetails::bad_request(
            "a role in the fleet is none, viewer, operator or admin",
        )),
    }
}

/// Tokens are revoked with a new password, unless the form says otherwise.
pub fn earlier_tokens(form: &ConsoleForm) -> EarlierTokens {
    if form.field("earlier_tokens") == "keep" {
        EarlierTokens::Keep
    } else {
        EarlierTokens::Revoke
    }
}

/// The words for that, after those about sessions.
pub fn and_tokens(tokens: EarlierTokens) -> &'static str {
    match tokens {
        EarlierTokens::Keep => "",
        EarlierTokens::Revoke => ", and the tokens were revoked",
    }
}

#[cfg(test)]
mod tests {
    use tollgate_policies::people::Rights;

    use super::*;

    #[test]
    fn rights_are_shown_in_words() {
        let mut rights = Rights::new("shop", ApplicationRole::Owner);
        rights.fleet = Some(FleetRole::Operator);
        assert_eq!(show_rights(&rights), "operator; shop: owner");
        assert_eq!(show_rights(&Rights::default()), "none");
    }

    #[test]
    fn what_no_form_offers_is_refused() {
        assert_eq!(chosen_role("owner").unwrap(), Some(ApplicationRole::Owner));
        assert_eq!(chosen_fleet_role("none").unwrap(), None);
        chosen_role("admin").unwrap_err();
        chosen_fleet_role("").unwrap_err();
    }
}
