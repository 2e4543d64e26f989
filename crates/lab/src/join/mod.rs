//! A control plane that is not the lab's own: what must hold before the lab joins it, who the lab's processes
//! are there, and how everything of the lab is removed from it.
//!
//! Whatever the lab makes there has the label [`LABEL`], and only what has it, or belongs to what has it, is
//! ever changed or deleted. The Namespace `evenkeel-system` with the label says that the whole installation
//! of Evenkeel is the lab's.

mod args;
mod clean;
mod identity;
mod outage;

pub use args::JoinArgs;
pub use clean::CleanError;
pub use identity::MachineIdentity;
pub use outage::{Component, Control};

use crate::running::{WITHOUT_INSTALLING, manifests};
use evenkeel_api::names;
use evenkeel_install::objects::INSTALLATION;
use evenkeel_net::{
    client::{ClientArgs, ClientError},
    log::causes,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
    config::Kubeconfig,
    core::PartialObjectMeta,
};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::net::TcpStream;

/// Label of everything that a lab makes on a control plane that it joined: key and value.
pub const LABEL: (&str, &str) = ("lab.evenkeel.io/joined", "true");

/// Minor versions of Kubernetes that the clients of Evenkeel speak.
const SUPPORTED: std::ops::RangeInclusive<u32> = 33..=36;

/// A kubelet that runs renews its Lease every 10 s.
const RENEWED_WITHIN: Duration = Duration::from_secs(12);

/// Time for a connection to an API server that has just answered a request. Three times what TCP needs where
/// its first SYN and the second one (1 s and 3 s, RFC 6298) are lost.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Why a lab does not join a control plane. Nothing was touched.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The kubeconfig.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The kubeconfig holds no usable certificate of an authority.
    #[error("cannot use the certificate authority of context `{context}`: {reason}")]
    Authority { context: String, reason: String },
    #[error("context `{context}`: {url} does not answer as an API server should: {}", causes(.source))]
    Refused {
        context: String,
        url: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(
        "context `{context}` is Kubernetes {found}; the lab joins 1.{} to 1.{}",
        SUPPORTED.start(),
        SUPPORTED.end()
    )]
    Version { context: String, found: String },
    #[error(
        "context `{context}`: {url} is not on this machine's loopback, so it cannot reach the lab's kubelets and \
         webhook there; name the address of this machine at which it can with --address IP"
    )]
    Elsewhere { context: String, url: String },
    #[error(
        "context `{context}`: {url} is not on this machine's loopback, so it cannot reach {address}; name \
         another address of this machine with --address IP"
    )]
    Loopback {
        context: String,
        url: String,
        address: IpAddr,
    },
    /// Pods are reached on the loopback of one machine alone.
    #[error(
        "context `{context}`: {url} is not on this machine's loopback, and elsewhere no API server reaches the pods of \
         --installed and --installable; join one that is, or leave the flag out"
    )]
    Far { context: String, url: String },
    /// Nothing can listen there.
    #[error("--address {address}: {reason}; name an address of this machine")]
    NotHere { address: IpAddr, reason: String },
    /// Its name or address leads nowhere.
    #[error("context `{context}`: cannot connect to {url}: {source}")]
    Unreachable {
        context: String,
        url: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "context `{context}` has nodes that are not a lab's ({names}), so it may be in use; join an empty control \
         plane"
    )]
    ForeignNodes { context: String, names: String },
    #[error(
        "context `{context}` has pods that are not a lab's ({names}), which would be scheduled onto simulated \
         machines; join an empty control plane"
    )]
    ForeignPods { context: String, names: String },
    #[error("a lab runs on context `{context}` already: node {node} renews its Lease; end that lab first")]
    Running { context: String, node: String },
    #[error(
        "context `{context}` has {object}, which no lab has made, so Evenkeel may be in use there; join a control \
         plane without it"
    )]
    Installed { context: String, object: String },
    /// Nobody has said that this is the right one.
    #[error("{0}")]
    Unconfirmed(String),
    /// The command that controls the control plane.
    #[error("{0}")]
    Control(String),
}

/// A control plane that a lab may join, and where both reach each other.
#[derive(Clone, Debug)]
pub struct Joinable {
    pub cluster: Cluster,
    /// What it says of itself: `v1.36.2`.
    pub version: String,
    /// Where the API server answers.
    pub api: SocketAddr,
    /// Where it reaches the lab, if that is not the loopback of the same machine.
    pub address: Option<IpAddr>,
}

