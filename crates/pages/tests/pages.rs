//! Pages of documents as the interface answers them.

use std::{fmt::Debug, io::Write};

use flate2::{Compression, write::GzEncoder};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sextant_pages::{
    Frame, Page, Pipeline, QueriesPage, QueryPage, Question, RefusalPage, RegistryPage,
    ServicePage, SignIn, Size, file,
};

const NOW_MS: u64 = 1_764_000_000_000;
/// What all pages and their files may come to, compressed.
const MOST_BYTES: usize = 60 << 10;
const HOSTILE: &str = "<script>alert('x')</script>\"&";

fn frame(question: Question) -> Frame {
    Frame {
        question: Some(question),
        version: "0.1.0",
        now_ms: NOW_MS,
        signed_in: Some("key_7f3a".to_owned()),
        live: true,
    }
}

fn read<T: DeserializeOwned + Debug>(document: Value) -> T {
    serde_json::from_value(document).expect("the page reads what the interface answers")
}

fn status(name: &str, in_time: u64, asked: u64, ms: f64) -> Value {
    let split = |ms: f64| json!({"load_ms": 0.0, "queue_ms": ms * 0.3, "run_ms": ms * 0.6, "other_ms": ms * 0.1, "total_ms": ms});
    let is_asked = asked > 0;
    let refused = match asked - in_time {
        0 => json!({}),
        refused => json!({"overloaded": refused, "invalid_tensor": 2}),
    };
    json!({"application": name, "targets": {"latency_ms": 20.0, "min_accuracy": 0.95}, "window_s": 57.2,
        "rate_per_s": asked as f64 / 57.2, "asked": asked, "answered": in_time, "in_time": in_time,
        "share_in_time": is_asked.then(|| in_time as f64 / asked as f64), "refused": refused,
        "p50": is_asked.then(|| split(ms)), "p99": is_asked.then(|| split(ms * 3.1)),
        "cost_per_hour_usd": 0.384})
}

fn served() -> ServicePage {
    let statuses = [
        status("digits", 24_312, 24_320, 1.9),
        status("speech-to-text", 812, 1_240, 31.0),
        status("thumbnails", 0, 0, 0.0),
    ];
    ServicePage {
        frame: frame(Question::Served),
        applications: statuses.map(read).to_vec(),
        fleet_per_hour_usd: Some(1.92),
    }
}

fn variant(number: usize, state: Option<&str>) -> Value {
    let number_ms = number as f64 + 0.4;
    let instances = state.map(|state| json!([{"state": state, "worker": "local"}]));
    json!({"name": format!("cnn-{number}-ort-fp32-all-t1-b32"), "model": "cnn", "application": "digits",
        "accuracy": {"kind": "accuracy", "metric": "top1", "value": 0.9 + 0.09 * (number_ms / 14.0).sqrt(),
            "lower": 0.89, "upper": 0.995, "records": 360, "evaluation_batch": 32},
        "latency": [{"batch": 1, "p50_ms": 0.02 * number_ms * number_ms, "p99_ms": 0.05 * number_ms * number_ms,
            "mean_ms": 0.1, "samples": 30}],
        "saturation_rps": 80_000.0 / number_ms, "load_ms": 3.0 * number_ms, "peak_memory_bytes": 4_000_000 * number,
        "cost_per_1k_usd": 0.000_002 * number_ms, "instances": instances.unwrap_or_else(|| json!([]))})
}

fn registered() -> RegistryPage {
    let states = [
        Some("active"),
        None,
        Some("active"),
        Some("loading"),
        Some("interfered"),
        Some("failed"),
        None,
        Some("active"),
    ];
    let variants = (1..)
        .zip(states)
        .map(|(number, state)| read(variant(number, state)));
    let job = |id: &str, kind: &str, state: &str, done: u64| {
        let error = (state == "failed")
            .then(|| json!({"code": "invalid_model", "message": "the graph has a cycle"}));
        json!({"id": id, "kind": kind, "application": "digits", "model": "cnn", "state": state,
            "step": "measure cnn-fp32", "progress": {"done": done, "total": 40, "left_s": 12}, "error": error,
            "attempts": 1, "created_ms": NOW_MS - 90_000, "updated_ms": NOW_MS - 4_000})
    };
    let model = json!({"name": "cnn", "application": "digits", "status": "ready", "variants": 8,
        "size_bytes": 1_482_112, "created_ms": NOW_MS - 7_300_000});
    let jobs = [
        job("job-3", "register", "running", 17),
        job("job-2", "offline", "succeeded", 40),
        job("job-1", "register", "failed", 3),
    ];
    RegistryPage {
        pipelines: vec![
            Pipeline {
                name: "photos".to_owned(),
                version: 3,
                graph: Ok("<svg><title>photos</title></svg>".to_owned()),
            },
            Pipeline {
                name: "sentences".to_owned(),
                version: 1,
                graph: Err("no application `<sentiment>`".to_owned()),
            },
        ],
        frame: frame(Question::Registered),
        models: vec![read(model)],
        online: vec![read(json!({
            "model": "resnet", "version": 2, "reward": null,
            "online": {"value": 0.871, "lower": 0.85, "upper": 0.89, "rows": 640},
            "registered": {"value": 0.912, "lower": 0.9, "upper": 0.92, "rows": 1000},
            "alarms": [{"kind": "level", "seen": 0.89, "limit": 0.9, "rows": 640, "since_ms": 1}],
            "variants": [],
        }))],
        variants: variants.collect(),
        jobs: jobs.map(read).to_vec(),
    }
}

