//! Programs about files.

use super::{Call, Ended, Stop};
use crate::fs::{Meta, Trouble};

impl Call<'_> {
    pub(super) async fn cd(&mut self) -> Ended {
        let home = self.state.environment.get("HOME");
        let to = self
            .arguments
            .first()
            .or(home)
            .map_or("/root", String::as_str)
            .to_owned();
        let path = self.path(&to);
        match self.session.view.stat(&path).await {
            Ok(meta) if meta.folder => {
                self.state.directory = path;
                Ok(0)
            }
            Ok(_) => Ok(self.trouble(&to, &Trouble::NotAFolder).await),
            Err(trouble) => Ok(self.trouble(&to, &trouble).await),
        }
    }

    pub(super) async fn ls(&mut self) -> Ended {
        let (letters, mut names) = self.options("laA1dhR")?;
        if names.is_empty() {
            names.push(".".to_owned());
        }
        let mut code = 0;
        let several = names.len() > 1;
        for name in names {
            let path = self.path(&name);
            let meta = match self.session.view.stat(&path).await {
                Ok(meta) => meta,
                Err(trouble) => {
                    code = self.trouble(&name, &trouble).await;
                    continue;
                }
            };
            if !meta.folder || letters.contains('d') {
                self.print(&line(&name, &meta, letters.contains('l'))).await?;
                continue;
            }
            if several {
                self.print(&format!("{name}:\n")).await?;
            }
            match self.session.view.list(&path).await {
                Ok(entries) => {
                    let hidden = letters.contains(['a', 'A']);
                    for (name, meta) in entries
                        .iter()
                        .filter(|(name, _)| hidden || !name.starts_with('.'))
                    {
                        self.print(&line(name, meta, letters.contains('l'))).await?;
                    }
                }
                Err(trouble) => code = self.trouble(&name, &trouble).await,
            }
        }
        Ok(code)
    }

    pub(super) async fn mkdir(&mut self) -> Ended {
        let (letters, names) = self.options("pm")?;
        let mut code = 0;
        for name in names {
            let path = self.path(&name);
            let made = if letters.contains('p') {
                self.session.view.make_all(&path).await
            } else {
                self.session.view.make(&path).await
            };
            if let Err(trouble) = made {
                code = self
                    .complain(&format!("can't create directory '{name}': {trouble}"))
                    .await;
            }
        }
        Ok(code)
    }

    pub(super) async fn rm(&mut self) -> Ended {
        let (letters, names) = self.options("rRfi")?;
        let folder = self.name == "rmdir";
        let mut code = 0;
        for name in names {
            let path = self.path(&name);
            if folder {
                let empty = match self.session.view.list(&path).await {
                    Ok(entries) if entries.is_empty() => Ok(()),
                    Ok(_) => Err(Trouble::NotEmpty),
                    Err(trouble) => Err(trouble),
                };
                if let Err(trouble) = empty {
                    code = self.complain(&format!("'{name}': {trouble}")).await;
                    continue;
                }
            }
            let recursive = folder || letters.contains(['r', 'R']);
            match self.session.view.remove(&path, recursive).await {
                Ok(()) => {}
                Err(Trouble::NotFound) if letters.contains('f') => {}
                Err(trouble) => code = self.complain(&format!("can't remove '{name}': {trouble}")).await,
            }
        }
        Ok(code)
    }

    pub(super) async fn touch(&mut self) -> Ended {
        let (_, names) = self.options("cam")?;
        let mut code = 0;
        for name in names {
            if let Err(trouble) = self.session.view.write(&self.path(&name), b"", true).await {
                code = self.trouble(&name, &trouble).await;
            }
        }
        Ok(code)
    }

    pub(super) async fn cp(&mut self) -> Ended {
        let (_, names) = self.options("fp")?;
        let [from, to] = names.as_slice() else {
            return Err(Stop::Failed(format!("usage: {} FILE FILE", self.name)));
        };
        let source = self.path(from);
        let mut target = self.path(to);
        if self
            .session
            .view
            .stat(&target)
            .await
            .is_ok_and(|meta| meta.folder)
        {
            let name = source.rsplit('/').next().unwrap_or("");
            target = format!("{}/{name}", target.trim_end_matches('/'));
        }
        if source == target {
            return Ok(self
                .complain(&format!("'{from}' and '{to}' are the same file"))
                .await);
        }
        let bytes = match self.session.view.read(&source).await {
            Ok(bytes) => bytes,
            Err(trouble) => return Ok(self.trouble(from, &trouble).await),
        };
        if let Err(trouble) = self.session.view.write(&target, &bytes, false).await {
            return Ok(self.trouble(to, &trouble).await);
        }
        if self.name == "mv"
            && let Err(trouble) = self.session.view.remove(&source, false).await
        {
            return Ok(self.trouble(from, &trouble).await);
        }
        Ok(0)
    }

    pub(super) async fn chmod(&mut self) -> Ended {
        let Some((mode, names)) = self.arguments.split_first() else {
            return Err(Stop::Failed("usage: chmod MODE FILE...".to_owned()));
        };
        let mut code = 0;
        for name in names {
            let path = self.path(name);
            let now = match self.session.view.stat(&path).await {
                Ok(meta) => meta.mode,
                Err(trouble) => {
                    code = self.trouble(name, &trouble).await;
                    continue;
                }
            };
            let wanted = match mode.as_str() {
                "+x" | "a+x" | "u+x" => now | 0o111,
                "-x" | "a-x" | "u-x" => now & !0o111,
                octal => u32::from_str_radix(octal, 8)
                    .map_err(|_| Stop::Failed(format!("invalid mode '{octal}': octal, +x or -x")))?,
            };
            if let Err(trouble) = self.session.view.allow(&path, wanted).await {
                code = self.trouble(name, &trouble).await;
            }
        }
        Ok(code)
    }

    pub(super) async fn test(&mut self) -> Ended {
        let mut words: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        if self.name == "[" && words.pop() != Some("]") {
            self.complain("missing ]").await;
            return Ok(2);
        }
        let mut negated = false;
        while words.len() > 1 && words.first() == Some(&"!") {
            negated = !negated;
            words.remove(0);
        }
        let truth = match words.as_slice() {
            [] => false,
            [word] => !word.is_empty(),
            ["-n", word] => !word.is_empty(),
            ["-z", word] => word.is_empty(),
            [operator @ ("-e" | "-f" | "-d" | "-s" | "-r" | "-w" | "-x"), path] => {
                let meta = self.session.view.stat(&self.path(path)).await;
                meta.is_ok_and(|meta| match *operator {
                    "-f" => !meta.folder,
                    "-d" => meta.folder,
                    "-s" => meta.size > 0,
                    "-x" => meta.mode & 0o111 != 0,
                    _ => true,
                })
            }
            ["-t", _] => self.session.tty.is_some(),
            [a, "=" | "==", b] => a == b,
            [a, "!=", b] => a != b,
            [a, operator, b] => {
                let (Ok(a), Ok(b)) = (a.trim().parse::<i64>(), b.trim().parse::<i64>()) else {
                    self.complain(&format!("bad number in {a:?} {operator} {b:?}"))
                        .await;
                    return Ok(2);
                };
                match *operator {
                    "-eq" => a == b,
                    "-ne" => a != b,
                    "-lt" => a < b,
                    "-le" => a <= b,
                    "-gt" => a > b,
                    "-ge" => a >= b,
                    _ => {
                        self.complain(&format!("{operator}: unknown operand")).await;
                        return Ok(2);
                    }
                }
            }
            _ => {
                self.complain("too many arguments").await;
                return Ok(2);
            }
        };
        Ok(i32::from(truth == negated))
    }
}

fn line(name: &str, meta: &Meta, long: bool) -> String {
    if !long {
        return format!("{name}\n");
    }
    let kind = if meta.folder { 'd' } else { '-' };
    let mut mode = String::from(kind);
    for bit in (0..9).rev() {
        let letter = ['x', 'w', 'r'].get(bit % 3).copied().unwrap_or('-');
        mode.push(if meta.mode >> bit & 1 == 1 { letter } else { '-' });
    }
    let at = meta.at.strftime("%b %e %H:%M");
    format!("{mode} 1 root root {:>8} {at} {name}\n", meta.size)
}
