//! The rules of ARCHITECTURE.md. Each returns what breaks it, as `file:line: what, and what to do instead`.

use super::source::{Source, block};

/// Crates that one place of `src/` names, so that they can be replaced there.
const HOMES: [(&str, &str, &str); 7] = [
    ("jiff", "src/rate_limit/calendar.rs", "ask for a `Period`"),
    ("httparse", "src/proxy/connection/response.rs", "take a `ResponseHead`"),
    ("fred", "src/store/redis/", "ask for a `Store`"),
    ("rustls", "src/store/redis/", "describe it with a `TlsSpec`"),
    ("rustls_native_certs", "src/store/redis/", "describe it with a `TlsSpec`"),
    ("saphyr", "src/config/", "take what `config` has built"),
    ("saphyr_parser", "src/config/", "take what `config` has built"),
];

/// Who names an HTTP client, so that it can be replaced there, and why each needs one.
pub const HTTP_CLIENTS: [(&str, &str); 2] = [
    ("src/cli/ask.rs", "an operator's one question to the admin port, in a process of its own that runs no gateway"),
    ("src/torture/target.rs", "is a client, of any gateway, and must not share what it judges"),
];

/// Which modules of ours each place may name; what is below such a module is included. The first row that fits counts.
/// Nothing is above `app`: it, `main` and `cli` know everyone.
const MAY_NAME: [(&str, &str); 35] = [
    ("src/clock.rs", ""),
    ("src/observe/", "observe"),
    ("src/respond.rs", ""),
    ("src/text.rs", ""),
    ("src/spelling.rs", ""),
    ("src/http1/", "clock error http1"),
    ("src/rate_limit/bucket.rs", ""),
    ("src/rate_limit/calendar.rs", ""),
    ("src/rate_limit/window.rs", "rate_limit::bucket rate_limit::calendar"),
    ("src/rate_limit/in_flight.rs", "rate_limit::decision"),
    ("src/rate_limit/quota.rs", "rate_limit::bucket rate_limit::in_flight rate_limit::window"),
    (
        "src/rate_limit/algorithm.rs",
        "rate_limit::bucket rate_limit::calendar rate_limit::in_flight rate_limit::quota rate_limit::window",
    ),
    ("src/rate_limit/carry.rs", "rate_limit::bucket"),
    (
        "src/rate_limit/state.rs",
        "rate_limit::bucket rate_limit::carry rate_limit::decision rate_limit::in_flight rate_limit::quota rate_limit::window",
    ),
    ("src/rate_limit/decision.rs", ""),
    ("src/rate_limit/host.rs", ""),
    ("src/rate_limit/key.rs", "text"),
    (
        "src/rate_limit/policy.rs",
        "rate_limit::algorithm rate_limit::cost rate_limit::enforced rate_limit::exempt rate_limit::key rate_limit::plan respond",
    ),
    ("src/rate_limit/cost.rs", "rate_limit::json rate_limit::key"),
    ("src/rate_limit/json.rs", ""),
    ("src/rate_limit/event_stream.rs", ""),
    ("src/rate_limit/exempt.rs", "rate_limit::key"),
    (
        "src/rate_limit/plan.rs",
        "rate_limit::algorithm rate_limit::bucket rate_limit::cost rate_limit::in_flight rate_limit::key rate_limit::quota units",
    ),
    ("src/rate_limit/share.rs", "rate_limit::quota"),
    ("src/rate_limit/enforced.rs", "rate_limit::share"),
    ("src/units.rs", ""),
    ("src/route/mod.rs", "rate_limit::policy respond route"),
    ("src/route/", "error route"),
    ("src/body.rs", "clock"),
    ("src/error.rs", "http1::tables observe::request_id respond"),
    ("src/upstream/", "clock error upstream"),
    (
        "src/store/",
        "clock store rate_limit::bucket rate_limit::carry rate_limit::decision rate_limit::in_flight rate_limit::key rate_limit::policy rate_limit::quota rate_limit::share rate_limit::state rate_limit::window",
    ),
    ("src/rate_limit/", "clock error observe::request_id rate_limit respond store"),
    ("src/proxy/", "body clock error gateway::path gateway::route http1 observe::request_id proxy text upstream"),
    ("src/gateway/", "body clock error gateway http1::tables observe proxy rate_limit upstream"),
    ("src/server/", "body clock error http1 server"),
];

