//! The files shipped around the gateway agree: manifests, alert rules, the configurations in them
//! and in the docs.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod links;
mod shipped;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use saphyr::{LoadableYamlNode as _, YamlOwned};

use shipped::*;
use tollgate_testing::topology::CertificateAuthority;

#[test]
fn every_file_of_a_deployment_is_yaml() {
    let files = files("deploy", "yaml");
    assert!(files.len() > 10, "{files:?}");
    for path in files {
        assert!(!documents(&path).is_empty(), "{} is empty", path.display());
    }
}

#[test]
fn the_alert_rules_are_valid() {
    promtool(&["check", "rules", "deploy/prometheus/alerts.yaml"]);
    promtool(&[
        "check",
        "config",
        "--syntax-only",
        "deploy/compose/prometheus.yaml",
    ]);
    // Debian's promtool is built without Kubernetes: it is shown all but where the targets come
    // from.
    let found = "kubernetes_sd_configs:\n      - role: pod\n";
    let config = read("deploy/prometheus/kubernetes.yaml");
    assert!(config.contains(found));
    let config = temporary(
        &config
            .replace(found, "static_configs: []\n")
            .replace("- alerts.yaml", "- none.yaml"),
    );
    promtool(&[
        "check",
        "config",
        "--syntax-only",
        &config.path().display().to_string(),
    ]);
}

#[test]
fn the_alerts_fire_when_they_should_and_only_then() {
    promtool(&["test", "rules", "deploy/prometheus/alerts_test.yaml"]);
}

#[test]
fn every_alert_has_a_test() {
    let tests = read("deploy/prometheus/alerts_test.yaml");
    // `alertname: Name` of a rule's test, `ALERTS{alertname="Name"` of an expression's.
    let tested: BTreeSet<&str> = tests
        .split("alertname")
        .skip(1)
        .filter_map(|rest| {
            rest.trim_start_matches([':', '=', ' ', '"'])
                .split(|c: char| !c.is_alphanumeric())
                .next()
        })
        .collect();
    let rules = &documents("deploy/prometheus/alerts.yaml")[0];
    let rules = at(rules, "groups.0.rules")
        .and_then(YamlOwned::as_sequence)
        .expect("there are rules");
    let untested: Vec<_> = rules
        .iter()
        .map(|rule| text(rule, "alert"))
        .filter(|name| !tested.contains(name.as_str()))
        .collect();
    assert!(rules.len() > 5 && untested.is_empty(), "{untested:?}");
}

#[test]
fn every_documented_metric_exists_in_the_sources() {
    let sources = sources();
    let known = metrics_in(&sources);
    let texts = pages()
        .into_iter()
        .chain(files("deploy/prometheus", "yaml"));
    let unknown: Vec<_> = texts
        .flat_map(|page| {
            metrics_in(&read(&page))
                .into_iter()
                .map(move |name| (page.display().to_string(), name))
        })
        .filter(|(_, name)| !known.contains(name))
        .collect();
    assert!(unknown.is_empty(), "named, but in no source: {unknown:#?}");
}

#[test]
fn every_label_value_that_an_alert_selects_exists_in_the_sources() {
    let sources = sources();
    let alerts = read("deploy/prometheus/alerts.yaml");
    let selected: Vec<_> = ["outcome=", "verdict=", "decided_by="]
        .iter()
        .flat_map(|label| alerts.split(label).skip(1))
        .filter_map(|rest| rest.strip_prefix('"')?.split('"').next())
        .collect();
    assert!(selected.len() >= 3, "{selected:?}");
    let unknown: Vec<_> = selected
        .iter()
        .filter(|value| !sources.contains(&format!("\"{value}\"")))
        .collect();
    assert!(
        unknown.is_empty(),
        "an alert on these never fires: {unknown:?}"
    );
}

#[test]
fn the_gateway_refuses_a_configuration_that_is_broken() {
    let broken = read("deploy/compose/gateway.yaml").replace("upstream: echo", "upstream: nobody");
    assert!(
        check(temporary(&broken).path()).is_err(),
        "else the tests below would prove nothing"
    );
}

