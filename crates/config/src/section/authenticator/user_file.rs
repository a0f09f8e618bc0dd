//! A file of users, as htpasswd writes it: a name, a colon and a hash in each line.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::limit::key::CallerIdentity;

use crate::report::{Location, Report, ValueProblem, quote};
use crate::section::authenticator::key_file::ClientId;
use crate::yaml::decode::Scalar as _;
use tollgate_identity::password::hash::{PasswordHash, PasswordHashError};
use tollgate_identity::password::user_table::{User, UserTable};

const COMMANDS: &str = "`htpasswd -B FILE NAME` writes bcrypt, `argon2 SALT -id -e` Argon2";

/// The users of an authenticator. `None`: a mistake was reported.
pub fn table(
    file: &Arc<str>,
    text: &str,
    authenticator: &str,
    report: &mut Report,
) -> Option<UserTable> {
    let mut lines: HashMap<&str, usize> = HashMap::new();
    let mut users = Vec::new();
    let mut sound = true;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = Location::root(file, (number, 1));
        let user = match user(line, authenticator) {
            Ok(user) => user,
            Err(problem) => {
                report.mistake(&at, problem);
                sound = false;
                continue;
            }
        };
        if let Some(first) = lines.insert(line.split(':').next().unwrap_or_default(), number) {
            let problem = ValueProblem::new(format!(
                "{} is on line {first} already",
                quote(user.identity.id())
            ));
            report.mistake(
                &at,
                problem.hint("a user has one password: remove one of the two lines"),
            );
            sound = false;
        }
        users.push(user);
    }
    if sound && users.is_empty() {
        // A file without users is likely being written, and not meant to take all of them away.
        let problem = ValueProblem::new("the file has no user").hint(COMMANDS);
        report.mistake(&Location::root(file, (1, 1)), problem);
        return None;
    }
    if sound { UserTable::new(users) } else { None }
}

/// The user of a line. Messages quote the name alone: the rest may be the password itself.
fn user(line: &str, authenticator: &str) -> Result<User, ValueProblem> {
    let (name, hash) = line.split_once(':').ok_or_else(|| {
        ValueProblem::new("the line has no colon").hint("write a name, a colon and a hash")
    })?;
    let name = ClientId::read(name).map_err(|_| {
        ValueProblem::new("this is not the name of a user")
            .hint("1 to 256 bytes, without control characters")
    })?;
    let hash = PasswordHash::read(hash.trim()).map_err(|error| refused(&name, &error))?;
    Ok(User {
        identity: Arc::new(CallerIdentity::new(authenticator, &name.0)),
        hash,
    })
}

/// The problem with the hash of a user.
fn refused(name: &ClientId, error: &PasswordHashError) -> ValueProblem {
    let problem = match error {
        PasswordHashError::OtherScheme(scheme) => {
            format!("the hash is {scheme}, which is not taken")
        }
        PasswordHashError::Malformed => "this is not a hash of bcrypt or Argon2".to_owned(),
        PasswordHashError::TooCostly => {
            "each check of this hash would take seconds, or too much memory".to_owned()
        }
    };
    let hint = match error {
        PasswordHashError::TooCostly => {
            "at most a cost of 15 of bcrypt; of Argon2 256 MiB, and 1 GiB in all passes"
        }
        PasswordHashError::OtherScheme(_) | PasswordHashError::Malformed => COMMANDS,
    };
    ValueProblem::new(format!("user {}: {problem}", quote(&name.0))).hint(hint)
}
