//! A write in flight as its caller holds it: first as a future response, then as its body.

use super::GateClosed;
use super::registry::Ticket;
use super::slot::{Slot, Work};
use futures::FutureExt as _;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::BoxError;

/// The response body of a write. While it is neither read to its end nor dropped, the write is in flight;
/// when the gate closes, reading it gives [`GateClosed`].
pub struct WriteBody<B>(Write<B>);

impl<B> WriteBody<B> {
    pub(super) fn new(write: Write<B>) -> Self {
        Self(write)
    }
}

impl<B> fmt::Debug for WriteBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBody")
            .field("in_flight", &self.0.ticket.is_some())
            .finish_non_exhaustive()
    }
}

impl<B> Body for WriteBody<B>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        self.0.poll_with(cx, poll_body).map(|frame| match frame {
            Ok(frame) => frame.flatten(),
            Err(closed) => Some(Err(closed.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.ticket.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.0.ticket.is_none() {
            return SizeHint::with_exact(0);
        }
        let hint = self.0.slot.peek(|work| match work {
            Work::Body(body) => body.size_hint(),
            Work::Request(_) => SizeHint::default(),
        });
        hint.unwrap_or_default()
    }
}

/// The result of one poll of a write.
pub(super) struct Step<T> {
    result: Poll<T>,
    /// Whether the write is complete.
    over: bool,
}

/// Polls the request for the response head.
pub(super) fn poll_head<B: Body>(
    work: &mut Work<B>,
    cx: &mut Context<'_>,
) -> Step<Result<Response<()>, BoxError>> {
    let Work::Request(answer) = work else {
        return Step {
            result: Poll::Pending,
            over: false,
        };
    };
    match answer.poll_unpin(cx) {
        Poll::Pending => Step {
            result: Poll::Pending,
            over: false,
        },
        Poll::Ready(Err(error)) => Step {
            result: Poll::Ready(Err(error)),
            over: true,
        },
        Poll::Ready(Ok(response)) => {
            let (parts, body) = response.into_parts();
            // The gate does not follow an upgraded connection. An empty body needs no further poll.
            let over = parts.status == StatusCode::SWITCHING_PROTOCOLS || body.is_end_stream();
            *work = Work::Body(Box::pin(body));
            Step {
                result: Poll::Ready(Ok(Response::from_parts(parts, ()))),
                over,
            }
        }
    }
}

type FrameOf<B> = Option<Result<Frame<<B as Body>::Data>, BoxError>>;

/// Polls the body for its next frame.
fn poll_body<B>(work: &mut Work<B>, cx: &mut Context<'_>) -> Step<FrameOf<B>>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let Work::Body(body) = work else {
        return Step {
            result: Poll::Ready(None),
            over: true,
        };
    };
    let result = body.as_mut().poll_frame(cx);
    let over = match &result {
        Poll::Pending => false,
        Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
        Poll::Ready(Some(Err(_)) | None) => true,
    };
    Step {
        result: result.map(|frame| frame.map(|frame| frame.map_err(Into::into))),
        over,
    }
}

/// A caller's handle of its write in flight.
pub(super) struct Write<B> {
    slot: Arc<Slot<B>>,
    /// `None` once the write is over.
    ticket: Option<Ticket>,
}

impl<B> Write<B> {
    pub(super) fn new(slot: Arc<Slot<B>>, ticket: Ticket) -> Self {
        Self {
            slot,
            ticket: Some(ticket),
        }
    }

    /// Polls the write once if the gate is open. `Ok(None)` when the write was over before.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Work<B>, &mut Context<'_>) -> Step<T>,
    ) -> Poll<Result<Option<T>, GateClosed>> {
        let Some(ticket) = &self.ticket else {
            return Poll::Ready(Ok(None));
        };
        let Some(mut taken) = self.slot.take() else {
            return self.closed();
        };
        if !ticket.is_valid() {
            drop(taken);
            return self.closed();
        }
        ticket.wake_at_expiry();
        let Some(work) = taken.work() else {
            drop(taken);
            return self.closed();
        };
        let Step { result, over } = step(work, cx);
        if over {
            drop(taken);
            self.ticket = None;
            return result.map(|value| Ok(Some(value)));
        }
        let waker = result.is_pending().then(|| cx.waker());
        if taken.put_back(waker) {
            result.map(|value| Ok(Some(value)))
        } else {
            self.closed()
        }
    }

    fn closed<T>(&mut self) -> Poll<Result<T, GateClosed>> {
        self.ticket = None;
        Poll::Ready(Err(GateClosed))
    }
}

impl<B> Drop for Write<B> {
    fn drop(&mut self) {
        // The work is dropped first and its entry, the ticket, after it: a thread that closes the gate
        // meanwhile finds the entry and waits until the work is dropped.
        if self.ticket.is_some() {
            drop(self.slot.take());
        }
    }
}
