//! The commands in README and documentation are run as they stand there: see CONTRIBUTING.md. The blocks of
//! one place share a directory and a cluster, and no shell.

use crate::support::{Lab, evenkeel, outcome};
use axum::{Router, routing::get};
use evenkeel_testkit::documents::{Block, blocks, is_alike, pages, spans};
use evenkeel_testkit::{ServedApi, kubectl, root, skipped, until_within};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Commands that may say no: exit code 1 is an answer.
const ANSWERS: [&str; 3] = ["evenkeel doctor", "evenkeel probe ", "evenkeel status"];
/// Verbs of kubectl that only read, and those that are tried without an effect.
const READS: [&str; 4] = ["-n", "describe", "get", "logs"];
const WRITES: [&str; 5] = ["annotate", "cordon", "delete", "drain", "taint"];
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - name: web\n    image: x\n    \
                   readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}\n";
/// Kinds of the installation that the embedded API server does not know.
const FLOW_CONTROL: [(&str, &str); 2] = [
    ("flowschemas", "FlowSchema"),
    ("prioritylevelconfigurations", "PriorityLevelConfiguration"),
];

/// Where a block is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A lab of five nodes with Evenkeel, as README starts it.
    Lab,
    /// A cluster without Evenkeel, with nodes.
    Cluster,
    /// An API server alone.
    ApiServer,
}

impl Place {
    /// Of a block of a page.
    fn of(block: &Block) -> Self {
        let has = |words: &str| block.commands.iter().any(|command| command.line.contains(words));
        match () {
            () if has("kubectl apply -k") => Self::ApiServer,
            () if has("evenkeel install") || block.place.starts_with("docs/install.md") => Self::Cluster,
            () => Self::Lab,
        }
    }

    /// Its blocks, without those that are marked as a whole. A translation has the commands of its
    /// original, which are run once.
    fn blocks(self) -> Vec<Block> {
        let mut seen = BTreeSet::new();
        let all = pages()
            .into_iter()
            .flat_map(|(page, text)| blocks(&page, &text).0);
        let bare = |line: &str| line.split("  #").next().map(|line| line.trim().to_owned());
        let mut found: Vec<Block> = all.filter(|block| Self::of(block) == self).collect();
        found.retain(|block| {
            let commands = block.commands.iter();
            let mut is_run = commands.clone().any(|command| command.not_run.is_none());
            is_run &= seen.insert(
                commands
                    .map(|one| (bare(&one.line), one.output.clone()))
                    .collect::<Vec<_>>(),
            );
            is_run
        });
        found
    }
}

