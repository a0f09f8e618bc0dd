//! A window beside the limiter: it sees the same requests without any delay, and says how many a
//! correct limiter admits.
//!
//! Guarantees to share no arithmetic with the limiter that is judged.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// A window of a key.
#[derive(Default)]
pub struct ReferenceWindow(Mutex<TokensOut>);

#[derive(Default)]
struct TokensOut {
    /// When tokens come back, and how many.
    returns: VecDeque<(u64, u64)>,
    tokens: u64,
}

impl ReferenceWindow {
    /// Whether `cost` tokens of `quota` were there at `now_us`, which takes them until `back_us`.
    pub fn take(&self, quota: u64, cost: u64, now_us: u64, back_us: u64) -> bool {
        let mut out = self.0.lock();
        while let Some((_, tokens)) = out
            .returns
            .front()
            .copied()
            .filter(|(back_us, _)| *back_us <= now_us)
        {
            out.returns.pop_front();
            out.tokens -= tokens;
        }
        let fits = out.tokens + cost <= quota;
        if fits {
            out.tokens += cost;
            // Clients that ask at the same time may come in any order.
            match out.returns.back_mut().filter(|last| last.0 >= back_us) {
                Some(last) => last.1 += cost,
                None => out.returns.push_back((back_us, cost)),
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_when_they_are_said_to() {
        let window = ReferenceWindow::default();
        let taken = [
            (0, 100),
            (10, 100),
            (99, 100),
            (100, 200),
            (101, 200),
            (102, 200),
        ];
        assert_eq!(
            taken.map(|(now, back)| window.take(2, 1, now, back)),
            [true, true, false, true, true, false]
        );
    }
}
