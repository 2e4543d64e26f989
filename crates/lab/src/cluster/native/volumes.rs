//! Volumes of a pod as directories, in the layout of a kubelet: files stand in a directory of their own, to
//! which `..data` links, so that a change shows all at once.

use evenkeel_vnode::{
    core::volume::{Contents, File, Volume, Volumes},
    provider::{Fault, FaultKind, Host, PodId},
};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink},
    path::{Component, Path, PathBuf},
};

/// Link to the directory with the present files.
const DATA: &str = "..data";

/// Where the volumes of a pod are.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Directory of the pod.
    pub pod: &'a Path,
    /// Directory that stands for the machine's `/`.
    pub machine: &'a Path,
}

/// Puts the files of all volumes of a pod where they belong, as they are now.
pub async fn write(host: &dyn Host, id: &PodId, place: Place<'_>) -> Result<(), Fault> {
    let volumes: std::sync::Arc<Volumes> = host.volumes(id).await?;
    for (name, volume) in &volumes.0 {
        let directory = place.pod.join("volumes").join(name);
        let failed = |error: io::Error| failed(&directory, &error);
        match volume {
            Volume::Files(files) => {
                let mut contents = BTreeMap::new();
                for (path, file) in files {
                    contents.insert(path.clone(), (bytes(host, id, file).await?, file.mode));
                }
                update(&directory, &contents).map_err(failed)?;
            }
            Volume::Scratch { .. } => make(&directory).map_err(failed)?,
            // A path of the machine, which `mounts` knows, or something that nothing is mounted of.
            Volume::Foreign => {}
        }
    }
    Ok(())
}

/// Directories by the path at which a container has them.
pub fn mounts(pod: &Pod, container: &Container, place: Place<'_>) -> Result<Vec<(PathBuf, PathBuf)>, Fault> {
    let mut mounts = Vec::new();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .unwrap_or_default()
            .iter()
            .find(|volume| volume.name == mount.name);
        let Some(volume) = volume else { continue };
        let on_machine = volume.host_path.as_ref();
        let is_text = volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some()
            || volume.empty_dir.is_some();
        let mut directory = match on_machine {
            Some(source) => {
                let directory = below(place.machine, &source.path);
                make(&directory).map_err(|error| failed(&directory, &error))?;
                directory
            }
            None if is_text => place.pod.join("volumes").join(&volume.name),
            None => {
                let message = format!(
                    "volume {:?} is of a kind that a process of the lab cannot mount: use a ConfigMap, a Secret, a projected \
                     volume, emptyDir or hostPath",
                    volume.name
                );
                return Err(Fault::new(FaultKind::Never, "FailedMount", message));
            }
        };
        if let Some(path) = mount.sub_path.as_deref().filter(|path| !path.is_empty()) {
            directory = below(&directory, path);
        }
        mounts.push((PathBuf::from(&mount.mount_path), directory));
    }
    Ok(mounts)
}

/// A path below a directory, whatever it says.
fn below(directory: &Path, path: &str) -> PathBuf {
    let parts = Path::new(path).components();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
    directory.join(parts.collect::<PathBuf>())
}

async fn bytes(host: &dyn Host, id: &PodId, file: &File) -> Result<Vec<u8>, Fault> {
    match &file.contents {
        Contents::Bytes(bytes) => Ok(bytes.to_vec()),
        Contents::Token(source) => Ok(host.token(id, source).await?.as_bytes().to_vec()),
    }
}

/// Contents and permission bits by path.
type Files = BTreeMap<String, (Vec<u8>, u32)>;

fn update(directory: &Path, files: &Files) -> io::Result<()> {
    make(directory)?;
    if is_current(directory, files) {
        return Ok(());
    }
    let before = fs::read_link(directory.join(DATA)).ok();
    let name = format!("..{:016x}", rand::random::<u64>());
    for (path, (contents, mode)) in files {
        let path = below(&directory.join(&name), path);
        if let Some(parent) = path.parent() {
            make(parent)?;
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            // Nobody but the user of the lab reads files of the lab.
            .mode(mode & 0o700)
            .open(&path)?;
        file.write_all(contents)?;
    }
    make(&directory.join(&name))?;
    let link = directory.join("..data_tmp");
    symlink(&name, &link)?;
    fs::rename(&link, directory.join(DATA))?;
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let shown: std::collections::BTreeSet<String> = files.keys().map(first).collect();
    for entry in fs::read_dir(directory)? {
        let entry = entry?.file_name().to_string_lossy().into_owned();
        if !entry.starts_with("..") && !shown.contains(&entry) {
            fs::remove_file(directory.join(entry))?;
        }
    }
    for entry in shown {
        let link = directory.join(&entry);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(&entry), link)?;
        }
    }
    match before {
        Some(before) => fs::remove_dir_all(directory.join(before)),
        None => Ok(()),
    }
}

/// Whether the directory shows these files, and no others.
fn is_current(directory: &Path, files: &Files) -> bool {
    let data = directory.join(DATA);
    let same = |(path, (contents, _)): (&String, &(Vec<u8>, u32))| {
        fs::read(below(&data, path)).is_ok_and(|present| present == *contents)
    };
    data.is_dir() && count(&data) == files.len() && files.iter().all(same)
}

fn count(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() {
                count(&entry.path())
            } else {
                1
            }
        })
        .sum()
}

/// Makes a directory that only the lab's user reads.
pub fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn failed(path: &Path, error: &io::Error) -> Fault {
    let message = format!("cannot write {}: {error}", path.display());
    Fault::new(FaultKind::Later, "FailedMount", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn files(pairs: &[(&str, &str)]) -> Files {
        let pairs = pairs.iter();
        pairs
            .map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o440)))
            .collect()
    }

    #[test]
    fn a_change_shows_all_at_once_and_leaves_nothing_old() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("volume");
        let read = |path: &str| fs::read_to_string(directory.join(path)).ok();
        update(&directory, &files(&[("a", "1"), ("deep/b", "2")])).unwrap();
        assert_eq!(
            (read("a"), read("deep/b")),
            (Some("1".to_owned()), Some("2".to_owned()))
        );
        let data = fs::read_link(directory.join(DATA)).unwrap();
        update(&directory, &files(&[("a", "1"), ("deep/b", "2")])).unwrap();
        assert_eq!(
            fs::read_link(directory.join(DATA)).unwrap(),
            data,
            "nothing has changed"
        );
        update(&directory, &files(&[("a", "3"), ("c", "4")])).unwrap();
        assert_eq!(
            (read("a"), read("deep/b"), read("c")),
            (Some("3".to_owned()), None, Some("4".to_owned()))
        );
        let mut left: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.retain(|name| !name.to_string_lossy().starts_with(".."));
        left.sort();
        assert_eq!(left, ["a", "c"]);
        assert!(!directory.join(data).exists());
    }

    #[rstest]
    #[case("/var/lib/evenkeel", "/m/var/lib/evenkeel")]
    #[case("../../etc", "/m/etc")]
    #[case("", "/m")]
    fn no_path_leads_out_of_the_machine(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(below(Path::new("/m"), path), Path::new(expected));
    }
}
