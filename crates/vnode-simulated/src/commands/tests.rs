use super::*;
use crate::clock::Clock;
use crate::fs::{PodFiles, Pool, View};
use crate::shape::{Shape, find, volumes};
use crate::tests::fixture::pod_with;
use futures::FutureExt as _;
use rstest::rstest;
use serde_json::json;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Heard(Mutex<Vec<i32>>);

impl World for Heard {
    fn signal(&self, signal: i32) {
        self.0.lock().unwrap().push(signal);
    }

    fn main(&self) -> String {
        "nginx".to_owned()
    }
}

fn session(tty: Option<Arc<Tty>>) -> (Session, Arc<Heard>) {
    let pod = pod_with("a", &[], json!({}));
    let (container, part) = find(&pod.pod, "web").unwrap();
    let heard = Arc::new(Heard::default());
    let session = Session {
        view: View {
            files: Arc::new(PodFiles::new(Pool::new(Pool::MOST))),
            host: None,
            pod: pod.id.clone(),
            shape: Arc::new(Shape::of(&pod.pod, &container, part).unwrap()),
            volumes: volumes(&container),
            number: 1,
            hostname: "a".into(),
            address: None,
            clock: Clock::wall(),
        },
        world: heard.clone(),
        tty,
        process: 9,
        steps: AtomicU64::new(0),
    };
    (session, heard)
}

type Kept = Arc<Mutex<Vec<u8>>>;

fn kept(kept: &Kept) -> Output {
    let kept = kept.clone();
    Output::Given(Arc::new(move |bytes| {
        kept.lock().unwrap().extend_from_slice(bytes);
    }))
}

fn streams(input: &[u8]) -> (Streams, Kept, Kept) {
    let (output, errors) = (Kept::default(), Kept::default());
    let streams = Streams {
        input: Input::stream(std::io::Cursor::new(input.to_vec())),
        output: self::kept(&output),
        errors: self::kept(&errors),
    };
    (streams, output, errors)
}

fn text(kept: &Kept) -> String {
    String::from_utf8_lossy(&kept.lock().unwrap()).into_owned()
}

fn state() -> State {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    State::new("/", [variable("HOME", "/root"), variable("A", "a b")])
}

async fn command(session: &Session, command: &[&str], input: &str) -> (String, String, i32) {
    let (streams, output, errors) = streams(input.as_bytes());
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let code = run(session, state(), &command, streams).await;
    (text(&output), text(&errors), code)
}

/// A container with `/tmp/three` of three lines, and an empty folder `/tmp/none`.
async fn furnished() -> Session {
    let (session, _) = session(None);
    session
        .view
        .write("/tmp/three", b"one 1\ntwo 2\nthree 3\n", false)
        .await
        .unwrap();
    session.view.make("/tmp/none").await.unwrap();
    session
}

