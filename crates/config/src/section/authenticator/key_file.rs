//! A file of API keys, or those of an application: clients, each with the hash of its key. No key
//! is there twice, and no client has two plans.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::limit::key::CallerIdentity;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::scalar::text::{DefinedName, PlainText};
use crate::yaml::collection::{Mapping, MappingEntry};
use crate::yaml::decode::{Located, Scalar};
use crate::yaml::record::record;
use tollgate_identity::api_key::{ApiKeyTable, CredentialHash};

record! {
    /// A key, and the client that has it.
    RawApiKey at location {
        /// The client. Several keys may have one id: the old one and the new one.
        required id: Located<ClientId>,
        /// The SHA-256 of the key, in hexadecimal digits.
        required key_sha256: Located<KeyHash>,
        /// A plan that limits may go by.
        optional plan: Located<DefinedName>,
        /// Further names that limits and header fields may go by.
        optional labels: Mapping<DefinedName, Located<PlainText>>,
    }
}

/// The name of a client, which is in logs and header fields.
#[derive(Clone)]
pub struct ClientId(pub String);

/// The SHA-256 of a key.
#[derive(Clone)]
pub struct KeyHash(pub CredentialHash);

impl Scalar for ClientId {
    const WHAT: &'static str = "the id of a client";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        if (1..=256).contains(&text.len())
            && !text.contains(char::is_control)
            && text.trim() == text
        {
            return Ok(Self(text.to_owned()));
        }
        Err(ValueProblem::new("this is not the id of a client")
            .hint("1 to 256 bytes, without control characters"))
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Scalar for KeyHash {
    const WHAT: &'static str = "a SHA-256";

    /// Reads the digits. Messages do not quote them: the text may be the key itself.
    fn read(text: &str) -> Result<Self, ValueProblem> {
        let digits = text.as_bytes().as_chunks::<2>();
        let mut hash = CredentialHash::default();
        if digits.0.len() != hash.len()
            || !digits.1.is_empty()
            || !text.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return Err(not_a_hash());
        }
        for (byte, pair) in hash.iter_mut().zip(digits.0) {
            let pair = str::from_utf8(pair).map_err(|_| not_a_hash())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| not_a_hash())?;
        }
        Ok(Self(hash))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": "[0-9A-Fa-f]{64}" })
    }
}

/// The authenticator or the application that knows the clients of keys.
#[derive(Clone, Copy)]
pub enum ClientSpace<'a> {
    Authenticator(&'a str),
    /// All that clients are called begins with it.
    Application(&'a str),
}

/// A client, as each of the authenticators knows it.
type ClientIdentities = Box<[Arc<CallerIdentity>]>;

/// The keys of a file, taken one by one.
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
    pub fn new(spaces: &'a [ClientSpace<'a>]) -> Self {
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
        let (Some(key), Some(identities)) = (key, identities) else {
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
        if !self.sound {
            return None;
        }
        let tables = self.tables.into_iter().map(ApiKeyTable::from_iter);
        Some(tables.collect())
    }
}

impl ClientSpace<'_> {
    fn identity(self, raw: &RawApiKey) -> Option<CallerIdentity> {
        let id = raw.id.value();
        let plan = raw.plan.build(|plan| Some(self.own(&plan.value.0)));
        let labels = raw
            .labels
            .build(|labels| labels.0.iter().map(|entry| self.label(entry)).collect());
        let mut identity = match self {
            Self::Authenticator(name) => CallerIdentity::new(name, &id?.0),
            Self::Application(name) => CallerIdentity::of_application(name, &id?.0),
        };
        identity.plan = plan?;
        identity.labels = labels?.unwrap_or_default();
        Some(identity)
    }

    /// The name of a label, and its text in this space. `None`: a mistake was reported.
    fn label(
        self,
        entry: &MappingEntry<DefinedName, Located<PlainText>>,
    ) -> Option<(String, String)> {
        let name = entry.key.as_ref()?.0.to_string();
        let text = self.own(&entry.value.as_ref()?.value.0);
        Some((name, text))
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

fn not_a_hash() -> ValueProblem {
    ValueProblem::new("this is not a SHA-256 in 64 hexadecimal digits").hint(
        "`tollgate key new` makes a key and its entry; of a key that you have: printf %s \"$KEY\" | sha256sum",
    )
}
