//! The client over HTTP.
//!
//! arklet's server is peculiar: POST alone, one request per connection, answers without any header that end
//! where the connection does, status 200 whatever happened, no answer at all to a body that it cannot read.
//! And it runs commands on its event loop: a synchronous install stops every fourth or so of all other
//! requests until it ends. So installs are asynchronous here, and whoever asks has a deadline.

mod exchange;
mod install;

use crate::biz::ModuleList;
use crate::command::{HealthQuery, Install, InvalidRequest, ModuleId, Request};
use crate::envelope::{DecodeError, Envelope};
use crate::health::Health;
use crate::help::Offer;
use crate::outcome::{BatchOutcome, Outcome};
use crate::read;
use crate::traced::traced;
use crate::tunnel::{Answer, Base, ErrorKind, Tunnel, TunnelError, answered};
use bytes::Bytes;
use exchange::{Fault, Limits};
use futures::FutureExt as _;
use std::time::Duration;

/// Most bytes that arklet's server takes (Netty's aggregator).
const MOST_REQUEST: usize = 1 << 20;

/// Most characters of a foreign name that are shown: no base has a longer one.
const LONGEST_NAME: usize = 253;

/// Deadlines and limits.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Deadline of connecting.
    pub connect: Duration,
    /// Deadline of a query: `health`, `queryAllBiz`, `queryBizOps`, and for the acceptance of an asynchronous
    /// install.
    pub query: Duration,
    /// Deadline of an install from beginning to end.
    pub install: Duration,
    /// Deadline of an uninstall or a switch: modules may take their time to stop.
    pub uninstall: Duration,
    /// Deadline of a batch, which is synchronous.
    pub batch: Duration,
    /// Longest answer in bytes. A stack trace is some 10 KiB, a module in a list less than one.
    pub answer: usize,
    /// First pause before asking how an install goes; pauses grow by half each.
    pub poll: Duration,
    /// Longest such pause.
    pub poll_most: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            query: Duration::from_secs(10),
            install: Duration::from_secs(300),
            uninstall: Duration::from_secs(60),
            batch: Duration::from_secs(600),
            answer: 4 << 20,
            poll: Duration::from_millis(200),
            poll_most: Duration::from_secs(5),
        }
    }
}

/// Calls bases over HTTP. Holds no connections; a call's connection closes with its future.
#[derive(Clone, Debug, Default)]
pub struct HttpTunnel {
    options: HttpOptions,
}

impl HttpTunnel {
    /// A client with these deadlines and limits.
    pub fn new(options: HttpOptions) -> Self {
        Self { options }
    }

    /// Sends one request and reads its answer, whatever it says.
    pub async fn call(
        &self,
        base: &Base,
        request: &Request<'_>,
        within: Duration,
    ) -> Result<Envelope, TunnelError> {
        traced(
            base,
            request.command(),
            "HTTP",
            self.exchange(base, request, within),
        )
        .await
    }

    async fn exchange(
        &self,
        base: &Base,
        request: &Request<'_>,
        within: Duration,
    ) -> Result<Envelope, TunnelError> {
        let command = request.command();
        let error = |kind| base.error(command, kind);
        base.check(request)?;
        let body = request.body().to_string();
        if body.len() > MOST_REQUEST {
            return Err(error(ErrorKind::Invalid(InvalidRequest::TooLong(body.len()))));
        }
        let Some(address) = base.address else {
            let over = "HTTP (the base has told no address)";
            return Err(error(ErrorKind::Unsupported { over }));
        };
        let limits = Limits {
            connect: self.options.connect,
            total: within,
            answer: self.options.answer,
        };
        let answer = exchange::post(address, command.id(), Bytes::from(body), &limits)
            .await
            .map_err(|fault| error(self.kind(within, fault)))?;
        let excerpt = || read::excerpt(&String::from_utf8_lossy(&answer.body), 200);
        if answer.status != http::StatusCode::OK {
            return Err(error(ErrorKind::Status {
                status: answer.status.as_u16(),
                text: excerpt(),
            }));
        }
        match (Envelope::decode(&answer.body), answer.cut) {
            // A reset behind a complete object takes nothing from it.
            (Ok(envelope), _) => match envelope.base_identity.as_deref().map(str::trim) {
                Some(says) if !says.is_empty() && says != base.identity => Err(error(ErrorKind::Another {
                    says: read::excerpt(says, LONGEST_NAME),
                })),
                _ => Ok(envelope),
            },
            (Err(_), Some(source)) => Err(error(ErrorKind::Broken(source.into()))),
            (Err(source), None) => Err(error(ErrorKind::Unreadable {
                excerpt: excerpt(),
                source,
            })),
        }
    }

    /// The commands that a base has.
    pub async fn commands(&self, base: &Base) -> Result<Vec<Offer>, TunnelError> {
        self.query(base, &Request::Help, Offer::read_all).await
    }

    fn kind(&self, within: Duration, fault: Fault) -> ErrorKind {
        match fault {
            Fault::Connect(source) => ErrorKind::Connect(source),
            Fault::Silent => ErrorKind::Silent {
                topic: None,
                after: within,
            },
            Fault::Broken(source) => ErrorKind::Broken(source.into()),
            Fault::TooLong => ErrorKind::TooLong {
                limit: self.options.answer,
            },
        }
    }

    /// Sends a query, whose answer must be a success and hold data that `read` understands.
    async fn query<T>(
        &self,
        base: &Base,
        request: &Request<'_>,
        read: impl FnOnce(&serde_json::Value) -> Result<T, DecodeError>,
    ) -> Result<T, TunnelError> {
        let envelope = self.call(base, request, self.options.query).await?;
        answered(base, request.command(), &envelope, read)
    }
}

impl Tunnel for HttpTunnel {
    fn health<'a>(&'a self, base: &'a Base) -> Answer<'a, Health> {
        async move {
            let request = Request::Health(HealthQuery::default());
            let envelope = self.call(base, &request, self.options.query).await?;
            let health = answered(base, request.command(), &envelope, Health::read)?;
            Ok(Health {
                identity: envelope.base_identity,
                ..health
            })
        }
        .boxed()
    }

    fn modules<'a>(&'a self, base: &'a Base) -> Answer<'a, ModuleList> {
        async move { self.query(base, &Request::Modules, ModuleList::read).await }.boxed()
    }

    /// Asynchronous on the wire: the base stays responsive, and a lost answer can be asked for again.
    fn install<'a>(&'a self, base: &'a Base, install: &'a Install) -> Answer<'a, Outcome> {
        self.install_and_watch(base, install).boxed()
    }

    fn uninstall<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome> {
        async move {
            let request = Request::Uninstall(module);
            let envelope = self.call(base, &request, self.options.uninstall).await?;
            Ok(Outcome::of(&envelope, None))
        }
        .boxed()
    }

    fn switch<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome> {
        async move {
            let request = Request::Switch(module);
            let envelope = self.call(base, &request, self.options.uninstall).await?;
            Ok(Outcome::of(&envelope, None))
        }
        .boxed()
    }

    fn batch<'a>(&'a self, base: &'a Base, installs: &'a [Install]) -> Answer<'a, BatchOutcome> {
        async move {
            let envelope = self
                .call(base, &Request::Batch(installs), self.options.batch)
                .await?;
            Ok(BatchOutcome::of(&envelope, installs))
        }
        .boxed()
    }
}
