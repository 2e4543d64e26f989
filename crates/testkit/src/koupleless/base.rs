//! A base's process.

use super::Built;
use crate::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// For a start, which takes 2 s on an idle machine.
const START: Duration = Duration::from_secs(120);
/// For an answer to a request, the start of a module included.
const ANSWER: Duration = Duration::from_secs(60);
/// For an end that was asked for.
const END: Duration = Duration::from_secs(30);

/// What a base is told by system properties.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Port of arklet's HTTP server; 0 for any that is free.
    pub port: u16,
    /// `http://HOST:PORT` of who wants `POST /heartbeat` every 12 s.
    pub heartbeat: Option<String>,
    /// The broker, if it speaks MQTT too.
    pub mqtt: Option<MqttSetup>,
    /// Its identity.
    pub identity: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its cluster's name.
    pub cluster: String,
    /// Its environment, which MQTT topics begin with.
    pub env: String,
    /// The address that it claims, as the one of its pod; 127.0.0.1 without. It listens on all addresses.
    pub ip: Option<IpAddr>,
    /// The host that it claims to be on, as the name of its pod; `localhost` without.
    pub host: Option<String>,
    /// Limit of the metaspace in MiB; without, health tells of a maximum of -1.
    pub max_metaspace_mib: Option<u32>,
    /// Whether several versions of a module are active at a time; otherwise a second one starts deactivated.
    pub multi_version: bool,
    /// Whether a module that does not start disappears; otherwise it stays, broken.
    pub auto_uninstall: bool,
    /// How long the module `slow` takes to start.
    pub slow: Duration,
    /// How many MiB of metaspace the module `fat` takes.
    pub fat_mib: u32,
}

impl Default for Setup {
    /// A free port, neither heartbeats nor MQTT, the environment `default`, and arklet's own defaults.
    fn default() -> Self {
        Self {
            port: 0,
            heartbeat: None,
            mqtt: None,
            identity: "base-1".to_owned(),
            name: "base".to_owned(),
            version: "1.0.0".to_owned(),
            cluster: "default".to_owned(),
            env: "default".to_owned(),
            ip: None,
            host: None,
            max_metaspace_mib: None,
            multi_version: false,
            auto_uninstall: true,
            slow: Duration::from_secs(3),
            fat_mib: 16,
        }
    }
}

/// A broker, as a base is told of it. Without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttSetup {
    /// Where it is.
    pub broker: SocketAddr,
    /// Of the account; not empty.
    pub username: String,
    /// Of the account; not empty.
    pub password: String,
    /// What the client's ID begins with; not empty.
    pub client_prefix: String,
}

impl MqttSetup {
    /// A broker that takes everybody.
    pub fn open(broker: SocketAddr) -> Self {
        Self {
            broker,
            username: "anybody".to_owned(),
            password: "anything".to_owned(),
            client_prefix: "koupleless".to_owned(),
        }
    }
}

