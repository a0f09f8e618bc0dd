//! Each key of the file is in `good/every_key.yaml`, and is read: without it, that file says
//! something else.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
use tollgate_config::{PolicySet, schema};
use tollgate_proxy::upstream::UpstreamSpec;
use tollgate_spec::listener::ListenerSpec;
use tollgate_spec::route::Route;

use super::any_text::UNVERIFIED;
use super::{EVERY_KEY, LISTENERS, ROUTES, check, good};

/// Keys that stand in place of others which the file has, or that name files which must be there.
/// `values.rs` reads them.
const ELSEWHERE: [&str; 40] = [
    "Affinity.cookie",
    "Affinity.hash",
    "ApiKeys.cookie",
    "ApiKeys.policies",
    "ApiKeys.query",
    "Config.defaults",
    "Config.include",
    "DegradeOptions.respond",
    "Health.grpc",
    "Health.tcp",
    "JsonTermOptions.first_of",
    "JsonTermOptions.path",
    "JsonTermOptions.weight",
    "Jwt.ca",
    "Jwt.cookie",
    "Limit.algorithm",
    "Limit.max_in_flight",
    "Limit.scope",
    "Limit.time_zone",
    "LocalFor.local",
    "LocalFor.then",
    "OpenId.ca",
    "PartOptions.claim",
    "Plan.max_in_flight",
    "PlanHash.cache",
    "PlanHash.hash",
    "Plans.redis",
    "RegexPath.regex",
    "StickyCookie.name",
    "StickyCookie.secret",
    "StickyCookie.secure",
    "StickyCookie.ttl",
    "Store.tls",
    "Tls.ca",
    "Tls.cert",
    "Tls.key",
    "UpstreamTls.ca",
    "UpstreamTls.cert",
    "UpstreamTls.key",
    "UpstreamTls.verify",
];

/// A file as JSON, which is YAML too.
fn json(file: &str) -> Json {
    PolicySet::parse("every_key.yaml", file).unwrap().to_json()
}

/// The words that describe the configuration of a file, in any order: tables have none. `None`: it
/// has mistakes.
fn words(file: &Json) -> Option<Vec<String>> {
    let config = check(&file.to_string()).ok()?.config;
    let text = format!("{config:?}");
    let mut words: Vec<_> = text
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_owned)
        .collect();
    words.sort_unstable();
    Some(words)
}

/// The place of each member of the mappings in `value`, by pointers (RFC 6901).
fn members(value: &Json, place: &str, found: &mut Vec<(String, String)>) {
    match value {
        Json::Object(members_of_it) => {
            for (key, value) in members_of_it {
                found.push((place.to_owned(), key.clone()));
                let key = key.replace('~', "~0").replace('/', "~1");
                members(value, &format!("{place}/{key}"), found);
            }
        }
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                members(item, &format!("{place}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn each_key_makes_a_difference() {
    let file = json(&UNVERIFIED);
    let whole = words(&file).unwrap();
    let mut places = Vec::new();
    members(&file, "", &mut places);
    assert!(places.len() > 300, "only {} keys were found", places.len());
    let mut unread = Vec::new();
    for (place, key) in places {
        let mut without = file.clone();
        let mapping = without.pointer_mut(&place).unwrap();
        mapping.as_object_mut().unwrap().remove(&key).unwrap();
        if words(&without).as_ref() == Some(&whole) {
            unread.push(format!("{place}/{key}"));
        }
    }
    // `maintenance: false` takes a default of the file away, which has none here.
    assert_eq!(unread, ["/routes/6/maintenance"], "are not read");
}

/// Walks the schema of the file together with a file.
struct SchemaWalk<'a> {
    definitions: &'a Map<String, Json>,
    seen: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> SchemaWalk<'a> {
    fn visit(&mut self, value: &Json, schema: &'a Json) {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            self.visit_record(value, name);
        }
        for word in ["anyOf", "oneOf", "allOf"] {
            for form in schema[word].as_array().into_iter().flatten() {
                self.visit(value, form);
            }
        }
        if let (Json::Array(items), Some(schema)) = (value, schema.get("items")) {
            for item in items {
                self.visit(item, schema);
            }
        }
        if let (Json::Object(members), Some(schema)) = (value, schema.get("additionalProperties")) {
            for member in members.values() {
                self.visit(member, schema);
            }
        }
    }

    fn visit_record(&mut self, value: &Json, name: &str) {
        let (name, record) = self.definitions.get_key_value(name).unwrap();
        let Json::Object(members) = value else {
            return;
        };
        for (key, schema) in record["properties"].as_object().unwrap() {
            if let Some(value) = members.get(key) {
                self.seen.insert((name, key));
                self.visit(value, schema);
            }
        }
    }
}

#[test]
fn the_file_with_every_key_has_every_key_of_the_schema() {
    let schema = schema();
    let definitions = schema["definitions"].as_object().unwrap();
    let mut walk = SchemaWalk {
        definitions,
        seen: BTreeSet::new(),
    };
    walk.visit_record(&json(EVERY_KEY), "Config");
    let mut absent = Vec::new();
    for (name, record) in definitions {
        // Defaults of sections have the keys of the sections.
        if name.ends_with("Defaults") {
            continue;
        }
        for key in record["properties"].as_object().unwrap().keys() {
            if !walk.seen.contains(&(name, key)) {
                absent.push(format!("{name}.{key}"));
            }
        }
    }
    absent.sort_unstable();
    assert_eq!(
        absent, ELSEWHERE,
        "left: what good/every_key.yaml lacks; right: what it may lack"
    );
}

#[test]
fn what_is_left_out_of_the_file_is_left_out_of_a_literal() {
    let upstreams = "upstreams: {up: {endpoints: [\"http://127.0.0.1:81\"]}}\n";
    let config = good(&format!("{LISTENERS}{upstreams}{ROUTES}"));
    let listener = &config.listeners[0].server;
    assert_eq!(*listener, ListenerSpec::at(listener.address.clone()));
    let upstream = &*config.upstreams[0];
    let endpoints = upstream.endpoints.clone();
    assert_eq!(
        *upstream,
        UpstreamSpec::new(upstream.name.clone(), endpoints)
    );
    let route = &*config.routes[0];
    let by_default = Route::new(
        route.name.clone(),
        route.matches.clone(),
        route.action.clone(),
    );
    assert_eq!(*route, by_default);
}
