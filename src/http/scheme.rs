//! The scheme by which a client reaches the gateway: the connection's, whatever a request's target
//! says.

/// `http` or `https`.
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