/// The same for those beside the path of a request: one builds the domain's types, one holds limits to their promise from
/// outside, one looks at all of it.
const BESIDE: [(&str, &str); 6] = [
    (
        "src/config/",
        "config gateway::route rate_limit::algorithm rate_limit::bucket rate_limit::cost rate_limit::enforced rate_limit::exempt rate_limit::json rate_limit::plan rate_limit::in_flight rate_limit::key rate_limit::policy rate_limit::window respond server::ListenerSpec spelling \
         store::Address store::RedisSpec store::TlsError store::TlsSpec units upstream::Balance upstream::UpstreamSpec",
    ),
    // The judge shares no arithmetic with what it judges.
    ("src/torture/judge.rs", "torture::plan"),
    ("src/torture/due.rs", "torture::plan"),
    ("src/torture/command.rs", "cli clock store::RedisSpec store::TlsSpec torture"),
    ("src/torture/", "clock rate_limit store torture"),
    ("src/admin/", "admin body clock config error gateway observe rate_limit server spelling store units upstream"),
];

/// Modules within what a row allows that it still may not name: the trait, not who implements it.
const MAY_NOT_NAME: &[(&str, &str)] = &[("src/rate_limit/", "store::redis"), ("src/admin/", "store::redis")];

const KNOW_EVERYONE: [&str; 6] = ["src/main.rs", "src/lib.rs", "src/app.rs", "src/app/", "src/cli.rs", "src/cli/"];

const KNOW_CONFIG: [&str; 8] =
    ["src/main.rs", "src/lib.rs", "src/app.rs", "src/app/", "src/cli.rs", "src/cli/", "src/admin/", "src/config/"];

/// Metric handles resolved elsewhere than in a constructor: file, function, why that is not once per request.
const RESOLVED_OUTSIDE_CONSTRUCTORS: [(&str, &str, &str); 2] = [
    ("src/app/assemble.rs", "gateway", "builds the gateway: once per configuration"),
    ("src/app/control.rs", "reload", "once per reload"),
    ("src/observe/metrics.rs", "install", "once per process"),
];

/// Names of labels. Each has few values, all known from the configuration or the code.
const LABELS: &str =
    "action decided_by endpoint limit listener method outcome route status to upstream verdict version";

/// Status codes outside `error.rs`: where, which (`*`: any), and why that is no answer of the data path's own.
const STATUS_CODES: [(&str, &str, &str); 9] = [
    ("src/admin/", "*", "the admin server's answers are its API, not the gateway's"),
    ("src/config/", "*", "what an operator may write under `respond`"),
    ("src/proxy/", "SWITCHING_PROTOCOLS", "recognises that the upstream agreed to an upgrade"),
    ("src/proxy/", "CONTINUE", "tells an interim response of the upstream from the final one"),
    ("src/server/", "SWITCHING_PROTOCOLS", "recognises that a connection stops speaking HTTP"),
    ("src/http/", "NO_CONTENT", "such an answer has no content, whoever gives it"),
    ("src/http/", "NOT_MODIFIED", "nor has such an answer, and its Content-Length is another's"),
    ("src/server/", "OK", "the status line that is written most is written as it is"),
    ("src/gateway/", "OK", "an echo succeeds"),
];

/// Lints that stand for an invariant, and the weakest level each may have.
pub const LINTS: [(&str, &str, &[&str]); 5] = [
    ("[lints.rust]", "unsafe_code", &["forbid"]),
    ("[lints.clippy]", "await_holding_lock", &["warn", "deny", "forbid"]),
    ("[lints.clippy]", "disallowed_methods", &["warn", "deny", "forbid"]),
    ("[lints.clippy]", "unwrap_used", &["warn", "deny", "forbid"]),
    ("[lints.clippy]", "allow_attributes", &["warn", "deny", "forbid"]),
];

/// Only its home names a crate of [`HOMES`], and only [`HTTP_CLIENTS`] an HTTP client.
pub fn crates_at_home(sources: &[Source]) -> Vec<String> {
    let strangers = HOMES.iter().flat_map(|(name, home, instead)| {
        let outside = sources.iter().filter(|source| !source.is_in(home));
        outside.flat_map(move |source| {
            let found = source.find(name).into_iter();
            found.map(move |at| format!("{}: names {name}, which only {home} may: {instead}", source.at(at)))
        })
    });
    let elsewhere = sources.iter().filter(|source| !HTTP_CLIENTS.iter().any(|(file, _)| source.is_in(file)));
    let clients = elsewhere.filter_map(|source| {
        let at = names_a_client(source)?;
        Some(format!("{}: names an HTTP client: ask src/proxy/ to send", source.at(at)))
    });
    strangers.chain(clients).collect()
}

