//! The cookie of a session.
//!
//! Guarantees that it is sent to this host alone, is read by no script, and goes over HTTPS alone
//! where the console is reached by it. The name's prefix makes browsers refuse one that another
//! host or plain HTTP has set (RFC 6265bis §4.1.3).

use axum::http::{HeaderMap, HeaderValue};
use tollgate_policies::people::{SESSION_BEGINNING, Secret};

use tollgate_admin::browser_guard::{SESSION_COOKIES, cookie};

/// How sessions are kept in browsers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCookies {
    /// Whether the console is reached over HTTPS.
    pub is_secure: bool,
}

impl SessionCookies {
    fn name(self) -> &'static str {
        let [secure, clear] = SESSION_COOKIES;
        if self.is_secure { secure } else { clear }
    }

    /// The secret of the session that a request is part of.
    pub fn session(self, headers: &HeaderMap) -> Option<&str> {
        cookie(headers, self.name()).filter(|secret| secret.starts_with(SESSION_BEGINNING))
    }

    /// Sets the cookie, until the browser ends or the session does.
    pub fn begin(self, secret: &Secret) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!(
            "{}={}{}",
            self.name(),
            secret.expose(),
            self.attributes()
        ))
        .ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Takes the cookie away.
    pub fn end(self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("{}={}; Max-Age=0", self.name(), self.attributes())).ok()
    }

    /// Sets the cookie of a sign-in that goes on at a provider, for ten minutes. It comes back with
    /// a redirect from there.
    pub fn begin_sign_in(self, text: &str) -> Option<HeaderValue> {
        let attributes = self.attributes_of("Lax");
        let mut value = HeaderValue::try_from(format!(
            "{}={text}{attributes}; Max-Age=600",
            self.sign_in_name()
        ))
        .ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The text in the cookie of a sign-in, as the browser has kept it.
    pub fn sign_in(self, headers: &HeaderMap) -> Option<&str> {
        cookie(headers, self.sign_in_name())
    }

    /// Takes that cookie away.
    pub fn end_sign_in(self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!(
            "{}={}; Max-Age=0",
            self.sign_in_name(),
            self.attributes_of("Lax")
        ))
        .ok()
    }

    fn sign_in_name(self) -> &'static str {
        if self.is_secure {
            "__Host-tollgate-sign-in"
        } else {
            "tollgate-sign-in"
        }
    }

    fn attributes(self) -> String {
        self.attributes_of("Strict")
    }

    fn attributes_of(self, same_site: &str) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("; Path=/; HttpOnly; SameSite={same_site}{secure}")
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::COOKIE;

    use super::*;

    #[test]
    fn a_session_is_that_of_its_own_cookie() {
        let mut headers = HeaderMap::new();
        headers.insert(
            COOKIE,
            "a=b; tollgate=tgs_x; __Host-tollgate=tgs_y; c=tgs_z"
                .parse()
                .unwrap(),
        );
        assert_eq!(
            SessionCookies { is_secure: false }.session(&headers),
            Some("tgs_x")
        );
        assert_eq!(
            SessionCookies { is_secure: true }.session(&headers),
            Some("tgs_y")
        );
        headers.insert(
            COOKIE,
            HeaderValue::from_bytes(b"name=M\xfcller; tollgate=tgs_x").unwrap(),
        );
        assert_eq!(
            SessionCookies { is_secure: false }.session(&headers),
            Some("tgs_x"),
            "beside one that is no text"
        );
        headers.insert(COOKIE, "tollgate=tgt_x".parse().unwrap());
        assert_eq!(SessionCookies { is_secure: false }.session(&headers), None);
    }

    #[test]
    fn a_cookie_is_kept_from_scripts_and_other_sites() {
        for (is_secure, cookie) in [
            (
                false,
                "tollgate=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
            ),
            (
                true,
                "__Host-tollgate=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0",
            ),
        ] {
            assert_eq!(SessionCookies { is_secure }.end().unwrap(), cookie);
        }
    }
}
