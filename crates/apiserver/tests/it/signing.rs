//! Certificates for those who ask.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_net::pki::ServerNames;
use evenkeel_testkit::{kubectl, skipped};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use x509_parser::prelude::{FromDer, X509Certificate};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

fn server(approve_kubelet_serving: bool) -> ApiServer {
    evenkeel_net::init_crypto();
    let options = Options {
        approve_kubelet_serving,
        ..Options::default()
    };
    ApiServer::new(options).expect("a server without sockets needs nothing")
}

/// A request for a certificate of that name and group, with a new key.
fn pem(common_name: &str, group: &str, ips: &[Ipv4Addr]) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.subject_alt_names = ips.iter().map(|ip| SanType::IpAddress(IpAddr::V4(*ip))).collect();
    let request = params.serialize_request(&key).expect("a request");
    STANDARD.encode(request.pem().expect("PEM"))
}

fn request(name: &str, signer: &str, pem: &str, purpose: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": pem, "signerName": signer, "usages": ["digital signature", purpose]}})
}

async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, (u16, String)> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .body(body)
        .expect("a request");
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(other) => unreachable!("in the process every answer is the server's: {other}"),
    }
}

async fn create(client: &kube::Client, object: &Value) -> Result<Value, (u16, String)> {
    send(client, "POST", REQUESTS, object).await
}

async fn get(client: &kube::Client, name: &str) -> Value {
    send(client, "GET", &format!("{REQUESTS}/{name}"), &Value::Null)
        .await
        .expect("it is there")
}

async fn approve(client: &kube::Client, name: &str, kind: &str) -> Result<Value, (u16, String)> {
    let mut object = get(client, name).await;
    object["status"]["conditions"] =
        json!([{"type": kind, "status": "True", "reason": "Test", "message": "by a test"}]);
    send(client, "PUT", &format!("{REQUESTS}/{name}/approval"), &object).await
}

fn issued(object: &Value) -> Vec<u8> {
    let pem = STANDARD
        .decode(object["status"]["certificate"].as_str().expect("a certificate"))
        .expect("base64");
    x509_parser::pem::parse_x509_pem(&pem).expect("PEM").1.contents
}

#[tokio::test]
async fn an_approved_request_gets_the_certificate_it_asked_for() {
    let server = server(false);
    let admin = server.client();
    let kubelet = server.client_as("system:node:n1", &["system:nodes"]);
    let address = Ipv4Addr::new(10, 0, 0, 7);
    let mut asked = request(
        "csr-1",
        SERVING,
        &pem("system:node:n1", "system:nodes", &[address]),
        "server auth",
    );
    asked["spec"]["expirationSeconds"] = json!(3_600);
    asked["spec"]["username"] = json!("somebody-else");
    let made = create(&kubelet, &asked).await.unwrap();
    assert_eq!(made["spec"]["username"], "system:node:n1");
    assert_eq!(
        made["spec"]["groups"],
        json!(["system:nodes", "system:authenticated"])
    );
    assert_eq!(
        get(&admin, "csr-1").await["status"],
        json!({}),
        "nobody approved it"
    );

    let approved = approve(&admin, "csr-1", "Approved").await.unwrap();
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string());
    assert!(approved["status"]["conditions"][0]["lastTransitionTime"].is_string());
    let der = issued(&get(&kubelet, "csr-1").await);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let ca = server.ca().certificate_pem().as_bytes().to_vec();
    let ca = x509_parser::pem::parse_x509_pem(&ca).unwrap().1.contents;
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    assert_eq!(certificate.issuer(), ca.subject());
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(
        certificate.subject().to_string(),
        "O=system:nodes, CN=system:node:n1"
    );
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names.len(), 1);
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth);
    assert!(!certificate.is_ca());
    let lifetime = certificate.validity().not_after.timestamp() - jiff::Timestamp::now().as_second();
    assert!((3_500..=3_600).contains(&lifetime), "{lifetime}");

    let mut changed = get(&admin, "csr-1").await;
    changed["spec"]["signerName"] = json!(CLIENT);
    changed["status"] = json!({});
    changed["metadata"]["labels"] = json!({"a": "b"});
    let written = send(&admin, "PUT", &format!("{REQUESTS}/csr-1"), &changed)
        .await
        .unwrap();
    assert_eq!(
        written["spec"]["signerName"], SERVING,
        "a request does not change"
    );
    assert!(written["status"]["certificate"].is_string());
    assert_eq!(written["metadata"]["labels"]["a"], "b");
}

/// A request with these attributes of the subject, in this order.
fn pem_of(subject: &[(DnType, &str)]) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let request = params.serialize_request(&key).expect("a request");
    STANDARD.encode(request.pem().expect("PEM"))
}

