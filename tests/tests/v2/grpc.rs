//! The Open Inference Protocol over gRPC, with a client that was generated from its description.

use std::time::Duration;

use serde_json::json;
use sextant_tests::{
    Settings, TestCluster,
    digits::{self, Images, PIXELS},
    oip::{
        InferParameter, InferTensorContents, LogSettingsRequest, ModelConfigRequest,
        ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelReadyRequest,
        ModelStatisticsRequest, RepositoryIndexRequest, RepositoryIndexResponse,
        RepositoryModelLoadRequest, RepositoryModelUnloadRequest, ServerLiveRequest,
        ServerMetadataRequest, ServerReadyRequest, TraceSettingRequest,
        grpc_inference_service_client::GrpcInferenceServiceClient,
        infer_parameter::ParameterChoice, log_settings_request, log_settings_response,
        model_infer_request::InferInputTensor,
    },
    until,
};
use tokio_stream::StreamExt;
use tonic::{Code, Request, codec::CompressionEncoding, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

pub type Client = GrpcInferenceServiceClient<Channel>;

async fn channel(address: &str) -> Channel {
    let endpoint = Channel::from_shared(address.to_owned()).expect("an address");
    endpoint.connect().await.expect("a connection")
}

pub async fn client(cluster: &TestCluster) -> Client {
    Client::new(channel(cluster.address()).await)
}

/// A query with one image, its pixels as bytes.
fn raw(model: &str, pixels: &[f32]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.to_owned(),
        id: "42".to_owned(),
        inputs: vec![InferInputTensor {
            name: "pixels".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, PIXELS as i64],
            ..Default::default()
        }],
        raw_input_contents: vec![pixels.iter().flat_map(|it| it.to_le_bytes()).collect()],
        ..Default::default()
    }
}

/// The same query with its pixels as numbers.
fn typed(model: &str, pixels: &[f32]) -> ModelInferRequest {
    let mut request = raw(model, pixels);
    request.raw_input_contents.clear();
    request.inputs[0].contents = Some(InferTensorContents {
        fp32_contents: pixels.to_vec(),
        ..Default::default()
    });
    request
}

fn scores(reply: &ModelInferResponse) -> Vec<f32> {
    match reply.raw_output_contents.first() {
        Some(bytes) => {
            let (elements, _) = bytes.as_chunks::<4>();
            elements.iter().map(|it| f32::from_le_bytes(*it)).collect()
        }
        None => {
            let contents = reply.outputs[0].contents.as_ref();
            contents.expect("elements").fp32_contents.clone()
        }
    }
}

fn parameter(value: ParameterChoice) -> InferParameter {
    let parameter_choice = Some(value);
    InferParameter { parameter_choice }
}

#[tokio::test]
async fn the_server_and_its_models_introduce_themselves_over_grpc() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    digits::warm(&api).await;
    let mut client = client(&cluster).await;
    let live = client.server_live(ServerLiveRequest {}).await;
    assert!(live.expect("an answer").into_inner().live);
    let ready = client.server_ready(ServerReadyRequest {}).await;
    assert!(ready.expect("an answer").into_inner().ready);
    let server = client.server_metadata(ServerMetadataRequest {}).await;
    let server = server.expect("an answer").into_inner();
    let over_http = api.get("/v2").await.json(200);
    assert_eq!(json!(server.extensions), over_http["extensions"]);
    assert_eq!(json!(server.name), over_http["name"]);
    for name in ["digits", "mlp"] {
        let request = ModelMetadataRequest {
            name: name.to_owned(),
            version: "1".to_owned(),
        };
        let metadata = client
            .model_metadata(request)
            .await
            .expect("an answer")
            .into_inner();
        assert_eq!(
            (&*metadata.name, &metadata.versions[..]),
            (name, &["1".to_owned()][..])
        );
        assert_eq!(metadata.inputs[0].shape, [-1, PIXELS as i64]);
        let request = ModelConfigRequest {
            name: name.to_owned(),
            ..Default::default()
        };
        let config = client
            .model_config(request)
            .await
            .expect("an answer")
            .into_inner();
        let config = config.config.expect("a configuration");
        assert_eq!(
            (config.max_batch_size, &config.output[0].dims[..]),
            (8, &[10][..])
        );
        let request = ModelReadyRequest {
            name: name.to_owned(),
            ..Default::default()
        };
        assert!(
            client
                .model_ready(request)
                .await
                .expect("an answer")
                .into_inner()
                .ready
        );
    }
    let nobody = ModelReadyRequest {
        name: "nobody".to_owned(),
        ..Default::default()
    };
    assert!(
        !client
            .model_ready(nobody)
            .await
            .expect("an answer")
            .into_inner()
            .ready
    );
    let index = |ready| RepositoryIndexRequest {
        ready,
        ..Default::default()
    };
    let all = client
        .repository_index(index(false))
        .await
        .expect("an answer")
        .into_inner();
    let loaded = client
        .repository_index(index(true))
        .await
        .expect("an answer")
        .into_inner();
    assert!(loaded.models.iter().all(|it| it.state == "READY"));
    assert!(!loaded.models.is_empty() && loaded.models.len() < all.models.len());
    let over_http = api
        .post("/v2/repository/index", &json!({"ready": true}))
        .await
        .json(200);
    assert_eq!(
        over_http.as_array().map(Vec::len),
        Some(loaded.models.len())
    );
}

