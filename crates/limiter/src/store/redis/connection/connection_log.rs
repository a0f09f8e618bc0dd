//! Logs when a connection to Redis fails and when it works again.
//!
//! Guarantees one line per change, not one per attempt, that says what is wrong and has no secret
//! in it. The words are our own or Redis's: the client library's are for people who know that
//! library.

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::EventInterface;
use tokio::sync::broadcast::error::RecvError;

use crate::store::redis::connection::tls;

/// Reasons for which one side refused the other's certificate, as the TLS library names them, and
/// what they mean. Redis's come first: all of them are alerts.
const UNTRUSTED: [(&str, &str); 12] = [
    (
        "AlertReceived(CertificateRequired)",
        "it wants a certificate of this gateway: set store.tls.cert and store.tls.key",
    ),
    (
        "AlertReceived(UnknownCA)",
        "it knows no authority of this gateway's certificate: is store.tls.cert one that it accepts?",
    ),
    (
        "AlertReceived(CertificateExpired)",
        "it says that this gateway's certificate has expired: renew store.tls.cert",
    ),
    (
        "AlertReceived(BadCertificate)",
        "it refuses this gateway's certificate: is store.tls.cert one that it accepts?",
    ),
    (
        "AlertReceived(HandshakeFailure)",
        "it refuses the TLS handshake: it may want a certificate, store.tls.cert, or other versions or ciphers",
    ),
    (
        "AlertReceived(ProtocolVersion)",
        "it speaks no version of TLS that is spoken here: 1.2 or 1.3",
    ),
    (
        "UnknownIssuer",
        "its certificate is of no authority trusted here: is store.tls.ca the one that signed it?",
    ),
    (
        "BadSignature",
        "its certificate is of no authority trusted here: is store.tls.ca the one that signed it?",
    ),
    (
        "NotValidForName",
        "its certificate is for another name than the one it is reached by",
    ),
    ("Expired", "its certificate has expired"),
    ("NotValidYet", "its certificate is not valid yet"),
    ("InvalidCertificate", "its certificate failed verification"),
];

/// Failures of a connection, in the operating system's words as the client library quotes them and
/// in plain ones.
const FAILURES: [(&str, &str); 11] = [
    (
        "ConnectionRefused",
        "it refuses the connection: is a server listening there?",
    ),
    ("failed to lookup address", "its name cannot be resolved"),
    ("HostUnreachable", "the network has no way to it"),
    ("NetworkUnreachable", "the network has no way to it"),
    (
        "PermissionDenied",
        "its socket may not be opened: permission denied",
    ),
    ("NotFound", "its socket is not there"),
    ("TimedOut", TIMED_OUT),
    ("Connection closed", CLOSED),
    ("ConnectionReset", CLOSED),
    ("BrokenPipe", CLOSED),
    ("UnexpectedEof", CLOSED),
];

const TIMED_OUT: &str = "no answer in time";
const CLOSED: &str = "it closed the connection";

/// Logs in the current runtime until the client is gone.
pub(crate) fn start(client: &Client, label: String) {
    let mut errors = client.error_rx();
    let mut connects = client.reconnect_rx();
    tokio::spawn(async move {
        let mut last = None;
        loop {
            tokio::select! {
                error = errors.recv() => match error {
                    Ok((error, _)) => {
                        let reason = reason(&error);
                        if last.as_ref() != Some(&reason) {
                            tracing::warn!(store = %label, "cannot use Redis: {reason}");
                            last = Some(reason);
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
                connected = connects.recv() => match connected {
                    Ok(_) => {
                        if last.take().is_some() {
                            tracing::info!(store = %label, "connected to Redis");
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        }
    });
}

fn reason(error: &Error) -> String {
    let details = error.details();
    let known = meaning(&UNTRUSTED, details).or_else(|| meaning(&FAILURES, details));
    match error.kind() {
        ErrorKind::Timeout => TIMED_OUT.to_owned(),
        ErrorKind::Protocol | ErrorKind::Parse => {
            "what answers there does not speak Redis's protocol".to_owned()
        }
        ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Routing => {
            connection_failure(known, details)
        }
        kind if tls::is_tls_failure(kind) => connection_failure(known, details),
        ErrorKind::Sentinel => known.unwrap_or("no sentinel names its primary").to_owned(),
        // Redis's own message.
        _ => details.to_owned(),
    }
}

/// The meaning of an error whose details have one of these names.
fn meaning(meanings: &[(&str, &'static str)], details: &str) -> Option<&'static str> {
    let (_, meaning) = meanings.iter().find(|(name, _)| details.contains(name))?;
    Some(meaning)
}

fn connection_failure(known: Option<&str>, details: &str) -> String {
    match (known, quoted(details)) {
        (Some(known), _) => known.to_owned(),
        (None, Some(text)) => format!("it fails: {text}"),
        (None, None) => "the connection failed".to_owned(),
    }
}

/// The operating system's message, as the client library quotes it.
fn quoted(details: &str) -> Option<&str> {
    let start = ["message: \"", "error: \""]
        .iter()
        .find_map(|mark| Some(details.find(mark)? + mark.len()))?;
    details[start..]
        .split('"')
        .next()
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_in_plain_words() {
        for (kind, details, expected) in [
            (
                ErrorKind::IO,
                "Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }",
                FAILURES[0].1,
            ),
            (ErrorKind::IO, "Connection closed.", CLOSED),
            (
                ErrorKind::IO,
                "Os { code: 105, kind: Uncategorized, message: \"No buffer\" }",
                "it fails: No buffer",
            ),
            (ErrorKind::IO, "Unknown state.", "the connection failed"),
            (
                ErrorKind::Protocol,
                "Decode Error: frame_type",
                "what answers there does not speak Redis's protocol",
            ),
            (
                ErrorKind::Auth,
                "WRONGPASS invalid pair",
                "WRONGPASS invalid pair",
            ),
        ] {
            assert_eq!(reason(&Error::new(kind, details)), expected, "{details}");
        }
    }
}
