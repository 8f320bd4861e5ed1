//! Over random histories, compares the stored sums and minima with those that are found by looking at every tenant.
//! Also tests how many entries are looked at for an event.

mod everybody;

use std::collections::BTreeMap;

use proptest::{collection::vec, option, prelude::*};

use super::{super::heap::looks, *};
use everybody::ReferenceShares;

/// Tenants, of two queues each.
const TENANTS: u32 = 6;

#[derive(Debug, Clone)]
enum Step {
    Enter {
        queue: u32,
        priority: u8,
        weight: f32,
    },
    Leave(u32),
    /// The waiting work of a queue changes.
    Count(u32, Nanos),
    Note(u32, Nanos),
    Charge(u32, Nanos),
    /// A candidate of a queue is placed.
    Place(u32),
    Pass(Nanos),
    Slots(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let queue = || 0..2 * TENANTS;
    prop_oneof![
        2 => (queue(), 0..3u8, prop_oneof![Just(1.0f32), Just(0.5), Just(3.0)])
            .prop_map(|(queue, priority, weight)| Step::Enter { queue, priority, weight }),
        1 => queue().prop_map(Step::Leave),
        6 => (queue(), option::weighted(0.7, 0..2_000u64))
            .prop_map(|(queue, work)| Step::Count(queue, work.unwrap_or(0))),
        6 => (queue(), option::weighted(0.9, 0..4_000u64))
            .prop_map(|(queue, room)| Step::Note(queue, room.unwrap_or(NEVER))),
        5 => (queue(), 0..1_000u64).prop_map(|(queue, work)| Step::Charge(queue, work)),
        6 => queue().prop_map(Step::Place),
        2 => prop_oneof![0..1_000u64, Just(MEMORY / 2), Just(MEMORY + 1)].prop_map(Step::Pass),
        1 => (0..3u32).prop_map(Step::Slots),
    ]
}

fn spec(queue: u32, priority: u8, weight: f32) -> QueueSpec {
    let nanos = (1..=64u64).map(|rows| 100 + 10 * rows);
    QueueSpec {
        max_rows: 64,
        planned_rows: u32::MAX,
        batched: true,
        slots: 1,
        latency: LatencyTable::new(nanos.collect()).expect("it rises"),
        max_waiting_rows: u32::MAX,
        tenant: TenantIx::new(queue / 2),
        priority,
        weight,
        price: 1.0,
    }
}

/// The shares, and the reference that looks at every tenant.
struct CheckedShares {
    kept: Shares,
    found: ReferenceShares,
    /// The specification and the waiting work of each queue.
    queues: Vec<Option<(QueueSpec, Nanos)>>,
    now: Nanos,
    slots: u32,
    /// A copy of the backlogs that is made from the news.
    copy: BacklogCopy,
}

#[derive(Default)]
struct BacklogCopy {
    tenants: BTreeMap<TenantIx, (Backlog, Nanos)>,
    times: BTreeMap<u8, Nanos>,
}

impl BacklogCopy {
    fn tell(&mut self, news: News) {
        match news {
            News::Tenant { backlog, finish } => {
                self.tenants.insert(backlog.tenant, (backlog, finish));
            }
            News::Gone(tenant) => drop(self.tenants.remove(&tenant)),
            News::Time { priority, time } => drop(self.times.insert(priority, time)),
        }
    }

    fn backlogs(&self) -> Vec<Backlog> {
        let all = self.tenants.values().map(|(backlog, finish)| Backlog {
            lag: finish.saturating_sub(self.times[&backlog.priority]),
            ..*backlog
        });
        all.collect()
    }
}

impl CheckedShares {
    fn new() -> Self {
        Self {
            kept: Shares::default(),
            found: ReferenceShares::default(),
            queues: vec![None; 2 * TENANTS as usize],
            now: 0,
            slots: 1,
            copy: BacklogCopy::default(),
        }
    }

    fn count(&mut self, queue: u32, work: Nanos) {
        let Some((spec, before)) = &mut self.queues[queue as usize] else {
            return;
        };
        let before = std::mem::replace(before, work);
        self.kept.count(spec.tenant, before, work);
        self.found.count(spec.tenant, before, work);
    }

    fn leave(&mut self, queue: u32) {
        self.count(queue, 0);
        if let Some((spec, _)) = self.queues[queue as usize].take() {
            self.kept.leave(QueueIx::new(queue), spec.tenant);
            self.found.leave(QueueIx::new(queue), spec.tenant);
        }
    }

