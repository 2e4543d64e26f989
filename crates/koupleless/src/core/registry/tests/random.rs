//! Whatever sources say, in whatever order.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ADDRESSES: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
const IDENTITIES: [&str; 4] = ["192.0.2.1", "192.0.2.2", "shop", "blue"];
const UIDS: [&str; 3] = ["u", "v", "w"];

#[derive(Clone, Debug)]
enum Step {
    See(Box<Sighting>),
    Pass(u64),
    /// The process stands still.
    Sleep(u64),
}

fn of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn step() -> impl Strategy<Value = Step> {
    let state = of(&[PodState::Ready, PodState::NotReady, PodState::Ended]);
    let word =
        (of(&IDENTITIES), of(&ADDRESSES), any::<bool>()).prop_map(|(identity, address, active)| Word {
            active,
            ..word(identity, address)
        });
    let word = word.boxed();
    let known = of(&IDENTITIES).prop_map(|identity| (identity, Arc::from(format!("vnode.{identity}.dev"))));
    let known = known.boxed();
    let pods = (
        of(&UIDS),
        of(&ADDRESSES),
        proptest::option::of(of(&IDENTITIES)),
        state,
    );
    let sighting = prop_oneof![
        6 => (word.clone(), of(&ADDRESSES)).prop_map(|(word, peer)| Sighting::Heartbeat { word, port: 0, peer: ip(peer) }),
        2 => word.prop_map(Sighting::Heart),
        2 => (known.clone(), of(&ADDRESSES)).prop_map(|((identity, node), address)| {
            let record = Base { identity: id(identity), name: None, version: None, cluster: None, host_name: None, endpoint: http(address, 1238), pod: Some(pod_ref("u")) };
            Sighting::Node { node, record }
        }),
        1 => known.clone().prop_map(|(_, node)| Sighting::NodeGone(node)),
        3 => pods.prop_map(|(uid, address, identity, state)| Sighting::Pod(PodSeen { identity: identity.map(id), ..pod_seen(uid, address, state) })),
        1 => of(&UIDS).prop_map(|uid| Sighting::PodDeleted(uid.into())),
        1 => of(&UIDS).prop_map(|uid| Sighting::PodForgotten(uid.into())),
        2 => (of(&IDENTITIES), of(&ADDRESSES), proptest::option::of(of(&IDENTITIES))).prop_map(|(identity, address, says)| answered(identity, address, says)),
        2 => (of(&IDENTITIES), of(&ADDRESSES)).prop_map(|(identity, address)| port_refused(identity, address)),
        4 => (known.clone(), any::<bool>()).prop_map(|((_, node), here)| Sighting::Served { node, here }),
        1 => (known, 0..2_usize).prop_map(|((_, node), count)| Sighting::Pods { node, count }),
    ];
    prop_oneof![
        5 => sighting.prop_map(|sighting| Step::See(Box::new(sighting))),
        3 => (1..20_u64).prop_map(Step::Pass),
        1 => (6..100_u64).prop_map(Step::Sleep),
    ]
}

/// What an onlooker knows of a base.
#[derive(Debug)]
struct Seen {
    identity: Identity,
    life: Life,
    /// Since when nothing has been told of it that could be a sign of its life: it is silent for no longer.
    quiet: u64,
}

#[derive(Default)]
struct Onlooker {
    bases: BTreeMap<Arc<str>, Seen>,
}

