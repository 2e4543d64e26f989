//! The processes of the lab: what is started with which flags, and when it counts as ready.

use super::{Lab, Settings, SetupError, credentials, forwarder, node::LabNode};
use crate::{
    directory::Directory,
    supervise::{ChildSpec, ChildState, Supervised},
};
use evenkeel_api::names::{DEFAULT_ZONE, NAMESPACE, service_accounts};
use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

/// Time a process gets to become ready.
const READY_WITHIN: Duration = Duration::from_secs(45);
/// Admin port of the agents, on their inner addresses.
const AGENT_ADMIN: u16 = 9_101;
/// Port at which each controller serves its webhook, and the first one at which all of a lab do.
const WEBHOOK: u16 = 9_443;
/// Admin port of each controller.
const CONTROLLER_ADMIN: u16 = 9_103;

/// What runs beside the API server.
pub(super) struct CloudSide {
    address: Ipv4Addr,
    /// Address of this machine at which a control plane elsewhere reaches the webhook.
    outside: Option<IpAddr>,
    folder: PathBuf,
    pub(super) stock: Option<Supervised>,
    pub(super) controllers: Vec<Supervised>,
}

impl CloudSide {
    pub(super) fn new(settings: &Settings, directory: &Directory) -> Result<Self, SetupError> {
        Ok(Self {
            address: Ipv4Addr::new(127, 76, settings.subnet, 1),
            outside: settings.outside(),
            folder: directory.folder("cloud")?,
            stock: None,
            controllers: Vec::new(),
        })
    }

    pub(super) fn children(&self) -> impl Iterator<Item = &Supervised> {
        self.stock.iter().chain(&self.controllers)
    }

    fn at(&self, port: u16) -> SocketAddr {
        (self.address, port).into()
    }

    /// The address of a controller, counted from 1: each has one of its own, as a pod has.
    fn controller_at(&self, number: u8, port: u16) -> SocketAddr {
        let [a, b, subnet, _] = self.address.octets();
        (Ipv4Addr::new(a, b, subnet, number), port).into()
    }

    /// Where the API server finds the webhook of several controllers, or of any at all if it is on another
    /// machine. There labs share an address, so each has a port.
    fn service(&self) -> SocketAddr {
        let [a, b, subnet, _] = self.address.octets();
        match self.outside {
            Some(address) => (address, WEBHOOK + u16::from(subnet)).into(),
            None => (Ipv4Addr::new(a, b, subnet, 100), WEBHOOK).into(),
        }
    }
}

/// Flags, one after the other.
struct Flags(Vec<OsString>);

impl Flags {
    fn of(command: &str) -> Self {
        Self(vec![command.into()])
    }

    fn with(mut self, flag: &str, value: impl Into<OsString>) -> Self {
        self.0.push(flag.into());
        self.0.push(value.into());
        self
    }
}

impl Lab {
    /// The stand-in for the stock controllers.
    pub(super) async fn start_stock(&mut self) -> Result<(), SetupError> {
        let kubeconfig = self.cloud.folder.join("node-lifecycle.kubeconfig");
        let account = ("kube-system", "node-controller");
        self.write_kubeconfig(&kubeconfig, &self.url, account, None)
            .await?;
        let (stock, admin) = (self.settings.stock, self.cloud.at(9_102));
        let flags = Flags::of("node-lifecycle")
            .with("--kubeconfig", kubeconfig)
            .with("--node-monitor-period", stock.monitor_period.to_string())
            .with("--node-monitor-grace-period", stock.grace_period.to_string())
            .with("--admin", admin.to_string());
        self.cloud.stock = Some(self.start_child("node-lifecycle", flags, admin)?);
        ready(self.cloud.stock.iter()).await
    }

