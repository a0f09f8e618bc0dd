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
    /// Texts, and the millisecond after which they are gone.
    texts: RefCell<BTreeMap<String, (String, u64)>>,
    /// The markers of nodes.
    hashes: RefCell<BTreeMap<String, BTreeMap<String, String>>>,
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
        self.texts.borrow_mut().clear();
        self.hashes.borrow_mut().clear();
    }

    /// The text of a key that has not expired.
    pub fn text(&self, key: &str) -> Option<String> {
        let now_ms = self.now_us.get() / 1_000;
        let texts = self.texts.borrow();
        texts
            .get(key)
            .filter(|(_, until)| !self.expires.get() || now_ms <= *until)
            .map(|(text, _)| text.clone())
    }

    /// Another program writes a text.
    pub fn write(&self, key: &str, text: &str) {
        self.texts
            .borrow_mut()
            .insert(key.to_owned(), (text.to_owned(), u64::MAX));
    }

    /// The millisecond after which a text is gone.
    pub fn kept_until_ms(&self, key: &str) -> Option<u64> {
        self.texts.borrow().get(key).map(|(_, until_ms)| *until_ms)
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

    fn call(&self, lua: &Lua, words: &[String]) -> mlua::Result<Value> {
        let text_or_none = |text: Option<String>| match text {
            Some(text) => lua.create_string(text).map(Value::String),
            None => Ok(Value::Boolean(false)),
        };
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
            ["GET", key] => text_or_none(self.text(key)),
            ["SET", key, text, "PX", ttl] => {
                let ttl: u64 = ttl.parse().expect("a TTL is whole milliseconds");
                assert!(ttl > 0, "Redis refuses a TTL of 0");
                let until_ms = self.now_us.get() / 1_000 + ttl;
                self.texts
                    .borrow_mut()
                    .insert((*key).to_owned(), ((*text).to_owned(), until_ms));
                Ok(Value::Boolean(true))
            }
            ["DEL", key] => Ok(Value::Boolean(
                self.texts.borrow_mut().remove(*key).is_some(),
            )),
            ["HGET", key, field] => text_or_none(
                self.hashes
                    .borrow()
                    .get(*key)
                    .and_then(|hash| hash.get(*field))
                    .cloned(),
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
        let call = lua.create_function(move |lua, words: Variadic<LuaString>| {
            let words: Vec<String> = words.iter().map(|word| word.to_string_lossy()).collect();
            fake.call(lua, &words)
        });
        let call = call.unwrap();
        table.set("call", call.clone()).unwrap();
        table.set("pcall", call).unwrap();
        let error_reply =
            lua.create_function(|_, text: String| Err::<(), _>(mlua::Error::runtime(text)));
        table.set("error_reply", error_reply.unwrap()).unwrap();
        lua.globals().set("redis", table).unwrap();
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

    /// The reply of a script.
    pub fn run(
        &self,
        script: ShippedScript,
        keys: impl Iterator<Item = String>,
        args: Vec<String>,
    ) -> mlua::Result<Vec<i64>> {
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
