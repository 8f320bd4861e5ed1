//! How the program is run, and what happens if it does not end well.

use std::{fs, time::Duration, time::Instant};

use rustix::process::{Pid, test_kill_process};
use sextant_provider::{Error, Provider, command::Script, conformance::DEADLINE};
use tempfile::TempDir;

use super::support::{assert_refused, pool, script, settings};

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

#[tokio::test]
async fn failing_script_is_refused_with_its_last_line() {
    let folder = folder();
    let failing = script(
        "echo '{\"machines\":[]}'; printf 'trying\\nno quota left\\n\\n' >&2; exit 3",
        folder.path(),
    );
    let result = failing.list(&pool("cpu", 1)).await;
    assert_refused(result, "`list` ended with exit status: 3: no quota left");
    let silent = script("kill -9 $$", folder.path());
    let result = silent.grow(&pool("cpu", 1), 1).await;
    assert_refused(
        result,
        "signal: 9 (SIGKILL): it said nothing on standard error",
    );
}

#[tokio::test]
async fn last_line_is_found_behind_much_else() {
    let folder = folder();
    let talks = "yes progress | head -c 3000000 >&2; printf '\\nno\\033[1m quota' >&2; exit 1";
    let result = script(talks, folder.path()).list(&pool("cpu", 1)).await;
    assert_refused(result, "exit status: 1: no[1m quota");
}

#[tokio::test]
async fn hanging_script_is_ended_with_what_it_started() {
    let folder = folder();
    let mut settings = settings(
        "echo $$ >$FOLDER/pid; sleep 600 & echo $! >$FOLDER/child; wait",
        folder.path(),
    );
    settings.timeout_ms = 1500;
    let hangs = Script::new(settings);
    let away = hangs.list(&pool("cpu", 1)).await.expect_err("it hangs");
    assert!(matches!(away, Error::Away { .. }), "{away:?}");
    assert!(
        away.to_string().contains("`list` took longer than 1500 ms"),
        "{away}"
    );
    for name in ["pid", "child"] {
        let pid = fs::read_to_string(folder.path().join(name)).expect("it began");
        let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("a pid");
        let deadline = Instant::now() + DEADLINE;
        while test_kill_process(pid).is_ok() {
            assert!(Instant::now() < deadline, "`{name}` still runs");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn missing_script_is_named() {
    let folder = folder();
    let mut settings = settings("", folder.path());
    settings.program = "/nowhere/machines.sh".to_owned();
    let missing = Script::new(settings);
    let error = missing.list(&pool("cpu", 1)).await.expect_err("no program");
    assert!(matches!(error, Error::Settings { .. }), "{error:?}");
    assert!(
        error.to_string().contains("/nowhere/machines.sh"),
        "{error}"
    );
}

#[tokio::test]
async fn endless_answer_is_ended() {
    let folder = folder();
    let result = script("yes", folder.path()).list(&pool("cpu", 1)).await;
    assert_refused(result, "more than 1048576 bytes");
}

/// A program that reads nothing has answered, and so has one whose child keeps its output open.
#[tokio::test]
async fn answer_ends_with_the_script() {
    let folder = folder();
    let answers = script(
        "exec <&-; sleep 600 & echo $! >$FOLDER/child; echo '{\"machines\":[{\"id\":\"i-1\"}]}'",
        folder.path(),
    );
    let machines = answers.list(&pool("cpu", 1)).await.expect("list");
    assert_eq!(machines.len(), 1);
    let child = fs::read_to_string(folder.path().join("child")).expect("a child");
    let child = Pid::from_raw(child.trim().parse().expect("a number")).expect("a pid");
    assert!(
        test_kill_process(child).is_ok(),
        "what it has started stays"
    );
    rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("killed");
}

/// The documented inputs.
#[tokio::test]
async fn script_is_told_what_is_documented() {
    let folder = folder();
    let notes = "cat >$FOLDER/$1; [ $1 = down ] || echo '{\"machines\":[{\"id\":\"i-1\"}]}'";
    let (notes, pool) = (script(notes, folder.path()), pool("cpu-8", 30_000));
    assert_eq!(notes.list(&pool).await.expect("list").len(), 1);
    assert_refused(notes.grow(&pool, 3).await, "`i-1`, which was there before");
    let named = ["i-1", "i-2"].map(|id| sextant_provider::MachineId(id.to_owned()));
    notes.end(&pool, &named).await.expect("end");
    let told = |call| {
        let text = fs::read(folder.path().join(call)).expect("it was called");
        serde_json::from_slice::<serde_json::Value>(&text).expect("JSON")
    };
    assert_eq!(told("list"), serde_json::json!({"pool": "cpu-8"}));
    let down = serde_json::json!({"pool": "cpu-8", "machines": ["i-1"], "end_ms": 30_000});
    assert_eq!(told("down"), down);
    let up = told("up");
    let workers = up["workers"].as_array().expect("names");
    assert_eq!((&up["pool"], workers.len()), (&"cpu-8".into(), 2));
    assert_ne!(workers[0], workers[1]);
    let begins =
        |name: &serde_json::Value| name.as_str().is_some_and(|it| it.starts_with("cpu-8-"));
    assert!(workers.iter().all(begins), "{up}");
}