    /// The controllers, and an agent on each node.
    pub(super) async fn start_evenkeel(&mut self) -> Result<(), SetupError> {
        let kubeconfig = self.cloud.folder.join("controller.kubeconfig");
        let account = (NAMESPACE, service_accounts::CONTROLLER);
        self.write_kubeconfig(&kubeconfig, &self.url, account, None)
            .await?;
        let roster_key = self.cloud.folder.join("roster.key");
        self.generate_key(&roster_key).await?;
        let roster_public_key = self.public_key(&roster_key).await?;
        let count = self.settings.controllers;
        let webhook = if count == 1 && self.cloud.outside.is_none() {
            self.cloud.controller_at(1, WEBHOOK)
        } else {
            self.forward_webhook(count).await?
        };
        for number in 1..=count {
            let name = match count {
                1 => "controller".to_owned(),
                _ => format!("controller-{number}"),
            };
            let controller = self.start_controller(&name, number, (&kubeconfig, &roster_key), webhook)?;
            self.cloud.controllers.push(controller);
        }
        for node in &self.nodes {
            node.set_agent(self.start_agent(node, &roster_public_key).await?);
        }
        let agents = self.nodes.iter().filter_map(|node| node.agent());
        ready(self.cloud.controllers.iter().chain(agents)).await
    }

    fn start_controller(
        &self,
        name: &str,
        number: u8,
        (kubeconfig, roster_key): (&Path, &Path),
        webhook: SocketAddr,
    ) -> Result<Supervised, SetupError> {
        let admin = self.cloud.controller_at(number, CONTROLLER_ADMIN);
        let stock = self.settings.stock();
        let flags = Flags::of("controller")
            .with("--kubeconfig", kubeconfig)
            .with("--roster-key", roster_key)
            .with("--profile", self.settings.profile.name())
            .with("--zone-default", DEFAULT_ZONE)
            .with(
                "--webhook-listen",
                self.cloud.controller_at(number, WEBHOOK).to_string(),
            )
            .with("--webhook-url", format!("https://{webhook}"))
            .with(
                "--default-unreachable-toleration-seconds",
                stock.unreachable_toleration_seconds.to_string(),
            )
            .with("--node-monitor-grace-period", stock.grace_period.to_string())
            .with("--admin", admin.to_string());
        let program = self.settings.program.clone();
        self.start_as(program, name, flags, admin, Some(name.to_owned()))
    }

    /// One address in front of the webhooks of all controllers.
    async fn forward_webhook(&self, count: u8) -> Result<SocketAddr, SetupError> {
        let address = self.cloud.service();
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .map_err(|source| SetupError::Service { address, source })?;
        let replicas = (1..=count)
            .map(|number| self.cloud.controller_at(number, WEBHOOK))
            .collect();
        self.tasks
            .spawn(forwarder::forward(listener, replicas, self.shutdown.clone()));
        Ok(address)
    }

    async fn start_agent(&self, node: &LabNode, roster_public_key: &str) -> Result<Supervised, SetupError> {
        let plan = self.switch.plan();
        let (inner, outer) = (plan.inner(node.index()), plan.outer(node.index()));
        let kubeconfig = node.folder().join("agent.kubeconfig");
        let link = format!("https://{}", plan.cloud_link(node.index()));
        let account = (NAMESPACE, service_accounts::AGENT);
        self.write_kubeconfig(&kubeconfig, &link, account, Some(node.name()))
            .await?;
        let key = node.folder().join("agent.key");
        self.generate_key(&key).await?;
        let state = self.directory.folder(&format!("nodes/{}/state", node.name()))?;
        let admin = SocketAddr::from((inner, AGENT_ADMIN));
        let (program, flags) = self.agent();
        let flags = flags
            .with("--node", node.name())
            .with("--kubeconfig", kubeconfig)
            .with("--listen", format!("{inner}:{}", plan.agent_port))
            .with("--advertise", format!("{outer}:{}", plan.agent_port))
            .with("--key", key)
            .with("--roster-public-key", roster_public_key)
            .with("--state-dir", state)
            .with("--boot", node.boot_file())
            .with("--kubelet", plan.kubelet_inside(node.index()).to_string())
            .with(
                "--kubelet-advertise",
                plan.kubelet_of_peers(node.index()).to_string(),
            )
            .with("--zone-default", DEFAULT_ZONE)
            .with("--admin", admin.to_string());
        let name = format!("agent-{}", node.name());
        self.start_as(program, &name, flags, admin, None)
    }

