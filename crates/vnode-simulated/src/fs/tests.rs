use super::*;
use crate::clock::Clock;
use crate::shape::{self, Shape, find};
use crate::tests::fixture::{Framework, pod_with};
use evenkeel_vnode::core::volume::{Contents, File, TokenSource, Volume};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

fn files() -> Arc<PodFiles> {
    Arc::new(PodFiles::new(Pool::new(Pool::MOST)))
}

fn view(files: &Arc<PodFiles>, mounts: serde_json::Value) -> View {
    let pod = pod_with(
        "a",
        &[],
        json!({"volumeMounts": mounts, "workingDir": "/srv/app"}),
    );
    let (container, part) = find(&pod.pod, "web").unwrap();
    let framework = Framework::default();
    let bytes = |text: &str| File {
        contents: Contents::Bytes(text.as_bytes().into()),
        mode: 0o644,
    };
    let token = File {
        contents: Contents::Token(TokenSource {
            audience: "api".to_owned(),
            expiration: 3600,
        }),
        mode: 0o600,
    };
    let volumes = [
        (
            "config".to_owned(),
            Volume::Files(
                [
                    ("a.conf".to_owned(), bytes("A")),
                    ("sub/b.conf".to_owned(), bytes("B")),
                    ("token".to_owned(), token),
                ]
                .into(),
            ),
        ),
        ("data".to_owned(), Volume::Scratch { limit: Some(4096) }),
    ];
    framework.volumes.lock().unwrap().0 = volumes.into();
    View {
        files: files.clone(),
        host: Some(Arc::new(framework)),
        pod: pod.id.clone(),
        shape: Arc::new(Shape::of(&pod.pod, &container, part).unwrap()),
        volumes: shape::volumes(&container),
        number: 1,
        hostname: "a".into(),
        address: Some("10.64.7.2".parse().unwrap()),
        clock: Clock::wall(),
    }
}

