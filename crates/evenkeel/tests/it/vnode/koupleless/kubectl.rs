//! What people see of bases and modules: kubectl, through the API server, the virtual node and the base's
//! pod.

use super::super::kubectl::all;
use super::built;
use super::landscape::{Landscape, node_name};
use evenkeel_testkit::kubectl::{Kubectl, PATIENCE, text};
use evenkeel_testkit::{SOON, eventually, until};
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

const CAUSE: &str = "IllegalArgumentException: no database at db.example:5432";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_shows_modules_and_reaches_the_pod_of_their_base() {
    let test = "kubectl_shows_modules_and_reaches_the_pod_of_their_base";
    let Some(built) = built(test) else { return };
    let land = Landscape::start(built, 1, &["--log-mark", "[biz={module}]"]).await;
    let kubectls = all(&land.scene.world, test);
    let Some(first) = kubectls.first() else { return };
    let node = node_name("base-0");
    let modules = ["good", "one"].map(|name| (name, "1.0.0", land.jar(name)));
    land.scene.pod_on(&node, "modules", &modules).await;
    land.scene
        .pod_on(&node, "failing", &[("failing", "1.0.0", land.jar("failing"))])
        .await;
    land.scene.ready::<Pod>("modules").await;
    land.scene.event("failing", "", CAUSE).await;

    shows_pods(first).await;
    shows_nodes(first, &node).await;
    approves(first).await;
    for kubectl in &kubectls {
        reads_logs(kubectl).await;
        follows_logs(kubectl).await;
        runs_commands(kubectl).await;
        attaches(kubectl).await;
        forwards_ports(kubectl, land.bases["base-0"].address().port()).await;
    }
    let top = first.succeeds(&["top", "nodes"]).await;
    let row = row(&top, &node);
    assert!(!row.contains("<unknown>"), "{top}");
}

/// The line that begins with this word.
fn row<'a>(table: &'a str, word: &str) -> &'a str {
    let found = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(word));
    found.unwrap_or_else(|| panic!("no {word} in {table}"))
}

fn has_all(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in\n{text}");
    }
}

async fn shows_pods(kubectl: &Kubectl) {
    let pods = kubectl.succeeds(&["get", "pods", "-o", "wide"]).await;
    has_all(
        row(&pods, "failing"),
        &["0/1", "InstallFailed", "vnode.base-0.dev"],
    );
    has_all(row(&pods, "modules"), &["2/2", "Running", "127.64.0.2", "1/1"]);
    let described = kubectl.succeeds(&["describe", "pod", "failing"]).await;
    has_all(&described, &["InstallFailed", "module.koupleless.io/installed"]);
    let events = described.split_once("Events:").expect("it has events").1;
    has_all(
        events,
        &["Warning", "could not be installed on base base-0", CAUSE],
    );
    let events = kubectl.succeeds(&["get", "events"]).await;
    has_all(&events, &["pod/failing", CAUSE]);
    // What a condition said while it was False is not left behind.
    let conditions = kubectl
        .succeeds(&[
            "get",
            "pod",
            "modules",
            "-o",
            "jsonpath={.status.conditions[*].message}",
        ])
        .await;
    assert_eq!(conditions, "");
}

async fn shows_nodes(kubectl: &Kubectl, node: &str) {
    let wide = eventually("the node says by which Java its base runs", SOON, async || {
        let nodes = kubectl.succeeds(&["get", "nodes", "-o", "wide"]).await;
        nodes.contains(" Java ").then_some(nodes)
    })
    .await;
    has_all(
        row(&wide, node),
        &["Ready", "agent", "Koupleless base base 1.0.0", "arklet://"],
    );
    let described = kubectl.succeeds(&["describe", "node", node]).await;
    has_all(
        &described,
        &[
            "base.koupleless.io/host-name=base-0",
            "schedule.koupleless.io/virtual-node=True:NoExecute",
            "schedule.koupleless.io/node-env=dev:NoExecute",
            "koupleless://base-0",
            "memory:  64Mi",
            "KubeletReady",
            "modules",
        ],
    );
    assert!(!wide.contains("<unknown>"), "{wide}");
}

/// The kubelet API of bases needs a certificate, which an administrator approves.
async fn approves(kubectl: &Kubectl) {
    until("requests for certificates are approved", async || {
        let requests = kubectl.succeeds(&["get", "csr", "-o", "name"]).await;
        let mut line = vec!["certificate", "approve"];
        line.extend(requests.lines());
        // That of the machine is approved by itself.
        let approved = kubectl.output(&line).await;
        line.len() == 4 && approved.status.success()
    })
    .await;
    until("the kubelet API has its certificate", async || {
        let output = kubectl
            .output(&["logs", "modules", "-c", "good", "--tail=1"])
            .await;
        output.status.success()
    })
    .await;
}

