//! Cells: how a zone is divided. A cell is the part of a zone whose members watch each other and vote.
//!
//! A zone of up to [`LARGEST`] members is one cell. In a larger one nothing may grow with the zone: neither
//! what an agent sends, nor the evidence for a verdict, nor the time until a death is confirmed. So it is
//! divided, and every rule of the protocol is a rule of the cell (hazards 15, 42 and 44).
//!
//! | what happens | what follows |
//! |---|---|
//! | a newcomer | joins the smallest cell; of several, the one with the fewest members of its rack |
//! | all cells are full | of the cell with the lowest number that may be divided, half of those who are not listed move to a new one |
//! | all cells are full and none may be divided | newcomers wait without a cell until three can found one |
//! | a cell is smaller than [`SMALLEST`] | it is merged with the smallest other one; above [`LARGEST`] together, the two share their members evenly |
//! | a member is listed | for [`MOVES_WAIT_MS`] nobody of its cell moves; the listed member itself never does |
//!
//! A cell that holds a listed member is never merged into another one: the listed member would stay behind
//! without neighbours, and nobody could vouch for it any more.

use std::collections::{BTreeMap, BTreeSet};

/// Members of a cell at most. All evidence about a cell of this size fits in an object, and one hash of 64
/// bits can say which of its members a ballot speaks of.
pub const LARGEST: usize = 64;
/// A smaller cell is merged with another one: the deaths of a few members would leave it without a majority.
pub const SMALLEST: usize = 16;
/// So many newcomers found a cell where no other has room: with fewer, none of them could ever be convicted.
pub const FOUNDERS: usize = 3;
/// A member that is listed delays the moves of its cell for at most this long.
pub const MOVES_WAIT_MS: u64 = 10 * 60 * 1000;

/// The members of each cell of a zone, by the cell's number and the node's UID.
pub type Cells = BTreeMap<u32, BTreeSet<String>>;

/// What a division rests on.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// The cells as they are published.
    pub cells: Cells,
    /// Everybody who can be a member: node UID to the rack of the node; empty where it names none.
    pub present: BTreeMap<String, String>,
    /// Members that are listed: they never move.
    pub listed: BTreeSet<String>,
    /// Cells of which nobody moves now, because a member was listed lately.
    pub waiting: BTreeSet<u32>,
}

/// What comes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// The cells as they shall be. A cell that lost all members is there without any.
    pub cells: Cells,
    /// Newcomers for whom no cell has room.
    pub without_cell: BTreeSet<String>,
}

/// Divides a zone. The same input gives the same division, and the division of its own result is itself.
pub fn divide(zone: &Zone) -> Division {
    let mut work = Work {
        zone,
        cells: remaining(zone),
    };
    work.shrink();
    let without_cell = work.place();
    work.merge();
    Division {
        cells: work.cells,
        without_cell,
    }
}

/// The published members that are still there. Who stands in two cells, because a move was interrupted,
/// belongs to the one with the higher number: a move is published in the cell it goes to first, and cells
/// that are split off have the higher numbers.
fn remaining(zone: &Zone) -> Cells {
    let mut taken = BTreeSet::new();
    let mut cells = Cells::new();
    for (number, members) in zone.cells.iter().rev() {
        let members = members.iter().filter(|uid| zone.present.contains_key(*uid));
        let members = members.filter(|uid| taken.insert((*uid).clone()));
        cells.insert(*number, members.cloned().collect());
    }
    cells
}

struct Work<'a> {
    zone: &'a Zone,
    cells: Cells,
}