/// A reader at a terminal: a directory, the commands on PATH, a cluster.
struct Reader {
    home: TempDir,
    path: std::ffi::OsString,
    kubeconfig: PathBuf,
    /// What stands for something of the reader's own, and what the test has instead.
    own: Vec<(&'static str, String)>,
    failed: Vec<String>,
}

impl Reader {
    fn new(kubectl: &Path, kubeconfig: PathBuf) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("the directory is writable");
        for (program, name) in [
            (evenkeel().get_program().into(), "evenkeel"),
            (kubectl.to_owned(), "kubectl"),
        ] {
            symlink(fs::canonicalize(program).expect("it is there"), bin.join(name)).expect("it is writable");
        }
        symlink(root().join("deploy"), home.path().join("deploy")).expect("it is writable");
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&inherited)));
        Self {
            path: path.expect("no colon is in the path"),
            home,
            kubeconfig,
            own: vec![
                ("--for 2m", "--for 2s".to_owned()),
                (" NODE", " shore-2".to_owned()),
            ],
            failed: Vec::new(),
        }
    }

    /// The exit code of a script, and what it printed.
    fn run(&self, script: &str) -> (Option<i32>, String) {
        let printed = self.home.path().join("printed");
        let file = fs::File::create(&printed).expect("the directory is writable");
        // Services of a block end with it. What does not end is ended, and fails.
        let script = format!("trap '[ -z \"$!\" ] || kill $!' EXIT\n{script}");
        let mut command = Command::new("timeout");
        command
            .args(["240", "sh", "-e", "-c", &script])
            .current_dir(self.home.path());
        command
            .env("PATH", &self.path)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfig);
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a handle"))
            .stderr(file);
        let status = command.status().expect("timeout and sh are there");
        (
            status.code(),
            fs::read_to_string(printed).expect("it prints UTF-8"),
        )
    }

    /// Runs a block, and remembers what it does not do as its page says.
    fn follow(&mut self, block: &Block) {
        let mut script = String::new();
        let commands: Vec<_> = block
            .commands
            .iter()
            .filter(|command| command.not_run.is_none())
            .collect();
        for command in &commands {
            let line = self
                .own
                .iter()
                .fold(command.line.clone(), |line, (from, to)| line.replace(from, to));
            let is_answer = ANSWERS.iter().any(|answer| line.starts_with(answer));
            let or = if is_answer { " || [ $? = 1 ]" } else { "" };
            script.extend(["echo @@\n{ ", &line, "\n}", or, "\n"]);
        }
        let (code, printed) = self.run(&script);
        let place = &block.place;
        eprintln!("--- {place}\n{printed}");
        if code != Some(0) {
            self.failed
                .push(format!("{place} ends with {code:?}:\n{printed}"));
        }
        for (command, printed) in commands.iter().zip(printed.split("@@\n").skip(1)) {
            if !command.output.is_empty() && !is_alike(&command.output, printed) {
                let (line, shown) = (&command.line, command.output.join("\n"));
                self.failed.push(format!(
                    "{place}: {line}\n--- it shows\n{shown}\n--- it prints\n{printed}"
                ));
            }
        }
    }

    fn end(self) {
        assert!(self.failed.is_empty(), "{}", self.failed.join("\n\n"));
    }
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut problems = Vec::new();
    let mut count = 0;
    for (page, text) in pages() {
        let (found, wrong) = blocks(&page, &text);
        count += found.len();
        problems.extend(wrong);
    }
    assert_eq!(problems, [""; 0]);
    assert!(count > 30, "only {count} blocks were found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_a_lab_gets_what_the_documentation_says() {
    let Some(kubectl) = kubectl() else {
        return skipped(
            "a_reader_with_a_lab_gets_what_the_documentation_says",
            "no kubectl on PATH",
        );
    };
    let lab = Lab::start(5, 51).await;
    let mut reader = Reader::new(&kubectl, lab.dir().join("kubeconfig"));
    fs::create_dir(reader.home.path().join(".evenkeel")).expect("the directory is writable");
    symlink(lab.dir(), reader.home.path().join(".evenkeel/lab")).expect("the directory is writable");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = Router::new().route("/healthz", get(async || "ok"));
    tokio::spawn(async move { axum::serve(listener, server).await });
    let pod = POD.replace("8080", &address.port().to_string());
    fs::write(reader.home.path().join("pod.yaml"), pod).expect("the directory is writable");
    for port in ["127.0.0.1:8080", "127.0.0.1:8899"] {
        reader.own.push((port, address.to_string()));
    }
    let mut is_broken = false;
    for block in Place::Lab.blocks() {
        // The page shows a cut and a death.
        if block.place.starts_with("docs/failover.md") && !is_broken {
            is_broken = true;
            break_two_nodes(&lab).await;
        }
        reader.follow(&block);
    }
    assert!(is_broken, "docs/failover.md shows no commands");
    reader.end();
}

