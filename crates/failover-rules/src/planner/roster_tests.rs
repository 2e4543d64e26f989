use super::*;
use evenkeel_api::names::CONTROL_PLANE_LABEL;
use evenkeel_api::names::zone_of;
use rstest::rstest;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn agent(uid: &str) -> AgentStatusSpec {
    AgentStatusSpec {
        node_uid: uid.to_owned(),
        public_key: key(uid),
        address: "10.0.0.1:7946".to_owned(),
        version: "0.1.0".to_owned(),
        ..Default::default()
    }
}

fn key(uid: &str) -> String {
    let mut seed = [7; 32];
    seed.iter_mut().zip(uid.bytes()).for_each(|(to, from)| *to = from);
    evenkeel_zone::keys::SigningKey::from_seed(&seed)
        .unwrap()
        .public()
        .to_base64()
}

fn members(uids: &[&str]) -> Vec<RosterMember> {
    uids.iter()
        .map(|uid| {
            member(
                &format!("node-{uid}"),
                uid,
                &agent(uid),
                &mut SoundKeys::default(),
            )
            .unwrap()
        })
        .collect()
}

#[rstest]
#[case::standard(&[("topology.kubernetes.io/zone", "shore")], None, Some("shore"))]
#[case::superedge(&[("superedgehealth/topology-zone", "pier")], None, Some("pier"))]
#[case::standard_wins(
    &[("superedgehealth/topology-zone", "pier"), ("topology.kubernetes.io/zone", "shore")], None, Some("shore")
)]
#[case::none(&[], None, None)]
#[case::named_by_the_profile(&[], Some("default"), Some("default"))]
#[case::a_label_beats_the_profile(&[("topology.kubernetes.io/zone", "shore")], Some("default"), Some("shore"))]
#[case::an_empty_label_is_no_label(
    &[("topology.kubernetes.io/zone", ""), ("superedgehealth/topology-zone", "pier")], None, Some("pier")
)]
#[case::an_empty_label_is_none(&[("topology.kubernetes.io/zone", "")], None, None)]
fn the_zone_is_a_label_or_the_profiles_default(
    #[case] pairs: &[(&str, &str)],
    #[case] default: Option<&str>,
    #[case] expected: Option<&str>,
) {
    assert_eq!(zone_of(&labels(pairs), default).as_deref(), expected);
}

#[test]
fn control_plane_and_virtual_nodes_are_out() {
    assert!(eligible(&labels(&[("type", "real")])));
    assert!(!eligible(&labels(&[(CONTROL_PLANE_LABEL, "")])));
    assert!(!eligible(&labels(&[("type", "virtual-kubelet")])));
    let fleet = ("vnode.evenkeel.io/fleet", "simulated");
    assert!(!eligible(&labels(&[fleet])));
    assert!(!eligible(&labels(&[fleet, ("type", "edge")])));
    assert!(eligible(&labels(&[fleet, ("type", "machine")])));
}

#[rstest]
#[case::other_uid(AgentStatusSpec { node_uid: "old".to_owned(), ..agent("u") }, "register anew")]
#[case::address(AgentStatusSpec { address: "shore-1:7946".to_owned(), ..agent("u") }, "not IP:PORT")]
#[case::short_key(AgentStatusSpec { public_key: "AAAA".to_owned(), ..agent("u") }, "publicKey")]
#[case::off_the_curve(AgentStatusSpec { public_key: format!("Ag{}=", "A".repeat(41)), ..agent("u") }, "publicKey")]
#[case::small_order(AgentStatusSpec { public_key: format!("AQ{}=", "A".repeat(41)), ..agent("u") }, "publicKey")]
#[case::strange_key(AgentStatusSpec { public_key: "é".repeat(22), ..agent("u") }, "publicKey")]
fn a_node_whose_agent_says_nonsense_is_out(#[case] agent: AgentStatusSpec, #[case] words: &str) {
    let refused = member("shore-1", "u", &agent, &mut SoundKeys::default()).unwrap_err();
    assert!(
        refused.contains(words) && refused.contains("shore-1"),
        "{refused}"
    );
}

#[test]
fn the_first_roster_has_version_1_and_is_sorted() {
    let roster = next(None, 0, members(&["b", "a"])).unwrap();
    assert_eq!(roster.version, 1);
    assert_eq!(
        roster
            .members
            .iter()
            .map(|member| member.uid.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[test]
fn the_version_grows_only_on_change() {
    let first = next(None, 0, members(&["a", "b"])).unwrap();
    assert_eq!(next(Some(&first), 1, members(&["b", "a"])), None);
    let second = next(Some(&first), 1, members(&["a", "b", "c"])).unwrap();
    assert_eq!(second.version, 2);
    let mut moved = members(&["a", "b", "c"]);
    moved[1].address = "10.0.0.2:7946".to_owned();
    assert_eq!(
        next(Some(&second), 2, moved).unwrap().version,
        3,
        "a new address is a change"
    );
}

#[test]
fn a_version_is_never_used_twice() {
    assert_eq!(next(None, 7, members(&["a"])).unwrap().version, 8);
}

#[rstest]
#[case::negative(-5)]
#[case::zero(0)]
#[case::too_large(RosterSpec::LAST_VERSION + 1)]
#[case::largest_number(i64::MAX)]
fn a_version_that_readers_refuse_is_replaced(#[case] version: i64) {
    let members = members(&["a", "b"]);
    let by_hand = RosterSpec {
        version,
        members: members.clone(),
    };
    assert!(evenkeel_zone::roster::Roster::from_spec(&by_hand).is_err());
    let next = next(Some(&by_hand), 7, members).unwrap();
    assert_eq!(next.version, 8);
    assert!(evenkeel_zone::roster::Roster::from_spec(&next).is_ok());
}

#[test]
fn a_version_that_went_back_is_replaced() {
    let first = next(None, 0, members(&["a"])).unwrap();
    assert_eq!(next(Some(&first), 7, members(&["a"])).unwrap().version, 8);
}

#[test]
fn nothing_follows_the_last_version() {
    let last = RosterSpec {
        version: RosterSpec::LAST_VERSION,
        members: members(&["a"]),
    };
    assert_eq!(next(Some(&last), 1, members(&["a", "b"])), None);
}

#[test]
fn a_zone_without_agents_gets_no_roster_and_one_that_lost_them_an_empty_one() {
    assert_eq!(next(None, 0, vec![]), None);
    let first = next(None, 0, members(&["a"])).unwrap();
    let emptied = next(Some(&first), 1, vec![]).unwrap();
    assert_eq!((emptied.version, emptied.members.len()), (2, 0));
}

#[test]
fn a_key_that_two_nodes_claim_stays_with_the_one_that_has_it() {
    let first = next(None, 0, members(&["a", "b"])).unwrap();
    let mut claimed = members(&["a", "b", "c"]);
    claimed[2].public_key = claimed[0].public_key.clone();
    let left = |published: &[&RosterMember]| {
        let mut members = claimed.clone();
        with_own_keys(published, &mut members);
        members.into_iter().map(|member| member.uid).collect::<Vec<_>>()
    };
    let published: Vec<&RosterMember> = first.members.iter().collect();
    assert_eq!(left(&published), ["a", "b"], "c does not get in, a stays");
    assert_eq!(left(&[]), ["b"], "nobody knows whose it is");
}

#[test]
fn readers_accept_what_is_published() {
    let roster = next(None, 0, members(&["a", "b", "c"])).unwrap();
    let read = evenkeel_zone::roster::Roster::from_spec(&roster).unwrap();
    assert_eq!(read.to_spec(), roster);
}
