//! Runners as processes.

use super::link::Link;
use super::world::{LEASE, World};
use crate::support::{children_of, evenkeel, outcome};
use evenkeel_testkit::{SOON, eventually, until};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{PipeWriter, Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A runner that is not started yet.
pub(crate) struct Setup<'a> {
    world: &'a World,
    name: String,
    address: SocketAddr,
    /// The program that becomes the runner, with its arguments.
    under: Vec<&'a str>,
    flags: Vec<String>,
    stderr: Option<PipeWriter>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(world: &'a World, name: &str, address: SocketAddr) -> Self {
        let flags = [
            "--lease-duration=5s",
            "--renew-deadline=3s",
            "--retry-period=500ms",
        ];
        Self {
            world,
            name: name.to_owned(),
            address,
            under: Vec::new(),
            flags: flags.map(str::to_owned).to_vec(),
            stderr: None,
        }
    }

    pub(crate) fn through(mut self, link: &Link) -> Self {
        self.address = link.address();
        self
    }

    /// With another time between renewals than half a second.
    pub(crate) fn retrying(mut self, every: &str) -> Self {
        self.flags.retain(|flag| !flag.starts_with("--retry-period"));
        self.with(&["--retry-period", every])
    }

    pub(crate) fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    /// Started by another program, which becomes the runner.
    pub(crate) fn under(mut self, program: &[&'a str]) -> Self {
        self.under = program.to_vec();
        self
    }

    /// Whom it, its keeper and its command tell what they do.
    pub(crate) fn telling(mut self, stderr: PipeWriter) -> Self {
        self.stderr = Some(stderr);
        self
    }

    /// Starts it with a command that stamps its log until it ends; `prelude` is shell that runs first.
    pub(crate) fn diary(self, prelude: &str) -> Runner {
        let log = self.world.path(&format!("{}.log", self.name));
        // Built-ins alone, but for `sleep`: /proc/uptime is the boot clock.
        let script = format!(
            "stamp() {{ read now idle < /proc/uptime; echo \"$1 $now $EVENKEEL_FENCING_TOKEN $$ .\" >> '{}'; }}
             {prelude}
             while :; do stamp run; sleep 0.02; done",
            log.display()
        );
        self.run(&["sh", "-c", &script])
    }

    /// Starts it with a command.
    pub(crate) fn run(self, command: &[&str]) -> Runner {
        let kubeconfig = self
            .world
            .kubeconfig(self.address, "kubernetes-admin", &["system:masters"]);
        self.run_with(&kubeconfig, command)
    }

    pub(crate) fn run_with(self, kubeconfig: &Path, command: &[&str]) -> Runner {
        let output = self.world.path(&format!("{}.out", self.name));
        let file = File::create(&output).expect("the directory is writable");
        let program = evenkeel();
        let mut runner = match self.under.split_first() {
            None => program,
            Some((outer, arguments)) => {
                let mut outer = Command::new(outer);
                outer.args(arguments).arg(program.get_program());
                outer
            }
        };
        let child = runner
            .args(["elect", "--lease", LEASE, "--listen=127.0.0.1:0", "--identity"])
            .arg(&self.name)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(&self.flags)
            .arg("--")
            .args(command)
            .stdout(file.try_clone().expect("the handle can be copied"))
            .stderr(self.stderr.map_or_else(|| file.into(), Stdio::from))
            .stdin(Stdio::null())
            .spawn()
            .expect("the runner starts");
        Runner { child, output }
    }
}

/// A runner; killed when dropped.
pub(crate) struct Runner {
    child: Child,
    output: PathBuf,
}

impl Runner {
    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process IDs are small")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(self.id(), signal);
    }

    /// What it, its keeper and its command have printed.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    pub(crate) async fn says(&self, words: &str) {
        until(&format!("it says {words:?}"), async || {
            self.output().contains(words)
        })
        .await;
    }

    /// Waits for its end; the exit code.
    pub(crate) async fn exit_code(&mut self) -> i32 {
        let ended = || std::future::ready(self.child.try_wait().expect("it is our child"));
        let status = eventually("the runner ends", SOON, ended).await;
        status.code().unwrap_or(-1)
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Its answer at a path: status line and body.
    pub(crate) async fn get(&self, path: &str) -> (String, String) {
        let address = eventually("it says where it listens", SOON, || async {
            let output = self.output();
            let rest = output.split("address=").nth(1)?;
            rest.split_whitespace().next()?.parse::<SocketAddr>().ok()
        })
        .await;
        let path = path.to_owned();
        let asked = tokio::task::spawn_blocking(move || {
            let mut stream = std::net::TcpStream::connect(address)?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        });
        let text = asked.await.expect("no panic").expect("it answers");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.lines().next().unwrap_or_default();
        (status.to_owned(), body.to_owned())
    }

    /// `/leader`, once it satisfies `wanted`.
    pub(crate) async fn leader(&self, wanted: impl Fn(&Value) -> bool) -> String {
        eventually("/leader says what is so", SOON, || async {
            let (_, body) = self.get("/leader").await;
            let leader: Value = serde_json::from_str(&body).expect("JSON");
            wanted(&leader).then_some(body)
        })
        .await
    }

    /// Process ID of its keeper.
    pub(crate) fn keeper(&self) -> i32 {
        let children = children_of(self.child.id(), &["elect-keeper"]);
        let [keeper] = children[..] else {
            panic!("one keeper: {children:?}")
        };
        keeper
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Whatever state it is in; its keeper ends the command.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.output.display(), self.output());
        }
    }
}

/// Writes until there is no room left: whoever writes next, waits.
pub(crate) fn fill(pipe: &mut PipeWriter) {
    let mode = |flags| fcntl(&*pipe, FcntlArg::F_SETFL(flags)).expect("a pipe has a mode");
    mode(OFlag::O_NONBLOCK);
    let mut to = &*pipe;
    for size in [4096, 1] {
        while to.write(&vec![b' '; size]).is_ok() {}
    }
    mode(OFlag::empty());
}

/// Signals a process of ours.
pub(crate) fn signal_to(id: i32, signal: Signal) {
    kill(Pid::from_raw(id), signal).expect("the process is ours");
}

/// The exit code of `evenkeel elect ARGS`, which must end by itself, and what it says.
pub(crate) fn ended(args: &[&str]) -> (i32, String) {
    let mut command: Command = evenkeel();
    outcome(command.arg("elect").args(args))
}
