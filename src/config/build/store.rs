//! The store, and the certificates that its connections need.

use std::fs::File;
use std::io::Read;

use tollgate_limiter::store::redis::address::Address;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_limiter::store::redis::tls::{TlsError, TlsSpec};

use crate::config::decode::{At, Slot};
use crate::config::mistake::{Report, Trouble, quote};
use crate::config::raw;

/// Bytes of a PEM file at most. Bundles of every public authority have a fifth of it.
const MAX_PEM: u64 = 1 << 20;

/// `None`: said in the report.
pub(super) fn build(raw: &raw::Store, report: &mut Report) -> Option<RedisSpec> {
    let tls = match &raw.tls {
        Slot::Absent => Some(TlsSpec::default()),
        Slot::Bad => None,
        Slot::Good(tls) => {
            check_use(raw, tls, report);
            certificates(tls, report)
        }
    };
    Some(RedisSpec {
        url: raw.redis.value()?.0,
        tls: tls?,
        timeout: raw.timeout.value()?.0,
        key_prefix: raw.key_prefix.value()?.0.into(),
        expected_nodes: u32::try_from(raw.expected_nodes.value()?.0).ok()?,
    })
}

/// Certificates that nothing uses are a connection in the clear that was not meant to be.
fn check_use(raw: &raw::Store, tls: &raw::Tls, report: &mut Report) {
    let encrypted = |At { value, .. }: &At<raw::RedisUrl>| Address::parse(&value.0).is_none_or(|address| address.tls);
    if !raw.redis.good().is_none_or(encrypted) {
        let trouble = Trouble::new("the address of this store says no TLS");
        report.mistake(&tls.place, trouble.hint("begin it with rediss, or remove tls"));
    }
}

fn certificates(raw: &raw::Tls, report: &mut Report) -> Option<TlsSpec> {
    let tls = match &raw.ca {
        Slot::Absent => Some(TlsSpec::default()),
        Slot::Bad => None,
        Slot::Good(path) => pem(path, report).and_then(|pem| {
            TlsSpec::default().trusting(pem).map_err(|error| report.mistake(&path.place, unusable(path, error))).ok()
        }),
    };
    match (&raw.cert, &raw.key) {
        (Slot::Absent, Slot::Absent) => tls,
        (Slot::Good(cert), Slot::Good(key)) => {
            let (cert_pem, key_pem) = (pem(cert, report), pem(key, report));
            tls?.showing(cert_pem?, key_pem?)
                .map_err(|error| {
                    let path = if error == TlsError::Certificate { cert } else { key };
                    report.mistake(&path.place, unusable(path, error));
                })
                .ok()
        }
        (Slot::Bad, _) | (_, Slot::Bad) => None,
        (Slot::Good(_), _) | (_, Slot::Good(_)) => {
            let trouble = Trouble::new("\"cert\" and \"key\" are only of use together");
            report.mistake(&raw.place, trouble.hint("give both, or neither"));
            None
        }
    }
}

fn pem(At { place, value }: &At<raw::FilePath>, report: &mut Report) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(&value.0).and_then(|file| file.take(MAX_PEM).read_to_end(&mut bytes));
    let trouble = |error: std::io::Error| {
        let path = quote(&value.0.to_string_lossy());
        Trouble::new(format!("cannot read {path}: {error}")).hint(
            "a path counts from the directory that the gateway is started in, and its user must be able to read it",
        )
    };
    read.map_err(|error| report.mistake(place, trouble(error))).ok()?;
    Some(bytes)
}

fn unusable(path: &At<raw::FilePath>, error: TlsError) -> Trouble {
    let hint = match error {
        TlsError::Key => "write the path of a PEM file with an unencrypted private key",
        TlsError::Pair => "give the key that the certificate was made for",
        _ => "write the path of a PEM file that begins with -----BEGIN CERTIFICATE-----",
    };
    Trouble::new(format!("{} cannot be used: {error}", quote(&path.value.0.to_string_lossy()))).hint(hint)
}