#[rstest]
#[case("echo hello   'big  world'", "hello big  world\n", 0)]
#[case("echo -n a", "a", 0)]
#[case("echo -e 'a\\tb'", "a\tb\n", 0)]
#[case("true", "", 0)]
#[case("/bin/true", "", 0)]
#[case("false", "", 1)]
#[case("exit", "", 0)]
#[case("exit 7", "", 7)]
#[case("exit 263", "", 7)]
#[case("exit now", "", 2)]
#[case("cat /tmp/three", "one 1\ntwo 2\nthree 3\n", 0)]
#[case("head -n 1 /tmp/three", "one 1\n", 0)]
#[case("head -2 /tmp/three", "one 1\ntwo 2\n", 0)]
#[case("head -c 3 /tmp/three", "one", 0)]
#[case("tail -n 1 /tmp/three", "three 3\n", 0)]
#[case("tail -n +2 /tmp/three", "two 2\nthree 3\n", 0)]
#[case("tail -c 3 /tmp/three", " 3\n", 0)]
#[case("tail -c +13 /tmp/three", "three 3\n", 0)]
#[case("wc /tmp/three", "3 6 20 /tmp/three\n", 0)]
#[case("wc -l /tmp/three", "3 /tmp/three\n", 0)]
#[case("grep -v one /tmp/three", "two 2\nthree 3\n", 0)]
#[case("grep ^t /tmp/three", "two 2\nthree 3\n", 0)]
#[case("grep -c 2$ /tmp/three", "1\n", 0)]
#[case("grep -q four /tmp/three", "", 1)]
#[case("ls /tmp", "none\nthree\n", 0)]
#[case("rmdir /tmp/none", "", 0)]
#[case("mkdir -p /tmp/a/b", "", 0)]
#[case("touch /tmp/new", "", 0)]
#[case("chmod +x /tmp/three", "", 0)]
#[case("test -f /tmp/three", "", 0)]
#[case("[ -d /tmp/three ]", "", 1)]
#[case("[ ! -e /nowhere ]", "", 0)]
#[case("test abc != abd", "", 0)]
#[case("[ 3 -lt 2 ]", "", 1)]
#[case("pwd", "/\n", 0)]
#[case("hostname", "a\n", 0)]
#[case("id -u", "0\n", 0)]
#[case("whoami", "root\n", 0)]
#[case("env", "A=a b\nHOME=/root\n", 0)]
#[case("printenv A", "a b\n", 0)]
#[case("printenv NONE", "", 1)]
#[case("which ls nothing", "/bin/ls\n", 1)]
#[case("which sh", "/bin/sh\n", 0)]
#[tokio::test(start_paused = true)]
async fn a_command_does_what_its_program_does(#[case] line: &str, #[case] output: &str, #[case] code: i32) {
    let (said, complained, ended) = command(&furnished().await, &["sh", "-c", line], "").await;
    assert_eq!((said.as_str(), ended), (output, code), "{complained}");
}

#[rstest]
#[case("nothing --here", "nothing: not found", 127)]
#[case("export A=1", "export: not found", 127)]
#[case("/tmp/none", "Permission denied", 126)]
#[case("/tmp/three", "Permission denied", 126)]
#[case("/nowhere/x", "No such file or directory", 127)]
#[case("cat /nowhere", "No such file or directory", 1)]
#[case("cd /tmp/three", "Not a directory", 1)]
#[case("touch /nowhere/y", "/nowhere/y", 1)]
#[case("rmdir /tmp", "Directory not empty", 1)]
#[case("ls -Z", "unrecognized option: Z", 1)]
#[case("sleep soon", "invalid number 'soon'", 1)]
#[case("env A=1 ls", "to run a command in another environment is not simulated", 1)]
#[case("ls | wc", "\"|\" is not simulated", 2)]
#[case("echo x > /tmp/y", "\">\" is not simulated", 2)]
#[case("while true; do true; done", "\";\" is not simulated", 2)]
#[case("echo $HOME", "\"$HOME\" is not simulated", 2)]
#[case("sh -c ls", "a shell within a shell is not simulated", 126)]
#[case("/bin/bash", "a shell within a shell is not simulated", 126)]
#[tokio::test(start_paused = true)]
async fn what_goes_wrong_is_said_and_has_a_code(#[case] line: &str, #[case] said: &str, #[case] code: i32) {
    let (_, complained, ended) = command(&furnished().await, &["sh", "-c", line], "").await;
    assert!(complained.contains(said), "{complained}");
    assert_eq!(ended, code);
}

#[rstest]
#[case(&["nginx", "-t"], "nginx: not found", 127)]
#[case(&["sh", "/tmp/three"], "/tmp/three: scripts in files are not simulated", 2)]
#[case(&["sh", "-c"], "-c requires an argument", 2)]
#[case(&[], "no command", 126)]
#[tokio::test(start_paused = true)]
async fn what_cannot_be_run_is_named(#[case] words: &[&str], #[case] said: &str, #[case] code: i32) {
    let (_, complained, ended) = command(&furnished().await, words, "").await;
    assert!(complained.contains(said), "{complained}");
    assert_eq!(ended, code);
}

