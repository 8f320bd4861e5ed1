//! The shipped experiments in their reduced versions, and what the format accepts.

use std::path::PathBuf;

use sextant_baselines::Policy;
use sextant_lab::experiment::{self, Event, Experiment, Plan};
use sextant_simulator::Record;

fn quick(threads: usize) -> Plan {
    Plan {
        quick: true,
        threads,
        ..Plan::default()
    }
}

fn lines(name: &str, plan: &Plan) -> Vec<String> {
    let experiment = Experiment::named(name).expect("it is shipped");
    let mut heard = Vec::new();
    let records = experiment::run(&experiment, plan, &mut |event| {
        if let Event::Record(record) = event {
            heard.push(record.to_json());
        }
    });
    let returned: Vec<String> = records
        .expect("it runs")
        .iter()
        .map(Record::to_json)
        .collect();
    assert_eq!(heard, returned);
    returned
}

fn value(records: &[Record], cell: &str, policy: Policy, metric: &str) -> f64 {
    let found = records.iter().find(|record| {
        record.seed.is_none()
            && record.cell.as_deref() == Some(cell)
            && record.policy.as_deref() == Some(policy.name())
            && record.metric == metric
    });
    found
        .unwrap_or_else(|| panic!("no {metric} of {policy} in {cell}"))
        .value
}

#[test]
fn every_shipped_experiment_runs_reduced_with_every_policy() {
    for name in experiment::names() {
        let experiment = Experiment::named(name).unwrap();
        assert_eq!(experiment.name, name);
        let plan = Plan {
            policies: Policy::ALL.to_vec(),
            ..quick(0)
        };
        let mut last = (0, 0);
        let records = experiment::run(&experiment, &plan, &mut |event| {
            if let Event::Progress(progress) = event {
                last = (progress.done, progress.total);
            }
        })
        .unwrap();
        assert_eq!(last.0, last.1, "{name}");
        assert!(
            records.iter().all(|record| record.value.is_finite()),
            "{name}"
        );
        assert!(records.iter().all(|record| record.experiment == name));
        if experiment.kind != experiment::Kind::Spread {
            for policy in Policy::ALL {
                let has = |record: &Record| record.policy.as_deref() == Some(policy.name());
                assert!(records.iter().any(has), "{name}: {policy}");
            }
        }
    }
}

#[test]
fn the_report_is_the_same_whatever_the_threads() {
    let plan = |threads| Plan {
        seeds: 2,
        policies: vec![Policy::Sextant, Policy::Eager, Policy::Clockwork],
        ..quick(threads)
    };
    let one = lines("symphony-table4", &plan(1));
    assert_eq!(one, lines("symphony-table4", &plan(3)));
    assert_eq!(one, lines("symphony-table4", &plan(1)));
}

#[test]
fn light_load_runs_on_cheap_devices_and_heavy_load_on_dear_ones() {
    let experiment = Experiment::named("prices").unwrap();
    let records = experiment::run(&experiment, &quick(0), &mut |_| {}).unwrap();
    for policy in &experiment.policies {
        let of = |load: &str, metric: &str| {
            let cell = format!("inceptionresnetv2/{load}");
            value(&records, &cell, *policy, metric)
        };
        for load in ["0.2x", "3x"] {
            let good = of(load, "satisfaction_share");
            assert!(good >= 0.99, "{policy} at {load}: {good}");
        }
        let light = of("0.2x", "dear_share_percent");
        assert!(light <= 2.0, "{policy}: {light} %");
        // The cheap devices can carry a third of this load alone, and they are not left idle.
        let heavy = of("3x", "dear_share_percent");
        assert!((50.0..=72.0).contains(&heavy), "{policy}: {heavy} %");
        let alone = value(&records, "inceptionresnetv2", *policy, "cheap_goodput_rps");
        let offered = of("3x", "offered_rps");
        assert!((offered / alone / 3.0 - 1.0).abs() < 0.1, "{offered}");
    }
}

