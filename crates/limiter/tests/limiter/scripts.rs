//! The shipped scripts, run by a Lua of the test's own against the part of Redis that they use.
//!
//! Guarantees a clock that only the test moves, and that a reply has integers alone, as Redis
//! demands.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, Table, Value, Variadic};
use tollgate_limiter::store::redis::ShippedScript;
use tollgate_testing::SECOND;

/// The part of Redis that the scripts use, on a clock of the test's own.
#[derive(Default)]
pub struct FakeRedis {
    pub now_us: Cell<u64>,
    /// Whether keys expire.
    pub expires: Cell<bool>,
    /// Values, and the millisecond after which they are gone.
    values: RefCell<BTreeMap<String, (Vec<u8>, u64)>>,
    /// The markers of nodes.
    hashes: RefCell<BTreeMap<String, BTreeMap<String, String>>>,
}

/// A charge to a key as the scripts are asked for it.
#[derive(Clone)]
pub struct ScriptCharge {
    pub key: String,
    /// Of the algorithm.
    pub letter: &'static str,
    /// Its four numbers.
    pub numbers: [u64; 4],
    pub charge: u64,
}

/// The scripts, ready to run.
pub struct LuaScripts {
    pub redis: Rc<FakeRedis>,
    lua: Lua,
    loaded: Vec<(ShippedScript, Function)>,
}

impl FakeRedis {
    /// Forgets all keys.
    pub fn flush(&self) {
        self.values.borrow_mut().clear();
        self.hashes.borrow_mut().clear();
    }

    /// The value of a key that has not expired.
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        let now_ms = self.now_us.get() / 1_000;
        let values = self.values.borrow();
        values
            .get(key)
            .filter(|(_, until)| !self.expires.get() || now_ms <= *until)
            .map(|(value, _)| value.clone())
    }

    /// Another program writes a value.
    pub fn write(&self, key: &str, value: &[u8]) {
        self.values
            .borrow_mut()
            .insert(key.to_owned(), (value.to_owned(), u64::MAX));
    }

    /// The millisecond after which a value is gone.
    pub fn kept_until_ms(&self, key: &str) -> Option<u64> {
        self.values.borrow().get(key).map(|(_, until_ms)| *until_ms)
    }

    /// The fields of a hash.
    pub fn hash(&self, key: &str) -> Vec<(String, String)> {
        self.hashes
            .borrow()
            .get(key)
            .into_iter()
            .flatten()
            .map(|(field, text)| (field.clone(), text.clone()))
            .collect()
    }

    fn call(&self, lua: &Lua, words: &[LuaString]) -> mlua::Result<Value> {
        let value_or_none = |value: Option<&[u8]>| match value {
            Some(value) => lua.create_string(value).map(Value::String),
            None => Ok(Value::Boolean(false)),
        };
        if let Some(stored) = words.get(2)
            && words[0] == "SET"
        {
            let [key, form, ttl] = [1, 3, 4].map(|place: usize| words[place].to_string_lossy());
            assert_eq!(form, "PX", "keys expire");
            let ttl: u64 = ttl.parse().expect("a TTL is whole milliseconds");
            assert!(ttl > 0, "Redis refuses a TTL of 0");
            let until_ms = self.now_us.get() / 1_000 + ttl;
            let mut values = self.values.borrow_mut();
            values.insert(key, (stored.as_bytes().to_vec(), until_ms));
            return Ok(Value::Boolean(true));
        }
        let words: Vec<String> = words.iter().map(|word| word.to_string_lossy()).collect();
        match words
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .as_slice()
        {
            ["TIME"] => {
                let seconds = self.now_us.get() / SECOND;
                let micros = self.now_us.get() % SECOND;
                lua.create_sequence_from([seconds.to_string(), micros.to_string()])
                    .map(Value::Table)
            }
            ["GET", key] => value_or_none(self.value(key).as_deref()),
            ["DEL", key] => Ok(Value::Boolean(
                self.values.borrow_mut().remove(*key).is_some(),
            )),
            ["HGET", key, field] => value_or_none(
                self.hashes
                    .borrow()
                    .get(*key)
                    .and_then(|hash| hash.get(*field))
                    .map(String::as_bytes),
            ),
            ["HSET", key, field, text] => {
                let mut hashes = self.hashes.borrow_mut();
                hashes
                    .entry((*key).to_owned())
                    .or_default()
                    .insert((*field).to_owned(), (*text).to_owned());
                Ok(Value::Boolean(true))
            }
            ["HDEL", key, fields @ ..] => {
                if let Some(hash) = self.hashes.borrow_mut().get_mut(*key) {
                    hash.retain(|field, _| !fields.contains(&field.as_str()));
                }
                Ok(Value::Boolean(true))
            }
            ["PEXPIRE", _, "3600000"] => Ok(Value::Boolean(true)),
            other => panic!("the script calls {other:?}"),
        }
    }
}