#[tokio::test(start_paused = true)]
async fn an_executable_file_is_no_program() {
    let session = furnished().await;
    assert_eq!(command(&session, &["chmod", "755", "/tmp/three"], "").await.2, 0);
    let (_, complained, code) = command(&session, &["/tmp/three"], "").await;
    assert!(
        complained.contains("programs in files are not simulated"),
        "{complained}"
    );
    assert_eq!(code, 126);
}

#[tokio::test(start_paused = true)]
async fn commands_are_read_line_by_line_without_a_terminal() {
    let (session, _) = session(None);
    let (said, complained, code) =
        command(&session, &["sh"], "echo a\n\n# a comment\ncd /tmp\npwd\nfalse\n").await;
    assert_eq!((said.as_str(), complained.as_str(), code), ("a\n/tmp\n", "", 1));
    let (said, _, code) = command(&session, &["sh"], "cat\nwhat follows\n").await;
    assert_eq!((said.as_str(), code), ("what follows\n", 0));
    let (said, _, code) = command(&session, &["sh"], "echo a\nexit 3\necho never\n").await;
    assert_eq!((said.as_str(), code), ("a\n", 3));
    let (said, complained, code) = command(&session, &["sh"], "echo a\nif true\necho never\n").await;
    assert!(complained.contains("\"if\" is not simulated"), "{complained}");
    assert_eq!((said.as_str(), code), ("a\n", 2));
}

