//! `/v1/jobs`: files of records in, files of answers out.

use std::{io::Cursor, time::Duration};

use npyz::{NpyFile, WriterBuilder, npz::NpzArchive};
use serde_json::{Value, json};
use sextant_tests::{Api, Settings, digits, until};

/// One record per line: the images of the test set, over and over.
fn records(count: usize) -> String {
    let images = digits::Images::load("test");
    (0..count)
        .map(|index| {
            let pixels = images.pixels(index % images.len());
            format!("{}\n", json!({"inputs": {"pixels": pixels}}))
        })
        .collect()
}

async fn answers(api: &Api, path: &str) -> Vec<Value> {
    let text = api.get(&format!("/v1/artefacts/{path}")).await.text();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

#[tokio::test]
async fn every_record_is_answered_in_its_place() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    api.put("/v1/artefacts/order/in.jsonl", records(300))
        .await
        .json(201);
    let body = json!({
        "application": "digits", "targets": {"min_accuracy": 0.9}, "chunk": 64,
        "input": "order/in.jsonl", "output": "order/out.jsonl"
    });
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(
        job["progress"],
        json!({"done": 300, "total": 300, "failed": 0})
    );
    let answers = answers(&api, "order/out.jsonl").await;
    assert_eq!(answers.len(), 300);
    let mut correct = 0;
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer["index"], index);
        correct +=
            i32::from(digits::digit(&answer["outputs"]["scores"]) as i64 == images.labels[index]);
    }
    assert!(
        correct >= 270,
        "{correct} of 300 images were read correctly"
    );
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_stop_the_others() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let good = records(1);
    let short = json!({"inputs": {"pixels": [1, 2, 3]}});
    let input = format!("{good}this is not a record\n{short}\n{good}");
    api.put("/v1/artefacts/mixed/in.jsonl", input)
        .await
        .json(201);
    let body = json!({"model": "logistic", "input": "mixed/in.jsonl", "output": "mixed/out.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let answers = answers(&api, "mixed/out.jsonl").await;
    assert_eq!(answers.len(), 4);
    assert!(answers[0]["outputs"].is_object() && answers[3]["outputs"].is_object());
    for index in [1, 2] {
        assert_eq!(
            answers[index]["error"]["code"], "invalid_record",
            "{}",
            answers[index]
        );
    }
    assert_eq!(answers[0]["outputs"], answers[3]["outputs"]);
}

#[tokio::test]
async fn a_table_is_answered_row_by_row() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let names: Vec<String> = (0..digits::PIXELS).map(|at| format!("p{at}")).collect();
    let row = |at: usize| {
        let pixels = images.pixels(at).iter().map(ToString::to_string);
        pixels.collect::<Vec<String>>().join(",")
    };
    let rows: Vec<String> = (0..20).map(row).collect();
    let table = format!("{}\n{}\n", names.join(","), rows.join("\n"));
    api.put("/v1/artefacts/table/in.csv", table).await.json(201);
    let body = json!({"model": "mlp", "input": "table/in.csv", "output": "table/out.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(job["result"]["failed"], 0, "{job}");
    let read = answers(&api, "table/out.jsonl").await;
    let right = read.iter().enumerate().filter(|(at, answer)| {
        digits::digit(&answer["outputs"]["scores"]) as i64 == images.labels[*at]
    });
    assert!(right.count() >= 18, "{read:?}");
}

/// Jobs share the spare capacity: a small job does not wait for a large one that came first.
#[tokio::test]
async fn a_short_job_ends_beside_a_long_one() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for (name, count) in [("long", 20_000), ("short", 5)] {
        let path = format!("/v1/artefacts/beside/{name}.jsonl");
        api.put(&path, records(count)).await.json(201);
    }
    let submit = async |name: &str| {
        let (input, output) = (
            format!("beside/{name}.jsonl"),
            format!("beside/{name}-out.jsonl"),
        );
        let body = json!({"model": "logistic", "chunk": 16, "input": input, "output": output});
        let queued = api.post("/v1/jobs", &body).await.json(202);
        queued["id"].as_str().expect("an id").to_owned()
    };
    let long = submit("long").await;
    until("the long job has begun", async || {
        let job = api.job(&long).await;
        (job["progress"]["done"].as_u64() > Some(0)).then_some(())
    })
    .await;
    let short = submit("short").await;
    let over = api.job_over(&short).await;
    assert_eq!(over["state"], "succeeded", "{over}");
    let still = api.job(&long).await;
    assert!(still["progress"]["done"].as_u64() < Some(20_000), "{still}");
    api.delete(&format!("/v1/jobs/{long}")).await.json(200);
}

#[tokio::test]
async fn a_job_without_one_good_record_has_failed() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    api.put("/v1/artefacts/nothing/in.jsonl", "no record\n{\"x\": 1}\n")
        .await
        .json(201);
    let body = json!({"model": "mlp", "input": "nothing/in.jsonl", "output": "nothing/out.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "failed", "{job}");
    let failure = job["error"].to_string();
    assert!(
        failure.contains("none of its 2 records") && failure.contains("invalid_record"),
        "{job}"
    );
    // The output has an error in place of each answer.
    let said = answers(&api, "nothing/out.jsonl").await;
    assert!(
        said.len() == 2 && said.iter().all(|it| it["error"].is_object()),
        "{said:?}"
    );
}

#[tokio::test]
async fn the_same_job_twice_is_one() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    api.put("/v1/artefacts/same/in.jsonl", records(3))
        .await
        .json(201);
    let body = json!({
        "id": "same-job", "model": "logistic",
        "input": "same/in.jsonl", "output": "same/out.jsonl"
    });
    let first = api.post("/v1/jobs", &body).await.json(202);
    let second = api.post("/v1/jobs", &body).await.json(202);
    assert_eq!(first["created_ms"], second["created_ms"]);
    api.job_over("same-job").await;
    let listed = api.get("/v1/jobs?kind=offline&limit=1000").await.json(200);
    let jobs = listed["jobs"].as_array().expect("a list");
    assert_eq!(jobs.iter().filter(|job| job["id"] == "same-job").count(), 1);
    let over = api.delete("/v1/jobs/same-job").await.json(200);
    assert_eq!(over["state"], "succeeded");
}

#[tokio::test]
async fn jobs_that_cannot_run_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    api.put("/v1/artefacts/refused/in.jsonl", records(1))
        .await
        .json(201);
    let job = |name: &str, value: &str, input: &str, output: &str| json!({name: value, "input": input, "output": output});
    let (input, output) = ("refused/in.jsonl", "refused/out.jsonl");
    for (body, status, code) in [
        (
            job("application", "nobody", input, output),
            404,
            "application_not_found",
        ),
        (
            job("model", "nobody", input, output),
            404,
            "model_not_found",
        ),
        (
            job("variant", "nobody", input, output),
            404,
            "variant_not_found",
        ),
        (
            job("model", "mlp", "refused/none.jsonl", output),
            404,
            "artefact_not_found",
        ),
        (
            job("model", "mlp", "../in.jsonl", output),
            400,
            "invalid_path",
        ),
        (job("model", "mlp", input, "/etc/out"), 400, "invalid_path"),
        (job("model", "mlp", input, input), 400, "invalid_request"),
    ] {
        api.post("/v1/jobs", &body).await.problem(status, code);
    }
    let mut chunkless = job("model", "mlp", input, output);
    chunkless["chunk"] = json!(0);
    api.post("/v1/jobs", &chunkless)
        .await
        .problem(400, "invalid_request");
    api.get("/v1/jobs/nobody")
        .await
        .problem(404, "job_not_found");
    api.delete("/v1/jobs/nobody")
        .await
        .problem(404, "job_not_found");
    let mut impossible = job("application", "digits", input, output);
    impossible["targets"] = json!({"min_accuracy": 1.0});
    let answer = api.post("/v1/jobs", &impossible).await;
    let code = match answer.status.as_u16() {
        202 => {
            let id = answer.json(202)["id"].as_str().expect("an id").to_owned();
            api.job_over(&id).await["error"]["code"].clone()
        }
        _ => answer.json(422)["code"].clone(),
    };
    assert_eq!(code, "target_infeasible");
}

