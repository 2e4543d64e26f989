//! Logs, commands and ports: by way of the pod in which a base runs.

use super::Inner;
use super::base::Bound;
use crate::core::PodRef;
use evenkeel_vnode::provider::{
    ContainerId, Duplex, ExecIo, Fault, FaultKind, LogOptions, LogStream, PodId, Streams, TerminalSize,
};
use futures::future::ready;
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _, TryFutureExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, AttachedProcess, LogParams};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The cluster in which bases run as pods: logs and commands of modules go there.
#[derive(Clone)]
pub struct BasePods {
    /// A client that reads logs.
    pub client: kube::Client,
    /// A client that can upgrade its connections, for commands.
    pub upgrading: kube::Client,
}

/// For connecting to a port of a base.
const CONNECT: Duration = Duration::from_secs(10);

impl Inner {
    /// Output of a base's container: the lines that are the module's, where they can be told.
    pub(super) async fn logs(
        &self,
        pod: &PodId,
        container: &ContainerId,
        options: &LogOptions,
    ) -> Result<LogStream, Fault> {
        let (cluster, base, bound) = self.pod_of(pod).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client, &base.namespace);
        let module = bound.memory.state().module(pod, container);
        let mark = self
            .settings
            .log_mark
            .as_ref()
            .zip(module)
            .map(|(mark, module)| Mark {
                own: mark.replace("{module}", &module.name),
                // A line with a mark, whosever it is, ends what goes before.
                any: mark.split("{module}").map(str::to_owned).collect(),
                on: false,
            });
        if options.streams != Streams::All {
            let message = format!(
                "the log of {} does not tell standard output and error apart",
                bound.base
            );
            return Err(Fault::new(FaultKind::Unsupported, "NoStreams", message));
        }
        let params = log_params(&base, options, mark.is_some());
        let lines = pods
            .log_stream(&base.name, &params)
            .await
            .map_err(|error| refused(&base, &error))?;
        let lines = lines.lines().map_ok(|mut line| {
            line.push('\n');
            line
        });
        let Some(mark) = mark else {
            return Ok(lines.map_ok(bytes::Bytes::from).boxed());
        };
        let past = mark.clone();
        let own = only(lines, mark);
        match options.tail {
            None => Ok(own.map_ok(bytes::Bytes::from).boxed()),
            Some(tail) if options.follow => {
                // A log that goes on has no last lines: those that are there by now are counted first.
                let params = LogParams {
                    follow: false,
                    ..params
                };
                let counted = async move {
                    let lines = pods.log_stream(&base.name, &params).await;
                    let lines = lines.map_err(std::io::Error::other)?.lines();
                    let count = only(lines, past).try_fold(0_usize, async |count, _| Ok(count + 1));
                    let tail = usize::try_from(tail).unwrap_or(usize::MAX);
                    let own = own.map_ok(bytes::Bytes::from);
                    Ok::<_, std::io::Error>(own.skip(count.await?.saturating_sub(tail)))
                };
                Ok(counted.try_flatten_stream().boxed())
            }
            Some(tail) => {
                let tail = usize::try_from(tail).unwrap_or(usize::MAX);
                let last = last(own, tail)
                    .map_ok(|kept| futures::stream::iter(kept.into_iter().map(Ok)))
                    .try_flatten_stream();
                Ok(last.map_ok(bytes::Bytes::from).boxed())
            }
        }
    }

    /// Runs a command in a base's container.
    pub(super) async fn exec(&self, pod: &PodId, command: &[String], io: ExecIo) -> Result<i32, Fault> {
        let (cluster, base, _) = self.pod_of(pod).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.upgrading, &base.namespace);
        let process = pods
            .exec(&base.name, command, &params(&base, &io))
            .await
            .map_err(|error| refused(&base, &error))?;
        Ok(join(process, io).await)
    }

    /// Joins streams with a base's main process.
    pub(super) async fn attach(&self, pod: &PodId, io: ExecIo) -> Result<i32, Fault> {
        let (cluster, base, _) = self.pod_of(pod).await?;
        let pods: Api<Pod> = Api::namespaced(cluster.upgrading, &base.namespace);
        let process = pods
            .attach(&base.name, &params(&base, &io))
            .await
            .map_err(|error| refused(&base, &error))?;
        Ok(join(process, io).await)
    }

    /// Connects to a port of the base.
    pub(super) async fn port_forward(&self, pod: &PodId, port: u16) -> Result<Box<dyn Duplex>, Fault> {
        let bound = self.bound(&pod.node)?;
        let address = SocketAddr::new(bound.base.endpoint.address, port);
        let failed = |why: String| {
            let message = format!("cannot connect to port {port} of {}: {why}", bound.base);
            Fault::new(FaultKind::Invalid, "PortClosed", message)
        };
        match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer within {CONNECT:?}"))),
        }
    }

    /// The pod of a module's base, if it is that one still: another of its name is none of ours.
    async fn pod_of(&self, pod: &PodId) -> Result<(BasePods, PodRef, Bound), Fault> {
        let bound = self.bound(&pod.node)?;
        let unsupported = |why: &str| {
            let message = format!("{} {why}", bound.base);
            Fault::new(FaultKind::Unsupported, "NoBasePod", message)
        };
        let base = bound.base.pod.clone();
        let base = base.ok_or_else(|| {
            unsupported("runs in no pod that is known here: let base pods be watched (--base-pod-selector)")
        })?;
        let cluster = self.pods.clone();
        let cluster = cluster.ok_or_else(|| unsupported("runs in a cluster that is not known here"))?;
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &base.namespace);
        let found = pods.get_metadata(&base.name).await;
        let found = found.map_err(|error| refused(&base, &error))?;
        if found.metadata.uid.as_deref() != Some(&*base.uid) {
            let message = format!(
                "the pod {}/{} is not {} any more",
                base.namespace, base.name, bound.base
            );
            return Err(Fault::new(FaultKind::NotFound, "BasePodGone", message));
        }
        Ok((cluster, base, bound))
    }
}

