//! The files that one container sees.

use super::path::below;
use super::{Meta, Trouble};
use super::{PodFiles, Quota, Tree, Trees};
use crate::clock::Clock;
use crate::shape::{Mount, Shape};
use bytes::Bytes;
use evenkeel_vnode::core::volume::{Contents, File, Volume, Volumes};
use evenkeel_vnode::provider::{Host, PodId};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) files: Arc<PodFiles>,
    /// Who knows what volumes hold.
    pub(crate) host: Option<Arc<dyn Host>>,
    pub(crate) pod: PodId,
    pub(crate) shape: Arc<Shape>,
    /// Names of the volumes that it sees.
    pub(crate) volumes: Arc<[Box<str>]>,
    /// Which of its lives.
    pub(crate) number: u64,
    /// Name in the network.
    pub(crate) hostname: Arc<str>,
    pub(crate) address: Option<IpAddr>,
    /// For the times of changes.
    pub(crate) clock: Clock,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} of {})", self.shape.name, self.pod)
    }
}

/// Where a path leads.
enum Place {
    /// Into the container's own tree.
    Own(String),
    /// Into a scratch volume.
    Scratch {
        volume: String,
        path: String,
        limit: Option<u64>,
        read_only: bool,
    },
    /// Into files that somebody else holds.
    Held {
        volumes: Arc<Volumes>,
        volume: String,
        path: String,
    },
}

impl View {
    async fn place(&self, path: &str) -> Result<Place, Trouble> {
        let mounts = self.shape.mounts.iter();
        let found = mounts
            .filter_map(|mount| Some((mount, below(path, &mount.path)?)))
            .max_by_key(|(mount, _)| mount.path.len());
        let Some((mount, rest)) = found else {
            return Ok(Place::Own(path.to_owned()));
        };
        let path = match (mount.sub_path.as_str(), rest) {
            (sub, "") => sub.to_owned(),
            ("", rest) => rest.to_owned(),
            (sub, rest) => format!("{sub}/{rest}"),
        };
        let volumes = match &self.host {
            Some(host) => host
                .volumes(&self.pod)
                .await
                .map_err(|fault| Trouble::Failed(fault.message))?,
            None => Arc::default(),
        };
        let volume = self.volume(mount).to_owned();
        let limit = match volumes.0.get(&volume) {
            Some(Volume::Files(_)) => {
                return Ok(Place::Held {
                    volumes,
                    volume,
                    path,
                });
            }
            Some(Volume::Scratch { limit }) => *limit,
            Some(Volume::Foreign) | None => None,
        };
        Ok(Place::Scratch {
            volume,
            path,
            limit,
            read_only: mount.read_only,
        })
    }

    fn volume(&self, mount: &Mount) -> &str {
        self.volumes.get(mount.volume).map_or("", |name| name)
    }

    /// Folders that are there because something is mounted below them.
    fn above_mounts(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .shape
            .mounts
            .iter()
            .filter_map(|mount| below(&mount.path, path))
            .filter(|rest| !rest.is_empty())
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_owned)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Does something with the tree that a place is in.
    fn with<T>(
        &self,
        place: &Place,
        run: impl FnOnce(&mut Tree, &str, &mut Quota) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut guard = self.files.lock();
        let trees: &mut Trees = &mut guard;
        let now = self.clock.now();
        match place {
            Place::Own(path) => {
                let name = self.shape.name.as_ref();
                let stale = trees
                    .roots
                    .get(name)
                    .is_none_or(|(number, _)| *number != self.number);
                if stale {
                    if let Some((_, tree)) = trees.roots.remove(name) {
                        tree.clear(&mut trees.quota);
                    }
                    let tree = self.fresh(&mut trees.quota, now)?;
                    trees.roots.insert(name.to_owned(), (self.number, tree));
                }
                let (_, tree) = trees.roots.get_mut(name).ok_or(Trouble::NotFound)?;
                run(tree, path, &mut trees.quota)
            }
            Place::Scratch {
                volume, path, limit, ..
            } => {
                let tree = trees
                    .scratch
                    .entry(volume.clone())
                    .or_insert_with(|| Tree::new(now));
                tree.limit = *limit;
                let mounts = self.shape.mounts.iter();
                for Mount { sub_path, .. } in mounts.filter(|mount| self.volume(mount) == volume) {
                    // What is mounted by a part of its path is made, as the kubelet does.
                    make_all(tree, sub_path, &mut trees.quota, now)?;
                }
                run(tree, path, &mut trees.quota)
            }
            Place::Held { .. } => Err(Trouble::ReadOnly),
        }
    }

