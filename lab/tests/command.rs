//! `sextant-lab` as a user calls it: what it writes where, and its exit codes.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sextant-lab"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn records(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    let text = stdout(output);
    let lines = text.lines().map(serde_json::from_str);
    lines
        .collect::<Result<_, _>>()
        .expect("nothing but one object per line")
}

#[test]
fn the_shipped_experiments_are_listed() {
    let names: Vec<Value> = records(&run(&["list", "--json"]))
        .iter()
        .map(|line| line["experiment"].clone())
        .collect();
    for name in ["symphony-table4", "symphony-fig15", "clockwork-fig11"] {
        assert!(names.contains(&name.into()), "{names:?}");
        assert!(stdout(&run(&["list"])).contains(name));
    }
}

#[test]
fn an_experiment_prints_one_record_per_line() {
    let arguments = [
        "experiment",
        "symphony-table4",
        "--quick",
        "--policy",
        "sextant,eager",
        "--json",
    ];
    let output = run(&arguments);
    let records = records(&output);
    let value = |cell: &str, policy: Option<&str>, metric: &str| {
        let found = records.iter().find(|record| {
            record["cell"] == cell
                && record["policy"].as_str() == policy
                && record["metric"] == metric
                && record.get("seed").is_none()
        });
        found.and_then(|record| record["value"].as_f64())
    };
    for cell in ["resnet50", "inceptionresnetv2"] {
        let bound = value(cell, None, "fluid_bound_rps").expect("a bound");
        for policy in ["sextant", "eager"] {
            let goodput = value(cell, Some(policy), "goodput_rps").expect("a goodput");
            assert!(goodput > 0.0, "{cell} {policy}");
            assert!(bound > 0.0);
        }
    }
    assert_eq!(
        value("resnet50", None, "staggered_rps").map(f64::round),
        Some(5839.0)
    );
    assert_eq!(
        stdout(&output),
        stdout(&run(&arguments)),
        "the same every time"
    );
}

#[test]
fn a_table_says_on_what_it_was_made_and_that_it_is_simulated() {
    let arguments = [
        "experiment",
        "symphony-table4",
        "--quick",
        "--policy",
        "eager",
    ];
    let text = stdout(&run(&arguments));
    for part in ["(simulated)", "machine: ", "sextant: ", "| resnet50 "] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn partitions_are_compared_by_method() {
    let arguments = ["experiment", "symphony-fig15", "--quick", "--seeds", "1"];
    let chosen = [&arguments[..], &["--policy", "heuristic,random"]].concat();
    let text = stdout(&run(&chosen));
    for part in [
        "(simulated)",
        "memory apart, %",
        " heuristic |",
        " random |",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let records = records(&run(&[&chosen[..], &["--json"]].concat()));
    let metrics: Vec<&Value> = records.iter().map(|record| &record["metric"]).collect();
    for metric in [
        "rate_imbalance_percent",
        "memory_imbalance_percent",
        "solve_s",
    ] {
        assert!(metrics.contains(&&metric.into()), "{metrics:?}");
    }
    // These arguments are refused before anything runs.
    let cases: [(&[&str], &str); 3] = [
        (&["--policy", "eager"], "eager"),
        (&["--full"], "--full"),
        (&["--cells", "moon"], "moon"),
    ];
    for (option, named) in cases {
        let output = run(&[&arguments[..2], option].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    }
}

#[test]
fn a_resumed_experiment_reports_what_was_finished_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("done.jsonl").display().to_string();
    let arguments = [
        "experiment",
        "clockwork-fig5",
        "--quick",
        "--policy",
        "eager",
        "--json",
        "--resume",
        &journal,
    ];
    let first = run(&arguments);
    assert!(first.status.success(), "{}", stderr(&first));
    assert_eq!(stdout(&first), stdout(&run(&arguments)));
}

#[test]
fn wrong_use_exits_with_two_and_says_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| -> String {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        path.display().to_string()
    };
    let experiment = write("own.toml", "name = \"own\"\n");
    let cases: [(&[&str], &str); 5] = [
        (&["experiment"], "<NAME|FILE>"),
        (&["experiment", "symphony-fig99"], "symphony-fig10"),
        (
            &["experiment", "symphony-zoo", "--policy", "lazy"],
            "clockwork",
        ),
        (&["experiment", &experiment], "own.toml"),
        (&["experiment", "symphony-zoo", "--cells", "moon"], "moon"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = run(&["experiment", "./no-such.toml", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let error: Value = serde_json::from_str(stderr(&output).trim()).expect("JSON");
    assert!(
        error["detail"]
            .as_str()
            .is_some_and(|text| text.contains("no-such.toml"))
    );
}
