//! An application's API keys.

use std::collections::HashMap;

use crate::report::{Report, ValueProblem};
use crate::scalar::text::{DefinedName, PlainText};
use crate::section::authenticator::key_file::{ApiKeyEntries, ClientId, ClientSpace, RawApiKey};
use crate::section::policies::document::{RawApplication, RawPolicyKey};
use crate::yaml::decode::{Located, Setting};
use tollgate_identity::api_key::ApiKeyTable;

/// Bytes of a label at most.
const LONGEST_LABEL: usize = 256;

/// The application's keys, which are taken out of `raw`. `None`: it has none, or one with a
/// mistake, which was reported.
pub fn table(
    application: &str,
    raw: &mut RawApplication,
    report: &mut Report,
) -> Option<ApiKeyTable> {
    let keys = std::mem::replace(&mut raw.keys, Setting::Absent).into_members();
    if keys.is_empty() {
        return None;
    }
    let mut plans: HashMap<&str, &Located<DefinedName>> = HashMap::new();
    for client in raw.clients.members() {
        if let Some(plan) = &client.value {
            plans.insert(&client.text, plan);
        }
    }
    let space = [ClientSpace::Application(application)];
    let mut entries = ApiKeyEntries::new(&space);
    for key in keys {
        if let Some(raw) = &key.value {
            check_labels(raw, report);
        }
        let raw = match (key.key, key.value) {
            (Some(name), Some(raw)) => Some(as_of_file(&name.0, raw, &plans)),
            _ => None,
        };
        entries.add(raw.as_ref(), report);
    }
    entries.into_tables()?.pop()
}

/// Reports labels that no header field could have.
fn check_labels(raw: &RawPolicyKey, report: &mut Report) {
    for label in raw.labels.members() {
        let Some(Located {
            location,
            value: PlainText(text),
        }) = &label.value
        else {
            continue;
        };
        if text.len() > LONGEST_LABEL || text.contains(char::is_control) {
            let problem = ValueProblem::new(format!(
                "a label has at most {LONGEST_LABEL} bytes, and no control characters"
            ));
            report.mistake(location, problem.hint("shorten it"));
        }
    }
}

/// The key as a file would have it.
fn as_of_file(
    name: &str,
    raw: RawPolicyKey,
    plans: &HashMap<&str, &Located<DefinedName>>,
) -> RawApiKey {
    let RawPolicyKey {
        location,
        key_sha256,
        client,
        labels,
    } = raw;
    let id = match client {
        Setting::Absent => Setting::Valid(Located {
            location: location.clone(),
            value: ClientId(name.to_owned()),
        }),
        written => written,
    };
    let plan = match id.valid().and_then(|id| plans.get(&*id.value.0)) {
        Some(plan) => Setting::Valid(Located {
            location: plan.location.clone(),
            value: DefinedName(plan.value.0.clone()),
        }),
        None => Setting::Absent,
    };
    RawApiKey {
        location,
        id,
        key_sha256,
        plan,
        labels,
    }
}
