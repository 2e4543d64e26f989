//! The last renewals of suspects, as a reporter names them in its rounds.

use super::error::{CloudError, within};
use evenkeel_zone::wire::Renewal;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Where kubelets keep their Leases.
const NAMESPACE: &str = "kube-node-lease";
/// A reading that comes within 4 s of its question is of use. The round for which it was asked waits for 500
/// ms and goes without it, and the next one, a second or two later, names it. So where a round trip takes
/// longer than a round waits, deaths are found a round later.
const WITHIN: Duration = Duration::from_secs(3);
/// Readings at the same time. Those of a whole cell of 64 take two round trips.
const MOST: usize = 32;

/// Reads Leases of nodes.
#[derive(Clone)]
pub(crate) struct Leases {
    client: Client,
    permits: Arc<Semaphore>,
}

impl Leases {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            permits: Arc::new(Semaphore::new(MOST)),
        }
    }

    /// The last renewal of a node, read past any cache, since no resourceVersion is named. Nothing where it
    /// could not be read within [`WITHIN`], the time that it waits for its turn included.
    pub(crate) async fn last_renewal(&self, node: &str) -> Option<Renewal> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let reading = async {
            // Never closed; without a permit there would be one reading more.
            let _permit = self.permits.acquire().await.ok();
            leases.get(node).await
        };
        let read = within(WITHIN, "reading a Lease", reading).await;
        let renewal = renewal(node, &read);
        if let (Err(error), None) = (&read, renewal) {
            tracing::debug!(node, %error, "the last renewal is not known");
        }
        renewal
    }
}

/// What a reading says. A Lease that was never renewed says as much as none. Of the refusals only one says
/// something of the Lease: that it is missing, in the API server's own words, not those of a gateway that
/// knows no such path.
fn renewal(node: &str, read: &Result<Lease, CloudError>) -> Option<Renewal> {
    match read {
        Ok(lease) => {
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
            if renewed.is_none() {
                return Some(Renewal::NO_LEASE);
            }
            let version = lease.metadata.resource_version.as_deref()?;
            version.parse().ok().map(Renewal)
        }
        Err(error) => {
            let status = error.status()?;
            let about = status.details.as_ref()?;
            let missing = status.code == 404 && status.reason == "NotFound";
            (missing && about.name == node && about.kind == "leases").then_some(Renewal::NO_LEASE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_testkit::{Cluster, ServedApi};
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use kube::core::Status;
    use serde_json::json;
    use tokio::time::Instant;

    const AGENT: &str = "system:serviceaccount:evenkeel-system:evenkeel-agent";

    #[tokio::test]
    async fn a_lease_is_read_or_known_to_be_missing_by_the_rights_of_agents() {
        let cluster = Cluster::new();
        cluster.install().await;
        let kubelets = cluster.namespaced(NAMESPACE);
        kubelets.renew("a", "a").await;
        let lease: Lease = kubelets.get("a").await;
        let agent = Leases::new(cluster.server().client_as(AGENT, &["system:authenticated"]));
        let version = |lease: Lease| lease.metadata.resource_version.unwrap().parse().unwrap();
        let first = Renewal(version(lease));
        assert_eq!(agent.last_renewal("a").await, Some(first));
        kubelets.renew("a", "a").await;
        let second = agent.last_renewal("a").await.unwrap();
        assert!(second > first, "{second:?}");
        assert_eq!(agent.last_renewal("b").await, Some(Renewal::NO_LEASE));
        let never: Lease = kubelets.create(json!({ "metadata": { "name": "c" } })).await;
        assert!(never.metadata.resource_version.is_some());
        assert_eq!(agent.last_renewal("c").await, Some(Renewal::NO_LEASE));

        let stranger = Leases::new(cluster.server().client_as("stranger", &["system:authenticated"]));
        assert_eq!(stranger.last_renewal("a").await, None, "forbidden");
        assert_eq!(
            stranger.last_renewal("b").await,
            None,
            "forbidden, so not known to be missing"
        );
    }

    #[tokio::test]
    async fn no_reading_takes_longer_than_it_is_of_use_however_many_there_are() {
        let api = ServedApi::start().await;
        let link = api.link("a").await;
        let leases = Leases::new(link.access().await.client("agent").unwrap());
        assert_eq!(leases.last_renewal("a").await, Some(Renewal::NO_LEASE));
        link.cut();
        let begun = Instant::now();
        let mut readings = tokio::task::JoinSet::new();
        for _ in 0..3 * MOST {
            let leases = leases.clone();
            readings.spawn(async move { leases.last_renewal("a").await });
        }
        link.holds().await;
        assert_eq!(leases.permits.available_permits(), 0);
        while let Some(read) = readings.join_next().await {
            assert_eq!(read.unwrap(), None);
        }
        let took = begun.elapsed();
        assert!(took >= WITHIN && took < 4 * WITHIN, "{took:?}");
        assert_eq!(leases.permits.available_permits(), MOST);
    }

    #[test]
    fn only_the_api_servers_own_word_says_that_there_is_no_lease() {
        let missing = json!({ "status": "Failure", "message": "", "code": 404, "reason": "NotFound",
            "details": { "name": "a", "kind": "leases", "group": "coordination.k8s.io" } });
        let changed = |path: &str, value| {
            let mut status = missing.clone();
            *status.pointer_mut(path).unwrap() = value;
            status
        };
        let table = [
            (missing.clone(), Some(Renewal::NO_LEASE)),
            (changed("/details/name", json!("b")), None),
            (changed("/details/kind", json!("namespaces")), None),
            (changed("/reason", json!("")), None),
            (changed("/details", json!(null)), None),
            (changed("/code", json!(403)), None),
        ];
        for (status, expected) in table {
            let said = format!("{status}");
            let status: Status = serde_json::from_value(status).unwrap();
            let error = CloudError::request("reading", kube::Error::Api(Box::new(status)));
            assert_eq!(renewal("a", &Err(error)), expected, "{said}");
        }
    }

    #[test]
    fn a_version_that_is_no_number_is_no_reading() {
        let read = |version: Option<&str>| {
            let mut lease = Lease::default();
            let renewed = LeaseSpec {
                renew_time: Some(MicroTime(jiff::Timestamp::UNIX_EPOCH)),
                ..LeaseSpec::default()
            };
            lease.spec = Some(renewed);
            lease.metadata.resource_version = version.map(str::to_owned);
            renewal("a", &Ok(lease))
        };
        let versions = [
            Some("7"),
            Some("word"),
            Some("-1"),
            Some("18446744073709551616"),
            None,
        ];
        assert_eq!(versions.map(read), [Some(Renewal(7)), None, None, None, None]);
    }
}
