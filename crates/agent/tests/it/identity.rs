//! Who may write what: `deploy/policies.yaml` on an API server. `.ci/real` does the same on Kubernetes' own.

use crate::zone::cluster;
use evenkeel_testkit::attacks::{Attacked, Write, attacks, duties};
use serde_json::json;

async fn attacked() -> (evenkeel_testkit::ServedApi, Attacked) {
    let (api, _) = cluster().await;
    let kubeconfig = api.direct("administrator");
    (api, Attacked::new(&kubeconfig).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attack_is_stopped_by_its_policy_and_by_nothing_else() {
    let (_api, attacked) = attacked().await;
    for attack in attacks() {
        attacked.is_stopped_by_its_policy_alone(&attack).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_may_write_what_is_its_own() {
    let (_api, attacked) = attacked().await;
    for (name, who, write) in duties() {
        attacked.restore().await;
        let done = attacked.attempt(who, &write).await;
        assert_eq!(done, Ok(()), "{name}, by {who:?}");
    }
}

/// What one agent can make every reader read is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_larger_than_any_agent_writes_is_refused() {
    let (_api, attacked) = attacked().await;
    attacked.restore().await;
    let (_, who, own) = duties().into_iter().next().unwrap();
    let Write::Create(report) = own else {
        panic!("the first duty is a report: {own:?}");
    };
    let ballots = vec!["AAAA"; 129];
    let cases = [
        (
            "rounds",
            json!({"rounds": vec![json!({"ageMs": 0, "request": ""}); 129]}),
        ),
        (
            "ballots",
            json!({"rounds": [{"ageMs": 0, "request": "", "ballots": ballots}]}),
        ),
        (
            "ballots",
            json!({"rounds": [{"ageMs": 0, "request": "", "ballots": ["A".repeat(2049)]}]}),
        ),
        (
            "request",
            json!({"rounds": [{"ageMs": 0, "request": "A".repeat(4097)}]}),
        ),
        ("summary", json!({"summary": "a".repeat(32_769)})),
    ];
    for (field, large) in cases {
        let mut report = report.clone();
        report["spec"]
            .as_object_mut()
            .unwrap()
            .extend(large.as_object().unwrap().clone());
        let refused = attacked.attempt(who, &Write::Create(report)).await.unwrap_err();
        assert!(
            refused.contains(field) && refused.contains("Too"),
            "{field}: {refused}"
        );
    }
}