#[tokio::test]
async fn a_request_has_one_common_name_and_its_certificate_no_more_than_user_and_groups() {
    let server = server(false);
    let admin = server.client();
    let group = (DnType::OrganizationName, "system:nodes");
    let victim = pem_of(&[
        (DnType::CommonName, "victim"),
        group.clone(),
        // For rcgen another type, in the certificate the same.
        (DnType::CustomDnType(vec![2, 5, 4, 3]), "system:node:n1"),
    ]);
    let asked = request("two", KUBELET_CLIENT, &victim, "client auth");
    let (code, message) = create(&admin, &asked).await.unwrap_err();
    assert_eq!(code, 422, "{message}");
    assert!(
        message.contains("the subject has 2 common names; ask for one"),
        "{message}"
    );

    let more = pem_of(&[
        (DnType::CommonName, "system:node:n1"),
        group,
        (DnType::OrganizationalUnitName, "a unit"),
    ]);
    create(&admin, &request("one", KUBELET_CLIENT, &more, "client auth"))
        .await
        .unwrap();
    let mut object = get(&admin, "one").await;
    if object["status"]["certificate"].is_null() {
        approve(&admin, "one", "Approved").await.unwrap();
        object = get(&admin, "one").await;
    }
    let der = issued(&object);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(
        certificate.subject().to_string(),
        "O=system:nodes, CN=system:node:n1"
    );
}

#[tokio::test]
async fn what_a_signer_does_not_permit_fails_when_it_is_approved() {
    let server = server(true);
    let admin = server.client();
    let asked = request(
        "csr-1",
        SERVING,
        &pem("bob", "system:nodes", &[Ipv4Addr::LOCALHOST]),
        "server auth",
    );
    create(&admin, &asked).await.unwrap();
    assert_eq!(
        get(&admin, "csr-1").await["status"],
        json!({}),
        "not even by the server itself"
    );
    approve(&admin, "csr-1", "Approved").await.unwrap();
    let status = get(&admin, "csr-1").await["status"].clone();
    assert!(status["certificate"].is_null());
    let failed = &status["conditions"][1];
    assert_eq!(
        (&failed["type"], &failed["reason"]),
        (&json!("Failed"), &json!("SignerValidationFailure"))
    );
    assert_eq!(
        failed["message"],
        "subject common name does not begin with system:node:"
    );
    let (code, message) = approve(&admin, "csr-1", "Denied").await.unwrap_err();
    assert_eq!(code, 422, "{message}");
    assert!(
        message.contains("updates may not remove a condition of type \"Approved\""),
        "{message}"
    );
}

