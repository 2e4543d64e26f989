//! Puts the parts of an agent together.

use crate::args::{AgentArgs, AgentCommand, ArgsError, RunArgs, Settings};
use crate::boot::{Boot, BootError};
use crate::check::Registry;
use crate::cloud::{self, Cloud, Home, Leases, Registration, Statement};
use crate::key::{self, KeyFile, KeyFileError};
use crate::kubelet::{self, OwnKubelet};
use crate::metrics::Metrics;
use crate::readiness::{self, Place};
use crate::reload;
use crate::reporter::{self, Draft};
use crate::rotation::{OVERLAP, Rotation};
use crate::state::{Learned, Memory, StateDir, StateError, remember, warn_of_failed_write};
use crate::zone::{Event, ZoneLoop};
use evenkeel_net::admin::Admin;
use evenkeel_net::client::ClientError;
use evenkeel_settings::{Changes, Configured};
use evenkeel_zone::engine::MOST_CARRIED;
use evenkeel_zone::roster::{MemberId, Roster, RosterKeys, zone_object_name};
use jiff::Timestamp;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A ping without an answer for this long ends its connection. Pings are sent after 5 s of silence, so that
/// the API server is known to be silent after 8 s, which is when the engine takes the link for cut.
pub const PONG: Duration = Duration::from_secs(3);

/// Why an agent does not run, or no longer. One line for people; [`AgentError::exit_code`] for the process.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The flags do not make sense.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// There is no key that can be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// A key could not be printed.
    #[error("cannot print the key: {0}")]
    Print(io::Error),
    /// The machine's boot is not known.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// There is no client of the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An address is taken, or not ours.
    #[error("cannot listen on {flag} {address}: {source}{}", taken(.source))]
    Bind {
        /// Flag that named it.
        flag: &'static str,
        address: SocketAddr,
        source: io::Error,
    },
    /// The Node was registered again, or moved to another zone: the agent has to begin anew.
    #[error("Node {node} changed (UID {uid}, zone {zone}): start the agent again")]
    Moved { node: String, uid: String, zone: String },
    /// The socket failed while running.
    #[error("the agent's socket failed: {0}")]
    Socket(io::Error),
    /// The admin endpoints failed while running.
    #[error("the admin endpoints failed: {0}")]
    Admin(io::Error),
    /// A part of the agent ended that should not.
    #[error("a part of the agent ended: {0}")]
    Part(String),
}

impl AgentError {
    /// 2: usage or configuration; 1: failed later.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Args(_)
            | Self::Key(_)
            | Self::Boot(_)
            | Self::State(_)
            | Self::Client(_)
            | Self::Bind { .. } => 2,
            Self::Moved { .. } | Self::Socket(_) | Self::Admin(_) | Self::Part(_) | Self::Print(_) => 1,
        }
    }
}

/// What to do about a port that is taken.
fn taken(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another agent runs here, or another program uses the port: choose another one"
        }
        _ => "",
    }
}

/// `evenkeel agent`: makes a key, or runs until `shutdown`.
pub async fn run(args: AgentArgs, shutdown: CancellationToken) -> Result<(), AgentError> {
    run_with(args, Registry::default(), shutdown).await
}

/// The same with these check plugins.
pub async fn run_with(
    args: AgentArgs,
    plugins: Registry,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    match args.command {
        Some(AgentCommand::Keygen { out }) => {
            let public = key::generate(&out)?;
            tracing::info!(file = %out.display(), public_key = public, "key made");
            Ok(())
        }
        Some(AgentCommand::RotateKey { key }) => {
            let public = KeyFile::new(&key).make_next()?;
            tracing::info!(
                public_key = public,
                "next key made: the running agent announces it, and changes to it"
            );
            Ok(())
        }
        Some(AgentCommand::Pubkey { key }) => {
            let public = key::load(&key)?.public().to_base64();
            writeln!(std::io::stdout(), "{public}").map_err(AgentError::Print)
        }
        None => Agent::from_args(&args.run, plugins).await?.run(shutdown).await,
    }
}

/// An agent with everything it needs from outside.
pub struct Agent {
    /// The flags, checked against each other.
    pub settings: Settings,
    /// The key that signs what the agent says, and how it changes.
    pub keys: Rotation,
    /// The machine's present boot.
    pub boot: Boot,
    /// What outlives a restart.
    pub state: StateDir,
    /// The socket for datagrams of peers.
    pub socket: UdpSocket,
    /// A client of the API server.
    pub client: Client,
    /// Where the admin endpoints are served.
    pub admin: Option<TcpListener>,
    /// What its configuration file says while it runs, and the check plugins that there are.
    pub changes: Option<(Changes<RunArgs>, Registry)>,
}

