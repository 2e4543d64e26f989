//! Which field of a definition stands under which number of its message.

use crate::schema::{self, Definition, Field};
use std::sync::OnceLock;

/// A number of a message.
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) content: Content,
}

/// What stands under a number.
pub(super) enum Content {
    /// A field of the definition.
    Field(&'static Field),
    /// A message whose fields stand among those of the definition in JSON, as those of a `VolumeSource` do in
    /// a `Volume`.
    Embedded(Vec<Slot>),
}

/// A message: the slots of an object, by ascending number.
pub(super) type Layout = [Slot];

/// The layout of the definition with that index. All are made when the first is asked for.
pub(super) fn of(index: usize) -> &'static Layout {
    static LAYOUTS: OnceLock<Vec<Vec<Slot>>> = OnceLock::new();
    let layouts = LAYOUTS.get_or_init(|| {
        let numbers = schema::numbers();
        let definitions = schema::all().iter();
        definitions
            .zip(numbers.lines())
            .map(|(definition, numbers)| parse(definition, numbers))
            .collect()
    });
    layouts.get(index).map_or(&[], Vec::as_slice)
}

/// The layout of a kind's definition.
pub(super) fn of_definition(definition: &Definition) -> &'static Layout {
    schema::index(definition.name).map_or(&[], of)
}

/// The slot of a number.
pub(super) fn slot(layout: &'static Layout, number: u64) -> Option<&'static Content> {
    let place = layout.binary_search_by_key(&number, |slot| slot.number.into());
    place.ok().map(|place| &layout[place].content)
}

fn parse(definition: &'static Definition, numbers: &str) -> Vec<Slot> {
    let fields = definition.fields.iter().zip(numbers.split(' '));
    let mut paths: Vec<(Vec<u32>, &'static Field)> = fields
        .map(|(field, path)| {
            (
                path.split('.').filter_map(|number| number.parse().ok()).collect(),
                field,
            )
        })
        .filter(|(path, _): &(Vec<u32>, _)| !path.is_empty())
        .collect();
    paths.sort_by(|(a, _), (b, _)| a.cmp(b));
    slots(&paths, 0)
}

/// The slots of the paths, which share what stands before `depth`.
fn slots(paths: &[(Vec<u32>, &'static Field)], depth: usize) -> Vec<Slot> {
    paths
        .chunk_by(|(a, _), (b, _)| a.get(depth) == b.get(depth))
        .filter_map(|same| {
            let (path, field) = same.first()?;
            let content = if path.len() == depth + 1 {
                Content::Field(field)
            } else {
                Content::Embedded(slots(same, depth + 1))
            };
            let number = *path.get(depth)?;
            Some(Slot { number, content })
        })
        .collect()
}
