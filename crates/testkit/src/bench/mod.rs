//! What benchmarks of many processes have in common: a program that is started again in other roles, the API
//! server as one of them, and figures that are read and written.
//!
//! ```no_run
//! use evenkeel_testkit::bench::{Role, Row, gauge, server, table};
//!
//! let mut words = std::env::args().skip(1);
//! match words.next().as_deref() {
//!     Some(server::ROLE) => server::play(&words.next().expect("a file's name")),
//!     _ => {
//!         let (api, _) = Role::start(&[server::ROLE, "/tmp/kubeconfig"]);
//!         let measured = format!("{} MiB", api.memory("VmRSS") >> 20);
//!         println!("{}", table(&[Row::new("memory of the API server", measured)]));
//!     }
//! }
//! ```

mod role;
pub mod server;
mod table;

pub use role::{Role, cpu, memory, serve_metrics, serve_orders};
pub use table::{Row, table};

use evenkeel_net::client::ClientArgs;
use kube::Client;

/// A connection each for some: one would be the bottleneck. Fails the benchmark if the kubeconfig is of no
/// use.
pub async fn clients(kubeconfig: &str) -> Vec<Client> {
    let flags = ClientArgs {
        kubeconfig: Some(kubeconfig.into()),
        ..ClientArgs::default()
    };
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(
            flags
                .client("bench")
                .await
                .expect("the kubeconfig is the server's own"),
        );
    }
    clients
}

/// The value of a metric without labels, of a text in Prometheus' format; 0 without it.
pub fn gauge(text: &str, name: &str) -> f64 {
    let mut rest = text.lines().filter_map(|line| line.strip_prefix(name));
    rest.find_map(|rest| rest.strip_prefix(' ')).map_or(0.0, value)
}

/// The sum of a metric over those of its labels that contain `label`, as `phase="Running"`; over all with an
/// empty one.
pub fn gauges(text: &str, name: &str, label: &str) -> f64 {
    let rests = text.lines().filter_map(|line| line.strip_prefix(name));
    rests
        .filter(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
        .map(value)
        .sum()
}

/// What stands last on a line.
fn value(line: &str) -> f64 {
    let value = line.rsplit(' ').next().unwrap_or_default();
    value.parse().expect("a metric ends with a number")
}

/// The value below which this share of values lies; they need not be in order. `None` of none.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# HELP a text\na 3\na_b 4\npods{phase=\"Running\"} 5\npods{phase=\"Failed\"} 6\npods_b 7\n";

    #[test]
    fn metrics_are_read_by_their_whole_name() {
        let found = ["a", "pods", "no"].map(|name| gauge(TEXT, name).to_string());
        assert_eq!(found, ["3", "0", "0"]);
        let found = ["", "phase=\"Failed\""].map(|label| gauges(TEXT, "pods", label).to_string());
        assert_eq!(found, ["11", "6"]);
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let found = [0.0, 0.5, 0.99, 1.0].map(|share| quantile(&values, share));
        assert_eq!(found, [1.0, 50.0, 99.0, 100.0].map(Some));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