/// Those of the lines that are a module's.
fn only(
    lines: impl Stream<Item = std::io::Result<String>>,
    mut mark: Mark,
) -> impl Stream<Item = std::io::Result<String>> {
    lines.try_filter(move |line| ready(mark.takes(line)))
}

/// Which lines of a base's log are a module's.
#[derive(Clone)]
struct Mark {
    own: String,
    any: Vec<String>,
    on: bool,
}

impl Mark {
    /// Lines without any mark, such as those of a stack trace, go with the line before them.
    fn takes(&mut self, line: &str) -> bool {
        if line.contains(&self.own) {
            self.on = true;
        } else if self.is_marked(line) {
            self.on = false;
        }
        self.on
    }

    /// Whether the parts of a mark stand in a line, in their order.
    fn is_marked(&self, line: &str) -> bool {
        if self.any.iter().all(String::is_empty) {
            return false;
        }
        let mut rest = line;
        self.any.iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

/// How the log of a base's container is asked for. `marked`: lines are chosen here.
fn log_params(base: &PodRef, options: &LogOptions, marked: bool) -> LogParams {
    LogParams {
        container: Some(base.container.to_string()),
        follow: options.follow,
        timestamps: options.timestamps,
        // What is cut must be cut after the lines were chosen.
        tail_lines: options
            .tail
            .filter(|_| !marked)
            .and_then(|lines| i64::try_from(lines).ok()),
        since_time: options.since,
        ..LogParams::default()
    }
}

/// The last lines, so many at most.
async fn last<E>(lines: impl Stream<Item = Result<String, E>>, most: usize) -> Result<VecDeque<String>, E> {
    let keep = |mut kept: VecDeque<String>, line| {
        kept.push_back(line);
        if kept.len() > most {
            kept.pop_front();
        }
        ready(Ok(kept))
    };
    lines.try_fold(VecDeque::new(), keep).await
}

fn params(base: &PodRef, io: &ExecIo) -> AttachParams {
    let tty = io.terminal.is_some();
    AttachParams {
        container: Some(base.container.to_string()),
        stdin: io.stdin.is_some(),
        stdout: io.stdout.is_some(),
        // A terminal has one output.
        stderr: io.stderr.is_some() && !tty,
        tty,
        ..AttachParams::default()
    }
}

/// Passes streams on until the process ends; its exit code.
async fn join(mut process: AttachedProcess, io: ExecIo) -> i32 {
    let ended = process.take_status();
    let input = process.stdin();
    let (output, error) = (process.stdout(), process.stderr());
    let sizes = process.terminal_size();
    let resize = async move {
        if let (Some(mut sizes), Some(mut from)) = (sizes, io.terminal) {
            use futures::SinkExt as _;
            while let Some(TerminalSize { width, height }) = from.recv().await {
                let size = kube::api::TerminalSize { width, height };
                if sizes.send(size).await.is_err() {
                    break;
                }
            }
        }
        // The end of sizes is not the end of the process.
        std::future::pending::<()>().await;
    };
    let typed = async move {
        if let (Some(from), Some(to)) = (io.stdin, input) {
            copy(from, to).await;
        }
        std::future::pending::<()>().await;
    };
    let shown = async move {
        let first = async move {
            if let (Some(from), Some(to)) = (output, io.stdout) {
                copy(from, to).await;
            }
        };
        let second = async move {
            if let (Some(from), Some(to)) = (error, io.stderr) {
                copy(from, to).await;
            }
        };
        tokio::join!(first, second);
        match ended {
            Some(ended) => ended.await,
            None => None,
        }
    };
    tokio::select! {
        status = shown => exit_code(status.as_ref()),
        () = resize => 1,
        () = typed => 1,
    }
}

/// Until either side has ended; an end of one side is an end of the stream.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    if let Err(error) = tokio::io::copy(&mut from, &mut to).await {
        tracing::debug!(%error, "a stream of a command broke");
    }
    if let Err(error) = to.shutdown().await {
        tracing::debug!(%error, "a stream of a command broke at its end");
    }
}

