//! The embedded API server as a command of its own.

mod files;
#[cfg(test)]
mod tests;

use crate::kubelet::{KubeletOptions, KubeletTrust, check_authority};
use crate::options::Options;
use crate::server::{ADMIN, ApiServer, ServerError};
use clap::{Args, ValueEnum};
use evenkeel_net::pki::{Ca, PkiError, ServerNames};
use files::{Pending, read_if_there};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Runs the embedded Kubernetes API server alone: for tests and experiments, never for production.
#[derive(Args, Clone, Debug)]
pub struct ApiServerArgs {
    /// TCP port; 0 picks a free one.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,

    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,

    /// Where to write a kubeconfig of a cluster administrator (mode 0600).
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,

    /// Where to write ca.crt, ca.key, admin.crt and admin.key (mode 0600); an authority that is there is used
    /// again.
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// How long pods stay on a node that is not ready, unless they say so themselves.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(i64).range(0..))]
    pub default_not_ready_toleration_seconds: i64,

    /// How long pods stay on a node that cannot be reached, unless they say so themselves.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(i64).range(0..))]
    pub default_unreachable_toleration_seconds: i64,

    /// Whether requests without credentials are served as system:anonymous.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub anonymous_auth: bool,

    /// Who may do what.
    #[arg(long, value_enum, default_value_t = AuthorizationMode::Rbac)]
    pub authorization_mode: AuthorizationMode,

    /// Types of node addresses at which kubelets are called, the preferred one first.
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "InternalIP,ExternalIP,Hostname"
    )]
    pub kubelet_preferred_address_types: Vec<String>,

    /// Authorities of kubelets' serving certificates, PEM; without it the server's own, which signs requests
    /// for kubernetes.io/kubelet-serving.
    #[arg(long, value_name = "FILE", conflicts_with = "kubelet_insecure_tls")]
    pub kubelet_certificate_authority: Option<PathBuf>,

    /// Accept any serving certificate of a kubelet, as kubeadm's clusters do.
    #[arg(long)]
    pub kubelet_insecure_tls: bool,

    /// Approve requests for kubernetes.io/kubelet-serving of a kubelet for its own names, and of those who
    /// may approve them. Trusts nodes to tell their addresses; those of this server, of another node, and
    /// loopback ones without --proxy-to-any-address wait for an administrator.
    #[arg(long)]
    pub approve_kubelet_serving: bool,

    /// Let nodes/proxy, pods/proxy and services/proxy reach loopback and link-local addresses, too, and
    /// --approve-kubelet-serving approve loopback ones.
    #[arg(long)]
    pub proxy_to_any_address: bool,
}

/// Who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthorizationMode {
    /// What Roles and ClusterRoles allow.
    Rbac,
    /// Every user may do everything.
    AlwaysAllow,
}

