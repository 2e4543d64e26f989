//! The flags by which a lab joins a control plane, and the question before it does.

use super::{Cluster, Component, Control, JoinError, Joinable};
use clap::Args;
use std::{
    io::{self, IsTerminal as _, Write as _},
    net::IpAddr,
    path::PathBuf,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Flags of `evenkeel lab` and `evenkeel lab run`.
#[derive(Clone, Debug, Default, Args)]
pub struct JoinArgs {
    /// Join the control plane of this kubeconfig's current context, instead of starting an API server. It
    /// must have no nodes yet, and be on this machine's loopback or reach this machine at --address.
    #[arg(long, value_name = "KUBECONFIG", global = true)]
    pub join: Option<PathBuf>,
    /// Address of this machine at which that control plane reaches the lab, where it is not on this machine's
    /// loopback: kubelets at TCP ports from 10250 + 64 times --subnet, one per node, and the webhook at
    /// 9443 + --subnet. Not needed to clean.
    #[arg(long, value_name = "IP", global = true, requires = "join")]
    pub address: Option<IpAddr>,
    /// Do not ask whether it is the right control plane.
    #[arg(long, global = true, requires = "join")]
    pub yes: bool,
    /// How parts of that control plane are stopped and started: `COMMAND kill kube-apiserver
    /// [kube-controller-manager]`, and `COMMAND start …`.
    #[arg(long, value_name = "COMMAND", global = true, requires = "join")]
    pub control_plane: Option<String>,
}

impl JoinArgs {
    /// The control plane that the flags name, once somebody has said that it is the right one; `None` without
    /// flags, or once `shutdown` is cancelled. `in_pods`: Evenkeel is to run in pods.
    pub async fn cluster(
        &self,
        in_pods: bool,
        shutdown: &CancellationToken,
    ) -> Result<Option<Joinable>, JoinError> {
        let Some(kubeconfig) = &self.join else {
            return Ok(None);
        };
        let control = self.control_plane.clone().map(Control);
        let joinable = Cluster::reach(kubeconfig, control, self.address, in_pods).await?;
        let deed = if in_pods {
            "makes nodes and workloads, runs agents and controllers of Evenkeel on this machine as pods say that are made"
        } else {
            "makes nodes, workloads and an installation of Evenkeel"
        };
        self.confirm(&joinable.cluster, deed, shutdown).await?;
        Ok(Some(joinable))
    }

    /// The same to remove what a lab left there, whatever else there is by now. What the lab has taken down
    /// is started.
    pub async fn cluster_to_clean(&self, shutdown: &CancellationToken) -> Result<Option<Cluster>, JoinError> {
        let Some(kubeconfig) = &self.join else {
            return Ok(None);
        };
        let control = self.control_plane.clone().map(Control);
        let cluster = Cluster::find(kubeconfig, control).await?;
        self.confirm(&cluster, "removes what earlier ones have made", shutdown)
            .await?;
        if let Some(control) = cluster.control() {
            let both = [Component::ApiServer, Component::ControllerManager];
            control.start(&both).await.map_err(JoinError::Control)?;
        }
        cluster.check_is_idle().await?;
        Ok(Some(cluster))
    }

    /// Has the user type the name of the context.
    async fn confirm(
        &self,
        cluster: &Cluster,
        deed: &str,
        shutdown: &CancellationToken,
    ) -> Result<(), JoinError> {
        if self.yes {
            return Ok(());
        }
        let (context, url) = (cluster.context(), cluster.url());
        let unconfirmed = |text: String| Err(JoinError::Unconfirmed(text));
        if !io::stdin().is_terminal() {
            return unconfirmed(format!(
                "the lab {deed} in context `{context}` ({url}); repeat the command with --yes if it may"
            ));
        }
        let asked = write!(
            io::stderr(),
            "The lab {deed} in context `{context}` ({url}).\nType the name of the context to go on: "
        );
        // On a thread that nobody waits for: it reads until a line comes, also when the lab is told to end.
        let (said, line) = oneshot::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line);
            // Nobody is there any more after Ctrl-C.
            let _ = said.send(read.map(|_| line));
        });
        let line = tokio::select! {
            () = shutdown.cancelled() => return unconfirmed("nothing was changed".to_owned()),
            line = line => line,
        };
        match (asked, line) {
            (Ok(()), Ok(Ok(line))) if line.trim() == context => Ok(()),
            (Ok(()), Ok(Ok(line))) => unconfirmed(format!(
                "`{}` is not `{context}`; nothing was changed",
                line.trim()
            )),
            _ => unconfirmed(format!(
                "cannot ask whether context `{context}` is the right one; repeat the command with --yes if it is"
            )),
        }
    }
}
