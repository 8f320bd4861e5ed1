//! Boxes that no better one covers.

use serde_json::json;
use sextant_transforms::Error;

use crate::{floats, output, refused, transform};

#[test]
fn covered_boxes_are_left_out() {
    let boxes = floats(
        "boxes",
        &[4, 4],
        &[
            0.0, 0.0, 10.0, 10.0, 1.0, 0.0, 11.0, 10.0, 20.0, 0.0, 30.0, 10.0, 0.0, 0.0, 9.0, 9.0,
        ],
    );
    let scores = floats("scores", &[4, 2], &[0.8, 0.0, 0.9, 0.0, 0.3, 0.0, 0.0, 0.7]);
    let outputs = transform(json!({"nms": {}}))
        .apply(&[boxes.clone(), scores])
        .expect("nms");
    assert_eq!(
        output(&outputs, "scores").to_vec::<f32>().expect("floats"),
        [0.9, 0.7, 0.3]
    );
    assert_eq!(
        output(&outputs, "classes").to_vec::<i64>().expect("ids"),
        [0, 1, 0]
    );
    let with_nan = [f32::NAN, 0.6, f32::NAN, f32::NAN, 0.7, -f32::NAN, 0.0, 0.0];
    let outputs = transform(json!({"nms": {}}))
        .apply(&[boxes.clone(), floats("scores", &[4, 2], &with_nan)])
        .expect("nms");
    assert_eq!(
        output(&outputs, "scores").to_vec::<f32>().expect("floats"),
        [0.7, 0.6]
    );
    assert_eq!(
        output(&outputs, "classes").to_vec::<i64>().expect("ids"),
        [0, 1]
    );
    let none = transform(json!({"nms": {"min_score": 2.0}}));
    let outputs = none
        .apply(&[boxes, floats("scores", &[4, 1], &[0.1; 4])])
        .expect("none");
    assert_eq!(output(&outputs, "boxes").shape(), [0, 4]);
    let far: Vec<f32> = [0.0f32, 0.0, 10.0, 10.0, 1.0, 0.0, 11.0, 10.0]
        .map(|it| it * 1e30)
        .to_vec();
    let scores = floats("scores", &[2, 1], &[0.8, 0.9]);
    let outputs = transform(json!({"nms": {}}))
        .apply(&[floats("boxes", &[2, 4], &far), scores])
        .expect("nms");
    let kept = output(&outputs, "scores").to_vec::<f32>().expect("floats");
    assert_eq!(kept, [0.9], "areas may be large");
    let error = refused(json!({"nms": {"iou": 1.5}}));
    assert!(
        matches!(error, Error::Option { option: "iou", .. }),
        "{error:?}"
    );
}
