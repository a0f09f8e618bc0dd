//! The shipped example, schema and documentation of the file agree with the code that reads it.

use tollgate_config::{AdminSpec, load, schema};
use tollgate_spec::route::Action;

use super::{check, good, root};

#[test]
fn the_file_in_the_repository_works_as_it_is() {
    let loaded = load(&root().join("routes.yaml")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(loaded.warnings, []);
    let config = loaded.config;
    assert_eq!(config.store, None);
    assert_eq!(
        config.listeners[0].server.address,
        "0.0.0.0:8080".parse().unwrap()
    );
    assert_eq!(
        config.admin,
        Some(AdminSpec::at("127.0.0.1:9901".parse().unwrap()))
    );
    let last = config.routes.last().unwrap();
    assert_eq!(
        (&last.action, last.limits[0].limit.algorithm.burst().get()),
        (&Action::Echo, 20)
    );
}

#[test]
fn the_examples_that_are_commented_out_in_it_work_too() {
    let text = std::fs::read_to_string(root().join("routes.yaml")).unwrap();
    // Prose starts with a capital or has no colon; what is left after "# " of the rest is YAML.
    let uncommented: Vec<_> = text.lines().map(uncomment).collect();
    let config = good(&uncommented.join("\n"));
    assert!(config.store.is_some());
    assert_eq!(
        (
            config.limits.len(),
            config.upstreams.len(),
            config.routes.len()
        ),
        (2, 1, 3)
    );
}

fn uncomment(line: &str) -> String {
    let Some((indent, yaml)) = line.split_once("# ") else {
        return line.to_owned();
    };
    let is_yaml = yaml
        .trim_start()
        .starts_with(|first: char| first.is_lowercase() || first == '-');
    if indent.trim().is_empty()
        && is_yaml
        && yaml.contains([':'])
        && !yaml.contains(" run ")
        && !yaml.contains("curl")
    {
        format!("{indent}{yaml}")
    } else {
        line.to_owned()
    }
}

#[test]
fn the_schema_in_the_repository_is_up_to_date() {
    let path = root().join("docs/routes.schema.json");
    let current = format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap());
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == current,
        "{} is not what `tollgate schema` prints:\n{current}",
        path.display()
    );
}

#[test]
fn the_schema_knows_every_key_with_its_doc() {
    let schema = schema();
    let definitions = schema["definitions"].as_object().unwrap();
    for (name, record) in definitions {
        for (key, property) in record["properties"].as_object().unwrap() {
            let doc = property["description"].as_str().unwrap_or_default();
            assert!(
                doc.len() > 10 && doc.ends_with('.'),
                "{name}.{key}: {doc:?}"
            );
        }
    }
    assert_eq!(definitions["Limit"]["required"], serde_json::json!(["key"]));
    assert_eq!(
        definitions["Store"]["properties"]["timeout"]["default"],
        "20ms"
    );
}

/// The pages of `docs/configuration/`: the name of each, and its text.
fn pages() -> Vec<(String, String)> {
    let folder = root().join("docs/configuration");
    let mut pages = Vec::new();
    for folder in [folder.join("limits"), folder] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let text = std::fs::read_to_string(&path).unwrap();
                pages.push((path.display().to_string(), text));
            }
        }
    }
    pages
}

#[test]
fn every_section_of_the_file_has_a_page_that_shows_an_example_before_its_keys() {
    for (name, text) in pages() {
        let example = text.find("```yaml").expect(&name);
        let table = text.find("|---|").unwrap_or(text.len());
        assert!(example < table, "{name}: a table stands before any example");
    }
    let sections = schema();
    let sections = sections["definitions"]["Config"]["properties"]
        .as_object()
        .unwrap();
    let index = std::fs::read_to_string(root().join("docs/configuration/README.md")).unwrap();
    for section in [
        "listeners",
        "routes",
        "limits",
        "upstreams",
        "authenticators",
        "store",
        "policies",
        "admin",
    ] {
        assert!(sections.contains_key(section));
        assert!(
            index.contains(&format!("[`{section}`]({section}.md)")),
            "{section}"
        );
    }
}

#[test]
fn the_pages_about_the_file_name_every_key_and_default() {
    let text: String = pages().into_iter().map(|(_, text)| text).collect();
    let schema = schema();
    for (name, record) in schema["definitions"].as_object().unwrap() {
        for (key, property) in record["properties"].as_object().unwrap() {
            let default = &property["default"];
            let shown = default
                .as_str()
                .map_or_else(|| default.to_string(), str::to_owned);
            let mentions = |line: &&str| {
                line.contains(&format!("`{key}`")) || line.contains(&format!("{key}: "))
            };
            let lines: Vec<_> = text.lines().filter(mentions).collect();
            assert!(!lines.is_empty(), "{name}.{key} is not explained");
            assert!(
                default.is_null() || lines.iter().any(|line| line.contains(&shown)),
                "{name}.{key}: {shown}"
            );
        }
    }
}

#[test]
fn the_examples_on_the_pages_about_the_file_work() {
    let pages = pages();
    let files: Vec<_> = pages
        .iter()
        .flat_map(|(_, text)| text.split("```yaml\n").skip(1))
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|block| block.contains("listeners:") && block.contains("routes:"))
        .collect();
    assert_eq!(files.len(), 3);
    for file in files {
        assert_eq!(
            check(file)
                .unwrap_or_else(|mistakes| panic!("{mistakes}"))
                .warnings,
            []
        );
    }
}
