//! The one table of waits: what is waited for, how long, what begins the wait anew and what its end
//! means.
//!
//! Both codecs and both sides take their limits from here. Guarantees that no wait has two limits,
//! and that an ordinary request sets no timer. docs/internals/exchange.md shows the table, and a
//! test compares them.

#[cfg(test)]
mod tests;

use std::task::{Context, Poll};
use std::time::Duration;

use super::timer::Timer;
use tollgate_limiter::clock::{self, Instant};

/// Longer time limits are cut to this, so that no clock overflows.
pub const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The row of a wait in the table. The texts are those of docs/internals/exchange.md.
#[derive(Clone, Copy, Debug)]
pub struct WaitRow<S> {
    pub waits_for: &'static str,
    pub limit: WaitLimit<S>,
    pub begins_anew: &'static str,
    pub ends_in: &'static str,
}

/// Where the limit of a wait comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit<S> {
    /// From a setting of the listener or of the upstream.
    Setting(S),
    LongerOf(S, S),
    Fixed(Duration),
}

/// A wait that has a row in the table.
pub trait Wait: Copy + Eq {
    /// The settings that its limits come from.
    type Timeouts;

    /// The longest time that this wait may take.
    fn limit(self, timeouts: &Self::Timeouts) -> Duration;
}

/// The waits for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientWait {
    ProxyHeader,
    TlsHandshake,
    FirstByte,
    NextRequest,
    /// While the server drains, and after a GOAWAY.
    LastRequest,
    RequestHead,
    RequestBody,
    ClientTakes,
    UnreadContent,
    /// The whole close of a connection whose client has its last response, or was asked to close.
    Linger,
    /// `Linger` while the server drains or needs the room for others.
    ShortLinger,
    /// The next bytes within `Linger`.
    LingerPiece,
    /// The client takes the rest of a response that broke off.
    BrokenResponse,
    SettingsAck,
    SignOfLife,
    PingAnswer,
    LastStream,
}

/// The time limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSetting {
    Header,
    Keepalive,
    Body,
}

/// The values of a listener's time limits.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    header: Duration,
    keepalive: Duration,
    body: Duration,
}

/// The waits of an exchange with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamWait {
    Connect,
    /// A 100 comes, before the body is sent.
    Continue,
    /// The client sends more of the body.
    ClientSends,
    /// The upstream takes more of the request.
    UpstreamTakes,
    ResponseHead,
    ResponseBody,
    NextExchange,
    /// An answer to the PING that an upstream of HTTP/2 gets after an exchange has waited in vain.
    PingAnswer,
    /// A byte passes either way in a tunnel.
    Tunnel,
}

/// The time limits of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamSetting {
    Connect,
    Response,
    Idle,
    Keepalive,
    TunnelIdle,
}

/// The values of an upstream's time limits.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamTimeouts {
    connect: Duration,
    response: Duration,
    idle: Duration,
    keepalive: Duration,
    tunnel_idle: Duration,
}

/// A tunnel that carries no byte either way for this long is closed, unless its upstream says
/// otherwise. WebSockets are quiet for minutes. Without any bound, tunnels of vanished peers would
/// stay open for ever.
pub const TUNNEL_IDLE: Duration = Duration::from_secs(60 * 60);

const fn row<S>(
    waits_for: &'static str,
    limit: WaitLimit<S>,
    begins_anew: &'static str,
    ends_in: &'static str,
) -> WaitRow<S> {
    WaitRow {
        waits_for,
        limit,
        begins_anew,
        ends_in,
    }
}

const fn seconds<S>(seconds: u64) -> WaitLimit<S> {
    WaitLimit::Fixed(Duration::from_secs(seconds))
}

