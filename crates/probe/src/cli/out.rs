//! Standard output, whose reader may go away.

use std::io::{self, ErrorKind, Write as _};

/// Whether somebody still reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// As far as known.
    There,
    /// The pipe is closed.
    Gone,
}

/// Writes at once.
pub(super) fn put(text: &str) -> io::Result<Reader> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error),
    }
}

/// Asks without writing.
pub(super) fn reader() -> Reader {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd as _;
    let out = io::stdout();
    let mut asked = [PollFd::new(out.as_fd(), PollFlags::empty())];
    // A question that cannot be asked is answered by the next write.
    let gone = poll(&mut asked, PollTimeout::ZERO).is_ok()
        && asked[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLERR));
    if gone { Reader::Gone } else { Reader::There }
}
