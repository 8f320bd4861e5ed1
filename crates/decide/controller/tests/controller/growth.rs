//! What an event tells those who keep copies, beside tenants that ask nothing.

use std::collections::BTreeMap;

use sextant_controller::{
    Action, Actions, Controller, DeviceSpec, LoadResult, OnKind, Options, VariantSpec,
};
use sextant_profile::Run;
use sextant_schedule::{
    Backlog, BatchId, LatencyTable, NEVER, Nanos, News, PoolIx, QueueSpec, Request,
};
use sextant_types::index::{DeviceIx, KindIx, TenantIx, VariantIx};

const MS: Nanos = 1_000_000;

/// Most that may have changed at one event: the tenant, and the time of its priority.
const MOST: usize = 2;

/// A device with a loaded variant for each of so many tenants.
fn controller(tenants: u32) -> Controller<u32> {
    let mut controller = Controller::new(&Options::default());
    let mut actions = Actions::new();
    let device = DeviceIx::new(0);
    let spec = DeviceSpec {
        kind: KindIx::new(0),
        pages: u32::MAX,
        slots: 1,
    };
    controller.on_device_up(0, device, spec, &mut actions);
    for number in 0..tenants {
        let variant = VariantIx::new(number);
        controller.on_variant(0, variant, variant_of(number), &mut actions);
        controller.on_load_result(0, device, variant, LoadResult::Found, &mut actions);
    }
    controller
}

pub fn variant_of(tenant: u32) -> VariantSpec {
    VariantSpec {
        pages: 1,
        shared: None,
        surface: None,
        queue: QueueSpec {
            max_rows: 8,
            planned_rows: u32::MAX,
            batched: true,
            slots: 1,
            latency: LatencyTable::linear(1.0, 4.0, 8).unwrap(),
            max_waiting_rows: 64,
            tenant: TenantIx::new(tenant),
            priority: 100,
            weight: 1.0,
            price: 1.0,
        },
        load: 8 * MS,
        first_load: 0,
        kinds: vec![OnKind {
            kind: KindIx::new(0),
            latency: None,
            surface: None,
            load: 0,
            price: 1.0,
            planned_rows: u32::MAX,
        }],
    }
}

/// The pools that have changed, and what has there.
fn news(controller: &mut Controller<u32>) -> Vec<(PoolIx, Vec<News>)> {
    let mut pools = Vec::new();
    controller.take_changed_pools(&mut pools);
    let taken = pools.into_iter().map(|pool| {
        let mut news = Vec::new();
        controller.take_news(pool, &mut |one| news.push(one));
        (pool, news)
    });
    taken.collect()
}

fn ask(controller: &mut Controller<u32>, now: Nanos, tenant: u32) -> Actions<u32> {
    let mut actions = Actions::new();
    let request = Request {
        payload: tenant,
        rows: 1,
        deadline: now + 50 * MS,
    };
    controller.on_request(now, VariantIx::new(tenant), request, &mut actions);
    actions
}

fn started(actions: &[Action<u32>]) -> Option<BatchId> {
    actions.iter().find_map(|action| match action {
        Action::Infer { id, .. } => Some(*id),
        _ => None,
    })
}

#[test]
fn a_query_tells_of_its_own_tenant_however_many_there_are() {
    for tenants in [1, 100, 1_000, 10_000] {
        let mut controller = controller(tenants);
        let all: usize = news(&mut controller)
            .iter()
            .map(|(_, news)| news.len())
            .sum();
        assert!(all >= tenants as usize, "{all} of {tenants}");
        for query in 0..20 {
            let now = MS * (1 + 10 * query);
            let actions = ask(&mut controller, now, tenants / 2);
            let batch = started(&actions).expect("an idle device starts it at once");
            let [(_, told)] = &news(&mut controller)[..] else {
                panic!("one pool has changed");
            };
            assert!(told.len() <= MOST, "{told:?} among {tenants}");
            let run = Run {
                rows: 1,
                nanos: 5 * MS,
                mhz: None,
            };
            let mut actions = Actions::new();
            controller.on_result(now + 5 * MS, batch, Some(run), &mut actions);
            for (_, told) in news(&mut controller) {
                assert!(told.len() <= MOST, "{told:?} among {tenants}");
            }
        }
    }
}

#[test]
fn what_is_told_makes_the_estimate_that_the_controller_makes() {
    let mut controller = controller(5);
    let mut copy: BTreeMap<TenantIx, (Backlog, Nanos)> = BTreeMap::new();
    let mut times: BTreeMap<u8, Nanos> = BTreeMap::new();
    let mut running = Vec::new();
    for step in 0..200u64 {
        let now = MS * step;
        running.extend(started(&ask(
            &mut controller,
            now,
            (step * step % 5) as u32,
        )));
        if step % 3 == 0 && !running.is_empty() {
            let mut actions = Actions::new();
            controller.on_result(now, running.remove(0), None, &mut actions);
            running.extend(started(&actions));
        }
        let mut actions = Actions::new();
        controller.on_timer(now, &mut actions);
        running.extend(started(&actions));
        let Some(pool) = controller.pool_of(DeviceIx::new(0)) else {
            panic!("the device is up");
        };
        controller.take_news(pool, &mut |news| match news {
            News::Tenant { backlog, finish } => {
                copy.insert(backlog.tenant, (backlog, finish));
            }
            News::Gone(tenant) => drop(copy.remove(&tenant)),
            News::Time { priority, time } => drop(times.insert(priority, time)),
        });
        let load = controller.load(pool);
        for tenant in 0..5 {
            let all = copy.values().map(|(backlog, finish)| Backlog {
                lag: finish.saturating_sub(times[&backlog.priority]),
                ..*backlog
            });
            let fair = sextant_schedule::ahead(TenantIx::new(tenant), all);
            let expected = fair.map_or(NEVER, |work| load.queued.min(work));
            let ahead = controller.ahead(pool, VariantIx::new(tenant));
            assert_eq!(ahead, expected, "tenant {tenant} at step {step}");
        }
    }
}
