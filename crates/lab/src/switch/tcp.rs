//! Connections: to a node's kubelet, and from a node to the API server.

use super::{
    Fabric, Plan,
    links::{End, Links, Verdict},
    silence::{self, Silence},
};
use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    time::Instant,
};

/// Where the connections of a listener go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    /// From anybody on this machine to a node's kubelet.
    Kubelet { node: u8, inner: SocketAddr },
    /// From the API server on another machine to a node's kubelet.
    Outside { node: u8, inner: SocketAddr },
    /// From a node to the API server.
    Cloud { node: u8, api: SocketAddr },
}

/// Chunks in flight per direction of a delayed connection; the rest waits in the sender's socket.
const IN_FLIGHT: usize = 64;
/// Bytes that still arrive while acknowledgements are lost: an initial congestion window (RFC 6928).
const WINDOW: usize = 14_600;

impl Route {
    /// Whether no connection at all can be opened here.
    fn is_silent(&self, links: &Links) -> bool {
        match self {
            Self::Kubelet { node, .. } => links.is_unreachable(*node),
            Self::Outside { node, .. } | Self::Cloud { node, .. } => {
                !links.both_ways(End::Node(*node), End::Cloud)
            }
        }
    }

    /// Clients that get no answer, while others do.
    fn ignored(&self, links: &Links, plan: Plan) -> Vec<Ipv4Addr> {
        let Self::Kubelet { node, .. } = self else {
            // All come from one end: it is silent as a whole or not at all.
            return Vec::new();
        };
        let cut = links
            .nodes()
            .filter(|client| !links.both_ways(End::Node(*client), End::Node(*node)));
        cut.map(|client| plan.inner(client)).collect()
    }

    /// The two ends of a connection that a client opened.
    fn ends(&self, client: IpAddr, fabric: &Fabric) -> (End, End) {
        match self {
            Self::Kubelet { node, .. } => (fabric.plan.source(client), End::Node(*node)),
            Self::Outside { node, .. } => (End::Cloud, End::Node(*node)),
            Self::Cloud { node, .. } => (End::Node(*node), End::Cloud),
        }
    }

    fn target(&self) -> SocketAddr {
        match self {
            Self::Kubelet { inner, .. } | Self::Outside { inner, .. } => *inner,
            Self::Cloud { api, .. } => *api,
        }
    }
}

/// Accepts connections until shutdown, except while the route is silent.
pub(super) async fn serve(listener: TcpListener, route: Route, mut fabric: Fabric) {
    if let Err(error) = accept_loop(&listener, route, &mut fabric).await {
        tracing::error!(?route, %error, "the switch lost a listener");
    }
}

