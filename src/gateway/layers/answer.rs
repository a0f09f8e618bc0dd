//! Notes what a route changes of its answers, from what the request says. It is done once the chain
//! has ended.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::error::Failure;
use crate::gateway::answer::compression::Compression;
use crate::gateway::answer::error_page::AcceptedPages;
use crate::gateway::answer::rendered::RenderedFields;
use crate::gateway::exchange::Exchange;
use crate::route::error_pages::ErrorPages;
use crate::route::fields::FieldChanges;

/// Changes the answers of a service.
#[derive(Clone, Default)]
pub struct AnswerLayer {
    pub fields: Option<Arc<FieldChanges>>,
    pub compression: Option<Compression>,
    pub error_pages: Option<Arc<ErrorPages>>,
}

/// A service whose answers are changed.
#[derive(Clone)]
pub struct ChangedAnswers<S> {
    inner: S,
    layer: AnswerLayer,
}

impl AnswerLayer {
    /// `None`: nothing is changed.
    pub fn used(self) -> Option<Self> {
        (self.fields.is_some() || self.compression.is_some() || self.error_pages.is_some())
            .then_some(self)
    }
}

impl<S> Layer<S> for AnswerLayer {
    type Service = ChangedAnswers<S>;

    fn layer(&self, inner: S) -> ChangedAnswers<S> {
        ChangedAnswers {
            inner,
            layer: self.clone(),
        }
    }
}

impl<'a, 'g, S> Service<&'a mut Exchange<'g>> for ChangedAnswers<S>
where
    S: Service<&'a mut Exchange<'g>, Response = Response<Body>, Error = Failure>,
{
    type Response = Response<Body>;
    type Error = Failure;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, exchange: &'a mut Exchange<'g>) -> S::Future {
        if let Some(changes) = &self.layer.fields {
            // Now: the request is gone when its answer comes.
            let changed = RenderedFields::new(changes, |template| exchange.render(template));
            exchange.interim.withhold(changed.removed());
            exchange.answer.changed = Some(Box::new(changed));
        }
        if let Some(pages) = &self.layer.error_pages {
            exchange.answer.pages = Some(Box::new(AcceptedPages::new(
                pages,
                exchange.request.headers(),
            )));
        }
        if let Some(compression) = &self.layer.compression {
            let is_head = exchange.request.method() == Method::HEAD;
            let accepted = compression.accepted(exchange.request.headers(), is_head);
            exchange.answer.coding = Some(Box::new(accepted));
        }
        self.inner.call(exchange)
    }
}
