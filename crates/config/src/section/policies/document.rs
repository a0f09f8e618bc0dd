//! The policy document: what people edit beside the file, and what lies over it.

use crate::report::{Location, Report};
use crate::scalar::text::{DefinedName, PlainText};
use crate::section::authenticator::key_file::{ClientId, KeyHash};
use crate::section::limit::key::RawKeyPart;
use crate::section::limit::plan::RawPlan;
use crate::section::policies::candidate::RawCandidate;
use crate::section::policies::strategy_limit::RawStrategyLimit;
use crate::section::route::matching::conditions::RawMatch;
use crate::yaml::collection::{Mapping, NonEmptyList};
use crate::yaml::decode::{Decode, Located, SchemaDefinitions};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;

record! {
    /// Policies: limits that people edit beside the file, and the routes that each counts.
    RawPolicies {
        /// Applications, by name.
        optional applications: Mapping<DefinedName, RawApplication>,
    }
}

record! {
    /// An application: parts of the file's routes, and limits for them.
    RawApplication {
        /// A text for people.
        optional description: Located<PlainText>,
        /// The file's routes that are its own, by name. A route is of one application at most.
        optional routes: NonEmptyList<Located<DefinedName>>,
        /// The file's upstreams that its limits may send requests to, by name. Default: none.
        optional upstreams: NonEmptyList<Located<DefinedName>>,
        /// Routes of its own, or parts of them, by name.
        optional resources: Mapping<DefinedName, RawResource>,
        /// Limits for resources, by name.
        optional strategies: Mapping<DefinedName, RawStrategy>,
        /// Other rates for some clients, by the plan's name.
        optional plans: Mapping<DefinedName, RawApplicationPlan>,
        /// The plan of each client.
        optional clients: Mapping<ClientId, Located<DefinedName>>,
        /// API keys that its routes take, by a name for each.
        optional keys: Mapping<DefinedName, RawPolicyKey>,
    }
}

record! {
    /// An API key, and the client that has it. The client's plan is that under `clients`.
    RawPolicyKey at location {
        /// The SHA-256 of the key, in hexadecimal digits.
        required key_sha256: Located<KeyHash>,
        /// The client. Several keys may be of one: the old one and the new one. Default: the key's
        /// name.
        optional client: Located<ClientId>,
        /// Further names that limits and header fields may go by.
        optional labels: Mapping<DefinedName, Located<PlainText>>,
    }
}

record! {
    /// A route of the file, or a part of it.
    RawResource {
        /// The route's name.
        required route: Located<DefinedName>,
        /// Which of the route's requests. Default: all.
        optional r#match: RawPart,
    }
}

impl RawResource {
    /// The conditions of a part of its route. `None`: it is the whole route.
    pub fn part(&self) -> Option<&RawPart> {
        let part = self.r#match.valid()?;
        if part.conditions.is_empty() {
            None
        } else {
            Some(part)
        }
    }
}

record! {
    /// A limit, and the resources that it counts.
    RawStrategy {
        /// The limit, as under limits of the file. May be left out while a candidate is tried out.
        optional limit: RawStrategyLimit,
        /// The resources that it counts, by name.
        required resources: NonEmptyList<Located<DefinedName>>,
        /// The part of the request that names the client whose plan counts. Default: the first part
        /// of the limit's key.
        optional client: RawKeyPart,
        /// A limit that is tried out before it holds.
        optional candidate: RawCandidate,
    }
}

record! {
    /// The settings of a plan for each strategy.
    RawApplicationPlan {
        /// Other rates, by strategy.
        optional limits: Mapping<DefinedName, RawPlan>,
    }
}

/// The conditions of a part of a route.
pub struct RawPart {
    pub location: Location,
    pub conditions: RawMatch,
    /// Where the value of each key is.
    keys: Vec<(String, Location)>,
}

impl RawPart {
    /// Where the value of `key` is, or else all of them.
    pub fn location_of(&self, key: &str) -> &Location {
        let mut keys = self.keys.iter();
        match keys.find(|(written, _)| written == key) {
            Some((_, location)) => location,
            None => &self.location,
        }
    }
}

impl Decode for RawPart {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let conditions = RawMatch::decode(node, report)?;
        let mut keys = Vec::new();
        if let YamlValue::Map(entries) = &node.value {
            for entry in entries {
                keys.push((entry.key.clone(), entry.value.location.clone()));
            }
        }
        Some(Self {
            location: node.location.clone(),
            conditions,
            keys,
        })
    }

    fn schema(definitions: &mut SchemaDefinitions) -> serde_json::Value {
        RawMatch::schema(definitions)
    }
}