#[test]
fn a_resumed_experiment_reports_what_an_uninterrupted_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("grid.jsonl");
    let plan = |resume| Plan {
        policies: vec![Policy::Symphony, Policy::Eager],
        resume,
        ..quick(1)
    };
    let whole = lines("symphony-fig4", &plan(None));
    assert_eq!(whole, lines("symphony-fig4", &plan(Some(path.clone()))));
    // The file is cut in the middle of a line, as a full disk or a power failure would cut it.
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() * 2 / 3]).unwrap();
    let experiment = Experiment::named("symphony-fig4").unwrap();
    let mut done = Vec::new();
    let again = plan(Some(path));
    let records = experiment::run(&experiment, &again, &mut |event| {
        if let Event::Progress(progress) = event {
            done.push(progress.done);
        }
    });
    let records: Vec<String> = records.unwrap().iter().map(Record::to_json).collect();
    assert_eq!(records, whole);
    assert!(done.len() < 6, "finished units were run again: {done:?}");
    // The file of another experiment is refused.
    let other = Experiment::named("symphony-table4").unwrap();
    let error = experiment::run(&other, &again, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}

#[test]
fn a_file_of_other_settings_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("table4.jsonl");
    let text = |seconds: f64| {
        format!(
            "name = \"mine\"\ntitle = \"t\"\nkind = \"goodput\"\n[[cell]]\nname = \"a\"\n\
             profile = \"symphony-table4\"\ndevices = 1\nwarm_up_s = 0.1\nmeasured_s = {seconds}\n"
        )
    };
    let plan = Plan {
        policies: vec![Policy::Eager],
        resume: Some(path),
        threads: 1,
        ..Plan::default()
    };
    let runs = |seconds| {
        let experiment = Experiment::parse(&text(seconds), "mine.toml").unwrap();
        let mut ends = 0;
        let count =
            &mut |event: Event<'_>| ends += usize::from(matches!(event, Event::Progress(_)));
        experiment::run(&experiment, &plan, count).map(|_| ends)
    };
    assert_eq!(runs(0.5).unwrap(), 2);
    assert_eq!(runs(0.5).unwrap(), 1, "only the bound, which costs nothing");
    let error = runs(0.6).unwrap_err().to_string();
    assert!(error.contains("other settings"), "{error}");
}

#[test]
fn deferral_wins_where_one_model_has_all_devices() {
    let text = "name = \"mine\"\ntitle = \"t\"\nkind = \"goodput\"\n[[cell]]\nname = \"a\"\n\
        profile = \"symphony-table4\"\nmodels = [\"ResNet50\"]\ndevices = 8\nwarm_up_s = 0.5\n\
        measured_s = 4.0\n";
    let experiment = Experiment::parse(text, "mine.toml").unwrap();
    let plan = Plan {
        policies: vec![Policy::Symphony, Policy::Eager],
        ..Plan::default()
    };
    let records = experiment::run(&experiment, &plan, &mut |_| {}).unwrap();
    let of = |policy| value(&records, "a", policy, "goodput_rps");
    let (symphony, eager) = (of(Policy::Symphony), of(Policy::Eager));
    assert!(symphony > 1.03 * eager, "{symphony}, {eager}");
    let bound = records.iter().find(|r| r.metric == "fluid_bound_rps");
    assert!(symphony < bound.unwrap().value);
}

#[test]
fn the_grid_is_whole_and_a_sample_of_it_is_drawn_by_seed() {
    let experiment = Experiment::named("symphony-fig4").unwrap();
    assert_eq!(experiment.cells.len(), 6 * 6 * 7 * 5 * 6 + 7 * 6);
    let plan = |sample_seed| Plan {
        sample: Some(1),
        sample_seed,
        policies: vec![Policy::Eager],
        ..quick(1)
    };
    let cells = |seed| lines("symphony-fig4", &plan(seed));
    assert_eq!(cells(1), cells(1));
    assert!((2..10).any(|seed| cells(seed) != cells(1)));
}

