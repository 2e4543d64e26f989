//! The broker, and mosquitto where it is installed, with the same client.

use super::{Broker, BrokerSetup, Mosquitto, MosquittoSetup, MosquittoTls};
use crate::{skipped, until};
use evenkeel_net::pki::{Ca, ServerNames, Validity};
use rumqttc::{AsyncClient, ConnectionError, Event, LastWill, MqttOptions, Packet, PublishOptions, QoS};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

const SOON: Duration = Duration::from_secs(20);

/// A client whose messages come out as lines.
struct Client {
    requests: AsyncClient,
    lines: UnboundedReceiver<String>,
    polling: JoinHandle<()>,
}

fn options(address: SocketAddr, id: &str) -> MqttOptions {
    MqttOptions::new(id, (address.ip().to_string(), address.port()))
}

impl Client {
    fn with(options: MqttOptions) -> Self {
        let (client, mut events) = AsyncClient::builder(options).unbounded().build();
        let (sender, lines) = unbounded_channel();
        let polling = tokio::spawn(async move {
            loop {
                let line = match events.poll().await {
                    Ok(Event::Incoming(Packet::ConnAck(ack))) => {
                        format!("connected present={}", ack.session_present)
                    }
                    Ok(Event::Incoming(Packet::SubAck(_))) => "subscribed".to_owned(),
                    Ok(Event::Incoming(Packet::Publish(message))) => format!(
                        "{} {} qos={} retain={} dup={}",
                        String::from_utf8_lossy(&message.topic),
                        String::from_utf8_lossy(&message.payload),
                        message.qos as u8,
                        u8::from(message.retain),
                        u8::from(message.dup)
                    ),
                    Ok(_) => continue,
                    Err(ConnectionError::ConnectionRefused(code)) => format!("refused {code:?}"),
                    Err(_) => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    }
                };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            requests: client,
            lines,
            polling,
        }
    }

    /// Connected.
    async fn start(address: SocketAddr, id: &str) -> Self {
        let mut client = Self::with(options(address, id));
        client.expect("connected present=false").await;
        client
    }

    async fn expect(&mut self, line: &str) {
        assert_eq!(self.next().await.as_deref(), Some(line));
    }

    async fn next(&mut self) -> Option<String> {
        tokio::time::timeout(SOON, self.lines.recv()).await.ok().flatten()
    }

    async fn subscribe(&mut self, filter: &str, qos: QoS) {
        self.requests.try_subscribe(filter, qos).unwrap();
        self.expect("subscribed").await;
    }

    fn publish(&self, topic: &str, payload: &str, options: PublishOptions) {
        self.requests.try_publish(topic, payload, options).unwrap();
    }

    /// Gone without a farewell.
    async fn vanish(self) {
        self.polling.abort();
        let _aborted = self.polling.await;
    }
}

const ONCE: PublishOptions = PublishOptions::at_most_once();
const ACKED: PublishOptions = PublishOptions::at_least_once();

/// What any broker does with messages.
async fn delivers(address: SocketAddr) {
    let publisher = Client::start(address, "publisher").await;
    publisher.publish("a/kept", "old", ACKED.retained());
    publisher.publish("a/kept", "new", ACKED.retained());
    publisher.publish("a/gone", "x", ACKED.retained());
    publisher.publish("a/gone", "", ACKED.retained());
    let mut exact = Client::start(address, "exact").await;
    exact.subscribe("a/b/c", QoS::AtMostOnce).await;
    let mut plus = Client::start(address, "plus").await;
    plus.subscribe("a/+/c", QoS::AtLeastOnce).await;
    // Marks the end of what was published before it, for everybody.
    publisher.publish("a/m/c", "mark", ACKED);
    plus.expect("a/m/c mark qos=1 retain=0 dup=0").await;
    let mut all = Client::start(address, "all").await;
    all.subscribe("a/#", QoS::AtLeastOnce).await;
    all.expect("a/kept new qos=1 retain=1 dup=0").await;
    publisher.publish("a/b/c", "one", ACKED.retained());
    publisher.publish("b/b/c", "nobody", ACKED);
    publisher.publish("a/b/c", "two", ONCE);
    exact.expect("a/b/c one qos=0 retain=0 dup=0").await;
    exact.expect("a/b/c two qos=0 retain=0 dup=0").await;
    for client in [&mut plus, &mut all] {
        client.expect("a/b/c one qos=1 retain=0 dup=0").await;
        client.expect("a/b/c two qos=0 retain=0 dup=0").await;
    }
    publisher.publish("a", "parent", ACKED);
    all.expect("a parent qos=1 retain=0 dup=0").await;
}

/// What any broker does when clients vanish, and when they are back.
async fn remembers(address: SocketAddr) {
    let mut watcher = Client::start(address, "watcher").await;
    watcher.subscribe("will/#", QoS::AtLeastOnce).await;
    let mut wills = options(address, "mortal");
    wills.set_last_will(LastWill::new(
        "will/mortal",
        b"gone".to_vec(),
        QoS::AtLeastOnce,
        false,
    ));
    let mut mortal = Client::with(wills.clone());
    mortal.expect("connected present=false").await;
    mortal.vanish().await;
    watcher.expect("will/mortal gone qos=1 retain=0 dup=0").await;
    let mut polite = Client::with(wills);
    polite.expect("connected present=false").await;
    polite.requests.try_disconnect().unwrap();
    let mut kept = options(address, "kept");
    kept.set_clean_session(false);
    let mut client = Client::with(kept.clone());
    client.expect("connected present=false").await;
    client.subscribe("k/+", QoS::AtLeastOnce).await;
    client.vanish().await;
    let publisher = Client::start(address, "publisher").await;
    publisher.publish("k/1", "first", ACKED);
    publisher.publish("k/2", "second", ACKED);
    publisher.publish("will/mark", "", ACKED);
    // Nothing came of the farewell before this.
    watcher.expect("will/mark  qos=1 retain=0 dup=0").await;
    let mut back = Client::with(kept);
    back.expect("connected present=true").await;
    // They are duplicates where the broker had sent them before it saw that the client had gone.
    for line in ["k/1 first qos=1 retain=0", "k/2 second qos=1 retain=0"] {
        let next = back.next().await;
        let either = [0, 1].map(|dup| Some(format!("{line} dup={dup}")));
        assert!(either.contains(&next), "{next:?}");
    }
}

#[tokio::test]
async fn messages_go_to_who_subscribed() {
    delivers(Broker::start().address()).await;
}

#[tokio::test]
async fn wills_and_kept_sessions_are_honoured() {
    remembers(Broker::start().address()).await;
}

#[tokio::test]
async fn mosquitto_does_the_same() {
    let Some(mosquitto) = Mosquitto::start(&MosquittoSetup::default()) else {
        return skipped("mosquitto_does_the_same", "no mosquitto");
    };
    delivers(mosquitto.address()).await;
    remembers(mosquitto.address()).await;
    let mut client = Client::start(mosquitto.address(), "again").await;
    mosquitto.restart();
    client.expect("connected present=false").await;
}

#[tokio::test]
async fn mosquitto_asks_for_credentials() {
    let secret = MosquittoSetup {
        credentials: Some(("user".to_owned(), "secret".to_owned())),
        ..MosquittoSetup::default()
    };
    let Some(mosquitto) = Mosquitto::start(&secret) else {
        return skipped("mosquitto_asks_for_credentials", "no mosquitto");
    };
    asks(mosquitto.address()).await;
}

/// Certificates for a broker on 127.0.0.1, and a client's configuration with or without a certificate of its
/// own.
fn certificates(home: &Path) -> (MosquittoTls, ClientConfig, ClientConfig) {
    evenkeel_net::init_crypto();
    let validity = Validity {
        from: 0,
        until: 4_102_444_800,
    };
    let authority = Ca::new("test", validity).unwrap();
    let names = ServerNames {
        ips: vec![Ipv4Addr::LOCALHOST.into()],
        ..ServerNames::default()
    };
    let server = authority.issue_server("broker", &names, validity).unwrap();
    let client = authority.issue_client("client", &[], validity).unwrap();
    let write = |name: &str, text: &str| {
        let file = home.join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let tls = MosquittoTls {
        certificate: write("server.crt", &server.certificate_pem),
        key: write("server.key", &server.key_pem),
        client_authority: Some(write("ca.crt", authority.certificate_pem())),
    };
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap())
        .unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let known = builder
        .clone()
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(client.certificate_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    (tls, known, builder.with_no_client_auth())
}

#[tokio::test]
async fn mosquitto_takes_clients_with_certificates_alone() {
    let home = tempfile::tempdir().unwrap();
    let (tls, known, unknown) = certificates(home.path());
    let setup = MosquittoSetup {
        tls: Some(tls),
        ..MosquittoSetup::default()
    };
    let Some(mosquitto) = Mosquitto::start(&setup) else {
        return skipped("mosquitto_takes_clients_with_certificates_alone", "no mosquitto");
    };
    let greets = async |config: ClientConfig| -> std::io::Result<[u8; 4]> {
        let stream = TcpStream::connect(mosquitto.address()).await?;
        let name = Ipv4Addr::LOCALHOST.into();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(ServerName::IpAddress(name), stream).await?;
        // CONNECT of MQTT 3.1.1: clean session, no keep-alive, client id "c".
        let connect = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
        stream.write_all(connect).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    };
    let accepted = tokio::time::timeout(SOON, greets(known)).await.unwrap();
    assert_eq!(accepted.unwrap(), [0x20, 2, 0, 0]);
    assert!(
        tokio::time::timeout(SOON, greets(unknown))
            .await
            .unwrap()
            .is_err()
    );
}

async fn asks(address: SocketAddr) {
    let mut known = options(address, "known");
    known.set_credentials("user", b"secret".to_vec());
    Client::with(known).expect("connected present=false").await;
    let mut wrong = options(address, "wrong");
    wrong.set_credentials("user", b"guess".to_vec());
    for stranger in [wrong, options(address, "anonymous")] {
        let mut client = Client::with(stranger);
        let line = tokio::time::timeout(SOON, client.lines.recv())
            .await
            .unwrap()
            .unwrap();
        assert!(line.starts_with("refused "), "{line}");
    }
}

#[tokio::test]
async fn the_broker_asks_for_credentials() {
    let broker = Broker::with(BrokerSetup {
        credentials: Some(("user".to_owned(), "secret".to_owned())),
        ..BrokerSetup::default()
    });
    asks(broker.address()).await;
    assert_eq!(broker.published(), []);
}

#[tokio::test]
async fn a_second_connection_with_the_same_id_ends_the_first() {
    let broker = Broker::start();
    let mut first = Client::start(broker.address(), "twin").await;
    first.polling.abort();
    let second = Client::start(broker.address(), "twin").await;
    assert_eq!(broker.clients(), ["twin"]);
    first.lines.close();
    second.vanish().await;
    until("nobody is left", async || broker.clients().is_empty()).await;
}

#[tokio::test]
async fn a_restart_cuts_everybody_and_forgets_unless_told_otherwise() {
    for persistent in [false, true] {
        let broker = Broker::with(BrokerSetup {
            persistent,
            ..BrokerSetup::default()
        });
        broker.publish("r", "kept", true);
        let mut kept = options(broker.address(), "kept");
        kept.set_clean_session(false);
        let mut client = Client::with(kept);
        client.expect("connected present=false").await;
        client.subscribe("x", QoS::AtLeastOnce).await;
        let address = broker.address();
        broker.restart().await;
        assert_eq!(broker.address(), address);
        client.expect(&format!("connected present={persistent}")).await;
        assert_eq!(broker.retained("r").is_some(), persistent);
        let subscriptions = broker.subscriptions("kept");
        assert_eq!(subscriptions.is_empty(), !persistent);
        assert!(broker.cut("kept"));
        client.expect("connected present=true").await;
        assert_eq!(broker.published().len(), 1);
    }
}

#[tokio::test]
async fn what_was_published_is_on_record_with_its_flags() {
    let broker = Broker::start();
    let client = Client::start(broker.address(), "writer").await;
    client.publish("t/1", "a", ONCE);
    client.publish("t/2", "b", ACKED.retained());
    until("both have come", async || broker.published().len() == 2).await;
    let log: Vec<_> = broker
        .published()
        .iter()
        .map(|message| (message.topic.clone(), message.text(), message.qos, message.retain))
        .collect();
    assert_eq!(
        log,
        [
            ("t/1".to_owned(), "a".to_owned(), 0, false),
            ("t/2".to_owned(), "b".to_owned(), 1, true)
        ]
    );
    assert_eq!(broker.published_to("t/2")[0].client, "writer");
    assert!(!broker.published()[0].will && !broker.published()[0].duplicate);
    broker.forget();
    assert_eq!(broker.published(), []);
}
