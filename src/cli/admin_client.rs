//! A client of the admin port of a running gateway: one request on one connection, and its whole
//! answer.
//!
//! Not the proxy's client, which keeps connections, streams bodies and retries.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::{TcpStream, lookup_host};
use tollgate_limiter::limit::units::show_duration;

use super::output::CommandOutput;
use tollgate_admin::browser_guard::{OPERATOR, REASON};
use tollgate_admin::problem_details::ProblemDetails;
use tollgate_wire::transport::address::is_loopback;
use tollgate_wire::transport::tls::client::{ClientTls, ClientTlsSpec, HttpOffer, PeerName, Pem};
use tollgate_wire::transport::{ClearStream, Stream};

/// The longest wait for an answer: longer than the gateway takes for a document of all policies.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The largest answer: more than all changes of the largest document.
const MAX_ANSWER: usize = 512 << 20;

/// Bytes of a file with a token. A file may be a pipe, and be endless.
const MAX_TOKEN_FILE: u64 = 64 << 10;

/// Bytes of a file with authorities.
const MAX_CA_FILE: u64 = 16 << 20;

const TLS_HINT: &str =
    "  hint: name a file with the authority of its certificate: --admin-ca or TOLLGATE_ADMIN_CA";

const CLEAR_HINT: &str = "  hint: ask by https://…, or come by ssh -L or kubectl port-forward and ask \
     http://127.0.0.1:9901; without a token leave out --token-file and TOLLGATE_TOKEN";

/// All but the unreserved characters of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The place of an admin port, and how it is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPort {
    authority: Authority,
    /// Whether the port speaks TLS.
    is_secure: bool,
    /// The authorities that may have signed the port's certificate. `None`: those of the system.
    ca: Option<Pem>,
    /// The account that asks. `None`: nobody in particular.
    bearer: Option<HeaderValue>,
}

/// The admin port of a command, and the account that asks it.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// The admin port.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9901",
        env = "TOLLGATE_ADMIN"
    )]
    admin: AdminPort,
    #[command(flatten)]
    access: AdminAccessArgs,
}

/// How an admin port is known, and the account that asks it.
#[derive(Debug, Args)]
pub struct AdminAccessArgs {
    #[command(flatten)]
    ca: AdminCaArgs,
    /// A file with the token of an account, for a gateway with accounts. Otherwise the variable
    /// TOLLGATE_TOKEN has it.
    ///
    /// A token is sent over https:// alone, but to this machine.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// How an admin port with https:// is known.
#[derive(Debug, Args)]
pub struct AdminCaArgs {
    /// A PEM file of the authorities that the certificate of an admin port with https:// may be of.
    /// Otherwise those of the system.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_ADMIN_CA")]
    admin_ca: Option<PathBuf>,
}

impl AdminArgs {
    /// The port, asked by the token that was given.
    ///
    /// # Errors
    /// When the file of the token or of authorities cannot be read.
    pub fn port(&self) -> anyhow::Result<AdminPort> {
        self.access.apply_to(&self.admin)
    }
}

impl AdminCaArgs {
    /// `port`, known by the authorities that were given.
    ///
    /// # Errors
    /// When their file cannot be read.
    pub fn apply_to(&self, port: &AdminPort) -> anyhow::Result<AdminPort> {
        let mut port = port.clone();
        if let Some(file) = &self.admin_ca
            && port.is_secure
        {
            let authorities = bounded(file, MAX_CA_FILE)
                .with_context(|| format!("cannot read {}", file.display()))?;
            port.ca = Some(authorities.into());
        }
        Ok(port)
    }
}

impl AdminAccessArgs {
    /// `port`, asked by the token that was given.
    ///
    /// # Errors
    /// When the file of the token or of authorities cannot be read, or holds no token.
    pub fn apply_to(&self, port: &AdminPort) -> anyhow::Result<AdminPort> {
        let token = match &self.token_file {
            Some(file) => read_token(file)
                .with_context(|| format!("cannot read the token from {}", file.display()))?,
            None => std::env::var("TOLLGATE_TOKEN").unwrap_or_default(),
        };
        let token = token.trim();
        let mut port = self.ca.apply_to(port)?;
        if !token.is_empty() {
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            let mut bearer = bearer.ok().context("that is no token")?;
            bearer.set_sensitive(true);
            port.bearer = Some(bearer);
        }
        Ok(port)
    }
}

/// A request to the admin port.
#[derive(Clone, Debug, Default)]
pub struct AdminCall<'a> {
    pub method: Method,
    pub target: String,
    /// For changes.
    pub note: Option<&'a OperatorNote>,
    /// The version that a change is made upon (RFC 9110 §13).
    pub condition: Option<(HeaderName, HeaderValue)>,
    /// JSON.
    pub body: Bytes,
}

