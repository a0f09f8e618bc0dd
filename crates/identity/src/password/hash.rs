//! The hash of a password, as a file of users has it.
//!
//! Guarantees that a hash which was read can be checked, within a bounded time and memory.

use argon2::password_hash::PasswordHash as PhcHash;
use argon2::{Argon2, Params, PasswordVerifier as _};

/// A bcrypt of more takes seconds.
const MAX_BCRYPT_COST: u32 = 15;

/// KiB of memory of one Argon2.
const MAX_ARGON2_MEMORY: u32 = 256 * 1024;

/// KiB that one Argon2 writes in all its passes.
const MAX_ARGON2_WORK: u64 = 1024 * 1024;

const MAX_ARGON2_LANES: u32 = 16;

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    Bcrypt(Box<str>),
    /// In the format of PHC.
    Argon2(Box<str>),
}

/// Why a hash is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordHashError {
    /// The hash is of another scheme.
    OtherScheme(&'static str),
    /// The hash begins like one that is taken, and goes on otherwise.
    Malformed,
    /// To check it would take too long, or too much memory.
    TooCostly,
}

impl PasswordHash {
    /// Reads a hash.
    ///
    /// # Errors
    /// When it is none, or not one that is taken.
    pub fn read(text: &str) -> Result<Self, PasswordHashError> {
        if text.starts_with("$argon2") {
            return argon2(text).map(|()| Self::Argon2(text.into()));
        }
        if ["$2a$", "$2b$", "$2y$"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            return bcrypt(text).map(|()| Self::Bcrypt(text.into()));
        }
        Err(PasswordHashError::OtherScheme(scheme(text)))
    }

    /// Whether it is the hash of `password`. Takes tens of milliseconds.
    pub fn is_of(&self, password: &[u8]) -> bool {
        match self {
            // bcrypt uses the first 72 bytes of a password, as the programs do that write such
            // hashes.
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => PhcHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
        }
    }
}

fn bcrypt(text: &str) -> Result<(), PasswordHashError> {
    let rest = text.get(4..).and_then(|rest| rest.split_once('$'));
    let (cost, salted) = rest.ok_or(PasswordHashError::Malformed)?;
    if cost.len() != 2 || !cost.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(PasswordHashError::Malformed);
    }
    let cost: u32 = cost.parse().map_err(|_| PasswordHashError::Malformed)?;
    if cost < 4 || salted.len() != 53 || !salted.bytes().all(is_bcrypt_base64) {
        return Err(PasswordHashError::Malformed);
    }
    // A check of the rest without the work: the least cost instead of its own.
    let cheap = format!("$2b$04${salted}");
    bcrypt::verify("", &cheap).map_err(|_| PasswordHashError::Malformed)?;
    if cost > MAX_BCRYPT_COST {
        Err(PasswordHashError::TooCostly)
    } else {
        Ok(())
    }
}

fn is_bcrypt_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/')
}

fn argon2(text: &str) -> Result<(), PasswordHashError> {
    let hash = PhcHash::new(text).map_err(|_| PasswordHashError::Malformed)?;
    argon2::Algorithm::try_from(hash.algorithm).map_err(|_| PasswordHashError::Malformed)?;
    let params = Params::try_from(&hash).map_err(|_| PasswordHashError::Malformed)?;
    let salt = hash.salt.ok_or(PasswordHashError::Malformed)?;
    let decoded = salt.decode_b64(&mut [0; 64]).map(<[u8]>::len);
    let has_known_version = match hash.version {
        None => true,
        Some(version) => argon2::Version::try_from(version).is_ok(),
    };
    if hash.hash.is_none() || !has_known_version || !decoded.is_ok_and(|bytes| bytes >= 8) {
        return Err(PasswordHashError::Malformed);
    }
    let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
    let too_costly = params.m_cost() > MAX_ARGON2_MEMORY
        || work > MAX_ARGON2_WORK
        || params.p_cost() > MAX_ARGON2_LANES;
    if too_costly {
        Err(PasswordHashError::TooCostly)
    } else {
        Ok(())
    }
}

