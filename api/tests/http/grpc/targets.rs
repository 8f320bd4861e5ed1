//! Targets of a gRPC call: as parameters, as metadata, and as its timeout.

use sextant_types::Prefer;

use super::{INFER, INVALID_ARGUMENT, OK, call, frame, parameters, query};
use crate::{
    double::{Api, Recorder},
    messages::ParameterChoice,
};

#[tokio::test]
async fn targets_come_as_parameters_metadata_and_timeouts() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let mut with = query();
    with.parameters = parameters(&[
        ("slo_latency_ms", ParameterChoice::DoubleParam(12.5)),
        (
            "slo_min_accuracy",
            ParameterChoice::StringParam("0.9".to_owned()),
        ),
        (
            "slo_policy",
            ParameterChoice::StringParam("best_effort".to_owned()),
        ),
        ("explain", ParameterChoice::BoolParam(true)),
        ("priority", ParameterChoice::Uint64Param(1)),
        ("anything", ParameterChoice::Int64Param(3)),
    ]);
    let headers = [("x-slo-latency-ms", "7"), ("grpc-timeout", "5S")];
    assert_eq!(call(&api, INFER, &headers, frame(&with)).await.status, OK);
    let asked = recorder.last();
    assert_eq!(
        (asked.targets.latency_ms, asked.targets.min_quality),
        (Some(12.5), Some(0.9))
    );
    assert!(asked.best_effort && asked.explain);
    assert_eq!(
        call(&api, INFER, &headers, frame(&query())).await.status,
        OK
    );
    assert_eq!(recorder.last().targets.latency_ms, Some(7.0));
    assert_eq!(
        call(&api, INFER, &headers[1..], frame(&query()))
            .await
            .status,
        OK
    );
    let deadline = recorder
        .last()
        .targets
        .latency_ms
        .expect("the call's timeout");
    assert!(deadline > 0.0 && deadline <= 5000.0, "{deadline}");
    let mut timed = query();
    timed.parameters = parameters(&[("timeout", ParameterChoice::Int64Param(3000))]);
    assert_eq!(
        call(&api, INFER, &headers[1..], frame(&timed)).await.status,
        OK
    );
    assert_eq!(recorder.last().targets.latency_ms, Some(3.0));
}

#[tokio::test]
async fn a_share_of_the_uploaded_accuracy_is_asked_for_over_grpc_and_http() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let mut with = query();
    let share = ParameterChoice::DoubleParam(0.99);
    with.parameters = parameters(&[("slo_min_relative_accuracy", share)]);
    let header = ("x-slo-min-relative-accuracy", "0.95");
    for (message, headers, wanted) in [
        (&with, &[][..], Some(0.99)),
        (&with, &[header], Some(0.99)),
        (&query(), &[header], Some(0.95)),
        (&query(), &[], None),
    ] {
        let ended = call(&api, INFER, headers, frame(message)).await;
        assert_eq!(ended.status, OK, "{wanted:?}");
        assert_eq!(recorder.last().targets.min_relative_accuracy, wanted);
    }
    let path = "/v2/models/digits/infer";
    let body = r#"{"parameters":{"slo_min_relative_accuracy":0.98},"inputs":[
        {"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}"#;
    let answer = api.call("POST", path, body.to_owned()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(recorder.last().targets.min_relative_accuracy, Some(0.98));
}

#[tokio::test]
async fn what_is_preferred_is_said_over_every_protocol() {
    let recorder = Recorder::answering();
    let api = Api::new(recorder.clone()).await;
    let mut with = query();
    let accuracy = ParameterChoice::StringParam("accuracy".to_owned());
    with.parameters = parameters(&[("slo_prefer", accuracy)]);
    let header = ("x-slo-prefer", "latency");
    for (message, headers, wanted) in [
        (&with, &[][..], Some(Prefer::Accuracy)),
        (&with, &[header], Some(Prefer::Accuracy)),
        (&query(), &[header], Some(Prefer::Latency)),
        (&query(), &[], None),
    ] {
        let ended = call(&api, INFER, headers, frame(message)).await;
        assert_eq!(ended.status, OK, "{wanted:?}");
        assert_eq!(recorder.last().targets.prefer, wanted);
    }
    let tensor = r#"[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]"#;
    let path = "/v2/models/digits/infer";
    let body =
        |prefer: &str| format!(r#"{{"parameters":{{"slo_prefer":"{prefer}"}},"inputs":{tensor}}}"#);
    let answer = api.call("POST", path, body("cost")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(recorder.last().targets.prefer, Some(Prefer::Cost));
    let refused = api.call("POST", path, body("beauty")).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn a_target_that_is_misspelt_is_refused_over_grpc() {
    let api = Api::new(Recorder::answering()).await;
    let mut with = query();
    let value = ParameterChoice::DoubleParam(0.99);
    with.parameters = parameters(&[("slo_min_acuracy", value)]);
    let header = ("x-slo-min-acuracy", "0.95");
    for (message, headers, meant) in [
        (&with, &[][..], "slo_min_accuracy"),
        (&query(), &[header], "x-slo-min-accuracy"),
    ] {
        let ended = call(&api, INFER, headers, frame(message)).await;
        assert_eq!(ended.status, INVALID_ARGUMENT, "{meant}");
        let wanted = format!("did you mean `{meant}`?");
        assert!(ended.message.contains(&wanted), "{}", ended.message);
    }
}
