use super::super::listeners::{Listeners, Settings as At};
use super::super::tls::clients::{follow_file, load_file};
use super::super::tls::files::{Files, FilesError};
use super::super::tls::signed::{self, Keep, follow};
use super::peer::{Credential, ca, client, connects, get, serving, validity};
use axum::Router;
use axum::extract::Extension;
use axum::routing::get as route;
use evenkeel_net::pki::{Ca, Validity};
use evenkeel_net::serve::{PeerIdentity, ServerTls};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, api_server, eventually, until};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use rcgen::{CertificateSigningRequestParams, Issuer, KeyPair};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

const DEADLINE: Duration = Duration::from_secs(20);
const OFTEN: Duration = Duration::from_millis(20);

/// A listener that tells whether it knows its client; closed when the guard is dropped.
fn listener(tls: &ServerTls) -> (SocketAddr, DropGuard) {
    let known =
        |Extension(peer): Extension<PeerIdentity>| async move { peer.certificate.is_some().to_string() };
    let at = At {
        address: "127.0.0.1".parse().unwrap(),
        first_port: 0,
    };
    let shutdown = CancellationToken::new();
    let listeners = Listeners::new(
        at,
        tls.clone(),
        Router::new().route("/known", route(known)),
        shutdown.clone(),
    );
    (listeners.open("n").unwrap(), shutdown.drop_guard())
}

fn write(files: &Files, ca: &Ca) {
    let identity = serving(ca);
    std::fs::write(&files.certificate, identity.certificate_pem).unwrap();
    std::fs::write(&files.key, identity.key_pem).unwrap();
}

#[tokio::test]
async fn files_are_read_again_and_half_a_pair_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let files = Files {
        certificate: home.path().join("tls.crt"),
        key: home.path().join("tls.key"),
    };
    let (old, new) = (ca("old"), ca("new"));
    let tls = ServerTls::without_certificate().unwrap();
    let (address, _open) = listener(&tls);
    let missing = files.load(&tls).await.unwrap_err();
    assert!(matches!(missing, FilesError::Read(_)), "{missing}");
    assert!(missing.to_string().contains("tls.crt"), "{missing}");

    write(&files, &old);
    let served = files.load(&tls).await.unwrap();
    assert!(connects(address, &old).await);

    // The certificate is new, its key not yet.
    let half = serving(&new);
    std::fs::write(&files.certificate, &half.certificate_pem).unwrap();
    let error = files.load(&tls).await.unwrap_err().to_string();
    assert!(error.contains("tls.crt") && error.contains("tls.key"), "{error}");
    assert!(connects(address, &old).await);

    let shutdown = CancellationToken::new();
    let following = tokio::spawn(files.clone().follow(tls.clone(), served, OFTEN, shutdown.clone()));
    std::fs::write(&files.key, &half.key_pem).unwrap();
    until("the new certificate is served", async || {
        connects(address, &new).await
    })
    .await;
    assert!(!connects(address, &old).await);
    shutdown.cancel();
    following.await.unwrap();
}

#[tokio::test]
async fn the_authority_of_clients_is_read_again_and_nonsense_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("clients.crt");
    let (server, old, new) = (ca("serving"), ca("old"), ca("new"));
    let tls = ServerTls::new(&serving(&server), None).unwrap();
    let (address, _open) = listener(&tls);
    let known = async |ca: &Ca| {
        let identity = ca.issue_client("jane", &[], validity()).unwrap();
        let client = client(address, &server, Credential::Certificate(identity)).await;
        super::peer::text(&client, "/known").await
    };
    assert_eq!(known(&old).await.as_deref(), Some("false"));
    std::fs::write(&path, old.certificate_pem()).unwrap();
    let trusted = load_file(&path, &tls).await.unwrap();
    assert_eq!(known(&old).await.as_deref(), Some("true"));
    std::fs::write(&path, "nonsense").unwrap();
    let error = load_file(&path, &tls).await.unwrap_err().to_string();
    assert!(error.contains("clients.crt"), "{error}");
    assert_eq!(known(&old).await.as_deref(), Some("true"));

    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follow_file(path.clone(), tls, trusted, OFTEN, shutdown.clone()));
    std::fs::write(&path, new.certificate_pem()).unwrap();
    until("the new authority is trusted", async || {
        known(&new).await.as_deref() == Some("true")
    })
    .await;
    // A certificate that nobody vouches for any more ends in the handshake.
    assert_eq!(known(&old).await, None);
    shutdown.cancel();
    following.await.unwrap();
}

