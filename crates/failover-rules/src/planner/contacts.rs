//! Contacts: whom a cell asks to write for it while none of its own members reaches the API server (hazard
//! 59).
//!
//! Each cell of a zone names four agents of other cells, of as many different ones as there are. They are
//! drawn by a hash of both names, so that a cell whose link is cut together with some others very likely
//! names one that has its link still, and nobody is the contact of all. A contact stays one while it is a
//! member of another cell: each change is a new version of a roster.

use super::cells::Cells;
use evenkeel_api::zone::{RosterContact, RosterMember, RosterSpec};
use evenkeel_zone::roster::contact_rank;
use std::collections::{BTreeMap, BTreeSet};

/// The contacts of a cell by its number, and by the name of its ZoneHealth. `current` are those that it has,
/// `cells` where everybody is, and `members` who each of them is, by node UID.
pub fn contacts(
    (object, number): (&str, u32),
    current: &[RosterContact],
    cells: &Cells,
    members: &BTreeMap<String, RosterMember>,
) -> Vec<RosterContact> {
    let others = || cells.iter().filter(|(other, _)| **other != number);
    let stays = |contact: &&RosterContact| others().any(|(_, uids)| uids.contains(&contact.uid));
    let mut kept: Vec<&str> = current
        .iter()
        .filter(stays)
        .take(RosterSpec::CONTACTS)
        .map(|contact| contact.uid.as_str())
        .collect();
    // A zone that has grown has cells of which nobody is named: one contact goes with each version, of two in
    // one cell.
    let home = |uid: &str| others().position(|(_, uids)| uids.contains(uid));
    let mut named = BTreeSet::new();
    let homes = kept.iter().map(|uid| home(uid)).enumerate();
    let seconds = homes.filter(|(_, home)| !named.insert(*home));
    let second = seconds.map(|(place, _)| place).last();
    if let Some(place) = second.filter(|_| named.len() < others().count()) {
        kept.remove(place);
    }
    let mut chosen: BTreeSet<&str> = kept.into_iter().collect();
    if chosen.len() < RosterSpec::CONTACTS {
        let rank = |name: &str| contact_rank(object, name);
        let mut cells: Vec<&BTreeSet<String>> = others().map(|(_, uids)| uids).collect();
        // First the cells of which there is nobody yet.
        cells.sort_by_cached_key(|uids| {
            let held = chosen.iter().any(|uid| uids.contains(*uid));
            let first = uids.first().map_or("", String::as_str);
            (held, rank(first))
        });
        let mut lists: Vec<_> = cells
            .iter()
            .take(RosterSpec::CONTACTS)
            .map(|uids| {
                let mut uids: Vec<&str> = uids.iter().map(String::as_str).collect();
                uids.sort_by_cached_key(|uid| rank(uid));
                uids.into_iter()
            })
            .collect();
        let mut more = true;
        while more && chosen.len() < RosterSpec::CONTACTS {
            more = false;
            for list in &mut lists {
                let next = list.find(|uid| !chosen.contains(uid));
                more |= next.is_some();
                if chosen.len() < RosterSpec::CONTACTS {
                    chosen.extend(next);
                }
            }
        }
    }
    let contacts = chosen.into_iter().filter_map(|uid| members.get(uid));
    contacts.map(RosterContact::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(uid: &str) -> RosterMember {
        RosterMember {
            name: format!("node-{uid}"),
            uid: uid.to_owned(),
            address: format!("{uid}:7947"),
            public_key: format!("key of {uid}"),
            ..RosterMember::default()
        }
    }

    /// Cells of so many members, `0-0`, `0-1`, …
    fn zone(sizes: &[usize]) -> (Cells, BTreeMap<String, RosterMember>) {
        let uids = |(number, size): (u32, &usize)| {
            let uids = (0..*size).map(|place| format!("{number}-{place}"));
            (number, uids.collect::<BTreeSet<String>>())
        };
        let cells: Cells = (0..).zip(sizes).map(uids).collect();
        let all = cells.values().flatten();
        let members = all.map(|uid| (uid.clone(), member(uid))).collect();
        (cells, members)
    }

    fn cells_of(contacts: &[RosterContact]) -> Vec<&str> {
        let cells = contacts
            .iter()
            .map(|contact| contact.uid.split_once('-').unwrap().0);
        cells.collect()
    }

    #[test]
    fn a_cell_names_four_agents_of_as_many_other_cells_as_there_are() {
        let (cells, members) = zone(&[5; 9]);
        for number in 0..9 {
            let name = format!("shore.{number}");
            let found = contacts((&name, number), &[], &cells, &members);
            let of: BTreeSet<&str> = cells_of(&found).into_iter().collect();
            assert_eq!((found.len(), of.len()), (4, 4));
            assert!(!of.contains(number.to_string().as_str()));
            assert_eq!(contacts((&name, number), &found, &cells, &members), found);
        }
        let (cells, members) = zone(&[5, 3, 1]);
        let found = contacts(("shore", 0), &[], &cells, &members);
        assert_eq!(cells_of(&found), ["1", "1", "1", "2"]);
    }

    #[test]
    fn the_only_cell_of_a_zone_names_nobody() {
        let (cells, members) = zone(&[5]);
        assert_eq!(contacts(("shore", 0), &[], &cells, &members), []);
    }

    #[test]
    fn not_all_cells_name_the_same() {
        let (cells, members) = zone(&[20; 40]);
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        for number in cells.keys() {
            for contact in contacts((&format!("shore.{number}"), *number), &[], &cells, &members) {
                *named.entry(contact.uid).or_default() += 1;
            }
        }
        let most = named.values().max().copied().unwrap_or_default();
        assert!(most <= 8, "one of 800 is named by {most} of 40 cells");
        assert!(named.len() >= 80, "{} are named", named.len());
    }

    /// One with each version, so that not all of them are new at once.
    #[test]
    fn contacts_spread_over_cells_that_come() {
        let (two, few) = zone(&[5, 5]);
        let mut found = contacts(("shore", 0), &[], &two, &few);
        assert_eq!(cells_of(&found), ["1", "1", "1", "1"]);
        let (nine, many) = zone(&[5; 9]);
        for different in 2..=4 {
            let before = found.clone();
            found = contacts(("shore", 0), &before, &nine, &many);
            let of: BTreeSet<&str> = cells_of(&found).into_iter().collect();
            let kept = found.iter().filter(|contact| before.contains(contact));
            assert_eq!((found.len(), of.len(), kept.count()), (4, different, 3));
        }
        assert_eq!(contacts(("shore", 0), &found, &nine, &many), found);
    }

    /// Who left the zone, or came into this cell, is replaced; the others stay, with what they say now.
    #[test]
    fn a_contact_stays_while_it_is_a_member_of_another_cell() {
        let (mut cells, mut members) = zone(&[5; 9]);
        let before = contacts(("shore", 0), &[], &cells, &members);
        let [gone, moves, changed, same] = &before[..] else {
            panic!("{before:?}")
        };
        for uids in cells.values_mut() {
            uids.remove(&gone.uid);
            uids.remove(&moves.uid);
        }
        members.remove(&gone.uid);
        cells.get_mut(&0).unwrap().insert(moves.uid.clone());
        members.get_mut(&changed.uid).unwrap().address = "elsewhere:7947".to_owned();
        let after = contacts(("shore", 0), &before, &cells, &members);
        assert_eq!(after.len(), 4);
        assert!(after.contains(same));
        let uids: BTreeSet<&str> = after.iter().map(|contact| contact.uid.as_str()).collect();
        assert!(!uids.contains(gone.uid.as_str()) && !uids.contains(moves.uid.as_str()));
        let address = after.iter().find(|contact| contact.uid == changed.uid);
        assert_eq!(address.unwrap().address, "elsewhere:7947");
    }
}
