//! `defaults`: keys of routes, limits and upstreams for those that do not have them.

use std::marker::PhantomData;

use serde_json::Value as Json;

use super::limit::RawLimit;
use super::route::RawRoute;
use super::route::action::RawActionKeys;
use super::upstream::RawUpstream;
use crate::config::report::Report;
use crate::config::yaml::decode::{Decode, SchemaDefinitions};
use crate::config::yaml::node::YamlNode;
use crate::config::yaml::record::{Record, RecordReader, record, reference_to_part, required_keys};

record! {
    /// The settings of routes, limits and upstreams that do not say otherwise.
    RawDefaults {
        /// Of every route: any key but name, match and those of its action.
        optional routes: Defaults<RawRoute>,
        /// Of every limit: any key but key.
        optional limits: Defaults<RawLimit>,
        /// Of every upstream: any key but endpoints and discover.
        optional upstreams: Defaults<RawUpstream>,
    }
}

/// A record whose keys may have defaults.
pub trait DefaultedRecord: Record {
    /// The section of the file whose items it is.
    const SECTION: &'static str;
    /// Its name in the schema, as a part.
    const NAME: &'static str;

    /// Keys besides the required ones that each item says itself.
    fn own_keys() -> Vec<&'static str>;
}

/// Some keys of `T`, each checked as in an item. The values are taken from the tree.
pub struct Defaults<T>(PhantomData<T>);

impl DefaultedRecord for RawRoute {
    const SECTION: &'static str = "routes";
    const NAME: &'static str = "RouteDefaults";

    fn own_keys() -> Vec<&'static str> {
        let mut keys = RawActionKeys::keys();
        keys.push("match");
        keys
    }
}

impl DefaultedRecord for RawLimit {
    const SECTION: &'static str = "limits";
    const NAME: &'static str = "LimitDefaults";

    fn own_keys() -> Vec<&'static str> {
        Vec::new()
    }
}

impl DefaultedRecord for RawUpstream {
    const SECTION: &'static str = "upstreams";
    const NAME: &'static str = "UpstreamDefaults";

    fn own_keys() -> Vec<&'static str> {
        vec!["endpoints", "discover"]
    }
}

/// The keys that may have a default.
pub fn default_keys<T: DefaultedRecord>() -> Vec<&'static str> {
    let (own, required) = (T::own_keys(), required_keys::<T>());
    T::keys()
        .into_iter()
        .filter(|key| !own.contains(key) && !required.contains(key))
        .collect()
}

impl<T: DefaultedRecord> Decode for Defaults<T> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let reader = RecordReader::open(node, &default_keys::<T>(), report)?.of_part();
        T::read(&reader, report);
        Some(Self(PhantomData))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        let doc = format!("Keys of {} that do not have them.", T::SECTION);
        reference_to_part::<T>(T::NAME, &doc, &default_keys::<T>(), definitions)
    }
}
