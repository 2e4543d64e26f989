//! The server as tests hold it.

use crate::options::Options;
use crate::server::{ADMIN, ApiServer, ServerError};
use crate::traffic::{Fault, Interception, RecordedRequest, RequestFilter, Traffic};
use evenkeel_kube_rules::gvk::{Gvk, split_api_version};
use evenkeel_net::pki::{PkiError, ServerNames};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::Serialize;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// A Kubernetes API server for tests: in this process, ready in milliseconds, of its own for each test.
///
/// | to | call |
/// |---|---|
/// | start | [`start`](Self::start), or [`builder`](Self::builder) for [options](Options) (authorization, tokens, namespaces, history) and objects that are there from the start |
/// | make requests | [`client`](Self::client), [`client_as`](Self::client_as): without sockets, under paused time too |
/// | use another program or client library | [`kubeconfig`](Self::kubeconfig), [`kubeconfig_as`](Self::kubeconfig_as): the text of a file; TLS on a loopback port |
/// | make requests fail, wait, conflict or get lost | [`intercept`](Self::intercept) with a [`RequestFilter`] and a [`Fault`] |
/// | take the server off the network | [`outage`](Self::outage) |
/// | make watches begin anew | [`expire_history`](Self::expire_history) |
/// | see what was asked | [`requests`](Self::requests), [`count`](Self::count), [`clear_requests`](Self::clear_requests) |
/// | look at objects past faults and records | [`observer`](Self::observer) |
///
/// Where several faults fit a request, the one that was installed first acts, alone.
///
/// Any number of servers can run in one process; they share nothing. Dropping a server ends all its tasks,
/// connections and watches, and clients that are still there get errors. (A `kube::Client` has a task of its
/// own, which ends with its last clone.)
///
/// Under paused time (`#[tokio::test(start_paused = true)]`) use the clients inside the process: tokio's
/// clock runs on whenever a task waits for a socket, so that time-outs strike.
#[derive(Debug)]
pub struct TestServer {
    server: ApiServer,
    traffic: Traffic,
    outages: Arc<Mutex<usize>>,
    listener: OnceCell<Listener>,
}

/// The socket of a server.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    serving: AbortHandle,
    /// Bound to the same address and not listening: keeps it for this server while the listener is closed
    /// during an outage.
    _reserved: TcpSocket,
}

