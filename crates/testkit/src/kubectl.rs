//! kubectl as a peer: every version on the machine, by both protocols of its streams.

use crate::{kubectls, skipped};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

/// Machines may be busy; a kubectl that hangs fails the test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A kubectl that speaks one of the protocols, as far as its version has a choice.
pub struct Kubectl {
    /// The program itself.
    pub program: PathBuf,
    /// Whether it is to speak WebSockets, and not SPDY.
    pub websockets: bool,
    /// Its home, where nothing else is.
    pub home: TempDir,
    kubeconfig: PathBuf,
    flags: Vec<String>,
}

/// A kubectl that forwards a port, until this is dropped.
pub struct Forwarding {
    /// The process.
    pub child: Child,
    /// The port here.
    pub port: u16,
}

impl Display for Kubectl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (websockets: {})", self.program.display(), self.websockets)
    }
}

impl Kubectl {
    /// Every kubectl with both protocols, which begins its command lines with these flags; says that the test
    /// is skipped if there is none.
    pub fn all(test: &str, kubeconfig: &Path, flags: &[&str]) -> Vec<Self> {
        let programs = kubectls();
        if programs.is_empty() {
            skipped(test, "no kubectl on PATH");
        }
        let one = |program: &PathBuf, websockets| Self {
            program: program.clone(),
            websockets,
            home: TempDir::new().expect("a temporary directory"),
            kubeconfig: kubeconfig.to_owned(),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        };
        let both = |program| [one(program, false), one(program, true)];
        programs.iter().flat_map(both).collect()
    }

    /// One that is not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", self.websockets.to_string())
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", self.websockets.to_string())
            .args(&self.flags)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// What it answers to a command that may run more than once.
    pub async fn output(&self, arguments: &[&str]) -> Output {
        self.fed(arguments, None).await
    }

    /// The same with something on its standard input.
    ///
    /// A kubectl that speaks WebSockets (1.32 is one) reads before it has made its streams, and discards what
    /// a quick server has sent by then. It says so. That is mended since kubernetes/kubernetes#131203, and no
    /// server can prevent it: it is asked again.
    pub async fn fed(&self, arguments: &[&str], input: Option<&[u8]>) -> Output {
        let mut left = 5;
        loop {
            let output = self.once(arguments, input).await;
            left -= 1;
            let discarded = self.websockets && text(&output.stderr).contains("Unknown stream id");
            if !discarded || left == 0 {
                return output;
            }
        }
    }

    async fn once(&self, arguments: &[&str], input: Option<&[u8]>) -> Output {
        let mut command = self.command(arguments);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().expect("kubectl starts");
        let stdin = child.stdin.take();
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A command that wants no more input ends this early.
                let _ = stdin.write_all(input).await;
            }
        };
        let both = async { tokio::join!(write, child.wait_with_output()).1 };
        let ended = tokio::time::timeout(PATIENCE, both).await;
        let ended = ended.unwrap_or_else(|_| unreachable!("{self}: {arguments:?} hangs"));
        ended.expect("it is our child")
    }

    /// The standard output of a command that succeeds.
    pub async fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{self}: {arguments:?}: {out}{err}");
        out
    }

    /// Forwards a free port to a pod's.
    pub async fn forward(&self, pod: &str, port: u16) -> Forwarding {
        let ports = format!(":{port}");
        let mut command = self.command(&["port-forward", "--address", "127.0.0.1", pod, &ports]);
        let mut child = command.spawn().expect("kubectl starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| unreachable!("{self}: port-forward says nothing"));
        let Some(line) = line.expect("output is text") else {
            let mut why = String::new();
            let mut stderr = child.stderr.take().expect("it is piped");
            stderr.read_to_string(&mut why).await.expect("it is text");
            unreachable!("{self}: port-forward ended: {why}");
        };
        let local = line.split("127.0.0.1:").nth(1);
        let port = local.and_then(|rest| rest.split(' ').next()?.parse::<u16>().ok());
        let port = port.unwrap_or_else(|| unreachable!("{self}: {line:?}"));
        // It tells of each connection, and waits until that is read.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Forwarding { child, port }
    }
}

/// What a process printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
