//! The names of a certificate, and the comparison of hosts with them (RFC 6125 §6.4).
//!
//! Guarantees that a wildcard stands for one label, the leftmost.

use std::net::IpAddr;

/// The names of a certificate, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateNames {
    exact: Vec<String>,
    /// The part after the `*` of a wildcard: `.example.com`.
    suffixes: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl CertificateNames {
    /// Adds a name such as `www.example.com` or `*.example.com`.
    pub fn add(&mut self, name: &str) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        match name.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') => self.suffixes.push(suffix.to_owned()),
            // A star elsewhere stands for nothing.
            _ if name.contains('*') || name.is_empty() => {}
            _ => self.exact.push(name),
        }
    }

    pub fn add_address(&mut self, address: IpAddr) {
        self.addresses.push(address);
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.suffixes.is_empty() && self.addresses.is_empty()
    }

    /// Whether `host`, in lower case and without a port, is exactly one of the names.
    pub fn has(&self, host: &str) -> bool {
        if self.exact.iter().any(|name| name == host) {
            return true;
        }
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => self.addresses.contains(&address),
            Err(_) => false,
        }
    }

    /// Whether a wildcard stands for `host`, in lower case and without a port.
    pub fn has_wildcard_for(&self, host: &str) -> bool {
        let Some((label, _)) = host.split_once('.') else {
            return false;
        };
        !label.is_empty()
            && self
                .suffixes
                .iter()
                .any(|suffix| host[label.len()..] == **suffix)
    }

    /// Whether the certificate is for `host`, in lower case and without a port.
    pub fn covers(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.has(host) || self.has_wildcard_for(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> CertificateNames {
        let mut names = CertificateNames::default();
        all.iter().for_each(|name| names.add(name));
        names
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let names = names(&["*.Example.com"]);
        assert!(names.covers("a.example.com"));
        for host in [
            "example.com",
            "a.b.example.com",
            ".example.com",
            "aexample.com",
            "com",
            "",
        ] {
            assert!(!names.covers(host), "{host}");
        }
    }

    #[test]
    fn exact_names_and_addresses_are_compared_whole() {
        let mut names = names(&["a.example", "b*.example", "*", ""]);
        names.add_address([192, 0, 2, 1].into());
        names.add_address("2001:db8::1".parse().unwrap());
        for host in ["a.example", "a.example.", "192.0.2.1", "[2001:db8::1]"] {
            assert!(names.covers(host), "{host}");
        }
        for host in ["x.a.example", "bc.example", "b*.example", "192.0.2.2", "*"] {
            assert!(!names.covers(host), "{host}");
        }
    }
}
