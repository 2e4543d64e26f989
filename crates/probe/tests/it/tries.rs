//! Attempts whole: what reaches the handler, how often it is asked, and what is left out of account.

use evenkeel_probe::core::{
    Attempt, Compat, Container, Handler, HttpGet, Key, Kind, Outcome, Port, Probe, Scheme, Target, Verdict,
};
use evenkeel_probe::handler::exec::{Execute, Ran};
use evenkeel_probe::handler::{Handlers, Prober as _};
use futures::future::{BoxFuture, FutureExt as _};
use rstest::rstest;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Runs nothing, remembers what it was to run, and ends as it is told; by an exit code of 0 when nothing is
/// left to tell.
#[derive(Default)]
struct Fake {
    commands: Mutex<Vec<Vec<String>>>,
    ends: Mutex<Vec<Ran>>,
}

impl Execute for Fake {
    fn execute<'a>(&'a self, _: &'a Target, command: &'a [String], _: Duration) -> BoxFuture<'a, Ran> {
        self.commands.lock().unwrap().push(command.to_vec());
        let end = self.ends.lock().unwrap().pop();
        let well = Ran::Exited {
            code: 0,
            output: b"well".to_vec(),
        };
        async move { end.unwrap_or(well) }.boxed()
    }
}

fn attempt(handler: Handler, address: Option<SocketAddr>, compat: Compat) -> Attempt {
    Attempt {
        ticket: 1,
        key: Key {
            pod: "uid".into(),
            container: "app".into(),
            kind: Kind::Readiness,
        },
        target: Target {
            address: address.map(|address| address.ip()),
            source: None,
            container: Arc::new(Container {
                name: "app".into(),
                env: vec![("A".into(), "script".into())],
                ..Container::default()
            }),
            container_id: "test://1".into(),
        },
        probe: Arc::new(Probe {
            timeout: Duration::from_secs(30),
            ..Probe::new(handler)
        }),
        compat,
        lag: Duration::ZERO,
    }
}

async fn go(fake: Arc<Fake>, attempt: &Attempt) -> Outcome {
    // Large: whatever a handler of any kind needs lives in it.
    Box::pin(Handlers::new(fake).probe(attempt)).await
}

fn exec(script: &str) -> Handler {
    Handler::Exec {
        command: vec!["/bin/bash".into(), "-c".into(), script.into()],
    }
}

fn failed() -> Ran {
    Ran::Failed {
        error: "exec error".into(),
    }
}

fn exited(code: i32) -> Ran {
    Ran::Exited {
        code,
        output: b"said".to_vec(),
    }
}

/// How the tries end, the last that is listed first, what the attempt comes to, and how often it was tried. A
/// failure is a result, and not tried again.
#[rstest]
#[case::success(Compat::Kubelet, vec![exited(0)], Outcome::success("said"), 1)]
#[case::failure(Compat::Kubelet, vec![exited(1)], Outcome::failure("said"), 1)]
#[case::errors(
    Compat::Kubelet, vec![failed(), failed(), failed()], Outcome::error(Verdict::Unknown, "exec error"), 3
)]
#[case::success_after_errors(Compat::Kubelet, vec![exited(0), failed(), failed()], Outcome::success("said"), 3)]
#[case::failure_after_an_error(Compat::Kubelet, vec![exited(1), failed()], Outcome::failure("said"), 2)]
#[case::strict(Compat::Strict, vec![exited(0), failed()], Outcome::error(Verdict::Unknown, "exec error"), 1)]
#[tokio::test]
async fn an_attempt_is_tried_while_it_errs(
    #[case] compat: Compat,
    #[case] ends: Vec<Ran>,
    #[case] expected: Outcome,
    #[case] tries: usize,
) {
    let fake = Arc::new(Fake {
        ends: Mutex::new(ends),
        ..Fake::default()
    });
    let outcome = go(fake.clone(), &attempt(exec("x"), None, compat)).await;
    assert_eq!(outcome, expected);
    assert_eq!(fake.commands.lock().unwrap().len(), tries);
}

#[rstest]
#[case::as_given("some script", "some script")]
#[case::expanded("some $(A) $(B)", "some script $(B)")]
#[tokio::test]
async fn a_command_reaches_its_container(#[case] script: &str, #[case] expected: &str) {
    let fake = Arc::new(Fake::default());
    let outcome = go(fake.clone(), &attempt(exec(script), None, Compat::Kubelet)).await;
    assert_eq!(outcome, Outcome::success("well"));
    assert_eq!(*fake.commands.lock().unwrap(), [["/bin/bash", "-c", expected]]);
}

/// Set for a process that is to probe under an environment with proxies.
const ADDRESS: &str = "EVENKEEL_TEST_PROBE_ADDRESS";

/// A process of its own, since the environment is all threads': a proxy where nobody listens would be found
/// out.
#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    if let Ok(address) = env::var(ADDRESS) {
        return probe_the_parent(address.parse().unwrap()).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).await.unwrap();
            assert!(head[..length].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ndirect")
                .await
                .unwrap();
        }
    });
    let child = tokio::task::spawn_blocking(move || {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args([
            "--exact",
            "tries::proxies_of_the_environment_are_ignored",
            "--nocapture",
        ]);
        for name in [
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            child.env(name, "http://127.0.0.1:1");
        }
        child.env(ADDRESS, address.to_string()).output().unwrap()
    });
    let child = child.await.unwrap();
    server.abort();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

async fn probe_the_parent(address: SocketAddr) {
    let get = HttpGet {
        scheme: Scheme::Http,
        // A name, too: Go's rules exempt loopback addresses from proxies, ours must not need them.
        host: Some("localhost".into()),
        port: Port::Number(address.port().into()),
        path: "/healthz".into(),
        headers: Vec::new(),
    };
    let attempt = attempt(Handler::HttpGet(get), Some(address), Compat::Kubelet);
    let outcome = go(Arc::default(), &attempt).await;
    assert_eq!(outcome, Outcome::success("direct"));
}

/// As many as upstream's scale test makes each second; each socket left in TIME_WAIT would hold a port for a
/// minute.
#[tokio::test]
async fn http_probes_leave_nothing_in_time_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _head = stream.read(&mut head).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await
                .unwrap();
            // The probe is to leave first: whoever does is left with the socket.
            let _end = stream.read(&mut head).await;
        }
    });
    let get = HttpGet {
        scheme: Scheme::Http,
        host: None,
        port: Port::Number(address.port().into()),
        path: "/".into(),
        headers: Vec::new(),
    };
    let attempt = attempt(Handler::HttpGet(get), Some(address), Compat::Kubelet);
    for _ in 0..600 {
        assert_eq!(go(Arc::default(), &attempt).await, Outcome::success("ok"));
    }
    server.abort();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X} 06 ", address.port());
    let waiting = table.lines().filter(|line| line.contains(&port)).count();
    assert_eq!(waiting, 0);
}
