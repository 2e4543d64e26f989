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
        address: "10.0.0.1:7959".to_owned(),
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
#[case::address(AgentStatusSpec { address: "shore-1:7959".to_owned(), ..agent("u") }, "not IP:PORT")]
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

/// The next roster where nobody has said anything and nothing waits.
fn changed(current: Option<&RosterSpec>, members: Vec<RosterMember>) -> Option<RosterSpec> {
    let (quiet, shown) = (|_: &str| Signs::default(), current.is_some());
    next(
        (current, shown),
        (members, Vec::new()),
        &quiet,
        (&Progress::default(), Millis(0)),
    )
}

#[test]
fn the_first_roster_has_version_1_and_is_sorted() {
    let roster = changed(None, members(&["b", "a"])).unwrap();
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
    let first = changed(None, members(&["a", "b"])).unwrap();
    assert_eq!(changed(Some(&first), members(&["b", "a"])), None);
    let second = changed(Some(&first), members(&["a", "b", "c"])).unwrap();
    assert_eq!(second.version, 2);
    let mut moved = members(&["a", "b", "c"]);
    moved[1].address = "10.0.0.2:7959".to_owned();
    assert_eq!(
        changed(Some(&second), moved).unwrap().version,
        3,
        "a new address is a change"
    );
}

/// The object is gone, or shows something that does not count: the next roster is made of the last one that
/// did, at once, and has a later version.
#[test]
fn what_is_not_shown_is_published_anew_and_nobody_gets_a_vote_by_it() {
    let mut last = RosterSpec {
        version: 7,
        members: members(&["a", "b", "c", "d"]),
        ..RosterSpec::default()
    };
    last.members[3].learner = true;
    let quiet = |_: &str| Signs::default();
    let mut progress = Progress::default();
    progress.note(&last, Millis(0));
    let anew = |current, uids: &[&str]| {
        let now = (&progress, Millis(1));
        next((current, false), (members(uids), Vec::new()), &quiet, now)
    };
    let next = anew(Some(&last), &["a", "b", "c", "d"]).unwrap();
    assert_eq!((next.version, &next.members), (8, &last.members));
    let emptied = anew(Some(&last), &[]).unwrap();
    assert_eq!((emptied.version, emptied.members.len()), (8, 0));
    assert_eq!(anew(Some(&emptied), &[]), None);
    assert_eq!(anew(None, &["a"]).unwrap().version, 1);
}

#[test]
fn nothing_follows_the_last_version() {
    let last = RosterSpec {
        version: RosterSpec::LAST_VERSION,
        members: members(&["a"]),
        ..RosterSpec::default()
    };
    assert_eq!(changed(Some(&last), members(&["a", "b"])), None);
}

#[test]
fn a_zone_without_agents_gets_no_roster_and_one_that_lost_them_an_empty_one() {
    assert_eq!(changed(None, vec![]), None);
    let first = changed(None, members(&["a"])).unwrap();
    let emptied = changed(Some(&first), vec![]).unwrap();
    assert_eq!((emptied.version, emptied.members.len()), (2, 0));
}

