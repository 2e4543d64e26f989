//! Who may connect, and to whom.

use super::broker::{Broker, Manners};
use super::{Controller, SECONDS, options};
use evenkeel_arklet::mqtt::{Credentials, MqttOptions, Password, TlsFiles};
use evenkeel_net::pki::{Ca, Identity, ServerNames, Validity};
use evenkeel_testkit::mqtt::{Mosquitto, MosquittoSetup, MosquittoTls};
use evenkeel_testkit::{skipped, until_within};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Until 2100.
const VALID: Validity = Validity {
    from: 0,
    until: 4_102_444_800,
};

struct Authority {
    ca: Ca,
    server: Identity,
    client: Identity,
}

impl Authority {
    fn new() -> Self {
        evenkeel_net::init_crypto();
        let ca = Ca::new("brokers", VALID).unwrap();
        let names = ServerNames {
            dns: vec![],
            ips: vec!["127.0.0.1".parse().unwrap()],
        };
        let server = ca.issue_server("broker", &names, VALID).unwrap();
        let client = ca.issue_client("controller", &[], VALID).unwrap();
        Self { ca, server, client }
    }

    /// Wants a certificate of the client's.
    fn config(&self) -> rustls::ServerConfig {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.ca.certificate_pem().as_bytes()).unwrap())
            .unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let chain = vec![CertificateDer::from_pem_slice(self.server.certificate_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.server.key_pem.as_bytes()).unwrap();
        rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap()
    }

    /// Options of a client that has the files of this authority.
    fn client(&self, broker: SocketAddr, directory: &Path) -> MqttOptions {
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut options = options(broker);
        options.tls = Some(TlsFiles {
            ca: write("ca.pem", self.ca.certificate_pem()),
            identity: Some((
                write("client.pem", &self.client.certificate_pem),
                write("client.key", &self.client.key_pem),
            )),
        });
        options
    }
}

/// Tries a few times and does not get in.
async fn is_kept_out(controller: &Controller) {
    until_within("attempts that fail", SECONDS, async || {
        controller.tunnel.counts().disconnects >= 3
    })
    .await;
    assert!(!*controller.tunnel.connected().borrow());
}

async fn only_verified_brokers_are_spoken_to(broker: SocketAddr, authority: &Authority) {
    let directory = tempfile::tempdir().unwrap();
    let known = authority.client(broker, directory.path());
    Controller::start(known.clone()).until(true).await;

    let mut plain = known.clone();
    plain.tls = None;
    is_kept_out(&Controller::start(plain)).await;

    let mut nameless = known.clone();
    nameless.tls.as_mut().unwrap().identity = None;
    is_kept_out(&Controller::start(nameless)).await;

    // The certificate is for the address, not for this name.
    let renamed = MqttOptions {
        host: "localhost".to_owned(),
        ..known.clone()
    };
    is_kept_out(&Controller::start(renamed)).await;

    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = Authority::new().client(broker, elsewhere.path());
    let controller = Controller::start(stranger);
    is_kept_out(&controller).await;
    // Files are read again for every connection.
    authority.client(broker, elsewhere.path());
    controller.until(true).await;
}

#[tokio::test]
async fn only_verified_brokers_are_spoken_to_over_tls() {
    let authority = Authority::new();
    let broker = Broker::start(Manners {
        tls: Some(Arc::new(authority.config())),
        ..Manners::default()
    })
    .await;
    only_verified_brokers_are_spoken_to(broker.address, &authority).await;
}

#[tokio::test]
async fn only_verified_mosquittos_are_spoken_to_over_tls() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let tls = MosquittoTls {
        certificate: file("server.pem", &authority.server.certificate_pem),
        key: file("server.key", &authority.server.key_pem),
        client_authority: Some(file("ca.pem", authority.ca.certificate_pem())),
    };
    let setup = MosquittoSetup {
        tls: Some(tls),
        ..MosquittoSetup::default()
    };
    let Some(broker) = Mosquitto::start(&setup) else {
        return skipped("only_verified_mosquittos_are_spoken_to_over_tls", "no mosquitto");
    };
    only_verified_brokers_are_spoken_to(broker.address(), &authority).await;
}

#[tokio::test]
async fn a_password_is_read_again_for_every_connection() {
    let broker = Broker::start(Manners {
        credentials: Some(("controller".to_owned(), "right".to_owned())),
        ..Manners::default()
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    is_kept_out(&Controller::start(options(broker.address))).await;
    let mut with = options(broker.address);
    with.credentials = Some(Credentials {
        username: "controller".to_owned(),
        password: Some(Password::File(file.clone())),
    });
    let controller = Controller::start(with);
    is_kept_out(&controller).await;
    std::fs::write(&file, "right\n").unwrap();
    controller.until(true).await;
}

/// As the released controller connects with its own settings.
#[tokio::test]
async fn a_user_without_a_password_sends_none() {
    let user = "test-username";
    let broker = Broker::start(Manners {
        credentials: Some((user.to_owned(), String::new())),
        ..Manners::default()
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "\n").unwrap();
    let with = |broker: SocketAddr, password: Option<Password>| {
        let mut options = options(broker);
        options.credentials = Some(Credentials {
            username: user.to_owned(),
            password,
        });
        Controller::start(options)
    };
    let empty = [
        None,
        Some(Password::Text(String::new())),
        Some(Password::File(file)),
    ];
    for password in empty.clone() {
        with(broker.address, password).until(true).await;
    }
    is_kept_out(&with(broker.address, Some(Password::Text("x".to_owned())))).await;

    let Some(mosquitto) = Mosquitto::start(&MosquittoSetup::default()) else {
        return skipped("a_user_without_a_password_sends_none", "no mosquitto");
    };
    for password in empty {
        with(mosquitto.address(), password).until(true).await;
    }
    let known = mosquitto.log().matches("u'test-username'").count();
    assert_eq!(known, 3, "{}", mosquitto.log());
}
