//! A fake Koupleless base: arklet's HTTP and MQTT tunnels and its heartbeat over a model of sofa-ark's life
//! cycle of modules. What it says is what was recorded of arklet 1.4.2, as far as a reader of JSON can tell.
//! Jars are entries of a catalogue and say themselves how they behave.
//!
//! Light enough for a thousand in one process: a base that nobody talks to is three sleeping tasks: its
//! listener, its heartbeat, its MQTT tunnel.
//!
//! What the recordings do not show and is assumed here: a start beyond the maximum of the metaspace fails
//! with `java.lang.OutOfMemoryError: Metaspace`; the text of `help` for batches; the pool for asynchronous
//! commands is never full.
//!
//! ```no_run
//! use evenkeel_testkit::arklet::{Base, Jar, Jars, Setup, Start, Thrown};
//!
//! # async fn test() {
//! let boom = Thrown::new("java.lang.IllegalStateException", "no port");
//! let jars = Jars::new()
//!     .with("http://jars/shop-1.jar", Jar::new("shop", "1").metaspace(8 << 20))
//!     .with("http://jars/shop-2.jar", Jar::new("shop", "2").start(Start::Fails(boom)));
//! let base = Base::start(Setup { ip: [127, 0, 3, 7].into(), jars, ..Setup::default() });
//! base.heartbeat_to("http://127.0.0.1:7777");
//! base.install_by_hand("http://jars/shop-1.jar").await;
//! base.hang_on("health");
//! assert_eq!(base.requests("installBiz"), 0);
//! base.restart().await;
//! assert!(base.modules().is_empty());
//! # }
//! ```

mod bean;
mod engine;
mod heartbeat;
mod http;
mod jar;
mod java;
mod live;
mod mqtt;
mod world;

#[cfg(test)]
mod tests;

pub use engine::{BizState, Flags, Metaspace};
pub use heartbeat::Heartbeats;
pub use jar::{Download, Jar, Jars, Start, Thrown};
pub use java::{Frame, Throwable};
pub use live::Request;
pub use mqtt::MqttTunnel;
pub use world::{Carrier, Machine, Moment, RealWorld, World};

use crate::ports;
use engine::{Engine, Ground, Output};
use live::{Conduct, Inner, Ledger, Live};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What a base tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `identity`; a stock base has its IP address here.
    pub id: String,
    /// `name`.
    pub name: String,
    /// `version`.
    pub version: String,
    /// `clusterName`.
    pub cluster: String,
    /// `localHostName`.
    pub host_name: String,
    /// `localIP`: where its controller is to reach it.
    pub local_ip: String,
    /// Runtime environment, lower case, which is part of its MQTT topics.
    pub env: String,
}

impl Identity {
    /// What a stock base says that believes in this address: name, version, cluster and environment are the
    /// defaults.
    pub fn stock(ip: impl ToString) -> Self {
        let ip = ip.to_string();
        Self {
            id: ip.clone(),
            name: "TO_BE_IMPLEMENTED".to_owned(),
            version: "1.0.0".to_owned(),
            cluster: "default".to_owned(),
            host_name: ip.clone(),
            local_ip: ip,
            env: "default".to_owned(),
        }
    }
}

/// How a base is set up.
pub struct Setup {
    /// What it tells of itself; by default what a stock base at `ip` does.
    pub identity: Option<Identity>,
    /// Where it listens.
    pub ip: IpAddr,
    /// The port there; 0 for a free one, which it keeps when it restarts.
    pub port: u16,
    /// The port it tells of; by default the one it listens on.
    pub told_port: Option<u16>,
    /// Name and version of the master biz.
    pub master: (String, String),
    /// System properties.
    pub flags: Flags,
    /// Modules that it can install.
    pub jars: Jars,
    /// Its metaspace.
    pub metaspace: Metaspace,
    /// Event loops of its HTTP server: a synchronous command keeps one of them, with all its connections.
    pub loops: usize,
    /// Its surroundings.
    pub world: Box<dyn World>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            identity: None,
            ip: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            told_port: None,
            master: ("base".to_owned(), "1.0.0".to_owned()),
            flags: Flags::default(),
            jars: Jars::new(),
            metaspace: Metaspace::default(),
            loops: 4,
            world: Box::new(RealWorld),
        }
    }
}