#[tokio::test]
async fn requests_are_validated_in_the_words_of_kubernetes() {
    let client = server(false).client();
    let good = pem("bob", "devs", &[]);
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 8] = [
        (
            |spec| spec["request"] = json!(STANDARD.encode("x")),
            "spec.request: Invalid value: \"eA==\": PEM block type must be CERTIFICATE REQUEST",
        ),
        (|spec| spec["usages"] = json!([]), "spec.usages: Required value"),
        (
            |spec| spec["usages"] = json!(["client auth", "client auth"]),
            "spec.usages[1]: Duplicate value: \"client auth\"",
        ),
        (
            |spec| spec["usages"] = json!(["flying"]),
            "spec.usages[0]: Unsupported value: \"flying\": supported values: \"any\", \"cert sign\", \"client auth\"",
        ),
        (
            |spec| spec["signerName"] = json!("mine"),
            "spec.signerName: Invalid value: \"mine\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            |spec| spec["signerName"] = json!("local/mine"),
            "spec.signerName: Invalid value: \"local\": should be a domain with at least two segments separated by dots",
        ),
        (
            |spec| spec["signerName"] = json!("kubernetes.io/legacy-unknown"),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
        ),
        (
            |spec| spec["expirationSeconds"] = json!(599),
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
    ];
    for (change, expected) in cases {
        let mut asked = request("x", CLIENT, &good, "client auth");
        change(&mut asked["spec"]);
        // Nobody but the kube-apiserver-client signer looks at the subject on creation.
        if expected.contains("PEM block") {
            asked["spec"]["signerName"] = json!("example.com/mine");
        }
        let (code, message) = create(&client, &asked).await.unwrap_err();
        assert_eq!(code, 422, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let forged = {
        let mut bytes = STANDARD.decode(&good).unwrap();
        // A letter in the signature's part of the base64 text.
        let at = bytes.len() - 60;
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        STANDARD.encode(bytes)
    };
    let asked = request("x", "example.com/mine", &forged, "client auth");
    assert_eq!(create(&client, &asked).await.unwrap_err().0, 422);
}

#[tokio::test]
async fn approving_and_signing_take_a_right_on_the_signer() {
    let server = server(false);
    let admin = server.client();
    create(
        &admin,
        &request(
            "mine",
            "example.com/mine",
            &pem("bob", "devs", &[]),
            "client auth",
        ),
    )
    .await
    .unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (name, rule) in [
        (
            "writes",
            json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"], "verbs": ["get", "update"]}),
        ),
        (
            "approves",
            json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]}),
        ),
        (
            "signs",
            json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/mine"], "verbs": ["sign"]}),
        ),
    ] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        send(&admin, "POST", &format!("{rbac}/clusterroles"), &role)
            .await
            .unwrap();
        let group = if name == "writes" { "everybody" } else { name };
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
        send(&admin, "POST", &format!("{rbac}/clusterrolebindings"), &binding)
            .await
            .unwrap();
    }
    let refusal = |verb: &str| {
        let why = format!("user not permitted to {verb} requests with signerName \"example.com/mine\"");
        (
            403,
            format!("certificatesigningrequests.certificates.k8s.io \"mine\" is forbidden: {why}"),
        )
    };
    let (approver, signer) = (
        server.client_as("a", &["everybody", "approves"]),
        server.client_as("s", &["everybody", "signs"]),
    );
    assert_eq!(
        approve(&signer, "mine", "Approved").await,
        Err(refusal("approve"))
    );
    approve(&approver, "mine", "Approved").await.unwrap();
    let mut object = get(&admin, "mine").await;
    assert!(
        object["status"]["certificate"].is_null(),
        "example.com is nobody's here"
    );
    object["status"]["certificate"] = json!(STANDARD.encode(server.ca().certificate_pem()));
    let status = format!("{REQUESTS}/mine/status");
    assert_eq!(
        send(&approver, "PUT", &status, &object).await,
        Err(refusal("sign"))
    );
    let written = send(&signer, "PUT", &status, &object).await.unwrap();
    assert_eq!(written["status"]["certificate"], object["status"]["certificate"]);

    let masters = request("root", CLIENT, &pem("bob", "system:masters", &[]), "client auth");
    let (code, message) = create(&admin, &masters).await.unwrap_err();
    assert_eq!(code, 403);
    assert!(
        message.ends_with(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn a_kubelet_is_approved_for_its_own_names_alone() {
    let server = server(true);
    let admin = server.client();
    let kubelet = server.client_as("system:node:n1", &["system:nodes"]);
    let address = Ipv4Addr::new(10, 0, 0, 7);
    let ask = |name: &str, node: &str, ips: &[Ipv4Addr]| {
        request(
            name,
            SERVING,
            &pem(&format!("system:node:{node}"), "system:nodes", ips),
            "server auth",
        )
    };
    let conditions = async |name: &str| get(&admin, name).await["status"]["conditions"].clone();
    create(&kubelet, &ask("early", "n1", &[address])).await.unwrap();
    assert_eq!(
        conditions("early").await,
        json!(null),
        "its node is not known yet"
    );
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}});
    send(&admin, "POST", "/api/v1/nodes", &node).await.unwrap();
    let early = get(&admin, "early").await;
    assert_eq!(early["status"]["conditions"][0]["reason"], "AutoApproved");
    issued(&early);
    create(
        &kubelet,
        &ask("other-address", "n1", &[address, Ipv4Addr::new(10, 0, 0, 8)]),
    )
    .await
    .unwrap();
    assert_eq!(conditions("other-address").await, json!(null));
    create(&kubelet, &ask("other-node", "n2", &[address]))
        .await
        .unwrap();
    assert_eq!(conditions("other-node").await, json!(null));
    create(&admin, &ask("by-admin", "n2", &[address])).await.unwrap();
    issued(&get(&admin, "by-admin").await);

    let client = request(
        "client",
        KUBELET_CLIENT,
        &pem("system:node:n1", "system:nodes", &[]),
        "client auth",
    );
    create(&kubelet, &client).await.unwrap();
    assert_eq!(
        conditions("client").await,
        json!(null),
        "no role says that nodes may renew"
    );
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "renew"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
    send(
        &admin,
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &binding,
    )
    .await
    .unwrap();
    let again = request(
        "again",
        KUBELET_CLIENT,
        &pem("system:node:n1", "system:nodes", &[]),
        "client auth",
    );
    create(&kubelet, &again).await.unwrap();
    issued(&get(&admin, "again").await);
}