/// The operator who asks for a change, and the reason, for the gateway's log.
#[derive(Clone, Debug, Default)]
pub struct OperatorNote {
    operator: String,
    reason: Option<String>,
}

impl OperatorNote {
    /// A note of the operator who was named, or else of this process's user.
    pub fn new(operator: Option<&str>, reason: Option<String>) -> Self {
        let user = std::env::var("USER").unwrap_or_default();
        let operator = match operator {
            Some(operator) => operator.to_owned(),
            None if user.is_ascii() && !user.is_empty() => user,
            None => "tollgate".to_owned(),
        };
        Self { operator, reason }
    }
}

impl FromStr for AdminPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str =
            "write http://ADDRESS:PORT, such as http://127.0.0.1:9901, or https://NAME:PORT";
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let is_secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme != Scheme::HTTP => return Err(FORM),
            Some(_) | None => false,
        };
        let authority = uri.authority().ok_or(FORM)?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !is_bare || authority.as_str().contains('@') {
            return Err(FORM);
        }
        Ok(Self {
            authority: authority.clone(),
            is_secure,
            ca: None,
            bearer: None,
        })
    }
}

impl fmt::Display for AdminPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl AdminPort {
    /// Gets the page at `target`: its status and body.
    ///
    /// # Errors
    /// When the port cannot be reached, or has not answered within `limit`.
    pub fn get(&self, target: &str, limit: Duration) -> anyhow::Result<(StatusCode, Bytes)> {
        let call = AdminCall {
            target: target.to_owned(),
            ..AdminCall::default()
        };
        let answer = self.exchange(&call, limit)?;
        Ok((answer.status(), answer.into_body()))
    }

    /// Sends one request and hands the JSON it is answered with to `show`. `note`: for changes.
    ///
    /// # Errors
    /// When the port cannot be reached, or answers what makes no sense.
    pub fn ask(
        &self,
        method: Method,
        target: &str,
        note: Option<&OperatorNote>,
        show: impl FnOnce(&[u8]) -> anyhow::Result<String>,
    ) -> anyhow::Result<CommandOutput> {
        self.call(
            &AdminCall {
                method,
                target: target.to_owned(),
                note,
                ..AdminCall::default()
            },
            show,
        )
    }

    /// Sends one request and hands the JSON it is answered with to `show`.
    ///
    /// # Errors
    /// When the port cannot be reached, or answers what makes no sense.
    pub fn call(
        &self,
        call: &AdminCall<'_>,
        show: impl FnOnce(&[u8]) -> anyhow::Result<String>,
    ) -> anyhow::Result<CommandOutput> {
        self.call_for(call, |answer| show(answer.body()))
    }

    /// Sends one request and hands the answer, JSON with its header fields, to `show`.
    ///
    /// # Errors
    /// When the port cannot be reached, or answers what makes no sense.
    pub fn call_for(
        &self,
        call: &AdminCall<'_>,
        show: impl FnOnce(&Response<Bytes>) -> anyhow::Result<String>,
    ) -> anyhow::Result<CommandOutput> {
        let answer = self.exchange(call, TIMEOUT)?;
        let status = answer.status();
        if status.is_success() {
            let text = show(&answer)
                .with_context(|| format!("{self} is no admin port of this version"))?;
            return Ok(CommandOutput::Done(text));
        }
        let problem: ProblemDetails = serde_json::from_slice(answer.body()).with_context(|| {
            format!("{self} answers {status}: is it the admin port of a gateway?")
        })?;
        Ok(CommandOutput::Refused(show_problem(&problem)))
    }

