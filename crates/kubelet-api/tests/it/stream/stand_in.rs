//! An API server that knows one pod, and serves its streams itself.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::{any, get};
use evenkeel_kubelet_api::stream::{Limits, attach, port_forward, remote_command};
use evenkeel_kubelet_api::{Duplex, ExecIo, Fault, FaultKind};
use evenkeel_net::pki::{Ca, ServerNames, Validity};
use evenkeel_net::serve::{ServerTls, serve_http, serve_https};
use futures::future::BoxFuture;
use http::Uri;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Ends when it is dropped.
pub(super) struct StandIn {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    _stop: DropGuard,
}

/// What was asked and has come to pass.
#[derive(Default)]
pub(super) struct Seen {
    /// What requests upgraded to, in order.
    pub(super) upgrades: Mutex<Vec<String>>,
    /// How many commands were dropped before they ended.
    pub(super) dropped: Mutex<usize>,
    /// Bytes that the command `sip` has taken.
    pub(super) sipped: Mutex<usize>,
}

struct Shared {
    limits: Limits,
    seen: Arc<Seen>,
    /// The command `sip` reads once more for each permit.
    sips: Semaphore,
}

impl StandIn {
    pub(super) async fn start() -> Self {
        Self::with(Limits::default(), false).await
    }

    pub(super) async fn with(limits: Limits, tls: bool) -> Self {
        let seen = Arc::new(Seen::default());
        let shared = Shared {
            limits,
            seen: seen.clone(),
            sips: Semaphore::new(0),
        };
        let pods = "/api/v1/namespaces/default/pods/pod";
        let app = Router::new()
            .route(
                "/version",
                get(|| async { Json(json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})) }),
            )
            .route(
                "/api",
                get(|| async { Json(json!({"kind": "APIVersions", "versions": ["v1"]})) }),
            )
            .route(
                "/apis",
                get(|| async { Json(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})) }),
            )
            .route("/api/v1", get(resources))
            .route(pods, get(pod))
            .route(&format!("{pods}/{{verb}}"), any(stream))
            .with_state(Arc::new(shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let ends = stop.clone();
        if tls {
            evenkeel_net::init_crypto();
            let validity = Validity {
                from: 0,
                until: 4_000_000_000,
            };
            let ca = Ca::new("test", validity).unwrap();
            let names = ServerNames {
                dns: vec![],
                ips: vec![address.ip()],
            };
            let tls = ServerTls::new(&ca.issue_server("stand-in", &names, validity).unwrap(), None).unwrap();
            tokio::spawn(async move { serve_https(listener, tls, app, ends).await });
        } else {
            tokio::spawn(async move { serve_http(listener, app, ends).await });
        }
        Self {
            address,
            seen,
            _stop: stop.drop_guard(),
        }
    }
}

async fn resources() -> Json<serde_json::Value> {
    let resource = |name: &str, kind: &str, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    Json(json!({
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            resource("pods", "Pod", &["get", "list"]),
            resource("pods/exec", "PodExecOptions", &["create", "get"]),
            resource("pods/attach", "PodAttachOptions", &["create", "get"]),
            resource("pods/portforward", "PodPortForwardOptions", &["create", "get"]),
        ],
    }))
}

async fn pod() -> Json<serde_json::Value> {
    Json(json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "pod", "namespace": "default", "uid": "1"},
        "spec": {"nodeName": "node", "containers": [{"name": "main", "image": "none", "stdin": true, "tty": true}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "ready": true, "state": {"running": {}}, "image": "", "imageID": ""}],
        },
    }))
}

async fn stream(
    State(shared): State<Arc<Shared>>,
    Path(verb): Path<String>,
    mut request: Request,
) -> Response {
    let upgrade = request.headers().get("upgrade").and_then(|to| to.to_str().ok());
    shared
        .seen
        .upgrades
        .lock()
        .unwrap()
        .push(upgrade.unwrap_or_default().to_owned());
    let query: Vec<(String, String)> = axum::extract::Query::try_from_uri(request.uri()).unwrap().0;
    let command = query.iter().filter(|(name, _)| name == "command");
    let command: Vec<String> = command.map(|(_, value)| value.clone()).collect();
    *request.uri_mut() = kubelets(request.uri());
    let limits = shared.limits;
    match verb.as_str() {
        "exec" => remote_command(request, limits, move |io| Box::pin(run(shared, command, io))),
        "attach" => attach(request, limits, move |io| {
            Box::pin(run(shared, vec!["greet".to_owned()], io))
        }),
        "portforward" => port_forward(request, limits, connect),
        _ => http::StatusCode::NOT_FOUND.into_response(),
    }
}

