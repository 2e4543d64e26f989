//! A tree of files. Pure: bounded by a quota, without links, owners or devices.

use super::held::{Held, Pool, Share};
use bytes::Bytes;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why something cannot be done to a file, in the system's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// Neither file nor folder.
    #[error("No such file or directory")]
    NotFound,
    /// A file where a folder is needed.
    #[error("Not a directory")]
    NotAFolder,
    /// A folder where a file is needed.
    #[error("Is a directory")]
    IsAFolder,
    /// It is there already.
    #[error("File exists")]
    Exists,
    /// The folder still holds something.
    #[error("Directory not empty")]
    NotEmpty,
    /// The mount, or the volume, is read-only.
    #[error("Read-only file system")]
    ReadOnly,
    /// It would be more than the pod or volume may hold.
    #[error("No space left on device")]
    NoSpace,
    /// A mount or the root itself.
    #[error("Device or resource busy")]
    Busy,
    /// The name or path is too long.
    #[error("File name too long")]
    TooLong,
    /// The volume's contents cannot be had.
    #[error("Input/output error: {0}")]
    Failed(String),
}

/// What a pod may store, and what it does.
#[derive(Debug)]
pub(crate) struct Quota {
    used: u64,
    most: u64,
    /// What all pods share.
    pool: Arc<Pool>,
}

impl Quota {
    /// What a name takes, so that empty files are bounded too.
    const NAME: u64 = 256;

    /// So many bytes, if all pods together leave as many.
    pub(crate) fn new(most: u64, pool: Arc<Pool>) -> Self {
        Self { used: 0, most, pool }
    }

    fn fits(&self, more: u64) -> bool {
        self.used.saturating_add(more) <= self.most
    }
}

/// What is told of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Whether it is a folder.
    pub(crate) folder: bool,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    /// When it was changed.
    pub(crate) at: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Tree {
    root: Node,
    /// Bytes of all that is in it, names included.
    used: u64,
    /// Of its own (`sizeLimit`).
    pub(crate) limit: Option<u64>,
}

#[derive(Debug)]
enum Node {
    File {
        data: Held,
        mode: u32,
        at: Timestamp,
        /// Of what all pods share, for the name.
        _name: Share,
    },
    Folder {
        entries: BTreeMap<Box<str>, Node>,
        at: Timestamp,
        /// Likewise; of the root there is none.
        _name: Option<Share>,
    },
}

impl Node {
    fn folder(at: Timestamp, name: Option<Share>) -> Self {
        Self::Folder {
            entries: BTreeMap::new(),
            at,
            _name: name,
        }
    }

    fn meta(&self) -> Meta {
        match self {
            Self::File { data, mode, at, .. } => Meta {
                folder: false,
                size: data.len() as u64,
                mode: *mode,
                at: *at,
            },
            Self::Folder { at, .. } => Meta {
                folder: true,
                size: 4096,
                mode: 0o755,
                at: *at,
            },
        }
    }

    fn weight(&self) -> u64 {
        match self {
            Self::File { data, .. } => data.len() as u64,
            Self::Folder { entries, .. } => entries.values().map(|node| node.weight() + Quota::NAME).sum(),
        }
    }
}

impl Tree {
    /// Deepest path: recursion over a tree ends.
    const DEPTH: usize = 64;

    pub(crate) fn new(at: Timestamp) -> Self {
        Self {
            root: Node::folder(at, None),
            used: 0,
            limit: None,
        }
    }

    fn find(&self, path: &str) -> Result<&Node, Trouble> {
        let mut node = &self.root;
        for part in parts(path) {
            node = match node {
                Node::Folder { entries, .. } => entries.get(part).ok_or(Trouble::NotFound)?,
                Node::File { .. } => return Err(Trouble::NotAFolder),
            };
        }
        Ok(node)
    }

