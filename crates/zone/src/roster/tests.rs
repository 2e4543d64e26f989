use super::*;
use crate::keys::SigningKey;
use evenkeel_api::zone::{KubeletEndpoint, RosterMember};
use rstest::rstest;

fn member(i: u8) -> RosterMember {
    RosterMember {
        name: format!("node-{i}"),
        uid: format!("uid-{i}"),
        address: format!("127.0.0.{i}:7959"),
        public_key: SigningKey::from_seed(&[i; 32]).unwrap().public().to_base64(),
        kubelet: None,
        next_public_key: None,
        learner: false,
    }
}

fn spec(count: u8) -> RosterSpec {
    RosterSpec {
        version: 3,
        members: (1..=count).map(member).collect(),
        ..RosterSpec::default()
    }
}

#[test]
fn members_are_sorted_whatever_their_order() {
    let mut turned = spec(5);
    turned.members.reverse();
    let (one, two) = (
        Roster::from_spec(&spec(5)).unwrap(),
        Roster::from_spec(&turned).unwrap(),
    );
    assert_eq!(one.members(), two.members());
    let uids: Vec<&str> = one.members().iter().map(|member| member.uid.as_str()).collect();
    assert_eq!(uids, ["uid-1", "uid-2", "uid-3", "uid-4", "uid-5"]);
}

const SHORE: CellRef<'static> = CellRef {
    name: "shore",
    uid: "u-1",
};

