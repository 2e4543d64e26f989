//! The container images that `cargo xtask image` makes: what is in them, and that they run as a pod runs them
//! that asks for as little as it can.

use evenkeel_api::crd::AgentStatus;
use evenkeel_api::names;
use evenkeel_testkit::containerd::{Containerd, Restricted, Sandbox, missing};
use evenkeel_testkit::{Cluster, ServedApi, free_port, skipped};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Each with the user that it names.
const IMAGES: [(&str, &str); 2] = [("evenkeel", "65532:65532"), ("evenkeel-agent", "0:0")];

/// A file in an image.
#[derive(Debug, PartialEq)]
struct Entry {
    path: String,
    mode: u32,
    owner: (u64, u64),
    bytes: Vec<u8>,
}

/// An image of an architecture.
struct Image {
    architecture: String,
    config: Value,
    entries: Vec<Entry>,
}

/// The directory with the images, if there is one.
fn folder(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("EVENKEEL_IMAGES").map(PathBuf::from);
    if folder.is_none() {
        skipped(
            test,
            "EVENKEEL_IMAGES is not set: `cargo xtask image` makes images, in target/image",
        );
    }
    folder
}

/// The name by which a container runtime knows an image.
fn reference(image: &str) -> String {
    format!("localhost/{image}:{}", env!("CARGO_PKG_VERSION"))
}

/// Everything in a tar file that is a file.
fn untar(tar: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(tar);
    let entries = archive.entries().expect("a tar file").map(|entry| {
        let mut entry = entry.expect("an entry");
        let header = entry.header();
        let owner = (header.uid().expect("a user"), header.gid().expect("a group"));
        // Some tools write the type of the file into its mode, too.
        let mode = header.mode().expect("a mode") & 0o7777;
        let path = entry.path().expect("a path").display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("the archive is whole");
        Entry {
            path,
            mode,
            owner,
            bytes,
        }
    });
    entries.collect()
}

/// The images in an archive by the OCI layout, one for each architecture.
fn unpack(archive: &Path) -> Vec<Image> {
    let bytes = std::fs::read(archive).unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
    let files: BTreeMap<String, Vec<u8>> = untar(&bytes)
        .into_iter()
        .map(|entry| (entry.path, entry.bytes))
        .collect();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().expect("a digest");
        &files[&format!("blobs/{}", digest.replace(':', "/"))][..]
    };
    let read = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
    let mut open = vec![read(&files["index.json"])];
    let mut images = Vec::new();
    while let Some(document) = open.pop() {
        if let Some(manifests) = document["manifests"].as_array() {
            open.extend(manifests.iter().map(|descriptor| read(blob(descriptor))));
            continue;
        }
        let config = read(blob(&document["config"]));
        let mut entries = Vec::new();
        for layer in document["layers"].as_array().expect("layers") {
            let mut plain = Vec::new();
            let read = flate2::read::GzDecoder::new(blob(layer)).read_to_end(&mut plain);
            read.expect("a layer is compressed by gzip");
            entries.extend(untar(&plain));
        }
        images.push(Image {
            architecture: config["architecture"].as_str().unwrap_or_default().to_owned(),
            config,
            entries,
        });
    }
    images
}

/// The types of the segments of a 64-bit little-endian ELF program.
fn segments(program: &[u8]) -> Vec<u32> {
    assert_eq!(&program[..6], b"\x7fELF\x02\x01");
    let number = |at: usize, length: usize| {
        let bytes = program[at..at + length].iter().rev();
        bytes.fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count)
        .map(|index| u32::try_from(number(table + index * size, 4)).expect("four bytes"))
        .collect()
}

#[test]
fn each_image_holds_one_static_program_and_nothing_else() {
    const INTERPRETER: u32 = 3;
    let test = "each_image_holds_one_static_program_and_nothing_else";
    let Some(folder) = folder(test) else { return };
    // Where this machine keeps sources and what it builds.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("the checkout is there");
    let places = [
        root.display().to_string(),
        "/registry/src/".to_owned(),
        "/.cargo/".to_owned(),
    ];
    for (name, user) in IMAGES {
        let images = unpack(&folder.join(format!("{name}.oci.tar")));
        assert!(!images.is_empty());
        for image in images {
            let config = &image.config["config"];
            assert_eq!(config["User"], user);
            assert_eq!(config["Entrypoint"], json!([format!("/{name}")]));
            let version = &config["Labels"]["org.opencontainers.image.version"];
            assert_eq!(version, env!("CARGO_PKG_VERSION"));
            let [program] = &image.entries[..] else {
                panic!("{name} holds {:?}", image.entries.iter().map(|entry| &entry.path));
            };
            assert_eq!(
                (&*program.path, program.owner, program.mode),
                (name, (0, 0), 0o555)
            );
            assert!(
                !segments(&program.bytes).contains(&INTERPRETER),
                "{name} is not static"
            );
            for place in &places {
                let found = memchr(&program.bytes, place.as_bytes());
                let around = found.map(|at| String::from_utf8_lossy(&program.bytes[at..at + 100]));
                assert_eq!(around, None, "{name} names a place of the machine that built it");
            }
        }
    }
}

