//! The pages of policies as OpenAPI 3.1.

use utoipa::OpenApi;

use super::{candidates, document, objects, revisions};

#[derive(OpenApi)]
#[openapi(
    tags((name = "policies", description = "What people edit beside the file: see docs/policies.md")),
    paths(
        document::export, document::import, objects::applications, objects::list,
        objects::show, objects::write, objects::remove, objects::history,
        objects::show_application, objects::write_application, objects::remove_application, revisions::list, revisions::commit,
        revisions::show, revisions::diff, revisions::undo, revisions::revert, candidates::promote, candidates::abort
    )
)]
struct PolicyApi;

/// The description of the pages.
pub fn description() -> utoipa::openapi::OpenApi {
    PolicyApi::openapi()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

    /// Routes that programs do not need described.
    const LEFT_OUT: [(&str, &str); 2] = [("get", "/"), ("get", "/openapi.json")];

    /// The description of the whole port.
    fn text() -> String {
        tollgate_admin::openapi::text(Some(description()))
    }

    fn document() -> Value {
        serde_json::from_str(&text()).unwrap()
    }

    /// Method and path of each route that the router's source names: `.route("/a",
    /// get(f).delete(g))`.
    fn routes(source: &str) -> BTreeSet<(String, String)> {
        let calls = source.split(".route(").skip(1);
        let found = calls.flat_map(|call| {
            let (path, handlers) = call
                .trim_start()
                .trim_start_matches('"')
                .split_once('"')
                .unwrap();
            let handlers = handlers.split("\n        .").next().unwrap();
            let named = METHODS.iter().filter(|method| {
                handlers
                    .match_indices(&format!("{method}("))
                    .any(|(at, _)| handlers[..at].ends_with([' ', '.']))
            });
            named
                .map(|method| ((*method).to_owned(), path.to_owned()))
                .collect::<Vec<_>>()
        });
        found.collect()
    }

    fn operations(document: &Value) -> BTreeSet<(String, String)> {
        let items = document["paths"].as_object().unwrap().iter();
        let methods = items.flat_map(|(path, item)| {
            item.as_object()
                .unwrap()
                .keys()
                .map(move |method| (method, path))
        });
        methods
            .map(|(method, path)| (method.clone(), path.clone()))
            .collect()
    }

    #[test]
    fn every_route_of_the_router_is_described_and_no_other() {
        let mut routes = routes(include_str!("router.rs"));
        routes.extend(self::routes(include_str!("../../../admin/src/router.rs")));
        for (method, path) in LEFT_OUT {
            assert!(
                routes.remove(&(method.to_owned(), path.to_owned())),
                "{method} {path} is no route any more"
            );
        }
        assert!(routes.len() >= 10, "{routes:?}");
        assert_eq!(operations(&document()), routes);
    }

    #[test]
    fn the_document_is_of_version_3_1_and_each_reference_in_it_leads_somewhere() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let token = &document["components"]["securitySchemes"]["token"];
        assert_eq!(
            (&token["type"], &token["scheme"]),
            (&"http".into(), &"bearer".into())
        );
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own_and_describes_its_refusals() {
        let document = document();
        let mut names = BTreeSet::new();
        for (method, path) in operations(&document) {
            let operation = &document["paths"][&path][&method];
            assert!(
                names.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{method} {path}"
            );
            assert!(
                operation["summary"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{method} {path}"
            );
            let is_open = operation["tags"][0] == "probes";
            for status in ["401", "403", "default"] {
                let refusal =
                    &operation["responses"][status]["content"]["application/problem+json"];
                assert_eq!(refusal.is_object(), !is_open, "{method} {path}: {status}");
            }
            assert_eq!(
                operation["security"][0]["token"].is_array(),
                !is_open,
                "{method} {path}"
            );
        }
    }

    /// `UPDATE_DOCS=1 cargo test -p tollgate-team --lib openapi` writes it.
    #[test]
    fn the_document_in_docs_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, text()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == text(),
            "docs/openapi.json is not what is served: run with UPDATE_DOCS=1"
        );
    }
}