impl ClientWait {
    /// The row of this wait.
    #[inline]
    #[rustfmt::skip]
    pub const fn row(self) -> WaitRow<ClientSetting> {
        use ClientSetting as S;
        use WaitLimit::Setting;
        match self {
            Self::ProxyHeader => row("a PROXY protocol header, from the accept", Setting(S::Header), "never", "close, without an answer"),
            Self::TlsHandshake => row("the end of a TLS handshake, from its beginning", Setting(S::Header), "never", "close"),
            Self::FirstByte => row("the first byte of a new connection", Setting(S::Header), "never", "close, without an answer"),
            Self::NextRequest => row("the next request, with none under way", Setting(S::Keepalive), "a request ends", "close; HTTP/2: GOAWAY first"),
            Self::LastRequest => row("the first byte or the next request over HTTP/1, while the server drains, and over HTTP/2, after a GOAWAY", seconds(1), "a request ends", "close"),
            Self::RequestHead => row("the rest of a head, from its first byte", Setting(S::Header), "never", "408, close"),
            Self::RequestBody => row("the next piece of a request's body, while somebody reads it", Setting(S::Body), "a piece comes; with `min_body_rate`, by as much as its bytes may take", "408 if there is no response yet; HTTP/1: close"),
            Self::ClientTakes => row("the client to take more of a response", Setting(S::Body), "it takes anything; with `min_body_rate`, by as much as those bytes may take", "reset of the connection; HTTP/2: of the stream"),
            Self::UnreadContent => row("the end of an unread body of 64 KiB at most", Setting(S::Body), "never", "close"),
            Self::Linger => row("the client to read the last response before the close; 64 MiB at most", seconds(30), "never", "close"),
            Self::ShortLinger => row("the same, while the server drains or needs the room for others", seconds(1), "never", "close"),
            Self::LingerPiece => row("more of what such a client still sends", seconds(5), "a piece comes", "close"),
            Self::BrokenResponse => row("the client to take what came of a response whose end the close would mark, and that broke off", seconds(1), "never", "reset of the connection"),
            Self::SettingsAck => row("the acknowledgement of our SETTINGS over HTTP/2", WaitLimit::LongerOf(S::Header, S::Body), "anything comes, up to 128 KiB", "close"),
            Self::SignOfLife => row("a sign of life from a client of HTTP/2", seconds(30), "anything comes", "a PING"),
            Self::PingAnswer => row("the answer to the PING", seconds(10), "anything comes", "close"),
            Self::LastStream => row("the last requests that may come after a GOAWAY", Setting(S::Header), "never", "further ones are refused"),
        }
    }
}

impl UpstreamWait {
    /// The row of this wait.
    #[inline]
    #[rustfmt::skip]
    pub const fn row(self) -> WaitRow<UpstreamSetting> {
        use UpstreamSetting as S;
        use WaitLimit::Setting;
        match self {
            Self::Connect => row("a connection to an endpoint; three are tried at most", Setting(S::Connect), "another endpoint is tried", "504 `connect-timeout`"),
            Self::Continue => row("a 100 before the body", seconds(1), "never", "the body is sent"),
            Self::ClientSends => row("the client to send more of the body", Setting(S::Idle), "a piece comes", "408"),
            Self::UpstreamTakes => row("the upstream to take more of the body", Setting(S::Idle), "it takes anything", "504 `response-timeout`"),
            Self::ResponseHead => row("the response's head", Setting(S::Response), "the upstream takes more of the request's body", "504 `response-timeout`"),
            Self::ResponseBody => row("the next piece of the response's body", Setting(S::Idle), "a piece comes, or the upload moves", "the response is cut"),
            Self::NextExchange => row("the next exchange of an idle connection", Setting(S::Keepalive), "never", "close"),
            Self::PingAnswer => row("the answer to a PING, after an exchange over HTTP/2 has waited in vain", seconds(10), "never", "close"),
            Self::Tunnel => row("a byte either way in a tunnel", Setting(S::TunnelIdle), "a byte comes", "close"),
        }
    }
}

impl ClientTimeouts {
    pub fn new(header: Duration, keepalive: Duration, body: Duration) -> Self {
        Self {
            header: header.min(LONGEST_WAIT),
            keepalive: keepalive.min(LONGEST_WAIT),
            body: body.min(LONGEST_WAIT),
        }
    }

    fn get(&self, setting: ClientSetting) -> Duration {
        match setting {
            ClientSetting::Header => self.header,
            ClientSetting::Keepalive => self.keepalive,
            ClientSetting::Body => self.body,
        }
    }
}

