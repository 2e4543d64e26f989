//! One machine: an agent with a runtime of its own, a kubelet, a link to the cloud.

use axum::Router;
use axum::routing::get;
use clap::Parser as _;
use evenkeel_agent::agent::PONG;
use evenkeel_agent::args::RunArgs;
use evenkeel_agent::boot::Boot;
use evenkeel_agent::check::Registry;
use evenkeel_agent::key::KeyFile;
use evenkeel_agent::rotation::Rotation;
use evenkeel_agent::state::{Memory, StateDir};
use evenkeel_agent::{Agent, Settings, key};
use evenkeel_api::names;
use evenkeel_api::zone::RosterSpec;
use evenkeel_election::Config as Election;
use evenkeel_election::flags::Candidacy;
use evenkeel_net::pki::{Ca, Identity, ServerNames, Validity};
use evenkeel_net::serve::{ServerTls, serve_https};
use evenkeel_settings::Configured;
use evenkeel_testkit::{Link, ServedApi, free_port};
use evenkeel_zone::keys::{PublicKey, SigningKey};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use socket2::{Domain, Socket, Type};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener, TcpStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service};

/// How long each step of a change of keys waits.
const OVERLAP: Duration = Duration::from_secs(2);
const CONFIG: &str = "agent.yaml";

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    run: Configured<RunArgs>,
}

fn write_config(directory: &Path, keys: &[&PublicKey]) {
    let keys: Vec<String> = keys.iter().map(|key| key.to_base64()).collect();
    let config = json!({
        "apiVersion": evenkeel_settings::file::API_VERSION,
        "kind": "AgentConfiguration",
        "rosterPublicKey": keys,
    });
    let temporary = directory.join("agent.yaml.new");
    std::fs::write(&temporary, config.to_string()).unwrap();
    std::fs::rename(temporary, directory.join(CONFIG)).unwrap();
}

/// The controllers' key, which signs rosters.
pub(crate) fn roster_key() -> SigningKey {
    SigningKey::from_seed(&[91; 32]).unwrap()
}

/// A machine that can lose its power and its link to the cloud.
pub(crate) struct Machine {
    pub(crate) name: String,
    directory: tempfile::TempDir,
    address: SocketAddr,
    client: Client,
    link: Link,
    pub(crate) requests: Requests,
    pub(crate) election: Election,
    kubelet: Kubelet,
    agent: Option<(Runtime, CancellationToken)>,
    pub(crate) admin: SocketAddr,
}

impl Machine {
    /// Its agent is a unit of the host: it has the credentials of the node's kubelet.
    pub(crate) async fn new(name: &str, api: &ServedApi) -> Self {
        let directory = tempfile::tempdir().unwrap();
        key::generate(&directory.path().join("agent.key")).unwrap();
        let requests = Requests::default();
        let link = api
            .link_as(
                name,
                &format!("system:node:{name}"),
                &["system:nodes", "system:authenticated"],
            )
            .await;
        write_config(directory.path(), &[roster_key().public()]);
        let access = link.access().await.pong_within(PONG).reading_once();
        Self {
            name: name.to_owned(),
            address: free_address(),
            admin: free_address(),
            client: access.client_with("agent", &requests).unwrap(),
            election: Election::new(name),
            directory,
            link,
            requests,
            kubelet: Kubelet::start(),
            agent: None,
        }
    }

