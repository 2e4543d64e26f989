//! A command of the user's by which parts of the control plane are stopped and started.

use std::time::Duration;
use tokio::process::Command;

/// Time the command gets. On two busy cores each of Kubernetes' own API server and controller manager takes
/// up to a minute to become ready; half as much again is for slower machines.
const DONE_WITHIN: Duration = Duration::from_secs(180);

/// Part of a control plane, by the name of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    ApiServer,
    ControllerManager,
}

impl Component {
    /// What the command is told.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
        }
    }
}

/// The command: `COMMAND kill kube-apiserver kube-controller-manager` ends these at once and for the time
/// being, `COMMAND start …` starts them again. It returns when that is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control(pub String);

impl Control {
    /// Ends components.
    pub async fn kill(&self, components: &[Component]) -> Result<(), String> {
        self.run("kill", components).await
    }

    /// Starts components.
    pub async fn start(&self, components: &[Component]) -> Result<(), String> {
        self.run("start", components).await
    }

    async fn run(&self, verb: &str, components: &[Component]) -> Result<(), String> {
        let line = format!(
            "{} {verb} {}",
            self.0,
            components
                .iter()
                .map(|component| component.name())
                .collect::<Vec<_>>()
                .join(" ")
        );
        let mut command = Command::new("sh");
        command
            .args(["-c", &line])
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(DONE_WITHIN, command.output())
            .await
            .map_err(|_| {
                format!(
                    "`{line}` has not ended within {} s, so it was killed; it must return once that is done, and \
                     what it leaves running must not hold its standard output or error",
                    DONE_WITHIN.as_secs()
                )
            })?
            .map_err(|error| format!("cannot start `{line}`: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{line}` ended with {}: {}", output.status, said.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_command_is_told_what_to_do_and_its_words_are_passed_on() {
        let place = tempfile::tempdir().unwrap();
        let said = place.path().join("said");
        let control = Control(format!("echo >{}", said.display()));
        control
            .kill(&[Component::ApiServer, Component::ControllerManager])
            .await
            .unwrap();
        let text = std::fs::read_to_string(&said).unwrap();
        assert_eq!(text, "kill kube-apiserver kube-controller-manager\n");
        control.start(&[Component::ApiServer]).await.unwrap();
        assert_eq!(std::fs::read_to_string(&said).unwrap(), "start kube-apiserver\n");
        let broken = Control("echo no such plane >&2; false".to_owned());
        let error = broken.kill(&[Component::ApiServer]).await.unwrap_err();
        assert!(
            error.contains("no such plane") && error.contains("exit status: 1"),
            "{error}"
        );
    }

    /// Time stands still but for waits, so 180 s are over at once.
    #[tokio::test(start_paused = true)]
    async fn a_command_that_does_not_return_is_given_up_and_named() {
        let control = Control("exec sleep 3600 #".to_owned());
        let error = control.start(&[Component::ApiServer]).await.unwrap_err();
        assert!(
            error.contains("sleep 3600 # start kube-apiserver` has not ended within 180 s"),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}
