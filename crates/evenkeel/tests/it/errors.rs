//! What users get wrong: one clear line, exit code 2, nothing left running.

use crate::support::{Lab, children_of, evenkeel, outcome};
use std::{fs, net::TcpListener};
use tempfile::TempDir;

/// The command must fail with exit code 2 and one line that holds all of `words`.
fn refused(args: &[&str], words: &[&str]) {
    let (code, text) = outcome(evenkeel().args(args));
    assert_eq!(code, 2, "{args:?}\n{text}");
    assert_eq!(
        text.trim_end().lines().count(),
        1,
        "one line, for {args:?}:\n{text}"
    );
    for word in words {
        assert!(text.contains(word), "{word:?} is missing for {args:?}:\n{text}");
    }
}

#[test]
fn an_agent_whose_key_cannot_be_made_says_how_to_make_one() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let key = file.join("agent.key");
    let key = key.to_str().unwrap();
    let state = home.path().join("state");
    refused(
        &[
            "agent",
            "--node",
            "shore-1",
            "--listen",
            "127.0.0.1:0",
            "--advertise",
            "127.0.0.1:7959",
            "--key",
            key,
            "--state-dir",
            state.to_str().unwrap(),
            "--kubelet",
            "127.0.0.1:10250",
            "--kubelet-advertise",
            "127.0.0.1:10250",
            "--admin",
            "127.0.0.1:0",
        ],
        &[key, "evenkeel agent keygen"],
    );
}

#[test]
fn an_api_server_whose_port_is_taken_says_so() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = TempDir::new().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    refused(
        &[
            "apiserver",
            "--port",
            &port,
            "--kubeconfig-out",
            kubeconfig.to_str().unwrap(),
        ],
        &[&port],
    );
    assert!(!kubeconfig.exists(), "nothing is written when nothing runs");
}

#[test]
fn a_kubeconfig_that_cannot_be_written_is_named() {
    refused(
        &[
            "apiserver",
            "--port",
            "0",
            "--kubeconfig-out",
            "/proc/nowhere/kubeconfig",
        ],
        &["/proc/nowhere/kubeconfig"],
    );
}

#[test]
fn a_lab_whose_port_is_taken_leaves_nothing_running() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = TempDir::new().unwrap();
    let dir = home.path().join("lab");
    refused(
        &[
            "lab",
            "--port",
            &port,
            "--subnet",
            "45",
            "--dir",
            dir.to_str().unwrap(),
        ],
        &[&port],
    );
    let left = children_of(std::process::id(), &[home.path().to_str().unwrap()]);
    assert_eq!(left, [] as [i32; 0]);
}

#[test]
fn a_malformed_scenario_is_refused_with_line_and_field() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("broken.yaml");
    let dir = home.path().join("lab");
    fs::write(
        &file,
        "name: broken\nnodes: 3\nsteps:\n  - cut: {node: shore-1}\n  - hold: {fro: 5s}\n",
    )
    .unwrap();
    refused(
        &[
            "lab",
            "run",
            file.to_str().unwrap(),
            "--dir",
            dir.to_str().unwrap(),
        ],
        &[file.to_str().unwrap(), "5", "fro"],
    );
}

#[test]
fn commands_for_a_lab_that_does_not_run_say_so() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("lab");
    refused(
        &["lab", "cut", "shore-2", "--dir", dir.to_str().unwrap()],
        &["evenkeel lab"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_lab_and_an_unknown_node_are_refused_and_the_first_goes_on() {
    let lab = Lab::start(1, 46).await;
    let dir = lab.dir();
    let dir = dir.to_str().unwrap();
    refused(&["lab", "--port", "0", "--subnet", "47", "--dir", dir], &[dir]);
    let (code, text) = lab.command(&["cut", "shore-9"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("shore-9") && text.contains("shore-1"),
        "names the known nodes: {text}"
    );
    let (code, text) = lab.command(&["status"]);
    assert_eq!(code, 0, "the first lab goes on: {text}");
    let kubeconfig = lab.dir().join("kubeconfig");
    let status = |what: &str| {
        let mut command = evenkeel();
        command.args(["status", what, "--kubeconfig"]).arg(&kubeconfig);
        // No proxy leads to this machine, whatever the environment says.
        command.env("HTTPS_PROXY", PROXY).env_remove("NO_PROXY");
        command.output().expect("the command starts")
    };
    let shown = status("shore-1");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(0), "{text}");
    assert!(text.starts_with("Controller: "), "{text}");
    assert!(text.contains("\nNode shore-1: Healthy\n"), "{text}");
    let unknown = status("shroe-1");
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(2), "{text}");
    assert!(text.contains("is it shore-1?"), "{text}");
}

const PROXY: &str = "http://me:secret@proxy.invalid:3128";

#[test]
fn a_proxy_of_the_environment_is_named_with_what_to_do() {
    let mut command = evenkeel();
    command.args(["status", "--server", "https://api.invalid:6443"]);
    command.env("HTTPS_PROXY", PROXY).env_remove("NO_PROXY");
    let output = command.output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let said = "$HTTPS_PROXY names a proxy on proxy.invalid, and Evenkeel reaches API servers without one: add api.invalid to $NO_PROXY";
    assert!(text.contains(said) && !text.contains("secret"), "{text}");
}

#[test]
fn a_status_that_cannot_be_told_says_what_to_do() {
    refused(
        &["status", "--kubeconfig", "/nowhere/kubeconfig"],
        &["/nowhere/kubeconfig"],
    );
    refused(&["status", "shore-1", "shore-2"], &["one node at a time"]);
}

#[test]
fn a_configuration_file_that_is_wrong_is_named_with_its_line() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("vnode.yaml");
    let path = file.to_str().unwrap();
    let line = ["vnode", "--provider", "koupleless", "--config", path];
    refused(&line, &["--config", path, "No such file"]);
    let head = "apiVersion: evenkeel.io/v1alpha1\nkind: VnodeConfiguration\n";
    for (body, words) in [
        (
            "mqttBrokr: b",
            "there is no field \"mqttBrokr\"; is it mqttBroker?",
        ),
        ("baseSilent: 2m", "baseSilent: it must be less than --base-gone"),
        ("basePods: 0", "basePods: \"0\": 0 is not in 1..=4294967295"),
    ] {
        fs::write(&file, format!("{head}{body}\n")).unwrap();
        refused(&line, &[&format!("{path}:3:1: "), words]);
    }
}

