//! The claims of a token (RFC 7519 §4) whose signature was verified.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map as Object, Value as Json};

use super::spec::JwtSpec;
use crate::refusal::AuthenticationRefusal;

/// The claims of a token.
pub struct TokenClaims(Object<String, Json>);

/// The issuer that a token claims to be of, before anything is verified.
#[derive(Deserialize)]
pub struct ClaimedIssuer {
    #[serde(default)]
    iss: Json,
}

const fn invalid(reason: &'static str) -> AuthenticationRefusal {
    AuthenticationRefusal::Invalid(reason)
}

impl ClaimedIssuer {
    pub fn is(&self, issuer: &str) -> bool {
        self.iss.as_str() == Some(issuer)
    }
}

impl TokenClaims {
    /// Checks issuer, audience and times at `now`, in seconds since 1970. Returns when the token
    /// ends.
    ///
    /// # Errors
    /// When it is not for here and now, or a claim is of another type than the standard says (RFC
    /// 7519 §4.1).
    pub fn check(&self, spec: &JwtSpec, now: f64) -> Result<f64, AuthenticationRefusal> {
        if self.0.get("iss").and_then(Json::as_str) != Some(&spec.issuer) {
            return Err(invalid("the token is of another issuer"));
        }
        self.check_audience(&spec.audience)?;
        let leeway = spec.leeway.as_secs_f64();
        let expires = self.time("exp", invalid("the token's exp is no time"))?;
        let expires = expires.ok_or(invalid("the token has no exp"))? + leeway;
        if now >= expires {
            return Err(invalid("the token has expired"));
        }
        let begins = self.time("nbf", invalid("the token's nbf is no time"))?;
        if begins.is_some_and(|begins| now < begins - leeway) {
            return Err(invalid("the token is not valid yet"));
        }
        Ok(expires)
    }

    fn time(
        &self,
        name: &str,
        wrong: AuthenticationRefusal,
    ) -> Result<Option<f64>, AuthenticationRefusal> {
        match self.0.get(name) {
            None => Ok(None),
            Some(time) => time
                .as_f64()
                .filter(|time| time.is_finite())
                .map(Some)
                .ok_or(wrong),
        }
    }

    /// A token with an audience is for that audience alone (RFC 7519 §4.1.3).
    fn check_audience(&self, ours: &[String]) -> Result<(), AuthenticationRefusal> {
        let fits = match self.0.get("aud") {
            None => ours.is_empty(),
            Some(Json::Array(audiences)) => {
                audiences.iter().any(|audience| is_one_of(audience, ours))
            }
            Some(audience) => is_one_of(audience, ours),
        };
        if fits {
            Ok(())
        } else {
            Err(invalid("the token is for another audience"))
        }
    }

    /// Whether the token has all `scopes`: in `scope`, separated by spaces (RFC 8693 §4.2), or in
    /// `scp`.
    pub fn has_scopes(&self, scopes: &[String]) -> bool {
        scopes
            .iter()
            .all(|scope| self.lists("scope", scope) || self.lists("scp", scope))
    }

    fn lists(&self, claim: &str, scope: &str) -> bool {
        match self.0.get(claim) {
            Some(Json::String(text)) => text.split(' ').any(|one| one == scope),
            Some(Json::Array(list)) => list.iter().any(|one| one.as_str() == Some(scope)),
            _ => false,
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A claim as text: of a text or a whole number. `None`: it is missing, or of another type.
    pub fn text(&self, name: &str) -> Option<String> {
        as_text(self.0.get(name)?)
    }

    /// A claim as texts: of a list of them, or of one.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Json::Array(list)) => list.iter().filter_map(as_text).collect(),
            Some(one) => as_text(one).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// A claim as texts: of a list of nothing else, or of one. `None`: it is missing, or says
    /// something else.
    pub fn texts_of(&self, name: &str) -> Option<Vec<String>> {
        match self.0.get(name)? {
            Json::Array(list) => list.iter().map(as_text).collect(),
            one => as_text(one).map(|one| vec![one]),
        }
    }

    /// All claims that are texts or whole numbers, those inside of objects by the path that leads
    /// to them: `tenant.id`. A claim that is called so itself goes first.
    pub fn texts(&self) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        collect_texts("", &self.0, &mut texts);
        texts
    }
}

fn collect_texts(path: &str, object: &Object<String, Json>, texts: &mut BTreeMap<String, String>) {
    for (name, value) in object {
        if let Json::Object(inner) = value {
            collect_texts(&format!("{path}{name}."), inner, texts);
        }
    }
    // Later than what is inside of objects: a whole name goes before a path.
    for (name, value) in object {
        if let Some(text) = as_text(value) {
            texts.insert(format!("{path}{name}"), text);
        }
    }
}

fn is_one_of(audience: &Json, ours: &[String]) -> bool {
    let Json::String(audience) = audience else {
        return false;
    };
    ours.contains(audience)
}

fn as_text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// A claim that is there twice is refused: another reader might go by the other one.
impl<'de> Deserialize<'de> for TokenClaims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueClaims)
    }
}

struct UniqueClaims;

impl<'de> Visitor<'de> for UniqueClaims {
    type Value = TokenClaims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("claims, each once")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<TokenClaims, A::Error> {
        let mut claims = Object::new();
        while let Some((name, value)) = members.next_entry::<String, Json>()? {
            if claims.insert(name, value).is_some() {
                return Err(A::Error::custom("a claim is there twice"));
            }
        }
        Ok(TokenClaims(claims))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_lead_into_objects_unless_a_claim_is_called_so() {
        let claims: TokenClaims = serde_json::from_str(
            r#"{"tenant": {"id": 7, "plan": {"name": "gold"}, "tags": ["a"]}, "tenant.plan.name": "free", "sub": "ada"}"#,
        )
        .unwrap();
        let expected = [
            ("sub", "ada"),
            ("tenant.id", "7"),
            ("tenant.plan.name", "free"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(claims.texts(), BTreeMap::from(expected));
    }
}
