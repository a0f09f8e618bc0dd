//! A suite over SQLite, PostgreSQL and MariaDB: each test runs on a database of its own of each.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

/// Each test on each database.
macro_rules! over_all {
    ($($(#[$attribute:meta])* $name:ident),* $(,)?) => {
        over_all!(sqlite Sqlite: $($name)*);
        over_all!(postgres Postgres: $($name)*);
        over_all!(mariadb MariaDb: $($name)*);
    };
    ($module:ident $product:ident: $($name:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::servers::TestDatabase::new(crate::servers::Product::$product).await).await;
                }
            )*
        }
    };
}

mod commits;
mod concurrency;
mod drafts;
mod faults;
mod follow;
mod front;
mod history;
mod keys;
mod model;
mod people;
mod replaced;
mod schema;
mod servers;
