//! The Lua scripts, run by their hash, the numbers of a limit in their ARGV, and the integers of
//! their replies.
//!
//! Guarantees that a run is one command, and that a reply of another form is an error. The client
//! library would also read texts and lists of one integer as integers.

use std::sync::LazyLock;
use std::time::Duration;

use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, LuaInterface};
use fred::types::config::Options;
use fred::types::{ClusterHash, CustomCommand, FromValue, Key, Value};
use fred::util::sha1_hash;

use crate::algorithm::quota::{AlgorithmScript, Quota};

/// A script is the concatenation of files in `lua/`.
macro_rules! lua {
    ($($name:literal),+) => { concat!($(include_str!(concat!("../../../lua/", $name, ".lua"))),+) };
}

/// A script behind every algorithm.
macro_rules! every_algorithm {
    ($name:literal) => {
        lua!(
            "values",
            "token_bucket",
            "window",
            "fixed_window",
            "sliding_window",
            $name
        )
    };
}

/// Takes from keys of these algorithms: those that a call does not need would cost it time.
static TAKE_TOKEN_BUCKET: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("values", "token_bucket", "take"), true));

static TAKE_FIXED_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("values", "window", "fixed_window", "take"), true));

static TAKE_SLIDING_WINDOW: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("values", "window", "sliding_window", "take"), true));

static TAKE_ANY: LazyLock<Script> = LazyLock::new(|| Script::new(every_algorithm!("take"), true));

/// No request waits for it. An answer that comes a little late is still of use: without it, all has
/// to be sent again.
pub(crate) static ADJUST: LazyLock<Script> = LazyLock::new(|| Script {
    time_limits: 3,
    ..Script::new(every_algorithm!("adjust"), true)
});

pub(crate) static GRANT: LazyLock<Script> =
    LazyLock::new(|| Script::new(every_algorithm!("grant"), true));

pub(crate) static CONCURRENCY: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("concurrency"), true));

pub(crate) static HEARTBEAT: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("heartbeat"), false));

pub(crate) static NODES: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("nodes"), false));

pub(crate) static CHANGES_PUBLISH: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("changes_publish"), false));

pub(crate) static CHANGES_POLL: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("changes_poll"), false));

pub(crate) static PLANS_READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(lua!("plans_read"), false));

/// The texts of scripts, for tests that run them without Redis.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShippedScript {
    /// Takes from buckets alone.
    TakeTokenBucket,
    TakeAny,
    Adjust,
    Grant,
    Concurrency,
}

/// KEYS and ARGV.
pub(crate) type Input = (Vec<Key>, Vec<Value>);

/// A script: its text and its hash.
pub(crate) struct Script {
    text: &'static str,
    sha1: Str,
    /// Whether the first argument is a deadline. The reply starts with -1 when that had passed,
    /// followed by the server's time.
    pub timed: bool,
    /// The time limits of the store that a run may take.
    time_limits: u32,
}

impl ShippedScript {
    pub fn text(self) -> &'static str {
        let script = match self {
            Self::TakeTokenBucket => &TAKE_TOKEN_BUCKET,
            Self::TakeAny => &TAKE_ANY,
            Self::Adjust => &ADJUST,
            Self::Grant => &GRANT,
            Self::Concurrency => &CONCURRENCY,
        };
        script.text
    }
}

/// The script that takes from keys of the algorithms in `quotas`.
pub(crate) fn take(mut quotas: impl Iterator<Item = Quota>) -> &'static Script {
    let first = quotas
        .next()
        .map_or(AlgorithmScript::TokenBucket, Quota::script);
    if !quotas.all(|quota| quota.script() == first) {
        return &TAKE_ANY;
    }
    match first {
        AlgorithmScript::TokenBucket => &TAKE_TOKEN_BUCKET,
        AlgorithmScript::FixedWindow => &TAKE_FIXED_WINDOW,
        AlgorithmScript::SlidingWindow => &TAKE_SLIDING_WINDOW,
    }
}

/// The name of an algorithm in ARGV.
pub(crate) fn letter(quota: Quota) -> Value {
    Value::String(Str::from_static(quota.script().letter()))
}

