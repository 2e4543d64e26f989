//! What a node's machine asks for.

use super::actor::{Actor, template};
use super::{Message, panic_text};
use crate::core::lease::Answer;
use crate::core::node::{Action, Input, Refused};
use futures::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

impl Actor {
    /// Passes it to the node's machine, and does what that asks for.
    pub(super) fn step_node(&mut self, input: Input) {
        if let Input::Pinged(result) = &input {
            self.handle.heard();
            self.fault = result.as_ref().err().map(|fault| fault.message.as_str().into());
        }
        let now = self.common.clock.now();
        let actions = self.node.step(&self.common.options.nodes, input, now);
        for action in actions {
            self.perform_node(action);
        }
        self.judge();
    }

    /// Says whether the node is well.
    fn judge(&mut self) {
        self.handle.set_registered(self.node.uid().is_some());
        let ready = self.node.is_ready();
        if ready != self.ready {
            self.common.metrics.nodes_ready(if ready { 1 } else { -1 });
            self.ready = ready;
        }
        let why: Option<Arc<str>> = match (&self.fault, ready) {
            (_, true) => None,
            (Some(fault), false) => Some(fault.clone()),
            (None, false) => Some("the node is not registered yet, or says that it is not ready".into()),
        };
        if self.handle.ill() != why {
            self.handle.set_ill(why);
        }
    }

    fn perform_node(&mut self, action: Action) {
        match action {
            Action::Ping => {
                let (provider, node) = (self.common.provider.clone(), self.handle.name.clone());
                let deadline = self.common.options.nodes.ping_timeout;
                let (calls, handle) = (self.calls.clone(), self.handle.clone());
                self.calls.spawn("a ping", async move {
                    let call = async move { provider.ping(&node).await };
                    let result = calls.run("ping", deadline, call).await;
                    handle.send(Message::Node(Box::new(Input::Pinged(result))));
                });
            }
            Action::Register(_) | Action::Post(_) | Action::Lease(_) => self.write_node(action),
            Action::Record(reason, message) => {
                self.common.events.about_node(&self.handle.name, &reason, message);
            }
            Action::Wake(delay) => {
                let timer = crate::fleet::wheel::Timer::Node;
                self.common.wheel.set(&self.handle, timer, delay);
            }
        }
    }

    fn write_node(&self, action: Action) {
        let (node_writer, handle) = (self.node_writer.clone(), self.handle.clone());
        let lease = matches!(action, Action::Lease(_));
        self.calls.spawn("a write of a node", async move {
            let performed = AssertUnwindSafe(node_writer.perform(&handle.name, action)).catch_unwind();
            let input = match performed.await {
                Ok(input) => input,
                Err(panic) => {
                    let why = panic_text(&*panic);
                    tracing::error!(node = %handle.name, panic = why, "a node was not written, there is a defect");
                    Some(if lease {
                        Input::Lease(Answer::Failed(why))
                    } else {
                        Input::Written(Err(Refused::Failed(why)))
                    })
                }
            };
            if let Some(input) = input {
                handle.send(Message::Node(Box::new(input)));
            }
        });
    }

    /// The provider says that the node may have changed.
    pub(super) fn stirred(&mut self) {
        let published = template(&self.common, &self.handle.name);
        if !self.node.publishes(&published) {
            self.set_template(&published);
            self.step_node(Input::Template(Box::new(published), self.address));
        }
        self.step_node(Input::Stirred);
    }
}