/// Cuts one node off and switches another off, until there is nothing more to decide.
async fn break_two_nodes(lab: &Lab) {
    let kubeconfig = lab.dir().join("kubeconfig");
    let shown = |node: &str| {
        let output = evenkeel()
            .args(["status", node, "--kubeconfig"])
            .arg(&kubeconfig)
            .output();
        String::from_utf8_lossy(&output.expect("it starts").stdout).into_owned()
    };
    let late = Duration::from_secs(120);
    until_within("no node is broken", late, async || {
        shown("shore-3").contains(": Healthy")
    })
    .await;
    for (order, node, settled) in [
        ("cut", "shore-2", ": Disconnected"),
        ("kill", "shore-3", "PodEvicted"),
    ] {
        let (code, text) = lab.command(&[order, node]);
        assert_eq!(code, 0, "{text}");
        until_within("it is judged, and nothing more follows", late, async || {
            shown(node).contains(settled)
        })
        .await;
    }
    // The node that is off may have led the reporters of its zone.
    until_within("somebody else leads them", late, async || {
        let zones = shown("zones");
        zones.contains("shore-3 dead") && !zones.contains("(silent)")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_installs_upgrades_and_uninstalls_as_the_documentation_says() {
    const TEST: &str = "a_reader_installs_upgrades_and_uninstalls_as_the_documentation_says";
    let Some(kubectl) = kubectl() else {
        return skipped(TEST, "no kubectl on PATH");
    };
    let lab = Lab::start_with(3, 52, &["--installed"]).await;
    let mut reader = Reader::new(&kubectl, lab.dir().join("kubeconfig"));
    commands_in_sentences(&mut reader);
    add_flow_control(&reader);
    // What follows begins without Evenkeel.
    let mut uninstall = evenkeel();
    uninstall
        .arg("uninstall")
        .arg("--kubeconfig")
        .arg(&reader.kubeconfig);
    assert_eq!(outcome(&mut uninstall), (0, String::new()));
    for block in Place::Cluster.blocks() {
        reader.follow(&block);
    }
    reader.end();
}

/// Commands of kubectl within sentences and tables: what they name is there. Writes are dry runs.
fn commands_in_sentences(reader: &mut Reader) {
    let all: BTreeSet<String> = pages().iter().flat_map(|(_, text)| spans(text)).collect();
    let mut count = 0;
    for span in all {
        let words: Vec<&str> = span.split(' ').collect();
        let [program, verb, _, rest @ ..] = words.as_slice() else {
            continue;
        };
        let is_write = WRITES.contains(verb) && !rest.is_empty();
        if *program != "kubectl" || !is_write && !READS.contains(verb) {
            continue;
        }
        count += 1;
        let line = span.replace(" NODE", " shore-2");
        let (code, printed) = reader.run(&format!(
            "{line}{}",
            if is_write { " --dry-run=server" } else { "" }
        ));
        let has_placeholder = words
            .iter()
            .any(|word| word.chars().filter(char::is_ascii_uppercase).count() > 2);
        if code != Some(0) && !(has_placeholder && printed.contains("(NotFound)")) {
            reader
                .failed
                .push(format!("`{span}` ends with {code:?}:\n{printed}"));
        }
    }
    assert!(count > 15, "only {count} commands were found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_without_the_command_installs_with_kustomize() {
    const TEST: &str = "a_reader_without_the_command_installs_with_kustomize";
    let Some(kubectl) = kubectl() else {
        return skipped(TEST, "no kubectl on PATH");
    };
    let api = ServedApi::start().await;
    let mut reader = Reader::new(&kubectl, api.direct("reader"));
    add_flow_control(&reader);
    for block in Place::ApiServer.blocks() {
        reader.follow(&block);
    }
    reader.end();
}

/// Adds the kinds of [`FLOW_CONTROL`].
fn add_flow_control(reader: &Reader) {
    for (plural, kind) in FLOW_CONTROL {
        let names = format!("{{plural: {plural}, kind: {kind}}}");
        let schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
        let text = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: {plural}.flowcontrol.apiserver.k8s.io\n  \
             annotations: {{api-approved.kubernetes.io: \"unapproved, of a test\"}}\nspec:\n  group: flowcontrol.apiserver.k8s.io\n  \
             names: {names}\n  scope: Cluster\n  versions: [{{name: v1, served: true, storage: true, schema: {schema}}}]\n"
        );
        fs::write(reader.home.path().join(plural), text).expect("the directory is writable");
        let (code, printed) = reader.run(&format!("kubectl create -f {plural}"));
        assert_eq!(code, Some(0), "{printed}");
    }
}