/// The message of a Status of Kubernetes.
fn exit_code(status: Option<&Status>) -> i32 {
    let Some(status) = status else { return 1 };
    if status.status.as_deref() == Some("Success") {
        return 0;
    }
    let causes = status
        .details
        .iter()
        .flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    codes
        .find_map(|cause| cause.message.as_deref()?.parse().ok())
        .unwrap_or(1)
}

fn refused(base: &PodRef, error: &kube::Error) -> Fault {
    let kind = match error {
        kube::Error::Api(status) if status.code == 404 => FaultKind::NotFound,
        kube::Error::Api(status) if status.code == 400 => FaultKind::Invalid,
        _ => FaultKind::Later,
    };
    let message = format!("pod {}/{} of the base: {error}", base.namespace, base.name);
    Fault::new(kind, "BasePod", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mark(text: &str, module: &str) -> Mark {
        Mark {
            own: text.replace("{module}", module),
            any: text.split("{module}").map(str::to_owned).collect(),
            on: false,
        }
    }

    #[test]
    fn a_modules_lines_are_those_with_its_mark_and_what_follows_them() {
        let mut mark = mark("[biz={module}]", "biz1");
        let log = [
            ("before all", false),
            ("10:00 [biz=biz1] boom", true),
            ("\tat X1.main(X1.java:1)", true),
            ("10:01 [biz=biz2] fine", false),
            ("\tat Y", false),
            ("10:02 [biz=biz1] again", true),
        ];
        for (line, taken) in log {
            assert_eq!(mark.takes(line), taken, "{line}");
        }
    }

    /// None is none, and not all.
    #[tokio::test]
    async fn as_many_lines_as_are_asked_for_are_shown() {
        let base = PodRef {
            namespace: "shop".into(),
            name: "web-7".into(),
            uid: "u".into(),
            container: "base".into(),
        };
        let asked = |tail| LogOptions {
            tail,
            ..LogOptions::default()
        };
        for (tail, marked, wanted) in [
            (Some(0), false, Some(0)),
            (Some(5), false, Some(5)),
            (None, false, None),
            (Some(5), true, None),
        ] {
            let params = log_params(&base, &asked(tail), marked);
            assert_eq!(params.tail_lines, wanted);
            assert_eq!(params.container.as_deref(), Some("base"));
        }
        let log = || futures::stream::iter(["a", "b", "c"].map(|line| Ok::<_, ()>(line.to_owned())));
        assert!(last(log(), 0).await.unwrap().is_empty());
        assert_eq!(last(log(), 2).await.unwrap(), ["b", "c"]);
        assert_eq!(last(log(), 9).await.unwrap().len(), 3);
    }

    #[test]
    fn exit_codes_stand_in_the_causes_of_a_status() {
        let code = |value| exit_code(Some(&serde_json::from_value(value).unwrap()));
        assert_eq!(code(json!({"status": "Success"})), 0);
        let failed =
            json!({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}});
        assert_eq!(code(failed), 3);
        assert_eq!(code(json!({"status": "Failure"})), 1);
        assert_eq!(exit_code(None), 1);
    }
}