/// Why the command ended. [`CliError::exit_code`] tells mistakes of the caller from failures.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file or directory of the command line cannot be written. Nothing was started.
    #[error("--{flag} {}: {why}; name a place that can be written", path.display())]
    Unwritable {
        /// Flag without dashes.
        flag: &'static str,
        /// Its value, or a file in it.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The authority in `--cert-dir` cannot be used. Nothing was started.
    #[error("--cert-dir {}: {why}; remove ca.crt and ca.key there to have new ones made", path.display())]
    Authority {
        /// The directory that the flag names.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// `--kubelet-certificate-authority` cannot be read. Nothing was started.
    #[error("--kubelet-certificate-authority {}: {why}; name a file with PEM certificates", path.display())]
    KubeletAuthority {
        /// The file that the flag names.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The address is taken. Nothing was started.
    #[error("{address} is taken by another process; choose another --port, or --port 0 for any")]
    PortTaken {
        /// Address and port.
        address: SocketAddr,
    },
    /// The address cannot be listened on. Nothing was started.
    #[error("cannot listen on {address}: {why}; choose another --bind or --port")]
    Listen {
        /// Address and port.
        address: SocketAddr,
        /// What is wrong.
        why: String,
    },
    /// The server could not be made.
    #[error("cannot start the API server")]
    Start(#[from] ServerError),
    /// A certificate could not be issued.
    #[error("cannot issue a certificate")]
    Certificate(#[from] PkiError),
    /// The server ran and failed.
    #[error("the API server failed")]
    Serve(#[source] std::io::Error),
}

impl CliError {
    /// 2 for what the caller can mend on the command line, 1 for anything later.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unwritable { .. }
            | Self::Authority { .. }
            | Self::KubeletAuthority { .. }
            | Self::PortTaken { .. }
            | Self::Listen { .. } => 2,
            Self::Start(_) | Self::Certificate(_) | Self::Serve(_) => 1,
        }
    }
}

/// Serves until `shutdown`. Prints one line once it listens. What the command line asks to write is tried
/// before anything is started, and appears at its place as a whole or not at all.
pub async fn run(args: ApiServerArgs, shutdown: CancellationToken) -> Result<(), CliError> {
    run_to(args, shutdown, &mut std::io::stdout()).await
}

async fn run_to(
    args: ApiServerArgs,
    shutdown: CancellationToken,
    out: &mut impl Write,
) -> Result<(), CliError> {
    let mut kubeconfig = match &args.kubeconfig_out {
        Some(path) => Some(Pending::new("kubeconfig-out", path)?),
        None => None,
    };
    let certificates = match &args.cert_dir {
        Some(dir) => Some(CertDir::open(dir)?),
        None => None,
    };
    let options = args.options()?;
    if let Some(warning) = args.warning() {
        tracing::warn!("{warning}");
    }
    let asked = SocketAddr::new(args.bind, args.port);
    let listener = TcpListener::bind(asked)
        .await
        .map_err(|error| listen_error(asked, &error))?;
    let address = listener
        .local_addr()
        .map_err(|error| listen_error(asked, &error))?;

    let server = match certificates.as_ref().and_then(|dir| dir.authority.clone()) {
        Some((certificate, key)) => ApiServer::with_ca(options, Ca::from_pem(&certificate, &key)?)?,
        None => ApiServer::new(options)?,
    };
    if let Some(dir) = certificates {
        dir.write(&server)?;
    }
    let url = url(address);
    let usage = match (&mut kubeconfig, &args.kubeconfig_out) {
        (Some(pending), Some(path)) => {
            pending.write(&server.kubeconfig(&url, ADMIN.0, ADMIN.1)?)?;
            format!(
                "use it with: kubectl --kubeconfig {} get namespaces",
                path.display()
            )
        }
        _ => "--kubeconfig-out FILE would write a kubeconfig for it".to_owned(),
    };
    // Standard output may be closed: nobody reads the line then, and the server serves all the same.
    if let Err(error) = writeln!(out, "API server listens on {url}; {usage}").and_then(|()| out.flush()) {
        tracing::warn!(%error, "cannot say on standard output where the API server listens");
    }
    server
        .serve(listener, &ServerNames::default(), shutdown)
        .await
        .map_err(CliError::Serve)
}

impl ApiServerArgs {
    /// What the operator should know of these settings before somebody else finds out.
    fn warning(&self) -> Option<String> {
        if self.authorization_mode != AuthorizationMode::AlwaysAllow {
            return None;
        }
        let who = if self.anonymous_auth {
            "everybody who reaches this server may do everything, without a credential"
        } else {
            "every user with a credential may do everything"
        };
        let whence = if self.bind.is_loopback() {
            String::new()
        } else {
            format!(", and --bind {} lets other machines reach it", self.bind)
        };
        Some(format!(
            "--authorization-mode always-allow: {who}{whence}; leave the flag out to have RBAC decide"
        ))
    }

    fn options(&self) -> Result<Options, CliError> {
        Ok(Options {
            default_not_ready_toleration_seconds: self.default_not_ready_toleration_seconds,
            default_unreachable_toleration_seconds: self.default_unreachable_toleration_seconds,
            anonymous_auth: self.anonymous_auth,
            rbac: self.authorization_mode == AuthorizationMode::Rbac,
            approve_kubelet_serving: self.approve_kubelet_serving,
            kubelet: KubeletOptions {
                address_types: self.kubelet_preferred_address_types.clone(),
                trust: self.kubelet_trust()?,
                proxy_to_any_address: self.proxy_to_any_address,
                ..KubeletOptions::default()
            },
            ..Options::default()
        })
    }

    fn kubelet_trust(&self) -> Result<KubeletTrust, CliError> {
        let Some(path) = &self.kubelet_certificate_authority else {
            return Ok(if self.kubelet_insecure_tls {
                KubeletTrust::Anything
            } else {
                KubeletTrust::ServerCa
            });
        };
        let refuse = |why: String| CliError::KubeletAuthority {
            path: path.clone(),
            why,
        };
        let pem = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        check_authority(&pem).map_err(|error| refuse(error.to_string()))?;
        Ok(KubeletTrust::Authority(pem))
    }
}

fn listen_error(address: SocketAddr, error: &std::io::Error) -> CliError {
    match error.kind() {
        ErrorKind::AddrInUse => CliError::PortTaken { address },
        _ => CliError::Listen {
            address,
            why: error.to_string(),
        },
    }
}

/// Where clients on this machine reach the server.
fn url(mut address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        _ => {}
    }
    format!("https://{address}")
}

/// The directory of `--cert-dir`.
struct CertDir {
    /// Certificate and key, PEM, if both were there.
    authority: Option<(String, String)>,
    files: [Pending; 4],
}

impl CertDir {
    fn open(dir: &Path) -> Result<Self, CliError> {
        std::fs::create_dir_all(dir).map_err(|error| CliError::Unwritable {
            flag: "cert-dir",
            path: dir.to_owned(),
            why: error.to_string(),
        })?;
        let authority_error = |why: String| CliError::Authority {
            path: dir.to_owned(),
            why,
        };
        let read = |name: &str| {
            read_if_there(&dir.join(name)).map_err(|error| authority_error(format!("{name}: {error}")))
        };
        let authority = match (read("ca.crt")?, read("ca.key")?) {
            (Some(certificate), Some(key)) => {
                Ca::from_pem(&certificate, &key).map_err(|error| authority_error(error.to_string()))?;
                Some((certificate, key))
            }
            (None, None) => None,
            _ => return Err(authority_error("one of ca.crt and ca.key is missing".to_owned())),
        };
        let pending = |name: &str| Pending::new("cert-dir", &dir.join(name));
        Ok(Self {
            authority,
            files: [
                pending("ca.crt")?,
                pending("ca.key")?,
                pending("admin.crt")?,
                pending("admin.key")?,
            ],
        })
    }

    fn write(mut self, server: &ApiServer) -> Result<(), CliError> {
        let admin = server.client_certificate(ADMIN.0, ADMIN.1)?;
        let texts = [
            server.ca().certificate_pem(),
            server.ca().key_pem(),
            &admin.certificate_pem,
            &admin.key_pem,
        ];
        for (file, text) in self.files.iter_mut().zip(texts) {
            file.write(text)?;
        }
        Ok(())
    }
}
