//! What the `kubernetes.io` signers permit, usages, lifetimes, when a request is old.

use evenkeel_kube_rules::csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, Request};
use evenkeel_net::pki::{ExtendedKeyUsagePurpose as Extended, KeyUsagePurpose as Usage, Validity};
use jiff::Timestamp;
use serde_json::Value;

/// Longest lifetime of a certificate, in seconds; kube-controller-manager's default.
const LONGEST_LIFETIME: i64 = 365 * 24 * 3_600;
/// Shortest lifetime of a certificate, in seconds.
const SHORTEST_LIFETIME: i64 = 600;
/// A certificate is valid from a little earlier, for clocks that are late.
const BACKDATE: i64 = 300;
/// Lifetimes below this are not shortened by that.
const SHORT: i64 = 8 * 3_600;

/// Usages of a request's spec.
pub(crate) fn usages(spec: &Value) -> Vec<&str> {
    spec["usages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether the signer knows that name, and what forbids this request there.
pub(crate) fn permitted(signer: &str, request: &Request, usages: &[&str]) -> Option<Result<(), String>> {
    Some(match signer {
        KUBELET_SERVING => kubelet_serving(request, usages),
        KUBELET_CLIENT => kubelet_client(request, usages),
        CLIENT => client(usages),
        LEGACY => Ok(()),
        _ => return None,
    })
}

fn kubelet_serving(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    if request.names.dns.is_empty() && request.names.ips.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if !request.emails.is_empty() {
        return Err("Email subjectAltNames are not allowed".to_owned());
    }
    if !request.uris.is_empty() {
        return Err("URI subjectAltNames are not allowed".to_owned());
    }
    exactly(usages, "server auth")?;
    named_as_node(request)
}

fn kubelet_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    for (some, kind) in [
        (!request.names.dns.is_empty(), "DNS"),
        (!request.emails.is_empty(), "Email"),
        (!request.names.ips.is_empty(), "IP"),
        (!request.uris.is_empty(), "URI"),
    ] {
        if some {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    exactly(usages, "client auth")?;
    named_as_node(request)
}

fn of_nodes(request: &Request) -> Result<(), String> {
    if request.organizations == ["system:nodes"] {
        Ok(())
    } else {
        Err("subject organization is not system:nodes".to_owned())
    }
}

fn named_as_node(request: &Request) -> Result<(), String> {
    if request.common_name.starts_with("system:node:") {
        Ok(())
    } else {
        Err("subject common name does not begin with system:node:".to_owned())
    }
}

/// The purpose with a digital signature, and key encipherment or not: only RSA keys need it.
fn exactly(usages: &[&str], purpose: &str) -> Result<(), String> {
    let mut found = usages.to_vec();
    found.sort_unstable();
    found.dedup();
    let mut wanted = ["digital signature", "key encipherment", purpose];
    wanted.sort_unstable();
    let without: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|usage| *usage != "key encipherment")
        .collect();
    if found == wanted || found == without {
        Ok(())
    } else {
        Err(format!("usages did not match [{}]", wanted.join(" ")))
    }
}

fn client(usages: &[&str]) -> Result<(), String> {
    for usage in usages {
        if !matches!(*usage, "digital signature" | "key encipherment" | "client auth") {
            return Err(format!("invalid usage for client certificate: {usage}"));
        }
    }
    if usages.contains(&"client auth") {
        Ok(())
    } else {
        Err("missing required usage for client certificate: client auth".to_owned())
    }
}

/// Usages as a certificate carries them. What X.509 has no standard number for is an error.
pub(crate) fn x509_usages(usages: &[&str]) -> Result<(Vec<Usage>, Vec<Extended>), String> {
    let (mut plain, mut extended) = (Vec::new(), Vec::new());
    let ipsec = |last: u64| Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, last]);
    for usage in usages {
        match *usage {
            "signing" | "digital signature" => plain.push(Usage::DigitalSignature),
            "content commitment" => plain.push(Usage::ContentCommitment),
            "key encipherment" => plain.push(Usage::KeyEncipherment),
            "key agreement" => plain.push(Usage::KeyAgreement),
            "data encipherment" => plain.push(Usage::DataEncipherment),
            "cert sign" => plain.push(Usage::KeyCertSign),
            "crl sign" => plain.push(Usage::CrlSign),
            "encipher only" => plain.push(Usage::EncipherOnly),
            "decipher only" => plain.push(Usage::DecipherOnly),
            "any" => extended.push(Extended::Any),
            "server auth" => extended.push(Extended::ServerAuth),
            "client auth" => extended.push(Extended::ClientAuth),
            "code signing" => extended.push(Extended::CodeSigning),
            "email protection" | "s/mime" => extended.push(Extended::EmailProtection),
            "ipsec end system" => extended.push(ipsec(5)),
            "ipsec tunnel" => extended.push(ipsec(6)),
            "ipsec user" => extended.push(ipsec(7)),
            "timestamping" => extended.push(Extended::TimeStamping),
            "ocsp signing" => extended.push(Extended::OcspSigning),
            "microsoft sgc" => extended.push(Extended::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3])),
            "netscape sgc" => extended.push(Extended::Other(vec![2, 16, 840, 1, 113_730, 4, 1])),
            other => return Err(format!("unrecognized usage: {other}")),
        }
    }
    plain.dedup();
    extended.dedup();
    Ok((plain, extended))
}

