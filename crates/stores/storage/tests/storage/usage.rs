//! The usage of the store.

use sextant_storage::{Config, Kind, Usage};
use sextant_types::time::unix_ms;

use crate::support::{Bench, CONFIG};

fn shown(usage: &Usage) -> Vec<(Kind, String, String, u64, u64)> {
    let name = |name: Option<String>| name.unwrap_or_default();
    let uses = usage.uses.iter().map(|(used, amount)| {
        let application = name(used.application.as_ref().map(ToString::to_string));
        let model = name(used.model.as_ref().map(ToString::to_string));
        (used.kind, application, model, amount.objects, amount.bytes)
    });
    uses.collect()
}

async fn everything_counts_once(bench: Bench) {
    let shared = bench.put("shared!").await;
    let own = bench.put("own").await;
    bench.put("of nobody").await;
    bench.register("a", (shared, own)).await;
    bench.register("b", (shared, shared)).await;
    let job = bench.held_job("out/", unix_ms()).await;
    for (path, content) in [
        ("in.jsonl", "12345"),
        ("out/x.jsonl", "1"),
        ("out/deep/y.jsonl", "22"),
        (&format!("out.parts/{}/claim-1.json", job.id), "333"),
        (&format!(".jobs/{}/webhook.json", job.id), "4444"),
        ("mine/in.jsonl", "666666"),
    ] {
        bench.put_file(path, content.to_owned()).await;
    }
    let storage = bench.storage(Config {
        limit_bytes: Some(1000),
        ..CONFIG
    });
    let usage = storage.usage().await.expect("an answer");
    let of = |kind, application: &str, model: &str, objects, bytes| {
        (
            kind,
            application.to_owned(),
            model.to_owned(),
            objects,
            bytes,
        )
    };
    assert_eq!(
        shown(&usage),
        [
            of(Kind::Model, "digits", "a", 1, 7),
            of(Kind::Validation, "digits", "a", 1, 3),
            of(Kind::Input, "digits", "", 1, 5),
            of(Kind::Output, "digits", "", 2, 3),
            of(Kind::Parts, "digits", "", 1, 3),
            of(Kind::Notes, "", "", 1, 4),
            of(Kind::File, "", "", 1, 6),
            of(Kind::Unreferenced, "", "", 1, 9),
        ]
    );
    assert_eq!((usage.total.objects, usage.total.bytes), (9, 40));
    assert_eq!(usage.limit_bytes, Some(1000));
}

#[tokio::test]
async fn everything_counts_once_in_a_folder() {
    everything_counts_once(Bench::folder().await).await;
}

#[tokio::test]
async fn everything_counts_once_in_a_bucket() {
    everything_counts_once(Bench::fleet("storage_usage").await).await;
}
