//! `evenkeel vnode`: a fleet as a process.

mod args;

pub use args::{SecretName, ServeArgs};

use crate::fleet::{Fleet, Options};
use crate::ownership::Sharing;
use crate::provider::Provider;
use evenkeel_election::terms::{TermFile, TermFileError};
use evenkeel_election::unique_identity_of;
use evenkeel_kubelet_api::auth::Rules;
use evenkeel_kubelet_api::kubelet::{Certificate, Clients, KubeletApi, KubeletApiError};
use evenkeel_kubelet_api::listeners;
use evenkeel_kubelet_api::tls::files;
use evenkeel_kubelet_api::tls::signed::{self, Keep};
use evenkeel_net::admin::Admin;
use evenkeel_net::client::{Access, ClientError};
use prometheus_client::registry::Registry;
use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum VnodeError {
    /// A flag does not make sense.
    #[error("{0}")]
    Config(String),
    /// There is no API server to be found.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nothing can be kept in the directory.
    #[error("--state-dir {}: cannot be used", path.display())]
    State {
        /// Directory as given.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// No terms can be noted in the directory.
    #[error("--state-dir")]
    Terms(#[from] TermFileError),
    /// The admin address cannot be listened on.
    #[error("--admin {address}: cannot listen there")]
    Listen {
        /// Address as given.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The kubelet API's files are of no use.
    #[error("the kubelet API cannot be served")]
    Kubelet(#[from] KubeletApiError),
    /// The admin endpoints failed.
    #[error("cannot serve the admin endpoints")]
    Admin(#[source] std::io::Error),
}

impl VnodeError {
    /// 2 where flags or surroundings have to be changed, 1 where something failed later.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Client(ClientError::Build(_)) | Self::Admin(_) => 1,
            Self::Config(_)
            | Self::State { .. }
            | Self::Terms(_)
            | Self::Listen { .. }
            | Self::Client(_)
            | Self::Kubelet(_) => 2,
        }
    }
}

/// What a provider is made with.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// How the API server is reached.
    pub access: &'a Access,
    /// Where the nodes' kubelet APIs listen.
    pub address: IpAddr,
    /// The end of the process.
    pub stop: &'a CancellationToken,
}

/// A provider, ready to be served.
pub struct Prepared {
    /// Who runs the pods.
    pub provider: Arc<dyn Provider>,
    /// How many nodes there may be, for the limit of open files.
    pub nodes: usize,
    /// How many files the provider may have open at a time for each of them, for the same.
    pub files: usize,
    /// Changes the usual options.
    pub change: Box<dyn FnOnce(&mut Options) + Send>,
    /// Puts the provider's numbers beside the fleet's.
    pub metrics: Box<dyn FnOnce(&mut Registry) + Send>,
    /// Called once with the fleet; what it spawns ends with [`Surroundings::stop`]. It adds the nodes.
    pub begin: Box<dyn FnOnce(&Fleet) + Send>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// Virtual nodes of one provider as a process, until `shutdown`. Nodes and pods stay as they are. `name`: the
/// provider's, and its fleet's.
pub async fn run(
    args: ServeArgs,
    name: &'static str,
    prepare: impl AsyncFnOnce(Surroundings<'_>) -> Result<Prepared, VnodeError>,
    shutdown: CancellationToken,
) -> Result<(), VnodeError> {
    let candidacy = args
        .candidacy(name)
        .map_err(|error| VnodeError::Config(error.to_string()))?;
    let access = args.client.access().await?;
    let client = access.client("vnode")?;
    let address = match args.address {
        Some(address) => address,
        None => own_address(&access).await?,
    };
    // Whatever ends first ends the rest.
    let stop = shutdown.child_token();
    let surroundings = Surroundings {
        access: &access,
        address,
        stop: &stop,
    };
    let Prepared {
        provider,
        nodes,
        files,
        change,
        metrics,
        begin,
    } = prepare(surroundings).await?;
    let listener = TcpListener::bind(args.admin)
        .await
        .map_err(|source| VnodeError::Listen {
            address: args.admin,
            source,
        })?;
    let kubelet = match kubelet_api(&args, name, address)? {
        Some(api) => Some(api.prepare().await?),
        None => None,
    };

    // A listener for each node, the provider's own, and connections besides.
    let wanted = nodes * (files + usize::from(kubelet.is_some())) + 1024;
    match listeners::raise_file_limit() {
        Ok(limit) if limit < wanted as u64 => tracing::warn!(
            limit,
            wanted,
            nodes,
            "the limit of open files is too low for so many nodes: raise it (ulimit -Hn)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
    let mut options = Options::new(name, &*provider, vec![address]);
    change(&mut options);
    // What a provider asks of its pods is asked besides.
    if let Some(wanted) = &args.pod_selector {
        let own = options.selector.take().map(|own| format!("{own},{wanted}"));
        options.selector = Some(own.unwrap_or_else(|| wanted.clone()));
    }
    Arc::make_mut(&mut options.pods).fail_refused |= args.fail_refused_pods;
    options.nodes.type_label = args.node_type.clone();
    options.nodes.lease.interval = args.lease_renew_interval;
    options.nodes.lease.duration = args.lease_renew_interval * 4;
    if let Some(candidacy) = candidacy {
        options.sharing = Sharing::Slots {
            slots: args.slots,
            namespace: candidacy.namespace,
            name: candidacy.name,
            terms: terms(&args, &candidacy.config.identity)?,
            election: candidacy.config,
        };
    }
    if let Some(prepared) = kubelet {
        options.kubelet = Some(Arc::new(prepared.begin(&client, &stop)));
    }
    let fleet = Fleet::start(client, provider, options, stop.clone());
    let admin = Admin::new("vnode");
    begin(&fleet);
    tracing::info!(
        provider = name,
        %address,
        admin = %listener.local_addr().unwrap_or(args.admin),
        "serving virtual nodes"
    );
    admin.register(|registry| {
        fleet.register(registry);
        metrics(registry);
    });
    let settled = fleet.clone();
    admin.ready("nodes", move || {
        if settled.is_settled() {
            Ok(())
        } else {
            Err("of some nodes the pods are not known yet, or nothing was heard".to_owned())
        }
    });
    let served = admin.serve(listener, stop.clone()).await;
    stop.cancel();
    fleet.stopped().await;
    served.map_err(VnodeError::Admin)
}

fn kubelet_api(args: &ServeArgs, provider: &str, address: IpAddr) -> Result<Option<KubeletApi>, VnodeError> {
    if args.no_kubelet_api {
        return Ok(None);
    }
    let certificate =
        if let (Some(certificate), Some(key)) = (&args.tls_cert_file, &args.tls_private_key_file) {
            Certificate::Files(files::Files {
                certificate: certificate.clone(),
                key: key.clone(),
            })
        } else {
            let name = args
                .identity
                .clone()
                .unwrap_or_else(|| unique_identity_of("vnode"));
            let settings = signed::Settings {
                keep: keep(args, provider)?,
                ..signed::Settings::new(&name)
            };
            Certificate::Signed(settings, [address].into())
        };
    Ok(Some(KubeletApi {
        listeners: listeners::Settings {
            address,
            first_port: args.kubelet_port,
        },
        certificate,
        rules: Rules {
            anonymous: args.anonymous_auth,
            mode: args.authorization_mode,
        },
        clients: args
            .client_ca_file
            .clone()
            .map_or(Clients::Published, Clients::File),
    }))
}

/// Where a certificate that was requested outlives the process.
fn keep(args: &ServeArgs, provider: &str) -> Result<Option<Keep>, VnodeError> {
    if let Some(SecretName { namespace, name }) = args.certificate_secret.clone() {
        return Ok(Some(Keep::Secret { namespace, name }));
    }
    let Some(directory) = &args.state_dir else {
        return Ok(None);
    };
    // What is in it is a key.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| VnodeError::State {
        path: directory.clone(),
        source,
    })?;
    Ok(Some(Keep::File(directory.join(format!("vnode-{provider}.pem")))))
}

/// Where the terms of a fixed identity are noted: one that is drawn anew with each start has no predecessor.
fn terms(args: &ServeArgs, identity: &str) -> Result<Option<TermFile>, VnodeError> {
    match (&args.state_dir, &args.identity) {
        (Some(directory), Some(_)) => Ok(Some(TermFile::open(directory, identity)?)),
        _ => Ok(None),
    }
}

/// The address by which this machine reaches the API server: a datagram socket's, to which nothing is sent.
async fn own_address(access: &Access) -> Result<IpAddr, VnodeError> {
    let uri = &access.config().cluster_url;
    let unknown = |why: String| {
        VnodeError::Config(format!(
            "--address: cannot tell by which address nodes are reached ({why}); name it"
        ))
    };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let found = async {
        let mut last = std::io::Error::other(format!("{host} has no address"));
        for to in tokio::net::lookup_host((host.as_str(), port)).await? {
            let any: IpAddr = if to.is_ipv4() {
                std::net::Ipv4Addr::UNSPECIFIED.into()
            } else {
                std::net::Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 0)).await?;
            match socket.connect(to).await {
                Ok(()) => return socket.local_addr().map(|address| address.ip()),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    found
        .await
        .map_err(|error: std::io::Error| unknown(error.to_string()))
}
