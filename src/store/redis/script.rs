//! Scripts by their hash.
//!
//! Guarantees that a script runs once, also when the server has forgotten it. Refuses to know what scripts do.

use std::sync::LazyLock;

use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, LuaInterface};
use fred::types::{ClusterHash, CustomCommand, Key, Value};
use fred::util::sha1_hash;

pub(super) static TOKEN_BUCKET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../../lua/carry.lua"), include_str!("../../../lua/token_bucket.lua")), true)
});

pub(super) static ADJUST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../../lua/carry.lua"), include_str!("../../../lua/adjust.lua")), true)
});

pub(super) static HEARTBEAT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/heartbeat.lua"), false));

pub(super) static BUCKET_ADJUST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("../../../lua/carry.lua"), include_str!("../../../lua/bucket_adjust.lua")), true)
});

pub(super) static CHANGES_TELL: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/changes_tell.lua"), false));

pub(super) static CHANGES_HEAR: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/changes_hear.lua"), false));

pub(super) static FIELDS_READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/fields_read.lua"), false));

/// KEYS and ARGV.
pub(super) type Input = (Vec<Key>, Vec<Value>);

/// A script, by its text and its hash.
pub(super) struct Script {
    text: &'static str,
    sha1: Str,
    /// Its first argument is a deadline; its reply starts with -1 when that had passed, and then has the server's time.
    pub timed: bool,
}

impl Script {
    fn new(text: &'static str, timed: bool) -> Self {
        Self { text, sha1: Str::from(sha1_hash(text)), timed }
    }

    /// Runs it by its hash, or by its text when the server does not have it, which also loads it. `input` makes KEYS and
    /// ARGV: a second time only when they are needed again. `asking`: the server is only about to get the keys' slot.
    pub(super) async fn run(&self, client: &Client, input: impl Fn() -> Input, asking: bool) -> Result<Value, Error> {
        let (keys, args) = input();
        let first = match asking {
            false => client.evalsha(self.sha1.clone(), keys, args).await,
            true => ask(client, "EVALSHA", self.sha1.clone(), keys, args).await,
        };
        match first {
            Err(error) if error.details().starts_with("NOSCRIPT") => {
                let (keys, args) = input();
                match asking {
                    false => client.eval(self.text, keys, args).await,
                    true => ask(client, "EVAL", self.text.into(), keys, args).await,
                }
            }
            other => other,
        }
    }
}

/// The one command after ASKING may touch the slot, so nothing must come between the two.
async fn ask(
    client: &Client,
    command: &'static str,
    script: Str,
    keys: Vec<Key>,
    args: Vec<Value>,
) -> Result<Value, Error> {
    let count = i64::try_from(keys.len()).unwrap_or(i64::MAX);
    let mut words = vec![Value::String(script), Value::Integer(count)];
    words.extend(keys.into_iter().map(Value::from));
    words.extend(args);
    let named = |name| CustomCommand::new_static(name, ClusterHash::FirstKey, false);
    let pair = client.pipeline();
    let _: Value = pair.custom(named("ASKING"), Vec::<Value>::new()).await?;
    let _: Value = pair.custom(named(command), words).await?;
    pair.last().await
}
