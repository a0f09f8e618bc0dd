//! The changes that a route makes to its answers. A request decides them before it is sent on: it
//! is gone when its answer comes.

use std::sync::Arc;

use crate::answer::compression::Compression;
use crate::answer::error_page::AcceptedPages;
use crate::answer::rendered::RenderedFields;
use crate::exchange::Exchange;
use tollgate_spec::route::error_pages::ErrorPages;
use tollgate_spec::route::fields::FieldChanges;

/// The changes that a route makes to its answers.
#[derive(Default)]
pub struct AnswerRules {
    pub fields: Option<Arc<FieldChanges>>,
    pub error_pages: Option<Arc<ErrorPages>>,
    pub compression: Option<Compression>,
}

impl AnswerRules {
    /// `None`: nothing is changed.
    pub fn non_empty(self) -> Option<Self> {
        if self.fields.is_none() && self.error_pages.is_none() && self.compression.is_none() {
            return None;
        }
        Some(self)
    }

    /// Fills the templates in, and takes from the request what its client accepts.
    pub fn prepare(&self, exchange: &mut Exchange<'_>) {
        if let Some(changes) = &self.fields {
            let fields = RenderedFields::new(changes, |template| exchange.render(template));
            exchange.interim.withhold(fields.removed().clone());
            exchange.answer.fields = Some(Box::new(fields));
        }
        let headers = exchange.request.headers();
        if let Some(pages) = &self.error_pages {
            exchange.answer.pages = Some(Box::new(AcceptedPages::new(pages, headers)));
        }
        if let Some(compression) = &self.compression {
            let client = exchange.context.origin.client_ip;
            let coding = compression.accepted(exchange.request, client);
            exchange.answer.coding = Some(Box::new(coding));
        }
    }
}
