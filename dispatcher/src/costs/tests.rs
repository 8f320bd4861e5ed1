use std::time::Duration;

use sextant_types::EngineName;

use super::*;

/// A device of eight slots at 3.6 USD an hour, which is a thousandth of a dollar a second.
fn tariff(worker: &str) -> Arc<Tariff> {
    let facts = DeviceType {
        name: DeviceTypeName::processor(8),
        engines: vec![EngineName("ort".to_owned())],
        slots: 8,
        memory_bytes: 1 << 30,
        price_per_hour_usd: 3.6,
        start_ms: 0,
    };
    let worker = WorkerId::new(worker).expect("a name");
    Arc::new(Tariff::new(worker, Some(&facts), 2))
}

fn variant(name: &str) -> Arc<Variant> {
    let variant = sextant_metadata::conformance::sample_variant(name, 1.0);
    Arc::new(Variant {
        application: "app".parse().expect("a name"),
        ..Variant::clone(&variant)
    })
}

fn ran(variant: &Variant, seconds: f64) -> BatchRun<'_> {
    BatchRun {
        variant,
        slots: 2,
        run_us: seconds * 1e6,
        rows: (4, 1),
        queries: (3, 1),
    }
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-12, "{a} is not {b}");
}

#[test]
fn a_batch_pays_for_its_slots_and_jobs_for_their_rows() {
    let (costs, variant) = (Costs::new(), variant("m-a"));
    costs.add(&tariff("w"), &ran(&variant, 10.0));
    let record = costs.record();
    let [row] = &record.rows[..] else {
        panic!("one row: {record:?}")
    };
    // By hand: 10 s of a quarter of the device.
    close(row.device_seconds, 2.5);
    close(row.usd, 0.0025);
    close(row.offline_usd, 0.0025 / 4.0);
    assert_eq!((row.queries, row.offline_queries), (3, 1));
    assert_eq!(row.device_type, Some(DeviceTypeName::processor(8)));
    assert_eq!(row.variant.as_ref(), Some(&variant.id));
}

#[test]
fn what_runs_and_what_idles_add_up_to_the_price_of_the_device() {
    let (costs, tariff) = (Costs::new(), tariff("w"));
    let (small, large) = (variant("small"), variant("large"));
    let device = [Occupancy {
        tariff: Arc::clone(&tariff),
        loaded: vec![(Arc::clone(&small), 100), (Arc::clone(&large), 300)],
    }];
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    costs.count_idle_devices(at(0), &device);
    costs.count_idle_devices(at(4), &device);
    let idle = |costs: &Costs| {
        let record = costs.record();
        let rows = record.rows.iter();
        let idle = rows.map(|row| row.idle_usd).collect::<Vec<_>>();
        <[f64; 2]>::try_from(idle).expect("two rows, the large variant first")
    };
    let [of_large, of_small] = idle(&costs);
    close(of_large, 0.003);
    close(of_small, 0.001);
    // 8 s of a quarter of the device are 2 s of the whole device. That is more than this second;
    // the next one makes up for it.
    costs.add(&tariff, &ran(&small, 8.0));
    costs.count_idle_devices(at(5), &device);
    assert_eq!(idle(&costs), [of_large, of_small], "nothing was idle");
    costs.count_idle_devices(at(8), &device);
    let record = costs.record();
    let all = record.rows.iter().map(|row| row.usd + row.idle_usd).sum();
    close(all, 0.008);
    close(record.rows.iter().map(|row| row.usd).sum(), 0.002);
    close(record.unattributed_usd, 0.0);
}

#[test]
fn a_device_with_nothing_loaded_is_nobodys_and_one_that_is_gone_costs_nothing() {
    let costs = Costs::new();
    let device = |name| Occupancy {
        tariff: tariff(name),
        loaded: Vec::new(),
    };
    let begin = Instant::now();
    costs.count_idle_devices(begin, &[device("a"), device("b")]);
    costs.count_idle_devices(begin + Duration::from_secs(1), &[device("a"), device("b")]);
    close(costs.record().unattributed_usd, 0.002);
    costs.count_idle_devices(begin + Duration::from_secs(2), &[device("a")]);
    close(costs.record().unattributed_usd, 0.003);
    // A device that comes back is charged from then on.
    costs.count_idle_devices(begin + Duration::from_secs(9), &[device("b")]);
    close(costs.record().unattributed_usd, 0.003);
}

#[test]
fn who_begins_to_lead_begins_again_and_metrics_go_on() {
    let (costs, variant) = (Costs::new(), variant("m-a"));
    costs.add(&tariff("w"), &ran(&variant, 10.0));
    costs.begin_again();
    assert!(costs.record().rows.is_empty());
    let (sums, _) = costs.ever();
    close(sums[&("app".to_owned(), "m-a".to_owned())].usd, 0.0025);
}
