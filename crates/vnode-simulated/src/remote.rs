//! Commands, and streams between clients and containers.

use super::commands::{self, Input, Output, Session, State, Streams, Tty, World};
use super::fs::{PodFiles, View};
use super::live::{Live, Process};
use super::shape::{Once, Shape};
use super::table::exit;
use super::{Inner, Simulated, no_container, no_pod};
use bytes::Bytes;
use evenkeel_vnode::provider::{ContainerId, Duplex, ExecIo, Fault, FaultKind, PodId, TerminalSize};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::{broadcast, mpsc};

/// Output of a main process that an attached client has not read yet, in pieces.
const BEHIND: usize = 1024;

/// The container around a command.
struct Around {
    inner: Weak<Inner>,
    uid: Arc<str>,
    number: u64,
    shape: Arc<Shape>,
}

impl World for Around {
    fn signal(&self, signal: i32) {
        if let Some(inner) = self.inner.upgrade() {
            inner.signal(&self.uid, self.number, signal);
        }
    }

    fn main(&self) -> String {
        if self.shape.command.is_empty() {
            format!("{} (simulated)", self.shape.image)
        } else {
            self.shape.command.join(" ")
        }
    }
}

impl Simulated {
    /// Files and surroundings of a container.
    fn session(&self, uid: &Arc<str>, number: u64, process: u32, tty: Option<Arc<Tty>>) -> Option<Session> {
        let inner = &self.0;
        let mut table = inner.table();
        let (record, _) = table.pod(uid)?;
        let files = record
            .extra()
            .files
            .get_or_insert_with(|| Arc::new(PodFiles::new(inner.files.clone())))
            .clone();
        let instance = record.instance(number)?;
        let (shape, volumes) = (instance.shape.clone(), instance.volumes.clone());
        Some(Session {
            view: View {
                files,
                host: inner.host.get().cloned(),
                pod: record.id.clone(),
                shape: shape.clone(),
                volumes,
                number,
                hostname: record.hostname().into(),
                address: record.address,
                clock: inner.settings.clock.clone(),
            },
            world: Arc::new(Around {
                inner: Arc::downgrade(inner),
                uid: uid.clone(),
                number,
                shape,
            }),
            tty,
            process,
            steps: AtomicU64::new(0),
        })
    }