/// The same images as an array, one row each.
fn array(count: usize) -> Vec<u8> {
    let images = digits::Images::load("test");
    let mut bytes = Vec::new();
    let options = npyz::WriteOptions::new().default_dtype();
    let options = options.shape(&[count as u64, digits::PIXELS as u64]);
    let mut writer = options.writer(&mut bytes).begin_nd().expect("a header");
    for index in 0..count {
        let pixels = images.pixels(index % images.len());
        writer.extend(pixels.iter().copied()).expect("elements");
    }
    writer.finish().expect("an array");
    bytes
}

async fn bytes(api: &Api, path: &str) -> Vec<u8> {
    let answer = api.get(&format!("/v1/artefacts/{path}")).await;
    assert_eq!(answer.status, 200, "{path}");
    answer.body
}

#[tokio::test]
async fn arrays_and_folders_are_answered_as_they_are_asked_for() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let put = |path: &str, body: Vec<u8>| {
        let (api, path) = (api.clone(), format!("/v1/artefacts/{path}"));
        async move { api.put(&path, body).await.json(201) }
    };
    put("shapes/in/a.npy", array(70)).await;
    put("shapes/in/b.jsonl", records(30).into_bytes()).await;
    for (input, output, files) in [
        ("shapes/in/a.npy", "shapes/a.npy", 1),
        ("shapes/in/a.npy", "shapes/a.npz", 1),
        ("shapes/in/", "shapes/all.jsonl", 1),
        ("shapes/in/", "shapes/each/", 2),
    ] {
        let body = json!({"model": "mlp", "input": input, "output": output, "chunk": 32});
        let queued = api.post("/v1/jobs", &body).await.json(202);
        let job = api.job_over(queued["id"].as_str().expect("an id")).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(job["result"]["files"], files);
        assert_eq!(job["progress"]["failed"], 0, "{job}");
    }
    let file = bytes(&api, "shapes/a.npy").await;
    let file = NpyFile::new(&file[..]).expect("an array");
    assert_eq!(file.shape(), [70, 10]);
    let scores: Vec<f32> = file.into_vec().expect("floats");
    let archive = bytes(&api, "shapes/a.npz").await;
    let mut archive = NpzArchive::new(Cursor::new(archive)).expect("an archive");
    let found = archive.by_name("scores").expect("readable").expect("there");
    assert_eq!(found.into_vec::<f32>().expect("floats"), scores);
    let all = answers(&api, "shapes/all.jsonl").await;
    assert_eq!(all.len(), 100);
    for (index, answer) in all.iter().enumerate() {
        assert_eq!(answer["index"], index);
    }
    let each = answers(&api, "shapes/each/b.jsonl").await;
    assert_eq!(each.len(), 30);
    assert_eq!(each[7]["outputs"], all[77]["outputs"]);
    assert_eq!(answers(&api, "shapes/each/a.npy.jsonl").await.len(), 70);
}