/// The four numbers of an algorithm in ARGV: see its file. The call is over by `deadline`, in the
/// server's time, and was sent no earlier than twice its `timeout` before.
pub(crate) fn numbers(quota: Quota, deadline: i64, timeout: Duration) -> [u64; 4] {
    let twice = u64::try_from(2 * timeout.as_micros()).unwrap_or(u64::MAX);
    let earliest_us = u64::try_from(deadline).unwrap_or(0).saturating_sub(twice);
    quota.script_numbers(earliest_us)
}

/// A number in ARGV. A number beyond 63 bits can never be granted anyway.
pub(crate) fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A reply of integers.
pub(crate) struct Integers(pub Vec<i64>);

impl FromValue for Integers {
    fn from_value(value: Value) -> Result<Self, Error> {
        let integers = match &value {
            Value::Array(values) => values.iter().map(integer_of).collect(),
            _ => None,
        };
        match integers {
            Some(integers) => Ok(Self(integers)),
            None => Err(Error::new(ErrorKind::Parse, "a reply of another form")),
        }
    }
}

/// `None`: the value is of another kind.
pub(crate) fn integer_of(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(integer) => Some(*integer),
        _ => None,
    }
}

impl Script {
    fn new(text: &'static str, timed: bool) -> Self {
        Self {
            text,
            sha1: Str::from(sha1_hash(text)),
            timed,
            time_limits: 1,
        }
    }

    /// The longest that a run takes on a server with this time limit.
    pub(crate) fn time_limit(&self, timeout: Duration) -> Duration {
        timeout * self.time_limits
    }

    /// Runs it by its hash, if the server has it. `asking`: the keys' hash slot is about to move to
    /// the server. The client's own time limit is that of most scripts.
    pub(crate) async fn run(
        &self,
        client: &Client,
        input: Input,
        asking: bool,
        timeout: Duration,
    ) -> Result<Value, Error> {
        let (keys, args) = input;
        if asking {
            return Box::pin(ask(client, "EVALSHA", self.sha1.clone(), keys, args)).await;
        }
        if self.time_limits > 1 {
            let options = Options {
                timeout: Some(self.time_limit(timeout)),
                ..Options::default()
            };
            let words = words(self.sha1.clone(), keys, args);
            // Not `evalsha`, which would take no notice of the options.
            return Box::pin(async move {
                client
                    .with_options(&options)
                    .custom(named("EVALSHA"), words)
                    .await
            })
            .await;
        }
        client
            .evalsha(self.sha1.clone(), keys, Value::Array(args))
            .await
    }

    /// Runs it by its text, which also loads it.
    pub(crate) async fn run_text(
        &self,
        client: &Client,
        input: Input,
        asking: bool,
    ) -> Result<Value, Error> {
        let (keys, args) = input;
        if asking {
            Box::pin(ask(client, "EVAL", self.text.into(), keys, args)).await
        } else {
            client.eval(self.text, keys, Value::Array(args)).await
        }
    }
}

/// Runs a command right after ASKING: only that one may touch the slot, so nothing must come
/// between the two.
async fn ask(
    client: &Client,
    command: &'static str,
    script: Str,
    keys: Vec<Key>,
    args: Vec<Value>,
) -> Result<Value, Error> {
    let pair = client.pipeline();
    let _: Value = pair.custom(named("ASKING"), Vec::<Value>::new()).await?;
    let _: Value = pair
        .custom(named(command), words(script, keys, args))
        .await?;
    pair.last().await
}

fn named(command: &'static str) -> CustomCommand {
    CustomCommand::new_static(command, ClusterHash::FirstKey, false)
}

/// The words behind the name of a command that runs a script.
fn words(script: Str, keys: Vec<Key>, args: Vec<Value>) -> Vec<Value> {
    let count = i64::try_from(keys.len()).unwrap_or(i64::MAX);
    let mut words = vec![Value::String(script), Value::Integer(count)];
    words.extend(keys.into_iter().map(Value::from));
    words.extend(args);
    words
}
