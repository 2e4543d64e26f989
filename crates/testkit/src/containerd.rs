//! A containerd of the test's own, with a root file system made of a static busybox. Without a network: pods
//! use the machine's.

use super::find;
use evenkeel_cri::{self as cri, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

mod proto;

/// The image that [`Containerd`] has.
pub const IMAGE: &str = "evenkeel.test/busybox:1";
/// What its root file system has in `/bin`.
const TOOLS: [&str; 11] = [
    "sh", "sleep", "cat", "echo", "yes", "head", "touch", "rm", "env", "ps", "kill",
];
/// Its configuration's file.
const CONFIG: &str = "config.toml";
/// For each step of a start.
const LONG: Duration = Duration::from_secs(60);

/// Why a test with containerd cannot run here; `None` if it can.
///
/// ```
/// if let Some(why) = evenkeel_testkit::containerd::missing() {
///     return evenkeel_testkit::skipped("commands_run_in_containers", &why);
/// }
/// ```
pub fn missing() -> Option<String> {
    if !Uid::effective().is_root() {
        return Some("containerd needs root".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = ["containerd", "ctr", "runc", "busybox", "tar", "sha256sum"];
    if let Some(tool) = tools.into_iter().find(|tool| find(&path, tool).is_none()) {
        return Some(format!("no {tool} on PATH"));
    }
    let busybox = fs::read(find(&path, "busybox")?).unwrap_or_default();
    let dynamic = busybox.windows(9).any(|bytes| bytes == b"/ld-linux");
    dynamic.then(|| "busybox is not static: install busybox-static".to_owned())
}

/// A running containerd. Dropped, it is ended with all its containers, and its files are deleted.
pub struct Containerd {
    dir: tempfile::TempDir,
    child: Child,
    client: Client,
}

/// A container of a pod that asks for as little as it can: the image's own program and user, a read-only file
/// system, no capabilities, and no way to more rights.
pub struct Restricted<'a> {
    /// The image's name, as it was imported.
    pub image: &'a str,
    /// Arguments for the image's program.
    pub args: &'a [&'a str],
    /// Files and directories of the machine, each with its place in the container.
    pub mounts: &'a [(&'a Path, &'a str)],
}

/// A pod's sandbox.
pub struct Sandbox {
    /// The runtime's ID.
    pub id: String,
    config: proto::PodSandboxConfig,
}

impl Containerd {
    /// Starts one and gives it [`IMAGE`]. Call [`missing`] first.
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("evenkeel-ctd")
            .tempdir()
            .expect("a directory");
        let socket = dir.path().join("ctd.sock");
        fs::write(dir.path().join(CONFIG), configuration(dir.path())).expect("a configuration");
        let child = spawn(dir.path()).expect("containerd starts");
        let mut started = Starting {
            dir,
            child: Some(child),
        };
        let client = crate::eventually("containerd answers", LONG, || async {
            Client::connect(&socket).await.ok()
        })
        .await;
        let child = started.child.take().expect("it was started");
        let dir = std::mem::replace(&mut started.dir, tempfile::tempdir().expect("a directory"));
        let this = Self { dir, child, client };
        this.import(&image(this.dir.path()));
        this
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.client.socket().to_path_buf()
    }

    /// A client of it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Takes the image of an archive by the OCI layout.
    pub fn import(&self, archive: &Path) {
        self.ctr(["images", "import", &archive.display().to_string()])
            .expect("the image is taken");
    }

    /// A new pod in the machine's network, with a kubelet's labels.
    pub async fn sandbox(&self, namespace: &str, pod: &str) -> Sandbox {
        let logs = self.dir.path().join("logs").join(namespace).join(pod);
        fs::create_dir_all(&logs).expect("a directory");
        let config = proto::PodSandboxConfig::new(namespace, pod, logs.display().to_string());
        let request = proto::RunPodSandboxRequest {
            config: Some(config.clone()),
        };
        let answer: Result<proto::RunPodSandboxResponse, _> =
            self.client.call("RunPodSandbox", request, LONG).await;
        let answer = self.expected(answer);
        Sandbox {
            id: answer.pod_sandbox_id,
            config,
        }
    }

    /// A new container in `sandbox` that runs `command`, started; its ID.
    pub async fn container(&self, sandbox: &Sandbox, name: &str, attempt: u32, command: &[&str]) -> String {
        let config = proto::ContainerConfig {
            metadata: Some(proto::ContainerMetadata {
                name: name.to_owned(),
                attempt,
            }),
            image: Some(proto::ImageSpec {
                image: IMAGE.to_owned(),
            }),
            command: owned(command),
            ..proto::ContainerConfig::default()
        };
        self.created(sandbox, name, config).await
    }

    /// A new container in `sandbox`, started; its ID. [`Containerd::output`] is what it writes.
    pub async fn restricted(&self, sandbox: &Sandbox, name: &str, wanted: &Restricted<'_>) -> String {
        let mounts = wanted.mounts.iter().map(|(here, there)| proto::Mount {
            container_path: (*there).to_owned(),
            host_path: here.display().to_string(),
        });
        let config = proto::ContainerConfig {
            metadata: Some(proto::ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            image: Some(proto::ImageSpec {
                image: wanted.image.to_owned(),
            }),
            args: owned(wanted.args),
            mounts: mounts.collect(),
            log_path: format!("{name}.log"),
            linux: Some(proto::LinuxContainerConfig {
                security_context: Some(proto::LinuxContainerSecurityContext {
                    capabilities: Some(proto::Capability {
                        drop_capabilities: vec!["ALL".to_owned()],
                    }),
                    namespace_options: Some(proto::NamespaceOption { network: 2, pid: 1 }),
                    readonly_rootfs: true,
                    no_new_privs: true,
                }),
            }),
            ..proto::ContainerConfig::default()
        };
        self.created(sandbox, name, config).await
    }

    /// What a container has written so far, with the runtime's stamp before each line.
    pub fn output(&self, sandbox: &Sandbox, name: &str) -> String {
        let logs = Path::new(&sandbox.config.log_directory);
        fs::read_to_string(logs.join(format!("{name}.log"))).unwrap_or_default()
    }

    async fn created(&self, sandbox: &Sandbox, name: &str, mut config: proto::ContainerConfig) -> String {
        let labels = [("io.kubernetes.container.name".to_owned(), name.to_owned())];
        config.labels = HashMap::from(labels);
        config.labels.extend(sandbox.config.labels.clone());
        let request = proto::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        };
        let answer: Result<proto::CreateContainerResponse, _> =
            self.client.call("CreateContainer", request, LONG).await;
        let container_id = self.expected(answer).container_id;
        let request = proto::StartContainerRequest {
            container_id: container_id.clone(),
        };
        let answer: Result<proto::Nothing, _> = self.client.call("StartContainer", request, LONG).await;
        self.expected(answer);
        container_id
    }

    /// Ends a container of `sandbox` by force, and waits until the runtime says so.
    pub async fn end_container(&self, sandbox: &Sandbox, id: &str) {
        self.ctr(["tasks", "kill", "--signal", "KILL", id])
            .expect("the container runs");
        let pod = sandbox.config.metadata.clone().unwrap_or_default();
        crate::eventually("the container has ended", LONG, || async {
            let found = self.client.containers(&pod.namespace, &pod.name).await.ok()?;
            let running = |one: &cri::Container| one.id == id && one.state != cri::State::Exited;
            (!found.iter().any(running)).then_some(())
        })
        .await;
    }

    /// Ends containerd by force. Its containers go on.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Starts it again after [`Containerd::kill`].
    pub async fn again(&mut self) {
        self.child = spawn(self.dir.path()).expect("containerd starts");
        crate::eventually("containerd answers again", LONG, || async {
            self.client.version().await.ok()
        })
        .await;
    }

    /// From now on it takes connections and says nothing.
    pub fn hang(&self) {
        kill(id_of(&self.child), Signal::SIGSTOP).expect("it is our child");
    }

    /// The end of [`Containerd::hang`].
    pub fn wake(&self) {
        kill(id_of(&self.child), Signal::SIGCONT).expect("it is our child");
    }

    /// The answer, or the end of the test with the log.
    fn expected<T>(&self, answer: Result<T, cri::Error>) -> T {
        let log = if answer.is_err() {
            self.log()
        } else {
            String::new()
        };
        assert!(answer.is_ok(), "{:?}; {log}", answer.as_ref().err());
        answer.expect("looked at above")
    }

    /// Runs `ctr` against it, in the namespace of Kubernetes; its standard output.
    fn ctr<const N: usize>(&self, arguments: [&str; N]) -> io::Result<String> {
        run(Command::new("ctr")
            .arg("--address")
            .arg(self.client.socket())
            .args(["--namespace", "k8s.io"])
            .args(arguments))
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // A test may fail while it hangs, or is gone; containers can only be ended by one that answers.
        let _ = kill(id_of(&self.child), Signal::SIGCONT);
        if matches!(self.child.try_wait(), Ok(Some(_)))
            && let Ok(child) = spawn(self.dir.path())
        {
            self.child = child;
            let deadline = std::time::Instant::now() + Duration::from_secs(10);
            while self.ctr(["version"]).is_err() && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let tasks = self.ctr(["tasks", "list", "--quiet"]).unwrap_or_default();
        for task in tasks.lines() {
            // One that ends meanwhile needs no killing.
            let _ = self.ctr(["tasks", "delete", "--force", task]);
        }
        end(&mut self.child);
        unmount(self.dir.path());
    }
}

/// A containerd that nobody has reached yet.
struct Starting {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
            unmount(self.dir.path());
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn id_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("a process ID is small"))
}

