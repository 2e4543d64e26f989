//! What a running agent takes over from its configuration file.

use crate::machine::roster_key;
use crate::zone::{ZONE, Zone};
use evenkeel_api::zone::RosterSpec;
use evenkeel_testkit::eventually;
use evenkeel_zone::keys::SigningKey;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_roster_that_was_refused_counts_once_its_key_is_in_the_file() {
    let zone = Zone::of(2).await;
    let (former, new) = (roster_key(), SigningKey::from_seed(&[92; 32]).unwrap());
    let roster = RosterSpec {
        version: 2,
        ..zone.roster().await
    };
    zone.publish_signed(ZONE, roster, &new).await;
    let [one, other] = &zone.machines[..] else {
        unreachable!("there are two");
    };
    one.trusts(&[former.public(), new.public()]);
    let remembers = async |version| {
        eventually("it has the roster", Duration::from_secs(40), || async {
            let roster = one.remembers()?;
            (roster.version == version).then_some(roster)
        })
        .await
    };
    remembers(2).await;
    assert_eq!(
        other.remembers().unwrap().version,
        1,
        "its file has the former key alone"
    );
    // The former key is taken away.
    one.trusts(&[new.public()]);
    other.trusts(&[new.public()]);
    zone.publish_signed(
        ZONE,
        RosterSpec {
            version: 3,
            ..zone.roster().await
        },
        &new,
    )
    .await;
    remembers(3).await;
    // Without any key each roster would count, and so what was said before holds. When the other one has
    // looked at its file twice, this one has, too.
    one.trusts(&[]);
    for (version, seed) in [(4, 93), (5, 94)] {
        let stranger = SigningKey::from_seed(&[seed; 32]).unwrap();
        other.trusts(&[stranger.public()]);
        let roster = RosterSpec {
            version,
            ..zone.roster().await
        };
        zone.publish_signed(ZONE, roster, &stranger).await;
        eventually("the other one takes it", Duration::from_secs(40), || async {
            (other.remembers()?.version == version).then_some(())
        })
        .await;
    }
    assert_eq!(one.remembers().unwrap().version, 3);
}
