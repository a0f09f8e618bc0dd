//! A tree of maxima over the possible ends of windows.
//!
//! Guarantees that raising a range of ends and finding the largest take O(log n) each.

/// A value for each possible end of a window, as a tree of maxima: a range grows, and the largest
/// is found, in O(log n).
pub struct WindowTree {
    leaves: usize,
    /// Largest value below each node, without what its ancestors add.
    largest: Vec<i128>,
    added: Vec<i128>,
}

/// Keeps out an end that no window of the current beginnings has: more than any value can make up
/// for.
const CLOSED: i128 = 1 << 120;

impl WindowTree {
    /// A tree over these values. No window may end at any of them yet.
    pub fn new(values: Vec<i128>) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut largest = vec![-2 * CLOSED; 2 * leaves];
        for (leaf, value) in values.into_iter().enumerate() {
            largest[leaves + leaf] = value - CLOSED;
        }
        for node in (1..leaves).rev() {
            largest[node] = largest[2 * node].max(largest[2 * node + 1]);
        }
        Self {
            leaves,
            largest,
            added: vec![0; 2 * leaves],
        }
    }

    /// Lets windows end at `leaf` from now on.
    pub fn open(&mut self, leaf: usize) {
        let mut node = self.leaves + leaf;
        let mut value = self.largest[self.leaves + leaf];
        while node > 1 {
            node /= 2;
            value += self.added[node];
        }
        if value < -CLOSED / 2 {
            self.add(leaf..leaf + 1, CLOSED);
        }
    }

    /// Adds `amount` to the values of a range.
    pub fn add(&mut self, range: std::ops::Range<usize>, amount: i128) {
        self.add_below(1, 0..self.leaves, &range, amount);
    }

    fn add_below(
        &mut self,
        node: usize,
        span: std::ops::Range<usize>,
        range: &std::ops::Range<usize>,
        amount: i128,
    ) {
        if range.end <= span.start || span.end <= range.start {
            return;
        }
        if range.start <= span.start && span.end <= range.end {
            self.largest[node] += amount;
            self.added[node] += amount;
            return;
        }
        let middle = span.start.midpoint(span.end);
        self.add_below(2 * node, span.start..middle, range, amount);
        self.add_below(2 * node + 1, middle..span.end, range, amount);
        self.largest[node] =
            self.largest[2 * node].max(self.largest[2 * node + 1]) + self.added[node];
    }

    /// The leaf with the largest value, and that value.
    pub fn largest(&self) -> (usize, i128) {
        let mut node = 1;
        while node < self.leaves {
            node = if self.largest[2 * node] >= self.largest[2 * node + 1] {
                2 * node
            } else {
                2 * node + 1
            };
        }
        (node - self.leaves, self.largest[1])
    }
}
