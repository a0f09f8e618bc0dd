//! A file of API keys: no key twice, and no client with two plans.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tollgate_limiter::limit::key::CallerIdentity;

use crate::config::file::identity::keys::RawApiKey;
use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::report::{Report, ValueProblem, quote};
use crate::config::yaml::collection::MappingEntry;
use crate::config::yaml::decode::{Decode as _, Located};
use crate::config::yaml::node::YamlNode;
use crate::identity::api_key::{ApiKeyTable, CredentialHash};

/// A client, as each of the authenticators of a file knows it.
type ClientIdentities = Box<[Arc<CallerIdentity>]>;

/// The entries of a file, as they are read one by one.
pub struct ApiKeyEntries<'a> {
    /// Each of them has a table of its own: the clients of two authenticators are different ones.
    authenticators: &'a [&'a str],
    /// The line of each key.
    lines: HashMap<CredentialHash, usize>,
    /// Each client by its id, for each authenticator, and the line of its first key.
    clients: HashMap<String, (ClientIdentities, usize)>,
    tables: Vec<Vec<(CredentialHash, Arc<CallerIdentity>)>>,
    sound: bool,
}

impl<'a> ApiKeyEntries<'a> {
    pub fn of(authenticators: &'a [&'a str]) -> Self {
        let tables = authenticators.iter().map(|_| Vec::new()).collect();
        Self { authenticators, lines: HashMap::new(), clients: HashMap::new(), tables, sound: true }
    }

    /// Takes an entry, or reports what is wrong with it.
    pub fn add(&mut self, node: &YamlNode, report: &mut Report) {
        let Some(raw) = RawApiKey::decode(node, report) else {
            self.sound = false;
            return;
        };
        let key = raw.key_sha256.valid();
        if let Some(key) = key
            && let Some(line) = self.lines.insert(key.value.0, key.location.line)
        {
            let problem = ValueProblem::new(format!("this key is on line {line} already"));
            report.mistake(&key.location, problem.hint("a key is one client's: remove one of the two entries"));
        }
        let identities = self.identities(&raw, report);
        let Some((key, identities)) = key.zip(identities) else {
            self.sound = false;
            return;
        };
        for (table, identity) in self.tables.iter_mut().zip(identities) {
            table.push((key.value.0, identity));
        }
    }

    /// The client of an entry, as each of the authenticators knows it. Keys of one client share it.
    fn identities(&mut self, raw: &RawApiKey, report: &mut Report) -> Option<ClientIdentities> {
        let new = self.authenticators.iter().map(|name| identity(raw, name).map(Arc::new));
        let new = new.collect::<Option<Box<[_]>>>()?;
        let id = new.first().map(|identity| identity.id().to_owned()).unwrap_or_default();
        match self.clients.entry(id) {
            Entry::Vacant(entry) => Some(entry.insert((new, raw.location.line)).0.clone()),
            Entry::Occupied(entry) => {
                let (first, line) = entry.get();
                if *first != new {
                    report_unlike(raw, entry.key(), *line, report);
                }
                Some(first.clone())
            }
        }
    }

    /// The clients of each authenticator by their keys. `None`: a mistake was reported.
    pub fn into_tables(self) -> Option<Vec<ApiKeyTable>> {
        self.sound.then(|| self.tables.into_iter().map(ApiKeyTable::from_iter).collect())
    }
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
fn report_unlike(raw: &RawApiKey, id: &str, line: usize, report: &mut Report) {
    let problem = ValueProblem::new(format!("{} has another plan or other labels on line {line}", quote(id)));
    report.mistake(&raw.location, problem.hint("write the same plan and labels beside each key of a client"));
}
