//! The binary as a user calls it, as far as no server is needed: arguments, configuration, exit
//! codes, what is written where.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    net::TcpListener,
    os::unix::ffi::OsStrExt,
    process::{Command, Output, Stdio},
};

fn sextant(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sextant"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SEXTANT_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    sextant(arguments).output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn flags_win_over_environment_and_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sextant.toml");
    fs::write(
        &file,
        "listen = '127.0.0.1:1'\n[limits]\nmax_queue_per_variant = 1\n[worker]\ncores = 1\n",
    )
    .expect("the file is written");
    let output = sextant(&[
        "config",
        "--listen",
        "127.0.0.1:3",
        "--set",
        "limits.max_body_bytes=4096",
    ])
    .env("SEXTANT_CONFIG", &file)
    .env("SEXTANT_LISTEN", "127.0.0.1:2")
    .env("SEXTANT_LIMITS__MAX_QUEUE_PER_VARIANT", "2")
    .output()
    .expect("the binary runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for line in [
        "listen = \"127.0.0.1:3\"",
        "max_queue_per_variant = 2",
        "cores = 1",
        "max_body_bytes = 4096",
    ] {
        assert!(text.contains(line), "`{line}` is missing in\n{text}");
    }
}

#[test]
fn the_printed_configuration_can_be_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sextant.toml");
    let first = run(&["config", "--roles", "worker,api"]);
    fs::write(&file, &first.stdout).expect("the file is written");
    let second = run(&["config", "--config", &file.to_string_lossy()]);
    assert_eq!(stdout(&first), stdout(&second));
    assert!(stdout(&first).contains("roles = [\"api\", \"worker\"]"));
}

#[test]
fn a_wrong_configuration_exits_with_2_and_says_where() {
    let output = run(&["serve", "--set", "worker.core=2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean `worker.cores`?"));
    let output = run(&["serve", "--roles", "api,gateway"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("`--roles`") && text.contains("`variant-gen`"),
        "{text}"
    );
    let output = run(&["config", "--config", "/no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/no/such/file.toml"));
}

/// As `--config <(decrypt settings.toml)`.
#[test]
fn a_service_keeps_to_a_configuration_that_comes_through_a_pipe() {
    let arguments = ["--config", "/dev/stdin", "--set", "tls.client_ca=ca.crt"];
    let mut service = sextant(&["serve"]);
    let service = service.args(arguments).stdin(Stdio::piped());
    // The process starts itself again with what libraries are told by the environment.
    for variable in ["MIMALLOC_PURGE_DELAY", "ORT_DISABLE_TELEMETRY"] {
        service.env_remove(variable);
    }
    let started = service.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = started.spawn().expect("the binary runs");
    let mut pipe = started.stdin.take().expect("it is a pipe");
    pipe.write_all(b"[tls]\ncertificate = 'tls.crt'\n")
        .expect("the configuration is read");
    drop(pipe);
    let output = started.wait_with_output().expect("it ends");
    let text = stderr(&output);
    assert!(
        text.contains("`tls.certificate` and `tls.key` belong together"),
        "{text}"
    );
}

#[test]
fn wrong_arguments_exit_with_2() {
    for arguments in [
        &["frobnicate"][..],
        &["query", "--application", "digits"],
        &["query", "--input", "x=[1]"],
        &[
            "query",
            "--application",
            "a",
            "--model",
            "b",
            "--input",
            "x=[1]",
        ],
        &["query", "--application", "Not A Name", "--input", "x=[1]"],
        &["query", "--application", "a", "--input", "x"],
        &[
            "query",
            "--application",
            "a",
            "--input",
            "x=[1]",
            "--latency-ms",
            "soon",
        ],
        &[
            "register",
            "--application",
            "a",
            "--name",
            "m",
            "--model",
            "m.onnx",
        ],
        &["variants", "--application", "a", "--model", "b"],
        &["artefact", "get", "../secret"],
        &["artefact", "get", "/etc/passwd"],
        &["models", "--server", "nonsense"],
        &["models", "--server", "ftp://127.0.0.1"],
    ] {
        let output = run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(stdout(&output).is_empty(), "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn options_of_a_load_that_would_change_nothing_are_refused() {
    for (arguments, says) in [
        (
            &["--application", "a", "--rate", "5", "--cv", "3"][..],
            "`--arrivals gamma`",
        ),
        (
            &["--application", "a", "--arrivals", "constant"],
            "say `--rate`",
        ),
        (
            &["--trace", "t.csv", "--arrivals", "gamma", "--cv", "3"],
            "say `--rate`",
        ),
        (
            &["--body", "query.json", "--min-accuracy", "0.9"],
            "cannot be used with",
        ),
        (
            &["--body", "query.json", "--input", "records.jsonl"],
            "cannot be used with",
        ),
    ] {
        let output = run(&[&["bench"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn without_a_server_the_advice_is_to_start_one() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let output = run(&["models", "--server", &server]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("sextant serve") && text.contains(&server),
        "{text}"
    );
    let output = run(&["models", "--json", "--server", &server]);
    let document: serde_json::Value =
        serde_json::from_str(&stderr(&output)).expect("the error is JSON");
    assert!(document["detail"].is_string());
}

/// As `sextant .. 2>&1 | head`.
#[test]
fn nobody_has_to_read_what_is_told_on_standard_error() {
    for (arguments, code) in [
        (&["config", "--config", "/no/such/file.toml"][..], 2),
        (&["frobnicate"], 2),
        (&["frobnicate", "--json"], 2),
        (&["backup", "/no/such/folder", "--data-dir", "/no/such"], 1),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let status = sextant(arguments).stderr(writer).status();
        let status = status.expect("the binary runs");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn an_argument_that_is_no_unicode_is_a_wrong_one() {
    let argument = OsStr::from_bytes(b"caf\xe9");
    let refused = |arguments: &[&str]| {
        let output = sextant(arguments).arg(argument).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    assert!(refused(&["models"]).contains("Usage:"));
    let document: serde_json::Value =
        serde_json::from_str(&refused(&["--json", "models"])).expect("the error is JSON");
    assert!(document["detail"].is_string());
}

#[test]
fn a_setting_that_is_no_unicode_is_refused() {
    let value = OsStr::from_bytes(b"/srv/caf\xe9");
    let with = |variable: &str| {
        let output = sextant(&["config"]).env(variable, value).output();
        output.expect("the binary runs")
    };
    let refused = with("SEXTANT_DATA_DIR");
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("`SEXTANT_DATA_DIR`"));
    assert!(with("SEXTANT_CACHE").status.success(), "it is no setting");
}

#[test]
fn the_openapi_document_is_json() {
    let output = run(&["openapi"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let document: serde_json::Value =
        serde_json::from_str(&stdout(&output)).expect("the document is JSON");
    assert!(document["paths"]["/v1/queries"].is_object());
}

#[test]
fn the_server_is_that_of_the_flag_or_of_the_environment() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = nobody.local_addr().expect("an address").port();
    drop(nobody);
    let named = format!("http://127.0.0.1:{port}");
    let asked = |arguments: &[&str], environment: &str| {
        let mut command = sextant(arguments);
        let output = command.env("SEXTANT_SERVER", environment).output();
        stderr(&output.expect("the binary runs"))
    };
    assert!(asked(&["models"], &named).contains(&named));
    assert!(asked(&["--server", &named, "models"], "http://other:1").contains(&named));
    let usage = asked(&["query"], &named);
    assert!(
        usage.contains("Usage:") && !usage.contains("--server"),
        "{usage}"
    );
}
