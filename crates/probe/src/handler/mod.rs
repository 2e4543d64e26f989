//! What attempts do. HTTP, TCP and commands are [`evenkeel_probe_handlers`]'; gRPC health checks and
//! commands by way of a container runtime are added here, by features of their names (`grpc`, `cri`). Texts
//! are the kubelet's.

#[cfg(feature = "cri")]
mod cri;
#[cfg(feature = "grpc")]
pub mod grpc;

#[cfg(feature = "cri")]
pub use cri::Cri;
pub use evenkeel_probe_handlers::wording::quote;
pub use evenkeel_probe_handlers::{exec, http, port, tcp};

use crate::core::{Attempt, Handler, Outcome, Verdict};
use std::future::Future;
use std::sync::Arc;

/// Makes attempts. The manager takes any; [`Handlers`] is the real one.
pub trait Prober: Send + Sync + 'static {
    /// One attempt, tries included. Ends within the probe's timeout times [`Attempt::tries`], and a little.
    fn probe(&self, attempt: &Attempt) -> impl Future<Output = Outcome> + Send;
}

/// The handlers of a kubelet.
#[derive(Clone)]
pub struct Handlers {
    exec: Arc<dyn exec::Execute>,
}

impl Handlers {
    /// Handlers whose commands run by way of `exec`.
    pub fn new(exec: Arc<dyn exec::Execute>) -> Self {
        Self { exec }
    }

    /// A single try.
    pub async fn once(&self, attempt: &Attempt) -> Outcome {
        let Attempt {
            target,
            probe,
            compat,
            ..
        } = attempt;
        match &probe.handler {
            Handler::HttpGet(get) => http::probe(get, target, probe, *compat).await,
            Handler::TcpSocket { host, port } => {
                tcp::probe(host.as_deref(), port, target, probe.timeout).await
            }
            #[cfg(feature = "grpc")]
            Handler::Grpc { port, service } => grpc::probe(*port, service, target, probe, *compat).await,
            #[cfg(not(feature = "grpc"))]
            Handler::Grpc { .. } => {
                let reason = "cannot probe by gRPC: this program was built without the feature `grpc` of evenkeel-probe";
                Outcome::error(Verdict::Unknown, reason.to_owned())
            }
            Handler::Exec { command } => {
                let command = match exec::expand(command, &target.container.env) {
                    Ok(command) => command,
                    Err(error) => {
                        return Outcome::error(Verdict::Unknown, format!("cannot run the command: {error}"));
                    }
                };
                exec::outcome(self.exec.execute(target, &command, probe.timeout).await)
            }
        }
    }
}

impl Prober for Handlers {
    async fn probe(&self, attempt: &Attempt) -> Outcome {
        let mut outcome = self.once(attempt).await;
        for _ in 1..attempt.tries() {
            if outcome.error.is_none() {
                break;
            }
            outcome = self.once(attempt).await;
        }
        outcome
    }
}