/// The control plane of a kubeconfig's current context.
#[derive(Clone)]
pub struct Cluster {
    context: String,
    kubeconfig: PathBuf,
    client: Client,
    url: String,
    host: String,
    port: u16,
    server_name: String,
    authority: String,
    control: Option<Control>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { context, url, .. } = self;
        f.debug_struct("Cluster")
            .field("context", context)
            .field("url", url)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// The control plane of a kubeconfig's current context, if it is one that the lab may join. It reaches
    /// the lab at `address`, or on the loopback of this machine, and has to where Evenkeel is to run in pods.
    /// Only reads there.
    pub async fn reach(
        kubeconfig: &Path,
        control: Option<Control>,
        address: Option<IpAddr>,
        in_pods: bool,
    ) -> Result<Joinable, JoinError> {
        let cluster = Self::find(kubeconfig, control).await?;
        let near = local(&cluster.host, cluster.port);
        let (context, url) = (cluster.context.clone(), cluster.url.clone());
        match address {
            None if near.is_none() && in_pods => return Err(JoinError::Far { context, url }),
            None if near.is_none() => return Err(JoinError::Elsewhere { context, url }),
            None => {}
            Some(address) => {
                check_is_here(address)?;
                if near.is_none() && address.is_loopback() {
                    return Err(JoinError::Loopback {
                        context,
                        url,
                        address,
                    });
                }
            }
        }
        let version = cluster.check().await?;
        let api = match near {
            Some(api) => api,
            None => cluster.resolve().await?,
        };
        Ok(Joinable {
            cluster,
            version,
            api,
            address,
        })
    }

    /// The first of the API server's addresses that accepts a connection.
    async fn resolve(&self) -> Result<SocketAddr, JoinError> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let connected = tokio::time::timeout(CONNECT_WITHIN, connecting).await;
        let connected = connected.map_err(io::Error::from).flatten();
        connected
            .and_then(|stream| stream.peer_addr())
            .map_err(|source| JoinError::Unreachable {
                context: self.context.clone(),
                url: self.url.clone(),
                source,
            })
    }

    /// The control plane of a kubeconfig's current context, whatever it is. No request is made.
    pub async fn find(kubeconfig: &Path, control: Option<Control>) -> Result<Self, JoinError> {
        let args = ClientArgs {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..ClientArgs::default()
        };
        let access = args.access().await?;
        let (context, authority) = authority(kubeconfig)?;
        let config = access.config();
        let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let host = host(&config.cluster_url).to_owned();
        let server_name = config.tls_server_name.clone().unwrap_or_else(|| host.clone());
        Ok(Self {
            context,
            kubeconfig: kubeconfig.to_owned(),
            client: access.client("lab")?,
            url,
            port: config.cluster_url.port_u16().unwrap_or(443),
            host,
            server_name,
            authority,
            control,
        })
    }

    fn refused(&self, source: kube::Error) -> JoinError {
        JoinError::Refused {
            context: self.context.clone(),
            url: self.url.clone(),
            source: Box::new(source),
        }
    }

    /// The namespace of Evenkeel, where a lab has made it, and so everything of Evenkeel.
    async fn home(&self) -> kube::Result<Option<Namespace>> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get_opt(names::NAMESPACE).await?;
        Ok(found.filter(is_ours))
    }

    /// Whether it is one that the lab may use; its version.
    async fn check(&self) -> Result<String, JoinError> {
        let context = || self.context.clone();
        let refused = |source| self.refused(source);
        let version = self.client.apiserver_version().await.map_err(refused)?;
        if !is_supported(&version.major, &version.minor) {
            return Err(JoinError::Version {
                context: context(),
                found: version.git_version,
            });
        }
        let home = self.home().await.map_err(refused)?;
        let installed = home.as_ref().is_some_and(is_installed);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes
            .list_metadata(&ListParams::default())
            .await
            .map_err(refused)?;
        if let Some(names) = foreign(nodes.iter()) {
            return Err(JoinError::ForeignNodes {
                context: context(),
                names,
            });
        }
        let pods: Api<Pod> = Api::all(self.client.clone());
        let pods = pods
            .list_metadata(&ListParams::default())
            .await
            .map_err(refused)?;
        let foreign_pods = pods.iter().filter(|pod| !(installed && is_installed(*pod)));
        if let Some(names) = foreign(foreign_pods) {
            return Err(JoinError::ForeignPods {
                context: context(),
                names,
            });
        }
        let objects =
            WITHOUT_INSTALLING.map(|(text, origin)| manifests::parse(text, origin).unwrap_or_default());
        for object in objects.into_iter().flatten() {
            let found = manifests::get(&self.client, &object).await.map_err(refused)?;
            // Controllers of former versions made the webhook themselves, without a label.
            let of_controller = home.is_some() && object.name_any() == names::WEBHOOK_CONFIGURATION;
            let is_ours =
                |found: &DynamicObject| of_controller || is_ours(found) || installed && is_installed(found);
            if found.is_some_and(|found| !is_ours(&found)) {
                let object = manifests::described(&object);
                return Err(JoinError::Installed {
                    context: context(),
                    object,
                });
            }
        }
        self.check_is_idle().await?;
        Ok(version.git_version)
    }

    /// Whether no lab runs there: the kubelets of one renew the Leases of its nodes. Takes 12 s where a lab
    /// has left nodes.
    pub async fn check_is_idle(&self) -> Result<(), JoinError> {
        let refused = |source| self.refused(source);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes.list_metadata(&clean::labelled()).await.map_err(refused)?;
        let nodes: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), names::NODE_LEASE_NAMESPACE);
        let renewed = async || -> Result<Vec<(String, Option<String>)>, JoinError> {
            let all = leases
                .list_metadata(&ListParams::default())
                .await
                .map_err(refused)?;
            let ours = all.into_iter().filter(|lease| nodes.contains(&lease.name_any()));
            Ok(ours
                .map(|lease| (lease.name_any(), lease.resource_version()))
                .collect())
        };
        let before = renewed().await?;
        tokio::time::sleep(RENEWED_WITHIN).await;
        let after = renewed().await?;
        match after.into_iter().find(|lease| !before.contains(lease)) {
            Some((node, _)) => Err(JoinError::Running {
                context: self.context.clone(),
                node,
            }),
            None => Ok(()),
        }
    }

    /// Name of the context, for people.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The file that it was found by.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API server answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name that its certificate is checked against, whatever the address by which it is reached.
    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    /// Certificate of the authority that its certificate is of, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// By what its parts can be stopped.
    pub fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }
}

