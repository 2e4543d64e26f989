//! The command line of a container on a machine that has no namespaces. Pure.
//!
//! A process of the lab sees the file system and the network of the machine that the lab runs on. What a
//! container would have of its own is put into its command line and its variables instead: paths below a
//! mount become paths of the volume's directory, and "all addresses" become the address of the pod.

use evenkeel_install::objects::INSTALLATION;
use evenkeel_net::shutdown::PARENT_STDIN;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

/// Where the credentials of a pod's ServiceAccount are mounted.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// An image whose program the lab has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// `/evenkeel`.
    Evenkeel,
    /// `/evenkeel-agent`.
    Agent,
}

impl Image {
    /// By the last part of the image's name, without tag and digest, wherever it comes from.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.split('@').next().unwrap_or(name);
        let name = name.rsplit('/').next().unwrap_or(name);
        match name.split(':').next()? {
            "evenkeel" => Some(Self::Evenkeel),
            "evenkeel-agent" => Some(Self::Agent),
            _ => None,
        }
    }

    /// The program of a container; without a command it is the one that the image is named after.
    fn program(self, command: Option<&str>) -> Result<Self, String> {
        match command {
            None => Ok(self),
            Some("/evenkeel") if self == Self::Evenkeel => Ok(Self::Evenkeel),
            Some("/evenkeel-agent") if self == Self::Agent => Ok(Self::Agent),
            Some(other) => Err(format!(
                "the lab runs of this image {} alone, and the command is {other:?}",
                if self == Self::Agent {
                    "/evenkeel-agent"
                } else {
                    "/evenkeel"
                }
            )),
        }
    }
}

/// Whether a container is of an installation of Evenkeel: its pod has the mark of one in its own namespace,
/// and it is an agent or a controller. Other commands of the same program start what they are told to.
pub fn is_installed(image: Image, pod: &Pod, container: &Container) -> bool {
    let namespace = pod.metadata.namespace.as_ref();
    let mark = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(INSTALLATION));
    let words = || container.command.iter().chain(&container.args).flatten();
    let word = words().find(|word| *word != "/evenkeel");
    let is_controller = word.is_some_and(|word| word == "controller");
    mark.is_some() && mark == namespace && (image == Image::Agent || is_controller)
}

/// The binaries behind the images.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Of `/evenkeel`.
    pub evenkeel: PathBuf,
    /// Of `/evenkeel-agent`; without it, agents are a command of the other one.
    pub agent: Option<PathBuf>,
}

/// What a container finds on its machine.
pub struct Surroundings<'a> {
    pub programs: &'a Programs,
    /// Directories by the path at which they are mounted.
    pub mounts: &'a [(PathBuf, PathBuf)],
    /// The address that "all addresses" are.
    pub address: IpAddr,
    /// Variables that the container gets unless it has them: what the namespaces of a machine would give.
    pub variables: &'a [(String, String)],
    /// The kubeconfig that stands for the API server's address and the account of the pod.
    pub kubeconfig: &'a Path,
}

/// A process to be started, without any variable of the lab's own.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
}

/// The process that stands for a container; an error for one that the lab cannot run.
pub fn line(image: Image, container: &Container, around: &Surroundings<'_>) -> Result<Line, String> {
    let words: Vec<&String> = container
        .command
        .iter()
        .chain(&container.args)
        .flatten()
        .collect();
    let has_command = container
        .command
        .as_ref()
        .is_some_and(|command| !command.is_empty());
    let (command, words) = match words.split_first() {
        Some((command, rest)) if has_command => (Some(command.as_str()), rest),
        _ => (None, words.as_slice()),
    };
    let (program, first) = match (image.program(command)?, &around.programs.agent) {
        (Image::Evenkeel, _) => (&around.programs.evenkeel, None),
        (Image::Agent, Some(agent)) => (agent, None),
        (Image::Agent, None) => (&around.programs.evenkeel, Some("agent")),
    };
    let args = first.map(OsString::from).into_iter();
    let args = args.chain(words.iter().map(|word| argument(word, around)));
    let own = container.env.iter().flatten();
    let own = own.map(|variable| {
        let value = variable.value.as_deref().unwrap_or_default();
        (OsString::from(&variable.name), rewritten(value, around))
    });
    let mut env: Vec<(OsString, OsString)> = own.collect();
    let mut more = around.variables.to_vec();
    if around.mounts.iter().any(|(path, _)| path == Path::new(ACCOUNT)) {
        more.push(("KUBECONFIG".to_owned(), around.kubeconfig.display().to_string()));
    }
    // It ends with the lab, however that ends.
    more.push((PARENT_STDIN.to_owned(), "1".to_owned()));
    for (name, value) in more {
        if env.iter().all(|(known, _)| *known != *name) {
            env.push((name.into(), value.into()));
        }
    }
    Ok(Line {
        program: program.clone(),
        args: args.collect(),
        env,
    })
}

