//! The configuration that a good file becomes.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use jsonwebtoken::Algorithm as JwtAlgorithm;
use tollgate_config::{AdminSpec, PolicySet, parse_with};
use tollgate_identity::api_key::spec::{ApiKeySource, ApiKeySpec, StoredKeySpec};
use tollgate_identity::credential::CredentialPlace;
use tollgate_identity::forward::spec::{
    AnswerCacheSpec, ForwardSpec, IgnoredPart, OnServiceFailure,
};
use tollgate_identity::jwt::spec::KeySetSource;
use tollgate_identity::openid::spec::GroupRole;
use tollgate_identity::password::spec::BasicSpec;
use tollgate_identity::spec::AuthenticationMethod;
use tollgate_limiter::algorithm::concurrency::Scope;
use tollgate_limiter::algorithm::token_bucket::TokenBucket;
use tollgate_limiter::limit::algorithm::{Algorithm, Rate, WindowLength, WindowRate};
use tollgate_limiter::limit::cost::json_path::JsonPath;
use tollgate_limiter::limit::cost::{Cost, CostField, JsonTerm, ResponseCost};
use tollgate_limiter::limit::definition::{AfterLocal, Consistency, OnOutage};
use tollgate_limiter::limit::key::{BodyMember, CertificatePart, IdentityPart, KeyPart, OnMissing};
use tollgate_limiter::limit::on_limit::{Degrade, OnLimit, Queueing};
use tollgate_limiter::limit::plan::{PlanHash, PlanSource, Plans};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_limiter::limit::status_set::{StatusRange, StatusSet};
use tollgate_proxy::upstream::adaptive::gradient::AdaptiveRule;
use tollgate_proxy::upstream::bounds::{HeadBound, UpstreamBounds};
use tollgate_proxy::upstream::health::Percentage;
use tollgate_proxy::upstream::health::check::{HealthCheck, HealthSpec};
use tollgate_proxy::upstream::health::condition::ProbeThresholds;
use tollgate_proxy::upstream::health::ejection::EjectSpec;
use tollgate_proxy::upstream::latency::outliers::LatencyRule;
use tollgate_proxy::upstream::{Balance, Http2Policy};
use tollgate_spec::access_log::{AccessLogFormat, AccessLogSpec, LineReceiver, LogDestination};
use tollgate_spec::route::error_pages::ErrorPage;
use tollgate_spec::route::retry::GrpcStatus;
use tollgate_spec::route::retry::back_off::BackOff;
use tollgate_spec::route::{
    Action, HostMatch, HostPolicy, PathMatch, PathPattern, Rewrite, Segment,
};
use tollgate_wire::http::h1::SectionBounds;
use tollgate_wire::transport::peer::TrustedPeers;
use tollgate_wire::transport::tls::client::PeerName;
use tollgate_wire::transport::tls::server::spec::{
    CertificateFiles, ClientAuthRequirement, ClientAuthSpec, MinTlsVersion,
};

use super::{EVERY_KEY, LISTENERS, ROUTES, check, good};

#[test]
fn a_key_has_what_an_authenticator_takes_as_a_credential_only_as_a_hash() {
    let of_header = "customers: {api_key: {header: x-customer, keys: /etc/tollgate/keys.yaml}}";
    let of_query = "visitors: {api_key: {query: visit, keys: /etc/tollgate/keys.yaml}}";
    let key = "[{header: X-Customer}, {query: visit}, {header: x-tenant}, {query: customer}]";
    let file = format!(
        "authenticators: {{{of_header}, {of_query}}}\nlimits: {{one: {{key: {key}, rate: 1/s}}}}\n{LISTENERS}\
         routes: [{{name: all, match: {{path: /*}}, authenticate: [customers, visitors], limits: [one], echo: true}}]"
    );
    let header = |name| KeyPart::Header(HeaderName::from_static(name));
    let query = |name: &str| KeyPart::Query(name.into());
    let secret = |part| KeyPart::Secret(Box::new(part));
    let parts = [
        secret(header("x-customer")),
        secret(query("visit")),
        header("x-tenant"),
        query("customer"),
    ];
    assert_eq!(good(&file).limits[0].key.parts, parts);
}

/// A file with customers who are known by their credentials, and `limits`.
fn with_customers(limits: &str) -> String {
    format!(
        "authenticators: {{customers: {{api_key: {{header: x-customer, keys: /etc/tollgate/keys.yaml}}}}}}\n\
         store: {{redis: \"redis://r\"}}\n{limits}{LISTENERS}\
         routes: [{{name: all, match: {{path: /*}}, authenticate: [customers], echo: true}}]"
    )
}

#[test]
fn plans_are_told_by_what_an_authenticator_takes_as_a_credential_only_by_its_hash() {
    let header = |name| KeyPart::Header(HeaderName::from_static(name));
    let secret = |part| KeyPart::Secret(Box::new(part));
    let plans = |key: &str, plans: &str| {
        let limits = format!("limits: {{one: {{key: {key}, rate: 1/s, plans: {{{plans}}}}}}}\n");
        good(&with_customers(&limits)).limits[0]
            .plans
            .clone()
            .unwrap()
    };
    for (key, written, by) in [
        (
            "host",
            "by: {header: X-Customer}, redis: {hash: plans}",
            secret(header("x-customer")),
        ),
        (
            "{header: x-customer}",
            "redis: {hash: plans}",
            secret(header("x-customer")),
        ),
        (
            "{header: x-customer}",
            "by: {header: x-plan}, redis: {hash: plans}",
            header("x-plan"),
        ),
    ] {
        assert_eq!(plans(key, written).by, by, "{written}");
    }
    let in_file = plans(
        "host",
        "by: {header: x-customer}, table: {ada: {rate: 2/s}}",
    );
    let PlanSource::Table(table) = in_file.source else {
        panic!("{in_file:?}")
    };
    let closed = plans("host", "by: {header: x-plan}, table: {ada: {rate: 0/h}}");
    let PlanSource::Table(closed) = closed.source else {
        panic!("{closed:?}")
    };
    assert!(
        closed[&b"ada"[..]].is_closed(),
        "a plan of nothing: {closed:?}"
    );
    assert_eq!(in_file.by, secret(header("x-customer")));
    assert!(
        table.contains_key(&b"ada"[..]),
        "nothing of a table leaves the process: {table:?}"
    );
}

