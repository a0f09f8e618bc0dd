//! A file of API keys: no key twice, and no client with two plans.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tollgate_limiter::limit::key::CallerIdentity;

use crate::config::file::identity::keys::RawApiKey;
use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::collection::MappingEntry;
use crate::config::yaml::decode::Located;
use crate::identity::api_key::ApiKeyTable;

/// The clients of an authenticator by their keys. `None`: a mistake was reported.
pub fn table(raws: &[RawApiKey], authenticator: &str, report: &mut Report) -> Option<ApiKeyTable> {
    let mut lines = HashMap::new();
    let mut clients: HashMap<String, (CallerIdentity, usize)> = HashMap::new();
    let mut built = Vec::with_capacity(raws.len());
    for raw in raws {
        let identity = identity(raw, authenticator);
        let key = raw.key_sha256.valid();
        if let Some(key) = key
            && let Some(line) = lines.insert(key.value.0, key.location.line)
        {
            let problem = ValueProblem::new(format!("this key is on line {line} already"));
            report.mistake(&key.location, problem.hint("a key is one client's: remove one of the two entries"));
        }
        if let Some(identity) = &identity {
            check_alike(raw, identity, &mut clients, report);
        }
        built.push(key.map(|key| key.value.0).zip(identity));
    }
    // Not straight into an option: that would stop at the first entry with a mistake.
    built.into_iter().collect()
}

fn identity(raw: &RawApiKey, authenticator: &str) -> Option<CallerIdentity> {
    let id = raw.id.value();
    let plan = raw.plan.build(|plan| Some(plan.value.0.to_string()));
    let labels = raw.labels.build(|labels| {
        let label = |entry: &MappingEntry<DefinedName, Located<PlainText>>| {
            Some((entry.key.as_ref()?.0.to_string(), entry.value.as_ref()?.value.0.to_string()))
        };
        labels.0.iter().map(label).collect()
    });
    let mut identity = CallerIdentity::new(authenticator, &id?.0);
    identity.plan = plan?;
    identity.labels = labels?.unwrap_or_default();
    Some(identity)
}

/// Two keys of one client have one plan and the same labels, or it would depend on the key who the client is.
fn check_alike(
    raw: &RawApiKey,
    identity: &CallerIdentity,
    clients: &mut HashMap<String, (CallerIdentity, usize)>,
    report: &mut Report,
) {
    match clients.entry(identity.id().to_owned()) {
        Entry::Vacant(entry) => drop(entry.insert((identity.clone(), raw.location.line))),
        Entry::Occupied(entry) => {
            let (first, line) = entry.get();
            if first != identity {
                let problem = ValueProblem::new(format!(
                    "{} has another plan or other labels on line {line}",
                    quote(identity.id())
                ));
                report
                    .mistake(&raw.location, problem.hint("write the same plan and labels beside each key of a client"));
            }
        }
    }
}