    pub(super) async fn run_exec(
        &self,
        pod: &PodId,
        container: &ContainerId,
        command: &[String],
        io: ExecIo,
    ) -> Result<i32, Fault> {
        let inner = &self.0;
        let number = inner.number(pod, container)?;
        let changed = inner.running(pod, number)?;
        let tty = io.terminal.is_some().then(Arc::<Tty>::default);
        let process = 7 + rand::random::<u32>() % 30_000;
        let session = self
            .session(&pod.uid, number, process, tty.clone())
            .ok_or_else(|| no_container(pod, &container.0))?;
        let output = io
            .stdout
            .map_or(Output::Nothing, |writer| Output::stream(writer, tty.is_some()));
        let errors = match io.stderr {
            Some(writer) => Output::stream(writer, tty.is_some()),
            // With a terminal both are one.
            None if tty.is_some() => output.clone(),
            None => Output::Nothing,
        };
        let mut typed = io.stdin;
        let input = match &tty {
            Some(tty) => Input::Typed(tty.clone()),
            None => typed.take().map_or(Input::Nothing, Input::stream),
        };
        let streams = Streams {
            input,
            output: output.clone(),
            errors,
        };
        let state = session_state(&session.view.shape, &session.view.hostname, tty.is_some());
        let shell = command.first().is_some_and(|name| commands::is_shell(name));
        let ended = async {
            loop {
                let changed = changed.notified();
                if inner.ended(pod, number).is_some() || inner.running(pod, number).is_err() {
                    return 137;
                }
                changed.await;
            }
        };
        let interrupted = async {
            match &tty {
                // A shell goes on when what it runs is interrupted.
                Some(tty) if !shell => tty.interrupted().await,
                _ => std::future::pending().await,
            }
        };
        let typing = async {
            if let Some(tty) = &tty {
                pump(tty, typed, io.terminal, true, |echo| {
                    let output = output.clone();
                    async move { output.write(&echo).await.is_ok() }
                })
                .await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            code = commands::run(&session, state, command, streams) => Ok(code),
            code = ended => Ok(code),
            () = interrupted => Ok(130),
            () = typing => Ok(130),
        }
    }

    /// Runs a container's own command until it ends, is stopped, or the container is gone.
    pub(super) fn run_command(&self, uid: &Arc<str>, number: u64, shape: &Arc<Shape>) {
        let tty = Arc::new(Tty::default());
        if shape.stdin.is_none() {
            tty.end();
        }
        let terminal = shape.tty.then(|| tty.clone());
        let Some(session) = self.session(uid, number, 1, terminal) else {
            return;
        };
        let (output, _) = broadcast::channel(BEHIND);
        let (token, ends) = Live::token();
        {
            let mut table = self.0.table();
            let Some((record, _)) = table.pod(uid) else {
                return;
            };
            let Some(instance) = record.instance(number) else {
                return;
            };
            instance.live().process = Some(Process {
                _ends: ends,
                output: output.clone(),
                input: tty.clone(),
            });
        }
        let inner = Arc::downgrade(&self.0);
        let written = {
            let (inner, uid, terminal) = (inner.clone(), uid.clone(), shape.tty);
            Output::Given(Arc::new(move |bytes: &[u8]| {
                if let Some(inner) = inner.upgrade() {
                    inner.write(&uid, number, bytes);
                }
                let bytes = if terminal {
                    commands::streams::with_returns(bytes)
                } else {
                    bytes.to_vec()
                };
                // Nobody may be attached.
                let _ = output.send(Bytes::from(bytes));
            }))
        };
        let streams = Streams {
            input: Input::Typed(tty),
            output: written.clone(),
            errors: written,
        };
        let (uid, shape) = (uid.clone(), shape.clone());
        tokio::spawn(token.run_until_cancelled_owned(async move {
            let state = session_state(&shape, &session.view.hostname, shape.tty);
            let code = commands::run(&session, state, &shape.command, streams).await;
            let words = session.view.read(&shape.last_words).await.unwrap_or_default();
            let words =
                String::from_utf8_lossy(words.get(..words.len().min(4096)).unwrap_or_default()).into_owned();
            if let Some(inner) = inner.upgrade() {
                let at = inner.now();
                inner.end_and_report(&uid, number, |instance| {
                    exit(code, &words, Some(instance.started), at)
                });
            }
        }));
    }

    pub(super) async fn join(&self, pod: &PodId, container: &ContainerId, io: ExecIo) -> Result<i32, Fault> {
        let inner = &self.0;
        let number = inner.number(pod, container)?;
        let changed = inner.running(pod, number)?;
        let (shape, joined) = {
            let mut table = inner.table();
            let (record, _) = table.pod(&pod.uid).ok_or_else(|| no_pod(pod))?;
            let instance = record
                .instance(number)
                .ok_or_else(|| no_container(pod, &container.0))?;
            let process = instance.live.as_ref().and_then(|live| live.process.as_ref());
            let joined = process.map(|process| {
                (
                    process.input.clone(),
                    process.output.subscribe(),
                    process.output.clone(),
                )
            });
            (instance.shape.clone(), joined)
        };
        let ExecIo {
            stdin,
            mut stdout,
            terminal,
            ..
        } = io;
        let Some((input, mut output, echo)) = joined else {
            return self.watch_log(pod, container, number, stdout).await;
        };
        let typing = async {
            match shape.stdin {
                Some(Once(once)) if shape.tty => {
                    let ends = once && stdin.is_some();
                    pump(&input, stdin, terminal, ends, |bytes| {
                        // Whoever is attached sees what is typed; nobody else could.
                        let _ = echo.send(Bytes::from(bytes));
                        std::future::ready(true)
                    })
                    .await;
                }
                Some(Once(once)) => give(&input, stdin, once).await,
                None => {}
            }
            std::future::pending::<()>().await;
        };
        let reading = async {
            loop {
                match output.recv().await {
                    Ok(bytes) => {
                        if let Some(writer) = &mut stdout
                            && (writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err())
                        {
                            // The client is gone: its stream's end detaches it.
                            stdout = None;
                        }
                    }
                    Err(broadcast::error::RecvError::Lagged(pieces)) => {
                        tracing::debug!(%pod, pieces, "an attached client reads too slowly: output is left out");
                    }
                    Err(broadcast::error::RecvError::Closed) => break,
                }
            }
        };
        let ended = async {
            loop {
                let changed = changed.notified();
                match inner.ended(pod, number) {
                    Some(exit) => return exit.code,
                    None if inner.running(pod, number).is_err() => return 137,
                    None => changed.await,
                }
            }
        };
        tokio::pin!(reading);
        tokio::pin!(ended);
        tokio::select! {
            biased;
            () = &mut reading => Ok(ended.await),
            code = &mut ended => {
                // What was written before the end is still told.
                let _ = futures::poll!(reading.as_mut());
                Ok(code)
            }
            () = typing => Ok(0),
        }
    }

    /// A container whose process is not run shows what it logs from now on.
    async fn watch_log(
        &self,
        pod: &PodId,
        container: &ContainerId,
        number: u64,
        stdout: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    ) -> Result<i32, Fault> {
        use futures::StreamExt;
        let options = evenkeel_vnode::provider::LogOptions {
            follow: true,
            tail: Some(0),
            ..Default::default()
        };
        let mut lines = self.read_logs(pod, container, &options)?;
        let mut stdout = stdout;
        while let Some(chunk) = lines.next().await {
            if let (Some(writer), Ok(chunk)) = (&mut stdout, chunk)
                && (writer.write_all(&chunk).await.is_err() || writer.flush().await.is_err())
            {
                stdout = None;
            }
        }
        Ok(self.0.ended(pod, number).map_or(137, |exit| exit.code))
    }

    pub(super) async fn forward(&self, pod: &PodId, port: u16) -> Result<Box<dyn Duplex>, Fault> {
        let refused = || {
            Fault::new(
                FaultKind::Invalid,
                "PortForwardFailed",
                format!(
                    "failed to connect to localhost:{port} inside pod {pod}: \
                     dial tcp4 127.0.0.1:{port}: connect: connection refused"
                ),
            )
        };
        let (address, number, shape, token) = {
            let mut table = self.0.table();
            let (record, _) = table.pod(&pod.uid).ok_or_else(|| no_pod(pod))?;
            let mut running = record
                .containers
                .iter_mut()
                .filter(|instance| instance.ended.is_none());
            let found = running.find(|instance| instance.shape.listens().contains(&port));
            let found = found.ok_or_else(refused)?;
            let token = found.live().connection();
            (record.address, found.number, found.shape.clone(), token)
        };
        if let (Some(address), Some(_)) = (address, &shape.plan.serve) {
            let stream = tokio::net::TcpStream::connect((address, port)).await;
            return match stream {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(Fault::new(
                    FaultKind::Later,
                    "PortForwardFailed",
                    format!("failed to connect to {address}:{port} of pod {pod}: {error}"),
                )),
            };
        }
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        super::serve::answer(self, pod.uid.clone(), number, port, token, theirs);
        Ok(Box::new(ours))
    }
}

impl Inner {
    /// What tells of changes of a container that runs.
    fn running(&self, pod: &PodId, number: u64) -> Result<Arc<tokio::sync::Notify>, Fault> {
        let mut table = self.table();
        let (record, _) = table.pod(&pod.uid).ok_or_else(|| no_pod(pod))?;
        match record.instance(number) {
            Some(instance) if instance.ended.is_none() => Ok(instance.live().changed.clone()),
            Some(instance) => Err(Fault::new(
                FaultKind::Invalid,
                "ContainerNotRunning",
                format!("container {:?} of pod {pod} has ended", instance.shape.name),
            )),
            None => Err(no_pod(pod)),
        }
    }

