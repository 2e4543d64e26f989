use super::*;
use crate::core::engine::{Kept, Tally};
use crate::core::{Kind, Worker};
use std::fs;

fn snapshot() -> Snapshot {
    Snapshot {
        workers: vec![Kept {
            pod: "uid".into(),
            container: "app".into(),
            worker: Worker::new(Kind::Readiness),
            tally: Tally::default(),
        }],
    }
}

#[tokio::test]
async fn what_was_saved_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path().join("probes.json"));
    assert!(!file.save(snapshot(), false).await);
    assert_eq!(file.load(), snapshot());
    let text = fs::read_to_string(&file.path).unwrap();
    assert!(
        text.starts_with(r#"{"version":1,"state":{"workers":[{"pod":"uid","container":"app","worker":{"#),
        "{text}"
    );
}

#[test]
fn no_file_is_a_fresh_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path().join("probes.json"));
    assert_eq!(file.load(), Snapshot::default());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_broken_file_is_put_aside_and_the_start_is_fresh() {
    for content in [
        "",
        "{",
        "null",
        "[]",
        r#"{"version":"one"}"#,
        r#"{"version":2,"state":{"workers":[]}}"#,
        r#"{"version":1}"#,
        r#"{"version":1,"state":{"workers":[{"pod":"uid"}]}}"#,
        r#"{"version":1,"state":{"workers":[{"pod":"uid","container":"app","worker":{"kind":"cunning"}}]}}"#,
        "\0\0\0\0",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("probes.json"));
        fs::write(&file.path, content).unwrap();
        assert_eq!(file.load(), Snapshot::default(), "{content}");
        let aside = directory.path().join("probes.json.broken");
        assert_eq!(fs::read_to_string(aside).unwrap(), content);
        assert!(!file.path.exists());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = StateFile::new(directory.path());
    assert_eq!(file.load(), Snapshot::default());
    assert!(directory.path().exists());
}

#[tokio::test]
async fn a_directory_that_is_not_there_fails_the_write_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    let file = StateFile::new(path.join("probes.json"));
    assert!(file.save(snapshot(), false).await);
    fs::create_dir(&path).unwrap();
    assert!(!file.save(snapshot(), true).await);
    assert_eq!(file.load(), snapshot());
}

#[test]
fn a_file_without_end_is_not_read_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = StateFile::new(directory.path().join("pipe"));
    nix::unistd::mkfifo(&pipe.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(pipe.load(), Snapshot::default());
    assert_eq!(StateFile::new("/dev/zero").load(), Snapshot::default());
    let large = StateFile::new(directory.path().join("large"));
    // A hole: it takes no room on the disk.
    fs::File::create(&large.path).unwrap().set_len(BYTES + 1).unwrap();
    assert_eq!(large.load(), Snapshot::default());
    assert!(large.path.exists(), "what is not read is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_tried_again_though_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    let file = StateFile::new(path.join("probes.json"));
    let (shutdown, prober) = (
        tokio_util::sync::CancellationToken::new(),
        crate::manager::tests::answers(|_| crate::core::Outcome::success("")),
    );
    let manager = crate::manager::Manager::builder(crate::manager::tests::kubelet())
        .state(file.clone())
        .start(prober, shutdown.clone());
    // A pod without probes: one change, and then nothing.
    manager.shared.changed.notify_one();
    tokio::time::sleep(Duration::from_secs(5)).await;
    fs::create_dir(&path).unwrap();
    crate::manager::tests::until("the file", || file.path.exists()).await;
    shutdown.cancel();
    manager.stopped().await;
}