    fn enter(&mut self, queue: u32, priority: u8, weight: f32) {
        // All queues of a tenant have the same priority and weight once they are told.
        let both = (queue / 2 * 2)..(queue / 2 * 2 + 2);
        let known = |it: &u32| *it == queue || self.queues[*it as usize].is_some();
        let told: Vec<u32> = both.filter(known).collect();
        told.iter().for_each(|queue| self.count(*queue, 0));
        for queue in told {
            self.leave(queue);
            let spec = spec(queue, priority, weight);
            self.kept.enter(QueueIx::new(queue), &spec);
            self.found.enter(QueueIx::new(queue), &spec);
            self.queues[queue as usize] = Some((spec, 0));
        }
    }

    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Enter {
                queue,
                priority,
                weight,
            } => self.enter(queue, priority, weight),
            Step::Leave(queue) => self.leave(queue),
            Step::Count(queue, work) => self.count(queue, work),
            Step::Note(queue, room) => {
                if let Some((spec, _)) = &self.queues[queue as usize] {
                    self.kept.note(self.now, spec.tenant, room);
                    self.found.note(self.now, spec.tenant, room);
                }
            }
            Step::Charge(queue, work) => {
                if let Some((spec, _)) = &self.queues[queue as usize] {
                    self.kept.charge(spec.tenant, work);
                    self.found.charge(spec.tenant, work);
                }
            }
            Step::Place(queue) => self.place(queue)?,
            Step::Pass(nanos) => self.now += nanos,
            Step::Slots(slots) => self.slots = slots,
        }
        self.compare()
    }

    fn place(&mut self, queue: u32) -> Result<(), TestCaseError> {
        let Some((spec, _)) = &self.queues[queue as usize] else {
            return Ok(());
        };
        prop_assert_eq!(
            self.kept.keeps_back(spec.tenant, self.slots),
            self.found.keeps_back(spec.tenant, self.slots)
        );
        // Any number of rows above the queue's maximum is equivalent.
        let kept = self.kept.most_rows(self.now, spec, self.slots);
        let found = self.found.most_rows(self.now, spec, self.slots);
        prop_assert_eq!(kept.min(spec.max_rows), found.min(spec.max_rows));
        Ok(())
    }

    /// Everything that is visible from outside, in any order.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.kept.work(), self.found.work());
        let mut kept: Vec<QueueIx> = std::iter::from_fn(|| self.kept.next_due()).collect();
        let mut found: Vec<QueueIx> = std::iter::from_fn(|| self.found.next_due()).collect();
        kept.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(kept, found);
        let all: Vec<Backlog> = self.found.backlogs().collect();
        prop_assert_eq!(&self.kept.backlogs().collect::<Vec<_>>(), &all);
        let copy = &mut self.copy;
        self.kept.take_news(&mut |news| copy.tell(news));
        prop_assert_eq!(&copy.backlogs(), &all);
        for tenant in (0..TENANTS).map(TenantIx::new) {
            let found = ahead(tenant, all.iter().copied());
            prop_assert_eq!(self.kept.ahead(tenant), found);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_kept_is_what_is_found_by_looking_at_everybody(steps in vec(step(), 1..200)) {
        let mut both = CheckedShares::new();
        for step in &steps {
            both.play(step)?;
        }
    }
}

/// The numbers of tenants among which a query is tested.
const SIZES: [u32; 4] = [1, 100, 1_000, 10_000];

/// The most entries that are looked at for a query among ten thousand tenants, and the most news of it.
const MOST: (u64, usize) = (100, 3);

/// This many tenants on a pool of one slot.
fn crowd(tenants: u32) -> Shares {
    let mut shares = Shares::default();
    for tenant in 0..tenants {
        shares.enter(QueueIx::new(tenant), &spec(2 * tenant, 100, 1.0));
    }
    shares.take_news(&mut |_| {});
    shares
}

/// A query comes, is placed, starts after the other waiting work, and ends. Returns the entries that were looked at,
/// and the news.
fn query(shares: &mut Shares, now: Nanos, tenant: u32, room: Nanos) -> (u64, usize) {
    looks::take();
    let mut news = 0;
    let spec = spec(2 * tenant, 100, 1.0);
    let tenant = TenantIx::new(tenant);
    shares.note(now, tenant, room);
    shares.count(tenant, 0, 110);
    shares.keeps_back(tenant, 1);
    shares.most_rows(now, &spec, 1);
    shares.take_news(&mut |_| news += 1);
    shares.count(tenant, 110, 0);
    shares.charge(tenant, 110);
    shares.take_news(&mut |_| news += 1);
    (looks::take(), news / 2)
}

#[test]
fn a_query_looks_at_nobody_who_does_not_ask() {
    for tenants in SIZES {
        let mut shares = crowd(tenants);
        for at in 1..50 {
            let (looks, news) = query(&mut shares, at * 1_000, tenants / 2, 500);
            assert!(looks <= 30, "{looks} among {tenants}");
            assert!(news <= MOST.1, "{news} among {tenants}");
        }
    }
}

#[test]
fn a_query_looks_at_few_while_all_ask_in_turn() {
    for tenants in SIZES {
        let mut shares = crowd(tenants);
        let (mut sum, mut queries) = (0, 0);
        for round in 0..3u64 {
            for tenant in 0..tenants {
                let at = u64::from(tenant);
                let now = (round * u64::from(tenants) + at) * 1_000;
                let (looks, news) = query(&mut shares, now, tenant, 500 + at % 7);
                (sum, queries) = (sum + looks, queries + 1);
                assert!(news <= MOST.1, "{news} among {tenants}");
            }
        }
        assert!(
            sum <= MOST.0 * queries,
            "{sum} of {queries} among {tenants}"
        );
    }
}

#[test]
fn a_query_looks_at_few_while_something_waits_of_everybody() {
    for tenants in SIZES {
        let mut shares = crowd(tenants);
        for tenant in 0..tenants {
            shares.note(0, TenantIx::new(tenant), 500);
            shares.count(TenantIx::new(tenant), 0, 1_000);
        }
        shares.take_news(&mut |_| {});
        let (mut sum, mut queries) = (0, 0);
        for tenant in 0..tenants {
            let (looks, _) = query(&mut shares, 1_000, tenant, 500);
            (sum, queries) = (sum + looks, queries + 1);
        }
        assert!(
            sum <= MOST.0 * queries,
            "{sum} of {queries} among {tenants}"
        );
    }
}
