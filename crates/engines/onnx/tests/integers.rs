//! Answers that engines which compute 64-bit integers in 32 bits would get wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    inspect,
    proto::AttributeProto,
};
use sextant_types::DataType;

/// The output that may need more than 32 bits, of a model of `a` and `b`, INT64, and `x`, FP32.
fn wide_output(nodes: &[(&str, &[&str], &str)], data_type: DataType) -> Option<String> {
    let row = [BATCH, Dim::Fixed(4)];
    let mut builder = ModelBuilder::new("integers", 0);
    builder.input("a", DataType::Int64, &row);
    builder.input("b", DataType::Int64, &row);
    builder.input("x", DataType::Fp32, &row);
    builder.constant("seven", &[], &[7_i64]);
    builder.constant("shape", &[2], &[-1_i64, 4]);
    builder.constant("half", &[], &[0.5_f32]);
    for (operator, inputs, output) in nodes {
        let (operator, to) = match *operator {
            "CastToFloat" => ("Cast", 1),
            operator => (operator, 7),
        };
        let attributes = if operator == "Cast" {
            vec![AttributeProto::int("to", to)]
        } else {
            Vec::new()
        };
        builder.node_with(operator, inputs, &[output], attributes);
    }
    builder.output("y", data_type, &row);
    inspect(&builder.build()).unwrap().wide_output
}

#[test]
fn integers_that_may_not_fit_32_bits_are_found() {
    let wide = |nodes: &[(&str, &[&str], &str)]| wide_output(nodes, DataType::Int64);
    let y = Some("y".to_owned());
    for nodes in [
        &[("Add", &["a", "b"][..], "y")][..],
        &[("Mul", &["a", "seven"], "y")],
        &[("Cast", &["x"], "y")],
        &[
            ("Add", &["a", "b"], "sum"),
            ("Reshape", &["sum", "shape"], "y"),
        ],
        &[("ArgMax", &["x"], "at"), ("Div", &["at", "half"], "y")],
        &[("Unheard", &["a"], "y")],
        // Small, and wrong where the sum was cut.
        &[("Add", &["a", "b"], "sum"), ("Mod", &["sum", "seven"], "y")],
        &[
            ("Mul", &["a", "seven"], "product"),
            ("Clip", &["product", "seven", "seven"], "y"),
        ],
        &[
            ("Add", &["a", "b"], "sum"),
            ("Greater", &["seven", "sum"], "less"),
            ("Cast", &["less"], "y"),
        ],
        &[("Sub", &["a", "b"], "apart"), ("ArgMax", &["apart"], "y")],
        &[
            ("Add", &["a", "b"], "sum"),
            ("Greater", &["sum", "seven"], "more"),
            ("Where", &["more", "seven", "a"], "y"),
        ],
        &[
            ("Add", &["a", "b"], "sum"),
            ("Mod", &["sum", "seven"], "rest"),
            ("Clip", &["rest", "seven", "seven"], "y"),
        ],
    ] {
        assert_eq!(wide(nodes), y, "{nodes:?}");
    }
    for nodes in [
        &[("Identity", &["a"][..], "y")][..],
        &[("ArgMax", &["x"], "y")],
        &[("ArgMax", &["x"], "at"), ("Mul", &["at", "seven"], "y")],
        &[("Mod", &["a", "seven"], "y")],
        &[
            ("Greater", &["a", "seven"], "more"),
            ("Cast", &["more"], "y"),
        ],
        &[
            ("Greater", &["a", "seven"], "more"),
            ("Where", &["more", "seven", "a"], "y"),
        ],
        // Floats are not cut.
        &[
            ("CastToFloat", &["a"], "number"),
            ("Add", &["number", "number"], "twice"),
            ("ArgMax", &["twice"], "y"),
        ],
        &[
            ("Cast", &["x"], "any"),
            ("Clip", &["any", "seven", "seven"], "y"),
        ],
        &[
            ("TopK", &["x", "seven"], "best"),
            ("ArgMax", &["best"], "at"),
            ("Div", &["at", "seven"], "y"),
        ],
        &[("Softmax", &["x"], "share"), ("Cast", &["share"], "y")],
        &[("Reshape", &["a", "shape"], "y")],
    ] {
        assert_eq!(wide(nodes), None, "{nodes:?}");
    }
}

#[test]
fn what_follows_from_integers_that_may_not_fit_is_found() {
    let sum = ("Add", &["a", "b"][..], "sum");
    let product = ("Mul", &["a", "seven"][..], "product");
    let rest = ("Mod", &["product", "seven"][..], "rest");
    for nodes in [
        &[sum, ("CastToFloat", &["sum"], "y")][..],
        &[
            product,
            ("CastToFloat", &["product"], "number"),
            ("Mul", &["number", "half"], "y"),
        ],
        &[
            sum,
            ("Greater", &["sum", "seven"], "more"),
            ("Where", &["more", "x", "half"], "y"),
        ],
        // What it is looked up by is small, and wrong.
        &[product, rest, ("Gather", &["x", "rest"], "y")],
    ] {
        let found = wide_output(nodes, DataType::Fp32);
        assert_eq!(found.as_deref(), Some("y"), "{nodes:?}");
    }
    for nodes in [
        &[("CastToFloat", &["a"][..], "y")][..],
        &[("Add", &["x", "x"], "y")],
        &[
            ("Add", &["a", "seven"], "moved"),
            ("CastToFloat", &["moved"], "y"),
        ],
        &[
            ("Shape", &["a"], "sizes"),
            ("Mul", &["sizes", "sizes"], "squares"),
            ("CastToFloat", &["squares"], "y"),
        ],
        &[
            sum,
            ("Shape", &["sum"], "sizes"),
            ("CastToFloat", &["sizes"], "y"),
        ],
        &[sum, ("Gather", &["x", "sum"], "y")],
        &[
            ("ArgMax", &["x"], "at"),
            ("Mul", &["at", "seven"], "far"),
            ("CastToFloat", &["far"], "y"),
        ],
        &[
            ("Mod", &["a", "seven"], "rest"),
            ("Gather", &["x", "rest"], "y"),
        ],
    ] {
        assert_eq!(wide_output(nodes, DataType::Fp32), None, "{nodes:?}");
    }
    let compared = [sum, ("Greater", &["sum", "seven"], "y")];
    assert_eq!(wide_output(&compared, DataType::Bool).as_deref(), Some("y"));
}
