//! A prober of one HTTP probe: it prints each change of the container's readiness.

use evenkeel_probe::core::engine::Config;
use evenkeel_probe::core::{ContainerState, ContainerStatus, Phase, PodStatus, Policy};
use evenkeel_probe::handler::{Handlers, exec::Local};
use evenkeel_probe::manager::Manager;
use evenkeel_probe::manifest::Documents;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: nginx
    readinessProbe:
      httpGet:
        port: 8080
        path: /healthz
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pod = Arc::new(Documents::parse("web.yaml", POD)?.workloads[0].to_pod()?);
    let config = Config {
        policy: Policy::default(),
        concurrency: 64,
        exec_concurrency: 1,
        source: None,
        seed: 1,
    };
    let handlers = Handlers::new(Arc::new(Local));
    let manager = Manager::builder(config).start(handlers, CancellationToken::new());
    let mut changes = manager.subscribe();
    manager.add_pod(pod.clone());
    manager.update_status(&pod.uid, running()?);
    while let Some(change) = changes.next().await {
        println!("{} is {}: {}", change.key, change.reading, change.why);
    }
    Ok(())
}

/// What runs the container says that it runs, on this machine.
fn running() -> Result<PodStatus, Box<dyn Error>> {
    let started_at: Duration = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(PodStatus {
        phase: Phase::Running,
        address: Some(Ipv4Addr::LOCALHOST.into()),
        containers: vec![ContainerStatus {
            name: "web".into(),
            id: "process://1".into(),
            state: ContainerState::Running { started_at },
            ..ContainerStatus::default()
        }],
        ..PodStatus::default()
    })
}
