//! kubectl against the lab.

mod minors;

use crate::support::Lab;
use evenkeel_testkit::{eventually, skipped, until};
use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
    time::Duration,
};

const APP: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: hello, labels: {app: hello}}
spec:
  replicas: 2
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      containers:
      - name: web
        image: hello:1
        ports: [{containerPort: 8080}]
";

/// Every word must be in the text.
fn shows(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_against_the_lab() {
    let Some(kubectl) = evenkeel_testkit::kubectl() else {
        return skipped("kubectl_works_against_the_lab", "no kubectl on PATH");
    };
    let lab = Lab::start(3, 41).await;
    let run = |args: &[&str]| lab.succeeds(&kubectl, args);

    let app = lab.file("app.yaml", APP);
    let app = app.to_str().unwrap();
    shows(&run(&["apply", "-f", app]), &["deployment.apps/hello created"]);
    shows(&run(&["apply", "-f", app]), &["deployment.apps/hello unchanged"]);
    shows(
        &run(&["rollout", "status", "deployment/hello", "--timeout=60s"]),
        &["successfully rolled out"],
    );

    shows(
        &run(&["expose", "deployment", "hello", "--port=80", "--target-port=8080"]),
        &["service/hello exposed"],
    );
    eventually(
        "the service has two ready endpoints",
        Duration::from_secs(20),
        || async {
            let slices = run(&[
                "get",
                "endpointslices",
                "-l",
                "kubernetes.io/service-name=hello",
                "-o",
                "json",
            ]);
            let slices: serde_json::Value = serde_json::from_str(&slices).unwrap();
            let endpoints = slices["items"][0]["endpoints"].as_array()?.clone();
            let ready = endpoints
                .iter()
                .filter(|endpoint| endpoint["conditions"]["ready"] == true)
                .count();
            (ready == 2).then_some(())
        },
    )
    .await;

    let all = run(&["get", "nodes,pods,endpointslices,zonehealth", "-A", "-o", "wide"]);
    shows(
        &all,
        &[
            "node/shore-1",
            "Ready",
            "pod/hello-",
            "Running",
            "endpointslice.discovery.k8s.io/hello-",
            "zonehealth.evenkeel.io/default",
        ],
    );

    scaling_is_watched(&lab, &kubectl).await;

    let described = run(&["describe", "node", "shore-1"]);
    shows(
        &described,
        &[
            "Name:               shore-1",
            "KubeletReady",
            "Lease:",
            "HolderIdentity:  shore-1",
            "Non-terminated Pods:",
        ],
    );

    shows(&run(&["explain", "deployment.spec.replicas"]), &["replicas"]);
    shows(
        &run(&["delete", "-f", app]),
        &["deployment.apps \"hello\" deleted"],
    );
    until("the pods of the deleted deployment are gone", async || {
        run(&["get", "pods", "-l", "app=hello", "-o", "name"]).is_empty()
    })
    .await;
}

/// `kubectl get -w` shows the pod that `kubectl scale` brings.
async fn scaling_is_watched(lab: &Lab, kubectl: &Path) {
    let mut watching = lab
        .kubectl_command(kubectl, &["get", "pods", "-l", "app=hello", "-w", "-o", "name"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let lines = BufReader::new(watching.stdout.take().expect("standard output is piped")).lines();
    let (seen, mut names) = tokio::sync::mpsc::unbounded_channel();
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if seen.send(line).is_err() {
                return;
            }
        }
    });
    let mut known = std::collections::BTreeSet::new();
    let patience = Duration::from_secs(30);
    while known.len() < 2 {
        let name = tokio::time::timeout(patience, names.recv())
            .await
            .expect("the watch lists both pods");
        known.insert(name.expect("the watch goes on"));
    }
    shows(
        &lab.succeeds(kubectl, &["scale", "deployment/hello", "--replicas=3"]),
        &["deployment.apps/hello scaled"],
    );
    while known.len() < 3 {
        let name = tokio::time::timeout(patience, names.recv())
            .await
            .expect("the watch shows the new pod");
        known.insert(name.expect("the watch goes on"));
    }
    watching.kill().expect("kubectl is still there");
    watching.wait().expect("kubectl ends");
    reader.join().expect("the reader ends with kubectl");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_refuses_what_the_schema_does_not_know() {
    let Some(kubectl) = evenkeel_testkit::kubectl() else {
        return skipped(
            "kubectl_refuses_what_the_schema_does_not_know",
            "no kubectl on PATH",
        );
    };
    let lab = Lab::start(1, 42).await;
    let wrong = lab.file("wrong.yaml", &APP.replace("replicas: 2", "replicsa: 2"));
    let output = lab.kubectl(&kubectl, &["apply", "-f", wrong.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "a misspelt field was accepted");
    shows(&text, &["replicsa"]);
}
