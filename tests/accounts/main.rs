//! People who use the admin port: how they sign in, what each role may do, and what becomes of
//! those who should not.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the wait for a gateway is in real time"
)]

mod commands;
mod forms;
mod house;
mod openid;
mod passwords;
mod provider;
mod rights;
mod secure;
mod sessions;

#[path = "../gateway/issuer.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod issuer;
#[path = "../gateway/process.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod process;
