//! Numbers that are looked up in a table of the model.

use bytes::Bytes;
use sextant_engine::{Engine, Error, LoadRequest};
use sextant_onnx::builder::{Dim, ModelBuilder};
use sextant_types::{DataType, Digest, NamedTensor, Precision, Tensor};

/// A vector for each token `[N, T]` of 32, with sums over the tokens of a record.
fn embeddings() -> Bytes {
    let any = [Dim::Dynamic("N"), Dim::Dynamic("T")];
    let mut model = ModelBuilder::new("embeddings", 3);
    model
        .input("tokens", DataType::Int64, &any)
        .output("sums", DataType::Fp32, &[Dim::Dynamic("N"), Dim::Fixed(8)])
        .random("words", &[32, 8], 1.0)
        .constant("one", &[1], &[1i64])
        .node("Gather", &["words", "tokens"], &["each"])
        .node("ReduceSum", &["each", "one"], &["kept"])
        .node("Squeeze", &["kept", "one"], &["sums"]);
    model.build()
}

/// A number that the table does not have is the query's fault, alone and in company; what it has is answered as before.
pub fn numbers_beyond_a_table_are_refused(engine: &dyn Engine) {
    let request = LoadRequest {
        artefact: Digest::from_bytes([91; 32]),
        model: embeddings().into(),
        precision: Precision::Fp32,
        optimization: engine.capabilities().optimizations[0],
        threads: 1,
    };
    let model = engine.load(&request).expect("it loads");
    let run = |rows: &[[i64; 2]]| {
        let ids: Vec<i64> = rows.iter().flatten().copied().collect();
        let tokens = Tensor::from_elements(vec![rows.len(), 2], &ids).expect("as many");
        let outputs = model.run(&[NamedTensor::new("tokens", tokens)])?;
        Ok::<_, Error>(outputs[0].to_vec::<f32>().expect("32-bit floats"))
    };
    let good = run(&[[0, 31]]).expect("the table has them");
    assert_eq!(run(&[[-32, -1]]).expect("counted from its end"), good);
    for wrong in [32, 1000, -33, i64::from(i32::MAX), i64::from(i32::MIN)] {
        for rows in [&[[0, wrong]][..], &[[0, 31], [wrong, 1], [2, 3]]] {
            match run(rows) {
                Err(Error::InvalidInput(_)) => {}
                other => panic!("{wrong} in {} rows: {other:?}", rows.len()),
            }
        }
        assert_eq!(run(&[[0, 31]]).expect("as before"), good);
    }
    // No token at all is answered or the query's fault.
    let none = Tensor::from_elements::<i64>(vec![1, 0], &[]).expect("none");
    match model.run(&[NamedTensor::new("tokens", none)]) {
        Ok(_) | Err(Error::InvalidInput(_)) => {}
        Err(other) => panic!("no tokens: {other:?}"),
    }
    assert_eq!(run(&[[0, 31]]).expect("as before"), good);
}
