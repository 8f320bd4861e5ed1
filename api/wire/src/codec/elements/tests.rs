use proptest::prelude::*;

use super::*;
use sextant_types::Element;

fn floats(shape: &[usize], text: &str) -> Result<Vec<f32>, Error> {
    let tensor = parse(DataType::Fp32, shape.to_vec(), text)?;
    Ok(tensor.to_vec().expect("the type was asked for"))
}

#[test]
fn flat_and_nested_are_the_same() {
    let flat = floats(&[2, 3], "[1,2, 3,4.5 ,5e0,-6]");
    assert_eq!(flat, Ok(vec![1.0, 2.0, 3.0, 4.5, 5.0, -6.0]));
    assert_eq!(flat, floats(&[2, 3], " [ [1,2,3],\n[4.5,5,-6] ] "));
}

#[test]
fn a_scalar_stands_alone_or_in_a_list() {
    assert_eq!(floats(&[], "7"), Ok(vec![7.0]));
    assert_eq!(floats(&[], "[7]"), Ok(vec![7.0]));
    assert_eq!(floats(&[0, 4], "[]"), Ok(vec![]));
    assert_eq!(floats(&[2, 0], "[[],[]]"), Ok(vec![]));
}

#[test]
fn nesting_must_follow_the_shape() {
    let cases: [(&[usize], &str); 7] = [
        (&[2, 1], "[[1,2]]"),
        (&[2, 3], "[[1,2],[3,4],[5,6]]"),
        (&[2, 2], "[[1,2],3,4]"),
        (&[2, 2], "[[1],[2,3,4]]"),
        (&[2, 2, 1], "[[1,2,3,4]]"),
        (&[2, 1], "[[],[1],[2]]"),
        (&[4], "[1,[2,3,4]]"),
    ];
    for (shape, text) in cases {
        let result = floats(shape, text);
        assert!(
            matches!(result, Err(Error::Nesting { .. })),
            "{text}: {result:?}"
        );
    }
}

#[test]
fn dimensions_of_one_may_have_brackets_or_none() {
    for (shape, text) in [
        (&[1, 2, 2][..], "[[1,2],[3,4]]"),
        (&[2, 1, 2], "[[1,2],[3,4]]"),
        (&[2, 2, 1], "[[1,2],[3,4]]"),
        (&[2, 2], "[[[[1,2],[3,4]]]]"),
        (&[4], " [ [1,2,3,4]]"),
    ] {
        assert_eq!(floats(shape, text), Ok(vec![1.0, 2.0, 3.0, 4.0]), "{text}");
    }
    let deep = format!("{}7{}", "[".repeat(50), "]".repeat(50));
    assert_eq!(floats(&[1, 1], &deep), Ok(vec![7.0]));
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let text = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    assert!(matches!(floats(&[1], &text), Err(Error::Nesting { .. })));
}

#[test]
fn a_wrong_count_tells_both_numbers() {
    let error = floats(&[2, 3], "[1,2,3]").expect_err("three are missing");
    assert_eq!(
        error.to_string(),
        "shape [2, 3] needs 6 elements of FP32, 3 are given"
    );
    let huge = [usize::MAX, usize::MAX];
    assert!(matches!(
        floats(&huge, "[1]"),
        Err(Error::Tensor(InvalidTensor::TooLarge(_)))
    ));
}

/// What is answered can be sent back.
#[test]
fn missing_values_and_infinities_of_floats_are_read() {
    let text = r#"[[null, "NaN"], ["Infinity" ,"-Infinity"],[1.5,-2]]"#;
    for data_type in [
        DataType::Fp16,
        DataType::Bf16,
        DataType::Fp32,
        DataType::Fp64,
    ] {
        let tensor = parse(data_type, vec![3, 2], text).expect("floats");
        let wide = sextant_types::convert::input(&tensor, DataType::Fp64).expect("floats");
        let values: Vec<f64> = wide.to_vec().expect("floats");
        assert!(values[0].is_nan() && values[1].is_nan(), "{data_type}");
        let others = [f64::INFINITY, f64::NEG_INFINITY, 1.5, -2.0];
        assert_eq!(values[2..], others, "{data_type}");
    }
}

