//! Expressions among the paths of the table: each text is searched once, whatever the number of
//! routes and hosts that have it.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::route::expression::PathExpression;

/// An expression, shared by all routes and hosts that have its text, with the memory that its
/// searches keep.
#[derive(Clone, Debug)]
pub struct NumberedExpression {
    pub number: usize,
    pub expression: Arc<PathExpression>,
}

/// The expressions of the routes that a table is built from, by their texts.
#[derive(Default)]
pub struct SharedExpressions<'r>(HashMap<&'r str, NumberedExpression>);

/// The expressions that a look-up has tried: each costs as much as its path is long, and several of
/// the hosts and routes that take a request may have the same.
#[derive(Default)]
pub struct TriedExpressions {
    /// The routes that were looked at.
    pub routes: NumberSet,
    tried: NumberSet,
    /// The tried expressions that take the path.
    taking: NumberSet,
}

/// A set of small numbers.
#[derive(Default)]
pub struct NumberSet {
    /// The first 64 numbers: no more memory is taken for these.
    first: u64,
    others: Vec<u64>,
}

impl<'r> SharedExpressions<'r> {
    pub fn share(&mut self, expression: &'r PathExpression) -> NumberedExpression {
        let number = self.0.len();
        let entry = self.0.entry(expression.text());
        let shared = entry.or_insert_with(|| NumberedExpression {
            number,
            expression: Arc::new(expression.clone()),
        });
        shared.clone()
    }
}

impl TriedExpressions {
    /// Whether the expression with this number takes the path, which is tested once.
    pub fn takes(&mut self, number: usize, test: impl FnOnce() -> bool) -> bool {
        if !self.tried.add(number) {
            return self.taking.contains(number);
        }
        let takes = test();
        if takes {
            self.taking.add(number);
        }
        takes
    }
}

impl NumberSet {
    pub fn contains(&self, number: usize) -> bool {
        let word = (number / 64)
            .checked_sub(1)
            .map_or(Some(&self.first), |at| self.others.get(at));
        word.is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Whether the number is new.
    pub fn add(&mut self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        let word = match (number / 64).checked_sub(1) {
            None => &mut self.first,
            Some(at) => {
                if self.others.len() <= at {
                    self.others.resize(at + 1, 0);
                }
                &mut self.others[at]
            }
        };
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }
}
