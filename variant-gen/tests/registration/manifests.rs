//! Manifests: models that an engine has, and nobody else.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Capabilities, Engine, Error, LoadRequest, LoadedModel, is_manifest};
use sextant_engine_ort::OrtEngine;
use sextant_registry::JobState;
use sextant_types::{Code, NamedTensor, Optimization, Precision, Signature, Tensor};
use sextant_variant_gen::Generator;

use crate::bed::{Bed, limited, model, ort, quick, validation};

/// Rows that the owner takes at once.
const MOST_ROWS: usize = 2;

/// Has one model, which its manifest names.
struct Owner(OrtEngine);

struct OwnedModel(Arc<dyn LoadedModel>);

impl Engine for Owner {
    fn name(&self) -> &'static str {
        "owner"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            ..self.0.capabilities()
        }
    }

    fn reads(&self, file: &Bytes) -> bool {
        is_manifest(file) && file.ends_with(b"\"mine\"}")
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        assert!(
            self.reads(&request.model.graph),
            "it is asked for others' files"
        );
        let model = self.0.load(&LoadRequest {
            model: model(1).into(),
            ..request.clone()
        })?;
        Ok(Arc::new(OwnedModel(model)))
    }
}

impl LoadedModel for OwnedModel {
    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        if inputs[0].tensor.rows() > MOST_ROWS {
            return Err(Error::InvalidInput("too many rows".to_owned()));
        }
        self.0.run(inputs)
    }

    fn weights_bytes(&self) -> u64 {
        7 << 20
    }
}

fn generator(bed: &Bed) -> Generator {
    let mut engines = limited();
    engines.push(Arc::new(Owner(ort())));
    Generator::new(bed.stores(), engines, quick())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_engine_that_has_the_model_makes_variants() {
    let bed = Bed::new().await;
    let manifest = Bytes::from_static(b"{\"model\":\"mine\"}");
    let job = bed.submit("theirs", &manifest, &validation(1)).await;
    let job = bed.run_to_end(generator(&bed), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("theirs").await;
    let names: Vec<String> = variants.iter().map(|it| it.id.to_string()).collect();
    assert_eq!(
        names,
        ["theirs-owner-fp32-all-t1-b1", "theirs-owner-fp32-all-t1-b2"]
    );
    for variant in &variants {
        assert_eq!(variant.profile.weights_bytes, 7 << 20);
        assert_eq!(variant.accuracy.evaluation_batch, 2);
        assert!(variant.signature.batched);
    }
    let job = bed.submit("ours", &model(1), &validation(1)).await;
    let job = bed.run_to_end(generator(&bed), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("ours").await;
    assert!(variants.iter().all(|it| it.spec.engine.0 == "ort"));
}

/// Labels are asked for in batches that the owner does not take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_of_small_batches_answers_a_set_without_labels() {
    let bed = Bed::new().await;
    let manifest = Bytes::from_static(b"{\"model\":\"mine\"}");
    let records = "{\"inputs\": {\"input\": [0, 1, 2, 3, 4, 5, 6, 7]}}\n".repeat(40);
    let job = bed.submit("theirs", &manifest, &records.into()).await;
    let job = bed.run_to_end(generator(&bed), &job.job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let variants = bed.variants("theirs").await;
    assert!(!variants.is_empty());
    for variant in variants {
        let accuracy = variant.accuracy;
        assert_eq!((accuracy.value, accuracy.records), (1.0, 40));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_for_nobody_is_refused() {
    let bed = Bed::new().await;
    let manifest = Bytes::from_static(b"{\"model\":\"nobody's\"}");
    let job = bed.submit("m", &manifest, &validation(1)).await;
    let job = bed.run_to_end(generator(&bed), &job.job.id).await;
    let failure = job.error.expect("it is refused");
    assert_eq!(failure.code, Code::InvalidModel);
    assert!(
        failure.message.contains("no manifest"),
        "{}",
        failure.message
    );
}
