//! From what people write to what the prober knows: manifests, pods as an API server has them, and the
//! annotation `evenkeel.io/probes`.
//!
//! Conversion works on JSON, so that fields newer than the typed API reach the prober. It applies Kubernetes'
//! defaults itself and refuses only what cannot be probed; the full validation is the API server's.
//!
//! ```
//! use evenkeel_probe::manifest::Documents;
//!
//! let text = "
//! apiVersion: apps/v1
//! kind: Deployment
//! metadata: {name: web}
//! spec:
//!   template:
//!     spec:
//!       containers: [{name: web, readinessProbe: {httpGet: {port: 8080}}}]
//! ";
//! let documents = Documents::parse("web.yaml", text).unwrap();
//! let pod = documents.workloads[0].to_pod().unwrap();
//! assert_eq!(pod.containers[0].readiness.as_ref().unwrap().failure_threshold, 3);
//! ```

mod convert;
mod extras;
mod probe;
mod problem;
mod read;
mod status;
#[cfg(test)]
mod tests;

pub use convert::{convert, pod};
pub(crate) use extras::check as check_extras;
pub use extras::{ReadFile, read_file, strict};
pub use problem::{ConvertError, Problem};
pub use read::{Documents, ManifestError, Skipped, Workload};
pub use status::{status, status_of};
