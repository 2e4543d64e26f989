//! Approval, signing and removal of requests.
//!
//! In a cluster these are controllers of kube-controller-manager; here they run right after the write that
//! makes them necessary, so that a client finds the certificate as soon as its request is approved.

use super::own;
use super::signers;
use crate::access::admission::certificates::on_signer;
use crate::access::rbac::Authorizer;
use crate::request::{Reader, RequestInfo, UserInfo};
use crate::store::{Store, Table, key, resource_version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_kube_rules::csr::{self, GROUP, KUBELET_CLIENT, KUBELET_SERVING, RESOURCE, Request};
use evenkeel_kube_rules::time::rfc3339;
use evenkeel_net::pki::{Ca, ServerNames, Signing};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// Times that a request is written against concurrent writers.
const ATTEMPTS: usize = 32;
/// Seconds between looks for old requests; upstream's number.
const SWEEP: i64 = 3_600;

/// What the controllers remember.
#[derive(Debug, Default)]
pub(crate) struct State {
    inner: Mutex<Inner>,
    /// What the server's own certificates are for.
    own: Mutex<own::Names>,
}

#[derive(Debug, Default)]
struct Inner {
    /// When old requests were looked for.
    swept: i64,
    /// Requests for serving certificates that wait for their node, by the node's name.
    waiting: HashMap<String, BTreeSet<String>>,
}

impl State {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server serves with a certificate for these names from now on: no node gets one for them by itself.
    pub(crate) fn serves(&self, names: &ServerNames) {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).add(names);
    }

    /// Whether a certificate for one of these names could pass for the server's own.
    fn is_own(&self, names: &csr::Names, loopback_is_of_nodes: bool) -> bool {
        self.own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .include_any(names, loopback_is_of_nodes)
    }
}

fn table() -> Table {
    Table::new(GROUP, RESOURCE)
}

/// The controllers of signing requests, with what they work on.
pub(crate) struct Controllers<'a> {
    pub(crate) store: &'a Store,
    pub(crate) authorizer: &'a Authorizer,
    pub(crate) ca: &'a Ca,
    pub(crate) state: &'a State,
    /// As [`Options::approve_kubelet_serving`](crate::Options::approve_kubelet_serving).
    pub(crate) approve_kubelet_serving: bool,
    /// Whether kubelets may live on loopback addresses.
    pub(crate) loopback_is_of_nodes: bool,
}