impl LuaScripts {
    pub fn load() -> Self {
        let lua = Lua::new();
        let redis = Rc::new(FakeRedis::default());
        redis.expires.set(true);
        let table = lua.create_table().unwrap();
        let fake = redis.clone();
        let call =
            lua.create_function(move |lua, words: Variadic<LuaString>| fake.call(lua, &words));
        let call = call.unwrap();
        table.set("call", call.clone()).unwrap();
        table.set("pcall", call).unwrap();
        let error_reply =
            lua.create_function(|_, text: String| Err::<(), _>(mlua::Error::runtime(text)));
        table.set("error_reply", error_reply.unwrap()).unwrap();
        lua.globals().set("redis", table).unwrap();
        let packing = lua.create_table().unwrap();
        packing
            .set("pack", lua.create_function(pack).unwrap())
            .unwrap();
        packing
            .set("unpack", lua.create_function(unpack).unwrap())
            .unwrap();
        lua.globals().set("struct", packing).unwrap();
        let scripts = [
            ShippedScript::TakeTokenBucket,
            ShippedScript::TakeAny,
            ShippedScript::Adjust,
            ShippedScript::Grant,
            ShippedScript::Concurrency,
        ];
        let loaded = scripts
            .map(|script| (script, lua.load(script.text()).into_function().unwrap()))
            .to_vec();
        Self { redis, lua, loaded }
    }

    /// The reply to a group alone: its units, the time, and its levels, or that it was refused.
    pub fn take(
        &self,
        script: ShippedScript,
        deadline: u64,
        units: u32,
        charges: Vec<ScriptCharge>,
    ) -> mlua::Result<Vec<i64>> {
        let mut reply = self.take_groups(script, deadline, vec![(units, charges)])?;
        if reply[0] > 0 {
            reply.remove(0);
            reply.swap(0, 1);
        }
        Ok(reply)
    }

    /// The reply to groups, each of so many units.
    pub fn take_groups(
        &self,
        script: ShippedScript,
        deadline: u64,
        groups: Vec<(u32, Vec<ScriptCharge>)>,
    ) -> mlua::Result<Vec<i64>> {
        let (mut keys, mut known) = (Vec::new(), Vec::new());
        let (mut limits, mut packed) = (Vec::new(), Vec::new());
        let doubles = |numbers: &[u64]| -> Vec<u8> {
            let doubles = numbers.iter().map(|number| *number as f64);
            doubles.flat_map(f64::to_le_bytes).collect()
        };
        for (units, charges) in groups {
            packed.extend(doubles(&[units.into(), charges.len() as u64]));
            for charge in charges {
                let limit = (charge.letter, charge.numbers);
                let place = known.iter().position(|one| *one == limit);
                let place = place.unwrap_or_else(|| {
                    limits.extend_from_slice(charge.letter.as_bytes());
                    limits.extend(doubles(&charge.numbers));
                    known.push(limit);
                    known.len() - 1
                });
                packed.extend(doubles(&[place as u64 + 1, charge.charge]));
                keys.push(charge.key);
            }
        }
        let args = [deadline.to_string().into_bytes(), limits, packed];
        self.run_bytes(script, keys.into_iter(), &args)
    }

