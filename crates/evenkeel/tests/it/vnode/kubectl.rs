//! kubectl, every version that is here, by the API server's proxy and the kubelet API of a virtual node.

use super::world::World;
use evenkeel_testkit::kubectl::{Kubectl, PATIENCE, text};
use evenkeel_testkit::{SOON, eventually, until, until_within};
use nix::pty::{Winsize, openpty};
use serde_json::json;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

pub(crate) fn all(world: &World, test: &str) -> Vec<Kubectl> {
    Kubectl::all(test, &world.kubeconfig, &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reaches_into_containers() {
    let world = World::start().await;
    let kubectls = all(&world, "kubectl_reaches_into_containers");
    let Some(first) = kubectls.first() else {
        return;
    };
    let _vnode = world.vnode("kubectl", 2, &[]);
    reaches_into_containers(&world, &kubectls).await;
    let top = first.succeeds(&["top", "nodes"]).await;
    assert!(top.contains("vnode-0") && top.contains("vnode-1"), "{top}");
    let top = first.succeeds(&["top", "pods", "--containers"]).await;
    assert!(top.contains("talker") && top.contains("app"), "{top}");
    says_why_a_pod_waits(first, &world).await;
}

/// Whatever kubectl does in containers, on two virtual nodes that a process serves.
pub(crate) async fn reaches_into_containers(world: &World, kubectls: &[Kubectl]) {
    world.nodes_are_ready(2).await;
    let talks = json!({"annotations": {
        "simulated.evenkeel.io/log": "line {n}",
        "simulated.evenkeel.io/log-interval": "50ms",
    }});
    let ports =
        json!({"containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}]}]});
    world.pod("talker", 0, talks, ports).await;
    let echoes = json!({"annotations": {"simulated.evenkeel.io/run": "command"}});
    let reads = json!({"containers": [{"name": "app", "image": "app:1", "stdin": true,
        "command": ["cat"]}]});
    world.pod("echo", 1, echoes, reads).await;
    world.all_ready().await;
    until("the kubelet API has its certificate", async || {
        kubectls[0].output(&["logs", "talker"]).await.status.success()
    })
    .await;

    for kubectl in kubectls {
        follows_logs(kubectl).await;
        runs_commands(kubectl).await;
        copies_files(kubectl).await;
        works_in_a_terminal(kubectl).await;
        attaches(kubectl).await;
        forwards_ports(kubectl).await;
    }
}

async fn says_why_a_pod_waits(kubectl: &Kubectl, world: &World) {
    let on_the_host = json!({"hostNetwork": true});
    world.pod("refused", 0, json!({}), on_the_host).await;
    until("kubectl get pods says why", async || {
        let pods = kubectl.succeeds(&["get", "pods", "refused"]).await;
        pods.contains("UnsupportedPodSpec")
    })
    .await;
    eventually("kubectl describe says why", SOON, || async {
        let described = kubectl.succeeds(&["describe", "pod", "refused"]).await;
        let (pod, events) = described.split_once("Events:")?;
        let waits = ["Pending", "UnsupportedPodSpec"]
            .iter()
            .all(|word| pod.contains(word));
        // Of what a container waits for it shows the reason alone; the message is in the Event.
        let says = ["UnsupportedPodSpec", "spec.hostNetwork"]
            .iter()
            .all(|word| events.contains(word));
        (waits && says).then_some(())
    })
    .await;
}

async fn follows_logs(kubectl: &Kubectl) {
    let mut child = kubectl
        .command(&["logs", "-f", "--tail=3", "talker"])
        .spawn()
        .expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut numbers = Vec::new();
    while numbers.len() < 8 {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{kubectl}: no more lines after {numbers:?}"));
        let line = line
            .expect("output is text")
            .unwrap_or_else(|| panic!("{kubectl}: logs -f ended: {numbers:?}"));
        let number = line
            .strip_prefix("line ")
            .and_then(|number| number.parse::<u64>().ok());
        numbers.push(number.unwrap_or_else(|| panic!("{kubectl}: {line:?}")));
    }
    assert!(
        numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{kubectl}: {numbers:?}"
    );
}

async fn runs_commands(kubectl: &Kubectl) {
    let output = kubectl
        .output(&["exec", "talker", "--", "cat", "/etc/hostname", "/nowhere"])
        .await;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(out, "talker\n", "{kubectl}: {err}");
    assert!(
        err.starts_with("cat: /nowhere: No such file or directory\n"),
        "{kubectl}: {err}"
    );
    assert_eq!(output.status.code(), Some(1), "{kubectl}");
    let output = kubectl
        .output(&["exec", "talker", "--", "sh", "-c", "exit 3"])
        .await;
    assert_eq!(output.status.code(), Some(3), "{kubectl}");

    let sent: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
    let output = kubectl
        .fed(&["exec", "-i", "talker", "--", "cat"], Some(&sent))
        .await;
    assert!(
        output.stdout == sent,
        "{kubectl}: {} of {} bytes came back",
        output.stdout.len(),
        sent.len()
    );
}

async fn copies_files(kubectl: &Kubectl) {
    let here = kubectl.home.path();
    let contents = "what is copied\n".repeat(10_000);
    std::fs::create_dir_all(here.join("tree/sub")).expect("the directory is writable");
    std::fs::write(here.join("tree/sub/file"), &contents).expect("the directory is writable");
    let tree = here.join("tree");
    let there = "talker:/tmp/copied";
    kubectl
        .succeeds(&["cp", tree.to_str().expect("a text"), there])
        .await;
    let shown = kubectl
        .succeeds(&["exec", "talker", "--", "cat", "/tmp/copied/sub/file"])
        .await;
    assert_eq!(shown, contents, "{kubectl}");
    let back = here.join("back");
    kubectl
        .succeeds(&["cp", there, back.to_str().expect("a text")])
        .await;
    let read = std::fs::read_to_string(back.join("sub/file"));
    assert_eq!(read.expect("it was copied"), contents, "{kubectl}");
    kubectl
        .succeeds(&["exec", "talker", "--", "rm", "-rf", "/tmp/copied"])
        .await;
}

async fn works_in_a_terminal(kubectl: &Kubectl) {
    let size = Winsize {
        ws_row: 17,
        ws_col: 91,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).expect("a pseudo-terminal");
    let end = || Stdio::from(pty.slave.try_clone().expect("the handle can be copied"));
    let mut child = kubectl
        .command(&["exec", "-it", "talker", "--", "sh"])
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .expect("kubectl starts");
    let seen = Arc::new(Mutex::new(String::new()));
    let master = || std::fs::File::from(pty.master.try_clone().expect("the handle can be copied"));
    let (mut output, shown) = (master(), seen.clone());
    // Ends with the terminal.
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            shown
                .lock()
                .expect("nobody panics with it")
                .push_str(&text(&buffer[..count]));
        }
    });
    let shows = async |wanted: &str| {
        until_within(&format!("{kubectl} shows {wanted:?}"), PATIENCE, async || {
            seen.lock().expect("nobody panics with it").contains(wanted)
        })
        .await;
    };
    let mut keys = tokio::fs::File::from_std(master());
    let mut types = async |line: &str| {
        keys.write_all(line.as_bytes())
            .await
            .expect("the terminal is open");
        keys.flush().await.expect("the terminal is open");
    };
    // A size comes a moment after the prompt.
    let screen = || seen.lock().expect("nobody panics with it").clone();
    let told = async {
        let mut asked = 0;
        while !screen().contains("17 91") {
            asked += 1;
            until_within(&format!("{kubectl} shows prompt {asked}"), PATIENCE, async || {
                screen().matches("/ # ").count() >= asked
            })
            .await;
            types("stty size\r").await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    assert!(told.is_ok(), "{kubectl}: the size never comes: {:?}", screen());
    types("echo no\x7f\x7fyes it ed''its\r").await;
    shows("yes it edits").await;
    types("sleep 1000\r").await;
    shows("sleep 1000").await;
    types("\x03").await;
    types("echo inter''rupted\r").await;
    shows("interrupted").await;
    types("exit 5\r").await;
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    let ended = ended
        .unwrap_or_else(|_| panic!("{kubectl}: the shell does not end"))
        .expect("it is our child");
    assert_eq!(ended.code(), Some(5), "{kubectl}: {:?}", seen.lock());
    drop((keys, pty));
    reader.join().expect("it only reads");
}

async fn attaches(kubectl: &Kubectl) {
    let mut child = kubectl
        .command(&["attach", "-i", "echo"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let word = format!("{}-{}", kubectl.program.display(), kubectl.websockets);
    stdin
        .write_all(format!("{word}\n").as_bytes())
        .await
        .expect("it reads");
    loop {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line
            .unwrap_or_else(|_| panic!("{kubectl}: attach shows nothing"))
            .expect("output is text");
        if line.unwrap_or_else(|| panic!("{kubectl}: attach ended")) == word {
            return;
        }
    }
}

async fn forwards_ports(kubectl: &Kubectl) {
    let forwarding = kubectl.forward("pod/talker", 8080).await;
    let port = forwarding.port;
    let ask = async || {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("it listens");
        let request = b"GET / HTTP/1.1\r\nHost: talker\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .await
            .expect("an answer that ends");
        answer
    };
    let answers = tokio::time::timeout(PATIENCE, futures::future::join3(ask(), ask(), ask())).await;
    let (one, two, three) = answers.unwrap_or_else(|_| panic!("{kubectl}: no answer through the port"));
    for answer in [one, two, three] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{kubectl}: {answer}");
    }
}
