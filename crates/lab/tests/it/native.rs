//! A pod of one of Evenkeel's images is a process, on a whole lab.

use crate::running::{SOON, heal, kill, program, settings};
use evenkeel_lab::{control::Fault, running::Lab};
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::{cluster::Objects as _, eventually, until};
use k8s_openapi::api::{authentication::v1::SelfSubjectReview, core::v1::Pod};
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use std::{
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use tokio_util::sync::CancellationToken;

const NAME: &str = "native::a_pod_of_our_image_is_a_process_with_what_its_pod_gives_it";

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {text: "hello from a volume"}
---
apiVersion: v1
kind: Pod
metadata: {name: ours, namespace: default}
spec:
  nodeName: shore-2
  containers:
    - name: main
      image: registry.example/evenkeel-agent:1
      command: [/evenkeel-agent]
      args: [--listen=$(ADDRESS), --config=/etc/ours/text]
      env: [{name: ADDRESS, value: "[::]:8080"}]
      readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
      volumeMounts: [{name: settings, mountPath: /etc/ours}]
  volumes: [{name: settings, configMap: {name: settings}}]
---
apiVersion: v1
kind: Pod
metadata: {name: shell, namespace: default}
spec:
  nodeName: shore-2
  restartPolicy: Never
  containers: [{name: main, image: evenkeel-agent, command: [/bin/sh]}]
"#;

/// What runs in the pod: this test, in a process of its own.
async fn run(words: &str) {
    let value = |flag: &str| {
        let found = words.split(' ').find_map(|word| word.strip_prefix(flag));
        found.unwrap().to_owned()
    };
    let shutdown = evenkeel_net::shutdown::on_signals().unwrap();
    evenkeel_lab::stop_with_parent(&shutdown).unwrap();
    let client = ClientArgs::default().client("test").await.unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    let nodes = &user.extra.unwrap()["authentication.kubernetes.io/node-name"];
    let settings = std::fs::read_to_string(value("--config=")).unwrap();
    let _listener = std::net::TcpListener::bind(value("--listen=")).unwrap();
    // Tests may print nothing themselves.
    let mut out = std::io::stdout();
    let (pid, user) = (std::process::id(), user.username.unwrap());
    writeln!(out, "pid={pid} user={user} nodes={nodes:?} settings={settings}").unwrap();
    shutdown.cancelled().await;
    writeln!(out, "told to end").unwrap();
}

fn agent(place: &Path) -> PathBuf {
    let script = format!(
        "#!/bin/sh\nLAB_TEST_POD=\"$*\" exec {} {NAME} --exact --nocapture\n",
        std::env::current_exe().unwrap().display()
    );
    let path = place.join("agent");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Whether the pod is ready after so many restarts.
fn is_ready(pod: &Pod, restarts: i32) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let main = statuses.and_then(|statuses| statuses.first());
    main.is_some_and(|main| main.ready && main.restart_count == restarts)
}

async fn becomes_ready(pods: &Api<Pod>, restarts: i32) -> Pod {
    eventually("the pod is ready", SOON, || async move {
        let pod = pods.get("ours").await.ok();
        pod.filter(|pod| is_ready(pod, restarts))
    })
    .await
}

/// The number of the process, as it printed it.
async fn pid(pods: &Api<Pod>) -> u32 {
    eventually("the process says who it is", SOON, || async move {
        let log = pods.logs("ours", &LogParams::default()).await.ok()?;
        let (_, rest) = log.split_once("pid=")?;
        rest.split(' ').next()?.parse().ok()
    })
    .await
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_our_image_is_a_process_with_what_its_pod_gives_it() {
    evenkeel_net::init_crypto();
    if let Ok(words) = std::env::var("LAB_TEST_POD") {
        return run(&words).await;
    }
    let place = tempfile::tempdir().unwrap();
    let (plan, _claim) = crate::switch::subnet(3).await;
    let mut settings = settings(place.path(), program(place.path()), plan.subnet);
    settings.agent = Some(agent(place.path()));
    let lab = Lab::start(settings, &|_| {}, &CancellationToken::new())
        .await
        .unwrap();
    let args = ClientArgs {
        kubeconfig: Some(lab.directory().kubeconfig()),
        ..ClientArgs::default()
    };
    let client = args.client("test").await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    lab.apply(OBJECTS, "objects").await.unwrap();

    let pod = becomes_ready(&pods, 0).await;
    let address = pod.status.unwrap().pod_ip.unwrap();
    assert!(address.starts_with("10.244.2."), "{address}");
    let first = pid(&pods).await;
    let log = pods.logs("ours", &LogParams::default()).await.unwrap();
    for expected in [
        "user=system:serviceaccount:default:default",
        "nodes=[\"shore-2\"]",
        "settings=hello from a volume",
    ] {
        assert!(log.contains(expected), "{log}");
    }
    // Another program is none of the image's.
    let refused = eventually("the other pod is refused", SOON, || async {
        let pod = pods.get("shell").await.ok()?;
        let status = pod.status?.container_statuses?.into_iter().next()?.state?;
        status.terminated.and_then(|ended| ended.message)
    })
    .await;
    assert!(refused.contains("/bin/sh"), "{refused}");

    // A kubelet that is restarted finds the process as it was.
    let node = || "shore-2".to_owned();
    let fault = Fault::RestartKubelet {
        node: node(),
        for_ms: 600_000,
    };
    lab.inflict(&fault).await.unwrap();
    assert!(lives(first));
    lab.inflict(&heal()).await.unwrap();
    becomes_ready(&pods, 0).await;
    assert_eq!(pid(&pods).await, first);

    // A process that ends is started again, and the machine's power takes it.
    lab.inflict(&Fault::CrashAgent { node: node() }).await.unwrap();
    becomes_ready(&pods, 1).await;
    let second = pid(&pods).await;
    assert!(second != first && !lives(first));
    lab.inflict(&kill("shore-2")).await.unwrap();
    assert!(!lives(second));
    lab.inflict(&heal()).await.unwrap();
    becomes_ready(&pods, 2).await;
    let third = pid(&pods).await;

    // A pod that is deleted is told to end, and leaves nothing but its log.
    pods.remove("ours").await;
    until("the pod is gone", async || {
        pods.get_opt("ours").await.unwrap().is_none()
    })
    .await;
    assert!(!lives(third));
    let log = std::fs::read_to_string(lab.directory().log("ours-main-2")).unwrap();
    assert!(log.contains("stdout told to end"), "{log}");
    lab.stop().await.unwrap();
    assert!(!lab.directory().root().join("nodes/shore-2/pods").exists());
}
