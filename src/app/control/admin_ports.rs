//! The admin port and the port of probes: open from the start, served once the gateway serves.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::plane::ControlPlane;
use super::services::OperatorServices;
use crate::app::optional::console::ConsoleControl;
use tollgate_admin::{self as admin, AdminPages};
use tollgate_server::{Drain, DrainSignal, drain, worker};

/// The ports, bound and not served yet.
pub struct OpenAdminPorts {
    admin: Option<AdminPort>,
    probes: Option<TcpListener>,
}

/// The port with all pages, among them those of the console.
struct AdminPort {
    listener: StdListener,
    console: Option<ConsoleControl>,
}

/// The ports at work.
pub struct ServedAdminPorts {
    /// The console, which keeps samples of the last minutes.
    pub console: Option<ConsoleControl>,
    drain: DrainSignal,
    /// Ends with the thread of the admin port.
    ended: oneshot::Receiver<()>,
}

impl OpenAdminPorts {
    /// Takes the sockets that were bound for `control`.
    ///
    /// # Errors
    /// When a socket cannot be used, or the system has no random numbers.
    pub fn new(control: &mut ControlPlane, services: &OperatorServices) -> anyhow::Result<Self> {
        let mut admin = None;
        if let Some((_, socket)) = control.admin.admin.take() {
            let listener = accepting(socket, "admin port open")?;
            let console = ConsoleControl::new(&listener, services.shown(control))?;
            admin = Some(AdminPort { listener, console });
        }
        let mut probes = None;
        if let Some((_, socket)) = control.admin.probes.take() {
            probes = Some(TcpListener::from_std(accepting(
                socket,
                "probe port open",
            )?)?);
        }
        Ok(Self { admin, probes })
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        let admin = self.admin.as_ref().map(|port| port.listener.local_addr());
        let probes = self.probes.as_ref().map(TcpListener::local_addr);
        admin.into_iter().chain(probes).flatten().collect()
    }

    /// Serves from now on: probes on this thread, and the admin port on a thread of its own. Its
    /// pages may take long to make, and nothing else is to wait for them.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn serve(
        self,
        control: &ControlPlane,
        services: &OperatorServices,
    ) -> anyhow::Result<ServedAdminPorts> {
        let (signal, drain) = drain::channel();
        if let Some(listener) = self.probes {
            let pages = AdminPages {
                router: admin::probes(services.state.clone()),
                gateway: control.shared.gateway.clone(),
                tls: None,
                hsts: None,
            };
            tokio::spawn(serve_pages(listener, pages, drain.clone()));
        }
        let (ending, ended) = oneshot::channel();
        let mut console = None;
        if let Some(port) = self.admin {
            let pages = admin_pages(control, services, port.console.as_ref());
            let listener = port.listener;
            worker::spawn("admin".to_owned(), move || async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve_pages(listener, pages, drain).await,
                    Err(error) => tracing::error!(%error, "the admin port failed"),
                }
                drop::<oneshot::Sender<()>>(ending);
            })
            .context("cannot start the thread of the admin port")?;
            console = port.console;
        }
        Ok(ServedAdminPorts {
            console,
            drain: signal,
            ended,
        })
    }
}

impl ServedAdminPorts {
    /// Takes no new connections. Requests may end within `limit`.
    pub fn drain(&self, limit: Duration) {
        self.drain.start(limit);
    }

    /// Waits until the last request of the admin port has ended.
    pub async fn ended(&mut self) {
        // An error says that the sender is gone, which is the end.
        let _ = (&mut self.ended).await;
    }
}

fn accepting(socket: StdListener, opened: &str) -> anyhow::Result<StdListener> {
    socket.set_nonblocking(true)?;
    tracing::info!(address = %socket.local_addr()?, "{opened}");
    Ok(socket)
}

fn admin_pages(
    control: &ControlPlane,
    services: &OperatorServices,
    console: Option<&ConsoleControl>,
) -> AdminPages {
    let mut extension = services.team.extension();
    if let (Some(console), Some(extension)) = (console, &mut extension) {
        console.add_to_index(extension);
    }
    let mut router = admin::router(services.state.clone(), extension);
    if let Some(console) = console {
        router = console.with_pages(router);
    }
    let spec = control.reloader.config.admin.as_ref();
    AdminPages {
        router,
        gateway: control.shared.gateway.clone(),
        tls: control.reloader.tls.admin(),
        hsts: spec.and_then(|admin| admin.hsts.clone()),
    }
}

async fn serve_pages(listener: TcpListener, pages: AdminPages, drain: Drain) {
    if let Err(error) = admin::serve(listener, pages, drain).await {
        tracing::error!(%error, "the admin port failed");
    }
}
