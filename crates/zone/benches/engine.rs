//! How fast, and how large, the engines of calm cells are: `cargo bench -p evenkeel-zone --features fixture
//! --bench engine`, with `-- --engines 5000 --seconds 60` for another size.
//!
//! All engines run in one thread and in virtual time. Each datagram arrives after 1 ms, and none is lost.
//! Members sign with the stand-in, as in simulations. What a datagram costs holds for both its ends: making
//! and signing it, carrying it, checking and reading it, and what the two engines do about it.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark measures time, prints, and ends at the first thing that is wrong"
)]

use evenkeel_api::zone::{RosterMember, RosterSpec};
use evenkeel_zone::Millis;
use evenkeel_zone::engine::{Config, Engine, Identity, Input, Met, Output};
use evenkeel_zone::keys::Signer;
use evenkeel_zone::keys::stand_in::{StandIn, StandInSigner};
use evenkeel_zone::roster::Roster;
use evenkeel_zone::verdict::Health;
use evenkeel_zone::wire::Datagram;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

const CELL: usize = 64;
/// Until each engine has met its neighbours and the candidates for reporting.
const WARM_UP_MS: u64 = 20_000;
/// Each agent hears from the API server, and looks at its kubelet, this often.
const CLOUD_EVERY_MS: u64 = 5_000;
/// Places of the ring of deadlines, one per millisecond: more than the longest wait of a calm engine.
const RING: usize = 1 << 14;

fn main() {
    let (mut engines, mut seconds) = (1_000, 60);
    let arguments: Vec<String> = std::env::args().collect();
    for pair in arguments.windows(2) {
        match pair[0].as_str() {
            "--engines" => engines = pair[1].parse().unwrap(),
            "--seconds" => seconds = pair[1].parse().unwrap(),
            _ => {}
        }
    }
    let mut world = World::of(engines);
    world.run(WARM_UP_MS);
    world.counted = Counted::default();
    let began = Instant::now();
    world.run(seconds * 1_000);
    let wall = began.elapsed();
    let Counted {
        datagrams,
        ticks,
        idle,
    } = world.counted;
    let resident = resident_bytes() - world.before_engines;
    println!("engines                        {engines} in cells of {CELL}");
    println!(
        "virtual seconds per second     {:.0}",
        seconds as f64 / wall.as_secs_f64()
    );
    println!(
        "datagrams per second           {:.0}",
        datagrams as f64 / wall.as_secs_f64()
    );
    println!(
        "nanoseconds per datagram       {:.0}",
        wall.as_nanos() as f64 / datagrams as f64
    );
    println!(
        "datagrams per engine and second {:.1}",
        datagrams as f64 / engines as f64 / seconds as f64
    );
    println!(
        "ticks per engine and second    {:.1}",
        ticks as f64 / engines as f64 / seconds as f64
    );
    println!(
        "ticks with nothing to send     {:.1} %",
        100.0 * idle as f64 / ticks as f64
    );
    println!("resident bytes per engine      {}", resident / engines);
}

#[derive(Default)]
struct Counted {
    datagrams: u64,
    ticks: u64,
    idle: u64,
}

struct World {
    now: u64,
    rosters: Vec<Arc<Roster>>,
    engines: Vec<Engine>,
    /// When each engine is looked at next.
    wakes: Vec<u64>,
    ring: Vec<Vec<u32>>,
    /// Datagrams that arrive in the next millisecond, with the engines that each is for and of.
    flying: Vec<(u32, u32, Datagram)>,
    outputs: Vec<Output>,
    counted: Counted,
    before_engines: usize,
}

