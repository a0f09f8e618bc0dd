//! `admin`: the admin server. `server` is the section, `openid` the provider that people sign in
//! at, and `reach` compares its addresses with those of listeners and judges who gets to it.

pub mod openid;
pub mod reach;
pub mod server;
