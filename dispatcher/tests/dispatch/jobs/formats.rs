//! Arrays and folders in, arrays and folders out.

use bytes::Bytes;
use serde_json::json;
use sextant_objects::ObjectPath;
use sextant_registry::JobState;
use sextant_types::offline::{OfflineStep, RecordFormat};

use super::{
    RECORDS, check, get, nothing_is_left, put, registry, runner, spec, submit_spec, succeeded,
    wait_for,
};
use crate::world::{Kind, World};

/// An array of pairs of floats as NumPy saves it.
pub fn npy(pairs: &[[f32; 2]]) -> Bytes {
    let mut header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 2), }}",
        pairs.len()
    );
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(pairs.iter().flatten().flat_map(|value| value.to_le_bytes()));
    Bytes::from(bytes)
}

pub fn pairs(count: usize) -> Vec<[f32; 2]> {
    (0..count).map(|n| [n as f32, 1.0]).collect()
}

fn doubled(count: usize) -> Vec<[f32; 2]> {
    (0..count).map(|n| [n as f32 * 2.0, 2.0]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_is_answered_as_lines_and_as_an_array() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let _runner = runner(&world, &registry, 1);
    put(&world, "in.npy", npy(&pairs(RECORDS))).await;
    let job = submit_spec(&registry, &spec("in.npy", "out.jsonl")).await;
    let done = succeeded(&registry, &job).await;
    check(&super::answers(&world).await);
    let step: OfflineStep = done.step.parse().expect("a step");
    assert_eq!((step.chunk, step.failed, step.left_s), (15, 0, None));
    let job = submit_spec(&registry, &spec("in.npy", "out.npy")).await;
    succeeded(&registry, &job).await;
    assert_eq!(get(&world, "out.npy").await, npy(&doubled(RECORDS)));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_fail_are_zero_in_an_array_and_told_beside_it() {
    let world = World::new().await;
    world
        .serve(Kind {
            max_batch: 1,
            ..Kind::default()
        })
        .await;
    let registry = registry(&world).await;
    let _runner = runner(&world, &registry, 1);
    let lines = [
        "{\"x\": [1, 2]}",
        "nonsense",
        "{\"x\": [-1, 0]}",
        "{\"x\": [3, 4]}",
    ];
    put(&world, "in.jsonl", lines.join("\n")).await;
    let mut asked = spec("in.jsonl", "out");
    asked.output_format = Some(RecordFormat::Npy);
    let job = submit_spec(&registry, &asked).await;
    let done = succeeded(&registry, &job).await;
    let result = done.result.expect("a result");
    assert_eq!(result["failed"], 2);
    assert_eq!(result["errors"], json!(["out.errors.jsonl"]));
    let expected = npy(&[[2.0, 4.0], [0.0, 0.0], [0.0, 0.0], [6.0, 8.0]]);
    assert_eq!(get(&world, "out").await, expected);
    let errors = get(&world, "out.errors.jsonl").await;
    let errors = String::from_utf8(errors.to_vec()).expect("text");
    let errors: Vec<serde_json::Value> = errors
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(errors.len(), 2);
    assert_eq!(
        (&errors[0]["index"], &errors[0]["error"]["code"]),
        (&json!(1), &json!("invalid_record"))
    );
    assert_eq!(
        (&errors[1]["index"], &errors[1]["error"]["code"]),
        (&json!(2), &json!("engine_failed"))
    );
    // The output of the next job there has no errors.
    put(&world, "in.jsonl", "{\"x\": [1, 2]}").await;
    let job = submit_spec(&registry, &asked).await;
    succeeded(&registry, &job).await;
    assert_eq!(get(&world, "out").await, npy(&[[2.0, 4.0]]));
    let path = ObjectPath::parse("out.errors.jsonl").expect("a path");
    assert_eq!(world.objects.stat(&path).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_answered_in_one_file_or_file_by_file() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let _runner = runner(&world, &registry, 1);
    let line = |n: usize| format!("{{\"x\": [{n}, 1]}}\n");
    put(&world, "in/a.jsonl", (0..30).map(line).collect::<String>()).await;
    put(&world, "in/b.npy", npy(&pairs(RECORDS)[30..75])).await;
    put(&world, "in/c/empty.jsonl", "").await;
    put(
        &world,
        "in/c/z.jsonl",
        (75..RECORDS).map(line).collect::<String>(),
    )
    .await;
    put(&world, "input.jsonl", "not below the folder").await;
    let job = submit_spec(&registry, &spec("in/", "out.jsonl")).await;
    succeeded(&registry, &job).await;
    check(&super::answers(&world).await);
    let job = submit_spec(&registry, &spec("in/", "all/")).await;
    let done = succeeded(&registry, &job).await;
    assert_eq!(done.result.expect("a result")["files"], 4);
    for (name, records) in [
        ("a.jsonl", 30),
        ("b.npy.jsonl", 45),
        ("c/empty.jsonl", 0),
        ("c/z.jsonl", 25),
    ] {
        let text = get(&world, &format!("all/{name}")).await;
        let text = String::from_utf8(text.to_vec()).expect("text");
        let indexes: Vec<u64> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
            .filter_map(|line| line["index"].as_u64())
            .collect();
        assert_eq!(indexes, (0..records).collect::<Vec<_>>(), "{name}");
    }
    nothing_is_left(&world, "all.parts/").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_or_written_fails_with_advice() {
    let world = World::new().await;
    world.serve(Kind::default()).await;
    let registry = registry(&world).await;
    let _runner = runner(&world, &registry, 1);
    put(&world, "odd/readme.md", "hello").await;
    put(&world, "texts/readme.txt", "hello").await;
    put(&world, "bad.npy", "no array").await;
    put(&world, "same/a.npy", npy(&pairs(1))).await;
    put(&world, "same/a.npy.jsonl", "{}").await;
    for (input, output, code, word) in [
        ("odd/", "out.jsonl", "invalid_request", "format"),
        // The model takes numbers.
        ("texts/", "out.jsonl", "invalid_record", "strings"),
        ("none/", "out.jsonl", "artefact_not_found", "none/"),
        ("bad.npy", "out.jsonl", "invalid_record", "NumPy"),
        ("same/", "out/", "invalid_request", "out/a.npy.jsonl"),
    ] {
        let job = submit_spec(&registry, &spec(input, output)).await;
        let done = wait_for(&registry, &job, |job| job.state.is_final()).await;
        assert_eq!(done.state, JobState::Failed);
        let error = done.error.expect("an error");
        assert_eq!(error.code.to_string(), code, "{}", error.message);
        assert!(error.message.contains(word), "{}", error.message);
    }
}