#[test]
fn a_pattern_moves_requests_in_time_but_not_their_number() {
    let report = |pattern: &str| {
        let text = format!(
            "name = \"mine\"\ntitle = \"t\"\nkind = \"sweep\"\n[[cell]]\nname = \"a\"\n\
             profile = \"symphony-table4\"\ndevices = 4\nwarm_up_s = 0.0\nmeasured_s = 4.0\n\
             rate_rps = 600.0\n{pattern}\n"
        );
        let experiment = Experiment::parse(&text, "mine.toml").unwrap();
        let plan = Plan {
            policies: vec![Policy::Eager],
            ..Plan::default()
        };
        let records = experiment::run(&experiment, &plan, &mut |_| {}).unwrap();
        let of = |metric| value(&records, "a", Policy::Eager, metric);
        (of("offered_rps"), of("satisfaction_share"))
    };
    let (steady_rps, steady) = report("");
    let (bursty_rps, bursty) = report(
        "pattern = [{ seconds = 0.8, from = 0.0, to = 0.0 }, { seconds = 0.2, from = 1.0, to = 1.0 }]",
    );
    assert!((steady_rps / 600.0 - 1.0).abs() < 0.1, "{steady_rps}");
    assert!((bursty_rps / 600.0 - 1.0).abs() < 0.1, "{bursty_rps}");
    assert!(bursty < steady, "{bursty}, {steady}");
}

#[test]
fn rates_of_a_file_of_functions_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.csv");
    let day = "o,a,f,t,1,2\na,b,first,http,300,300\na,b,second,http,0,200\n";
    std::fs::write(&path, day).unwrap();
    let text = |path: &str| {
        format!(
            "name = \"mine\"\ntitle = \"t\"\nkind = \"sweep\"\n[[cell]]\nname = \"a\"\n\
             profile = \"symphony-table4\"\ndevices = 4\nwarm_up_s = 0.0\nmeasured_s = 2.0\n\
             rate_rps = 400.0\narrivals = \"azure\"\ncounts = {path:?}\nminute_s = 1.0\n"
        )
    };
    let plan = Plan {
        policies: vec![Policy::Eager],
        ..Plan::default()
    };
    let run = |path: &str| {
        let experiment = Experiment::parse(&text(path), "mine.toml").unwrap();
        experiment::run(&experiment, &plan, &mut |_| {})
    };
    let records = run(path.to_str().unwrap()).unwrap();
    let offered = value(&records, "a", Policy::Eager, "offered_rps");
    assert!((offered / 400.0 - 1.0).abs() < 0.15, "{offered}");
    std::fs::write(&path, day.replace("200", "many")).unwrap();
    let message = run(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(message.contains("line 3: `many` as `2`"), "{message}");
    assert!(
        run("no/day.csv")
            .unwrap_err()
            .to_string()
            .contains("no/day.csv")
    );
}

fn error_of(text: &str) -> String {
    let read = Experiment::parse(text, "mine.toml");
    read.expect_err("it is malformed").to_string()
}

