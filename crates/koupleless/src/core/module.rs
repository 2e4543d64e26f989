//! Modules as they stand in a pod.

use super::Profile;
use evenkeel_arklet::ModuleId;
use evenkeel_vnode::provider::Refusal;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::sync::Arc;

/// A module that is to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Name and version of the module.
    pub key: ModuleId,
    /// Where its jar is: the container's image, as it stands there. The base opens it, and says if it cannot.
    pub url: Arc<str>,
}

/// The modules of a pod, in the order of its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modules(pub Vec<Module>);

/// Reason of pods that cannot be modules.
pub(crate) const INVALID: &str = "InvalidModule";

/// Protocols of jars: what `java.net.URL` of a base can open.
const PROTOCOLS: [&str; 4] = ["http", "https", "file", "ftp"];

impl Modules {
    /// Reads a pod: each container is a module, its name the module's, its image the URL of the jar, its
    /// version the literal value of the environment variable that the profile names.
    pub(crate) fn of(pod: &Pod, profile: &Profile) -> Result<Self, Refusal> {
        let spec = pod.spec.as_ref();
        let mut problems = Vec::new();
        for (index, container) in spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .enumerate()
        {
            problems.push(format!(
                "spec.initContainers[{index}] ({}): a module has no init containers",
                container.name
            ));
        }
        let mut modules = Vec::new();
        for (index, container) in spec.iter().flat_map(|spec| &spec.containers).enumerate() {
            match module(container, profile) {
                Ok(module) => modules.push(module),
                Err(problem) => problems.push(format!("spec.containers[{index}]{problem}")),
            }
        }
        if problems.is_empty() {
            return Ok(Self(modules));
        }
        Err(Refusal {
            reason: INVALID.to_owned(),
            message: problems.join("; "),
        })
    }

    /// Those containers of a pod that are modules. A pod that never could run has none; one that runs may
    /// have got an image that is none.
    pub(crate) fn readable(pod: &Pod, profile: &Profile) -> Self {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        Self(
            containers
                .filter_map(|container| module(container, profile).ok())
                .collect(),
        )
    }

    /// What distinguishes two of them.
    pub(crate) fn ids(&self) -> Vec<ModuleId> {
        self.0.iter().map(|module| module.key.clone()).collect()
    }
}

/// The module that a container is. `Err`: the field and what is wrong with it.
pub(crate) fn module(container: &Container, profile: &Profile) -> Result<Module, String> {
    let url = container.image.as_deref().unwrap_or_default().trim();
    if url.is_empty() {
        return Err(".image: the URL of the module's jar is missing".to_owned());
    }
    let version = version(container, profile)?;
    Ok(Module {
        key: ModuleId::new(container.name.as_str(), version),
        url: url.into(),
    })
}

/// What is to be said of an image that no base opens, when its install has failed.
pub(crate) fn advice(url: &str) -> Option<String> {
    let protocol = url.split_once(':').map_or("", |(protocol, _)| protocol);
    let is_known = PROTOCOLS.iter().any(|one| one.eq_ignore_ascii_case(protocol));
    (!is_known).then(|| format!("the image {url:?} is no URL: write http://, https:// or file:// before it"))
}

