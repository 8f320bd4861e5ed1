//! Shapes of nested lists.

use sextant_records::parse_line;
use sextant_types::DataType;

use crate::support::one_input;

#[test]
fn lists_are_flat_or_nested_as_the_model_takes_them() {
    let signature = one_input(DataType::Fp32, &[Some(3), Some(2)]);
    for (list, is_taken) in [
        ("[[1, 2], [3, 4], [5, 6]]", true),
        ("[1, 2, 3, 4, 5, 6]", true),
        ("[[[1, 2], [3, 4], [5, 6]]]", true),
        ("[[[1], [2]], [[3], [4]], [[5], [6]]]", true),
        // As many elements, in another order.
        ("[[1, 3, 5], [2, 4, 6]]", false),
        ("[[1, 2, 3, 4], [5, 6]]", false),
        ("[1, 2, 3, 4, 5]", false),
    ] {
        let line = format!("{{\"x\": {list}}}");
        match parse_line(line.as_bytes(), &signature) {
            Ok(inputs) => {
                assert!(is_taken, "{list}");
                assert_eq!(inputs[0].tensor.shape(), [1, 3, 2], "{list}");
                let values = inputs[0].tensor.to_vec::<f32>();
                assert_eq!(values, Some(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), "{list}");
            }
            Err(why) => assert!(!is_taken, "{list}: {why}"),
        }
    }
    let flat = one_input(DataType::Fp32, &[Some(6)]);
    assert!(parse_line(b"{\"x\": [[1, 2], [3, 4], [5, 6]]}", &flat).is_ok());
    let why = parse_line(b"{\"x\": [[1, 3, 5], [2, 4, 6]]}", &signature);
    let why = why.expect_err("it is refused");
    assert!(why.contains("has shape [2, 3]"), "{why}");
}