fn of_shore() -> RosterSpec {
    RosterSpec {
        cell: SHORE.name.into(),
        cell_uid: SHORE.uid.into(),
        ..spec(3)
    }
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn keys(seeds: &[u8]) -> RosterKeys {
    RosterKeys::new(seeds.iter().map(|seed| key(*seed).public().clone()).collect())
}

/// Hazard 48: versions that read other fields in a text agree on what it is.
#[test]
fn the_epoch_is_made_of_the_published_bytes_and_unknown_fields_are_passed_over() {
    let known = publish(&of_shore(), None);
    let later = SignedRoster {
        text: known
            .text
            .replace("{\"version\":3", "{\"carriers\":[{\"uid\":\"c\"}],\"version\":3"),
        ..known.clone()
    };
    assert_ne!(known.text, later.text);
    let open = |published| Roster::open(published, SHORE, &RosterKeys::default()).unwrap();
    assert_eq!(open(&known).members(), open(&later).members());
    assert_ne!(open(&known).reference(), open(&later).reference());
    assert_eq!(
        open(&later).published().text,
        later.text,
        "it is passed on as it came"
    );
}

#[test]
fn a_signed_roster_counts_for_its_cell_and_its_keys_alone() {
    let signed = publish(&of_shore(), Some(&key(91)));
    let unsigned = publish(&of_shore(), None);
    let changed = SignedRoster {
        text: signed.text.replace("node-1", "node-9"),
        ..signed.clone()
    };
    let anew = CellRef { uid: "u-2", ..SHORE };
    let elsewhere = CellRef {
        name: "pier",
        ..SHORE
    };
    let table = [
        ("signed", &signed, SHORE, keys(&[91]), None),
        (
            "signed with the second of two keys",
            &signed,
            SHORE,
            keys(&[92, 91]),
            None,
        ),
        ("nobody asks for a signature", &signed, SHORE, keys(&[]), None),
        ("unsigned where nobody asks", &unsigned, SHORE, keys(&[]), None),
        ("unsigned", &unsigned, SHORE, keys(&[91]), Some("not signed:")),
        (
            "signed with another key",
            &signed,
            SHORE,
            keys(&[92]),
            Some("not signed with a key"),
        ),
        (
            "another text",
            &changed,
            SHORE,
            keys(&[91]),
            Some("not signed with a key"),
        ),
        (
            "the object was made anew",
            &signed,
            anew,
            keys(&[91]),
            Some("with UID \"u-1\""),
        ),
        (
            "unsigned, of an object that was made anew",
            &unsigned,
            anew,
            keys(&[]),
            Some("cell \"shore\""),
        ),
        (
            "another cell",
            &signed,
            elsewhere,
            keys(&[91]),
            Some("cell \"shore\""),
        ),
    ];
    for (what, published, cell, keys, refused) in table {
        let opened = Roster::open(published, cell, &keys);
        match refused {
            None => assert_eq!(opened.unwrap().cell(), cell, "{what}"),
            Some(words) => {
                let error = opened.unwrap_err().to_string();
                assert!(error.contains(words), "{what}: {error}");
            }
        }
    }
}

/// Where controllers have a key, a roster without a cell is one that nobody signed.
#[test]
fn a_roster_of_a_former_version_counts_until_signatures_are_asked_for() {
    let former = publish(&spec(3), None);
    assert!(Roster::open(&former, SHORE, &keys(&[])).is_ok());
    assert!(Roster::open(&former, SHORE, &keys(&[91])).is_err());
    let signed = publish(&spec(3), Some(&key(91)));
    assert!(matches!(
        Roster::open(&signed, SHORE, &keys(&[91])),
        Err(RosterError::Cell { .. })
    ));
}

#[test]
fn a_roster_that_is_passed_on_is_the_one_that_was_published() {
    let published = publish(&of_shore(), Some(&key(91)));
    let roster = Roster::open(&published, SHORE, &keys(&[91])).unwrap();
    let bytes = roster.to_bytes().unwrap();
    assert_eq!(Roster::from_bytes(&bytes, SHORE, &keys(&[91])), Ok(roster));
    let spoilt = |place: usize| {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1;
        Roster::from_bytes(&bytes, SHORE, &keys(&[91]))
    };
    assert_eq!(spoilt(0), Err(RosterError::Signature));
    assert_eq!(spoilt(bytes.len() - 1), Err(RosterError::Signature));
    for short in [0, 1, 63, 64, 65] {
        assert!(Roster::from_bytes(&bytes[..short], SHORE, &keys(&[91])).is_err());
    }
    let unsigned = Roster::open(&publish(&of_shore(), None), SHORE, &keys(&[])).unwrap();
    assert_eq!(unsigned.to_bytes(), None);
}

#[test]
fn every_field_is_part_of_the_epoch() {
    let base = Roster::from_spec(&spec(3)).unwrap().reference().epoch;
    let mut changes: Vec<RosterSpec> = (0..9).map(|_| spec(3)).collect();
    changes[0].version = 4;
    changes[1].members[0].name = "other".into();
    changes[2].members[0].uid = "uid-0".into();
    changes[3].members[0].address = "127.0.0.9:7959".into();
    changes[4].members[0].public_key = member(9).public_key;
    changes[5].members[0].kubelet = Some(KubeletEndpoint {
        address: "127.0.0.1:10250".into(),
        ..Default::default()
    });
    changes[6].members[0].learner = true;
    changes[7].settled_voters = vec!["uid-1".into()];
    changes[8].cell = "shore".into();
    for changed in changes {
        assert_ne!(
            Roster::from_spec(&changed).unwrap().reference().epoch,
            base,
            "{changed:?}"
        );
    }
}

#[rstest]
#[case::version(|spec: &mut RosterSpec| spec.version = 0, "roster version 0")]
#[case::unnamed(|spec: &mut RosterSpec| spec.members[1].uid.clear(), "member 1 has no name")]
#[case::same_uid(|spec: &mut RosterSpec| spec.members[1].uid = "uid-1".into(), "shares its UID uid-1")]
#[case::same_key(|spec: &mut RosterSpec| spec.members[1].public_key = member(1).public_key, "two votes")]
#[case::next_key_of_another(|spec: &mut RosterSpec| spec.members[1].next_public_key = Some(member(1).public_key), "two votes")]
#[case::same_next_key(|spec: &mut RosterSpec| spec.members[0].next_public_key = Some(spec.members[0].public_key.clone()), "two votes")]
#[case::bad_key(|spec: &mut RosterSpec| spec.members[1].public_key = "x".into(), "public key of node node-2")]
#[case::bad_address(|spec: &mut RosterSpec| spec.members[1].address = "here".into(), "address \"here\" of node node-2")]
fn what_is_wrong_with_a_roster_is_named(#[case] spoil: fn(&mut RosterSpec), #[case] text: &str) {
    let mut spoilt = spec(3);
    spoil(&mut spoilt);
    let error = Roster::from_spec(&spoilt).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

#[test]
fn members_are_found_by_name_wherever_they_stand_and_strangers_are_not() {
    for count in [0, 1, 2, 3, 16, 64, 200] {
        let roster = Roster::from_spec(&spec(count)).unwrap();
        for index in roster.positions() {
            let id = roster.member(index).unwrap().id;
            assert_eq!(roster.position(id), Some(index));
        }
        for stranger in 0..1_000 {
            assert_eq!(
                roster.position(MemberId::of(&format!("stranger-{stranger}"))),
                None
            );
        }
        assert_eq!(roster.position(MemberId::NOBODY), None);
    }
}

#[test]
fn small_zones_are_all_pairs() {
    for count in 1..=11 {
        let roster = Roster::from_spec(&spec(count)).unwrap();
        for index in roster.positions() {
            let others: Vec<MemberIndex> = roster.positions().filter(|other| *other != index).collect();
            assert_eq!(others.len(), usize::from(count) - 1);
            assert_eq!(roster.subjects_of(index), others);
            assert_eq!(roster.observers_of(index), others);
        }
    }
}

#[test]
fn large_zones_give_every_node_ten_subjects_and_enough_observers() {
    let roster = Roster::from_spec(&spec(200)).unwrap();
    for index in roster.positions() {
        let subjects = roster.subjects_of(index);
        let distinct: BTreeSet<_> = subjects.iter().collect();
        assert_eq!((subjects.len(), distinct.len()), (10, 10));
        assert!(!subjects.contains(&index));
        let observers = roster.observers_of(index);
        assert!(
            (7..=13).contains(&observers.len()),
            "{} observers",
            observers.len()
        );
        assert!(
            observers
                .iter()
                .all(|observer| roster.subjects_of(*observer).contains(&index))
        );
    }
}

#[test]
fn one_member_more_moves_few_edges() {
    let (small, large) = (
        Roster::from_spec(&spec(50)).unwrap(),
        Roster::from_spec(&spec(51)).unwrap(),
    );
    let edges = |roster: &Roster| -> BTreeSet<(MemberId, MemberId)> {
        let id = |index: MemberIndex| roster.member(index).unwrap().id;
        let of = |observer: MemberIndex| {
            let subjects = roster.subjects_of(observer).iter();
            subjects
                .map(|subject| (id(observer), id(*subject)))
                .collect::<Vec<_>>()
        };
        roster.positions().flat_map(of).collect()
    };
    let kept = edges(&small).intersection(&edges(&large)).count();
    assert!(kept > 450, "{kept} of 500 edges kept");
}

#[rstest]
#[case("shore", "shore")]
#[case("eu-west-1a", "eu-west-1a")]
fn plain_zone_names_stay(#[case] zone: &str, #[case] name: &str) {
    assert_eq!(zone_object_name(zone), name);
}

#[test]
fn other_zone_names_become_valid_and_stay_apart() {
    let zones = ["Shore", "shore_1", "shore.1", "-x", "", &"z".repeat(90), "_"];
    let names: BTreeSet<String> = zones.iter().map(|zone| zone_object_name(zone)).collect();
    assert_eq!(names.len(), zones.len());
    for name in names {
        assert!(
            name.len() <= 63 && !name.starts_with('-') && !name.ends_with('-'),
            "{name}"
        );
        assert!(
            name.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{name}"
        );
    }
}

#[test]
fn the_cells_of_a_zone_have_names_that_no_other_zone_has() {
    let names = [("shore", 0), ("shore", 1), ("shore.1", 0), ("shore-1", 0)];
    let names: BTreeSet<String> = names.map(|(zone, cell)| cell_object_name(zone, cell)).into();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.contains("shore") && names.contains("shore.1"), "{names:?}");
}
