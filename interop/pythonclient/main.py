"""The Python client against an API server: a user's script, and nothing that knows which server it is.

    python3 main.py KUBECONFIG

Prints one line for each thing that works, and ends with the first that does not. It needs the package `kubernetes`,
from version 22 (Debian's) on.
"""

import json
import sys
import threading

import kubernetes
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "python"
LABELS = {"app": "web"}

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": LABELS},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}]},
        },
    },
}

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "snakes.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Snake", "plural": "snakes", "singular": "snake"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"length": {"type": "integer", "minimum": 1}}},
                            "status": {"type": "object", "properties": {"fed": {"type": "boolean"}}},
                        },
                    }
                },
            }
        ],
    },
}


def refused(status, call, *args, **kwargs):
    """The answer to a call that must be refused with this HTTP status."""
    try:
        answer = call(*args, **kwargs)
    except ApiException as error:
        assert error.status == status, f"{error.status} instead of {status}: {error.body}"
        return error
    raise AssertionError(f"it was taken: {answer}")


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=LABELS), data=data)


def objects(core):
    made = core.create_namespaced_config_map(NAMESPACE, config_map("a", k="v"))
    assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo, made
    refused(409, core.create_namespaced_config_map, NAMESPACE, config_map("a"))
    refused(404, core.read_namespaced_config_map, "none", NAMESPACE)
    bad = refused(422, core.create_namespaced_config_map, NAMESPACE, config_map("B_"))
    assert "metadata.name" in bad.body, bad.body

    patched = core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"l": "w"}})
    assert patched.data == {"k": "v", "l": "w"}, patched.data
    removed = core.patch_namespaced_config_map("a", NAMESPACE, [{"op": "remove", "path": "/data/k"}])
    assert removed.data == {"l": "w"}, removed.data
    made.data = {"k": "late"}
    refused(409, core.replace_namespaced_config_map, "a", NAMESPACE, made)
    dry = core.create_namespaced_config_map(NAMESPACE, config_map("dry"), dry_run="All")
    assert dry.metadata.name == "dry"
    refused(404, core.read_namespaced_config_map, "dry", NAMESPACE)


def pages(core):
    for name in "bcde":
        core.create_namespaced_config_map(NAMESPACE, config_map(name))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="app=web", limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == list("abcde"), names
    one = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=c")
    assert [item.metadata.name for item in one.items] == ["c"]


def watches(core):
    since = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

    def write():
        core.create_namespaced_config_map(NAMESPACE, config_map("watched"))
        core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"seen": "yes"}})
        core.delete_namespaced_config_map("watched", NAMESPACE)

    writer = threading.Thread(target=write)
    writer.start()
    stream, seen = watch.Watch(), []
    options = {"resource_version": since, "label_selector": "app=web", "timeout_seconds": 60}
    for event in stream.stream(core.list_namespaced_config_map, NAMESPACE, **options):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()
    writer.join()
    assert seen == [(kind, "watched") for kind in ("ADDED", "MODIFIED", "DELETED")], seen


def workloads(api, core):
    apps = client.AppsV1Api(api)
    utils.create_from_dict(api, DEPLOYMENT, namespace=NAMESPACE)
    found = apps.read_namespaced_deployment("web", NAMESPACE)
    assert found.spec.strategy.type == "RollingUpdate", found.spec
    scaled = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 5}})
    assert scaled.spec.replicas == 5 and scaled.status.selector == "app=web", scaled
    image = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}}}
    container = apps.patch_namespaced_deployment("web", NAMESPACE, image).spec.template.spec.containers[0]
    assert (container.image, container.ports[0].container_port) == ("nginx:2", 80), container
    status = {"status": {"conditions": [{"type": "Available", "status": "True"}]}}
    apps.patch_namespaced_deployment_status("web", NAMESPACE, status)
    assert apps.read_namespaced_deployment_status("web", NAMESPACE).status.conditions[0].type == "Available"

    pod = DEPLOYMENT["spec"]["template"]["spec"]
    core.create_namespaced_pod("default", {"metadata": {"name": "python"}, "spec": pod})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "python"}}
    core.create_namespaced_pod_eviction("python", "default", eviction)


def custom(api):
    client.ApiextensionsV1Api(api).create_custom_resource_definition(CRD)
    snakes = client.CustomObjectsApi(api)
    where = ("example.com", "v1", NAMESPACE, "snakes")
    body = {"apiVersion": "example.com/v1", "kind": "Snake", "metadata": {"name": "kaa"}, "spec": {"length": 9}}
    established(lambda: snakes.create_namespaced_custom_object(*where, body))
    body["spec"]["length"], body["metadata"]["name"] = 0, "worm"
    short = refused(422, snakes.create_namespaced_custom_object, *where, body)
    assert "spec.length" in short.body, short.body
    fed = snakes.patch_namespaced_custom_object_status(*where, "kaa", {"status": {"fed": True}})
    assert fed["status"] == {"fed": True} and fed["spec"] == {"length": 9}, fed


def established(create):
    """A definition is served soon after it was written."""
    wait = threading.Event()
    for _ in range(300):
        try:
            return create()
        except ApiException as error:
            if error.status != 404:
                raise
            wait.wait(0.1)
    raise AssertionError("the definition is not served")


def applies(api):
    caller = dynamic.DynamicClient(api)
    maps = caller.resources.get(api_version="v1", kind="ConfigMap")

    def apply(manager, value):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"k": value}}
        how = {"namespace": NAMESPACE, "name": "applied", "field_manager": manager}
        if int(kubernetes.__version__.split(".")[0]) > 22:
            return caller.server_side_apply(maps, body, **how)
        # Version 22 cannot write such a body, and passes on what is text already.
        return maps.patch(body=json.dumps(body), content_type="application/apply-patch+yaml", **how)

    assert apply("one", "1").metadata.managedFields[0].operation == "Apply"
    try:
        apply("two", "2")
    except dynamic.exceptions.ConflictError as error:
        assert "conflict with" in str(error.body), error.body
    else:
        raise AssertionError("there is no conflict")


def access(api, core):
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "snake"}})
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
    token = core.create_namespaced_service_account_token("snake", NAMESPACE, request).status.token
    review = client.AuthenticationV1Api(api).create_token_review(
        client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    )
    assert review.status.user.username == f"system:serviceaccount:{NAMESPACE}:snake", review.status
    attributes = client.V1ResourceAttributes(verb="delete", resource="pods", namespace=NAMESPACE)
    asked = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
    own = client.AuthorizationV1Api(api).create_self_subject_access_review(asked)
    assert own.status.allowed, own.status
    stranger = client.Configuration()
    stranger.host, stranger.ssl_ca_cert = api.configuration.host, api.configuration.ssl_ca_cert
    stranger.api_key = {"authorization": f"Bearer {token}"}
    refused(403, client.CoreV1Api(client.ApiClient(stranger)).list_namespaced_pod, NAMESPACE)


def ends(core):
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app=web")
    left = core.list_namespaced_config_map(NAMESPACE, label_selector="app=web").items
    assert not left, left


def main(kubeconfig):
    api = config.new_client_from_config(kubeconfig)
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    steps = (
        (objects, core),
        (pages, core),
        (watches, core),
        (workloads, api, core),
        (custom, api),
        (applies, api),
        (access, api, core),
        (ends, core),
    )
    for step, *arguments in steps:
        step(*arguments)
        print(f"{step.__name__} ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
