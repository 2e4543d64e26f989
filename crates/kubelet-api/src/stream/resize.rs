//! Sizes of terminals, as JSON values one after the other.

use crate::TerminalSize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

/// A size takes some thirty bytes; what is longer is none.
const LONGEST: usize = 1024;

/// Passes sizes on until one is malformed or none come any more. A reader that is slow gets the newest.
pub(super) async fn forward(mut source: impl AsyncRead + Unpin, sizes: mpsc::Sender<TerminalSize>) {
    let mut text = Vec::with_capacity(128);
    let mut newest = None;
    loop {
        tokio::select! {
            permit = sizes.reserve(), if newest.is_some() => {
                // If nobody wants to know, the stream is read all the same, so that it holds up no other.
                if let (Ok(permit), Some(size)) = (permit, newest.take()) {
                    permit.send(size);
                }
            },
            read = source.read_buf(&mut text) => {
                if !matches!(read, Ok(1..)) || text.len() > LONGEST {
                    break;
                }
                match parse(&mut text) {
                    Ok(size) => newest = size.or(newest),
                    Err(error) => {
                        tracing::debug!(%error, "a client sent something that is no size of a terminal");
                        break;
                    }
                }
            }
        }
    }
    if let Some(size) = newest {
        // The last one counts; who does not listen does not care.
        let _ = sizes.send(size).await;
    }
    drop(sizes);
    let _ = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
}

/// Takes the complete sizes off the text and returns the newest.
fn parse(text: &mut Vec<u8>) -> Result<Option<TerminalSize>, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter();
    let mut newest = None;
    let mut complete = 0;
    while let Some(value) = values.next() {
        match value {
            Ok(size) => newest = Some(size),
            Err(error) if error.is_eof() => break,
            Err(error) => return Err(error),
        }
        complete = values.byte_offset();
    }
    text.drain(..complete);
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    const fn size(width: u16, height: u16) -> TerminalSize {
        TerminalSize { width, height }
    }

    #[tokio::test]
    async fn sizes_come_in_pieces_and_several_at_once() {
        let (mut client, server) = tokio::io::duplex(1024);
        let (sizes, mut read) = mpsc::channel(1);
        let forward = tokio::spawn(forward(server, sizes));
        client.write_all(br#"{"Width":80,"Hei"#).await.unwrap();
        client.write_all(br#"ght":24}"#).await.unwrap();
        assert_eq!(read.recv().await, Some(size(80, 24)));
        client
            .write_all(b"{\"Width\":1,\"Height\":2}\n{\"Width\":3,\"Height\":4}")
            .await
            .unwrap();
        drop(client);
        let mut last = None;
        while let Some(size) = read.recv().await {
            last = Some(size);
        }
        assert_eq!(last, Some(size(3, 4)));
        forward.await.unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_sleeps_holds_nothing_up() {
        let (mut client, server) = tokio::io::duplex(64);
        let (sizes, mut read) = mpsc::channel(1);
        let forward = tokio::spawn(forward(server, sizes));
        for width in 1..=1000 {
            let text = format!("{{\"Width\":{width},\"Height\":1}}");
            client.write_all(text.as_bytes()).await.unwrap();
        }
        drop(client);
        let mut last = None;
        while let Some(size) = read.recv().await {
            last = Some(size);
        }
        assert_eq!(last, Some(size(1000, 1)));
        forward.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_size_ends_sizes_but_is_read() {
        let (mut client, server) = tokio::io::duplex(64);
        let (sizes, mut read) = mpsc::channel(1);
        let forward = tokio::spawn(forward(server, sizes));
        client.write_all(&b"nonsense ".repeat(1000)).await.unwrap();
        drop(client);
        assert_eq!(read.recv().await, None);
        forward.await.unwrap();
    }
}
