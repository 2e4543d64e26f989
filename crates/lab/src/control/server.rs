//! The lab's side of the control socket.

use super::{Fault, Reply, Request, status::Status};
use std::{future::Future, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
};
use tokio_util::sync::CancellationToken;

/// How often a watcher's view is compared with how things are.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// No order is longer.
const LONGEST_LINE: u64 = 65_536;

/// Who carries out orders.
pub trait Orders: Send + Sync + 'static {
    /// Does it and says what was done, or why not.
    fn inflict(&self, fault: Fault) -> impl Future<Output = Result<String, String>> + Send;
    fn status(&self) -> Status;
}

/// Binds the control socket. The directory must be locked by the caller; nobody else may reach it (mode
/// 0700).
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path)
}

/// Serves orders until `shutdown`.
pub async fn serve<O: Orders>(listener: UnixListener, orders: Arc<O>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (orders, shutdown) = (Arc::clone(&orders), shutdown.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = shutdown.cancelled() => {}
                            served = attend(stream, &*orders) => if let Err(error) = served {
                                tracing::debug!(%error, "a client of the control socket went away");
                            },
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a client of the control socket was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

async fn attend<O: Orders>(stream: UnixStream, orders: &O) -> io::Result<()> {
    use tokio::io::AsyncReadExt as _;
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read.take(LONGEST_LINE)).lines();
    while let Some(line) = lines.next_line().await? {
        let reply = match serde_json::from_str(&line) {
            Ok(Request::Inflict(fault)) => orders
                .inflict(fault)
                .await
                .map_or_else(Reply::Refused, Reply::Done),
            Ok(Request::Status) => Reply::Status(orders.status()),
            Ok(Request::Watch) => return watch(&mut write, orders).await,
            Err(error) => Reply::Refused(format!("not an order: {error}")),
        };
        send(&mut write, &reply).await?;
    }
    Ok(())
}

/// Sends every change until the client goes away.
async fn watch<O: Orders>(write: &mut OwnedWriteHalf, orders: &O) -> io::Result<()> {
    let mut shown = None;
    let mut tick = tokio::time::interval(WATCH_EVERY);
    loop {
        tick.tick().await;
        let status = orders.status();
        if shown.as_ref() != Some(&status) {
            send(write, &Reply::Status(status.clone())).await?;
            shown = Some(status);
        }
    }
}

async fn send(write: &mut OwnedWriteHalf, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply).map_err(io::Error::other)?;
    line.push(b'\n');
    write.write_all(&line).await
}
