//! Busy nodes that want more permits than there are: each gets its share, soon, and none is left
//! unused.

use super::*;

const SECOND_MS: u64 = 1_000;

/// The load on one node: clients that ask again as soon as they are answered.
#[derive(Clone, Copy)]
struct NodeLoad {
    clients: usize,
    /// When they begin.
    from_ms: u64,
    /// Milliseconds that a request holds its permit.
    hold_ms: u64,
}

/// The milliseconds that permits were held, of each node, in each second.
struct HeldTime {
    seconds: Vec<Vec<u64>>,
    most: u64,
}

impl HeldTime {
    /// The part of the limit that all nodes used in a second.
    fn used(&self, second: usize) -> f64 {
        self.seconds.iter().map(|node| node[second]).sum::<u64>() as f64
            / (self.most * SECOND_MS) as f64
    }

    /// The part of the limit that a node used in a second.
    fn share(&self, node: usize, second: usize) -> f64 {
        self.seconds[node][second] as f64 / (self.most * SECOND_MS) as f64
    }
}

/// Drives nodes for so many seconds of paused time.
async fn drive(most: u64, cost: u64, loads: &[NodeLoad], seconds: usize) -> HeldTime {
    let store = SharedStore::memory();
    store.slow.store(1, Ordering::Relaxed);
    let in_use = Arc::new(AtomicU64::new(0));
    let held: Vec<Arc<Vec<AtomicU64>>> = loads
        .iter()
        .map(|_| Arc::new((0..seconds).map(|_| AtomicU64::new(0)).collect()))
        .collect();
    let started = clock::now();
    let end = Duration::from_secs(seconds as u64);
    let mut clients = Vec::new();
    for (load, held) in loads.iter().zip(&held) {
        let one = node(&store, loads.len() as u32);
        for client in 0..load.clients {
            let one = one.clone();
            let held = held.clone();
            let in_use = in_use.clone();
            let load = *load;
            let mut checks = permits("k", most);
            checks.permits[0].need.cost = cost;
            checks.permits[0].largest_cost = cost;
            clients.push(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(load.from_ms + client as u64 % 7)).await;
                while started.elapsed() < end {
                    let Some(inside) = enter(&one, &checks).await else {
                        tokio::time::sleep(Duration::from_millis(3 + client as u64 % 5)).await;
                        continue;
                    };
                    let now = in_use.fetch_add(cost, Ordering::Relaxed) + cost;
                    assert!(now <= most, "{now} in flight, and {most} is the limit");
                    for _ in 0..load.hold_ms {
                        if let Some(second) = held.get(started.elapsed().as_secs() as usize) {
                            second.fetch_add(cost, Ordering::Relaxed);
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    in_use.fetch_sub(cost, Ordering::Relaxed);
                    drop(inside);
                }
            }));
        }
    }
    for client in join_all(clients).await {
        client.unwrap();
    }
    let seconds = held.iter().map(|node| {
        node.iter()
            .map(|second| second.load(Ordering::Relaxed))
            .collect()
    });
    HeldTime {
        seconds: seconds.collect(),
        most,
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_holds_all_permits_leaves_the_others_their_share_within_a_second() {
    for nodes in [2, 3] {
        // With a permit for each client, the first node denies nothing, and has to ask what its
        // share is.
        for (most, clients) in [(10, 10), (10, 40), (64, 80)] {
            let loads: Vec<NodeLoad> = (0..nodes)
                .map(|node| NodeLoad {
                    clients,
                    from_ms: if node == 0 { 0 } else { 1_000 },
                    hold_ms: 10,
                })
                .collect();
            let measured = drive(most, 1, &loads, 5).await;
            for second in 1..5 {
                let used = measured.used(second);
                println!(
                    "{nodes} nodes, {most} permits, {clients} clients each, second {second}: {used:.3} {:?}",
                    (0..nodes)
                        .map(|node| format!("{:.3}", measured.share(node, second)))
                        .collect::<Vec<_>>()
                );
                for node in 0..nodes {
                    let share = measured.share(node, second);
                    let half = 0.5 / nodes as f64;
                    assert!(
                        share >= half,
                        "node {node} of {nodes} used {share:.2} of {most} in second {second}"
                    );
                }
                assert!(
                    second == 1 || used >= 0.97,
                    "{used:.3} of {most} were used in second {second}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_take_turns_with_permits_that_cannot_be_divided() {
    for (most, cost) in [(1, 1), (10, 6)] {
        let load = NodeLoad {
            clients: 3,
            from_ms: 0,
            hold_ms: 5,
        };
        let measured = drive(most, cost, &[load; 2], 6).await;
        let usable = (most / cost * cost) as f64 / most as f64;
        for second in 1..6 {
            let one = measured.share(0, second) / usable;
            let two = measured.share(1, second) / usable;
            println!("{most} permits, {cost} a request, second {second}: {one:.3} {two:.3}");
            assert!(
                one >= 0.25 && two >= 0.25,
                "{one:.2} and {two:.2} of {most} in second {second}"
            );
        }
        let used = (1..6).map(|second| measured.used(second)).sum::<f64>() / 5.0 / usable;
        assert!(used >= 0.97, "{used:.3} of {most} were used");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_little_to_do_leaves_the_rest_to_the_busy_one() {
    let busy = NodeLoad {
        clients: 40,
        from_ms: 0,
        hold_ms: 10,
    };
    let measured = drive(10, 1, &[busy, NodeLoad { clients: 2, ..busy }], 5).await;
    for second in 1..5 {
        let used = measured.used(second);
        let little = measured.share(1, second);
        assert!(
            little >= 0.15 && used >= 0.97,
            "{little:.2} and {used:.3} in all in second {second}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_run_keep_their_permits_whatever_others_want() {
    let store = SharedStore::memory();
    let one = node(&store, 2);
    let two = node(&store, 2);
    let checks = permits("k", 4);
    let mut inside = join_all((0..4).map(|_| enter(&one, &checks))).await;
    for _ in 0..50 {
        assert!(enter(&two, &checks).await.is_none());
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    inside.truncate(1);
    eventually("the other node has what came back", || async {
        join_all((0..3).map(|_| enter(&two, &checks)))
            .await
            .iter()
            .flatten()
            .count()
            == 3
    })
    .await;
}