/// Where `wanted` begins in `bytes`.
fn memchr(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[test]
fn the_list_of_what_is_in_a_program_belongs_to_it() {
    let test = "the_list_of_what_is_in_a_program_belongs_to_it";
    let Some(folder) = folder(test) else { return };
    for (name, _) in IMAGES {
        for image in unpack(&folder.join(format!("{name}.oci.tar"))) {
            let list = folder.join(format!("{name}.{}.cdx.json", image.architecture));
            let list = std::fs::read(&list).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
            let list: Value = serde_json::from_slice(&list).expect("JSON");
            let digest = Sha256::digest(&image.entries[0].bytes);
            let digest: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(
                list["metadata"]["component"]["hashes"][0]["content"],
                digest.concat()
            );
            let components = list["components"].as_array().expect("components");
            let has = |wanted: &str| components.iter().any(|component| component["name"] == wanted);
            for linked in ["rustls", "aws-lc-sys", "rust-std"] {
                assert!(has(linked), "{linked} is in {name}");
            }
            // Macros, tools of the build, tests, and what only the other program has.
            for other in ["syn", "cc", "rstest"] {
                assert!(!has(other), "{other} is not in {name}");
            }
            assert_eq!(has("evenkeel-failover"), name == "evenkeel");
            let known = |reference: &Value| {
                *reference == list["metadata"]["component"]["bom-ref"]
                    || components
                        .iter()
                        .any(|component| component["bom-ref"] == *reference)
            };
            for used in list["dependencies"].as_array().expect("dependencies") {
                let all = used["dependsOn"].as_array().expect("references");
                assert!(known(&used["ref"]) && all.iter().all(known), "{used}");
            }
        }
    }
}

#[test]
fn the_container_file_makes_the_same_images() {
    let test = "the_container_file_makes_the_same_images";
    let Some(folder) = folder(test) else { return };
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("buildah").is_file()) {
        return skipped(test, "no buildah on PATH");
    }
    let home = tempfile::tempdir().expect("a directory");
    let buildah = |args: &[&str]| {
        let ran = Command::new("buildah")
            .arg("--root")
            .arg(home.path().join("root"))
            .arg("--runroot")
            .arg(home.path().join("run"))
            .args(["--storage-driver", "vfs"])
            .args(args)
            .output()
            .expect("buildah starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/Containerfile");
    for (name, _) in IMAGES {
        for image in unpack(&folder.join(format!("{name}.oci.tar"))) {
            let platform = format!("linux/{}", image.architecture);
            let (file, context) = (file.display().to_string(), folder.display().to_string());
            let build = [
                "build",
                "--isolation",
                "chroot",
                "--platform",
                &platform,
                "--target",
                name,
            ];
            buildah(&[&build[..], &["--file", &file, "--tag", name, &context]].concat());
            let made = home.path().join(format!("{name}.tar"));
            buildah(&["push", name, &format!("oci-archive:{}", made.display())]);
            let made = unpack(&made).pop().expect("an image");
            assert_eq!(made.architecture, image.architecture);
            for key in ["User", "Entrypoint"] {
                assert_eq!(made.config["config"][key], image.config["config"][key]);
            }
            assert!(made.entries == image.entries, "{name}: the files differ");
            std::fs::remove_file(home.path().join(format!("{name}.tar"))).expect("it was made");
        }
    }
}

/// Prints what a container has written when its test fails.
struct Told<'a>(&'a Containerd, &'a Sandbox, &'a str);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} wrote:\n{}", self.2, self.0.output(self.1, self.2));
        }
    }
}