/// Marks an object as the lab's, and what is made of it: pods, and claims of volumes.
pub fn mark(object: &mut DynamicObject) {
    object.labels_mut().insert(LABEL.0.to_owned(), LABEL.1.to_owned());
    if let Some(template) = object.data.pointer_mut("/spec/template") {
        template["metadata"]["labels"][LABEL.0] = LABEL.1.into();
    }
    let claims = object.data.pointer_mut("/spec/volumeClaimTemplates");
    for claim in claims
        .and_then(serde_json::Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        claim["metadata"]["labels"][LABEL.0] = LABEL.1.into();
    }
}

/// Whether a lab has made it.
pub fn is_ours(object: &impl kube::Resource) -> bool {
    object
        .meta()
        .labels
        .as_ref()
        .is_some_and(|labels| labels.get(LABEL.0).is_some_and(|value| value == LABEL.1))
}

/// Whether it is of an installation in the namespace that labs install Evenkeel in.
fn is_installed(object: &impl kube::Resource) -> bool {
    let labels = object.meta().labels.as_ref();
    labels.is_some_and(|labels| labels.get(INSTALLATION).is_some_and(|of| of == names::NAMESPACE))
}

/// Some vendors write a `+` behind the minor version.
fn is_supported(major: &str, minor: &str) -> bool {
    let minor = minor.trim_end_matches('+').parse();
    major == "1" && minor.is_ok_and(|minor| SUPPORTED.contains(&minor))
}

/// The names of those that no lab has made; `None` if there are none.
fn foreign<'a, K: 'a>(objects: impl Iterator<Item = &'a PartialObjectMeta<K>>) -> Option<String>
where
    PartialObjectMeta<K>: kube::Resource,
{
    let names: Vec<String> = objects
        .filter(|object| !is_ours(*object))
        .map(ResourceExt::name_any)
        .collect();
    match names.as_slice() {
        [] => None,
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            Some(format!("{first}, {second}, {third} and {} more", rest.len()))
        }
        few => Some(few.join(", ")),
    }
}