    fn exchange(&self, call: &AdminCall<'_>, limit: Duration) -> anyhow::Result<Response<Bytes>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let sending =
            runtime.block_on(async { tokio::time::timeout(limit, self.send(call)).await });
        // Looking a name up blocks a thread of the runtime, which must not be waited for.
        runtime.shutdown_background();
        let answer = match sending {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("no answer within {}", show_duration(limit))),
        };
        answer.with_context(|| format!("cannot ask the admin port at {self}"))
    }

    fn host(&self) -> &str {
        let host = self.authority.host();
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// A connection to the port, and the port's name on it.
    async fn connect(&self) -> anyhow::Result<(Stream, String)> {
        let default_port = if self.is_secure { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(default_port);
        let addresses: Vec<SocketAddr> = lookup_host((self.host(), port)).await?.collect();
        self.check_token(&addresses)?;
        let socket = TcpStream::connect(&*addresses).await?;
        if !self.is_secure {
            // The address and not the name: changes are taken by address only (see
            // `admin::browser_guard`), and it is the same place.
            let address = socket.peer_addr()?.to_string();
            return Ok((socket.into(), address));
        }
        let tls = ClientTls::new(ClientTlsSpec {
            ca: self.ca.clone(),
            ..ClientTlsSpec::default()
        });
        let tls = tls.map_err(|error| {
            anyhow::anyhow!("no certificate can be verified: {error} (--admin-ca)")
        })?;
        let name = PeerName::parse(self.host()).context("no certificate can have this name")?;
        let stream = tls
            .connect(ClearStream::Tcp(socket), &name, HttpOffer::Http1)
            .await;
        let stream = stream.map_err(|error| {
            anyhow::anyhow!("no TLS connection that can be trusted: {error}\n{TLS_HINT}")
        });
        Ok((stream?.into(), self.authority.to_string()))
    }

    /// A token is nothing that others on its way may read.
    fn check_token(&self, addresses: &[SocketAddr]) -> anyhow::Result<()> {
        let is_here = addresses.iter().all(|address| is_loopback(address.ip()));
        anyhow::ensure!(
            self.bearer.is_none() || self.is_secure || is_here,
            "the token would go to {} in the clear\n{CLEAR_HINT}",
            self.authority
        );
        Ok(())
    }

    async fn send(&self, call: &AdminCall<'_>) -> anyhow::Result<Response<Bytes>> {
        let (stream, host) = self.connect().await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(&call.method)
            .uri(&call.target)
            .header(HOST, host);
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(note) = call.note {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .header(OPERATOR, text(&note.operator)?);
            if let Some(reason) = &note.reason {
                request = request.header(REASON, text(reason)?);
            }
        }
        if let Some((name, value)) = &call.condition {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(call.body.clone()))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        tokio::pin!(connection, exchange);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            // The connection ends with the answer's last byte, which nobody may have read yet.
            ended = &mut connection => match ended {
                Ok(()) => exchange.await.context("the connection was closed"),
                Err(error) => Err(error.into()),
            },
        }
    }
}

/// The text of a file with a token. An empty file is a mistake: its user means to ask by a token.
fn read_token(file: &Path) -> io::Result<String> {
    let text = String::from_utf8(bounded(file, MAX_TOKEN_FILE)?);
    let text = text.map_err(|_| io::Error::other("it is no text"))?;
    if text.trim().is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(text)
}

/// The content of a file, or of a pipe.
fn bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let read = File::open(path)?.take(most + 1).read_to_end(&mut content)?;
    if read as u64 > most {
        Err(io::Error::other("it is too large for such a file"))
    } else {
        Ok(content)
    }
}

/// A refusal as text for people: each mistake of policies on a line of its own.
pub fn show_problem(problem: &ProblemDetails) -> String {
    if problem.mistakes.is_empty() {
        let hint = show_hint(problem.hint.as_deref());
        return format!("{}{hint}", problem.detail);
    }
    let mut text = String::new();
    for mistake in &problem.mistakes {
        text.push_str(&mistake.file);
        if !mistake.path.is_empty() {
            text = text + ": " + &mistake.path;
        }
        text = text + ": " + &mistake.message + &show_hint(mistake.hint.as_deref()) + "\n";
    }
    let count = problem.mistakes.len();
    let mistakes = if count == 1 { "mistake" } else { "mistakes" };
    format!("{text}{count} {mistakes}")
}

fn show_hint(hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("\n  hint: {hint}"),
        None => String::new(),
    }
}

fn text(text: &str) -> anyhow::Result<HeaderValue> {
    anyhow::ensure!(
        text.is_ascii(),
        "the operator and the reason are written in ASCII"
    );
    Ok(HeaderValue::from_str(text)?)
}

/// `path?name=value&…`, encoded.
pub fn target(path: &[&str], pairs: &[(String, String)]) -> String {
    let mut target = String::new();
    for segment in path {
        target.push('/');
        target.extend(utf8_percent_encode(segment, RESERVED));
    }
    let mut separator = '?';
    for (name, value) in pairs {
        target.push(separator);
        target.extend(utf8_percent_encode(name, RESERVED));
        target.push('=');
        target.extend(utf8_percent_encode(value, RESERVED));
        separator = '&';
    }
    target
}