impl Setup {
    /// The options of `java`, but for the class path.
    fn options(&self, directory: &Path) -> Vec<String> {
        let mut properties = vec![
            ("koupleless.arklet.http.port", self.port.to_string()),
            (
                "com.alipay.sofa.ark.biz.dir",
                directory.join("biz").display().to_string(),
            ),
            ("logging.path", directory.join("logs").display().to_string()),
            ("java.io.tmpdir", directory.display().to_string()),
            (
                "sofa.ark.activate.multi.biz.version.enable",
                self.multi_version.to_string(),
            ),
            (
                "sofa.ark.auto.uninstall.when.failed.enable",
                self.auto_uninstall.to_string(),
            ),
            ("evenkeel.base.identity", self.identity.clone()),
            ("evenkeel.base.name", self.name.clone()),
            ("evenkeel.base.version", self.version.clone()),
            ("evenkeel.base.cluster", self.cluster.clone()),
            ("evenkeel.base.env", self.env.clone()),
            ("evenkeel.base.tied", "true".to_owned()),
            ("evenkeel.slow.ms", self.slow.as_millis().to_string()),
            ("evenkeel.fat.mib", self.fat_mib.to_string()),
        ];
        let ip = self.ip.map(|ip| ("evenkeel.base.ip", ip.to_string()));
        let host = self.host.clone().map(|host| ("evenkeel.base.host", host));
        properties.extend(ip.into_iter().chain(host));
        if let Some(url) = &self.heartbeat {
            properties.push(("koupleless.arklet.http.heartbeat.endpoint", url.clone()));
        }
        if let Some(mqtt) = &self.mqtt {
            let tunnel = "io.evenkeel.interop.Mqtt".to_owned();
            properties.extend([
                ("koupleless.arklet.custom.tunnel.classname", tunnel),
                ("koupleless.arklet.mqtt.enable", "true".to_owned()),
                ("koupleless.arklet.mqtt.broker", mqtt.broker.ip().to_string()),
                ("koupleless.arklet.mqtt.port", mqtt.broker.port().to_string()),
                ("koupleless.arklet.mqtt.username", mqtt.username.clone()),
                ("koupleless.arklet.mqtt.password", mqtt.password.clone()),
                ("koupleless.arklet.mqtt.client.prefix", mqtt.client_prefix.clone()),
            ]);
        }
        // The container gets at class loaders by reflection.
        let mut options = vec![
            "--add-opens=java.base/java.lang=ALL-UNNAMED".to_owned(),
            "--add-opens=java.base/java.net=ALL-UNNAMED".to_owned(),
            "-XX:TieredStopAtLevel=1".to_owned(),
            "-Xmx256m".to_owned(),
        ];
        let limit = self.max_metaspace_mib;
        options.extend(limit.map(|mib| format!("-XX:MaxMetaspaceSize={mib}m")));
        options.extend(
            properties
                .iter()
                .map(|(property, value)| format!("-D{property}={value}")),
        );
        options
    }
}

/// A base's process, with a directory of its own. Ends with the test, however that ends; killed when dropped.
#[derive(Debug)]
pub struct JavaBase {
    java: PathBuf,
    class_path: String,
    setup: Setup,
    directory: tempfile::TempDir,
    child: Child,
}

impl JavaBase {
    pub(super) async fn start(built: &Built, mut setup: Setup) -> Self {
        if setup.port == 0 {
            setup.port = free_port().expect("a port is free");
        }
        let base = built.directory.join("base").display().to_string();
        let class_path = format!("{base}/base.jar:{base}/lib/*");
        let directory = tempfile::Builder::new()
            .prefix("evenkeel-base")
            .tempdir()
            .expect("a directory");
        let child = spawn(&built.java, &class_path, &setup, directory.path()).expect("java starts");
        let mut this = Self {
            java: built.java.clone(),
            class_path,
            setup,
            directory,
            child,
        };
        this.ready().await;
        this
    }

    /// What it was told, with the port that it has.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Where arklet's HTTP server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.setup.port).into()
    }

    /// What it and the modules have said, all starts together.
    pub fn output(&self) -> String {
        fs::read_to_string(self.directory.path().join("output")).unwrap_or_default()
    }

    /// The answer to `POST /COMMAND`; fails the test without one.
    pub async fn post(&self, command: &str, body: &Value) -> Value {
        let (_, answer) = self.post_raw(command, &body.to_string()).await;
        let parsed = serde_json::from_str(&answer);
        assert!(parsed.is_ok(), "{command} {body}: {answer:?}");
        parsed.expect("looked at above")
    }

    /// The same as texts: what comes before the answer's body, the empty line included, and the body.
    pub async fn post_raw(&self, command: &str, body: &str) -> (String, String) {
        let answer = tokio::time::timeout(ANSWER, post(self.address(), command, body)).await;
        assert!(
            matches!(answer, Ok(Ok(_))),
            "{command} {body}: {answer:?}; the base said:\n{}",
            self.output()
        );
        answer.expect("looked at above").expect("looked at above")
    }

    /// Ends it by force.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Asks it to end (SIGTERM), and waits for that.
    pub async fn stop(&mut self) -> ExitStatus {
        kill(self.id(), Signal::SIGTERM).expect("it is our child");
        let child = std::cell::RefCell::new(&mut self.child);
        crate::eventually("the base ends", END, || async {
            child.borrow_mut().try_wait().expect("it is our child")
        })
        .await
    }

    /// From now on it takes connections and says nothing.
    pub fn hang(&self) {
        kill(self.id(), Signal::SIGSTOP).expect("it is our child");
    }

    /// The end of [`JavaBase::hang`].
    pub fn wake(&self) {
        kill(self.id(), Signal::SIGCONT).expect("it is our child");
    }

    /// Starts it again, at the same port and with the same identity, and waits until it answers; ends it by
    /// force before, if it runs. It has no modules then.
    pub async fn restart(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
        let started = spawn(&self.java, &self.class_path, &self.setup, self.directory.path());
        self.child = started.expect("java starts");
        self.ready().await;
    }

    fn id(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process ID is small"))
    }

    /// Waits for health with figures of the JVM: the HTTP server is there before those.
    #[expect(clippy::panic, reason = "fails the test")]
    async fn ready(&mut self) {
        let end = tokio::time::Instant::now() + START;
        while tokio::time::Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the base ended before it was ready, {status}:\n{}", self.output())
            }
            let asked = post(self.address(), "health", "{}");
            if let Ok(Ok((_, health))) = tokio::time::timeout(Duration::from_secs(5), asked).await
                && let Ok(health) = serde_json::from_str::<Value>(&health)
                && health["data"]["healthData"]["jvm"].is_object()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the base is not ready within {START:?}:\n{}", self.output())
    }
}