/// The lines of `good`: each other one has its mark, the one after it belongs to it.
async fn reads_logs(kubectl: &Kubectl) {
    let logs = kubectl
        .succeeds(&["logs", "modules", "-c", "good", "--tail=4"])
        .await;
    let lines: Vec<&str> = logs.lines().collect();
    assert_eq!(lines.len(), 4, "{kubectl}: {logs}");
    for line in lines {
        let own = line.starts_with("[biz=good] good ") && line.ends_with(" of base-0");
        assert!(own || line == "\tat Good.main(Good.java)", "{kubectl}: {logs}");
    }
    let logs = kubectl.succeeds(&["logs", "modules", "-c", "one"]).await;
    assert!(!logs.is_empty(), "{kubectl}");
    let is_own = |line: &str| line.starts_with("[biz=one] one ");
    assert!(logs.lines().all(is_own), "{kubectl}: {logs}");
    let none = kubectl
        .succeeds(&["logs", "modules", "-c", "one", "--tail=0"])
        .await;
    assert_eq!(none, "", "{kubectl}");
    let line = ["logs", "modules", "-c", "one", "--tail=1", "--timestamps"];
    let stamped = kubectl.succeeds(&line).await;
    has_all(&stamped, &["T", "Z [biz=one] one "]);
    assert_eq!(stamped.lines().count(), 1, "{kubectl}: {stamped}");
    let missing = kubectl.output(&["logs", "failing"]).await;
    assert!(
        !missing.status.success(),
        "{kubectl}: a module that is not there has no log"
    );
    has_all(&text(&missing.stderr), &["InstallFailed"]);
}

async fn follows_logs(kubectl: &Kubectl) {
    let all = kubectl.succeeds(&["logs", "modules", "-c", "one"]).await;
    let mut child = kubectl
        .command(&["logs", "-f", "modules", "-c", "one", "--tail=2"])
        .spawn()
        .expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut numbers: Vec<u64> = Vec::new();
    while numbers.len() < 5 {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{kubectl}: no more lines after {numbers:?}"));
        let line = line.expect("output is text").expect("it goes on");
        let number = line
            .strip_prefix("[biz=one] one ")
            .and_then(|rest| rest.split(' ').next());
        let number = number.and_then(|number| number.parse().ok());
        numbers.push(number.unwrap_or_else(|| panic!("{kubectl}: {line:?}")));
    }
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{kubectl}: {numbers:?}"
    );
    let before = all.lines().count() as u64;
    assert!(
        numbers[0] + 2 >= before,
        "{kubectl}: two lines of the past, not {before}: {numbers:?}"
    );
}

async fn runs_commands(kubectl: &Kubectl) {
    let of_module = ["exec", "modules", "-c", "one", "--"];
    let command = ["cat", "/etc/hostname", "/nowhere"];
    let output = kubectl.output(&[&of_module[..], &command].concat()).await;
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(out, "base-0\n", "{kubectl}: {err}");
    assert!(
        err.starts_with("cat: /nowhere: No such file or directory\n"),
        "{kubectl}: {err}"
    );
    assert_eq!(output.status.code(), Some(1), "{kubectl}: {err}");
    let output = kubectl
        .output(&[&of_module[..], &["sh", "-c", "exit 3"]].concat())
        .await;
    assert_eq!(output.status.code(), Some(3), "{kubectl}");
    let sent = "what is sent\n".repeat(20_000);
    let cat = ["exec", "-i", "modules", "-c", "one", "--", "cat"];
    let back = text(&kubectl.fed(&cat, Some(sent.as_bytes())).await.stdout);
    assert!(
        back == sent,
        "{kubectl}: {} of {} bytes came back",
        back.len(),
        sent.len()
    );
}

async fn attaches(kubectl: &Kubectl) {
    let mut child = kubectl
        .command(&["attach", "modules", "-c", "one"])
        .spawn()
        .expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
    let line = line.unwrap_or_else(|_| panic!("{kubectl}: attach shows nothing"));
    let line = line.expect("output is text").expect("it goes on");
    // The output of the whole base.
    assert!(
        line.starts_with("[biz=") || line.starts_with("\tat"),
        "{kubectl}: {line}"
    );
}

/// To the JVM itself, which listens at the pod's address.
async fn forwards_ports(kubectl: &Kubectl, port: u16) {
    let forwarding = kubectl.forward("pod/modules", port).await;
    let local = forwarding.port;
    let asking = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", local)).await?;
        let head = "POST /health HTTP/1.1\r\nHost: base\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    let answer = answer.unwrap_or_else(|_| panic!("{kubectl}: no answer through the port"));
    has_all(
        &answer.expect("the port is open"),
        &["\"code\":\"SUCCESS\"", "java version"],
    );
}
