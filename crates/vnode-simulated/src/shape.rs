//! What a container is, as far as playing it needs: shared by all containers that are alike, so that a
//! hundred thousand replicas of one Deployment hold one.

use super::plan::{Plan, amount, plan};
use evenkeel_probe::core::Kind;
use evenkeel_vnode::core::env::container_of;
use evenkeel_vnode::core::pod::{Role, specs};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A container without what differs from replica to replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) name: Arc<str>,
    /// What part it has.
    pub(crate) part: Role,
    pub(crate) image: Box<str>,
    pub(crate) command: Box<[String]>,
    pub(crate) env: Box<[(String, String)]>,
    /// Where it begins; `/` where nothing is said.
    pub(crate) directory: Box<str>,
    /// Volumes it sees.
    pub(crate) mounts: Box<[Mount]>,
    /// TCP ports that it declares, with their names.
    pub(crate) ports: Box<[(u16, Box<str>)]>,
    /// What its probes ask.
    pub(crate) asked: Box<[Asked]>,
    /// Whether its main process has a standard input, and whether that ends with the first client.
    pub(crate) stdin: Option<Once>,
    /// Whether its main process has a terminal.
    pub(crate) tty: bool,
    /// Where it leaves its last words.
    pub(crate) last_words: Box<str>,
    /// Requested CPU in billionths of a core.
    pub(crate) cpu: u64,
    /// Requested memory in bytes.
    pub(crate) memory: u64,
    /// How it is played.
    pub(crate) plan: Plan,
}

/// `stdinOnce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Once(pub(crate) bool);

/// A volume that a container sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mount {
    /// Which, by its place in [`volumes`].
    pub(crate) volume: usize,
    /// Where, without a slash at the end.
    pub(crate) path: String,
    /// What of it: `subPath`, expanded.
    pub(crate) sub_path: String,
    /// Whether writing is refused.
    pub(crate) read_only: bool,
}

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
    /// Path of HTTP, service of gRPC; `None` for TCP.
    pub(crate) what: Option<String>,
}

impl Shape {
    /// Reads a container, resolved or as the API server has it.
    pub(crate) fn of(pod: &Pod, container: &Container, part: Role) -> Result<Self, String> {
        let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
        let request = |name: &str| {
            let amount = requests.and_then(|requests| requests.get(name));
            amount.and_then(|amount| amount::quantity(&amount.0))
        };
        let env: Box<[(String, String)]> = container
            .env
            .iter()
            .flatten()
            .filter_map(|env| Some((env.name.clone(), env.value.clone()?)))
            .collect();
        let ports: Box<[(u16, Box<str>)]> = container
            .ports
            .iter()
            .flatten()
            .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
            .filter_map(|port| {
                let name = port.name.as_deref().unwrap_or("");
                Some((u16::try_from(port.container_port).ok()?, name.into()))
            })
            .collect();
        let volumes = volumes(container);
        let asked = [
            (Kind::Startup, &container.startup_probe),
            (Kind::Readiness, &container.readiness_probe),
            (Kind::Liveness, &container.liveness_probe),
        ];
        Ok(Self {
            name: container.name.as_str().into(),
            part,
            image: container.image.as_deref().unwrap_or("").into(),
            command: container
                .command
                .iter()
                .chain(&container.args)
                .flatten()
                .cloned()
                .collect(),
            directory: container.working_dir.as_deref().unwrap_or("/").into(),
            mounts: container
                .volume_mounts
                .iter()
                .flatten()
                .map(|mount| Mount {
                    volume: volumes
                        .iter()
                        .position(|name| **name == *mount.name)
                        .unwrap_or_default(),
                    path: mount.mount_path.trim_end_matches('/').to_owned(),
                    sub_path: sub_path(mount.sub_path.as_deref(), mount.sub_path_expr.as_deref(), &env),
                    read_only: mount.read_only == Some(true),
                })
                .collect(),
            env,
            asked: asked
                .iter()
                .filter_map(|(kind, probe)| asked_by(*kind, probe.as_ref()?, &ports))
                .collect(),
            ports,
            stdin: (container.stdin == Some(true)).then_some(Once(container.stdin_once == Some(true))),
            tty: container.tty == Some(true),
            last_words: container
                .termination_message_path
                .as_deref()
                .unwrap_or("/dev/termination-log")
                .into(),
            cpu: request("cpu").map_or(0, |cores| (cores * 1e9) as u64),
            memory: request("memory").map_or(0, |bytes| bytes as u64),
            plan: plan(pod, &container.name, part)?,
        })
    }

