//! The policy document: what people edit beside the file, and what lies over it. `plans` has what its plans say of each limit,
//! and `source` where a running gateway gets its policies from.

pub mod plans;
pub mod source;

use super::identity::keys::ClientId;
use super::limit::{RawKeyPart, RawLimit, RawPlan};
use super::route::RawMatch;
use super::scalar::text::{DefinedName, PlainText};
use crate::config::report::Report;
use crate::config::yaml::collection::{Mapping, NonEmptyList};
use crate::config::yaml::decode::{Decode, Located, SchemaDefinitions, mismatch};
use crate::config::yaml::node::{YamlNode, YamlValue};
use crate::config::yaml::record::record;

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
        /// Routes of the file, or parts of them, by name.
        optional resources: Mapping<DefinedName, RawResource>,
        /// Limits for resources, by name.
        optional strategies: Mapping<DefinedName, RawStrategy>,
        /// Other rates for some clients, by the plan's name.
        optional plans: Mapping<DefinedName, RawApplicationPlan>,
        /// The plan of each client.
        optional clients: Mapping<ClientId, Located<DefinedName>>,
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

record! {
    /// A limit, and the resources that it counts.
    RawStrategy {
        /// The limit, as under limits of the file.
        required limit: RawStrategyLimit,
        /// The resources that it counts, by name.
        required resources: NonEmptyList<Located<DefinedName>>,
        /// The part of the request that names the client whose plan counts. Default: the first part of the limit's key.
        optional client: RawKeyPart,
    }
}

record! {
    /// What a plan says of each strategy.
    RawApplicationPlan {
        /// Other rates, by strategy.
        optional limits: Mapping<DefinedName, RawPlan>,
    }
}

/// The conditions of a part of a route, as they are written: they are joined with those of the route.
pub struct RawPart(pub YamlNode);

/// A limit as it is written: it becomes one of the file's limits, and is read as these are.
pub struct RawStrategyLimit(pub YamlNode);

impl Decode for RawPart {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        RawMatch::decode(node, report).map(|_| Self(node.clone()))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> serde_json::Value {
        RawMatch::schema(definitions)
    }
}

impl Decode for RawStrategyLimit {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        if let YamlValue::Map(_) = node.value {
            return Some(Self(node.clone()));
        }
        mismatch(node, "a mapping", Some("write {key: client_ip, rate: 10/s}"), report);
        None
    }

    fn schema(definitions: &mut SchemaDefinitions) -> serde_json::Value {
        RawLimit::schema(definitions)
    }
}
