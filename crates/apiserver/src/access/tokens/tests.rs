use super::*;
use crate::access::testing::Objects;
use crate::request::{Reader, UserInfo};
use jiff::Timestamp;
use rstest::rstest;

impl TokenIssuer {
    /// The user of a token for this server.
    fn verify(&self, token: &str, reader: &dyn Reader, now: Timestamp) -> Result<UserInfo, TokenError> {
        let audiences = API_AUDIENCES.map(str::to_owned);
        self.verify_for(token, &audiences, reader, now)
            .map(|verified| verified.user)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn world() -> Objects {
    let object = |name: &str, namespace: &str, uid: &str| json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}});
    let mut pod = object("p", "ns", "pod-uid");
    pod["spec"] = json!({"serviceAccountName": "robot", "nodeName": "n1"});
    Objects::with([
        ("", "serviceaccounts", object("robot", "ns", "sa-uid")),
        ("", "nodes", object("n1", "", "node-uid")),
        ("", "secrets", object("s", "ns", "secret-uid")),
        ("", "pods", pod),
    ])
}

fn request(
    issuer: &TokenIssuer,
    world: &Objects,
    spec: Value,
) -> Result<String, evenkeel_kube_rules::status::ApiError> {
    let answer = issuer.token_request("ns", "robot", &json!({"spec": spec}), world, at(1_000_000))?;
    Ok(answer["status"]["token"].as_str().unwrap().to_owned())
}

fn bound(kind: &str, name: &str) -> Value {
    json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}})
}

#[test]
fn a_token_stands_for_its_account() {
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, json!({})).unwrap();
    let user = issuer.verify(&token, &world, at(1_000_001)).unwrap();
    assert_eq!(user.name, "system:serviceaccount:ns:robot");
    assert_eq!(user.uid, "sa-uid");
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:ns"]
    );
}

#[test]
fn a_pods_token_names_its_node() {
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, bound("Pod", "p")).unwrap();
    let extra = issuer.verify(&token, &world, at(1_000_001)).unwrap().extra;
    for (key, value) in [
        ("node-name", "n1"),
        ("node-uid", "node-uid"),
        ("pod-name", "p"),
        ("pod-uid", "pod-uid"),
    ] {
        assert_eq!(
            extra[&format!("authentication.kubernetes.io/{key}")],
            [value],
            "{key}"
        );
    }
}

#[rstest]
#[case::in_time(1_000_000 + 3600, None)]
#[case::within_the_leeway(1_000_000 + 3660, None)]
#[case::expired(1_000_000 + 3661, Some(TokenError::Expired))]
#[case::not_yet(1_000_000 - 61, Some(TokenError::NotYet))]
fn time_decides(#[case] now: i64, #[case] expected: Option<TokenError>) {
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, json!({"expirationSeconds": 3600})).unwrap();
    assert_eq!(issuer.verify(&token, &world, at(now)).err(), expected);
}

#[test]
fn a_token_for_somebody_else_is_refused() {
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, json!({"audiences": ["vault"]})).unwrap();
    assert!(matches!(
        issuer.verify(&token, &world, at(1_000_001)),
        Err(TokenError::Audience { .. })
    ));
    let for_vault = issuer
        .verify_for(
            &token,
            &["vault".to_owned(), "other".to_owned()],
            &world,
            at(1_000_001),
        )
        .unwrap();
    assert_eq!(for_vault.audiences, ["vault"]);
}

#[rstest]
#[case::account("serviceaccounts", "ns", "robot", json!({}))]
#[case::pod("pods", "ns", "p", bound("Pod", "p"))]
#[case::secret("secrets", "ns", "s", bound("Secret", "s"))]
#[case::node("nodes", "", "n1", bound("Node", "n1"))]
fn a_token_dies_with_what_it_is_bound_to(
    #[case] resource: &str,
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] spec: Value,
) {
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, spec).unwrap();
    assert!(issuer.verify(&token, &world, at(1_000_001)).is_ok());

    let mut again = (*crate::request::Reader::get(&world, "", resource, namespace, name).unwrap()).clone();
    again["metadata"]["uid"] = json!("another");
    world.put("", resource, again);
    assert_eq!(
        issuer.verify(&token, &world, at(1_000_001)),
        Err(TokenError::Invalidated),
        "made anew"
    );

    world.remove("", resource, namespace, name);
    assert_eq!(
        issuer.verify(&token, &world, at(1_000_001)),
        Err(TokenError::Invalidated),
        "gone"
    );
}

#[test]
fn the_node_of_a_bound_pod_may_go() {
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, bound("Pod", "p")).unwrap();
    world.remove("", "nodes", "", "n1");
    assert!(issuer.verify(&token, &world, at(1_000_001)).is_ok());
}

#[test]
fn forged_tokens_are_refused() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, json!({})).unwrap();
    let parts: Vec<&str> = token.split('.').collect();

    let mut claims: Value = serde_json::from_slice(&BASE64URL.decode(parts[1]).unwrap()).unwrap();
    claims["sub"] = json!("system:serviceaccount:kube-system:admin");
    let changed = BASE64URL.encode(claims.to_string());
    let unsigned = BASE64URL.encode(json!({"alg": "none"}).to_string());
    let stranger = request(&TokenIssuer::new().unwrap(), &world, json!({})).unwrap();
    for forged in [
        format!("{}.{changed}.{}", parts[0], parts[2]),
        format!("{unsigned}.{}.", parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        stranger,
        "..".to_owned(),
        String::new(),
    ] {
        assert_eq!(
            issuer.verify(&forged, &world, at(1_000_001)),
            Err(TokenError::Foreign),
            "{forged}"
        );
    }
}

#[rstest]
#[case::too_short(json!({"expirationSeconds": 599}), 422)]
#[case::too_long(json!({"expirationSeconds": (1_i64 << 32) + 1}), 422)]
#[case::no_such_pod(bound("Pod", "none"), 404)]
#[case::a_kind_that_cannot_bind(bound("ConfigMap", "c"), 400)]
#[case::another_uid(json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "x"}}), 409)]
fn requests_are_checked(#[case] spec: Value, #[case] code: u16) {
    let error = request(&TokenIssuer::new().unwrap(), &world(), spec).unwrap_err();
    assert_eq!(error.code, code, "{error}");
}

#[test]
fn the_published_key_is_the_one_that_signs() {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
    let (issuer, world) = (TokenIssuer::new().unwrap(), world());
    let token = request(&issuer, &world, json!({})).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let jwks = issuer.jwks();
    let key = &jwks["keys"][0];
    let mut point = vec![4];
    for coordinate in ["x", "y"] {
        point.extend(BASE64URL.decode(key[coordinate].as_str().unwrap()).unwrap());
    }
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(signed.as_bytes(), &BASE64URL.decode(signature).unwrap())
        .unwrap();
}
