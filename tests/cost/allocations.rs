//! Allocations per request, by the allocator of a gateway that runs within the test.

use stats_alloc::Stats;

use super::client::{self, BlockingClient};
use super::{HEAP, TURN, gateway};

const BATCHES: usize = 8;
const REQUESTS: usize = 250;

/// Beside those of requests, in the quietest batch: timers of the control plane, a table that
/// grows.
const ELSEWHERE: f64 = 0.2;

#[test]
fn a_request_allocates_no_more_than_it_did() {
    let _turn = TURN.blocking_lock();
    let address = gateway();
    let mut client = BlockingClient::connect(address);
    for (what, path, status, bound) in [
        ("forwarded", "/", 200, 3.0),
        ("limited", "/limited", 200, 4.0),
        ("denied", "/denied", 429, 6.0),
        ("logged", "/logged", 200, 4.0),
    ] {
        let used = allocations(&mut client, &client::request(path), status);
        println!("{what}: {used:.2} allocations");
        assert!(
            used <= bound + ELSEWHERE,
            "a {what} request allocates {used:.2} times, and may {bound} times"
        );
        // Else this counts nothing.
        assert!(
            used >= 1.0,
            "a {what} request allocates {used:.2} times? lower the bound, or look what is counted"
        );
    }
}

/// Per request, once all that is kept is there. What the clock has others allocate, only some
/// batches meet.
fn allocations(client: &mut BlockingClient, request: &[u8], status: u16) -> f64 {
    (0..200).for_each(|_| _ = client.ask(request));
    let mut batch = || {
        let before = count(HEAP.stats());
        (0..REQUESTS).for_each(|_| assert_eq!(client.ask(request), status));
        count(HEAP.stats()) - before
    };
    let fewest = (0..BATCHES).map(|_| batch()).min().unwrap();
    fewest as f64 / REQUESTS as f64
}

fn count(stats: Stats) -> usize {
    stats.allocations + stats.reallocations
}
