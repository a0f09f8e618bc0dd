//! The stylesheet, the script and the library for charts, as they are compiled in.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use tollgate_admin::problem_details::ProblemDetails;

struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const ASSETS: [Asset; 5] = [
    Asset {
        name: "console.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("assets/console.css"),
    },
    Asset {
        name: "console.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("assets/console.js"),
    },
    Asset {
        name: "icon.svg",
        kind: "image/svg+xml",
        bytes: include_bytes!("assets/icon.svg"),
    },
    Asset {
        name: "uplot.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("assets/uplot/uPlot.min.css"),
    },
    Asset {
        name: "uplot.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("assets/uplot/uPlot.iife.min.js"),
    },
];

/// Changes with any of them: it is a part of their URLs, so that browsers keep each for good.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    ASSETS.iter().for_each(|asset| hash.update(asset.bytes));
    hash.finalize()
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
});

/// `GET /console/assets/{version}/{name}`
pub async fn get(Path((version, name)): Path<(String, String)>) -> Response {
    match ASSETS
        .iter()
        .find(|asset| asset.name == name && version == *VERSION)
    {
        Some(asset) => {
            let kept = "public, max-age=31536000, immutable";
            (
                [(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, kept)],
                asset.bytes,
            )
                .into_response()
        }
        None => ProblemDetails::not_found("such file of the console").into_response(),
    }
}