#[test]
fn the_gateway_takes_every_configuration_that_is_shipped() {
    let configs = gateway_configs();
    assert!(
        configs.len() >= 4,
        "two for Compose, two for Kubernetes, found only {configs:?}"
    );
    // The pair that a Secret would have.
    let authority = CertificateAuthority::create();
    authority.issue("tls", "DNS:localhost");
    std::fs::rename(authority.path("tls.pem"), authority.path("tls.crt")).expect("it was made");
    let mounted = authority.path("").display().to_string();
    for config in configs
        .iter()
        .map(PathBuf::as_path)
        .chain([Path::new("routes.yaml")])
    {
        let content = read(config).replace("/etc/tollgate-tls", mounted.trim_end_matches('/'));
        assert_checks(&config.display().to_string(), temporary(&content).path());
    }
}

#[test]
fn the_certificates_of_the_overlay_with_tls_are_mounted_and_its_port_is_reached() {
    let of = |file: &str| documents(format!("deploy/kubernetes/overlays/tls/{file}")).remove(0);
    let (routes, deployment, service, policy) = (
        of("routes.yaml"),
        of("deployment.yaml"),
        of("service.yaml"),
        of("network-policy.yaml"),
    );
    let pod = at(&deployment, "spec.template.spec").expect("it has a pod");
    let (mount, volume) = (
        text(pod, "containers.0.volumeMounts.0.name"),
        text(pod, "volumes.0.name"),
    );
    assert_eq!(
        (mount, text(pod, "volumes.0.secret.secretName")),
        (volume, "tollgate-tls".into())
    );
    let folder = text(pod, "containers.0.volumeMounts.0.mountPath");
    let pair = at(&routes, "listeners.1.tls.certificates.0").expect("it has a certificate");
    for (key, file) in [("cert", "tls.crt"), ("key", "tls.key")] {
        assert_eq!(
            text(pair, key),
            format!("{folder}/{file}"),
            "as a Secret of that type has them"
        );
    }
    let port = text(pod, "containers.0.ports.0.name");
    let number = number(pod, "containers.0.ports.0.containerPort");
    assert_eq!(
        text(&routes, "listeners.1.address"),
        format!("0.0.0.0:{number}")
    );
    assert_eq!(text(&service, "spec.ports.0.targetPort"), port);
    assert_eq!(text(&policy, "0.value.port"), port);
    let base = documents("deploy/kubernetes/base/deployment.yaml").remove(0);
    assert_eq!(
        text(&base, "metadata.name"),
        text(&deployment, "metadata.name")
    );
    assert_eq!(
        text(&base, "spec.template.spec.containers.0.name"),
        text(pod, "containers.0.name")
    );
}

/// A line of htpasswd, from Apache's own page on its formats.
const A_USER: &str = "myName:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n";

