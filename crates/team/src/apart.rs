//! Work that takes a processor for long, apart from the thread of the admin port: its other pages
//! go on meanwhile.

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tollgate_admin::problem_details::ProblemDetails;

/// Does `work`, which goes on though its client goes away. `what` names it in the log.
///
/// # Errors
/// The refusal by the work. Also when it breaks off.
pub async fn apart<T: Send + 'static>(
    what: &'static str,
    work: impl AsyncFnOnce() -> Result<T, ProblemDetails> + Send + 'static,
) -> Result<T, ProblemDetails> {
    let runtime = Handle::current();
    let done = spawn_blocking(move || runtime.block_on(work()));
    done.await.unwrap_or_else(|broken| {
        tracing::error!(%broken, what, "work of the admin port broke off: this is a defect of the gateway");
        Err(ProblemDetails::policies_away(format!("{what} broke off")))
    })
}
