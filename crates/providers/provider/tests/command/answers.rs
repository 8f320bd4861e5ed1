//! Invalid answers.

use sextant_provider::{MachineId, Provider, State};
use tempfile::TempDir;

use super::support::{assert_refused, pool, script};

/// A script that answers `list` with the first text and `up` with the second.
fn answering(folder: &TempDir, list: &str, up: &str) -> sextant_provider::command::Script {
    let words =
        format!("case $1 in list) echo '{list}';; up) echo '{up}';; down) echo nothing;; esac");
    script(&words, folder.path())
}

const NONE: &str = r#"{"machines":[]}"#;

#[tokio::test]
async fn malformed_answers_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let long = format!(r#"{{"machines":[{{"id":"{}"}}]}}"#, "x".repeat(300));
    for (answer, words) in [
        ("", "EOF"),
        ("no machines", "expected"),
        ("[]", "invalid length 0"),
        ("{}", "missing field `machines`"),
        (r#"{"machines":[{"id":"a"}]"#, "EOF"),
        (r#"{"machines":[]} {"machines":[]}"#, "trailing"),
        (
            r#"{"machines":[{"state":"running"}]}"#,
            "missing field `id`",
        ),
        (r#"{"machines":[{"id":1}]}"#, "expected a string"),
        (
            r#"{"machines":[{"id":"a","state":"up"}]}"#,
            "unknown variant `up`",
        ),
        (
            r#"{"machines":[{"id":"a","wroker":"w"}]}"#,
            "unknown field `wroker`",
        ),
        (
            r#"{"machines":[{"id":"a","worker":"No Name"}]}"#,
            "`No Name` is not a valid worker",
        ),
        (r#"{"machines":[{"id":"a","since_ms":-1}]}"#, "integer `-1`"),
        (r#"{"machines":[{"id":""}]}"#, "1 to 256 bytes"),
        (&long, "1 to 256 bytes"),
        (
            r#"{"machines":[{"id":"a"},{"id":"b"},{"id":"a"}]}"#,
            "machine `a` twice",
        ),
        (
            r#"{"machines":[{"id":"a","pool":"gpu"}]}"#,
            "machine `a` of pool `gpu`",
        ),
    ] {
        let lists = answering(&folder, answer, NONE);
        assert_refused(lists.list(&pool("cpu", 1)).await, words);
        assert_refused(lists.grow(&pool("cpu", 1), 1).await, words);
        let named = [MachineId("a".to_owned())];
        assert_refused(lists.end(&pool("cpu", 1), &named).await, words);
        let starts = answering(&folder, NONE, answer);
        assert_refused(starts.grow(&pool("cpu", 1), 5).await, words);
        assert_eq!(starts.list(&pool("cpu", 1)).await.expect("list"), []);
    }
}

#[tokio::test]
async fn what_may_be_left_out_is_filled_in() {
    let folder = TempDir::new().expect("a folder");
    let list = r#"{"machines":[{"id":"b"},{"id":"a","pool":"cpu","state":"ending"}]}"#;
    let lists = answering(&folder, list, NONE);
    let machines = lists.list(&pool("cpu", 1)).await.expect("list");
    let short: Vec<_> = machines
        .iter()
        .map(|it| (it.id.0.as_str(), it.state))
        .collect();
    assert_eq!(short, [("a", State::Ending), ("b", State::Running)]);
    assert!(
        machines
            .iter()
            .all(|it| it.worker.is_none() && it.since_ms == 0)
    );
}

#[tokio::test]
async fn more_than_asked_for_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let two = answering(&folder, NONE, r#"{"machines":[{"id":"a"},{"id":"b"}]}"#);
    let result = two.grow(&pool("cpu", 1), 1).await;
    assert_refused(result, "asked for 1 machines and answered 2");
    assert_eq!(two.list(&pool("cpu", 1)).await.expect("list"), []);
}

#[tokio::test]
async fn fewer_than_asked_for_are_what_there_is() {
    let folder = TempDir::new().expect("a folder");
    let one = answering(&folder, NONE, r#"{"machines":[{"id":"a"}]}"#);
    one.grow(&pool("cpu", 1), 4).await.expect("grow");
    assert_eq!(one.list(&pool("cpu", 1)).await.expect("list").len(), 1);
}

#[tokio::test]
async fn down_must_answer_json_or_nothing() {
    let folder = TempDir::new().expect("a folder");
    let says = answering(&folder, r#"{"machines":[{"id":"a"}]}"#, NONE);
    let named = [MachineId("a".to_owned())];
    assert_refused(
        says.end(&pool("cpu", 1), &named).await,
        "`down` did not answer",
    );
    let listed = says.list(&pool("cpu", 1)).await.expect("list");
    assert_eq!(listed[0].state, State::Running, "it was not told");
}
