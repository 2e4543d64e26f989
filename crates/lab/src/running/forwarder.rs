//! One address for several controllers, as a Service is: a connection goes to any replica that accepts it.
//!
//! All replicas share one webhook configuration, which names one address. A replica that is down refuses
//! connections, and the next one is tried; where none accepts, the client gets a reset.

use crate::switch::reset;
use std::{io, net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Time a replica gets to accept. On loopback it takes microseconds, so a replica that takes longer is as
/// good as down, and the API server still has time to hear from the next one.
const ACCEPT_WITHIN: Duration = Duration::from_millis(500);

/// Forwards connections until `shutdown`. Replicas take turns.
pub(super) async fn forward(listener: TcpListener, replicas: Vec<SocketAddr>, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    let mut turn = 0;
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => {
                let mut replicas = replicas.clone();
                turn = (turn + 1) % replicas.len().max(1);
                replicas.rotate_left(turn);
                let shutdown = shutdown.clone();
                connections.spawn(async move {
                    // What is open when the lab ends is cut.
                    let _ = shutdown.run_until_cancelled(attend(client, &replicas)).await;
                });
            }
            Err(error) => {
                // Out of file descriptors, or the client gave up: neither ends the listener.
                tracing::warn!(%error, "a connection for the controllers was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn attend(mut client: TcpStream, replicas: &[SocketAddr]) {
    let Some(mut server) = connect(replicas).await else {
        reset(&client);
        return;
    };
    if let Err(error) = client.set_nodelay(true).and(server.set_nodelay(true)) {
        tracing::debug!(%error, "a connection for the controllers was lost at once");
    }
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
        tracing::debug!(%error, "a connection for the controllers broke");
        reset(&client);
        reset(&server);
    }
}

/// A connection to the first replica that accepts.
async fn connect(replicas: &[SocketAddr]) -> Option<TcpStream> {
    for replica in replicas {
        let attempt = tokio::time::timeout(ACCEPT_WITHIN, TcpStream::connect(replica));
        match attempt.await.map_err(io::Error::from).flatten() {
            Ok(server) => return Some(server),
            Err(error) => tracing::debug!(%replica, %error, "this controller does not accept"),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Answers every connection with its name.
    async fn replica(name: &'static [u8]) -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(name).await;
            }
        });
        (address, serving)
    }

    async fn answer_of(address: SocketAddr) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        let mut stream = TcpStream::connect(address).await?;
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn replicas_take_turns_and_dead_ones_are_skipped() {
        let ((one, first), (two, second)) = (replica(b"one").await, replica(b"two").await);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let forwarding = tokio::spawn(forward(listener, vec![one, two], stop.clone()));
        let mut answers = vec![
            answer_of(address).await.unwrap(),
            answer_of(address).await.unwrap(),
        ];
        answers.sort();
        assert_eq!(answers, [b"one".to_vec(), b"two".to_vec()]);
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        for _ in 0..3 {
            assert_eq!(answer_of(address).await.unwrap(), b"two");
        }
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());
        let refused = answer_of(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionReset);
        stop.cancel();
        forwarding.await.unwrap();
    }
}