impl World {
    fn of(count: usize) -> Self {
        let scheme = StandIn::new([7; 32]);
        let verifier = Arc::new(scheme.clone());
        let signers: Vec<StandInSigner> = (0..count).map(|i| scheme.signer(&seed(i))).collect();
        let cells: Vec<Vec<usize>> = (0..count)
            .collect::<Vec<usize>>()
            .chunks(CELL)
            .map(<[usize]>::to_vec)
            .collect();
        let rosters: Vec<Arc<Roster>> = cells.iter().map(|cell| roster(cell, &signers)).collect();
        let before_engines = resident_bytes();
        let mut engines = Vec::with_capacity(count);
        for (i, signer) in signers.into_iter().enumerate() {
            let identity = Identity {
                uid: uid(i),
                key: Arc::new(signer),
                incarnation: i as u64 + 1,
                sequence_base: 0,
                seed: seed(i),
                uptime_ms: 3_600_000,
                met: Met::default(),
            };
            let roster = Arc::clone(&rosters[i / CELL]);
            let engine = Engine::new(Config::default(), identity, roster, Millis(0));
            engines.push(engine.verifying_with(verifier.clone()));
        }
        Self {
            now: 0,
            rosters,
            wakes: vec![u64::MAX; count],
            ring: vec![Vec::new(); RING],
            flying: Vec::new(),
            outputs: Vec::new(),
            counted: Counted::default(),
            engines,
            before_engines,
        }
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 1;
            for (i, from, bytes) in std::mem::take(&mut self.flying) {
                self.counted.datagrams += 1;
                let source = address(from as usize);
                self.feed(i as usize, Input::Datagram(&bytes, source));
            }
            // Each agent has a millisecond of its own in which it hears from the cloud.
            let turn = (self.now % CLOUD_EVERY_MS) as usize;
            for i in (turn..self.engines.len()).step_by(CLOUD_EVERY_MS as usize) {
                self.feed(i, Input::CloudContact);
                let (kubelet, runtime) = (Health::Ok, Health::Ok);
                self.feed(i, Input::Facts { kubelet, runtime });
            }
            for i in std::mem::take(&mut self.ring[self.now as usize % RING]) {
                self.wake(i as usize);
            }
        }
    }

    fn wake(&mut self, i: usize) {
        if self.wakes[i] != self.now {
            return;
        }
        self.wakes[i] = u64::MAX;
        if self.engines[i].deadline() > Millis(self.now) {
            return self.schedule(i);
        }
        self.counted.ticks += 1;
        let before = self.flying.len();
        self.feed(i, Input::Tick);
        self.counted.idle += u64::from(self.flying.len() == before);
    }

    fn feed(&mut self, i: usize, input: Input<'_>) {
        self.engines[i].handle(Millis(self.now), input, &mut self.outputs);
        let cell = i / CELL;
        for output in self.outputs.drain(..) {
            if let Output::Send { to, bytes, .. } = output {
                let place = self.rosters[cell].position(to).unwrap();
                let to = (cell * CELL + place.at()) as u32;
                self.flying.push((to, i as u32, bytes));
            }
        }
        self.schedule(i);
    }

    fn schedule(&mut self, i: usize) {
        let at = self.engines[i].deadline().0.max(self.now + 1);
        let at = at.min(self.now + RING as u64 - 1);
        if at < self.wakes[i] {
            self.wakes[i] = at;
            self.ring[at as usize % RING].push(i as u32);
        }
    }
}

fn seed(i: usize) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&(i as u64).to_be_bytes());
    seed
}

/// In the order of the members, so that an engine's place in its cell is its position in the roster.
fn uid(i: usize) -> String {
    format!("uid-{i:05}")
}

fn address(i: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (i / 250) as u8, (i % 250 + 1) as u8], 7959))
}

fn roster(cell: &[usize], signers: &[StandInSigner]) -> Arc<Roster> {
    let member = |i: &usize| RosterMember {
        name: format!("node-{i}"),
        uid: uid(*i),
        address: address(*i).to_string(),
        public_key: signers[*i].public().to_base64(),
        ..RosterMember::default()
    };
    let members = cell.iter().map(member).collect();
    Arc::new(
        Roster::from_spec(&RosterSpec {
            version: 1,
            members,
            ..RosterSpec::default()
        })
        .unwrap(),
    )
}

/// Memory of this process that is resident, in bytes.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}
