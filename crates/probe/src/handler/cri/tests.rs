//! Commands in containers of a real containerd.

use super::Cri;
use crate::core::{Container, Outcome, Target, Verdict};
use crate::handler::exec::{Execute as _, Ran, outcome};
use evenkeel_cri::State;
use evenkeel_testkit::containerd::{Containerd, IMAGE, missing};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const LONG: Duration = Duration::from_secs(60);

fn target(id: &str) -> Target {
    Target {
        address: None,
        source: None,
        container: Arc::new(Container::default()),
        container_id: id.into(),
    }
}

async fn run(cri: &Cri, id: &str, command: &[&str], timeout: Duration) -> Ran {
    let command: Vec<String> = command.iter().map(|&part| part.to_owned()).collect();
    cri.execute(&target(id), &command, timeout).await
}

fn exited(code: i32, output: &str) -> Ran {
    Ran::Exited {
        code,
        output: output.into(),
    }
}

#[tokio::test]
async fn commands_run_in_containers_of_a_real_runtime() {
    if let Some(why) = missing() {
        return evenkeel_testkit::skipped("commands_run_in_containers_of_a_real_runtime", &why);
    }
    let containerd = Containerd::start().await;
    let client = containerd.client();
    assert_eq!(client.version().await.unwrap().runtime, "containerd");
    let sandbox = containerd.sandbox("default", "web-0").await;
    let sleep = ["sleep", "1000000"];
    let ended = containerd
        .container(&sandbox, "job", 0, &["sh", "-c", "exit 7"])
        .await;
    let first = containerd.container(&sandbox, "web", 0, &sleep).await;
    let second = containerd.container(&sandbox, "web", 1, &sleep).await;

    // Containers are found by their pod, the newest of each name.
    let containers = evenkeel_testkit::eventually("the job has ended", LONG, || async {
        let containers = client.containers("default", "web-0").await.unwrap();
        (containers[0].state == State::Exited).then_some(containers)
    })
    .await;
    let [job, web] = containers.as_slice() else {
        panic!("{containers:?}");
    };
    assert_eq!(
        (job.name.as_str(), &job.id, job.exit_code),
        ("job", &ended, Some(7))
    );
    // Short as it is, it may have ended before the runtime has noted its start.
    assert!(
        job.finished_at > Some(job.created_at) && job.started_at > Some(job.created_at),
        "{job:?}"
    );
    assert_eq!(
        (web.name.as_str(), &web.id, web.state),
        ("web", &second, State::Running)
    );
    assert_eq!((web.attempt, web.exit_code, web.finished_at), (1, None, None));
    assert_eq!((&web.sandbox, web.image.as_str()), (&sandbox.id, IMAGE));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let age = now.saturating_sub(web.started_at.unwrap());
    assert!(age < LONG * 10, "{age:?}");
    assert_eq!(client.containers("other", "web-0").await.unwrap(), []);
    assert_eq!(client.containers("default", "web").await.unwrap(), []);
    let sandboxes = client.sandboxes("default", "web-0").await.unwrap();
    assert_eq!(sandboxes.len(), 1);
    assert_eq!((&sandboxes[0].id, sandboxes[0].ready), (&sandbox.id, true));
    assert_eq!(sandboxes[0].pod_uid, "uid-default-web-0");

    // Exit codes and output.
    let cri = Cri::new(client.clone());
    for id in [second.clone(), format!("containerd://{second}")] {
        assert_eq!(run(&cri, &id, &["echo", "OK"], LONG).await, exited(0, "OK\n"));
    }
    let script = "echo out; echo err >&2; echo more; exit 1";
    assert_eq!(
        run(&cri, &first, &["sh", "-c", script], LONG).await,
        exited(1, "out\nmore\nerr\n")
    );
    let Ran::Exited { code, output } = run(&cri, &first, &["sh", "-c", "yes | head -c 100000"], LONG).await
    else {
        panic!("it ends");
    };
    assert_eq!((code, output.len()), (0, Outcome::OUTPUT));

    // The runtime ends what takes too long, a whole second at least.
    let begun = Instant::now();
    let ran = run(&cri, &first, &["sleep", "999"], Duration::from_millis(300)).await;
    assert_eq!(
        ran,
        Ran::TimedOut {
            message: "command timed out: \"sleep 999\" timed out after 300ms".to_owned()
        }
    );
    assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < LONG);
    alone(&cri, &first, "sleep 999").await;

    // And what nobody waits for any more.
    let command = ["sh", "-c", "touch /tmp/there; sleep 888"];
    let waited = tokio::time::timeout(
        LONG,
        evenkeel_testkit::eventually("the command runs", LONG, || {
            let (cri, first) = (cri.clone(), first.clone());
            async move { (run(&cri, &first, &["cat", "/tmp/there"], LONG).await == exited(0, "")).then_some(()) }
        }),
    );
    tokio::select! {
        ran = run(&cri, &first, &command, LONG * 60) => panic!("{ran:?}"),
        waited = waited => waited.unwrap(),
    }
    alone(&cri, &first, "sleep 888").await;

    // What cannot run is an error, in the runtime's words.
    let ran = run(&cri, &first, &["/no/such/program"], LONG).await;
    let Ran::Failed { error } = &ran else {
        panic!("{ran:?}");
    };
    assert!(
        error.starts_with("rpc error: code = Unknown desc = failed to exec in container"),
        "{error}"
    );
    assert!(error.contains("no such file or directory"), "{error}");
    assert_eq!(outcome(ran).verdict, Verdict::Unknown);
    for (id, said) in [
        ("no-such-container", "rpc error: code = NotFound desc ="),
        (
            ended.as_str(),
            "rpc error: code = Unknown desc = failed to exec in container: container is in CONTAINER_EXITED",
        ),
        ("", "the container has no ID yet"),
        ("containerd://", "the container has no ID yet"),
    ] {
        let ran = run(&cri, id, &["true"], LONG).await;
        let Ran::Failed { error } = &ran else {
            panic!("{id}: {ran:?}");
        };
        assert!(error.starts_with(said), "{error}");
    }
}

/// Waits until no process of the container has this command line.
async fn alone(cri: &Cri, id: &str, line: &str) {
    evenkeel_testkit::until("the command is gone", async || {
        let Ran::Exited { output, .. } = run(cri, id, &["ps", "-o", "args"], LONG).await else {
            panic!("ps runs");
        };
        !String::from_utf8_lossy(&output).contains(line)
    })
    .await;
}