#[test]
fn the_gateway_takes_every_configuration_in_the_docs() {
    let mut checked = 0;
    // Files beside the configuration, which the pages name and which are to be there.
    let (keys, users) = (temporary("[]\n"), temporary(A_USER));
    let [keys, users] = [&keys, &users].map(|file| file.path().display().to_string());
    for page in pages() {
        for (line, block) in yaml_blocks(&read(&page)) {
            let name = format!("{}:{line}", page.display());
            let document =
                YamlOwned::load_from_str(&block).unwrap_or_else(|error| panic!("{name}: {error}"));
            if document.iter().any(is_gateway_config) {
                let block = block.replace("/etc/tollgate/keys.yaml", &keys);
                let block = block.replace("/etc/tollgate/htpasswd", &users);
                assert_checks(&name, temporary(&block).path());
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "README.md shows a whole configuration");
}

#[test]
fn every_configuration_that_is_shipped_is_checked_without_the_files_it_names_and_has_no_warning() {
    for config in gateway_configs() {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["check", "--strict", "--without-files"])
            .arg(&config)
            .env_clear()
            .output()
            .expect("the gateway's binary runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let refused = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {said}{refused}",
            config.display()
        );
    }
}

/// The process without buckets, and the tables beside them, by docs/operating.md.
const WITHOUT_BUCKETS: u64 = 40 << 20;

/// A bucket in this process with a key of some 30 bytes.
const BYTES_PER_BUCKET: u64 = 165;

#[test]
fn the_buckets_of_a_gateway_in_kubernetes_fit_its_memory() {
    for (directory, _, pod) in kubernetes() {
        let container = at(&pod, "spec.containers.0").expect("there is a container");
        let limit = text(container, "resources.limits.memory");
        let mebibytes = limit.strip_suffix("Mi").expect("the limit is in Mi");
        let limit = mebibytes.parse::<u64>().expect("it is a number") << 20;
        let routes = &documents(format!("{directory}/routes.yaml"))[0];
        let buckets = at(routes, "max_local_buckets").and_then(YamlOwned::as_integer);
        let buckets = buckets.map_or(1_000_000, i64::unsigned_abs);
        let needed = WITHOUT_BUCKETS + buckets * BYTES_PER_BUCKET;
        assert!(
            needed <= limit,
            "{directory}: {buckets} buckets need {needed} bytes of {limit}"
        );
    }
}

#[test]
fn the_edge_of_a_cluster_knows_the_proxies_before_it() {
    for config in gateway_configs() {
        let name = config.display().to_string();
        let is_edge = name.contains("kubernetes") && !name.contains("sidecar");
        let routes = &documents(&config)[0];
        let proxies = at(routes, "trusted_proxies").and_then(YamlOwned::as_sequence);
        assert!(
            !is_edge || proxies.is_some_and(|list| !list.is_empty()),
            "{name}"
        );
    }
}

#[test]
fn kubernetes_waits_until_the_gateway_has_drained() {
    let base = (
        "deploy/kubernetes/base/deployment.yaml",
        "deploy/kubernetes/base/routes.yaml",
    );
    let sidecar = (
        "deploy/kubernetes/components/sidecar/patch.yaml",
        "deploy/kubernetes/components/sidecar/routes.yaml",
    );
    for (manifest, config) in [base, sidecar] {
        let pod = &documents(manifest)[0];
        let grace = number(pod, "spec.template.spec.terminationGracePeriodSeconds");
        let container = at(pod, "spec.template.spec.containers.0").expect("there is a container");
        let before = number(container, "lifecycle.preStop.sleep.seconds");
        let needed = Duration::from_secs(before) + drain_timeout(config);
        assert!(
            Duration::from_secs(grace) > needed,
            "{manifest}: {grace} s of grace for {needed:?}"
        );
    }
}

#[test]
fn the_app_beside_a_sidecar_outlasts_its_drain() {
    let sidecar = &documents("deploy/kubernetes/components/sidecar/patch.yaml")[0];
    let app = &documents("deploy/kubernetes/overlays/sidecar/app.yaml")[0];
    let before = "spec.template.spec.containers.0.lifecycle.preStop.sleep.seconds";
    let drained = Duration::from_secs(number(sidecar, before))
        + drain_timeout("deploy/kubernetes/components/sidecar/routes.yaml");
    let app = Duration::from_secs(number(app, before));
    let grace = Duration::from_secs(number(
        sidecar,
        "spec.template.spec.terminationGracePeriodSeconds",
    ));
    assert!(
        drained < app && app < grace,
        "drained after {drained:?}, the app stops at {app:?}, killed at {grace:?}"
    );
}

#[test]
fn compose_waits_until_the_gateway_has_drained() {
    let compose = &documents("deploy/compose.yaml")[0];
    let grace = duration(&text(compose, "x-tollgate.stop_grace_period"));
    for config in [
        "deploy/compose/gateway.yaml",
        "deploy/compose/upstream.yaml",
    ] {
        let drain = drain_timeout(config);
        assert!(grace > drain, "{config}: {grace:?} of grace for {drain:?}");
    }
}

/// The manifests of each way to run in Kubernetes, and what its pods are.
fn kubernetes() -> Vec<(&'static str, Vec<YamlOwned>, YamlOwned)> {
    let of = |directory| {
        let manifests: Vec<_> = files(directory, "yaml")
            .into_iter()
            .flat_map(documents)
            .collect();
        let pod = manifests
            .iter()
            .find(|document| at(document, "spec.template.spec.containers").is_some());
        let pod = at(pod.expect("there is a Deployment"), "spec.template")
            .expect("it has a pod")
            .clone();
        (directory, manifests, pod)
    };
    vec![
        of("deploy/kubernetes/base"),
        of("deploy/kubernetes/components/sidecar"),
    ]
}

#[test]
fn probes_ask_where_probes_are_answered() {
    for (directory, _, pod) in kubernetes() {
        let routes = &documents(format!("{directory}/routes.yaml"))[0];
        assert_eq!(
            text_at(routes, "admin.address"),
            None,
            "{directory}: the rest stays on the pod's loopback"
        );
        let probes = text(routes, "admin.probe_address");
        let (host, port) = probes.rsplit_once(':').expect("an address has a port");
        assert_eq!(
            host, "0.0.0.0",
            "{directory}: the kubelet probes the pod's address"
        );
        let container = at(&pod, "spec.containers.0").expect("there is a container");
        assert_eq!(text(container, "ports.1.name"), "probes", "{directory}");
        assert_eq!(
            number(container, "ports.1.containerPort").to_string(),
            port,
            "{directory}"
        );
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(
                text(container, &format!("{probe}.httpGet.port")),
                "probes",
                "{directory}: {probe}"
            );
        }
    }
}

