//! Messages of `runtime.v1` that make pods and containers.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RunPodSandboxResponse {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    pub(super) log_directory: String,
    #[prost(map = "string, string", tag = "6")]
    pub(super) labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(super) linux: Option<LinuxPodSandboxConfig>,
}

impl PodSandboxConfig {
    pub(super) fn new(namespace: &str, pod: &str, log_directory: String) -> Self {
        let uid = format!("uid-{namespace}-{pod}");
        let labels = [
            ("io.kubernetes.pod.name", pod),
            ("io.kubernetes.pod.namespace", namespace),
            ("io.kubernetes.pod.uid", &uid),
        ];
        Self {
            metadata: Some(PodSandboxMetadata {
                name: pod.to_owned(),
                uid: uid.clone(),
                namespace: namespace.to_owned(),
                attempt: 0,
            }),
            log_directory,
            labels: labels
                .map(|(label, value)| (label.to_owned(), value.to_owned()))
                .into(),
            linux: Some(LinuxPodSandboxConfig {
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(NamespaceOption { network: 2, pid: 1 }),
                }),
            }),
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(uint32, tag = "4")]
    pub(super) attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LinuxPodSandboxConfig {
    #[prost(message, optional, tag = "2")]
    pub(super) security_context: Option<LinuxSandboxSecurityContext>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LinuxSandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(super) namespace_options: Option<NamespaceOption>,
}

/// 0 is the pod's, 1 the container's, 2 the machine's.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamespaceOption {
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CreateContainerResponse {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(super) image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(super) command: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(super) args: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(super) mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "9")]
    pub(super) labels: HashMap<String, String>,
    #[prost(string, tag = "11")]
    pub(super) log_path: String,
    #[prost(message, optional, tag = "15")]
    pub(super) linux: Option<LinuxContainerConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub(super) container_path: String,
    #[prost(string, tag = "2")]
    pub(super) host_path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LinuxContainerConfig {
    #[prost(message, optional, tag = "2")]
    pub(super) security_context: Option<LinuxContainerSecurityContext>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LinuxContainerSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(super) capabilities: Option<Capability>,
    #[prost(message, optional, tag = "3")]
    pub(super) namespace_options: Option<NamespaceOption>,
    #[prost(bool, tag = "7")]
    pub(super) readonly_rootfs: bool,
    #[prost(bool, tag = "11")]
    pub(super) no_new_privs: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Capability {
    #[prost(string, repeated, tag = "2")]
    pub(super) drop_capabilities: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(uint32, tag = "2")]
    pub(super) attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub(super) image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StartContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
}