#[tokio::test]
async fn an_image_is_read_over_grpc_as_over_http() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let mut client = client(&cluster).await;
    let images = Images::load("test");
    let name = "cnn-small-ort-fp32-all-t1-b4";
    let body = json!({"inputs": images.input(7)});
    let over_http = api
        .post(&format!("/v2/models/{name}/infer"), &body)
        .await
        .json(200);
    let wanted: Vec<f32> = over_http["outputs"][0]["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|score| Some(score.as_f64()? as f32))
        .collect();
    for request in [raw(name, images.pixels(7)), typed(name, images.pixels(7))] {
        let reply = client
            .model_infer(request)
            .await
            .expect("an answer")
            .into_inner();
        assert_eq!(
            (&*reply.id, &*reply.model_name, &*reply.model_version),
            ("42", name, "1")
        );
        assert_eq!(reply.outputs[0].shape, [1, 10]);
        assert_eq!(scores(&reply), wanted);
    }
    for name in ["digits", "cnn-small"] {
        let reply = client.model_infer(raw(name, images.pixels(0))).await;
        let reply = reply.expect("an answer").into_inner();
        let scores = json!(scores(&reply));
        assert_eq!(digits::digit(&scores) as i64, images.labels[0]);
        let stats = ModelStatisticsRequest {
            name: name.to_owned(),
            ..Default::default()
        };
        let stats = client
            .model_statistics(stats)
            .await
            .expect("an answer")
            .into_inner();
        assert!(stats.model_stats[0].inference_count > 0);
    }
    let mut demanding = raw("digits", images.pixels(0));
    demanding.parameters.insert(
        "slo_min_accuracy".to_owned(),
        parameter(ParameterChoice::DoubleParam(1.0)),
    );
    let refused = client
        .model_infer(demanding.clone())
        .await
        .expect_err("nothing is perfect");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(
        refused.metadata().get("sextant-code").expect("a code"),
        "target_infeasible"
    );
    demanding.parameters.insert(
        "slo_policy".to_owned(),
        parameter(ParameterChoice::StringParam("best_effort".to_owned())),
    );
    let reply = client
        .model_infer(demanding)
        .await
        .expect("an answer")
        .into_inner();
    let met = &reply.parameters["slo_met"].parameter_choice;
    assert_eq!(*met, Some(ParameterChoice::BoolParam(false)));
}

#[tokio::test]
async fn streams_of_queries_are_answered_in_their_order_compressed_or_not() {
    let cluster = digits::shared().await;
    let images = Images::load("test");
    let plain = client(&cluster).await;
    let zipped = |encoding| {
        let client = plain.clone().send_compressed(encoding);
        client.accept_compressed(encoding)
    };
    for mut client in [
        plain.clone(),
        zipped(CompressionEncoding::Gzip),
        zipped(CompressionEncoding::Deflate),
    ] {
        let queries: Vec<_> = (0..40)
            .map(|index| {
                let name = if index == 20 { "nobody" } else { "mlp" };
                let mut query = raw(name, images.pixels(index));
                query.id = index.to_string();
                query
            })
            .collect();
        let answers = client.model_stream_infer(tokio_stream::iter(queries)).await;
        let mut answers = answers.expect("a stream").into_inner();
        let mut count = 0;
        while let Some(answer) = answers.next().await {
            let answer = answer.expect("an answer");
            let reply = answer.infer_response.expect("it tells which");
            assert_eq!(reply.id, count.to_string());
            assert_eq!(
                answer.error_message.is_empty(),
                count != 20,
                "{}",
                answer.error_message
            );
            count += 1;
        }
        assert_eq!(count, 40);
        let reply = client.model_infer(typed("mlp", images.pixels(3))).await;
        assert_eq!(scores(&reply.expect("an answer").into_inner()).len(), 10);
    }
}