#[test]
fn probes_are_closed_to_all_of_the_cluster_but_prometheus() {
    for (directory, manifests, pod) in kubernetes() {
        let is = |kind: &'static str| {
            move |manifest: &&YamlOwned| text_at(manifest, "kind") == Some(kind)
        };
        let policy = manifests
            .iter()
            .find(is("NetworkPolicy"))
            .expect("there is a policy");
        let labels = at(&pod, "metadata.labels").expect("the pod has labels");
        let selected = at(policy, "spec.podSelector.matchLabels").and_then(YamlOwned::as_mapping);
        let selected = selected.expect("the policy selects by labels");
        let matches = |(name, value): (&YamlOwned, &YamlOwned)| {
            labels
                .as_mapping_get(name.as_str().expect("a name"))
                .is_some_and(|label| label == value)
        };
        assert!(
            !selected.is_empty() && selected.iter().all(matches),
            "{directory}: the policy is for other pods"
        );
        let rules = at(policy, "spec.ingress")
            .and_then(YamlOwned::as_sequence)
            .expect("it lets something in");
        let mut prometheus = 0;
        for rule in rules {
            let ports = at(rule, "ports")
                .and_then(YamlOwned::as_sequence)
                .expect("a rule without ports opens them all");
            let names: Vec<_> = ports.iter().map(|port| text(port, "port")).collect();
            if names.iter().any(|name| name == "probes") {
                assert!(
                    at(rule, "from.0.namespaceSelector.matchLabels").is_some(),
                    "{directory}: from anywhere"
                );
                assert!(
                    at(rule, "from.0.podSelector.matchLabels").is_some(),
                    "{directory}: from any pod there"
                );
                assert!(
                    at(rule, "from.1").is_none(),
                    "{directory}: from others, too"
                );
                prometheus += 1;
            }
        }
        assert_eq!(prometheus, 1, "{directory}: Prometheus must get in");
    }
    for service in files("deploy/kubernetes", "yaml")
        .into_iter()
        .flat_map(documents)
    {
        if text_at(&service, "kind") == Some("Service") {
            let ports = at(&service, "spec.ports")
                .and_then(YamlOwned::as_sequence)
                .expect("it has ports");
            assert!(
                ports
                    .iter()
                    .all(|port| text(port, "targetPort") != "probes"),
                "a Service has the port of probes"
            );
        }
    }
}

