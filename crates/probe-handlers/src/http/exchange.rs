//! One request and its answer on one connection, driven by the task that asks: nothing is spawned, so that
//! whoever gives up leaves nothing behind.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

/// Longest head of an answer in bytes. Go reads 10 MiB; a health check has no use for that.
pub(crate) const HEAD: usize = 64 << 10;
/// Most header lines in it.
const LINES: usize = 256;
/// HTTP/2's least window. No probe reads more than a body of 10 KiB.
const WINDOW: u32 = (1 << 16) - 1;

/// A connection, and the answer on it whose body is yet to be read.
pub(crate) struct Exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    answer: Response<Incoming>,
    driver: Driver<S>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What hyper said.
    pub(crate) error: hyper::Error,
    /// What was read of an answer and not understood.
    pub(crate) head: Bytes,
}

/// Sends a request and reads the head of its answer. Reads [`HEAD`] at most, but for informational answers
/// before it.
pub(crate) async fn http1<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Exchange<S>, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::Builder::new()
        .title_case_headers(true)
        .max_buf_size(HEAD)
        .max_headers(LINES)
        // As liberal as Go.
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .handshake(Wire(TokioIo::new(stream)))
        .await
        .map_err(Fault::of)?;
    let mut driver = Driver::Http1 {
        connection: Box::new(connection),
        done: false,
    };
    match driver.answer(sender.send_request(request)).await {
        Ok(answer) => Ok(Exchange { answer, driver }),
        Err(error) => Err(Fault {
            error,
            head: driver.unread(),
        }),
    }
}

/// The same by HTTP/2.
pub(crate) async fn http2<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Exchange<S>, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = Tasks::default();
    let (mut sender, connection) = http2::Builder::new(tasks.executor())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(HEAD as u32)
        .handshake(Wire(TokioIo::new(stream)))
        .await
        .map_err(Fault::of)?;
    let mut driver = Driver::Http2 {
        connection: Box::new(connection),
        tasks,
        done: false,
    };
    driver
        .answer(sender.send_request(request))
        .await
        .map(|answer| Exchange { answer, driver })
        .map_err(Fault::of)
}

impl Fault {
    fn of(error: hyper::Error) -> Self {
        Self {
            error,
            head: Bytes::new(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Exchange<S> {
    /// Status and headers.
    pub(crate) fn answer(&self) -> &Response<Incoming> {
        &self.answer
    }

    /// The body up to `limit` bytes; what lies beyond is not waited for.
    pub(crate) async fn body(&mut self, limit: usize) -> Result<Vec<u8>, hyper::Error> {
        let mut kept = Vec::new();
        let Self { answer, driver } = self;
        let body = answer.body_mut();
        if body.is_end_stream() {
            return Ok(kept);
        }
        poll_fn(|cx| {
            let mut driven = false;
            loop {
                match Pin::new(&mut *body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Some(data) = frame.data_ref() {
                            let room = limit - kept.len();
                            kept.extend_from_slice(&data[..data.len().min(room)]);
                        }
                        if kept.len() >= limit {
                            return Poll::Ready(Ok(()));
                        }
                        driven = false;
                    }
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending if driven => return Poll::Pending,
                    Poll::Pending => {
                        driver.poll(cx);
                        driven = true;
                    }
                }
            }
        })
        .await?;
        Ok(kept)
    }
}

/// What must be polled for bytes to move.
enum Driver<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    Http1 {
        connection: Box<http1::Connection<Wire<S>, Empty<Bytes>>>,
        done: bool,
    },
    Http2 {
        connection: Box<http2::Connection<Wire<S>, Empty<Bytes>, Spawn>>,
        tasks: Tasks,
        done: bool,
    },
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Driver<S> {
    async fn answer(
        &mut self,
        answer: impl Future<Output = hyper::Result<Response<Incoming>>>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            self.poll(cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// How the connection ends is of no interest: whoever waits for something on it is told.
    fn poll(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Http1 { connection, done } => {
                *done = *done || connection.poll_without_shutdown(cx).is_ready();
            }
            Self::Http2 {
                connection,
                tasks,
                done,
            } => {
                *done = *done || Pin::new(&mut **connection).poll(cx).is_ready();
                tasks.poll(cx);
            }
        }
    }

    fn unread(self) -> Bytes {
        match self {
            Self::Http1 { connection, .. } => connection.into_parts().read_buf,
            Self::Http2 { .. } => Bytes::new(),
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What hyper's HTTP/2 wants to run beside the connection; polled with it.
#[derive(Default)]
struct Tasks(Arc<Mutex<Vec<Task>>>);

/// What tasks keep to start others. They must not keep themselves alive by it, and the connection with them.
#[derive(Clone)]
struct Spawn(Weak<Mutex<Vec<Task>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, task: F) {
        // Without a driver nobody is left who would run it.
        if let Some(tasks) = self.0.upgrade() {
            tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Box::pin(task));
        }
    }
}

impl Tasks {
    fn executor(&self) -> Spawn {
        Spawn(Arc::downgrade(&self.0))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &mut Context<'_>) {
        let mut running = std::mem::take(&mut *self.lock());
        running.retain_mut(|task| task.as_mut().poll(cx).is_pending());
        let mut added = self.lock();
        let started = !added.is_empty();
        running.append(&mut added);
        *added = running;
        if started {
            // Nobody has polled these yet.
            cx.waker().wake_by_ref();
        }
    }
}

/// A stream that is never shut down from our side: the farewell would make our end the one that has to wait
/// in TIME_WAIT. Dropping it resets the connection (see [`Connection`](crate::dial::Connection)).
struct Wire<S>(TokioIo<S>);

impl<S: AsyncRead + Unpin> Read for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().0).poll_read(cx, buf) {
            // TLS without its farewell: many servers leave so, and Go lets them. Whoever cuts a body short
            // that has a length is still found out.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

impl<S: AsyncWrite + Unpin> Write for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
