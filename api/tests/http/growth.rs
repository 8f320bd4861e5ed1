//! What a change reads of the registry beside other applications, however many there are.

use sextant_registry::Reads;

use crate::{
    double::{Api, Recorder},
    resources::form,
};

/// Others that are there.
const FEW: usize = 2;
const MANY: usize = 150;

async fn create(api: &Api, name: &str) {
    let body = format!(r#"{{"name":"{name}","metric":"top1"}}"#);
    assert_eq!(api.call("POST", "/v1/applications", body).await.status, 201);
}

async fn register(api: &Api, application: &str, model: &str) {
    let request = form(&[
        ("name", model.as_bytes()),
        ("application", application.as_bytes()),
        ("model", b"onnx"),
        ("validation", b"{\"label\":1}"),
    ]);
    assert_eq!(api.send(request).await.status, 202);
}

/// What is read for one application and one model more, and for their end, beside so many others.
async fn reads(others: usize) -> Reads {
    let api = Api::new(Recorder::answering()).await;
    for other in 0..others {
        create(&api, &format!("other-{other}")).await;
        register(&api, &format!("other-{other}"), &format!("model-{other}")).await;
    }
    let before = api.registry.reads();
    create(&api, "last").await;
    register(&api, "last", "latest").await;
    let asked = r#"{"application":"last","inputs":[]}"#;
    assert_eq!(api.call("POST", "/v1/queries", asked).await.status, 200);
    let described = r#"{"description":"the last one"}"#;
    let changed = api.call("PATCH", "/v1/applications/last", described).await;
    assert_eq!(changed.status, 200);
    let after = api.registry.reads();
    Reads {
        queries: after.queries - before.queries,
        rows: after.rows - before.rows,
    }
}

#[tokio::test]
async fn a_change_reads_nothing_of_other_applications() {
    assert_eq!(reads(FEW).await, reads(MANY).await);
}