#[test]
fn a_key_that_two_nodes_claim_stays_with_the_one_that_has_it() {
    let first = changed(None, members(&["a", "b"])).unwrap();
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
fn a_next_key_is_its_owners_and_nobody_elses() {
    let first = changed(None, members(&["a", "b", "c"])).unwrap();
    let next = |member: &RosterMember| member.next_public_key.clone();
    let with = |uid: usize, announced: String| {
        let mut claimed = members(&["a", "b", "c"]);
        claimed[uid].next_public_key = Some(announced);
        claimed
    };
    // b announces the key of a, or one that a has announced before.
    let mut published = first.clone();
    published.members[0].next_public_key = Some(key("a2"));
    let published: Vec<&RosterMember> = published.members.iter().collect();
    for foreign in ["a", "a2"] {
        let mut claimed = with(1, key(foreign));
        with_own_keys(&published, &mut claimed);
        assert_eq!(claimed.len(), 3, "nobody loses its place");
        assert_eq!(next(&claimed[1]), None, "{foreign}");
    }
    let mut taken = members(&["a", "b", "c"]);
    taken[1].public_key = key("a2");
    with_own_keys(&published, &mut taken);
    assert_eq!(taken.len(), 2, "a key that is announced is its owner's");
    let mut taken = members(&["a", "b", "c"]);
    taken[1].public_key = key("a2");
    let told = with_own_keys(&published, &mut taken);
    assert!(
        told.len() == 1 && told[0].contains("node node-b: another node claims the key"),
        "{told:?}"
    );
    // Both announce it at the same time: nobody has it.
    let mut both = with(0, key("x"));
    both[1].next_public_key = Some(key("x"));
    with_own_keys(&published, &mut both);
    assert_eq!((both.len(), next(&both[0]), next(&both[1])), (3, None, None));
    let mut own = with(0, key("a2"));
    with_own_keys(&published, &mut own);
    assert_eq!(next(&own[0]), Some(key("a2")));
}

#[test]
fn a_next_key_that_is_none_is_left_out_and_its_node_stays() {
    let next = evenkeel_zone::keys::SigningKey::from_seed(&[9; 32]).unwrap();
    let (public, present) = (
        next.public().to_base64(),
        PublicKey::from_base64(&key("u")).unwrap(),
    );
    let proof = |uid: &str| next.proof_as_next(uid, &present);
    let mut keys = SoundKeys::default();
    let cases = [
        (Some(public.clone()), Some(proof("u")), Some(public.clone())),
        // Of another node, of nobody, and of another key.
        (Some(public.clone()), Some(proof("v")), None),
        (Some(public.clone()), None, None),
        (Some(public), Some("AAAA".to_owned()), None),
        (Some("AAAA".to_owned()), Some(proof("u")), None),
        (Some(key("u")), Some(proof("u")), None),
        (Some(key("v")), Some(proof("u")), None),
    ];
    for (next_public_key, next_key_proof, expected) in cases {
        let agent = AgentStatusSpec {
            next_public_key,
            next_key_proof,
            ..agent("u")
        };
        // The second time from what is remembered.
        for _ in 0..2 {
            let member = member("n", "u", &agent, &mut keys).unwrap();
            assert_eq!(member.next_public_key, expected, "{agent:?}");
        }
    }
}

#[test]
fn a_member_whose_key_changes_to_the_announced_one_votes_all_along() {
    let mut cell = Cell::of(&FOUR);
    cell.members[0].next_public_key = Some(key("z"));
    cell.go(11);
    assert_eq!((cell.voters(), cell.settling()), (FOUR.to_vec(), vec![]));
    let announced = cell.published.as_ref().unwrap();
    assert_eq!(announced.members[0].next_public_key, Some(key("z")));
    cell.members[0].public_key = key("z");
    cell.members[0].next_public_key = None;
    cell.go(11);
    assert_eq!((cell.voters(), cell.settling()), (FOUR.to_vec(), vec![]));
    let changed = cell.published.as_ref().unwrap();
    assert_eq!(changed.members[0].public_key, key("z"));
}

#[test]
fn readers_accept_what_is_published() {
    let roster = changed(None, members(&["a", "b", "c"])).unwrap();
    let read = evenkeel_zone::roster::Roster::from_spec(&roster).unwrap();
    let uids: Vec<&str> = read.members().iter().map(|member| member.uid.as_str()).collect();
    assert_eq!(uids, ["a", "b", "c"]);
}

/// A cell as its controller sees it.
#[derive(Default)]
struct Cell {
    published: Option<RosterSpec>,
    progress: Progress,
    signs: BTreeMap<String, Signs>,
    members: Vec<RosterMember>,
    second: u64,
}

impl Cell {
    /// A settled cell of these voters that has stood for a minute.
    fn of(uids: &[&str]) -> Self {
        let mut cell = Self::default();
        cell.become_(uids);
        cell.go(60);
        assert_eq!((cell.voters(), cell.settling()), (uids.to_vec(), vec![]));
        cell
    }

    /// These nodes shall be in the cell.
    fn become_(&mut self, uids: &[&str]) {
        self.members = members(uids);
        self.look();
    }

    fn look(&mut self) {
        let now = Millis(self.second * 1_000);
        if let Some(published) = &self.published {
            self.progress.note(published, now);
        }
        let signs = |uid: &str| self.signs.get(uid).copied().unwrap_or_default();
        let members = self.members.clone();
        let next = next(
            (self.published.as_ref(), self.published.is_some()),
            (members, Vec::new()),
            &signs,
            (&self.progress, now),
        );
        self.published = next.or(self.published.take());
    }

    fn go(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second += 1;
            self.look();
        }
    }

    fn roster(&self) -> &RosterSpec {
        self.published.as_ref().unwrap()
    }

    fn version(&self) -> i64 {
        self.roster().version
    }

    fn with_vote(&self, vote: bool) -> Vec<&str> {
        let members = self.roster().members.iter();
        let chosen = members.filter(|member| member.learner != vote);
        chosen.map(|member| member.uid.as_str()).collect()
    }

    fn voters(&self) -> Vec<&str> {
        self.with_vote(true)
    }

    fn learners(&self) -> Vec<&str> {
        self.with_vote(false)
    }

    fn settling(&self) -> Vec<&str> {
        self.roster().settled_voters.iter().map(String::as_str).collect()
    }

    /// Their agents have the present roster in force, and have met so many of the voters.
    fn acknowledge(&mut self, uids: &[&str], met: usize) {
        self.acknowledge_having_met(uids, (met, met));
    }

    /// The same, having met so many of all and so many of the voters.
    fn acknowledge_having_met(&mut self, uids: &[&str], (met, met_voters): (usize, usize)) {
        let said = Acknowledged {
            version: self.version(),
            met,
            met_voters,
        };
        for uid in uids {
            self.signs.entry((*uid).to_owned()).or_default().acknowledged = Some(said);
        }
    }

    fn renew(&mut self, uids: &[&str]) {
        for uid in uids {
            self.signs.entry((*uid).to_owned()).or_default().renews = true;
        }
    }
}

