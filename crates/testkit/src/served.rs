//! An API server on a real socket, reached over links that can be cut.

use crate::{ApiServer, Cluster, Options, api_server_with};
use evenkeel_net::client::{Access, ClientArgs};
use evenkeel_net::pki::ServerNames;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A user who may do everything, and its groups.
const ADMIN: (&str, &[&str]) = ("admin", &["system:masters"]);

/// An API server that listens with TLS on a loopback port. Ends when it is dropped.
pub struct ServedApi {
    /// The server itself; its `client()` does not go over the network.
    pub server: ApiServer,
    /// Scratch directory: kubeconfigs, and what the test wants to put there.
    pub home: TempDir,
    address: SocketAddr,
    stop: CancellationToken,
    _ends: DropGuard,
}

impl ServedApi {
    /// Starts a fresh one.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// The same with options.
    pub async fn with(options: Options) -> Self {
        let server = api_server_with(options);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stop = CancellationToken::new();
        let (serving, ends) = (server.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, &ServerNames::default(), ends).await });
        Self {
            server,
            home: TempDir::new().expect("a temporary directory"),
            address,
            _ends: stop.clone().drop_guard(),
            stop,
        }
    }

    /// A way of its own to the server, for an administrator whose kubeconfig `name` is written.
    pub async fn link(&self, name: &str) -> Link {
        let (user, groups) = ADMIN;
        self.link_as(name, user, groups).await
    }

    /// The same for another user.
    pub async fn link_as(&self, name: &str, user: &str, groups: &[&str]) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://{}", listener.local_addr().expect("it is bound"));
        let kubeconfig = self.kubeconfig(name, &url, (user, groups));
        let (state, _) = watch::channel(State::default());
        let forwarding = forward(listener, self.address, state.clone(), self.stop.clone());
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(forwarding));
        Link { kubeconfig, state }
    }

    /// A kubeconfig of an administrator who reaches the server without a [`Link`].
    pub fn direct(&self, name: &str) -> PathBuf {
        self.kubeconfig(name, &self.url(), ADMIN)
    }

    /// An administrator's client that reaches the server over the network, without a [`Link`].
    pub async fn client(&self, name: &str) -> kube::Client {
        let access = access(self.direct(name)).await;
        access.client(name).expect("the kubeconfig is good")
    }

    /// The same, with the words of a cluster.
    pub async fn cluster(&self, name: &str) -> Cluster {
        Cluster::by(self.client(name).await)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn kubeconfig(&self, name: &str, url: &str, (user, groups): (&str, &[&str])) -> PathBuf {
        let text = self.server.kubeconfig(url, user, groups).expect("a certificate");
        let path = self.home.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, text).expect("the directory can be written");
        path
    }
}

async fn access(kubeconfig: PathBuf) -> Access {
    let args = ClientArgs {
        kubeconfig: Some(kubeconfig),
        ..ClientArgs::default()
    };
    args.access().await.expect("the kubeconfig is good")
}

/// A way to the API server. While it is cut, nothing passes and nothing is closed, as on a network that drops
/// packets; what was sent meanwhile arrives late. While it refuses, all connections are closed, as where no
/// server runs.
pub struct Link {
    kubeconfig: PathBuf,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    cut: bool,
    refuses: bool,
    /// Something was sent since the cut.
    holds: bool,
}

impl Link {
    /// A kubeconfig that goes over this link.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server behind it, for a client that goes over this link.
    pub async fn access(&self) -> Access {
        access(self.kubeconfig.clone()).await
    }

    /// From now on nothing passes.
    pub fn cut(&self) {
        self.state.send_replace(State {
            cut: true,
            ..State::default()
        });
    }

    /// From now on all connections are closed, those that are open and those that come.
    pub fn refuse(&self) {
        self.state.send_replace(State {
            refuses: true,
            ..State::default()
        });
    }

    /// From now on everything passes, also what was held back.
    pub fn mend(&self) {
        self.state.send_replace(State::default());
    }

    /// Waits until something is held back.
    pub async fn holds(&self) {
        let mut state = self.state.subscribe();
        let held = state.wait_for(|state| state.holds).await;
        held.expect("the link itself keeps the sender");
    }
}

async fn forward(
    listener: TcpListener,
    to: SocketAddr,
    state: watch::Sender<State>,
    stop: CancellationToken,
) {
    while let Ok((near, _)) = listener.accept().await {
        if state.borrow().refuses {
            continue;
        }
        let state = state.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            // A server that refuses closes the connection, as it would without a link.
            let Ok(far) = TcpStream::connect(to).await else {
                return;
            };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            let mut watched = state.subscribe();
            let both = async {
                tokio::join!(
                    pass(near_read, far_write, &state),
                    pass(far_read, near_write, &state)
                );
            };
            tokio::select! {
                () = both => {}
                _ = watched.wait_for(|state| state.refuses) => {}
            }
        }));
    }
}

/// One direction, until either side closes.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &watch::Sender<State>) {
    let mut watched = state.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        state.send_if_modified(|state| {
            let first = state.cut && !state.holds;
            state.holds |= first;
            first
        });
        let mended = watched.wait_for(|state| !state.cut).await.is_ok();
        if !mended || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // Closed on one side: an error means that the other is closed, too.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_cut_link_is_silent_until_it_is_mended() {
        let api = ServedApi::start().await;
        let link = api.link("a").await;
        let client = link.access().await.client("test").unwrap();
        client.apiserver_version().await.unwrap();
        link.cut();
        let pending = client.apiserver_version();
        tokio::pin!(pending);
        tokio::select! {
            answer = &mut pending => panic!("an answer came over a cut link: {answer:?}"),
            () = link.holds() => {}
        }
        link.mend();
        let answer = tokio::time::timeout(Duration::from_secs(30), pending).await;
        answer.expect("the link was mended").unwrap();
    }
}
