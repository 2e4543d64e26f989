//! Datagrams as they were when a version of the format was made. Whatever changes here: later versions read
//! them, or speak another major version.

use super::{Ends, all, from_evidence, to_evidence};

/// `NAME BYTES` a line, the bytes in base64, written by this code when the version was made, and never since.
/// A version has all kinds of the former ones.
const VERSIONS: [&str; 2] = [include_str!("corpus/3.0.txt"), include_str!("corpus/3.1.txt")];

#[test]
fn datagrams_of_all_versions_are_read_for_ever() {
    let ends = Ends::seeded(1, 2);
    let lines = VERSIONS.iter().flat_map(|corpus| corpus.lines());
    let written: Vec<(&str, &str)> = lines
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
        let mut written = written.iter().filter(|(written, _)| *written == name).peekable();
        if written.peek().is_none() {
            new.push(format!("{name} {}", to_evidence(&ends.seal(&message))));
        }
        for (_, text) in written {
            assert_eq!(ends.open(&from_evidence(text).unwrap()).as_ref(), Ok(&message));
        }
    }
    assert_eq!(
        new,
        Vec::<String>::new(),
        "these kinds are new, and belong to another version"
    );
}