    /// The program that agents run, and the arguments that make it one.
    fn agent(&self) -> (PathBuf, Flags) {
        match &self.settings.agent {
            Some(agent) => (agent.clone(), Flags(Vec::new())),
            None => (self.settings.program.clone(), Flags::of("agent")),
        }
    }

    /// A key of an earlier lab is used again: it is the same directory, so it is the same machine.
    async fn generate_key(&self, path: &Path) -> Result<(), SetupError> {
        if path.exists() {
            return Ok(());
        }
        self.handle_key("keygen", "--out", path).await.map(|_| ())
    }

    async fn public_key(&self, path: &Path) -> Result<String, SetupError> {
        let printed = self.handle_key("pubkey", "--key", path).await?;
        Ok(printed.trim().to_owned())
    }

    /// Has the agent's program do something with a key. Returns what it prints.
    async fn handle_key(&self, command: &str, flag: &str, path: &Path) -> Result<String, SetupError> {
        let failed = |reason: String| SetupError::NotReady {
            name: format!("`agent {command} {flag} {}`", path.display()),
            reason,
            log: self.directory.logs(),
        };
        let (program, flags) = self.agent();
        let output = tokio::process::Command::new(program)
            .args(flags.0)
            .args([command, flag])
            .arg(path)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(failed(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }

    pub(super) async fn write_kubeconfig(
        &self,
        path: &Path,
        server: &str,
        (namespace, account): (&str, &str),
        node: Option<&str>,
    ) -> Result<(), SetupError> {
        let token = credentials::token(&self.client, namespace, account, node)
            .await
            .map_err(|source| SetupError::Api {
                what: format!("get a token for {namespace}/{account}"),
                source: Box::new(source),
            })?;
        let text = credentials::kubeconfig(&self.plane, server, account, &token);
        Ok(self.directory.write_secret(path, &text)?)
    }

    fn start_child(&self, name: &str, flags: Flags, admin: SocketAddr) -> Result<Supervised, SetupError> {
        self.start_as(self.settings.program.clone(), name, flags, admin, None)
    }

    fn start_as(
        &self,
        program: PathBuf,
        name: &str,
        flags: Flags,
        admin: SocketAddr,
        candidate: Option<String>,
    ) -> Result<Supervised, SetupError> {
        let spec = ChildSpec {
            name: name.to_owned(),
            program,
            args: flags.0,
            candidate,
            log: self.directory.log(name),
            admin: Some(admin),
        };
        Ok(Supervised::start(spec, self.children.clone())?)
    }
}

/// Waits until each process says that it is ready.
async fn ready(children: impl Iterator<Item = &Supervised>) -> Result<(), SetupError> {
    let end = Instant::now() + READY_WITHIN;
    for child in children {
        let spec = child.spec();
        let Some(admin) = spec.admin else { continue };
        loop {
            let not_ready = |reason| SetupError::NotReady {
                name: spec.name.clone(),
                reason,
                log: spec.log.clone(),
            };
            if let ChildState::Crashed { refused: true, .. } = child.state() {
                return Err(not_ready(last_line(&spec.log)));
            }
            match is_ready(admin).await {
                Ok(()) => break,
                Err(reason) if Instant::now() > end => return Err(not_ready(reason)),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}

/// Asks `/readyz`.
async fn is_ready(admin: SocketAddr) -> Result<(), String> {
    let ask = async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = format!("GET /readyz?verbose HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(65_536).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(Duration::from_secs(2), ask)
        .await
        .map_err(|_| format!("{admin} does not answer"))?
        .map_err(|error| format!("{admin}: {error}"))?;
    let status = answer.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Err(format!(
        "{status}: {}",
        body.split_whitespace().collect::<Vec<_>>().join(" ")
    ))
}

fn last_line(log: &Path) -> String {
    match std::fs::read_to_string(log) {
        Ok(text) => text
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("it said nothing")
            .to_owned(),
        Err(error) => format!("its log cannot be read: {error}"),
    }
}
