//! The control socket with a lab that only writes down what it is told.

use evenkeel_lab::control::{
    self, ControlError, Fault, Orders,
    status::{NodeStatus, Status},
};
use evenkeel_lab::directory::control_socket;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Default)]
struct Notebook {
    told: Mutex<Vec<Fault>>,
}

impl Orders for Notebook {
    async fn inflict(&self, fault: Fault) -> Result<String, String> {
        if let Fault::Kill { node } = &fault {
            control::find_node(&["shore-1".to_owned(), "shore-2".to_owned()], node)?;
        }
        let said = fault.to_string();
        self.told.lock().unwrap().push(fault);
        Ok(said)
    }

    fn status(&self) -> Status {
        let told = self.told.lock().unwrap().len();
        let node = NodeStatus {
            name: format!("after {told} orders"),
            ..NodeStatus::default()
        };
        Status {
            nodes: vec![node],
            ..Status::default()
        }
    }
}

fn lab(dir: &Path) -> (Arc<Notebook>, DropGuard) {
    let (notebook, stop) = (Arc::new(Notebook::default()), CancellationToken::new());
    let listener = control::bind(&control_socket(dir)).unwrap();
    tokio::spawn(control::serve(listener, Arc::clone(&notebook), stop.clone()));
    (notebook, stop.drop_guard())
}

fn kill(node: &str) -> Fault {
    Fault::Kill {
        node: node.to_owned(),
    }
}

#[tokio::test]
async fn orders_are_carried_out_and_confirmed() {
    let place = tempfile::tempdir().unwrap();
    let (notebook, _stop) = lab(place.path());
    assert_eq!(
        control::inflict(place.path(), kill("shore-2")).await.unwrap(),
        "shore-2 has no power"
    );
    assert_eq!(*notebook.told.lock().unwrap(), [kill("shore-2")]);
    assert_eq!(
        control::status(place.path()).await.unwrap().nodes[0].name,
        "after 1 orders"
    );
}

#[tokio::test]
async fn an_unknown_node_is_refused_and_the_known_ones_are_named() {
    let place = tempfile::tempdir().unwrap();
    let (_notebook, _stop) = lab(place.path());
    let error = control::inflict(place.path(), kill("ship-1")).await.unwrap_err();
    assert!(error.is_usage());
    assert_eq!(
        error.to_string(),
        "unknown node `ship-1`; known are shore-1, shore-2"
    );
}

#[tokio::test]
async fn without_a_lab_the_directory_is_named() {
    let place = tempfile::tempdir().unwrap();
    let error = control::status(place.path()).await.unwrap_err();
    assert!(matches!(error, ControlError::NoLab { .. }) && error.is_usage());
    let said = error.to_string();
    assert!(
        said.contains(&place.path().display().to_string()) && said.contains("--dir"),
        "{said}"
    );
    // A lab that was killed leaves its socket file.
    drop(std::os::unix::net::UnixListener::bind(control_socket(place.path())).unwrap());
    assert!(matches!(
        control::status(place.path()).await,
        Err(ControlError::NoLab { .. })
    ));
}

#[tokio::test]
async fn a_watcher_sees_each_change_until_the_lab_ends() {
    let place = tempfile::tempdir().unwrap();
    let (_notebook, stop) = lab(place.path());
    let (send, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let dir = place.path().to_owned();
    let watching = tokio::spawn(async move {
        control::watch(&dir, |status| {
            send.send(status.nodes[0].name.clone())
                .map_err(std::io::Error::other)
        })
        .await
    });
    assert_eq!(seen.recv().await.unwrap(), "after 0 orders");
    control::inflict(place.path(), kill("shore-1")).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "after 1 orders");
    drop(stop);
    tokio::time::timeout(Duration::from_secs(10), watching)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn what_is_no_order_is_refused_and_the_next_one_is_heard() {
    let place = tempfile::tempdir().unwrap();
    let (notebook, _stop) = lab(place.path());
    let (read, mut write) = UnixStream::connect(control_socket(place.path()))
        .await
        .unwrap()
        .into_split();
    let mut lines = BufReader::new(read).lines();
    for wrong in [
        "hello",
        "{\"inflict\":{\"kill\":{}}}",
        "{\"inflict\":{\"kill\":{\"node\":\"a\",\"hard\":1}}}",
        "[]",
    ] {
        write.write_all(format!("{wrong}\n").as_bytes()).await.unwrap();
        let answer = lines.next_line().await.unwrap().unwrap();
        assert!(
            answer.starts_with("{\"refused\":\"not an order"),
            "{wrong}: {answer}"
        );
    }
    write
        .write_all(b"{\"inflict\":{\"kill\":{\"node\":\"shore-1\"}}}\n")
        .await
        .unwrap();
    assert_eq!(
        lines.next_line().await.unwrap().unwrap(),
        "{\"done\":\"shore-1 has no power\"}"
    );
    assert_eq!(notebook.told.lock().unwrap().len(), 1);
}
