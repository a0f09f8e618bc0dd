//! Turns the errors of the client library, and of Redis, into the store's.

use fred::error::{Error, ErrorKind};

use crate::store::StoreError;
use crate::store::redis::connection::tls;

/// Redis's error codes that have a kind of their own.
const CODES: [(&str, StoreError); 14] = [
    ("READONLY", StoreError::ReadOnly),
    ("MISCONF", StoreError::ReadOnly),
    ("NOREPLICAS", StoreError::ReadOnly),
    ("LOADING", StoreError::Loading),
    ("OOM", StoreError::OutOfMemory),
    ("MOVED", StoreError::Moved),
    ("ASK", StoreError::Moved),
    ("CLUSTERDOWN", StoreError::Moved),
    ("MASTERDOWN", StoreError::Moved),
    ("NOAUTH", StoreError::Auth),
    ("WRONGPASS", StoreError::Auth),
    ("NOPERM", StoreError::Auth),
    ("BUSY", StoreError::Busy),
    ("TRYAGAIN", StoreError::Moved),
];

pub(crate) fn store_error(error: &Error) -> StoreError {
    match error.kind() {
        ErrorKind::Timeout => StoreError::Timeout,
        ErrorKind::IO | ErrorKind::Canceled | ErrorKind::Routing => StoreError::Io,
        kind if tls::is_tls_failure(kind) => StoreError::Io,
        ErrorKind::Backpressure => StoreError::Overloaded,
        ErrorKind::Protocol | ErrorKind::Parse | ErrorKind::NotFound => StoreError::Protocol,
        _ => by_code(error.details()),
    }
}

fn by_code(details: &str) -> StoreError {
    let known = CODES.iter().find(|(code, _)| has_code(details, code));
    match known {
        Some((_, kind)) => kind.clone(),
        None if is_of_server(details) => StoreError::Script(details.into()),
        None => StoreError::Io,
    }
}

/// Whether a server wrote the message: its errors begin with a code in capitals. The client library
/// begins with a word, where it could not send a command.
fn is_of_server(details: &str) -> bool {
    let code = details.split_ascii_whitespace().next().unwrap_or_default();
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Whether a message has this code. Redis 7 puts it first; Redis 6.2 quotes an error inside a
/// script as `... -CODE text`.
pub(crate) fn has_code(details: &str, code: &str) -> bool {
    let mut words = details.split_ascii_whitespace();
    words.next() == Some(code) || words.any(|word| word.strip_prefix('-') == Some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(details: &'static str) -> StoreError {
        store_error(&Error::new(ErrorKind::Unknown, details))
    }

    #[test]
    fn codes_are_found_first_or_quoted_from_a_script() {
        assert_eq!(
            kind("READONLY You can't write against a read only replica."),
            StoreError::ReadOnly
        );
        assert_eq!(
            kind(
                "ERR Error running script (call to f_1): @user_script:86: -OOM command not allowed"
            ),
            StoreError::OutOfMemory
        );
        assert_eq!(
            kind("LOADING Redis is loading the dataset in memory"),
            StoreError::Loading
        );
        assert_eq!(
            kind("BUSY Redis is busy running a script."),
            StoreError::Busy
        );
        assert_eq!(
            kind("NOPERM this user has no permissions to run the 'evalsha' command"),
            StoreError::Auth
        );
    }

    #[test]
    fn a_command_that_the_client_library_could_not_send_is_no_error_of_a_script() {
        for details in [
            "Failed to route command.",
            "Missing expected connection.",
            "",
        ] {
            assert_eq!(kind(details), StoreError::Io, "{details}");
        }
        let refused = "ERR unknown command 'FOO'";
        assert_eq!(kind(refused), StoreError::Script(refused.into()));
    }

    #[test]
    fn anything_else_is_the_scripts_own_error() {
        assert_eq!(
            kind("TOLLGATE a bucket"),
            StoreError::Script("TOLLGATE a bucket".into())
        );
    }
}
