//! Scripts by their hash.
//!
//! Guarantees that a script runs once, also when the server has forgotten it. Refuses to know what scripts do.

use std::sync::LazyLock;

use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::LuaInterface;
use fred::types::{FromValue, Key, Value};
use fred::util::sha1_hash;

pub(super) static TOKEN_BUCKET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../../lua/carry.lua"), include_str!("../../../lua/token_bucket.lua")))
});

pub(super) static ADJUST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../../lua/carry.lua"), include_str!("../../../lua/adjust.lua")))
});

pub(super) static HEARTBEAT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/heartbeat.lua")));

pub(super) static BUCKET_ADJUST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../../lua/carry.lua"), include_str!("../../../lua/bucket_adjust.lua")))
});

pub(super) static CHANGES_TELL: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/changes_tell.lua")));

pub(super) static CHANGES_HEAR: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/changes_hear.lua")));

/// KEYS and ARGV.
pub(super) type Input = (Vec<Key>, Vec<Value>);

/// A script, by its text and its hash.
pub(super) struct Script {
    text: &'static str,
    sha1: Str,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, sha1: Str::from(sha1_hash(text)) }
    }

    /// Runs one that replies with integers.
    pub(super) async fn run(&self, client: &Client, input: impl Fn() -> Input) -> Result<Vec<i64>, Error> {
        self.reply(client, input).await
    }

    /// Runs it by its hash, or by its text when the server does not have it, which also loads it. `input` makes KEYS and
    /// ARGV: a second time only when they are needed again.
    pub(super) async fn reply<R: FromValue>(&self, client: &Client, input: impl Fn() -> Input) -> Result<R, Error> {
        let (keys, args) = input();
        match client.evalsha(self.sha1.clone(), keys, args).await {
            Err(error) if error.details().starts_with("NOSCRIPT") => {
                let (keys, args) = input();
                client.eval(self.text, keys, args).await
            }
            other => other,
        }
    }
}