#[test]
fn a_client_of_policies_has_its_plan_by_a_credential_too() {
    let shop = "applications:
  shop:
    routes: [all]
    resources: {all: {route: all}}
    strategies: {few: {limit: {key: host, rate: 1/s}, resources: [all], client: {header: x-customer}}}
    plans: {gold: {limits: {few: {rate: 2/s}}}}
    clients: {ada: gold}
";
    let shop = PolicySet::parse("policies.yaml", shop).unwrap();
    let config = parse_with("routes.yaml", &with_customers(""), &|_| None, Some(shop))
        .unwrap()
        .config;
    let plans = config
        .limits
        .iter()
        .find_map(|limit| limit.plans.as_ref())
        .unwrap();
    assert_eq!(
        plans.by,
        KeyPart::Secret(Box::new(KeyPart::Header(HeaderName::from_static(
            "x-customer"
        ))))
    );
    let PlanSource::Assigned(assigned) = &plans.source else {
        panic!("{plans:?}")
    };
    assert!(assigned.find(b"ada").is_some() && assigned.find(b"bob").is_none());
}

#[test]
fn the_access_log_has_a_format_and_a_destination() {
    let log = |access_log: &str| {
        good(&format!("access_log: {access_log}\n{LISTENERS}{ROUTES}")).access_log
    };
    let json = AccessLogSpec {
        format: AccessLogFormat::Json,
        to: LogDestination::Stdout,
        sample: Rollout::ALL,
    };
    assert_eq!(
        (log("off"), log("json"), log("{}")),
        (None, Some(json.clone()), Some(json.clone()))
    );
    assert_eq!(log("combined").unwrap().format, AccessLogFormat::Combined);
    assert_eq!(log("extended").unwrap().format, AccessLogFormat::Extended);
    assert_eq!(
        log("{format: extended}").unwrap().format,
        AccessLogFormat::Extended
    );
    for (written, to) in [
        ("stderr", LogDestination::Stderr),
        ("/a/b", LogDestination::File("/a/b".into())),
        (
            "unix:/dev/log",
            LogDestination::SyslogUnix("/dev/log".into()),
        ),
        (
            "udp://127.0.0.1:514",
            LogDestination::SyslogUdp(LineReceiver::Address("127.0.0.1:514".parse().unwrap())),
        ),
        (
            "tcp://[::1]:514",
            LogDestination::Tcp(LineReceiver::Address("[::1]:514".parse().unwrap())),
        ),
        (
            "udp://syslog:514",
            LogDestination::SyslogUdp(LineReceiver::Name {
                host: "syslog".into(),
                port: 514,
            }),
        ),
        (
            "tcp://a.b:9",
            LogDestination::Tcp(LineReceiver::Name {
                host: "a.b".into(),
                port: 9,
            }),
        ),
    ] {
        assert_eq!(to.to_string(), written);
        assert_eq!(
            log(&format!("{{to: '{written}'}}")),
            Some(AccessLogSpec { to, ..json.clone() })
        );
    }
}

fn bucket(tokens: u64, period_us: u64, burst: u64) -> Algorithm {
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    Algorithm::TokenBucket {
        rate: Rate {
            tokens: nonzero(tokens),
            period_us: nonzero(period_us),
        },
        burst: nonzero(burst),
    }
}

fn tokens(number: u64) -> Cost {
    Cost::Fixed(NonZeroU64::new(number).unwrap())
}

#[test]
fn registered_methods_are_read_in_any_case() {
    let routes =
        "routes: [{name: a, match: {methods: [get, Post, purge-ALL, PURGE]}, echo: true}]\n";
    assert!(
        check(&format!("{LISTENERS}{routes}")).is_err(),
        "a method of one's own may well be meant as it is written"
    );
    let config = good(&format!("{LISTENERS}{}", routes.replace("purge-ALL, ", "")));
    let purge = Method::from_bytes(b"PURGE").unwrap();
    assert_eq!(
        config.routes[0].matches.methods,
        [Method::GET, Method::POST, purge]
    );
}

#[test]
fn reads_every_kind_of_cost() {
    let cost = |cost: &str| {
        let limits = format!("limits: {{a: {{key: client_ip, rate: 9/s, cost: {cost}}}}}");
        good(&format!(
            "{LISTENERS}{limits}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n"
        ))
        .limits[0]
            .cost
            .clone()
    };
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    let (name, one) = (HeaderName::from_static("x-cost"), nonzero(1));
    assert_eq!(
        cost("{header: X-Cost}"),
        Cost::Header {
            name: name.clone(),
            default: one,
            max: Cost::UNBOUNDED
        }
    );
    assert_eq!(
        cost("{header: x-cost, default: 2, max: 9}"),
        Cost::Header {
            name,
            default: nonzero(2),
            max: nonzero(9)
        }
    );
    assert_eq!(
        cost("{body: 2KiB, max: 5}"),
        Cost::Body {
            unit: nonzero(2_048),
            max: nonzero(5)
        }
    );
    let by = |field, reserve, max| {
        Cost::Response(Arc::new(ResponseCost {
            field,
            reserve: nonzero(reserve),
            max: nonzero(max),
            absent: None,
        }))
    };
    let header = CostField::Header(HeaderName::from_static("x-used"));
    assert_eq!(cost("{response_header: X-Used}"), by(header.clone(), 1, 9));
    assert_eq!(
        cost("{response_header: x-used, reserve: 5, max: 8000}"),
        by(header, 5, 8_000)
    );
    let path = JsonPath::parse(r"usage.total\.tokens").unwrap();
    assert_eq!(
        cost(r"{response_json: usage.total\.tokens, reserve: 2}"),
        by(path.into(), 2, 9)
    );
    let term = |paths: &[&str], weight| JsonTerm {
        first_of: paths
            .iter()
            .map(|path| JsonPath::parse(path).unwrap())
            .collect(),
        weight: nonzero(weight),
    };
    let sum = |terms: &[JsonTerm]| by(CostField::Json(terms.into()), 1, 9);
    assert_eq!(
        cost("{response_json: [usage.in, {path: usage.out, weight: 4}]}"),
        sum(&[term(&["usage.in"], 1), term(&["usage.out"], 4)])
    );
    assert_eq!(
        cost("{response_json: {first_of: [usage.total, response.usage.total]}}"),
        sum(&[term(&["usage.total", "response.usage.total"], 1)])
    );
    let absent = |absent: &str| match cost(&format!(
        "{{response_json: used, reserve: 2, max: 80, absent: {absent}}}"
    )) {
        Cost::Response(by) => by.absent.map(NonZeroU64::get),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        ["reserve", "max", "20"].map(absent),
        [None, Some(80), Some(20)]
    );
    assert_eq!(cost("4"), tokens(4));
}

