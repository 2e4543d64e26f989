use super::*;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use jiff::Timestamp;
use std::task::Poll;
use tokio::sync::{mpsc, oneshot, watch};
use tower::{BoxError, Service};

mod client;
mod cutting;
mod passing;
mod ready;
mod threads;
mod time;
mod wire;

/// Time that passes when a test says so.
struct TestClock(watch::Sender<Duration>);

impl TestClock {
    fn at(seconds: u64) -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Duration::from_secs(seconds))))
    }

    fn set(&self, seconds: u64) {
        self.0.send_replace(Duration::from_secs(seconds));
    }
}

impl Clock for TestClock {
    fn boot(&self) -> Duration {
        *self.0.borrow()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn random(&self) -> f64 {
        0.0
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        let mut now = self.0.subscribe();
        async move {
            let _the_clock_is_gone = now.wait_for(|now| *now >= at).await.is_err();
        }
        .boxed()
    }
}

fn term(transitions: i32) -> FencingToken {
    FencingToken {
        lease_uid: "uid".to_owned(),
        transitions,
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// A gate that is open for ever.
fn open_gate() -> Gate {
    let gate = Gate::with_clock(TestClock::at(0));
    gate.open(term(1), Duration::MAX);
    gate
}

type TestBody = UnsyncBoxBody<Bytes, BoxError>;
type Answer = Result<Response<TestBody>, BoxError>;
type TestFuture = GateFuture<TestBody>;

/// What is below the gate: it shows each request to the test, which answers it, or sees it given up.
struct Backend {
    calls: mpsc::UnboundedReceiver<Call>,
}

struct Call {
    request: Request<Full<Bytes>>,
    answer: oneshot::Sender<Answer>,
}

impl Call {
    fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    fn respond(self, body: TestBody) {
        assert!(self.answer.send(Ok(Response::new(body))).is_ok(), "nobody waits");
    }
}

impl Backend {
    /// The next request that has come; panics when there is none.
    fn call(&mut self) -> Call {
        self.calls.try_recv().expect("a request came through")
    }

    fn is_untouched(&mut self) -> bool {
        self.calls.try_recv().is_err()
    }
}

fn behind(
    gate: &Gate,
) -> (
    impl Service<
        Request<Full<Bytes>>,
        Response = Response<GatedBody<TestBody>>,
        Error = BoxError,
        Future = TestFuture,
    > + Clone
    + Send
    + 'static,
    Backend,
) {
    use tower::Layer as _;
    let (seen, calls) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request| {
        let (answer, reply) = oneshot::channel();
        assert!(seen.send(Call { request, answer }).is_ok(), "the test listens");
        async move {
            reply
                .await
                .unwrap_or_else(|_| Err("the test gave no answer".into()))
        }
    });
    (gate.layer().layer(service), Backend { calls })
}

fn request(method: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri("/api/v1/nodes/a?dryRun=All")
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap()
}

fn empty() -> TestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

fn full(text: &'static str) -> TestBody {
    Full::new(Bytes::from_static(text.as_bytes()))
        .map_err(|never| match never {})
        .boxed_unsync()
}

type Sender = futures::channel::mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>;

/// A body that goes on for as long as the test wants. The sender is closed when it is dropped.
fn stream() -> (Sender, TestBody) {
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    (sender, StreamBody::new(receiver).boxed_unsync())
}

fn send(sender: &Sender, text: &'static str) {
    sender
        .unbounded_send(Ok(Frame::data(Bytes::from_static(text.as_bytes()))))
        .unwrap();
}

fn is_closed(error: &BoxError) -> bool {
    GateClosed::caused(&**error)
}

/// The response of a write that has been sent and answered.
fn response(answer: Poll<Result<Response<GatedBody<TestBody>>, BoxError>>) -> GatedBody<TestBody> {
    match answer {
        Poll::Ready(Ok(response)) => response.into_body(),
        Poll::Ready(Err(error)) => panic!("failed: {error}"),
        Poll::Pending => panic!("not answered"),
    }
}

fn error(answer: Poll<Result<Response<GatedBody<TestBody>>, BoxError>>) -> BoxError {
    match answer {
        Poll::Ready(Ok(_)) => panic!("answered"),
        Poll::Ready(Err(error)) => error,
        Poll::Pending => panic!("not answered"),
    }
}

/// What a task that must end has come to. The deadline is there for the day it does not.
async fn ended<T>(task: tokio::task::JoinHandle<T>) -> T {
    let result = tokio::time::timeout(Duration::from_secs(60), task).await;
    result.expect("it ends").unwrap()
}

/// The next part of a body, if it is there.
macro_rules! frame {
    ($body:expr) => {
        futures::poll!($body.frame()).map(|frame| {
            frame.map(|frame| {
                frame.map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
            })
        })
    };
}
use frame;
