//! Message rules and time limits for every version of HTTP: what makes a request acceptable, which
//! responses have content, which trailer fields pass, how long each wait may take, what a client
//! prefers, and the ids of requests. The codec of HTTP/1.1 is in `h1`, and `h2` has what is ours of
//! HTTP/2; both sides of the gateway use them.

pub mod deadline;
pub mod h1;
pub mod h2;
pub mod interim;
pub mod min_rate;
pub mod preferences;
pub mod request_id;
pub mod request_rules;
pub mod response_rules;
pub mod syntax;
pub mod timer;
pub mod trailers;
pub mod upgrade_rules;

/// The scheme by which a client reaches the gateway: that of its connection, whatever a request's
/// target says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RequestScheme {
    #[default]
    Http,
    Https,
}

impl RequestScheme {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}
