//! Calls with a single answer.

use std::sync::Arc;

use sextant_keda::{
    KedaProvider, METRIC,
    proto::{
        GetMetricsRequest, MetricSpec, MetricValue, ScaledObjectRef,
        external_scaler_client::ExternalScalerClient,
    },
};
use sextant_provider::Provider;
use sextant_types::DeviceTypeName;
use tonic::{Code, Status, transport::Channel};

use super::support::{Ground, object, pools};

fn request(object: ScaledObjectRef) -> GetMetricsRequest {
    GetMetricsRequest {
        scaled_object_ref: Some(object),
        metric_name: METRIC.to_owned(),
    }
}

/// The errors with which the four calls are refused.
async fn refusals(
    client: &mut ExternalScalerClient<Channel>,
    object: &ScaledObjectRef,
) -> [Status; 4] {
    [
        client.is_active(object.clone()).await.expect_err("refused"),
        client
            .stream_is_active(object.clone())
            .await
            .expect_err("refused"),
        client
            .get_metric_spec(object.clone())
            .await
            .expect_err("refused"),
        client
            .get_metrics(request(object.clone()))
            .await
            .expect_err("refused"),
    ]
}

#[tokio::test]
async fn replica_stands_for_one() {
    let ground = Ground::with(&[("cpu-8", 3)]).await;
    let mut client = ground.client().await;
    let said = client.get_metric_spec(object("cpu-8")).await;
    let spec = MetricSpec {
        metric_name: METRIC.to_owned(),
        target_size: 1,
        target_size_float: 1.0,
    };
    assert_eq!(said.expect("a metric").into_inner().metric_specs, [spec]);
}

#[tokio::test]
async fn metric_is_what_is_desired_now() {
    let ground = Ground::with(&[("cpu-16", 2), ("cpu-8", 3)]).await;
    let mut client = ground.client().await;
    for (expected, other) in [(3, 2), (0, 2), (7, 0), (1000, 1)] {
        ground.want(&[("cpu-16", other), ("cpu-8", expected)]);
        for (pool, expected) in [("cpu-8", expected), ("cpu-16", other)] {
            let said = client.get_metrics(request(object(pool))).await;
            let value = MetricValue {
                metric_name: METRIC.to_owned(),
                metric_value: i64::from(expected),
                metric_value_float: f64::from(expected),
            };
            assert_eq!(said.expect("a value").into_inner().metric_values, [value]);
            let active = client.is_active(object(pool)).await.expect("an answer");
            assert_eq!(active.into_inner().result, expected > 0);
        }
    }
}

#[tokio::test]
async fn unknown_pool_is_told_the_others() {
    let ground = Ground::with(&[("cpu-16", 2), ("cpu-8", 3)]).await;
    let mut client = ground.client().await;
    for status in refusals(&mut client, &object("cpu-9")).await {
        assert_eq!(status.code(), Code::NotFound, "{status}");
        assert_eq!(
            status.message(),
            "there is no pool `cpu-9`: name one of `cpu-16`, `cpu-8`"
        );
    }
    ground.want(&[]);
    for status in refusals(&mut client, &object("cpu-8")).await {
        assert_eq!(status.code(), Code::NotFound, "{status}");
        assert!(status.message().contains("no other yet"), "{status}");
    }
}

#[tokio::test]
async fn object_without_a_pool_is_told_what_to_write() {
    let ground = Ground::with(&[("cpu-8", 3)]).await;
    let mut client = ground.client().await;
    let mut nameless = object("");
    nameless.scaler_metadata.remove("pool");
    for object in [object(""), nameless] {
        for status in refusals(&mut client, &object).await {
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert_eq!(
                status.message(),
                "ScaledObject `sextant/workers` names no pool: add `pool: <device type>` to the metadata \
                 of its trigger"
            );
        }
    }
    let nobody = GetMetricsRequest {
        scaled_object_ref: None,
        metric_name: METRIC.to_owned(),
    };
    let status = client.get_metrics(nobody).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

/// The number of workers is not decided here: KEDA would take it for a desired number, and end all
/// workers at 0.
#[tokio::test]
async fn pool_for_which_nobody_decides_is_refused() {
    let ground = Ground::with(&[]).await;
    let mut undecided = Arc::unwrap_or_clone(pools(&[("cpu-8", 0)]));
    undecided[0].provider = None;
    ground.desired.send_replace(Arc::new(undecided));
    let mut client = ground.client().await;
    for status in refusals(&mut client, &object("cpu-8")).await {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("provider `keda`"), "{status}");
    }
}

#[tokio::test]
async fn other_metrics_are_not_known() {
    let ground = Ground::with(&[("cpu-8", 3)]).await;
    let other = GetMetricsRequest {
        metric_name: "queue_length".to_owned(),
        ..request(object("cpu-8"))
    };
    let status = ground.client().await.get_metrics(other).await;
    let status = status.expect_err("refused");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(
        status.message(),
        "there is no metric `queue_length`: ask for `sextant_workers_desired`"
    );
}

/// KEDA scales the workers: the provider orders nothing and has nothing to end.
#[tokio::test]
async fn provider_has_no_machines_of_its_own() {
    let pool = sextant_provider::Pool {
        device_type: DeviceTypeName::new("cpu-8").expect("a name"),
        end_ms: 1000,
    };
    let provider = KedaProvider;
    provider.grow(&pool, 3).await.expect("grow");
    assert_eq!(provider.list(&pool).await.expect("list"), []);
    assert_eq!(provider.name(), "keda");
}
