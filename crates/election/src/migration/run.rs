//! Runs two elections, the second one only during terms of the first.

use super::{Migration, Ownership};
use crate::{Config, ConfigError, Election, Elector, FencingToken, Gate, Lock, State, StopReason, Work};
use kube::Client;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The migration lock, and the configuration of its candidate.
pub struct MigrationLock<L> {
    lock: L,
    config: Config,
    ready: Option<CancellationToken>,
}

impl<L: Lock + Clone> MigrationLock<L> {
    /// `lock` is the one that [`Migration::lease`] names. The identity may be that of the component's own
    /// lock.
    pub fn new(lock: L, config: Config) -> Self {
        Self {
            lock,
            config,
            ready: None,
        }
    }

    /// Campaigns for this lock only after `ready` was cancelled, which says that everything is there that the
    /// moving work needs.
    #[must_use]
    pub fn after(mut self, ready: CancellationToken) -> Self {
        self.ready = Some(ready);
        self
    }
}

/// The elections of a component that takes part in a migration.
///
/// It campaigns for its own lock as before. While it leads there, and only then, it also campaigns for the
/// migration lock if it does any of the moving work. Work that does not move needs the first lock, moving
/// work needs both. So the moving work runs at the same time neither in an older replica of the same
/// component, which does not know of the migration and does all work under its own lock, nor in the component
/// that the work moves to.
///
/// ```no_run
/// use evenkeel_election::lock::LeaseLock;
/// use evenkeel_election::migration::{Migrating, Migration, MigrationConfig, MigrationLock};
/// use evenkeel_election::{Config, Elector, unique_identity};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn route(_client: kube::Client) {}
/// # async fn example(
/// #     client: kube::Client,
/// #     file: MigrationConfig,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let (shutdown, config) = (CancellationToken::new(), Config::new(&unique_identity()));
/// let migration = Migration::new(&file, "my-controllers")?;
/// let own = LeaseLock::new(client.clone(), "kube-system", "my-controllers")?;
/// let moving = LeaseLock::new(client.clone(), "kube-system", migration.lease())?;
/// let own = Elector::new(own, config.clone())?;
/// let elections = Migrating::start(migration, own, MigrationLock::new(moving, config), &shutdown)?;
/// // For each piece of work, whether it moves or not:
/// while let Some(share) = elections.lead("route-controller").await {
///     tokio::select! {
///         () = route(share.client(&client)) => {}
///         () = share.stopped() => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Migrating {
    migration: Migration,
    own: Arc<Election>,
    moving: watch::Receiver<Option<Arc<Moving>>>,
    task: JoinHandle<()>,
}

/// The migration election, and the term of the component's own lock during which it runs.
struct Moving {
    election: Election,
    own: Work,
}

impl Migrating {
    /// Starts both elections. They run until `shutdown`, or until one of them ends by itself because of
    /// [`OnLoss::Stop`](crate::OnLoss::Stop) or a duplicate identity: then both end.
    ///
    /// # Errors
    /// The configuration of the migration lock is invalid, in client-go's words.
    pub fn start<L: Lock + Clone>(
        migration: Migration,
        own: Elector,
        moving: MigrationLock<L>,
        shutdown: &CancellationToken,
    ) -> Result<Self, ConfigError> {
        moving.config.validate()?;
        let stop = shutdown.child_token();
        let own = Arc::new(own.run(stop.clone()));
        let (publish, receiver) = watch::channel(None);
        let driver = Driver {
            own: Arc::clone(&own),
            moving,
            publish,
            stop,
        };
        let task = tokio::spawn(driver.run(migration.has_work()));
        Ok(Self {
            migration,
            own,
            moving: receiver,
            task,
        })
    }

    /// The election of the component's own lock: its state, health and gate.
    pub fn own(&self) -> &Election {
        &self.own
    }

    /// Waits until this process may do a piece of work, and returns a share in it; `None` if another
    /// component does it or the elections have ended. Call this again after the share has stopped. Cancel
    /// safe.
    pub async fn lead(&self, controller: &str) -> Option<Share> {
        match self.migration.ownership(controller) {
            Ownership::Unowned => None,
            Ownership::NonMigrated => self.lead_own().await,
            Ownership::Migrated => self.lead_moving().await,
        }
    }

    async fn lead_own(&self) -> Option<Share> {
        let work = term(&self.own).await?;
        let guards = vec![Guard::new(work, &self.own)];
        Some(Share { guards })
    }