/// A module as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// From its manifest.
    pub name: String,
    /// From its manifest.
    pub version: String,
    /// Its state.
    pub state: BizState,
    /// Where it was installed from.
    pub url: String,
    /// Installed on the machine and not over a tunnel.
    pub by_hand: bool,
}

/// A fake base. Ends when it is dropped.
pub struct Base {
    inner: Arc<Inner>,
}

impl Base {
    /// Starts a base. Fails the test if it cannot listen. Call it within a runtime.
    pub fn start(setup: Setup) -> Self {
        let listener = listening(ports::listen_at(SocketAddr::new(setup.ip, setup.port)));
        let address = listener.local_addr().expect("it is bound");
        let inner = Arc::new(Inner {
            identity: setup.identity.unwrap_or_else(|| Identity::stock(setup.ip)),
            told_port: setup.told_port.unwrap_or(address.port()),
            address,
            ground: Ground {
                master: setup.master,
                flags: setup.flags,
                jars: setup.jars,
                metaspace: setup.metaspace,
            },
            loops: setup.loops.max(1),
            world: Mutex::new(setup.world),
            ledger: Mutex::new(Ledger::default()),
            conduct: watch::channel(Conduct::Serve).0,
            released: watch::channel(BTreeSet::new()).0,
            heartbeat: watch::channel(None).0,
            mqtt: watch::channel(None).0,
            beats: watch::channel(()).0,
            live: Mutex::new(None),
        });
        let base = Self { inner };
        base.rise(listener);
        base
    }

