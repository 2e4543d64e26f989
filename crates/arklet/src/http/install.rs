//! An install from its acceptance to its end.

use super::HttpTunnel;
use crate::biz::ModuleList;
use crate::command::{Command, Install, Request};
use crate::ops::{self, Lookup, Record};
use crate::outcome::{self, Outcome, Step};
use crate::tunnel::{Base, ErrorKind, Tunnel as _, TunnelError, answered};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

const COMMAND: Command = Command::InstallBiz;

impl HttpTunnel {
    pub(super) async fn install_and_watch(
        &self,
        base: &Base,
        install: &Install,
    ) -> Result<Outcome, TunnelError> {
        let watch = Watch {
            tunnel: self,
            base,
            install,
            // Records outlive controllers: a number that counts from one would meet its predecessor's.
            request_id: format!("evenkeel-{:032x}", rand::random::<u128>()),
            end: Instant::now() + self.options.install,
        };
        match watch.begin().await? {
            Ok(record) => watch.until_end(record).await,
            Err(outcome) => Ok(outcome),
        }
    }
}

/// An install that is watched. Dropping it stops the questions, not the install.
struct Watch<'a> {
    tunnel: &'a HttpTunnel,
    base: &'a Base,
    install: &'a Install,
    request_id: String,
    end: Instant,
}

impl Watch<'_> {
    async fn begin(&self) -> Result<Result<Record, Outcome>, TunnelError> {
        let request = Request::Install {
            install: self.install,
            request_id: Some(&self.request_id),
        };
        let options = &self.tunnel.options;
        match self
            .tunnel
            .call(self.base, &request, options.query.min(options.install))
            .await
        {
            Ok(envelope) => Ok(outcome::accepted(&envelope, self.install.id.as_ref())),
            // The answer is lost, the request perhaps not: its record would tell.
            Err(error) if error.may_have_run() => match self.look_up().await {
                Ok(Some(record)) => Ok(Ok(record)),
                Ok(None) | Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// `None`: the base has no such record.
    async fn look_up(&self) -> Result<Option<Record>, TunnelError> {
        let request = Request::Ops {
            request_id: &self.request_id,
        };
        let envelope = self
            .tunnel
            .call(self.base, &request, self.tunnel.options.query)
            .await?;
        match ops::lookup(&envelope) {
            Ok(Some(Lookup::Found(record))) => Ok(Some(record)),
            Ok(Some(Lookup::Lost)) => Ok(None),
            // A refusal, or a success without a record.
            Ok(None) | Err(_) => answered(self.base, Command::QueryBizOps, &envelope, Record::read).map(Some),
        }
    }

    async fn until_end(&self, accepted: Record) -> Result<Outcome, TunnelError> {
        let mut record = accepted;
        let mut list: Option<ModuleList> = None;
        let mut pause = self.tunnel.options.poll;
        let mut trouble = None;
        loop {
            // What a base that is slow or away does not answer is asked again until the deadline: whoever
            // knows that it is gone for good drops this future.
            let asked = match outcome::step(&record, self.install.id.as_ref(), list.as_ref()) {
                Step::End(outcome) => return Ok(outcome),
                Step::List if trouble.is_none() => self
                    .before_end(self.tunnel.modules(self.base))
                    .await
                    .map(|asked| asked.map(|modules| list = Some(modules))),
                Step::Wait | Step::List => {
                    if self.before_end(sleep(pause)).await.is_none() {
                        return Err(self.unfinished(trouble));
                    }
                    pause = longer(pause, self.tunnel.options.poll_most);
                    match self.before_end(self.look_up()).await {
                        Some(Ok(None)) => return Err(self.lost()),
                        Some(Ok(Some(newer))) => {
                            record = newer;
                            Some(Ok(()))
                        }
                        Some(Err(error)) => Some(Err(error)),
                        None => None,
                    }
                }
            };
            trouble = match asked {
                Some(Ok(())) => None,
                // It will not come back to this address soon.
                Some(Err(error)) if matches!(error.kind, ErrorKind::Another { .. }) => return Err(error),
                Some(Err(error)) => Some(Box::new(error)),
                None => return Err(self.unfinished(trouble)),
            };
        }
    }

    async fn before_end<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.end, work).await.ok()
    }

    fn lost(&self) -> TunnelError {
        let request_id = self.request_id.clone();
        self.base.error(COMMAND, ErrorKind::RecordLost { request_id })
    }

    fn unfinished(&self, source: Option<Box<TunnelError>>) -> TunnelError {
        let unfinished = ErrorKind::Unfinished {
            request_id: self.request_id.clone(),
            after: self.tunnel.options.install,
            source,
        };
        self.base.error(COMMAND, unfinished)
    }
}

/// Half as long again. Bases start modules at once after a release: the pauses of their installs are not kept
/// in step.
fn longer(pause: Duration, most: Duration) -> Duration {
    pause.mul_f64(rand::random_range(1.4..1.6)).min(most)
}
