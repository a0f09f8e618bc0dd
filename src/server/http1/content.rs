//! A request's content, for whoever handles the request: the client's side of the connection on loan.
//!
//! Guarantees that the loan ends with the content, or when it is dropped, whatever is left of it then, and that a client
//! which leaves before anybody reads is noticed. Reading goes straight to the socket: there is no task and no queue between.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use super::inbound::Inbound;
use crate::body::{Body, BoxError};

/// Who reads from the client.
#[derive(Debug)]
pub enum Reader {
    /// The connection itself.
    Here(Box<Inbound>),
    /// A request's content.
    Lent(Arc<Loan>),
}

/// Where what was lent comes back.
#[derive(Debug, Default)]
pub struct Loan {
    desk: Mutex<Desk>,
    /// The client holds its content back until it is told to send it.
    awaits_continue: bool,
    /// The content is asked for, and the client waits to be told.
    asked_for: AtomicBool,
    /// It has been told.
    told: AtomicBool,
}

#[derive(Debug, Default)]
struct Desk {
    /// Lent, and not yet fetched.
    offered: Option<Box<Inbound>>,
    returned: Option<Box<Inbound>>,
    /// The connection's task.
    waker: Option<Waker>,
}

struct Content {
    /// `None`: it was not fetched yet, or nothing is left.
    inbound: Option<Box<Inbound>>,
    fetched: bool,
    /// How much there is before it was fetched.
    announced: SizeHint,
    loan: Arc<Loan>,
    /// It was asked for.
    asked_for: bool,
}

impl Reader {
    /// Lends what is here.
    pub fn lend(&mut self) -> Body {
        let Self::Here(inbound) = self else { return Body::empty() };
        let announced = inbound.size_hint();
        let loan = Arc::new(Loan { awaits_continue: inbound.awaits_continue(), ..Loan::default() });
        if let Self::Here(inbound) = std::mem::replace(self, Self::Lent(Arc::clone(&loan))) {
            loan.desk.lock().offered = Some(inbound);
        }
        Body::boxed(Content { inbound: None, fetched: false, announced, loan, asked_for: false })
    }

    /// What is here, or has come back; ready at once, or when it comes back.
    pub fn poll_here(&mut self, cx: &mut Context<'_>) -> Poll<&mut Inbound> {
        if let Self::Lent(loan) = self
            && let Some(mut inbound) = loan.take_back(cx)
        {
            if loan.told.load(Relaxed) {
                inbound.told_to_continue();
            }
            *self = Self::Here(inbound);
        }
        match self {
            Self::Here(inbound) => Poll::Ready(inbound),
            Self::Lent(_) => Poll::Pending,
        }
    }

    /// Ready when the client has gone, as far as that can be seen: not behind content that somebody is reading.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll_here(cx) {
            Poll::Ready(inbound) => inbound.poll_gone(cx),
            Poll::Pending => match self {
                Self::Here(_) => Poll::Pending,
                Self::Lent(loan) => {
                    loan.desk.lock().offered.as_mut().map_or(Poll::Pending, |inbound| inbound.poll_gone(cx))
                }
            },
        }
    }

    /// Whether somebody wants content that the client holds back until it is told so. True once: it must be told then.
    pub fn take_wish(&mut self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Lent(loan) => {
                let wished = loan.asked_for.swap(false, Relaxed);
                loan.told.fetch_or(wished, Relaxed);
                wished
            }
        }
    }

    /// Whether what is lent may never come: the client holds it back, and was not told to send it.
    pub fn is_held_back(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Lent(loan) => loan.awaits_continue && !loan.told.load(Relaxed),
        }
    }
}

impl Loan {
    fn take_back(&self, cx: &mut Context<'_>) -> Option<Box<Inbound>> {
        let mut desk = self.desk.lock();
        let returned = desk.returned.take();
        if returned.is_none() && !desk.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            desk.waker = Some(cx.waker().clone());
        }
        returned
    }

    fn give_back(&self, inbound: Box<Inbound>) {
        let mut desk = self.desk.lock();
        desk.returned = Some(inbound);
        let waker = desk.waker.take();
        drop(desk);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn ask_for_content(&self) {
        self.asked_for.store(true, Relaxed);
        let waker = self.desk.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Content {
    fn fetch(&mut self) {
        if !std::mem::replace(&mut self.fetched, true) {
            self.inbound = self.loan.desk.lock().offered.take();
        }
    }

    fn give_back(&mut self) {
        self.fetch();
        if let Some(inbound) = self.inbound.take() {
            self.loan.give_back(inbound);
        }
    }
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.fetch();
        let Some(inbound) = &mut this.inbound else { return Poll::Ready(None) };
        if this.loan.awaits_continue && !std::mem::replace(&mut this.asked_for, true) {
            this.loan.ask_for_content();
        }
        let polled = inbound.poll_content(cx);
        if inbound.is_whole() || matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            this.give_back();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.fetched && self.inbound.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if !self.fetched {
            return self.announced;
        }
        self.inbound.as_ref().map_or(SizeHint::with_exact(0), |inbound| inbound.size_hint())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.give_back();
    }
}
