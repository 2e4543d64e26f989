//! The TCP check: does anything accept a connection?

use super::dial::Dial;
use super::outcome::{Failure, Outcome};
use super::parameters::Parameters;
use super::plugin::{Attempt, Plugin, Suspect};
use std::time::Duration;

/// `port`: instead of the one of the node's kubelet.
#[derive(Debug)]
pub(super) struct Ping {
    port: Option<u16>,
}

impl Ping {
    pub(super) fn new(parameters: &mut Parameters) -> Result<Self, String> {
        let port = parameters.port()?;
        Ok(Self { port })
    }
}

impl Plugin for Ping {
    fn attempt<'a>(&'a self, suspect: &'a Suspect, within: Duration) -> Attempt<'a> {
        Box::pin(connect(suspect.dial(self.port), within))
    }
}

/// Opens a connection and closes it again. Success is [`Outcome::Alive`] without identity. Ends within
/// `timeout`.
pub(super) async fn connect(dial: impl Into<Dial>, timeout: Duration) -> Outcome {
    match tokio::time::timeout(timeout, dial.into().open()).await {
        Ok(Ok(_connection)) => Outcome::Alive { identity: false },
        Ok(Err(failure)) => Outcome::Failed(failure),
        Err(_) => Outcome::Failed(Failure::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::net::TcpListener;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn an_open_port_is_presence_without_identity_and_a_closed_one_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(
            connect(address, DEADLINE).await,
            Outcome::Alive { identity: false }
        );
        drop(listener);
        assert_eq!(
            connect(address, DEADLINE).await,
            Outcome::Failed(Failure::Refused)
        );
    }

    #[tokio::test]
    async fn the_source_address_is_the_one_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dial = Dial {
            address: listener.local_addr().unwrap(),
            source: Some("127.0.0.9".parse().unwrap()),
        };
        let (outcome, accepted) = tokio::join!(connect(dial, DEADLINE), listener.accept());
        assert_eq!(outcome, Outcome::Alive { identity: false });
        assert_eq!(accepted.unwrap().1.ip().to_string(), "127.0.0.9");
    }

    #[tokio::test]
    async fn a_full_queue_is_silence() {
        // The kernel answers no SYN once the accept queue is full: the loopback's picture of a host without
        // power.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket
            .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
            .unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut held = Vec::new();
        let outcome = loop {
            let attempt = tokio::time::timeout(
                Duration::from_millis(300),
                tokio::net::TcpStream::connect(address),
            );
            match attempt.await {
                Ok(stream) => held.push(stream.unwrap()),
                Err(_) => break connect(address, Duration::from_millis(300)).await,
            }
            assert!(held.len() < 100, "the queue never fills");
        };
        assert_eq!(outcome, Outcome::Failed(Failure::Timeout));
    }

    #[tokio::test]
    async fn a_source_address_that_is_not_ours_is_our_failure_not_the_peers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for source in ["192.0.2.1", "::1"] {
            let dial = Dial {
                address,
                source: Some(source.parse().unwrap()),
            };
            let outcome = connect(dial, DEADLINE).await;
            assert!(
                matches!(outcome, Outcome::Failed(Failure::Local(_))),
                "{source}: {outcome:?}"
            );
        }
    }
}
