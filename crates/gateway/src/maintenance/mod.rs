//! The maintenance of a route, during which its clients are refused, save those that are let
//! through.
//!
//! Guarantees that switching it takes effect on the next request, and costs requests one look at a
//! flag.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Gauge, counter, gauge};

use super::answer::error_page::AcceptedPages;
use super::exchange::Exchange;
use tollgate_limiter::clock;
use tollgate_spec::route::error_pages::ErrorPages;
use tollgate_spec::route::maintenance::MaintenanceSpec;
use tollgate_wire::error::Failure;

/// The maintenance of one route, on or off.
pub struct RouteMaintenance {
    pub route: Arc<str>,
    spec: Arc<MaintenanceSpec>,
    /// The pages of the maintenance, and then those of the route.
    pages: Option<Arc<ErrorPages>>,
    is_on: AtomicBool,
    gauge: Gauge,
    answers: Counter,
}

impl RouteMaintenance {
    /// The maintenance of `route`, which has these `pages` for other errors. If it goes by a file,
    /// it is on until somebody has looked for that, or as it was `before` by the same file: nobody
    /// may ever be able to look.
    pub fn new(
        route: &Arc<str>,
        spec: &Arc<MaintenanceSpec>,
        pages: Option<&Arc<ErrorPages>>,
        before: Option<&Self>,
    ) -> Self {
        let before = before
            .filter(|before| spec.when_file.is_some() && before.spec.when_file == spec.when_file);
        let pages = spec.pages.as_ref().map(|own| {
            let mut all = own.0.clone();
            all.extend(pages.iter().flat_map(|pages| &pages.0).cloned());
            Arc::new(ErrorPages(all))
        });
        let answers = counter!("tollgate_maintenance_answers_total", "route" => route.to_string());
        answers.increment(0);
        Self {
            route: route.clone(),
            spec: spec.clone(),
            pages,
            is_on: AtomicBool::new(before.is_none_or(Self::is_on)),
            gauge: gauge!("tollgate_route_maintenance", "route" => route.to_string()),
            answers,
        }
    }

    /// The file that switches it.
    pub fn file(&self) -> Option<&Path> {
        self.spec.when_file.as_deref()
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Switches it on or off. Returns whether it was not so before.
    pub fn switch(&self, on: bool) -> bool {
        self.is_on.swap(on, Ordering::Relaxed) != on
    }

    /// Shows by the metrics whether it is on.
    pub fn show(&self) {
        self.gauge.set(f64::from(u8::from(self.is_on())));
    }

    /// Shows by the metrics that there is none.
    pub fn show_gone(&self) {
        self.gauge.set(0.0);
    }

    /// Refuses the request during maintenance. Its answer is counted, and has the pages of the
    /// maintenance.
    ///
    /// # Errors
    /// [`Failure::Maintenance`], unless the client is let through.
    #[inline]
    pub fn check(&self, exchange: &mut Exchange<'_>) -> Result<(), Failure> {
        let Some(failure) = self.refusal(exchange.context.origin.client_ip) else {
            return Ok(());
        };
        self.answers.increment(1);
        if let Some(pages) = &self.pages {
            let pages = AcceptedPages::new(pages, exchange.request.headers());
            exchange.answer.pages = Some(Box::new(pages));
        }
        Err(failure)
    }

    /// The answer to this client, if it is not served.
    pub fn refusal(&self, client: IpAddr) -> Option<Failure> {
        if !self.is_on() || self.spec.allow.has(client) {
            return None;
        }
        Some(Failure::Maintenance {
            retry_after_secs: self.spec.retry_after_secs(clock::wall()),
        })
    }
}
