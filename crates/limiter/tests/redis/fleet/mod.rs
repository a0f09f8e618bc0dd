//! Nodes of a fleet that crash, are cut off or are suspended, and what the others hold back.

mod held_back;
mod membership;
mod rights;

use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tollgate_limiter::store::redis::spec::RedisSpec;
use tollgate_testing::eventually;
use tollgate_testing::node::LimiterNode;
use tollgate_testing::redis::RedisServer;

/// A node on a thread of its own, as if it were another process.
struct OtherNode {
    orders: mpsc::Sender<Order>,
    thread: JoinHandle<()>,
}

enum Order {
    /// The process does nothing, and the system keeps its connections.
    Suspend,
    /// The process ends at once, and the system closes its connections.
    End,
}

impl OtherNode {
    async fn start(spec: &RedisSpec) -> Self {
        let (orders, receive) = mpsc::channel();
        let (started, is_started) = oneshot::channel();
        let spec = spec.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let node = LimiterNode::started(&spec).await;
                started.send(()).unwrap();
                let order = tokio::task::spawn_blocking(move || (receive.recv(), receive));
                let (order, receive) = order.await.unwrap();
                if matches!(order, Ok(Order::Suspend)) {
                    // Not asynchronous: it is the thread of all of the node's tasks.
                    let _ = receive.recv();
                }
                drop(node);
            });
        });
        is_started.await.unwrap();
        Self { orders, thread }
    }

    fn suspend(&self) {
        self.orders.send(Order::Suspend).unwrap();
    }

    fn end(self) {
        self.orders.send(Order::End).unwrap();
        self.thread.join().unwrap();
    }
}

/// Several beats of every node that is left: the others know the connection of each then.
async fn some_beats(server: &RedisServer) {
    let calls = server.script_calls();
    eventually("some beats pass", || async {
        server.script_calls() > calls + 8
    })
    .await;
}

/// A node that knows `nodes` nodes, itself included.
async fn node_among(nodes: u32, spec: &RedisSpec) -> LimiterNode {
    let node = LimiterNode::started(spec).await;
    eventually("it knows the others", || async {
        node.share.get().nodes() == nodes
    })
    .await;
    node
}
