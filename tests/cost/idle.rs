//! Heap of a connection that waits for its next request, by the allocator of a gateway that runs
//! within the test.

use super::client::{self, BlockingClient};
use super::{HEAP, TURN, gateway};

const CONNECTIONS: usize = 400;

/// Bytes that the allocator was asked for. Its pages take a quarter more.
const BOUND: usize = 2_700;

#[test]
fn an_idle_connection_holds_no_more_than_it_did() {
    let _turn = TURN.blocking_lock();
    let address = gateway();
    let open = || {
        let mut client = BlockingClient::connect(address);
        assert_eq!(client.ask(&client::request("/")), 200);
        client.into_stream()
    };
    let first: Vec<_> = (0..CONNECTIONS).map(|_| open()).collect();
    let before = used();
    let second: Vec<_> = (0..CONNECTIONS).map(|_| open()).collect();
    let each = (used() - before) / CONNECTIONS;
    println!(
        "{each} bytes for each idle connection, beside {} others",
        first.len()
    );
    assert!(each <= BOUND, "{each} bytes for each of {}", second.len());
    // Else this counts nothing.
    assert!(
        each >= BOUND / 2,
        "{each} bytes? lower the bound, or look what is counted"
    );
}

fn used() -> usize {
    let stats = HEAP.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated)
}