const FOUR: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn founders_vote_at_once() {
    let mut cell = Cell::default();
    cell.become_(&["a"]);
    cell.become_(&["a", "b"]);
    cell.become_(&["a", "b", "c", "d", "e"]);
    assert_eq!(cell.voters(), ["a", "b", "c", "d", "e"]);
    assert_eq!(
        cell.settling(),
        ["a", "b"],
        "these two have to know that others vote"
    );
    cell.acknowledge(&["a", "b"], 0);
    cell.look();
    assert_eq!(
        (cell.version(), cell.settling()),
        (4, vec![]),
        "the version that settles it"
    );
}

#[test]
fn a_newcomer_learns_until_it_has_met_the_others() {
    let mut cell = Cell::of(&["a", "b", "c"]);
    cell.become_(&FOUR);
    assert_eq!((cell.voters(), cell.learners()), (vec!["a", "b", "c"], vec!["d"]));
    assert_eq!(cell.settling(), [] as [&str; 0], "the same members vote");
    cell.acknowledge(&["d"], 2);
    cell.go(20);
    assert_eq!(cell.learners(), ["d"], "one of three was not met");
    cell.acknowledge(&["d"], 3);
    cell.look();
    assert_eq!((cell.version(), cell.voters()), (3, FOUR.to_vec()));
    assert_eq!(cell.settling(), ["a", "b", "c"]);
}

#[rstest]
#[case::a_majority(2, true)]
#[case::less(1, false)]
fn after_30_s_a_majority_is_enough(#[case] met: usize, #[case] votes: bool) {
    let mut cell = Cell::of(&["a", "b", "c"]);
    cell.become_(&FOUR);
    cell.acknowledge(&["d"], met);
    cell.go(30);
    assert_eq!(cell.learners(), ["d"]);
    cell.go(1);
    assert_eq!(cell.learners().is_empty(), votes);
    cell.go(600);
    assert_eq!(cell.learners().is_empty(), votes);
}

#[test]
fn who_says_nothing_stays_a_learner_and_who_is_listed_needs_not_be_met() {
    let mut cell = Cell::of(&["a", "b", "c"]);
    cell.become_(&FOUR);
    cell.go(600);
    assert_eq!(cell.learners(), ["d"]);
    cell.signs.entry("c".to_owned()).or_default().listed = true;
    cell.acknowledge(&["d"], 2);
    cell.look();
    assert_eq!(cell.learners(), [] as [&str; 0]);
}

