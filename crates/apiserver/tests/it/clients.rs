//! Clients of other hands, unchanged: kube-rs's watchers, client-go's informers, the envtest of
//! controller-runtime, the Python client. kubectl and Helm are tried on the lab, which has controllers.

use super::config_map;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::interop::{build_clientgo, build_controller_suite, python_with_kubernetes, source};
use evenkeel_testkit::{Link, Options, ServedApi, eventually, skipped};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use rstest::rstest;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Machines may be busy; a client that hangs fails the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that forgets so early that a watcher which was away for a moment has to list again.
async fn forgetful() -> ServedApi {
    ServedApi::with(Options {
        watch_history: 4,
        ..Options::default()
    })
    .await
}

fn labelled(name: &str) -> ConfigMap {
    let mut map = config_map(name);
    map.labels_mut().insert("informed".to_owned(), "yes".to_owned());
    map
}

/// While the watcher is away: `gone` goes, `came` comes, and the server forgets that.
async fn missed(link: &Link, maps: &Api<ConfigMap>) {
    link.refuse();
    maps.remove("gone").await;
    maps.add(&labelled("came")).await;
    for number in 0..8 {
        maps.add(&config_map(&format!("noise-{number}"))).await;
    }
    link.mend();
}

async fn change(maps: &Api<ConfigMap>, name: &str) {
    let patch = Patch::Merge(json!({"data": {"k": "changed"}}));
    maps.patch(name, &PatchParams::default(), &patch)
        .await
        .expect("it is patched");
}

#[rstest]
#[case::list_watch(watcher::Config::default())]
#[case::pages(watcher::Config::default().page_size(1))]
#[case::streaming_list(watcher::Config::default().streaming_lists())]
#[tokio::test]
async fn a_watcher_of_kube_keeps_up_after_a_gap(#[case] config: watcher::Config) {
    let served = forgetful().await;
    let link = served.link("watcher").await;
    let maps = Api::<ConfigMap>::default_namespaced(served.server.client());
    for name in ["gone", "stays"] {
        maps.add(&labelled(name)).await;
    }
    let client = link
        .access()
        .await
        .client("watcher")
        .expect("the kubeconfig is good");
    let config = config.labels("informed=yes");
    let watched = watcher(Api::<ConfigMap>::default_namespaced(client), config);
    let (store, writer) = reflector::store();
    let events = reflector(writer, watched.default_backoff()).for_each(|_| std::future::ready(()));
    // It ends with the test.
    tokio::spawn(events);
    let holds = async |wanted: &[(&str, &str)]| {
        eventually("the watcher has what the server has", PATIENCE, || async {
            let state = store.state();
            let mut seen: Vec<(String, String)> = state
                .iter()
                .map(|map| (map.name_any(), map.data.as_ref().expect("data")["k"].clone()))
                .collect();
            seen.sort();
            let seen = seen.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            seen.eq(wanted.iter().copied()).then_some(())
        })
        .await;
    };
    holds(&[("gone", "v"), ("stays", "v")]).await;
    missed(&link, &maps).await;
    holds(&[("came", "v"), ("stays", "v")]).await;
    change(&maps, "stays").await;
    holds(&[("came", "v"), ("stays", "changed")]).await;
}

/// The peer on client-go, built once, where no other test builds it; `None` where Go is missing.
fn clientgo() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let go = evenkeel_testkit::go()?;
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("informer");
        std::fs::create_dir_all(&directory).expect("the directory is cargo's for tests");
        Some(build_clientgo(&go, &directory).expect("the peer builds"))
    });
    built.as_deref()
}

/// A client-go informer as a process.
struct Informer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Informer {
    fn start(program: &Path, link: &Link, streams: bool, media: &str) -> Self {
        let mut child = Command::new(program)
            .args(["informer", "--media", media, "--kubeconfig"])
            .arg(link.kubeconfig())
            .env("KUBE_FEATURE_WatchListClient", streams.to_string())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines }
    }

    /// The next lines, sorted.
    async fn tells(&mut self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        while told.len() < count {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.expect("it tells something").expect("output is text");
            let line: Value = serde_json::from_str(&line.expect("it goes on")).expect("JSON");
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            told.push(format!("{} {}={}", text("event"), text("name"), text("value")));
        }
        told.sort();
        told
    }
}

#[rstest]
#[case::list_watch(false, "application/json")]
#[case::streaming_list(true, "application/json")]
#[case::protobuf(true, "application/vnd.kubernetes.protobuf")]
#[tokio::test(flavor = "multi_thread")]
async fn an_informer_of_client_go_keeps_up_after_a_gap(#[case] streams: bool, #[case] media: &str) {
    let Some(program) = clientgo() else {
        return skipped("an_informer_of_client_go_keeps_up_after_a_gap", "no go on PATH");
    };
    let served = forgetful().await;
    let link = served.link("informer").await;
    let maps = Api::<ConfigMap>::default_namespaced(served.server.client());
    for name in ["gone", "stays"] {
        maps.add(&labelled(name)).await;
    }
    let mut informer = Informer::start(program, &link, streams, media);
    assert_eq!(
        informer.tells(3).await,
        ["added gone=v", "added stays=v", "synced ="]
    );
    missed(&link, &maps).await;
    assert_eq!(informer.tells(2).await, ["added came=v", "deleted gone=v"]);
    change(&maps, "stays").await;
    assert_eq!(informer.tells(1).await, ["updated stays=changed"]);
    informer.child.kill().await.expect("it is ours");
}

/// Runs a client to its end; what it said is shown where it fails.
async fn succeeds(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("it ends");
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_envtest_suite_of_a_controller_passes() {
    let Some(go) = evenkeel_testkit::go() else {
        return skipped("the_envtest_suite_of_a_controller_passes", "no go on PATH");
    };
    let suite = build_controller_suite(&go, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let suite = suite.unwrap_or_else(|why| panic!("{why}"));
    let served = ServedApi::start().await;
    let said = succeeds(
        Command::new(suite)
            .args(["-test.v", "-test.count=1"])
            .current_dir(source("controller"))
            .env("USE_EXISTING_CLUSTER", "true")
            .env("KUBECONFIG", served.direct("envtest")),
    )
    .await;
    assert_eq!(said.matches("--- PASS: ").count(), 6, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_works() {
    let Some(python) = python_with_kubernetes() else {
        return skipped("the_python_client_works", "no Python with the package kubernetes");
    };
    let served = ServedApi::start().await;
    let script = source("pythonclient").join("main.py");
    let said = succeeds(
        Command::new(python)
            .arg("-B")
            .arg(script)
            .arg(served.direct("python")),
    )
    .await;
    assert!(said.contains("ends ok"), "{said}");
}
