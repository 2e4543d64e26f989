//! Whether a file is the node's own: nobody changes it who could not run commands there anyhow.

use evenkeel_net::file::effective_uid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Of a path that runs through these the API server fills the files.
const VOLUMES: &str = "kubernetes.io~";

/// Who could change what the file says, for people; `None`: root and this user alone.
pub(crate) fn who_else_writes(path: &Path) -> Option<String> {
    look(path).unwrap_or_else(|error| Some(format!("whoever keeps it from being looked at ({error})")))
}

fn look(path: &Path) -> io::Result<Option<String>> {
    let path = path.canonicalize()?;
    let own = effective_uid()?;
    // Who may write a directory may put another file there; a sticky one keeps others' files as they are.
    for part in path.ancestors() {
        let found = part.metadata()?;
        let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
        if found.uid() != own && found.uid() != 0 {
            return Ok(Some(format!(
                "user {} (who owns {})",
                found.uid(),
                part.display()
            )));
        }
        if found.mode() & 0o022 != 0 && !is_sticky {
            let mode = found.mode() & 0o7777;
            return Ok(Some(format!(
                "others (by the mode {mode:04o} of {})",
                part.display()
            )));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let text = path.to_string_lossy();
    if is_of_a_volume(&text) || is_of_a_volume(mounted_from(&mounts, &text)) {
        return Ok(Some(
            "whoever may change the object that fills this volume".to_owned(),
        ));
    }
    Ok(None)
}

/// A kubelet writes ConfigMaps, Secrets and projected volumes into a directory with a time in its name, and
/// links to it from `..data`; with `subPath` it mounts a file out of there.
fn is_of_a_volume(path: &str) -> bool {
    path.split('/')
        .any(|part| part.starts_with("..") || part.starts_with(VOLUMES))
}

/// Where in its file system the mount begins that a path is on (proc_pid_mountinfo(5): the fourth field, by
/// the longest of the fifth).
fn mounted_from<'a>(mounts: &'a str, path: &str) -> &'a str {
    let is_on = |point: &str| {
        let rest = path.strip_prefix(point.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        Some((fields.next()?, fields.next()?))
    });
    let on = fields.filter(|(_, point)| is_on(point));
    // Of two at the same point the later one hides the earlier one.
    on.max_by_key(|(_, point)| point.len())
        .map_or("", |(root, _)| root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const MOUNTS: &str = "\
22 1 0:1 / / rw - overlay overlay rw
23 22 8:1 /etc/evenkeel /host rw - ext4 /dev/vda rw
24 22 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~configmap/c/..2026_11/agent.yaml /etc/agent.yaml rw - ext4 /dev/vda rw
25 22 0:9 /..2026_11/agent.yaml /etc/secret.yaml ro - tmpfs tmpfs rw
";

    #[rstest]
    #[case("/etc/agent.yaml", true)]
    #[case("/etc/secret.yaml", true)]
    #[case("/host/agent.yaml", false)]
    #[case("/hostile/agent.yaml", false)]
    #[case("/etc/other.yaml", false)]
    fn what_a_kubelet_mounts_out_of_a_volume_is_known(#[case] path: &str, #[case] expected: bool) {
        assert_eq!(is_of_a_volume(mounted_from(MOUNTS, path)), expected);
    }
}
