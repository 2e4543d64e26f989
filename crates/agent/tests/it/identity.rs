//! Who may write what: `deploy/policies.yaml` on an API server. `.ci/real` does the same on Kubernetes' own.

use crate::zone::cluster;
use evenkeel_testkit::attacks::{Attacked, attacks, duties};

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
