//! Words: names, switches and choices.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tollgate_limiter::algorithm::concurrency::Scope;
use tollgate_limiter::limit::json_path::JsonPath;
use tollgate_limiter::limit::key::OnMissing;
use tollgate_limiter::limit::spec::{Consistency, OnOutage};

use super::number::or_variable;
use crate::config::AccessLog;
use crate::config::decode::Scalar;
use crate::config::mistake::{Trouble, quote};
use crate::upstream::Balance;

/// The name of a limit, an upstream or a route. Goes into header fields and metric labels as it is.
#[derive(Clone)]
pub(in crate::config) struct Name(pub Arc<str>);

/// Any text.
#[derive(Clone)]
pub(in crate::config) struct Text(pub Arc<str>);

/// The name of an algorithm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Kind {
    TokenBucket,
    FixedWindow,
    SlidingWindow,
    Concurrency,
}

/// A switch that is only ever turned on.
#[derive(Clone, Copy)]
pub(in crate::config) struct Yes;

impl Scalar for Name {
    const WHAT: &'static str = "a name";

    fn read(text: &str) -> Result<Self, Trouble> {
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if (1..=64).contains(&text.len()) && text.bytes().all(fine) {
            return Ok(Self(text.into()));
        }
        Err(Trouble::new(format!("{} is not a name", quote(text)))
            .hint("1 to 64 letters, digits, dots, dashes and underscores"))
    }

    fn schema() -> Json {
        json!({ "type": "string", "pattern": or_variable("[A-Za-z0-9_.-]{1,64}") })
    }
}

impl Scalar for Text {
    const WHAT: &'static str = "text";

    fn read(text: &str) -> Result<Self, Trouble> {
        Ok(Self(text.into()))
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl Scalar for JsonPath {
    const WHAT: &'static str = "a field's path";

    fn read(text: &str) -> Result<Self, Trouble> {
        Self::parse(text).map_err(|error| {
            let trouble = Trouble::new(format!("{} is not a field's path: {error}", quote(text)));
            trouble.hint("write names joined by dots, such as usage.total_tokens, and \\. for a dot within a name")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string", "minLength": 1 })
    }
}

impl Scalar for bool {
    const WHAT: &'static str = "true or false";

    fn read(text: &str) -> Result<Self, Trouble> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Trouble::new(format!("{} is neither true nor false", quote(text))).hint("write true or false")),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": or_variable("true|false") }] })
    }
}

impl Scalar for Yes {
    const WHAT: &'static str = "true";

    fn read(text: &str) -> Result<Self, Trouble> {
        match text {
            "true" => Ok(Self),
            _ => Err(Trouble::new(format!("{} is not true", quote(text))).hint("write true, or leave the key out")),
        }
    }

    fn schema() -> Json {
        json!({ "const": true })
    }
}

/// Gives a domain enum its words in the file.
macro_rules! words {
    ($($ty:ident: $what:literal { $($word:literal => $variant:ident),* })*) => { $(
        impl Scalar for $ty {
            const WHAT: &'static str = $what;

            fn read(text: &str) -> Result<Self, Trouble> {
                match text {
                    $( $word => Ok(Self::$variant), )*
                    _ => Err(unknown(text, &[$($word),*])),
                }
            }

            fn schema() -> Json {
                choice(&[$($word),*])
            }
        }
    )* };
}

impl Kind {
    /// In a sentence.
    pub fn noun(self) -> String {
        if self == Self::Concurrency { self.name().to_owned() } else { format!("a {}", self.name()) }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::Concurrency => "concurrency",
        }
    }
}

words! {
    Kind: "an algorithm" {
        "token_bucket" => TokenBucket, "fixed_window" => FixedWindow, "sliding_window" => SlidingWindow,
        "concurrency" => Concurrency
    }
    Scope: "fleet or node" { "fleet" => Fleet, "node" => Node }
    AccessLog: "off or json" { "off" => Off, "json" => Json }
    OnOutage: "local, allow or deny" { "local" => Local, "allow" => Allow, "deny" => Deny }
    Consistency: "exact or leased" { "exact" => Exact, "leased" => Leased }
    OnMissing: "share, skip or refuse" { "share" => Share, "skip" => Skip, "refuse" => Refuse }
    Balance: "round_robin or least_requests" { "round_robin" => RoundRobin, "least_requests" => LeastRequests }
}

/// A word that is none of `words`.
pub(super) fn unknown(text: &str, words: &[&str]) -> Trouble {
    let trouble = Trouble::new(format!("{} is not one of {}", quote(text), words.join(", ")));
    trouble.suggest(text, words.iter().copied(), format!("write {}", words.join(" or ")))
}

fn choice(words: &[&str]) -> Json {
    let mut words: Vec<Json> = words.iter().map(|word| json!(word)).collect();
    if words.contains(&json!("off")) {
        // An editor that reads YAML 1.1 takes a bare `off` for `false`.
        words.push(json!(false));
    }
    json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": "\\$\\{" }] })
}
