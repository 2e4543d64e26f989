//! What is kept of templates and health between two looks at them: bytes, for ten thousand nodes of maps are
//! too many.

use crate::core::reported::{NodeHealth, NodeTemplate};

/// A template as JSON. Empty: the default.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Template(Box<[u8]>);

impl Template {
    pub(super) fn of(template: &NodeTemplate) -> Self {
        let words = [
            &template.pod_cidr,
            &template.provider_id,
            &template.operating_system,
            &template.os_image,
            &template.kernel_version,
            &template.architecture,
            &template.boot_id,
        ];
        Self(pack(&(
            &template.labels,
            &template.annotations,
            &template.taints,
            &template.capacity,
            &template.allocatable,
            &template.addresses,
            words,
        )))
    }

    pub(super) fn unpack(&self) -> NodeTemplate {
        let Ok((labels, annotations, taints, capacity, allocatable, addresses, words)) =
            serde_json::from_slice(&self.0)
        else {
            return NodeTemplate::default();
        };
        let [
            pod_cidr,
            provider_id,
            operating_system,
            os_image,
            kernel_version,
            architecture,
            boot_id,
        ] = words;
        NodeTemplate {
            labels,
            annotations,
            taints,
            capacity,
            allocatable,
            addresses,
            pod_cidr,
            provider_id,
            operating_system,
            os_image,
            kernel_version,
            architecture,
            boot_id,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Health as JSON. Empty: nothing out of the ordinary.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Health(Box<[u8]>);

impl Health {
    pub(super) fn of(health: &NodeHealth) -> Self {
        if *health == NodeHealth::default() {
            return Self::default();
        }
        Self(pack(&(&health.conditions, &health.capacity, &health.allocatable)))
    }

    pub(super) fn unpack(&self) -> NodeHealth {
        let Ok((conditions, capacity, allocatable)) = serde_json::from_slice(&self.0) else {
            return NodeHealth::default();
        };
        NodeHealth {
            conditions,
            capacity,
            allocatable,
        }
    }
}

fn pack(value: &impl serde::Serialize) -> Box<[u8]> {
    serde_json::to_vec(value)
        .expect("maps of strings, and conditions, are JSON")
        .into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NodeCondition;

    #[test]
    fn what_is_packed_comes_out_again() {
        let template = NodeTemplate {
            labels: [("a".to_owned(), "1".to_owned())].into(),
            annotations: [("b".to_owned(), "2".to_owned())].into(),
            taints: vec![("c".into(), "3".into(), "NoSchedule".into())],
            capacity: [("cpu".to_owned(), "4".to_owned())].into(),
            allocatable: [("cpu".to_owned(), "3".to_owned())].into(),
            addresses: vec![("InternalIP".into(), "10.0.0.1".into())],
            pod_cidr: "cidr".into(),
            provider_id: "id".into(),
            operating_system: "windows".into(),
            os_image: "image".into(),
            kernel_version: "kernel".into(),
            architecture: "s390x".into(),
            boot_id: "boot".into(),
        };
        assert_eq!(Template::of(&template).unpack(), template);
        assert_eq!(Template::default().unpack(), NodeTemplate::default());
        let health = NodeHealth {
            conditions: vec![NodeCondition {
                type_: "Ready".into(),
                status: "False".into(),
                ..NodeCondition::default()
            }],
            capacity: Some([("cpu".to_owned(), "4".to_owned())].into()),
            allocatable: None,
        };
        assert_eq!(Health::of(&health).unpack(), health);
        assert_eq!(Health::default().unpack(), NodeHealth::default());
    }
}
