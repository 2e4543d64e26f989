//! Starts of commands.
//!
//! A start returns once the program was loaded, and takes for as long as its disk or its file server does
//! not answer: it has a thread of its own, because the prober may have a single one for everything.

use super::Group;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Starts of one program under way at a time. Those that hang hold up no other program, and no more threads
/// than these.
const AT_ONCE: usize = 4;

/// Starts a program as `spawn` does. Dropped before it is done, what it starts is killed.
pub(super) async fn start(
    program: &str,
    spawn: impl FnOnce() -> io::Result<Child> + Send + 'static,
) -> io::Result<Group> {
    let turn = turn(program).await?;
    let runtime = Handle::current();
    let (sender, started) = oneshot::channel();
    let work = move || {
        // The end of the process is awaited by the runtime.
        let _entered = runtime.enter();
        let group = spawn()
            .and_then(|child| Group::new(child).ok_or_else(|| io::Error::other("it has no process ID")));
        drop(turn);
        // What nobody waits for any more ends with its group.
        let _ = sender.send(group);
    };
    std::thread::Builder::new().name("start".to_owned()).spawn(work)?;
    started
        .await
        .unwrap_or_else(|_| Err(io::Error::other("its start broke off")))
}

async fn turn(program: &str) -> io::Result<OwnedSemaphorePermit> {
    static STARTS: Mutex<BTreeMap<String, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());
    let turns = {
        let mut starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        starts.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = starts.entry(program.to_owned());
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))))
    };
    turns.acquire_owned().await.map_err(io::Error::other)
}
