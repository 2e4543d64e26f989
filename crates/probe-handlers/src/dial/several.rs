//! Several addresses of one name, tried as Go does: in their order, and those of the other family (RFC 6555)
//! as soon as the first family has failed or kept silent for a moment.

use super::{Connection, DialError, connect};
use crate::wording;
use futures::future::{Either, select};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

/// Least time for one of several addresses.
const LEAST: Duration = Duration::from_secs(2);
/// How long the family of the first address is alone (Go's `FallbackDelay`).
const HEAD_START: Duration = Duration::from_millis(300);

/// A connection to the first address that gives one. Else the text of the first address's error; `None` if
/// there is no address. `within` is the time that addresses share; the caller ends the whole.
pub(super) async fn first(
    addresses: &[SocketAddr],
    source: Option<IpAddr>,
    within: Duration,
) -> Result<Connection, Option<String>> {
    let family = addresses.first().map(SocketAddr::is_ipv4);
    let (preferred, others): (Vec<SocketAddr>, Vec<SocketAddr>) = addresses
        .iter()
        .partition(|address| Some(address.is_ipv4()) == family);
    let mut preferred = pin!(in_turn(&preferred, source, within));
    if others.is_empty() {
        return preferred.await;
    }
    let others = in_turn(&others, source, within);
    let why = match tokio::time::timeout(HEAD_START, &mut preferred).await {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(why)) => why,
        Err(_) => match select(preferred, pin!(others)).await {
            Either::Left((Ok(connection), _)) | Either::Right((Ok(connection), _)) => return Ok(connection),
            Either::Left((Err(why), others)) => return others.await.map_err(|_| why),
            Either::Right((Err(_), preferred)) => return preferred.await,
        },
    };
    others.await.map_err(|_| why)
}

async fn in_turn(
    addresses: &[SocketAddr],
    source: Option<IpAddr>,
    within: Duration,
) -> Result<Connection, Option<String>> {
    let mut first = None;
    for (index, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let attempt = connect(*address, source);
        let result = if left == 1 {
            attempt.await
        } else {
            tokio::time::timeout((within / left).max(LEAST), attempt)
                .await
                .unwrap_or_else(|_| Err(DialError::Connect(io::ErrorKind::TimedOut.into())))
        };
        match result {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                first.get_or_insert_with(|| wording::dial(*address, source, &error));
            }
        }
    }
    Err(first)
}

#[cfg(test)]
mod tests {
    use super::super::tests::silent;
    use super::*;
    use tokio::net::TcpListener;

    const DEADLINE: Duration = Duration::from_secs(20);
    const LONG: Duration = Duration::from_secs(3600);

    async fn closed(address: &str) -> SocketAddr {
        let listener = TcpListener::bind(address).await.unwrap();
        listener.local_addr().unwrap()
    }

    /// As where a name has an IPv6 address, and no router knows it.
    #[tokio::test]
    async fn a_family_that_keeps_silent_does_not_use_up_the_time_of_the_other() {
        let (silent, _held) = silent().await;
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let connection = tokio::time::timeout(DEADLINE, first(&[silent, silent, open], None, LONG)).await;
        assert_eq!(connection.unwrap().unwrap().ends().peer, open);
    }

    #[tokio::test]
    async fn a_family_that_fails_lets_the_other_try_at_once() {
        let (dead, open) = (
            closed("[::1]:0").await,
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let open = open.local_addr().map(|address| (open, address)).unwrap();
        let connection = first(&[dead, open.1], None, LONG).await;
        assert_eq!(connection.unwrap().ends().peer, open.1);
    }

    #[tokio::test]
    async fn the_first_address_is_the_one_complained_of() {
        let (four, six) = (closed("127.0.0.1:0").await, closed("[::1]:0").await);
        for addresses in [[four, six], [six, four]] {
            let why = first(&addresses, None, LONG).await.unwrap_err();
            assert_eq!(
                why,
                Some(format!("dial tcp {}: connect: connection refused", addresses[0]))
            );
        }
        assert_eq!(first(&[], None, LONG).await.unwrap_err(), None);
    }
}