#[test]
fn alerts_select_the_job_that_the_gateways_are_scraped_as() {
    let scraped_by = |config: &str| {
        let jobs = &documents(config)[0];
        let jobs = at(jobs, "scrape_configs")
            .and_then(YamlOwned::as_sequence)
            .expect("it scrapes");
        jobs.iter()
            .map(|job| text(job, "job_name"))
            .collect::<Vec<_>>()
    };
    let monitor = &documents("deploy/kubernetes/components/pod-monitor/pod-monitor.yaml")[0];
    let relabel =
        at(monitor, "spec.podMetricsEndpoints.0.relabelings.0").expect("it names its job");
    assert_eq!(text(relabel, "targetLabel"), "job");
    let mut jobs = scraped_by("deploy/compose/prometheus.yaml");
    jobs.extend(scraped_by("deploy/prometheus/kubernetes.yaml"));
    jobs.push(text(relabel, "replacement"));
    let alerts = read("deploy/prometheus/alerts.yaml");
    let selected: Vec<_> = alerts
        .split("job=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(
        !selected.is_empty(),
        "an alert tells of nodes that are gone"
    );
    for job in &selected {
        assert!(
            jobs.iter().all(|scraped| scraped == job),
            "alerts select the job {job}, scraped are {jobs:?}"
        );
    }
}

#[test]
fn scrapes_in_kubernetes_find_the_pods_that_are_shipped() {
    let scrape = &documents("deploy/prometheus/kubernetes.yaml")[0];
    let kept = text(scrape, "scrape_configs.0.relabel_configs.0.regex");
    let monitor = &documents("deploy/kubernetes/components/pod-monitor/pod-monitor.yaml")[0];
    let label = text(monitor, "spec.selector.matchExpressions.0.key");
    for (directory, _, pod) in kubernetes() {
        let container = at(&pod, "spec.containers.0").expect("there is a container");
        let port = text(container, "ports.1.name");
        assert_eq!(
            format!("{};{port}", text(container, "name")),
            kept,
            "{directory}"
        );
        assert_eq!(
            text(monitor, "spec.podMetricsEndpoints.0.port"),
            port,
            "{directory}"
        );
        let labels = at(&pod, "metadata.labels").expect("the pod has labels");
        assert!(
            labels.as_mapping_get(&label).is_some(),
            "{directory} lacks {label}"
        );
        let annotations = at(&pod, "metadata.annotations");
        assert!(
            annotations.is_none(),
            "{directory}: scraped by annotations too, a node would count twice"
        );
    }
}

#[test]
fn health_checks_need_nothing_but_the_gateway() {
    assert!(
        docker_argument("HEALTHCHECK").ends_with("CMD [\"/usr/local/bin/tollgate\", \"health\"]")
    );
    let config = docker_argument("ENV");
    let config = config
        .strip_prefix("TOLLGATE_CONFIG=")
        .expect("the image says where its configuration is");
    assert!(
        docker_argument("CMD").contains(&format!("\"{config}\"")),
        "health reads the file that the gateway runs with"
    );
    let compose = &documents("deploy/compose.yaml")[0];
    let test = at(compose, "x-tollgate.healthcheck.test")
        .and_then(YamlOwned::as_sequence)
        .expect("there is a check");
    let test: Vec<_> = test.iter().filter_map(YamlOwned::as_str).collect();
    assert_eq!(test, ["CMD", "tollgate", "health"]);
    for service in ["gateway-1", "gateway-2"] {
        let volume = text(compose, &format!("services.{service}.volumes.0"));
        assert!(
            volume.split(':').nth(1) == Some(config),
            "{service} mounts its configuration elsewhere: {volume}"
        );
    }
}

