//! A runtime of our own over a Unix socket, which says what it is told to say, and sockets with no runtime
//! behind.

use super::proto::{
    Container, ContainerMetadata, ContainerStatus, ContainerStatusResponse, ExecSyncRequest,
    ExecSyncResponse, ListContainersResponse, ListPodSandboxResponse, PodSandbox, VersionResponse,
};
use super::{Client, Error, State};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tokio::task::{JoinHandle, JoinSet};
use tonic::Code;

const LONG: Duration = Duration::from_secs(60);

/// What a method answers.
#[derive(Clone)]
enum Say {
    Message(Vec<u8>),
    /// Announces more than it sends.
    Cut(Vec<u8>),
    Error(Code, &'static str),
    Nothing,
}

/// By method.
type Says = Arc<Mutex<HashMap<&'static str, Say>>>;
/// Methods and their messages, in the order of calls.
type Heard = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

struct Fake {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    says: Says,
    heard: Heard,
    server: JoinHandle<()>,
}

impl Fake {
    /// One that knows its version.
    fn start() -> Self {
        let (dir, listener, socket) = listen();
        let version = VersionResponse {
            runtime_name: "fake".to_owned(),
            runtime_version: "1.0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        };
        let says = HashMap::from([("Version", Say::Message(version.encode_to_vec()))]);
        let mut fake = Self {
            _dir: dir,
            socket,
            says: Arc::new(Mutex::new(says)),
            heard: Arc::default(),
            server: tokio::spawn(async {}),
        };
        fake.serve(listener);
        fake
    }

    fn serve(&mut self, listener: UnixListener) {
        let (says, heard) = (Arc::clone(&self.says), Arc::clone(&self.heard));
        self.server = tokio::spawn(async move {
            // They end with the server.
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (says, heard) = (Arc::clone(&says), Arc::clone(&heard));
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    answer(Arc::clone(&says), Arc::clone(&heard), request)
                });
                connections.spawn(async move {
                    // A client may leave at any time.
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
    }

    fn says(&self, method: &'static str, say: Say) {
        self.says.lock().unwrap().insert(method, say);
    }

    fn answers(&self, method: &'static str, message: &impl Message) {
        self.says(method, Say::Message(message.encode_to_vec()));
    }

    async fn client(&self) -> Client {
        Client::connect_within(&self.socket, LONG).await.unwrap()
    }

    fn heard(&self, method: &str) -> Vec<u8> {
        let heard = self.heard.lock().unwrap();
        let found = heard.iter().rfind(|(name, _)| name == method);
        found.unwrap().1.clone()
    }
}

fn listen() -> (tempfile::TempDir, UnixListener, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    (dir, listener, socket)
}

async fn answer(
    says: Says,
    heard: Heard,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    let method = path
        .strip_prefix("/runtime.v1.RuntimeService/")
        .unwrap()
        .to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    heard.lock().unwrap().push((method.clone(), body[5..].to_vec()));
    let say = says.lock().unwrap().get(method.as_str()).cloned();
    let (status, text, data) = match say {
        None => (Code::Unimplemented, "unknown method", Vec::new()),
        Some(Say::Error(code, text)) => (code, text, Vec::new()),
        Some(Say::Message(message)) => (Code::Ok, "", framed(message.len(), message)),
        Some(Say::Cut(message)) => (Code::Ok, "", framed(message.len() + 10, message)),
        Some(Say::Nothing) => std::future::pending().await,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status as i32));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    let body = http_body_util::Full::new(Bytes::from(data)).with_trailers(async { Some(Ok(trailers)) });
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(body.boxed()).unwrap())
}

fn framed(length: usize, message: Vec<u8>) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend(u32::try_from(length).unwrap().to_be_bytes());
    frame.extend(message);
    frame
}

fn labels(namespace: &str, pod: &str, container: &str) -> HashMap<String, String> {
    [
        ("io.kubernetes.pod.namespace", namespace),
        ("io.kubernetes.pod.name", pod),
        ("io.kubernetes.container.name", container),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn container(id: &str, name: &str, attempt: u32, created_at: i64) -> Container {
    Container {
        id: id.to_owned(),
        pod_sandbox_id: "s1".to_owned(),
        metadata: Some(ContainerMetadata {
            name: name.to_owned(),
            attempt,
        }),
        created_at,
        labels: labels("default", "web-0", name),
    }
}

#[tokio::test]
async fn a_runtime_says_who_it_is_by_path_and_by_url() {
    let fake = Fake::start();
    for socket in [
        fake.socket.clone(),
        format!("unix://{}", fake.socket.display()).into(),
    ] {
        let client = Client::connect(socket).await.unwrap();
        assert_eq!(client.socket(), fake.socket);
        let version = client.version().await.unwrap();
        let version = (version.runtime, version.version, version.api);
        assert_eq!(version, ("fake".to_owned(), "1.0".to_owned(), "v1".to_owned()));
    }
}

#[tokio::test]
async fn commands_get_whole_seconds_rounded_up_and_a_bare_id() {
    let fake = Fake::start();
    let answer = ExecSyncResponse {
        stdout: b"out".to_vec(),
        stderr: b"err".to_vec(),
        exit_code: -1,
    };
    fake.answers("ExecSync", &answer);
    let client = fake.client().await;
    for (timeout, seconds) in [
        (Duration::from_secs(1), 1),
        (Duration::from_millis(1), 1),
        (Duration::from_millis(1_001), 2),
        (Duration::ZERO, 1),
        (Duration::MAX, i64::MAX),
    ] {
        let exec = client
            .exec("containerd://c1", &["true".to_owned()], timeout)
            .await
            .unwrap();
        assert_eq!(
            (exec.exit_code, exec.stdout, exec.stderr),
            (-1, b"out".to_vec(), b"err".to_vec())
        );
        let request = ExecSyncRequest::decode(fake.heard("ExecSync").as_slice()).unwrap();
        assert_eq!((request.container_id.as_str(), request.timeout), ("c1", seconds));
        assert_eq!(request.cmd, ["true"]);
    }
}

#[tokio::test]
async fn the_newest_of_each_name_is_found_and_strangers_are_not() {
    let fake = Fake::start();
    let mut stranger = container("x", "web", 9, 99);
    stranger.labels = labels("default", "web-1", "web");
    let list = ListContainersResponse {
        containers: vec![
            container("b", "web", 1, 20),
            container("a", "web", 0, 10),
            stranger,
            container("c", "web", 2, 20),
        ],
    };
    fake.answers("ListContainers", &list);
    let status = ContainerStatus {
        id: "c".to_owned(),
        state: 77,
        created_at: 20,
        ..ContainerStatus::default()
    };
    fake.answers(
        "ContainerStatus",
        &ContainerStatusResponse { status: Some(status) },
    );
    let found = fake.client().await.containers("default", "web-0").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].id.as_str(), found[0].attempt, found[0].state),
        ("c", 2, State::Unknown)
    );
    assert_eq!((found[0].started_at, found[0].exit_code), (None, None));
    // Removed between the list and its status.
    fake.says("ContainerStatus", Say::Error(Code::NotFound, "gone"));
    assert_eq!(
        fake.client().await.containers("default", "web-0").await.unwrap(),
        []
    );
}

