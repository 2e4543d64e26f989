//! What a probe is: the fields of Kubernetes, and those that only [`Compat::Strict`](Compat) reads.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Whose rules apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compat {
    /// The kubelet's of 1.36, its oddities included.
    #[default]
    Kubelet,
    /// Ours: exact times, errors that count, counters that do not outlive a container.
    Strict,
}

/// Which probe of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Holds the other two back until it has succeeded once; its failure restarts the container.
    Startup,
    /// Its failure takes the container out of service.
    Readiness,
    /// Its failure restarts the container.
    Liveness,
}

impl Kind {
    /// In the order in which the kubelet starts them.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    /// As in events and metric labels: `Liveness`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }

    /// As in a manifest: `livenessProbe`.
    pub fn field(self) -> &'static str {
        match self {
            Self::Startup => "startupProbe",
            Self::Readiness => "readinessProbe",
            Self::Liveness => "livenessProbe",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One probe, with defaults applied: nothing here is zero that Kubernetes would not let be zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is done.
    pub handler: Handler,
    /// From the start of the container to the first probe. Whole seconds in kubelet mode.
    pub initial_delay: Duration,
    /// For the whole attempt: dial, handshake, redirects, body. More than zero.
    pub timeout: Duration,
    /// From one probe to the next. More than zero.
    pub period: Duration,
    /// Successes in a row before `Success` is published. 1 for liveness and startup.
    pub success_threshold: u32,
    /// Failures in a row before `Failure` is published. At least 1.
    pub failure_threshold: u32,
    /// Overrides the pod's grace period when this probe is the reason to kill.
    pub termination_grace_period: Option<Duration>,
    /// What Kubernetes has no fields for.
    pub extras: Extras,
}

impl Probe {
    /// With Kubernetes' defaults: period 10 s, timeout 1 s, thresholds 1 and 3, no delay.
    pub fn new(handler: Handler) -> Self {
        Self {
            handler,
            initial_delay: Duration::ZERO,
            timeout: Duration::from_secs(1),
            period: Duration::from_secs(10),
            success_threshold: 1,
            failure_threshold: 3,
            termination_grace_period: None,
            extras: Extras::default(),
        }
    }
}

/// What a probe does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handler {
    /// Runs a command in the container; exit code 0 is a success.
    Exec {
        /// Program and arguments; no shell. `$(NAME)` is replaced by the container's literal environment.
        command: Vec<String>,
    },
    /// Asks by HTTP; 200 to 399 is a success.
    HttpGet(HttpGet),
    /// Opens a connection and closes it.
    TcpSocket {
        /// Instead of the pod's address.
        host: Option<String>,
        /// The port to connect to.
        port: Port,
    },
    /// Asks by `grpc.health.v1.Health/Check`.
    Grpc {
        /// 1 to 65535.
        port: u16,
        /// Name of the service, often empty.
        service: String,
    },
}

impl Handler {
    /// As in a manifest: `httpGet`.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::HttpGet(_) => "httpGet",
            Self::TcpSocket { .. } => "tcpSocket",
            Self::Grpc { .. } => "grpc",
        }
    }
}

/// An HTTP probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpGet {
    /// `HTTP` or `HTTPS`.
    pub scheme: Scheme,
    /// Instead of the pod's address.
    pub host: Option<String>,
    /// The port to connect to.
    pub port: Port,
    /// Path, with a query if need be.
    pub path: String,
    /// In their order; names may repeat.
    pub headers: Vec<(String, String)>,
}

/// Scheme of an HTTP probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    /// In the clear.
    #[default]
    Http,
    /// TLS; the certificate is not verified unless [`Extras::tls`] says so.
    Https,
}

impl Scheme {
    /// `http` or `https`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// A port as a manifest gives it (`IntOrString`). Resolved at each attempt, as the kubelet does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Port {
    /// 1 to 65535, or an error at the attempt.
    Number(i64),
    /// Name of one of the container's ports, or a number in decimal.
    Name(String),
}

/// Settings without a field in Kubernetes. Ignored by [`Compat::Kubelet`](Compat).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// Errors in a row (no result at all) before `Unknown` is published; `None`: as many as the failure
    /// threshold.
    pub error_threshold: Option<u32>,
    /// Instead of failures in a row.
    pub window: Option<Window>,
    /// For HTTPS and gRPC.
    pub tls: Tls,
    /// Whether gRPC goes over TLS.
    pub grpc_tls: bool,
    /// Whether an answer of 300 to 399 that is not followed is a failure instead of a warning.
    pub fail_on_redirect: bool,
    /// Bytes of the body to show when an HTTP probe fails. Kubernetes shows none, for fear of secrets.
    pub body_snippet: usize,
}

impl Default for Extras {
    fn default() -> Self {
        Self {
            error_threshold: None,
            window: None,
            tls: Tls::Unverified,
            grpc_tls: false,
            fail_on_redirect: false,
            body_snippet: 0,
        }
    }
}

/// n of m: `Failure` is published once `failures` of the last `of` results are failures, and `Success` once
/// fewer are and the success threshold is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// 1 to `of`.
    pub failures: u32,
    /// 1 to 64.
    pub of: u32,
}

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tls {
    /// Anybody, as the kubelet does.
    #[default]
    Unverified,
    /// A certificate of these authorities (PEM) for this name; `None`: the host that is probed.
    Verified {
        /// The authorities, in PEM.
        ca_pem: String,
        /// Expected name.
        server_name: Option<String>,
    },
}