/// A process whose certificate the cluster signs, and the one who approves and signs.
struct Signing {
    api: ApiServer,
    tls: ServerTls,
    address: SocketAddr,
    addresses: watch::Sender<BTreeSet<IpAddr>>,
    shutdown: CancellationToken,
    _open: DropGuard,
}

impl Signing {
    fn start(api: ApiServer, keep: Option<Keep>, addresses: &[&str]) -> Self {
        let tls = ServerTls::without_certificate().unwrap();
        let (address, open) = listener(&tls);
        let (addresses, receiver) = watch::channel(set(addresses));
        let shutdown = CancellationToken::new();
        let settings = signed::Settings {
            keep,
            poll: OFTEN,
            back_off: OFTEN,
            ..signed::Settings::new("vnode-0")
        };
        tokio::spawn(follow(
            settings,
            api.client(),
            tls.clone(),
            receiver,
            shutdown.clone(),
        ));
        Self {
            api,
            tls,
            address,
            addresses,
            shutdown,
            _open: open,
        }
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.api.client())
    }

    async fn list(&self) -> Vec<CertificateSigningRequest> {
        let mut list = self.requests().list(&ListParams::default()).await.unwrap().items;
        list.sort_by_key(|request| {
            let version = request.metadata.resource_version.clone().unwrap_or_default();
            version.parse::<u64>().unwrap()
        });
        list
    }

    /// The newest request without an answer, once there are `count`.
    async fn pending(&self, count: usize) -> CertificateSigningRequest {
        eventually("a request", DEADLINE, || async {
            let list = self.list().await;
            let open = |request: &CertificateSigningRequest| {
                request
                    .status
                    .as_ref()
                    .is_none_or(|status| status.certificate.is_none() && status.conditions.is_none())
            };
            (list.len() >= count)
                .then(|| list.into_iter().rev().find(open))
                .flatten()
        })
        .await
    }

    async fn status(&self, request: &CertificateSigningRequest, status: serde_json::Value) {
        let name = request.metadata.name.as_deref().unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        self.requests()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Signs with the API server's own authority.
    async fn sign(&self, request: &CertificateSigningRequest, validity: Validity) {
        use base64::Engine as _;
        let pem = std::str::from_utf8(&request.spec.request.0).unwrap();
        let mut params = CertificateSigningRequestParams::from_pem(pem).unwrap();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.params.not_before = epoch + Duration::from_secs(validity.from.unsigned_abs());
        params.params.not_after = epoch + Duration::from_secs(validity.until.unsigned_abs());
        let ca = self.api.ca();
        let key = KeyPair::from_pem(ca.key_pem()).unwrap();
        let issuer = Issuer::from_ca_cert_pem(ca.certificate_pem(), key).unwrap();
        let certificate = params.signed_by(&issuer).unwrap().pem();
        let certificate = base64::engine::general_purpose::STANDARD.encode(certificate);
        self.status(request, json!({"certificate": certificate})).await;
    }

    async fn served(&self) {
        until("the certificate is served", async || {
            connects(self.address, self.api.ca()).await
        })
        .await;
    }
}

fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
    addresses.iter().map(|address| address.parse().unwrap()).collect()
}

