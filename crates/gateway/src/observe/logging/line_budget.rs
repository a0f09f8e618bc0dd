//! The bound on lines of the program's own log that others cause: clients, upstreams, DNS, Redis.
//!
//! Guarantees at most [`MOST_LINES`] lines in [`PERIOD`] from one place in the code. Lines that
//! were left out are counted, and the log says how many. What operators do has all its lines.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_limiter::clock;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one place in a period: two a second.
const MOST_LINES: u32 = 120;

const PERIOD: Duration = Duration::from_secs(60);

/// The crates whose lines say what an operator, a file or a person with an account did. Each bounds
/// what strangers cause, and an audit trail has no gap.
const UNBOUNDED: [&str; 6] = [
    "tollgate",
    "tollgate_admin",
    "tollgate_config",
    "tollgate_console",
    "tollgate_policies",
    "tollgate_team",
];

/// The bound of the process.
static BUDGET: OnceLock<LineBudget> = OnceLock::new();

/// The lines of each place in the code.
#[derive(Clone, Default)]
pub struct LineBudget(Arc<Mutex<HashMap<Identifier, PlaceLines>>>);

#[derive(Default)]
struct PlaceLines {
    /// In microseconds of the monotonic clock.
    period_ends: u64,
    lines: u32,
    left_out: u64,
    /// The text of the first line that was left out, without its fields.
    message: String,
}

/// The text of a line, without its fields.
struct LineMessage<'a>(&'a mut String);

impl LineBudget {
    pub fn global() -> Self {
        BUDGET.get_or_init(Self::default).clone()
    }

    /// Logs how many lines were left out in periods that have ended.
    pub fn report(&self) {
        self.report_until(clock::monotonic_micros());
    }

    /// Logs how many lines were left out, at the end of the process.
    pub fn report_all(&self) {
        self.report_until(u64::MAX);
    }

    fn report_until(&self, now: u64) {
        let mut ended = Vec::new();
        for place in self.0.lock().values_mut() {
            if place.left_out > 0 && place.period_ends <= now {
                let message = std::mem::take(&mut place.message);
                ended.push((message, std::mem::take(&mut place.left_out)));
            }
        }
        for (message, lines) in ended {
            tracing::warn!(
                lines,
                kind = message,
                "lines of this log were left out: too many"
            );
        }
    }

    fn admits(&self, event: &Event<'_>, now: u64) -> bool {
        let mut places = self.0.lock();
        let place = places.entry(event.metadata().callsite()).or_default();
        if now >= place.period_ends {
            let period = u64::try_from(PERIOD.as_micros()).unwrap_or(u64::MAX);
            place.period_ends = now.saturating_add(period);
            place.lines = 0;
        }
        if place.lines < MOST_LINES {
            place.lines += 1;
            return true;
        }
        if place.left_out == 0 {
            event.record(&mut LineMessage(&mut place.message));
        }
        place.left_out += 1;
        false
    }
}

/// Whether lines of a place are bounded. Lines for developers are not: nobody asks for them by
/// default.
fn is_bounded(place: &Metadata<'_>) -> bool {
    let name = place.target().split("::").next().unwrap_or_default();
    *place.level() <= Level::INFO && !UNBOUNDED.contains(&name)
}

impl<S: Subscriber> Layer<S> for LineBudget {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        !is_bounded(event.metadata()) || self.admits(event, clock::monotonic_micros())
    }
}

impl Visit for LineMessage<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;

    use super::*;

    /// A log in memory.
    #[derive(Clone, Default)]
    struct LogText(Arc<Mutex<Vec<u8>>>);

    impl LogText {
        fn count(&self, text: &str) -> usize {
            String::from_utf8_lossy(&self.0.lock())
                .matches(text)
                .count()
        }
    }

    impl io::Write for LogText {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_place_has_a_bounded_number_of_lines_and_the_rest_is_counted() {
        let (budget, log) = (LineBudget::default(), LogText::default());
        let writer = log.clone();
        let lines = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let _log = lines.finish().with(budget.clone()).set_default();
        let most = MOST_LINES as usize;
        for number in 0..most + 50 {
            tracing::warn!(number, "a client did it again");
            tracing::info!(target: "tollgate_admin::pages", "an operator did it again");
            budget.report();
        }
        tracing::warn!("another place");
        assert_eq!(log.count("a client did it again"), most);
        assert_eq!(log.count("an operator did it again"), most + 50);
        assert_eq!((log.count("another place"), log.count("left out")), (1, 0));
        tokio::time::advance(PERIOD).await;
        budget.report();
        budget.report();
        assert_eq!(log.count("lines=50 kind=\"a client did it again\""), 1);
        assert_eq!(log.count("left out"), 1);
        tracing::warn!("another place");
        assert_eq!(log.count("another place"), 2);
    }
}
