//! What an operator is told of a connection to Redis.
//!
//! Guarantees one line per change, not one per attempt, that says what is wrong and repeats no secret.

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::EventInterface;
use tokio::sync::broadcast::error::RecvError;

/// Certificates that failed verification, as the TLS library names them, and what that means.
const DISTRUST: [(&str, &str); 6] = [
    ("UnknownIssuer", "its certificate is of no authority trusted here: is store.tls.ca the one that signed it?"),
    ("BadSignature", "its certificate is of no authority trusted here: is store.tls.ca the one that signed it?"),
    ("NotValidForName", "its certificate is for another name than the one it is reached by"),
    ("Expired", "its certificate has expired"),
    ("NotValidYet", "its certificate is not valid yet"),
    ("InvalidCertificate", "its certificate failed verification"),
];

/// Writes, until the client is gone, in the current runtime.
pub(crate) fn keep(client: &Client, label: String) {
    let (mut errors, mut connects) = (client.error_rx(), client.reconnect_rx());
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
                    Ok(_) if last.take().is_some() => tracing::info!(store = %label, "connected to Redis"),
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        }
    });
}

fn reason(error: &Error) -> String {
    let details = error.details();
    let known = DISTRUST.iter().find(|(name, _)| details.contains(name));
    match (error.kind(), known) {
        (ErrorKind::IO | ErrorKind::Tls | ErrorKind::Sentinel, Some((_, meaning))) => (*meaning).to_owned(),
        (ErrorKind::Timeout, _) => "no answer in time".to_owned(),
        _ => details.to_owned(),
    }
}
