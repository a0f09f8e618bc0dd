//! The numbers of a cost that is a sum, looked for in one body at once.
//!
//! Guarantees one pass over the body for each path, and a memory that is bounded by their number.

use smallvec::SmallVec;

use crate::limit::cost::JsonTerm;
use crate::request::response::usage::json::{ScanResult, Scanner};

/// A scanner for each path of each term, in order.
#[derive(Debug)]
pub(super) struct TermScanners(SmallVec<[Scanner; 1]>);

/// The numbers that the body has told so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedTerms {
    /// The sum of the terms that were told.
    pub sum: u64,
    /// Some term was not told.
    pub absent: bool,
    /// Some term is no number.
    pub invalid: bool,
}

impl TermScanners {
    pub fn new(terms: &[JsonTerm]) -> Self {
        Self(
            terms
                .iter()
                .flat_map(|term| &term.first_of)
                .cloned()
                .map(Scanner::new)
                .collect(),
        )
    }

    pub fn feed(&mut self, piece: &[u8]) {
        self.0.iter_mut().for_each(|scanner| scanner.feed(piece));
    }

    /// Begins another text. What was told stays.
    pub fn restart(&mut self) {
        self.0.iter_mut().for_each(Scanner::restart);
    }

    /// The numbers told of `terms`, for which these scanners were made.
    pub fn reported(&self, terms: &[JsonTerm]) -> ReportedTerms {
        let mut told = ReportedTerms {
            sum: 0,
            absent: false,
            invalid: false,
        };
        let mut scanners = self.0.iter();
        for term in terms {
            match first(scanners.by_ref().take(term.first_of.len())) {
                ScanResult::Number(number) => {
                    told.sum = told
                        .sum
                        .saturating_add(number.saturating_mul(term.weight.get()));
                }
                ScanResult::Invalid => told.invalid = true,
                ScanResult::Nothing => told.absent = true,
            }
        }
        told
    }
}

/// The first number that there is.
fn first<'s>(scanners: impl Iterator<Item = &'s Scanner>) -> ScanResult {
    scanners
        .map(Scanner::scanned)
        .fold(ScanResult::Nothing, |found, next| match (found, next) {
            (ScanResult::Number(_), _) | (ScanResult::Invalid, ScanResult::Nothing) => found,
            _ => next,
        })
}
