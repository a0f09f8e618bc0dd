//! What a route does, and what a forwarded request's path becomes.

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, StatusCode};

use super::named::Named;
use super::optional;
use crate::config::decode::{At, Row, Slot, Table};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::node::Place;
use crate::config::raw;
use crate::gateway::route::{Action, FixedResponse, Forward, PathPattern, Rewrite, Segment};
use crate::upstream::UpstreamSpec;

/// What the route does. `None`: said in the report.
pub(super) fn action(
    raw: &raw::Route,
    path: Option<&PathPattern>,
    upstreams: &Named<UpstreamSpec>,
    report: &mut Report,
) -> Option<Action> {
    let only_one = exactly_one(raw, report);
    let forwards = raw.upstream.is_present();
    check_forward_only(raw, forwards, report);
    let forward = forwards.then(|| forward(raw, path, upstreams, report));
    let respond = raw.respond.good().map(|raw| respond(raw, report));
    only_one?;
    match (forward, respond) {
        (Some(forward), _) => forward.map(Action::Forward),
        (None, Some(respond)) => respond.map(Action::Respond),
        (None, None) => raw.echo.good().map(|_| Action::Echo),
    }
}

fn exactly_one(raw: &raw::Route, report: &mut Report) -> Option<()> {
    const HINT: &str = "a route has exactly one of \"upstream\", \"respond\" and \"echo\"";
    let present = [raw.upstream.is_present(), raw.respond.is_present(), raw.echo.is_present()];
    let what = match present.iter().filter(|present| **present).count() {
        1 => return Some(()),
        0 => "the route does nothing",
        _ => "the route does more than one thing",
    };
    report.mistake(&raw.place, Trouble::new(what).hint(HINT));
    None
}

fn check_forward_only(raw: &raw::Route, forwards: bool, report: &mut Report) {
    let rewrites = rewrites(raw);
    let host = ("host", raw.host.good().map(|host| &host.place));
    if !forwards {
        for (key, place) in rewrites.iter().chain([&host]).filter_map(|(key, place)| Some((key, (*place)?))) {
            let trouble = Trouble::new(format!("\"{key}\" is for routes that forward"));
            report.mistake(place, trouble.hint("give the route an \"upstream\", or remove this key"));
        }
    }
    let mut present = rewrites.iter().filter_map(|(key, place)| Some((key, (*place)?)));
    if let (Some((first, _)), Some((second, place))) = (present.next(), present.next()) {
        let trouble = Trouble::new(format!("\"{first}\" and \"{second}\" exclude each other"));
        report.mistake(place, trouble.hint("keep one of the two"));
    }
}

fn rewrites(raw: &raw::Route) -> [(&'static str, Option<&Place>); 3] {
    [
        ("strip_prefix", raw.strip_prefix.good().map(|at| &at.place)),
        ("replace_prefix", raw.replace_prefix.good().map(|record| &record.place)),
        ("replace_path", raw.replace_path.good().map(|at| &at.place)),
    ]
}

fn forward(
    raw: &raw::Route,
    path: Option<&PathPattern>,
    upstreams: &Named<UpstreamSpec>,
    report: &mut Report,
) -> Option<Forward> {
    let upstream = raw.upstream.good().and_then(|name| upstreams.find(name, report));
    let rewrite = rewrite(raw, path, report);
    let host = optional(&raw.host, |at| Some(at.value.clone()));
    Some(Forward { upstream: upstream?.name.clone(), rewrite: rewrite?, host: host?.unwrap_or_default() })
}

fn rewrite(raw: &raw::Route, path: Option<&PathPattern>, report: &mut Report) -> Option<Rewrite> {
    let strip = optional(&raw.strip_prefix, |at| {
        check_prefix(at, path, report)?;
        Some(Rewrite::StripPrefix(at.value.0.clone()))
    });
    let replace_prefix = optional(&raw.replace_prefix, |record| {
        let from = record.from.good()?;
        check_prefix(from, path, report)?;
        Some(Rewrite::ReplacePrefix { from: from.value.0.clone(), to: record.to.value()?.0 })
    });
    let replace = optional(&raw.replace_path, |at| Some(Rewrite::Replace(at.value.0.clone())));
    Some(strip?.or(replace_prefix?).or(replace?).unwrap_or_default())
}

/// Every request of the route must have the prefix, in whole segments.
fn check_prefix(prefix: &At<raw::Prefix>, path: Option<&PathPattern>, report: &mut Report) -> Option<()> {
    let mut segments = path?.segments.iter();
    let parts = prefix.value.0.split('/').skip(1).filter(|part| !part.is_empty());
    let starts = parts.into_iter().all(|part| {
        segments.next().is_some_and(|segment| matches!(segment, Segment::Literal(literal) if **literal == *part))
    });
    if starts {
        return Some(());
    }
    let trouble = Trouble::new(format!("the route's path does not start with {}", quote(&prefix.value.0)));
    report.mistake(&prefix.place, trouble.hint(format!("match {}", quote(&format!("{}/*", prefix.value.0)))));
    None
}

/// A fixed answer. `None`: said in the report.
pub(super) fn respond(raw: &raw::Respond, report: &mut Report) -> Option<FixedResponse> {
    let headers = optional(&raw.headers, |table| response_headers(table, report));
    let status = raw.status.value();
    if let (Some(status), Slot::Good(body)) = (status, &raw.body) {
        // RFC 9110 §15.3.5, §15.3.6, §15.4.5.
        let empty = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
        if empty.contains(&status) && !body.value.0.is_empty() {
            let trouble = Trouble::new(format!("an answer with status {} has no body", status.as_u16()));
            report.mistake(&body.place, trouble.hint("remove the body or change the status"));
        }
    }
    let body = optional(&raw.body, |at| Some(Bytes::copy_from_slice(at.value.0.as_bytes())));
    Some(FixedResponse { status: status?, headers: headers?.unwrap_or_default(), body: body?.unwrap_or_default() })
}

pub(super) type HeaderValues = Table<HeaderName, At<http::HeaderValue>>;

/// The fields of a fixed answer. `None`: said in the report.
pub(super) fn response_headers(
    table: &HeaderValues,
    report: &mut Report,
) -> Option<Vec<(HeaderName, http::HeaderValue)>> {
    check_names(table, report);
    for row in table.0.iter().filter(|row| row.key.as_ref().is_some_and(is_connection_header)) {
        let trouble = Trouble::new(format!("{} is about the connection: the gateway sets it", quote(&row.text)));
        report.mistake(&row.place, trouble.hint("remove it"));
    }
    table.0.iter().map(|row| Some((row.key.clone()?, row.value.as_ref()?.value.clone()))).collect()
}

/// Names of fields do not differ by case alone.
pub(super) fn check_names<V>(table: &Table<HeaderName, V>, report: &mut Report) {
    let mut seen = std::collections::HashMap::new();
    for Row { text, place, key, .. } in &table.0 {
        let Some(name) = key else { continue };
        if let Some(line) = seen.insert(name, place.line) {
            let trouble = Trouble::new(format!("{} is here twice, first on line {line}", quote(text)));
            report.mistake(place, trouble.hint("upper and lower case are the same in names of header fields"));
        }
    }
}

/// Hop-by-hop fields and the framing (RFC 9110 §7.6.1, RFC 9112 §6).
fn is_connection_header(name: &HeaderName) -> bool {
    let known =
        [CONNECTION, CONTENT_LENGTH, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    known.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}