#[tokio::test]
async fn the_request_is_what_the_signer_wants_and_its_certificate_is_served_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("kubelet.pem");
    let signing = Signing::start(api_server(), Some(Keep::File(file.clone())), &[]);
    // Without an address there is nothing to ask for, so this is the first.
    signing.addresses.send_replace(set(&["127.0.0.1", "::1"]));
    let request = signing.pending(1).await;
    assert_eq!(request.spec.signer_name, "kubernetes.io/kubelet-serving");
    let usages = request.spec.usages.clone().unwrap();
    assert_eq!(usages, ["digital signature", "server auth"]);
    let (_, pem) = x509_parser::pem::parse_x509_pem(&request.spec.request.0).unwrap();
    assert_eq!(pem.label, "CERTIFICATE REQUEST");
    let (_, csr) = X509CertificationRequest::from_der(&pem.contents).unwrap();
    let subject = &csr.certification_request_info.subject;
    let names: Vec<_> = subject
        .iter_common_name()
        .map(|name| name.as_str().unwrap())
        .collect();
    let organisations: Vec<_> = subject
        .iter_organization()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(
        (names, organisations),
        (vec!["system:node:vnode-0"], vec!["system:nodes"])
    );

    assert!(!connects(signing.address, signing.api.ca()).await);
    signing.sign(&request, validity()).await;
    signing.served().await;
    let kept = eventually("it is kept", DEADLINE, || async {
        std::fs::read_to_string(&file).ok()
    })
    .await;
    assert!(kept.contains("PRIVATE KEY") && kept.contains("BEGIN CERTIFICATE"));
    signing.shutdown.cancel();

    // The next process serves with it at once.
    let next = Signing::start(signing.api.clone(), Some(Keep::File(file)), &["127.0.0.1"]);
    next.served().await;
    assert_eq!(next.list().await.len(), 1);
    next.shutdown.cancel();
}

fn secrets(api: &ApiServer) -> Api<Secret> {
    Api::namespaced(api.client(), "default")
}

fn in_a_secret() -> Keep {
    Keep::Secret {
        namespace: "default".to_owned(),
        name: "serving".to_owned(),
    }
}

