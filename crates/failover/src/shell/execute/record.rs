//! Writes to our own objects, and Events.

use super::{ActionError, Executor, Outcome, Result, only, params, settled};
use evenkeel_api::crd::{
    AgentStatus, FailoverPolicy, FailoverPolicyStatus, NodeIncident, ZoneChallenge, ZoneChallengeSpec,
    ZoneHealth, ZoneHealthSpec,
};
use evenkeel_api::zone::{IssuedChallenge, RosterSpec};
use evenkeel_failover_rules::planner::action::{About, Notice};
use evenkeel_failover_rules::planner::incident::{Incident, time};
use evenkeel_zone::keys::Signer;
use evenkeel_zone::roster::{CellRef, Roster, cell_object_name, publish};
use evenkeel_zone::wire::Challenge;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Who says so, in Events.
const COMPONENT: &str = "evenkeel-controller";

impl Executor {
    pub(super) async fn save_incident(&self, incident: &Incident) -> Result<Outcome> {
        let api: Api<NodeIncident> = Api::all(self.client.clone());
        let what = || format!("save NodeIncident {}", incident.name);
        let status = wanted(incident)?;
        let patch = Patch::Merge(json!({ "status": status }));
        match api.patch_status(&incident.name, &params(), &patch).await {
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            answer => return settled(what(), answer),
        }
        self.check_leads()?;
        let object = NodeIncident::new(&incident.name, incident.spec.clone());
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(answer)) if answer.code == 409 => {}
            Err(source) => return Err(ActionError::Api { what: what(), source }),
        }
        self.check_leads()?;
        settled(what(), api.patch_status(&incident.name, &params(), &patch).await)
    }

    pub(super) async fn delete_incident(&self, name: &str, uid: &str) -> Result<Outcome> {
        let api: Api<NodeIncident> = Api::all(self.client.clone());
        let answer = api.delete(name, &only(uid, None)).await;
        settled(format!("delete NodeIncident {name}"), answer)
    }

    /// An object that is about to be written, as it stands.
    async fn found<K>(&self, api: &Api<K>, name: &str, what: &str) -> Result<Option<K>>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let found = api.get_opt(name).await.map_err(|source| ActionError::Api {
            what: what.to_owned(),
            source,
        })?;
        self.check_leads()?;
        Ok(found)
    }

    /// The roster has one writer and a version that only grows: an object that is ahead is left alone. What
    /// does not count there is replaced.
    pub(super) async fn publish_cell(&self, zone: &str, cell: u32, roster: &RosterSpec) -> Result<Outcome> {
        let api: Api<ZoneHealth> = Api::all(self.client.clone());
        let name = cell_object_name(zone, cell);
        let what = format!("publish cell {cell} of zone {zone} in ZoneHealth {name}");
        let found = self.found(&api, &name, &what).await?;
        let counts = |found: &ZoneHealth| {
            let (published, uid) = (found.spec.published()?, found.metadata.uid.as_deref()?);
            let cell = CellRef { name: &name, uid };
            let roster = Roster::open(&published, cell, &self.issuer.rosters.trusted).ok()?;
            i64::try_from(roster.reference().version).ok()
        };
        let known = found.as_ref().and_then(counts);
        if known.is_some_and(|known| known >= roster.version) {
            return Ok(Outcome::Stale);
        }
        let mut spec = ZoneHealthSpec {
            zone: zone.to_owned(),
            cell,
            ..ZoneHealthSpec::default()
        };
        let found = if let Some(found) = found {
            found
        } else {
            // The roster names the object's UID, which the API server gives.
            let fresh = ZoneHealth::new(&name, spec.clone());
            let made = match api.create(&PostParams::default(), &fresh).await {
                Ok(made) => made,
                answer => return settled(what, answer),
            };
            self.check_leads()?;
            made
        };
        let named = RosterSpec {
            cell: name.clone(),
            cell_uid: found.metadata.uid.clone().unwrap_or_default(),
            ..roster.clone()
        };
        let key = self.issuer.rosters.key.as_deref();
        spec.signed_roster = Some(publish(&named, key.map(|key| key as &dyn Signer)));
        write(&api, what, Some(&found), &ZoneHealth::new(&name, spec)).await
    }

    /// Writes what is asked of a cell. Of a challenge that another controller wrote in between nothing is
    /// replaced: the next look decides anew.
    pub(super) async fn challenge(
        &self,
        (zone, cell): (&str, u32),
        replaces: Option<&str>,
        draw: bool,
        wanted: &[String],
    ) -> Result<Outcome> {
        let api: Api<ZoneChallenge> = Api::all(self.client.clone());
        let name = cell_object_name(zone, cell);
        let what = format!("write ZoneChallenge {name}");
        let found = self.found(&api, &name, &what).await?;
        let current = found.as_ref().map(|found| &found.spec.current);
        if current.map(|current| current.value.as_str()) != replaces {
            return Ok(Outcome::Stale);
        }
        let (current, previous) = match &found {
            Some(found) if !draw => (found.spec.current.clone(), found.spec.previous.clone()),
            Some(found) => (self.draw(), Some(found.spec.current.clone())),
            None => (self.draw(), None),
        };
        let spec = ZoneChallengeSpec {
            zone: zone.to_owned(),
            cell,
            current,
            previous,
            wanted: wanted.to_vec(),
        };
        write(&api, what, found.as_ref(), &ZoneChallenge::new(&name, spec)).await
    }

    #[allow(clippy::disallowed_methods, reason = "the shell draws random numbers")]
    fn draw(&self) -> IssuedChallenge {
        // The time first: what is signed later is younger than it.
        let at = i64::try_from(self.issuer.clock.now().0).unwrap_or(i64::MAX);
        let at = Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX);
        IssuedChallenge {
            value: Challenge(rand::random()).to_base64(),
            created_at: format!("{at:.3}"),
            created_by: self.issuer.life.clone(),
        }
    }

    pub(super) async fn delete_cell(&self, object: &str, uid: &str) -> Result<Outcome> {
        let challenges: Api<ZoneChallenge> = Api::all(self.client.clone());
        match challenges.delete(object, &DeleteParams::default()).await {
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Ok(_) => {}
            Err(source) => {
                let what = format!("delete ZoneChallenge {object}");
                return Err(ActionError::Api { what, source });
            }
        }
        self.check_leads()?;
        let api: Api<ZoneHealth> = Api::all(self.client.clone());
        let answer = api.delete(object, &only(uid, None)).await;
        settled(format!("delete ZoneHealth {object}"), answer)
    }

    pub(super) async fn tell_cell(&self, node: &str, object: &str) -> Result<Outcome> {
        let api: Api<AgentStatus> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "status": { "cell": object } }));
        let answer = api.patch_status(node, &params(), &patch).await;
        settled(
            format!("write the cell to the status of AgentStatus {node}"),
            answer,
        )
    }

    pub(super) async fn save_policy_status(
        &self,
        policy: &str,
        status: &FailoverPolicyStatus,
    ) -> Result<Outcome> {
        let api: Api<FailoverPolicy> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "status": status }));
        let answer = api.patch_status(policy, &params(), &patch).await;
        settled(format!("write the status of FailoverPolicy {policy}"), answer)
    }

    /// One Event per object, reason and incident: its name says which, so that a second try is no second
    /// Event.
    pub(super) async fn event(&self, notice: &Notice) -> Result<Outcome> {
        let (namespace, about) = match &notice.about {
            About::Node(node) => (
                "default".to_owned(),
                reference("Node", None, &node.name, &node.uid),
            ),
            About::Pod(pod) => (
                pod.namespace.clone(),
                reference("Pod", Some(&pod.namespace), &pod.name, &pod.uid),
            ),
        };
        let name = about.name.clone().unwrap_or_default();
        let uid = about.uid.clone().unwrap_or_default();
        let stem: String = name.chars().take(200).collect();
        let hash = fnv1a(&[&uid, &notice.reason, &notice.incident, &notice.message]);
        let at = Some(time(notice.at));
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{hash:016x}", stem.trim_end_matches(['.', '-']))),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(notice.reason.clone()),
            // The API server refuses longer texts.
            message: Some(notice.message.chars().take(1024).collect()),
            type_: Some(if notice.warning { "Warning" } else { "Normal" }.to_owned()),
            count: Some(1),
            first_timestamp: at.clone(),
            last_timestamp: at,
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: None,
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        match api.create(&PostParams::default(), &event).await {
            // It was told before.
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(Outcome::Done),
            // Its namespace ends; nobody will read it.
            Err(kube::Error::Api(answer))
                if answer.code == 403 && answer.message.contains("being terminated") =>
            {
                Ok(Outcome::Done)
            }
            answer => settled(format!("write Event {} about {name}", notice.reason), answer),
        }
    }
}