    /// The reply of a script.
    pub fn run(
        &self,
        script: ShippedScript,
        keys: impl Iterator<Item = String>,
        args: Vec<String>,
    ) -> mlua::Result<Vec<i64>> {
        let args: Vec<Vec<u8>> = args.into_iter().map(String::into_bytes).collect();
        self.run_bytes(script, keys, &args)
    }

    fn run_bytes(
        &self,
        script: ShippedScript,
        keys: impl Iterator<Item = String>,
        args: &[Vec<u8>],
    ) -> mlua::Result<Vec<i64>> {
        let args: Vec<LuaString> = args
            .iter()
            .map(|arg| self.lua.create_string(arg))
            .collect::<Result<_, _>>()?;
        self.lua
            .globals()
            .set("KEYS", self.lua.create_sequence_from(keys)?)?;
        self.lua
            .globals()
            .set("ARGV", self.lua.create_sequence_from(args)?)?;
        let (_, function) = self
            .loaded
            .iter()
            .find(|(known, _)| *known == script)
            .expect("each is loaded");
        let reply: Table = function.call(())?;
        // Redis truncates what is not an integer: nothing may be lost by that.
        reply
            .sequence_values::<f64>()
            .map(|number| {
                number
                    .inspect(|n| assert_eq!(n.fract(), 0.0))
                    .map(|n| n as i64)
            })
            .collect()
    }
}

/// Bytes of a bucket: its letter and five doubles.
pub fn bucket(numbers: [f64; 5]) -> Vec<u8> {
    [b"b".to_vec(), numbers.map(f64::to_le_bytes).concat()].concat()
}

/// The numbers of a bucket's bytes.
pub fn bucket_numbers(value: &[u8]) -> Option<[f64; 5]> {
    let numbers = value.strip_prefix(b"b")?;
    let (doubles, []) = numbers.as_chunks() else {
        return None;
    };
    let doubles: Vec<f64> = doubles.iter().copied().map(f64::from_le_bytes).collect();
    doubles.try_into().ok()
}

/// Redis's struct.pack, for a letter and doubles.
fn pack(lua: &Lua, (form, words): (String, Variadic<Value>)) -> mlua::Result<LuaString> {
    let mut packed = Vec::new();
    let mut words = words.into_iter();
    for kind in kinds(&form) {
        let word = words.next().expect("a value for each part of the form");
        match (kind, word) {
            (Kind::Letter, Value::String(letter)) => packed.extend_from_slice(&letter.as_bytes()),
            (Kind::Double, number) => {
                let number: f64 = lua.unpack(number)?;
                packed.extend_from_slice(&number.to_le_bytes());
            }
            (Kind::Letter, other) => panic!("the script packs {other:?} as a letter"),
        }
    }
    assert_eq!(words.next(), None, "no value is left out");
    lua.create_string(packed)
}

/// Redis's struct.unpack, for a letter and doubles: they, and the place behind them.
fn unpack(
    lua: &Lua,
    (form, packed, from): (String, LuaString, Option<usize>),
) -> mlua::Result<Variadic<Value>> {
    let packed = packed.as_bytes();
    let mut at = from.unwrap_or(1) - 1;
    let mut words = Variadic::new();
    for kind in kinds(&form) {
        words.push(match kind {
            Kind::Letter => Value::String(lua.create_string(&packed[at..=at])?),
            Kind::Double => {
                let double = packed[at..].first_chunk().expect("as long as its form");
                Value::Number(f64::from_le_bytes(*double))
            }
        });
        at += if kind == Kind::Letter { 1 } else { 8 };
    }
    words.push(Value::Number((at + 1) as f64));
    Ok(words)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Letter,
    Double,
}

/// The parts of a form of Redis's struct library, little-endian.
fn kinds(form: &str) -> Vec<Kind> {
    let parts = form.strip_prefix('<').expect("an order of bytes");
    let (letters, doubles) = match parts.strip_prefix("c1") {
        Some(doubles) => (1, doubles),
        None => (0, parts),
    };
    assert!(doubles.chars().all(|one| one == 'd'), "the form {form}");
    let letters = std::iter::repeat_n(Kind::Letter, letters);
    letters
        .chain(doubles.chars().map(|_| Kind::Double))
        .collect()
}
