//! `/v1/jobs`: each format of records and answers.

use std::{fs, path::Path};

use bytes::Bytes;
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::{ListAccessor, RowAccessor},
};
use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, digits};

use crate::exports;

async fn put(api: &Api, path: &str, bytes: Vec<u8>) {
    let path = format!("/v1/artefacts/{path}");
    api.put(&path, bytes).await.json(201);
}

async fn get(api: &Api, path: &str) -> Vec<u8> {
    let answer = api.get(&format!("/v1/artefacts/{path}")).await;
    assert_eq!(answer.status, 200, "{path}");
    answer.body
}

async fn text(api: &Api, path: &str) -> String {
    String::from_utf8(get(api, path).await).expect("text")
}

/// Runs a job in small chunks and returns it when it has ended.
async fn answer(api: &Api, model: &str, input: &str, output: &str) -> Value {
    let body = json!({"model": model, "input": input, "output": output, "chunk": 17});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    api.job_over(queued["id"].as_str().expect("an id")).await
}

fn written(folder: &Path, write: impl FnOnce(&Path)) -> Vec<u8> {
    let path = folder.join("file");
    write(&path);
    fs::read(path).expect("the file is there")
}

/// The class with the highest score in each row of a table.
fn classes(table: &str) -> Vec<i64> {
    let mut rows = table.lines();
    let names: Vec<String> = (0..10).map(|at| format!("scores.{at}")).collect();
    assert_eq!(rows.next(), Some(&*names.join(",")));
    let class = |row: &str| {
        let scores = row.split(',').map(|cell| cell.parse().expect("a number"));
        digits::digit(&scores.collect::<Vec<f64>>().into()) as i64
    };
    rows.map(class).collect()
}

#[tokio::test]
async fn a_data_frame_is_answered_as_its_validation_set_was_scored() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let folder = tempfile::tempdir().expect("a folder");
    let frame = written(folder.path(), |path| digits::write_parquet(path, "test"));
    put(&api, "frames/in.parquet", frame).await;
    let images = digits::Images::load("test");
    let job = answer(&api, "mlp", "frames/in.parquet", "frames/out.csv").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(
        job["progress"],
        json!({"done": images.len(), "total": images.len(), "failed": 0})
    );
    let classes = classes(&text(&api, "frames/out.csv").await);
    assert_eq!(classes.len(), images.len());
    let right = classes.iter().zip(&images.labels).filter(|(a, b)| a == b);
    assert!(right.count() * 10 >= images.len() * 9);

    // In a folder with other files, the suffix determines the format. The answers are the same in every format.
    let same = answer(&api, "mlp", "frames/in.parquet", "frames/again/out.jsonl").await;
    assert_eq!(same["progress"]["failed"], 0, "{same}");
    let lines = text(&api, "frames/again/out.jsonl").await;
    let of_lines = lines.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        digits::digit(&line["outputs"]["scores"]) as i64
    });
    assert_eq!(of_lines.collect::<Vec<_>>(), classes);

    // Answers can also be written as a data frame.
    let job = answer(&api, "mlp", "frames/in.parquet", "frames/out.parquet").await;
    assert_eq!(job["progress"]["failed"], 0, "{job}");
    let file = get(&api, "frames/out.parquet").await;
    let file = SerializedFileReader::new(Bytes::from(file)).expect("a file");
    let rows = file.get_row_iter(None).expect("rows");
    let of_frame = rows.map(|row| {
        let row = row.expect("a row");
        let scores = row.get_list(0).expect("a list");
        let scores = (0..scores.len()).map(|at| scores.get_float(at).expect("a score"));
        digits::digit(&json!(scores.collect::<Vec<f32>>())) as i64
    });
    assert_eq!(of_frame.collect::<Vec<_>>(), classes);

    put(&api, "frames/broken.parquet", b"PAR1 and no more".to_vec()).await;
    let job = answer(&api, "mlp", "frames/broken.parquet", "frames/none.csv").await;
    assert_eq!(job["state"], "failed", "{job}");
    assert_eq!(job["error"]["code"], "invalid_record", "{job}");
    assert!(job["error"].to_string().contains("as Parquet"), "{job}");
}

#[tokio::test]
async fn a_row_without_an_answer_is_empty_in_a_table() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let line = json!({"inputs": {"pixels": images.pixels(0)}, "label": 3});
    let lines = format!("{line}\nno record\n{line}\n");
    put(&api, "gaps/in.jsonl", lines.into_bytes()).await;
    let job = answer(&api, "mlp", "gaps/in.jsonl", "gaps/out.csv").await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(job["result"]["failed"], 1, "{job}");
    assert_eq!(
        job["result"]["errors"],
        json!(["gaps/out.csv.errors.jsonl"])
    );
    let table = text(&api, "gaps/out.csv").await;
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!((rows.len(), rows[2]), (4, ",,,,,,,,,"));
    assert_eq!(rows[1], rows[3]);
    let errors = text(&api, "gaps/out.csv.errors.jsonl").await;
    let error: Value = serde_json::from_str(&errors).expect("one line");
    assert_eq!(error["index"], 1, "{error}");
}

#[tokio::test]
async fn classes_that_have_names_are_written_by_name() {
    let cluster = TestCluster::start(Settings::default());
    let api = cluster.api();
    let job = exports::register(&api, "sklearn-class-names", ("flowers", &[])).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let table = "a,b,c,d\n5.1,3.5,1.4,0.2\n6.3,3.3,6.0,2.5\n5.1,none,1.4,0.2\n";
    put(&api, "names/in.csv", table.into()).await;
    for output in ["names/out.csv", "names/out.npz"] {
        let job = answer(&api, "flowers", "names/in.csv", output).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(job["result"]["failed"], 1, "{job}");
    }
    let table = text(&api, "names/out.csv").await;
    let mut rows = table.lines();
    let head = "output_label,output_probability.0,output_probability.1,output_probability.2";
    assert_eq!(rows.next(), Some(head));
    let labels: Vec<&str> = rows.filter_map(|row| row.split(',').next()).collect();
    assert_eq!(labels, ["setosa", "virginica", ""]);

    let archive = get(&api, "names/out.npz").await;
    let mut archive =
        npyz::npz::NpzArchive::new(std::io::Cursor::new(archive)).expect("an archive");
    let array = archive
        .by_name("output_label")
        .expect("readable")
        .expect("there");
    assert_eq!(
        (array.dtype().descr(), array.shape()),
        ("'<U9'".to_owned(), &[3][..])
    );
    let labels: Vec<String> = array.into_vec().expect("texts");
    assert_eq!(labels, ["setosa", "virginica", ""]);
}