    /// The folder that holds a path, and the path's last part.
    fn parent<'p>(&mut self, path: &'p str) -> Result<(&mut BTreeMap<Box<str>, Node>, &'p str), Trouble> {
        if path.len() > 4096 || parts(path).count() > Self::DEPTH {
            return Err(Trouble::TooLong);
        }
        let mut above: Vec<&str> = parts(path).collect();
        let name = above.pop().ok_or(Trouble::Busy)?;
        if name.len() > 255 {
            return Err(Trouble::TooLong);
        }
        let mut node = &mut self.root;
        for part in above {
            node = match node {
                Node::Folder { entries, .. } => entries.get_mut(part).ok_or(Trouble::NotFound)?,
                Node::File { .. } => return Err(Trouble::NotAFolder),
            };
        }
        match node {
            Node::Folder { entries, .. } => Ok((entries, name)),
            Node::File { .. } => Err(Trouble::NotAFolder),
        }
    }

    fn room(&mut self, more: u64, quota: &mut Quota) -> Result<(), Trouble> {
        let own = self
            .limit
            .is_none_or(|limit| self.used.saturating_add(more) <= limit);
        if !own || !quota.fits(more) {
            return Err(Trouble::NoSpace);
        }
        self.used += more;
        quota.used += more;
        Ok(())
    }

    fn free(&mut self, less: u64, quota: &mut Quota) {
        self.used = self.used.saturating_sub(less);
        quota.used = quota.used.saturating_sub(less);
    }

    /// What is told of a path.
    pub(crate) fn stat(&self, path: &str) -> Result<Meta, Trouble> {
        self.find(path).map(Node::meta)
    }

    /// What is in a file.
    pub(crate) fn read(&self, path: &str) -> Result<Bytes, Trouble> {
        match self.find(path)? {
            Node::File { data, .. } => Ok(data.bytes()),
            Node::Folder { .. } => Err(Trouble::IsAFolder),
        }
    }

    /// What is in a folder.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<(String, Meta)>, Trouble> {
        match self.find(path)? {
            Node::Folder { entries, .. } => Ok(entries
                .iter()
                .map(|(name, node)| (name.to_string(), node.meta()))
                .collect()),
            Node::File { .. } => Err(Trouble::NotAFolder),
        }
    }

    /// Writes a file, at its end or instead of what is in it.
    pub(crate) fn write(
        &mut self,
        path: &str,
        bytes: &[u8],
        append: bool,
        quota: &mut Quota,
        now: Timestamp,
    ) -> Result<(), Trouble> {
        let (entries, name) = self.parent(path)?;
        let before = match entries.get(name) {
            Some(Node::Folder { .. }) => return Err(Trouble::IsAFolder),
            Some(Node::File { data, .. }) => Some(data.len() as u64),
            None => None,
        };
        // What is replaced is gone first, as when a file is opened for writing.
        let freed = before.filter(|_| !append).unwrap_or(0);
        if let Some(Node::File { data, .. }) = entries.get_mut(name)
            && !append
        {
            *data = Held::empty(&quota.pool);
        }
        self.free(freed, quota);
        let name_weight = if before.is_none() { Quota::NAME } else { 0 };
        let more = bytes.len() as u64 + name_weight;
        self.room(more, quota)?;
        let stored = self.store(path, bytes, &quota.pool, now);
        if stored.is_err() {
            self.free(more, quota);
        }
        stored
    }

    /// Appends to a file, or makes it; all of it or nothing.
    fn store(&mut self, path: &str, bytes: &[u8], pool: &Arc<Pool>, now: Timestamp) -> Result<(), Trouble> {
        let (entries, name) = self.parent(path)?;
        match entries.get_mut(name) {
            Some(Node::Folder { .. }) => return Err(Trouble::IsAFolder),
            Some(Node::File { data, at, .. }) => {
                data.append(bytes)?;
                *at = now;
            }
            None => {
                let share = Share::take(pool, Quota::NAME)?;
                let mut data = Held::empty(pool);
                data.append(bytes)?;
                let file = Node::File {
                    data,
                    mode: 0o644,
                    at: now,
                    _name: share,
                };
                entries.insert(name.into(), file);
            }
        }
        Ok(())
    }

    /// Sets a file's permissions.
    pub(crate) fn allow(&mut self, path: &str, wanted: u32) -> Result<(), Trouble> {
        let (entries, name) = self.parent(path)?;
        match entries.get_mut(name).ok_or(Trouble::NotFound)? {
            Node::File { mode, .. } => *mode = wanted & 0o7777,
            Node::Folder { .. } => {}
        }
        Ok(())
    }

    pub(crate) fn make(&mut self, path: &str, quota: &mut Quota, now: Timestamp) -> Result<(), Trouble> {
        let (entries, name) = self.parent(path)?;
        if entries.contains_key(name) {
            return Err(Trouble::Exists);
        }
        let share = Share::take(&quota.pool, Quota::NAME)?;
        self.room(Quota::NAME, quota)?;
        let (entries, name) = self.parent(path)?;
        entries.insert(name.into(), Node::folder(now, Some(share)));
        Ok(())
    }

    /// Removes a file, or a folder with all that is in it.
    pub(crate) fn remove(&mut self, path: &str, recursive: bool, quota: &mut Quota) -> Result<(), Trouble> {
        let (entries, name) = self.parent(path)?;
        match entries.get(name).ok_or(Trouble::NotFound)? {
            Node::Folder { .. } if !recursive => return Err(Trouble::IsAFolder),
            _ => {}
        }
        if let Some(node) = entries.remove(name) {
            self.free(node.weight() + Quota::NAME, quota);
        }
        Ok(())
    }

    /// Gives everything back.
    pub(crate) fn clear(self, quota: &mut Quota) {
        quota.used = quota.used.saturating_sub(self.used);
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}