fn version<'a>(container: &'a Container, profile: &Profile) -> Result<&'a str, String> {
    let names = profile.version;
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if !names.contains(&variable.name.as_str()) {
            continue;
        }
        if variable.value_from.is_some() {
            return Err(format!(
                ".env[{index}].valueFrom: the version in {} must be a literal value",
                variable.name
            ));
        }
    }
    let value = |name: &&str| {
        let mut all = container.env.iter().flatten();
        all.find(|variable| variable.name == **name)?.value.as_deref()
    };
    names
        .iter()
        .find_map(value)
        .map(str::trim)
        .filter(|version| !version.is_empty())
        .ok_or_else(|| {
            format!(
                ".env: the module's version is missing; set {}",
                names.join(" or ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::super::profile::{KOUPLELESS, V2_DESIGN};
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn container(image: &str, env: serde_json::Value) -> serde_json::Value {
        json!({"name": "biz1", "image": image, "env": env})
    }

    #[test]
    fn a_container_is_a_module() {
        let env = json!([{"name": "BIZ_VERSION", "value": "0.0.1"}]);
        let pod = pod(json!({"containers": [container("file:///opt/biz1.jar", env)]}));
        let modules = Modules::of(&pod, &KOUPLELESS).unwrap();
        let found = &modules.0[0];
        assert_eq!(
            (found.key.to_string().as_str(), &*found.url),
            ("biz1:0.0.1", "file:///opt/biz1.jar")
        );
        assert_eq!(modules.ids().len(), 1);
    }

    #[rstest]
    #[case(&KOUPLELESS, "1")]
    #[case(&V2_DESIGN, "2")]
    fn each_profile_has_its_own_variable_first(#[case] profile: &Profile, #[case] version: &str) {
        let env = json!([{"name": "BIZ_VERSION", "value": "1"}, {"name": "MODULE_VERSION", "value": "2"}]);
        let pod = pod(json!({"containers": [container("http://h/a.jar", env)]}));
        assert_eq!(Modules::of(&pod, profile).unwrap().0[0].key.version, version);
    }

    #[rstest]
    #[case(container(" ", json!([{"name": "BIZ_VERSION", "value": "1"}])), "spec.containers[0].image: the URL of the module's jar is missing")]
    #[case(container("nginx:1.27", json!([])), "version is missing")]
    #[case(container("file:///a.jar", json!([])), "spec.containers[0].env: the module's version is missing; set BIZ_VERSION or MODULE_VERSION")]
    #[case(container("file:///a.jar", json!([{"name": "BIZ_VERSION", "value": " "}])), "version is missing")]
    #[case(
        container("file:///a.jar", json!([{"name": "BIZ_VERSION", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])),
        "spec.containers[0].env[0].valueFrom: the version in BIZ_VERSION must be a literal value"
    )]
    fn what_is_no_module_is_refused_with_its_field(
        #[case] container: serde_json::Value,
        #[case] words: &str,
    ) {
        let refusal = Modules::of(&pod(json!({"containers": [container]})), &KOUPLELESS).unwrap_err();
        assert_eq!(refusal.reason, INVALID);
        assert!(refusal.message.contains(words), "{}", refusal.message);
    }

    /// The released controller takes them, too. Whether a base can open one only the base knows.
    #[rstest]
    #[case("file:///opt/biz1.jar", false)]
    #[case("HTTPS://host:8443/biz1.jar?x=a:b", false)]
    #[case("/opt/biz1.jar", true)]
    #[case("biz1.jar", true)]
    #[case("biz1", true)]
    #[case("nginx:1.27", true)]
    #[case("registry:5000/shop/biz1.jar:1", true)]
    #[case("oci://registry/biz1", true)]
    fn images_are_taken_as_they_are(#[case] image: &str, #[case] is_advised: bool) {
        let env = json!([{"name": "BIZ_VERSION", "value": "1"}]);
        let pod = pod(json!({"containers": [container(image, env)]}));
        let modules = Modules::of(&pod, &KOUPLELESS).unwrap();
        assert_eq!(&*modules.0[0].url, image);
        assert_eq!(advice(image).is_some(), is_advised);
    }

    #[test]
    fn init_containers_are_refused() {
        let env = json!([{"name": "BIZ_VERSION", "value": "0.0.1"}]);
        let one = container("file:///a.jar", env);
        let refusal = Modules::of(
            &pod(json!({"initContainers": [one], "containers": [one]})),
            &KOUPLELESS,
        )
        .unwrap_err();
        assert!(
            refusal.message.contains("spec.initContainers[0] (biz1)"),
            "{}",
            refusal.message
        );
    }
}
