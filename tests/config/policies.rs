//! Policy documents laid over a file: each rule with its exact message, and what becomes of a good
//! one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tollgate_config::{Loaded, Mistakes, PolicySet, parse_with};
use tollgate_identity::api_key::RouteKeys;
use tollgate_limiter::limit::plan::{PlanSource, Plans};
use tollgate_limiter::limit::rollout::Rollout;
use tollgate_spec::route::Route;

use super::{expected, root};

/// The file below the documents.
const FILE: &str = "listeners: [{address: \"127.0.0.1:0\"}]
defaults: {limits: {on_outage: deny}, routes: {limits: [standard]}}
limits:
  standard: {key: client_ip, rate: 100/s}
  shop.standard: {key: client_ip, rate: 100/s}
routes:
  - {name: orders, match: {path: /orders/*, methods: [GET, POST]}, echo: true}
  - {name: items, match: {path: \"/items/{id}\"}, echo: true, limits: [{limit: shop.standard, cost: 2}]}
  - {name: hosted, match: {host: \"*.example.com\", headers: {x-tier: paid}}, echo: true}
  - {name: shop.taken, match: {path: /taken}, echo: true}
  - {name: everything, match: {path: /*}, echo: true}
";

fn lay(policies: PolicySet) -> Result<Loaded, Mistakes> {
    parse_with("routes.yaml", FILE, &|_| None, Some(policies))
}

fn parse(text: &str) -> Result<Loaded, Mistakes> {
    PolicySet::parse("policies.yaml", text).and_then(lay)
}

fn from_json(json: &Json) -> Result<Loaded, Mistakes> {
    PolicySet::of_json("policies of revision 12", json).and_then(lay)
}

fn route<'a>(loaded: &'a Loaded, name: &str) -> &'a Route {
    loaded
        .config
        .routes
        .iter()
        .find(|route| &*route.name == name)
        .unwrap()
}

fn limits(route: &Route) -> Vec<&str> {
    route.limits.iter().map(|used| &*used.limit.name).collect()
}

fn plans<'a>(loaded: &'a Loaded, limit: &str) -> &'a Plans {
    loaded
        .config
        .limits
        .iter()
        .find(|one| &*one.name == limit)
        .unwrap()
        .plans
        .as_ref()
        .unwrap()
}

#[test]
fn each_bad_document_is_refused_with_its_exact_message() {
    let mut different = String::new();
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("tests/config/policies")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let told =
            parse(&text).map_or_else(|mistakes| mistakes.to_string(), |_| "no mistake".to_owned());
        if told != expected(&text) {
            write!(different, "{}:\n{told}\n\n", path.display()).unwrap();
        }
        count += 1;
    }
    assert!(count >= 12, "only {count} documents were found");
    assert!(different.is_empty(), "{different}");
}

#[test]
fn a_mistake_in_a_document_without_lines_is_named_by_its_path() {
    let strategy =
        json!({"limit": {"key": "client_ip", "rate": "ten"}, "resources": ["all", "gone"]});
    let shop = json!({"routes": ["orders"], "resources": {"all": {"route": "orders"}}, "strategies": {"per-client": strategy}});
    let told = from_json(&json!({"applications": {"shop": shop}})).unwrap_err();
    assert_eq!(
        told.to_string(),
        "policies of revision 12: applications.shop.strategies.per-client.resources[1]: application \"shop\" has no resource \
         \"gone\"\n  hint: define it under \"resources\" of the application\n\
         policies of revision 12: applications.shop.strategies.per-client.limit.rate: \"ten\" is not a rate\n  \
         hint: write tokens per period: 10/s, 100/m, 1000/h, 5/d, 3/90s or 100/15m\n2 mistakes in policies of revision 12"
    );
    assert_eq!(
        serde_json::to_value(&told.all()[0]).unwrap().get("line"),
        None
    );
}

#[test]
fn a_strategy_is_a_limit_of_each_of_its_resources() {
    let loaded = parse(
        "applications:
  shop:
    description: The shop's API
    routes: [orders, items, hosted]
    resources:
      all: {route: orders}
      same: {route: orders, match: {}}
      checkout: {route: orders, match: {path: /orders/checkout, methods: [POST]}}
      paid: {route: hosted, match: {path: /a, headers: {x-more: {present: true}}}}
      unused: {route: items}
    strategies:
      per-client: {limit: {key: client_ip, rate: 10/s, burst: 20}, resources: [all, same, checkout]}
      checkouts: {limit: {key: client_ip, rate: 1/m}, resources: [checkout, paid]}
",
    )
    .unwrap();
    assert_eq!(loaded.warnings, []);
    // The default limit stays, and a part of a route has the limits of the whole.
    assert_eq!(
        limits(route(&loaded, "orders")),
        ["standard", "shop.per-client"]
    );
    assert_eq!(
        limits(route(&loaded, "shop.checkout")),
        ["standard", "shop.per-client", "shop.checkouts"]
    );
    assert_eq!(
        limits(route(&loaded, "shop.paid")),
        ["standard", "shop.checkouts"]
    );
    assert_eq!(limits(route(&loaded, "hosted")), ["standard"]);
    assert_eq!(limits(route(&loaded, "items")), ["shop.standard"]);
    let part = &route(&loaded, "shop.checkout").matches;
    assert_eq!(
        (part.paths[0].to_string(), part.methods.len()),
        ("/orders/checkout".to_owned(), 1)
    );
    let part = &route(&loaded, "shop.paid").matches;
    assert_eq!(
        (part.headers.len(), &part.hosts),
        (2, &route(&loaded, "hosted").matches.hosts)
    );
    let limit = loaded
        .config
        .limits
        .iter()
        .find(|limit| &*limit.name == "shop.per-client")
        .unwrap();
    assert_eq!(
        (
            limit.algorithm.burst().get(),
            format!("{:?}", limit.on_outage)
        ),
        (20, "Deny".to_owned())
    );
}

/// The page about policies says how a strategy counts a part within a part.
#[test]
fn a_part_within_a_part_is_counted_by_strategies_that_name_it() {
    let loaded = parse(
        "applications:
  shop:
    routes: [orders]
    resources:
      carts: {route: orders, match: {path: /orders/carts/*}}
      checkout: {route: orders, match: {path: /orders/carts/checkout}}
    strategies:
      carts-alone: {limit: {key: client_ip, rate: 10/s}, resources: [carts]}
      all-carts: {limit: {key: client_ip, rate: 20/s}, resources: [carts, checkout]}
",
    )
    .unwrap();
    assert_eq!(
        limits(route(&loaded, "shop.checkout")),
        ["standard", "shop.all-carts"]
    );
    assert_eq!(
        limits(route(&loaded, "shop.carts")),
        ["standard", "shop.carts-alone", "shop.all-carts"]
    );
}

#[test]
fn the_command_checks_a_file_and_a_document_together() {
    let folder = tempfile::tempdir().unwrap();
    let (file, policies) = (
        folder.path().join("routes.yaml"),
        folder.path().join("policies.yaml"),
    );
    std::fs::write(&file, FILE).unwrap();
    let run = |document: &str| {
        std::fs::write(&policies, document).unwrap();
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("check")
            .arg(&file)
            .arg("--policies")
            .arg(&policies)
            .output()
            .unwrap();
        let text = [command.stdout, command.stderr].concat();
        (command.status.code(), String::from_utf8(text).unwrap())
    };
    let document = |route: &str| {
        format!(
            "applications: {{shop: {{routes: [orders], resources: {{all: {{route: {route}}}}}, strategies: {{s: {{limit: {{key: client_ip, \
             rate: 1/s}}, resources: [all]}}}}}}}}\n"
        )
    };
    let (code, told) = run(&document("orders"));
    assert!(
        code == Some(0) && told.ends_with("OK, 5 routes, 3 limits, 0 upstreams, 1 listener\n"),
        "{told}"
    );
    let (code, told) = run(&document("gone"));
    assert!(
        code == Some(1)
            && told.contains("policies.yaml:1:66: ")
            && told.contains("no route \"gone\""),
        "{told}"
    );
    let (code, told) = run("applications: [");
    assert!(
        code == Some(1) && told.contains("policies.yaml:") && told.contains("not YAML"),
        "{told}"
    );
}

#[test]
fn an_empty_document_changes_nothing() {
    let mut alone = parse_with("routes.yaml", FILE, &|_| None, None).unwrap();
    // It is known now that no route takes a key.
    assert_eq!(alone.config.policy_keys.replace(RouteKeys::default()), None);
    assert_eq!(parse("applications: {}\n").unwrap(), alone);
    assert_eq!(
        from_json(&json!({"applications": {"shop": {"description": "none"}}})).unwrap(),
        alone
    );
}

#[test]
fn a_part_by_an_expression_stands_before_its_route() {
    let file = "listeners: [{address: \"127.0.0.1:0\"}]
routes: [{name: all, match: {path: {regex: ^/v}}, echo: true}, {name: other, match: {path: /x}, echo: true}]\n";
    let set = PolicySet::parse(
        "policies.yaml",
        "applications: {a: {routes: [all], resources: {posts: {route: all, match: {methods: [POST]}}}, strategies: {s: {limit: {key: client_ip, rate: 1/s}, resources: [posts]}}}}",
    );
    let loaded = parse_with("routes.yaml", file, &|_| None, Some(set.unwrap())).unwrap();
    let names: Vec<_> = loaded
        .config
        .routes
        .iter()
        .map(|route| &*route.name)
        .collect();
    assert_eq!(
        (names, loaded.warnings),
        (vec!["a.posts", "all", "other"], vec![])
    );
}

#[test]
fn clients_have_the_numbers_of_their_plans() {
    let loaded = parse(
        "applications:
  shop:
    routes: [orders]
    resources: {all: {route: orders}}
    strategies:
      per-address: {limit: {key: client_ip, rate: 10/s}, resources: [all]}
      per-tenant: {limit: {key: client_ip, rate: 10/s}, resources: [all], client: {header: x-tenant}}
      unplanned: {limit: {key: client_ip, rate: 10/s}, resources: [all]}
    plans:
      gold: {limits: {per-address: {rate: 100/s}, per-tenant: {rate: 200/s}}}
      silver: {limits: {per-tenant: {rate: 50/s}}}
      free: {}
    clients: {ada: gold, bob: silver, 203.0.113.7: gold, eve: free}
",
    )
    .unwrap();
    let source = |limit: &str| match &plans(&loaded, limit).source {
        PlanSource::Assigned(assigned) => assigned.clone(),
        other => panic!("{other:?}"),
    };
    let (address, tenant) = (source("shop.per-address"), source("shop.per-tenant"));
    let burst = |plan: Option<&tollgate_limiter::limit::plan::Plan>| {
        plan.map(|plan| plan.algorithm().burst().get())
    };
    assert_eq!(burst(tenant.find(b"ada")), Some(200));
    assert_eq!(burst(tenant.find(b"bob")), Some(50));
    assert_eq!(
        (burst(tenant.find(b"eve")), burst(tenant.find(b"gold"))),
        (None, None)
    );
    assert_eq!(
        address.clients.len(),
        1,
        "only an address is a client by its address"
    );
    assert_eq!(
        plans(&loaded, "shop.per-tenant").by,
        tollgate_limiter::header(http::HeaderName::from_static("x-tenant"))
    );
    assert!(
        loaded
            .config
            .limits
            .iter()
            .any(|limit| &*limit.name == "shop.unplanned" && limit.plans.is_none())
    );
}

#[test]
fn limits_share_the_table_of_a_hundred_thousand_clients() {
    let clients: HashMap<String, &str> = (0..100_000)
        .map(|n| (format!("client-{n}"), "gold"))
        .collect();
    let strategy =
        json!({"limit": {"key": {"header": "x-client"}, "rate": "10/s"}, "resources": ["all"]});
    let strategies: HashMap<String, &Json> =
        (0..50).map(|n| (format!("s{n}"), &strategy)).collect();
    let rates: HashMap<String, Json> = (0..50)
        .map(|n| (format!("s{n}"), json!({"rate": "100/s"})))
        .collect();
    let shop = json!({
        "routes": ["orders"],
        "resources": {"all": {"route": "orders"}},
        "strategies": strategies,
        "plans": {"gold": {"limits": rates}},
        "clients": clients,
    });
    let loaded = from_json(&json!({"applications": {"shop": shop}})).unwrap();
    let tables = (0..50).map(|n| match &plans(&loaded, &format!("shop.s{n}")).source {
        PlanSource::Assigned(assigned) => std::sync::Arc::as_ptr(&assigned.clients),
        other => panic!("{other:?}"),
    });
    let tables: std::collections::HashSet<_> = tables.collect();
    assert_eq!(tables.len(), 1);
    let PlanSource::Assigned(assigned) = &plans(&loaded, "shop.s49").source else {
        panic!()
    };
    assert_eq!(
        (
            assigned.clients.len(),
            assigned.find(b"client-99999").is_some()
        ),
        (100_000, true)
    );
}

#[test]
fn a_client_is_found_by_what_an_application_calls_it() {
    let of = |clients: Json, by: Json| {
        let strategy =
            json!({"limit": {"key": "host", "rate": "10/s"}, "resources": ["all"], "client": by});
        let file = "listeners: [{address: '127.0.0.1:0', authenticate: [keys]}]
policies: {database: 'sqlite:///policies.db', copy: /policies.json}
authenticators: {keys: {api_key: {header: x-api-key, policies: true}}}
routes: [{name: orders, match: {path: /orders}, echo: true}]
";
        let shop = json!({
            "routes": ["orders"],
            "resources": {"all": {"route": "orders"}},
            "strategies": {"s": strategy},
            "plans": {"gold": {"limits": {"s": {"rate": "100/s"}}}, "tin": {"limits": {"s": {"rate": "1/s"}}}},
            "clients": clients,
        });
        let set = PolicySet::of_json("policies", &json!({"applications": {"shop": shop}}));
        set.and_then(|set| parse_with("routes.yaml", file, &|_| None, Some(set)))
    };
    for by in [json!("identity"), json!({"identity": "label.team"})] {
        let loaded = of(json!({"ada": "gold"}), by).unwrap();
        let PlanSource::Assigned(assigned) = &plans(&loaded, "shop.s").source else {
            panic!()
        };
        assert!(assigned.find(b"@shop/ada").is_some() && assigned.find(b"ada").is_some());
        assert!(assigned.find(b"@bank/ada").is_none());
    }
    let loaded = of(json!({}), json!({"identity": "plan"})).unwrap();
    let PlanSource::Table(table) = &plans(&loaded, "shop.s").source else {
        panic!()
    };
    let mut names: Vec<&str> = table
        .keys()
        .map(|name| std::str::from_utf8(name).unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["@shop/gold", "@shop/tin", "gold", "tin"]);
    let told = of(
        json!({"@shop/ada": "tin", "ada": "gold"}),
        json!("identity"),
    )
    .unwrap_err()
    .to_string();
    assert!(
        told.contains("\"ada\" is a client with plan \"tin\" already"),
        "{told}"
    );
}

#[test]
fn the_routes_of_an_application_share_a_hundred_thousand_keys() {
    let hash = |n: usize| format!("{n:064x}");
    let keys: HashMap<String, Json> = (0..100_000)
        .map(|n| {
            (
                format!("key-{n}"),
                json!({"client": format!("client-{}", n / 2), "key_sha256": hash(n)}),
            )
        })
        .collect();
    let shop = json!({
        "routes": ["orders", "items"],
        "resources": {"part": {"route": "orders", "match": {"path": "/orders/part"}}},
        "plans": {"gold": {}},
        "clients": {"client-7": "gold"},
        "keys": keys,
    });
    let loaded = from_json(&json!({"applications": {"shop": shop}})).unwrap();
    let keys = |name: &str| {
        loaded
            .config
            .policy_keys
            .as_ref()
            .unwrap()
            .of(&route(&loaded, name).name)
    };
    let table = keys("orders");
    assert_eq!(table.len(), 100_000);
    for name in ["items", "shop.part"] {
        assert!(Arc::ptr_eq(&keys(name), &table), "{name}");
    }
    assert!(
        keys("everything").is_empty(),
        "a route of no application takes none"
    );
}

/// A strategy whose candidate acts `on` something, for the node called `node`.
fn tried(on: &str, node: &str) -> Loaded {
    let text = format!(
        "applications:
  shop:
    routes: [orders]
    resources: {{all: {{route: orders}}, checkout: {{route: orders, match: {{path: /orders/checkout}}}}}}
    strategies:
      per-client:
        limit: {{key: client_ip, rate: 10/s}}
        resources: [all]
        candidate:
          limit: {{key: client_ip, rate: 5/s}}
          on: {on}
          bounds: {{denials: 5%, latency: 500ms}}
          promote_after: 30m
    plans: {{gold: {{limits: {{per-client: {{rate: 100/s}}}}}}}}
    clients: {{203.0.113.7: gold}}
"
    );
    lay(PolicySet::parse("policies.yaml", &text)
        .unwrap()
        .on(node.into()))
    .unwrap()
}

#[test]
fn a_candidate_in_shadow_or_for_some_keys_is_a_limit_beside_the_one_that_holds() {
    for (on, enforced) in [
        ("shadow", Rollout::NONE),
        ("10%", Rollout::from_hundredths(1_000).unwrap()),
    ] {
        let loaded = tried(on, "edge-1");
        assert_eq!(loaded.warnings, []);
        for name in ["orders", "shop.checkout"] {
            assert_eq!(
                limits(route(&loaded, name)),
                ["standard", "shop.per-client", "shop.per-client.candidate"],
                "{on} of {name}"
            );
        }
        let limit = |name: &str| {
            loaded
                .config
                .limits
                .iter()
                .find(|limit| &*limit.name == name)
                .unwrap()
                .clone()
        };
        let (holds, candidate) = (limit("shop.per-client"), limit("shop.per-client.candidate"));
        assert_eq!(
            (holds.algorithm.burst().get(), holds.rollout),
            (10, Rollout::ALL)
        );
        assert_eq!(
            (candidate.algorithm.burst().get(), candidate.rollout),
            (5, enforced)
        );
        assert_eq!(
            format!("{:?}", candidate.on_outage),
            "Deny",
            "the file's defaults complete it"
        );
        assert_eq!(holds.plans, candidate.plans);
        let [watched] = &*loaded.config.candidates else {
            panic!()
        };
        assert_eq!(
            (&*watched.application, &*watched.strategy, &*watched.limit),
            ("shop", "per-client", "shop.per-client.candidate")
        );
        let terms = watched.terms;
        assert_eq!(
            (terms.bounds.denials, terms.bounds.errors),
            (Some(500), None)
        );
        assert_eq!(
            (terms.bounds.latency, terms.over),
            (Some(Duration::from_millis(500)), Duration::from_secs(10))
        );
        assert_eq!(
            (terms.least, terms.promote_after),
            (50, Some(Duration::from_secs(1_800)))
        );
    }
}

#[test]
fn the_candidate_on_the_page_about_rollouts_works() {
    let page = std::fs::read_to_string(root().join("docs/rollouts.md")).unwrap();
    let example = page
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let loaded = parse(example).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(
        (loaded.warnings.len(), loaded.config.candidates.len()),
        (0, 1)
    );
}

#[test]
fn a_candidate_for_some_nodes_stands_in_place_of_the_limit_there_and_nowhere_else() {
    for (node, burst, candidates) in [("canary-7", 5, 1), ("edge-1", 10, 0)] {
        let loaded = tried("{nodes: [other, \"canary-*\"]}", node);
        assert_eq!(
            limits(route(&loaded, "orders")),
            ["standard", "shop.per-client"]
        );
        let limit = loaded
            .config
            .limits
            .iter()
            .find(|limit| &*limit.name == "shop.per-client")
            .unwrap();
        assert_eq!(
            (limit.algorithm.burst().get(), limit.rollout),
            (burst, Rollout::ALL),
            "{node}"
        );
        assert!(limit.plans.is_some());
        assert_eq!(loaded.config.candidates.len(), candidates, "{node}");
        let told = loaded
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<String>();
        assert_eq!(
            told.matches("a canary of a tighter limit denies less than the limit will")
                .count(),
            candidates,
            "{told}"
        );
    }
}

#[test]
fn a_strategy_may_have_a_candidate_alone_and_is_warned_of_when_it_has_nothing() {
    let loaded = |strategy: &str| {
        parse(&format!(
            "applications: {{shop: {{routes: [orders], resources: {{all: {{route: orders}}}}, strategies: {{s: {{resources: [all]{strategy}}}}}, \
             plans: {{gold: {{limits: {{s: {{rate: 9/s}}}}}}}}}}}}"
        ))
        .unwrap()
    };
    let tried = loaded(", candidate: {limit: {key: client_ip, rate: 5/s}, on: shadow}");
    assert_eq!(
        (limits(route(&tried, "orders")), tried.warnings.len()),
        (vec!["standard", "shop.s.candidate"], 0)
    );
    let nothing = loaded("");
    assert_eq!(limits(route(&nothing, "orders")), ["standard"]);
    let [warning] = &*nothing.warnings else {
        panic!("{:?}", nothing.warnings)
    };
    assert!(
        warning
            .to_string()
            .contains("strategy \"s\" has no limit: it limits nothing"),
        "{warning}"
    );
}

/// A strategy is called like a limit on every node, whatever it has: the file's limit of that name
/// stays the file's.
#[test]
fn a_strategy_takes_its_names_whether_it_has_a_limit_or_not() {
    let file = FILE.replace(
        "limits:\n  standard",
        "limits:\n  shop.s.candidate: {key: client_ip, rate: 1/s}\n  standard",
    );
    let told = |name: &str, strategy: &str, node: Option<&str>| {
        let text = format!(
            "applications: {{shop: {{routes: [orders], resources: {{all: {{route: orders}}}}, strategies: {{{name}: {{resources: [all], \
             client: {{constant: all}}, {strategy}}}}}, plans: {{p: {{limits: {{{name}: {{rate: 1/h}}}}}}}}, clients: {{all: p}}}}}}"
        );
        let set = PolicySet::parse("policies.yaml", &text).unwrap();
        let set = node.into_iter().fold(set, |set, node| set.on(node.into()));
        parse_with("routes.yaml", &file, &|_| None, Some(set))
            .err()
            .map(|mistakes| mistakes.to_string())
    };
    let limit = "limit: {key: client_ip, rate: 1/s}";
    let candidate = |on: &str| format!("candidate: {{{limit}, on: {on}}}");
    let all = [
        String::new(),
        limit.to_owned(),
        candidate("shadow"),
        candidate("{nodes: [edge]}"),
    ];
    for (strategy, node) in all.iter().flat_map(|strategy| {
        [
            (strategy, None),
            (strategy, Some("edge")),
            (strategy, Some("core")),
        ]
    }) {
        let taken = |name: &str| told(name, strategy, node).unwrap_or_default();
        let standard = taken("standard");
        assert!(
            standard.contains("there is a limit \"shop.standard\" already"),
            "{strategy} on {node:?}: {standard}"
        );
        let tried = taken("s");
        assert!(
            tried.contains("there is a limit \"shop.s.candidate\" already"),
            "{strategy} on {node:?}: {tried}"
        );
        assert_eq!(
            told("other", strategy, node),
            None,
            "{strategy} on {node:?}"
        );
    }
}

/// Nanoseconds for which this thread has had a core.
fn cpu_nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// The bound is for a build without optimizations; what is meant is that nothing is quadratic. The
/// thread's own time is counted, whatever else the machine does.
#[test]
fn ten_thousand_strategies_are_checked_in_time() {
    let mut file = FILE.to_owned();
    let applications = (0..10).map(|at| {
        writeln!(file, "  - {{name: route-{at}, match: {{path: /route-{at}/*}}, echo: true}}").unwrap();
        let limit = json!({"key": "client_ip", "rate": "10/s"});
        let strategies: HashMap<String, Json> =
            (0..1_000).map(|n| (format!("s{n}"), json!({"limit": limit, "resources": [format!("r{n}")]}))).collect();
        let part = |n| json!({"route": format!("route-{at}"), "match": {"path": format!("/route-{at}/{n}")}});
        let resources: HashMap<String, Json> = (0..1_000).map(|n| (format!("r{n}"), part(n))).collect();
        let routes = [format!("route-{at}")];
        (format!("a{at}"), json!({"routes": routes, "resources": resources, "strategies": strategies}))
    });
    let applications: HashMap<String, Json> = applications.collect();
    let document = json!({"applications": applications});
    let began = cpu_nanoseconds();
    let set = PolicySet::of_json("policies of revision 12", &document).unwrap();
    let loaded = parse_with("routes.yaml", &file, &|_| None, Some(set)).unwrap();
    let worked = Duration::from_nanos(cpu_nanoseconds() - began);
    assert_eq!(
        (loaded.config.limits.len(), loaded.config.routes.len()),
        (10_002, 10_015)
    );
    assert!(worked < Duration::from_secs(20), "{worked:?}");
}

#[test]
fn deep_json_is_refused_and_not_followed() {
    let mut deep = json!("end");
    for _ in 0..1_000 {
        deep = json!([deep]);
    }
    let told = from_json(&json!({"applications": deep}))
        .unwrap_err()
        .to_string();
    assert!(told.contains("nested deeper than 32 levels\n"), "{told}");
}

#[test]
fn what_is_written_comes_back_as_json_and_as_yaml() {
    let text = "applications:
  shop:
    description: \"007\"
    routes:
      - orders
    resources:
      all:
        route: orders
    strategies:
      one:
        limit:
          key: client_ip
          rate: 10/s
          burst: 20
          hidden: true
        resources:
          - all
";
    let set = PolicySet::parse("policies.yaml", text).unwrap();
    let json = set.to_json();
    let limit = json
        .pointer("/applications/shop/strategies/one/limit")
        .unwrap();
    assert_eq!(
        limit,
        &json!({"key": "client_ip", "rate": "10/s", "burst": 20, "hidden": true})
    );
    assert_eq!(
        json.pointer("/applications/shop/description"),
        Some(&json!("007"))
    );
    let again = PolicySet::of_json("again", &json).unwrap();
    assert_eq!(again.to_json(), json);
    assert_eq!(
        PolicySet::parse("again", &again.to_yaml())
            .unwrap()
            .to_json(),
        json
    );
    assert_eq!(lay(set).unwrap(), lay(again).unwrap());
}

#[test]
fn a_limit_sends_requests_to_upstreams_of_its_application_alone() {
    let file = "listeners: [{address: \"127.0.0.1:0\"}]
upstreams: {cache: {endpoints: [\"http://127.0.0.1:1\"]}, vault: {endpoints: [\"http://127.0.0.1:2\"]}}
routes:
  - {name: orders, match: {path: /orders/*}, upstream: cache}
  - {name: rest, match: {path: /*}, upstream: vault}
";
    let lay = |own: &str, upstream: &str| {
        let text = format!(
            "applications: {{shop: {{routes: [orders], {own} resources: {{all: {{route: orders}}}}, strategies: {{few: {{\
             limit: {{key: client_ip, rate: 1/h, on_limit: {{degrade: {{upstream: {upstream}}}}}}}, resources: [all]}}}}}}}}"
        );
        let set = PolicySet::parse("policies.yaml", &text).unwrap();
        parse_with("routes.yaml", file, &|_| None, Some(set))
            .map(drop)
            .map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(lay("upstreams: [cache],", "cache"), Ok(()));
    for own in ["", "upstreams: [cache],"] {
        let told = lay(own, "vault").unwrap_err();
        assert!(
            told.contains("upstream \"vault\" is not among those of application \"shop\""),
            "{told}"
        );
        assert!(
            told.contains(
                "write upstreams: [vault] in the application; in a database only an admin may"
            ),
            "{told}"
        );
    }
}

/// Each request is charged to all limits of its route: nobody who edits one application makes the
/// others wait for that.
#[test]
fn an_application_has_a_bounded_number_of_everything() {
    let route = |resources: String, strategies: String, clients: String| {
        format!(
            "{{applications: {{shop: {{routes: [everything], resources: {{all: {{route: everything}}, {resources}}}, \
             strategies: {{{strategies}}}, plans: {{gold: {{}}}}, clients: {{{clients}}}}}}}}}"
        )
    };
    let refused = |text: String| {
        parse(&text)
            .err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    let list = |count: usize, one: &dyn Fn(usize) -> String| {
        (0..count).map(one).collect::<Vec<_>>().join(", ")
    };
    let strategies = |count| {
        list(count, &|at| {
            format!("s{at}: {{limit: {{key: client_ip, rate: 1/s}}, resources: [p{at}]}}")
        })
    };
    let parts = |count| {
        list(count, &|at| {
            format!("p{at}: {{route: everything, match: {{path: /p{at}}}}}")
        })
    };
    let told = refused(route(parts(999), strategies(1_001), String::new()));
    assert!(
        told.contains("application \"shop\" has more than 1000 strategies"),
        "{told}"
    );
    let told = refused(route(parts(1_000), String::new(), String::new()));
    assert!(
        told.contains("application \"shop\" has more than 1000 resources"),
        "{told}"
    );
    let expressions = |count| list(count, &|at| format!("{{regex: \"^/e{at}$\"}}"));
    let resource = |count| {
        format!(
            "e: {{route: everything, match: {{path: [/e, {}]}}}}",
            expressions(count)
        )
    };
    assert_eq!(
        refused(route(resource(16), String::new(), String::new())),
        ""
    );
    let told = refused(route(resource(17), String::new(), String::new()));
    assert!(
        told.contains("application \"shop\" has more than 16 expressions among its paths"),
        "{told}"
    );
    let one =
        |text: &str| format!("e: {{route: everything, match: {{path: {{regex: '{text}'}}}}}}");
    assert_eq!(
        refused(route(
            one("^/v[0-9]+/orders/(?<id>[^/]+)/items$"),
            String::new(),
            String::new()
        )),
        ""
    );
    let told = refused(route(
        one("^/z/[ab]*a[ab]{700}c"),
        String::new(),
        String::new(),
    ));
    assert!(
        told.contains("compiled, the expression of a policy has over 16KiB"),
        "{told}"
    );
    let large = |count| {
        list(count, &|at| {
            format!("{{regex: \"^/e{at}/[ab]*a[ab]{{200}}$\"}}")
        })
    };
    let resource = |count| {
        format!(
            "e: {{route: everything, match: {{path: [{}]}}}}",
            large(count)
        )
    };
    assert_eq!(
        refused(route(resource(2), String::new(), String::new())),
        ""
    );
    let told = refused(route(resource(8), String::new(), String::new()));
    assert!(
        told.contains("compiled, the expressions of an application have over 32KiB"),
        "{told}"
    );
    let tried = |count| {
        let limit = "{key: client_ip, rate: 1/s}";
        list(count, &|at| {
            format!("s{at}: {{candidate: {{limit: {limit}, on: shadow}}, resources: [all]}}")
        })
    };
    assert_eq!(refused(route(String::new(), tried(50), String::new())), "");
    let told = refused(route(String::new(), tried(51), String::new()));
    assert!(
        told.contains("application \"shop\" has more than 50 candidates"),
        "{told}"
    );
    let plans = |count| list(count, &|at| format!("p{at}: {{}}"));
    let told = refused(format!(
        "{{applications: {{shop: {{routes: [orders], plans: {{{}}}}}}}}}",
        plans(1_001)
    ));
    assert!(
        told.contains("application \"shop\" has more than 1000 plans"),
        "{told}"
    );
    let clients = |count| list(count, &|at| format!("c{at}: gold"));
    let told = refused(route(String::new(), String::new(), clients(200_001)));
    assert!(
        told.contains("application \"shop\" has more than 200000 clients"),
        "{told}"
    );
}

#[test]
fn what_a_request_is_looked_through_for_is_bounded() {
    let shop = |strategies: usize, limit: &Json, plan: &Json| {
        let strategy = json!({"limit": limit, "resources": ["all"]});
        let strategies: HashMap<String, &Json> = (0..strategies)
            .map(|at| (format!("s{at}"), &strategy))
            .collect();
        json!({"applications": {"shop": {
            "routes": ["orders"],
            "resources": {"all": {"route": "orders"}},
            "strategies": strategies,
            "plans": {"gold": {"limits": {"s0": plan}}},
        }}})
    };
    let plan = json!({"rate": "1/h"});
    let told = |strategies: usize, limit: Json| {
        from_json(&shop(strategies, &limit, &plan))
            .err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    let parts = |parts: usize| {
        let parts: Vec<Json> = (0..parts)
            .map(|at| json!({"query": format!("q{at}")}))
            .collect();
        json!({"key": parts, "rate": "1/h"})
    };
    assert_eq!(told(32, parts(4)), "");
    assert!(
        told(32, parts(5)).contains(
            "the limits of policies on route \"orders\" have more than 128 parts of keys"
        )
    );
    let exempt = |clients: usize| {
        let clients: Vec<String> = (0..clients)
            .map(|at| format!("10.0.{}.{}", at / 256, at % 256))
            .collect();
        json!({"key": "client_ip", "rate": "1/h", "exempt": {"client": clients}})
    };
    assert_eq!(told(2, exempt(256)), "");
    assert!(told(2, exempt(257)).contains("have more than 512 exempt clients and header fields"));
    let sums = |values: usize| {
        let fields: Vec<String> = (0..values).map(|at| format!("usage.f{at}")).collect();
        json!({"key": "client_ip", "rate": "1/h", "cost": {"response_json": fields, "reserve": 1}})
    };
    assert_eq!(told(2, sums(8)), "");
    assert!(told(3, sums(6)).contains("have more than 16 values of JSON responses"));
    let plan = |values: usize| json!({"rate": "1/h", "cost": sums(values)["cost"]});
    let told = |plan: Json| {
        let laid = from_json(&shop(1, &json!({"key": "client_ip", "rate": "1/h"}), &plan));
        laid.err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    assert_eq!(told(plan(2)), "");
    let any_of =
        json!({"response_json": {"first_of": ["usage.a", "usage.b", "usage.c"]}, "reserve": 1});
    for costly in [plan(3), json!({"rate": "1/h", "cost": any_of})] {
        assert!(
            told(costly).contains("the cost of a plan has more than 2 values of JSON responses")
        );
    }
}

/// Each way to tell clients takes a table of all of them, and each plan of a limit some kilobytes
/// while it is checked.
#[test]
fn tables_of_clients_and_limits_in_plans_are_bounded() {
    let told = |shop: Json| {
        let laid = from_json(&json!({"applications": {"shop": shop}}));
        laid.err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    let spelled = |prefixes: u8| {
        let strategy = |prefix: u8| {
            let client = json!({"client_ip": {"ipv4_prefix": prefix}});
            json!({"limit": {"key": "client_ip", "rate": "1/h"}, "client": client, "resources": ["all"]})
        };
        let limits: HashMap<String, Json> = (1..=prefixes)
            .map(|at| (format!("s{at}"), json!({"rate": "9/h"})))
            .collect();
        json!({
            "routes": ["orders"],
            "resources": {"all": {"route": "orders"}},
            "strategies": (1..=prefixes).map(|at| (format!("s{at}"), strategy(at))).collect::<HashMap<_, _>>(),
            "plans": {"gold": {"limits": limits}},
            "clients": {"10.0.0.1": "gold"},
        })
    };
    assert_eq!(told(spelled(8)), "");
    let ninth = told(spelled(9));
    assert!(
        ninth.contains(
            "the limits of application \"shop\" that have plans tell clients in more than 8 ways"
        ),
        "{ninth}"
    );
    assert!(
        ninth.contains("hint: give limits with plans the same prefixes of addresses"),
        "{ninth}"
    );
    let planned = |plans: usize| {
        let limits: HashMap<String, Json> = (0..100)
            .map(|at| (format!("s{at}"), json!({"rate": "9/h"})))
            .collect();
        json!({
            "routes": ["orders"],
            "resources": {"all": {"route": "orders"}},
            "strategies": (0..100).map(|at| (format!("s{at}"), json!({"resources": ["all"]}))).collect::<HashMap<_, _>>(),
            "plans": (0..plans).map(|at| (format!("p{at}"), json!({"limits": limits}))).collect::<HashMap<_, _>>(),
        })
    };
    assert_eq!(told(planned(200)), "");
    let beyond = told(planned(201));
    assert!(
        beyond.contains("application \"shop\" has more than 20000 limits in its plans"),
        "{beyond}"
    );
}

/// Each pair is a place in the table of routes.
#[test]
fn hosts_and_paths_of_parts_are_bounded_as_pairs() {
    let hosts: Vec<String> = (0..40).map(|at| format!("h{at}.example.com")).collect();
    let file = format!(
        "{FILE}  - {{name: many, match: {{host: {hosts:?}, path: /many/*}}, echo: true}}\n"
    );
    let told = |resources: HashMap<String, Json>| {
        let shop = json!({"routes": ["hosted", "many"], "resources": resources});
        let set = PolicySet::of_json(
            "policies of revision 12",
            &json!({"applications": {"shop": shop}}),
        )
        .unwrap();
        let laid = parse_with("routes.yaml", &file, &|_| None, Some(set));
        laid.err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    let part = |at: usize, hosts: usize, paths: usize| {
        let hosts: Vec<String> = (0..hosts)
            .map(|host| format!("h{host}.example.com"))
            .collect();
        let paths: Vec<String> = (0..paths).map(|path| format!("/p{at}/{path}")).collect();
        (
            format!("p{at}"),
            json!({"route": "hosted", "match": {"host": hosts, "path": paths}}),
        )
    };
    assert_eq!(told(HashMap::from([part(0, 32, 32)])), "");
    let beyond = told(HashMap::from([part(0, 33, 32)]));
    assert!(
        beyond.contains(
            "shop.resources.p0.match: the part has more than 1024 pairs of a host and a path"
        ),
        "{beyond}"
    );
    assert_eq!(told((0..19).map(|at| part(at, 32, 32)).collect()), "");
    let beyond = told((0..20).map(|at| part(at, 32, 32)).collect());
    assert!(
        beyond.contains("the application's parts have more than 20000 pairs of a host and a path"),
        "{beyond}"
    );
    let paths: Vec<String> = (0..26).map(|path| format!("/many/{path}")).collect();
    let inherited = json!({"route": "many", "match": {"path": paths}});
    let beyond = told(HashMap::from([("inherits".to_owned(), inherited)]));
    assert!(
        beyond.contains("the part has more than 1024 pairs of a host and a path"),
        "{beyond}"
    );
}

/// Each part at a place is compared with the others there, and a request with each.
#[test]
fn conditions_of_parts_are_bounded() {
    let told = |parts: Vec<Json>| {
        let part = |(at, conditions)| {
            (
                format!("p{at}"),
                json!({"route": "everything", "match": conditions}),
            )
        };
        let resources: HashMap<String, Json> = parts.into_iter().enumerate().map(part).collect();
        let laid = from_json(
            &json!({"applications": {"shop": {"routes": ["everything"], "resources": resources}}}),
        );
        laid.err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    let alike = |count: usize| {
        (0..count)
            .map(|at| json!({"path": "/a", "headers": {"x-a": at.to_string()}}))
            .collect()
    };
    assert_eq!(told(alike(64)), "");
    let beyond = told(alike(65));
    assert!(
        beyond.contains("the application has more than 64 parts with one host and path"),
        "{beyond}"
    );
    let params = |count: usize| {
        (0..count).map(|at| json!({"path": format!("/{{p{at}}}"), "methods": [format!("M{at}")]}))
    };
    assert!(
        told(params(65).collect()).contains("more than 64 parts with one host and path"),
        "names matter to nobody"
    );
    let headers = |count: usize| {
        let headers: HashMap<String, Json> = (0..count)
            .map(|at| (format!("x-{at}"), json!("1")))
            .collect();
        vec![json!({"path": "/a", "headers": headers})]
    };
    assert_eq!(told(headers(8)), "");
    assert!(told(headers(9)).contains("the part has more than 8 header conditions"));
    let methods = |count: usize| {
        let methods: Vec<String> = (0..count).map(|at| format!("M{at}")).collect();
        vec![json!({"path": "/a", "methods": methods})]
    };
    assert_eq!(told(methods(16)), "");
    assert!(told(methods(17)).contains("the part has more than 16 methods"));
    let deep = |parts: usize, segments: usize| {
        (0..parts)
            .map(|at| json!({"path": format!("/{at}{}", "/a".repeat(segments - 1))}))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(deep(775, 128)), "");
    let beyond = told(deep(776, 128));
    assert!(
        beyond.contains("the application's parts have more than 100000 segments of paths"),
        "{beyond}"
    );
    assert!(told(deep(1, 129)).contains("has more than 128 segments"));
}

/// Each is compiled for its part, and a request may be compared with each part.
#[test]
fn parts_with_the_expression_of_their_route_are_bounded() {
    let file = format!(
        "{FILE}  - {{name: numbered, match: {{path: {{regex: '^/n/[0-9]+$'}}}}, echo: true}}\n"
    );
    let told = |parts: Vec<Json>| {
        let part = |(at, conditions)| {
            (
                format!("p{at}"),
                json!({"route": "numbered", "match": conditions}),
            )
        };
        let resources: HashMap<String, Json> = parts.into_iter().enumerate().map(part).collect();
        let shop = json!({"routes": ["numbered"], "resources": resources});
        let set = PolicySet::of_json(
            "policies of revision 12",
            &json!({"applications": {"shop": shop}}),
        )
        .unwrap();
        let laid = parse_with("routes.yaml", &file, &|_| None, Some(set));
        laid.err()
            .map(|mistakes| mistakes.to_string())
            .unwrap_or_default()
    };
    let alike = |count: usize| {
        (0..count)
            .map(|at| json!({"headers": {"x-a": at.to_string()}}))
            .collect()
    };
    assert_eq!(told(alike(64)), "");
    let beyond = told(alike(65));
    assert!(
        beyond.contains("the application has more than 64 parts with one host and path"),
        "{beyond}"
    );
    let hosts = |count: usize| {
        (0..count)
            .map(|at| json!({"host": format!("h{at}.example.org")}))
            .collect()
    };
    assert_eq!(told(hosts(128)), "");
    let beyond = told(hosts(129));
    assert!(
        beyond.contains("the application's parts have more than 128 expressions among their paths"),
        "{beyond}"
    );
}

#[test]
fn a_route_has_a_bounded_number_of_limits() {
    let lay = |strategies: usize| {
        let strategies: HashMap<String, Json> = (0..strategies)
            .map(|at| {
                (
                    format!("s{at}"),
                    json!({"limit": {"key": "client_ip", "rate": "1/h"}, "resources": ["all"]}),
                )
            })
            .collect();
        let shop = json!({"routes": ["orders"], "resources": {"all": {"route": "orders"}}, "strategies": strategies});
        from_json(&json!({"applications": {"shop": shop}}))
            .map(drop)
            .map_err(|mistakes| mistakes.to_string())
    };
    // The file gives the route one.
    assert_eq!(lay(63), Ok(()));
    let told = lay(64).unwrap_err();
    assert!(
        told.contains("route \"orders\" has more than 64 limits"),
        "{told}"
    );
}

/// Several resources may be one route, and a part has the limits of the whole.
#[test]
fn a_limit_that_a_route_has_twice_counts_once() {
    let lay = |strategies: usize, parts: usize| {
        let key: Vec<Json> = (0..parts)
            .map(|at| json!({"query": format!("q{at}")}))
            .collect();
        let strategy =
            json!({"limit": {"key": key, "rate": "1/h"}, "resources": ["all", "same", "checkout"]});
        let strategies: HashMap<String, &Json> = (0..strategies)
            .map(|at| (format!("s{at}"), &strategy))
            .collect();
        let resources = json!({
            "all": {"route": "orders"},
            "same": {"route": "orders"},
            "checkout": {"route": "orders", "match": {"path": "/orders/checkout"}},
        });
        let shop = json!({"routes": ["orders"], "resources": resources, "strategies": strategies});
        from_json(&json!({"applications": {"shop": shop}}))
            .map(drop)
            .map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(lay(63, 1), Ok(()));
    assert!(
        lay(64, 1)
            .unwrap_err()
            .contains("route \"orders\" has more than 64 limits")
    );
    assert_eq!(lay(32, 4), Ok(()));
    assert!(
        lay(32, 5)
            .unwrap_err()
            .contains("on route \"orders\" have more than 128 parts of keys")
    );
}
