//! Paths of files in a volume, by the rules (and in the words) of the kubelet's atomic writer.

use super::{File, Files};

const MOST_PATH: usize = 4096;
const MOST_NAME: usize = 255;

/// Files by clean paths, none of which leads out of the volume or through another file.
pub(super) fn cleaned(files: Files) -> Result<Files, String> {
    let mut cleaned = Files::new();
    for (path, file) in files {
        insert(&mut cleaned, &path, file)?;
    }
    for path in cleaned.keys() {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        for parent in parents {
            if cleaned.contains_key(parent) {
                return Err(format!(
                    "invalid path: {parent} is a file and a directory: {path}"
                ));
            }
        }
    }
    Ok(cleaned)
}

fn insert(files: &mut Files, path: &str, file: File) -> Result<(), String> {
    check(path)?;
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let clean = parts.collect::<Vec<_>>().join("/");
    if clean.is_empty() {
        return Err(format!("invalid path: must name a file: {path}"));
    }
    files.insert(clean, file);
    Ok(())
}

fn check(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err("invalid path: must not be empty: \"\"".to_owned());
    }
    if path.starts_with('/') {
        return Err(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > MOST_PATH {
        return Err(format!(
            "invalid path: must be less than or equal to {MOST_PATH} characters"
        ));
    }
    for part in path.split('/') {
        if part == ".." {
            return Err(format!("invalid path: must not contain '..': {path}"));
        }
        if part.len() > MOST_NAME {
            return Err(format!(
                "invalid path: filenames must be less than or equal to {MOST_NAME} characters"
            ));
        }
    }
    // The writer's own names begin so.
    if path.starts_with("..") {
        return Err(format!("invalid path: must not start with '..': {path}"));
    }
    Ok(())
}
