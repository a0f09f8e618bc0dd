//! The certificates of a connection to Redis, as the file names them.

use tollgate_limiter::store::redis::tls::TlsSpec;
use tollgate_testing::topology::CertificateAuthority;

/// The TLS of a store whose file names the certificate `gate.pem` and this key, or the mistakes.
fn tls_with_key(authority: &CertificateAuthority, key: &str) -> Result<TlsSpec, String> {
    let [ca, cert, key] =
        ["ca.pem", "gate.pem", key].map(|file| authority.path(file).display().to_string());
    let text = format!(
        "store: {{redis: 'rediss://h', tls: {{ca: {ca}, cert: {cert}, key: {key}}}}}
listeners: [{{address: '127.0.0.1:0'}}]
routes: [{{name: all, echo: true}}]"
    );
    match tollgate_config::parse("routes.yaml", &text, &|_| None) {
        Ok(loaded) => Ok(loaded.config.store.unwrap().tls),
        Err(mistakes) => Err(mistakes.to_string()),
    }
}

#[test]
fn the_file_names_the_certificates() {
    let authority = CertificateAuthority::create();
    authority.issue("gate", "DNS:gate");
    authority.issue("other", "DNS:other");
    let expected = TlsSpec::default()
        .trusting(authority.pem("ca.pem"))
        .unwrap()
        .showing(authority.pem("gate.pem"), authority.pem("gate.key"))
        .unwrap();
    assert_eq!(tls_with_key(&authority, "gate.key").unwrap(), expected);
    for (key, why) in [
        (
            "other.key",
            "cannot be used: the key is not the certificate's",
        ),
        ("ca.pem", "cannot be used: there is no private key in it"),
    ] {
        let mistakes = tls_with_key(&authority, key).unwrap_err();
        assert!(mistakes.contains(why), "{mistakes}");
    }
}
