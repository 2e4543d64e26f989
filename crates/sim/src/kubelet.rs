//! A model of the kubelet: its Lease, its node's status, the status of its pods.
//!
//! It renews its Lease every 10 s, up to 4 % later; what fails is tried again with a growing pause. Every 10
//! s it posts its node's status where somebody else wrote something into it, and every 5 minutes in any case.
//! Every 2 s it looks at its pods and writes their Ready where somebody else changed it.

use crate::event::{Call, KubeletDue, Reply, Source};
use crate::machine::Machine;
use crate::script::Level;
use crate::sim::Sim;

const RENEW_EVERY: u64 = 10_000;
const STATUS_EVERY: u64 = 10_000;
const PODS_EVERY: u64 = 2_000;
/// Longest pause between two tries to renew.
const LONGEST_PAUSE: u64 = 5_000;

impl Sim {
    pub(crate) fn stop_kubelet(&mut self, node: usize) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.kubelet_life += 1;
            machine.kubelet_up = false;
        }
    }

    pub(crate) fn start_kubelet(&mut self, node: usize) {
        let delay = self.rng.between(100, 2_000);
        if let Some(machine) = self.machines.get_mut(node - 1).filter(|machine| machine.powered) {
            machine.kubelet_life += 1;
            let life = machine.kubelet_life;
            self.kubelet_later(node, life, delay, KubeletDue::Start);
        }
    }

    /// The machine, if its kubelet is still the process of this life.
    fn machine_of_kubelet(&mut self, node: usize, life: u64) -> Option<&mut Machine> {
        let machine = self.machines.get_mut(node - 1)?;
        (machine.kubelet_life == life).then_some(machine)
    }

    pub(crate) fn kubelet_due(&mut self, node: usize, life: u64, due: KubeletDue) {
        let Some(machine) = self.machine_of_kubelet(node, life) else {
            return;
        };
        let from = Source::Kubelet(node, life);
        match due {
            KubeletDue::Start => {
                machine.kubelet_up = true;
                machine.kubelet_failures = 0;
                if self.level == Level::Zones {
                    return;
                }
                let (status, pods) = (self.rng.between(10, 3_000), self.rng.between(500, 4_000));
                self.kubelet_later(node, life, 0, KubeletDue::Renew);
                self.kubelet_later(node, life, status, KubeletDue::Status);
                self.kubelet_later(node, life, pods, KubeletDue::Pods);
            }
            KubeletDue::Renew => self.request(from, Call::RenewNodeLease),
            KubeletDue::Status => self.request(from, Call::PostStatus),
            KubeletDue::Pods => self.request(from, Call::SyncPods),
        }
    }

    pub(crate) fn kubelet_answered(&mut self, node: usize, life: u64, reply: Reply) {
        let now = self.now;
        let Some(machine) = self.machine_of_kubelet(node, life) else {
            return;
        };
        let (due, delay) = match reply {
            Reply::Renewed { sent } => {
                machine.kubelet_failures = 0;
                let every = RENEW_EVERY + self.rng.below(400);
                (KubeletDue::Renew, (sent + every).saturating_sub(now))
            }
            Reply::Done("status") => (KubeletDue::Status, STATUS_EVERY),
            Reply::Done(_) => (KubeletDue::Pods, PODS_EVERY),
            Reply::Lost(call) => match *call {
                Call::RenewNodeLease => {
                    machine.kubelet_failures += 1;
                    let pause = 200_u64 << machine.kubelet_failures.min(6);
                    (KubeletDue::Renew, pause.min(LONGEST_PAUSE))
                }
                Call::PostStatus => (KubeletDue::Status, STATUS_EVERY / 2),
                _ => (KubeletDue::Pods, PODS_EVERY),
            },
            _ => return,
        };
        self.kubelet_later(node, life, delay, due);
    }
}
