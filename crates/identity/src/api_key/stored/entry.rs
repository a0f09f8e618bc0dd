//! A field of the hash of keys: the client that has a key, in JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_limiter::limit::key::CallerIdentity;

/// Bytes of an entry.
const MAX_ENTRY: usize = 4_096;

const MAX_TEXT: usize = 256;

const MAX_NAME: usize = 64;

/// A client, as an operator writes it into the hash.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClient {
    id: String,
    plan: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The client that `text` describes, as an `authenticator` knows it.
///
/// # Errors
/// Why it describes none. Quotes nothing of it.
pub fn read(text: &[u8], authenticator: &str) -> Result<CallerIdentity, &'static str> {
    if text.len() > MAX_ENTRY {
        return Err("it is over 4 KiB");
    }
    let client: StoredClient = serde_json::from_slice(text)
        .map_err(|_| "it is not JSON such as {\"id\":\"ada\",\"plan\":\"gold\"}")?;
    if client.id.is_empty() || client.id.trim() != client.id || !is_text(&client.id) {
        return Err("its id is not 1 to 256 bytes without control characters");
    }
    if !client
        .plan
        .iter()
        .chain(client.labels.keys())
        .all(|name| is_name(name))
    {
        return Err(
            "its plan or a label is no name: 1 to 64 letters, digits, dots, dashes and underscores",
        );
    }
    if !client.labels.values().all(|value| is_text(value)) {
        return Err("a label has over 256 bytes or a control character");
    }
    let mut identity = CallerIdentity::new(authenticator, &client.id);
    identity.plan = client.plan;
    identity.labels = client.labels;
    Ok(identity)
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.contains(char::is_control)
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_an_id_and_perhaps_a_plan_and_labels() {
        let ada = read(
            br#"{"id":"ada","plan":"gold","labels":{"team":"web"}}"#,
            "partners",
        )
        .unwrap();
        assert_eq!(
            (ada.qualified(), ada.plan.as_deref(), &*ada.labels["team"]),
            ("partners/ada", Some("gold"), "web")
        );
        assert_eq!(read(br#"{"id":"bob"}"#, "partners").unwrap().plan, None);
    }

    #[test]
    fn an_entry_that_is_none_is_refused() {
        let long = format!("{{\"id\":\"{}\"}}", "a".repeat(257));
        let huge = format!("{{\"id\":\"a\",\"plan\":\"{}\"}}", "a".repeat(5_000));
        let wrong = [
            "",
            "ada",
            "{}",
            r#"{"id":""}"#,
            r#"{"id":" a"}"#,
            r#"{"id":"a\nb"}"#,
            r#"{"id":1}"#,
            &long,
            &huge,
        ];
        let more = [
            r#"{"id":"a","plan":"a b"}"#,
            r#"{"id":"a","labels":{"":"x"}}"#,
            r#"{"id":"a","key":"secret"}"#,
        ];
        for text in wrong.into_iter().chain(more) {
            assert!(
                !read(text.as_bytes(), "partners")
                    .unwrap_err()
                    .contains("secret"),
                "{text}"
            );
        }
    }
}
