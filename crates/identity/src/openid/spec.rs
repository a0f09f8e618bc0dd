//! The provider that people sign in at, and how it knows this gateway.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_wire::transport::address::is_loopback;
use tollgate_wire::transport::tls::client::ClientTls;

/// A provider of OpenID Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdSpec {
    /// The issuer, as its tokens say it, and where it is found.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: ClientSecret,
    pub scopes: Vec<String>,
    /// The claim that an account is called by that is made at its first sign-in.
    pub name_claim: String,
    /// The claim with a person's groups.
    pub groups_claim: String,
    /// `None`: it is asked in the clear, on this machine.
    pub tls: Option<ClientTls>,
}

impl OpenIdSpec {
    /// Takes what came from files of the other: the secret, and the authorities that are trusted.
    pub fn take_files_of(&mut self, other: &Self) {
        self.client_secret = other.client_secret.clone();
        if let (Some(own), Some(other)) = (&mut self.tls, &other.tls) {
            own.clone_from(other);
        }
    }
}

/// The secret that the provider knows this gateway by. It is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(pub Arc<str>);

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret(redacted)")
    }
}

/// Whether what is sent to `host` does not leave this machine.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// A role that a group of the provider has: in the fleet, or in an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRole {
    Viewer,
    Operator,
    Admin,
    ViewerOf(String),
    EditorOf(String),
    OwnerOf(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_this_machine() {
        assert!(
            ["localhost", "127.0.0.1", "[::1]", "127.9.9.9"]
                .iter()
                .all(|host| is_this_machine(host))
        );
        assert!(
            ![
                "localhost.example",
                "10.0.0.1",
                "[::2]",
                "127.0.0.1.example",
                ""
            ]
            .iter()
            .any(|host| is_this_machine(host))
        );
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(
            format!("{:?}", ClientSecret("s3cret".into())),
            "ClientSecret(redacted)"
        );
    }
}
