//! Commands in containers, run by a container runtime.

use super::exec::{Execute, Ran, timed_out};
use super::grpc::rpc_error;
use crate::core::{Outcome, Target};
use evenkeel_cri::{Client, Error};
use futures::future::BoxFuture;
use std::time::Duration;

/// Runs commands in containers by `ExecSync`, as a kubelet does. The runtime keeps the time, in whole seconds
/// rounded up, and ends the command; only a runtime that says nothing for two minutes more is given up.
#[derive(Clone, Debug)]
pub struct Cri {
    client: Client,
}

impl Cri {
    /// By way of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Execute for Cri {
    fn execute<'a>(
        &'a self,
        target: &'a Target,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            match self.client.exec(&target.container_id, command, timeout).await {
                Ok(exec) => {
                    let mut output = exec.stdout;
                    output.truncate(Outcome::OUTPUT);
                    let room = Outcome::OUTPUT - output.len();
                    output.extend(exec.stderr.iter().take(room));
                    Ran::Exited {
                        code: exec.exit_code,
                        output,
                    }
                }
                Err(error) if error.is_timeout() => timed_out(command, timeout),
                // A kubelet's text, which names no socket.
                Err(Error::Runtime { code, message, .. }) => Ran::Failed {
                    error: rpc_error(code, &message),
                },
                Err(error) => Ran::Failed {
                    error: error.to_string(),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests;
