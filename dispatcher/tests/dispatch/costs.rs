//! The cost of device time, in answers and in what the leading dispatcher reports.

use std::sync::{Arc, atomic::Ordering};

use sextant_dispatcher::Config;
use sextant_metadata::Costs;
use sextant_rpc::{Answer, Dispatch};
use sextant_types::{DeviceType, DeviceTypeName, EngineName};

use crate::{
    fleet::{Fleet, ask},
    severable::HoldingFrontEnd,
    world::{Kind, PATIENCE, SLOW, World, query, row, wait_until},
};

/// US dollars a second.
const SECOND_USD: f64 = 0.001;

/// A world of devices of one slot each.
async fn priced(count: usize) -> World {
    let device = DeviceType {
        name: DeviceTypeName::new("priced").unwrap(),
        engines: vec![EngineName("doubling".to_owned())],
        slots: 1,
        memory_bytes: 1000,
        price_per_hour_usd: SECOND_USD * 3600.0,
        start_ms: 0,
    };
    World::with_types(Config::default(), vec![device; count]).await
}

/// The reported costs, once `are` holds for them.
pub async fn told(world: &World, are: impl Fn(&Costs) -> bool) -> Costs {
    let seen = async {
        loop {
            let demand = world.metadata.snapshot().await.unwrap().demand;
            if let Some(demand) = demand.filter(|demand| are(&demand.costs)) {
                return demand.costs.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(PATIENCE, seen);
    seen.await.expect("costs that are told")
}

fn queries(costs: &Costs) -> u64 {
    costs.rows.iter().map(|row| row.queries).sum()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_in_a_shared_batch_pays_by_rows() {
    let world = priced(1).await;
    world.serve(Kind::default()).await;
    world.gate.close();
    let first = world.send(query(&[SLOW, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let one = world.send(query(&[1.0, 0.0]));
    let three = world.send(query(&[SLOW, 0.0, 2.0, 0.0, 3.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 2).await;
    world.gate.open();
    let mut answers: Vec<Answer> = Vec::new();
    for sent in [first, one, three] {
        answers.push(sent.await.unwrap().unwrap());
    }
    let [first, one, three] = &answers[..] else {
        panic!("three answers")
    };
    assert_eq!((one.timings.batch_rows, three.timings.batch_rows), (4, 4));
    let batch = one.timings.compute_us / 1e6 * SECOND_USD;
    assert!(close(one.cost_usd, batch / 4.0), "{}", one.cost_usd);
    assert!(close(three.cost_usd, one.cost_usd * 3.0));
    assert!(one.cost_usd > 0.0);

    let costs = told(&world, |costs| queries(costs) == 3).await;
    let [row] = &costs.rows[..] else {
        panic!("one row: {costs:?}")
    };
    let sum = first.cost_usd + one.cost_usd + three.cost_usd;
    assert!(close(row.usd, sum), "{} of {sum}", row.usd);
    assert!(close(row.usd, row.device_seconds * SECOND_USD));
    let names = (row.application.as_str(), row.variant.as_ref().unwrap());
    assert_eq!((names.0, names.1.as_str()), ("app", "m-a"));
    assert_eq!(row.device_type.as_ref().unwrap().as_str(), "priced");
    assert_eq!((row.offline_usd, row.offline_queries), (0.0, 0));
    assert!(costs.since_ms <= costs.until_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_end_is_told_what_its_inputs_will_cost() {
    let fleet = Fleet::new(1).await;
    let world = &fleet.world;
    let holding = HoldingFrontEnd::new(&fleet.post, row(&[1.0, 0.0]));
    let holder = Arc::clone(&holding) as _;
    world.dispatcher.place(ask(1), holder).await.unwrap();
    let assigned = holding.assignments.lock().unwrap()[0].clone();
    // The worker does not report its device: a core costs 0.036 US dollars an hour.
    assert!(close(assigned.second_usd, 1e-5), "{}", assigned.second_usd);
    let costs = told(world, |costs| queries(costs) == 1).await;
    assert_eq!(costs.rows[0].device_type, None);
    let usd = costs.rows[0].usd;
    assert!(close(usd, costs.rows[0].device_seconds * 1e-5), "{costs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_time_is_counted_to_what_keeps_the_device() {
    let world = priced(1).await;
    let costs = told(&world, |costs| costs.unattributed_usd > 0.0).await;
    assert!(costs.rows.is_empty(), "nothing is loaded: {costs:?}");
    let small = Kind {
        memory: 100,
        ..Kind::default()
    };
    let large = Kind {
        name: "n-a",
        memory: 300,
        ..Kind::default()
    };
    world.serve(small).await;
    world.serve_for("other", large).await;
    let idle = |costs: &Costs, application: &str| {
        let row = costs
            .rows
            .iter()
            .find(|row| row.application.as_str() == application);
        row.map_or(0.0, |row| row.idle_usd)
    };
    let both = told(&world, |costs| idle(costs, "other") > 0.0).await;
    let later = told(&world, |costs| idle(costs, "other") > idle(&both, "other")).await;
    let grown = |application| idle(&later, application) - idle(&both, application);
    // Three times the memory. The difference of two sums is less exact than either.
    assert!(
        (grown("other") / grown("app") - 3.0).abs() < 1e-6,
        "{both:?} {later:?}"
    );
    assert_eq!(both.unattributed_usd, later.unattributed_usd);
    assert_eq!(queries(&later), 0);
}