impl Agent {
    /// Reads files and binds addresses. What is wrong with the settings comes first, then the key, then the
    /// rest.
    pub async fn from_args(configured: &Configured<RunArgs>, plugins: Registry) -> Result<Self, AgentError> {
        evenkeel_net::init_crypto();
        let (args, changes) = configured.follow().map_err(ArgsError::from)?;
        let settings = args.settings(&plugins)?;
        let keys = Rotation::open(KeyFile::new(&args.key), OVERLAP)?;
        let unix_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
        let boot = Boot::read(args.boot.as_deref())?;
        let state = StateDir::open(&args.state_dir, &settings.node, &boot.id, unix_ms)?;
        let access = args.client.access().await?;
        let client = access.pong_within(PONG).reading_once().client("agent")?;
        let bind = |flag, address| {
            move |source| AgentError::Bind {
                flag,
                address,
                source,
            }
        };
        let socket = UdpSocket::bind(settings.listen)
            .await
            .map_err(bind("--listen", settings.listen))?;
        let admin = match settings.admin {
            Some(address) => Some(
                TcpListener::bind(address)
                    .await
                    .map_err(bind("--admin", address))?,
            ),
            None => None,
        };
        Ok(Self {
            settings,
            keys,
            boot,
            state,
            socket,
            client,
            admin,
            changes: Some((changes, plugins)),
        })
    }

    /// Runs until `shutdown`; then gives back the zone's Lease if this agent holds it.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), AgentError> {
        let Self {
            settings,
            keys,
            boot,
            mut state,
            socket,
            client,
            admin,
            changes,
        } = self;
        let mut parts = Parts::new(shutdown.child_token());
        let (place, placed) = watch::channel(Place::default());
        let cloud = Cloud::new(client, &settings.node);
        let metrics = serve_admin(admin, placed, cloud.kept_out(), &mut parts);
        let Some(home) = home(&cloud, &settings, &mut state, &parts.stop).await? else {
            return Ok(());
        };
        tracing::info!(
            node = settings.node,
            uid = home.node_uid,
            zone = home.zone,
            "agent runs"
        );
        reload::warn_of_missing_checks(&settings, &metrics);
        let (new_checks, checks) = watch::channel(settings.checks.clone());
        let roster_keys = RosterKeys::new(settings.roster_keys.clone());

        let (own_events, events) = mpsc::channel::<Event>(256);
        let (draft_sender, drafts) = mpsc::channel(1);
        // Of each cell one, and one that lists nobody.
        let (carried_sender, carried_drafts) = mpsc::channel(2 * MOST_CARRIED);
        // Each kind of statement waits at most once.
        let (statement_sender, statements) = mpsc::channel(2);
        let (learned_sender, learned) = mpsc::unbounded_channel();
        let (standing, stands) = watch::channel(false);
        let (new_ranked, ranked) = watch::channel(false);
        let (carried, carries) = watch::channel(BTreeSet::new());
        let (published, own_entry) = watch::channel(None);
        let (not_found, lost_checks) = watch::channel(BTreeSet::new());
        let (new_said, said) = watch::channel(keys.said());
        let memory = state.memory();
        let first_cell = zone_object_name(&home.zone);
        let remembered_cell = Some(memory.cell.clone()).filter(|cell| !cell.is_empty());
        let roster = remembered_roster(memory, &roster_keys);
        let zone_loop = ZoneLoop {
            settings: settings.clone(),
            key: keys.key().clone(),
            other_key: keys.other().cloned(),
            published,
            node_uid: home.node_uid.clone(),
            roster: Arc::clone(&roster),
            roster_keys,
            checks: checks.clone(),
            boot,
            met: memory.met(),
            sequence_base: memory.sequence_base,
            socket,
            leases: Leases::new(cloud.client()),
            carried_leases: Leases::new(cloud.client()),
            events,
            own_events: own_events.clone(),
            drafts: draft_sender,
            carried_drafts: carried_sender,
            statements: statement_sender,
            standing,
            ranked: new_ranked,
            carried,
            learned: learned_sender.clone(),
            place,
            not_found,
            metrics: metrics.clone(),
            kubelet: evenkeel_zone::verdict::Health::default(),
        };
        let registration = Registration {
            keys: said,
            address: settings.advertise.to_string(),
            zone_default: settings.zone_default.clone(),
        };