/// Why a [`TestServer`] could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum TestServerError {
    /// The server could not be made.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// What was given to [`TestServerBuilder::object`] is not what JSON can hold.
    #[error("an object cannot be written as JSON")]
    Object(#[source] serde_json::Error),
    /// What was given to [`TestServerBuilder::manifest`] is not YAML.
    #[error("the manifest is not YAML: {0}")]
    Manifest(String),
    /// An object names no kind, or one that is not served. A custom one is served once its definition has
    /// been created: name the definition before it.
    #[error("no such kind: apiVersion {api_version:?}, kind {kind:?}")]
    Kind {
        /// As the object says.
        api_version: String,
        /// As the object says.
        kind: String,
    },
    /// An object was refused.
    #[error("cannot create {kind} {name:?}")]
    Create {
        /// As in `Pod`.
        kind: String,
        /// Its name.
        name: String,
        /// The server's answer.
        source: Box<kube::Error>,
    },
    /// No loopback port could be had.
    #[error("cannot listen on a loopback port")]
    Listen(#[source] std::io::Error),
    /// The certificate of a kubeconfig could not be issued.
    #[error("cannot issue a certificate for the kubeconfig")]
    Certificate(#[from] PkiError),
}

/// How a [`TestServer`] starts. Made by [`TestServer::builder`].
#[derive(Debug, Default)]
#[must_use = "it does nothing until it is started"]
pub struct TestServerBuilder {
    options: Options,
    objects: Vec<Result<Value, TestServerError>>,
}

impl TestServerBuilder {
    /// Everything that can be set about a server.
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// An object that is there from the start: a type of `k8s-openapi`, a custom resource or its definition,
    /// or JSON. Objects are created in the order in which they are named, by the rules of the API. One
    /// without namespace, of a kind that has namespaces, is in `default`. A status is written afterwards.
    pub fn object(mut self, object: impl Serialize) -> Self {
        self.objects
            .push(serde_json::to_value(object).map_err(TestServerError::Object));
        self
    }

    /// The same of all objects in YAML, as `kubectl create -f` takes it.
    pub fn manifest(mut self, yaml: &str) -> Self {
        match serde_saphyr::from_multiple::<Value>(yaml) {
            Ok(objects) => self.objects.extend(objects.into_iter().map(Ok)),
            Err(error) => self
                .objects
                .push(Err(TestServerError::Manifest(error.to_string()))),
        }
        self
    }

    /// Starts the server. Call it inside a tokio runtime.
    pub async fn start(self) -> Result<TestServer, TestServerError> {
        let traffic = Traffic::default();
        let api = TestServer {
            server: ApiServer::under_test(self.options, traffic.clone())?,
            traffic,
            outages: Arc::default(),
            listener: OnceCell::new(),
        };
        for object in self.objects {
            api.create(object?).await?;
        }
        Ok(api)
    }
}

impl TestServer {
    /// Starts a server as Kubernetes 1.36 would be with RBAC, with the objects of a fresh cluster. Call it
    /// inside a tokio runtime.
    pub async fn start() -> Result<Self, TestServerError> {
        Self::builder().start().await
    }

    /// A server with options, or with objects that are there from the start.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::default()
    }

    /// A client inside the process, as a cluster administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(ADMIN.0, ADMIN.1)
    }

    /// A client inside the process, as a user in groups. `system:authenticated` is one of them anyway; with
    /// `system:masters` it may do everything, without it what Roles and ClusterRoles allow. The user is what
    /// tells the program under test from the test itself in [`requests`](Self::requests).
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        self.server.borrowed_client_as(user, groups)
    }

    /// A client inside the process for the test itself, as a cluster administrator: its requests are not
    /// recorded, no fault acts on them, and they are answered during an outage.
    pub fn observer(&self) -> kube::Client {
        self.server.borrowed_observer()
    }

    /// The text of a kubeconfig file (YAML) of a cluster administrator, with a client certificate. The first
    /// call opens a listener with TLS on a free port of `127.0.0.1`.
    pub async fn kubeconfig(&self) -> Result<String, TestServerError> {
        self.kubeconfig_as(ADMIN.0, ADMIN.1).await
    }

    /// The same of a user in groups.
    pub async fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<String, TestServerError> {
        let listening = self.listener.get_or_try_init(|| async { self.listen() }).await;
        let address = listening.map_err(TestServerError::Listen)?.address;
        Ok(self
            .server
            .kubeconfig(&format!("https://{address}"), user, groups)?)
    }

    /// Does something to the requests that `filter` selects, whoever makes them, until the guard is dropped.
    pub fn intercept(&self, filter: RequestFilter, fault: Fault) -> Interception {
        self.traffic.intercept(filter, fault)
    }

    /// Takes the server off the network until the guard is dropped: connections are refused, open ones are
    /// cut, watches end. Objects and history stay, so that watches can go on where they were. Several outages
    /// may overlap.
    pub fn outage(&self) -> Outage {
        *count(&self.outages) += 1;
        self.server.set_reachable(false);
        Outage {
            server: self.server.clone(),
            outages: self.outages.clone(),
            address: self.listener.get().map(|listener| listener.address),
        }
    }

    /// Forgets the past, as Kubernetes does after five minutes: a watch or a continued list from an older
    /// resourceVersion gets 410 `Expired`. Watches that are open go on.
    pub fn expire_history(&self) {
        self.server.forget_history();
    }

    /// All requests so far, in the order in which they came. Requests are kept until
    /// [`clear_requests`](Self::clear_requests).
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.traffic.requests()
    }

    /// How many requests so far are meant by a filter.
    pub fn count(&self, filter: &RequestFilter) -> usize {
        let requests = self.requests();
        requests.iter().filter(|request| filter.matches(request)).count()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.traffic.clear();
    }

    /// The server inside, for what has no method here.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    fn listen(&self) -> std::io::Result<Listener> {
        let reserved = TcpSocket::new_v4()?;
        reserved.set_reuseaddr(true)?;
        reserved.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = reserved.local_addr()?;
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let server = self.server.clone();
        let serving = tokio::spawn(async move {
            let ended = server
                .serve(socket, &ServerNames::default(), CancellationToken::new())
                .await;
            if let Err(error) = ended {
                tracing::error!(%address, %error, "the API server of a test does not listen");
            }
        });
        Ok(Listener {
            address,
            serving: serving.abort_handle(),
            _reserved: reserved,
        })
    }

    /// Creates an object of any kind.
    async fn create(&self, object: Value) -> Result<(), TestServerError> {
        if object.is_null() {
            // A document of YAML without content.
            return Ok(());
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = split_api_version(&api_version);
        let gvk = Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.clone(),
        };
        let unknown = || TestServerError::Kind {
            api_version: api_version.clone(),
            kind: kind.clone(),
        };
        let resource = self.server.resource(&gvk).ok_or_else(unknown)?;
        let (name, status) = (text(&object["metadata"]["name"]), object["status"].clone());
        let has_status = status.is_object() && resource.subresource("status").is_some();
        let refused = |source: kube::Error| TestServerError::Create {
            kind: kind.clone(),
            name: name.clone(),
            source: Box::new(source),
        };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let kind = GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind);
        let described = ApiResource::from_gvk_with_plural(&kind, &resource.gvr.resource);
        let client = self.observer();
        let api: Api<DynamicObject> = if resource.namespaced {
            Api::namespaced_with(client, namespace, &described)
        } else {
            Api::all_with(client, &described)
        };
        let object: DynamicObject = serde_json::from_value(object).map_err(TestServerError::Object)?;
        let created = api
            .create(&PostParams::default(), &object)
            .await
            .map_err(refused)?;
        if has_status {
            let name = created.metadata.name.unwrap_or_default();
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch)
                .await
                .map_err(refused)?;
        }
        Ok(())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // An outage that is still there does not bring it back.
        *count(&self.outages) += 1;
        self.server.crash();
        if let Some(listener) = self.listener.get() {
            listener.serving.abort();
        }
    }
}

/// The number of outages, which is whole at any time.
fn count(outages: &Mutex<usize>) -> std::sync::MutexGuard<'_, usize> {
    outages.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An outage of a [`TestServer`]. Dropping it ends the outage; a listener is back within moments after that,
/// for which [`end`](Self::end) waits.
#[derive(Debug)]
#[must_use = "dropping it ends the outage"]
pub struct Outage {
    server: ApiServer,
    outages: Arc<Mutex<usize>>,
    address: Option<SocketAddr>,
}

impl Outage {
    /// Ends the outage and waits until connections are accepted again, unless there is another outage.
    pub async fn end(self) {
        let (address, server) = (self.address, self.server.clone());
        drop(self);
        let Some(address) = address else { return };
        while server.is_up() && TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        let mut outages = count(&self.outages);
        *outages -= 1;
        if *outages == 0 {
            self.server.set_reachable(true);
        }
    }
}
