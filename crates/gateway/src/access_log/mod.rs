//! Lines of the access log: `line` is what a line says, `json` and `combined` are its formats,
//! `escape` keeps what clients write within its field.

mod combined;
mod escape;
mod json;
mod line;

use std::sync::Arc;

use tollgate_limiter::request::catalog::Catalog;

use self::line::LoggedLine;
pub use self::line::{LoggedAnswer, LoggedRequest};
use crate::observe::access_log::AccessLog;
use tollgate_limiter::clock;
use tollgate_spec::access_log::AccessLogFormat;

/// The access log of a route.
#[derive(Clone)]
pub struct RouteLog {
    pub log: AccessLog,
    /// The limits of the configuration.
    pub limits: Arc<Catalog>,
}

impl RouteLog {
    /// Hands the line of `request` over, unless it is one of many alike that the sample leaves out.
    pub fn record(&self, request: &LoggedRequest, answer: &LoggedAnswer<'_>) {
        let spec = self.log.spec();
        // By chance, and not by the request's id: a client may have chosen that.
        if answer.has_succeeded() && !spec.sample.takes(&fastrand::u64(..).to_ne_bytes()) {
            return;
        }
        let line = LoggedLine {
            time: clock::wall(),
            request,
            answer,
        };
        self.log.record(|text| match spec.format {
            AccessLogFormat::Json => json::write(&line, text),
            AccessLogFormat::Combined => combined::write(&line, text),
            AccessLogFormat::Extended => combined::write_extended(&line, text),
        });
    }
}
