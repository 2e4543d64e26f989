//! Datagrams as they were when a version of the format was made. Whatever changes here: later versions read
//! them, or speak another major version.

use super::{Ends, all, from_evidence, to_evidence};

/// `NAME BYTES` a line, the bytes in base64, written by this code when the version was made, and never since.
const VERSION_3_0: &str = include_str!("corpus/3.0.txt");

#[test]
fn datagrams_of_version_3_0_are_read_for_ever() {
    let ends = Ends::seeded(1, 2);
    let written: Vec<(&str, &str)> = VERSION_3_0
        .lines()
        .map(|line| line.split_once(' ').expect("a name and bytes"))
        .collect();
    let all = all();
    let kinds: Vec<&str> = all.iter().map(|message| message.body.name()).collect();
    for (name, _) in &written {
        assert!(kinds.contains(name), "{name} is not read any more");
    }
    let mut new = Vec::new();
    for message in all {
        let name = message.body.name();
        match written.iter().find(|(written, _)| *written == name) {
            Some((_, text)) => assert_eq!(ends.open(&from_evidence(text).unwrap()), Ok(message)),
            None => new.push(format!("{name} {}", to_evidence(&ends.seal(&message)))),
        }
    }
    assert_eq!(
        new,
        Vec::<String>::new(),
        "these kinds are new, and belong to another version"
    );
}
