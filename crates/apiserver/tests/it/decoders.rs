//! Whatever clients send is borne by what reads it: known good inputs, changed at random. Bodies in protobuf
//! are in `protobuf`.

use super::server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel_kube_rules::apply::{self, Kind, Write};
use evenkeel_kube_rules::crd::CustomKind;
use evenkeel_kube_rules::gvk::{Gvk, group_version};
use evenkeel_kube_rules::selector::{FieldSelector, LabelSelector};
use evenkeel_kube_rules::strict::{self, FieldValidation};
use evenkeel_kube_rules::{csr, defaults, patch, protobuf, strategy, table, validate};
use evenkeel_zone::fixture::fuzz::target;
use http::{Request, header};
use jiff::Timestamp;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A text that is decoded may be larger by this factor and sum: what is absent is written as null now and
/// then, and `\u` escapes become characters.
const BOUND: (usize, usize) = (8, 4_000);
/// The most that copies within a JSON patch add up to, and an object.
const COPIES: (usize, usize) = (2, 4 << 20);

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read(&path).unwrap_or_else(|error| unreachable!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

/// A valid object of every kind that is stored, by kind.
fn valid() -> BTreeMap<Gvk, Value> {
    let contents = read("../../xtask/src/differential/seeds.json");
    let mut all = BTreeMap::new();
    for group in read("src/kinds/builtin.json").as_array().expect("groups") {
        let name = group["group"].as_str().expect("a name");
        for version in group["versions"].as_array().expect("versions") {
            let api_version = group_version(name, version["version"].as_str().expect("a name"));
            for resource in version["resources"].as_array().expect("resources") {
                let plural = resource["resource"].as_str().expect("a name");
                let Some(content) = contents.get(format!("{api_version}/{plural}")) else {
                    continue;
                };
                let kind = resource["kind"].as_str().expect("a name");
                let mut object = content.clone();
                object["apiVersion"] = json!(api_version);
                object["kind"] = json!(kind);
                object["metadata"]["name"] = json!("n");
                if resource["namespaced"] == true {
                    object["metadata"]["namespace"] = json!("default");
                }
                all.insert(Gvk::of(&api_version, kind), object);
            }
        }
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

/// What an object says that it is; a Pod where it says nothing.
fn claimed(object: Option<&Value>) -> Gvk {
    let text = |name: &str| object.and_then(|object| object[name].as_str());
    Gvk::of(text("apiVersion").unwrap_or("v1"), text("kind").unwrap_or("Pod"))
}

/// Everything that is done with an object before it is stored, by the rules of its kind.
fn is_ruled(gvk: &Gvk, object: &Value, old: &Value) {
    let mut new = object.clone();
    defaults::apply(gvk, &mut new);
    strategy::prepare_create(gvk, &mut new);
    validate::create(gvk, &new);
    validate::create_warnings(gvk, &new);
    validate::early_warnings(gvk, object);
    table::row(gvk, &new, Timestamp::UNIX_EPOCH);
    protobuf::encode(&new);
    for old in [&new, old] {
        let mut changed = object.clone();
        defaults::apply(gvk, &mut changed);
        let mut status = changed.clone();
        strategy::prepare_update(gvk, old, &mut changed);
        validate::update(gvk, old, &changed);
        validate::update_warnings(gvk, old, &changed);
        strategy::prepare_status_update(gvk, old, &mut status);
        validate::status_update(gvk, old, &status);
        apply::track(&write(gvk), Some(old), &mut changed);
    }
}

fn write(gvk: &Gvk) -> Write<'static> {
    Write {
        manager: "m",
        subresource: "",
        now: Timestamp::UNIX_EPOCH,
        kind: Kind::Builtin(gvk.clone()),
        convert: &|_, _| None,
    }
}

#[test]
fn bodies_in_json_are_borne() {
    let valid = valid();
    let seeds: Vec<Vec<u8>> = valid
        .values()
        .map(|object| object.to_string().into_bytes())
        .collect();
    target("bodies in JSON", &seeds, BOUND, |bytes| {
        let gvk = claimed(serde_json::from_slice(bytes).ok().as_ref());
        let decoded = strict::decode(&gvk, bytes, FieldValidation::Ignore).ok()?;
        let is_strict = strict::decode(&gvk, bytes, FieldValidation::Strict);
        assert!(is_strict.is_err() || is_strict.is_ok_and(|strict| strict.object == decoded.object));
        is_ruled(&gvk, &decoded.object, valid.get(&gvk).unwrap_or(&Value::Null));
        Some(decoded.object.to_string().len())
    });
}

#[test]
fn bodies_in_yaml_are_borne() {
    let mut seeds: Vec<Vec<u8>> = [
        "apiVersion: v1\nkind: Pod\nmetadata: &m\n  name: p\n  labels: {a: 'b', ? c : \"d\\n\"}\nspec:\n  containers:\n  - name: c\n    image: >-\n      i\n    args: [\"1e3\", '~', text]\n  terminationGracePeriodSeconds: 0x1f\n  priority: 0o17\n  hostNetwork: true\n",
        "---\n# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: &a |\n    text\n     more\n  b: *a\nbinaryData: {b: YQ==}\n...\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    let kinds = ["Pod", "ConfigMap"].map(|kind| Gvk::of("v1", kind));
    let valid = valid();
    seeds.extend(kinds.iter().map(|kind| valid[kind].to_string().into_bytes()));
    // An alias is replayed, so that a text may become larger by far: the budget of nodes bounds it.
    target("bodies in YAML", &seeds, (8, 8 << 20), |bytes| {
        let read = |gvk: &Gvk| strict::decode_yaml(gvk, bytes, FieldValidation::Ignore).ok();
        let decoded = kinds.iter().find_map(read)?;
        Some(decoded.object.to_string().len())
    });
}

fn deployment() -> (Gvk, Value) {
    let gvk = Gvk::of("apps/v1", "Deployment");
    let mut object = valid().remove(&gvk).expect("a Deployment");
    defaults::apply(&gvk, &mut object);
    (gvk, object)
}

#[rstest]
#[case::json("patches in JSON patch", &[
    r#"[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"d"}},{"op":"test","path":"/kind","value":"Deployment"}]"#,
    r#"[{"op":"copy","from":"/spec","path":"/spec/x"},{"op":"move","from":"/metadata/name","path":"/a~1b~0c"},{"op":"remove","path":"/spec/template/spec/containers/-1"}]"#,
    r#"[{"op":"replace","path":"","value":{"apiVersion":"apps/v1","kind":"Deployment"}}]"#,
])]
#[case::merge("merge patches", &[
    r#"{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"d"}]}}},"metadata":{"labels":null}}"#,
    r#"{"spec":null}"#,
])]
#[case::strategic("strategic merge patches", &[
    r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"d","ports":[{"containerPort":1,"protocol":"UDP"}]},{"name":"c","$patch":"delete"}]}}}}"#,
    r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
    r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"$setElementOrder/finalizers":["b"],"finalizers":["b"]},"spec":{"selector":{"$patch":"replace","matchLabels":{"a":"b"}}}}"#,
])]
fn patches_are_borne(#[case] name: &str, #[case] seeds: &[&str]) {
    let (gvk, object) = deployment();
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    target(name, &seeds, COPIES, |bytes| {
        let patched = match name {
            "patches in JSON patch" => patch::json_patch(&object, bytes),
            "merge patches" => patch::merge_patch(&object, bytes),
            _ => patch::strategic_merge_patch(&gvk, &object, bytes),
        }
        .ok()?;
        let size = patched.to_string().len();
        if let Ok(decoded) = strict::check(&gvk, patched, FieldValidation::Ignore) {
            is_ruled(&gvk, &decoded.object, &object);
        }
        Some(size)
    });
}