/// From when until when a certificate is valid, given the end of the authority; `None` once that has ended.
pub(crate) fn validity(asked: Option<i64>, now: i64, authority_ends: i64) -> Option<Validity> {
    let lifetime = asked
        .unwrap_or(LONGEST_LIFETIME)
        .clamp(SHORTEST_LIFETIME, LONGEST_LIFETIME);
    let until = now + lifetime - if lifetime < SHORT { 0 } else { BACKDATE };
    (now < authority_ends).then_some(Validity {
        from: now - BACKDATE,
        until: until.min(authority_ends),
    })
}

/// Whether a request has a condition of that type.
pub(crate) fn has(object: &Value, condition: &str) -> bool {
    condition_of(object, condition).is_some()
}

fn condition_of<'a>(object: &'a Value, condition: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|one| one["type"] == condition)
}

/// Whether a certificate was issued.
pub(crate) fn is_issued(object: &Value) -> bool {
    object["status"]["certificate"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
}

/// Whether nobody needs the request any more: an hour after it was decided, a day after it was made or
/// approved and then forgotten.
pub(crate) fn is_old(object: &Value, now: Timestamp) -> bool {
    const HOUR: i64 = 3_600;
    let older = |time: &Value, seconds: i64| {
        time.as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
            .is_some_and(|time| now.as_second() - time.as_second() > seconds)
    };
    let changed = |condition: &str, seconds: i64| {
        condition_of(object, condition).is_some_and(|one| older(&one["lastUpdateTime"], seconds))
    };
    let conditions = object["status"]["conditions"].as_array();
    let pending = conditions.is_none_or(Vec::is_empty);
    let approved = if is_issued(object) { HOUR } else { 24 * HOUR };
    changed("Denied", HOUR)
        || changed("Failed", HOUR)
        || changed("Approved", approved)
        || pending && older(&object["metadata"]["creationTimestamp"], 24 * HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_kube_rules::csr::{Names, USAGES};
    use rstest::rstest;
    use serde_json::json;

    fn kubelet() -> Request {
        Request {
            common_name: "system:node:n1".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            names: Names {
                dns: vec!["n1".to_owned()],
                ips: Vec::new(),
            },
            ..Request::default()
        }
    }

    #[test]
    fn a_kubelet_gets_what_it_needs_and_no_more() {
        let serving = ["server auth", "key encipherment", "digital signature"];
        let ask =
            |signer: &str, request: &Request, usages: &[&str]| permitted(signer, request, usages).unwrap();
        assert_eq!(ask(KUBELET_SERVING, &kubelet(), &serving), Ok(()));
        assert_eq!(
            ask(KUBELET_SERVING, &kubelet(), &["server auth", "digital signature"]),
            Ok(())
        );
        type Change = fn(&mut Request);
        let changes: [(Change, &str); 6] = [
            (
                |request| request.organizations.push("system:masters".to_owned()),
                "subject organization is not system:nodes",
            ),
            (
                |request| request.organizations.clear(),
                "subject organization is not system:nodes",
            ),
            (
                |request| request.names = Names::default(),
                "DNS or IP subjectAltName is required",
            ),
            (
                |request| request.emails.push("a@b".to_owned()),
                "Email subjectAltNames are not allowed",
            ),
            (
                |request| request.uris.push("spiffe://x".to_owned()),
                "URI subjectAltNames are not allowed",
            ),
            (
                |request| request.common_name = "bob".to_owned(),
                "subject common name does not begin with system:node:",
            ),
        ];
        for (change, why) in changes {
            let mut request = kubelet();
            change(&mut request);
            assert_eq!(ask(KUBELET_SERVING, &request, &serving), Err(why.to_owned()));
        }
        assert_eq!(
            ask(
                KUBELET_SERVING,
                &kubelet(),
                &["server auth", "client auth", "digital signature"]
            ),
            Err("usages did not match [digital signature key encipherment server auth]".to_owned())
        );
        assert_eq!(
            ask(KUBELET_CLIENT, &kubelet(), &["client auth", "digital signature"]),
            Err("DNS subjectAltNames are not allowed".to_owned())
        );
        let mut nameless = kubelet();
        nameless.names = Names::default();
        assert_eq!(
            ask(KUBELET_CLIENT, &nameless, &["client auth", "digital signature"]),
            Ok(())
        );
        assert_eq!(permitted("example.com/mine", &kubelet(), &serving), None);
    }

    #[rstest]
    #[case(&["client auth"], Ok(()))]
    #[case(&["client auth", "digital signature", "key encipherment"], Ok(()))]
    #[case(&["digital signature"], Err("missing required usage for client certificate: client auth"))]
    #[case(&["client auth", "server auth"], Err("invalid usage for client certificate: server auth"))]
    fn clients_get_client_certificates(#[case] usages: &[&str], #[case] expected: Result<(), &str>) {
        let found = permitted(CLIENT, &Request::default(), usages).unwrap();
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::as_long_as_possible(None, LONGEST_LIFETIME - BACKDATE)]
    #[case::too_long(Some(2 * LONGEST_LIFETIME), LONGEST_LIFETIME - BACKDATE)]
    #[case::too_short(Some(60), SHORTEST_LIFETIME)]
    #[case::short(Some(3_600), 3_600)]
    #[case::long(Some(24 * 3_600), 24 * 3_600 - BACKDATE)]
    fn lifetimes_are_honoured_within_bounds(#[case] asked: Option<i64>, #[case] until: i64) {
        let now = 1_000_000;
        let found = validity(asked, now, i64::MAX).unwrap();
        assert_eq!((found.from, found.until), (now - BACKDATE, now + until));
        assert_eq!(validity(asked, now, now + 100).unwrap().until, now + 100);
        assert_eq!(validity(asked, now, now), None);
    }

    #[test]
    fn every_usage_has_a_number_in_certificates() {
        for usage in USAGES {
            assert!(x509_usages(&[usage]).is_ok(), "{usage}");
        }
        assert!(USAGES.is_sorted());
        assert!(x509_usages(&["flying"]).is_err());
    }

    #[rstest]
    #[case(json!(null), 23, false)]
    #[case(json!(null), 25, true)]
    #[case(json!({"conditions": [{"type": "Denied", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}), 2, true)]
    #[case(json!({"conditions": [{"type": "Failed", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}), 2, true)]
    #[case(json!({"conditions": [{"type": "Approved", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}), 23, false)]
    #[case(json!({"conditions": [{"type": "Approved", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}), 25, true)]
    #[case(json!({"certificate": "eA==", "conditions": [{"type": "Approved", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}), 2, true)]
    fn requests_grow_old(#[case] status: Value, #[case] hours: i64, #[case] expected: bool) {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now = Timestamp::from_second(start.as_second() + hours * 3_600).unwrap();
        let object = json!({"metadata": {"creationTimestamp": start.to_string()}, "status": status});
        assert_eq!(is_old(&object, now), expected);
    }
}
