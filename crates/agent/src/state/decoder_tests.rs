//! State files as a worn card, a full disk or somebody who may write there leave them.

use super::*;
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::fixture::fuzz::target;
use evenkeel_zone::roster::{RosterKeys, publish};

const BLOCK: u64 = 1 << SEQUENCE_BLOCK_BITS;

fn memory() -> Memory {
    let spec = Fixture::stand_in(3).spec();
    Memory {
        node: "node-1".into(),
        node_uid: Fixture::uid(1),
        zone: "shore".into(),
        cell: "shore.1".into(),
        signed_roster: Some(publish(&spec, None)),
        boot_id: "f00d".into(),
        seen_alive_as: [
            (Fixture::id(2).to_hex(), spec.members[1].public_key.clone()),
            ("elsewhere".into(), "?".into()),
        ]
        .into(),
        found_at: [(Fixture::id(3).to_hex(), "10.0.0.3:10250".into())].into(),
        seen_alive: BTreeSet::new(),
        sequence_base: 1_800_000_000_000 << SEQUENCE_BLOCK_BITS,
    }
}

/// The next life of a node, or of another one, goes on where the last one may have come to, and what it
/// writes is read again.
fn lives_on(memory: &Memory) {
    let used = memory.sequence_base;
    for (node, boot_id) in [("node-1", "f00d"), ("node-1", "another"), ("node-2", "f00d")] {
        let next = memory.clone().begin(node, boot_id, 1_700_000_000_000);
        assert!(next.sequence_base > used && next.sequence_base.is_multiple_of(BLOCK));
        assert_eq!((next.node.as_str(), next.boot_id.as_str()), (node, boot_id));
        let others = memory.node != node;
        assert!(!others || next.signed_roster.is_none() && next.met() == Met::default());
        if used <= HIGHEST_BASE - BLOCK {
            assert_eq!(Memory::from_text(&next.to_text()), Ok(next));
        }
    }
}

/// A roster that counts is found again as it was, with whom the agent has met.
fn roster_lives_on(mut memory: Memory) {
    let published = memory.signed_roster.clone();
    let opened = published
        .as_ref()
        .map(|published| Roster::reopen(published, &RosterKeys::default()));
    if let Some(Ok(roster)) = opened {
        let met = memory.met();
        learn(&mut memory, Learned::Roster(Arc::new(roster), met.clone()));
        assert_eq!(memory.signed_roster, published);
        assert_eq!(memory.met(), met);
    }
}

#[test]
fn state_files_are_borne() {
    let former = br#"{"node":"node-1","seenAlive":["u"],"signedRoster":null}"#.to_vec();
    target(
        "state files",
        &[memory().to_text(), former, b"{}".to_vec()],
        (3, 400),
        |text| {
            let memory = Memory::from_text(text).ok()?;
            let written = memory.to_text();
            assert_eq!(Memory::from_text(&written).as_ref(), Ok(&memory));
            lives_on(&memory);
            roster_lives_on(memory);
            Some(written.len())
        },
    );
}