#[test]
fn reads_the_responses_that_count() {
    let count = |count: &str| {
        let limits = format!("limits: {{a: {{key: client_ip, rate: 9/s{count}}}}}");
        good(&format!(
            "{LISTENERS}{limits}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n"
        ))
        .limits[0]
            .count
            .clone()
    };
    assert_eq!(count(""), None);
    let set = StatusSet::new([401.into(), 403.into(), (500..=599).into()]).unwrap();
    assert_eq!(count(", count: {status: [401, '403', 5xx]}"), Some(set));
}

#[test]
fn reads_what_follows_a_share_that_ends() {
    let on_outage = |text: &str| {
        good(&format!(
        "{LISTENERS}limits: {{a: {{key: client_ip, rate: 1/s, on_outage: {text}}}}}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n"
    )).limits[0].on_outage
    };
    let local_for = |seconds, then| OnOutage::LocalFor {
        time: Duration::from_secs(seconds),
        then,
    };
    assert_eq!(
        on_outage("{local: 10s, then: deny}"),
        local_for(10, AfterLocal::Deny)
    );
    assert_eq!(
        on_outage("{local: 1m, then: allow}"),
        local_for(60, AfterLocal::Allow)
    );
    assert_eq!(on_outage("{local: 2s}"), local_for(2, AfterLocal::Deny));
}

/// Everything below these segments.
fn pattern(segments: Vec<Segment>) -> PathMatch {
    PathMatch::Pattern(PathPattern {
        segments,
        rest: true,
    })
}

#[test]
fn reads_the_file_of_the_design() {
    let config = good(include_str!("good/design.yaml"));
    assert_eq!(config.workers.get(), 4);
    let [per_client, per_tenant] = &config.limits[..] else {
        panic!("{:?}", config.limits)
    };
    assert_eq!(
        per_client.key.parts,
        [KeyPart::ClientIp {
            ipv4_prefix: 32,
            ipv6_prefix: 64
        }]
    );
    assert_eq!(per_client.algorithm, bucket(10, 1_000_000, 20));
    assert_eq!(per_client.cost, tokens(1));
    assert_eq!(
        per_tenant.key.parts,
        [
            KeyPart::Header(HeaderName::from_static("x-tenant")),
            KeyPart::Route
        ]
    );
    assert_eq!(
        (per_tenant.algorithm.burst().get(), per_tenant.on_outage),
        (1_000, OnOutage::Deny)
    );
    let [orders, rest] = &config.routes[..] else {
        panic!("{:?}", config.routes)
    };
    assert_eq!(
        orders.matches.hosts,
        [HostMatch::Exact("api.example.com".into())]
    );
    assert_eq!(
        orders.matches.paths,
        [pattern(vec![Segment::Literal("orders".into())])]
    );
    assert_eq!(orders.matches.methods, [Method::GET, Method::POST]);
    assert_eq!(
        orders
            .limits
            .iter()
            .map(|used| &*used.limit.name)
            .collect::<Vec<_>>(),
        ["per-client", "per-tenant"]
    );
    let Action::Respond(respond) = &rest.action else {
        panic!("{:?}", rest.action)
    };
    assert_eq!(
        (respond.status, &respond.body[..]),
        (StatusCode::NOT_FOUND, &b"no such route\n"[..])
    );
}

#[test]
fn reads_a_file_on_few_lines() {
    let config = good(
        "workers: 2\nlisteners: [{address: \"127.0.0.1:8080\"}]\nadmin: {address: \"127.0.0.1:19003\"}\n\n\
         upstreams: {up: {endpoints: [\"http://127.0.0.1:9000\"]}}\n\
         limits: {per-client: {key: client_ip, rate: 1/h, burst: 1}}\n\
         routes: [{name: all, match: {path: \"/*\"}, upstream: up, limits: [per-client]}]\n",
    );
    assert_eq!(
        config.upstreams[0].endpoints[0].url.to_string(),
        "http://127.0.0.1:9000"
    );
}

