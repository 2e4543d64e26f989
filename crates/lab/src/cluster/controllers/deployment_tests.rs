//! Deployments, driven to rest against ReplicaSets that do what they are told.

use super::*;
use crate::cluster::action::Kind;
use rstest::rstest;
use serde_json::{Value, from_value};
use std::sync::Arc;

/// Deployment, ReplicaSets and time, as the API server would keep them.
struct World {
    view: Snapshot,
    now: Timestamp,
    /// Templates whose pods never become available, by image.
    broken: Vec<&'static str>,
}

impl World {
    fn new(replicas: i32, spec: Value) -> Self {
        let mut deployment = json!({
            "metadata": {
                "name": "web", "namespace": "default", "uid": "uid-web", "generation": 1,
                "annotations": {"example.com/team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]},
                },
            },
        });
        json_patch::merge(&mut deployment["spec"], &spec);
        Self {
            view: Snapshot {
                deployments: vec![Arc::new(from_value(deployment).unwrap())],
                ..Snapshot::default()
            },
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            broken: Vec::new(),
        }
    }

    /// Changes the Deployment's spec, as a user does.
    fn change(&mut self, spec: Value) {
        let mut deployment = as_json(&*self.view.deployments[0]);
        json_patch::merge(&mut deployment["spec"], &spec);
        let generation = deployment["metadata"]["generation"].as_i64().unwrap() + 1;
        deployment["metadata"]["generation"] = json!(generation);
        self.view.deployments = vec![Arc::new(from_value(deployment).unwrap())];
    }

    fn image(&mut self, image: &str) {
        let containers = json!([{"name": "c", "image": image}]);
        self.change(json!({"template": {"spec": {"containers": containers}}}));
    }

    fn wait(&mut self, seconds: i64) {
        self.now += jiff::SignedDuration::from_secs(seconds);
    }

    fn sets(&self) -> Vec<Value> {
        let mut sets: Vec<Value> = self.view.replica_sets.iter().map(|set| as_json(&**set)).collect();
        sets.sort_by_key(|set| set["metadata"]["uid"].as_str().unwrap().to_owned());
        sets
    }

    /// Replicas of the sets, the oldest first.
    fn sizes(&self) -> Vec<i64> {
        self.sets()
            .iter()
            .map(|set| set["spec"]["replicas"].as_i64().unwrap())
            .collect()
    }

    fn deployment(&self) -> Value {
        as_json(&*self.view.deployments[0])
    }

    /// Status, reason and message of a condition.
    fn condition(&self, kind: &str) -> (String, String, String) {
        let status = self.deployment()["status"].clone();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|condition| condition["type"] == kind);
        let found = found.unwrap_or_default();
        let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    fn look(&mut self) -> bool {
        self.wait(1);
        let actions = reconcile(&self.view, self.now);
        let done = actions.is_empty();
        for action in actions {
            self.perform(action);
        }
        done
    }

    /// Lets controller and sets act until nothing changes any more; the bounds hold at each step.
    fn settle(&mut self) {
        for _ in 0..60 {
            let done = self.look();
            if !self.obey() && done {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.sets());
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Create {
                kind: Kind::ReplicaSet,
                object,
                ..
            } => {
                let mut object = object;
                let number = self.view.replica_sets.len();
                object["metadata"]["uid"] = json!(format!("uid-{number}"));
                object["metadata"]["namespace"] = json!("default");
                object["metadata"]["generation"] = json!(1);
                object["metadata"]["creationTimestamp"] = json!(seconds(self.now));
                object["metadata"]["ownerReferences"][0]["uid"] = json!("uid-web");
                self.view.replica_sets.push(Arc::new(from_value(object).unwrap()));
            }
            Action::Patch {
                kind: Kind::ReplicaSet,
                name,
                patch,
                ..
            } => {
                for set in &mut self.view.replica_sets {
                    if set.metadata.name.as_ref() == Some(&name) {
                        let mut object = as_json(&**set);
                        json_patch::merge(&mut object, &patch);
                        if patch["spec"].is_object() {
                            let generation = object["metadata"]["generation"].as_i64().unwrap() + 1;
                            object["metadata"]["generation"] = json!(generation);
                        }
                        *set = Arc::new(from_value(object).unwrap());
                    }
                }
            }
            Action::Patch {
                kind: Kind::Deployment,
                patch,
                ..
            } => {
                let mut object = self.deployment();
                json_patch::merge(&mut object, &patch);
                self.view.deployments = vec![Arc::new(from_value(object).unwrap())];
            }
            Action::Delete {
                kind: Kind::ReplicaSet,
                name,
                ..
            } => {
                self.view
                    .replica_sets
                    .retain(|set| set.metadata.name.as_ref() != Some(&name));
            }
            other => panic!("unexpected: {other}"),
        }
    }

