//! Reading models, good and bad.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use sextant_onnx::{
    Error, Ranges, SHARED_LOCATION, Weight,
    builder::{self, BATCH, Dim, ModelBuilder},
    calibration_graph, decode, encode, inspect,
    proto::{
        AttributeProto, EXTERNAL, GraphProto, ModelProto, NodeProto, StringStringEntryProto,
        TensorProto, TypeProto, type_proto,
    },
    quantize::{Dynamic, quantize_dynamic_with},
    quantize_static, split_weights, stored_weights,
};
use sextant_types::DataType;

fn edit(bytes: &Bytes, change: impl FnOnce(&mut GraphProto)) -> Bytes {
    let mut model = decode(bytes).unwrap();
    change(model.graph.as_mut().unwrap());
    encode(&model)
}

fn mlp() -> Bytes {
    builder::mlp(&[4, 8, 3], 1)
}

fn external(name: &str) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(1),
        dims: vec![2],
        data_location: Some(EXTERNAL),
        external_data: vec![StringStringEntryProto {
            key: Some("location".to_owned()),
            value: Some("../../etc/passwd".to_owned()),
        }],
        ..TensorProto::default()
    }
}

#[test]
fn an_mlp_is_described() {
    let info = inspect(&mlp()).unwrap();
    assert_eq!(info.opset, builder::OPSET);
    assert_eq!(info.op_types, ["Gemm", "Relu"]);
    assert_eq!(info.nodes, 3);
    assert_eq!(info.parameters, 4 * 8 + 8 + 8 * 3 + 3);
    assert_eq!(info.weights_bytes, 4 * info.parameters);
    assert!(info.signature.batched);
    let names: Vec<_> = info
        .signature
        .inputs
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["input"]);
    assert_eq!(info.signature.inputs[0].shape, [None, Some(4)]);
    assert_eq!(info.signature.outputs[0].shape, [None, Some(3)]);
}

#[test]
fn strings_pass() {
    let info = inspect(&builder::identity(DataType::Bytes, &[BATCH])).unwrap();
    assert_eq!(info.signature.inputs[0].data_type, DataType::Bytes);
}

#[test]
fn batching_needs_one_dynamic_leading_dimension() {
    let batched = |dims: &[&[Dim]], output: &[Dim]| {
        let mut builder = ModelBuilder::new("b", 0);
        for (index, dims) in dims.iter().enumerate() {
            builder.input(&format!("i{index}"), DataType::Fp32, dims);
        }
        builder.output("o", DataType::Fp32, output);
        builder.node("Identity", &["i0"], &["o"]);
        inspect(&builder.build()).unwrap().signature.batched
    };
    let (n, m, one) = (Dim::Dynamic("n"), Dim::Dynamic("m"), Dim::Fixed(1));
    assert!(batched(&[&[n, one]], &[n, one]));
    assert!(batched(&[&[n, m], &[n]], &[m]));
    assert!(!batched(&[&[one, n]], &[n]));
    assert!(!batched(&[&[n]], &[one]));
    assert!(!batched(&[&[n]], &[]));
    assert!(!batched(&[&[n, n]], &[n]));
    assert!(!batched(&[&[n], &[m]], &[n]));
}

#[test]
fn what_is_not_onnx_is_refused() {
    for bytes in [
        &b""[..],
        b"hello, this is text",
        b"\x80\x04pickle",
        &[0xff; 64],
    ] {
        let refused = inspect(&Bytes::copy_from_slice(bytes));
        assert!(matches!(refused, Err(Error::NotOnnx(_))), "{refused:?}");
    }
    for (bytes, kind) in [
        (&b"\x80\x04pickle"[..], "a pickle"),
        (b"PK\x03\x04archive", "a zip archive"),
        (b"\x89HDF\r\n", "HDF5"),
    ] {
        let refused = inspect(&Bytes::copy_from_slice(bytes))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains(kind) && refused.contains("export the model to ONNX"),
            "{refused}"
        );
    }
    let whole = mlp();
    let cut = inspect(&whole.slice(..whole.len() - 40));
    assert!(matches!(cut, Err(Error::NotOnnx(_))), "{cut:?}");
}

