//! Unexpected answers of the API server.

use http::Method;
use sextant_provider::{Error, Provider};
use sextant_provider_kubernetes::Kind;

use super::support::{Cluster, FaultKind, absence, pool, refusal, staying};

const KIND: Kind = Kind::Deployment;

#[tokio::test]
async fn who_may_not_is_told_what_is_missing() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    for (method, path) in [
        (Method::GET, "/scale"),
        (Method::GET, "/pods"),
        (Method::PATCH, "/scale"),
    ] {
        cluster.inject(&method, path, 1, FaultKind::Status(403, "cannot do it"));
        let reason = refusal(provider.grow(&pool(), 2).await);
        assert!(reason.contains("Deployment `fleet/workers`"), "{reason}");
        assert!(reason.contains("403, cannot do it"), "{reason}");
        assert!(reason.contains("docs/scaling.md"), "{reason}");
    }
    cluster.inject(
        &Method::GET,
        "/scale",
        1,
        FaultKind::Status(401, "who are you"),
    );
    let reason = refusal(provider.grow(&pool(), 2).await);
    assert!(reason.contains("check the token"), "{reason}");
    assert_eq!(cluster.replicas(), 1);
}

#[tokio::test]
async fn missing_workload_is_an_error_of_the_settings() {
    let cluster = Cluster::with(KIND, 1).await;
    // There is a Deployment of the name, but no StatefulSet.
    let provider = cluster.provider(Kind::StatefulSet);
    let error = provider.list(&pool()).await.expect_err("missing");
    assert!(matches!(error, Error::Settings { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "pool `cpu-8`: there is no StatefulSet `fleet/workers`: create it, or name another one"
    );
    let provider = cluster.provider(KIND);
    cluster.inject(
        &Method::PATCH,
        "/scale",
        1,
        FaultKind::Status(404, "not found"),
    );
    let error = provider.grow(&pool(), 2).await.expect_err("missing");
    assert!(matches!(error, Error::Settings { .. }), "{error}");
}

#[tokio::test]
async fn pool_without_a_workload_is_an_error_of_the_settings() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    let mut other = pool();
    other.device_type = sextant_types::DeviceTypeName::new("cpu-16").expect("a name");
    let error = provider.list(&other).await.expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "pool `cpu-16`: it has no Deployment and no StatefulSet: name one"
    );
}

#[tokio::test]
async fn conflict_is_tried_again() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    cluster.inject(
        &Method::PATCH,
        "/scale",
        3,
        FaultKind::Status(409, "modified"),
    );
    provider.grow(&pool(), 3).await.expect("grow");
    assert_eq!(cluster.replicas(), 3);
    assert_eq!(staying(&provider).await.len(), 3);
}

#[tokio::test]
async fn conflicts_without_end_are_refused() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    cluster.inject(
        &Method::PATCH,
        "/scale",
        u32::MAX,
        FaultKind::Status(409, "modified"),
    );
    let reason = refusal(provider.grow(&pool(), 3).await);
    assert!(
        reason.contains("leave its replicas to one autoscaler"),
        "{reason}"
    );
    assert_eq!(cluster.replicas(), 1);
}

/// Somebody else requests more at the same time: the result is the larger number, not the sum and not the smaller
/// number.
#[tokio::test]
async fn replicas_of_somebody_else_are_not_undone() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    let raised = FaultKind::After(|world| world.scale(5));
    cluster.inject(&Method::PATCH, "/scale", 1, raised);
    provider.grow(&pool(), 3).await.expect("grow");
    assert_eq!(cluster.replicas(), 5);
}

/// Somebody else removes one while one is ended: both are gone.
#[tokio::test]
async fn end_takes_off_what_is_there_then() {
    let cluster = Cluster::with(KIND, 4).await;
    let provider = cluster.provider(KIND);
    let all = staying(&provider).await;
    let raised = FaultKind::After(|world| world.scale(6));
    cluster.inject(&Method::PATCH, "/scale", 1, raised);
    provider.end(&pool(), &all[..1]).await.expect("end");
    assert_eq!(cluster.replicas(), 5);
    assert!(!staying(&provider).await.contains(&all[0]));
}

#[tokio::test]
async fn troubles_of_the_server_are_its_absence() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    for code in [500, 503, 504, 429] {
        cluster.inject(
            &Method::GET,
            "/scale",
            1,
            FaultKind::Status(code, "not now"),
        );
        let reason = absence(provider.grow(&pool(), 2).await);
        assert!(reason.contains("not now"), "{reason}");
    }
    cluster.inject(&Method::GET, "/pods", 1, FaultKind::Status(500, "not now"));
    absence(provider.list(&pool()).await.map(drop));
    provider.grow(&pool(), 2).await.expect("grow");
}

#[tokio::test]
async fn call_without_an_answer_is_given_up() {
    let cluster = Cluster::with(KIND, 1).await;
    for (method, path) in [
        (Method::GET, "/scale"),
        (Method::GET, "/pods"),
        (Method::PATCH, "/scale"),
    ] {
        let provider = cluster.impatient(KIND, 200);
        cluster.inject(&method, path, 1, FaultKind::Hang);
        let reason = absence(provider.grow(&pool(), 2).await);
        assert!(
            reason.contains("was not answered within 200 ms"),
            "{reason}"
        );
    }
    let provider = cluster.provider(KIND);
    provider.grow(&pool(), 2).await.expect("grow");
    assert_eq!(cluster.replicas(), 2);
}

#[tokio::test]
async fn answers_that_cannot_be_are_refused() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    let scales = [
        "",
        "no JSON",
        "[]",
        "{}",
        r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":-1},"status":{"replicas":0,"selector":"app=workers"}}"#,
        r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":1},"status":{"replicas":0}}"#,
        r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":1},"status":{"replicas":0,"selector":""}}"#,
        r#"{"metadata":{},"spec":{"replicas":1},"status":{"replicas":0,"selector":"app=workers"}}"#,
    ];
    for scale in scales {
        cluster.inject(&Method::GET, "/scale", 1, FaultKind::Raw(scale));
        let reason = refusal(provider.grow(&pool(), 2).await);
        assert!(reason.contains("was answered with"), "{scale}: {reason}");
    }
    for pods in ["no JSON", r#"{"items":[{"metadata":7}]}"#] {
        cluster.inject(&Method::GET, "/pods", 1, FaultKind::Raw(pods));
        let reason = refusal(provider.grow(&pool(), 2).await);
        assert!(reason.contains("cannot be understood"), "{pods}: {reason}");
    }
    assert_eq!(cluster.replicas(), 1);
}

/// A pod ends between the list and the mark.
#[tokio::test]
async fn pod_that_is_gone_before_its_mark_is_fine() {
    let cluster = Cluster::with(KIND, 2).await;
    let provider = cluster.provider(KIND);
    let all = staying(&provider).await;
    let path: &'static str = Box::leak(format!("/pods/{}", all[0].0).into_boxed_str());
    cluster.inject(&Method::PATCH, path, 1, FaultKind::Status(404, "not found"));
    provider.end(&pool(), &all[..1]).await.expect("end");
    assert_eq!(cluster.replicas(), 2);
}