/// The files that name hyper's client.
pub fn files_naming_the_client(sources: &[Source]) -> Vec<&str> {
    sources.iter().filter(|source| names_a_client(source).is_some()).map(|source| source.path.as_str()).collect()
}

fn names_a_client(source: &Source) -> Option<usize> {
    let paths = ["hyper", "hyper_util"].into_iter().flat_map(|head| source.paths(head));
    paths.filter(|(_, path)| path[1] == "client").map(|(at, _)| at).next()
}

/// Modules name only what [`MAY_NAME`] says.
pub fn dependencies(sources: &[Source]) -> Vec<String> {
    let bound = sources.iter().filter(|source| !KNOW_EVERYONE.iter().any(|place| source.is_in(place)));
    bound.flat_map(|source| source.modules().into_iter().filter_map(|named| step_upwards(source, &named))).collect()
}

fn step_upwards(source: &Source, (at, path): &(usize, Vec<String>)) -> Option<String> {
    let path = path.join("::");
    let Some((place, allowed)) = MAY_NAME.iter().chain(&BESIDE).find(|(place, _)| source.is_in(place)) else {
        return Some(format!("{}: {} has no row in MAY_NAME: say what it may name", source.at(*at), source.path));
    };
    let allowed = allowed.split_whitespace().any(|module| is_below(&path, module));
    let refused = MAY_NOT_NAME.iter().any(|(place, module)| source.is_in(place) && is_below(&path, module));
    (!allowed || refused).then(|| format!("{}: {place} may not name crate::{path}", source.at(*at)))
}

fn is_below(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The domain does not know how it was configured.
pub fn config_stays_outside(sources: &[Source]) -> Vec<String> {
    let inner = sources.iter().filter(|source| !KNOW_CONFIG.iter().any(|place| source.is_in(place)));
    let named = inner.flat_map(|source| source.modules().into_iter().map(move |(at, path)| (source, at, path)));
    let named = named.filter(|(_, _, path)| path.first().is_some_and(|module| module == "config"));
    named.map(|(source, at, _)| format!("{}: names crate::config: take a type of the domain", source.at(at))).collect()
}

/// Only `clock.rs` reads time. Waiting is not reading.
pub fn one_clock(sources: &[Source]) -> Vec<String> {
    const READS: [&str; 3] = ["Instant::now", "SystemTime::now", ".elapsed("];
    naming(sources.iter().filter(|source| !source.is_in("src/clock.rs")), &READS, "reads time: use crate::clock")
}

/// `bucket.rs` neither allocates nor waits nor does I/O.
pub fn bucket_is_arithmetic(sources: &[Source]) -> Vec<String> {
    const FORBIDDEN: [&str; 23] = [
        "async",
        "await",
        "Box",
        "Vec",
        "vec!",
        "String",
        "format!",
        "to_string",
        "to_owned",
        "to_vec",
        "collect",
        "Arc",
        "Rc",
        "Mutex",
        "HashMap",
        "BTreeMap",
        "std::io",
        "std::fs",
        "std::net",
        "tokio",
        "tracing",
        "println!",
        "metrics",
    ];
    let imports_io = |source: &&Source| source.is_in("src/rate_limit/bucket.rs");
    naming(sources.iter().filter(imports_io), &FORBIDDEN, "is not arithmetic: leave it to the limiter or a store")
}

fn naming<'a>(sources: impl Iterator<Item = &'a Source>, words: &[&str], complaint: &str) -> Vec<String> {
    let found = sources.flat_map(|source| {
        words.iter().flat_map(move |word| source.find(word).into_iter().map(move |at| (source, *word, at)))
    });
    found.map(|(source, word, at)| format!("{}: `{word}` {complaint}", source.at(at))).collect()
}

/// A metric's handle is looked up by a constructor, and kept: looking it up formats and hashes its labels.
pub fn handles_are_resolved_once(sources: &[Source]) -> Vec<String> {
    let elsewhere = metric_macros(sources).filter(|(source, at)| !is_in_constructor(source, *at));
    elsewhere
        .map(|(source, at)| format!("{}: resolves a metric's handle outside of a constructor: keep it", source.at(at)))
        .collect()
}