#[tokio::test]
async fn a_controller_whose_file_changes_says_for_what_it_has_to_be_started_again() {
    let home = TempDir::new().unwrap();
    let (file, log) = (home.path().join("controller.yaml"), home.path().join("log"));
    let write = |field: &str| {
        let head = "apiVersion: evenkeel.io/v1alpha1\nkind: ControllerConfiguration\n";
        let new = home.path().join("new");
        fs::write(&new, format!("{head}{field}\n")).unwrap();
        fs::rename(new, &file).unwrap();
    };
    write("mode: observe");
    let mut command = evenkeel();
    let address = ["--server", "http://127.0.0.1:1", "--admin", "127.0.0.1:0"];
    command.arg("controller").args(address).arg("--config").arg(&file);
    command.stderr(fs::File::create(&log).unwrap());
    let mut command = tokio::process::Command::from(command);
    let mut controller = command.kill_on_drop(true).spawn().unwrap();
    let says = async |words: &[&str]| {
        evenkeel_testkit::until("the controller says so", async || {
            let text = fs::read_to_string(&log).unwrap();
            text.lines()
                .any(|line| words.iter().all(|word| line.contains(word)))
        })
        .await;
    };
    says(&["controller"]).await;
    write("mode: act");
    says(&["configuration file changed", "mode"]).await;
    write("staleAfter: 24h");
    says(&["cannot be used", "--stale-after"]).await;
    write("leaderElectRetryPeriod: 30s");
    says(&["cannot be used", "--leader-elect"]).await;
    write("mode: observe");
    says(&["says again what is in force"]).await;
    assert!(controller.try_wait().unwrap().is_none(), "it goes on");
    controller.kill().await.unwrap();
}

#[test]
fn a_variable_of_the_released_controller_that_is_malformed_is_named_with_what_is_possible() {
    let provider = |name: &str, secret: &str| {
        let mut command = evenkeel();
        command.args(["vnode", "--provider", name, "--kubeconfig", "/nowhere/kubeconfig"]);
        command
            .env("ENABLE_MQTT_TUNNEL", "yes")
            .env("MQTT_PASSWORD", secret);
        outcome(&mut command)
    };
    let (code, text) = provider("koupleless", "geheim");
    let expected = "$ENABLE_MQTT_TUNNEL: \"yes\": possible are true and false";
    assert!(
        code == 2 && text.contains(expected) && !text.contains("geheim"),
        "{text}"
    );
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    // To another provider it means nothing.
    let (code, text) = provider("simulated", "geheim");
    assert!(code == 2 && text.contains("/nowhere/kubeconfig"), "{text}");
}

#[test]
fn flags_that_would_do_nothing_or_harm_are_refused() {
    for (line, words) in [
        (
            "--provider koupleless --nodes 3",
            "--nodes: it is the simulated provider's",
        ),
        (
            "--provider simulated --base-env prod",
            "--base-env: it is the koupleless provider's",
        ),
        (
            "--provider koupleless --lease-renew-interval 0s",
            "it must be 250ms or more",
        ),
        (
            "--provider koupleless --base-silent 0s",
            "--base-silent: it must be more than 0",
        ),
    ] {
        let line: Vec<&str> = std::iter::once("vnode").chain(line.split(' ')).collect();
        refused(&line, &[words]);
    }
}
