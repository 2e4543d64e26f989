//! Whatever sources say, in whatever order.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ADDRESSES: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
const IDENTITIES: [&str; 4] = ["192.0.2.1", "192.0.2.2", "shop", "blue"];
const UIDS: [&str; 3] = ["u", "v", "w"];

#[derive(Clone, Debug)]
enum Step {
    See(Box<Observation>),
    Pass(u64),
    /// The process stands still.
    Sleep(u64),
}

fn of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn step() -> impl Strategy<Value = Step> {
    let state = of(&[PodState::Ready, PodState::NotReady, PodState::Ended]);
    let announcement =
        (of(&IDENTITIES), of(&ADDRESSES), any::<bool>()).prop_map(|(identity, address, active)| {
            Announcement {
                active,
                ..announcement(identity, address)
            }
        });
    let announcement = announcement.boxed();
    let known = of(&IDENTITIES).prop_map(|identity| (identity, Arc::from(format!("vnode.{identity}.dev"))));
    let known = known.boxed();
    let pods = (
        of(&UIDS),
        of(&ADDRESSES),
        proptest::option::of(of(&IDENTITIES)),
        state,
    );
    let observation = prop_oneof![
        6 => (announcement.clone(), of(&ADDRESSES)).prop_map(|(announcement, peer)| Observation::HttpHeartbeat { announcement, port: 0, peer: ip(peer) }),
        2 => announcement.prop_map(Observation::MqttHeartbeat),
        2 => (known.clone(), of(&ADDRESSES)).prop_map(|((identity, node), address)| {
            let record = Base { identity: id(identity), name: None, version: None, cluster: None, host_name: None, endpoint: http(address, 1238), pod: Some(pod_ref("u")) };
            Observation::Node { node, record }
        }),
        1 => known.clone().prop_map(|(_, node)| Observation::NodeGone(node)),
        3 => pods.prop_map(|(uid, address, identity, state)| Observation::Pod(PodSeen { identity: identity.map(id), ..pod_seen(uid, address, state) })),
        1 => of(&UIDS).prop_map(|uid| Observation::PodDeleted(uid.into())),
        1 => of(&UIDS).prop_map(|uid| Observation::PodForgotten(uid.into())),
        2 => (of(&IDENTITIES), of(&ADDRESSES), proptest::option::of(of(&IDENTITIES))).prop_map(|(identity, address, says)| answered(identity, address, says)),
        2 => (of(&IDENTITIES), of(&ADDRESSES)).prop_map(|(identity, address)| port_refused(identity, address)),
        4 => (known.clone(), any::<bool>()).prop_map(|((_, node), here)| Observation::Served { node, here }),
        1 => (known, 0..2_usize).prop_map(|((_, node), count)| Observation::Pods { node, count }),
        1 => any::<bool>().prop_map(|stands| Observation::Broker { stands }),
    ];
    prop_oneof![
        5 => observation.prop_map(|observation| Step::See(Box::new(observation))),
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
    /// When it was lost last.
    lost: u64,
    /// It was said since that its node has no pods.
    empty: bool,
}

#[derive(Default)]
struct Onlooker {
    bases: BTreeMap<Arc<str>, Seen>,
    /// The link to the broker is cut.
    deaf: bool,
}

impl Onlooker {
    fn look(&mut self, event: &Event, now: u64, cause: Option<&Observation>) {
        let claim = format!("{event:?} by {cause:?}");
        if event.change == Change::Online {
            let seen = Seen {
                identity: event.base.identity.clone(),
                life: Life::Alive,
                quiet: now,
                lost: now,
                empty: false,
            };
            let former = self.bases.insert(event.node.clone(), seen);
            assert!(former.is_none(), "online twice: {claim}");
            return;
        }
        let seen = self.bases.get_mut(&event.node).expect("nothing before Online");
        assert_eq!(seen.identity, event.base.identity, "a node has one base: {claim}");
        let quiet = now - seen.quiet;
        match &event.change {
            Change::Online => {}
            Change::Changed { from } => assert_ne!(*from, event.base, "{claim}"),
            Change::Silent => {
                assert_eq!(seen.life, Life::Alive, "{claim}");
                assert!(quiet >= 25, "silent after {quiet} s: {claim}");
                seen.life = Life::Silent;
            }
            Change::Lost(evidence) => {
                assert!(!matches!(seen.life, Life::Lost(_)), "lost twice: {claim}");
                match evidence {
                    Evidence::Silence(_) => {
                        assert!(quiet >= 60 && seen.life == Life::Silent, "{claim}");
                        let by = event.base.endpoint.by;
                        assert!(!self.deaf || by != Connection::Mqtt, "we are deaf: {claim}");
                    }
                    Evidence::PortRefused(_) | Evidence::Replaced(..) => {
                        assert!(
                            quiet >= 25 && seen.life == Life::Silent && cause.is_some(),
                            "{claim}"
                        );
                    }
                    Evidence::PodDeleted(_) | Evidence::PodEnded(_) | Evidence::Deactivated => {
                        assert!(cause.is_some(), "{claim}");
                    }
                }
                seen.life = Life::Lost(evidence.clone());
                (seen.lost, seen.empty) = (now, false);
            }
            Change::Back => {
                assert_ne!(seen.life, Life::Alive, "{claim}");
                seen.life = Life::Alive;
                seen.quiet = now;
            }
            Change::Gone(Why::Lost(evidence)) => {
                assert_eq!(seen.life, Life::Lost(evidence.clone()), "{claim}");
                assert!(quiet >= 60 || *evidence == Evidence::Deactivated, "{claim}");
                assert!(
                    seen.empty || now - seen.lost >= 8,
                    "its pods have no time: {claim}"
                );
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
                Step::See(observation) => {
                    let heard = |registry: &Registry| -> BTreeMap<Identity, Duration> {
                        registry.bases.iter().map(|(identity, entry)| (identity.clone(), entry.heard)).collect()
                    };
                    let before = heard(&registry);
                    let events = registry.observe((*observation).clone(), Duration::from_secs(now));
                    let after = heard(&registry);
                    if events.is_err() {
                        prop_assert_eq!(&before, &after, "what is refused changes nothing");
                    }
                    for (identity, at) in &before {
                        prop_assert!(after.get(identity).is_none_or(|after| after >= at), "liveness went back");
                    }
                    let served = matches!(*observation, Observation::Served { .. });
                    match &*observation {
                        Observation::Broker { stands } => onlooker.deaf = !stands,
                        Observation::Pods { node, count: 0 } => {
                            if let Some(seen) = onlooker.bases.get_mut(node) {
                                seen.empty = true;
                            }
                        }
                        _ => {}
                    }
                    for event in events.into_iter().flatten() {
                        onlooker.look(&event, now, Some(&observation));
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