/// The status as a merge patch. Such a patch takes away only what it names, so what is absent is named.
fn wanted(incident: &Incident) -> Result<Value> {
    let mut status = serde_json::to_value(&incident.status).map_err(|source| ActionError::Json {
        what: format!("NodeIncident {}", incident.name),
        source,
    })?;
    for [parent, field] in [
        ["", "closedAt"],
        ["", "taintedAt"],
        ["/fence", "proof"],
        ["/latch", "firstDeadRoundAt"],
        ["/latch", "lastSignOfLifeAt"],
        ["/latch", "confirmedAt"],
        ["/latch", "isolatedSince"],
        ["/decision", "decidedAt"],
    ] {
        if let Some(Value::Object(parent)) = status.pointer_mut(parent) {
            parent.entry(field).or_insert(Value::Null);
        }
    }
    Ok(status)
}

/// Creates an object, or gives the one that was found its spec: with the version that was read, so that
/// nothing that came in between is lost.
async fn write<K>(api: &Api<K>, what: String, found: Option<&K>, fresh: &K) -> Result<Outcome>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let Some(found) = found else {
        return settled(what, api.create(&PostParams::default(), fresh).await);
    };
    let mut spec = json!(fresh)["spec"].take();
    if let (Value::Object(wanted), Value::Object(known)) = (&mut spec, &json!(found)["spec"]) {
        // A merge patch keeps what it does not name.
        for field in known.keys() {
            wanted.entry(field).or_insert(Value::Null);
        }
    }
    let patch = json!({
        "metadata": { "resourceVersion": found.meta().resource_version },
        "spec": spec,
    });
    let name = fresh.meta().name.as_deref().unwrap_or_default();
    settled(what, api.patch(name, &params(), &Patch::Merge(patch)).await)
}