/// The directory with the credentials of the pod's ServiceAccount.
pub fn account(mounts: &[(PathBuf, PathBuf)]) -> Option<&Path> {
    let found = mounts.iter().find(|(path, _)| path == Path::new(ACCOUNT));
    found.map(|(_, directory)| directory.as_path())
}

/// `WORD`, or `--flag=WORD`.
fn argument(word: &str, around: &Surroundings<'_>) -> OsString {
    match word.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => {
            let mut argument = OsString::from(format!("{flag}="));
            argument.push(rewritten(value, around));
            argument
        }
        _ => rewritten(word, around),
    }
}

fn rewritten(word: &str, around: &Surroundings<'_>) -> OsString {
    if let Ok(socket) = word.parse::<SocketAddr>()
        && socket.ip().is_unspecified()
    {
        return SocketAddr::new(around.address, socket.port()).to_string().into();
    }
    let path = Path::new(word);
    let deepest = around
        .mounts
        .iter()
        .filter_map(|(mount, directory)| Some((mount, directory, path.strip_prefix(mount).ok()?)))
        .max_by_key(|(mount, ..)| mount.components().count());
    match deepest {
        Some((_, directory, rest)) if rest.as_os_str().is_empty() => directory.into(),
        Some((_, directory, rest)) => directory.join(rest).into(),
        None => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case("evenkeel", Some(Image::Evenkeel))]
    #[case("evenkeel:0.1.0", Some(Image::Evenkeel))]
    #[case("mirror.example:5000/edge/evenkeel-agent:0.1.0", Some(Image::Agent))]
    #[case("mirror.example/evenkeel@sha256:00ff", Some(Image::Evenkeel))]
    #[case("evenkeel-agent-tools:1", None)]
    #[case("evenkeel/other:1", None)]
    #[case("", None)]
    fn images_are_told_by_their_last_part(#[case] name: &str, #[case] expected: Option<Image>) {
        assert_eq!(Image::of(name), expected);
    }

    fn place(agent: Option<&str>) -> (Programs, Vec<(PathBuf, PathBuf)>) {
        let programs = Programs {
            evenkeel: "/bin/evenkeel".into(),
            agent: agent.map(PathBuf::from),
        };
        let mounts = [
            ("/etc/evenkeel", "/lab/settings"),
            ("/etc/evenkeel/roster", "/lab/roster"),
            ("/var/lib/evenkeel", "/lab/state"),
        ];
        let mounts = mounts.map(|(path, directory)| (path.into(), directory.into()));
        (programs, mounts.to_vec())
    }

    fn of(image: Image, container: Value, agent: Option<&str>) -> Result<Vec<String>, String> {
        let (programs, mounts) = place(agent);
        let around = Surroundings {
            programs: &programs,
            mounts: &mounts,
            address: [127, 129, 0, 2].into(),
            variables: &[],
            kubeconfig: Path::new("/lab/kubeconfig"),
        };
        let made = line(image, &serde_json::from_value(container).unwrap(), &around)?;
        let mut words = vec![made.program.display().to_string()];
        words.extend(made.args.iter().map(|word| word.to_str().unwrap().to_owned()));
        Ok(words)
    }

    #[rstest]
    #[case::agent(Image::Agent, "harbour", json!({"args": ["--config=x"]}), true)]
    #[case::controller(Image::Evenkeel, "harbour", json!({"command": ["/evenkeel", "controller"]}), true)]
    #[case::controller_by_arguments(Image::Evenkeel, "harbour", json!({"args": ["controller", "--mode=act"]}), true)]
    #[case::any_command(Image::Evenkeel, "harbour", json!({"args": ["elect", "--", "sh", "controller"]}), false)]
    #[case::nothing(Image::Evenkeel, "harbour", json!({}), false)]
    #[case::of_another_namespace(Image::Agent, "elsewhere", json!({}), false)]
    fn installations_run_agents_and_controllers(
        #[case] image: Image,
        #[case] mark: &str,
        #[case] container: Value,
        #[case] installed: bool,
    ) {
        let metadata = json!({"namespace": "harbour", "labels": {INSTALLATION: mark}});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let mut container = container;
        container["name"] = "x".into();
        let container = serde_json::from_value(container).unwrap();
        assert_eq!(is_installed(image, &pod, &container), installed);
        assert!(
            !is_installed(image, &Pod::default(), &container),
            "without any mark"
        );
    }

    #[rstest]
    #[case("--config=/etc/evenkeel/agent.yaml", "--config=/lab/settings/agent.yaml")]
    #[case(
        "--roster-key=/etc/evenkeel/roster/roster.key",
        "--roster-key=/lab/roster/roster.key"
    )]
    #[case("/var/lib/evenkeel", "/lab/state")]
    #[case("/var/lib/evenkeeler", "/var/lib/evenkeeler")]
    #[case("--admin=[::]:9850", "--admin=127.129.0.2:9850")]
    #[case("--listen=0.0.0.0:1", "--listen=127.129.0.2:1")]
    #[case("--listen=10.0.0.1:1", "--listen=10.0.0.1:1")]
    #[case("--mode=act", "--mode=act")]
    fn what_is_mounted_or_bound_becomes_the_pods_own(#[case] given: &str, #[case] expected: &str) {
        let container = json!({"name": "x", "command": ["/evenkeel", "controller"], "args": [given]});
        let words = of(Image::Evenkeel, container, None).unwrap();
        assert_eq!(words, ["/bin/evenkeel", "controller", expected]);
    }

    #[test]
    fn an_agent_without_a_binary_of_its_own_is_a_command_of_the_other() {
        let container = || json!({"name": "x", "args": ["--admin=9851"]});
        assert_eq!(
            of(Image::Agent, container(), None).unwrap(),
            ["/bin/evenkeel", "agent", "--admin=9851"]
        );
        assert_eq!(
            of(Image::Agent, container(), Some("/bin/evenkeel-agent")).unwrap(),
            ["/bin/evenkeel-agent", "--admin=9851"]
        );
    }

    #[rstest]
    #[case(Image::Evenkeel, "/bin/sh")]
    #[case(Image::Evenkeel, "/evenkeel-agent")]
    #[case(Image::Agent, "/evenkeel")]
    fn nothing_else_is_run(#[case] image: Image, #[case] command: &str) {
        let container = json!({"name": "x", "command": [command]});
        let refused = of(image, container, None).unwrap_err();
        assert!(refused.contains(command), "{refused}");
    }

    #[test]
    fn variables_of_the_pod_win_and_the_kubeconfig_needs_an_account() {
        let (programs, mut mounts) = place(None);
        let variables = [("A", "lab"), ("B", "lab")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let container =
            json!({"name": "x", "env": [{"name": "A", "value": "/etc/evenkeel/a"}, {"name": "C"}]});
        let container: Container = serde_json::from_value(container).unwrap();
        let env = |mounts: &[(PathBuf, PathBuf)]| {
            let around = Surroundings {
                programs: &programs,
                mounts,
                address: [127, 0, 0, 1].into(),
                variables: &variables,
                kubeconfig: Path::new("/lab/kubeconfig"),
            };
            let env = line(Image::Evenkeel, &container, &around).unwrap().env;
            let text = |value: OsString| value.into_string().unwrap();
            env.into_iter()
                .map(|(name, value)| format!("{}={}", text(name), text(value)))
                .collect::<Vec<_>>()
        };
        let parent = format!("{PARENT_STDIN}=1");
        assert_eq!(env(&mounts), ["A=/lab/settings/a", "C=", "B=lab", &parent]);
        mounts.push((ACCOUNT.into(), "/lab/account".into()));
        assert_eq!(account(&mounts), Some(Path::new("/lab/account")));
        assert!(env(&mounts).contains(&"KUBECONFIG=/lab/kubeconfig".to_owned()));
    }
}
