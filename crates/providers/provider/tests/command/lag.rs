//! A list that lags behind what was started and what was told to end.

use std::{fs, time::Duration, time::Instant};

use sextant_provider::{Machine, Provider, State, command::Script, conformance::DEADLINE};
use tempfile::TempDir;

use super::support::{pool, script, settings};

/// Lists the content of the file `list`, starts a machine named by the number of calls, and counts.
const LAGGING: &str = r#"
    cd $FOLDER
    echo >>$1
    case $1 in
    list) cat shown 2>/dev/null || echo '{"machines":[]}';;
    up) echo '{"machines":[{"id":"i-'$(wc -l <up)'"}]}';;
    esac
"#;

fn calls(folder: &TempDir, call: &str) -> usize {
    let lines = fs::read_to_string(folder.path().join(call));
    lines.unwrap_or_default().len()
}

fn show(folder: &TempDir, list: &str) {
    fs::write(folder.path().join("shown"), list).expect("written");
}

fn states(machines: &[Machine]) -> Vec<(&str, State)> {
    let states = machines.iter().map(|it| (it.id.0.as_str(), it.state));
    states.collect()
}

#[tokio::test]
async fn machine_that_no_list_shows_yet_is_starting_and_counts() {
    let folder = TempDir::new().expect("a folder");
    let (lags, pool) = (script(LAGGING, folder.path()), pool("cpu", 1));
    for _ in 0..3 {
        lags.grow(&pool, 1).await.expect("grow");
        let listed = lags.list(&pool).await.expect("list");
        assert_eq!(states(&listed), [("i-1", State::Starting)]);
    }
    assert_eq!(calls(&folder, "up"), 1);
    show(&folder, r#"{"machines":[{"id":"i-1"}]}"#);
    let listed = lags.list(&pool).await.expect("list");
    assert_eq!(states(&listed), [("i-1", State::Running)]);
    show(&folder, r#"{"machines":[]}"#);
    assert_eq!(
        lags.list(&pool).await.expect("list"),
        [],
        "seen once, it can go"
    );
}

#[tokio::test]
async fn machine_that_no_list_ever_shows_is_given_up() {
    let folder = TempDir::new().expect("a folder");
    let mut settings = settings(LAGGING, folder.path());
    settings.settle_ms = 1500;
    let (never, pool) = (Script::new(settings), pool("cpu", 1));
    never.grow(&pool, 1).await.expect("grow");
    let deadline = Instant::now() + DEADLINE;
    while !never.list(&pool).await.expect("list").is_empty() {
        assert!(Instant::now() < deadline, "it is still listed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    never.grow(&pool, 1).await.expect("grow");
    assert_eq!(calls(&folder, "up"), 2);
}

#[tokio::test]
async fn machine_that_was_told_to_end_ends_whatever_the_list_says() {
    let folder = TempDir::new().expect("a folder");
    let (lags, pool) = (script(LAGGING, folder.path()), pool("cpu", 1));
    show(&folder, r#"{"machines":[{"id":"i-7"},{"id":"i-8"}]}"#);
    let seven = lags.list(&pool).await.expect("list").remove(0).id;
    for _ in 0..3 {
        lags.end(&pool, std::slice::from_ref(&seven))
            .await
            .expect("end");
        let listed = lags.list(&pool).await.expect("list");
        let wanted = [("i-7", State::Ending), ("i-8", State::Running)];
        assert_eq!(states(&listed), wanted);
    }
    assert_eq!(calls(&folder, "down"), 1);
    lags.grow(&pool, 2).await.expect("grow");
    assert_eq!(calls(&folder, "up"), 1, "one that ends does not count");
}
