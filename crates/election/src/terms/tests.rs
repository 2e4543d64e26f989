use super::*;
use rstest::rstest;

fn term(transitions: i32) -> Term {
    Term {
        token: FencingToken {
            lease_uid: "u-1".to_owned(),
            transitions,
        },
        acquired: Some("2026-11-24T01:02:03.456789Z".parse().unwrap()),
    }
}

fn open(home: &Path) -> TermFile {
    TermFile::open(home, "web-0").unwrap()
}

#[test]
fn a_term_is_proven_to_have_ended_once_its_process_has() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().join("state");
    let first = open(&home);
    assert_eq!(first.ended("ns/a").unwrap(), None);
    first.hold("ns/a", &term(3)).unwrap();
    first.hold("ns/a", &term(4)).unwrap();
    first.hold("ns/b", &term(1)).unwrap();
    assert_eq!(first.ended("ns/a").unwrap(), None, "its own term has not ended");

    let second = open(&home);
    assert_eq!(second.ended("ns/a").unwrap(), None, "the first one runs");
    second.hold("ns/a", &term(9)).unwrap();
    drop(first);
    assert_eq!(second.ended("ns/a").unwrap(), Some(term(4)));
    assert_eq!(second.ended("ns/b").unwrap(), Some(term(1)));
    assert_eq!(second.ended("ns/c").unwrap(), None);
    second.hold("ns/a", &term(5)).unwrap();
    assert_eq!(
        second.ended("ns/a").unwrap(),
        Some(term(4)),
        "what the first one held, not its own"
    );
    drop(second);
    let third = open(&home);
    let both = [third.ended("ns/a").unwrap(), third.ended("ns/b").unwrap()];
    assert_eq!(both, [Some(term(5)), Some(term(1))]);
    let other = TermFile::open(&home, "web-1").unwrap();
    assert_eq!(other.ended("ns/a").unwrap(), None, "another identity");
}

#[test]
fn notes_of_another_boot_prove_nothing() {
    let home = tempfile::tempdir().unwrap();
    let first = open(home.path());
    first.inner().origin.boot = "another".to_owned();
    first.hold("ns/a", &term(3)).unwrap();
    drop(first);
    assert_eq!(open(home.path()).ended("ns/a").unwrap(), None);
}

/// The process that wrote it may live: its file lock is of the file that it wrote.
#[test]
fn notes_in_another_file_prove_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("terms-web-0.json");
    let first = open(home.path());
    first.hold("ns/a", &term(3)).unwrap();
    let copy = fs::read(&path).unwrap();

    fs::remove_file(&path).unwrap();
    let made_anew = open(home.path());
    assert_eq!(made_anew.ended("ns/a").unwrap(), None);
    drop(made_anew);

    fs::remove_file(&path).unwrap();
    fs::write(&path, &copy).unwrap();
    let restored = open(home.path());
    assert_eq!(restored.ended("ns/a").unwrap(), None);

    first.hold("ns/a", &term(4)).unwrap();
    assert_eq!(
        fs::read(&path).unwrap(),
        copy,
        "a file that is not its own is left alone"
    );
    restored.hold("ns/a", &term(5)).unwrap();
    drop(restored);
    assert_eq!(open(home.path()).ended("ns/a").unwrap(), Some(term(5)));
}

#[rstest]
#[case::half(r#"{"boot":"b","terms":{"ns/a":{"leaseUid""#)]
#[case::other("[]")]
fn what_cannot_be_read_is_said_once_and_proves_nothing(#[case] text: &str) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("terms-web-0.json");
    fs::write(&path, text).unwrap();
    let terms = open(home.path());
    let error = terms.ended("ns/a").unwrap_err().to_string();
    assert_eq!(error, format!("cannot read {}", path.display()));
    assert_eq!(terms.ended("ns/a").unwrap(), None);
    terms.hold("ns/a", &term(1)).unwrap();
    drop(terms);
    assert_eq!(open(home.path()).ended("ns/a").unwrap(), Some(term(1)));
}

#[test]
fn only_the_owner_may_read_what_is_made() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().unwrap();
    let home = home.path().join("state");
    let terms = open(&home);
    terms.hold("ns/a", &term(1)).unwrap();
    for (path, mode) in [(home.clone(), 0o700), (home.join("terms-web-0.json"), 0o600)] {
        let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{}", path.display());
    }
}

#[test]
fn identities_do_not_share_a_file() {
    let names: std::collections::BTreeSet<String> =
        ["a", "a/b", "a%2fb", "../a", "a b", "ä"].map(file_name).into();
    assert_eq!(names.len(), 6);
    assert!(
        names
            .iter()
            .all(|name| !name.contains('/') && !name.contains('.')),
        "{names:?}"
    );
}