impl UpstreamTimeouts {
    pub fn new(connect: Duration, response: Duration, idle: Duration, keepalive: Duration) -> Self {
        Self {
            connect: connect.min(LONGEST_WAIT),
            response: response.min(LONGEST_WAIT),
            idle: idle.min(LONGEST_WAIT),
            keepalive: keepalive.min(LONGEST_WAIT),
            tunnel_idle: TUNNEL_IDLE,
        }
    }

    /// Ends tunnels after this time without a byte.
    pub fn with_tunnel_idle(self, tunnel_idle: Duration) -> Self {
        Self {
            tunnel_idle: tunnel_idle.min(LONGEST_WAIT),
            ..self
        }
    }

    fn get(&self, setting: UpstreamSetting) -> Duration {
        match setting {
            UpstreamSetting::Connect => self.connect,
            UpstreamSetting::Response => self.response,
            UpstreamSetting::Idle => self.idle,
            UpstreamSetting::Keepalive => self.keepalive,
            UpstreamSetting::TunnelIdle => self.tunnel_idle,
        }
    }
}

impl Wait for ClientWait {
    type Timeouts = ClientTimeouts;

    #[inline]
    fn limit(self, timeouts: &ClientTimeouts) -> Duration {
        match self.row().limit {
            WaitLimit::Setting(setting) => timeouts.get(setting),
            WaitLimit::LongerOf(one, other) => timeouts.get(one).max(timeouts.get(other)),
            WaitLimit::Fixed(limit) => limit,
        }
    }
}

impl Wait for UpstreamWait {
    type Timeouts = UpstreamTimeouts;

    #[inline]
    fn limit(self, timeouts: &UpstreamTimeouts) -> Duration {
        match self.row().limit {
            WaitLimit::Setting(setting) => timeouts.get(setting),
            WaitLimit::LongerOf(one, other) => timeouts.get(one).max(timeouts.get(other)),
            WaitLimit::Fixed(limit) => limit,
        }
    }
}

/// The deadline of the wait that is under way on one side of a connection, whichever it is.
#[derive(Debug)]
pub struct Deadline<W: Wait> {
    timer: Timer,
    timeouts: W::Timeouts,
    /// The wait under way, and since when.
    under_way: Option<(W, Instant)>,
}

impl<W: Wait> Deadline<W> {
    pub fn new(timeouts: W::Timeouts) -> Self {
        Self {
            timer: Timer::default(),
            timeouts,
            under_way: None,
        }
    }

    /// Ready once `wait` has taken longer than it may. A wait that is not under way begins now.
    pub fn poll(&mut self, cx: &mut Context<'_>, wait: W) -> Poll<()> {
        self.poll_from(cx, wait, |now| now)
    }

    /// Like `poll`, for a wait that counts from `beginning` if it begins now.
    pub fn poll_from(
        &mut self,
        cx: &mut Context<'_>,
        wait: W,
        beginning: impl FnOnce(Instant) -> Instant,
    ) -> Poll<()> {
        let since = match self.under_way {
            Some((other, since)) if other == wait => since,
            _ => self.begin(wait, beginning(clock::now())),
        };
        self.timer.poll(cx, since + wait.limit(&self.timeouts))
    }

    /// The settings that the limits come from.
    pub fn timeouts(&self) -> &W::Timeouts {
        &self.timeouts
    }

    /// Begins `wait` at `now`.
    pub fn begin(&mut self, wait: W, now: Instant) -> Instant {
        self.under_way = Some((wait, now));
        now
    }

    /// Makes the wait under way a `wait` that has the same beginning.
    pub fn go_on_as(&mut self, wait: W) {
        if let Some((under_way, _)) = &mut self.under_way {
            *under_way = wait;
        }
    }

    /// Ends the wait under way: the awaited thing has come, or a piece of it. Returns the time from
    /// which the wait counted.
    pub fn end(&mut self) -> Option<Instant> {
        self.under_way.take().map(|(_, since)| since)
    }
}
