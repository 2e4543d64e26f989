//! Bases on MQTT: how the broker is reached, and who answers those that ask for their baseline.

use super::settings::Broker;
use crate::baseline::{self, Deployments, Publisher};
use crate::core::baseline::BaselineEntry;
use crate::core::{Base, Connection, Endpoint, Identity};
use crate::discovery::Discovery;
use evenkeel_arklet::mqtt::{MqttOptions, MqttTunnel, SettingNames};
use evenkeel_arklet::{Install, ModuleId, Tunnel as _};
use futures::future::BoxFuture;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a base that asks for its baseline may take to be served, and how often that is checked.
const SERVED: Duration = Duration::from_secs(60);
const SERVED_AGAIN: Duration = Duration::from_millis(500);
/// Bases that are answered at a time, at most. Whoever asks beyond that gets its modules with its pods.
const MOST_ANSWERS: usize = 10_000;

/// How the broker is reached. `identity`: of this replica.
pub(super) fn options(broker: &Broker, env: &str, identity: &str) -> MqttOptions {
    let client_id = format!("{}@@@{identity}", broker.client_prefix);
    let mut options = MqttOptions::new(&*broker.host, broker.port, client_id, env);
    options.credentials.clone_from(&broker.credentials);
    options.tls.clone_from(&broker.tls);
    options.names = SettingNames {
        client_id: "--mqtt-client-prefix",
        username: "--mqtt-username",
        password: "--mqtt-password-file",
    };
    options
}

/// Answers bases that ask for their baseline over MQTT. All replicas receive the question, and the one that
/// serves a base's node answers: a base that asks is not known to anybody yet, so that is waited for.
pub(super) fn wanted(
    deployments: Arc<Deployments>,
    tunnel: MqttTunnel,
    discovery: Discovery,
    stop: CancellationToken,
) -> crate::discovery::mqtt::Wanted {
    let answers = Answers::default();
    Arc::new(move |metadata| {
        let Ok(identity) = Identity::new(&metadata.identity) else {
            return;
        };
        let Some(answering) = answers.begin(&identity) else {
            return;
        };
        let base = Base {
            identity,
            name: metadata.name.clone(),
            version: metadata.version.clone(),
            cluster: metadata.cluster_name.clone(),
            host_name: None,
            endpoint: Endpoint {
                // Of no account over MQTT.
                address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                by: Connection::Mqtt,
            },
            pod: None,
        };
        let (deployments, tunnel) = (deployments.clone(), tunnel.clone());
        let discovery = discovery.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let _answering = answering;
            let is_ours = async {
                loop {
                    let node = discovery.node_of(&base.identity);
                    if node.is_some_and(|node| discovery.judges(&node)) {
                        return;
                    }
                    tokio::time::sleep(SERVED_AGAIN).await;
                }
            };
            if tokio::time::timeout(SERVED, is_ours).await.is_err() {
                tracing::debug!(base = %base.identity, "a base that asks for its baseline is served by another replica");
                return;
            }
            if let Err(error) = baseline::answer(&*deployments, &tunnel, &base).await {
                tracing::warn!(base = %base.identity, error = evenkeel_net::log::causes(&error), "a base gets no baseline");
            }
        }));
    })
}

/// Bases that are being answered.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<HashSet<Identity>>>);

impl Answers {
    /// Begins to answer a base, unless that is under way: whoever repeats the question, or asks in many
    /// names, makes no more of it.
    fn begin(&self, base: &Identity) -> Option<Answering> {
        let mut under_way = self.lock();
        let is_new = under_way.len() < MOST_ANSWERS && under_way.insert(base.clone());
        is_new.then(|| Answering(self.clone(), base.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Answering(Answers, Identity);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Publisher for MqttTunnel {
    fn publish<'a>(
        &'a self,
        identity: &'a Identity,
        baseline: &'a [BaselineEntry],
    ) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let target = evenkeel_arklet::Base {
                identity: identity.to_string(),
                environment: self.environment().to_owned(),
                address: None,
            };
            let install = |entry: &BaselineEntry| {
                let id = ModuleId::new(&*entry.biz_name, &*entry.biz_version);
                Install::new(id, &*entry.biz_url)
            };
            let installs: Vec<Install> = baseline.iter().map(install).collect();
            match self.batch(&target, &installs).await {
                Ok(outcome) => {
                    tracing::info!(base = %identity, outcome = %outcome.overall, "baseline carried out");
                    Ok(())
                }
                // The base has the baseline; its list of modules shows how it went.
                Err(error) if error.may_have_run() => Ok(()),
                Err(error) => Err(evenkeel_net::log::causes(&error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_answered_once_at_a_time_and_not_too_many_are() {
        let base = |number: usize| Identity::new(&format!("base-{number}")).unwrap();
        let answers = Answers::default();
        let first = answers.begin(&base(0));
        assert!(first.is_some() && answers.begin(&base(0)).is_none());
        drop(first);
        let mut under_way: Vec<_> = (0..MOST_ANSWERS)
            .map(|number| answers.begin(&base(number)))
            .collect();
        assert!(under_way.iter().all(Option::is_some));
        assert!(answers.begin(&base(MOST_ANSWERS)).is_none());
        under_way.pop();
        assert!(answers.begin(&base(MOST_ANSWERS)).is_some());
    }
}