#[test]
fn external_data_is_named_wherever_it_hides() {
    let at_top = edit(&mlp(), |graph| graph.initializer.push(external("far")));
    let in_constant = edit(&mlp(), |graph| {
        let value = AttributeProto::tensor("value", external("far"));
        graph
            .node
            .push(NodeProto::new("Constant", "c", &[], &["c"]).with(value));
    });
    let in_subgraph = edit(&mlp(), |graph| {
        let body = GraphProto {
            initializer: vec![external("far")],
            ..GraphProto::default()
        };
        let branch = AttributeProto {
            name: Some("then_branch".to_owned()),
            g: Some(Box::new(body)),
            ..AttributeProto::default()
        };
        graph
            .node
            .push(NodeProto::new("If", "if", &["c"], &["d"]).with(branch));
    });
    for bytes in [at_top, in_constant, in_subgraph] {
        let expected = Error::ExternalData {
            tensor: "far".to_owned(),
            location: "../../etc/passwd".to_owned(),
        };
        assert_eq!(inspect(&bytes).unwrap_err(), expected);
    }
}

#[test]
fn tensors_that_contradict_themselves_are_refused() {
    let refused = |change: fn(&mut TensorProto)| {
        let bytes = edit(&mlp(), |graph| change(&mut graph.initializer[0]));
        match inspect(&bytes) {
            Err(Error::NotOnnx(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(|it| it.dims = vec![8, 5]).contains("128 bytes"));
    assert!(refused(|it| it.dims = vec![-8, -4]).contains("impossible"));
    assert!(refused(|it| it.dims = vec![i64::MAX, 4]).contains("impossible"));
    assert!(refused(|it| it.data_type = Some(99)).contains("unknown type"));
    assert!(refused(|it| it.raw_data = None).contains("0 elements"));
}

#[test]
fn graphs_without_ends_are_refused() {
    let no_inputs = edit(&mlp(), |graph| graph.input.clear());
    let no_outputs = edit(&mlp(), |graph| graph.output.clear());
    let twice = edit(&mlp(), |graph| graph.output.push(graph.output[0].clone()));
    let no_graph = encode(&ModelProto {
        graph: None,
        ..decode(&mlp()).unwrap()
    });
    for (bytes, reason) in [
        (no_inputs, "no inputs"),
        (no_outputs, "no outputs"),
        (twice, "declared twice"),
        (no_graph, "no graph"),
    ] {
        let error = inspect(&bytes).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn inputs_that_are_no_tensors_are_refused() {
    let typed = |value: type_proto::Value| {
        edit(&mlp(), |graph| {
            graph.input[0].r#type = Some(TypeProto {
                value: Some(value),
                denotation: None,
            });
        })
    };
    let sequence = typed(type_proto::Value::SequenceType(Box::default()));
    let [rankless, narrow, unknown] = [1, 23, 99].map(|elem_type| {
        typed(type_proto::Value::TensorType(type_proto::Tensor {
            elem_type: Some(elem_type),
            shape: None,
        }))
    });
    for (bytes, what) in [
        (sequence, "a sequence"),
        (rankless, "unknown rank"),
        (narrow, "element type FLOAT4E2M1"),
        (unknown, "element type number 99"),
    ] {
        let error = inspect(&bytes).unwrap_err();
        assert!(matches!(error, Error::UnsupportedValue { .. }), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn deep_nesting_is_refused_without_a_crash() {
    // Fields of `ModelProto.graph`, then `GraphProto.node`, `NodeProto.attribute`,
    // `AttributeProto.g` over and over; written inside out.
    let mut inner = Vec::new();
    for _ in 0..5_000 {
        for field in [6u8, 5, 1] {
            let mut outer = vec![field << 3 | 2];
            prost::encode_length_delimiter(inner.len(), &mut outer).expect("a vector grows");
            outer.append(&mut inner);
            inner = outer;
        }
    }
    let mut bytes = vec![7 << 3 | 2];
    prost::encode_length_delimiter(inner.len(), &mut bytes).expect("a vector grows");
    bytes.append(&mut inner);
    let bytes = Bytes::from(bytes);
    assert!(matches!(inspect(&bytes), Err(Error::NotOnnx(_))));
}

#[test]
fn a_file_of_empty_parts_is_refused_before_it_fills_the_memory() {
    let nodes = [1 << 3 | 2, 0].repeat(2_000_000);
    let mut bytes = vec![7 << 3 | 2];
    prost::encode_length_delimiter(nodes.len(), &mut bytes).expect("a vector grows");
    bytes.extend(nodes);
    let error = inspect(&Bytes::from(bytes)).unwrap_err().to_string();
    assert!(error.contains("parts"), "{error}");
}

#[test]
fn large_weights_come_out_and_the_rest_stays() {
    let model = mlp();
    let split = split_weights(&model, 64).unwrap();
    let names: Vec<_> = split.weights.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["w0", "w1"]);
    assert_eq!(split.weights[0].dims, [8, 4]);
    assert_eq!(split.weights[0].bytes.len(), 128);
    assert_eq!(split.weights[0].data_type, DataType::Fp32);
    let skeleton = decode(&split.skeleton).unwrap().graph.unwrap();
    let kept: Vec<_> = skeleton
        .initializer
        .iter()
        .map(TensorProto::is_external)
        .collect();
    assert_eq!(kept, [true, false, true, false]);
    assert!(split.skeleton.len() < model.len());
}

#[test]
fn weights_beside_the_model_are_told_apart_from_those_of_branches() {
    let beside = |name: &str, offset: &str, length: &str| {
        let mut tensor = external(name);
        for (key, value) in [("offset", offset), ("length", length)] {
            tensor.external_data.push(StringStringEntryProto {
                key: Some(key.to_owned()),
                value: Some(value.to_owned()),
            });
        }
        tensor
    };
    let model = |own: TensorProto, branch: TensorProto| {
        let mut built = ModelBuilder::new("branches", 1);
        let mut inner = ModelBuilder::new("branch", 1).model().graph.unwrap();
        inner.initializer.push(branch);
        let attribute = AttributeProto {
            name: Some("then_branch".to_owned()),
            g: Some(Box::new(inner)),
            ..AttributeProto::default()
        };
        built.node_with("If", &["given"], &["output"], vec![attribute]);
        let mut model = built.constant("small", &[1], &[1f32]).model();
        model.graph.as_mut().unwrap().initializer.push(own);
        encode(&model)
    };
    let file = Bytes::from_static(b"0123456789abcdef");
    let read = |offset: u64, length: u64| {
        let (from, until) = (offset as usize, (offset + length) as usize);
        (until <= file.len()).then(|| file.slice(from..until))
    };
    let split = |model: &Bytes| {
        let mut weights = Vec::new();
        let skeleton = stored_weights(model, read, |weight| weights.push(weight))?;
        Ok::<_, Error>((decode(&skeleton)?.graph.unwrap(), weights))
    };
    let both = model(beside("own", "0", "8"), beside("inner", "8", "8"));
    let (graph, weights) = split(&both).unwrap();
    let own = Weight {
        name: "own".to_owned(),
        data_type: DataType::Fp32,
        dims: vec![2],
        bytes: Bytes::from_static(b"01234567"),
    };
    assert_eq!(weights, [own]);
    let kept = graph.initializer.iter().map(TensorProto::is_external);
    assert_eq!(kept.collect::<Vec<_>>(), [false, true]);
    let location = graph.initializer[1].external_data[0].value.as_deref();
    assert_eq!(location, Some(SHARED_LOCATION));
    let inner = &graph.node[0].attribute[0].g.as_ref().unwrap().initializer[0];
    assert_eq!(inner.to_bytes().unwrap().1, b"89abcdef"[..]);
    // Two elements of four bits: there is no such element type in queries.
    let narrow = TensorProto {
        data_type: Some(22),
        ..beside("narrow", "3", "1")
    };
    let (graph, weights) = split(&model(narrow, beside("inner", "8", "8"))).unwrap();
    assert_eq!(weights, []);
    let narrow = graph.initializer[1].raw_data.as_deref();
    assert_eq!(narrow, Some(&b"3"[..]));
    for (own, inner, why) in [
        (
            beside("own", "0", "4"),
            beside("inner", "8", "8"),
            "4 bytes",
        ),
        (
            beside("own", "0", "8"),
            beside("inner", "9", "8"),
            "`inner` keeps",
        ),
        (
            beside("own", "0", "8"),
            beside("inner", "x", "8"),
            "no number",
        ),
    ] {
        let refused = split(&model(own, inner)).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn typed_fields_become_bytes() {
    let halves = TensorProto {
        dims: vec![2],
        data_type: Some(10),
        int32_data: vec![0x3c00, 0xc000],
        ..TensorProto::default()
    };
    assert_eq!(halves.to_floats(), Some(vec![1.0, -2.0]));
    let signed = TensorProto {
        dims: vec![2],
        data_type: Some(3),
        int32_data: vec![-1, 7],
        ..TensorProto::default()
    };
    assert_eq!(signed.to_bytes().unwrap().1, [0xff, 7][..]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_files_never_panic(
        cut in 0usize..4096,
        flips in prop::collection::vec((0usize..4096, any::<u8>()), 0..6),
    ) {
        let whole = builder::conv_net(2, 3, 1);
        let mut bytes = whole.to_vec();
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] ^= value;
        }
        bytes.truncate(bytes.len() - cut % bytes.len().min(2048));
        let bytes = Bytes::from(bytes);
        let _ = inspect(&bytes);
        let _ = split_weights(&bytes, 0);
        let everything = Dynamic { convolutions: true, ..Dynamic::default() };
        let _ = quantize_dynamic_with(&bytes, everything);
        let mut ranges = Ranges::new();
        if let Ok(calibration) = calibration_graph(&bytes) {
            for tensor in &calibration.tensors {
                ranges.observe(tensor, &[-1.0, 1.0]);
            }
        }
        let _ = quantize_static(&bytes, &ranges);
    }
}

#[test]
fn numbers_that_are_looked_up_have_the_sizes_of_their_tables() {
    let any = [BATCH, Dim::Dynamic("T")];
    let mut model = ModelBuilder::new("tables", 1);
    model
        .input("words", DataType::Int64, &any)
        .input("places", DataType::Int32, &any)
        .input("shifted", DataType::Int64, &any)
        .input("values", DataType::Fp32, &[BATCH, Dim::Fixed(4)])
        .output(
            "a",
            DataType::Fp32,
            &[BATCH, Dim::Dynamic("T"), Dim::Fixed(3)],
        )
        .output(
            "b",
            DataType::Fp32,
            &[BATCH, Dim::Dynamic("T"), Dim::Fixed(3)],
        )
        .output(
            "c",
            DataType::Fp32,
            &[BATCH, Dim::Dynamic("T"), Dim::Fixed(3)],
        )
        .output("d", DataType::Fp32, &[BATCH, Dim::Dynamic("T")])
        .random("table", &[7, 3], 1.0)
        .random("small", &[5, 3], 1.0)
        .constant("one", &[1], &[1i64])
        .node("Gather", &["table", "words"], &["a"])
        .node("Identity", &["small"], &["same"])
        .node_with(
            "Cast",
            &["places"],
            &["wide"],
            vec![AttributeProto::int("to", 7)],
        )
        .node("Gather", &["same", "wide"], &["b"])
        .node("Add", &["shifted", "one"], &["moved"])
        .node("Gather", &["table", "moved"], &["c"])
        .node_with(
            "GatherElements",
            &["values", "words"],
            &["d"],
            vec![AttributeProto::int("axis", 1)],
        );
    let info = inspect(&model.build()).unwrap();
    let expected = [("words".to_owned(), -7..=6), ("places".to_owned(), -5..=4)];
    assert_eq!(info.indices, expected);
}
