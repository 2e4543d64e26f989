//! Floods of datagrams against real agents (hazard 49). `.ci/real` prints what they cost.

use super::{Ip, LAN, Shore, name};
use evenkeel_api::crd::ZoneHealth;
use evenkeel_testkit::{netns, skipped};
use evenkeel_zone::fixture::seal_for;
use evenkeel_zone::keys::{PublicKey, Signer, SigningKey};
use evenkeel_zone::roster::MemberId;
use evenkeel_zone::wire::{Ballot, Body, Header, Heartbeat};
use kube::Api;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const LENGTH: Duration = Duration::from_secs(30);
/// Between two bursts of a flood.
const BURST_EVERY: Duration = Duration::from_millis(10);
const DEATH: Duration = Duration::from_secs(20);

/// What the victim of a flood spends.
#[derive(Clone, Copy, Debug)]
struct Spent {
    /// Shares of a core.
    cpu: f64,
    /// Bytes per second that it gets and sends.
    received: f64,
    sent: f64,
}

/// What the agent of a machine spends while something is done.
fn spent(shore: &Shore, number: u8, work: impl FnOnce()) -> Spent {
    let (start, cpu) = (Instant::now(), shore.on(number).cpu_of_agent());
    let before = shore.on(number).namespace.bytes(LAN);
    work();
    let seconds = start.elapsed().as_secs_f64();
    let after = shore.on(number).namespace.bytes(LAN);
    Spent {
        cpu: (shore.on(number).cpu_of_agent() - cpu) / seconds,
        received: (after.0 - before.0) as f64 / seconds,
        sent: (after.1 - before.1) as f64 / seconds,
    }
}

/// A machine of the cell that sends what it wants.
struct Attacker<'a> {
    shore: &'a Shore,
    from: u8,
    victim: u8,
    /// The attacker's own key, and the one that the victim's neighbours know it by.
    key: SigningKey,
    receiver: PublicKey,
    ids: [MemberId; 2],
}

impl<'a> Attacker<'a> {
    fn new(shore: &'a Shore, from: u8, victim: u8) -> Self {
        let roster = shore.inside(async |shore| {
            let zones: Api<ZoneHealth> = Api::all(shore.client().await);
            let zone = zones.get(super::ZONE).await.expect("the cell has a roster");
            zone.spec.read_roster().expect("it is readable")
        });
        let member = |number: u8| {
            let mut members = roster.members.iter();
            members
                .find(|member| member.name == name(number))
                .expect("a member")
        };
        let file = shore.home.path().join(format!("{}.key", name(from)));
        Self {
            shore,
            from,
            victim,
            key: evenkeel_agent::key::load(&file).expect("its key"),
            receiver: PublicKey::from_base64(&member(victim).public_key).expect("a key"),
            ids: [from, victim].map(|number| MemberId::of(&member(number).uid)),
        }
    }

    /// Sends so many datagrams a second for [`LENGTH`], each as `make` makes it for its number.
    fn floods(&self, per_second: u64, make: impl Fn(u64) -> Vec<u8> + Sync) {
        let victim = SocketAddr::new(self.shore.ip.of(self.victim), 7959);
        let own = SocketAddr::new(self.shore.ip.of(self.from), 0);
        self.shore.on(self.from).namespace.inside(|| {
            let socket = UdpSocket::bind(own).expect("its own address");
            let (start, mut sent) = (Instant::now(), 0);
            while start.elapsed() < LENGTH {
                let due = start.elapsed().as_millis() as u64 * per_second / 1_000;
                for number in sent..due {
                    socket.send_to(&make(number), victim).expect("its network is up");
                }
                sent = due;
                // Load is made by the clock, and there is nothing to wait for.
                std::thread::sleep(BURST_EVERY);
            }
        });
    }

    fn seal(&self, key: &dyn Signer, number: u64, body: &Body) -> Vec<u8> {
        let [from, to] = self.ids;
        let header = Header {
            from,
            to,
            incarnation: 1,
            sequence: number + 1,
        };
        seal_for(key, &self.receiver, header, body)
    }
}

/// A row as the simulator's table has it.
fn row(what: &str, calm: Spent, flooded: Spent) {
    let measured = format!(
        "{what}: {:.1} % of a core (calm {:.1} %), sends {:.0} B/s (calm {:.0}) for {:.0} B/s received",
        flooded.cpu * 100.0,
        calm.cpu * 100.0,
        flooded.sent,
        calm.sent,
        flooded.received,
    );
    let is_met = flooded.cpu <= 0.2 && flooded.sent - calm.sent <= flooded.received;
    let word = if is_met { "met" } else { "FAILED" };
    eprintln!(
        "{:<10} {:>5}  {measured:<96} {:<30} {word}",
        "flood", 5, "<= 20 %, no more than it gets"
    );
}

#[test]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn floods_change_no_verdict_and_hide_no_death() {
    const TEST: &str = "floods_change_no_verdict_and_hide_no_death";
    const KEYLESS: u64 = 1_000;
    if let Some(why) = netns::missing() {
        return skipped(TEST, &why);
    }
    let mut shore = Shore::start(5, Ip::V4);
    let victim = shore.inside(async |shore| {
        let client = shore.client().await;
        shore.holder(&client, |_| true).await
    });
    let others: Vec<u8> = (1..=5).filter(|number| *number != victim).collect();
    let calm = spent(&shore, victim, || shore.quiet_for(LENGTH));
    let attacker = Attacker::new(&shore, others[0], victim);
    let stolen = SigningKey::from_seed(&[3; 32]).expect("a seed");
    let flood = |what: &str, per_second: u64, make: &(dyn Fn(u64) -> Vec<u8> + Sync)| {
        let flooded = spent(&shore, victim, || {
            std::thread::scope(|scope| {
                scope.spawn(|| attacker.floods(per_second, make));
                shore.quiet_for(LENGTH);
            });
        });
        row(what, calm, flooded);
    };
    let heartbeat = Body::Heartbeat(Heartbeat::default());
    // Sealed before: else the attacker takes both cores, and each datagram wakes the agent on its own.
    let keyless = |number| attacker.seal(&stolen, number, &heartbeat);
    let keyless: Vec<Vec<u8>> = (0..KEYLESS).map(keyless).collect();
    flood("10,000/s without a key", 10_000, &|number| {
        keyless[(number % KEYLESS) as usize].clone()
    });
    let ballot = Body::Ballot(Ballot::default());
    let forged = attacker.seal(&stolen, 0, &ballot);
    flood("10,000/s that pose as ballots", 10_000, &|_| forged.clone());
    flood("1,000/s of a member's key", 1_000, &|number| {
        attacker.seal(&attacker.key, number, &heartbeat)
    });
    let repeated = attacker.seal(&attacker.key, 0, &heartbeat);
    flood("10,000/s of one repeated datagram", 10_000, &|_| repeated.clone());
    let endless = |number: u64| vec![number as u8; 1_400];
    flood("10,000/s of noise", 10_000, &endless);
    drop(attacker);
    shore.power_off(others[1]);
    let attacker = Attacker::new(&shore, others[0], victim);
    std::thread::scope(|scope| {
        scope.spawn(|| attacker.floods(10_000, |number| attacker.seal(&stolen, number, &heartbeat)));
        shore.until_state(others[1], "Dead", DEATH);
    });
    shore.stays_for(Duration::from_secs(15), &[(others[1], "Dead")]);
}
