//! Orders machines from providers until there are as many workers as are desired.
//!
//! The autoscaler asks a provider for its machines before it orders anything. So the next leader finds what this one
//! has begun and does not order it twice. A worker may end if no desired variant depends on it: its provider tells it
//! to finish its work (SIGTERM), and the worker ends by itself. The machine of a worker that somebody has taken out is
//! not counted. It is ended when the worker drains, so that nothing starts the worker again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_metadata::{DesiredState, View};
use sextant_provider::{Error, Machine, MachineId, Pool, Provider, State};
use sextant_scaling::{
    fleet::{LONGEST_STAY, RemovableDevice, leaving},
    presence::{Presence, longest_absence},
};
use sextant_types::{DeviceTypeName, WorkerId, index::VariantIx};
use tokio::{task::JoinHandle, time::timeout};

use sextant_picture::{
    Interner,
    seats::{Seat, copies, leavers, seats},
};

/// Longest time that a provider may take for an order.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest wait after a provider has failed.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// Largest number of machines of a pool that are remembered.
const MOST_REMEMBERED: usize = 4096;

/// The errand of each pool, with its result.
#[derive(Default)]
pub(crate) struct Machines {
    pools: BTreeMap<DeviceTypeName, Errand>,
    /// When this leadership began, ms since the Unix epoch.
    begun_ms: u64,
}

/// The state of the work for one pool.
#[derive(Default)]
struct Errand {
    running: Option<JoinHandle<Outcome>>,
    not_before: Option<Instant>,
    failures: u32,
    /// Since when there are more machines than desired, ms since the Unix epoch.
    surplus_since: Option<u64>,
    /// The last machines that the pool has had. A machine that has ended may leave its worker's name in the store until
    /// the lease lapses.
    had: VecDeque<Machine>,
    /// When the workers of these machines were last announced.
    presence: Presence<MachineId>,
    /// The machines without workers that the last look has told to end.
    told: BTreeSet<MachineId>,
}

/// The result of an errand.
struct Outcome {
    trouble: Option<String>,
    failed: bool,
    /// The machines that existed.
    machines: Vec<Machine>,
    /// The machines without workers, which were told to end.
    told: BTreeSet<MachineId>,
}

/// The state that a pool should have.
struct Order {
    pool: Pool,
    provider: Arc<dyn Provider>,
    desired: u32,
    /// Workers of the type that are up and stay.
    workers: Vec<Seat>,
    /// Workers that somebody has taken out, and whether they already drain.
    leavers: Vec<(WorkerId, bool)>,
    /// By desired variant: the number of workers that stay on which it serves.
    copies: BTreeMap<VariantIx, u32>,
    now_ms: u64,
    start_ms: u64,
    /// Whether workers may end although variants depend on them.
    forced: bool,
    /// The machines that the pool has had.
    had: Vec<Machine>,
    presence: Presence<MachineId>,
    /// The machines that the last look has told to end.
    told: BTreeSet<MachineId>,
}

impl Machines {
    /// Forgets what was true only while this process led: other processes have led since.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        self.begun_ms = now_ms;
        for errand in self.pools.values_mut() {
            errand.begin(now_ms);
        }
    }

    /// Looks at all pools. Returns problems that appeared and that ended.
    pub(crate) async fn look(
        &mut self,
        pools: &BTreeMap<DeviceTypeName, crate::PoolConfig>,
        (view, desired, interner): (&View, &DesiredState, &Interner),
        now_ms: u64,
    ) -> Vec<(DeviceTypeName, Option<Arc<str>>)> {
        let mut troubles = Vec::new();
        for (name, config) in pools {
            let errand = self.pools.entry(name.clone()).or_insert_with(|| {
                let mut new = Errand::default();
                new.begin(self.begun_ms);
                new
            });
            errand.note(view, now_ms);
            if errand.running.as_ref().is_some_and(|it| !it.is_finished()) {
                continue;
            }
            if let Some(done) = errand.running.take() {
                troubles.push((name.clone(), errand.end(done.await.ok())));
            }
            if errand.not_before.is_some_and(|at| Instant::now() < at) {
                continue;
            }
            let Some(said) = desired.pool(name) else {
                continue;
            };
            let workers = seats(view, desired, name, interner);
            let surplus = workers.len() > said.desired as usize;
            match surplus {
                true => {
                    errand.surplus_since.get_or_insert(now_ms);
                }
                false => errand.surplus_since = None,
            }
            let since = errand.surplus_since;
            let order = Order {
                pool: Pool {
                    device_type: name.clone(),
                    end_ms: config.end_ms,
                },
                provider: Arc::clone(&config.provider),
                desired: said.desired,
                workers,
                leavers: leavers(view, name),
                copies: copies(view, desired, interner),
                now_ms,
                start_ms: said.facts.as_ref().map_or(0, |facts| facts.start_ms),
                forced: since.is_some_and(|since| {
                    u128::from(now_ms.saturating_sub(since)) > LONGEST_STAY.as_millis()
                }),
                had: errand.had.iter().cloned().collect(),
                presence: errand.presence.clone(),
                told: errand.told.clone(),
            };
            errand.running = Some(tokio::spawn(carry_out(order)));
        }
        troubles
    }
}

