//! What files hold, counted for the whole process for as long as anybody holds it: a file that was replaced
//! while somebody reads it still takes its memory.

use super::Trouble;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all files of all pods may take together, and what they take.
#[derive(Debug)]
pub(crate) struct Pool {
    used: AtomicU64,
    most: u64,
}

impl Pool {
    /// What all may take where nothing else is said.
    pub(crate) const MOST: u64 = 1 << 30;

    pub(crate) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            most,
        })
    }

    /// What is taken now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// A part of a pool, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    pool: Arc<Pool>,
    bytes: u64,
}

impl Share {
    fn none(pool: &Arc<Pool>) -> Self {
        Self {
            pool: pool.clone(),
            bytes: 0,
        }
    }

    pub(super) fn take(pool: &Arc<Pool>, bytes: u64) -> Result<Self, Trouble> {
        let mut share = Self::none(pool);
        share.grow(bytes)?;
        Ok(share)
    }

    fn grow(&mut self, more: u64) -> Result<(), Trouble> {
        let fitting = |used: u64| used.checked_add(more).filter(|sum| *sum <= self.pool.most);
        self.pool
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fitting)
            .map_err(|_| Trouble::NoSpace)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Data {
    bytes: Vec<u8>,
    share: Share,
}

/// What a file holds. All who read it share it.
#[derive(Clone, Debug)]
pub(super) struct Held(Arc<Data>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Held {
    pub(super) fn empty(pool: &Arc<Pool>) -> Self {
        Self(Arc::new(Data {
            bytes: Vec::new(),
            share: Share::none(pool),
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.0.bytes.len()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    /// Adds to it. Whoever reads it meanwhile goes on with what there was.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        if bytes.is_empty() {
            return Ok(());
        }
        if Arc::get_mut(&mut self.0).is_none() {
            let pool = self.0.share.pool.clone();
            let share = Share::take(&pool, self.len() as u64)?;
            let bytes = self.0.bytes.clone();
            self.0 = Arc::new(Data { bytes, share });
        }
        let data = Arc::get_mut(&mut self.0).expect("a copy of one's own was just made if others had it");
        data.share.grow(bytes.len() as u64)?;
        // A little room for what is appended next, far less than doubling would leave unused and uncounted.
        if data.bytes.capacity() - data.bytes.len() < bytes.len() {
            data.bytes.reserve_exact(bytes.len().max(data.bytes.len() / 8));
        }
        data.bytes.extend_from_slice(bytes);
        Ok(())
    }
}
