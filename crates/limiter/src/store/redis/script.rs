//! The Lua scripts, run by their hash, and the numbers of a limit in their ARGV.
//!
//! Guarantees that a run is one command.

use std::sync::LazyLock;
use std::time::Duration;

use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, LuaInterface};
use fred::types::{ClusterHash, CustomCommand, Key, Value};
use fred::util::sha1_hash;

use crate::algorithm::quota::Quota;
use crate::algorithm::token_bucket::MAX_TICKS;
use crate::algorithm::window::Span;

/// A script is the concatenation of files in `lua/`.
macro_rules! lua {
    ($($name:literal),+) => { concat!($(include_str!(concat!("../../../lua/", $name, ".lua"))),+) };
}

/// The scripts that take, by algorithm: the text of algorithms that a call does not need would cost it time.
static TAKE: LazyLock<[Script; 4]> = LazyLock::new(|| {
    [
        Script::new(lua!("values", "carry", "token_bucket", "take"), true),
        Script::new(lua!("values", "window", "fixed_window", "take"), true),
        Script::new(lua!("values", "window", "sliding_window", "take"), true),
        Script::new(lua!("values", "carry", "token_bucket", "window", "fixed_window", "sliding_window", "take"), true),
    ]
});

pub(crate) static ADJUST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(lua!("values", "carry", "token_bucket", "window", "fixed_window", "sliding_window", "adjust"), true)
});

pub(crate) static GRANT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(lua!("values", "carry", "token_bucket", "window", "fixed_window", "sliding_window", "give"), true)
});

pub(crate) static CONCURRENCY: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("concurrency"), true));

pub(crate) static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("heartbeat"), false));

pub(crate) static CHANGES_PUBLISH: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("changes_tell"), false));

pub(crate) static CHANGES_POLL: LazyLock<Script> = LazyLock::new(|| Script::new(lua!("changes_hear"), false));

pub(crate) static FIELDS_READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/fields_read.lua"), false));

/// KEYS and ARGV.
pub(crate) type Input = (Vec<Key>, Vec<Value>);

/// A script: its text and its hash.
pub(crate) struct Script {
    text: &'static str,
    sha1: Str,
    /// Its first argument is a deadline. Its reply starts with -1 when that had passed, followed by the server's time.
    pub timed: bool,
}

/// The script that takes from keys of the algorithms in `quotas`.
pub(crate) fn take(mut quotas: impl Iterator<Item = Quota>) -> &'static Script {
    let first = quotas.next().map_or(0, place);
    let place = if quotas.all(|quota| place(quota) == first) { first } else { 3 };
    &TAKE[place]
}

/// The place of an algorithm's script in [`TAKE`].
fn place(quota: Quota) -> usize {
    match quota {
        Quota::Bucket(_) => 0,
        Quota::Window(window) => match window.span() {
            Span::Fixed(_) => 1,
            Span::Sliding { .. } => 2,
        },
    }
}

/// The name of an algorithm in ARGV.
pub(crate) fn letter(quota: Quota) -> Value {
    Value::String(Str::from_static(["b", "f", "s"][place(quota)]))
}

/// The four numbers of an algorithm in ARGV: see its file. The call is over by `deadline`, in the server's time, and
/// was sent no earlier than twice its `timeout` before.
pub(crate) fn numbers(quota: Quota, deadline: i64, timeout: Duration) -> [Value; 4] {
    let numbers = match quota {
        Quota::Bucket(shape) => [shape.emission(), shape.capacity(), shape.ticks_per_us(), shape.reserve()],
        Quota::Window(window) => match window.span() {
            Span::Sliding { width_us, grain_us } => [window.quota(), width_us, grain_us, 0],
            Span::Fixed(period) if period.place().is_none() => [window.quota(), period.longest_us(), 0, 0],
            Span::Fixed(period) => {
                let twice = u64::try_from(2 * timeout.as_micros()).unwrap_or(u64::MAX);
                let this = period.span_at(u64::try_from(deadline).unwrap_or(0).saturating_sub(twice));
                [window.quota(), this.start_us, this.end_us, period.span_at(this.end_us).end_us]
            }
        },
    };
    numbers.map(integer)
}

/// Like [`numbers`], for a charge that counts whole even when the bucket has less: see `lua/adjust.lua`.
pub(crate) fn boundless(quota: Quota, mut numbers: [Value; 4]) -> [Value; 4] {
    let place = match quota {
        Quota::Bucket(_) => 1,
        Quota::Window(_) => 0,
    };
    numbers[place] = integer(MAX_TICKS);
    numbers
}

/// A number in ARGV. A number beyond 63 bits can never be granted anyway.
pub(crate) fn integer(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

impl Script {
    fn new(text: &'static str, timed: bool) -> Self {
        Self { text, sha1: Str::from(sha1_hash(text)), timed }
    }

    /// Runs it by its hash, if the server has it. `asking`: the keys' hash slot is about to move to the server.
    pub(crate) async fn run(&self, client: &Client, (keys, args): Input, asking: bool) -> Result<Value, Error> {
        match asking {
            false => client.evalsha(self.sha1.clone(), keys, Value::Array(args)).await,
            true => Box::pin(ask(client, "EVALSHA", self.sha1.clone(), keys, args)).await,
        }
    }

    /// Runs it by its text, which also loads it.
    pub(crate) async fn run_text(&self, client: &Client, (keys, args): Input, asking: bool) -> Result<Value, Error> {
        match asking {
            false => client.eval(self.text, keys, Value::Array(args)).await,
            true => Box::pin(ask(client, "EVAL", self.text.into(), keys, args)).await,
        }
    }
}

/// Runs a command right after ASKING: only that one may touch the slot, so nothing must come between the two.
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