/// The API server asks its kubelets in other words than it is asked.
fn kubelets(uri: &Uri) -> Uri {
    let mut text = uri.to_string();
    for (ours, theirs) in [
        ("stdin=true", "input=1"),
        ("stdout=true", "output=1"),
        ("stderr=true", "error=1"),
        ("tty=true", "tty=1"),
    ] {
        text = text.replace(ours, theirs);
    }
    text.parse().unwrap()
}

/// Ports below 100 are closed, the others are those of the test's own machine.
fn connect(port: u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> {
    Box::pin(async move {
        let fault = |why: String| Fault::new(FaultKind::Invalid, "PortForward", why);
        if port < 100 {
            return Err(fault(format!("nothing listens on {port}")));
        }
        let socket = TcpStream::connect(("127.0.0.1", port)).await;
        Ok(Box::new(socket.map_err(|error| fault(error.to_string()))?) as Box<dyn Duplex>)
    })
}

/// Counts a command that is dropped before it ends.
struct Dropped(Option<Arc<Seen>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        if let Some(seen) = &self.0 {
            *seen.dropped.lock().unwrap() += 1;
        }
    }
}

async fn run(shared: Arc<Shared>, command: Vec<String>, io: ExecIo) -> Result<i32, Fault> {
    let mut dropped = Dropped(Some(shared.seen.clone()));
    let ended = execute(&shared, &command, io).await;
    dropped.0 = None;
    ended.map_err(|error| Fault::new(FaultKind::Later, "Stream", error.to_string()))?
}

async fn execute(shared: &Shared, command: &[String], io: ExecIo) -> std::io::Result<Result<i32, Fault>> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let fault = |kind| Ok(Err(Fault::new(kind, "Test", "there is no such container")));
    match command.as_slice() {
        ["echo", text] => {
            io.stdout
                .unwrap()
                .write_all(format!("{text}\n").as_bytes())
                .await?;
        }
        ["fail", code, text] => {
            io.stderr.unwrap().write_all(text.as_bytes()).await?;
            return Ok(Ok(code.parse().unwrap()));
        }
        ["cat"] => {
            tokio::io::copy(&mut io.stdin.unwrap(), &mut io.stdout.unwrap()).await?;
        }
        ["write", count] => {
            let data: Vec<u8> = pattern(count.parse().unwrap());
            io.stdout.unwrap().write_all(&data).await?;
        }
        ["count"] => {
            let mut data = Vec::new();
            io.stdin.unwrap().read_to_end(&mut data).await?;
            let whole = data == pattern(data.len());
            let text = format!("{} {whole}", data.len());
            io.stdout.unwrap().write_all(text.as_bytes()).await?;
        }
        ["sip"] => {
            let mut stdin = io.stdin.unwrap();
            let mut buffer = vec![0; 1024];
            loop {
                shared.sips.acquire().await.unwrap().forget();
                let count = stdin.read(&mut buffer).await?;
                *shared.seen.sipped.lock().unwrap() += count;
            }
        }
        ["greet"] => {
            let mut stdout = io.stdout.unwrap();
            stdout.write_all(b"hello\n").await?;
            if let Some(mut stdin) = io.stdin {
                tokio::io::copy(&mut stdin, &mut stdout).await?;
            }
        }
        // Writes sizes as they change until a line is typed.
        ["sizes"] => {
            let (mut stdout, mut stdin) = (io.stdout.unwrap(), io.stdin.unwrap());
            let mut sizes = io.terminal.unwrap();
            let mut typed = [0; 1];
            loop {
                tokio::select! {
                    Some(size) = sizes.recv() => {
                        let text = format!("size {}x{}\r\n", size.width, size.height);
                        stdout.write_all(text.as_bytes()).await?;
                    }
                    read = stdin.read(&mut typed) => if read? == 0 || typed == *b"q" { break },
                }
            }
            stdout.write_all(b"bye\r\n").await?;
            return Ok(Ok(7));
        }
        ["hang"] => {
            io.stdout.unwrap().write_all(b"ready\n").await?;
            std::future::pending::<()>().await;
        }
        ["panic"] => panic!("as the test wants"),
        _ => return fault(FaultKind::NotFound),
    }
    Ok(Ok(0))
}

/// Bytes of which none can be lost or swapped unseen.
pub(super) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
