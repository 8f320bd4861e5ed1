//! `sextant doctor` reports what a machine lacks before a service is started.

use std::process::Output;

use serde_json::Value;
use sextant_test_servers::{interpreter, postgres::Postgres, redis::Redis, s3::S3};
use sextant_tests::{Settings, TestCluster, command_behind};

/// Runs `sextant doctor` with the settings of a data folder.
fn doctor(arguments: &[&str], s3: Option<&S3>) -> Output {
    let mut command = command_behind(&[]);
    command.args(["--json", "doctor", "--set", "variants.engines=ort"]);
    if let Some(s3) = s3 {
        command
            .env("AWS_ACCESS_KEY_ID", s3.access_key())
            .env("AWS_SECRET_ACCESS_KEY", s3.secret_key());
    }
    command
        .args(arguments)
        .output()
        .expect("the binary can be started")
}

fn findings(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(serde_json::from_str);
    lines
        .map(|line| line.expect("an object on each line"))
        .collect()
}

fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let of = findings.iter().find(|finding| finding["check"] == check);
    of.unwrap_or_else(|| panic!("nothing was found of `{check}`: {findings:?}"))
}

#[test]
fn a_machine_that_has_everything_is_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let data = data.to_string_lossy();
    let output = doctor(&["--data-dir", &data, "--listen", "127.0.0.1:0"], None);
    let found = findings(&output);
    assert!(output.status.success(), "{found:?}");
    for check in [
        "configuration",
        "engine ort",
        "data folder",
        "port listen",
        "cores",
        "memory",
    ] {
        assert_eq!(finding(&found, check)["state"], "ok", "{found:?}");
    }
    assert!(!folder.path().join("data").exists(), "nothing is made");
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_string_lossy();
    let missing = ["--onnxruntime-library", "/no/such/library.so"];
    let stores = [
        "--set",
        "metadata.url=redis://127.0.0.1:1",
        "--set",
        "registry.url=postgres://sextant@127.0.0.1:1/sextant",
    ];
    let listen = ["--listen", "192.0.2.1:80", "--data-dir", &data];
    let output = doctor(&[&missing[..], &stores, &listen].concat(), None);
    assert_eq!(output.status.code(), Some(1));
    let found = findings(&output);
    for (check, part) in [
        ("engine ort", "/no/such/library.so"),
        ("metadata store", ""),
        ("registry", ""),
        ("port listen", "192.0.2.1:80"),
    ] {
        let finding = finding(&found, check);
        assert_eq!(finding["state"], "fail", "{finding}");
        assert!(
            finding["found"]
                .as_str()
                .is_some_and(|it| it.contains(part)),
            "{finding}"
        );
        assert!(finding["advice"].is_string(), "{finding}");
    }
    assert!(
        !found.iter().any(|it| it.to_string().contains("password")),
        "{found:?}"
    );
}

#[test]
fn the_interpreter_of_steps_is_looked_at_where_there_are_any() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_string_lossy();
    let of = |interpreter: &str| {
        let interpreter = format!("pipelines.python.interpreter={interpreter}");
        let enabled = [
            "--set",
            "pipelines.python.enabled=true",
            "--set",
            &interpreter,
        ];
        let place = ["--data-dir", &data, "--listen", "127.0.0.1:0"];
        findings(&doctor(&[&enabled[..], &place].concat(), None))
    };
    let good = of(&interpreter().to_string_lossy());
    let good = finding(&good, "python");
    assert_eq!(good["state"], "ok", "{good}");
    assert!(
        good["found"]
            .as_str()
            .is_some_and(|it| it.contains("NumPy")),
        "{good}"
    );
    for bad in ["/no/such/python", "/bin/true"] {
        let found = of(bad);
        let found = finding(&found, "python");
        assert_eq!(found["state"], "fail", "{found}");
        assert!(
            found["found"].as_str().is_some_and(|it| it.contains(bad)),
            "{found}"
        );
    }
}

#[test]
fn the_stores_of_a_fleet_answer_and_tell_the_time() {
    let (redis, postgres, s3) = (Redis::start(), Postgres::start(), S3::start());
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_string_lossy();
    let set = |setting: &str, value: String| ["--set".to_owned(), format!("{setting}={value}")];
    let settings: Vec<String> = [
        set("metadata.url", redis.url()),
        set("registry.url", postgres.url()),
        set("objects.url", format!("s3://{}", s3.bucket())),
        set("objects.endpoint", s3.endpoint()),
        set("objects.region", "us-east-1".to_owned()),
    ]
    .concat();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let place = ["--data-dir", &data, "--listen", "127.0.0.1:0"];
    let output = doctor(&[&place[..], &settings].concat(), Some(&s3));
    let found = findings(&output);
    for check in ["metadata store", "registry", "artefact store"] {
        assert_eq!(finding(&found, check)["state"], "ok", "{found:?}");
    }
    let clock = finding(&found, "registry")["found"].to_string();
    assert!(clock.contains("its clock differs by"), "{clock}");
}

#[test]
fn a_service_that_runs_is_noticed() {
    let cluster = TestCluster::start(Settings::default());
    let data = cluster.data();
    let listen = cluster.address().trim_start_matches("http://").to_owned();
    let output = doctor(
        &["--data-dir", &data.to_string_lossy(), "--listen", &listen],
        None,
    );
    assert!(output.status.success());
    let found = findings(&output);
    for check in ["data folder", "port listen"] {
        assert_eq!(finding(&found, check)["state"], "warn", "{found:?}");
    }
}

#[test]
fn a_store_of_another_registry_is_noticed() {
    let cluster = TestCluster::start(Settings::default());
    let data = cluster.data();
    let look = || {
        let output = doctor(&["--data-dir", &data.to_string_lossy()], None);
        finding(&findings(&output), "registry and store").clone()
    };
    assert_eq!(look()["state"], "ok");
    // A missing folder is not created, because it may be a volume that is not mounted.
    let outer = tempfile::tempdir().expect("a folder");
    let absent = outer.path().join("mounted");
    let url = format!("objects.url=file://{}", absent.display());
    let data_dir = data.to_string_lossy();
    findings(&doctor(&["--data-dir", &data_dir, "--set", &url], None));
    assert!(!absent.exists(), "nothing is made");
    let other = format!("{}\n", "0".repeat(32));
    std::fs::write(data.join("objects/identity"), other).expect("written");
    let found = look();
    assert_eq!(found["state"], "warn", "{found}");
    assert!(found["advice"].to_string().contains("adopt"), "{found}");
}
