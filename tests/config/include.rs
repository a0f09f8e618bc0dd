//! Files that include others, values that stand in several places, and defaults.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_config::{Config, load, parse, print, read};
use tollgate_limiter::limit::definition::OnOutage;

use super::{LISTENERS, ROUTES, check, good};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn names(config: &Config) -> Vec<&str> {
    config.routes.iter().map(|route| &*route.name).collect()
}

/// The message about `main.yaml` in this folder, with short names of files.
fn told(folder: &Path) -> String {
    let mistakes = load(&folder.join("main.yaml")).unwrap_err().to_string();
    mistakes.replace(&format!("{}/", folder.display()), "")
}

const LIMIT: &str = "limits: {a: {key: client_ip, rate: 1/s}}\n";

#[test]
fn files_and_folders_are_joined_in_order() {
    let main = format!(
        "include: [limits.yaml, 'routes.${{NOBODY_SET_THIS:-d}}']\n{LISTENERS}routes: [{{name: first, echo: true, limits: [a, b]}}]\n"
    );
    let route =
        |name: &str| format!("routes: [{{name: {name}, match: {{path: /{name}}}, echo: true}}]\n");
    let folder = folder(&[
        ("main.yaml", &main),
        (
            "limits.yaml",
            &format!("include: more/limits.yaml\n{LIMIT}"),
        ),
        (
            "more/limits.yaml",
            "include: deeper.yaml\nlimits: {b: {key: client_ip, rate: 2/s}}\n",
        ),
        ("more/deeper.yaml", "workers: 3\n"),
        ("routes.d/20.yaml", &route("twenty")),
        ("routes.d/10.yml", &route("ten")),
        ("routes.d/30.yaml", "# nothing yet\n"),
        ("routes.d/notes.txt", "no: [yaml"),
        ("routes.d/.hidden.yaml", "no: [yaml"),
        ("routes.d/folder.yaml/x.yaml", "no: [yaml"),
    ]);
    let loaded =
        load(&folder.path().join("main.yaml")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(loaded.warnings, []);
    assert_eq!(names(&loaded.config), ["first", "ten", "twenty"]);
    assert_eq!(
        (loaded.config.limits.len(), loaded.config.workers.get()),
        (2, 3)
    );
}

#[test]
fn each_mistake_names_its_file_and_all_are_told_at_once() {
    let folder = folder(&[
        (
            "main.yaml",
            &format!("include: [limits.yaml, routes.d, broken.yaml]\nworkers: many\n{LISTENERS}"),
        ),
        (
            "limits.yaml",
            "limits: {a: {key: client_ip, rate: often}}\nadmin: off\n",
        ),
        (
            "routes.d/a.yaml",
            "routes:\n  - {name: a, echo: true, limit: [a]}\nadmin: off\n",
        ),
        ("routes.d/b.yaml", "- name: b\n"),
        ("broken.yaml", "routes: [\n"),
    ]);
    let told = told(folder.path());
    let starts: Vec<_> = told
        .lines()
        .filter(|line| !line.starts_with("  hint"))
        .collect();
    assert_eq!(
        starts,
        [
            "main.yaml:2:10: workers: \"many\" is not a whole number",
            "limits.yaml:1:36: limits.a.rate: \"often\" is not a rate",
            "routes.d/a.yaml:2:27: routes[0].limit: unknown key \"limit\"",
            "routes.d/a.yaml:3:1: admin: \"admin\" is here twice, first on line 2 of limits.yaml",
            "routes.d/b.yaml:1:1: expected a mapping, found a list",
            "broken.yaml:2:1: not YAML: while parsing a node, did not find expected node content",
            "6 mistakes in 5 files",
        ]
    );
}

#[test]
fn names_that_stand_in_two_files_are_told_with_both_places() {
    let folder = folder(&[
        (
            "main.yaml",
            &format!(
                "include: other.yaml\n{LISTENERS}{LIMIT}routes: [{{name: all, echo: true, limits: [a]}}]\n"
            ),
        ),
        ("other.yaml", &format!("{LIMIT}\n")),
    ]);
    let expected = "other.yaml:1:10: limits.a: \"a\" is here twice, first on line 3 of main.yaml\n  \
                    hint: keep one of the two\n1 mistake in other.yaml";
    assert_eq!(told(folder.path()), expected);
    fs::write(
        folder.path().join("other.yaml"),
        "routes: [{name: all, echo: true}]\n",
    )
    .unwrap();
    let expected = "other.yaml:1:17: routes[0].name: another route is called \"all\", on line 4 of main.yaml\n  \
                    hint: give each route a name of its own\n\
                    other.yaml:1:10: routes[0]: routes \"all\" (line 4 of main.yaml) and \"all\" take the same requests, and neither goes first\n  \
                    hint: change the host, path, methods or headers of one of them\n2 mistakes in other.yaml";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&told(folder.path())), sorted(expected));
}