    /// Output of a main process.
    fn write(&self, uid: &str, number: u64, bytes: &[u8]) {
        let now = self.now();
        let mut table = self.table();
        let Some((record, _)) = table.pod(uid) else {
            return;
        };
        if let Some(instance) = record.instance(number) {
            let live = instance.live();
            live.ring.write(now, bytes);
            live.changed.notify_waiters();
        }
    }
}

/// What a command starts with.
fn session_state(shape: &Shape, hostname: &str, terminal: bool) -> State {
    let mut environment = vec![
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
        ("HOSTNAME".to_owned(), hostname.to_owned()),
    ];
    if terminal {
        environment.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    environment.extend(shape.env.iter().cloned());
    State::new(&shape.directory, environment)
}

type Reader = Option<Box<dyn AsyncRead + Send + Unpin>>;

/// Types what comes, tells what is echoed, and notes the terminal's size. `ends`: at the end of input the
/// terminal ends, too; else the next client types on.
async fn pump<F, E>(
    tty: &Tty,
    stdin: Reader,
    sizes: Option<mpsc::Receiver<TerminalSize>>,
    ends: bool,
    echo: F,
) where
    F: Fn(Vec<u8>) -> E,
    E: Future<Output = bool>,
{
    let resizing = async {
        if let Some(mut sizes) = sizes {
            while let Some(size) = sizes.recv().await {
                tty.resize(size);
            }
        }
        std::future::pending::<()>().await;
    };
    let typing = async {
        if let Some(mut stdin) = stdin {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
                let shown = tty.typed(buffer.get(..count).unwrap_or_default());
                if !shown.is_empty() && !echo(shown).await {
                    break;
                }
            }
        }
        if ends {
            tty.end();
        }
    };
    tokio::select! {
        () = resizing => {}
        () = typing => {}
    }
}

/// Likewise without a terminal.
async fn give(input: &Tty, stdin: Reader, once: bool) {
    if let Some(mut stdin) = stdin {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
            input.give(buffer.get(..count).unwrap_or_default()).await;
        }
        if once {
            input.end();
        }
    }
}