/// Starts one in `dir`, where its configuration is.
fn spawn(dir: &Path) -> io::Result<Child> {
    let log = fs::File::options()
        .append(true)
        .create(true)
        .open(dir.join("log"))?;
    Command::new("containerd")
        .arg("--config")
        .arg(dir.join(CONFIG))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

fn end(child: &mut Child) {
    let _ = kill(id_of(child), Signal::SIGTERM);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while matches!(child.try_wait(), Ok(None)) {
        if std::time::Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Unmounts whatever is mounted below `dir`, the last first.
fn unmount(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split_whitespace().nth(4))
        .filter(|point| Path::new(point).starts_with(dir))
        .collect();
    for point in below.into_iter().rev() {
        let _ = run(Command::new("umount").args(["--lazy", point]));
    }
}

fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{dir}/ctd.sock"
[ttrpc]
  address = "{dir}/ctd.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{dir}/cni/bin"
  conf_dir = "{dir}/cni/conf"
"#
    )
}

/// Makes an archive as `docker save` does: one layer with busybox, whose entry point sleeps.
fn image(dir: &Path) -> PathBuf {
    let (root, parts) = (dir.join("image/root"), dir.join("image"));
    for below in ["bin", "tmp", "proc", "sys", "dev", "etc"] {
        fs::create_dir_all(root.join(below)).expect("a directory");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let busybox = find(&path, "busybox").expect("looked for by missing()");
    fs::copy(busybox, root.join("bin/busybox")).expect("a copy");
    for tool in TOOLS {
        symlink("busybox", root.join("bin").join(tool)).expect("a link");
    }
    let tar = |from: &Path, to: &Path, what: &[&str]| {
        let mut command = Command::new("tar");
        run(command.arg("-C").arg(from).arg("-cf").arg(to).args(what)).expect("an archive");
    };
    let layer = parts.join("layer.tar");
    tar(&root, &layer, &["."]);
    let sum = run(Command::new("sha256sum").arg(&layer)).expect("a checksum");
    let sum = sum.split_whitespace().next().expect("a checksum").to_owned();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = serde_json::json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{sum}")] },
    });
    let manifest = serde_json::json!([{
        "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"],
    }]);
    fs::write(parts.join("config.json"), config.to_string()).expect("a file");
    fs::write(parts.join("manifest.json"), manifest.to_string()).expect("a file");
    let archive = dir.join("image.tar");
    tar(&parts, &archive, &["manifest.json", "config.json", "layer.tar"]);
    archive
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let program: &OsStr = command.get_program();
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{}: {}: {said}",
        program.display(),
        output.status
    )))
}
