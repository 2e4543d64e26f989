use super::*;
use crate::simulated::clock::Clock;
use crate::simulated::fs::{PodFiles, Pool, View};
use crate::simulated::shape::{Shape, find, volumes};
use crate::simulated::tests::fixture::pod_with;
use rstest::rstest;
use serde_json::json;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
        stages: AtomicU32::new(0),
    };
    (session, heard)
}

type Kept = Arc<Mutex<Vec<u8>>>;

fn streams(input: &str) -> (Streams, Kept, Kept) {
    let (output, errors) = (Kept::default(), Kept::default());
    let streams = Streams {
        input: Input::stream(std::io::Cursor::new(input.as_bytes().to_vec())),
        output: Output::Kept(output.clone()),
        errors: Output::Kept(errors.clone()),
    };
    (streams, output, errors)
}

fn text(kept: &Kept) -> String {
    String::from_utf8_lossy(&kept.lock().unwrap()).into_owned()
}

async fn command(session: &Session, command: &[&str], input: &str) -> (String, String, i32) {
    let (streams, output, errors) = streams(input);
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let state = State::new(
        "/",
        [
            ("HOME".to_owned(), "/root".to_owned()),
            ("A".to_owned(), "a b".to_owned()),
        ],
    );
    let code = run(session, state, &command, streams).await;
    (text(&output), text(&errors), code)
}

async fn sh(script: &str) -> (String, String, i32) {
    command(&session(None).0, &["sh", "-c", script], "").await
}

#[rstest]
#[case("echo hello   world", "hello world\n", 0)]
#[case("echo 'a  b' \"c  d\" e\\ f", "a  b c  d e f\n", 0)]
#[case("echo $A \"$A\" '$A' ${A}x $NONE.", "a b a b $A a bx .\n", 0)]
#[case("for x in $A \"$A\"; do echo \"<$x>\"; done", "<a>\n<b>\n<a b>\n", 0)]
#[case(
    "for x in \"\"; do echo \"<$x>\"; done; for x in $NONE; do echo never; done",
    "<>\n",
    0
)]
#[case("true && echo yes || echo no", "yes\n", 0)]
#[case("false && echo yes || echo no", "no\n", 0)]
#[case("! true; echo $?", "1\n", 0)]
#[case("false; echo $?; true; echo $?", "1\n0\n", 0)]
#[case("exit 7", "", 7)]
#[case("(exit 7); echo $?", "7\n", 0)]
#[case("x=1; (x=2); echo $x", "1\n", 0)]
#[case("{ echo a; echo b; } | wc -l", "2\n", 0)]
#[case("echo one > /tmp/x; echo two >> /tmp/x; cat < /tmp/x", "one\ntwo\n", 0)]
#[case(
    "ls /nowhere 2> /tmp/e; cat /tmp/e",
    "ls: /nowhere: No such file or directory\n",
    0
)]
#[case("ls /nowhere 2>&1", "ls: /nowhere: No such file or directory\n", 1)]
#[case("echo a 1>&2", "", 0)]
#[case("i=0; while [ $i -lt 3 ]; do echo $i; i=$((i + 1)); done", "0\n1\n2\n", 0)]
#[case("i=0; until [ $i = 2 ]; do i=$((i+1)); done; echo $i", "2\n", 0)]
#[case("while true; do echo once; break; done", "once\n", 0)]
#[case(
    "for i in 1 2 3; do if [ $i = 2 ]; then continue; fi; echo $i; done",
    "1\n3\n",
    0
)]
#[case("if false; then echo a; elif true; then echo b; else echo c; fi", "b\n", 0)]
#[case("if false; then echo a; else echo c; fi", "c\n", 0)]
#[case("echo $(echo $(echo deep)) `echo back`", "deep back\n", 0)]
#[case(
    "echo $((2 + 3 * (4 - 1))) $((7 / 2)) $((7 % 2)) $((1 < 2 && 3 != 3))",
    "11 3 1 0\n",
    0
)]
#[case("echo ${NONE:-x y} ${A:+set} ${#A}", "x y set 3\n", 0)]
#[case("cd /tmp && mkdir -p a/b && touch a/b/c && ls a/b && pwd", "c\n/tmp\n", 0)]
#[case(
    "touch /tmp/a.txt /tmp/b.txt /tmp/c.md; cd /tmp; echo *.txt /tmp/?.md *.none",
    "a.txt b.txt /tmp/c.md *.none\n",
    0
)]
#[case("printf '%s-%03d|' a 7 b 8", "a-007|b-008|", 0)]
#[case("seq 5 | head -n 3 | tail -n 1", "3\n", 0)]
#[case("seq 1 3 | tail -c +3", "2\n3\n", 0)]
#[case("yes | head -2", "y\ny\n", 0)]
#[case("printf 'a b\\nc\\n' | wc", "2 3 6\n", 0)]
#[case("printf 'one\\ntwo\\n' | grep -v one", "two\n", 0)]
#[case(
    "printf 'x 1\\ny 2\\n' | while read name value; do echo $value=$name; done",
    "1=x\n2=y\n",
    0
)]
#[case(
    "[ -d /tmp ] && [ -f /etc/hostname ] && [ ! -e /nowhere ] && [ abc != abd ] && echo ok",
    "ok\n",
    0
)]
#[case("X=1 env | grep ^X; echo [$X]", "X=1\n[]\n", 0)]
#[case("export Y=2; printenv Y", "2\n", 0)]
#[case("hostname; id -u; whoami", "a\n0\nroot\n", 0)]
#[case("sh -c 'echo $0 $1 $#' name first", "name first 1\n", 0)]
#[case(
    "echo 'echo from $0 $1' > /tmp/s; sh /tmp/s x; chmod +x /tmp/s; /tmp/s y",
    "from /tmp/s x\nfrom /tmp/s y\n",
    0
)]
#[case("which ls nothing", "/bin/ls\n", 1)]
#[case("echo a | tee /tmp/t; cat /tmp/t; rm -rf /tmp/t; ls /tmp", "a\na\n", 0)]
#[case("echo # not this", "\n", 0)]
#[case("echo a#b", "a#b\n", 0)]
#[case("echo a; # nothing\necho b", "a\nb\n", 0)]
#[tokio::test(start_paused = true)]
async fn scripts_do_what_a_shell_does(#[case] script: &str, #[case] output: &str, #[case] code: i32) {
    let (said, complained, ended) = sh(script).await;
    assert_eq!((said.as_str(), ended), (output, code), "{complained}");
}

