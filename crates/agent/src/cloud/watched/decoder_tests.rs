//! Answers to watches as a broken proxy, another server or a later one may give them.

use super::*;
use crate::cloud::back_off::LONGEST;
use crate::cloud::seen::{Asked, Seen};
use evenkeel_api::crd::ZoneHealth;
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::fixture::fuzz::target;
use evenkeel_zone::roster::publish;
use serde_json::json;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

/// A server that says the same to each request, in these pieces.
struct Server {
    client: Client,
    answer: Arc<Mutex<Vec<Bytes>>>,
}

impl Server {
    fn new() -> Self {
        let answer = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&answer);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let pieces: Vec<Bytes> = said.lock().unwrap().clone();
            let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
            let body = axum::body::Body::from_stream(futures::stream::iter(pieces));
            async { Ok::<_, Infallible>(http::Response::new(body)) }
        });
        let client = Client::new(service, "default");
        Self { client, answer }
    }

    /// What a watch tells until it fails, why it fails, and where it would go on.
    async fn tells(&self, pieces: Vec<Bytes>) -> (Vec<Option<Value>>, String, Option<String>) {
        *self.answer.lock().unwrap() = pieces;
        let mut watched = Watched::new::<ZoneHealth>(self.client.clone(), "watching", "shore");
        let mut told = Vec::new();
        loop {
            match watched.next(LONGEST).await {
                Step::Began { anew } => assert!(anew && told.is_empty()),
                Step::Put(object) => told.push(Some(object)),
                Step::Gone => told.push(None),
                Step::Failed(error) => {
                    let afresh = error.status().is_some() || matches!(error, CloudError::Garbled { .. });
                    assert!(!afresh || watched.position.is_none(), "it insists on a version");
                    assert!(!watched.stands());
                    return (told, error.to_string(), watched.position);
                }
            }
        }
    }
}

/// Pieces that end anywhere, as the bytes themselves have it.
fn pieces(mut bytes: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    while let Some(first) = bytes.first() {
        let length = usize::from(*first).min(bytes.len());
        pieces.push(bytes.split_to(length.max(1)));
    }
    pieces
}

/// An event that tells this object.
fn line(kind: &str, object: &Value) -> Vec<u8> {
    format!("{}\n", json!({ "type": kind, "object": object })).into_bytes()
}

fn seeds() -> Vec<Vec<u8>> {
    let metadata =
        |version: u32| json!({ "name": "shore", "uid": "u", "resourceVersion": version.to_string() });
    let roster = publish(&Fixture::stand_in(2).spec(), None);
    let zone =
        json!({ "metadata": metadata(5), "spec": { "zone": "shore", "cell": 1, "signedRoster": roster } });
    let former = json!({ "metadata": metadata(6), "spec": { "zone": "shore", "roster": { "version": 1, "members": [] } } });
    let challenge = json!({
        "metadata": metadata(7),
        "spec": { "current": { "value": Fixture::CHALLENGE.to_base64() }, "wanted": ["a", "b"] },
    });
    let bookmark = json!({ "metadata": { "resourceVersion": "70" } });
    let refused = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    [
        line("ADDED", &zone),
        [
            line("ADDED", &former),
            line("BOOKMARK", &bookmark),
            line("DELETED", &former),
        ]
        .concat(),
        [
            line("ADDED", &challenge),
            line("MODIFIED", &challenge),
            line("LATER", &challenge),
        ]
        .concat(),
        [
            line("MODIFIED", &challenge),
            line("ERROR", &refused),
            line("ADDED", &zone),
        ]
        .concat(),
    ]
    .to_vec()
}

/// Whatever an object says: an agent reads it, and takes it for no older than itself.
fn is_read(object: &Value) {
    let asked = Asked::read(object);
    assert!(!asked.is_older_than(&asked) && asked.wanted_members().len() <= asked.wanted.len());
    if let Ok(Some(seen)) = Seen::read(object) {
        assert!(!seen.is_older_than(&seen));
        assert_eq!(seen.cell_ref().name, seen.version.name);
    }
}

/// Lines are lines wherever the network cuts them, and an object that was told is told again as the same.
#[test]
fn watches_are_borne() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
    let _entered = runtime.enter();
    let server = Server::new();
    target("watches", &seeds(), (5, 200), |bytes| {
        let bytes = Bytes::copy_from_slice(bytes);
        let whole = runtime.block_on(server.tells(vec![bytes.clone()]));
        let in_pieces = runtime.block_on(server.tells(pieces(bytes.clone())));
        assert_eq!(whole, in_pieces);
        let told = whole.0;
        let lines = bytes.split(|byte| *byte == b'\n').count();
        assert!(told.len() < lines, "more was told than was said");
        let objects: Vec<_> = told.iter().flatten().collect();
        for object in &objects {
            is_read(object);
        }
        let again = objects
            .iter()
            .flat_map(|object| line("MODIFIED", object))
            .collect::<Vec<_>>();
        // An object without members is written shorter than none.
        let size = again
            .len()
            .saturating_sub(objects.len() * line("MODIFIED", &Value::Null).len());
        let (again, ..) = runtime.block_on(server.tells(vec![again.into()]));
        // A number beyond 64 bits is read as a float, and that float as one beside it.
        let read = |object: &&Value| serde_json::from_str(&object.to_string()).unwrap();
        let expected: Vec<Value> = objects.iter().map(read).collect();
        assert!(
            again.iter().flatten().eq(&expected),
            "what was told is told again as the same"
        );
        (!told.is_empty()).then_some(size)
    });
}
