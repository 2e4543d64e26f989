//! A thread with a runtime of its own, where an answer waits for no other task of the process.
//!
//! The API server waits for each answer of the webhook. Where the controller has one core and looks at 5,000
//! nodes, the threads of the runtime that also works for it waited for the core for more than half a
//! millisecond some 65 times a second at 2,000 answers a second, nearly always because the controller's loop
//! had it; a thread that only answers did so 1 to 6 times a second.

use std::future::Future;
use std::io;
use std::thread::Builder;
use tokio::runtime;
use tokio::sync::oneshot;
use tracing::dispatcher;

/// Does `work` on a thread of that name, with a runtime of its own. Who waits for it no more ends it.
pub(super) async fn on_thread<T, F>(name: &str, work: impl FnOnce() -> F + Send + 'static) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    // Tests listen to what single threads log.
    let log = dispatcher::get_default(Clone::clone);
    let (mut ended, end) = oneshot::channel();
    Builder::new().name(name.to_owned()).spawn(move || {
        let done = dispatcher::with_default(&log, || {
            runtime.block_on(async {
                tokio::select! {
                    () = ended.closed() => None,
                    done = work() => Some(done),
                }
            })
        });
        if let Some(done) = done {
            // Not taken by one who has just stopped waiting.
            let _ = ended.send(done);
        }
    })?;
    end.await
        .unwrap_or_else(|_| Err(io::Error::other(format!("the thread {name} died"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test]
    async fn it_goes_on_while_the_runtime_that_waits_for_it_computes() {
        let (ask, asked) = oneshot::channel();
        let (answer, answered) = mpsc::channel();
        let work = || async move {
            asked.await.map_err(io::Error::other)?;
            answer.send(()).map_err(io::Error::other)
        };
        let computing = async {
            ask.send(()).unwrap();
            // Holds the only thread of this runtime.
            answered.recv_timeout(Duration::from_secs(60)).unwrap();
        };
        let (done, ()) = tokio::join!(biased; on_thread("test", work), computing);
        done.unwrap();
    }

    #[tokio::test]
    async fn it_ends_with_the_one_who_waits() {
        let (held, gone) = oneshot::channel::<()>();
        let work = || async move {
            let _held = held;
            std::future::pending::<io::Result<()>>().await
        };
        tokio::select! {
            biased;
            _ = on_thread("test", work) => unreachable!("it goes on for ever"),
            () = std::future::ready(()) => {}
        }
        assert!(gone.await.is_err());
    }

    #[tokio::test]
    async fn its_death_is_told() {
        let work = || async { unreachable!("a defect") };
        let died = on_thread::<(), _>("test", work).await.unwrap_err();
        assert_eq!(died.to_string(), "the thread test died");
    }
}