fn size() -> Size {
    let decision = |number: u64, from: u32, to: u32| {
        json!({"number": number, "at_ms": NOW_MS - 60_000 * (10 - number),
            "subject": {"kind": "pool", "name": "cpu-8"}, "action": if to > from { "add_workers" } else { "remove_workers" },
            "from": from, "to": to, "reason": format!("what is asked for needs {to}.4 workers"),
            "inputs": [{"application": "digits", "latency_ms": 16.0, "min_accuracy": 0.95, "offered_rps": 850.0,
                "planned_rps": 1100.0}],
            "alternatives": [{"what": "1 worker of nvidia-h200", "cost_per_hour_usd": 3.828,
                "why_not": "3 workers of cpu-8 cost less"}]})
    };
    let scaling = json!({"desired_token": 4,
        "pools": [{"device_type": "cpu-8", "desired": 4, "least": 1, "most": 8, "up": 3, "leaving": 0, "draining": 1,
            "provider": "process", "price_per_hour_usd": 0.384, "start_s": 60.0},
            {"device_type": "nvidia-h200", "desired": 0, "least": 0, "most": 2, "up": 0, "leaving": 0, "draining": 0,
            "price_per_hour_usd": 3.828}],
        "variants": [{"variant": "cnn-1-ort-fp32-all-t1-b32", "application": "digits", "needed": 2, "desired": 3,
            "ready": 1, "loading": 1, "failed": 0, "pinned": false},
            {"variant": "mlp-ort-int8s-all-t1-b8", "application": "digits", "needed": 0, "desired": "everywhere",
            "ready": 3, "loading": 0, "failed": 1, "pinned": true}],
        "demand": {"window_ms": 1000, "classes": [{"application": "digits", "latency_ms": 16.0, "min_accuracy": 0.95,
            "offered_rps": 850.0, "answered": 820, "late": 10, "refused": {"overloaded": 20}}]},
        "cost_per_hour_usd": {"desired": 1.536, "actual": 1.536},
        "held_back": [{"application": "speech", "limit": "budget", "reason": "its budget pays 2 workers"}]});
    Size {
        frame: frame(Question::Size),
        scaling: read(scaling),
        decisions: vec![read(decision(9, 3, 4)), read(decision(8, 4, 3))],
    }
}

fn query(id: &str, outcome: &str) -> Value {
    let candidate = |verdict: &str| {
        json!({"variant": "cnn-1-ort-fp32-all-t1-b32", "device_type": "cpu-8", "accuracy_bound": 0.9412,
            "expected_ms": 4.25, "cost_per_1k_usd": 0.000_012, "state": "active", "verdict": verdict,
            "misses": if verdict == "selected" { json!([]) } else { json!(["accuracy", "latency"]) }})
    };
    let is_answered = outcome == "answered";
    let explanation = json!({"reason": "the cheapest of 4 that meet the targets", "considered": 24,
        "candidates": [candidate("selected"), candidate("dearer")]});
    let problem = json!({"type": "/docs/errors/target_infeasible", "title": "Nothing can meet the targets", "status": 422,
        "detail": "no variant meets `min_accuracy` 0.9999", "instance": "/v1/queries", "code": "target_infeasible",
        "closest": [candidate("accuracy")]});
    json!({"id": id, "request_id": "01980f3e-5f5a", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "at_ms": NOW_MS - 42_000, "application": "digits", "outcome": outcome,
        "variant": is_answered.then_some("cnn-1-ort-fp32-all-t1-b32"), "targets_met": is_answered.then_some(true),
        "explanation": is_answered.then_some(explanation), "problem": (!is_answered).then_some(problem),
        "budget": {"deadline_us": 20_000.0, "left_us": if is_answered { 8_000.0 } else { -2_000.0 }, "read_us": 120.0,
            "load_us": 2_000.0, "queue_us": 5_000.0, "run_us": 4_500.0, "return_us": 280.0, "write_us": 100.0,
            "total_us": 12_000.0}})
}

fn kept() -> QueriesPage {
    let queries = ["answered", "target_infeasible", "overloaded"];
    let queries = (1..)
        .zip(queries)
        .map(|(at, outcome)| read(query(&format!("q-{at}"), outcome)));
    QueriesPage {
        frame: frame(Question::Answer),
        queries: queries.collect(),
    }
}

fn answered(outcome: &str) -> QueryPage {
    QueryPage {
        frame: frame(Question::Answer),
        query: read(query("q-17", outcome)),
    }
}

fn sign_in() -> SignIn {
    SignIn {
        frame: frame(Question::Served),
        next: "/size".to_owned(),
        refusal: Some("there is no such API key, or it was revoked".to_owned()),
    }
}