impl Work<'_> {
    fn rack(&self, uid: &str) -> &str {
        self.zone.present.get(uid).map_or("", String::as_str)
    }

    fn of_rack(&self, cell: u32, rack: &str) -> usize {
        let members = self.cells.get(&cell).into_iter().flatten();
        members.filter(|uid| self.rack(uid) == rack).count()
    }

    fn size(&self, cell: u32) -> usize {
        self.cells.get(&cell).map_or(0, BTreeSet::len)
    }

    fn may_change(&self, cell: u32) -> bool {
        !self.zone.waiting.contains(&cell)
    }

    fn unlisted(&self, cell: u32) -> usize {
        let members = self.cells.get(&cell).into_iter().flatten();
        members.filter(|uid| !self.zone.listed.contains(*uid)).count()
    }

    /// Half of those who are not listed move, and both halves must be cells. Whoever is listed stays, and
    /// needs the other half: only members that reach the API server can report that a cut-off member lives.
    fn may_be_divided(&self, cell: u32) -> bool {
        self.may_change(cell) && self.unlisted(cell) >= 2 * SMALLEST
    }

    /// The lowest number that no cell with members has.
    fn free_number(&self) -> u32 {
        let is_free = |number: &u32| self.size(*number) == 0;
        (0..u32::MAX).find(is_free).unwrap_or(u32::MAX)
    }

    /// The cells that have members.
    fn founded(&self) -> Vec<u32> {
        let founded = self.cells.iter().filter(|(_, members)| !members.is_empty());
        founded.map(|(number, _)| *number).collect()
    }

    /// Divides cells that are larger than a cell may be: an earlier version made zones of any size.
    fn shrink(&mut self) {
        while let Some(cell) = self
            .founded()
            .into_iter()
            .find(|cell| self.size(*cell) > LARGEST && self.may_be_divided(*cell))
        {
            self.split(cell);
        }
    }

    /// Gives every newcomer a cell, or says which of them have to wait.
    fn place(&mut self) -> BTreeSet<String> {
        let members: BTreeSet<&String> = self.cells.values().flatten().collect();
        let newcomers = self.zone.present.keys().filter(|uid| !members.contains(uid));
        let newcomers: Vec<String> = newcomers.cloned().collect();
        let mut without_cell = BTreeSet::new();
        for uid in newcomers {
            if let Some(cell) = self.cell_for(&uid) {
                self.cells.entry(cell).or_default().insert(uid);
            } else {
                without_cell.insert(uid);
            }
        }
        if without_cell.len() >= FOUNDERS {
            let number = self.free_number();
            self.cells.entry(number).or_default().append(&mut without_cell);
        }
        without_cell
    }

    fn cell_for(&mut self, uid: &str) -> Option<u32> {
        if self.founded().is_empty() {
            return Some(0);
        }
        if let Some(cell) = self.smallest_with_room(uid) {
            return Some(cell);
        }
        let full = self
            .founded()
            .into_iter()
            .find(|cell| self.may_be_divided(*cell))?;
        self.split(full);
        self.smallest_with_room(uid)
    }

    fn smallest_with_room(&self, uid: &str) -> Option<u32> {
        let rack = self.rack(uid);
        let with_room = self
            .founded()
            .into_iter()
            .filter(|cell| self.size(*cell) < LARGEST);
        with_room.min_by_key(|cell| (self.size(*cell), self.of_rack(*cell, rack), *cell))
    }

    fn split(&mut self, cell: u32) {
        let half = self.unlisted(cell) / 2;
        let number = self.free_number();
        self.move_members(cell, number, half);
    }

    /// Moves up to `count` members that are not listed, of each rack in turn, so that a rack is spread over
    /// both cells. Returns how many moved.
    fn move_members(&mut self, from: u32, to: u32, count: usize) -> usize {
        let members = self.cells.get(&from).into_iter().flatten();
        let mut racks: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        for uid in members.filter(|uid| !self.zone.listed.contains(*uid)) {
            racks.entry(self.rack(uid)).or_default().push(uid);
        }
        // In this order every second one goes: half of each rack, whatever the sizes.
        let in_order = racks.into_values().flatten();
        let (first, second): (Vec<_>, Vec<_>) = in_order.enumerate().partition(|(place, _)| place % 2 == 1);
        let chosen = first.into_iter().chain(second).take(count);
        let chosen: Vec<String> = chosen.map(|(_, uid)| uid.clone()).collect();
        for uid in &chosen {
            if let Some(members) = self.cells.get_mut(&from) {
                members.remove(uid);
            }
            self.cells.entry(to).or_default().insert(uid.clone());
        }
        chosen.len()
    }

    /// Merges cells that have become too small.
    fn merge(&mut self) {
        while let Some((small, other)) = self.too_small() {
            let (keep, end) = (small.min(other), small.max(other));
            let sum = self.size(small) + self.size(other);
            if sum <= LARGEST {
                let members = self.cells.get_mut(&end).map(std::mem::take).unwrap_or_default();
                self.cells.entry(keep).or_default().extend(members);
            } else if self.move_members(other, small, sum / 2 - self.size(small)) == 0 {
                return;
            }
        }
    }

    /// A cell that is too small, and the smallest other one. Cells with a listed member stay as they are.
    fn too_small(&self) -> Option<(u32, u32)> {
        let is_calm = |cell: &u32| {
            let members = self.cells.get(cell).into_iter().flatten();
            self.may_change(*cell) && !members.into_iter().any(|uid| self.zone.listed.contains(uid))
        };
        let calm: Vec<u32> = self.founded().into_iter().filter(is_calm).collect();
        let smallest = |except: Option<u32>| {
            let others = calm.iter().copied().filter(|cell| Some(*cell) != except);
            others.min_by_key(|cell| (self.size(*cell), *cell))
        };
        let small = smallest(None).filter(|cell| self.size(*cell) < SMALLEST)?;
        Some((small, smallest(Some(small))?))
    }
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
