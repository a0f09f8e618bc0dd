//! `tollgate health`: says whether a gateway takes requests, for health checks of containers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::admin_client::{AdminCaArgs, AdminPort};
use super::arguments::duration;
use super::output::CommandOutput;
use tollgate_config::{self as config, ProbedAddress};
use tollgate_wire::transport::address::{canonical, is_wildcard};

/// Where the admin port is when the file cannot be read.
const DEFAULT_ADMIN: ProbedAddress = ProbedAddress {
    address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9901),
    needs_tls: false,
};

/// Say whether a running gateway takes requests, as its admin port's /readyz does.
///
/// Asks the admin port that the configuration file names, at its probe_address if it has one. The
/// file may have mistakes: a running gateway goes on without them. Needs no shell and no HTTP
/// client, so it serves as the health check of a container. Exit code 0: ready; 1: not ready, or
/// not reached in time; 2: the command line has a mistake.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate health
  tollgate health --admin http://10.0.0.7:9901 --timeout 500ms
  HEALTHCHECK CMD [\"tollgate\", \"health\", \"--config\", \"/etc/tollgate/routes.yaml\"]")]
pub struct HealthArgs {
    /// The configuration file, which says where the admin port is.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "routes.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    config: PathBuf,
    /// Ask this admin port, whatever the file says.
    #[arg(long, value_name = "URL", env = "TOLLGATE_ADMIN")]
    admin: Option<AdminPort>,
    #[command(flatten)]
    ca: AdminCaArgs,
    /// How long the whole question may take.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    timeout: Duration,
}

/// Does what the command line says.
///
/// # Errors
/// When the admin port is off, or is not reached in time.
pub fn run(args: &HealthArgs) -> anyhow::Result<CommandOutput> {
    let (admin, is_guess) = args.admin()?;
    let (status, body) = match admin.get("/readyz", args.timeout) {
        Err(error) if is_guess => {
            return Err(error.context(format!("{} cannot be read", args.config.display())));
        }
        answer => answer?,
    };
    let body = String::from_utf8_lossy(&body);
    let state = body.lines().next().unwrap_or_default();
    Ok(match state {
        "ready" if status.is_success() => CommandOutput::Done(format!("ready: {admin}\n")),
        "starting" | "draining" => CommandOutput::Refused(format!("not ready: {admin} is {state}")),
        _ => CommandOutput::Refused(format!(
            "not ready: {admin} answers {status}: is it the admin port of a gateway?"
        )),
    })
}

impl HealthArgs {
    /// The port to ask, and whether that is a guess: a file that is gone, or half written, says
    /// nothing of the gateway that runs.
    fn admin(&self) -> anyhow::Result<(AdminPort, bool)> {
        if let Some(admin) = &self.admin {
            return Ok((self.ca.apply_to(admin)?, false));
        }
        let file = self.config.display();
        let (probed, is_guess) = match config::load_probed(&self.config) {
            Ok(probed) => (probed, false),
            Err(_) => (Some(DEFAULT_ADMIN), true),
        };
        let Some(ProbedAddress { address, needs_tls }) = probed else {
            anyhow::bail!(
                "{file} turns the admin port off: there is nobody to ask. Remove `admin: off`"
            );
        };
        anyhow::ensure!(
            !needs_tls,
            "{file} has the admin port speak TLS, by a name that its certificate has: say it, --admin \
             https://NAME:{port}, or add `probe_address: 127.0.0.1:9902` to `admin`",
            port = address.port()
        );
        anyhow::ensure!(
            address.port() != 0,
            "{file} gives the admin port any free port: name it with --admin"
        );
        let admin = format!("http://{}", reachable(address)).parse();
        Ok((admin.map_err(anyhow::Error::msg)?, is_guess))
    }
}

/// The address to connect to for a server that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let address = canonical(address);
    if !is_wildcard(address.ip()) {
        return address;
    }
    let ip = match address.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_address_is_reached_on_the_loopback_one() {
        for (listens, asked) in [
            ("0.0.0.0:9901", "127.0.0.1:9901"),
            ("[::]:9901", "[::1]:9901"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
