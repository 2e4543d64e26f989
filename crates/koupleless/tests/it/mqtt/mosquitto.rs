//! Debian's Mosquitto as a process, where it is installed.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct Mosquitto {
    pub(crate) address: SocketAddr,
    directory: TempDir,
    child: Option<Child>,
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks where Debian puts daemons, too.
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join("mosquitto"))
        .find(|file| file.is_file())
}

impl Mosquitto {
    /// Starts it with these lines of configuration besides the listener; `files` go beside it.
    pub(crate) async fn start(lines: &str, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        // Free now; whoever takes it before Mosquitto does makes the test fail, not pass.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let config = format!("listener {} 127.0.0.1\n{lines}\n", address.port());
        let config = config.replace("DIR", directory.path().to_str().unwrap());
        std::fs::write(directory.path().join("mosquitto.conf"), config).unwrap();
        let mut broker = Self {
            address,
            directory,
            child: None,
        };
        broker.again().await;
        broker
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) async fn again(&mut self) {
        let log = std::fs::File::create(self.file("log")).unwrap();
        let mut command = Command::new(find().unwrap());
        command.arg("-c").arg(self.file("mosquitto.conf"));
        // Started by root it would become a user who cannot read the files.
        command.stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        evenkeel_testkit::eventually("mosquitto listens", Duration::from_secs(20), || async {
            TcpStream::connect(self.address).ok().map(drop)
        })
        .await;
    }
}
