//! A whole lab without Evenkeel's own processes: API server, controllers, kubelets, network, and the stand-in
//! for the stock controllers as a child process of this test binary.

use clap::Parser;
use evenkeel_api::policy::Profile;
use evenkeel_lab::{
    SAMPLE,
    control::{self, Fault, Orders as _},
    directory::Directory,
    running::{Lab, Presence, Settings, SetupError},
    scenario::{StockTimers, crash::Replica, layout::Layout},
};
use evenkeel_stock::NodeLifecycleArgs;
use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

pub(crate) const SOON: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct StandIn {
    #[command(flatten)]
    args: NodeLifecycleArgs,
}

/// Started as `program node-lifecycle FLAGS…`: passes the flags on to the test of this name in this binary.
pub(crate) fn program(place: &Path) -> PathBuf {
    let script = format!(
        "#!/bin/sh\nshift\nLAB_TEST_FLAGS=\"$*\" exec {} running::the_lab_without_agents --exact --nocapture\n",
        std::env::current_exe().unwrap().display()
    );
    let path = place.join("program");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

pub(crate) fn settings(place: &Path, program: PathBuf, subnet: u8) -> Settings {
    Settings {
        layout: Layout::one("shore", 3),
        controllers: 1,
        profile: Profile::Edge,
        port: 0,
        dir: place.join("lab"),
        program,
        agent: None,
        subnet,
        evenkeel: Presence::Absent,
        stock: StockTimers::default(),
        seed: 1,
        join: None,
    }
}

pub(crate) fn kill(node: &str) -> Fault {
    Fault::Kill {
        node: node.to_owned(),
    }
}

pub(crate) fn heal() -> Fault {
    Fault::Heal { node: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lab_without_agents() {
    evenkeel_net::init_crypto();
    if let Ok(flags) = std::env::var("LAB_TEST_FLAGS") {
        let args = std::iter::once("stand-in").chain(flags.split(' '));
        let shutdown = CancellationToken::new();
        evenkeel_lab::stop_with_parent(&shutdown).unwrap();
        return evenkeel_stock::run(StandIn::parse_from(args).args, shutdown)
            .await
            .unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    let (plan, _claim) = crate::switch::subnet(3).await;
    let settings = settings(place.path(), program(place.path()), plan.subnet);
    let never = CancellationToken::new();
    let lab = Lab::start(settings.clone(), &|_| {}, &never).await.unwrap();
    let lab = Arc::new(lab);
    let dir = lab.directory().root().to_owned();
    let orders = control::bind(&lab.directory().control_socket()).unwrap();
    let serving = tokio::spawn(control::serve(orders, Arc::clone(&lab), lab.shutdown_token()));

    assert_eq!(lab.apply(SAMPLE, "sample").await.unwrap(), 4);
    let observer = lab.observer();
    let clean = observer.wait_for(SOON, |now| now.unclean(3).is_empty()).await;
    assert!(clean.is_some(), "{:?}", observer.now().unclean(3));
    let status = control::status(&dir).await.unwrap();
    assert_eq!(status, lab.status());
    assert_eq!(status.nodes.iter().map(|node| node.ready_pods).sum::<usize>(), 9);

    // A node without power: its kubelet says nothing any more, and the API server does not know yet.
    let before = observer.now();
    control::inflict(&dir, kill("shore-2")).await.unwrap();
    assert!(!lab.status().nodes[1].power);
    let address = plan.kubelet(2);
    // An attempt of the first milliseconds may be accepted, into a queue that nobody serves.
    evenkeel_testkit::eventually("no answer to a SYN", SOON, || async move {
        let attempt = tokio::net::TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(500), attempt).await {
            Err(_) => Some(()),
            Ok(Ok(_)) => None,
            Ok(Err(error)) => panic!("a machine without power refused a connection: {error}"),
        }
    })
    .await;
    assert!(observer.now().nodes().all(|node| node.ready == "True"));
    assert_eq!(control::inflict(&dir, heal()).await.unwrap(), "everything healed");
    assert!(tokio::net::TcpStream::connect(address).await.is_ok());
    let same = |now: &evenkeel_lab::observe::moment::Moment| {
        now.unclean(3).is_empty()
            && before
                .pods()
                .all(|pod| now.pod(&pod.uid).is_some_and(|pod| pod.ready))
    };
    assert!(
        observer.wait_for(SOON, same).await.is_some(),
        "{:?}",
        observer.now().unclean(3)
    );

    let refused = control::inflict(&dir, Fault::CrashController { which: Replica::All })
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("without the controller"),
        "{refused}"
    );

    // The same addresses and the same directory can be used again at once.
    lab.stop().await.unwrap();
    serving.await.unwrap();
    assert!(!lab.directory().kubeconfig().exists());
    drop(lab);
    let again = Lab::start(settings, &|_| {}, &never).await.unwrap();
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lab_whose_process_cannot_run_leaves_nothing() {
    evenkeel_net::init_crypto();
    let place = tempfile::tempdir().unwrap();
    let (plan, _claim) = crate::switch::subnet(3).await;
    let script = place.path().join("refuses");
    std::fs::write(
        &script,
        "#!/bin/sh\necho 'unknown flag --node-monitor-period' >&2\nexit 2\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = settings(place.path(), script, plan.subnet);
    let never = CancellationToken::new();
    let Err(error) = Lab::start(settings.clone(), &|_| {}, &never).await else {
        panic!("it started")
    };
    let message = error.to_string();
    assert!(matches!(error, SetupError::NotReady { .. }), "{message}");
    assert!(
        message.contains("unknown flag --node-monitor-period") && message.contains("node-lifecycle.log"),
        "{message}"
    );
    let directory = Directory::claim(&settings.dir).unwrap();
    assert!(!directory.kubeconfig().exists());
    assert!(
        tokio::net::UdpSocket::bind((plan.outer(1), plan.agent_port))
            .await
            .is_ok()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_port_is_named() {
    evenkeel_net::init_crypto();
    let place = tempfile::tempdir().unwrap();
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let settings = Settings {
        port,
        ..settings(place.path(), "/bin/false".into(), 99)
    };
    let Err(error) = Lab::start(settings, &|_| {}, &CancellationToken::new()).await else {
        panic!("it started")
    };
    let message = error.to_string();
    assert!(
        error.is_usage() && message.contains(&port.to_string()) && message.contains("--port"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_interrupted_leaves_nothing() {
    evenkeel_net::init_crypto();
    let place = tempfile::tempdir().unwrap();
    let (plan, _claim) = crate::switch::subnet(3).await;
    // A process that never gets ready.
    let script = place.path().join("sleeps");
    std::fs::write(&script, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let settings = settings(place.path(), script, plan.subnet);
    let interrupt = CancellationToken::new();
    let told = interrupt.clone();
    let progress = move |text: &str| {
        if text.contains("stand-in") {
            told.cancel();
        }
    };
    let Err(error) = Lab::start(settings.clone(), &progress, &interrupt).await else {
        panic!("it started")
    };
    assert!(matches!(error, SetupError::Stopped), "{error}");
    Directory::claim(&settings.dir).unwrap();
}
