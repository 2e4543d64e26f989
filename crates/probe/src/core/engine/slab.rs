//! Values by small numbers that are used again.

/// A vector with holes. What an index means ends with [`Slab::remove`]; who keeps indices forgets them then.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(value);
            return index;
        }
        let index = u32::try_from(self.entries.len()).expect("no machine holds 2^32 workers");
        self.entries.push(Some(value));
        index
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        if self.free.len() == self.entries.len() {
            (self.entries, self.free) = (Vec::new(), Vec::new());
        }
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
