//! A cluster for tests: an embedded API server with what `deploy/` installs, and words to make, change and
//! await its objects. A word that the API server refuses fails the test.

use crate::objects::{Conditions, is_ready, waits_for};
use crate::{ApiServer, Options, SOON, api_server_with};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// Where objects of a kind live: in the cluster as a whole, or in a namespace of it.
pub trait Place: Sized {
    /// The objects of a kind that lives there.
    fn api<K: Resource<Scope = Self, DynamicType = ()>>(client: Client, namespace: &str) -> Api<K>;
}

impl Place for ClusterResourceScope {
    fn api<K: Resource<Scope = Self, DynamicType = ()>>(client: Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}

impl Place for NamespaceResourceScope {
    fn api<K: Resource<Scope = Self, DynamicType = ()>>(client: Client, namespace: &str) -> Api<K> {
        Api::namespaced(client, namespace)
    }
}

/// A kind that the words of a [`Cluster`] take.
pub trait Kind:
    Resource<DynamicType = (), Scope: Place> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope: Place> + Clone + Debug + Serialize + DeserializeOwned
{
}

/// What a test does with objects of one kind, where anything but success fails it.
pub trait Objects<K> {
    /// Creates an object, which is returned as it was stored.
    fn add(&self, object: &K) -> impl Future<Output = K>;

    /// Merges into an object.
    fn merge(&self, name: &str, patch: Value) -> impl Future<Output = K>;

    /// Merges into an object's status.
    fn merge_status(&self, name: &str, status: Value) -> impl Future<Output = K>;

    /// Deletes an object, or asks for that where something holds it.
    fn remove(&self, name: &str) -> impl Future<Output = ()>;
}

impl<K: Clone + Debug + Serialize + DeserializeOwned> Objects<K> for Api<K> {
    async fn add(&self, object: &K) -> K {
        let made = self.create(&PostParams::default(), object).await;
        made.unwrap_or_else(|error| unreachable!("it is not created: {error}: {:#}", json!(object)))
    }

    async fn merge(&self, name: &str, patch: Value) -> K {
        let patched = self
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap_or_else(|error| unreachable!("{name} is not patched: {error}"))
    }

    async fn merge_status(&self, name: &str, status: Value) -> K {
        let patch = Patch::Merge(json!({"status": status}));
        let patched = self.patch_status(name, &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| unreachable!("the status of {name} is not patched: {error}"))
    }

    async fn remove(&self, name: &str) {
        let removed = self.delete(name, &DeleteParams::default()).await;
        removed.unwrap_or_else(|error| unreachable!("{name} is not deleted: {error}"));
    }
}

/// Who uses a cluster, and in which of its namespaces.
#[derive(Clone)]
pub struct Cluster {
    /// The client by which everything here is done.
    pub client: Client,
    server: Option<ApiServer>,
    namespace: String,
    deadline: Duration,
}

impl Cluster {
    /// A fresh API server inside the process, for its administrator.
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    /// The same with options.
    pub fn with(options: Options) -> Self {
        Self::of(&api_server_with(options))
    }

    /// The administrator of an API server that is there.
    pub fn of(server: &ApiServer) -> Self {
        Self {
            server: Some(server.clone()),
            ..Self::by(server.client())
        }
    }

    /// Whoever this client is, at whatever API server.
    pub fn by(client: Client) -> Self {
        Self {
            client,
            server: None,
            namespace: "default".to_owned(),
            deadline: SOON,
        }
    }

    /// The same in another namespace than `default`.
    #[must_use]
    pub fn namespaced(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// The same, with more patience than [`SOON`].
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The API server inside the process.
    pub fn server(&self) -> &ApiServer {
        self.server
            .as_ref()
            .expect("this cluster's server is in the process")
    }

    /// Creates Evenkeel's own kinds, and the accounts and rights that `deploy/` gives to its processes.
    /// An agent may be a user `system:node:NAME` of the group `system:nodes`.
    pub async fn install(&self) {
        self.apply_file("crds.yaml").await;
        self.apply_file("rbac.yaml").await;
        self.apply_file("policies.yaml").await;
        self.apply_file("host-units.yaml").await;
    }

    /// Creates all objects of a manifest in `deploy/`.
    pub async fn apply_file(&self, name: &str) {
        let file = crate::root().join("deploy").join(name);
        self.apply(&std::fs::read_to_string(file).expect("the manifest is there"))
            .await;
    }

    /// Creates all objects of a manifest. What is there already stays as it is.
    pub async fn apply(&self, manifest: &str) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).expect("the manifest is YAML");
        for document in documents {
            self.create_any(document).await;
        }
    }

