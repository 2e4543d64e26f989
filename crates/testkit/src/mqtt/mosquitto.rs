//! Debian's mosquitto as a process of the test's own.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// PEM files for TLS.
#[derive(Clone, Debug, Default)]
pub struct MosquittoTls {
    /// The broker's certificate chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that clients' certificates must come from; `None` asks for no certificates.
    pub client_authority: Option<PathBuf>,
}

/// How mosquitto is set up.
#[derive(Clone, Debug, Default)]
pub struct MosquittoSetup {
    /// User name and password that clients must give.
    pub credentials: Option<(String, String)>,
    /// TLS; plain TCP without it.
    pub tls: Option<MosquittoTls>,
    /// Sessions and retained messages outlive a restart.
    pub persistent: bool,
}

/// A running mosquitto on a free port of 127.0.0.1. Ends when it is dropped.
pub struct Mosquitto {
    program: PathBuf,
    home: TempDir,
    address: SocketAddr,
    child: Mutex<Option<Child>>,
}

/// It runs, and ends, within this time.
const PATIENCE: Duration = Duration::from_secs(20);

impl Mosquitto {
    /// Starts one; `None` where mosquitto is not installed. `$EVENKEEL_MOSQUITTO` names another program.
    pub fn start(setup: &MosquittoSetup) -> Option<Self> {
        let program = crate::tool("EVENKEEL_MOSQUITTO", "mosquitto").or_else(|| {
            // Debian puts it where only root has its PATH.
            crate::find(std::ffi::OsStr::new("/usr/sbin:/usr/local/sbin"), "mosquitto")
        })?;
        let home = TempDir::new().expect("a temporary directory");
        for _ in 0..5 {
            let free = crate::ports::listen(Ipv4Addr::LOCALHOST.into()).expect("a free port");
            let address = free.local_addr().expect("it is bound");
            configure(&program, home.path(), address, setup);
            drop(free);
            // Somebody else may take the port just now.
            if let Some(child) = run(&program, home.path()) {
                return Some(Self {
                    program,
                    home,
                    address,
                    child: Mutex::new(Some(child)),
                });
            }
        }
        let log = read_log(home.path());
        #[expect(clippy::panic, reason = "a test whose mosquitto does not start has failed")]
        {
            panic!("mosquitto does not start:\n{log}");
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        read_log(self.home.path())
    }

    /// Ends it in good order, so that a persistent one saves its state.
    pub fn stop(&self) {
        if let Some(child) = self.child().take() {
            end(child);
        }
    }

    /// Starts it again on its port; after [`Mosquitto::stop`], or as one act.
    pub fn restart(&self) {
        self.stop();
        let child = run(&self.program, self.home.path());
        assert!(child.is_some(), "mosquitto does not start again:\n{}", self.log());
        *self.child() = child;
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_log(home: &Path) -> String {
    std::fs::read_to_string(home.join("log")).unwrap_or_default()
}

/// Runs it until it says that it does; `None` if it ends instead. That somebody accepts connections at its
/// address would not tell who.
fn run(program: &Path, home: &Path) -> Option<Child> {
    let starts = || read_log(home).matches(" running").count();
    let before = starts();
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(home.join("log"))
        .expect("the directory can be written");
    let mut child = Command::new(program)
        .arg("-c")
        .arg(home.join("conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("mosquitto can be run");
    let patience = Instant::now() + PATIENCE;
    while starts() == before {
        if !matches!(child.try_wait(), Ok(None)) || Instant::now() > patience {
            end(child);
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(child)
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.stop();
    }
}

fn end(mut child: Child) {
    // Once it has ended, its number may be another process's.
    if let Ok(Some(_)) = child.try_wait() {
        return;
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let told = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    let end = Instant::now() + PATIENCE;
    while told.is_ok() && Instant::now() < end {
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // It does not listen to reason; that it is gone already is no fault.
    let _gone = child.kill();
    let _status = child.wait();
}

fn configure(program: &Path, home: &Path, address: SocketAddr, setup: &MosquittoSetup) {
    let mut lines = vec![
        format!("listener {} {}", address.port(), address.ip()),
        "log_dest stderr".to_owned(),
        "log_type all".to_owned(),
        format!("persistence {}", setup.persistent),
        format!("persistence_location {}/", home.display()),
        format!("allow_anonymous {}", setup.credentials.is_none()),
    ];
    // Started by root it would become another user, who may not read here.
    if nix::unistd::geteuid().is_root() {
        lines.push("user root".to_owned());
    }
    if let Some((user, password)) = &setup.credentials {
        let file = home.join("passwords");
        let made = Command::new(program.with_file_name("mosquitto_passwd"))
            .args(["-b", "-c"])
            .args([file.as_os_str(), user.as_ref(), password.as_ref()])
            .status()
            .or_else(|_| {
                // The broker and this tool are in different directories on Debian.
                Command::new("mosquitto_passwd")
                    .args(["-b", "-c"])
                    .args([file.as_os_str(), user.as_ref(), password.as_ref()])
                    .status()
            });
        assert!(
            made.as_ref().is_ok_and(std::process::ExitStatus::success),
            "mosquitto_passwd: {made:?}"
        );
        lines.push(format!("password_file {}", file.display()));
    }
    if let Some(tls) = &setup.tls {
        lines.push(format!("certfile {}", tls.certificate.display()));
        lines.push(format!("keyfile {}", tls.key.display()));
        if let Some(authority) = &tls.client_authority {
            lines.push(format!("cafile {}", authority.display()));
            lines.push("require_certificate true".to_owned());
        }
    }
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{line}").expect("a String takes everything");
    }
    std::fs::write(home.join("conf"), text).expect("the directory can be written");
}