#[test]
fn malformed_experiments_say_where() {
    let file = |cell: &str| {
        format!(
            "name = \"mine\"\ntitle = \"t\"\nkind = \"goodput\"\n[defaults]\n\
             profile = \"symphony-table4\"\nmeasured_s = 1.0\ndevices = 1\n[[cell]]\n\
             name = \"a\"\n{cell}\n"
        )
    };
    assert!(Experiment::parse(&file(""), "mine.toml").is_ok());
    for (cell, said) in [
        ("devices = 0", "`devices` is `0`"),
        ("devices = -1", "`-1`"),
        ("target_ms = nan", "`target_ms` is `NaN`"),
        ("target_ms = -5.0", "`target_ms` is `-5`"),
        ("measured_s = 0.0", "`measured_s`"),
        ("shape = 0.0", "`shape` is `0`"),
        ("copies = 0", "`copies` is `0`"),
        ("colour = 1", "colour"),
        (
            "pattern = [{ seconds = 1.0, from = 0.0, to = 0.0 }]",
            "no requests",
        ),
        (
            "pattern = [{ seconds = inf, from = 0.0, to = 0.0 }]",
            "`inf`",
        ),
        ("arrivals = \"closed\"", "`clients` is `0`"),
        ("popularity = \"unequal\"", "unequal"),
        ("targets_ms = [10.0, 0.0]", "`targets_ms` holds `0`"),
    ] {
        let message = error_of(&file(cell));
        assert!(message.starts_with("mine.toml: "), "{message}");
        assert!(message.contains(said), "{cell}: {message}");
    }
    let message = error_of("name = \"mine\"\ntitle = 3\nkind = \"goodput\"\n");
    assert!(message.contains("line 2"), "{message}");
    let message = error_of("name = \"m\"\ntitle = \"t\"\nkind = \"goodput\"\npolicies = [\"x\"]\n");
    assert!(
        message.contains("there is no scheduling policy `x`"),
        "{message}"
    );
}

#[test]
fn a_malformed_fleet_says_what_is_wrong() {
    let file = |kind: &str, fleet: &str| {
        format!(
            "name = \"mine\"\ntitle = \"t\"\nkind = \"{kind}\"\n[defaults]\n\
             profile = \"symphony-table4\"\nmeasured_s = 1.0\n[[cell]]\nname = \"a\"\n{fleet}\n"
        )
    };
    let cheap = "{ name = \"cheap\", devices = 2, hour_usd = 1.0, slowdown = 4.0 }";
    let dear = "{ name = \"dear\", devices = 1, hour_usd = 10.0 }";
    let good = format!("fleet = [{cheap}, {dear}]");
    assert!(Experiment::parse(&file("prices", &good), "mine.toml").is_ok());
    for (kind, fleet, said) in [
        ("goodput", good.clone(), "only `prices`"),
        ("prices", String::new(), "fewer than two"),
        ("prices", format!("fleet = [{cheap}]"), "fewer than two"),
        ("prices", format!("{good}\ndevices = 3"), "`devices` is set"),
        ("prices", format!("fleet = [{dear}, {cheap}]"), "on `cheap`"),
        (
            "prices",
            good.replace("10.0", "-1.0"),
            "`hour_usd` of `dear` is `-1`",
        ),
        (
            "prices",
            good.replace("devices = 2", "devices = 0"),
            "`devices` of `cheap` is `0`",
        ),
        (
            "prices",
            good.replace("4.0", "nan"),
            "`slowdown` of `cheap`",
        ),
    ] {
        let message = error_of(&file(kind, &fleet));
        assert!(message.contains(said), "{fleet}: {message}");
    }
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let message = Experiment::named("symphony-fig99").unwrap_err().to_string();
    assert!(message.contains("symphony-fig10"), "{message}");
    let experiment = Experiment::named("symphony-table4").unwrap();
    let plan = Plan {
        cells: vec!["resnet51".to_owned()],
        ..quick(1)
    };
    let message = experiment::run(&experiment, &plan, &mut |_| {}).unwrap_err();
    assert!(
        message.to_string().contains("inceptionresnetv2"),
        "{message}"
    );
    let missing = Experiment::load(&PathBuf::from("no/such.toml")).unwrap_err();
    assert!(missing.to_string().contains("no/such.toml"));
}

#[test]
fn a_cell_whose_models_do_not_exist_says_so_when_it_runs() {
    let text = "name = \"mine\"\ntitle = \"t\"\nkind = \"goodput\"\n[[cell]]\nname = \"a\"\n\
        profile = \"symphony-table4\"\nmodels = [\"ResNet51\"]\ndevices = 1\nmeasured_s = 1.0\n";
    let experiment = Experiment::parse(text, "mine.toml").unwrap();
    let error = experiment::run(&experiment, &Plan::default(), &mut |_| {}).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("`a`") && message.contains("`ResNet51`"),
        "{message}"
    );
}
