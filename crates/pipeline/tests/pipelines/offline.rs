//! Offline jobs whose records a pipeline answers.

use serde_json::json;
use sextant_rpc::{Offline, Query};
use sextant_types::{Code, OfflineSpec, Route, Targets};

use crate::worker::{Service, Worker, output, query, service, x};

fn of_two_steps() -> Service {
    let worker = Worker::new().adding("one", 1.0).adding("ten", 10.0);
    service(
        worker,
        &json!({"name": "p", "steps": [
            {"name": "a", "application": "one"},
            {"name": "b", "application": "ten", "inputs": {"x": "a.y"}},
        ]}),
    )
}

fn job(targets: Targets) -> OfflineSpec {
    OfflineSpec {
        route: query(Vec::new()).route,
        targets,
        input: "in.jsonl".to_owned(),
        output: "out.jsonl".to_owned(),
        chunk: 1,
        input_format: None,
        output_format: None,
        webhook: None,
    }
}

#[tokio::test]
async fn its_version_answers_and_its_steps_ask_as_the_job_does() {
    let service = of_two_steps();
    let offline: &dyn Offline = &*service.pipelines;
    // A job has no deadline.
    let spec = job(Targets {
        latency_ms: Some(1e-6),
        ..Targets::default()
    });
    let chosen = offline.choose(&spec).expect("it answers");
    assert_eq!(chosen.as_str(), "p-v1");
    let route = offline.route(&spec, &chosen);
    assert_eq!(route, spec.route);
    assert_eq!(offline.most_together(&route), 1);
    let asked = Query {
        offline: true,
        ..query(x(&[1.0]))
    };
    let answer = offline.answer(asked).await.expect("an answer");
    assert_eq!(output(&answer, "y").expect("y"), [12.0]);
    assert_eq!(answer.variant, chosen);
    let asked = service.worker.asked.lock();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|step| step.offline));
}

#[tokio::test]
async fn what_was_not_measured_of_the_whole_cannot_be_a_target_of_a_job() {
    let service = of_two_steps();
    let offline: &dyn Offline = &*service.pipelines;
    let spec = job(Targets {
        min_quality: Some(0.9),
        ..Targets::default()
    });
    let refused = offline.choose(&spec).expect_err("nothing was measured");
    assert_eq!(refused.code, Code::InvalidTarget);
    let other = OfflineSpec {
        route: Route::Application("other".parse().expect("a name")),
        ..job(Targets::default())
    };
    let refused = offline
        .choose(&other)
        .expect_err("there is no such pipeline");
    assert_eq!(refused.code, Code::ApplicationNotFound);
}
