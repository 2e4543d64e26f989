//! A member gets another key, address or certificate while it is healthy, cut off, or a reporter: nobody
//! calls it dead, and it is without evidence of life for 15 s at most (hazards 10 and 53).

use super::net::Net;
use crate::engine::contacts::Peer;
use crate::engine::{Engine, Input};
use crate::fixture::Fixture;
use crate::keys::SigningKey;
use crate::roster::MemberIndex;
use rstest::rstest;
use std::net::SocketAddr;
use std::sync::Arc;

/// The controller publishes a roster at most this often.
const ROSTER_EVERY_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// `rotate-key`: the next key was announced before.
    AnnouncedKey,
    /// The file is gone, and the agent starts with another key.
    LostKey,
    /// The machine has another address, and its agent starts again.
    Address,
    /// The kubelet shows another certificate than the one that is pinned.
    Certificate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Healthy,
    CutOff,
    Reporter,
}

struct Case {
    net: Net,
    member: usize,
    state: State,
}

impl Case {
    fn new(count: u8, state: State) -> Self {
        let mut net = Net::settled(count, 300 + u64::from(count));
        let leader = net.leader();
        let other = (1..=net.count()).find(|i| *i != leader).unwrap();
        let member = if state == State::Reporter { leader } else { other };
        if state == State::CutOff {
            net.cut_cloud(member);
            net.run(60_000);
            assert!(net.is_alive(member), "it is listed, and vouched for");
        }
        Self { net, member, state }
    }

    /// Others vouch for it in reports that count, if its link is cut. Otherwise more than half of them have
    /// had an answer within the period of heartbeats.
    fn is_evident(net: &Net, member: usize, state: State) -> bool {
        if state == State::CutOff {
            return net.is_alive(member);
        }
        let hears = |engine: &Engine| {
            let index = engine.cx.roster().position(Fixture::id(member));
            let peer = engine.contacts.peer(index.unwrap_or(MemberIndex(0)));
            let at = peer.and_then(Peer::proved);
            at.is_some_and(|at| net.now - at.0 <= 2_100)
        };
        let others = (1..=net.count()).filter(|i| *i != member);
        let hearing = others.filter(|i| net.engines[*i - 1].as_ref().is_some_and(hears));
        2 * hearing.count() > net.count() - 1
    }

    /// Runs for so long, and returns the longest time without evidence.
    fn gap(&mut self, ms: u64) -> u64 {
        let (member, state) = (self.member, self.state);
        let (mut last, mut longest) = (self.net.now, 0);
        for _ in 0..ms / 100 {
            self.net.run(100);
            assert!(!self.net.is_dead(member), "{member} at {}", self.net.now);
            if Self::is_evident(&self.net, member, state) {
                last = self.net.now;
            }
            longest = longest.max(self.net.now - last);
        }
        longest
    }

    fn publish(&mut self) {
        self.net.spec.version += 1;
        self.net.introduce();
    }

    fn keys(&mut self, key: u8, other: Option<u8>) {
        let of = |seed: u8| Arc::new(SigningKey::from_seed(&[seed; 32]).unwrap());
        let (key, other) = (of(key), other.map(|other| of(other) as _));
        self.net.feed(self.member, Input::Keys { key, other });
    }

    /// Makes the change, and returns the longest time without evidence. While the member is cut off, the
    /// controller hears nothing of it.
    fn play(&mut self, change: Change) -> u64 {
        let at = self.member;
        let seed = u8::try_from(at).unwrap();
        let later = seed + 100;
        let mut gap = 0;
        let mut published = self.net.spec.clone();
        match change {
            Change::AnnouncedKey => {
                let public = SigningKey::from_seed(&[later; 32]).unwrap();
                let public = crate::keys::Signer::public(&public).to_base64();
                self.net.spec.members[at - 1].next_public_key = Some(public);
                self.publish();
                self.keys(seed, Some(later));
                published = self.net.spec.clone();
                gap = gap.max(self.gap(20_000));
                self.keys(later, Some(seed));
            }
            Change::LostKey => {
                self.net.stop_agent(at);
                self.net.rekey(at, later);
                self.net.spec.members[at - 1].learner = true;
                self.net.start(at);
            }
            Change::Address => {
                self.net.stop_agent(at);
                let address = SocketAddr::from(([127, 88, 0, seed], 7959));
                self.net.moved.insert(at, address);
                self.net.start(at);
                self.net.spec.members[at - 1].address = address.to_string();
            }
            Change::Certificate => {
                self.net.strange_kubelets.insert(at);
            }
        }
        let said = std::mem::replace(&mut self.net.spec, published);
        gap = gap.max(self.gap(ROSTER_EVERY_MS));
        if self.state != State::CutOff {
            self.net.strange_kubelets.remove(&at);
            self.net.spec = said;
            if change == Change::AnnouncedKey {
                self.net.rekey(at, later);
                self.net.spec.members[at - 1].next_public_key = None;
            }
            self.publish();
        }
        gap.max(self.gap(60_000))
    }
}

#[rstest]
fn a_change_leaves_no_gap_of_more_than_15_s(
    #[values(3, 5, 12)] count: u8,
    #[values(State::Healthy, State::CutOff, State::Reporter)] state: State,
    #[values(Change::AnnouncedKey, Change::LostKey, Change::Address, Change::Certificate)] change: Change,
) {
    let mut case = Case::new(count, state);
    let gap = case.play(change);
    println!("{count} members, {state:?}, {change:?}: longest gap {gap} ms");
    assert!(gap <= 15_000, "{gap} ms");
}