#[tokio::test]
async fn a_node_that_claims_what_is_not_its_own_alone_waits_for_an_administrator() {
    let server = server(true);
    let admin = server.client();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let own = Ipv4Addr::new(192, 0, 2, 1);
    let names = ServerNames {
        dns: Vec::new(),
        ips: vec![IpAddr::V4(own)],
    };
    let mut serving = Box::pin(server.serve(listener, &names, stop));
    assert!(futures::poll!(&mut serving).is_pending(), "it serves");
    let service = Ipv4Addr::new(10, 96, 0, 1);
    let shared = Ipv4Addr::new(10, 0, 0, 9);
    let mine = Ipv4Addr::new(10, 0, 0, 7);
    let node = |name: &str, addresses: &[Ipv4Addr]| {
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address.to_string()}))
            .collect();
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": addresses}})
    };
    let all = [own, service, Ipv4Addr::LOCALHOST, shared, mine];
    for node in [node("n1", &all), node("n2", &[shared])] {
        send(&admin, "POST", "/api/v1/nodes", &node).await.unwrap();
    }
    let kubelet = server.client_as("system:node:n1", &["system:nodes"]);
    for (name, address, approved) in [
        ("own", own, false),
        ("service", service, false),
        ("loopback", Ipv4Addr::LOCALHOST, false),
        ("shared", shared, false),
        ("mine", mine, true),
    ] {
        let pem = pem("system:node:n1", "system:nodes", &[address]);
        create(&kubelet, &request(name, SERVING, &pem, "server auth"))
            .await
            .unwrap();
        let conditions = &get(&admin, name).await["status"]["conditions"];
        assert_eq!(conditions.is_array(), approved, "{name}: {conditions}");
    }
}

#[tokio::test]
async fn a_right_on_the_signer_alone_approves_nothing() {
    let server = server(true);
    let admin = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let group = "certificates.k8s.io";
    for (name, rule) in [
        (
            "approves",
            json!({"apiGroups": [group], "resources": ["signers"], "resourceNames": [SERVING], "verbs": ["approve"]}),
        ),
        (
            "writes",
            json!({"apiGroups": [group], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]}),
        ),
        (
            "asks",
            json!({"apiGroups": [group], "resources": ["certificatesigningrequests"], "verbs": ["create"]}),
        ),
    ] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        send(&admin, "POST", &format!("{rbac}/clusterroles"), &role)
            .await
            .unwrap();
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}]});
        send(&admin, "POST", &format!("{rbac}/clusterrolebindings"), &binding)
            .await
            .unwrap();
    }
    for (name, groups, approved) in [
        ("signer-alone", &["asks", "approves"][..], false),
        ("approval-alone", &["asks", "writes"], false),
        ("both", &["asks", "approves", "writes"], true),
    ] {
        let pem = pem("system:node:n1", "system:nodes", &[Ipv4Addr::LOCALHOST]);
        let client = server.client_as("fleet", groups);
        create(&client, &request(name, SERVING, &pem, "server auth"))
            .await
            .unwrap();
        let conditions = &get(&admin, name).await["status"]["conditions"];
        assert_eq!(conditions.is_array(), approved, "{name}: {conditions}");
    }
}

#[tokio::test]
async fn kubectl_approves_and_shows_requests() {
    let Some(kubectl) = kubectl() else {
        skipped("kubectl_approves_and_shows_requests", "kubectl is not installed");
        return;
    };
    let server = server(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener, &ServerNames::default(), stop).await }
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    std::fs::write(
        &file,
        server.kubeconfig(&url, "admin", &["system:masters"]).unwrap(),
    )
    .unwrap();
    let run = async |arguments: &[&str]| {
        let output = tokio::process::Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&file)
            .arg("--cache-dir")
            .arg(dir.path().join("cache"))
            .args(arguments)
            .output()
            .await
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let mut asked = request("jane", CLIENT, &pem("jane", "devs", &[]), "client auth");
    asked["spec"]["expirationSeconds"] = json!(86_400);
    create(&server.client(), &asked).await.unwrap();
    create(
        &server.client(),
        &request("joe", CLIENT, &pem("joe", "devs", &[]), "client auth"),
    )
    .await
    .unwrap();
    run(&["certificate", "approve", "jane"]).await;
    run(&["certificate", "deny", "joe"]).await;
    let table = run(&["get", "csr", "--no-headers"]).await;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let shown = |row: &Vec<&str>| -> Vec<String> { [0, 2, 3, 4, 5].map(|at| row[at].to_owned()).to_vec() };
    assert_eq!(
        shown(&rows[0]),
        ["jane", CLIENT, "kubernetes-admin", "24h", "Approved,Issued"]
    );
    assert_eq!(
        shown(&rows[1]),
        ["joe", CLIENT, "kubernetes-admin", "<none>", "Denied"]
    );
    let header = run(&["get", "csr"]).await;
    let header: Vec<&str> = header.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        header,
        [
            "NAME",
            "AGE",
            "SIGNERNAME",
            "REQUESTOR",
            "REQUESTEDDURATION",
            "CONDITION"
        ]
    );
}
