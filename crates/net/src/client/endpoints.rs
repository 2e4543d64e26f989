//! Which address of the API server is asked next. Pure: no clock, no socket.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// For how long an address that did not answer is tried after the others. It is long enough that all
/// connections of a process avoid it, and short enough that it is used again soon after it was repaired.
pub(super) const SHUNNED: Duration = Duration::from_secs(30);

/// `HOST:PORT`: an address at which the API server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// A text that is no `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give HOST:PORT, as in 10.0.0.7:6443, api.example:6443 or [fd00::7]:6443")]
pub struct NoEndpoint;

impl Endpoint {
    /// The address at which a cluster URL points.
    pub(super) fn of(url: &http::Uri) -> Option<Self> {
        let port = match (url.port_u16(), url.scheme_str()) {
            (Some(port), _) => port,
            (None, Some("http")) => 80,
            (None, _) => 443,
        };
        Some(Self {
            host: url.host()?.to_owned(),
            port,
        })
    }
}

impl FromStr for Endpoint {
    type Err = NoEndpoint;

    fn from_str(text: &str) -> Result<Self, NoEndpoint> {
        let authority: http::uri::Authority = text.trim().parse().map_err(|_| NoEndpoint)?;
        let port = authority.port_u16().filter(|port| *port != 0);
        let host = authority.host();
        // An address of IPv6 stands in brackets, or its end would be read as a port.
        let bare_v6 = !host.starts_with('[') && host.contains(':');
        match port {
            Some(port) if !host.is_empty() && !bare_v6 && !authority.as_str().contains('@') => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            _ => Err(NoEndpoint),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What is held against an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It answered when it was last asked, or was not asked yet.
    Fair,
    /// It did not answer: until then it comes after those that are fair.
    Shunned { until: Duration },
}

/// The order in which addresses are tried. Whichever answers stays first until it fails. Addresses are
/// numbers from 0, as the caller listed them; times are since any fixed moment.
#[derive(Debug)]
pub(super) struct Choice {
    first: usize,
    standings: Vec<Standing>,
}

impl Choice {
    /// `addresses` addresses, all of them fair, in the order of the list.
    pub(super) fn new(addresses: usize) -> Self {
        Self {
            first: 0,
            standings: vec![Standing::Fair; addresses],
        }
    }

    /// Every address, the most promising one first: from the one that answered last, round the list; then
    /// those that are shunned, the one that failed longest ago first.
    pub(super) fn order(&self, now: Duration) -> Vec<usize> {
        let count = self.standings.len();
        let mut order: Vec<usize> = (0..count).map(|step| (self.first + step) % count).collect();
        // Stable: equals stay in the order of the list.
        order.sort_by_key(|address| match self.standings[*address] {
            Standing::Shunned { until } if until > now => until,
            Standing::Shunned { .. } | Standing::Fair => Duration::ZERO,
        });
        order
    }

    /// This address answered a new connection. The one that was first before, if it was another.
    pub(super) fn answered(&mut self, address: usize) -> Option<usize> {
        self.standings[address] = Standing::Fair;
        let before = std::mem::replace(&mut self.first, address);
        (before != address).then_some(before)
    }

    /// This address refused a connection, or was silent.
    pub(super) fn failed(&mut self, address: usize, now: Duration) {
        self.standings[address] = Standing::Shunned { until: now + SHUNNED };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for good in ["10.0.0.7:6443", "api.example:6443", "[fd00::7]:6443"] {
            assert_eq!(good.parse::<Endpoint>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "10.0.0.7",
            ":6443",
            "10.0.0.7:0",
            "10.0.0.7:x",
            "10.0.0.7:70000",
            "fd00::7:6443",
            "me@10.0.0.7:6443",
            "https://10.0.0.7:6443",
            "10.0.0.7:6443/api",
        ] {
            assert_eq!(bad.parse::<Endpoint>(), Err(NoEndpoint), "{bad}");
        }
    }

    #[test]
    fn a_url_without_a_port_has_that_of_its_scheme() {
        for (url, expected) in [
            ("https://api.example", "api.example:443"),
            ("http://api.example/prefix", "api.example:80"),
            ("https://[::1]:6443", "[::1]:6443"),
        ] {
            let endpoint = Endpoint::of(&url.parse().unwrap()).unwrap();
            assert_eq!(endpoint.to_string(), expected);
        }
        assert_eq!(Endpoint::of(&"/path".parse().unwrap()), None);
    }

    /// What happens to an address; failures at so many seconds after the start.
    enum Step {
        Answered(usize),
        Failed(u64, usize),
    }

    #[test]
    fn the_one_that_answers_stays_first_and_the_silent_one_comes_last_for_a_while() {
        use Step::{Answered, Failed};
        type Case = (&'static str, Vec<Step>, u64, [usize; 3]);
        let table: [Case; 8] = [
            ("at first, as listed", vec![], 0, [0, 1, 2]),
            ("the first fails", vec![Failed(1, 0)], 2, [1, 2, 0]),
            (
                "another answers and stays, after the first has served its time too",
                vec![Failed(1, 0), Answered(1)],
                100,
                [1, 2, 0],
            ),
            (
                "that one fails as well",
                vec![Failed(1, 0), Answered(1), Failed(5, 1)],
                6,
                [2, 0, 1],
            ),
            (
                "and the first is fair again by then",
                vec![Failed(1, 0), Answered(1), Failed(40, 1)],
                41,
                [2, 0, 1],
            ),
            (
                "all are silent: the one that failed longest ago is the first",
                vec![Failed(3, 0), Failed(2, 1), Failed(1, 2)],
                4,
                [2, 1, 0],
            ),
            (
                "all were silent once: from the one that answered last",
                vec![Answered(2), Failed(3, 0), Failed(2, 1), Failed(1, 2)],
                60,
                [2, 0, 1],
            ),
            (
                "an answer takes back what was held against it",
                vec![Failed(1, 0), Answered(0)],
                3,
                [0, 1, 2],
            ),
        ];
        for (what, steps, at, expected) in table {
            let mut choice = Choice::new(3);
            for step in steps {
                match step {
                    Answered(address) => drop(choice.answered(address)),
                    Failed(second, address) => choice.failed(address, Duration::from_secs(second)),
                }
            }
            assert_eq!(choice.order(Duration::from_secs(at)), expected, "{what}");
        }
    }

    #[test]
    fn only_a_change_of_the_first_address_is_news() {
        let mut choice = Choice::new(2);
        assert_eq!(choice.answered(0), None);
        assert_eq!(choice.answered(1), Some(0));
        assert_eq!(choice.answered(1), None);
    }
}
