//! The annotation `evenkeel.io/probes`: settings of probes for which Kubernetes has no fields. Read in strict
//! mode.
//!
//! ```yaml
//! metadata:
//!   annotations:
//!     evenkeel.io/probes: |
//!       web:
//!         readinessProbe: {period: 250ms, timeout: 100ms, window: {failures: 3, of: 5}}
//! ```

use super::problem::{ConvertError, Problem, Problems, present};
use super::read::yaml;
use crate::core::{Handler, Kind, Pod, Probe, Scheme, Tls, Window};
use evenkeel_api::names::annotations::PROBES;
use evenkeel_net::duration;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most of a body that may be shown, in bytes.
const SNIPPET: u64 = 1024;
/// Most results that a window can look back on.
const WINDOW: u64 = 64;
const DAY: Duration = Duration::from_secs(24 * 3600);
const MILLISECOND: Duration = Duration::from_millis(1);
/// Most that is read of a file of authorities, in bytes.
const CA_BYTES: u64 = 1 << 20;

/// Reads the file that `caFile` names; the error says why it could not.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> Result<String, String>;

/// Reads a file of at most 1 MiB. A [`ReadFile`].
pub fn read_file(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(CA_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > CA_BYTES {
        return Err(format!("is larger than {CA_BYTES} bytes"));
    }
    Ok(text)
}

/// `pod` with the settings of its annotation; `value` is the pod that it was converted from. Blocks if the
/// annotation names a file. Without the annotation, the pod is as it was.
pub fn strict(pod: Pod, value: &Value, read: ReadFile) -> Result<Pod, ConvertError> {
    let mut problems = Problems::default();
    let pod = apply(pod, value, Some(read), &mut problems);
    problems.or(pod)
}

/// What is wrong with the annotation, as far as can be told without reading files.
pub(crate) fn check(pod: &Pod, value: &Value) -> Vec<Problem> {
    let mut problems = Problems::default();
    apply(pod.clone(), value, None, &mut problems);
    problems.into_list()
}

fn apply(mut pod: Pod, value: &Value, read: Option<ReadFile>, problems: &mut Problems) -> Pod {
    let path = format!("metadata.annotations[{PROBES}]");
    let Some(text) = present(&value["metadata"]["annotations"], PROBES) else {
        return pod;
    };
    let Some(text) = text.as_str() else {
        problems.report(path, "must be a string");
        return pod;
    };
    let settings = match yaml(text) {
        Ok(settings) => settings,
        Err((line, reason)) => {
            problems.report(path, format!("line {line}: {reason}"));
            return pod;
        }
    };
    let Some(containers) = problems.mapping(&settings, &path) else {
        return pod;
    };
    for (name, probes) in containers {
        let at = format!("{path}: {name}");
        let Some(slot) = pod.containers.iter_mut().find(|one| *one.name == **name) else {
            problems.report(at, "no container of the pod has this name");
            continue;
        };
        let Some(probes) = problems.mapping(probes, &at) else {
            continue;
        };
        let container = Arc::make_mut(slot);
        for (field, settings) in probes {
            let at = format!("{at}.{field}");
            let probe = match Kind::ALL.into_iter().find(|kind| kind.field() == field) {
                Some(Kind::Startup) => &mut container.startup,
                Some(Kind::Readiness) => &mut container.readiness,
                Some(Kind::Liveness) => &mut container.liveness,
                None => {
                    problems.report(at, "is none of startupProbe, readinessProbe, livenessProbe");
                    continue;
                }
            };
            let Some(probe) = probe else {
                problems.report(at, "the container has no such probe");
                continue;
            };
            if let Some(settings) = problems.mapping(settings, &at) {
                let mut reader = Reader {
                    at: &at,
                    read,
                    problems,
                };
                reader.probe(Arc::make_mut(probe), settings);
            }
        }
    }
    pod
}

/// Reads the settings of one probe.
struct Reader<'a, 'r> {
    at: &'a str,
    read: Option<ReadFile<'r>>,
    problems: &'a mut Problems,
}

impl Reader<'_, '_> {
    fn probe(&mut self, probe: &mut Probe, settings: &Map<String, Value>) {
        let (http, grpc) = (
            matches!(probe.handler, Handler::HttpGet(_)),
            matches!(probe.handler, Handler::Grpc { .. }),
        );
        for (name, value) in settings {
            match name.as_str() {
                "initialDelay" => self.duration(name, value, Duration::ZERO, &mut probe.initial_delay),
                "timeout" => self.duration(name, value, MILLISECOND, &mut probe.timeout),
                "period" => self.duration(name, value, MILLISECOND, &mut probe.period),
                "errorThreshold" => {
                    let most = u64::try_from(i32::MAX).unwrap_or_default();
                    probe.extras.error_threshold = self.number(name, value, 1, most);
                }
                "window" => probe.extras.window = self.window(value),
                "failOnRedirect" | "bodySnippet" if !http => self.report(name, "is for httpGet alone"),
                "failOnRedirect" => probe.extras.fail_on_redirect = self.flag(name, value),
                "bodySnippet" => {
                    let bytes = self.number(name, value, 0, SNIPPET).unwrap_or_default();
                    probe.extras.body_snippet = bytes as usize;
                }
                "grpcTLS" if !grpc => self.report(name, "is for grpc alone"),
                "grpcTLS" => probe.extras.grpc_tls = self.flag(name, value),
                "tls" => {
                    let encrypted = match &probe.handler {
                        Handler::HttpGet(get) => get.scheme == Scheme::Https,
                        Handler::Grpc { .. } => settings.get("grpcTLS") == Some(&Value::Bool(true)),
                        _ => false,
                    };
                    if encrypted {
                        probe.extras.tls = self.tls(value);
                    } else {
                        self.report(name, "needs an httpGet with scheme HTTPS, or a grpc with grpcTLS: true");
                    }
                }
                _ => self.report(
                    name,
                    "is no setting; there are initialDelay, timeout, period, errorThreshold, window, failOnRedirect, \
                     bodySnippet, tls, grpcTLS",
                ),
            }
        }
    }

    fn report(&mut self, name: &str, message: impl Into<String>) {
        self.problems.report(format!("{}.{name}", self.at), message);
    }

    fn duration(&mut self, name: &str, value: &Value, least: Duration, slot: &mut Duration) {
        let Some(text) = value.as_str() else {
            return self.report(name, "must be a duration such as 250ms or 1m30s");
        };
        match duration::parse(text) {
            Ok(found) if (least..=DAY).contains(&found) => *slot = found,
            Ok(_) => self.report(name, format!("{text} is not between {least:?} and 24h")),
            Err(reason) => self.report(name, reason),
        }
    }

    fn number(&mut self, name: &str, value: &Value, least: u64, most: u64) -> Option<u32> {
        let number = value.as_u64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.report(name, format!("must be a whole number from {least} to {most}"));
        }
        number.and_then(|number| u32::try_from(number).ok())
    }

    fn flag(&mut self, name: &str, value: &Value) -> bool {
        value.as_bool().unwrap_or_else(|| {
            self.report(name, "must be true or false");
            false
        })
    }

    fn window(&mut self, value: &Value) -> Option<Window> {
        let Some(members) = value.as_object() else {
            self.report("window", "must be a mapping: {failures: 3, of: 5}");
            return None;
        };
        for name in members.keys().filter(|name| *name != "failures" && *name != "of") {
            self.report(&format!("window.{name}"), "is no setting; there are failures, of");
        }
        let of = self.number("window.of", &value["of"], 1, WINDOW);
        let failures = self.number("window.failures", &value["failures"], 1, WINDOW);
        let window = Window {
            failures: failures?,
            of: of?,
        };
        if window.failures > window.of {
            self.report(
                "window.failures",
                format!("{} is more than the {} of the window", window.failures, window.of),
            );
            return None;
        }
        Some(window)
    }

    fn tls(&mut self, value: &Value) -> Tls {
        let Some(members) = value.as_object() else {
            self.report("tls", "must be a mapping: {verify: true, caFile: /etc/ca.pem}");
            return Tls::Unverified;
        };
        const KNOWN: [&str; 4] = ["verify", "ca", "caFile", "serverName"];
        for name in members.keys().filter(|name| !KNOWN.contains(&name.as_str())) {
            let known = KNOWN.join(", ");
            self.report(
                &format!("tls.{name}"),
                format!("is no setting; there are {known}"),
            );
        }
        if !self.flag("tls.verify", &value["verify"]) {
            for name in &KNOWN[1..] {
                if members.contains_key(*name) {
                    self.report(&format!("tls.{name}"), "needs verify: true");
                }
            }
            return Tls::Unverified;
        }
        let server_name = self.text(members, "serverName");
        if let Some(name) = &server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            self.report(
                "tls.serverName",
                format!("{name:?} is neither a DNS name nor an address"),
            );
        }
        match (self.text(members, "ca"), self.text(members, "caFile")) {
            (Some(ca_pem), None) => self.authorities("tls.ca", ca_pem, server_name),
            (None, Some(file)) => match self.read {
                None => Tls::Unverified,
                Some(read) => match read(Path::new(&file)) {
                    Ok(ca_pem) => self.authorities("tls.caFile", ca_pem, server_name),
                    Err(reason) => {
                        self.report("tls.caFile", format!("cannot read {file}: {reason}"));
                        Tls::Unverified
                    }
                },
            },
            _ => {
                self.report("tls", "verify: true needs either ca (PEM) or caFile");
                Tls::Unverified
            }
        }
    }

    fn authorities(&mut self, name: &str, ca_pem: String, server_name: Option<String>) -> Tls {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(ca_pem.as_bytes()).collect();
        match read {
            Ok(list) if !list.is_empty() => {
                return Tls::Verified { ca_pem, server_name };
            }
            Ok(_) => self.report(name, "holds no certificate; give PEM"),
            Err(error) => self.report(name, format!("is not PEM: {error}")),
        }
        Tls::Unverified
    }

    fn text(&mut self, members: &Map<String, Value>, name: &str) -> Option<String> {
        let value = members.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.report(&format!("tls.{name}"), "must be a string");
        }
        text.map(str::to_owned)
    }
}