#[test]
fn reads_every_key() {
    let config = good(EVERY_KEY);
    let seconds = Duration::from_secs;
    assert_eq!(
        (config.workers.get(), config.drain_timeout),
        (3, seconds(5))
    );
    let access_log = AccessLogSpec {
        format: AccessLogFormat::Combined,
        to: LogDestination::File("/var/log/tollgate/access.log".into()),
        sample: Rollout::from_hundredths(1_000).unwrap(),
    };
    assert_eq!(config.access_log, Some(access_log));
    let proxies = vec![
        "10.0.0.0/8".parse().unwrap(),
        "fd00::1/128".parse().unwrap(),
    ];
    assert_eq!(
        config.trusted_proxies,
        TrustedPeers {
            proxies: proxies.into(),
            unix: true
        }
    );
    assert_eq!(
        (config.max_requests, config.max_local_buckets.get()),
        (NonZeroUsize::new(1_000), 5_000)
    );
    assert!(config.legacy_headers && !config.tunnels_count);
    assert_eq!(&*config.node_name, "edge-1");
    assert_eq!(
        config.handover.as_deref(),
        Some(std::path::Path::new("/run/gate.sock"))
    );
    let admin = config.admin.as_ref().unwrap();
    assert_eq!(
        (admin.address.to_string(), admin.probe_address),
        ("10.0.0.7:9911".to_owned(), "10.0.0.7:9912".parse().ok())
    );
    assert_eq!(
        admin.public_url.as_ref().unwrap().to_string(),
        "https://gate.example:8443"
    );
    assert!(admin.is_secure() && admin.tls.is_some() && admin.hsts.is_some());
    let openid = admin.openid.as_ref().unwrap();
    let provider = &openid.provider;
    assert_eq!(
        (provider.issuer.as_str(), provider.client_id.as_str()),
        ("https://id.example/realms/a", "tollgate")
    );
    assert_eq!(provider.scopes, ["openid", "profile", "groups"]);
    assert_eq!(
        (provider.groups_claim.as_str(), provider.name_claim.as_str()),
        ("roles", "email")
    );
    assert!(provider.tls.is_some() && openid.creates_accounts);
    assert_eq!(
        openid.roles.as_deref().unwrap(),
        [
            ("ops".to_owned(), vec![GroupRole::Operator]),
            (
                "shop people".to_owned(),
                vec![
                    GroupRole::OwnerOf("shop".to_owned()),
                    GroupRole::ViewerOf("bank".to_owned()),
                    GroupRole::EditorOf("bank".to_owned())
                ]
            )
        ]
    );
    let policies = config.policies.as_ref().unwrap();
    assert_eq!(&*policies.database.0, "mysql://gate:hunter2@db/policies");
    assert_eq!(
        (policies.copy.to_str(), policies.required),
        (Some("/run/gate/policies.json"), false)
    );
    assert!(!format!("{policies:?}").contains("hunter2"));
    let unix = &config.listeners[2].server;
    assert_eq!(
        (unix.address.to_string().as_str(), unix.socket_mode),
        ("unix:/run/gate/http.sock", 0o600)
    );

    let listener = &config.listeners[0];
    assert_eq!(
        (
            listener.limits[0].limit.algorithm.burst().get(),
            &listener.limits[0].limit.cost
        ),
        (6_000, &tokens(2))
    );
    let server = &listener.server;
    assert_eq!(
        (server.header_timeout, server.keepalive_timeout),
        (seconds(1), seconds(2))
    );
    assert_eq!(
        (server.body_timeout, server.max_header_bytes),
        (seconds(3), 16_384)
    );
    assert_eq!(server.min_body_rate, NonZeroU64::new(2_048));
    assert_eq!((server.max_headers, server.max_connections), (50, 10));
    assert_eq!(server.max_connections_per_client, Some(4));
    assert_eq!(server.socket_name.as_deref(), Some("web"));

    assert_eq!(
        (server.proxy_protocol, listener.redirect_to_https),
        (true, Some(8443))
    );
    assert_eq!(listener.tls, None);
    let secured = &config.listeners[1];
    let tls = secured.tls.as_ref().unwrap();
    let files = CertificateFiles {
        cert: "/etc/a.pem".into(),
        key: "/etc/a.key".into(),
    };
    assert_eq!(
        (&tls.certificates[..], tls.min_version, tls.max_handshakes),
        (&[files][..], MinTlsVersion::Tls13, 4)
    );
    let clients = ClientAuthSpec {
        ca: "/etc/ca.pem".into(),
        requirement: ClientAuthRequirement::Optional,
    };
    assert_eq!(tls.client_auth, Some(clients));
    assert_eq!(
        secured.hsts.as_ref().unwrap(),
        "max-age=63072000; includeSubDomains; preload"
    );

    let store = config.store.unwrap();
    assert_eq!(
        (&*store.url, &*store.key_prefix),
        ("rediss://user:hunter2@redis:6380/1", "gate:")
    );
    assert_eq!(
        (store.timeout, store.expected_nodes),
        (Duration::from_millis(10), 3)
    );

    let text = |text: &str| text.into();
    let [everyone, one, three, two] = &config.limits[..] else {
        panic!("{:?}", config.limits)
    };
    assert_eq!(everyone.key.parts, [KeyPart::Constant(text("all"))]);
    let member = |name, ignore_case| {
        KeyPart::Body(BodyMember {
            name: text(name),
            ignore_case,
        })
    };
    assert_eq!(
        three.key.parts,
        [member("user.name", false), member("mail", true)]
    );
    assert_eq!((three.hidden, two.hidden), (true, false));
    let bounds = config.body_keys;
    assert_eq!(
        (
            bounds.max_body.get(),
            bounds.max_memory.get(),
            bounds.timeout
        ),
        (32 << 10, 16 << 20, seconds(4))
    );
    assert_eq!(
        (everyone.on_outage, everyone.key.on_missing),
        (OnOutage::Allow, OnMissing::Skip)
    );
    assert_eq!(
        (everyone.consistency, two.consistency),
        (Consistency::Leased, Consistency::Exact)
    );
    let header = KeyPart::Header(HeaderName::from_static("x-tenant"));
    let san = KeyPart::ClientCertificate(CertificatePart::AlternativeNames);
    let (cookie, query) = (
        KeyPart::Cookie(text("Sid")),
        KeyPart::Query(text("api_key")),
    );
    assert_eq!(
        one.key.parts[..5],
        [header, cookie, query, KeyPart::PathParam(text("id")), san]
    );
    let identity = [IdentityPart::Qualified, IdentityPart::Label(text("team"))];
    assert_eq!(one.key.parts[5..7], identity.map(KeyPart::Identity));
    assert_eq!(one.key.parts[7..], [KeyPart::Method, KeyPart::Host]);
    let names = ["partners", "machines", "stored", "sso", "staff", "users"];
    let [partners, machines, stored, sso, staff, jwt_users] = names.map(|name| {
        let mut all = config.authenticators.iter();
        all.find(|one| *one.name == *name).unwrap()
    });
    let place = CredentialPlace::Header(HeaderName::from_static("x-api-key"));
    let keys = AuthenticationMethod::ApiKey(ApiKeySpec {
        place,
        keys: ApiKeySource::File("/etc/keys.yaml".into()),
    });
    assert_eq!(
        (
            &*partners.name,
            &partners.method,
            partners.forward_credential
        ),
        ("partners", &keys, true)
    );
    let san = AuthenticationMethod::ClientCertificate(CertificatePart::AlternativeNames);
    assert_eq!(
        (&machines.method, machines.forward_credential),
        (&san, false)
    );
    let name = HeaderName::from_static;
    let forward = ForwardSpec {
        upstream: text("up"),
        path: "/check?x=1".parse().unwrap(),
        request_headers: Some(vec![name("cookie")]),
        copy_headers: vec![name("x-role")],
        id_header: Some(name("x-user")),
        plan_header: Some(name("x-plan")),
        timeout: seconds(2),
        on_failure: OnServiceFailure::Allow,
        cache: Some(AnswerCacheSpec {
            max_age: seconds(30),
            ignore: vec![IgnoredPart::Uri, IgnoredPart::Method, IgnoredPart::ClientIp],
        }),
    };
    assert_eq!(sso.method, AuthenticationMethod::Forward(forward.into()));
    let number = |number| NonZeroU64::new(number).unwrap();
    let failed_attempts = TokenBucket::new(number(5), number(3_600_000_000), number(3)).unwrap();
    let (users, realm, remember) = ("/etc/htpasswd".into(), text("Staff only"), seconds(60));
    let hash = StoredKeySpec {
        hash: text("keys"),
        remember: seconds(60),
        grace: seconds(0),
        failed_attempts,
    };
    let place = CredentialPlace::Header(name("x-api-key"));
    let in_redis = AuthenticationMethod::ApiKey(ApiKeySpec {
        place,
        keys: ApiKeySource::Redis(hash),
    });
    assert_eq!(stored.method, in_redis);
    let basic = AuthenticationMethod::Basic(BasicSpec {
        users,
        realm,
        remember,
        failed_attempts,
    });
    assert_eq!((&staff.method, staff.forward_credential), (&basic, false));
    let AuthenticationMethod::Jwt(jwt) = &jwt_users.method else {
        panic!("{jwt_users:?}")
    };
    assert_eq!(
        (&*jwt.issuer, &jwt.audience[..], &*jwt.id),
        ("me", &["api".to_owned(), "web".to_owned()][..], "email")
    );
    assert_eq!(
        jwt.place,
        CredentialPlace::Header(HeaderName::from_static("x-token"))
    );
    assert_eq!(jwt.algorithms, [JwtAlgorithm::ES256, JwtAlgorithm::EdDSA]);
    assert_eq!(
        (jwt.plan.as_deref(), &jwt.scopes[..]),
        (Some("tier"), &["read".to_owned()][..])
    );
    assert_eq!(
        (jwt.leeway, jwt.max_token, jwt.cached_tokens),
        (seconds(60), 4096, 100)
    );
    let KeySetSource::Url(url) = &jwt.keys else {
        panic!("{:?}", jwt.keys)
    };
    assert_eq!(
        (&*url.host, url.port, &*url.target),
        ("id.example", 81, "/keys?a")
    );
    assert_eq!(
        (url.refresh, url.stale, url.timeout),
        (seconds(3_600), seconds(172_800), seconds(1))
    );
    assert!(!config.routes[0].is_logged && config.routes[1].is_logged);
    let authenticate = |at: usize| config.routes[at].authenticate.as_deref();
    assert_eq!(
        authenticate(0).unwrap(),
        [text("partners"), text("machines"), text("users")]
    );
    assert_eq!((authenticate(1), authenticate(2)), (None, Some(&[][..])));
    let of_listeners: Vec<_> = config
        .listeners
        .iter()
        .map(|listener| &listener.authenticate[..])
        .collect();
    assert_eq!(of_listeners, [&[text("machines")][..], &[], &[]]);
    assert_eq!(one.algorithm, bucket(3, 90_000_000, 3));
    assert_eq!(
        two.key.parts,
        [KeyPart::ClientIp {
            ipv4_prefix: 24,
            ipv6_prefix: 56
        }]
    );
    assert_eq!(
        (two.key.on_missing, two.on_outage),
        (OnMissing::Refuse, OnOutage::Local)
    );
    let max_waiting = NonZeroUsize::new(7).unwrap();
    assert_eq!(
        everyone.on_limit,
        OnLimit::Queue(Queueing {
            max_wait: seconds(2),
            max_waiting
        })
    );
    let OnLimit::Answer(answer) = &one.on_limit else {
        panic!("{:?}", one.on_limit)
    };
    assert_eq!(
        (answer.status, &answer.body[..]),
        (StatusCode::SERVICE_UNAVAILABLE, &b"full"[..])
    );
    let field = |name, value| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    assert_eq!(
        answer.headers,
        [
            field("x-full", "1"),
            field("content-type", "text/html"),
            field("x-content-type-options", "nosniff")
        ]
    );
    assert_eq!(one.rollout, Rollout::from_hundredths(1_250).unwrap());
    assert_eq!(
        two.on_limit,
        OnLimit::Degrade(Degrade::Upstream(text("up")))
    );

    assert_eq!(
        two.exemption.clients,
        ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]
    );
    let yes = (
        HeaderName::from_static("x-internal"),
        Some(HeaderValue::from_static("yes")),
    );
    assert_eq!(
        two.exemption.headers,
        [yes, (HeaderName::from_static("x-probe"), None)]
    );
    assert!(one.exemption.is_empty());

    let upstream = &config.upstreams[0];
    let endpoints: Vec<_> = upstream
        .endpoints
        .iter()
        .map(|of| of.url.to_string())
        .collect();
    assert_eq!(endpoints, ["http://[::1]:9000", "https://orders"]);
    assert_eq!(upstream.http2, Http2Policy::Never);
    assert_eq!(
        upstream.tls.as_ref().unwrap().server_name,
        PeerName::parse("orders.internal")
    );
    let most = |count| NonZeroUsize::new(count);
    let head = Some(HeadBound {
        size: Some(32_768),
        field: Some(8_192),
    });
    assert!(upstream.request_trailers);
    let answer = SectionBounds {
        bytes: 128 * 1024,
        fields: 200,
    };
    assert_eq!(upstream.response_head, answer);
    let (connections, pending, requests) = (most(20), Some(0), most(100));
    let buffer = Percentage::new(50);
    let adaptive = Some(AdaptiveRule {
        min: 5,
        max: 200,
        buffer,
        interval: seconds(30),
        requests: 40,
    });
    assert_eq!(
        upstream.bounds,
        UpstreamBounds {
            connections,
            pending,
            requests,
            adaptive,
            head
        }
    );
    let second = &upstream.endpoints[1];
    assert_eq!(
        (upstream.endpoints[0].weight, second.weight, second.priority),
        (1, 7, 1)
    );
    assert_eq!(
        (&upstream.balance, upstream.keepalive_connections),
        (&Balance::LeastRequests, 8)
    );
    assert_eq!(upstream.slow_start, Some(seconds(30)));
    assert_eq!(
        (upstream.connect_timeout, upstream.response_timeout),
        (seconds(1), seconds(2))
    );
    let status = StatusSet::new([StatusRange::from(204), StatusRange::from(300..=399)]).unwrap();
    let host = Some(HeaderValue::from_static("orders"));
    let check = HealthCheck::Http {
        path: "/healthz?deep".parse().unwrap(),
        host,
        status,
    };
    let thresholds = ProbeThresholds {
        unhealthy_after: 4,
        healthy_after: 5,
    };
    assert_eq!(
        upstream.health,
        Some(HealthSpec {
            check,
            interval: seconds(10),
            timeout: seconds(3),
            thresholds
        })
    );
    let at_most = Percentage::new(20);
    let above = Duration::from_millis(800);
    let latency = Some(LatencyRule {
        above,
        factor: 4,
        requests: 30,
        window: seconds(20),
    });
    assert_eq!(
        upstream.eject,
        Some(EjectSpec {
            after: 6,
            base: seconds(7),
            longest: seconds(60),
            at_most,
            latency
        })
    );
    assert_eq!(upstream.panic_threshold, Percentage::new(40));
    assert_eq!(upstream.tunnel_idle_timeout, seconds(300));
    assert_eq!(
        (upstream.idle_timeout, upstream.keepalive_timeout),
        (seconds(3), Duration::from_millis(500))
    );
}

