//! Carries requests out to their end, though their clients go away meanwhile.
//!
//! Guarantees that no client stops a change halfway, before it was recorded.

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem_details::ProblemDetails;
use super::server::answers::AnswerPlace;

/// Carries a change out to its end, its entry in the audit log included, though its client goes
/// away meanwhile. Stands outside of the search for the caller: a refused change is recorded, too.
pub async fn carry_changes_out(request: Request, next: Next) -> Response {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        next.run(request).await
    } else {
        carry_out(request, next).await
    }
}

/// Carries a request out to its end, whatever its method.
pub async fn carry_out(request: Request, next: Next) -> Response {
    // The request counts to its end.
    let place = request.extensions().get::<AnswerPlace>().cloned();
    let carried_out = async move {
        let response = next.run(request).await;
        drop(place);
        response
    };
    tokio::spawn(carried_out).await.unwrap_or_else(|broken| {
        tracing::error!(%broken, "a request of the admin port broke off: this is a defect of the gateway");
        ProblemDetails::policies_away("the request broke off").into_response()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tokio::sync::mpsc;
    use tokio::time::timeout;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_carried_out_though_its_client_goes_away() {
        const SECOND: Duration = Duration::from_secs(1);
        let (done, mut is_done) = mpsc::unbounded_channel();
        let slow = async move || {
            tokio::time::sleep(SECOND).await;
            let _ = done.send(());
        };
        let pages = Router::new()
            .route("/", get(slow.clone()).post(slow))
            .layer(from_fn(carry_changes_out));
        for (method, goes_on) in [(Method::GET, false), (Method::POST, true)] {
            let request = Request::builder()
                .method(&method)
                .body(Body::empty())
                .unwrap();
            timeout(SECOND / 2, pages.clone().oneshot(request))
                .await
                .expect_err("it goes away before");
            let carried_out = timeout(2 * SECOND, is_done.recv()).await.is_ok();
            assert_eq!(carried_out, goes_on, "{method}");
        }
    }
}