impl Drop for JavaBase {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(java: &Path, class_path: &str, setup: &Setup, directory: &Path) -> io::Result<Child> {
    let output = fs::File::options()
        .append(true)
        .create(true)
        .open(directory.join("output"))?;
    Command::new(java)
        .args(setup.options(directory))
        .args(["-cp", class_path, "io.evenkeel.interop.Base"])
        .current_dir(directory)
        // It ends when this is closed, so with us.
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
}

/// One request on a connection of its own, as arklet ends its answers by closing it.
async fn post(address: SocketAddr, command: &str, body: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let head = format!("POST /{command} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other(format!("no answer: {answer:?}")))?;
    Ok((format!("{head}\r\n\r\n"), body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_becomes_the_documented_properties() {
        let options = |setup: &Setup| setup.options(Path::new("/d")).join("\n");
        let plain = Setup {
            port: 1238,
            ..Setup::default()
        };
        let said = options(&plain);
        for wanted in [
            "-Dkoupleless.arklet.http.port=1238",
            "-Dcom.alipay.sofa.ark.biz.dir=/d/biz",
            "-Dsofa.ark.activate.multi.biz.version.enable=false",
            "-Dsofa.ark.auto.uninstall.when.failed.enable=true",
        ] {
            assert!(said.lines().any(|line| line == wanted), "{wanted} in {said}");
        }
        for unwanted in [
            "MaxMetaspaceSize",
            "heartbeat",
            "mqtt",
            "tunnel",
            "base.ip",
            "base.host",
        ] {
            assert!(!said.contains(unwanted), "{unwanted} in {said}");
        }
        let full = Setup {
            heartbeat: Some("http://127.0.0.1:7777".to_owned()),
            mqtt: Some(MqttSetup::open((Ipv4Addr::LOCALHOST, 1883).into())),
            max_metaspace_mib: Some(128),
            ip: Some(Ipv4Addr::new(127, 64, 0, 2).into()),
            host: Some("base-0".to_owned()),
            ..plain
        };
        let said = options(&full);
        for wanted in [
            "-XX:MaxMetaspaceSize=128m",
            "-Devenkeel.base.ip=127.64.0.2",
            "-Devenkeel.base.host=base-0",
            "-Dkoupleless.arklet.http.heartbeat.endpoint=http://127.0.0.1:7777",
            "-Dkoupleless.arklet.custom.tunnel.classname=io.evenkeel.interop.Mqtt",
            "-Dkoupleless.arklet.mqtt.enable=true",
            "-Dkoupleless.arklet.mqtt.broker=127.0.0.1",
            "-Dkoupleless.arklet.mqtt.port=1883",
        ] {
            assert!(said.lines().any(|line| line == wanted), "{wanted} in {said}");
        }
    }
}