fn status(id: &str, started_at: i64) -> ContainerStatusResponse {
    let status = ContainerStatus {
        id: id.to_owned(),
        started_at,
        ..ContainerStatus::default()
    };
    ContainerStatusResponse { status: Some(status) }
}

#[tokio::test]
async fn answers_that_cannot_be_true_are_errors() {
    let fake = Fake::start();
    let client = fake.client().await;
    let one = |container| ListContainersResponse {
        containers: vec![container],
    };
    let nameless = Container {
        metadata: None,
        labels: labels("default", "web-0", ""),
        ..container("a", "", 0, 0)
    };
    let known = one(container("a", "web", 0, 0));
    for (list, answer, why) in [
        (
            one(nameless),
            status("a", 1),
            "a container without a name or an ID",
        ),
        (
            one(container("", "web", 0, 0)),
            status("a", 1),
            "a container without a name or an ID",
        ),
        (
            known.clone(),
            ContainerStatusResponse::default(),
            "no status in it",
        ),
        (known.clone(), status("b", 1), "it is about another container"),
    ] {
        fake.answers("ListContainers", &list);
        fake.answers("ContainerStatus", &answer);
        let error = client.containers("default", "web-0").await.unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
        assert!(
            error
                .to_string()
                .ends_with(&format!("that cannot be true: {why}")),
            "{error}"
        );
    }
}

