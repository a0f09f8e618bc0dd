use std::fmt::{Debug, Write as _};
use std::future::poll_fn;

use super::*;

const CLIENT_WAITS: [ClientWait; 17] = [
    ClientWait::ProxyHeader,
    ClientWait::TlsHandshake,
    ClientWait::FirstByte,
    ClientWait::NextRequest,
    ClientWait::LastRequest,
    ClientWait::RequestHead,
    ClientWait::RequestBody,
    ClientWait::ClientTakes,
    ClientWait::UnreadContent,
    ClientWait::Linger,
    ClientWait::ShortLinger,
    ClientWait::LingerPiece,
    ClientWait::BrokenResponse,
    ClientWait::SettingsAck,
    ClientWait::SignOfLife,
    ClientWait::PingAnswer,
    ClientWait::LastStream,
];

const UPSTREAM_WAITS: [UpstreamWait; 9] = [
    UpstreamWait::Connect,
    UpstreamWait::Continue,
    UpstreamWait::ClientSends,
    UpstreamWait::UpstreamTakes,
    UpstreamWait::ResponseHead,
    UpstreamWait::ResponseBody,
    UpstreamWait::NextExchange,
    UpstreamWait::PingAnswer,
    UpstreamWait::Tunnel,
];

fn table<S: Debug>(rows: impl IntoIterator<Item = WaitRow<S>>) -> String {
    let mut table =
        "| waits for | limit | begins anew when | ends in |\n|---|---|---|---|\n".to_owned();
    for row in rows {
        let limit = match row.limit {
            WaitLimit::Setting(setting) => key(setting),
            WaitLimit::LongerOf(one, other) => {
                format!("the longer of {} and {}", key(one), key(other))
            }
            WaitLimit::Fixed(limit) => format!("{} s", limit.as_secs()),
        };
        writeln!(
            table,
            "| {} | {limit} | {} | {} |",
            row.waits_for, row.begins_anew, row.ends_in
        )
        .unwrap();
    }
    table
}

/// The key of a setting in the configuration.
fn key(setting: impl Debug) -> String {
    let words = format!("{setting:?}").replace("TunnelIdle", "Tunnel_Idle");
    format!("`{}_timeout`", words.to_lowercase())
}

#[test]
fn the_page_on_exchanges_shows_the_table_of_waits() {
    let page = include_str!("../../../../../docs/internals/exchange.md");
    for table in [
        table(CLIENT_WAITS.map(ClientWait::row)),
        table(UPSTREAM_WAITS.map(UpstreamWait::row)),
    ] {
        assert!(
            page.contains(&format!("\n{table}\n")),
            "docs/internals/exchange.md must have this table:\n\n{table}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_begins_with_its_first_poll_and_another_one_begins_anew() {
    let seconds = Duration::from_secs;
    let start = clock::now();
    let mut deadline = Deadline::new(ClientTimeouts::new(seconds(5), seconds(7), Duration::MAX));
    assert!(
        poll_fn(|cx| Poll::Ready(deadline.poll(cx, ClientWait::RequestHead)))
            .await
            .is_pending()
    );
    tokio::time::advance(seconds(4)).await;
    poll_fn(|cx| deadline.poll(cx, ClientWait::RequestHead)).await;
    assert_eq!(clock::now(), start + seconds(5));
    poll_fn(|cx| deadline.poll(cx, ClientWait::NextRequest)).await;
    assert_eq!(clock::now(), start + seconds(12));
    deadline.end();
    poll_fn(|cx| deadline.poll(cx, ClientWait::NextRequest)).await;
    assert_eq!(clock::now(), start + seconds(19));
    assert!(
        poll_fn(|cx| Poll::Ready(deadline.poll(cx, ClientWait::RequestBody)))
            .await
            .is_pending()
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_goes_on_as_another_one_keeps_its_beginning() {
    let seconds = Duration::from_secs;
    let start = clock::now();
    let mut deadline = Deadline::new(ClientTimeouts::new(seconds(5), seconds(60), seconds(5)));
    deadline.begin(ClientWait::NextRequest, start);
    tokio::time::advance(Duration::from_millis(400)).await;
    deadline.go_on_as(ClientWait::LastRequest);
    poll_fn(|cx| deadline.poll(cx, ClientWait::LastRequest)).await;
    assert_eq!(clock::now(), start + seconds(1));
}
