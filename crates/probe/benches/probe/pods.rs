//! Pods with names as they are in clusters.

use evenkeel_probe::core::engine::Config;
use evenkeel_probe::core::{
    Attempt, Compat, Container, ContainerState, ContainerStatus, Handler, HttpGet, Kind, Outcome, Phase, Pod,
    PodStatus, Policy, Port, Probe, Scheme, Target,
};
use evenkeel_probe::handler::exec::{Execute, Ran};
use evenkeel_probe::handler::{Handlers, Prober};
use evenkeel_probe::manager::Manager;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) fn http(port: u16) -> Handler {
    Handler::HttpGet(HttpGet {
        scheme: Scheme::Http,
        host: None,
        port: Port::Number(port.into()),
        path: "/healthz/ready".to_owned(),
        headers: Vec::new(),
    })
}

pub(crate) fn tcp(port: u16) -> Handler {
    Handler::TcpSocket {
        host: None,
        port: Port::Number(port.into()),
    }
}

pub(crate) fn grpc(port: u16) -> Handler {
    Handler::Grpc {
        port,
        service: String::new(),
    }
}

/// The real handlers; nothing here runs commands.
pub(crate) fn handlers() -> Handlers {
    struct Nothing;
    impl Execute for Nothing {
        fn execute<'a>(&'a self, _: &'a Target, _: &'a [String], _: Duration) -> BoxFuture<'a, Ran> {
            Box::pin(async { panic!("no command is probed here") })
        }
    }
    Handlers::new(Arc::new(Nothing))
}

/// An attempt outside of any manager.
pub(crate) fn attempt(handler: Handler) -> Attempt {
    let pod = pod(0, handler, Duration::from_secs(1));
    let container = pod.containers[0].clone();
    Attempt {
        ticket: 0,
        key: evenkeel_probe::core::Key {
            pod: pod.uid.clone(),
            container: container.name.clone(),
            kind: Kind::Readiness,
        },
        probe: container.readiness.clone().unwrap(),
        target: Target {
            address: Some([127, 0, 0, 1].into()),
            source: None,
            container,
            container_id: id(0).into(),
        },
        compat: Compat::Kubelet,
        lag: Duration::ZERO,
    }
}

/// One pod of many, with a readiness probe.
fn pod(number: usize, handler: Handler, period: Duration) -> Pod {
    let probe = Probe {
        period,
        // A machine that has other things to do is no reason to fail.
        timeout: Duration::from_secs(20),
        ..Probe::new(handler)
    };
    Pod {
        uid: format!("8c1f7f0e-52a4-4b6d-9d3c-{number:012x}").into(),
        namespace: format!("payments-team-{}", number % 20).into(),
        name: format!("checkout-frontend-7d9c6b5f4d-{number:05x}").into(),
        deleting: false,
        restart_policy: Default::default(),
        containers: vec![Arc::new(Container {
            name: "checkout-frontend".into(),
            ports: vec![("http".to_owned(), 8080)],
            readiness: Some(Arc::new(probe)),
            ..Container::default()
        })],
    }
}

fn id(number: usize) -> String {
    format!("containerd://{number:064x}")
}

pub(crate) fn manager(compat: Compat, prober: impl Prober) -> Manager {
    let config = Config {
        policy: Policy {
            compat,
            ..Policy::default()
        },
        concurrency: 1024,
        exec_concurrency: 16,
        source: None,
        seed: 7,
    };
    Manager::start(config, prober, Default::default(), Default::default())
}

/// So many pods whose containers have just started.
pub(crate) fn populate(manager: &Manager, number: usize, handler: &Handler, period: Duration) {
    for number in 0..number {
        let pod = pod(number, handler.clone(), period);
        let uid = pod.uid.clone();
        let status = PodStatus {
            phase: Phase::Running,
            address: Some([127, 0, 0, 1].into()),
            containers: vec![ContainerStatus {
                name: "checkout-frontend".into(),
                id: id(number).into(),
                state: ContainerState::Running {
                    started_at: SystemTime::UNIX_EPOCH.elapsed().unwrap(),
                },
                started: Some(true),
                ready: false,
                taken_over: false,
            }],
            ..PodStatus::default()
        };
        manager.add_pod(Arc::new(pod));
        manager.update_status(&uid, status);
    }
}

/// A prober that asks nobody.
pub(crate) struct Nobody;

impl Prober for Nobody {
    async fn probe(&self, _: &Attempt) -> Outcome {
        Outcome::success("ok")
    }
}
