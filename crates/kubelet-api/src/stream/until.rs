//! The end of a node, and what is waited for then.

use super::super::Node;
use axum::extract::Request;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// For how long streams may say goodbye when their node is served here no more.
const GOODBYE: Duration = Duration::from_secs(5);

/// Streams of a request, which are waited for from the moment of the request on.
pub(super) struct Task {
    /// The node is served here no more.
    pub(super) closing: CancellationToken,
    _waited_for: Option<TaskTrackerToken>,
}

impl Task {
    /// Of the node that the request was made to; without one they last for ever.
    pub(super) fn of(request: &Request) -> Self {
        let node = request.extensions().get::<Node>();
        Self {
            closing: node.map(|node| node.term.stop().clone()).unwrap_or_default(),
            _waited_for: node.map(|node| node.streams.token()),
        }
    }

    /// Does the work, which ends by itself when the node is closed, and is cut if it does not.
    pub(super) async fn run(self, work: impl Future<Output = ()>) {
        let late = async {
            self.closing.cancelled().await;
            tokio::time::sleep(GOODBYE).await;
        };
        tokio::select! {
            () = work => {}
            () = late => tracing::debug!("cutting streams that did not end with their node"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use tokio_util::task::TaskTracker;

    #[tokio::test(start_paused = true)]
    async fn streams_that_do_not_end_with_their_node_are_cut_and_waited_for() {
        let node = Node {
            name: "n".into(),
            term: crate::Term::default(),
            streams: TaskTracker::new(),
        };
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(node.clone());
        let task = Task::of(&request);
        node.streams.close();
        assert_eq!(node.streams.len(), 1);
        tokio::spawn(task.run(std::future::pending()));
        tokio::time::sleep(10 * GOODBYE).await;
        assert_eq!(node.streams.len(), 1);
        node.term.stop().cancel();
        tokio::time::timeout(2 * GOODBYE, node.streams.wait())
            .await
            .expect("it is cut");
    }
}