/// Without the brackets of an IPv6 address, which belong to the URL.
fn host(url: &http::Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The address of a server on this machine's loopback.
fn local(host: &str, port: u16) -> Option<SocketAddr> {
    let address = match host {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        host => host.parse().ok()?,
    };
    address.is_loopback().then(|| SocketAddr::new(address, port))
}

/// Whether somebody elsewhere can be told that this is where the lab listens.
fn check_is_here(address: IpAddr) -> Result<(), JoinError> {
    let refused = |reason| Err(JoinError::NotHere { address, reason });
    if address.is_unspecified() || address.is_multicast() {
        return refused("it is no address of one machine".to_owned());
    }
    match std::net::TcpListener::bind((address, 0)) {
        Ok(_) => Ok(()),
        Err(error) => refused(error.to_string()),
    }
}

/// The current context's name, and the certificate of its cluster's authority, PEM.
fn authority(kubeconfig: &Path) -> Result<(String, String), JoinError> {
    let refused = |context: &str, reason: String| JoinError::Authority {
        context: context.to_owned(),
        reason,
    };
    let config = Kubeconfig::read_from(kubeconfig).map_err(|error| refused("", error.to_string()))?;
    let name = config.current_context.unwrap_or_default();
    let context = config.contexts.iter().find(|context| context.name == name);
    let cluster = context
        .and_then(|context| context.context.as_ref())
        .map(|context| context.cluster.as_str());
    let cluster = config
        .clusters
        .iter()
        .find(|one| Some(one.name.as_str()) == cluster);
    let cluster = cluster.and_then(|one| one.cluster.as_ref());
    let text = match cluster.map(|cluster| {
        (
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        )
    }) {
        Some((Some(data), _)) => base64::Engine::decode(&base64::prelude::BASE64_STANDARD, data)
            .map_err(|error| refused(&name, error.to_string()))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())?,
        Some((None, Some(file))) => {
            std::fs::read_to_string(file).map_err(|error| refused(&name, format!("{file}: {error}")))?
        }
        Some((None, None)) | None => {
            let reason = "its cluster has neither certificate-authority-data nor certificate-authority";
            return Err(refused(&name, reason.to_owned()));
        }
    };
    Ok((name, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("https://127.0.0.1:6443", Some("127.0.0.1:7"))]
    #[case("https://localhost", Some("127.0.0.1:7"))]
    #[case("https://[::1]:6443/", Some("[::1]:7"))]
    #[case("https://127.9.9.9:1", Some("127.9.9.9:7"))]
    #[case("https://10.0.0.1:6443", None)]
    #[case("https://prod.example:443", None)]
    fn only_a_server_on_loopback_reaches_that_of_the_lab(#[case] url: &str, #[case] at: Option<&str>) {
        let url = url.parse().unwrap();
        assert_eq!(local(host(&url), 7), at.map(|at| at.parse().unwrap()));
        assert!(!host(&url).contains('['), "no TLS server is called so");
    }

    #[rstest]
    #[case::of_this_machine("127.0.0.1", None)]
    // RFC 5737 and RFC 3849: of documentation, so of no machine.
    #[case::of_another("192.0.2.1", Some("Cannot assign requested address"))]
    #[case::of_another("2001:db8::1", Some("Cannot assign requested address"))]
    #[case::of_none("0.0.0.0", Some("no address of one machine"))]
    #[case::of_none("::", Some("no address of one machine"))]
    #[case::of_many("224.0.0.1", Some("no address of one machine"))]
    fn the_lab_listens_at_one_address_of_this_machine(#[case] address: &str, #[case] wrong: Option<&str>) {
        let checked = check_is_here(address.parse().unwrap()).map_err(|error| error.to_string());
        let Some(wrong) = wrong else {
            return assert_eq!(checked, Ok(()));
        };
        let error = checked.unwrap_err();
        assert!(
            error.starts_with(&format!("--address {address}: ")) && error.contains(wrong),
            "{error}"
        );
    }

    #[rstest]
    #[case("1", "32", false)]
    #[case("1", "33", true)]
    #[case("1", "36+", true)]
    #[case("1", "37", false)]
    #[case("2", "36", false)]
    #[case("1", "", false)]
    fn other_minor_versions_are_not_joined(#[case] major: &str, #[case] minor: &str, #[case] joined: bool) {
        assert_eq!(is_supported(major, minor), joined);
    }

    #[test]
    fn what_the_lab_makes_and_the_claims_that_are_made_of_it_are_marked() {
        let mut object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "labels": {"app": "db"}},
            "spec": {
                "template": {"metadata": {"labels": {"app": "db"}}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            },
        }))
        .unwrap();
        assert!(!is_ours(&object));
        mark(&mut object);
        assert!(is_ours(&object));
        let value = serde_json::to_value(&object).unwrap();
        assert_eq!(value["metadata"]["labels"]["app"], "db");
        let pods = &value["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&pods["app"], &pods[LABEL.0]), (&json!("db"), &json!("true")));
        assert_eq!(
            value["spec"]["volumeClaimTemplates"][0]["metadata"]["labels"][LABEL.0],
            "true"
        );
    }
}
