use super::*;
use crate::agent::PONG;
use evenkeel_api::crd::{AgentStatus, AgentStatusSpec};
use evenkeel_api::zone::{RosterMember, RosterSpec};
use evenkeel_testkit::{Cluster, Link as CutLink, ServedApi, ends, until};
use evenkeel_zone::wire::Challenge;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

const AGENT: &str = "system:serviceaccount:evenkeel-system:evenkeel-agent";
const UID: &str = "uid-of-a";

/// A follower behind a link, and its cell, `shore`.
struct Followed {
    cluster: Cluster,
    link: CutLink,
    events: mpsc::Receiver<Event>,
    cell: watch::Receiver<String>,
    register: Arc<Notify>,
    _learned: mpsc::UnboundedReceiver<Learned>,
    ranked: watch::Sender<bool>,
    _stop: DropGuard,
    _api: ServedApi,
}

impl Followed {
    /// `members` are the UIDs in the roster of `shore`.
    async fn start(members: &[&str]) -> Self {
        let api = ServedApi::start().await;
        let cluster = Cluster::of(&api.server);
        cluster.install().await;
        let roster = roster(1, members);
        cluster
            .create::<ZoneHealth>(json!({
                "metadata": { "name": "shore" },
                "spec": { "zone": "shore", "signedRoster": { "text": roster } },
            }))
            .await;
        cluster
            .create::<ZoneChallenge>(json!({
                "metadata": { "name": "shore" },
                "spec": { "zone": "shore", "current": issued(1) },
            }))
            .await;
        let link = api.link_as("a", AGENT, &["system:authenticated"]).await;
        let client = link.access().await.pong_within(PONG).reading_once();
        let (event_sender, events) = mpsc::channel(256);
        let (cell_sender, cell) = watch::channel("shore".to_owned());
        let (new_ranked, ranked) = watch::channel(true);
        let (learned, learns) = mpsc::unbounded_channel();
        let register = Arc::new(Notify::new());
        let follower = Follower {
            cloud: Cloud::new(client.client("agent").unwrap(), "a"),
            node_uid: UID.into(),
            first_cell: "shore".into(),
            cell: cell_sender,
            learned,
            events: event_sender,
            register: register.clone(),
        };
        let stop = CancellationToken::new();
        tokio::spawn(follower.run(ranked, stop.clone()));
        Self {
            cluster,
            link,
            events,
            cell,
            register,
            _learned: learns,
            ranked: new_ranked,
            _stop: stop.drop_guard(),
            _api: api,
        }
    }

    async fn event(&mut self) -> Event {
        ends("an event", self.events.recv()).await.unwrap()
    }

    async fn roster(&mut self) -> Seen {
        loop {
            if let Event::Seen(seen) = self.event().await {
                return *seen;
            }
        }
    }

    async fn asked(&mut self) -> Asked {
        loop {
            if let Event::Asked(asked) = self.event().await {
                return *asked;
            }
        }
    }

    async fn contact(&mut self) -> Instant {
        loop {
            if let Event::Contact = self.event().await {
                return Instant::now();
            }
        }
    }

    /// Waits until nothing was heard for `silence`; when the last contact was.
    async fn falls_silent(&mut self, silence: Duration) -> Instant {
        let mut last = Instant::now();
        while let Ok(at) = tokio::time::timeout(silence, self.contact()).await {
            last = at;
        }
        last
    }

    async fn ask(&self, value: u8, wanted: &[&str]) {
        let spec = json!({ "spec": { "current": issued(value), "wanted": wanted } });
        self.cluster.merge::<ZoneChallenge>("shore", spec).await;
    }

    async fn write_roster(&self, version: i64, members: &[&str]) {
        let spec = json!({ "spec": { "signedRoster": { "text": roster(version, members) } } });
        self.cluster.merge::<ZoneHealth>("shore", spec).await;
    }
}

fn issued(value: u8) -> Value {
    let value = Challenge([value; 16]).to_base64();
    json!({ "value": value, "createdAt": "2026-11-22T19:52:13.000Z", "createdBy": "c" })
}

fn roster(version: i64, members: &[&str]) -> String {
    let member = |uid: &&str| RosterMember {
        name: format!("node-{uid}"),
        uid: (*uid).to_owned(),
        address: "127.0.0.1:7959".into(),
        public_key: "k".into(),
        ..RosterMember::default()
    };
    let roster = RosterSpec {
        version,
        members: members.iter().map(member).collect(),
        ..RosterSpec::default()
    };
    roster.to_text()
}

