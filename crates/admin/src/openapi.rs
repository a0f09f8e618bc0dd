//! The admin port as OpenAPI 3.1, for programs: `GET /openapi.json`, and docs/openapi.json.
//!
//! The description is made from the handlers and from the types that they answer with, and from
//! that of an extension. A page without a description fails a test.

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Ref, RefOr, ResponseBuilder};

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
        (name = "nodes", description = "The nodes of the fleet")
    ),
    paths(
        health::livez, health::readyz, health::metrics, limits::list, buckets::peek, buckets::reset, buckets::grant,
        upstreams::list, nodes::list, explain::show
    ),
    components(schemas(ProblemDetails))
)]
struct AdminApi;

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

/// The description of the port, with that of an extension.
pub fn text(extension: Option<utoipa::openapi::OpenApi>) -> String {
    let mut api = AdminApi::openapi();
    if let Some(extension) = extension {
        api.merge(extension);
    }
    describe_refusals(&mut api);
    match api.to_pretty_json() {
        Ok(text) => text + "\n",
        Err(_) => String::new(),
    }
}

/// `GET /openapi.json`
pub fn show(text: Bytes) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], text)
}

/// Gives each operation that may refuse the shape of its refusals, and says what it wants of its
/// caller.
fn describe_refusals(api: &mut utoipa::openapi::OpenApi) {
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

fn is_probe(operation: &Operation) -> bool {
    operation.tags.iter().flatten().any(|tag| tag == "probes")
}
