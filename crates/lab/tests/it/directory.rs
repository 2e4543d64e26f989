//! The lab's directory on a real file system.

use evenkeel_lab::directory::{Directory, DirectoryError};
use std::{fs, os::unix::fs::PermissionsExt as _};

#[test]
fn a_second_lab_in_the_same_directory_is_told_who_holds_it() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("lab");
    let first = Directory::claim(&root).unwrap();
    first.write_secret(&first.kubeconfig(), "of the first").unwrap();
    let error = Directory::claim(&root).unwrap_err();
    let message = error.to_string();
    assert!(
        matches!(error, DirectoryError::InUse { pid: Some(pid), .. } if pid == std::process::id()),
        "{message}"
    );
    assert!(message.contains("--dir") && !message.contains('\n'), "{message}");
    assert_eq!(
        fs::read_to_string(first.kubeconfig()).unwrap(),
        "of the first",
        "nothing is lost"
    );
    drop(first);
    Directory::claim(&root).unwrap();
}

#[test]
fn what_an_earlier_lab_left_does_not_mislead() {
    let place = tempfile::tempdir().unwrap();
    let first = Directory::claim(place.path()).unwrap();
    first.write_secret(&first.kubeconfig(), "stale").unwrap();
    fs::write(first.control_socket(), "").unwrap();
    drop(first);
    let second = Directory::claim(place.path()).unwrap();
    assert!(!second.kubeconfig().exists());
    assert!(!second.control_socket().exists());
}

#[test]
fn secrets_are_readable_by_their_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let directory = Directory::claim(&place.path().join("a/b")).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(directory.root()), 0o700);
    let path = directory.folder("nodes/shore-1").unwrap().join("kubeconfig");
    directory.write_secret(&path, "one").unwrap();
    directory.write_secret(&path, "two").unwrap();
    assert_eq!(
        (fs::read_to_string(&path).unwrap().as_str(), mode(&path)),
        ("two", 0o600)
    );
}

#[test]
fn an_unwritable_place_is_named() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    let error = Directory::claim(&file.join("lab")).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, DirectoryError::Unwritable { .. }), "{message}");
    assert!(
        message.contains("file/lab") && message.contains("--dir") && !message.contains('\n'),
        "{message}"
    );
}
