//! Tensors in shared memory.

use super::*;

/// A file in `/dev/shm` that goes with the test.
fn shared(name: &str, bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new()
        .prefix(name)
        .tempfile_in("/dev/shm");
    let file = file.expect("Linux has /dev/shm");
    std::fs::write(file.path(), bytes).expect("it can be written");
    file
}

fn key_of(file: &tempfile::NamedTempFile) -> String {
    let name = file.path().file_name().expect("a name");
    format!("/{}", name.to_string_lossy())
}

fn in_region(offset: i64, byte_size: i64) -> std::collections::BTreeMap<String, InferParameter> {
    parameters(&[
        (
            "shared_memory_region",
            ParameterChoice::StringParam("both".to_owned()),
        ),
        ("shared_memory_offset", ParameterChoice::Int64Param(offset)),
        (
            "shared_memory_byte_size",
            ParameterChoice::Int64Param(byte_size),
        ),
    ])
}

#[tokio::test]
async fn tensors_may_be_in_shared_memory() {
    let settings = Settings {
        shared_memory: true,
        ..Settings::default()
    };
    let api = Api::with(echo(), settings).await;
    let sent: Vec<u8> = [1.5f32, -2.0, 3.25]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    let file = shared("sextant-test", &[&[0; 4][..], &sent, &[0; 16]].concat());
    let register = |key: String, byte_size| {
        frame(&Region {
            name: "both".to_owned(),
            key,
            offset: 4,
            byte_size,
        })
    };
    let path = "/inference.GRPCInferenceService/SystemSharedMemoryRegister";
    for (key, byte_size) in [("/../etc/passwd".to_owned(), 8), (key_of(&file), 29)] {
        let ended = call(&api, path, &[], register(key, byte_size)).await;
        ended.is(INVALID_ARGUMENT, "invalid_region");
    }
    let ended = call(&api, path, &[], register(key_of(&file), 28)).await;
    assert_eq!(ended.status, OK, "{ended:?}");
    let status = "/inference.GRPCInferenceService/SystemSharedMemoryStatus";
    let told: Regions = call(&api, status, &[], framed(false, &[])).await.one();
    assert_eq!(
        (told.regions["both"].offset, told.regions["both"].byte_size),
        (4, 28)
    );
    let listed = api.get("/v2/systemsharedmemory/status").await.json();
    assert_eq!(listed[0]["key"], key_of(&file), "{listed}");
    let asked = |offset, size| ModelInferRequest {
        inputs: vec![InferTensor {
            parameters: in_region(0, 12),
            ..input("FP32", &[1, 3])
        }],
        outputs: vec![InferRequestedOutputTensor {
            name: "probabilities".to_owned(),
            parameters: in_region(offset, size),
        }],
        raw_input_contents: Vec::new(),
        ..query()
    };
    let reply: ModelInferResponse = call(&api, INFER, &[], frame(&asked(16, 12))).await.one();
    assert_eq!(reply.raw_output_contents, [Bytes::new()]);
    let size = reply.outputs[0].parameters["shared_memory_byte_size"]
        .parameter_choice
        .clone();
    assert_eq!(size, Some(ParameterChoice::Int64Param(12)));
    let bytes = std::fs::read(file.path()).expect("it is there");
    assert_eq!(bytes[20..], sent);
    for (offset, size) in [(20, 12), (16, 8), (-1, 12), (i64::MAX, 12)] {
        let ended = call(&api, INFER, &[], frame(&asked(offset, size))).await;
        assert_eq!(ended.status, INVALID_ARGUMENT, "{ended:?}");
    }
    let body = serde_json::json!({
        "inputs": [{"name": "input", "shape": [1, 3], "datatype": "FP32", "parameters": {
            "shared_memory_region": "both", "shared_memory_byte_size": 12}}],
        "outputs": [{"name": "probabilities", "parameters": {
            "shared_memory_region": "both", "shared_memory_offset": 16, "shared_memory_byte_size": 12}}],
    });
    std::fs::write(file.path(), [&[0; 4][..], &sent, &[0; 16]].concat())
        .expect("it can be written");
    let answered = api
        .call("POST", "/v2/models/digits/infer", body.to_string())
        .await
        .json();
    let output = &answered["outputs"][0];
    assert_eq!(
        output["parameters"]["shared_memory_byte_size"], 12,
        "{answered}"
    );
    assert!(output.get("data").is_none(), "{answered}");
    assert_eq!(std::fs::read(file.path()).expect("it is there")[20..], sent);
    let gone = api
        .call("POST", "/v2/systemsharedmemory/unregister", "")
        .await;
    assert_eq!(gone.status, 200);
    let path = "/inference.GRPCInferenceService/SystemSharedMemoryUnregister";
    let ended = call(&api, path, &[], framed(false, &[])).await;
    assert_eq!(ended.status, OK, "{ended:?}");
    let audit = api.get("/v1/audit?action=region.unregister").await.json();
    let entries = audit["entries"].as_array().expect("a list");
    let subjects: Vec<_> = entries.iter().map(|entry| &entry["subject"]).collect();
    assert_eq!(subjects, ["all regions"; 2], "{audit}");
    let ended = call(&api, INFER, &[], frame(&asked(16, 12))).await;
    ended.is(NOT_FOUND, "region_not_found");
}

#[tokio::test]
async fn shared_memory_is_off_unless_it_is_allowed() {
    let api = Api::new(Recorder::answering()).await;
    let extensions = api.get("/v2").await.json()["extensions"].to_string();
    assert!(!extensions.contains("shared_memory"), "{extensions}");
    let region = "/v2/systemsharedmemory/region/x/register";
    let refused = api
        .call("POST", region, r#"{"key":"/x","byte_size":4}"#)
        .await;
    refused.problem("route_not_found");
    let path = "/inference.GRPCInferenceService/CudaSharedMemoryRegister";
    let ended = call(&api, path, &[], framed(false, &[])).await;
    ended.is(UNIMPLEMENTED, "route_not_found");
}
