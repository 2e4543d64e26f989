use super::*;

fn gvk(group: &str, version: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
    }
}

#[test]
fn finds_a_kind_and_walks_to_a_nested_field() {
    let deployment = kind(&gvk("apps", "v1", "Deployment")).unwrap();
    assert_eq!(deployment.name, "io.k8s.api.apps.v1.Deployment");
    assert_eq!(deployment.go_name(), "v1.Deployment");
    let spec = deployment.field("spec").unwrap().ty.definition().unwrap();
    let template = spec.field("template").unwrap().ty.definition().unwrap();
    let pod = template.field("spec").unwrap().ty.definition().unwrap();
    let containers = pod.field("containers").unwrap();
    assert_eq!(
        (containers.merge_key, containers.merge, containers.required),
        ("name", true, true)
    );
    assert_eq!(containers.list_type, Some(ListType::Map));
    assert_eq!(containers.go_type, "[]v1.Container");
    let Type::List(item) = &containers.ty else {
        panic!("containers is a list")
    };
    assert_eq!(item.definition().unwrap().short_name(), "Container");
}

#[test]
fn knows_which_fields_go_declares_as_pointers() {
    let spec = definition("io.k8s.api.core.v1.PodSpec").unwrap();
    assert!(spec.field("priority").unwrap().pointer);
    assert!(!spec.field("hostNetwork").unwrap().pointer);
    assert!(spec.field("containers").unwrap().always);
}

#[test]
fn knows_the_shapes_that_are_not_objects() {
    for (name, shape) in [
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", Shape::Quantity),
        (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            Shape::IntOrString,
        ),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", Shape::Time),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", Shape::MicroTime),
        ("io.k8s.apimachinery.pkg.runtime.RawExtension", Shape::Any),
        ("io.k8s.api.core.v1.Pod", Shape::Object),
    ] {
        assert_eq!(definition(name).unwrap().shape, shape, "{name}");
    }
}

#[test]
fn every_definition_has_a_document() {
    let names = names();
    assert!(names.len() > 700, "{}", names.len());
    for name in names {
        let document = definition_json(name).unwrap();
        let described = definition(name).unwrap().fields.len();
        assert_eq!(
            document["properties"].as_object().map_or(0, serde_json::Map::len),
            described,
            "{name}"
        );
    }
}

#[test]
fn documents_keep_descriptions_and_merge_keys_and_have_plain_types() {
    let document = definition_json("io.k8s.api.core.v1.PodSpec").unwrap();
    let containers = &document["properties"]["containers"];
    assert_eq!(containers["type"], "array");
    assert_eq!(
        containers["items"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Container"
    );
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert!(containers["description"].as_str().unwrap().contains("containers"));
    let quantity = definition_json("io.k8s.apimachinery.pkg.api.resource.Quantity").unwrap();
    assert_eq!(quantity["type"], "string");
}

#[test]
fn closure_follows_references() {
    let all = closure(&["io.k8s.api.apps.v1.Deployment"]);
    assert!(all.contains(&"io.k8s.api.core.v1.Probe"));
    assert!(!all.contains(&"io.k8s.api.core.v1.Service"));
}