        parts.start_fallible(|stop| async move { zone_loop.run(stop).await.map_err(AgentError::Socket) });
        parts.start(|_| remember(state, learned));
        parts.start(|stop| keys.run(own_entry, new_said, own_events.clone(), stop));
        let register = Arc::new(Notify::new());
        let link = CloudLink {
            cloud: cloud.clone(),
            register: register.clone(),
            node_uid: home.node_uid.clone(),
            cell: remembered_cell.unwrap_or_else(|| first_cell.clone()),
            first_cell,
            learned: learned_sender,
            stands,
            ranked,
            carries,
            drafts: [drafts, carried_drafts],
            statements,
            events: own_events.clone(),
            metrics: metrics.clone(),
        };
        link.start(&settings, &mut parts);
        if let Some((changes, plugins)) = changes {
            let events = own_events.clone();
            let known = (metrics, !settings.roster_keys.is_empty());
            parts.start(|stop| reload::take_over((changes, plugins), (new_checks, events), known, stop));
        }
        let own_entry_before = (&*roster, MemberId::of(&home.node_uid));
        let own_kubelet = start_kubelet(&settings, own_entry_before, own_events, &mut parts);
        parts.start_fallible(|stop| async move {
            let seen = (own_kubelet, checks, lost_checks);
            match cloud::stay_registered(cloud, home, registration, seen, register, stop).await {
                Some(Home { node_uid, zone }) => Err(AgentError::Moved {
                    node: settings.node.clone(),
                    uid: node_uid,
                    zone,
                }),
                None => Ok(()),
            }
        });
        parts.finish().await
    }
}

/// The tasks of an agent. Each is given the token on which it stops.
struct Parts {
    running: JoinSet<Result<(), AgentError>>,
    stop: CancellationToken,
}

impl Parts {
    fn new(stop: CancellationToken) -> Self {
        Self {
            running: JoinSet::new(),
            stop,
        }
    }

    fn start<F>(&mut self, part: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let part = part(self.stop.clone());
        self.running.spawn(async {
            part.await;
            Ok(())
        });
    }

    fn start_fallible<F>(&mut self, part: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), AgentError>> + Send + 'static,
    {
        self.running.spawn(part(self.stop.clone()));
    }

    /// Waits for all parts; the first that fails, or ends before its time, stops the others.
    async fn finish(mut self) -> Result<(), AgentError> {
        let mut outcome = Ok(());
        while let Some(ended) = self.running.join_next().await {
            let ended = ended
                .map_err(|error| AgentError::Part(error.to_string()))
                .flatten();
            if !self.stop.is_cancelled() {
                self.stop.cancel();
                outcome = ended.and(Err(AgentError::Part("without an error".to_owned())));
            }
        }
        outcome
    }
}

/// What passes between the zone's loop and the API server.
struct CloudLink {
    cloud: Cloud,
    /// UID of the agent's Node.
    node_uid: String,
    /// Name of the ZoneHealth of the zone's first cell.
    first_cell: String,
    /// Name of the ZoneHealth of the agent's cell as it is remembered.
    cell: String,
    /// Has the agent registered again.
    register: Arc<Notify>,
    learned: mpsc::UnboundedSender<Learned>,
    stands: watch::Receiver<bool>,
    ranked: watch::Receiver<bool>,
    carries: watch::Receiver<BTreeSet<u32>>,
    /// Of the agent's own cell, and of others.
    drafts: [mpsc::Receiver<Draft>; 2],
    statements: mpsc::Receiver<Statement>,
    events: mpsc::Sender<Event>,
    metrics: Metrics,
}

impl CloudLink {
    fn start(self, settings: &Settings, parts: &mut Parts) {
        let Self {
            cloud,
            node_uid,
            first_cell,
            cell,
            register,
            learned,
            stands,
            ranked,
            carries,
            drafts,
            statements,
            events,
            metrics,
        } = self;
        let election = settings.election.clone();
        let (cell, own_cell) = watch::channel(cell);
        parts.start(|stop| {
            let (cloud, zone) = (cloud.clone(), first_cell.clone());
            cloud::follow_others(cloud, zone, carries, events.clone(), stop)
        });
        parts.start(|stop| {
            let follower = cloud::Follower {
                cloud: cloud.clone(),
                node_uid: node_uid.clone(),
                first_cell,
                cell,
                learned,
                events: events.clone(),
                register: register.clone(),
            };
            follower.run(ranked, stop)
        });
        parts.start(|stop| {
            let cloud = cloud.clone();
            reporter::campaign(cloud, election, own_cell, stands, events.clone(), stop)
        });
        for drafts in drafts {
            parts.start(|stop| {
                let (cloud, metrics) = (cloud.clone(), metrics.clone());
                reporter::write(
                    cloud,
                    (settings.node.clone(), node_uid.clone()),
                    drafts,
                    events.clone(),
                    metrics,
                    stop,
                )
            });
        }
        parts.start(|stop| cloud::write_statements(cloud, statements, events, metrics, register, stop));
    }
}