/// A cluster's API server, and the kubeconfig of a user of it, which other users of the machine may read.
async fn cluster(name: &str, user: &str, groups: &[&str]) -> (ServedApi, Cluster, PathBuf) {
    let api = ServedApi::start().await;
    let cluster = Cluster::of(&api.server);
    cluster.install().await;
    let _link = api.link_as(name, user, groups).await;
    let kubeconfig = api.home.path().join(format!("{name}.kubeconfig"));
    // By a name, because a static program looks names up by code of its own.
    let text = std::fs::read_to_string(&kubeconfig).expect("it was written");
    std::fs::write(&kubeconfig, text.replace("127.0.0.1", "localhost")).expect("it is ours");
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&kubeconfig, readable).expect("it is ours");
    (api, cluster, kubeconfig)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_a_container_makes_its_key_and_registers() {
    let test = "an_agent_in_a_container_makes_its_key_and_registers";
    let Some(folder) = folder(test) else { return };
    if let Some(why) = missing() {
        return skipped(test, &why);
    }
    let (_api, cluster, kubeconfig) = cluster("a", "system:node:a", &["system:nodes"]).await;
    let labels = json!({names::ZONE_LABELS[0]: "shore"});
    cluster
        .create::<Node>(json!({"metadata": {"name": "a", "labels": labels}}))
        .await;
    let state = tempfile::tempdir().expect("a directory");
    let containerd = Containerd::start().await;
    containerd.import(&folder.join("evenkeel-agent.oci.tar"));
    let sandbox = containerd.sandbox(names::NAMESPACE, "agent").await;
    let listen = format!("127.0.0.1:{}", free_port().expect("a port"));
    let args = ["--node", "a", "--kubeconfig", "/etc/evenkeel/kubeconfig"];
    let more = ["--listen", &listen, "--kubelet", "none", "--leader-elect=false"];
    let wanted = Restricted {
        image: &reference("evenkeel-agent"),
        args: &[&args[..], &more].concat(),
        mounts: &[
            (&kubeconfig, "/etc/evenkeel/kubeconfig"),
            (state.path(), "/var/lib/evenkeel"),
        ],
    };
    let told = Told(&containerd, &sandbox, "agent");
    let id = containerd.restricted(&sandbox, "agent", &wanted).await;
    let status: AgentStatus = cluster
        .until("a", "the agent has registered", |status: &AgentStatus| {
            !status.spec.public_key.is_empty()
        })
        .await;
    assert_eq!(status.spec.address, listen);
    let key = state.path().join("agent.key");
    let mode = key
        .metadata()
        .expect("the agent has made it")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    let key = evenkeel_agent::key::load(&key).expect("it is a key");
    assert_eq!(status.spec.public_key, key.public().to_base64());
    drop(told);

    // No shell, and no other program, can be started beside it.
    let shell = ["/bin/sh".to_owned(), "-c".to_owned(), "true".to_owned()];
    let ran = containerd
        .client()
        .exec(&id, &shell, Duration::from_secs(60))
        .await;
    assert!(ran.map_or(true, |ran| ran.exit_code != 0), "there is a shell");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_in_a_container_leads_as_a_user_without_rights() {
    let test = "a_controller_in_a_container_leads_as_a_user_without_rights";
    let Some(folder) = folder(test) else { return };
    if let Some(why) = missing() {
        return skipped(test, &why);
    }
    let (_api, cluster, kubeconfig) = cluster("controller", "admin", &["system:masters"]).await;
    let containerd = Containerd::start().await;
    containerd.import(&folder.join("evenkeel.oci.tar"));
    let sandbox = containerd.sandbox(names::NAMESPACE, "controller").await;
    let image = reference("evenkeel");
    let version = Restricted {
        image: &image,
        args: &["--version"],
        mounts: &[],
    };
    containerd.restricted(&sandbox, "version", &version).await;
    let printed = evenkeel_testkit::eventually("it prints its version", Duration::from_secs(60), || async {
        Some(containerd.output(&sandbox, "version")).filter(|text| !text.is_empty())
    })
    .await;
    let line = format!("evenkeel {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(printed.contains(&line), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");

    let admin = format!("127.0.0.1:{}", free_port().expect("a port"));
    let args = [
        "controller",
        "--kubeconfig",
        "/etc/evenkeel/kubeconfig",
        "--admin",
        &admin,
    ];
    let wanted = Restricted {
        image: &image,
        args: &[&args[..], &["--identity", "in-a-container"]].concat(),
        mounts: &[(&kubeconfig, "/etc/evenkeel/kubeconfig")],
    };
    let _told = Told(&containerd, &sandbox, "controller");
    containerd.restricted(&sandbox, "controller", &wanted).await;
    let leases = cluster.namespaced(names::NAMESPACE);
    evenkeel_testkit::until("the controller leads", async || {
        leases.holder(names::CONTROLLER_LEASE).await == "in-a-container"
    })
    .await;
}