fn metric_macros(sources: &[Source]) -> impl Iterator<Item = (&Source, usize)> {
    const MACROS: [&str; 3] = ["counter!", "gauge!", "histogram!"];
    sources.iter().flat_map(|source| {
        MACROS.iter().flat_map(move |name| source.find(name).into_iter().map(move |at| (source, at)))
    })
}

/// The function around it makes a `Self` and has none yet.
fn is_in_constructor(source: &Source, at: usize) -> bool {
    let Some(begin) = source.find("fn").into_iter().rfind(|begin| *begin < at) else {
        return false;
    };
    let rest = source.code[begin + 2..].trim_start();
    let signature = rest.split('{').next().unwrap_or_default();
    let name = signature.split(['(', '<']).next().unwrap_or_default();
    let makes_self = signature.split_once("->").is_some_and(|(_, result)| result.contains("Self"));
    let has_self = signature.contains("self");
    let excepted = |(place, function, _): &(&str, &str, &str)| source.is_in(place) && *function == name;
    makes_self && !has_self || RESOLVED_OUTSIDE_CONSTRUCTORS.iter().any(excepted)
}

/// Labels are written out, from [`LABELS`], and none is made of a key.
pub fn labels_are_few(sources: &[Source]) -> Vec<String> {
    metric_macros(sources).filter_map(|(source, at)| unbounded_label(source, at)).collect()
}

fn unbounded_label(source: &Source, at: usize) -> Option<String> {
    let open = at + source.code[at..].find('(')?;
    let call = open..open + block(&source.code[open..]).len();
    // Literals are blank in `code`, so their commas and brackets are not in the way; names are read off `text`.
    let mut end = call.start + 1;
    for argument in source.code[call.start + 1..call.end - 1].split(',').skip(1).filter(|text| !text.trim().is_empty())
    {
        end += source.code[end..].find(argument)?;
        let written = &source.text[end..end + argument.len()];
        let Some((name, value)) = written.split_once("=>") else {
            return Some(format!("{}: labels are written out, as \"name\" => value", source.at(at)));
        };
        let name = name.trim().trim_matches('"');
        if !LABELS.split(' ').any(|label| label == name) {
            return Some(format!(
                "{}: {name:?} is no label of ours: add it to LABELS if it has few values",
                source.at(at)
            ));
        }
        if value.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("key")) {
            return Some(format!("{}: a key never becomes a label: it has as many values as clients", source.at(at)));
        }
    }
    None
}

/// What the gateway answers itself is in one table.
pub fn one_table_of_status_codes(sources: &[Source]) -> Vec<String> {
    let others = sources.iter().filter(|source| !source.is_in("src/error.rs"));
    let codes =
        others.flat_map(|source| source.paths("StatusCode").into_iter().map(move |(at, path)| (source, at, path)));
    let constants = codes.filter(|(_, _, path)| path[1].chars().all(|c| c.is_ascii_uppercase() || "_".contains(c)));
    let written = constants.filter(|(source, _, path)| {
        !STATUS_CODES.iter().any(|(place, code, _)| source.is_in(place) && ["*", path[1].as_str()].contains(code))
    });
    let hidden = naming(
        sources.iter().filter(|source| !source.is_in("src/error.rs")),
        &["StatusCode as"],
        "hides a status code: name it in full",
    );
    written
        .map(|(source, at, path)| format!("{}: writes {}: make it a `Failure` of error.rs", source.at(at), path[1]))
        .chain(hidden)
        .collect()
}

/// The invariants that lints check are switched on.
pub fn missing_lints(manifest: &str) -> Vec<String> {
    let missing = LINTS.iter().filter(|(section, lint, levels)| {
        let section = manifest.split_once(section).map_or("", |(_, rest)| rest.split("\n[").next().unwrap_or_default());
        let level = section.lines().find_map(|line| line.strip_prefix(lint)?.trim_start().strip_prefix('='));
        !level.is_some_and(|level| levels.iter().any(|allowed| level.contains(&format!("\"{allowed}\""))))
    });
    missing.map(|(section, lint, levels)| format!("Cargo.toml: {section} {lint} must be one of {levels:?}")).collect()
}

/// No lint is switched off silently, and none of [`LINTS`] but the clock's is switched off at all.
pub fn no_lint_is_allowed(sources: &[Source]) -> Vec<String> {
    let allowed = naming(sources.iter(), &["#[allow(", "#![allow("], "is silent: expect the lint, with a reason");
    let held = naming(sources.iter(), &["clippy::await_holding_lock"], "waits with a lock held: let go of it first");
    allowed.into_iter().chain(held).collect()
}