#[tokio::test(start_paused = true)]
async fn what_never_ends_can_be_ended() {
    let session = furnished().await;
    for line in ["sleep infinity", "tee /tmp/three", "tail"] {
        let (mut streams, _, _) = streams(b"");
        streams.input = Input::Typed(Arc::default());
        let words = ["sh", "-c", line].map(str::to_owned);
        let running = run(&session, state(), &words, streams);
        let ended = tokio::time::timeout(Duration::from_secs(1), running).await;
        assert!(ended.is_err(), "{line}: {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_are_opened_one_after_the_other() {
    let session = furnished().await;
    let (mut streams, output, errors) = streams(b"");
    let typed = Arc::<Tty>::default();
    streams.input = Input::Typed(typed.clone());
    let words = ["cat", "-", "/nowhere", "/tmp/x"].map(str::to_owned);
    let mut running = std::pin::pin!(run(&session, state(), &words, streams));
    assert!(running.as_mut().now_or_never().is_none());
    // Written when `cat` waits for its first input already.
    session.view.write("/tmp/x", b"late\n", false).await.unwrap();
    typed.give(b"first\n").await;
    typed.end();
    assert_eq!(running.await, 1);
    assert_eq!(text(&output), "first\nlate\n", "{}", text(&errors));
}

#[tokio::test(start_paused = true)]
async fn short_lines_count_for_more_than_their_bytes_at_the_end_of_a_file() {
    let session = session(None).0;
    let (said, complained, _) = command(&session, &["tail", "-n", "99999"], &"\n".repeat(100_000)).await;
    assert!(
        (50_000..70_000).contains(&said.len()),
        "{}: {complained}",
        said.len()
    );
    let numbers: Vec<String> = (1..=30_000).map(|number| format!("{number}\n")).collect();
    let (said, _, _) = command(&session, &["tail", "-c", "7"], &numbers.concat()).await;
    assert_eq!(said, "\n30000\n");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_for_the_pod_is_refused() {
    let session = session(None).0;
    let (_, complained, code) = command(&session, &["tee", "/tmp/big"], &"x".repeat(70_000_000)).await;
    assert!(complained.contains("No space left on device"), "{complained}");
    assert_eq!(code, 1);
}

#[tokio::test(start_paused = true)]
async fn signals_go_to_the_main_process() {
    let (session, heard) = session(None);
    let (_, complained, code) =
        command(&session, &["sh"], "kill 1\nkill -9 1\nkill -s INT 1\nkill 77\n").await;
    assert_eq!(*heard.0.lock().unwrap(), [15, 9, 2]);
    assert!(complained.contains("No such process"));
    assert_eq!(code, 1);
}

#[tokio::test(start_paused = true)]
async fn an_archive_comes_out_as_it_went_in() {
    let (session, _) = session(None);
    let long = "d".repeat(120);
    session.view.make_all(&format!("/src/{long}")).await.unwrap();
    for (path, contents) in [("one".to_owned(), "one\n"), (format!("{long}/two"), "two\n")] {
        let path = format!("/src/{path}");
        session
            .view
            .write(&path, contents.as_bytes(), false)
            .await
            .unwrap();
    }
    assert_eq!(command(&session, &["chmod", "755", "/src/one"], "").await.2, 0);
    let packing = ["tar", "cf", "-", "src"].map(str::to_owned);
    let (streams, archive, errors) = streams(b"");
    assert_eq!(
        run(&session, state(), &packing, streams).await,
        0,
        "{}",
        text(&errors)
    );
    let archive = archive.lock().unwrap().clone();
    let unpack = async |words: &[&str]| {
        let (streams, output, errors) = self::streams(&archive);
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let code = run(&session, state(), &words, streams).await;
        assert_eq!((text(&errors).as_str(), code), ("", 0));
        text(&output)
    };
    assert_eq!(unpack(&["tar", "-xmf", "-", "-C", "/tmp"]).await, "");
    let two = format!("/tmp/src/{long}/two");
    let (said, complained, code) = command(&session, &["cat", "/tmp/src/one", &two], "").await;
    assert_eq!((said.as_str(), complained.as_str(), code), ("one\ntwo\n", "", 0));
    let (said, _, _) = command(&session, &["ls", "-l", "/tmp/src/one"], "").await;
    assert!(said.starts_with("-rwxr-xr-x"), "{said}");
    let listed = unpack(&["tar", "tf", "-"]).await;
    assert_eq!(listed, format!("src/\nsrc/{long}/\nsrc/{long}/two\nsrc/one\n"));
}

#[rstest]
#[case("no archive at all", "does not look like a tar archive")]
#[case(&"x".repeat(2000), "does not look like a tar archive")]
#[case("", "")]
#[tokio::test(start_paused = true)]
async fn what_is_no_archive_is_refused(#[case] input: &str, #[case] said: &str) {
    let (_, complained, code) = command(&session(None).0, &["tar", "xf", "-"], input).await;
    assert!(complained.contains(said), "{complained}");
    assert_eq!(code, i32::from(!said.is_empty()));
}

#[tokio::test]
async fn an_archive_cannot_leave_its_folder() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.as_mut_bytes()[..9].copy_from_slice(b"../etc/x\0");
    header.set_cksum();
    archive.append(&header, &b"x"[..]).unwrap();
    let bytes = archive.into_inner().unwrap();
    let (session, _) = session(None);
    let (streams, _, errors) = streams(&bytes);
    let command = ["tar", "-xf", "-", "-C", "/tmp"].map(str::to_owned);
    assert_eq!(run(&session, state(), &command, streams).await, 1);
    assert!(text(&errors).contains("`..`"));
    assert!(session.view.stat("/etc/x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_terminal_prompts_edits_interrupts_and_tells_its_size() {
    let tty = Arc::new(Tty::default());
    tty.resize(evenkeel_vnode::provider::TerminalSize {
        width: 132,
        height: 43,
    });
    let (session, _) = session(Some(tty.clone()));
    let output = Kept::default();
    let streams = Streams {
        input: Input::Typed(tty.clone()),
        output: kept(&output),
        errors: kept(&output),
    };
    let typing = async {
        tty.typed(b"stty size\rsleep 1000\r");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"\x03");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"exit 9 | true\rcat\rq\r");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"\x04sleep 1000\r");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"\x03");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"exit\r");
    };
    let command = ["sh".to_owned()];
    let (code, ()) = tokio::join!(run(&session, state(), &command, streams), typing);
    let refused = line::words("exit 9 | true").unwrap_err();
    let expected = format!("/ # 43 132\n/ # / # sh: {refused}\n/ # q\n/ # / # ");
    assert_eq!((text(&output), code), (expected, 130));
}