#[test]
fn the_readme_tries_what_make_run_suggests() {
    let make = read("Makefile");
    let readme = read("README.md");
    let suggested = make
        .split_once("define TRY\n")
        .and_then(|(_, rest)| rest.split_once("\nendef"));
    let (suggested, _) = suggested.expect("the Makefile defines TRY");
    assert_eq!(suggested.lines().count(), 3, "{suggested}");
    for line in suggested.lines() {
        assert!(readme.contains(line), "README.md lacks: {line}");
    }
}

#[test]
fn kustomize_builds_the_manifests_from_files_that_are_there() {
    let all = files("deploy/kubernetes", "yaml")
        .into_iter()
        .filter(|path| path.ends_with("kustomization.yaml"));
    let all: Vec<_> = all.collect();
    assert!(all.len() >= 3, "{all:?}");
    for path in all {
        let directory = path.parent().expect("a file has a directory");
        let document = &documents(&path)[0];
        let lists = ["resources", "components", "configMapGenerator.0.files"];
        let lists = lists
            .iter()
            .filter_map(|list| at(document, list).and_then(YamlOwned::as_sequence));
        let named: Vec<_> = lists.flatten().filter_map(YamlOwned::as_str).collect();
        assert!(!named.is_empty(), "{} names nothing", path.display());
        for name in named {
            assert!(
                directory.join(name).exists(),
                "{} names {name}, which is not there",
                path.display()
            );
        }
    }
}

#[test]
fn dockerignore_lets_through_all_that_the_build_reads() {
    let ignored = read(".dockerignore");
    let manifest = read("Cargo.toml");
    let (_, members) = manifest
        .split_once("members = [")
        .expect("the workspace has members");
    let (members, _) = members.split_once(']').expect("their list ends");
    let folders: BTreeSet<&str> = members
        .split('"')
        .skip(1)
        .step_by(2)
        .filter_map(|member| member.split('/').next())
        .collect();
    assert!(!folders.is_empty(), "{members}");
    for needed in ["Cargo.toml", "Cargo.lock", "src", "lua", "routes.yaml"]
        .into_iter()
        .chain(folders)
    {
        assert!(
            ignored.lines().any(|line| line == format!("!{needed}")),
            ".dockerignore keeps {needed} out"
        );
    }
}

#[test]
fn the_image_matches_the_manifests() {
    const KNOWN: [&str; 11] = [
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "EXPOSE",
        "ENV",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    ];
    let unknown: Vec<_> = docker_instructions()
        .into_iter()
        .filter(|(name, _)| !KNOWN.contains(&name.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");

    let pod = &documents("deploy/kubernetes/base/deployment.yaml")[0];
    let user = number(pod, "spec.template.spec.securityContext.runAsUser");
    assert!(
        docker_argument("USER").starts_with(&format!("{user}:")),
        "the image's user is the pod's"
    );

    let container = at(pod, "spec.template.spec.containers.0").expect("there is a container");
    let ports =
        [0, 1].map(|port| number(container, &format!("ports.{port}.containerPort")).to_string());
    assert_eq!(docker_argument("EXPOSE"), ports.join(" "));

    let command = docker_argument("CMD");
    let arguments = at(container, "args")
        .and_then(YamlOwned::as_sequence)
        .expect("there are arguments");
    let arguments: Vec<_> = arguments.iter().filter_map(YamlOwned::as_str).collect();
    assert_eq!(
        command,
        format!("{arguments:?}"),
        "the image's command is the pod's"
    );
    let directory = text(container, "volumeMounts.0.mountPath");
    assert_eq!(
        arguments.last().copied(),
        Some(format!("{directory}/routes.yaml").as_str())
    );
}

#[test]
fn scripts_are_valid_shell() {
    for script in ["scripts/require", ".ci/run", "bench/install"] {
        let status = Command::new("bash")
            .args(["-n", script])
            .stdin(Stdio::null())
            .status();
        assert!(status.expect("bash is there").success(), "{script}");
    }
}