#[test]
fn elements_must_be_of_the_type() {
    let refused = [
        (DataType::Fp32, "1e39"),
        (DataType::Fp32, "1e999"),
        (DataType::Fp16, "70000"),
        (DataType::Fp64, "nan"),
        (DataType::Fp32, "\"nan\""),
        (DataType::Fp32, "\"1\""),
        (DataType::Int64, "null"),
        (DataType::Int32, "\"Infinity\""),
        (DataType::Bool, "null"),
        (DataType::Fp32, "true"),
        (DataType::Fp32, "{\"a\":1}"),
        (DataType::Int8, "128"),
        (DataType::Uint8, "-1"),
        (DataType::Int64, "1.0"),
        (DataType::Int64, "9223372036854775808"),
        (DataType::Bool, "2"),
        (DataType::Bytes, "1"),
        (DataType::Bytes, "null"),
    ];
    for (data_type, token) in refused {
        let result = parse(data_type, vec![1], &format!("[{token}]"));
        let Err(Error::Element {
            index,
            token: found,
            ..
        }) = result
        else {
            panic!("{data_type} {token}: {result:?}");
        };
        assert_eq!((index, found.as_str()), (0, token));
    }
}

#[test]
fn strings_keep_escapes_and_brackets() {
    let text = r#"["a,]b","\"q\"","\\","é\u00e9"]"#;
    let tensor = parse(DataType::Bytes, vec![4], text).expect("four strings");
    let wanted = Tensor::from_strings(vec![4], ["a,]b", "\"q\"", "\\", "éé"]);
    assert_eq!(tensor, wanted.expect("four strings"));
}

#[test]
fn decimals_near_a_middle_are_rounded_once() {
    // 1 + 2^-24 is the middle between two values; the digits lie a little above or below it.
    for text in [
        "1.00000005960464",
        "1.00000005960465",
        "16777217",
        "16777219",
        "-0.0",
        "0",
    ] {
        let wanted = text.parse::<f32>().expect("a number");
        let read = floats(&[], text).expect("a number");
        assert_eq!(read[0].to_bits(), wanted.to_bits(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn decimals_are_rounded_as_the_standard_library_does(
        text in "-?(0|[1-9][0-9]{0,17})([.][0-9]{1,18})?(e-?[0-9]{1,2})?"
    ) {
        if let Ok(read) = floats(&[], &text) {
            let wanted: f32 = text.parse().expect("a number");
            prop_assert_eq!(read[0].to_bits(), wanted.to_bits());
        }
        let read = parse(DataType::Fp64, vec![], &text).expect("in range").to_vec::<f64>();
        let wanted: f64 = text.parse().expect("a number");
        prop_assert_eq!(read.expect("FP64")[0].to_bits(), wanted.to_bits());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn integers_are_read_as_the_standard_library_does(
        text in "-?(0|[1-9][0-9]{0,19})([.]0)?(e1)?"
    ) {
        fn same<T>(data_type: DataType, text: &str, json: &str) -> Result<(), TestCaseError>
        where
            T: Element + std::str::FromStr + PartialEq + std::fmt::Debug,
        {
            let read = parse(data_type, vec![1], json);
            let read = read.ok().map(|it| it.to_vec::<T>().expect("its type")[0]);
            prop_assert_eq!(read, text.parse::<T>().ok());
            Ok(())
        }
        let json = format!("[{text}]");
        same::<i64>(DataType::Int64, &text, &json)?;
        same::<i32>(DataType::Int32, &text, &json)?;
        same::<i8>(DataType::Int8, &text, &json)?;
        if !text.starts_with('-') {
            same::<u64>(DataType::Uint64, &text, &json)?;
            same::<u16>(DataType::Uint16, &text, &json)?;
        }
    }
}

proptest! {
    #[test]
    fn written_numbers_read_back(values: Vec<f32>) {
        let values: Vec<f32> = values.into_iter().filter(|value| value.is_finite()).collect();
        let tensor = Tensor::from_elements(vec![values.len()], &values).expect("fits");
        let mut text = Vec::new();
        super::super::write::tensor(&mut text, &sextant_types::NamedTensor::new("x", tensor));
        let value: serde_json::Value = serde_json::from_slice(&text).expect("valid JSON");
        let read = floats(&[values.len()], &value["data"].to_string()).expect("the same shape");
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&read), bits(&values));
    }

    #[test]
    fn any_json_is_read_or_refused(shape in prop::collection::vec(0usize..4, 0..4), text in r#"(\[|\]|,|1|-2.5|"a"|true|null| |\{\}){0,20}"#) {
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            for data_type in DataType::ALL {
                let _ = parse(data_type, shape.clone(), &text);
            }
        }
    }
}
