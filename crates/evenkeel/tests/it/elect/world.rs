//! An API server, runners, and commands that write down when they ran.

use super::diary::{Run, read_into};
use super::link::Link;
use super::runner::Setup;
use evenkeel_testkit::{Cluster, SOON, ServedApi, eventually};
use std::{fs, net::SocketAddr, ops::Deref, path::PathBuf};

/// The lease of all tests.
pub(crate) const LEASE: &str = "default/mailer";
/// A command that writes down its token, its ID and the time, over and over, until it is told to end.
pub(crate) const DILIGENT: &str = "trap 'stamp term; exit 0' TERM INT";
/// The same, that does not listen.
pub(crate) const STUBBORN: &str = "trap '' TERM INT; trap 'stamp hup' HUP";

/// An API server and a place for files.
pub(crate) struct World {
    api: ServedApi,
    cluster: Cluster,
}

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let api = ServedApi::start().await;
        let cluster = Cluster::of(&api.server);
        Self { api, cluster }
    }

    /// A kubeconfig of an administrator, or of somebody without any rights.
    pub(crate) fn kubeconfig(&self, address: SocketAddr, user: &str, groups: &[&str]) -> PathBuf {
        let path = self
            .api
            .home
            .path()
            .join(format!("kubeconfig-{user}-{}", address.port()));
        let text = self
            .api
            .server
            .kubeconfig(&format!("https://{address}"), user, groups);
        fs::write(&path, text.expect("a kubeconfig")).expect("the directory is writable");
        path
    }

    /// The API server itself.
    pub(crate) fn url(&self) -> String {
        self.api.url()
    }

    /// Files with its authority, and with certificate and key of an administrator.
    pub(crate) fn credentials(&self) -> [String; 3] {
        let identity = self
            .api
            .server
            .client_certificate("kubernetes-admin", &["system:masters"])
            .expect("a certificate");
        [
            ("ca.crt", self.api.server.ca().certificate_pem()),
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
        Link::new(self.api.address()).await
    }

    /// A runner that is not started yet; `name` is its identity.
    pub(crate) fn runner(&self, name: &str) -> Setup<'_> {
        Setup::new(self, name, self.api.address())
    }

    /// Who holds the lease; empty when it was given back.
    pub(crate) async fn holder(&self) -> String {
        self.cluster.holder("mailer").await
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.api.home.path().join(name)
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
