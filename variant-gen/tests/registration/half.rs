//! Files whose weights are 16-bit floats.

use sextant_onnx::{
    builder::{Dim, ModelBuilder},
    proto::{AttributeProto, TensorProto, data_type},
};
use sextant_registry::JobState;
use sextant_types::{DataType, Precision};

use crate::bed::{Bed, CLASSES, WIDTH, quick, validation};

#[tokio::test]
async fn a_file_in_half_precision_is_said_to_be_one() {
    let bed = Bed::new().await;
    let rows = |width| [Dim::Dynamic("batch"), Dim::Fixed(width as u64)];
    let mut builder = ModelBuilder::new("half", 1);
    builder
        .input("input", DataType::Fp32, &rows(WIDTH))
        .output("output", DataType::Fp32, &rows(CLASSES))
        .node_with(
            "Cast",
            &["stored"],
            &["weights"],
            vec![AttributeProto::int("to", data_type::FLOAT.into())],
        )
        .node("MatMul", &["input", "weights"], &["output"]);
    let mut model = builder.model();
    let ones = [0x00, 0x3c].repeat(WIDTH * CLASSES);
    let stored = TensorProto::from_bytes("stored", DataType::Fp16, &[WIDTH, CLASSES], ones.into());
    model
        .graph
        .as_mut()
        .expect("a graph")
        .initializer
        .push(stored);
    let file = sextant_onnx::encode(&model);
    let job = bed.submit("half", &file, &validation(3)).await.job;
    let job = bed.run_to_end(bed.generator(quick()), &job.id).await;
    assert_eq!(job.state, JobState::Succeeded, "{:?}", job.error);
    let changes = job.result.expect("a result")["changes"].to_string();
    assert!(changes.contains("16-bit floats"), "{changes}");
    let variants = bed.variants("half").await;
    assert!(
        variants
            .iter()
            .all(|it| it.spec.precision == Precision::Fp32)
    );
}
