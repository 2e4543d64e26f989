use super::*;
use evenkeel_kubelet_api::Term;
use evenkeel_vnode::{
    core::volume::{TokenSource, Volumes},
    provider::Served,
};
use std::path::Path;
use tempfile::TempDir;

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(30);

/// Passes reports on.
struct Listener(mpsc::UnboundedSender<Report>);

impl Host for Listener {
    fn report(&self, report: Report) {
        let _ = self.0.send(report);
    }

    fn client(&self, _: &str) -> Option<kube::Client> {
        None
    }

    fn term(&self, _: &str) -> Option<Term> {
        None
    }

    fn volumes<'a>(&'a self, _: &'a PodId) -> Served<'a, Arc<Volumes>> {
        Box::pin(std::future::pending())
    }

    fn token<'a>(&'a self, _: &'a PodId, _: &'a TokenSource) -> Served<'a, Arc<str>> {
        Box::pin(std::future::pending())
    }
}

struct World {
    place: TempDir,
    processes: Arc<Processes>,
    reports: mpsc::UnboundedReceiver<Report>,
}

fn world() -> World {
    let (sender, reports) = mpsc::unbounded_channel();
    let processes = Arc::new(Processes::new(Handle::current()));
    processes.connect(Arc::new(Listener(sender)));
    World {
        place: tempfile::tempdir().unwrap(),
        processes,
        reports,
    }
}

fn id() -> PodId {
    PodId {
        uid: "uid".into(),
        namespace: "default".into(),
        name: "pod".into(),
        node: "node".into(),
    }
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn start(&self, script: &str, is_agent: bool) -> io::Result<Run> {
        let folder = self.path("pod");
        fs::create_dir_all(&folder)?;
        self.processes.start(Start {
            pod: id(),
            folder,
            address: [127, 0, 0, 1].into(),
            container: "main".into(),
            is_agent,
            line: Line {
                program: "/bin/sh".into(),
                args: ["-c", script].map(Into::into).to_vec(),
                env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            },
            log: self.path("log"),
            last_words: true,
        })
    }

    /// Waits until a file holds something.
    async fn written(&self, name: &str) -> String {
        let path = self.path(name);
        evenkeel_testkit::eventually("a file is written", SOON, || async {
            fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
        .await
    }
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// State of a process, as in `T` for one that stands still.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn an_end_is_reported_with_the_last_words() {
    let mut world = world();
    let run = world.start("echo 'it has failed' >&2; exit 3", false).unwrap();
    let report = tokio::time::timeout(SOON, world.reports.recv())
        .await
        .unwrap()
        .unwrap();
    let Report::Container { pod, name, observed } = report else {
        panic!("{report:?}")
    };
    assert_eq!((pod, &*name, &observed.id), (id(), "main", &run.id));
    let Doing::Ended(exit) = &observed.doing else {
        panic!("{observed:?}")
    };
    assert_eq!((exit.code, exit.message.as_str()), (3, "it has failed\n"));
    assert_eq!(world.processes.observed(&id())["main"], observed);
}

#[tokio::test]
async fn a_container_that_runs_is_not_started_beside_itself() {
    let world = world();
    let first = world.start("sleep 600", false).unwrap();
    assert_eq!(world.start("sleep 600", false).unwrap().id, first.id);
    let exit = first.clone().stop(Duration::ZERO).await.unwrap();
    assert_eq!(exit.code, 137);
    let second = world.start("sleep 600", false).unwrap();
    assert_ne!(second.id, first.id);
    assert!(Processes::owns(&second.id) && second.runs());
    world.processes.stop().await;
}

#[tokio::test]
async fn who_heeds_term_ends_by_itself_and_who_does_not_is_killed() {
    let world = world();
    let ready = world.path("ready");
    let heeds = format!(
        "trap 'exit 7' TERM; echo > {}; while :; do sleep 0.01; done",
        ready.display()
    );
    let run = world.start(&heeds, false).unwrap();
    world.written("ready").await;
    assert_eq!(run.stop(SOON).await.unwrap().code, 7);
    fs::remove_file(&ready).unwrap();
    let deaf = format!(
        "trap '' TERM; echo > {}; while :; do sleep 0.01; done",
        ready.display()
    );
    let run = world.start(&deaf, false).unwrap();
    world.written("ready").await;
    assert_eq!(run.stop(Duration::from_millis(50)).await.unwrap().code, 137);
}

#[tokio::test]
async fn a_frozen_machine_stands_still_and_one_without_power_forgets() {
    let mut world = world();
    let run = world.start("sleep 600", false).unwrap();
    let pid = run.pid;
    let is = |wanted: fn(char) -> bool| {
        evenkeel_testkit::eventually("the process is as wanted", SOON, move || async move {
            state(pid).filter(|state| wanted(*state))
        })
    };
    world.processes.freeze();
    is(|state| state == 'T').await;
    world.processes.thaw();
    is(|state| state != 'T').await;
    world.processes.freeze();
    is(|state| state == 'T').await;
    world.processes.power_off().await;
    assert!(!lives(pid));
    assert!(world.processes.observed(&id()).is_empty());
    assert!(world.reports.try_recv().is_err(), "nobody is told");
    assert!(world.start("sleep 600", false).is_err(), "there is no power");
    world.processes.power_on();
    assert!(world.start("exit 0", false).is_ok());
}

#[tokio::test]
async fn a_deleted_pod_leaves_neither_process_nor_directory() {
    let world = world();
    let run = world.start("sleep 600", false).unwrap();
    assert_eq!(world.processes.pods(), [(id(), world.path("pod"))]);
    world.processes.delete(&id()).await.unwrap();
    assert!(!lives(run.pid) && !world.path("pod").exists());
    assert!(world.processes.pods().is_empty());
    world.processes.delete(&id()).await.unwrap();
}

#[tokio::test]
async fn an_agent_is_held_until_it_is_released() {
    let world = world();
    let mut run = world.start("sleep 600", true).unwrap();
    assert_eq!(world.processes.agent(), Some((true, 1)));
    world.processes.hold_agent();
    assert_eq!(run.exit().await.unwrap().code, 137);
    assert_eq!(world.processes.agent(), Some((false, 1)));
    let mut waiting = std::pin::pin!(world.processes.agent_may_start());
    assert!(futures::poll!(&mut waiting).is_pending());
    world.processes.release_agent();
    waiting.await;
}

#[tokio::test]
async fn processes_end_with_whoever_holds_them() {
    let world = world();
    let mut run = world.start("sleep 600", false).unwrap();
    let mut ended = run.ended.clone();
    let pid = run.pid;
    drop(std::mem::replace(
        &mut run,
        world.start("sleep 600", false).unwrap(),
    ));
    drop((run, world.processes));
    let _ = tokio::time::timeout(SOON, ended.changed()).await.unwrap();
    assert!(!lives(pid));
}
