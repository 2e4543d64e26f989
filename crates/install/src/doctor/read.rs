//! What `evenkeel doctor` reads: with the rights of whoever asks, and nothing is changed.

use super::facts::{Facts, PARTS, Reach};
use super::findings;
use crate::cluster::Named;
use crate::error::InstallError;
use crate::objects::{AGENT, CONTROLLER, Options, objects, options_of};
use crate::preflight;
use crate::rollout::Sight;
use evenkeel_api::names;
use http::Request;
use http::header::{CONTENT_TYPE, DATE};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

const METRIC: &str = "apiserver_admission_webhook_fail_open_count";

/// Reads everything. Fails where the API server cannot be asked at all.
pub(super) async fn facts(client: &Client) -> Result<Facts, InstallError> {
    let mut facts = Facts {
        now: now(),
        ..Facts::default()
    };
    match preflight::version(client).await {
        Ok(note) => facts.version_note = note,
        Err(InstallError::Refused(why)) => facts.version_refused = Some(why),
        Err(error) => return Err(error),
    }
    facts.server_time = server_time(client).await;
    let mut reader = Reader {
        client,
        troubles: Vec::new(),
    };
    facts.nodes = reader.all("v1", "Node", None).await;
    facts.pods = reader.all("v1", "Pod", None).await;
    let of_nodes = Some(names::NODE_LEASE_NAMESPACE);
    facts.node_leases = reader.all("coordination.k8s.io/v1", "Lease", of_nodes).await;
    let account = Named::new("v1", "ServiceAccount", Some("kube-system"), "node-controller");
    facts.has_node_controller_account = reader.get(&account).await.is_some();
    match preflight::homes(client).await {
        Ok(homes) if homes.len() > 1 => {
            let fix = "evenkeel uninstall --namespace NAME of what you do not use";
            facts.unclear = Some((preflight::several(&homes), fix.to_owned()));
        }
        Ok(homes) => match homes.first() {
            Some(home) => installed(&mut reader, &mut facts, home).await,
            None => facts.refused = refusal(client).await,
        },
        Err(error) => {
            let why = format!("cannot tell whether Evenkeel is installed: {error}");
            facts.unclear = Some((why, findings::fix_of(&error).to_owned()));
        }
    }
    facts.troubles = reader.troubles;
    Ok(facts)
}

async fn installed(reader: &mut Reader<'_>, facts: &mut Facts, home: &str) {
    let in_home = Some(home);
    let deployment = Named::new("apps/v1", "Deployment", in_home, CONTROLLER);
    let daemon_set = Named::new("apps/v1", "DaemonSet", in_home, AGENT);
    facts.sight = Sight {
        deployment: reader.get(&deployment).await.unwrap_or_default(),
        daemon_set: reader.get(&daemon_set).await.unwrap_or_default(),
        pods: facts
            .pods
            .iter()
            .filter(|pod| pod["metadata"]["namespace"] == home)
            .cloned()
            .collect(),
        events: reader.all("v1", "Event", in_home).await,
    };
    let usual = Options {
        namespace: home.to_owned(),
        ..Options::default()
    };
    let (options, unread) = options_of(&facts.sight.deployment, &facts.sight.daemon_set, &usual);
    (facts.options, facts.unread) = (Some(options), unread);
    let namespace = Named::new("v1", "Namespace", None, home);
    facts.namespace = reader.get(&namespace).await.unwrap_or_default();
    facts.leases = reader.all("coordination.k8s.io/v1", "Lease", in_home).await;
    let ours = format!("{}/{}", names::GROUP, names::VERSION);
    facts.agents = reader.all(&ours, "AgentStatus", None).await;
    facts.cells = reader.all(&ours, "ZoneHealth", None).await;
    for (api_version, kind, _) in PARTS {
        for mut object in reader.all(api_version, kind, None).await {
            object["kind"] = json!(kind);
            facts.parts.push(object);
        }
    }
    facts.webhook = reader.get(&Named::webhook()).await;
    facts.reach = reach(reader.client, home).await;
    facts.fail_open = fail_open(reader.client).await;
}

#[allow(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

struct Reader<'a> {
    client: &'a Client,
    troubles: Vec<(String, InstallError)>,
}

impl Reader<'_> {
    async fn all(&mut self, api_version: &str, kind: &str, namespace: Option<&str>) -> Vec<Value> {
        let named = Named::new(api_version, kind, namespace, "");
        let found = named.siblings(self.client).await;
        self.seen(&named, found)
    }

    async fn get(&mut self, named: &Named) -> Option<Value> {
        let found = named.get(self.client).await;
        self.seen(named, found)
    }

    /// What was found; if it could not be read, nothing.
    fn seen<T: Default>(&mut self, named: &Named, found: Result<T, InstallError>) -> T {
        found.unwrap_or_else(|error| {
            // Leases of Evenkeel may have been read where those of nodes were not.
            let of_nodes = named.namespace.as_deref() == Some(names::NODE_LEASE_NAMESPACE);
            let kind = if of_nodes { "node Lease" } else { named.kind() };
            self.troubles.push((kind.to_owned(), error));
            T::default()
        })
    }
}

/// Why an installation would be refused, if it would.
async fn refusal(client: &Client) -> Option<String> {
    let options = Options::default();
    let tried = async {
        let there = preflight::namespace(client, &options.namespace).await?;
        let absent = there.is_none().then_some(options.namespace.as_str());
        preflight::acceptance(client, objects(&options), absent, &mut Vec::new()).await
    };
    tried.await.err().map(|error| match error {
        InstallError::Refused(why) => why,
        other => other.to_string(),
    })
}

/// The API server's clock, as its answers say.
async fn server_time(client: &Client) -> Option<Timestamp> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let response = client.send(request).await.ok()?;
    let date = response.headers().get(DATE)?.to_str().ok()?;
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

/// Has the API server itself ask the webhook's Service. Whatever the webhook says, it was reached; what the
/// API server says is a Status.
pub(crate) async fn reach(client: &Client, home: &str) -> Reach {
    let path = format!("/api/v1/namespaces/{home}/services/https:evenkeel-webhook:443/proxy/readyz");
    let Ok(request) = Request::get(path).body(Body::empty()) else {
        return Reach::Unknown;
    };
    // Otherwise it is the API server itself that did not answer.
    let Ok(response) = client.send(request).await else {
        return Reach::Unknown;
    };
    let by_the_server = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if response.status().is_success() || !by_the_server {
        return Reach::Answers;
    }
    let forbidden = response.status() == 403;
    let body = response.into_body().collect_bytes().await.unwrap_or_default();
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    if forbidden {
        return Reach::Unknown;
    }
    Reach::Fails(status["message"].as_str().unwrap_or("no reason given").to_owned())
}

/// How often it has gone on without the webhook, as its metrics say; `None`: they cannot be read, or do not
/// say it.
async fn fail_open(client: &Client) -> Option<u64> {
    let request = Request::get("/metrics").body(Vec::new()).ok()?;
    let text = client.request_text(request).await.ok()?;
    let ours = text
        .lines()
        .filter(|line| line.starts_with(METRIC) && line.contains(".guard.evenkeel.io\""));
    let counts: Vec<u64> = ours
        // From a million on, counts are written as 1e+06.
        .filter_map(|line| Some(line.rsplit(' ').next()?.parse::<f64>().ok()? as u64))
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}