    /// A new process of the agent, as far as a test can have one: nothing of it is left when its runtime
    /// ends.
    pub(crate) fn start_agent(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let configured = self.configured();
        let (args, changes) = configured.follow().unwrap();
        let changes = Some((changes, Registry::default()));
        let settings = Settings {
            election: Some(Candidacy {
                namespace: names::NAMESPACE.to_owned(),
                name: names::ZONE_LEASE_PREFIX.to_owned(),
                config: self.election.clone(),
            }),
            node: self.name.clone(),
            listen: self.address,
            advertise: self.address,
            admin: None,
            source: None,
            kubelet: Some(self.kubelet.address),
            kubelet_assumed: false,
            kubelet_advertise: Some(self.kubelet.address),
            zone_default: None,
            roster_keys: args.roster_public_key.clone(),
            period: Duration::from_millis(500),
            checks: args.settings(&Registry::default()).unwrap().checks,
        };
        let keys = Rotation::open(self.key_file(), OVERLAP).unwrap();
        let boot = Boot::read(None).unwrap();
        let state = StateDir::open(self.state_dir(), &self.name, &boot.id, 0).unwrap();
        let (client, address, admin) = (self.client.clone(), self.address, self.admin);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        runtime.spawn(async move {
            let socket = UdpSocket::bind(address).await.unwrap();
            let admin = Some(TcpListener::bind(admin).await.unwrap());
            let agent = Agent {
                settings,
                keys,
                boot,
                state,
                socket,
                client,
                admin,
                changes,
            };
            agent.run(stopped).await.unwrap();
        });
        self.agent = Some((runtime, stop));
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn key_file(&self) -> KeyFile {
        KeyFile::new(&self.key_path())
    }

    pub(crate) fn key_path(&self) -> PathBuf {
        self.directory.path().join("agent.key")
    }

    /// Its kubelet starts again with another certificate.
    pub(crate) fn renew_certificate(&mut self) {
        self.kubelet.serve();
    }

    /// The configuration file of its agent says these keys from now on.
    pub(crate) fn trusts(&self, keys: &[&PublicKey]) {
        write_config(self.directory.path(), keys);
    }

    fn configured(&self) -> Configured<RunArgs> {
        let file = self.directory.path().join(CONFIG);
        let address = self.address.to_string();
        let words = [
            "agent",
            "--node",
            &self.name,
            "--listen",
            &address,
            "--config",
            file.to_str().unwrap(),
        ];
        Cli::try_parse_from(words).unwrap().run
    }

    pub(crate) fn state_dir(&self) -> &Path {
        self.directory.path()
    }

    /// The roster that its agent has written down.
    pub(crate) fn remembers(&self) -> Option<RosterSpec> {
        RosterSpec::from_text(&self.memory()?.signed_roster?.text).ok()
    }

    /// All that its agent has written down.
    pub(crate) fn memory(&self) -> Option<Memory> {
        let text = std::fs::read(self.state_dir().join("agent-state.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// What its admin address answers.
    pub(crate) fn ask(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.admin)?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Ends the agent as SIGKILL does: nothing is told to anybody.
    pub(crate) fn kill_agent(&mut self) {
        if let Some((runtime, _)) = self.agent.take() {
            end(runtime);
        }
    }

    /// No agent, and a kubelet's port that does not answer.
    pub(crate) fn power_off(&mut self) {
        self.kill_agent();
        self.kubelet.fall_silent();
    }

    /// Closes its connections to the API server, and refuses others until the link is no longer cut.
    pub(crate) fn refuse_cloud(&self) {
        self.link.refuse();
    }

    /// Its agent starts again at another address.
    pub(crate) fn move_agent(&mut self) {
        self.kill_agent();
        self.address = free_address();
        self.start_agent();
    }

    pub(crate) fn cut_cloud(&self, cut: bool) {
        if cut {
            self.link.cut();
        } else {
            self.link.mend();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some((runtime, _)) = self.agent.take() {
            runtime.shutdown_background();
        }
    }
}

/// One that stays free while the agent is down.
fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port().unwrap()).into()
}

/// Ends everything that runs there. A runtime refuses to be waited for by a task of another.
fn end(runtime: Runtime) {
    let ended = std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(5))).join();
    ended.expect("a runtime ends without a panic");
}

/// The requests that an agent has made.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Vec<Exchange>>>);

/// A request, and the code of its answer, if one came.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: String,
    pub(crate) code: Option<u16>,
}

impl Requests {
    /// Those that were answered, or failed, since the last call.
    pub(crate) fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Whether one of them has all these words.
    pub(crate) fn has(&self, words: &[&str]) -> bool {
        let requests = self.0.lock().unwrap();
        let has = |exchange: &Exchange| words.iter().all(|word| exchange.request.contains(word));
        requests.iter().any(has)
    }
}

impl<S> Layer<S> for Requests {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let requests = self.clone();
        Counted { inner, requests }
    }
}

#[derive(Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    requests: Requests,
}

impl<S, B> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Future: Send + 'static>,
{
    type Response = http::Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let words = format!("{} {}", request.method(), request.uri());
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            requests.0.lock().unwrap().push(Exchange {
                request: words,
                code: answer.as_ref().ok().map(|answer| answer.status().as_u16()),
            });
            answer
        })
    }
}

/// A kubelet's serving port.
struct Kubelet {
    address: SocketAddr,
    /// Keeps the port listening after nobody accepts any more.
    port: Socket,
    runtime: Option<Runtime>,
    held: Vec<TcpStream>,
}

impl Kubelet {
    fn start() -> Self {
        evenkeel_net::init_crypto();
        let port = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        port.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        // The shortest queue: once nobody accepts, two connections fill it.
        port.listen(1).unwrap();
        port.set_nonblocking(true).unwrap();
        let address = port.local_addr().unwrap().as_socket().unwrap();
        let mut kubelet = Self {
            address,
            port,
            runtime: None,
            held: Vec::new(),
        };
        kubelet.serve();
        kubelet
    }

    /// With a new certificate, as after a restart.
    fn serve(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            end(runtime);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener: StdListener = self.port.try_clone().unwrap().into();
        let tls = ServerTls::new(&serving_certificate(), None).unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let app = Router::new().route("/healthz", get(|| async { "ok" }));
            serve_https(listener, tls, app, CancellationToken::new())
                .await
                .unwrap();
        });
        self.runtime = Some(runtime);
    }

    /// The kernel answers no SYN once the accept queue is full: the loopback's picture of a host without
    /// power.
    fn fall_silent(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            end(runtime);
        }
        assert_eq!(self.port.local_addr().unwrap().as_socket(), Some(self.address));
        while let Ok(stream) = TcpStream::connect_timeout(&self.address, Duration::from_millis(300)) {
            self.held.push(stream);
            assert!(self.held.len() < 20, "the queue never fills");
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn serving_certificate() -> Identity {
    let now = Timestamp::now().as_second();
    let validity = Validity {
        from: now - 60,
        until: now + 3_600,
    };
    let names = ServerNames {
        dns: vec![],
        ips: vec!["127.0.0.1".parse().unwrap()],
    };
    Ca::new("kubelets", validity)
        .unwrap()
        .issue_server("kubelet", &names, validity)
        .unwrap()
}
