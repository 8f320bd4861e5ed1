use sextant_baselines::Options;
use sextant_lab::Setting;
use sextant_lab::{
    bound::{fluid_bound_rps, no_coordination, round_robin_deviation, staggered},
    experiment::{self, Experiment, Plan},
};
use sextant_schedule::NEVER;
use sextant_simulator::{Device, Jitter, Model, Network, Shape, profiles, workload};

fn setting(models: Vec<Model>, devices: Vec<Device>) -> Setting {
    Setting {
        models,
        devices,
        options: Options::default(),
        network: Network::default(),
        jitter: Jitter::None,
        shape: Shape::default(),
        failures: Vec::new(),
        seed: 1,
        prices: Vec::new(),
        histograms: false,
    }
}

fn zoo(name: &str, keep: impl Fn(f64) -> bool) -> Setting {
    let models = profiles::load(name)
        .expect("it is shipped")
        .iter()
        .filter(|profile| {
            let (alpha, beta) = profile.line();
            keep(beta / alpha)
        })
        .map(|profile| Model {
            name: profile.model.clone(),
            target: profile.target().expect("the zoo has targets"),
            latency: vec![Some(
                profile.latency(256).expect("shipped profiles are valid"),
            )],
            priority: 0,
            weight: 1.0,
        })
        .collect();
    setting(models, vec![Device { kind: 0 }; 64])
}

#[test]
fn the_six_zoo_cells_have_the_known_bounds() {
    let mut bounds = Vec::new();
    for name in ["symphony-zoo-gtx1080ti", "symphony-zoo-a100"] {
        for keep in [
            |_: f64| true,
            |ratio: f64| ratio > 2.0,
            |ratio: f64| ratio < 2.0,
        ] {
            let setting = zoo(name, keep);
            let shares = workload::equal(setting.models.len());
            bounds.push(fluid_bound_rps(&setting, &shares).round());
        }
    }
    assert_eq!(bounds, [8970.0, 23591.0, 4100.0, 23165.0, 74805.0, 6614.0]);
}

#[test]
fn the_zoo_experiment_prints_the_same_bounds() {
    let experiment = Experiment::named("symphony-zoo").unwrap();
    let names: Vec<&str> = experiment
        .cells
        .iter()
        .map(|cell| cell.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "gtx1080ti-all",
            "gtx1080ti-gt2",
            "gtx1080ti-lt2",
            "a100-all",
            "a100-gt2",
            "a100-lt2"
        ]
    );
}

#[test]
fn table_4s_analytic_columns_come_out_exactly() {
    let alone = no_coordination(1.053, 5.072, 25.0, 8);
    assert_eq!((alone.rows, alone.rps.round()), (7, 4501.0));
    let together = staggered(1.053, 5.072, 25.0, 8);
    assert_eq!((together.rows, together.rps.round()), (16, 5839.0));
    let alone = no_coordination(5.090, 18.368, 70.0, 8);
    assert_eq!((alone.rows, alone.rps.round()), (3, 713.0));
    let together = staggered(5.090, 18.368, 70.0, 8);
    assert_eq!((together.rows, together.rps.round()), (8, 1083.0));
}

#[test]
fn table_2s_closed_form_comes_out() {
    let cases = [
        (10_000.0, 0.4, 1, 0.753),
        (10_000.0, 0.4, 25, 2.449),
        (2_000.0, 0.2, 1, 0.400),
        (2_000.0, 0.2, 25, 1.833),
    ];
    for (rps, window_s, frontends, deviation) in cases {
        let found = round_robin_deviation(rps, window_s, frontends, 100);
        assert!(
            (found - deviation).abs() < 0.0015,
            "{found} is not {deviation}"
        );
    }
}

#[test]
fn table_2_simulated_is_near_the_closed_form() {
    let experiment = Experiment::named("symphony-table2").unwrap();
    let plan = Plan {
        quick: true,
        ..Plan::default()
    };
    let records = experiment::run(&experiment, &plan, &mut |_| {}).unwrap();
    let value = |cell: &str, metric: &str| {
        records
            .iter()
            .find(|r| r.cell.as_deref() == Some(cell) && r.metric == metric)
            .unwrap()
            .value
    };
    for cell in ["400ms-1fe", "200ms-25fe"] {
        let (found, expected) = (
            value(cell, "deviation_count"),
            value(cell, "closed_form_count"),
        );
        assert!(
            (found / expected - 1.0).abs() < 0.1,
            "{cell}: {found}, {expected}"
        );
    }
}

#[test]
fn what_cannot_be_met_has_no_bound_and_what_is_not_asked_for_none() {
    let mut setting = zoo("symphony-zoo-a100", |_| true);
    let mut shares = workload::equal(setting.models.len());
    setting.models[3].target = 1_000_000;
    assert_eq!(fluid_bound_rps(&setting, &shares), 0.0);
    shares[3] = 0.0;
    assert!(fluid_bound_rps(&setting, &shares) > 0.0);
    setting.devices.clear();
    assert_eq!(fluid_bound_rps(&setting, &shares), 0.0);
}

#[test]
fn two_kinds_of_devices_each_do_what_they_are_better_at() {
    let line = |ms: f64| {
        let text = format!("model,alpha_ms,beta_ms\nA,{ms},0\n");
        profiles::read(&text, "a").unwrap()[0].latency(1).unwrap()
    };
    let model = |first: f64, second: f64| Model {
        name: "A".to_owned(),
        target: NEVER,
        latency: vec![Some(line(first)), Some(line(second))],
        priority: 0,
        weight: 1.0,
    };
    // The first kind takes 1 ms and 4 ms for the two models, the second 4 ms and 1 ms, so each kind runs one model.
    let models = vec![model(1.0, 4.0), model(4.0, 1.0)];
    let devices = vec![Device { kind: 0 }, Device { kind: 1 }];
    let setting = setting(models, devices);
    let bound = fluid_bound_rps(&setting, &[0.5, 0.5]);
    assert!((bound - 2000.0).abs() < 20.0, "{bound}");
}
