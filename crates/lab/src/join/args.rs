//! The flags by which a lab joins a control plane, and the question before it does.

use super::{Cluster, Control, JoinError};
use clap::Args;
use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
};

/// Flags of `evenkeel lab` and `evenkeel lab run`.
#[derive(Clone, Debug, Default, Args)]
pub struct JoinArgs {
    /// Join the control plane of this kubeconfig's current context, instead of starting an API server. It
    /// must have no nodes yet, and be on this machine's loopback.
    #[arg(long, value_name = "KUBECONFIG", global = true)]
    pub join: Option<PathBuf>,
    /// Do not ask whether it is the right control plane.
    #[arg(long, global = true, requires = "join")]
    pub yes: bool,
    /// How parts of that control plane are stopped and started: `COMMAND kill kube-apiserver
    /// [kube-controller-manager]`, and `COMMAND start …`.
    #[arg(long, value_name = "COMMAND", global = true, requires = "join")]
    pub control_plane: Option<String>,
}

impl JoinArgs {
    /// The control plane that the flags name, once somebody has said that it is the right one.
    pub async fn cluster(&self) -> Result<Option<Cluster>, JoinError> {
        let Some(kubeconfig) = &self.join else {
            return Ok(None);
        };
        let control = self.control_plane.clone().map(Control);
        let cluster = Cluster::reach(kubeconfig, control).await?;
        if !self.yes {
            confirm(cluster.context(), cluster.url())?;
        }
        Ok(Some(cluster))
    }
}

/// Has the user type the name of the context.
fn confirm(context: &str, url: &str) -> Result<(), JoinError> {
    let unconfirmed = |text: String| JoinError::Unconfirmed(text);
    if !io::stdin().is_terminal() {
        let text = format!(
            "the lab would change context `{context}` ({url}); repeat the command with --yes if it may"
        );
        return Err(unconfirmed(text));
    }
    let mut line = String::new();
    let asked = write!(
        io::stderr(),
        "The lab makes nodes, workloads and an installation of Evenkeel in context `{context}` ({url}), and \
         removes them at its end.\nType the name of the context to go on: "
    )
    .and_then(|()| io::stdin().read_line(&mut line));
    match asked {
        Ok(_) if line.trim() == context => Ok(()),
        Ok(_) => Err(unconfirmed(format!(
            "`{}` is not `{context}`; nothing was changed",
            line.trim()
        ))),
        Err(error) => Err(unconfirmed(format!(
            "cannot ask whether context `{context}` is the right one: {error}"
        ))),
    }
}