    async fn lead_moving(&self) -> Option<Share> {
        let mut elections = self.moving.clone();
        loop {
            let moving = elections.borrow_and_update().clone();
            let Some(moving) = moving else {
                // This fails when the driver has ended, and with it all terms.
                elections.changed().await.ok()?;
                continue;
            };
            let mut states = moving.election.watch();
            let leads = states.borrow_and_update().leads();
            if leads && let Some(work) = moving.election.work() {
                let own = Guard::new(moving.own.clone(), &self.own);
                return Some(Share {
                    guards: vec![Guard::new(work, &moving.election), own],
                });
            }
            tokio::select! {
                changed = elections.changed() => changed.ok()?,
                Ok(()) = states.changed() => {}
            }
        }
    }

    /// Waits for the end of both elections. Returns why that of the component's own lock has ended.
    pub async fn stopped(self) -> Option<StopReason> {
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!(%error, "the migration's task panicked");
        }
        let mut states = self.own.watch();
        // This fails when the candidate's task has panicked, which is logged.
        let state = states
            .wait_for(|state| matches!(state, State::Stopped { .. }))
            .await
            .ok()?;
        match &*state {
            State::Stopped { reason } => Some(reason.clone()),
            _ => None,
        }
    }
}

/// The term of one lock, and the gate of its candidate.
#[derive(Clone)]
struct Guard {
    work: Work,
    gate: Gate,
}

impl Guard {
    fn new(work: Work, election: &Election) -> Self {
        Self {
            work,
            gate: election.gate().clone(),
        }
    }
}

/// A share in a piece of work, which stops when one of the locks that guard the work is not held any more. As
/// long as it exists, the locks are not released; drop it when the work has ended. Cheap to clone.
#[derive(Clone)]
pub struct Share {
    /// The first guard is that of the lock which decides who does the work.
    guards: Vec<Guard>,
}

impl Share {
    /// The fencing token to stamp on writes: that of the migration lock for moving work, and that of the
    /// component's own lock for the rest. `None` while one of the locks cannot be proven to be held.
    pub fn token(&self) -> Option<FencingToken> {
        let tokens: Option<Vec<FencingToken>> = self.guards.iter().map(|guard| guard.gate.token()).collect();
        tokens?.into_iter().next()
    }

    /// Resolves when the first of the terms ends: finish or give up what is under way, then drop every share.
    pub async fn stopped(&self) {
        let ends = self.guards.iter().map(|guard| Box::pin(guard.work.stopped()));
        futures::future::select_all(ends).await;
    }

    /// A client whose writes pass the gates of all locks.
    pub fn client(&self, client: &Client) -> Client {
        self.guards
            .iter()
            .fold(client.clone(), |client, guard| guard.gate.client(&client))
    }
}

/// Waits for the next term of the component's own lock; `None` when there will be none.
async fn term(own: &Election) -> Option<Work> {
    let mut states = own.watch();
    loop {
        let state = states.borrow_and_update().clone();
        if state.leads()
            && let Some(work) = own.work()
        {
            return Some(work);
        }
        if matches!(state, State::Stopped { .. }) || states.changed().await.is_err() {
            return None;
        }
    }
}

/// Runs the migration election during each term of the component's own lock.
struct Driver<L> {
    own: Arc<Election>,
    moving: MigrationLock<L>,
    publish: watch::Sender<Option<Arc<Moving>>>,
    stop: CancellationToken,
}

impl<L: Lock + Clone> Driver<L> {
    async fn run(self, has_work: bool) {
        if !has_work {
            return;
        }
        while let Some(term) = term(&self.own).await {
            let over = term.stop_token();
            if let Some(ready) = &self.moving.ready
                && over.run_until_cancelled(ready.cancelled()).await.is_none()
            {
                continue;
            }
            if !self.campaign(term).await {
                self.stop.cancel();
            }
        }
    }

    /// Runs one migration election for as long as the term lasts. Returns `false` if it ended before the
    /// term. The share in the term is kept until the migration lock was released, so that the component's own
    /// lock is released after it.
    async fn campaign(&self, own: Work) -> bool {
        let over = own.stop_token();
        let elector = match Elector::new(self.moving.lock.clone(), self.moving.config.clone()) {
            Ok(elector) => elector,
            Err(error) => {
                tracing::error!(%error, "cannot campaign for the migration lock");
                return false;
            }
        };
        let election = elector.run(over.clone());
        let mut states = election.watch();
        self.publish
            .send_replace(Some(Arc::new(Moving { election, own })));
        // This fails when the candidate's task has panicked, which is logged.
        let ended = states
            .wait_for(|state| matches!(state, State::Stopped { .. }))
            .await;
        drop(ended);
        self.publish.send_replace(None);
        over.is_cancelled()
    }
}