/// The clock stood wrong when it was made: what else the pod has is seen all the same.
#[tokio::test]
async fn what_was_made_before_1970_hides_nothing() {
    let fake = Fake::start();
    let client = fake.client().await;
    let list = ListContainersResponse {
        containers: vec![container("a", "web", 0, 0)],
    };
    fake.answers("ListContainers", &list);
    fake.answers("ContainerStatus", &status("a", -1));
    let found = client.containers("default", "web-0").await.unwrap();
    assert_eq!(found[0].started_at, Some(Duration::ZERO));
    let sandbox = PodSandbox {
        created_at: i64::MIN,
        labels: labels("default", "web-0", ""),
        ..PodSandbox::default()
    };
    fake.answers("ListPodSandbox", &ListPodSandboxResponse { items: vec![sandbox] });
    let found = client.sandboxes("default", "web-0").await.unwrap();
    assert_eq!(found[0].created_at, Duration::ZERO);
}

#[tokio::test]
async fn cut_and_garbled_answers_are_errors() {
    let fake = Fake::start();
    let client = fake.client().await;
    for say in [
        Say::Message(vec![0xff; 50]),
        Say::Message(vec![0x0a, 0x7f, 1]),
        Say::Cut(vec![0x0a, 1, 1]),
        Say::Cut(Vec::new()),
    ] {
        fake.says("ExecSync", say.clone());
        fake.says("ListContainers", say);
        client.exec("c1", &[], LONG).await.unwrap_err();
        client.containers("default", "web-0").await.unwrap_err();
    }
    // The connection still works.
    client.version().await.unwrap();
}

#[tokio::test]
async fn errors_of_the_runtime_keep_their_code_and_text() {
    let fake = Fake::start();
    let client = fake.client().await;
    for (code, timeout, missing) in [
        (Code::DeadlineExceeded, true, false),
        (Code::NotFound, false, true),
        (Code::Unknown, false, false),
    ] {
        fake.says("ExecSync", Say::Error(code, "said so"));
        let error = client.exec("c1", &[], LONG).await.unwrap_err();
        assert_eq!(
            (error.is_timeout(), error.is_not_found()),
            (timeout, missing),
            "{error}"
        );
        let Error::Runtime {
            code: found, message, ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((found, message.as_str()), (code, "said so"));
    }
    let error = client.sandboxes("default", "web-0").await.unwrap_err();
    assert!(matches!(error, Error::Unimplemented { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("does not serve ListPodSandbox of CRI v1"),
        "{error}"
    );
    for id in ["", "containerd://"] {
        let error = client.exec(id, &[], LONG).await.unwrap_err();
        assert!(matches!(error, Error::NoId), "{error}");
    }
}

#[tokio::test]
async fn a_runtime_that_says_nothing_is_given_up() {
    let fake = Fake::start();
    fake.says("ListContainers", Say::Nothing);
    let client = Client::connect_within(&fake.socket, LONG).await.unwrap();
    let client = Client {
        deadline: Duration::from_millis(50),
        ..client
    };
    let error = client.containers("default", "web-0").await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(
        error.to_string().contains("no answer to ListContainers"),
        "{error}"
    );
    assert!(error.to_string().contains("within 50ms"), "{error}");
    // Neither does a socket that takes connections and keeps silent.
    let (_dir, _listener, socket) = listen();
    let error = Client::connect_within(&socket, Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
}

#[tokio::test]
async fn sockets_without_a_runtime_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let connect = async |socket: PathBuf| Client::connect(socket).await.unwrap_err();
    let error = connect(dir.path().join("none.sock")).await;
    assert!(matches!(error, Error::NoSocket { .. }), "{error}");
    assert!(error.to_string().contains("none.sock does not exist"), "{error}");
    // Dead: its listener is gone, the file stays.
    let dead = dir.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let error = connect(dead).await;
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    let error = connect(plain).await;
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let error = connect(dir.path().join("x".repeat(200))).await;
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    // Somebody else's.
    let (_dir, listener, socket) = listen();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = Client::connect_within(&socket, LONG).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("is this the socket of a container runtime?"),
        "{error}"
    );
}

#[tokio::test]
async fn a_socket_of_others_is_named_with_what_to_do() {
    let socket = PathBuf::from("/run/x.sock");
    let error = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let error = Error::of_call(&socket, "Version", tonic::Status::from_error(Box::new(error)));
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("no permission to connect to /run/x.sock: run as root"),
        "{error}"
    );
}

#[tokio::test]
async fn a_runtime_that_was_restarted_is_found_again() {
    let mut fake = Fake::start();
    let client = fake.client().await;
    fake.server.abort();
    assert!((&mut fake.server).await.unwrap_err().is_cancelled());
    let error = client.version().await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { .. } | Error::Broken { .. }),
        "{error}"
    );
    std::fs::remove_file(&fake.socket).unwrap();
    fake.serve(UnixListener::bind(&fake.socket).unwrap());
    let found = async {
        while client.version().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, found).await.unwrap();
}