/// Watches the node's own kubelet, where there is one to be watched, and reports its health to the zone's
/// loop. `roster` is the one of before a restart: what it says of the kubelet stays published until the
/// kubelet shows another certificate.
fn start_kubelet(
    settings: &Settings,
    (roster, me): (&Roster, MemberId),
    events: mpsc::Sender<Event>,
    parts: &mut Parts,
) -> watch::Receiver<OwnKubelet> {
    let published = roster.get(me).and_then(|member| member.kubelet.clone());
    let advertised = settings.kubelet_advertise.map(|address| address.to_string());
    let (sender, own_kubelet) = watch::channel(OwnKubelet {
        endpoint: published.filter(|kubelet| Some(&kubelet.address) == advertised.as_ref()),
        ..OwnKubelet::default()
    });
    parts.start(|stop| report_kubelet(own_kubelet.clone(), events, stop));
    if let (Some(local), Some(advertised)) = (settings.kubelet, settings.kubelet_advertise) {
        parts.start(|stop| kubelet::watch((local, settings.kubelet_assumed), advertised, sender, stop));
    }
    own_kubelet
}

/// The roster of before a restart, so that the agent can work while it is cut off.
fn remembered_roster(memory: &Memory, keys: &RosterKeys) -> Arc<Roster> {
    let published = memory.signed_roster.as_ref();
    let roster = match published.map(|published| Roster::reopen(published, keys)) {
        Some(Ok(roster)) => roster,
        Some(Err(error)) => {
            tracing::warn!(%error, "the remembered roster is not used");
            Roster::none()
        }
        None => Roster::none(),
    };
    Arc::new(roster)
}

/// Where the agent belongs: as remembered, so that it can start while cut off; else as the API server says.
async fn home(
    cloud: &Cloud,
    settings: &Settings,
    state: &mut StateDir,
    stop: &CancellationToken,
) -> Result<Option<Home>, AgentError> {
    let zone_default = settings.zone_default.as_deref();
    // What the API server says now is better, if it comes at once.
    let fresh = match cloud.home(zone_default).await {
        Ok(home) => Some(home),
        Err(error) => {
            tracing::warn!(%error, "cannot read the agent's Node yet");
            None
        }
    };
    let memory = state.memory();
    let remembered = Some(Home {
        node_uid: memory.node_uid.clone(),
        zone: memory.zone.clone(),
    })
    .filter(|home| !home.node_uid.is_empty() && !home.zone.is_empty());
    let home = match fresh.or(remembered) {
        Some(home) => home,
        None => match cloud::find_home(cloud, zone_default, stop).await {
            Some(home) => home,
            None => return Ok(None),
        },
    };
    let known = home.clone();
    let was_saved = state.is_saved();
    let written = state.update(|memory| {
        if memory.node_uid != known.node_uid || memory.zone != known.zone {
            // Another registration, or another zone: its roster is another.
            memory.signed_roster = None;
            memory.forget_met();
            memory.cell = String::new();
        }
        (memory.node_uid, memory.zone) = (known.node_uid, known.zone);
    });
    if let Err(error) = written
        && was_saved
    {
        warn_of_failed_write(&error);
    }
    Ok(Some(home))
}

fn serve_admin(
    listener: Option<TcpListener>,
    placed: watch::Receiver<Place>,
    kept_out: watch::Receiver<Option<String>>,
    parts: &mut Parts,
) -> Metrics {
    let admin = Admin::new("agent");
    let metrics = Metrics::register(&admin);
    parts.start(|stop| count_kept_out(kept_out.clone(), metrics.kept_out.clone(), stop));
    readiness::ask(&admin, placed, kept_out);
    if let Some(listener) = listener {
        parts.start_fallible(
            |stop| async move { admin.serve(listener, stop).await.map_err(AgentError::Admin) },
        );
    }
    metrics
}

async fn count_kept_out(
    mut kept_out: watch::Receiver<Option<String>>,
    gauge: Gauge,
    stop: CancellationToken,
) {
    loop {
        gauge.set(i64::from(kept_out.borrow_and_update().is_some()));
        tokio::select! {
            () = stop.cancelled() => return,
            changed = kept_out.changed() => if changed.is_err() {
                // Nobody reads the node's labels any more: the agent ends.
                return stop.cancelled().await;
            },
        }
    }
}

async fn report_kubelet(
    mut own: watch::Receiver<OwnKubelet>,
    events: mpsc::Sender<Event>,
    stop: CancellationToken,
) {
    loop {
        let health = own.borrow_and_update().health;
        if events.send(Event::Kubelet(health)).await.is_err() {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = own.changed() => if changed.is_err() { return stop.cancelled().await },
        }
    }
}
