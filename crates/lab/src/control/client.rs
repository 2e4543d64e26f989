//! The client's side of the control socket.

use super::{Fault, Reply, Request, status::Status};
use crate::directory::control_socket;
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{UnixStream, unix::OwnedReadHalf},
};

/// A lab that says nothing for so long does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(
        "no lab takes orders in {dir}: start one with `evenkeel lab` and wait until it is up, or name its \
         directory with --dir"
    )]
    NoLab { dir: PathBuf },
    /// The lab says no.
    #[error("{0}")]
    Refused(String),
    /// The lab cannot be spoken to.
    #[error("cannot speak to the lab in {dir}: {source}")]
    Broken {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl ControlError {
    /// Whether another command line would help: exit code 2.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoLab { .. } | Self::Refused(_))
    }
}

/// Has the lab in `dir` do something; returns what it says.
pub async fn inflict(dir: &Path, fault: Fault) -> Result<String, ControlError> {
    match send(dir, &Request::Inflict(fault)).await? {
        Reply::Done(said) => Ok(said),
        Reply::Refused(why) => Err(ControlError::Refused(why)),
        Reply::Status(_) => Err(broken(dir, io::ErrorKind::InvalidData.into())),
    }
}

/// How the lab in `dir` is.
pub async fn status(dir: &Path) -> Result<Status, ControlError> {
    match send(dir, &Request::Status).await? {
        Reply::Status(status) => Ok(status),
        Reply::Refused(why) => Err(ControlError::Refused(why)),
        Reply::Done(_) => Err(broken(dir, io::ErrorKind::InvalidData.into())),
    }
}

/// Shows how the lab in `dir` is, whenever it changed, until the lab ends.
pub async fn watch(dir: &Path, mut show: impl FnMut(Status) -> io::Result<()>) -> Result<(), ControlError> {
    let mut lines = open(dir, &Request::Watch).await?;
    while let Some(line) = lines.next_line().await.map_err(|source| broken(dir, source))? {
        if let Reply::Status(status) = parse(dir, &line)? {
            show(status).map_err(|source| broken(dir, source))?;
        }
    }
    Ok(())
}

async fn send(dir: &Path, request: &Request) -> Result<Reply, ControlError> {
    let mut lines = open(dir, request).await?;
    let line = tokio::time::timeout(ANSWER_WITHIN, lines.next_line())
        .await
        .map_err(|_| broken(dir, io::ErrorKind::TimedOut.into()))?
        .map_err(|source| broken(dir, source))?
        .ok_or_else(|| broken(dir, io::ErrorKind::UnexpectedEof.into()))?;
    parse(dir, &line)
}

async fn open(dir: &Path, request: &Request) -> Result<Lines<BufReader<OwnedReadHalf>>, ControlError> {
    let stream = UnixStream::connect(control_socket(dir))
        .await
        .map_err(|source| match source.kind() {
            // A socket file without a listener is what a killed lab leaves.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
                ControlError::NoLab { dir: dir.to_owned() }
            }
            _ => broken(dir, source),
        })?;
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_vec(request).map_err(|error| broken(dir, io::Error::other(error)))?;
    line.push(b'\n');
    write
        .write_all(&line)
        .await
        .map_err(|source| broken(dir, source))?;
    // Closing our half would end a watch; the lab answers one line for each of ours and needs no end.
    write.forget();
    Ok(BufReader::new(read).lines())
}

fn parse(dir: &Path, line: &str) -> Result<Reply, ControlError> {
    serde_json::from_str(line).map_err(|error| broken(dir, io::Error::other(error)))
}

fn broken(dir: &Path, source: io::Error) -> ControlError {
    ControlError::Broken {
        dir: dir.to_owned(),
        source,
    }
}