fn page_fits(page: &ErrorPage, status: u16) -> bool {
    page.statuses
        .contains(StatusCode::from_u16(status).unwrap())
}

#[test]
fn maintenance_that_is_only_switched_on_is_for_everybody_until_it_is_switched_off() {
    let routes = ["true", "{}", "false"].map(|text| {
        let config = good(&format!(
            "{LISTENERS}routes: [{{name: a, echo: true, maintenance: {text}}}]\n"
        ));
        config.routes[0].maintenance.clone()
    });
    let plain = routes[0].as_deref().unwrap();
    assert_eq!(
        (
            plain.when_file.as_ref(),
            plain.until,
            plain.retry_after.as_secs()
        ),
        (None, None, 60)
    );
    assert!(!plain.allow.has("127.0.0.1".parse().unwrap()) && plain.pages.is_none());
    assert_eq!((&routes[0], &routes[2]), (&routes[1], &None));
}

#[test]
fn reads_every_kind_of_route() {
    let config = good(EVERY_KEY);
    let [users, moved, fixed, parts, teapot, redirected, echo] = &config.routes[..] else {
        panic!("{:?}", config.routes)
    };

    assert_eq!(
        users.matches.hosts,
        [HostMatch::Suffix(".example.com".into())]
    );
    let segments = vec![Segment::Literal("a~b".into()), Segment::Param("id".into())];
    assert_eq!(users.matches.paths, [pattern(segments)]);
    let values: Vec<_> = users
        .matches
        .headers
        .iter()
        .map(|header| (header.name.as_str(), &header.value))
        .collect();
    assert_eq!(
        values,
        [
            ("x-canary", &Some(HeaderValue::from_static("1"))),
            ("x-any", &None)
        ]
    );
    assert_eq!(
        users
            .limits
            .iter()
            .map(|used| used.cost.clone())
            .collect::<Vec<_>>(),
        [Some(tokens(3)), None]
    );
    assert_eq!(
        (users.max_body, users.answer_time.head),
        (Some(10 << 20), Some(Duration::from_secs(7)))
    );

    let forward = |action: &Action| match action {
        Action::Forward(forward) => (forward.rewrite.clone(), forward.host.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        forward(&users.action),
        (Rewrite::StripPrefix("/a~b".into()), HostPolicy::Endpoint)
    );
    let replaced = Rewrite::ReplacePrefix {
        from: "/old".into(),
        to: "/new".into(),
    };
    assert_eq!(
        forward(&moved.action),
        (
            replaced,
            HostPolicy::Fixed(HeaderValue::from_static("api.internal:81"))
        )
    );
    assert_eq!(
        forward(&fixed.action),
        (Rewrite::Replace("/".into()), HostPolicy::Preserve)
    );

    let Action::Distribute(parts) = &parts.action else {
        panic!("{:?}", parts.action)
    };
    assert_eq!(
        (
            parts.to_string().as_str(),
            parts.split.as_ref().unwrap().by.len()
        ),
        ("99.50% up, 0.50% served", 2)
    );
    let mirror = parts.mirror.as_ref().unwrap();
    let share = mirror.share.hundredths();
    assert_eq!(
        (
            &*mirror.upstream,
            share,
            mirror.max_body,
            mirror.max_in_flight
        ),
        ("listed", 1_000, 1024, 5)
    );

    let Action::Redirect(redirect) = &redirected.action else {
        panic!("{:?}", redirected.action)
    };
    assert_eq!(
        (redirect.to.to_string().as_str(), redirect.status.as_u16()),
        ("https://{host}/new", 308)
    );
    let changes = [&users.request_fields, &users.response_fields].map(|changes| {
        let removed: Vec<_> = changes.removed.iter().map(HeaderName::as_str).collect();
        let texts: Vec<_> = changes.templates().map(ToString::to_string).collect();
        (removed.join(" "), texts.join(" "))
    });
    assert_eq!(
        changes,
        [
            (
                "cookie x-client".to_owned(),
                "{client_ip} {route}".to_owned()
            ),
            (
                "server x-frame-options".to_owned(),
                "DENY <{uri}>; rel=self".to_owned()
            ),
        ]
    );
    assert_eq!(users.answer_time.whole, Some(Duration::from_secs(60)));
    let time = users.upstream_time;
    let times = [time.connect, time.response, time.idle, time.tunnel_idle]
        .map(|time| time.unwrap().as_secs());
    assert_eq!(times, [8, 9, 10, 11]);
    let retry = users.retry.as_deref().unwrap();
    let [base, max, per_try, retry_after] = [1, 1000, 2000, 3000].map(Duration::from_millis);
    assert_eq!((retry.attempts, retry.back_off), (4, BackOff { base, max }));
    assert_eq!(
        (retry.per_try, retry.retry_after),
        (Some(per_try), Some(retry_after))
    );
    assert_eq!((retry.keep_body, retry.non_idempotent), (64 << 10, true));
    let on = &retry.on;
    assert_eq!(
        (on.connect, on.reset, on.timeout, &on.calls[..]),
        (true, true, true, &[GrpcStatus::Unavailable][..])
    );
    assert_eq!(on.statuses.as_ref().unwrap().to_string(), "503, 4xx");
    assert_eq!(moved.retry, None);
    let networks = |client: &str| users.networks.take(client.parse().unwrap());
    assert_eq!(
        ["192.168.1.1", "192.168.7.7", "10.0.0.1"].map(networks),
        [true, false, false]
    );
    let maintenance = users.maintenance.as_deref().unwrap();
    let end = std::time::UNIX_EPOCH + Duration::from_secs(4_102_441_200);
    assert_eq!(
        (maintenance.until, maintenance.retry_after),
        (Some(end), Duration::from_secs(600))
    );
    assert_eq!(
        maintenance.when_file.as_deref(),
        Some(std::path::Path::new("/run/gate/down"))
    );
    assert_eq!(
        ["10.1.2.3", "11.1.2.3"].map(|client| maintenance.allow.has(client.parse().unwrap())),
        [true, false]
    );
    let pages = &maintenance.pages.as_ref().unwrap().0;
    let shown = |page: &ErrorPage| {
        (
            page.content_type.to_str().unwrap().to_owned(),
            page.fallback,
        )
    };
    assert_eq!(
        [shown(&pages[0]), shown(&pages[1])],
        [("text/html".into(), true), ("text/plain".into(), false)]
    );
    let fits = [503, 502].map(|status| page_fits(&pages[0], status));
    assert_eq!(
        (pages.len(), fits, echo.maintenance.is_none()),
        (2, [true, false], true)
    );
    assert!(
        users
            .cors
            .as_ref()
            .is_some_and(|cors| cors.credentials && cors.allows(b"https://app.example.com"))
    );

    let Action::Respond(respond) = &teapot.action else {
        panic!("{:?}", teapot.action)
    };
    assert_eq!(respond.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(
        respond.headers,
        [(
            HeaderName::from_static("x-pot"),
            HeaderValue::from_static("7")
        )]
    );
    assert_eq!(echo.action, Action::Echo);
    assert_eq!(echo.matches.paths, [pattern(vec![])]);
}

#[test]
fn a_key_without_a_value_counts_as_absent() {
    let config = good(&format!(
        "access_log: off\nstore:\nlimits:\nupstreams: ~\nmax_requests: ${{EMPTY}}\n{LISTENERS}{ROUTES}"
    ));
    assert_eq!(
        (config.access_log, config.store, config.max_requests),
        (None, None, None)
    );
    assert_eq!(
        config.admin,
        Some(AdminSpec::at("127.0.0.1:9901".parse().unwrap()))
    );
}

#[test]
fn reads_every_algorithm() {
    let algorithm = |keys: &str| {
        let limits = format!("limits: {{a: {{key: client_ip, {keys}}}}}");
        let file =
            format!("{LISTENERS}{limits}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n");
        good(&file).limits[0].algorithm.clone()
    };
    let nonzero = |number| NonZeroU64::new(number).unwrap();
    assert_eq!(
        algorithm("algorithm: token_bucket, rate: 3/s"),
        bucket(3, 1_000_000, 3)
    );
    let rate = Rate {
        tokens: nonzero(5),
        period_us: nonzero(90_000_000),
    };
    assert_eq!(
        algorithm("algorithm: sliding_window, rate: 5/90s"),
        Algorithm::SlidingWindow { rate }
    );
    let most = nonzero(7);
    let fleet = algorithm("algorithm: concurrency, max_in_flight: 7");
    assert_eq!(
        fleet,
        Algorithm::Concurrency {
            most,
            scope: Scope::Fleet
        }
    );
    let node = algorithm("algorithm: concurrency, max_in_flight: 7, scope: node");
    assert_eq!(
        node,
        Algorithm::Concurrency {
            most,
            scope: Scope::Node
        }
    );
    let rate = WindowRate {
        tokens: nonzero(5),
        per: WindowLength::Micros(nonzero(90_000_000)),
    };
    assert_eq!(
        algorithm("algorithm: fixed_window, rate: 5/90s"),
        Algorithm::FixedWindow { rate, zone: None }
    );
    let rate = WindowRate {
        tokens: nonzero(1_000),
        per: WindowLength::Month,
    };
    assert_eq!(
        algorithm("algorithm: fixed_window, rate: 1000/month, time_zone: Europe/Berlin"),
        Algorithm::FixedWindow {
            rate,
            zone: Some("Europe/Berlin".into())
        }
    );
}

#[test]
fn reads_every_on_limit_action() {
    let limit = |keys: &str| {
        let limits = format!("limits: {{a: {{key: client_ip, rate: 1/s, {keys}}}}}");
        good(&format!(
            "{LISTENERS}{limits}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n"
        ))
        .limits[0]
            .clone()
    };
    let plain = limit("on_limit: reject");
    assert_eq!(
        (&plain.on_limit, plain.rollout),
        (&OnLimit::Reject, Rollout::ALL)
    );
    assert_eq!(limit("on_limit: shadow"), limit("enforce: 0%"));
    assert_eq!(limit("on_limit: shadow").rollout, Rollout::NONE);
    assert_eq!(
        limit("enforce: 0.5%").rollout,
        Rollout::from_hundredths(50).unwrap()
    );
    let max_waiting = NonZeroUsize::new(100).unwrap();
    assert_eq!(
        limit("on_limit: queue").on_limit,
        OnLimit::Queue(Queueing {
            max_wait: Duration::from_secs(1),
            max_waiting
        })
    );
    let OnLimit::Answer(bare) = &limit("on_limit: {reject: {}}").on_limit else {
        panic!()
    };
    assert_eq!(
        (bare.status, &bare.headers, bare.body.len()),
        (StatusCode::TOO_MANY_REQUESTS, &vec![], 0)
    );
    let degrade = &limit("on_limit: {degrade: {respond: {body: busy}}}").on_limit;
    let OnLimit::Degrade(Degrade::Respond(instead)) = degrade else {
        panic!("{degrade:?}")
    };
    assert_eq!(
        (instead.status, &instead.body[..]),
        (StatusCode::OK, &b"busy"[..])
    );
}

#[test]
fn reads_plans_by_the_part_of_the_request_that_selects_them() {
    let plans = |key: &str, plans: &str| {
        let limits = format!("limits: {{a: {{key: {key}, rate: 1/s, plans: {{{plans}}}}}}}");
        let config = good(&format!(
            "{LISTENERS}{limits}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n"
        ));
        config.limits[0].plans.clone().unwrap()
    };
    let table = |plans: Plans| match plans.source {
        PlanSource::Table(table) => table,
        other => panic!("{other:?}"),
    };
    let table_of = |key: &str, text: &str| table(plans(key, text));
    let gold = table_of(
        "{header: x-tenant}",
        "by: {header: x-plan}, table: {gold: {rate: 5/s, burst: 9, cost: 3}}",
    );
    let gold = &gold[&b"gold"[..]];
    assert_eq!(
        (gold.algorithm(), gold.cost()),
        (&bucket(5, 1_000_000, 9), Some(&tokens(3)))
    );

    let by_client = plans(
        "[client_ip, route]",
        "table: {10.0.0.1: {rate: 2/s}, '2001:DB8:1:2::9': {rate: 3/s}, 'fd00:0:0:1::/64': {rate: 4/s}}",
    );
    assert_eq!(
        by_client.by,
        KeyPart::ClientIp {
            ipv4_prefix: 32,
            ipv6_prefix: 64
        }
    );
    let table = table(by_client);
    for value in ["10.0.0.1", "2001:db8:1:2::/64", "fd00:0:0:1::/64"] {
        assert!(table.contains_key(value.as_bytes()), "{value}: {table:?}");
    }
    let table = table_of("host", "table: {API.example: {rate: 2/s}}");
    assert!(table.contains_key(&b"api.example"[..]));
}

#[test]
fn reads_the_redis_hash_of_plans() {
    let hash = |redis: &str| {
        let limits = format!("limits: {{a: {{key: host, rate: 1/s, plans: {{redis: {redis}}}}}}}");
        let store = "store: {redis: \"redis://r\"}";
        let config = good(&format!(
            "{LISTENERS}{store}\n{limits}\nroutes: [{{name: all, echo: true, limits: [a]}}]\n"
        ));
        config.limits[0].plans.clone().unwrap().source
    };
    let plans = |cache| {
        PlanSource::Hash(PlanHash {
            name: "plans".into(),
            cache,
        })
    };
    assert_eq!(hash("{hash: plans}"), plans(Duration::from_secs(5)));
    assert_eq!(
        hash("{hash: plans, cache: 100ms}"),
        plans(Duration::from_millis(100))
    );
    assert_eq!(
        hash("{hash: plans, cache: 1h}"),
        plans(Duration::from_secs(3_600))
    );
}

#[test]
fn two_listeners_may_each_take_any_free_port() {
    let config = good(&format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}, {{address: \"127.0.0.1:0\"}}]\n{ROUTES}"
    ));
    assert_eq!(config.listeners.len(), 2);
}

#[test]
fn routes_that_differ_in_anything_that_ranks_them_do_not_tie() {
    let config = good(&format!(
        "{LISTENERS}routes:
  - {{name: a, match: {{path: \"/users/{{id}}\"}}, echo: true}}
  - {{name: b, match: {{path: /users/me}}, echo: true}}
  - {{name: c, match: {{path: \"/users/{{id}}\", methods: [GET]}}, echo: true}}
  - {{name: d, match: {{path: \"/users/{{id}}\", methods: [PUT]}}, echo: true}}
  - {{name: e, match: {{path: \"/users/{{id}}\", headers: {{x-a: \"1\"}}}}, echo: true}}
  - {{name: f, match: {{path: \"/users/{{id}}\", headers: {{x-a: \"2\"}}}}, echo: true}}
  - {{name: g, match: {{host: a.example, path: \"/users/{{id}}\"}}, echo: true}}
  - {{name: h, match: {{host: \"*.a.example\", path: \"/users/{{id}}\"}}, echo: true}}
  - {{name: i, match: {{path: \"/users/{{id}}/*\"}}, echo: true}}
"
    ));
    assert_eq!(config.routes.len(), 9);
}

#[test]
fn variables_are_substituted_before_types_are_read() {
    let text = "workers: ${UNSET:-6}\nmax_requests: ${EMPTY:-7}\nlisteners: [{address: \"127.0.0.1:${PORT}\"}]\n\
         routes: [{name: all, respond: {body: \"$${PORT} is ${PORT}, ${EMPTY}$5\"}}]\n";
    let config = good(text);
    assert_eq!(
        (config.workers.get(), config.max_requests),
        (6, NonZeroUsize::new(7))
    );
    assert_eq!(
        config.listeners[0].server.address.tcp().unwrap().port(),
        8080
    );
    let Action::Respond(respond) = &config.routes[0].action else {
        panic!("{:?}", config.routes)
    };
    assert_eq!(respond.body, "${PORT} is 8080, $5");
}

#[test]
fn a_printed_configuration_has_no_password() {
    let config = good(EVERY_KEY);
    let printed = format!("{config:?}");
    assert!(
        !printed.contains("hunter2") && printed.contains("rediss://…@redis:6380/1"),
        "{printed}"
    );
}

#[test]
fn tells_which_sections_a_reload_cannot_change() {
    let old = good(EVERY_KEY);
    let changed = |from: &str, to: &str| {
        assert!(EVERY_KEY.contains(from), "{from}");
        old.needs_restart(&good(&EVERY_KEY.replace(from, to)))
    };
    assert_eq!(old.needs_restart(&old), [""; 0]);
    assert_eq!(changed("workers: 3", "workers: 4"), ["workers"]);
    assert_eq!(changed("[::1]:8080", "[::1]:8081"), ["listeners"]);
    assert_eq!(changed("limits: [everyone]", "limits: []"), [""; 0]);
    assert_eq!(changed("10.0.0.7:9911", "10.0.0.7:9921"), ["admin"]);
    assert_eq!(changed("10.0.0.7:9912", "10.0.0.7:9913"), ["admin"]);
    assert_eq!(
        changed("https://gate.example:8443", "https://gate.example"),
        ["admin"]
    );
    assert_eq!(changed("\"gate:\"", "\"other:\""), ["store"]);
    assert_eq!(changed("gate:hunter2@db", "gate:hunter3@db"), ["policies"]);
    assert_eq!(
        changed("max_local_buckets: 5000", "max_local_buckets: 5001"),
        ["max_local_buckets"]
    );
    assert_eq!(changed("rate: 5000/s", "rate: 5001/s"), [""; 0]);
}

#[test]
fn takes_the_addresses_of_redis_that_its_client_understands() {
    let with = |url: &str| check(&format!("store: {{redis: '{url}'}}\n{LISTENERS}{ROUTES}"));
    for url in [
        "redis://redis",
        "redis://127.0.0.1:6379/15",
        "redis://[::1]:6379",
        "rediss://default:p%40ss%2Fword@redis.example.com:6380",
        "redis+unix:///run/redis.sock",
        "redis+unix://default:word@/run/redis.sock?db=3",
        "redis-sentinel://:word@a,b:26380/main/1?sentinel_password=other",
        "rediss-cluster://a:7000,b",
    ] {
        assert!(with(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "redis",
        "redis:6379",
        "redis://",
        "redis://:hunter2@",
        "redis://host:70000",
        "redis://host:0",
        "redis://host/zero",
        "redis://:hunter#2@host",
        "redis://:hunter/2@host",
        "redis://a b",
        "http://host",
        "redis-other://host",
        "redis://hunter2@host",
        "redis-sentinel://a,b",
        "redis-cluster://:hunter2@a/1",
    ] {
        let told = with(url).unwrap_err().to_string();
        assert!(
            told.contains("store.redis: this is not the address of a Redis\n"),
            "{url}: {told}"
        );
        assert!(!told.contains("hunter"), "{told}");
    }
}