#[tokio::test]
async fn formats_folders_and_webhooks_that_make_no_sense_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    api.put("/v1/artefacts/sense/in/a.jsonl", records(1))
        .await
        .json(201);
    let file = "sense/in/a.jsonl";
    for (name, value, input, output, field) in [
        ("format", "xlsx", file, "sense/out.jsonl", "format"),
        (
            "output_format",
            "xlsx",
            file,
            "sense/out.jsonl",
            "output_format",
        ),
        ("id", "sense-1", "in/table.xlsx", "sense/out.jsonl", "input"),
        ("id", "sense-2", file, "sense/out.xlsx", "output"),
        (
            "id",
            "sense-1",
            "s3://bucket/in.jsonl",
            "sense/out.jsonl",
            "input",
        ),
        (
            "output_format",
            "",
            file,
            "sense/out.jsonl",
            "output_format",
        ),
        ("webhook", "ftp://host/", file, "sense/out.jsonl", "webhook"),
        (
            "webhook",
            "http://me:secret@host/",
            file,
            "sense/out.jsonl",
            "webhook",
        ),
        ("format", "jsonl", file, "sense/out/", "output"),
        (
            "format",
            "jsonl",
            "sense/in/",
            "sense/in/out.jsonl",
            "output",
        ),
    ] {
        let mut body = json!({"model": "mlp", "input": input, "output": output});
        body[name] = json!(value);
        let problem = api.post("/v1/jobs", &body).await;
        let text = problem.text();
        assert_eq!(problem.status, 400, "{text}");
        assert!(text.contains(&format!("\"{field}\"")), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    let body = json!({"model": "mlp", "input": "sense/none/", "output": "sense/out.jsonl"});
    api.post("/v1/jobs", &body)
        .await
        .problem(404, "artefact_not_found");
}

/// Pseudo-random numbers that are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[tokio::test]
async fn twenty_power_cuts_leave_the_bytes_of_an_undisturbed_run() {
    const CUTS: u32 = 20;
    const RECORDS: usize = 3000;
    const SEED: u64 = 20;
    let settings = Settings {
        faults: true,
        ..Settings::default()
    };
    let mut cluster = digits::service(settings).await;
    let api = cluster.api();
    api.put("/v1/artefacts/cuts/in.jsonl", records(RECORDS))
        .await
        .json(201);
    api.put("/v1/artefacts/cuts/in.npy", array(RECORDS))
        .await
        .json(201);
    let kinds = [("in.jsonl", "jsonl"), ("in.npy", "npz")];
    let body = |id: &str, kind: usize| {
        let (input, suffix) = kinds[kind % kinds.len()];
        json!({
            "id": id, "variant": "cnn-small-ort-fp32-all-t1-b8", "chunk": 40,
            "input": format!("cuts/{input}"), "output": format!("cuts/{id}.{suffix}")
        })
    };
    let mut undisturbed = Vec::new();
    for (kind, (_, suffix)) in kinds.iter().enumerate() {
        let id = format!("calm{kind}");
        api.post("/v1/jobs", &body(&id, kind)).await.json(202);
        let job = api.job_over(&id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        undisturbed.push(bytes(&api, &format!("cuts/{id}.{suffix}")).await);
    }
    let mut chance = Chance(SEED);
    let (mut cuts, mut round) = (0, 0);
    while cuts < CUTS {
        let (id, suffix) = (format!("cut{round}"), kinds[round % kinds.len()].1);
        let mut api = cluster.api();
        api.post("/v1/jobs", &body(&id, round)).await.json(202);
        while cuts < CUTS && api.job(&id).await["state"] != "succeeded" {
            // This waits for no state: chance chooses the moment of the kill.
            tokio::time::sleep(Duration::from_millis(chance.below(600))).await;
            cluster.kill();
            cluster.launch();
            cuts += 1;
            api = cluster.api();
        }
        let job = api.job_over(&id).await;
        assert_eq!(job["state"], "succeeded", "seed {SEED}: {job}");
        assert_eq!(job["progress"]["done"], RECORDS, "seed {SEED}");
        let output = bytes(&api, &format!("cuts/{id}.{suffix}")).await;
        assert!(
            output == undisturbed[round % kinds.len()],
            "seed {SEED}: `{id}` differs from an undisturbed run after {cuts} cuts"
        );
        round += 1;
    }
    println!("{cuts} power cuts in {round} jobs");
}