    /// The ports on which it listens.
    pub(crate) fn listens(&self) -> Vec<u16> {
        let serve = self
            .plan
            .serve
            .iter()
            .flat_map(|serve| serve.ports.iter().copied());
        let mut ports: Vec<u16> = self
            .ports
            .iter()
            .map(|(port, _)| *port)
            .chain(self.asked.iter().map(|asked| asked.port))
            .chain(serve)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// Names of the volumes that a container sees, each once, in the order of its mounts. They are no part of its
/// shape: for each pod the API server makes up a name of the volume with its token.
pub(crate) fn volumes(container: &Container) -> Arc<[Box<str>]> {
    let mut names: Vec<Box<str>> = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        if names.iter().all(|name| **name != *mount.name) {
            names.push(mount.name.as_str().into());
        }
    }
    names.into()
}

/// `subPathExpr` knows `$(NAME)` alone.
fn sub_path(plain: Option<&str>, expression: Option<&str>, env: &[(String, String)]) -> String {
    let mut text = match (plain, expression) {
        (Some(plain), _) if !plain.is_empty() => return plain.trim_matches('/').to_owned(),
        (_, Some(expression)) => expression.to_owned(),
        _ => return String::new(),
    };
    for (name, value) in env {
        text = text.replace(&format!("$({name})"), value);
    }
    text.trim_matches('/').to_owned()
}

fn asked_by(kind: Kind, probe: &Probe, ports: &[(u16, Box<str>)]) -> Option<Asked> {
    let resolve = |port: &IntOrString| match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let named = ports.iter().find(|(_, known)| known.as_ref() == name);
            named.map(|(port, _)| *port).or_else(|| name.parse().ok())
        }
    };
    let (port, what) = if let Some(get) = &probe.http_get {
        let path = get.path.as_deref().unwrap_or("/");
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        (
            resolve(&get.port)?,
            Some(format!("/{}", path.trim_start_matches('/'))),
        )
    } else if let Some(tcp) = &probe.tcp_socket {
        (resolve(&tcp.port)?, None)
    } else if let Some(grpc) = &probe.grpc {
        let service = grpc.service.clone().unwrap_or_default();
        (u16::try_from(grpc.port).ok()?, Some(service))
    } else {
        return None;
    };
    Some(Asked { kind, port, what })
}

/// A container of any list of the pod, by name.
pub(crate) fn find(pod: &Pod, name: &str) -> Option<(Container, Role)> {
    let role = specs(pod).into_iter().find(|spec| spec.name == name)?.role;
    Some((container_of(pod, name)?, role))
}

/// All shapes in use.
#[derive(Debug, Default)]
pub(crate) struct Shapes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_hash: HashMap<u64, Vec<Weak<Shape>>>,
    /// How many there may be before those that nobody holds are looked for.
    limit: usize,
}

impl Shapes {
    /// The one that is held already, if any is like it.
    pub(crate) fn share(&self, shape: Shape) -> Arc<Shape> {
        let mut hasher = DefaultHasher::new();
        shape.hash(&mut hasher);
        // A panic elsewhere leaves the table whole: it is only ever added to and thinned out.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_hash.len() >= known.limit {
            known.by_hash.retain(|_, alike| {
                alike.retain(|held| held.strong_count() > 0);
                !alike.is_empty()
            });
            known.limit = known.by_hash.len() * 2 + 64;
        }
        let alike = known.by_hash.entry(hasher.finish()).or_default();
        if let Some(held) = alike
            .iter()
            .filter_map(Weak::upgrade)
            .find(|held| **held == shape)
        {
            return held;
        }
        let shape = Arc::new(shape);
        alike.push(Arc::downgrade(&shape));
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(image: &str) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [{
            "name": "web", "image": image,
            "env": [{"name": "POD", "value": "a"}],
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
            "readinessProbe": {"httpGet": {"path": "ready?x=1", "port": "http"}},
            "livenessProbe": {"grpc": {"port": 9090}},
            "volumeMounts": [{"name": "data", "mountPath": "/data/", "subPathExpr": "x/$(POD)"}],
        }]}}))
        .unwrap()
    }

    fn shape(image: &str) -> Shape {
        let pod = pod(image);
        let (container, part) = find(&pod, "web").unwrap();
        Shape::of(&pod, &container, part).unwrap()
    }

    #[test]
    fn a_container_listens_where_it_says_and_where_it_is_probed() {
        let shape = shape("a");
        assert_eq!(shape.listens(), vec![80, 9090]);
        assert_eq!(shape.asked[0].what.as_deref(), Some("/ready"));
        assert_eq!(
            (shape.mounts[0].path.as_str(), shape.mounts[0].sub_path.as_str()),
            ("/data", "x/a")
        );
    }

    #[test]
    fn names_of_volumes_make_no_other_shape() {
        let named = |token: &str| {
            let mounts = json!([{"name": "data", "mountPath": "/data"}, {"name": token, "mountPath": "/token"},
                {"name": "data", "mountPath": "/more", "subPath": "more"}]);
            let pod = json!({"spec": {"containers": [{"name": "web", "volumeMounts": mounts}]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let (container, part) = find(&pod, "web").unwrap();
            (Shape::of(&pod, &container, part).unwrap(), volumes(&container))
        };
        let (one, names) = named("kube-api-access-x7k2p");
        assert_eq!(one, named("kube-api-access-q9z4m").0);
        let seen = one.mounts.iter().map(|mount| &*names[mount.volume]);
        assert_eq!(
            seen.collect::<Vec<_>>(),
            ["data", "kube-api-access-x7k2p", "data"]
        );
    }

    #[test]
    fn containers_that_are_alike_share_one_shape_as_long_as_somebody_holds_it() {
        let shapes = Shapes::default();
        let one = shapes.share(shape("a"));
        assert!(Arc::ptr_eq(&one, &shapes.share(shape("a"))));
        assert!(!Arc::ptr_eq(&one, &shapes.share(shape("b"))));
        for index in 0..1000 {
            shapes.share(shape(&index.to_string()));
        }
        let known = shapes.0.lock().unwrap().by_hash.len();
        assert!(known < 300, "{known} shapes are kept that nobody holds");
    }
}
