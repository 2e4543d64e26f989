//! What the gate lets through, and that it leaves alone what it lets through.

use super::*;
use futures::poll;
use kube::client::retry::RetryPolicy;
use tower::retry::RetryLayer;
use tower::{Layer as _, ServiceExt as _};

const READS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];
const WRITES: [&str; 11] = [
    "POST", "PUT", "PATCH", "DELETE", "CONNECT", "PROPFIND", "get", "head", "options", "trace", "Get",
];

#[tokio::test]
async fn reads_pass_always_and_anything_else_only_while_open() {
    let gate = Gate::with_clock(TestClock::at(0));
    let (mut service, mut backend) = behind(&gate);
    for (state, open) in [("closed", false), ("open", true), ("closed again", false)] {
        if open {
            gate.open(term(1), SECOND);
        } else {
            gate.close();
        }
        for (methods, passes) in [(&READS[..], true), (&WRITES[..], open)] {
            for method in methods {
                let mut answer = service.call(request(method));
                if passes {
                    assert!(poll!(&mut answer).is_pending());
                    backend.call().respond(full("ok"));
                    let body = response(poll!(&mut answer)).collect().await.unwrap();
                    assert_eq!(body.to_bytes(), "ok", "{method} while {state}");
                } else {
                    let error = error(poll!(&mut answer));
                    assert_eq!(
                        error.to_string(),
                        "leader election write gate is closed: not leading",
                        "{method} while {state}"
                    );
                    assert!(error.is::<GateClosed>());
                    assert!(backend.is_untouched(), "{method} while {state}");
                }
            }
        }
    }
    assert_eq!(gate.rejections(), 2 * WRITES.len() as u64);
    assert_eq!(gate.in_flight(), 0);
}

/// As a client of Kubernetes begins exec, attach and port-forward.
#[tokio::test]
async fn a_get_that_asks_for_another_protocol_is_a_write() {
    let gate = Gate::with_clock(TestClock::at(0));
    let (mut service, mut backend) = behind(&gate);
    let exec = || {
        let mut request = request("GET");
        let headers = request.headers_mut();
        headers.insert("upgrade", http::HeaderValue::from_static("websocket"));
        request
    };
    assert!(error(poll!(&mut service.call(exec()))).is::<GateClosed>());
    assert!(backend.is_untouched());
    gate.open(term(1), SECOND);
    let mut answer = service.call(exec());
    assert!(poll!(&mut answer).is_pending());
    backend.call().respond(full("ok"));
    assert!(response(poll!(&mut answer)).collect().await.is_ok());
}

#[test]
fn a_gate_starts_closed_and_opens_and_closes_again_and_again() {
    let gate = Gate::with_clock(TestClock::at(0));
    assert!(!gate.is_open());
    gate.close();
    for n in 1..=3 {
        gate.open(term(n), SECOND);
        gate.open(term(n), SECOND);
        assert_eq!((gate.token(), gate.valid_until()), (Some(term(n)), Some(SECOND)));
        assert_eq!(gate.check(), Ok(term(n)));
        gate.close();
        gate.close();
        assert_eq!(
            (gate.token(), gate.valid_until(), gate.is_open()),
            (None, None, false)
        );
    }
    assert_eq!(gate.rejections(), 0);
    assert_eq!(gate.check(), Err(GateClosed));
    assert_eq!(gate.rejections(), 1);
    assert!(!Gate::default().is_open());
}

#[test]
fn the_machines_clock_opens_and_shuts_it_too() {
    let gate = Gate::new();
    gate.open(term(1), SystemClock.boot() + Duration::from_secs(3600));
    assert_eq!(gate.token(), Some(term(1)));
    gate.close();
    gate.open(term(1), SystemClock.boot());
    assert_eq!(gate.token(), None);
}

#[tokio::test]
async fn the_request_arrives_as_it_was_sent() {
    let (mut service, mut backend) = behind(&open_gate());
    let mut sent = request("PATCH");
    *sent.version_mut() = http::Version::HTTP_2;
    sent.headers_mut()
        .insert("content-type", "application/merge-patch+json".parse().unwrap());
    sent.extensions_mut().insert("name of the call");
    let mut answer = service.call(sent.clone());
    assert!(poll!(&mut answer).is_pending());
    let (got, body) = backend.call().request.into_parts();
    let (sent, _) = sent.into_parts();
    assert_eq!(
        (got.method, got.uri, got.version, got.headers),
        (sent.method, sent.uri, sent.version, sent.headers)
    );
    assert_eq!(got.extensions.get::<&str>(), Some(&"name of the call"));
    assert_eq!(got.extensions.len(), 1);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "{}");
}

