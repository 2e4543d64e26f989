//! A base as a broker sees it: subscribes like arklet, keeps what it is told, and answers as a test says.

use super::broker::topic;
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, Publish, PublishOptions, QoS, SubscribeFilter};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

pub(crate) struct FakeBase {
    client: AsyncClient,
    identity: String,
    told: Arc<Mutex<Vec<Publish>>>,
    subscribed: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Drop for FakeBase {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeBase {
    /// Returns when it listens. `script`: what it answers to a command and its body, as last level of the
    /// topic and payload.
    pub(crate) async fn start(
        broker: SocketAddr,
        identity: &str,
        script: impl Fn(&str, &Value) -> Vec<(&'static str, String)> + Send + Sync + 'static,
    ) -> Self {
        // As Paho: a clean session, and connected again after every loss.
        let mut options = MqttOptions::new(
            format!("koupleless@@@{identity}"),
            (broker.ip().to_string(), broker.port()),
        );
        options.set_max_packet_size(16 << 20, 16 << 20);
        let (client, mut eventloop) = AsyncClient::builder(options).capacity(100).build();
        let told = Arc::<Mutex<Vec<Publish>>>::default();
        let subscribed = Arc::<Mutex<usize>>::default();
        let task = tokio::spawn({
            let (client, told, subscribed) = (client.clone(), Arc::clone(&told), Arc::clone(&subscribed));
            let prefix = format!("koupleless_dev/{identity}");
            async move {
                loop {
                    match eventloop.poll().await {
                        Ok(Event::Incoming(Packet::ConnAck(_))) => {
                            let filters = ["+", "base/baseline"]
                                .map(|end| SubscribeFilter::new(format!("{prefix}/{end}"), QoS::AtLeastOnce));
                            client.try_subscribe_many(filters).unwrap();
                        }
                        Ok(Event::Incoming(Packet::SubAck(_))) => *subscribed.lock().unwrap() += 1,
                        Ok(Event::Incoming(Packet::Publish(publish))) => {
                            let command = topic(&publish).strip_prefix(&prefix).unwrap().to_owned();
                            let body: Value = serde_json::from_slice(&publish.payload).unwrap();
                            told.lock().unwrap().push(publish);
                            for (end, payload) in script(&command[1..], &body) {
                                let options = PublishOptions::at_least_once();
                                client
                                    .try_publish(format!("{prefix}/base/{end}"), payload, options)
                                    .unwrap();
                            }
                        }
                        Ok(_) => {}
                        Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                    }
                }
            }
        });
        let base = Self {
            client,
            identity: identity.to_owned(),
            told,
            subscribed,
            task,
        };
        base.listens(1).await;
        base
    }

    /// Until its subscriptions were confirmed so many times.
    pub(crate) async fn listens(&self, times: usize) {
        evenkeel_testkit::until_within("the base listens", super::SECONDS, async || {
            self.subscribed() >= times
        })
        .await;
    }

    /// What it was told.
    pub(crate) fn told(&self) -> Vec<Publish> {
        self.told.lock().unwrap().clone()
    }

    fn subscribed(&self) -> usize {
        *self.subscribed.lock().unwrap()
    }

    pub(crate) fn publish(&self, end: &str, payload: &str, retain: bool) {
        let topic = format!("koupleless_dev/{}/base/{end}", self.identity);
        let options = PublishOptions::at_least_once().retain(retain);
        self.client.try_publish(topic, payload, options).unwrap();
    }
}
