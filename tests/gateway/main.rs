//! The gateway as its users run it: the binary, a file, real sockets, real clients, a real Redis.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that lacks what it needs fails"
)]
#![expect(
    clippy::print_stdout,
    reason = "figures that are worth reading with --nocapture"
)]
#![expect(clippy::disallowed_methods, reason = "these tests measure real time")]

mod access_log;
mod admin_port;
mod admin_split;
mod attempts_at_once;
mod authenticators;
mod balancing;
mod basic;
mod body_keys;
mod capacity;
mod command_line;
mod compression;
mod concurrency;
mod console;
mod cors;
mod counted_statuses;
mod credentials;
mod described_api;
mod discovery;
mod distribution;
mod error_pages;
mod explaining;
mod faults;
mod faulty_proxy;
mod fields;
mod first_run;
mod fleet;
mod forward_auth;
mod grpc;
mod health;
mod http2;
mod identity;
mod issuer;
mod jwt;
mod listener_identity;
mod load;
mod maintenance;
mod metrics;
mod networks;
mod nodes;
mod on_limit;
mod operator;
mod outage;
mod overload;
mod own_log;
mod plans;
mod process;
mod proxy_protocol;
mod refused_paths;
mod restart;
mod retries;
mod routing;
mod settling;
mod slow_readers;
mod stored_keys;
mod timeouts;
mod tls;
mod torture;
mod transfer;
mod tunnels;
mod unix_listener;
mod upkeep;
mod upstream_proxy_protocol;
mod upstream_tls;