#[tokio::test]
async fn errors_from_below_pass_unchanged() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    for method in ["GET", "POST"] {
        let mut answer = service.call(request(method));
        assert!(poll!(&mut answer).is_pending());
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        backend.call().answer.send(Err(refused.into())).unwrap();
        let error = error(poll!(&mut answer));
        let error = error.downcast::<std::io::Error>().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        // Before it is dropped: a failed write is not in flight.
        assert_eq!(gate.in_flight(), 0);
    }

    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    let (sender, body) = stream();
    backend.call().respond(body);
    let mut body = response(poll!(&mut answer));
    sender.unbounded_send(Err("cut off".into())).unwrap();
    let Poll::Ready(Some(Err(error))) = frame!(body) else {
        panic!("no error")
    };
    assert_eq!(error.to_string(), "cut off");
    assert!(!is_closed(&error));
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test]
async fn the_parts_of_a_body_arrive_as_they_come_with_their_trailers() {
    let gate = open_gate();
    let (mut service, mut backend) = behind(&gate);
    let mut answer = service.call(request("POST"));
    assert!(poll!(&mut answer).is_pending());
    let (sender, body) = stream();
    backend.call().respond(body);
    let mut body = response(poll!(&mut answer));
    assert!(frame!(body).is_pending());
    send(&sender, "one");
    assert!(matches!(frame!(body), Poll::Ready(Some(Ok(text))) if text == "one"));
    let trailers = http::HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]);
    sender
        .unbounded_send(Ok(Frame::trailers(trailers.clone())))
        .unwrap();
    drop(sender);
    let last = body.frame().await.unwrap().unwrap();
    assert_eq!(last.into_trailers().ok(), Some(trailers));
    assert!(body.frame().await.is_none());
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_refused_write_is_not_tried_again() {
    let gate = Gate::with_clock(TestClock::at(0));
    let retry = RetryLayer::new(RetryPolicy::server_retry());
    let never = tower::service_fn(|_: Request<kube::client::Body>| async {
        panic!("came through");
        #[expect(unreachable_code, reason = "for its type")]
        Ok::<Response<TestBody>, BoxError>(Response::new(empty()))
    });
    let service = retry.layer(gate.layer().layer(never));
    let post = Request::post("/").body(kube::client::Body::empty()).unwrap();
    let error = service.oneshot(post).await.err().unwrap();
    assert!(is_closed(&error));
    assert_eq!(gate.rejections(), 1);
}

#[test]
fn the_error_is_found_wherever_it_is_wrapped_and_nothing_else_is() {
    let closed = || -> BoxError { GateClosed.into() };
    assert!(is_gate_closed(&kube::Error::Service(closed())));
    let wrapped = kube::Error::Service(std::io::Error::other(closed()).into());
    assert!(is_gate_closed(&wrapped));
    let twice = kube::Error::Service(Box::new(kube::Error::Service(closed())));
    assert!(is_gate_closed(&twice));
    assert!(is_gate_closed(&kube::Error::ReadEvents(std::io::Error::other(
        closed()
    ))));

    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    assert!(!is_gate_closed(&kube::Error::Service(refused.into())));
    let text = std::io::Error::other(GateClosed.to_string());
    assert!(!is_gate_closed(&kube::Error::Service(text.into())));
    assert!(!is_gate_closed(&kube::Error::LinesCodecMaxLineLengthExceeded));
}

#[test]
fn one_elector_at_a_time_has_the_gate() {
    let gate = open_gate();
    let claim = gate.claim().unwrap();
    assert!(gate.is_open());
    let error = gate.clone().claim().unwrap_err();
    assert_eq!(
        error.to_string(),
        "WriteGate is already in use by another LeaderElector"
    );
    assert!(claim.gate().is_open());
    drop(claim);
    assert!(!gate.is_open());
    let _again = gate.claim().unwrap();
}