#[tokio::test]
async fn a_challenge_and_what_is_wanted_arrive_within_a_second_of_their_write() {
    let mut followed = Followed::start(&[UID]).await;
    assert_eq!(followed.roster().await.roster.version, 1);
    assert_eq!(followed.asked().await.challenge, Challenge([1; 16]));
    for (value, wanted) in [(2, &["x"][..]), (3, &["x", "y"]), (4, &[])] {
        let written = Instant::now();
        followed.ask(value, wanted).await;
        let asked = followed.asked().await;
        assert!(
            written.elapsed() < Duration::from_secs(1),
            "{:?}",
            written.elapsed()
        );
        assert_eq!(asked.challenge, Challenge([value; 16]));
        assert!(asked.wanted.iter().eq(wanted), "{asked:?}");
    }
    let written = Instant::now();
    followed.write_roster(2, &[UID, "x"]).await;
    assert_eq!(followed.roster().await.roster.version, 2);
    assert!(
        written.elapsed() < Duration::from_secs(1),
        "{:?}",
        written.elapsed()
    );
}

#[tokio::test]
async fn a_calm_watch_is_contact_again_and_again_and_a_silent_one_is_not() {
    let mut followed = Followed::start(&[UID]).await;
    followed.asked().await;
    let mut last = followed.contact().await;
    for _ in 0..2 {
        // The answer to a ping, which is sent after 5 s; the engine takes the link for cut after 8 s.
        let next = followed.contact().await;
        assert!(next - last < Duration::from_secs(8), "{:?}", next - last);
        last = next;
    }
    followed.link.cut();
    let cut = Instant::now();
    let last = followed.falls_silent(Duration::from_secs(9)).await;
    let after = last.saturating_duration_since(cut);
    // What had come before the cut is noticed within a second.
    assert!(after < 2 * HEARD, "contact {after:?} after the cut");
    followed.ask(2, &[]).await;
    followed.link.mend();
    assert_eq!(followed.asked().await.challenge, Challenge([2; 16]));
}

#[tokio::test]
async fn after_a_restart_of_the_api_server_the_agent_is_back_by_itself() {
    let mut followed = Followed::start(&[UID]).await;
    followed.asked().await;
    followed.link.refuse();
    followed.falls_silent(Duration::from_secs(6)).await;
    followed.ask(2, &["x"]).await;
    followed.write_roster(2, &[UID]).await;
    followed.link.mend();
    let mended = Instant::now();
    assert_eq!(followed.roster().await.roster.version, 2);
    assert_eq!(followed.asked().await.challenge, Challenge([2; 16]));
    // A reporter waits for 5 s at most.
    assert!(
        mended.elapsed() < Duration::from_secs(8),
        "{:?}",
        mended.elapsed()
    );
    // Also where it has not changed: a carrier may have named another one.
    followed.link.refuse();
    followed.falls_silent(Duration::from_secs(6)).await;
    followed.link.mend();
    assert_eq!(followed.asked().await.challenge, Challenge([2; 16]));
}

/// An agent that does not report waits for up to 24 s after the failures of this outage.
#[tokio::test]
async fn who_becomes_a_reporter_in_an_outage_is_back_soon() {
    let mut followed = Followed::start(&[UID]).await;
    followed.ranked.send_replace(false);
    followed.asked().await;
    followed.link.refuse();
    followed.falls_silent(Duration::from_secs(20)).await;
    followed.link.mend();
    followed.ranked.send_replace(true);
    let mended = Instant::now();
    followed.contact().await;
    assert!(
        mended.elapsed() < Duration::from_secs(7),
        "{:?}",
        mended.elapsed()
    );
}

#[tokio::test]
async fn an_agent_that_leaves_its_roster_registers_again_and_goes_where_it_is_told() {
    let mut followed = Followed::start(&[UID]).await;
    followed.roster().await;
    followed.write_roster(2, &["x"]).await;
    followed.roster().await;
    // Once for the roster that does not hold it, and then for the AgentStatus that is not there.
    for _ in 0..2 {
        ends("it is to register", followed.register.notified()).await;
    }
    let status = AgentStatus::new("a", AgentStatusSpec::default());
    followed.cluster.add(&status).await;
    let told = json!({ "cell": "shore.1" });
    followed.cluster.merge_status::<AgentStatus>("a", told).await;
    until("it goes to the other cell", async || {
        *followed.cell.borrow() == "shore.1"
    })
    .await;
    let spec = json!({ "zone": "shore", "cell": 1, "signedRoster": { "text": roster(1, &[UID]) } });
    let second = json!({ "metadata": { "name": "shore.1" }, "spec": spec });
    followed.cluster.create::<ZoneHealth>(second).await;
    let seen = followed.roster().await;
    assert_eq!((seen.version.name.as_str(), seen.cell), ("shore.1", 1));
}
