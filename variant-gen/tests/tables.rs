//! Validation sets as CSV.

use bytes::Bytes;
use sextant_types::{DataType, Metric, Signature, Tensor, TensorSpec};
use sextant_variant_gen::validation::{Expectation, Limits, ScoringTarget, SetRequirements, read};

static FIRST: ScoringTarget = ScoringTarget {
    output: 0,
    classes: Vec::new(),
    own: Vec::new(),
};

fn spec(name: &str, data_type: DataType, shape: &[Option<u64>]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: shape.to_vec(),
    }
}

fn expected(signature: &Signature, metric: Metric) -> SetRequirements<'_> {
    SetRequirements {
        signature,
        metric,
        scored: &FIRST,
        limits: Limits::default(),
    }
}

#[test]
fn a_table_has_a_column_for_each_element() {
    let file = |text: &str| Bytes::from(text.to_owned());
    let one = Signature {
        inputs: vec![spec("x", DataType::Fp32, &[None, Some(2)])],
        outputs: vec![spec("y", DataType::Fp32, &[None, Some(3)])],
        batched: true,
    };
    // One input: its columns may have any names.
    let set = read(
        &file("length,label,width\n1.5,2,\n-3,0,4\n"),
        expected(&one, Metric::Top1),
    );
    let set = set.expect("reads");
    assert_eq!(set.labels().values, Expectation::Classes(vec![2, 0]));
    let x = &set.rows(0, 2).expect("rows")[0].tensor;
    let x = x.to_vec::<f32>().expect("floats");
    assert!(
        x[0] == 1.5 && x[1].is_nan() && x[2..] == [-3.0, 4.0],
        "{x:?}"
    );
    let signature = Signature {
        inputs: vec![
            spec("age", DataType::Int64, &[None, Some(1)]),
            spec("colour", DataType::Bytes, &[None, Some(1)]),
            spec("place", DataType::Fp32, &[None, Some(2)]),
        ],
        outputs: vec![spec("y", DataType::Fp32, &[None, Some(2)])],
        batched: true,
    };
    let of = |text: &str| read(&file(text), expected(&signature, Metric::MeanAbsoluteError));
    let text = "place.1,colour,label.0,label.1,age,place.0\n2,\"a, b\",0.5,0.25,3.0,1\n";
    let set = of(text).expect("reads");
    let rows = set.rows(0, 1).expect("rows");
    assert_eq!(rows[0].tensor.to_vec(), Some(vec![3i64]));
    assert_eq!(rows[2].tensor.to_vec(), Some(vec![1f32, 2.0]));
    let wanted = Tensor::from_strings(vec![1, 1], vec![Bytes::from("a, b")]);
    assert_eq!(rows[1].tensor, wanted.expect("fits"));
    assert_eq!(set.labels().values, Expectation::Real(vec![0.5, 0.25]));
    for (text, said) in [
        ("age,colour,place.0,place.1,weight\n1,a,1,2,3\n", "`weight`"),
        ("age,colour,place.0,place.2\n1,a,1,2\n", "`place`"),
        ("age,colour,place.0\n1,a,1\n", "`place`"),
        ("age,colour\n1,a\n", "`place`"),
        (
            "age,colour,place.0,place.1\n1.5,a,1,2\n",
            "record 1: `age` has `1.5`",
        ),
        ("age,colour,place.0,place.1\n1,a,1\n", "record"),
        ("age,colour,place.0,place.1\n", "no records"),
    ] {
        let error = of(text).expect_err(text).to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}