fn reference(kind: &str, namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// FNV-1a, 64 bits, over parts kept apart: stable across versions, which the standard hasher does not
/// promise.
fn fnv1a(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_failover_rules::planner::action::NodeRef;
    use evenkeel_judge::{Dead, NodeState};
    use evenkeel_zone::Millis;

    #[test]
    fn parts_are_kept_apart() {
        assert_ne!(fnv1a(&["ab", "c"]), fnv1a(&["a", "bc"]));
        assert_eq!(fnv1a(&["ab", "c"]), fnv1a(&["ab", "c"]));
    }

    #[test]
    fn an_incident_reads_back_as_it_was_written_and_forgets_what_ended() {
        let node = NodeRef {
            name: "n".to_owned(),
            uid: "u".to_owned(),
        };
        let now = Millis(1_700_000_000_123);
        let mut incident = Incident::open(&node, "z", NodeState::Dead(Dead::Announced), now);
        incident.row("E", "why".to_owned(), now);
        let status = wanted(&incident).unwrap();
        assert_eq!(
            (&status["taintedAt"], &status["fence"]["proof"]),
            (&Value::Null, &Value::Null)
        );
        incident.status.tainted_at = incident.status.state_since.clone();
        incident.close(now);
        let status = wanted(&incident).unwrap();
        assert_eq!(status["taintedAt"], "2023-11-14T22:13:20Z");
        // Otherwise it would be written again and again.
        let read: evenkeel_api::crd::NodeIncidentStatus = serde_json::from_value(status).unwrap();
        assert_eq!(read, incident.status);
    }
}