#[tokio::test]
async fn health_and_reflection_answer_what_tools_ask() {
    let cluster = digits::shared().await;
    let channel = channel(cluster.address()).await;
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "inference.GRPCInferenceService"] {
        let service = service.to_owned();
        let answer = health.check(HealthCheckRequest { service }).await;
        assert_eq!(answer.expect("an answer").into_inner().status, 1);
    }
    let service = "nobody".to_owned();
    let unknown = health.check(HealthCheckRequest { service }).await;
    assert_eq!(unknown.expect_err("there is none").code(), Code::NotFound);
    let watched = health.watch(HealthCheckRequest::default()).await;
    let first = watched.expect("a stream").into_inner().next().await;
    assert_eq!(first.expect("one").expect("an answer").status, 1);
    let mut reflection = ServerReflectionClient::new(channel);
    let ask = |message| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let asked = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "inference.ModelConfig".to_owned(),
        )),
    ];
    let answers = reflection
        .server_reflection_info(tokio_stream::iter(asked))
        .await;
    let mut answers = answers.expect("a stream").into_inner();
    let listed = answers
        .next()
        .await
        .expect("one")
        .expect("an answer")
        .message_response;
    let Some(MessageResponse::ListServicesResponse(listed)) = listed else {
        panic!("{listed:?}");
    };
    let mut names: Vec<_> = listed.service.into_iter().map(|it| it.name).collect();
    names.sort();
    assert!(
        names.contains(&"grpc.health.v1.Health".to_owned()),
        "{names:?}"
    );
    assert!(
        names.contains(&"inference.GRPCInferenceService".to_owned()),
        "{names:?}"
    );
    let file = answers
        .next()
        .await
        .expect("one")
        .expect("an answer")
        .message_response;
    assert!(
        matches!(file, Some(MessageResponse::FileDescriptorResponse(_))),
        "{file:?}"
    );
}

#[tokio::test]
async fn models_are_loaded_and_held_by_name() {
    let set = [
        "worker.devices=emulated:1",
        "variants.engines=emulated",
        "variants.max_batch=2",
        "autoscaler.warm_memory_share=0",
        "autoscaler.idle_unload_s=3600",
    ];
    let cluster = digits::with_mlp(&set).await;
    let api = cluster.api();
    let mut client = client(&cluster).await;
    let index = || RepositoryIndexRequest {
        ready: true,
        ..Default::default()
    };
    until("`mlp` is published", || async {
        let found = api.get("/v2/models/mlp").await;
        (found.status == 200).then_some(())
    })
    .await;
    let before = client
        .repository_index(index())
        .await
        .expect("an answer")
        .into_inner();
    let names = |index: &RepositoryIndexResponse| -> Vec<String> {
        index.models.iter().map(|it| it.name.clone()).collect()
    };
    // A query can name the model although no variant of it is loaded.
    assert_eq!(names(&before), ["digits", "mlp"]);
    let load = RepositoryModelLoadRequest {
        model_name: "mlp".to_owned(),
        ..Default::default()
    };
    client
        .repository_model_load(load.clone())
        .await
        .expect("it can be loaded");
    let after = client
        .repository_index(index())
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(after.models.len(), 3, "{after:?}");
    assert_eq!(
        api.post("/v2/repository/models/mlp/load", &json!({}))
            .await
            .status,
        200
    );
    let body = json!({"parameters": {"unload_dependents": true}});
    assert_eq!(
        api.post("/v2/repository/models/mlp/unload", &body)
            .await
            .status,
        200
    );
    let unload = RepositoryModelUnloadRequest {
        model_name: "mlp".to_owned(),
        ..Default::default()
    };
    client
        .repository_model_unload(unload)
        .await
        .expect("one that is not held may be let go");
    let nobody = api
        .post("/v2/repository/models/nobody/load", &json!({}))
        .await;
    nobody.problem(404, "model_not_found");
    let config = json!({"parameters": {"config": "{}"}});
    let refused = api.post("/v2/repository/models/mlp/load", &config).await;
    refused.problem(400, "invalid_request");
    let audit = api.get("/v1/audit").await.json(200);
    let entries = audit["entries"].as_array().expect("a list");
    let of = |action: &str| entries.iter().find(|entry| entry["action"] == action);
    assert_eq!(
        of("model.load").expect("it is kept")["subject"],
        "mlp",
        "{audit}"
    );
    assert!(of("model.unload").is_some(), "{audit}");
}

