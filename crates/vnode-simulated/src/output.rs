//! Output of containers as streams.

use super::log::Cursor;
use super::{Inner, Simulated};
use bytes::Bytes;
use evenkeel_vnode::provider::{ContainerId, Fault, LogOptions, LogStream, PodId};
use futures::StreamExt;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How much a reader is given at once.
const CHUNK: usize = 16 << 10;

/// A reader of a container's output.
struct Reader {
    inner: Arc<Inner>,
    uid: Arc<str>,
    number: u64,
    cursor: Cursor,
    timestamps: bool,
    follow: bool,
    /// Bytes that may still be given.
    left: u64,
    over: bool,
}

/// What comes next of a container's output.
struct Batch {
    bytes: Vec<u8>,
    /// It has ended, and all was read.
    over: bool,
    /// When the next line is due.
    due: Option<Timestamp>,
    /// Told of changes.
    changed: Option<Arc<Notify>>,
}

impl Simulated {
    pub(super) fn read_logs(
        &self,
        pod: &PodId,
        container: &ContainerId,
        options: &LogOptions,
    ) -> Result<LogStream, Fault> {
        let inner = self.0.clone();
        let number = inner.number(pod, container)?;
        let now = inner.now();
        let cursor = {
            let mut table = inner.table();
            let (record, _) = table.pod(&pod.uid).ok_or_else(|| super::no_pod(pod))?;
            let name = record.id.name.clone();
            let instance = record
                .instance(number)
                .ok_or_else(|| super::no_container(pod, &container.0))?;
            instance.output(&name, now).begin(options.since, options.tail)
        };
        let reader = Reader {
            inner,
            uid: pod.uid.clone(),
            number,
            cursor,
            timestamps: options.timestamps,
            follow: options.follow,
            left: options.limit.unwrap_or(u64::MAX),
            over: false,
        };
        Ok(futures::stream::unfold(reader, |mut reader| async move {
            let bytes = reader.next().await?;
            Some((Ok(Bytes::from(bytes)), reader))
        })
        .boxed())
    }
}

impl Reader {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.over || self.left == 0 {
                return None;
            }
            let mut batch = self.batch()?;
            if !batch.bytes.is_empty() {
                let left = usize::try_from(self.left).unwrap_or(usize::MAX);
                batch.bytes.truncate(left);
                self.left -= batch.bytes.len() as u64;
                return Some(batch.bytes);
            }
            if batch.over || !self.follow {
                self.over = true;
                return None;
            }
            let wait = batch.due.map_or(Duration::from_secs(3600), |due| {
                Duration::try_from(due.duration_since(self.inner.now())).unwrap_or_default()
            });
            let wait = wait.max(Duration::from_micros(100));
            match batch.changed {
                Some(changed) => {
                    // Hears of changes from its making on, so none is missed between the second look and the
                    // wait.
                    let notified = changed.notified();
                    if self.batch_is_empty() {
                        tokio::select! {
                            () = notified => {}
                            () = tokio::time::sleep(wait) => {}
                        }
                    }
                }
                None => tokio::time::sleep(wait).await,
            }
        }
    }

    fn batch_is_empty(&mut self) -> bool {
        let before = self.cursor;
        let empty = self
            .batch()
            .is_some_and(|batch| batch.bytes.is_empty() && !batch.over);
        self.cursor = before;
        empty
    }

    fn batch(&mut self) -> Option<Batch> {
        let now = self.inner.now();
        let mut table = self.inner.table();
        let (record, _) = table.pod(&self.uid)?;
        let name = record.id.name.clone();
        let instance = record.instance(self.number)?;
        let changed = (self.follow && instance.ended.is_none()).then(|| instance.live().changed.clone());
        let output = instance.output(&name, now);
        let mut bytes = Vec::new();
        while bytes.len() < CHUNK
            && let Some((at, line)) = output.next(&mut self.cursor)
        {
            if self.timestamps {
                bytes.extend_from_slice(stamp(at).as_bytes());
                bytes.push(b' ');
            }
            bytes.extend_from_slice(&line);
        }
        let over = bytes.is_empty() && instance.ended.is_some();
        Some(Batch {
            over,
            due: output.due(&self.cursor),
            changed,
            bytes,
        })
    }
}

/// RFC 3339 with nanoseconds, all nine digits.
fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}
