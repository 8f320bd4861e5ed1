//! `/v1/artefacts`: files for jobs and registrations.

use reqwest::Method;
use sextant_tests::{Settings, TestCluster, digits};

#[tokio::test]
async fn a_file_lives_from_upload_to_deletion() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let stored = api
        .put("/v1/artefacts/life/a.bin", content.clone())
        .await
        .json(201);
    assert_eq!(
        (&stored["path"], &stored["size_bytes"]),
        (&"life/a.bin".into(), &400_000.into())
    );
    let read = api.get("/v1/artefacts/life/a.bin").await;
    assert_eq!((read.status.as_u16(), read.body == content), (200, true));
    let head = api
        .send(Method::HEAD, "/v1/artefacts/life/a.bin", None)
        .await;
    assert_eq!(head.headers["content-length"], "400000");
    api.put("/v1/artefacts/life/a.bin", "second")
        .await
        .json(201);
    assert_eq!(api.get("/v1/artefacts/life/a.bin").await.text(), "second");
    api.put("/v1/artefacts/life/b%20c.bin", "").await.json(201);
    let listed = api.get("/v1/artefacts?prefix=life/").await.json(200);
    let paths: Vec<&str> = listed["artefacts"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|artefact| artefact["path"].as_str())
        .collect();
    assert_eq!(paths, ["life/a.bin", "life/b c.bin"]);
    for path in ["/v1/artefacts/life/a.bin", "/v1/artefacts/life/b%20c.bin"] {
        assert_eq!(api.delete(path).await.status, 204);
        api.get(path).await.problem(404, "artefact_not_found");
        api.delete(path).await.problem(404, "artefact_not_found");
    }
}

#[tokio::test]
async fn only_the_file_that_was_seen_is_replaced() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let path = "/v1/artefacts/seen/a.bin";
    let send = async |method, (name, value): (&'static str, &str), body: &str| {
        let headers = [(name, value.to_owned())];
        api.send_with(method, path, &headers, body.into()).await
    };
    let missing = send(Method::PUT, ("if-match", "*"), "none").await;
    missing.problem(412, "precondition_failed");
    let stored = send(Method::PUT, ("if-none-match", "*"), "first").await;
    let tag = stored.headers["etag"].to_str().expect("text").to_owned();
    stored.json(201);
    let head = api.send(Method::HEAD, path, None).await;
    assert_eq!(head.headers["etag"], tag.as_str());
    for method in [Method::GET, Method::HEAD] {
        let known = send(method, ("if-none-match", &tag), "").await;
        assert_eq!((known.status.as_u16(), known.body.len()), (304, 0));
    }
    let twice = send(Method::PUT, ("if-none-match", "*"), "other").await;
    twice.problem(412, "precondition_failed");
    let changed = send(Method::PUT, ("if-match", &tag), "the second").await;
    let newer = changed.headers["etag"].to_str().expect("text").to_owned();
    changed.json(201);
    for method in [Method::PUT, Method::DELETE] {
        let late = send(method, ("if-match", &tag), "late").await;
        late.problem(412, "precondition_failed");
    }
    let ranges = [(&tag, 200, "the second"), (&newer, 206, "second")];
    for (tag, status, content) in ranges {
        let headers = [
            ("range", "bytes=4-".to_owned()),
            ("if-range", tag.to_owned()),
        ];
        let read = api.send_with(Method::GET, path, &headers, Vec::new()).await;
        assert_eq!(
            (read.status.as_u16(), read.text()),
            (status, content.to_owned())
        );
    }
    let deleted = send(Method::DELETE, ("if-match", &newer), "").await;
    assert_eq!(deleted.status, 204);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for index in 0..5 {
        api.put(&format!("/v1/artefacts/pages/{index}"), "x")
            .await
            .json(201);
    }
    let mut found = Vec::new();
    let mut query = "?prefix=pages/&limit=2".to_owned();
    loop {
        let page = api.get(&format!("/v1/artefacts{query}")).await.json(200);
        let artefacts = page["artefacts"].as_array().expect("a list");
        found.extend(artefacts.iter().map(|artefact| artefact["path"].clone()));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        query = format!("?prefix=pages/&limit=2&after={next}");
    }
    let expected: Vec<String> = (0..5).map(|index| format!("pages/{index}")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn paths_cannot_leave_the_store() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for path in [
        "..%2F..%2Fregistry.sqlite",
        "%2Fetc%2Fpasswd",
        "a%00b",
        "a//b",
    ] {
        let path = format!("/v1/artefacts/{path}");
        api.get(&path).await.problem(400, "invalid_path");
        api.put(&path, "x").await.problem(400, "invalid_path");
    }
    for target in [
        "/v1/artefacts/../registry.sqlite",
        "/v1/artefacts/a/../../registry.sqlite",
        "/v1/artefacts/a/%2E%2E/%2E%2E/registry.sqlite",
        "/v1/artefacts/%2e%2e%2f%2e%2e%2fregistry.sqlite",
        "/v1/artefacts/..%5C..%5Cregistry.sqlite",
    ] {
        let status = api.status_of_raw_target("GET", target).await;
        assert!(status == 400 || status == 404, "{target}: {status}");
    }
    let long = format!("/v1/artefacts/{}", "a/".repeat(300));
    api.get(&long).await.problem(400, "invalid_path");
}

#[tokio::test]
async fn a_full_store_says_so_and_stays_well() {
    let cluster = TestCluster::start(Settings {
        set: vec![
            "limits.storage_bytes=200000".to_owned(),
            "limits.max_model_bytes=150000".to_owned(),
        ],
        ..Settings::default()
    });
    let api = cluster.api();
    api.put("/v1/artefacts/huge", vec![0; 160_000])
        .await
        .problem(413, "too_large");
    api.put("/v1/artefacts/first", vec![0; 120_000])
        .await
        .json(201);
    api.put("/v1/artefacts/second", vec![0; 120_000])
        .await
        .problem(507, "storage_full");
    api.get("/v1/artefacts/second")
        .await
        .problem(404, "artefact_not_found");
    assert_eq!(api.delete("/v1/artefacts/first").await.status, 204);
    api.put("/v1/artefacts/second", vec![0; 120_000])
        .await
        .json(201);
}