/// Compares the actual with the desired machines, and orders the provider to start or end the difference.
async fn carry_out(order: Order) -> Outcome {
    match timeout(PATIENCE, order.run()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => Outcome::failed(described(&error)),
        Err(_) => Outcome::failed(format!(
            "provider_away: `{}` did not come back within {} s",
            order.provider.name(),
            PATIENCE.as_secs()
        )),
    }
}

fn described(error: &Error) -> String {
    format!("{}: {error}", error.code())
}

// === impl Order ===

impl Order {
    /// Carries out the order. Also reports a problem if no call has failed.
    async fn run(&self) -> Result<Outcome, Error> {
        let machines = self.provider.list(&self.pool).await?;
        let live = machines.iter();
        let (taken_out, others): (Vec<&Machine>, Vec<&Machine>) = live
            .filter(|machine| machine.state != State::Ending)
            .partition(|machine| self.leaver(machine).is_some());
        let (draining, leaving): (Vec<&Machine>, Vec<&Machine>) = taken_out
            .into_iter()
            .partition(|machine| self.leaver(machine) == Some(true));
        let (there, lost): (Vec<&Machine>, Vec<&Machine>) = others
            .into_iter()
            .partition(|machine| !self.is_lost(machine));
        let over = lost.iter().chain(&draining);
        let over: Vec<MachineId> = over.map(|machine| machine.id.clone()).collect();
        let refused = self.end_over(&over).await.err();
        // Workers that the provider does not run count as well.
        let others = self.workers.iter().filter(|seat| {
            let mut all = machines.iter().chain(&self.had);
            !all.any(|machine| machine.runs(&seat.id))
        });
        // If a machine's worker is unknown, one of these workers runs on it.
        let unnamed = machines.iter().filter(|it| it.worker.is_none()).count();
        let others = others.count().saturating_sub(unnamed);
        let desired = (self.desired as usize).saturating_sub(others);
        // A start that failed halfway leaves a machine that does not run. Growing to the same number starts it again.
        let starts = there.iter().any(|it| it.state == State::Starting);
        if there.len() < desired || (starts && there.len() == desired) {
            tracing::debug!(pool = %self.pool.device_type, have = there.len(), desired, "starting workers");
            // The provider would count a machine that was told to end and stays as the missing machine.
            let stay = match refused.is_some() {
                true => self.staying(&over).await?,
                false => lost.iter().filter(|it| self.told.contains(&it.id)).count(),
            };
            let count = desired + leaving.len() + stay;
            self.provider
                .grow(&self.pool, u32::try_from(count).unwrap_or(u32::MAX))
                .await?;
        } else if there.len() > desired {
            self.shrink(&there, there.len() - desired).await?;
        }
        let absence = || lost.first().map(|machine| self.absence(machine));
        Ok(Outcome {
            failed: refused.is_some(),
            trouble: refused.as_ref().map(described).or_else(absence),
            told: lost.iter().map(|machine| machine.id.clone()).collect(),
            machines,
        })
    }

    /// Ends machines that nothing waits for.
    async fn end_over(&self, over: &[MachineId]) -> Result<(), Error> {
        match over.is_empty() {
            true => Ok(()),
            false => self.provider.end(&self.pool, over).await,
        }
    }

    /// How many of these machines have not begun to end.
    async fn staying(&self, over: &[MachineId]) -> Result<usize, Error> {
        let machines = self.provider.list(&self.pool).await?;
        let stay = machines.iter().filter(|it| it.state != State::Ending);
        Ok(stay.filter(|it| over.contains(&it.id)).count())
    }