async fn accept_loop(listener: &TcpListener, route: Route, fabric: &mut Fabric) -> io::Result<()> {
    let shutdown = fabric.shutdown.clone();
    let mut silence = Silence::default();
    let mut ignored = Vec::new();
    loop {
        let links = fabric.links.borrow_and_update().clone();
        let cut = route.ignored(&links, fabric.plan);
        if cut != ignored {
            silence::ignore(listener, &cut)?;
            ignored = cut;
        }
        if route.is_silent(&links) {
            silence.begin(listener).await?;
            let spoken = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                spoken = fabric.links.wait_for(|links| !route.is_silent(links)) => spoken.is_ok(),
            };
            silence.end(listener)?;
            if !spoken {
                return Ok(());
            }
            // Who is ignored may have changed meanwhile.
            continue;
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            changed = fabric.links.changed() => if changed.is_err() { return Ok(()) },
            accepted = listener.accept() => match accepted {
                Ok((_, peer)) if silence.is_filler(&peer) => {}
                Ok((client, peer)) => {
                    let ends = route.ends(peer.ip(), fabric);
                    let connection = Connection { ends, links: fabric.links.clone(), target: route.target() };
                    let shutdown = shutdown.clone();
                    fabric.tasks.spawn(async move {
                        tokio::select! {
                            () = shutdown.cancelled() => {}
                            () = connection.run(client) => {}
                        }
                    });
                }
                Err(error) => {
                    // Out of file descriptors, or the client gave up: neither ends the listener.
                    tracing::warn!(?route, %error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

/// One connection on its way through the switch.
struct Connection {
    ends: (End, End),
    links: watch::Receiver<Links>,
    target: SocketAddr,
}

/// The connection broke, or one of its ends was switched off and on: both sides get a reset.
struct Reset;

impl Connection {
    async fn run(mut self, client: TcpStream) {
        let (from, to) = self.ends;
        // A connection that was opened across a cut link is held as a SYN would be repeated.
        if self
            .links
            .wait_for(|links| links.both_ways(from, to))
            .await
            .is_err()
        {
            return;
        }
        let boots = boots(&self.links.borrow(), self.ends);
        let mut client = client;
        let mut server = match connect(self.target).await {
            Ok(server) => server,
            Err(error) => {
                tracing::debug!(target = %self.target, %error, "nobody listens there");
                reset(&client);
                return;
            }
        };
        if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
            // One of them is gone already; the pumps find out.
            tracing::debug!(target = %self.target, "connection lost at once");
        }
        let mut up = Pump::new((from, to), boots, self.links.clone());
        let mut down = Pump::new((to, from), (boots.1, boots.0), self.links);
        let (mut client_read, mut client_write) = client.split();
        let (mut server_read, mut server_write) = server.split();
        let ended = tokio::try_join!(
            up.run(&mut client_read, &mut server_write),
            down.run(&mut server_read, &mut client_write)
        );
        if let Err(Reset) = ended {
            reset(&client);
            reset(&server);
        }
    }
}

/// One direction of a connection.
struct Pump {
    way: (End, End),
    boots: (u32, u32),
    links: watch::Receiver<Links>,
    queue: VecDeque<(Instant, Vec<u8>)>,
    unacknowledged: usize,
}

/// How the link is at the moment, for one direction.
struct Passage {
    delay: Duration,
    acknowledged: bool,
}

impl Pump {
    fn new(way: (End, End), boots: (u32, u32), links: watch::Receiver<Links>) -> Self {
        Self {
            way,
            boots,
            links,
            queue: VecDeque::new(),
            unacknowledged: 0,
        }
    }

    /// Moves bytes until the sender closes and the receiver was told. While the link is cut nothing is read,
    /// so neither bytes nor the end of the connection pass; they do once it is whole again.
    async fn run(&mut self, source: &mut ReadHalf<'_>, sink: &mut WriteHalf<'_>) -> Result<(), Reset> {
        let (from, to) = self.way;
        let mut buffer = vec![0; 16_384];
        let mut closed = false;
        loop {
            let Some(passage) = self.passage()? else {
                self.links
                    .wait_for(|links| links.passes(from, to))
                    .await
                    .map_err(|_| Reset)?;
                continue;
            };
            if passage.acknowledged {
                self.unacknowledged = 0;
            }
            if closed && self.queue.is_empty() {
                return sink.shutdown().await.map_err(|_| Reset);
            }
            let may_read = !closed && self.queue.len() < IN_FLIGHT && self.unacknowledged < WINDOW;
            let due = self.queue.front().map(|(due, _)| *due);
            tokio::select! {
                biased;
                changed = self.links.changed() => changed.map_err(|_| Reset)?,
                () = until(due), if due.is_some() => {
                    if let Some((_, chunk)) = self.queue.pop_front()
                        && sink.write_all(&chunk).await.is_err()
                    {
                        return Err(self.broken().await);
                    }
                }
                read = source.read(&mut buffer), if may_read => match read {
                    Ok(0) => closed = true,
                    Ok(length) => {
                        if !passage.acknowledged {
                            self.unacknowledged += length;
                        }
                        self.queue.push_back((Instant::now() + passage.delay, buffer[..length].to_vec()));
                    }
                    Err(_) => return Err(self.broken().await),
                },
            }
        }
    }

    /// How the link is now; `None` while nothing passes.
    fn passage(&mut self) -> Result<Option<Passage>, Reset> {
        let (from, to) = self.way;
        let links = self.links.borrow_and_update();
        match links.verdict(from, to) {
            Verdict::Silence => Ok(None),
            Verdict::Deliver { .. } if boots(&links, self.way) != self.boots => Err(Reset),
            Verdict::Deliver { delay, .. } => Ok(Some(Passage {
                delay,
                acknowledged: links.passes(to, from),
            })),
        }
    }

    /// One side broke the connection. The other side gets a reset once the link is whole again.
    async fn broken(&mut self) -> Reset {
        let (from, to) = self.way;
        // An error means that the switch is gone, and with it the reason to wait.
        let _ = self.links.wait_for(|links| links.both_ways(from, to)).await;
        Reset
    }
}

async fn until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

fn boots(links: &Links, ends: (End, End)) -> (u32, u32) {
    (links.boot(ends.0), links.boot(ends.1))
}

/// Connects to the real listener: a kubelet on loopback, which answers at once or not at all, or an API
/// server.
async fn connect(target: SocketAddr) -> io::Result<TcpStream> {
    tokio::time::timeout(Duration::from_secs(10), TcpStream::connect(target))
        .await
        .map_err(io::Error::from)?
}

/// Makes the coming close a reset, as from a machine that does not know the connection, or has no such port.
pub(crate) fn reset(stream: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "cannot reset a connection, closing it");
    }
}