#[tokio::test]
async fn what_is_logged_changes_while_the_service_runs() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    let mut client = client(&cluster).await;
    let before = api.get("/v2/logging").await.json(200);
    assert_eq!(
        (&before["log_info"], &before["log_verbose_level"]),
        (&json!(true), &json!(0))
    );
    assert!(!cluster.log().contains(r#""level":"DEBUG""#));
    let mut change = LogSettingsRequest::default();
    let value = log_settings_request::setting_value::ParameterChoice::Uint32Param(1);
    let setting = log_settings_request::SettingValue {
        parameter_choice: Some(value),
    };
    change
        .settings
        .insert("log_verbose_level".to_owned(), setting);
    let told = client
        .log_settings(change)
        .await
        .expect("an answer")
        .into_inner();
    let verbose = told.settings["log_verbose_level"].parameter_choice.clone();
    let one = log_settings_response::setting_value::ParameterChoice::Uint32Param(1);
    assert_eq!(verbose, Some(one));
    until("something is logged in detail", || async {
        // A refusal is logged in detail.
        api.get("/v2/models/nobody").await;
        cluster.log().contains(r#""level":"DEBUG""#).then_some(())
    })
    .await;
    let quiet = json!({"log_verbose_level": 0, "log_info": false});
    let told = api.post("/v2/logging", &quiet).await.json(200);
    assert_eq!(
        (&told["log_info"], &told["log_warning"]),
        (&json!(false), &json!(true))
    );
    for wrong in [
        json!({"log_inof": true}),
        json!({"log_file": "/tmp/x"}),
        json!({"log_info": 1}),
    ] {
        api.post("/v2/logging", &wrong)
            .await
            .problem(400, "invalid_request");
    }
    let trace = api.get("/v2/trace/setting").await.json(200);
    assert_eq!(trace["trace_level"], json!(["OFF"]));
    let path = "/v2/models/mlp/trace/setting";
    assert_eq!(
        api.post(path, &json!({"trace_level": ["OFF"]}))
            .await
            .status,
        200
    );
    let on = json!({"trace_level": ["TIMESTAMPS"]});
    api.post(path, &on).await.problem(400, "invalid_request");
    let traced = client.trace_setting(TraceSettingRequest::default()).await;
    assert_eq!(
        traced.expect("an answer").into_inner().settings["trace_level"].value,
        ["OFF"]
    );
}

#[tokio::test]
async fn grpc_has_a_port_of_its_own_where_that_is_set() {
    let cluster = digits::service(Settings {
        set: vec![
            "grpc.listen=127.0.0.1:0".to_owned(),
            "auth.mode=off".to_owned(),
        ],
        ..Settings::default()
    })
    .await;
    let address = until("it is told", async || {
        let log = cluster.log();
        let line = log.split("listening for gRPC on ").nth(1)?;
        let (address, _) = line.split_once('"')?;
        Some(address.to_owned())
    })
    .await;
    assert_ne!(address, cluster.address());
    let mut client = Client::new(channel(&address).await);
    let mut request = Request::new(ServerReadyRequest {});
    request.set_timeout(Duration::from_secs(60));
    assert!(
        client
            .server_ready(request)
            .await
            .expect("an answer")
            .into_inner()
            .ready
    );
    let images = Images::load("test");
    let reply = client.model_infer(raw("mlp", images.pixels(0))).await;
    assert_eq!(scores(&reply.expect("an answer").into_inner()).len(), 10);
}
