//! `sextant simulate` as a user calls it: what is written where, exit codes, the shipped example.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sextant"))
        .arg("simulate")
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

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/what-if");
    path.join(name).display().to_string()
}

fn what_if(more: &[&str]) -> Output {
    let (workload, devices) = (example("requests.csv"), example("devices.toml"));
    let question = ["--what-if", "--workload", &workload, "--devices", &devices];
    run(&[&question, more].concat())
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
fn the_shipped_question_is_answered() {
    let output = what_if(&["--max-devices", "8", "--json"]);
    let records = records(&output);
    let least: Vec<&Value> = records
        .iter()
        .filter(|record| record["metric"] == "least_devices_count")
        .collect();
    assert!(
        least.iter().any(|record| record["policy"] == "sextant"),
        "{least:?}"
    );
    let text = stdout(&what_if(&["--max-devices", "8"]));
    for part in [
        "1439 requests",
        "2 cpu, 2 gpu",
        "(simulated)",
        "machine: ",
        "sextant: ",
        "devices needed",
        "| sextant",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn wrong_use_exits_with_two_and_says_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| -> String {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        path.display().to_string()
    };
    let trace = write("trace.csv", "timestamp,model\n0.5,bert\n0.7,brt\n");
    let devices = example("devices.toml");
    let fleet = write("own.toml", "name = \"own\"\n");
    let cases: [(&[&str], &str); 5] = [
        (&[], "--fleet"),
        (&["--fleet", &fleet, "--policy", "eager"], "ilp"),
        (&["--fleet", &fleet], "own.toml"),
        (&["--what-if", "--workload", &trace], "--registered"),
        (
            &["--what-if", "--workload", &trace, "--devices", &devices],
            "trace.csv, line 3: `brt`",
        ),
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
    let output = run(&["--fleet", "./no-such.toml", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let error: Value = serde_json::from_str(stderr(&output).trim()).expect("JSON");
    assert!(
        error["detail"]
            .as_str()
            .is_some_and(|text| text.contains("no-such.toml"))
    );
}