    /// The sets have the pods that they are asked for. Whether one changed.
    fn obey(&mut self) -> bool {
        let mut changed = false;
        for set in &mut self.view.replica_sets {
            let mut object = as_json(&**set);
            let size = object["spec"]["replicas"].clone();
            let image = object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
            let works = !self.broken.iter().any(|broken| image == *broken);
            let mut status = json!({
                "replicas": size, "observedGeneration": object["metadata"]["generation"], "terminatingReplicas": 0,
            });
            if works && size != 0 {
                status["readyReplicas"] = size.clone();
                status["availableReplicas"] = size;
            }
            if object["status"] != status {
                object["status"] = status;
                *set = Arc::new(from_value(object).unwrap());
                changed = true;
            }
        }
        changed
    }
}

#[test]
fn a_deployment_makes_a_set_with_its_annotations_and_reports_progress_and_availability() {
    let mut world = World::new(3, json!({}));
    world.look();
    let set = &world.sets()[0];
    assert_eq!(
        set["metadata"]["annotations"],
        json!({
            "example.com/team": "a",
            "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "4",
            "deployment.kubernetes.io/revision": "1",
        })
    );
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetCreated");
    assert_eq!(world.condition("Available").1, "MinimumReplicasUnavailable");
    assert_eq!(world.deployment()["status"]["unavailableReplicas"], 3);
    world.settle();
    let name = world.sets()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        world.condition("Progressing"),
        (
            "True".to_owned(),
            "NewReplicaSetAvailable".to_owned(),
            format!("ReplicaSet \"{name}\" has successfully progressed.")
        )
    );
    assert_eq!(world.condition("Available").1, "MinimumReplicasAvailable");
    let deployment = world.deployment();
    let (status, annotations) = (&deployment["status"], &deployment["metadata"]["annotations"]);
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "1");
    assert_eq!(status["terminatingReplicas"], 0);
    assert_eq!(status.get("unavailableReplicas"), None);
}

#[rstest]
#[case::shares(4, json!({"maxSurge": "25%", "maxUnavailable": "25%"}), 5, 3)]
#[case::one_at_a_time(3, json!({"maxSurge": 1, "maxUnavailable": 0}), 4, 3)]
#[case::in_place(3, json!({"maxSurge": 0, "maxUnavailable": 1}), 3, 2)]
#[case::shares_that_come_to_nothing(2, json!({"maxSurge": 0, "maxUnavailable": "1%"}), 2, 1)]
fn a_rolling_update_stays_within_its_bounds(
    #[case] replicas: i32,
    #[case] rolling: Value,
    #[case] most: i64,
    #[case] least: i64,
) {
    let mut world = World::new(replicas, json!({"strategy": {"rollingUpdate": rolling}}));
    world.settle();
    world.image("web:2");
    for _ in 0..60 {
        let done = world.look();
        assert!(world.sizes().iter().sum::<i64>() <= most, "{:?}", world.sizes());
        let kept: i64 = world
            .sets()
            .iter()
            .map(|set| {
                let available = set["status"]["availableReplicas"].as_i64().unwrap_or(0);
                available.min(set["spec"]["replicas"].as_i64().unwrap())
            })
            .sum();
        assert!(kept >= least, "{:?}", world.sets());
        if !world.obey() && done {
            break;
        }
    }
    assert_eq!(world.sizes(), [0, i64::from(replicas)]);
    assert_eq!(world.deployment()["metadata"]["annotations"][REVISION], "2");
}

#[test]
fn a_template_that_does_not_start_stops_the_roll_out_and_is_late_after_its_deadline() {
    let mut world = World::new(4, json!({"progressDeadlineSeconds": 30}));
    world.broken.push("web:2");
    world.settle();
    world.image("web:2");
    world.settle();
    // Of four one may be missing and one be more: the new set has both.
    assert_eq!(world.sizes(), [3, 2]);
    assert_eq!(world.condition("Available").0, "True");
    assert_eq!(world.condition("Progressing").1, "ReplicaSetUpdated");
    world.wait(30);
    world.settle();
    let (status, reason, message) = world.condition("Progressing");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ProgressDeadlineExceeded")
    );
    assert!(message.ends_with("has timed out progressing."), "{message}");

    // Twice the size is shared out as the sets stand.
    world.change(json!({"replicas": 8}));
    world.settle();
    assert_eq!(world.sizes(), [6, 4]);

    // Back to the template that works: its set is the newest again, and remembers what it was.
    world.image("web:1");
    world.settle();
    assert_eq!(world.sizes(), [8, 0]);
    let annotations = world.sets()[0]["metadata"]["annotations"].clone();
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "3");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
}

