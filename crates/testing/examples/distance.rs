//! Puts a Redis at a distance, for benchmarks: `distance PORT REDIS_PORT MICROSECONDS`. What comes to
//! PORT goes to REDIS_PORT, and a command and its reply take so long on their way.

use std::time::Duration;

use tollgate_testing::topology::delaying_proxy::DelayingProxy;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [own, redis, micros] = arguments[..] else {
        eprintln!("distance PORT REDIS_PORT MICROSECONDS");
        std::process::exit(2);
    };
    let proxy = DelayingProxy::at(own as u16, redis as u16).await;
    proxy.round_trips_take(Duration::from_micros(micros));
    std::future::pending::<()>().await;
}
