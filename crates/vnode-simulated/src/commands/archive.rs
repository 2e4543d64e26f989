//! `tar` as `kubectl cp` calls it: an archive from the input, or to the output.

use super::{Call, Ended, Stop};
use crate::fs::{Meta, absolute};
use tar::{EntryType, Header};

const BLOCK: usize = 512;
/// Longest name that an extension may bring.
const NAME: u64 = 64 << 10;

#[derive(Default)]
struct Wanted {
    create: bool,
    extract: bool,
    list: bool,
    verbose: bool,
    directory: String,
    file: String,
    names: Vec<String>,
}

impl Call<'_> {
    pub(super) async fn tar(&mut self) -> Ended {
        let wanted = self.wanted()?;
        if !matches!(wanted.file.as_str(), "" | "-") {
            return Err(Stop::Failed(format!("{}: only `-f -` is simulated", wanted.file)));
        }
        if wanted.create {
            return self.pack(&wanted).await;
        }
        if wanted.extract || wanted.list {
            return self.unpack(&wanted).await;
        }
        Err(Stop::Failed("need one of -c, -x, -t".to_owned()))
    }

    fn wanted(&self) -> Result<Wanted, Stop> {
        let mut wanted = Wanted {
            directory: self.state.directory.clone(),
            ..Wanted::default()
        };
        let mut arguments = self.arguments.iter().enumerate();
        while let Some((index, argument)) = arguments.next() {
            if argument.starts_with("--") {
                continue;
            }
            let letters = match argument.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => letters,
                // The first argument needs no dash.
                _ if index == 0 => argument,
                _ => {
                    wanted.names.push(argument.clone());
                    continue;
                }
            };
            for letter in letters.chars() {
                let mut value = || {
                    let next = arguments.next().map(|(_, value)| value.clone());
                    next.ok_or_else(|| Stop::Failed(format!("option requires an argument: {letter}")))
                };
                match letter {
                    'c' => wanted.create = true,
                    'x' => wanted.extract = true,
                    't' => wanted.list = true,
                    'v' => wanted.verbose = true,
                    'f' => wanted.file = value()?,
                    'C' => wanted.directory = self.path(&value()?),
                    'm' | 'p' | 'o' | 'h' => {}
                    other => return Err(Stop::Failed(format!("unrecognized option: {other}"))),
                }
            }
        }
        Ok(wanted)
    }

    async fn pack(&self, wanted: &Wanted) -> Ended {
        let mut code = 0;
        let mut left: Vec<String> = wanted.names.iter().rev().cloned().collect();
        while let Some(name) = left.pop() {
            let path = absolute(&wanted.directory, &name);
            let meta = match self.session.view.stat(&path).await {
                Ok(meta) => meta,
                Err(trouble) => {
                    code = self.trouble(&name, &trouble).await;
                    continue;
                }
            };
            let stored = name.trim_start_matches('/').to_owned();
            if meta.folder {
                let entries = self.session.view.list(&path).await.unwrap_or_default();
                for (entry, _) in entries.iter().rev() {
                    left.push(format!("{}/{entry}", name.trim_end_matches('/')));
                }
                if !stored.is_empty() {
                    self.entry(&format!("{}/", stored.trim_end_matches('/')), &meta, &[])
                        .await?;
                }
            } else {
                match self.session.view.read(&path).await {
                    Ok(bytes) => self.entry(&stored, &meta, &bytes).await?,
                    Err(trouble) => code = self.trouble(&name, &trouble).await,
                }
            }
            self.session.step().await;
        }
        self.streams.output.write(&[0; 2 * BLOCK]).await?;
        Ok(code)
    }

    async fn entry(&self, name: &str, meta: &Meta, bytes: &[u8]) -> Result<(), Stop> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_entry_type(if meta.folder {
            EntryType::Directory
        } else {
            EntryType::Regular
        });
        header.set_mode(meta.mode);
        header.set_mtime(u64::try_from(meta.at.as_second()).unwrap_or(0));
        header.set_size(bytes.len() as u64);
        archive
            .append_data(&mut header, name, std::io::empty())
            .map_err(|error| Stop::Failed(format!("{name}: {error}")))?;
        // The builder has not ended the archive yet: its end comes once, after all entries.
        let packed = std::mem::take(archive.get_mut());
        self.streams.output.write(&packed).await?;
        for part in bytes.chunks(64 << 10) {
            self.streams.output.write(part).await?;
            self.session.step().await;
        }
        let over = bytes.len() % BLOCK;
        if over > 0 {
            let padding = [0; BLOCK];
            self.streams
                .output
                .write(padding.get(over..).unwrap_or_default())
                .await?;
        }
        Ok(())
    }

    async fn unpack(&self, wanted: &Wanted) -> Ended {
        let mut code = 0;
        let mut long: Option<String> = None;
        loop {
            let mut block = [0u8; BLOCK];
            let count = self.streams.input.read_full(&mut block).await?;
            if count == 0 || block.iter().all(|byte| *byte == 0) {
                // What follows the end is padding.
                let mut rest = vec![0; 16 << 10];
                while self.streams.input.read(&mut rest).await? > 0 {}
                return Ok(code);
            }
            let header = Header::from_byte_slice(&block);
            let sum: u32 = block
                .iter()
                .enumerate()
                .map(|(at, byte)| {
                    if (148..156).contains(&at) {
                        32
                    } else {
                        u32::from(*byte)
                    }
                })
                .sum();
            if count < BLOCK || header.cksum().ok() != Some(sum) {
                return Err(Stop::Failed("this does not look like a tar archive".to_owned()));
            }
            let size = header
                .entry_size()
                .map_err(|error| Stop::Failed(error.to_string()))?;
            let kind = header.entry_type();
            if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
                let bytes = self.body(size.min(NAME + 1), size).await?;
                if size > NAME {
                    return Err(Stop::Failed("a name is too long".to_owned()));
                }
                long = if kind.is_gnu_longname() {
                    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
                } else {
                    let mut records = tar::PaxExtensions::new(&bytes).filter_map(Result::ok);
                    let path = records.find(|record| record.key_bytes() == b"path");
                    path.map(|record| String::from_utf8_lossy(record.value_bytes()).into_owned())
                };
                continue;
            }
            let name = long
                .take()
                .unwrap_or_else(|| String::from_utf8_lossy(&header.path_bytes()).into_owned());
            if wanted.list || wanted.verbose {
                self.print(&format!("{name}\n")).await?;
            }
            if wanted.list {
                self.body(0, size).await?;
                continue;
            }
            let path = absolute(&wanted.directory, name.trim_start_matches('/'));
            if name.split('/').any(|part| part == "..") {
                code = self
                    .complain(&format!("{name}: a path with `..` is not unpacked"))
                    .await;
                self.body(0, size).await?;
                continue;
            }
            match kind {
                EntryType::Directory => {
                    if let Err(trouble) = self.session.view.make_all(&path).await {
                        code = self.trouble(&name, &trouble).await;
                    }
                }
                EntryType::Regular | EntryType::Continuous => {
                    if !self
                        .unpack_file(&path, &name, size, header.mode().unwrap_or(0o644))
                        .await?
                    {
                        code = 1;
                    }
                }
                EntryType::XGlobalHeader => {
                    self.body(0, size).await?;
                }
                _ => {
                    code = self
                        .complain(&format!("{name}: links and devices are not simulated"))
                        .await;
                    self.body(0, size).await?;
                }
            }
        }
    }

    /// Whether it was stored; it is read in any case.
    async fn unpack_file(&self, path: &str, name: &str, size: u64, mode: u32) -> Result<bool, Stop> {
        let view = &self.session.view;
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let mut state = match view.make_all(parent).await {
            Ok(()) => view.write(path, b"", false).await,
            trouble => trouble,
        };
        let mut left = size;
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..want).unwrap_or_default();
            if self.streams.input.read_full(part).await? < want {
                return Err(Stop::Failed("short read".to_owned()));
            }
            left -= want as u64;
            if state.is_ok() {
                state = view.write(path, part, true).await;
            }
            self.session.step().await;
        }
        self.padding(size).await?;
        if state.is_ok() {
            state = view.allow(path, mode).await;
        }
        match state {
            Ok(()) => Ok(true),
            Err(trouble) => {
                self.trouble(name, &trouble).await;
                Ok(false)
            }
        }
    }

    /// Reads an entry's bytes, of which the first are kept, and the padding after them.
    async fn body(&self, keep: u64, size: u64) -> Result<Vec<u8>, Stop> {
        let mut kept = Vec::new();
        let mut left = size;
        let mut buffer = vec![0; 16 << 10];
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..want).unwrap_or_default();
            if self.streams.input.read_full(part).await? < want {
                return Err(Stop::Failed("short read".to_owned()));
            }
            left -= want as u64;
            let room = usize::try_from(keep)
                .unwrap_or(usize::MAX)
                .saturating_sub(kept.len());
            kept.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
        }
        self.padding(size).await?;
        Ok(kept)
    }

    async fn padding(&self, size: u64) -> Result<(), Stop> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        if over > 0 {
            let mut rest = [0; BLOCK];
            self.streams
                .input
                .read_full(rest.get_mut(..BLOCK - over).unwrap_or_default())
                .await?;
        }
        Ok(())
    }
}
