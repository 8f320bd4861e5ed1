use bytes::Bytes;

use super::*;

fn written(tensor: Tensor) -> String {
    let mut out = Vec::new();
    super::tensor(&mut out, &NamedTensor::new("y", tensor));
    String::from_utf8(out).expect("JSON is UTF-8")
}

#[test]
fn the_shape_of_an_output() {
    let tensor = Tensor::from_elements(vec![1, 3], &[0.1f32, 2.0, -3.5e-9]).expect("fits");
    assert_eq!(
        written(tensor),
        r#"{"name":"y","shape":[1,3],"datatype":"FP32","data":[0.1,2.0,-3.5e-9]}"#
    );
}

#[test]
fn a_missing_value_is_null_and_infinities_say_which() {
    let wanted = r#""data":[null,"Infinity","-Infinity",0.5]}"#;
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5];
    let wide = Tensor::from_elements(vec![4], &values).expect("fits");
    let narrow = values.map(|value| value as f32);
    let narrow = Tensor::from_elements(vec![4], &narrow).expect("fits");
    for tensor in [wide, narrow] {
        assert!(written(tensor).ends_with(wanted));
    }
}

#[test]
fn integers_booleans_and_strings() {
    let tensor = Tensor::from_elements(vec![2], &[i64::MIN, i64::MAX]).expect("fits");
    assert!(written(tensor).ends_with("[-9223372036854775808,9223372036854775807]}"));
    let tensor = Tensor::from_elements(vec![2], &[-1i8, 127]).expect("fits");
    assert!(written(tensor).ends_with("[-1,127]}"));
    let bytes = Bytes::from_static(&[1, 0]);
    let tensor = Tensor::from_bytes(DataType::Bool, vec![2], bytes).expect("fits");
    assert!(written(tensor).ends_with("[true,false]}"));
    let strings = vec![Bytes::from_static(b"a\"b"), Bytes::from_static(b"\n")];
    let tensor = Tensor::from_strings(vec![2], strings).expect("fits");
    assert!(written(tensor).ends_with(r#"["a\"b","\n"]}"#));
}