    /// What a container begins with.
    fn fresh(&self, quota: &mut Quota, now: Timestamp) -> Result<Tree, Trouble> {
        let mut tree = Tree::new(now);
        for folder in [
            "bin", "dev", "etc", "home", "proc", "root", "tmp", "usr", "usr/bin", "var", "var/log", "var/run",
        ] {
            tree.make(folder, quota, now)?;
        }
        make_all(
            &mut tree,
            &super::absolute("/", &self.shape.directory),
            quota,
            now,
        )?;
        let hostname = &self.hostname;
        let address = self
            .address
            .map_or_else(|| "127.0.0.1".to_owned(), |ip| ip.to_string());
        let files = [
            ("etc/hostname", format!("{hostname}\n")),
            (
                "etc/hosts",
                format!(
                    "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost\n{address}\t{hostname}\n"
                ),
            ),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n".to_owned()),
            (
                "etc/os-release",
                "ID=simulated\nNAME=\"Simulated container\"\n".to_owned(),
            ),
        ];
        for (path, text) in files {
            tree.write(path, text.as_bytes(), false, quota, now)?;
        }
        Ok(tree)
    }

    fn writable(place: &Place) -> Result<(), Trouble> {
        match place {
            Place::Own(_) => Ok(()),
            Place::Scratch { read_only, .. } if !read_only => Ok(()),
            Place::Scratch { .. } | Place::Held { .. } => Err(Trouble::ReadOnly),
        }
    }

    /// What is told of a path.
    pub(crate) async fn stat(&self, path: &str) -> Result<Meta, Trouble> {
        if path == "/dev/null" {
            return Ok(self.synthetic(false, 0, 0o666));
        }
        let place = self.place(path).await?;
        let found = match &place {
            Place::Held {
                volumes,
                volume,
                path,
            } => match find(volumes, volume, path)? {
                Found::File(file) => Ok(self.synthetic(false, size(file), file.mode)),
                Found::Folder(_) => Ok(self.synthetic(true, 4096, 0o755)),
            },
            _ => self.with(&place, |tree, path, _| tree.stat(path)),
        };
        match found {
            Err(Trouble::NotFound) if !self.above_mounts(path).is_empty() => {
                Ok(self.synthetic(true, 4096, 0o755))
            }
            found => found,
        }
    }

    fn synthetic(&self, folder: bool, size: u64, mode: u32) -> Meta {
        Meta {
            folder,
            size,
            mode,
            at: self.clock.now(),
        }
    }

