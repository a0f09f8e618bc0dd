//! The file: whatever its text, it is read or refused.

use tollgate_config as config;

/// No text makes the reader panic, and a refusal says something.
pub fn any_text_is_read_or_refused(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(mistakes) = config::parse("routes.yaml", &text, &|_| None) {
        assert!(!mistakes.to_string().is_empty());
    }
}
