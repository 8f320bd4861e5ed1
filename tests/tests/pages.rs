//! The pages as a browser shows them: `tests/pages/look.py` opens them in headless Chromium, with axe-core.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};
use sextant_test_servers::cache;
use sextant_tests::{Api, Settings, TestCluster, digits};

const PAGES: [&str; 4] = ["/", "/registered", "/size", "/answer"];
/// The widths of a phone, a laptop and a screen on a wall.
const WIDTHS: [&str; 3] = ["360", "1280", "2560"];
const ADMIN: &str = "an-administrator's-key";

/// The findings for the pages, one entry for each page, theme and width.
fn look(cluster: &TestCluster, paths: &[&str], key: Option<&str>) -> Vec<Value> {
    let python = cache().expect("a home folder").join("python/bin/python3");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pages/look.py");
    let mut command = Command::new(python);
    command.arg(script).arg(cluster.address()).args(paths);
    command.arg("--widths").args(WIDTHS);
    if let Some(key) = key {
        command.args(["--key", key]);
    }
    let output = command
        .output()
        .expect("Python starts: run `cargo xtask provision`");
    let (said, failed) = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .into();
    assert!(output.status.success(), "{said}\n{failed}");
    let lines = said.lines();
    let seen: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        seen.len(),
        paths.len() * WIDTHS.len() * 2,
        "both themes: {said}"
    );
    seen
}

fn check(seen: &[Value]) {
    for page in seen {
        assert_eq!(page["violations"], json!([]), "{page}");
        assert_eq!(page["complaints"], json!([]), "{page}");
        assert_eq!(page["overflow_px"], 0, "nothing runs over the edge: {page}");
    }
}

/// Sends queries that are answered, refused and explained.
async fn ask(api: &Api) {
    let images = digits::Images::load("test");
    for number in 0..20 {
        let query = json!({"application": "digits", "inputs": images.input(number)});
        api.post("/v1/queries", &query).await.json(200);
    }
    for (id, targets, status) in [
        ("answered", json!({"min_accuracy": 0.9}), 200),
        ("refused", json!({"min_accuracy": 0.9999}), 422),
    ] {
        let query = json!({"id": id, "application": "digits", "explain": true, "targets": targets,
            "inputs": images.input(0)});
        api.post("/v1/queries", &query).await.json(status);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_can_be_read_by_everybody_in_both_themes_and_at_every_width() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    digits::warm(&api).await;
    ask(&api).await;
    let paths = [
        &PAGES[..],
        &["/answer/answered", "/answer/refused", "/answer/none"],
    ]
    .concat();
    let mut seen = look(&cluster, &paths, None);
    // That a page is not there is what the browser complains of here.
    for page in seen
        .iter_mut()
        .filter(|page| page["page"] == "/answer/none")
    {
        page["complaints"] = json!([]);
    }
    check(&seen);
    let headings: Vec<&str> = seen
        .iter()
        .filter_map(|it| it["heading"].as_str())
        .collect();
    for question in ["served?", "registered?", "size?", "answer?"] {
        assert!(
            headings.iter().any(|heading| heading.contains(question)),
            "{headings:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_signs_in_with_a_key() {
    let set = [
        "auth.mode=keys".to_owned(),
        format!("auth.admin_key={ADMIN}"),
    ];
    let cluster = TestCluster::start(Settings {
        set: set.to_vec(),
        ..Settings::default()
    });
    let outside = look(&cluster, &["/size"], None);
    check(&outside);
    assert!(
        outside.iter().all(|page| page["shown"] == "/sign-in"),
        "{outside:?}"
    );
    let inside = look(&cluster, &PAGES, Some(ADMIN));
    check(&inside);
    assert!(
        inside.iter().all(|page| page["shown"] == page["page"]),
        "{inside:?}"
    );
}