/// The name of a scheme that is not taken.
fn scheme(text: &str) -> &'static str {
    let known = [
        ("$apr1$", "MD5 (apr1)"),
        ("$1$", "MD5"),
        ("$5$", "SHA-256 (crypt)"),
        ("$6$", "SHA-512 (crypt)"),
        ("$2", "another bcrypt"),
        ("{SHA}", "SHA-1"),
        ("{SSHA}", "SHA-1"),
    ];
    let found = known.iter().find(|(prefix, _)| text.starts_with(prefix));
    found.map_or("plain text or DES", |(_, name)| name)
}

/// The hashes of weak passwords can be guessed, so they are shown to nobody.
impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use argon2::PasswordHasher as _;
    use argon2::password_hash::SaltString;

    use super::*;

    /// An Argon2id of `password`, of little cost.
    fn argon2id(password: &str, memory: u32) -> String {
        let salt = SaltString::encode_b64(b"0123456789abcdef").unwrap();
        let params = Params::new(memory, 1, 1, None).unwrap();
        let argon2 = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        argon2
            .hash_password(password.as_bytes(), &salt)
            .unwrap()
            .to_string()
    }

    #[test]
    fn the_hashes_of_both_schemes_know_their_password() {
        let by_bcrypt = bcrypt::hash("secret", 4).unwrap();
        let others = ["$2a$", "$2y$"].map(|prefix| by_bcrypt.replacen("$2b$", prefix, 1));
        let texts = [by_bcrypt, argon2id("secret", 64)]
            .into_iter()
            .chain(others);
        for text in texts {
            let hash = PasswordHash::read(&text).unwrap();
            assert!(
                hash.is_of(b"secret") && !hash.is_of(b"Secret") && !hash.is_of(b""),
                "{text}"
            );
            assert_eq!(format!("{hash:?}"), "PasswordHash(…)");
        }
    }

    #[test]
    fn a_hash_that_somebody_else_made_is_known() {
        // htpasswd -nbBC 5 ada secret, and the argon2 of the reference implementation.
        let by_htpasswd = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";
        assert!(
            PasswordHash::read(by_htpasswd)
                .unwrap()
                .is_of(b"myPassword")
        );
        let by_argon2 = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(PasswordHash::read(by_argon2).unwrap().is_of(b"password"));
    }

    #[test]
    fn other_schemes_and_broken_or_costly_hashes_are_not_taken() {
        fn error(text: &str) -> PasswordHashError {
            PasswordHash::read(text).unwrap_err()
        }
        for (text, scheme) in [
            ("$apr1$abc$def", "MD5 (apr1)"),
            ("{SHA}5baa61", "SHA-1"),
            ("$6$abc$def", "SHA-512 (crypt)"),
            ("$2x$05$c4WoMPo3SXsafkva", "another bcrypt"),
            ("secret", "plain text or DES"),
        ] {
            assert_eq!(error(text), PasswordHashError::OtherScheme(scheme));
        }
        let bcrypt = bcrypt::hash("secret", 4).unwrap();
        let broken = bcrypt.replacen("$04$", "$03$", 1);
        assert_eq!(error(&broken), PasswordHashError::Malformed);
        let costly = bcrypt.replacen("$04$", "$16$", 1);
        assert_eq!(error(&costly), PasswordHashError::TooCostly);
        assert_eq!(error(&bcrypt[..59]), PasswordHashError::Malformed);
        let argon2 = argon2id("secret", 64);
        for broken in [
            argon2.replace("m=64", "m=x"),
            argon2.replace("argon2id", "argon2x"),
            "$argon2id$".to_owned(),
        ] {
            assert_eq!(error(&broken), PasswordHashError::Malformed, "{broken}");
        }
        for costly in [
            argon2.replace("m=64", "m=4194304"),
            argon2.replace("t=1", "t=4294967295"),
        ] {
            assert_eq!(error(&costly), PasswordHashError::TooCostly, "{costly}");
        }
    }
}
