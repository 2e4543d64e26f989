//! Which pods cannot run on any virtual node: features that have no meaning without a machine of one's own.

use crate::core::reported::Refusal;
use evenkeel_api::names::pods::UNSUPPORTED;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

/// Refuses what no provider can do (reason `UnsupportedPodSpec`, the message names field and feature):
/// `hostNetwork`, `hostPID`, `hostIPC`, `hostPort`, `hostPath` and other volumes of a machine, block devices,
/// static (mirror) pods, another operating system. What `allowed` names passes.
pub fn admit(pod: &Pod, allowed: &[Feature]) -> Result<(), Refusal> {
    let mut problems = Vec::new();
    let annotations = pod.metadata.annotations.as_ref();
    for name in ["kubernetes.io/config.mirror", "kubernetes.io/config.source"] {
        let value = annotations.and_then(|annotations| annotations.get(name));
        if value.is_some_and(|value| name.ends_with("mirror") || value != "api") {
            problems.push(format!(
                "metadata.annotations[{name}]: static pods belong to a machine's own kubelet"
            ));
        }
    }
    if let Some(spec) = &pod.spec {
        if !allowed.contains(&Feature::Host) {
            host(spec, &mut problems);
        }
        if !allowed.contains(&Feature::Mounts) {
            mounts(spec, &mut problems);
        }
        if let Some(os) = spec.os.as_ref().filter(|os| os.name != "linux") {
            problems.push(format!(
                "spec.os.name: {:?} does not run here, \"linux\" does",
                os.name
            ));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refusal {
        reason: UNSUPPORTED.to_owned(),
        message: format!("not possible on a virtual node: {}", problems.join("; ")),
    })
}

/// A feature that a provider may have all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `hostNetwork`, `hostPID`, `hostIPC`, `hostPort`.
    Host,
    /// `hostPath`, persistent volumes, CSI and other volumes that need a mount: contents are the provider's.
    Mounts,
}

fn host(spec: &PodSpec, problems: &mut Vec<String>) {
    let flags = [
        ("hostNetwork", spec.host_network),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
    ];
    for (field, _) in flags.iter().filter(|(_, set)| *set == Some(true)) {
        problems.push(format!("spec.{field}: there is no host to share it with"));
    }
    for (path, container) in containers(spec) {
        for (index, port) in container.ports.iter().flatten().enumerate() {
            if let Some(host) = port.host_port.filter(|port| *port != 0) {
                problems.push(format!(
                    "{path}.ports[{index}].hostPort: there is no host with a port {host}"
                ));
            }
        }
    }
}

fn mounts(spec: &PodSpec, problems: &mut Vec<String>) {
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        if let Some(source) = machine_source(volume) {
            problems.push(format!(
                "spec.volumes[{index}].{source}: volume {:?} needs a machine to be mounted on",
                volume.name
            ));
        }
    }
    for (path, container) in containers(spec) {
        if container
            .volume_devices
            .as_ref()
            .is_some_and(|all| !all.is_empty())
        {
            problems.push(format!("{path}.volumeDevices: there are no block devices"));
        }
    }
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = (String, &Container)> {
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, container)| (format!("spec.initContainers[{index}]"), container));
    let regular = spec.containers.iter().enumerate();
    init.chain(regular.map(|(index, container)| (format!("spec.containers[{index}]"), container)))
}

/// The field of a volume's source, if the source is any but those that are made of text: ConfigMaps, Secrets,
/// the pod's own fields, tokens, and empty directories.
fn machine_source(volume: &Volume) -> Option<&'static str> {
    let sources = [
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("csi", volume.csi.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("hostPath", volume.host_path.is_some()),
        ("image", volume.image.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
    ];
    let mut set = sources
        .into_iter()
        .filter_map(|(field, set)| set.then_some(field));
    set.next()
}

#[cfg(test)]
mod tests;
