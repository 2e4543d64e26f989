//! One candidate's object.

use super::{LEASE, NAMESPACE, Standing, candidacy, candidates, until_candidate};
use evenkeel_election::coordinated::{Candidacy, CandidacyError, stand};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{Cluster, api_server, ends, until};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

async fn patch(client: &Client, name: &str, patch: Value) {
    candidates(client).merge(name, patch).await;
}

#[tokio::test]
async fn creation_makes_an_object_with_all_fields() {
    let client = api_server().client();
    let before = Timestamp::now() - SignedDuration::from_micros(1);
    let wanted = Candidacy {
        emulation_version: Some("1.1.0".parse().unwrap()),
        weight: Some(7),
        ..candidacy("host_1", "1.2.0")
    };
    let _standing = Standing::new(&client, wanted);
    let object = until_candidate(&client, "host_1", |_| true).await;
    assert_eq!(
        object.metadata.annotations.unwrap(),
        [("evenkeel.io/election-weight".to_owned(), "7".to_owned())].into()
    );
    let spec = object.spec.unwrap();
    assert_eq!(
        (
            spec.lease_name.as_str(),
            spec.binary_version.as_str(),
            spec.strategy.as_str()
        ),
        (LEASE, "1.2.0", "OldestEmulationVersion")
    );
    assert_eq!(spec.emulation_version.as_deref(), Some("1.1.0"));
    assert_eq!(spec.ping_time, None);
    assert!(spec.renew_time.unwrap().0 >= before);
}

#[tokio::test]
async fn a_ping_is_acknowledged() {
    let client = api_server().client();
    let _standing = Standing::new(&client, candidacy("host_1", "1.2.0"));
    until_candidate(&client, "host_1", |_| true).await;
    // The second one is ahead of our clock.
    for ahead in [0, 3600] {
        let ping = Timestamp::now() + SignedDuration::from_secs(ahead);
        let ping = Timestamp::from_microsecond(ping.as_microsecond()).unwrap();
        patch(
            &client,
            "host_1",
            json!({"spec": {"pingTime": format!("{ping:.6}")}}),
        )
        .await;
        let answered = until_candidate(&client, "host_1", |object| {
            let spec = object.spec.as_ref().unwrap();
            spec.renew_time.as_ref().is_some_and(|renewed| renewed.0 >= ping)
        })
        .await;
        assert_eq!(
            answered.spec.unwrap().ping_time.unwrap().0,
            ping,
            "the ping stays"
        );
    }
}

#[tokio::test]
async fn a_ping_is_acknowledged_without_the_right_to_watch() {
    let server = api_server();
    let admin = server.client();
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leasecandidates"],
        "verbs": ["create", "get", "patch", "delete"]}]);
    Cluster::of(&server)
        .namespaced(NAMESPACE)
        .grant_here("poor", rules)
        .await;
    let _standing = Standing::new(&server.client_as("poor", &[]), candidacy("host_1", "1.2.0"));
    until_candidate(&admin, "host_1", |_| true).await;
    patch(
        &admin,
        "host_1",
        json!({"spec": {"pingTime": format!("{:.6}", Timestamp::now())}}),
    )
    .await;
    until_candidate(&admin, "host_1", |object| {
        let spec = object.spec.as_ref().unwrap();
        spec.renew_time >= spec.ping_time
    })
    .await;
}

#[tokio::test]
async fn an_object_that_somebody_deletes_is_made_anew_and_a_changed_one_is_put_right() {
    let client = api_server().client();
    let _standing = Standing::new(&client, candidacy("host_1", "1.2.0"));
    let first = until_candidate(&client, "host_1", |_| true).await;
    candidates(&client).remove("host_1").await;
    until_candidate(&client, "host_1", |object| {
        object.metadata.uid != first.metadata.uid
    })
    .await;
    patch(
        &client,
        "host_1",
        json!({"spec": {"binaryVersion": "9.9.9"}, "metadata": {"labels": {"team": "blue"}}}),
    )
    .await;
    let object = until_candidate(&client, "host_1", |object| {
        object.spec.as_ref().unwrap().binary_version == "1.2.0"
    })
    .await;
    assert_eq!(
        object.metadata.labels.unwrap()["team"],
        "blue",
        "labels of others stay"
    );
}

#[tokio::test]
async fn an_upgraded_candidate_takes_over_the_object_of_its_identity() {
    let client = api_server().client();
    Standing::new(&client, candidacy("host_1", "1.2.0"))
        .crash_once_seen(&client)
        .await;
    let _upgraded = Standing::new(&client, candidacy("host_1", "1.3.0"));
    until_candidate(&client, "host_1", |object| {
        let spec = object.spec.as_ref().unwrap();
        (spec.binary_version.as_str(), spec.emulation_version.as_deref()) == ("1.3.0", Some("1.3.0"))
    })
    .await;
}

#[tokio::test]
async fn a_candidate_that_stops_withdraws_its_own_object_only() {
    let client = api_server().client();
    let (mine, other) = (
        Standing::new(&client, candidacy("mine", "1.2.0")),
        Standing::new(&client, candidacy("other", "1.2.0")),
    );
    until_candidate(&client, "mine", |_| true).await;
    until_candidate(&client, "other", |_| true).await;
    mine.withdraw().await;
    assert_eq!(candidates(&client).get_opt("mine").await.unwrap(), None);
    assert!(candidates(&client).get_opt("other").await.unwrap().is_some());
    other.withdraw().await;
    assert_eq!(candidates(&client).get_opt("other").await.unwrap(), None);
}

#[tokio::test]
async fn without_rights_a_candidate_goes_on_trying_and_stops_when_told() {
    let server = api_server();
    let nobody = Standing::new(&server.client_as("nobody", &[]), candidacy("host_1", "1.2.0"));
    let witness = Standing::new(&server.client(), candidacy("host_2", "1.2.0"));
    until_candidate(&server.client(), "host_2", |_| true).await;
    assert_eq!(
        candidates(&server.client()).get_opt("host_1").await.unwrap(),
        None
    );
    ends("it stops", nobody.withdraw()).await;
    witness.withdraw().await;
}

#[tokio::test]
async fn a_candidacy_that_cannot_work_is_refused_at_once() {
    let candidacy = Candidacy {
        lease_name: String::new(),
        ..candidacy("host_1", "1.2.0")
    };
    let refused = stand(api_server().client(), candidacy, CancellationToken::new()).await;
    assert_eq!(refused, Err(CandidacyError::Lease));
}

impl Standing {
    async fn crash_once_seen(self, client: &Client) {
        until("a candidate", async || {
            !candidates(client)
                .list(&kube::api::ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        })
        .await;
        self.crash();
    }
}
