use super::fixture::{own_addresses, pod, pod_with, provider, start, with};
use crate::Simulated;
use evenkeel_testkit::eventually;
use evenkeel_vnode::provider::{
    ContainerId, ExecIo, FaultKind, LogOptions, PodRequest, Provider, TerminalSize,
};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

const SECOND: Duration = Duration::from_secs(1);

/// Streams of a command, and the client's ends of them: what it types and what it sees.
fn streams(terminal: bool) -> (ExecIo, DuplexStream, DuplexStream, mpsc::Sender<TerminalSize>) {
    let (typed, stdin) = tokio::io::duplex(64 << 10);
    let (seen, stdout) = tokio::io::duplex(64 << 10);
    let (sizes, receiver) = mpsc::channel(4);
    let io = ExecIo {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(stdout)),
        stderr: None,
        terminal: terminal.then_some(receiver),
    };
    (io, typed, seen, sizes)
}

async fn exec(provider: &Simulated, pod: &PodRequest, id: &ContainerId, command: &str) -> (String, i32) {
    exec_with(provider, pod, id, command, "").await
}

async fn exec_with(
    provider: &Simulated,
    pod: &PodRequest,
    id: &ContainerId,
    command: &str,
    input: &str,
) -> (String, i32) {
    let (io, mut typed, mut seen, _) = streams(false);
    typed.write_all(input.as_bytes()).await.unwrap();
    drop(typed);
    let command = ["sh", "-c", command].map(str::to_owned);
    let mut text = String::new();
    let (code, read) = tokio::join!(
        provider.exec(&pod.id, id, &command, io),
        seen.read_to_string(&mut text)
    );
    read.unwrap();
    (text, code.unwrap())
}

