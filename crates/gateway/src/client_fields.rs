//! Takes away what a client says in fields that are not its to say.
//!
//! Guarantees that it gets no word in by another way: not by `_` in place of `-`, which upstreams
//! that turn names into variables take for the same, not by an option of `Connection`, and not in
//! trailers, which some merge into the header section.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request};
use http_body::{Body as _, Frame, SizeHint};

use tollgate_limiter::limit::key::is_same_variable;
use tollgate_proxy::message::headers::settle_connection;
use tollgate_wire::body::{Body, BodySource, BoxError};
use tollgate_wire::fields;

/// A body whose trailers lack some fields.
struct TrailerFilter {
    body: Body,
    names: Vec<HeaderName>,
}

/// Removes the fields with these names from the request.
pub fn remove(request: &mut Request<Body>, names: &[HeaderName]) {
    settle_connection(request.headers_mut());
    remove_from(request.headers_mut(), names);
    remove_trailers(request, names);
}

/// Removes the fields with these names from the request's trailers.
pub fn remove_trailers(request: &mut Request<Body>, names: &[HeaderName]) {
    if !names.is_empty() && !request.body().is_end_stream() {
        let body = std::mem::replace(request.body_mut(), Body::empty());
        *request.body_mut() = Body::from_source(Box::new(TrailerFilter {
            body,
            names: names.to_vec(),
        }));
    }
}

fn remove_from(fields: &mut HeaderMap, names: &[HeaderName]) {
    fields::remove(fields, |field| {
        let mut removed = names.iter();
        removed.any(|name| is_same_variable(field.as_str(), name.as_str()))
    });
}

impl BodySource for TrailerFilter {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            remove_from(trailers, &self.names);
        }
        Poll::Ready(frame)
    }

    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.body.poll_arrived(cx)
    }

    fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn ended(self: Box<Self>) {}
}