/// Keys of the Secret, once they are these.
async fn keys(api: &ApiServer, expected: &[&str]) {
    eventually("the entries of the Secret", DEADLINE, || async {
        let data = secrets(api).get_opt("serving").await.unwrap()?.data?;
        data.keys().eq(expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_secret_keeps_certificates_of_several_processes_and_their_next_lives_ask_for_none() {
    let api = api_server();
    // Whose certificate is over; and what is nobody's certificate.
    let old = Validity {
        from: validity().from - 7_200,
        until: validity().from - 3_600,
    };
    let over = api.ca().issue_client("old", &[], old).unwrap();
    let over = format!("{}{}", over.certificate_pem, over.key_pem);
    let data = [
        ("10.0.0.9.pem".to_owned(), ByteString(over.into_bytes())),
        ("note".to_owned(), ByteString(b"mine".to_vec())),
        ("odd.pem".to_owned(), ByteString(b"nonsense".to_vec())),
    ];
    let mut secret = Secret {
        data: Some(data.into()),
        ..Secret::default()
    };
    secret.metadata.name = Some("serving".to_owned());
    secrets(&api).add(&secret).await;

    let first = Signing::start(api.clone(), Some(in_a_secret()), &["127.0.0.1"]);
    first.sign(&first.pending(1).await, validity()).await;
    keys(&api, &["127.0.0.1.pem", "note", "odd.pem"]).await;
    let both = ["127.0.0.1", "::1"];
    let second = Signing::start(api.clone(), Some(in_a_secret()), &both);
    // It serves with the other's until it has its own, for an API server that does not verify names.
    second.served().await;
    second.sign(&second.pending(2).await, validity()).await;
    keys(&api, &["127.0.0.1.pem", "127.0.0.1_--1.pem", "note", "odd.pem"]).await;
    first.shutdown.cancel();
    second.shutdown.cancel();

    for (addresses, count) in [(&both[..1], 3), (&both[..], 4)] {
        let next = Signing::start(api.clone(), Some(in_a_secret()), addresses);
        next.served().await;
        // The next request is for another address, so that there was none before.
        next.addresses
            .send_if_modified(|addresses| addresses.insert([127, 0, 0, 7].into()));
        next.pending(count).await;
        assert_eq!(next.list().await.len(), count);
        next.shutdown.cancel();
    }
}

#[tokio::test]
async fn a_secret_that_is_missing_is_made_and_one_that_may_not_be_written_is_done_without() {
    let made = Signing::start(api_server(), Some(in_a_secret()), &["127.0.0.1"]);
    made.sign(&made.pending(1).await, validity()).await;
    keys(&made.api, &["127.0.0.1.pem"]).await;
    made.shutdown.cancel();

    // No such namespace: nothing can be kept there.
    let nowhere = Keep::Secret {
        namespace: "nowhere".to_owned(),
        name: "serving".to_owned(),
    };
    let without = Signing::start(api_server(), Some(nowhere), &["127.0.0.1"]);
    without.sign(&without.pending(1).await, validity()).await;
    without.served().await;
    // It goes on all the same.
    without.addresses.send_replace(set(&["127.0.0.2"]));
    without.pending(2).await;
    without.shutdown.cancel();
}

#[tokio::test]
async fn a_new_address_is_asked_for_while_the_old_certificate_serves() {
    let signing = Signing::start(api_server(), None, &["127.0.0.1"]);
    let first = signing.pending(1).await;
    signing.sign(&first, validity()).await;
    signing.served().await;
    signing.addresses.send_replace(set(&["127.0.0.1", "127.0.0.2"]));
    let second = signing.pending(2).await;
    assert_ne!(first.metadata.name, second.metadata.name);
    assert!(connects(signing.address, signing.api.ca()).await);
    signing.sign(&second, validity()).await;
    // One address less is no reason to ask; one more is, so that the third request shows that there was none
    // between.
    signing.addresses.send_replace(set(&["127.0.0.2"]));
    signing.addresses.send_replace(set(&["127.0.0.2", "127.0.0.3"]));
    signing.pending(3).await;
    assert_eq!(signing.list().await.len(), 3);
    signing.shutdown.cancel();
}

#[tokio::test]
async fn a_denied_request_is_made_again() {
    let signing = Signing::start(api_server(), None, &["127.0.0.1"]);
    // Who denies writes the approval, a signer that fails the status.
    for (number, condition, subresource) in [(1, "Denied", "approval"), (2, "Failed", "status")] {
        let refused = signing.pending(number).await;
        let name = refused.metadata.name.as_deref().unwrap();
        let condition = json!({"type": condition, "status": "True", "reason": "Test", "message": "no"});
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let (requests, params) = (signing.requests(), PatchParams::default());
        requests
            .patch_subresource(subresource, name, &params, &patch)
            .await
            .unwrap();
    }
    let third = signing.pending(3).await;
    signing.sign(&third, validity()).await;
    signing.served().await;
    signing.shutdown.cancel();
}

#[tokio::test]
async fn a_certificate_is_renewed_before_its_end_and_one_for_another_key_is_refused() {
    let signing = Signing::start(api_server(), None, &["127.0.0.1"]);
    let first = signing.pending(1).await;
    // Nine tenths and more of its life are over already.
    let now = validity().from + 3_600;
    let nearly_over = Validity {
        from: now - 1_000,
        until: now + 60,
    };
    signing.sign(&first, nearly_over).await;
    signing.served().await;
    let second = signing.pending(2).await;
    // Somebody else's certificate: it is not served with, and asked for again.
    use base64::Engine as _;
    let foreign = serving(signing.api.ca()).certificate_pem;
    let foreign = base64::engine::general_purpose::STANDARD.encode(foreign);
    signing.status(&second, json!({"certificate": foreign})).await;
    let third = signing.pending(3).await;
    assert!(connects(signing.address, signing.api.ca()).await);
    signing.sign(&third, validity()).await;
    signing.served().await;
    assert!(format!("{:?}", signing.tls).contains("has_certificate: true"));
    let client = client(signing.address, signing.api.ca(), Credential::Nothing).await;
    assert!(get(&client, "/known").await.is_some());
    signing.shutdown.cancel();
}