impl Controllers<'_> {
    /// After a write of a request.
    pub(crate) fn written(&self, name: &str) {
        let now = Timestamp::now();
        self.sweep(now);
        for _ in 0..ATTEMPTS {
            let Some(stored) = self.store.get(&table(), &key("", name)) else {
                return;
            };
            let Some(next) = self.next(&stored, now) else {
                return;
            };
            // A failure means that somebody else wrote it in the meantime.
            let _ = self
                .store
                .update(&table(), &key("", name), resource_version(&stored), next);
        }
    }

    /// After a node was made, or has other addresses: requests that waited for it are looked at again.
    pub(crate) fn node_written(&self, node: &str) {
        let waiting = self.state.lock().waiting.remove(node);
        for name in waiting.into_iter().flatten() {
            self.written(&name);
        }
    }

    /// The next state of a request; `None` where there is nothing to do.
    fn next(&self, stored: &Value, now: Timestamp) -> Option<Value> {
        if signers::is_issued(stored) || signers::has(stored, "Denied") || signers::has(stored, "Failed") {
            return None;
        }
        let spec = &stored["spec"];
        let signer = spec["signerName"].as_str().unwrap_or_default();
        let parsed = match csr::parse(&spec["request"]) {
            Ok(parsed) => parsed,
            Err(error) => {
                tracing::warn!(%error, "a stored signing request cannot be read");
                return None;
            }
        };
        let usages = signers::usages(spec);
        let permitted = signers::permitted(signer, &parsed, &usages)?;
        let mut next = stored.clone();
        if !signers::has(stored, "Approved") {
            permitted.ok()?;
            let message = self.approves(stored, signer, &parsed)?;
            add_condition(&mut next, "Approved", "AutoApproved", message, now);
            return Some(next);
        }
        let signed = permitted.and_then(|()| self.sign(spec, &parsed, &usages, now));
        match signed {
            Ok(certificate) => next["status"]["certificate"] = json!(STANDARD.encode(certificate)),
            Err(why) => add_condition(&mut next, "Failed", "SignerValidationFailure", &why, now),
        }
        Some(next)
    }

    fn sign(
        &self,
        spec: &Value,
        request: &Request,
        usages: &[&str],
        now: Timestamp,
    ) -> Result<String, String> {
        let (key_usages, extended_key_usages) = signers::x509_usages(usages)?;
        let ends = self.ca.expires().map_err(|error| error.to_string())?;
        let asked = spec["expirationSeconds"].as_i64();
        let validity = signers::validity(asked, now.as_second(), ends)
            .ok_or("the certificate of the authority has expired")?;
        let signing = Signing {
            common_name: &request.common_name,
            organisations: request.organizations.iter().map(String::as_str).collect(),
            public_key: &request.public_key,
            names: ServerNames {
                dns: request.names.dns.clone(),
                ips: request.names.ips.clone(),
            },
            emails: request.emails.clone(),
            uris: request.uris.clone(),
            key_usages,
            extended_key_usages,
            validity,
        };
        self.ca.sign(&signing).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", cause.unwrap_or_default())
        })
    }

    /// The message of the approval, if the server itself approves.
    fn approves(&self, stored: &Value, signer: &str, request: &Request) -> Option<&'static str> {
        let user = requester(&stored["spec"]);
        let may = |info: RequestInfo| self.authorizer.authorize(&user, &info, self.store).allowed;
        if signer == KUBELET_CLIENT {
            let to_create = |subresource: &str| RequestInfo {
                is_resource: true,
                verb: "create".to_owned(),
                group: GROUP.to_owned(),
                version: "*".to_owned(),
                resource: RESOURCE.to_owned(),
                subresource: subresource.to_owned(),
                ..RequestInfo::default()
            };
            if user.name == request.common_name && may(to_create("selfnodeclient")) {
                return Some("Auto approving self kubelet client certificate after SubjectAccessReview.");
            }
            return may(to_create("nodeclient"))
                .then_some("Auto approving kubelet client certificate after SubjectAccessReview.");
        }
        if signer != KUBELET_SERVING || !self.approve_kubelet_serving {
            return None;
        }
        // Who may approve the request by hand need not do so.
        let name = stored["metadata"]["name"].as_str().unwrap_or_default();
        let to_write = RequestInfo {
            is_resource: true,
            verb: "update".to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: RESOURCE.to_owned(),
            subresource: "approval".to_owned(),
            name: name.to_owned(),
            ..RequestInfo::default()
        };
        if may(to_write) && (may(approval(KUBELET_SERVING)) || may(approval("kubernetes.io/*"))) {
            return Some("Auto approving kubelet serving certificate of a requester that may approve it.");
        }
        let node = request.common_name.strip_prefix("system:node:")?;
        let is_node =
            user.name == request.common_name && user.groups.iter().any(|group| group == "system:nodes");
        if !is_node || self.state.is_own(&request.names, self.loopback_is_of_nodes) {
            return None;
        }
        // Waiting comes before looking, so that a node made in between is not missed.
        let wait = |waits: bool| {
            let mut inner = self.state.lock();
            let names = inner.waiting.entry(node.to_owned()).or_default();
            if waits {
                names.insert(name.to_owned());
            } else {
                names.remove(name);
            }
            if names.is_empty() {
                inner.waiting.remove(node);
            }
        };
        wait(true);
        let found = Reader::get(self.store, "", "nodes", "", node);
        if !found.is_some_and(|found| own::are_of(&found, &request.names))
            || own::are_of_another(&Reader::list(self.store, "", "nodes", None), node, &request.names)
        {
            return None;
        }
        wait(false);
        Some("Auto approving kubelet serving certificate: all names are the node's own.")
    }

    /// Removes what is old, at most once an hour.
    fn sweep(&self, now: Timestamp) {
        {
            let mut inner = self.state.lock();
            if now.as_second() - inner.swept < SWEEP {
                return;
            }
            inner.swept = now.as_second();
        }
        for (key, object) in self.store.list(&table(), None).items {
            if signers::is_old(&object, now) {
                // A failure means that somebody else removed it or wrote it.
                let _ = self.store.delete(&table(), &key, resource_version(&object));
            }
        }
    }
}

fn add_condition(object: &mut Value, kind: &str, reason: &str, message: &str, now: Timestamp) {
    let condition = json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": rfc3339(now), "lastTransitionTime": rfc3339(now),
    });
    match object["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => object["status"]["conditions"] = json!([condition]),
    }
}

/// The user that the server recorded when the request was created.
fn requester(spec: &Value) -> UserInfo {
    let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
    UserInfo {
        name: text("username"),
        uid: text("uid"),
        groups: serde_json::from_value(spec["groups"].clone()).unwrap_or_default(),
        extra: serde_json::from_value(spec["extra"].clone()).unwrap_or_default(),
    }
}

/// The right to approve requests for a signer.
fn approval(signer: &str) -> RequestInfo {
    on_signer("approve", signer)
}

/// Before a new state of `/status` or `/approval` is validated: what the server fills in.
pub(crate) fn prepare_conditions(keeps_approval: bool, old: &Value, new: &mut Value, now: Timestamp) {
    if keeps_approval {
        for kind in ["Approved", "Denied"] {
            keep(kind, old, new);
        }
    }
    let conditions = new
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let absent = |time: &Value| time.as_str().is_none_or(str::is_empty);
        if absent(&condition["lastUpdateTime"]) {
            condition["lastUpdateTime"] = json!(rfc3339(now));
        }
        if absent(&condition["lastTransitionTime"]) {
            let before = old["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|one| {
                    one["type"] == condition["type"]
                        && one["status"] == condition["status"]
                        && !absent(&one["lastTransitionTime"])
                });
            condition["lastTransitionTime"] = match before {
                Some(before) => before["lastTransitionTime"].clone(),
                None => json!(rfc3339(now)),
            };
        }
    }
}

/// Conditions of a type stay as they were, unless one was added or removed, which validation then refuses.
fn keep(kind: &str, old: &Value, new: &mut Value) {
    let of_kind = |object: &Value| -> Vec<Value> {
        let conditions = object["status"]["conditions"].as_array();
        conditions
            .into_iter()
            .flatten()
            .filter(|one| one["type"] == kind)
            .cloned()
            .collect()
    };
    let before = of_kind(old);
    if before.len() != of_kind(new).len() {
        return;
    }
    let mut before = before.into_iter();
    let conditions = new
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == kind
            && let Some(kept) = before.next()
        {
            *condition = kept;
        }
    }
}
