//! What holds for every command: colours, a log that nobody reads, completion in a shell, and the plug-in of
//! kubectl.

use crate::support::evenkeel;
use evenkeel_testkit::{skipped, until};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What a command prints on a terminal that can show colours.
fn on_a_terminal(mut command: Command) -> String {
    let pty = openpty(None, None).expect("a pseudo-terminal");
    let end = || Stdio::from(pty.slave.try_clone().expect("the handle can be copied"));
    command.env("TERM", "xterm").stdout(end()).stderr(end());
    let mut child = command.spawn().expect("the command starts");
    // The terminal ends once nobody can write to it any more.
    drop((command, pty.slave));
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    let mut master = File::from(pty.master);
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    child.wait().expect("the command ends");
    String::from_utf8_lossy(&text).into_owned()
}

/// Without what the surroundings of the test say about colours.
fn plain(line: &[&str]) -> Command {
    let mut command = evenkeel();
    command.args(line);
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn colours_are_for_terminals_and_never_with_no_color() {
    let logs = || {
        // It warns of a variable that looks like one of ours, and then finds no kubeconfig.
        let mut command = plain(&["controller", "--kubeconfig", "/nowhere/kubeconfig"]);
        command.env("EVENKEEL_MODES", "act");
        command
    };
    let help = || plain(&["status", "--help"]);
    for (words, coloured, make) in [
        ("is it the other one?", true, &logs as &dyn Fn() -> Command),
        ("Usage:", true, &help),
        // Errors are one plain line, so that they read the same in a log.
        ("--leese", false, &|| plain(&["elect", "--leese", "jobs/mailer"])),
    ] {
        let text = on_a_terminal(make());
        assert!(text.contains(words), "{words:?} is missing: {text:?}");
        assert_eq!(text.contains('\x1b'), coloured, "on a terminal: {text:?}");

        let mut without = make();
        without.env("NO_COLOR", "1");
        let text = on_a_terminal(without);
        assert!(text.contains(words), "{words:?} is missing: {text:?}");
        assert!(!text.contains('\x1b'), "with NO_COLOR: {text:?}");

        let output = make().output().expect("the command starts");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(text.contains(words), "{words:?} is missing: {text:?}");
        assert!(!text.contains('\x1b'), "into a pipe: {text:?}");
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    const TEST: &str = "bash_completes_commands_and_flags";
    let Ok(version) = Command::new("bash").arg("--version").output() else {
        return skipped(TEST, "no bash on PATH");
    };
    assert!(version.status.success());
    let output = plain(&["completion", "bash"])
        .output()
        .expect("the command starts");
    assert!(output.status.success() && output.stderr.is_empty());
    let home = TempDir::new().expect("a temporary directory");
    let script = home.path().join("evenkeel.bash");
    std::fs::write(&script, output.stdout).expect("the directory is writable");
    let offered = |line: &str| {
        // What bash itself does when the key Tab is pressed at the end of the line.
        let mut words = line.rsplit(' ');
        let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let ask = format!(
            "source '{}'; COMP_WORDS=({line}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
             \"$(complete -p evenkeel | sed 's/.*-F \\([^ ]*\\).*/\\1/')\" evenkeel '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output();
        let output = output.expect("bash starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(errors, "", "{line}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(offered("evenkeel sta"), "status");
    assert_eq!(offered("evenkeel probe li"), "lint");
    assert_eq!(offered("evenkeel elect-k"), "");
    assert_eq!(
        offered("evenkeel controller --node-mon"),
        "--node-monitor-grace-period"
    );
    assert_eq!(offered("evenkeel status --output w"), "wide");
}

#[test]
fn a_reader_that_stops_reading_is_no_failure() {
    let (reader, writer) = nix::unistd::pipe().expect("a pipe");
    drop(reader);
    let mut command = plain(&["completion", "zsh"]);
    command.stdout(Stdio::from(writer)).stderr(Stdio::piped());
    let output = command.spawn().expect("the command starts").wait_with_output();
    let output = output.expect("the command ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_it_as_a_plug_in() {
    const TEST: &str = "kubectl_runs_it_as_a_plug_in";
    let kubectls = evenkeel_testkit::kubectls();
    if kubectls.is_empty() {
        return skipped(TEST, "no kubectl on PATH");
    }
    let api = evenkeel_testkit::ServedApi::start().await;
    api.cluster("installer").await.apply_file("crds.yaml").await;
    let kubeconfig = api.direct("plug-in");
    let home = TempDir::new().expect("a temporary directory");
    let program = std::path::PathBuf::from(evenkeel().get_program());
    symlink(program, home.path().join("kubectl-evenkeel")).expect("the directory is writable");
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(home.path().to_owned()).chain(std::env::split_paths(&inherited));
    let path = std::env::join_paths(paths).expect("no colon is in the path");
    for kubectl in kubectls {
        let run = |line: &[&str]| {
            let mut command = Command::new(&kubectl);
            command.arg("evenkeel").args(line).stdin(Stdio::null());
            command.env("PATH", &path).env("HOME", home.path());
            command.env("KUBECONFIG", &kubeconfig);
            let output = command.output().expect("kubectl starts");
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8_lossy(&text).into_owned())
        };
        let (code, text) = run(&["status"]);
        assert_eq!(code, Some(1), "no controller works: {text}");
        assert!(text.starts_with("NO CONTROLLER WORKS: "), "{text}");
        assert!(text.ends_with("\n0 nodes\n"), "{text}");
        let (code, text) = run(&["status", "-o", "json"]);
        assert_eq!(code, Some(1), "{text}");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(report["healthy"], false);
        let (code, text) = run(&["status", "--help"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("Usage: kubectl evenkeel status "), "{text}");
        let (code, text) = run(&["status", "--kubeconfig", "/nowhere/kubeconfig"]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.starts_with("kubectl evenkeel: "), "{text}");
    }
}

/// As where the daemon that keeps a container's log hangs with its disk.
#[tokio::test]
async fn a_process_whose_log_nobody_reads_works_on_and_says_later_what_was_lost() {
    evenkeel_net::init_crypto();
    let home = TempDir::new().unwrap();
    let file = |name: &str| home.path().join(name);
    let kubeconfig = file("kubeconfig");
    let mut command = evenkeel();
    command
        .args(["apiserver", "--port", "0", "--log", "trace", "--kubeconfig-out"])
        .arg(&kubeconfig)
        .arg("--cert-dir")
        .arg(file("pki"));
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut log = child.stderr.take().unwrap();
    until("the server is ready", async || kubeconfig.exists()).await;
    let kubeconfig = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    for _ in 0..300 {
        client.apiserver_version().await.unwrap();
    }
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).map(|_| text)
    });
    // What is logged from now on passes.
    client.apiserver_version().await.unwrap();
    let child_id = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(child_id, Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    let text = read.join().unwrap().unwrap();
    assert!(text.contains(" lines of the log were lost: nobody read standard error\n"));
}
