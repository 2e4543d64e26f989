//! Programs that write and filter text.

use super::streams::Input;
use super::{Call, Ended, Stop};
use std::collections::VecDeque;

/// Most that `tail` keeps.
const KEPT: usize = 4 << 20;
/// What a line takes beside its bytes.
const PER_LINE: usize = 64;

impl Call<'_> {
    pub(super) async fn echo(&mut self) -> Ended {
        let mut arguments = self.arguments;
        let mut end = "\n";
        let mut escapes = false;
        while let Some((option, rest)) = arguments.split_first() {
            match option.as_str() {
                "-n" => end = "",
                "-e" => escapes = true,
                "-ne" | "-en" => (end, escapes) = ("", true),
                _ => break,
            }
            arguments = rest;
        }
        let text = arguments.join(" ");
        let text = if escapes { unescape(&text) } else { text };
        self.print(&format!("{text}{end}")).await?;
        Ok(0)
    }

    /// An input by its name, the standard input among them; a file that cannot be read is complained about.
    /// Inputs are opened one after the other, so that what is removed meanwhile is held by one of them at the
    /// most.
    async fn open(&self, name: &str, code: &mut i32) -> Option<Input> {
        if matches!(name, "" | "-") {
            return Some(self.streams.input.clone());
        }
        match self.session.view.read(&self.path(name)).await {
            Ok(bytes) => Some(Input::stream(std::io::Cursor::new(bytes))),
            Err(trouble) => {
                *code = self.trouble(name, &trouble).await;
                None
            }
        }
    }

    pub(super) async fn cat(&mut self) -> Ended {
        let (_, names) = self.options("uvnet")?;
        let mut code = 0;
        for name in inputs(&names) {
            if let Some(input) = self.open(name, &mut code).await {
                self.copy(&input, u64::MAX).await?;
            }
        }
        Ok(code)
    }

    async fn copy(&self, input: &Input, most: u64) -> Result<(), Stop> {
        let mut buffer = vec![0; 16 << 10];
        let mut left = most;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let Some(part) = buffer.get_mut(..want) else {
                break;
            };
            let count = input.read(part).await?;
            if count == 0 {
                break;
            }
            left -= count as u64;
            self.streams
                .output
                .write(part.get(..count).unwrap_or_default())
                .await?;
            self.session.step().await;
        }
        Ok(())
    }

    /// `-n 5`, `-n5`, `-5`, `-c 10`, `-c+10`: whether bytes, the sign, how many; and the operands.
    fn amount(&self) -> Result<(bool, bool, u64, Vec<String>), Stop> {
        let (mut bytes, mut from, mut count) = (false, false, 10);
        let mut names = Vec::new();
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some(option) = argument.strip_prefix('-').filter(|option| !option.is_empty()) else {
                names.push(argument.clone());
                continue;
            };
            let number = if let Some(rest) = option.strip_prefix(['n', 'c']) {
                bytes = option.starts_with('c');
                if rest.is_empty() {
                    arguments.next().map_or("", String::as_str)
                } else {
                    rest
                }
            } else {
                option
            };
            from = number.starts_with('+');
            count = number
                .trim_start_matches('+')
                .parse()
                .map_err(|_| Stop::Failed(format!("invalid number {number:?}")))?;
        }
        Ok((bytes, from, count, names))
    }

    pub(super) async fn head(&mut self) -> Ended {
        let (bytes, _, count, names) = self.amount()?;
        let mut code = 0;
        for name in inputs(&names) {
            let Some(input) = self.open(name, &mut code).await else {
                continue;
            };
            if bytes {
                self.copy(&input, count).await?;
                continue;
            }
            for _ in 0..count {
                let line = input.read_line().await?;
                if line.is_empty() {
                    break;
                }
                self.streams.output.write(&line).await?;
                self.session.step().await;
            }
        }
        Ok(code)
    }

    pub(super) async fn tail(&mut self) -> Ended {
        let (bytes, from, count, names) = self.amount()?;
        let mut code = 0;
        for name in inputs(&names) {
            let Some(input) = self.open(name, &mut code).await else {
                continue;
            };
            if from && bytes {
                let mut skip = vec![0; 16 << 10];
                let mut left = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
                while left > 0 {
                    let want = left.min(skip.len());
                    let read = input.read(skip.get_mut(..want).unwrap_or_default()).await?;
                    if read == 0 {
                        break;
                    }
                    left -= read;
                }
                self.copy(&input, u64::MAX).await?;
                continue;
            }
            if from {
                let mut skipped = 1;
                while skipped < count && !input.read_line().await?.is_empty() {
                    skipped += 1;
                }
                self.copy(&input, u64::MAX).await?;
                continue;
            }
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if bytes {
                self.last_bytes(&input, count.min(KEPT)).await?;
                continue;
            }
            let mut lines = VecDeque::new();
            let mut kept = 0;
            loop {
                let line = input.read_line().await?;
                if line.is_empty() {
                    break;
                }
                kept += PER_LINE + line.len();
                lines.push_back(line.into_boxed_slice());
                while kept > KEPT || lines.len() > count {
                    kept -= lines
                        .pop_front()
                        .map_or(kept, |line: Box<[u8]>| PER_LINE + line.len());
                }
                self.session.step().await;
            }
            for line in lines {
                self.streams.output.write(&line).await?;
                self.session.step().await;
            }
        }
        Ok(code)
    }

    async fn last_bytes(&self, input: &Input, count: usize) -> Result<(), Stop> {
        let mut last = VecDeque::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = input.read(&mut buffer).await?;
            if read == 0 {
                break;
            }
            last.extend(buffer.get(..read).unwrap_or_default());
            last.drain(..last.len().saturating_sub(count));
            self.session.step().await;
        }
        Ok(self.streams.output.write(last.make_contiguous()).await?)
    }

    pub(super) async fn wc(&mut self) -> Ended {
        let (letters, names) = self.options("lwcm")?;
        let mut code = 0;
        for name in inputs(&names) {
            let Some(input) = self.open(name, &mut code).await else {
                continue;
            };
            let (mut lines, mut words, mut bytes) = (0u64, 0u64, 0u64);
            loop {
                let line = input.read_line().await?;
                if line.is_empty() {
                    break;
                }
                bytes += line.len() as u64;
                lines += u64::from(line.ends_with(b"\n"));
                words += String::from_utf8_lossy(&line).split_whitespace().count() as u64;
                self.session.step().await;
            }
            let figures = [('l', lines), ('w', words), ('c', bytes)];
            let mut wanted: Vec<String> = figures
                .iter()
                .filter(|(letter, _)| letters.is_empty() || letters.replace('m', "c").contains(*letter))
                .map(|(_, figure)| figure.to_string())
                .collect();
            if !name.is_empty() {
                wanted.push(name.to_owned());
            }
            self.print(&format!("{}\n", wanted.join(" "))).await?;
        }
        Ok(code)
    }

    pub(super) async fn grep(&mut self) -> Ended {
        let (letters, names) = self.options("qvicFE")?;
        let Some((pattern, names)) = names.split_first() else {
            return Err(Stop::Failed("usage: grep [-qvic] TEXT [FILE]...".to_owned()));
        };
        let fold = |text: &str| {
            if letters.contains('i') {
                text.to_lowercase()
            } else {
                text.to_owned()
            }
        };
        let pattern = fold(pattern);
        let mut code = 0;
        let mut found = 0u64;
        for name in inputs(names) {
            let Some(input) = self.open(name, &mut code).await else {
                continue;
            };
            loop {
                let line = input.read_line().await?;
                if line.is_empty() {
                    break;
                }
                let text = fold(&String::from_utf8_lossy(&line));
                let text = text.trim_end_matches('\n');
                let hit = match (pattern.strip_prefix('^'), pattern.strip_suffix('$')) {
                    (Some(start), _) => text.starts_with(start),
                    (None, Some(end)) => text.ends_with(end),
                    (None, None) => text.contains(&pattern),
                };
                if hit != letters.contains('v') {
                    found += 1;
                    if !letters.contains(['q', 'c']) {
                        self.streams.output.write(&line).await?;
                    }
                }
                self.session.step().await;
            }
        }
        if letters.contains('c') {
            self.print(&format!("{found}\n")).await?;
        }
        Ok(if code == 0 { i32::from(found == 0) } else { 2 })
    }

    pub(super) async fn tee(&mut self) -> Ended {
        let (letters, names) = self.options("a")?;
        let mut code = 0;
        let mut paths = Vec::new();
        for name in names {
            let path = self.path(&name);
            match self.session.view.write(&path, b"", letters.contains('a')).await {
                Ok(()) => paths.push(path),
                Err(trouble) => code = self.trouble(&name, &trouble).await,
            }
        }
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = self.streams.input.read(&mut buffer).await?;
            let bytes = buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(code);
            }
            for path in &paths {
                if let Err(trouble) = self.session.view.write(path, bytes, true).await {
                    code = self.trouble(path, &trouble).await;
                }
            }
            self.streams.output.write(bytes).await?;
        }
    }
}

/// Names of inputs: the standard input where there are none.
fn inputs(names: &[String]) -> impl Iterator<Item = &str> {
    let standard = names.is_empty().then_some("");
    names.iter().map(String::as_str).chain(standard)
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('0') => out.push('\0'),
            Some('e') => out.push('\u{1b}'),
            Some('a') => out.push('\u{7}'),
            Some('\\') => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}
