//! API keys of a file, or of an application: no key twice, and no client with two plans.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tollgate_limiter::limit::key::CallerIdentity;

use crate::config::file::identity::keys::RawApiKey;
use crate::config::file::scalar::text::{DefinedName, PlainText};
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::collection::MappingEntry;
use crate::config::yaml::decode::Located;
use crate::identity::api_key::{ApiKeyTable, CredentialHash};

/// The authenticator or the application that knows the clients of keys.
#[derive(Clone, Copy)]
pub enum ClientSpace<'a> {
    Authenticator(&'a str),
    /// All that clients are called begins with it.
    Application(&'a str),
}

/// A client, as each of the authenticators knows it.
type ClientIdentities = Box<[Arc<CallerIdentity>]>;

/// Keys, as they are read one by one.
pub struct ApiKeyEntries<'a> {
    /// Each of them has a table of its own: the clients of two authenticators are different ones.
    spaces: &'a [ClientSpace<'a>],
    /// The place of each key.
    places: HashMap<CredentialHash, Location>,
    /// Each client by its id, for each authenticator, and the place of its first key.
    clients: HashMap<String, (ClientIdentities, Location)>,
    tables: Vec<Vec<(CredentialHash, Arc<CallerIdentity>)>>,
    sound: bool,
}

impl<'a> ApiKeyEntries<'a> {
    pub fn of(spaces: &'a [ClientSpace<'a>]) -> Self {
        let tables = spaces.iter().map(|_| Vec::new()).collect();
        Self {
            spaces,
            places: HashMap::new(),
            clients: HashMap::new(),
            tables,
            sound: true,
        }
    }

    /// Takes an entry, or reports what is wrong with it. `None`: that was reported already.
    pub fn add(&mut self, raw: Option<&RawApiKey>, report: &mut Report) {
        let Some(raw) = raw else {
            self.sound = false;
            return;
        };
        let key = raw.key_sha256.valid();
        if let Some(key) = key
            && let Some(first) = self.places.insert(key.value.0, key.location.clone())
        {
            let problem = ValueProblem::new(format!(
                "this key is on {} already",
                first.line_beside(&key.location)
            ));
            report.mistake(
                &key.location,
                problem.hint("a key is one client's: remove one of the two entries"),
            );
        }
        let identities = self.identities(raw, report);
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
        let new = self
            .spaces
            .iter()
            .map(|space| space.identity(raw).map(Arc::new));
        let new = new.collect::<Option<Box<[_]>>>()?;
        let id = raw.id.value()?.0;
        match self.clients.entry(id) {
            Entry::Vacant(entry) => Some(entry.insert((new, raw.location.clone())).0.clone()),
            Entry::Occupied(entry) => {
                let (first, place) = entry.get();
                if *first != new {
                    report_unlike(raw, entry.key(), place, report);
                }
                Some(first.clone())
            }
        }
    }

    /// The clients of each authenticator by their keys. `None`: a mistake was reported.
    pub fn into_tables(self) -> Option<Vec<ApiKeyTable>> {
        self.sound.then(|| {
            self.tables
                .into_iter()
                .map(ApiKeyTable::from_iter)
                .collect()
        })
    }
}

impl ClientSpace<'_> {
    fn identity(self, raw: &RawApiKey) -> Option<CallerIdentity> {
        let id = raw.id.value();
        let plan = raw.plan.build(|plan| Some(self.own(&plan.value.0)));
        let labels = raw.labels.build(|labels| {
            let label = |entry: &MappingEntry<DefinedName, Located<PlainText>>| {
                Some((
                    entry.key.as_ref()?.0.to_string(),
                    self.own(&entry.value.as_ref()?.value.0),
                ))
            };
            labels.0.iter().map(label).collect()
        });
        let mut identity = match self {
            Self::Authenticator(name) => CallerIdentity::new(name, &id?.0),
            Self::Application(name) => CallerIdentity::of_application(name, &id?.0),
        };
        identity.plan = plan?;
        identity.labels = labels?.unwrap_or_default();
        Some(identity)
    }

    /// The name of a plan or a label in this space.
    fn own(self, text: &str) -> String {
        match self {
            Self::Authenticator(_) => text.to_owned(),
            Self::Application(name) => CallerIdentity::of_application_alone(name, text),
        }
    }
}

/// Two keys of one client have one plan and the same labels, or it would depend on the key who the
/// client is.
fn report_unlike(raw: &RawApiKey, id: &str, first: &Location, report: &mut Report) {
    let place = first.line_beside(&raw.location);
    let problem = ValueProblem::new(format!(
        "{} has another plan or other labels on {place}",
        quote(id)
    ));
    report.mistake(
        &raw.location,
        problem.hint("write the same plan and labels beside each key of a client"),
    );
}
