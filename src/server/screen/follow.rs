//! Follows a client's byte stream message by message and says how much of it may go on to the HTTP parser.

use super::head::{Announced, Head};
use crate::error::Failure;
use crate::http1::chunks::{Chunks, Malformed};
use crate::http1::{Bounds, Framing};

/// Where in the stream the next byte belongs.
#[derive(Debug)]
enum Place {
    Head(Head),
    Length(u64),
    Chunked(Chunks),
    /// Behind a request for an upgrade: nobody knows yet what the bytes are.
    Held,
}

/// Why nothing more may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Instead of a request.
    Refused(Failure),
    /// Within the body of a request that has gone on.
    Broken,
}

/// What to do with the bytes that were shown.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// So many may go on; the rest must be shown again, with what follows it.
    pub pass: usize,
    pub stop: Option<Stop>,
}

/// The reader of one connection's requests.
#[derive(Debug)]
pub struct Follower {
    bounds: Bounds,
    place: Place,
    /// The message that is being followed asks for an upgrade.
    upgrade: bool,
    heads: u64,
}

impl Follower {
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, place: Place::Head(Head::default()), upgrade: false, heads: 0 }
    }

    /// Looks at `bytes`, whose first is the first that has not passed.
    pub fn follow(&mut self, bytes: &[u8]) -> Verdict {
        let mut pass = 0;
        loop {
            let rest = &bytes[pass..];
            match self.step(rest) {
                Ok(0) => return Verdict { pass, stop: None },
                Ok(taken) => pass += taken,
                Err((taken, stop)) => return Verdict { pass: pass + taken, stop: Some(stop) },
            }
        }
    }

    /// Header sections that have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether the last request's body is still under way.
    pub fn in_body(&self) -> bool {
        matches!(self.place, Place::Length(_) | Place::Chunked(_))
    }

    /// Whether the next byte is a request's first.
    pub fn between_requests(&self) -> bool {
        matches!(&self.place, Place::Head(head) if head.is_blank())
    }

    /// Whether an answer must tell what the next bytes are.
    pub fn is_holding(&self) -> bool {
        matches!(self.place, Place::Held)
    }

    /// The upgrade was declined: HTTP goes on.
    pub fn release(&mut self) {
        self.next_head();
    }

    /// Whether the request that is being read is a HEAD.
    pub fn is_head_request(&self) -> bool {
        matches!(&self.place, Place::Head(head) if head.is_head())
    }

    /// How many bytes of `rest` the current place takes; 0: it needs more than there is.
    fn step(&mut self, rest: &[u8]) -> Result<usize, (usize, Stop)> {
        match &mut self.place {
            Place::Head(head) => match head.read(rest, &self.bounds) {
                Ok(None) => Ok(0),
                Ok(Some(announced)) => Ok(self.enter_body(announced)),
                Err(failure) => Err((0, Stop::Refused(failure))),
            },
            Place::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                *left -= taken as u64;
                if *left == 0 {
                    self.next_head();
                }
                Ok(taken)
            }
            Place::Chunked(chunks) => match chunks.follow(rest, &self.bounds) {
                Err(Malformed) => Err((0, Stop::Broken)),
                Ok(framing) => {
                    let taken = framing + chunks.skip(rest.len() - framing);
                    if chunks.is_over() {
                        self.next_head();
                    }
                    Ok(taken)
                }
            },
            Place::Held => Ok(0),
        }
    }

    fn enter_body(&mut self, announced: Announced) -> usize {
        self.heads += 1;
        self.upgrade = announced.upgrade;
        match announced.framing {
            Framing::Length(0) => self.next_head(),
            Framing::Length(length) => self.place = Place::Length(length),
            Framing::Close | Framing::Chunked => self.place = Place::Chunked(Chunks::default()),
        }
        announced.bytes
    }

    fn next_head(&mut self) {
        self.place = if std::mem::take(&mut self.upgrade) { Place::Held } else { Place::Head(Head::default()) };
    }
}
