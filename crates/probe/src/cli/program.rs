//! Whether a command can be run on this machine, before it is.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The file that a command's first word means: a path, or a name on the PATH. `Err` says what is wrong.
pub(super) fn find(program: &str) -> Result<PathBuf, String> {
    if program.is_empty() {
        return Err("the command is empty; give a program and its arguments".to_owned());
    }
    if program.contains('/') {
        return check(Path::new(program)).map(|()| program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| check(file).is_ok())
        .ok_or_else(|| format!("{program:?} is not on the PATH of this machine; give the program's path"))
}

fn check(file: &Path) -> Result<(), String> {
    let shown = file.display();
    let found = file
        .metadata()
        .map_err(|error| format!("{shown} cannot be run: {error}; give a program of this machine"))?;
    if !found.is_file() {
        return Err(format!(
            "{shown} cannot be run: it is no file; give a program of this machine"
        ));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(format!(
            "{shown} cannot be run: it is not executable; `chmod +x` it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_path_and_by_name() {
        assert_eq!(find("/bin/sh"), Ok("/bin/sh".into()));
        assert!(find("sh").unwrap().ends_with("sh"));
    }

    #[test]
    fn what_cannot_be_run_is_named_with_the_reason() {
        for (program, reason) in [
            ("", "empty"),
            ("/no/such/program", "No such file"),
            ("no-such-program-anywhere", "PATH"),
            ("/etc", "no file"),
            ("/etc/passwd", "not executable"),
        ] {
            let error = find(program).unwrap_err();
            assert!(error.contains(reason), "{program}: {error}");
        }
    }
}