#[rstest]
#[case("nothing --here", "nothing: not found", 127)]
#[case("/tmp", "Permission denied", 126)]
#[case("/nowhere/x", "No such file or directory", 127)]
#[case("if", "syntax error", 2)]
#[case("sleep 1 &", "background", 2)]
#[case("cat /nowhere", "No such file or directory", 1)]
#[case("echo x > /nowhere/y", "can't create /nowhere/y", 1)]
#[case("yes | head -c 70000000 > /tmp/big", "No space left on device", 1)]
#[case("ls -Z", "unrecognized option: Z", 1)]
#[case("echo $((1 / 0))", "division by zero", 2)]
#[tokio::test(start_paused = true)]
async fn what_goes_wrong_is_said_and_has_a_code(#[case] script: &str, #[case] said: &str, #[case] code: i32) {
    let (_, complained, ended) = sh(script).await;
    assert!(complained.contains(said), "{complained}");
    assert_eq!(ended, code);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_program_without_a_shell_is_not_found() {
    let (_, complained, code) = command(&session(None).0, &["nginx", "-t"], "").await;
    assert!(complained.contains("nginx: not found"), "{complained}");
    assert_eq!(code, 127);
}

#[tokio::test(start_paused = true)]
async fn commands_are_read_line_by_line_without_a_terminal() {
    let (said, _, code) = command(
        &session(None).0,
        &["sh"],
        "echo a\nif true\nthen echo b\nfi\nread x\nline\necho $x\nfalse\n",
    )
    .await;
    assert_eq!((said.as_str(), code), ("a\nb\nline\n", 1));
}

#[rstest]
#[case("while true; do true; done")]
#[case("while :; do echo x > /dev/null; done")]
#[case("yes > /dev/null")]
#[case("yes | cat > /dev/null")]
#[case("i=0; while true; do i=$((i+1)); done")]
#[case("sleep infinity")]
#[tokio::test(start_paused = true)]
async fn what_never_ends_can_be_ended(#[case] script: &str) {
    let ended = tokio::time::timeout(Duration::from_secs(1), sh(script)).await;
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn shells_within_shells_have_an_end() {
    let (said, complained, code) = sh("echo 'sh /tmp/s' > /tmp/s; sh /tmp/s; echo went on").await;
    assert!(complained.contains("shells within shells"), "{complained}");
    assert_eq!((said.as_str(), code), ("went on\n", 0));
    let (said, _, _) = sh("x=xxxxxxxxxxxxxxxx; while true; do x=$x$x$x$x$x$x$x$x; done; echo never").await;
    assert_eq!(said, "");
}

/// Runs a script on a stack of 2 MiB, as the runtime's threads have.
fn sh_on_a_small_stack(script: String) -> (String, String, i32) {
    let running = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(sh(&script))
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(running);
    thread.unwrap().join().unwrap()
}

#[rstest]
#[case("exec ")]
#[case("/bin/exec ")]
#[case("env exec ")]
fn programs_that_run_programs_have_an_end(#[case] words: &str) {
    let (said, complained, code) = sh_on_a_small_stack(format!("{}echo never", words.repeat(9_000 / 2)));
    assert_eq!((said.as_str(), code), ("", 1));
    assert!(complained.contains("shells within shells"), "{complained}");
}

#[rstest]
#[case("", "{ ", "; }")]
#[case("", "if ", "; then :; fi")]
#[case("", "while ", "; do break; done")]
#[case("", "for i in a; do ", "; done")]
#[case("", "{ : | ", "; }")]
#[case(": ", "${NONE:-", "}")]
#[case("", ": $(", ")")]
fn the_deepest_shells_fit_their_stack(#[case] first: &str, #[case] before: &str, #[case] after: &str) {
    let inner = if before.contains("NONE") {
        "$(sh /tmp/s)"
    } else {
        "sh /tmp/s"
    };
    let nested = |deep: usize| format!("{first}{}{inner}{}", before.repeat(deep), after.repeat(deep));
    let deepest = (1..100)
        .take_while(|deep| parse::parse(&nested(*deep)).is_ok())
        .last();
    let script = format!(
        "printf '%s\\n' '{}' > /tmp/s; sh /tmp/s; echo went on",
        nested(deepest.unwrap())
    );
    let (said, complained, code) = sh_on_a_small_stack(script);
    assert!(complained.contains(" deep\n"), "{complained}");
    assert!(said.ends_with("went on\n"), "{said}");
    assert_eq!(code, 0);
}

#[tokio::test(start_paused = true)]
async fn shells_cannot_multiply_by_pipelines() {
    let pipeline = |command: &str| vec![command; 20].join(" | ");
    let script = format!(
        "echo '{}' > /tmp/s; {}; echo went on",
        pipeline("sleep 1"),
        pipeline("sh /tmp/s")
    );
    let (said, complained, code) = sh(&script).await;
    assert!(complained.contains("can't fork"), "{complained}");
    assert_eq!((said.as_str(), code), ("went on\n", 0));
}

#[test]
fn names_of_variables_count_as_their_values_do() {
    let mut state = State::new("/", []);
    let name = |index: usize| format!("{index:a>1000}");
    let fitting = (0..5_000)
        .take_while(|index| state.export(&name(*index)).is_ok())
        .count();
    assert!((900..1_000).contains(&fitting), "{fitting}");
    assert!(state.set("x", "y".repeat(2_000)).is_err());
    for index in 0..fitting {
        state.unset(&name(index));
    }
    state.set("x", "y".repeat(1_000_000)).unwrap();
}

#[rstest]
#[case("echo $A $A $A", 0)]
#[case("echo $A$A$A$A", 126)]
#[case("echo $A \"$A\" $A $A", 126)]
#[case("for x in $A $A $A $A; do echo never; done", 126)]
#[case("echo $(seq 20000)", 126)]
#[case("cd /many; echo *", 126)]
#[tokio::test(start_paused = true)]
async fn arguments_of_a_command_have_an_end(#[case] script: &str, #[case] code: i32) {
    let (session, _) = session(None);
    session.view.make("/many").await.unwrap();
    for index in 0..10_001 {
        let path = format!("/many/{index}");
        session.view.write(&path, b"", false).await.unwrap();
    }
    let script = format!("A=$(yes $(printf %0999d 1) | head -c 300000); {script}");
    let (_, complained, ended) = command(&session, &["sh", "-c", &script], "").await;
    assert_eq!(ended, code, "{complained}");
    assert_eq!(
        complained.contains("Argument list too long"),
        code == 126,
        "{complained}"
    );
}

#[tokio::test(start_paused = true)]
async fn looking_for_names_and_reading_again_count_as_commands() {
    let (session, _) = session(None);
    session.view.make("/many").await.unwrap();
    for index in 0..6_400 {
        let path = format!("/many/{index}");
        session.view.write(&path, b"", false).await.unwrap();
    }
    let steps = || session.steps.load(Ordering::Relaxed);
    let (said, _, _) = command(&session, &["sh", "-c", "echo /many/*x"], "").await;
    assert_eq!(said, "/many/*x\n");
    assert!(steps() > 100, "{}", steps());
    let pattern = format!("/many/{}1", "*".repeat(5_000));
    let before = steps();
    let (said, _, _) = command(&session, &["sh", "-c", &format!("echo {pattern}")], "").await;
    assert_eq!(said.trim_end(), pattern, "no path is as long");
    assert!(steps() - before < 100, "{}", steps() - before);
    let before = steps();
    let unfinished = format!(
        "if true\n{}then echo read\nfi\n",
        "# a line of no use\n".repeat(1_000)
    );
    let (said, _, _) = command(&session, &["sh"], &unfinished).await;
    assert_eq!(said, "read\n");
    assert!(steps() - before > 10_000, "{}", steps() - before);
}

#[tokio::test(start_paused = true)]
async fn inputs_are_opened_one_after_the_other() {
    let (said, complained, code) =
        sh("{ sleep 1; echo late > /tmp/x; echo first; } | cat - /nowhere /tmp/x").await;
    assert_eq!((said.as_str(), code), ("first\nlate\n", 1), "{complained}");
}

#[tokio::test(start_paused = true)]
async fn short_lines_count_for_more_than_their_bytes_at_the_end_of_a_file() {
    let (said, complained, _) = sh("yes '' | head -n 100000 | tail -n 99999 | wc -l").await;
    let kept: usize = said.trim().parse().expect(&complained);
    assert!((50_000..70_000).contains(&kept), "{kept}");
    let (said, _, _) = sh("seq 30000 | tail -c 7").await;
    assert_eq!(said, "\n30000\n");
}

#[tokio::test(start_paused = true)]
async fn signals_go_to_the_main_process() {
    let (session, heard) = session(None);
    let (_, complained, code) = command(
        &session,
        &["sh", "-c", "kill 1; kill -9 1; kill -s INT 1; kill 77"],
        "",
    )
    .await;
    assert_eq!(*heard.0.lock().unwrap(), [15, 9, 2]);
    assert!(complained.contains("No such process"));
    assert_eq!(code, 1);
}

#[tokio::test(start_paused = true)]
async fn an_archive_comes_out_as_it_went_in() {
    let (session, _) = session(None);
    let long = "d".repeat(120);
    let script = format!(
        "mkdir -p /src/{long}; echo one > /src/one; echo two > /src/{long}/two; chmod 755 /src/one; \
         cd /; tar cf - src | tar -xmf - -C /tmp; cat /tmp/src/one /tmp/src/{long}/two; ls -l /tmp/src/one; tar cf - src | tar tf -"
    );
    let (said, complained, code) = command(&session, &["sh", "-c", &script], "").await;
    assert_eq!((complained.as_str(), code), ("", 0));
    assert!(said.starts_with("one\ntwo\n-rwxr-xr-x"), "{said}");
    assert!(
        said.ends_with(&format!("src/\nsrc/{long}/\nsrc/{long}/two\nsrc/one\n")),
        "{said}"
    );
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
    let (mut streams, _, errors) = streams("");
    streams.input = Input::stream(std::io::Cursor::new(bytes));
    let command = ["tar", "-xf", "-", "-C", "/tmp"].map(str::to_owned);
    assert_eq!(run(&session, State::new("/", []), &command, streams).await, 1);
    assert!(text(&errors).contains("`..`"));
    assert!(session.view.stat("/etc/x").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_terminal_prompts_edits_interrupts_and_tells_its_size() {
    let tty = Arc::new(Tty::default());
    tty.resize(crate::provider::TerminalSize {
        width: 132,
        height: 43,
    });
    let (session, _) = session(Some(tty.clone()));
    let output = Kept::default();
    let streams = Streams {
        input: Input::Typed(tty.clone()),
        output: Output::Kept(output.clone()),
        errors: Output::Kept(output.clone()),
    };
    let typing = async {
        tty.typed(b"stty size\rsleep 1000\r");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"\x03");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"echo $?\rcat\rq\r");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"\x04");
        tokio::time::sleep(Duration::from_secs(1)).await;
        tty.typed(b"false\r\x04");
    };
    let command = ["sh".to_owned()];
    let (code, ()) = tokio::join!(run(&session, State::new("/", []), &command, streams), typing);
    assert_eq!(text(&output), "/ # 43 132\n/ # / # 130\n/ # q\n/ # / # \n");
    assert_eq!(code, 1);
}

#[test]
fn patterns_match_names() {
    for (pattern, name, expected) in [
        ("*", "", true),
        ("*.txt", "a.txt", true),
        ("*.txt", "a.txt.gz", false),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
        ("?", "é", true),
        ("?", "", false),
        ("**", "x", true),
    ] {
        assert_eq!(
            expand::Pattern::new(pattern).matches(name),
            expected,
            "{pattern} {name}"
        );
    }
}
