//! The action of a route: forward, respond or echo. Each action is spelt here and nowhere else in
//! the configuration.
//!
//! Guarantees that a route has exactly one action, and no key of another one.

use http::HeaderValue;
use serde_json::{Value as Json, json};

use super::distribution::{RawForwardTo, RawMirror};
use super::fields::RawRedirect;
use crate::config::file::limit::RawKey;
use crate::config::file::respond::RawRespond;
use crate::config::file::scalar::path::{FullPath, PathPrefix};
use crate::config::file::scalar::text::OnlyTrue;
use crate::config::report::{Location, Report, ValueProblem, quote};
use crate::config::yaml::decode::{Located, Scalar, only_one};
use crate::config::yaml::record::record;
use crate::route::HostPolicy;
use crate::spelling::nearest;
use crate::upstream::url::authority;

record! {
    /// The action of a route, and the keys that belong to it.
    RawActionKeys at location {
        /// Forward to this upstream, or to several: [{to: orders, weight: 95%}, {to: canary,
        /// weight: 5%}].
        optional upstream: RawForwardTo,
        /// The key by which requests stay with one of several upstreams, as in a limit. Default:
        /// each goes to any.
        optional split_by: RawKey,
        /// Copies of requests for another upstream, whose answers are dropped.
        optional mirror: RawMirror,
        /// Answer with something fixed.
        optional respond: RawRespond,
        /// Send the client elsewhere.
        optional redirect: RawRedirect,
        /// Answer with a description of the request.
        optional echo: Located<OnlyTrue>,
        /// Forward without this leading part of the path.
        optional strip_prefix: Located<PathPrefix>,
        /// Forward with another leading part of the path.
        optional replace_prefix: RawReplacePrefix,
        /// Forward to this path instead of the request's.
        optional replace_path: Located<FullPath>,
        /// The Host that the upstream sees: the client's (preserve), the endpoint's (endpoint), or
        /// this one.
        optional host: Located<HostPolicy>,
    }
}

record! {
    /// Another leading part of the path.
    RawReplacePrefix at location {
        /// The part to replace.
        required from: Located<PathPrefix>,
        /// The new leading part.
        required to: Located<PathPrefix>,
    }
}

/// An action, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionName {
    Forward,
    Respond,
    Redirect,
    Echo,
}

impl RawActionKeys {
    /// The route's one action. `None`: a mistake was reported.
    pub fn choose(&self, report: &mut Report) -> Option<ActionName> {
        self.check_forward_keys(report);
        let actions = [
            self.upstream.build(|_| Some(ActionName::Forward)),
            self.respond.build(|_| Some(ActionName::Respond)),
            self.redirect.build(|_| Some(ActionName::Redirect)),
            self.echo.build(|_| Some(ActionName::Echo)),
        ];
        let message = match only_one(actions) {
            Ok(action) => return action,
            Err(0) => "the route does nothing",
            Err(_) => "the route does more than one thing",
        };
        let hint =
            "a route has exactly one of \"upstream\", \"respond\", \"redirect\" and \"echo\"";
        report.mistake(&self.location, ValueProblem::new(message).hint(hint));
        None
    }

    /// Reports keys that belong to a route that forwards, and two ways to rewrite one path.
    fn check_forward_keys(&self, report: &mut Report) {
        let rewrites = self.rewrites();
        let host = ("host", self.host.valid().map(|host| &host.location));
        let mirror = ("mirror", self.mirror.valid().map(|mirror| &mirror.location));
        let split_by = ("split_by", self.split_by.valid().map(|_| &self.location));
        if !self.upstream.is_present() {
            for (key, location) in rewrites
                .iter()
                .chain([&host, &mirror, &split_by])
                .filter_map(|(key, at)| Some((key, (*at)?)))
            {
                let problem = ValueProblem::new(format!("\"{key}\" is for routes that forward"));
                report.mistake(
                    location,
                    problem.hint("give the route an \"upstream\", or remove this key"),
                );
            }
        }
        let mut present = rewrites
            .iter()
            .filter_map(|(key, location)| Some((key, (*location)?)));
        if let (Some((first, _)), Some((second, location))) = (present.next(), present.next()) {
            let problem =
                ValueProblem::new(format!("\"{first}\" and \"{second}\" exclude each other"));
            report.mistake(location, problem.hint("keep one of the two"));
        }
    }

    fn rewrites(&self) -> [(&'static str, Option<&Location>); 3] {
        [
            (
                "strip_prefix",
                self.strip_prefix.valid().map(|at| &at.location),
            ),
            (
                "replace_prefix",
                self.replace_prefix.valid().map(|record| &record.location),
            ),
            (
                "replace_path",
                self.replace_path.valid().map(|at| &at.location),
            ),
        ]
    }
}

impl Scalar for HostPolicy {
    const WHAT: &'static str = "preserve, endpoint or a host";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        const WORDS: [&str; 2] = ["preserve", "endpoint"];
        let problem = || {
            ValueProblem::new(format!(
                "{} is neither preserve, endpoint nor a host",
                quote(text)
            ))
        };
        match text {
            "preserve" => return Ok(Self::Preserve),
            "endpoint" => return Ok(Self::Endpoint),
            // A slip of these words would be a valid host.
            _ if !text.contains(['.', ':']) && nearest(text, WORDS.into_iter()).is_some() => {
                return Err(problem().suggest(text, WORDS.into_iter(), ""));
            }
            _ => {}
        }
        let host =
            authority(text).and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        host.map(Self::Fixed).ok_or_else(|| {
            problem().hint("write preserve, endpoint, or a host such as api.internal")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