#[test]
fn warnings_name_their_file() {
    let folder = folder(&[
        (
            "main.yaml",
            &format!("include: limits.yaml\n{LISTENERS}{ROUTES}"),
        ),
        ("limits.yaml", LIMIT),
    ]);
    let loaded = load(&folder.path().join("main.yaml")).unwrap();
    let file = folder.path().join("limits.yaml").display().to_string();
    let warnings: Vec<_> = loaded
        .warnings
        .iter()
        .map(|warning| (&*warning.file, warning.at))
        .collect();
    assert_eq!(warnings, [(file.as_str(), Some((1, 10)))]);
}

#[test]
fn circles_missing_files_and_repeated_files_are_mistakes() {
    let folder = folder(&[
        (
            "main.yaml",
            &format!(
                "include: [a.yaml, gone.yaml, '*.yaml', d.d, d.d/d.yaml, main.yaml]\n{LISTENERS}{ROUTES}"
            ),
        ),
        ("a.yaml", "include: b.yaml\n"),
        ("b.yaml", "include: [./a.yaml]\n"),
        ("d.d/d.yaml", "admin: off\n"),
    ]);
    assert!(
        std::process::Command::new("mkfifo")
            .arg(folder.path().join("d.d/pipe.yaml"))
            .status()
            .unwrap()
            .success()
    );
    let base = "paths begin at the folder of the file that names them";
    let expected = [
        "main.yaml:1:19: include[1]: cannot read \"gone.yaml\": No such file or directory (os error 2)",
        &format!("  hint: {base}"),
        "main.yaml:1:30: include[2]: cannot read \"*.yaml\": No such file or directory (os error 2)",
        "  hint: name the folder: every .yaml and .yml file in it is read",
        "main.yaml:1:40: include[3]: \"d.d/pipe.yaml\" is neither a file nor a folder",
        "main.yaml:1:45: include[4]: \"d.d/d.yaml\" is included twice, first on line 1",
        "  hint: keep one of the two",
        "main.yaml:1:57: include[5]: a file includes itself: main.yaml > main.yaml",
        "  hint: remove one of these includes",
        "b.yaml:1:11: include[0]: a file includes itself: a.yaml > b.yaml > ./a.yaml",
        "  hint: remove one of these includes",
        "6 mistakes in 2 files",
    ];
    assert_eq!(told(folder.path()).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_chain_of_files_and_their_number_are_bounded() {
    let chain: Vec<_> = (0..20)
        .map(|at| (format!("{at}.yaml"), format!("include: {}.yaml\n", at + 1)))
        .collect();
    let mut files: Vec<_> = chain
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let main = format!("include: 0.yaml\n{LISTENERS}{ROUTES}");
    files.push(("main.yaml", &main));
    let deep = folder(&files);
    assert!(
        told(deep.path())
            .starts_with("14.yaml:1:10: include: over 16 files include one another in a row")
    );
    let many: Vec<_> = (0..1000).map(|at| format!("d/{at:04}.yaml")).collect();
    let mut files: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    let main = format!("include: d\n{LISTENERS}{ROUTES}");
    files.push(("main.yaml", &main));
    let many = folder(&files);
    assert!(
        told(many.path()).starts_with(
            "main.yaml:1:10: include: the configuration has over 1000 files\n1 mistake"
        )
    );
    fs::remove_file(many.path().join("d/0999.yaml")).unwrap();
    load(&many.path().join("main.yaml")).unwrap();
}

#[test]
fn a_reading_names_every_file_and_folder_whatever_came_of_it() {
    let folder = folder(&[
        (
            "main.yaml",
            &format!("include: [d, gone.yaml]\n{LISTENERS}{ROUTES}"),
        ),
        ("d/a.yaml", "no: [yaml"),
        ("d/b.yaml", "include: ../c.yaml\n"),
        ("c.yaml", ""),
    ]);
    let reading = read(&folder.path().join("main.yaml"));
    assert!(reading.result.is_err());
    let files: Vec<PathBuf> = reading.files.into_iter().map(|file| file.path).collect();
    let names = [
        "main.yaml",
        "d",
        "d/a.yaml",
        "d/b.yaml",
        "d/../c.yaml",
        "gone.yaml",
    ];
    assert_eq!(files, names.map(|name| folder.path().join(name)));
}

#[test]
fn an_alias_stands_for_its_value_and_merged_keys_give_way_to_those_beside_them() {
    let text = "listeners: [{address: \"127.0.0.1:0\"}]
limits:
  a: &base {key: client_ip, rate: &rate 7/s, burst: 9, on_outage: deny}
  b: *base
  c: {<<: *base, burst: 3, key: route}
  d: {rate: *rate, key: route}
  e: {<<: [{key: route, rate: 5/s}, *base]}
routes: [{name: all, echo: true, limits: &all [a, b, c, d, e]}, {name: b, match: {path: /b}, echo: true, limits: *all}]
";
    let config = good(text);
    let shape = |at: usize| {
        let limit = &config.limits[at];
        (
            limit.algorithm.burst().get(),
            limit.on_outage == OnOutage::Deny,
            format!("{:?}", limit.key).contains("Route"),
        )
    };
    assert_eq!(config.limits[0].algorithm, config.limits[1].algorithm);
    assert_eq!(
        [0, 1, 2, 3, 4].map(shape),
        [
            (9, true, false),
            (9, true, false),
            (3, true, true),
            (7, false, true),
            (9, true, true),
        ]
    );
    assert_eq!(config.routes[1].limits.len(), 5);
}

const DEFAULTS: &str = "listeners: [{address: \"127.0.0.1:0\"}]
defaults:
  routes: {timeout: 3s, max_body: 10KiB, limits: [a]}
  limits: {on_outage: deny}
  upstreams: {connect_timeout: 700ms}
limits:
  a: {key: client_ip, rate: 1/s}
  b: {key: client_ip, rate: 1/s, on_outage: allow}
upstreams:
  u: {endpoints: [\"http://a\"]}
  v: {endpoints: [\"http://${BACKEND:-b}\"], connect_timeout: 1s}
routes:
  - {name: plain, match: {path: /1}, upstream: u}
  - {name: own, match: {path: /2}, upstream: v, timeout: 9s, limits: [b]}
  - {name: none, match: {path: /3}, echo: true, timeout: , limits: ~}
";

#[test]
fn a_default_holds_for_those_that_do_not_have_the_key() {
    let config = good(DEFAULTS);
    let route = |at: usize| {
        let route = &config.routes[at];
        (
            route.answer_time.head,
            route.max_body,
            route
                .limits
                .iter()
                .map(|used| &*used.limit.name)
                .collect::<Vec<_>>(),
        )
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(route(0), (seconds(3), Some(10_240), vec!["a"]));
    assert_eq!(route(1), (seconds(9), Some(10_240), vec!["b"]));
    assert_eq!(
        route(2),
        (None, Some(10_240), vec![]),
        "a key without a value takes the default back"
    );
    assert_eq!(
        [0, 1].map(|at| config.limits[at].on_outage),
        [OnOutage::Deny, OnOutage::Allow]
    );
    assert_eq!(
        config.upstreams[0].connect_timeout,
        Duration::from_millis(700)
    );
    assert_eq!(config.upstreams[1].connect_timeout, Duration::from_secs(1));
}

#[test]
fn a_default_that_is_wrong_for_some_is_told_once_and_where_it_stands() {
    let text = DEFAULTS
        .replace("limits: [a]", "limits: [x]")
        .replace("limits: [b]", "max_body: 1KiB");
    let told = check(&text).unwrap_err().to_string();
    assert!(
        told.starts_with("routes.yaml:3:51: defaults.routes.limits[0]: no limit is called \"x\"\n"),
        "{told}"
    );
    assert!(told.ends_with("\n1 mistake in routes.yaml"), "{told}");
}

#[test]
fn defaults_that_would_fill_the_memory_are_refused() {
    let list = "a,".repeat(100_000);
    let routes: String = (0..11)
        .map(|at| format!("  - {{name: r{at}, echo: true}}\n"))
        .collect();
    let text = format!("{LISTENERS}defaults: {{routes: {{limits: [{list}]}}}}\nroutes:\n{routes}");
    let told = check(&text).unwrap_err().to_string();
    assert!(
        told.contains("defaults.routes: these defaults of 11 routes are over 256MiB\n"),
        "{}",
        &told[..200]
    );
    let routes: String = (0..600)
        .map(|at| format!("  - {{name: r{at}, echo: true}}\n"))
        .collect();
    let text = format!(
        "{LISTENERS}defaults: {{routes: {{timeout: {}}}}}\nroutes:\n{routes}",
        "1".repeat(500_000)
    );
    let told = check(&text).unwrap_err().to_string();
    assert!(
        told.contains("defaults.routes: these defaults of 600 routes are over 256MiB\n"),
        "one long text"
    );
}

#[test]
fn anchors_and_aliases_are_bounded_by_what_they_take() {
    let long = "a".repeat(500_000);
    let many = |of: &str, times: usize| vec![of; times].join(",");
    // Each anchor keeps a value, and with it those of all anchors within.
    let nested: String = (0..20).map(|at| format!("&n{at} [")).collect();
    let refused = |text: &str, at: &str| {
        let told = check(&format!("{LISTENERS}{text}\n{ROUTES}"))
            .map_or_else(|wrong| wrong.to_string(), |_| String::new());
        told.contains(&format!(
            ": {at}: anchors and aliases up to here stand for over 16MiB of values\n"
        ))
    };
    let of_texts = refused(
        &format!("x: &a \"{long}\"\ny: [{}]", many("*a", 100)),
        "y[32]",
    );
    let of_keys = refused(
        &format!("x: &a {{{long}: 1}}\ny: [{}]", many("*a", 100)),
        "y[10]",
    );
    let of_anchors = refused(
        &format!("x: {nested}{}{}", many("1", 10_000), "]".repeat(20)),
        &format!("x{}", "[0]".repeat(13)),
    );
    assert_eq!((of_texts, of_keys, of_anchors), (true, true, true));
}

#[test]
fn a_printed_file_means_what_its_parts_do() {
    let folder = folder(&[
        ("main.yaml", &format!("include: more.yaml\n{DEFAULTS}")),
        (
            "more.yaml",
            "routes:\n  - name: more\n    match: &m {path: \"/{id}\", headers: {x-a: \"yes: no\", x-b: ''}}\n    respond: {body: \"two\\nlines # é\\n\"}\n  - {name: other, match: {<<: *m, path: /x}, respond: {status: 404}}\n",
        ),
    ]);
    let main = folder.path().join("main.yaml");
    let printed = print(
        &main.display().to_string(),
        &fs::read_to_string(&main).unwrap(),
    )
    .unwrap();
    assert!(
        !printed.contains("include")
            && !printed.contains("defaults")
            && printed.contains("http://${BACKEND:-b}"),
        "{printed}"
    );
    let config = parse("printed.yaml", &printed, &|_| None)
        .unwrap_or_else(|mistakes| panic!("{mistakes}\n{printed}"))
        .config;
    assert_eq!(config, load(&main).unwrap().config);
}

#[test]
fn a_printed_file_keeps_variables_of_any_type_in_defaults() {
    let text = DEFAULTS.replace("timeout: 3s", "timeout: \"${TIMEOUT:-5s}\"");
    let printed = print("main.yaml", &text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(
        printed.matches("timeout: \"${TIMEOUT:-5s}\"").count(),
        1,
        "{printed}"
    );
    assert_eq!(good(&printed), good(&text));
}

#[test]
fn a_printed_file_leads_to_the_pages_of_its_parts() {
    let page = |file: &str| format!("[{{status: [5xx], type: text/html, file: \"{file}\"}}]");
    let folder = folder(&[
        (
            "main.yaml",
            &format!(
                "include: [parts/more.yaml]\n{LISTENERS}error_pages: {}\n",
                page("own.html")
            ),
        ),
        (
            "parts/more.yaml",
            &format!(
                "defaults: {{routes: {{error_pages: {}}}}}\nroutes:\n  - {{name: a, echo: true}}\n  - {{name: b, match: {{path: /b}}, echo: true, error_pages: {}, maintenance: {{pages: [{{type: text/html, file: closed.html}}]}}}}\n",
                page("${NAME_OF_PAGE:-page}.html"),
                page("ABSOLUTE")
            ),
        ),
        ("own.html", "own"),
        ("parts/page.html", "default"),
        ("parts/closed.html", "closed"),
        ("absolute.html", "absolute"),
    ]);
    let more = folder.path().join("parts/more.yaml");
    let absolute = format!("${{UNSET_ROOT:-{}}}/absolute.html", folder.path().display());
    fs::write(
        &more,
        fs::read_to_string(&more)
            .unwrap()
            .replace("ABSOLUTE", &absolute),
    )
    .unwrap();
    let main = folder.path().join("main.yaml");
    let printed = print(
        &main.display().to_string(),
        &fs::read_to_string(&main).unwrap(),
    )
    .unwrap();
    assert!(
        printed.contains("file: \"parts/${NAME_OF_PAGE:-page}.html\"")
            && printed.contains(&absolute),
        "{printed}"
    );
    assert!(printed.contains("parts/closed.html"), "{printed}");
    let beside = folder.path().join("printed.yaml");
    fs::write(&beside, &printed).unwrap();
    let config = load(&beside)
        .unwrap_or_else(|mistakes| panic!("{mistakes}\n{printed}"))
        .config;
    assert_eq!(config, load(&main).unwrap().config);
}
