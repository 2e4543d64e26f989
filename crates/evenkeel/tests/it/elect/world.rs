//! An API server, runners, and commands that write down when they ran.

use super::diary::{Run, read_into};
use super::link::Link;
use super::runner::Setup;
use evenkeel_net::pki::ServerNames;
use evenkeel_testkit::{ApiServer, api_server, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// For what must happen, sooner or later, on a slow machine too.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// The lease of all tests.
pub(crate) const LEASE: &str = "default/mailer";
/// A command that writes down its token, its ID and the time, over and over, until it is told to end.
pub(crate) const DILIGENT: &str = "trap 'stamp term; exit 0' TERM INT";
/// The same, that does not listen.
pub(crate) const STUBBORN: &str = "trap '' TERM INT; trap 'stamp hup' HUP";

/// An API server and a place for files.
pub(crate) struct World {
    server: ApiServer,
    address: SocketAddr,
    home: TempDir,
    _shutdown: DropGuard,
}

impl World {
    pub(crate) async fn new() -> Self {
        let server = api_server();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shutdown = CancellationToken::new();
        let (serving, stop) = (server.clone(), shutdown.clone());
        tokio::spawn(async move {
            let names = ServerNames::default();
            serving
                .serve(listener, &names, stop)
                .await
                .expect("the API is served");
        });
        Self {
            server,
            address,
            home: TempDir::new().expect("a temporary directory"),
            _shutdown: shutdown.drop_guard(),
        }
    }

    /// A kubeconfig of an administrator, or of somebody without any rights.
    pub(crate) fn kubeconfig(&self, address: SocketAddr, user: &str, groups: &[&str]) -> PathBuf {
        let path = self
            .home
            .path()
            .join(format!("kubeconfig-{user}-{}", address.port()));
        let text = self
            .server
            .kubeconfig(&format!("https://{address}"), user, groups);
        fs::write(&path, text.expect("a kubeconfig")).expect("the directory is writable");
        path
    }

    /// The API server itself.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Files with its authority, and with certificate and key of an administrator.
    pub(crate) fn credentials(&self) -> [String; 3] {
        let identity = self
            .server
            .client_certificate("kubernetes-admin", &["system:masters"])
            .expect("a certificate");
        [
            ("ca.crt", self.server.ca().certificate_pem()),
            ("admin.crt", &identity.certificate_pem),
            ("admin.key", &identity.key_pem),
        ]
        .map(|(name, text)| {
            let path = self.path(name);
            fs::write(&path, text).expect("the directory is writable");
            path.to_str().expect("a plain name").to_owned()
        })
    }

    /// A way to the API server that can be cut.
    pub(crate) async fn link(&self) -> Link {
        Link::new(self.address).await
    }

    /// A runner that is not started yet; `name` is its identity.
    pub(crate) fn runner(&self, name: &str) -> Setup<'_> {
        Setup::new(self, name, self.address)
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), "default")
    }

    /// Who holds the lease; empty when it was given back.
    pub(crate) async fn holder(&self) -> String {
        let lease = self.leases().get("mailer").await.expect("the lease is there");
        lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// What all commands have written down, command by command, in the order of their first words.
    pub(crate) fn runs(&self, names: &[&str]) -> Vec<Run> {
        let mut runs = Vec::new();
        for name in names {
            let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            for line in text.lines() {
                read_into(&mut runs, name, line);
            }
        }
        runs.sort_by(|one, other| one.first.total_cmp(&other.first));
        runs
    }

    /// Waits until a command of this runner has written something, and returns the last one's doings.
    pub(crate) async fn running(&self, name: &str, after: usize) -> Run {
        let what = format!("{name} starts its command, {after} runs before it");
        eventually(&what, SOON, || async {
            self.runs(&[name]).into_iter().nth(after)
        })
        .await
    }

    /// No two commands ran at the same time, and each had a greater token than the one before.
    pub(crate) fn assert_no_overlap(&self, names: &[&str]) -> Vec<Run> {
        let runs = self.runs(names);
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            assert!(
                before.last < after.first,
                "two ran at once: {before:?}, {after:?}"
            );
            assert_eq!(before.uid, after.uid, "one lease");
            assert!(
                before.transitions < after.transitions,
                "the token grows: {before:?}, {after:?}"
            );
        }
        runs
    }
}