    /// What is in a folder, by name.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<(String, Meta)>, Trouble> {
        let place = self.place(path).await?;
        let found = match &place {
            Place::Held {
                volumes,
                volume,
                path,
            } => match find(volumes, volume, path)? {
                Found::File(_) => Err(Trouble::NotAFolder),
                Found::Folder(entries) => Ok(entries
                    .into_iter()
                    .map(|(name, file)| {
                        let meta = match file {
                            Some(file) => self.synthetic(false, size(file), file.mode),
                            None => self.synthetic(true, 4096, 0o755),
                        };
                        (name.to_owned(), meta)
                    })
                    .collect()),
            },
            _ => self.with(&place, |tree, path, _| tree.list(path)),
        };
        let mounted = self.above_mounts(path);
        let mut entries = match found {
            Err(Trouble::NotFound) if !mounted.is_empty() => Vec::new(),
            found => found?,
        };
        for name in mounted {
            let at = if path == "/" {
                format!("/{name}")
            } else {
                format!("{path}/{name}")
            };
            let meta = Box::pin(self.stat(&at)).await?;
            entries.retain(|(known, _)| *known != name);
            entries.push((name, meta));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    /// What is in a file.
    pub(crate) async fn read(&self, path: &str) -> Result<Bytes, Trouble> {
        if path == "/dev/null" {
            return Ok(Bytes::new());
        }
        let place = self.place(path).await?;
        match &place {
            Place::Held {
                volumes,
                volume,
                path,
            } => match find(volumes, volume, path)? {
                Found::Folder(_) => Err(Trouble::IsAFolder),
                Found::File(file) => self.contents(file).await,
            },
            _ => match self.with(&place, |tree, path, _| tree.read(path)) {
                Err(Trouble::NotFound) if !self.above_mounts(path).is_empty() => Err(Trouble::IsAFolder),
                read => read,
            },
        }
    }

    async fn contents(&self, file: &File) -> Result<Bytes, Trouble> {
        match &file.contents {
            Contents::Bytes(bytes) => Ok(Bytes::from_owner(bytes.clone())),
            Contents::Token(of) => {
                let host = self.host.as_ref().ok_or(Trouble::NotFound)?;
                let token = host.token(&self.pod, of).await;
                token
                    .map(|token| Bytes::copy_from_slice(token.as_bytes()))
                    .map_err(|fault| Trouble::Failed(fault.message))
            }
        }
    }

    /// Writes a file, at its end or instead of what is in it.
    pub(crate) async fn write(&self, path: &str, bytes: &[u8], append: bool) -> Result<(), Trouble> {
        if path == "/dev/null" {
            return Ok(());
        }
        let place = self.place(path).await?;
        Self::writable(&place)?;
        let now = self.clock.now();
        self.with(&place, |tree, path, quota| {
            tree.write(path, bytes, append, quota, now)
        })
    }

    /// Sets a file's permissions.
    pub(crate) async fn allow(&self, path: &str, mode: u32) -> Result<(), Trouble> {
        let place = self.place(path).await?;
        Self::writable(&place)?;
        self.with(&place, |tree, path, _| tree.allow(path, mode))
    }

    pub(crate) async fn make(&self, path: &str) -> Result<(), Trouble> {
        if !self.above_mounts(path).is_empty() || self.shape.mounts.iter().any(|mount| mount.path == path) {
            return Err(Trouble::Exists);
        }
        let place = self.place(path).await?;
        Self::writable(&place)?;
        let now = self.clock.now();
        self.with(&place, |tree, path, quota| tree.make(path, quota, now))
    }

    /// Makes a folder and those above it; one that is there is no error.
    pub(crate) async fn make_all(&self, path: &str) -> Result<(), Trouble> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends.filter(|end| *end > 0) {
            let part = path.get(..end).unwrap_or(path);
            match self.make(part).await {
                Ok(()) => {}
                Err(trouble) => match self.stat(part).await {
                    Ok(meta) if meta.folder => {}
                    Ok(_) if part == path => return Err(Trouble::Exists),
                    Ok(_) => return Err(Trouble::NotAFolder),
                    Err(_) => return Err(trouble),
                },
            }
        }
        Ok(())
    }

    /// Removes a file, or a folder with all that is in it.
    pub(crate) async fn remove(&self, path: &str, recursive: bool) -> Result<(), Trouble> {
        if !self.above_mounts(path).is_empty() || self.shape.mounts.iter().any(|mount| mount.path == path) {
            return Err(Trouble::Busy);
        }
        let place = self.place(path).await?;
        Self::writable(&place)?;
        self.with(&place, |tree, path, quota| tree.remove(path, recursive, quota))
    }
}

fn make_all(tree: &mut Tree, path: &str, quota: &mut Quota, now: Timestamp) -> Result<(), Trouble> {
    let mut made = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        made.push('/');
        made.push_str(part);
        match tree.make(&made, quota, now) {
            Ok(()) | Err(Trouble::Exists) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(())
}

/// What a path means in a volume of files.
enum Found<'a> {
    File(&'a File),
    /// Names; `None`: a folder.
    Folder(BTreeMap<&'a str, Option<&'a File>>),
}

fn find<'a>(volumes: &'a Volumes, volume: &str, path: &str) -> Result<Found<'a>, Trouble> {
    let Some(Volume::Files(files)) = volumes.0.get(volume) else {
        return Err(Trouble::NotFound);
    };
    if let Some(file) = files.get(path) {
        return Ok(Found::File(file));
    }
    let mut entries = BTreeMap::new();
    for (name, file) in files {
        let rest = if path.is_empty() {
            Some(name.as_str())
        } else {
            below(name, path)
        };
        if let Some(rest) = rest {
            match rest.split_once('/') {
                Some((folder, _)) => entries.insert(folder, None),
                None => entries.insert(rest, Some(file)),
            };
        }
    }
    if entries.is_empty() && !path.is_empty() {
        return Err(Trouble::NotFound);
    }
    Ok(Found::Folder(entries))
}

fn size(file: &File) -> u64 {
    match &file.contents {
        Contents::Bytes(bytes) => bytes.len() as u64,
        Contents::Token(_) => 0,
    }
}