#[test]
fn what_is_applied_is_borne() {
    let (gvk, live) = deployment();
    let by_manager = apply::apply(&write(&gvk), None, &live, false).expect("nobody else owns it");
    let seeds = [
        live.to_string().into_bytes(),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "n", "labels": {"a": "b"}},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}}},
        })
        .to_string()
        .into_bytes(),
        by_manager.to_string().into_bytes(),
    ];
    let other = Write {
        manager: "other",
        ..write(&gvk)
    };
    target("configurations to apply", &seeds, (8, 60_000), |bytes| {
        let (config, _) = strict::decode_apply(bytes).ok()?;
        let mut size = config.to_string().len();
        for (live, force) in [
            (None, false),
            (Some(&by_manager), false),
            (Some(&by_manager), true),
        ] {
            if let Ok(applied) = apply::apply(&other, live, &config, force) {
                size = size.max(applied.to_string().len());
            }
        }
        // Its managers as those of a stored object.
        let mut new = live.clone();
        let is_sound = apply::check_managers(&config).is_ok();
        apply::track(&other, is_sound.then_some(&config), &mut new);
        Some(size)
    });
}

#[test]
fn selectors_are_borne() {
    let (gvk, object) = deployment();
    let seeds = [
        "a=b,c!=d,e in (f, g),h notin (),!i,j,example.com/k==l",
        "metadata.name=n,metadata.namespace!=default",
        "x in (),y>1,z<2",
        "status.phase=a\\,b\\\\",
    ];
    let seeds = seeds.map(|seed| seed.as_bytes().to_vec());
    target("selectors", &seeds, (1, 0), |bytes| {
        let text = std::str::from_utf8(bytes).ok()?;
        let labels = LabelSelector::parse(text).map(|selector| selector.matches_object(&object));
        let fields = FieldSelector::parse(text).map(|selector| {
            let known = selector.check(&gvk).is_ok();
            (known, selector.matches(&object))
        });
        (labels.is_ok() || fields.is_ok()).then_some(bytes.len())
    });
}

