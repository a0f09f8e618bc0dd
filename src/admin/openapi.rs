//! The admin port as OpenAPI 3.1, for programs: `GET /openapi.json`, and docs/openapi.json.
//!
//! It is made from the handlers and from the types that they answer with. A page that is no part of
//! it fails a test here.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use super::pages::policies::{candidates, document, objects, revisions};
use super::pages::{buckets, explain, health, limits, nodes, upstreams};
use super::problem_details::ProblemDetails;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate, admin port",
        description = "For operators and their programs. Every refusal is `application/problem+json` (RFC 9457) with a hint.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "http://127.0.0.1:9901", description = "The default address")),
    tags(
        (name = "probes", description = "For probes and scrapers"),
        (name = "limits", description = "What is limited, and what becomes of a request"),
        (name = "buckets", description = "A client's bucket, looked at and changed"),
        (name = "upstreams", description = "Endpoints and their health"),
        (name = "nodes", description = "The nodes of the fleet"),
        (name = "policies", description = "What people edit beside the file: see docs/policies.md")
    ),
    paths(
        health::livez, health::readyz, health::metrics, limits::list, buckets::peek, buckets::reset, buckets::grant,
        upstreams::list, nodes::list, explain::show, document::export, document::import, objects::applications, objects::list,
        objects::show, objects::write, objects::remove, objects::history,
        objects::show_application, objects::write_application, objects::remove_application, revisions::list, revisions::commit,
        revisions::show, revisions::diff, revisions::undo, revisions::revert, candidates::promote, candidates::abort
    ),
    components(schemas(ProblemDetails)),
    modifiers(&Refusals)
)]
struct AdminApi;

/// Gives each operation that may refuse the shape of its refusals, and says what it wants of its
/// caller.
struct Refusals;

/// How a program says who it is.
const TOKEN: &str = "token";

const REFUSALS: [(&str, &str); 3] = [
    (
        "401",
        "The gateway has accounts, and the request has no token of one, or one that does not hold any more",
    ),
    (
        "403",
        "The account has not the role that this needs; `detail` names it",
    ),
    ("default", "Refused: says why, and what to do"),
];

static TEXT: LazyLock<String> = LazyLock::new(|| {
    AdminApi::openapi()
        .to_pretty_json()
        .map(|text| text + "\n")
        .unwrap_or_default()
});

/// `GET /openapi.json`
pub async fn show() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
}

impl Modify for Refusals {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("tgt_…")
            .description(Some(
                "A token of `tollgate token create`. A gateway without accounts asks for none.",
            ))
            .build();
        api.components
            .get_or_insert_default()
            .add_security_scheme(TOKEN, SecurityScheme::Http(scheme));
        for item in api.paths.paths.values_mut() {
            let operations = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.delete,
                &mut item.patch,
            ];
            for operation in operations
                .into_iter()
                .flatten()
                .filter(|operation| !is_probe(operation))
            {
                let nobody = SecurityRequirement::default();
                operation.security = Some(vec![SecurityRequirement::new(TOKEN, [""; 0]), nobody]);
                for (status, description) in REFUSALS {
                    let content = ContentBuilder::new()
                        .schema(Some(Ref::from_schema_name("ProblemDetails")))
                        .build();
                    let refusal = ResponseBuilder::new().description(description);
                    let refusal = refusal.content("application/problem+json", content).build();
                    operation
                        .responses
                        .responses
                        .insert(status.to_owned(), RefOr::T(refusal));
                }
            }
        }
    }
}

fn is_probe(operation: &Operation) -> bool {
    operation.tags.iter().flatten().any(|tag| tag == "probes")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

    /// Routes that programs do not need described.
    const LEFT_OUT: [(&str, &str); 2] = [("get", "/"), ("get", "/openapi.json")];

    fn document() -> Value {
        serde_json::from_str(&TEXT).unwrap()
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

    /// `UPDATE_DOCS=1 cargo test --lib openapi` writes it.
    #[test]
    fn the_document_in_docs_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &*TEXT).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == *TEXT,
            "docs/openapi.json is not what is served: run with UPDATE_DOCS=1"
        );
    }
}