    fn rise(&self, listener: TcpListener) {
        let live = Live::new(self.inner.clone());
        live.listen(listener);
        heartbeat::run(&live);
        mqtt::run(&live);
        *self.inner.live() = Some(live);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// What it tells of itself.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// Its modules without the master biz, in the order it lists them. None while it is down.
    pub fn modules(&self) -> Vec<Module> {
        self.with_engine(|engine| {
            let modules = engine.registry.in_order();
            modules
                .into_iter()
                .map(|biz| Module {
                    name: biz.jar.name.clone(),
                    version: biz.jar.version.clone(),
                    state: biz.state,
                    url: biz.url.clone(),
                    by_hand: biz.by_hand,
                })
                .collect()
        })
        .unwrap_or_default()
    }

    /// The state of one module, if it is there.
    pub fn state(&self, name: &str, version: &str) -> Option<BizState> {
        self.modules()
            .into_iter()
            .find(|module| module.name == name && module.version == version)
            .map(|module| module.state)
    }

    /// How often a command was received, over both tunnels, since the beginning or [`Base::forget`].
    pub fn requests(&self, command: &str) -> u64 {
        self.inner.ledger().counts.get(command).copied().unwrap_or(0)
    }

    /// The last thousand requests, oldest first.
    pub fn log(&self) -> Vec<Request> {
        self.inner.ledger().log.iter().cloned().collect()
    }

    /// Forgets counts and log of requests.
    pub fn forget(&self) {
        *self.inner.ledger() = Ledger::default();
    }

    /// From now on every request is read and none is answered.
    pub fn hang(&self) {
        self.inner.conduct.send_replace(Conduct::Hang(None));
    }

    /// The same for one command.
    pub fn hang_on(&self, command: &str) {
        let command = Some(command.to_owned());
        self.inner.conduct.send_replace(Conduct::Hang(command));
    }

    /// From now on every HTTP request is answered with these bytes, and has no effect. MQTT goes on.
    pub fn garble(&self, answer: impl Into<Vec<u8>>) {
        self.inner.conduct.send_replace(Conduct::Garble(answer.into()));
    }

    /// Ends [`Base::hang`] and [`Base::garble`] for new requests. What hung goes on hanging.
    pub fn serve(&self) {
        self.inner.conduct.send_replace(Conduct::Serve);
    }

    /// From now on `health` lacks `jvm` and `cpu`; or has them again.
    pub fn partial_health(&self, partial: bool) {
        self.with_engine(|engine| engine.partial_health = partial);
    }

    /// From now on its modules and it use so much metaspace together, of at most `max` (−1 for no limit). In
    /// bytes.
    pub fn metaspace(&self, used: i64, max: i64) {
        self.with_engine(|engine| {
            engine.metaspace.used += used - engine.metaspace_used();
            engine.metaspace.max = max;
        });
    }

    /// Metaspace in use in bytes.
    pub fn metaspace_used(&self) -> Option<i64> {
        self.with_engine(|engine| engine.metaspace_used())
    }

    /// Lets modules at this URL whose start is held go on, now and later.
    pub fn release(&self, url: &str) {
        self.inner.released.send_modify(|urls| {
            urls.insert(url.to_owned());
        });
    }

    /// Holds them again.
    pub fn hold(&self, url: &str) {
        self.inner.released.send_modify(|urls| {
            urls.remove(url);
        });
    }

    /// Installs a module as somebody on the machine would, without a request. Fails the test if it does not
    /// work.
    pub async fn install_by_hand(&self, url: &str) {
        let live = self.inner.current().expect("the base is up");
        let step = live.with(|engine, world| engine.install_by_hand(world, url));
        let result = live.drive(step).await;
        assert!(matches!(result, Ok(Output::Success(_))), "{url}: {result:?}");
    }

    /// From now on connections are refused; the base goes on otherwise.
    pub async fn refuse(&self) {
        if let Some(live) = self.inner.current() {
            live.close().await;
        }
    }

    /// Ends [`Base::refuse`].
    pub async fn accept(&self) {
        if let Some(live) = self.inner.current() {
            live.close().await;
            live.listen(listening(ports::listen_again(self.inner.address).await));
        }
    }

    /// Ends the base as a crash does: connections break, heartbeats cease, all modules are gone.
    pub async fn kill(&self) {
        let live = self.inner.live().take();
        if let Some(live) = live {
            live.end().await;
        }
    }

    /// Starts it again at the same address, without modules; after [`Base::kill`], or as one act.
    pub async fn restart(&self) {
        self.kill().await;
        self.rise(listening(ports::listen_again(self.inner.address).await));
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.inner.live().is_some()
    }

    /// Sends heartbeats to `<url>/heartbeat` from now on, at once and then every 12 s, also after a restart.
    pub fn heartbeat_to(&self, url: &str) {
        self.heartbeat_every(url, Duration::from_secs(12));
    }

    /// The same at another interval.
    pub fn heartbeat_every(&self, url: &str, interval: Duration) {
        let endpoint = heartbeat::Endpoint::new(url, interval);
        self.inner.heartbeat.send_replace(Some(endpoint));
    }

    /// Sends no more heartbeats.
    pub fn no_heartbeat(&self) {
        self.inner.heartbeat.send_replace(None);
    }

    /// What became of the heartbeats so far.
    pub fn heartbeats(&self) -> Heartbeats {
        self.inner.ledger().heartbeats
    }

    /// Connects to a broker from now on, also after a restart; or no more. Heartbeats over HTTP go on beside.
    pub fn mqtt(&self, tunnel: Option<MqttTunnel>) {
        self.inner.mqtt.send_replace(tunnel);
    }

    /// Sends a heartbeat now, over HTTP and over MQTT, if it sends any there.
    pub fn beat(&self) {
        self.inner.beats.send_replace(());
    }

    fn with_engine<T>(&self, look: impl FnOnce(&mut Engine) -> T) -> Option<T> {
        let live = self.inner.current()?;
        Some(live.with(|engine, _| look(engine)))
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        if let Some(live) = self.inner.live().take() {
            live.cancel();
        }
    }
}

fn listening(listener: io::Result<TcpListener>) -> TcpListener {
    listener.expect("the base's address is one of this machine, and its port is free")
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
