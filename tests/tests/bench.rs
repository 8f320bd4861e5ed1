//! `sextant bench` against a running service: the queries that it sends, and its report.

use std::{fs, process::Output};

use serde_json::{Value, json};
use sextant_tests::{TestCluster, digits};

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs it and reads its lines; those of applications come before that of all.
fn bench(cluster: &TestCluster, arguments: &[&str]) -> Vec<Value> {
    let before = ["--json", "bench", "--warm-up", "100ms"];
    let text = stdout(&cluster.client(&[&before, arguments].concat()));
    let lines = text.lines().map(serde_json::from_str);
    lines
        .map(|line| line.expect("an object on each line"))
        .collect()
}

fn count(line: &Value, member: &str) -> u64 {
    line[member].as_u64().expect("a count")
}

#[tokio::test]
async fn a_closed_loop_tells_rates_latencies_targets_and_variants() {
    let cluster = digits::with_mlp(&[]).await;
    let arguments = ["-a", "digits", "--concurrency", "2", "--duration", "500ms"];
    let targets = ["--latency-ms", "60000", "--min-accuracy", "0.5"];
    let lines = bench(&cluster, &[&arguments[..], &targets].concat());
    let [digits, all] = &lines[..] else {
        panic!("one application and all: {lines:?}");
    };
    assert_eq!(
        (&digits["application"], &all["application"]),
        (&json!("digits"), &json!(null))
    );
    let sent = count(digits, "sent");
    assert!(sent > 0 && count(digits, "answered") == sent, "{digits}");
    assert_eq!(digits["in_time_share"], 1.0);
    assert_eq!(digits["targets_met_share"], 1.0);
    let variants = digits["variants"].as_object().expect("counts");
    assert!(
        variants.keys().all(|name| name.starts_with("mlp-")),
        "{digits}"
    );
    let counts = variants.values().filter_map(Value::as_u64);
    assert_eq!(counts.sum::<u64>(), sent);
    let latency = &digits["latency_ms"];
    assert!(
        latency["p50"].as_f64() <= latency["p99_9"].as_f64(),
        "{latency}"
    );
    assert!(latency["p50"].as_f64() > Some(0.0), "{latency}");
    let text = stdout(&cluster.client(&[&["bench", "--warm-up", "0s"], &arguments[..]].concat()));
    for part in ["application", "p99.9", "digits: variants mlp-"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn open_loops_and_traces_send_what_is_due_to_each_application() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    api.create_application("letters").await;
    api.register(digits::upload("letters", "letters", "logistic"))
        .await;
    let of = |lines: &[Value], name: &str| {
        let line = lines.iter().find(|line| line["application"] == name);
        count(line.expect("a line of it"), "sent")
    };
    let constant = [
        "--arrivals",
        "constant",
        "--duration",
        "500ms",
        "--seed",
        "3",
    ];
    let two = ["-a", "digits", "-a", "letters:rate=40", "--rate", "100"];
    let lines = bench(&cluster, &[&two[..], &constant].concat());
    // One gap more or less at both ends of the measured time.
    assert!((49..=51).contains(&of(&lines, "digits")), "{lines:?}");
    assert!((19..=21).contains(&of(&lines, "letters")), "{lines:?}");
    let gamma = ["-a", "digits:rate=100", "--arrivals", "gamma", "--cv", "3"];
    let lines = bench(&cluster, &[&gamma[..], &["--duration", "300ms"]].concat());
    assert_eq!(lines.len(), 2, "{lines:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.csv");
    let line = |number: usize| {
        let application = ["digits", "digits", "letters"][number % 3];
        format!("{},{application}\n", 100.0 + number as f64 / 50.0)
    };
    let text: String = (0..60).map(line).collect();
    fs::write(&trace, format!("timestamp,application\n{text}")).expect("a file");
    let trace = trace.to_string_lossy();
    let replay = ["--trace", &trace, "--speed", "4", "--warm-up", "0s"];
    let text = stdout(&cluster.client(&[&["--json", "bench"], &replay[..]].concat()));
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let lines = lines.expect("an object on each line");
    assert_eq!((of(&lines, "digits"), of(&lines, "letters")), (40, 20));
    assert_eq!(count(&lines[2], "answered"), 60, "{lines:?}");
}

#[tokio::test]
async fn refusals_are_told_by_their_code() {
    let cluster = digits::with_mlp(&[]).await;
    let arguments = [
        "-a",
        "digits:min_accuracy=1",
        "--rate",
        "100",
        "--duration",
        "300ms",
    ];
    let lines = bench(&cluster, &arguments);
    let digits = &lines[0];
    let refused = count(&digits["refused"], "target_infeasible");
    assert!(refused > 0 && refused == count(digits, "sent"), "{digits}");
    assert_eq!(
        (&digits["answered"], &digits["latency_ms"]),
        (&json!(0), &json!(null))
    );
    let lines = bench(&cluster, &[&arguments[..], &["--best-effort"]].concat());
    assert_eq!(
        (&lines[0]["targets_met_share"], &lines[0]["refused"]),
        (&json!(0.0), &json!({}))
    );
}

#[tokio::test]
async fn inputs_come_from_files_and_as_bytes() {
    let cluster = digits::with_mlp(&[]).await;
    let validation = digits::file("validation.npz");
    let validation = validation.to_string_lossy();
    let images = format!("digits:input={validation}");
    let few = ["--concurrency", "1", "--duration", "200ms", "--rows", "2"];
    for arguments in [
        vec!["-a", &images],
        vec!["-a", "digits", "--input", &validation, "--binary"],
        vec!["-a", "digits", "--binary", "--shape", "pixels=2,64"],
    ] {
        let lines = bench(&cluster, &[&arguments[..], &few].concat());
        let (sent, answered) = (count(&lines[0], "sent"), count(&lines[0], "answered"));
        assert!(sent > 0 && sent == answered, "{arguments:?}: {lines:?}");
        assert!(
            lines[0]["variants"]
                .as_object()
                .is_some_and(|it| !it.is_empty())
        );
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_said_before_anything_is() {
    let cluster = digits::with_mlp(&[]).await;
    cluster.api().create_application("empty").await;
    let refused = |arguments: &[&str]| {
        let output = cluster.client(&[&["bench"], arguments].concat());
        (output.status.code(), stderr(&output))
    };
    let (code, said) = refused(&["-a", "digit"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("application_not_found") && said.contains("`digits`"),
        "{said}"
    );
    let (_, said) = refused(&["-a", "empty"]);
    assert!(said.contains("`empty` has no model"), "{said}");
    let (code, said) = refused(&["-a", "digits", "--trace", "no-such.csv"]);
    assert!(code == Some(2) && said.contains("`no-such.csv`"), "{said}");
    let (code, said) = refused(&["-a", "digits", "--shape", "image=1,64"]);
    assert!(
        code == Some(2) && said.contains("the inputs `pixels`"),
        "{said}"
    );
    let (code, said) = refused(&["-a", "digits", "--rate", "0"]);
    assert!(code == Some(2) && said.contains("above 0"), "{said}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let (code, said) = refused(&["-a", "digits", "--server", &address]);
    assert!(code == Some(1) && said.contains(&address), "{said}");
}
