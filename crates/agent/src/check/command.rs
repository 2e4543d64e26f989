//! The exec check: a command of the node's own file; exit code 0 says that the machine is there. It proves no
//! identity.

use super::outcome::{Failure, Outcome};
use super::parameters::Parameters;
use super::plugin::{Attempt, Plugin, Suspect};
use evenkeel_probe_handlers::exec::{Execute as _, Local, Ran, expand};
use evenkeel_probe_handlers::{Container, Target};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// `checkCommand` of the node's file. `$(NODE)` and `$(ADDRESS)` in it, and the variables of the same names,
/// are the suspect's.
#[derive(Debug)]
pub(super) struct Exec {
    command: Vec<String>,
}

impl Exec {
    pub(super) fn new(parameters: &mut Parameters) -> Result<Self, String> {
        let command = std::mem::take(&mut parameters.command);
        if command.is_empty() {
            return Err("it has no command: put checkCommand into a file of the node itself, and name it with --config".to_owned());
        }
        if !command[0].starts_with('/') {
            return Err(format!("checkCommand: {:?} is no absolute path", command[0]));
        }
        Ok(Self { command })
    }

    async fn run(&self, suspect: &Suspect, within: Duration) -> Outcome {
        let address = suspect.kubelet.ip();
        let container = Container {
            env: vec![
                ("NODE".to_owned(), suspect.node.clone()),
                ("ADDRESS".to_owned(), address.to_string()),
            ],
            ..Container::default()
        };
        let command = match expand(&self.command, &container.env) {
            Ok(command) => command,
            Err(error) => return Outcome::Failed(Failure::Local(error.to_string())),
        };
        let target = Target {
            address: Some(address),
            source: suspect.source,
            container: Arc::new(container),
            container_id: "".into(),
        };
        match Local.execute(&target, &command, within).await {
            Ran::Exited { code: 0, .. } => Outcome::Alive { identity: false },
            Ran::Exited {
                code: code @ ..=125, ..
            } => Outcome::Failed(Failure::Command(code)),
            // A shell that found no program, or could not start it; a command that a signal ended.
            Ran::Exited { code, .. } => {
                Outcome::Failed(Failure::Local(format!("the command ended with exit code {code}")))
            }
            Ran::TimedOut { .. } => Outcome::Failed(Failure::Timeout),
            Ran::Failed { error } => Outcome::Failed(Failure::Local(error)),
        }
    }
}

impl Plugin for Exec {
    fn attempt<'a>(&'a self, suspect: &'a Suspect, within: Duration) -> Attempt<'a> {
        Box::pin(self.run(suspect, within))
    }

    fn lacks(&self) -> Option<String> {
        let program = Path::new(&self.command[0]);
        let why = match program.metadata() {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return None,
            Ok(_) => "it is no file that can be executed".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("checkCommand {}: {why}", program.display()))
    }
}