#[test]
fn requests_for_certificates_are_borne() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut request =
        rcgen::CertificateParams::new(["node-1".to_owned(), "192.0.2.1".to_owned()]).expect("names");
    request
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:node-1");
    let request = request.serialize_request(&key).expect("it is signed");
    let seeds = [request.pem().expect("PEM").into_bytes()];
    target("requests for certificates", &seeds, (4, 400), |bytes| {
        let request = csr::parse(&json!(STANDARD.encode(bytes))).ok()?;
        Some(format!("{request:?}").len())
    });
}

#[test]
fn definitions_of_custom_resources_are_borne() {
    let gvk = Gvk::of("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = read("../../xtask/src/differential/custom.json");
    let definitions = definitions.as_array().expect("a list").iter();
    let mut seeds: Vec<Vec<u8>> = definitions.map(|one| one.to_string().into_bytes()).collect();
    let rules = json!([
        {"rule": "self.a.matches('^[a-z]+$') || has(self.b) && self.l.all(x, x in [1, 2])", "messageExpression": "'no ' + self.a"},
        {"rule": "self.a == oldSelf.a ? true : quantity('1Gi').isGreaterThan(quantity(self.a))", "fieldPath": ".a"},
    ]);
    let schema = json!({
        "type": "object", "x-kubernetes-validations": rules, "required": ["a"],
        "properties": {
            "a": {"type": "string", "pattern": "^(a|b)*$", "format": "date-time", "maxLength": 9, "default": "a"},
            "b": {"type": "integer", "multipleOf": 3, "nullable": true},
            "l": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}, "maxItems": 9},
        },
    });
    seeds.push(
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ks.g.io"},
            "spec": {"group": "g.io", "scope": "Cluster", "names": {"plural": "ks", "kind": "K"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": schema}}}}]},
        })
        .to_string()
        .into_bytes(),
    );
    let object = json!({
        "apiVersion": "g.io/v1", "kind": "K", "metadata": {"name": "n"},
        "spec": {"a": "ab", "b": 3, "l": [1, 2, 2], "x": {"y": [null]}},
    });
    target("definitions of custom resources", &seeds, (8, 8_000), |bytes| {
        let decoded = strict::decode(&gvk, bytes, FieldValidation::Ignore).ok()?;
        is_ruled(&gvk, &decoded.object, &decoded.object);
        let versions = decoded.object["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten();
        for version in versions.filter_map(|version| version["name"].as_str()) {
            let Ok(kind) = CustomKind::compile(&decoded.object, version) else {
                continue;
            };
            let mut object = object.clone();
            kind.apply_defaults(&mut object);
            kind.validate_create(&object);
            kind.validate_update(&object, &object);
            kind.row(&object, Timestamp::UNIX_EPOCH);
            kind.openapi();
        }
        Some(decoded.object.to_string().len())
    });
}

/// Nothing in a request but its body makes the server fail.
#[test]
fn requests_are_borne() {
    let seeds = [
        "GET /api/v1/namespaces/default/configmaps?labelSelector=a%3Db&limit=5&resourceVersion=0&resourceVersionMatch=NotOlderThan\napplication/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "GET /apis/apps/v1/deployments?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\napplication/vnd.kubernetes.protobuf",
        "DELETE /api/v1/namespaces/default/configmaps/x?gracePeriodSeconds=0&propagationPolicy=Orphan&dryRun=All\n*/*",
        "PATCH /apis/apps/v1/namespaces/default/deployments/x/scale?fieldManager=m&force=true&fieldValidation=Warn\napplication/yaml",
        "GET /openapi/v3/apis/apps/v1?hash=AB\napplication/com.github.proto-openapi.spec.v3@v1.0+protobuf",
        "GET /apis\napplication/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.9",
        "POST /api/v1/namespaces/default/pods/x/exec?command=sh&stdin=true\n",
        "GET /readyz?verbose&exclude=etcd\ntext/plain",
        "GET /api/v1/nodes/n/proxy/..%2f?x=%zz\n",
        "GET /api/v1/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0&limit=1\n",
    ];
    let seeds = seeds.map(|seed| seed.as_bytes().to_vec());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let client = runtime.block_on(async { server().client() });
    target("requests", &seeds, (1, 0), |bytes| {
        let text = std::str::from_utf8(bytes).ok()?;
        let (line, accept) = text.split_once('\n')?;
        let (method, uri) = line.split_once(' ')?;
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::ACCEPT, accept)
            .body(Body::from(Vec::new()))
            .ok()?;
        // kube's client needs a path.
        if !uri.starts_with('/') {
            return None;
        }
        let answer = runtime.block_on(client.send(request)).ok()?;
        assert_ne!(answer.status().as_u16(), 500, "{text}");
        Some(bytes.len())
    });
}