async fn text(view: &View, path: &str) -> Result<String, Trouble> {
    view.read(path)
        .await
        .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

async fn names(view: &View, path: &str) -> Vec<String> {
    view.list(path)
        .await
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

#[tokio::test]
async fn a_container_begins_with_what_every_container_has() {
    let view = view(&files(), json!([]));
    assert_eq!(text(&view, "/etc/hostname").await.unwrap(), "a\n");
    assert!(text(&view, "/etc/hosts").await.unwrap().contains("10.64.7.2\ta"));
    assert!(view.stat("/tmp").await.unwrap().folder);
    assert!(view.stat("/srv/app").await.unwrap().folder);
    assert_eq!(text(&view, "/dev/null").await.unwrap(), "");
    assert_eq!(text(&view, "/nowhere").await, Err(Trouble::NotFound));
    assert_eq!(text(&view, "/tmp").await, Err(Trouble::IsAFolder));
    assert_eq!(text(&view, "/etc/hostname/x").await, Err(Trouble::NotAFolder));
}

#[tokio::test]
async fn files_are_written_listed_and_removed() {
    let view = view(&files(), json!([]));
    view.write("/tmp/x", b"one", false).await.unwrap();
    view.write("/tmp/x", b" two", true).await.unwrap();
    assert_eq!(text(&view, "/tmp/x").await.unwrap(), "one two");
    view.write("/tmp/x", b"three", false).await.unwrap();
    assert_eq!(text(&view, "/tmp/x").await.unwrap(), "three");
    view.make_all("/tmp/d/e").await.unwrap();
    view.make_all("/tmp/d/e").await.unwrap();
    assert_eq!(view.make("/tmp/d").await, Err(Trouble::Exists));
    assert_eq!(view.make_all("/tmp/x/y").await, Err(Trouble::NotAFolder));
    assert_eq!(names(&view, "/tmp").await, ["d", "x"]);
    assert_eq!(view.remove("/tmp/d", false).await, Err(Trouble::IsAFolder));
    view.remove("/tmp/d", true).await.unwrap();
    assert_eq!(names(&view, "/tmp").await, ["x"]);
    assert_eq!(view.remove("/", true).await, Err(Trouble::Busy));
    assert_eq!(
        view.write(&format!("/tmp/{}", "x".repeat(300)), b"", false).await,
        Err(Trouble::TooLong)
    );
}

#[tokio::test]
async fn volumes_of_objects_are_read_anew_and_never_written() {
    let mounts = json!([
        {"name": "config", "mountPath": "/etc/app"},
        {"name": "config", "mountPath": "/one.conf", "subPath": "sub/b.conf"},
        {"name": "config", "mountPath": "/var/run/secrets/app", "subPath": "sub"},
    ]);
    let view = view(&files(), mounts);
    assert_eq!(names(&view, "/etc/app").await, ["a.conf", "sub", "token"]);
    assert_eq!(text(&view, "/etc/app/sub/b.conf").await.unwrap(), "B");
    assert_eq!(text(&view, "/one.conf").await.unwrap(), "B");
    assert_eq!(names(&view, "/var/run").await, ["secrets"]);
    assert_eq!(names(&view, "/var/run/secrets/app").await, ["b.conf"]);
    assert_eq!(
        text(&view, "/etc/app/token").await.unwrap(),
        "token of default/a for api"
    );
    assert_eq!(text(&view, "/etc/app").await, Err(Trouble::IsAFolder));
    assert_eq!(text(&view, "/etc/app/other").await, Err(Trouble::NotFound));
    assert_eq!(
        view.write("/etc/app/a.conf", b"", false).await,
        Err(Trouble::ReadOnly)
    );
    assert_eq!(view.remove("/var/run/secrets", true).await, Err(Trouble::Busy));
    assert!(names(&view, "/").await.contains(&"one.conf".to_owned()));
}

#[tokio::test]
async fn scratch_volumes_are_the_pods_and_keep_their_limit() {
    let files = files();
    let one = view(&files, json!([{"name": "data", "mountPath": "/data"}]));
    let other = view(
        &files,
        json!([{"name": "data", "mountPath": "/in", "readOnly": true, "subPath": "part"}]),
    );
    assert_eq!(names(&other, "/in").await, Vec::<String>::new());
    one.write("/data/part/x", b"shared", false).await.unwrap();
    assert_eq!(text(&other, "/in/x").await.unwrap(), "shared");
    assert_eq!(other.write("/in/y", b"", false).await, Err(Trouble::ReadOnly));
    assert_eq!(
        one.write("/data/big", &[0; 4096], false).await,
        Err(Trouble::NoSpace)
    );
    one.remove("/data/part", true).await.unwrap();
    one.write("/data/big", &[0; 3840], false).await.unwrap();
}

#[tokio::test]
async fn a_pod_may_hold_so_much_and_what_is_removed_is_free_again() {
    let view = view(&files(), json!([]));
    let big = vec![0u8; 40 << 20];
    view.write("/tmp/a", &big, false).await.unwrap();
    assert_eq!(view.write("/tmp/b", &big, false).await, Err(Trouble::NoSpace));
    view.write("/tmp/a", &big, false).await.unwrap();
    view.remove("/tmp/a", false).await.unwrap();
    view.write("/tmp/b", &big, false).await.unwrap();
}

#[tokio::test]
async fn a_new_life_of_a_container_begins_with_a_new_tree() {
    let files = files();
    let mut view = view(&files, json!([{"name": "data", "mountPath": "/data"}]));
    view.write("/tmp/x", &vec![0; 40 << 20], false).await.unwrap();
    view.write("/data/x", b"stays", false).await.unwrap();
    view.number = 2;
    assert_eq!(names(&view, "/tmp").await, Vec::<String>::new());
    assert_eq!(text(&view, "/data/x").await.unwrap(), "stays");
    view.write("/tmp/x", &vec![0; 40 << 20], false).await.unwrap();
}

#[test]
fn names_count_so_that_empty_files_have_an_end() {
    let mut tree = Tree::new(Timestamp::UNIX_EPOCH);
    let mut quota = Quota::new(1024, Pool::new(Pool::MOST));
    let made = (0..100)
        .take_while(|index| {
            tree.write(
                &format!("/{index}"),
                b"",
                false,
                &mut quota,
                Timestamp::UNIX_EPOCH,
            )
            .is_ok()
        })
        .count();
    assert_eq!(made, 4);
}

#[tokio::test]
async fn all_pods_together_hold_so_much_and_what_is_read_counts_until_it_is_let_go() {
    const FILE: usize = 1 << 20;
    let pool = Pool::new(5 << 19);
    let pods: Vec<View> = (0..2)
        .map(|_| view(&Arc::new(PodFiles::new(pool.clone())), json!([])))
        .collect();
    pods[0].write("/tmp/x", &vec![1; FILE], false).await.unwrap();
    let read = pods[0].read("/tmp/x").await.unwrap();
    assert_eq!(
        read.as_ptr(),
        pods[0].read("/tmp/x").await.unwrap().as_ptr(),
        "readers share"
    );
    pods[1].write("/tmp/x", &vec![2; FILE], false).await.unwrap();
    assert_eq!(
        pods[1].write("/tmp/y", &vec![2; FILE], false).await,
        Err(Trouble::NoSpace)
    );
    assert_eq!(pods[1].stat("/tmp/y").await, Err(Trouble::NotFound));
    // What somebody reads stays as it was, and counts.
    assert_eq!(
        pods[0].write("/tmp/x", b"more", true).await,
        Err(Trouble::NoSpace)
    );
    pods[0].remove("/tmp/x", false).await.unwrap();
    assert!(pods[0].write("/tmp/x", &vec![3; FILE], false).await.is_err());
    assert_eq!(read.as_ref(), vec![1; FILE]);
    drop(read);
    pods[0].write("/tmp/x", &vec![3; FILE], false).await.unwrap();
    pods[0].write("/tmp/x", b"more", true).await.unwrap();
    drop(pods);
    assert_eq!(pool.used(), 0);
}