async fn wait_for(seen: &mut DuplexStream, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let mut buffer = [0; 1024];
        let count = tokio::time::timeout(SECOND * 60, seen.read(&mut buffer)).await;
        let count = count
            .unwrap_or_else(|_| panic!("{wanted:?} never came: {text:?}"))
            .unwrap();
        assert!(count > 0, "the stream ended without {wanted:?}: {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

#[tokio::test(start_paused = true)]
async fn commands_run_in_the_container_with_its_environment() {
    let (provider, _) = provider();
    let pod = pod_with(
        "a",
        &[],
        json!({"env": [{"name": "COLOUR", "value": "blue"}], "workingDir": "/srv"}),
    );
    let started = start(&provider, &pod, "web").await.unwrap();
    for (command, output, code) in [
        ("printenv COLOUR", "blue\n", 0),
        ("printenv HOSTNAME", "a\n", 0),
        ("pwd", "/srv\n", 0),
        ("cat /etc/hostname", "a\n", 0),
        ("exit 3", "", 3),
    ] {
        let ended = exec(&provider, &pod, &started.id, command).await;
        assert_eq!(ended, (output.to_owned(), code), "{command}");
    }
    let (text, _) = exec_with(&provider, &pod, &started.id, "tee /tmp/x", "kept\n").await;
    assert_eq!(text, "kept\n");
    assert_eq!(exec(&provider, &pod, &started.id, "cat /tmp/x").await.0, "kept\n");
}

#[tokio::test(start_paused = true)]
async fn a_command_ends_with_its_container() {
    let (provider, _) = provider();
    let pod = pod("a", &[]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let stopping = async {
        tokio::time::sleep(SECOND).await;
        provider.stop(&pod.id, &started.id, SECOND).await.unwrap();
    };
    let (ended, ()) = tokio::join!(exec(&provider, &pod, &started.id, "sleep infinity"), stopping);
    assert_eq!(ended.1, 137);
    let (io, ..) = streams(false);
    let fault = provider
        .exec(&pod.id, &started.id, &["ls".to_owned()], io)
        .await
        .unwrap_err();
    assert_eq!(
        (fault.kind, fault.reason.as_str()),
        (FaultKind::Invalid, "ContainerNotRunning")
    );
}

#[tokio::test(start_paused = true)]
async fn a_signal_from_within_ends_the_container_and_is_reported() {
    let (provider, framework) = provider();
    let pod = pod("a", &[("stop-delay", "2s"), ("stop-code", "143")]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let killing = async { exec(&provider, &pod, &started.id, "kill 1").await.1 };
    let (code, killed) = tokio::join!(exec(&provider, &pod, &started.id, "sleep 60"), killing);
    assert_eq!((code.1, killed), (137, 0));
    assert_eq!(framework.ends(), [("web".to_owned(), 143, "Error".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_is_a_terminal() {
    let (provider, _) = provider();
    let pod = pod("a", &[]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let (io, mut typed, mut seen, sizes) = streams(true);
    sizes
        .send(TerminalSize {
            width: 100,
            height: 40,
        })
        .await
        .unwrap();
    let command = ["sh".to_owned()];
    let using = async {
        wait_for(&mut seen, "/ # ").await;
        typed.write_all(b"stty size\r").await.unwrap();
        wait_for(&mut seen, "40 100\r\n/ # ").await;
        typed.write_all(b"sleep 1000\r").await.unwrap();
        wait_for(&mut seen, "\r\n").await;
        tokio::time::sleep(SECOND).await;
        typed.write_all(b"\x03").await.unwrap();
        wait_for(&mut seen, "^C\r\n/ # ").await;
        typed.write_all(b"exit 4\r").await.unwrap();
    };
    let (code, ()) = tokio::join!(provider.exec(&pod.id, &started.id, &command, io), using);
    assert_eq!(code, Ok(4));
}

/// A container whose main process is a shell that reads what one client sends.
async fn talker(provider: &Simulated) -> (PodRequest, ContainerId) {
    let web = json!({"command": ["sh"], "stdin": true, "stdinOnce": true});
    let pod = pod_with("a", &[("run", "command")], web);
    let started = start(provider, &pod, "web").await.unwrap();
    (pod, started.id)
}

#[tokio::test(start_paused = true)]
async fn a_containers_own_command_is_run_logged_and_leaves_last_words() {
    let (provider, framework) = provider();
    let (pod, id) = talker(&provider).await;
    let (io, mut typed, ..) = streams(false);
    let using = async {
        typed.write_all(b"echo begun\nsleep 5\n").await.unwrap();
        exec_with(&provider, &pod, &id, "tee /dev/termination-log", "bye\n").await;
        typed.write_all(b"echo over\nexit 9\n").await.unwrap();
    };
    let (code, ()) = tokio::join!(provider.attach(&pod.id, &id, io), using);
    assert_eq!(code, Ok(9));
    let log = super::logs::read(&provider, &pod, &id, LogOptions::default()).await;
    assert_eq!(log, "begun\nover\n");
    assert_eq!(framework.ends(), [("web".to_owned(), 9, "Error".to_owned())]);
    let exit = provider.stop(&pod.id, &id, SECOND).await.unwrap();
    assert_eq!((exit.code, exit.message.as_str()), (9, "bye\n"));
}

#[tokio::test(start_paused = true)]
async fn a_command_without_a_shell_is_run_too() {
    let (provider, framework) = provider();
    let web = json!({"command": ["cat"], "args": ["/etc/hostname", "/nowhere"]});
    let pod = pod_with("a", &[("run", "command")], web);
    let started = start(&provider, &pod, "web").await.unwrap();
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let log = super::logs::read(&provider, &pod, &started.id, follow).await;
    assert_eq!(log, "a\ncat: /nowhere: No such file or directory\n");
    assert_eq!(framework.ends(), [("web".to_owned(), 1, "Error".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_stopped_says_nothing_more() {
    let (provider, framework) = provider();
    let (pod, id) = talker(&provider).await;
    let (io, mut typed, mut seen, _) = streams(false);
    let using = async {
        typed.write_all(b"echo x\nsleep 1\necho never\n").await.unwrap();
        wait_for(&mut seen, "x\n").await;
        provider.stop(&pod.id, &id, SECOND).await.unwrap();
    };
    let _ = tokio::join!(provider.attach(&pod.id, &id, io), using);
    tokio::time::sleep(SECOND * 5).await;
    let log = super::logs::read(&provider, &pod, &id, LogOptions::default()).await;
    assert_eq!(log, "x\n");
    assert_eq!(framework.ends(), []);
}

#[tokio::test(start_paused = true)]
async fn who_attaches_talks_to_the_main_process_until_it_ends() {
    let (provider, _) = provider();
    let (pod, id) = talker(&provider).await;
    let (io, mut typed, mut seen, _) = streams(false);
    let using = async {
        typed.write_all(b"echo got one\nfalse\n").await.unwrap();
        wait_for(&mut seen, "got one\n").await;
        drop(typed);
    };
    let (code, ()) = tokio::join!(provider.attach(&pod.id, &id, io), using);
    assert_eq!(code, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_shell_as_main_process_goes_on_when_a_client_leaves() {
    let (provider, _) = provider();
    let web = json!({"command": ["sh"], "stdin": true, "tty": true});
    let pod = pod_with("a", &[("run", "command")], web);
    let started = start(&provider, &pod, "web").await.unwrap();
    for _ in 0..2 {
        let (io, mut typed, mut seen, _sizes) = streams(true);
        let using = async {
            typed.write_all(b"echo tw''o\r").await.unwrap();
            wait_for(&mut seen, "two\r\n/ # ").await;
        };
        tokio::select! {
            code = provider.attach(&pod.id, &started.id, io) => panic!("{code:?}"),
            () = using => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_attaches_to_a_quiet_process_sees_what_it_logs() {
    let (provider, _) = provider();
    let pod = pod(
        "a",
        &[("log-interval", "1s"), ("exit-after", "5s"), ("exit-code", "2")],
    );
    let started = start(&provider, &pod, "web").await.unwrap();
    tokio::time::sleep(SECOND * 3 + SECOND / 2).await;
    let (io, _typed, mut seen, _) = streams(false);
    let mut text = String::new();
    let (code, read) = tokio::join!(
        provider.attach(&pod.id, &started.id, io),
        seen.read_to_string(&mut text)
    );
    read.unwrap();
    assert_eq!((text.as_str(), code), ("line 5\nline 6\n", Ok(2)));
}

async fn get(stream: &mut (impl tokio::io::AsyncRead + AsyncWriteExt + Unpin), path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_declared_port_answers_and_another_is_refused() {
    let (provider, _) = provider();
    let pod = pod_with("a", &[], json!({"ports": [{"containerPort": 8080}]}));
    start(&provider, &pod, "web").await.unwrap();
    let mut stream = provider.port_forward(&pod.id, 8080).await.unwrap();
    let answer = get(&mut stream, "/x").await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("web of default/a on port 8080: GET /x"),
        "{answer}"
    );
    let Err(fault) = provider.port_forward(&pod.id, 9).await else {
        panic!("nobody listens there");
    };
    assert!(fault.message.contains("connect: connection refused"), "{fault}");
}

#[rstest::rstest]
#[case::stopped(false)]
#[case::deleted(true)]
#[tokio::test(start_paused = true)]
async fn a_forwarded_connection_ends_with_its_container(#[case] delete: bool) {
    let (provider, _) = provider();
    let pod = pod_with("a", &[], json!({"ports": [{"containerPort": 8080}]}));
    let started = start(&provider, &pod, "web").await.unwrap();
    let mut forwarded = provider.port_forward(&pod.id, 8080).await.unwrap();
    if delete {
        provider.delete(&pod.id).await.unwrap();
    } else {
        provider.stop(&pod.id, &started.id, SECOND).await.unwrap();
    }
    let mut rest = Vec::new();
    let read = tokio::time::timeout(SECOND * 60, forwarded.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection outlives its container");
}

#[tokio::test]
async fn real_sockets_answer_as_scripts_say_until_the_container_ends() {
    let (provider, _) = with(own_addresses());
    let web = json!({
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 18_080}},
        "livenessProbe": {"tcpSocket": {"port": 18_081}},
    });
    let annotations = [
        ("serve", "true"),
        ("readiness", "not-ready"),
        ("healthy-for", "0"),
    ];
    let pod = pod_with("a", &annotations, web);
    let started = start(&provider, &pod, "web").await.unwrap();
    let address = provider.create(&pod).await.unwrap().addresses[0];
    assert!(address.is_loopback());
    let ask = async |port: u16, path: &str| {
        let mut stream = tokio::net::TcpStream::connect((address, port)).await.unwrap();
        get(&mut stream, path).await
    };
    for (port, path, status) in [
        (18_080, "/ready", "503"),
        (18_081, "/ready", "200"),
        (18_080, "/healthz", "500"),
        (18_080, "/", "200"),
    ] {
        let answer = ask(port, path).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{port}{path}: {answer}"
        );
    }
    assert!(ask(18_080, "/redirect").await.contains("location: /healthz"));
    assert!(
        ask(18_080, "/redirect?http://example.com/")
            .await
            .contains("location: http://example.com/")
    );
    let mut forwarded = provider.port_forward(&pod.id, 18_080).await.unwrap();
    assert!(get(&mut forwarded, "/").await.starts_with("HTTP/1.1 200"));
    provider.stop(&pod.id, &started.id, SECOND).await.unwrap();
    let closed = async || tokio::net::TcpStream::connect((address, 18_080)).await.err();
    eventually("the socket closes", SECOND * 10, closed).await;
}
