//! `defaults`: what routes, limits and upstreams have that do not say otherwise.

use std::marker::PhantomData;

use serde_json::Value as Json;
use tollgate_limiter::limit::units::show_size;

use crate::report::{Location, Report, ValueProblem};
use crate::section::limit::definition::RawLimit;
use crate::section::route::action::RawActionKeys;
use crate::section::route::definition::RawRoute;
use crate::section::upstream::definition::RawUpstream;
use crate::section::upstream::discovery::RawEndpointSources;
use crate::yaml::decode::{Decode, SchemaDefinitions};
use crate::yaml::node::{NodeEntry, YamlNode, YamlValue};
use crate::yaml::record::{Record, RecordReader, record, reference_to_part, required_keys};

record! {
    /// The settings of routes, limits and upstreams that do not say otherwise.
    RawDefaults {
        /// Keys of every route: any but name, match and those of its action.
        optional routes: Defaults<RawRoute>,
        /// Keys of every limit: any but key.
        optional limits: Defaults<RawLimit>,
        /// Keys of every upstream: any but endpoints and discover.
        optional upstreams: Defaults<RawUpstream>,
    }
}

/// A record whose keys may have defaults.
pub trait DefaultedRecord: Record {
    /// The section of the file whose items it is.
    const SECTION: &'static str;
    /// The name of its part in the schema.
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
        RawEndpointSources::keys()
    }
}

/// The keys that may have a default.
pub fn default_keys<T: DefaultedRecord>() -> Vec<&'static str> {
    let own = T::own_keys();
    let required = required_keys::<T>();
    T::keys()
        .into_iter()
        .filter(|key| !own.contains(key) && !required.contains(key))
        .collect()
}

impl<T: DefaultedRecord> Decode for Defaults<T> {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        let reader = RecordReader::open(node, &default_keys::<T>(), report)?.for_part();
        T::read(&reader, report);
        Some(Self(PhantomData))
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        let doc = format!("Keys of {} that do not have them.", T::SECTION);
        reference_to_part::<T>(T::NAME, &doc, &default_keys::<T>(), definitions)
    }
}

/// The section of the defaults.
const DEFAULTS: &str = "defaults";

/// Bytes that are copied at most: long lists and texts for thousands of routes would fill all
/// memory.
const MOST_COPIED: usize = 256 << 20;

/// The defaults of the file's limits, for limits that are not in it.
#[derive(Clone, Default)]
pub struct LimitDefaults {
    given: Vec<NodeEntry>,
    location: Option<Location>,
    /// The limits of the file, which have them already.
    in_file: usize,
}

impl LimitDefaults {
    pub fn complete(&self, limit: &mut YamlNode) {
        complete_item(limit, &self.given);
    }

    /// Reports that the defaults are too long for `more` limits besides those of the file.
    pub fn check(&self, more: usize, report: &mut Report) {
        if let Some(location) = &self.location {
            let copies = Copies {
                size: size(&self.given),
                count: self.in_file.saturating_add(more),
            };
            copies.check(RawLimit::SECTION, location, report);
        }
    }
}

/// Checks the defaults, and completes the items of each section with its own.
pub fn apply(root: &mut YamlNode, report: &mut Report) -> LimitDefaults {
    let YamlValue::Map(sections) = &root.value else {
        return LimitDefaults::default();
    };
    let mut defaulted = DefaultedSections::default();
    let given = sections.iter().find(|section| section.key == DEFAULTS);
    if let Some(given) = given
        && !given.value.value.is_null()
        && let Some(raw) = RawDefaults::decode(&given.value, report)
    {
        defaulted.routes = raw.routes.is_present();
        defaulted.limits = raw.limits.is_present();
        defaulted.upstreams = raw.upstreams.is_present();
    }
    defaulted.complete(root, report)
}

/// Completes the items of each section with its defaults. Looks at keys alone: values may still be
/// variables.
pub fn apply_unchecked(root: &mut YamlNode, report: &mut Report) {
    let all = DefaultedSections {
        routes: true,
        limits: true,
        upstreams: true,
    };
    all.complete(root, report);
}

/// The sections that have defaults.
#[derive(Default)]
struct DefaultedSections {
    routes: bool,
    limits: bool,
    upstreams: bool,
}

impl DefaultedSections {
    /// The keys that may have a default in the section called `name`, if that has any.
    fn keys(&self, name: &str) -> Option<Vec<&'static str>> {
        match name {
            RawRoute::SECTION if self.routes => Some(default_keys::<RawRoute>()),
            RawLimit::SECTION if self.limits => Some(default_keys::<RawLimit>()),
            RawUpstream::SECTION if self.upstreams => Some(default_keys::<RawUpstream>()),
            _ => None,
        }
    }

    fn complete(&self, root: &mut YamlNode, report: &mut Report) -> LimitDefaults {
        let mut of_limits = LimitDefaults::default();
        let YamlValue::Map(sections) = &mut root.value else {
            return of_limits;
        };
        let Some(at) = sections.iter().position(|section| section.key == DEFAULTS) else {
            return of_limits;
        };
        let YamlValue::Map(defaults) = sections.remove(at).value.value else {
            return of_limits;
        };
        for NodeEntry { key, value, .. } in defaults {
            let Some(keys) = self.keys(&key) else {
                continue;
            };
            let YamlValue::Map(mut given) = value.value else {
                continue;
            };
            given
                .retain(|entry| keys.contains(&entry.key.as_str()) && !entry.value.value.is_null());
            let section = sections.iter_mut().find(|section| section.key == key);
            let mut items = match section {
                Some(section) => items(&mut section.value.value),
                None => Vec::new(),
            };
            let copies = Copies {
                size: size(&given),
                count: items.len(),
            };
            if !copies.check(&key, &value.location, report) {
                continue;
            }
            for item in &mut items {
                complete_item(item, &given);
            }
            if key == RawLimit::SECTION {
                of_limits = LimitDefaults {
                    in_file: items.len(),
                    location: Some(value.location),
                    given,
                };
            }
        }
        of_limits
    }
}

/// Copies of the defaults of a section.
struct Copies {
    /// Bytes of one.
    size: usize,
    count: usize,
}

impl Copies {
    /// Whether they are within the bound, which is reported otherwise.
    fn check(&self, section: &str, location: &Location, report: &mut Report) -> bool {
        if self.size.saturating_mul(self.count) <= MOST_COPIED {
            return true;
        }
        let most = show_size(MOST_COPIED as u64);
        let count = self.count;
        let problem = ValueProblem::new(format!(
            "these defaults of {count} {section} are over {most}"
        ));
        report.mistake(location, problem.hint("shorten them"));
        false
    }
}

fn size(given: &[NodeEntry]) -> usize {
    given.iter().map(NodeEntry::size).sum()
}

fn items(section: &mut YamlValue) -> Vec<&mut YamlNode> {
    match section {
        YamlValue::List(items) => items.iter_mut().collect(),
        YamlValue::Map(members) => members.iter_mut().map(|member| &mut member.value).collect(),
        YamlValue::Scalar { .. } | YamlValue::Unusable => Vec::new(),
    }
}

/// Adds the defaults that `item` does not have. Each keeps its place: a mistake in one is reported
/// once.
fn complete_item(item: &mut YamlNode, given: &[NodeEntry]) {
    let YamlValue::Map(entries) = &mut item.value else {
        return;
    };
    let own_entries = entries.len();
    for default in given {
        if !entries[..own_entries]
            .iter()
            .any(|own| own.key == default.key)
        {
            entries.push(default.clone());
        }
    }
}