/// Every page, by its name.
fn pages() -> Vec<(&'static str, String)> {
    let refused = RefusalPage {
        frame: frame(Question::Size),
        title: "The key does not allow it".to_owned(),
        detail: "the key lacks the scope `query`".to_owned(),
        code: "forbidden".to_owned(),
    };
    let texts = [
        ("served", served().text()),
        ("registered", registered().text()),
        ("size", size().text()),
        ("kept", kept().text()),
        ("answered", answered("answered").text()),
        ("unanswered", answered("target_infeasible").text()),
        ("sign-in", sign_in().text()),
        ("refused", refused.text()),
    ];
    let texts = texts.into_iter();
    texts
        .map(|(name, text)| (name, text.expect("it is written")))
        .collect()
}

fn compressed(text: &str) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("written");
    encoder.finish().expect("written").len()
}

#[test]
fn all_pages_and_their_files_are_light() {
    let pages = pages().into_iter().map(|(_, text)| compressed(&text));
    let files = ["style.css", "live.js", "icon.svg"]
        .map(|name| compressed(file(name).expect("a file").content));
    let bytes: usize = pages.chain(files).sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}

#[test]
fn no_page_needs_what_its_policy_forbids() {
    for (name, text) in pages() {
        for forbidden in [
            " style=",
            "<style",
            "javascript:",
            "://",
            " onclick=",
            "data:",
        ] {
            assert!(!text.contains(forbidden), "{name}: {forbidden}");
        }
        let scripts = text.matches("<script").count();
        assert_eq!(
            scripts,
            text.matches("<script src=\"/pages/live.js\" defer></script>")
                .count(),
            "{name}"
        );
        assert!(file("other.js").is_none());
    }
}

#[test]
fn what_clients_name_is_text_and_nothing_else() {
    let mut status = status("digits", 5, 10, 3.0);
    status["application"] = json!(HOSTILE);
    let mut explained = query(HOSTILE, "target_infeasible");
    explained["problem"]["detail"] = json!(HOSTILE);
    let mut variant = variant(1, Some("active"));
    for member in ["name", "application"] {
        variant[member] = json!(HOSTILE);
    }
    variant["accuracy"]["metric"] = json!(HOSTILE);
    let (served, registered) = (served(), registered());
    let texts = [
        ServicePage {
            applications: vec![read(status)],
            ..served
        }
        .text(),
        RegistryPage {
            variants: vec![read(variant)],
            pipelines: vec![Pipeline {
                name: HOSTILE.to_owned(),
                version: 1,
                graph: Err(HOSTILE.to_owned()),
            }],
            ..registered
        }
        .text(),
        QueryPage {
            frame: frame(Question::Answer),
            query: read(explained),
        }
        .text(),
        SignIn {
            next: HOSTILE.to_owned(),
            refusal: Some(HOSTILE.to_owned()),
            ..sign_in()
        }
        .text(),
    ];
    for text in texts {
        let text = text.expect("it is written");
        assert!(
            !text.contains("<script>") && !text.contains("</script>\""),
            "{text}"
        );
    }
}

#[test]
fn each_chart_has_its_table() {
    for (name, text) in pages() {
        let charts = text.matches("role=\"img\"").count();
        let tables = text.matches("<table").count();
        assert!(tables >= charts, "{name}: {charts} charts, {tables} tables");
    }
}

#[test]
fn the_pages_answer_their_questions() {
    let expected = [
        ("served", "No: 1 of 2 applications is not."),
        (
            "registered",
            "1 model, 8 variants on the frontier, 1 job under way.",
        ),
        ("size", "cpu-8: what is asked for needs 4.4 workers."),
        ("kept", "2 refused and 0 slow ones are kept."),
        ("answered", "The cheapest of 4 that meet the targets."),
        ("unanswered", "Nothing can meet the targets."),
    ];
    let pages = pages();
    for (name, words) in expected {
        let found = pages.iter().find(|(page, _)| *page == name);
        let (_, text) = found.expect("a page");
        assert!(text.contains(words), "{name}: {text}");
    }
}

#[test]
fn a_class_of_targets_is_shown_with_both_its_ends() {
    let text = size().text().expect("it is written");
    let class = "latency 16.0 ms to 32.0 ms, accuracy 0.95";
    // What is asked for, and what each of two decisions was made for.
    assert_eq!(text.matches(class).count(), 3, "{text}");
}

/// With `SEXTANT_PAGES` the pages are written into that folder, to be looked at.
#[test]
fn pages_can_be_written_to_be_looked_at() {
    let Some(folder) = std::env::var_os("SEXTANT_PAGES") else {
        return;
    };
    let folder = std::path::PathBuf::from(folder);
    let files = folder.join("pages");
    std::fs::create_dir_all(&files).expect("a folder");
    for (name, text) in pages() {
        std::fs::write(folder.join(format!("{name}.html")), text).expect("written");
    }
    for name in ["style.css", "live.js", "icon.svg"] {
        std::fs::write(files.join(name), file(name).expect("a file").content).expect("written");
    }
}