#[test]
fn recreation_ends_all_old_pods_first() {
    let mut world = World::new(
        2,
        json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}),
    );
    world.settle();
    world.image("web:2");
    world.look();
    assert_eq!(world.sizes(), [0], "no new set yet");
    let pod = json!({
        "metadata": {
            "name": "p", "namespace": "default",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "uid-0", "controller": true}],
        },
        "status": {"phase": "Running"},
    });
    world.view.pods = vec![Arc::new(from_value(pod).unwrap())];
    world.settle();
    assert_eq!(world.sizes(), [0], "an old pod still runs");
    world.view.pods.clear();
    world.settle();
    assert_eq!(world.sizes(), [0, 2]);
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll_out() {
    let mut world = World::new(2, json!({"paused": true}));
    world.settle();
    assert!(world.sizes().is_empty());
    assert_eq!(
        world.condition("Progressing"),
        (
            "Unknown".to_owned(),
            "DeploymentPaused".to_owned(),
            "Deployment is paused".to_owned()
        )
    );
    world.change(json!({"paused": false}));
    world.settle();
    world.change(json!({"paused": true}));
    world.image("web:2");
    world.change(json!({"replicas": 3}));
    world.settle();
    assert_eq!(world.sizes(), [3]);
    world.change(json!({"paused": false}));
    world.settle();
    assert_eq!(world.sizes(), [0, 3]);
}

#[test]
fn the_history_keeps_the_newest_old_sets() {
    let mut world = World::new(1, json!({"revisionHistoryLimit": 1}));
    world.settle();
    for image in ["web:2", "web:3", "web:4"] {
        world.image(image);
        world.settle();
    }
    let sets = world.sets();
    let revisions: Vec<_> = sets
        .iter()
        .map(|set| &set["metadata"]["annotations"][REVISION])
        .collect();
    assert_eq!(revisions, ["3", "4"]);
}

#[test]
fn a_set_that_matches_and_has_no_controller_is_adopted() {
    let mut world = World::new(2, json!({}));
    world.settle();
    let mut orphan = as_json(&*world.view.replica_sets[0]);
    orphan["metadata"]["ownerReferences"] = json!([]);
    world.view.replica_sets = vec![Arc::new(from_value(orphan).unwrap())];
    let actions = reconcile(&world.view, world.now);
    let [
        Action::Patch {
            kind: Kind::ReplicaSet,
            patch,
            ..
        },
    ] = &actions[..]
    else {
        panic!("expected an adoption: {actions:?}")
    };
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "uid-web");
}

#[test]
fn a_name_that_is_taken_is_a_collision_and_another_one_is_tried() {
    let mut world = World::new(1, json!({}));
    world.look();
    let mut foreign = as_json(&*world.view.replica_sets[0]);
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("uid-other");
    let taken = foreign["metadata"]["name"].clone();
    let mut world = World::new(1, json!({}));
    world.view.replica_sets = vec![Arc::new(from_value(foreign).unwrap())];
    world.look();
    assert_eq!(world.deployment()["status"]["collisionCount"], 1);
    world.settle();
    assert_eq!(world.view.replica_sets.len(), 2);
    assert_ne!(json!(world.view.replica_sets[1].metadata.name), taken);
}

#[test]
fn a_deployment_says_what_its_set_says_about_pods_that_cannot_be_made() {
    let mut world = World::new(1, json!({}));
    world.look();
    let mut set = as_json(&*world.view.replica_sets[0]);
    let condition =
        json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no"});
    set["status"] = json!({"replicas": 0, "conditions": [condition]});
    world.view.replica_sets = vec![Arc::new(from_value(set).unwrap())];
    world.look();
    assert_eq!(world.condition("ReplicaFailure").2, "no");
    world.settle();
    assert_eq!(
        world.condition("ReplicaFailure").0,
        "",
        "the set has its pods now"
    );
}