    /// Creates an object of the kind that it names. One that is there already stays as it is.
    pub async fn create_any(&self, object: Value) {
        let (api, object) = api_of(&self.client, object);
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made.expect("the object is valid")),
        }
    }

    /// All objects of a kind, for what has no word here.
    pub fn api<K: Kind>(&self) -> Api<K> {
        K::Scope::api(self.client.clone(), &self.namespace)
    }

    /// Gives a user these rights in the whole cluster.
    pub async fn grant(&self, user: &str, rules: Value) {
        self.create::<ClusterRole>(json!({"metadata": {"name": user.replace(':', "-")}, "rules": rules}))
            .await;
        self.create::<ClusterRoleBinding>(binding("ClusterRole", user))
            .await;
    }

    /// Gives a user these rights in this namespace.
    pub async fn grant_here(&self, user: &str, rules: Value) {
        self.create::<Role>(json!({"metadata": {"name": user.replace(':', "-")}, "rules": rules}))
            .await;
        self.create::<RoleBinding>(binding("Role", user)).await;
    }

    /// The nodes.
    pub fn nodes(&self) -> Api<Node> {
        self.api()
    }

    /// The pods of this namespace.
    pub fn pods(&self) -> Api<Pod> {
        self.api()
    }

    /// Creates an object, which is returned as it was stored.
    pub async fn create<K: Kind>(&self, object: Value) -> K {
        self.add(&read(object)).await
    }

    /// The same of one that is there as a type.
    pub async fn add<K: Kind>(&self, object: &K) -> K {
        self.api().add(object).await
    }

    /// An object that is there.
    pub async fn get<K: Kind>(&self, name: &str) -> K {
        let found = self.find(name).await;
        found.unwrap_or_else(|| unreachable!("no {} {name}", K::kind(&())))
    }

    /// An object, if it is there.
    pub async fn find<K: Kind>(&self, name: &str) -> Option<K> {
        self.api::<K>()
            .get_opt(name)
            .await
            .expect("the API server answers")
    }

    /// All objects of a kind in this namespace.
    pub async fn list<K: Kind>(&self) -> Vec<K> {
        let list = self.api::<K>().list(&ListParams::default()).await;
        list.expect("the API server answers").items
    }

    /// Merges into an object.
    pub async fn merge<K: Kind>(&self, name: &str, patch: Value) -> K {
        self.api().merge(name, patch).await
    }

    /// Merges into an object's status.
    pub async fn merge_status<K: Kind>(&self, name: &str, status: Value) -> K {
        self.api().merge_status(name, status).await
    }

    /// Deletes an object, or asks for that where something holds it.
    pub async fn delete<K: Kind>(&self, name: &str) {
        self.api::<K>().remove(name).await;
    }

    /// The object once it is there and as wanted.
    pub async fn until<K: Kind>(&self, name: &str, what: &str, wanted: impl Fn(&K) -> bool) -> K {
        self.until_some(name, what, |object: &K| wanted(object).then(|| object.clone()))
            .await
    }

    /// What `look` finds in the object, once it finds something.
    pub async fn until_some<K: Kind, T>(&self, name: &str, what: &str, look: impl Fn(&K) -> Option<T>) -> T {
        let end = Instant::now() + self.deadline;
        loop {
            let seen = self.find::<K>(name).await;
            if let Some(found) = seen.as_ref().and_then(&look) {
                return found;
            }
            let kind = K::kind(&());
            // The object as it is then: often the only trace of a rare failure.
            assert!(
                Instant::now() < end,
                "{kind} {name} {what}: not within {:?}: {:#}",
                self.deadline,
                json!(seen)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until an object is no longer there.
    pub async fn gone<K: Kind>(&self, name: &str) {
        let what = format!("{} {name} is gone", K::kind(&()));
        crate::until_within(&what, self.deadline, async || {
            self.find::<K>(name).await.is_none()
        })
        .await;
    }

    /// The object once it is Ready.
    pub async fn ready<K: Kind + Conditions>(&self, name: &str) -> K {
        self.until(name, "is Ready", is_ready).await
    }

    /// The pod once one of its containers waits for this reason.
    pub async fn pod_waits(&self, name: &str, container: &str, reason: &str) -> Pod {
        let what = format!("waits for {reason} with {container}");
        self.until(name, &what, |pod| waits_for(pod, container, reason))
            .await
    }

    /// A node of this name, without any labels.
    pub async fn node(&self, name: &str) -> Node {
        self.create(json!({"metadata": {"name": name}})).await
    }

    /// Sets a node's condition `Ready`, as its kubelet does.
    pub async fn node_becomes(&self, name: &str, ready: &str) {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({"type": "Ready", "status": ready, "lastTransitionTime": now});
        self.merge_status::<Node>(name, json!({"conditions": [ready]}))
            .await;
    }

    /// A pod with one container `app`, bound to a node. `more` is merged into the object.
    pub async fn pod(&self, name: &str, node: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "automountServiceAccountToken": false,
                "containers": [{"name": "app", "image": "registry.example.com/app:1"}]},
        });
        json_patch::merge(&mut pod, &more);
        self.create(pod).await
    }

    /// A pod's status as it is when the pod runs and is ready.
    pub async fn pod_runs(&self, name: &str) {
        let now = jiff::Timestamp::now().to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let conditions = ["Initialized", "ContainersReady", "Ready"].map(condition);
        self.merge_status::<Pod>(name, json!({"phase": "Running", "conditions": conditions}))
            .await;
    }

    /// All Events about an object of this name, in all namespaces.
    pub async fn events(&self, about: &str) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.client.clone());
        let mut events = events
            .list(&ListParams::default())
            .await
            .expect("the API server answers")
            .items;
        events.retain(|event| event.involved_object.name.as_deref() == Some(about));
        events
    }

    /// An Event about an object with this reason and text, once there is one. Empty ones are any.
    pub async fn event(&self, about: &str, reason: &str, text: &str) -> Event {
        let what = format!("Event {reason} about {about} with {text:?}");
        crate::eventually(&what, self.deadline, async || {
            self.events(about).await.into_iter().find(|event| {
                let said = event.reason.as_deref().unwrap_or_default();
                (reason.is_empty() || said == reason)
                    && event.message.as_deref().unwrap_or_default().contains(text)
            })
        })
        .await
    }

    /// Who holds a Lease of this namespace; empty where nobody does.
    pub async fn holder(&self, lease: &str) -> String {
        let spec = self.find::<Lease>(lease).await.and_then(|lease| lease.spec);
        spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }

    /// Renews a Lease of this namespace, which is created where it is missing.
    pub async fn renew(&self, lease: &str, holder: &str) {
        let spec = json!({"holderIdentity": holder, "renewTime": format!("{:.6}", jiff::Timestamp::now())});
        let patch = Patch::Merge(json!({"spec": spec}));
        let renewed = self
            .api::<Lease>()
            .patch(lease, &PatchParams::default(), &patch)
            .await;
        if matches!(renewed, Err(kube::Error::Api(status)) if status.code == 404) {
            self.create::<Lease>(json!({"metadata": {"name": lease}, "spec": spec}))
                .await;
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

/// Binds a user to the role of the same name.
fn binding(kind: &str, user: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let name = user.replace(':', "-");
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]})
}

/// An object of the kind that it names, and where it stands.
pub(crate) fn api_of(client: &Client, object: Value) -> (Api<DynamicObject>, DynamicObject) {
    let object: DynamicObject = read(object);
    let kind = object.types.as_ref().expect("it names its kind");
    let kind = GroupVersionKind::try_from(kind).expect("it names its version");
    let mut resource = ApiResource::from_gvk(&kind);
    if kind.kind == "ZoneHealth" {
        // It has no other plural.
        "zonehealth".clone_into(&mut resource.plural);
    }
    let api = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    (api, object)
}

/// A value of any type from JSON that a test has written.
pub fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the test writes what can be read")
}