    /// The report about a machine without its worker.
    fn absence(&self, machine: &Machine) -> String {
        let (id, provider) = (&machine.id.0, self.provider.name());
        let absent_s = self.absent(machine) / 1000;
        let done = match self.told.contains(&machine.id) {
            // A StatefulSet ends only its last pod.
            true => {
                "was told to end and still runs, and another one takes its place: end it by hand"
            }
            false => "was told to end",
        };
        format!(
            "the worker of machine `{id}` of `{provider}` did not announce itself for {absent_s} s: the machine {done}; \
             see its log"
        )
    }

    /// Ends machines on whose workers nothing depends. Ends any surplus machine once the surplus has lasted long
    /// enough.
    async fn shrink(&self, there: &[&Machine], surplus: usize) -> Result<(), Error> {
        let removable: Vec<RemovableDevice> = there
            .iter()
            .map(|machine| {
                let seat = self.workers.iter().find(|seat| machine.runs(&seat.id));
                // A machine whose worker is not up serves nobody.
                let nobody = || RemovableDevice {
                    since_ms: u64::MAX,
                    ..RemovableDevice::default()
                };
                seat.map_or_else(nobody, |seat| seat.removable.clone())
            })
            .collect();
        let chosen: Vec<MachineId> = leaving(&removable, &self.copies, surplus)
            .into_iter()
            .filter(|leaver| self.forced || leaver.alone.is_empty())
            .map(|leaver| there[leaver.at].id.clone())
            .collect();
        if chosen.is_empty() {
            return Ok(());
        }
        tracing::info!(pool = %self.pool.device_type, machines = chosen.len(), "ending workers");
        self.provider.end(&self.pool, &chosen).await
    }

    /// For a machine whose worker somebody has taken out: whether that worker drains.
    fn leaver(&self, machine: &Machine) -> Option<bool> {
        let mut leavers = self.leavers.iter();
        let leaver = leavers.find(|(worker, _)| machine.runs(worker));
        leaver.map(|(_, drains)| *drains)
    }

    /// Whether the machine has run for long without its worker being announced.
    fn is_lost(&self, machine: &Machine) -> bool {
        let announced = self.workers.iter().any(|seat| machine.runs(&seat.id));
        machine.worker.is_some()
            && machine.since_ms > 0
            && !announced
            && machine.state == State::Running
            && self.absent(machine) > longest_absence(self.start_ms)
    }

    /// Time for which the machine's worker has been absent, ms.
    fn absent(&self, machine: &Machine) -> u64 {
        let presence = &self.presence;
        presence.absent(&machine.id, machine.since_ms, self.now_ms)
    }
}

// === impl Outcome ===

impl Outcome {
    fn failed(trouble: String) -> Self {
        Self {
            trouble: Some(trouble),
            failed: true,
            machines: Vec::new(),
            told: BTreeSet::new(),
        }
    }
}

// === impl Errand ===

impl Errand {
    /// Starts a leadership.
    fn begin(&mut self, now_ms: u64) {
        self.surplus_since = None;
        self.presence.begin(now_ms);
    }

    /// Notes which machines' workers are announced.
    fn note(&mut self, view: &View, now_ms: u64) {
        let is_there = |machine: &&Machine| {
            let Some(own) = &machine.worker else {
                return false;
            };
            let from = view.workers.range(own..).map(|(id, _)| id);
            let mut alike = from.take_while(|id| id.as_str().starts_with(own.as_str()));
            alike.any(|id| machine.runs(id))
        };
        let there = self.had.iter().filter(is_there).map(|it| it.id.clone());
        self.presence.announced(there, now_ms);
    }

    /// Takes over the outcome. Returns the problem, if there is one.
    fn end(&mut self, outcome: Option<Outcome>) -> Option<Arc<str>> {
        let outcome = outcome.unwrap_or_else(|| {
            Outcome::failed("provider_refused: the call ended by a panic".to_owned())
        });
        for machine in outcome.machines {
            if !self.had.iter().any(|known| known.id == machine.id) {
                self.had.push_back(machine);
            }
        }
        while self.had.len() > MOST_REMEMBERED {
            self.had.pop_front();
        }
        let had: BTreeSet<&MachineId> = self.had.iter().map(|machine| &machine.id).collect();
        self.presence.keep(|id| had.contains(id));
        match outcome.failed {
            true => {
                self.failures += 1;
                let wait = Duration::from_secs(1 << self.failures.min(6)).min(MOST_WAIT);
                self.not_before = Some(Instant::now() + wait);
            }
            false => {
                (self.failures, self.not_before) = (0, None);
                self.told = outcome.told;
            }
        }
        if let Some(trouble) = &outcome.trouble {
            tracing::warn!(trouble, "a pool has not what it should");
        }
        outcome.trouble.map(Into::into)
    }
}