impl Onlooker {
    fn look(&mut self, event: &Event, now: u64, cause: Option<&Sighting>) {
        let said = format!("{event:?} by {cause:?}");
        if event.change == Change::Online {
            let seen = Seen {
                identity: event.base.identity.clone(),
                life: Life::Alive,
                quiet: now,
            };
            let former = self.bases.insert(event.node.clone(), seen);
            assert!(former.is_none(), "online twice: {said}");
            return;
        }
        let seen = self.bases.get_mut(&event.node).expect("nothing before Online");
        assert_eq!(seen.identity, event.base.identity, "a node has one base: {said}");
        let quiet = now - seen.quiet;
        match &event.change {
            Change::Online => {}
            Change::Changed { from } => assert_ne!(*from, event.base, "{said}"),
            Change::Silent => {
                assert_eq!(seen.life, Life::Alive, "{said}");
                assert!(quiet >= 25, "silent after {quiet} s: {said}");
                seen.life = Life::Silent;
            }
            Change::Lost(evidence) => {
                assert!(!matches!(seen.life, Life::Lost(_)), "lost twice: {said}");
                match evidence {
                    Evidence::Silence(_) => assert!(quiet >= 60 && seen.life == Life::Silent, "{said}"),
                    Evidence::PortRefused(_) | Evidence::Replaced(..) => {
                        assert!(
                            quiet >= 25 && seen.life == Life::Silent && cause.is_some(),
                            "{said}"
                        );
                    }
                    Evidence::PodDeleted(_) | Evidence::PodEnded(_) | Evidence::Deactivated => {
                        assert!(cause.is_some(), "{said}");
                    }
                }
                seen.life = Life::Lost(evidence.clone());
            }
            Change::Back => {
                assert_ne!(seen.life, Life::Alive, "{said}");
                seen.life = Life::Alive;
                seen.quiet = now;
            }
            Change::Gone(Why::Lost(evidence)) => {
                assert_eq!(seen.life, Life::Lost(evidence.clone()), "{said}");
                assert!(quiet >= 60 || *evidence == Evidence::Deactivated, "{said}");
                self.bases.remove(&event.node);
            }
            Change::Gone(Why::Renamed(_)) | Change::Left => {
                self.bases.remove(&event.node);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn bases_come_live_and_go_by_the_rules(steps in proptest::collection::vec(step(), 1..120)) {
        let settings = Settings { most: 3, ..Settings::default() };
        let mut registry = Registry::new(settings, KOUPLELESS.into(), "dev");
        let (mut onlooker, mut now) = (Onlooker::default(), 0);
        for step in steps {
            let seconds = match step {
                Step::See(sighting) => {
                    let heard = |registry: &Registry| -> BTreeMap<Identity, Duration> {
                        registry.bases.iter().map(|(identity, entry)| (identity.clone(), entry.heard)).collect()
                    };
                    let before = heard(&registry);
                    let events = registry.see((*sighting).clone(), Duration::from_secs(now));
                    let after = heard(&registry);
                    if events.is_err() {
                        prop_assert_eq!(&before, &after, "what is refused changes nothing");
                    }
                    for (identity, at) in &before {
                        prop_assert!(after.get(identity).is_none_or(|after| after >= at), "liveness went back");
                    }
                    let served = matches!(*sighting, Sighting::Served { .. });
                    for event in events.into_iter().flatten() {
                        onlooker.look(&event, now, Some(&sighting));
                    }
                    for (node, seen) in &mut onlooker.bases {
                        // Signs of life are judged by the tables; here, that nothing is concluded before its
                        // time.
                        if before.get(&seen.identity) != after.get(&seen.identity) {
                            seen.quiet = now;
                        }
                        if served && !registry.is_ours(node) {
                            seen.life = Life::Alive;
                        }
                    }
                    0
                }
                Step::Pass(seconds) => seconds,
                Step::Sleep(seconds) => {
                    now += seconds;
                    1
                }
            };
            for _ in 0..seconds {
                now += 1;
                let (events, _) = registry.tick(Duration::from_secs(now));
                for event in &events {
                    onlooker.look(event, now, None);
                }
            }
            prop_assert!(registry.len() <= 3);
            prop_assert_eq!(registry.len(), onlooker.bases.len());
            prop_assert_eq!(registry.len(), registry.nodes.len());
            for (node, seen) in &onlooker.bases {
                prop_assert_eq!(registry.life(node), Some(&seen.life));
                prop_assert_eq!(registry.node_of(&seen.identity), Some(node));
            }
            let linked: Vec<_> = registry.bases.values().filter_map(|entry| entry.base.pod.as_ref()).collect();
            prop_assert!(registry.links.len() <= linked.len());
            let placed: usize = registry.addresses.values().map(BTreeSet::len).sum();
            prop_assert_eq!(placed, registry.len());
        }
    }
}