#[test]
fn a_member_with_another_key_is_a_newcomer() {
    let mut cell = Cell::of(&FOUR);
    cell.members[0].public_key = key("z");
    cell.go(1);
    assert_eq!(cell.learners(), ["a"]);
    assert_eq!(
        cell.settling(),
        FOUR,
        "fewer vote now: those who did have to know"
    );
    cell.acknowledge(&["b", "c", "d"], 0);
    cell.look();
    assert_eq!((cell.learners(), cell.settling()), (vec!["a"], vec![]));
    cell.acknowledge(&["a"], 3);
    cell.go(11);
    assert_eq!(cell.voters(), FOUR);
}

#[test]
fn members_that_all_have_another_key_found_the_cell_again() {
    let mut cell = Cell::of(&FOUR);
    for member in &mut cell.members {
        member.public_key = key(&format!("{}2", member.uid));
    }
    cell.go(1);
    assert_eq!((cell.voters(), cell.settling()), (FOUR.to_vec(), vec![]));
}

#[test]
fn what_waits_is_gathered_for_ten_seconds_and_who_is_gone_is_taken_out_at_once() {
    let mut cell = Cell::of(&FOUR);
    cell.become_(&["a", "b", "c", "d", "e"]);
    cell.go(1);
    let version = cell.version();
    cell.become_(&["a", "b", "c", "d", "e", "f"]);
    cell.go(7);
    cell.become_(&["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!((cell.version(), cell.learners()), (version, vec!["e"]));
    cell.go(3);
    assert_eq!(
        (cell.version(), cell.learners()),
        (version + 1, vec!["e", "f", "g"])
    );
    cell.become_(&["a", "b", "c", "e", "f", "g"]);
    assert_eq!(
        (cell.version(), cell.voters()),
        (version + 2, vec!["a", "b", "c"])
    );
    assert_eq!(cell.settling(), [] as [&str; 0], "who left holds nothing up");
}

/// Newcomers that have met each other, and two of five voters, have met no majority.
#[test]
fn newcomers_that_have_met_each_other_stay_learners() {
    let mut cell = Cell::of(&["a", "b", "c", "d", "e"]);
    cell.become_(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    cell.acknowledge_having_met(&["f", "g", "h"], (4, 2));
    cell.go(3_600);
    assert_eq!(cell.learners(), ["f", "g", "h"]);
    cell.acknowledge_having_met(&["f", "g", "h"], (5, 3));
    cell.look();
    assert_eq!(cell.learners(), [] as [&str; 0]);
}

/// Three of five are cut off when newcomers join the other two.
#[test]
fn a_roster_settles_by_the_word_of_most_former_voters_or_by_their_leases_after_a_minute() {
    let newcomers = |cell: &mut Cell| {
        cell.become_(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        cell.go(1);
        cell.acknowledge(&["a", "b", "f", "g", "h"], 4);
        cell.go(31);
        assert_eq!(cell.voters().len(), 8);
        cell.acknowledge(&["a", "b", "f", "g", "h"], 4);
    };
    let five = ["a", "b", "c", "d", "e"];
    let mut cell = Cell::of(&five);
    newcomers(&mut cell);
    cell.renew(&["a", "b"]);
    cell.go(3_600);
    assert_eq!(cell.settling(), five, "two of five, whatever newcomers say");
    cell.acknowledge(&["c"], 0);
    cell.look();
    assert_eq!(cell.settling(), [] as [&str; 0]);

    let mut cell = Cell::of(&five);
    newcomers(&mut cell);
    cell.renew(&five);
    cell.go(55);
    assert_eq!(cell.settling(), five, "they may not know it yet");
    cell.go(10);
    assert_eq!(cell.settling(), [] as [&str; 0]);

    let mut cell = Cell::of(&five);
    newcomers(&mut cell);
    cell.become_(&["a", "b", "c", "f", "g", "h"]);
    assert_eq!(cell.settling(), ["a", "b", "c"]);
    cell.acknowledge(&["a", "b"], 0);
    cell.look();
    assert_eq!(cell.settling(), [] as [&str; 0], "two of three that are left");
}

#[test]
fn an_acknowledgement_of_a_version_before_the_voters_changed_settles_nothing() {
    let mut cell = Cell::of(&FOUR);
    cell.acknowledge(&FOUR, 3);
    cell.become_(&["a", "b", "c", "d", "e"]);
    cell.go(11);
    cell.acknowledge(&["e"], 4);
    cell.look();
    assert_eq!(cell.voters().len(), 5);
    cell.go(5);
    assert_eq!(cell.settling(), FOUR);
    // A learner that comes changes the version, and not who votes.
    cell.acknowledge(&["a", "b", "c"], 0);
    cell.go(6);
    cell.become_(&["a", "b", "c", "d", "e", "f"]);
    cell.go(11);
    assert_eq!((cell.learners(), cell.settling()), (vec!["f"], vec![]));
}

/// A learner that nobody reaches gets no vote because a voter leaves: the rest could decide nothing any more.
#[test]
fn who_has_not_met_the_others_gets_no_vote_when_voters_leave() {
    let mut cell = Cell::of(&["a", "b", "c"]);
    cell.become_(&["a", "b", "c", "d", "e"]);
    cell.become_(&["a", "b", "d", "e"]);
    cell.go(600);
    assert_eq!((cell.voters(), cell.learners()), (vec!["a", "b"], vec!["d", "e"]));
    cell.become_(&["d", "e"]);
    assert_eq!(
        cell.voters(),
        ["d", "e"],
        "without any voter they found the cell anew"
    );
}

#[test]
fn what_an_agent_said_of_another_cell_or_under_another_key_counts_for_nothing() {
    let said = RosterAcknowledgement {
        cell: "shore".to_owned(),
        cell_uid: "u-1".to_owned(),
        public_key: key("a"),
        version: 7,
        met: 5,
        met_voters: 4,
    };
    let read = |cell, key: &str| Acknowledged::read(Some(&said), cell, key);
    let expected = Acknowledged {
        version: 7,
        met: 5,
        met_voters: 4,
    };
    assert_eq!(read(("shore", "u-1"), &key("a")), Some(expected));
    assert_eq!(read(("shore.1", "u-1"), &key("a")), None);
    assert_eq!(
        read(("shore", "u-2"), &key("a")),
        None,
        "the ZoneHealth was made anew"
    );
    assert_eq!(read(("shore", "u-1"), &key("b")), None);
    assert_eq!(Acknowledged::read(None, ("shore", "u-1"), &key("a")), None);
}

#[test]
fn a_version_that_nobody_has_published_is_not_acknowledged() {
    let mut cell = Cell::of(&["a", "b"]);
    let far = Acknowledged {
        version: 40,
        met: 9,
        met_voters: 9,
    };
    for uid in ["a", "b", "d"] {
        cell.signs.entry(uid.to_owned()).or_default().acknowledged = Some(far);
    }
    cell.become_(&["a", "b", "c"]);
    cell.become_(&FOUR);
    cell.go(20);
    assert_eq!((cell.learners(), cell.settling()), (vec!["d"], vec!["a", "b"]));
}

#[test]
fn members_that_hold_a_cell_up_are_known_after_five_minutes() {
    let mut cell = Cell::of(&["a", "b", "c"]);
    cell.become_(&FOUR);
    cell.go(300);
    assert_eq!(cell.progress.stuck(Millis(cell.second * 1_000)), (vec![], false));
    cell.go(1);
    assert_eq!(
        cell.progress.stuck(Millis(cell.second * 1_000)),
        (vec!["d"], false)
    );
    cell.acknowledge(&["d"], 3);
    cell.go(310);
    assert_eq!(cell.progress.stuck(Millis(cell.second * 1_000)), (vec![], true));
    cell.renew(&["a", "b"]);
    cell.go(2);
    assert_eq!(cell.progress.stuck(Millis(cell.second * 1_000)), (vec![], false));
}

/// An autoscaler changes the roster all the time; what is waited for is that voters know of each other.
#[test]
fn members_that_come_and_go_do_not_start_the_minute_anew() {
    let mut cell = Cell::of(&["a", "b", "c"]);
    cell.become_(&FOUR);
    cell.acknowledge(&["d"], 3);
    cell.go(11);
    assert_eq!(cell.settling(), ["a", "b", "c"]);
    cell.renew(&["a", "b", "c"]);
    cell.become_(&["a", "b", "c", "d", "e"]);
    cell.go(40);
    cell.become_(&FOUR);
    cell.go(30);
    assert_eq!(cell.settling(), [] as [&str; 0]);
}
