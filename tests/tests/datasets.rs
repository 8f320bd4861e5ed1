//! Validation sets that the command line converts: Parquet files and folders of images.

use std::{fs, path::Path, process::Output};

use image::{Rgb, RgbImage};
use serde_json::Value;
use sextant_tests::{Settings, TestCluster, digits, onnx};

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}", told(output));
    serde_json::from_slice(&output.stdout).expect("JSON on standard output")
}

fn register(
    cluster: &TestCluster,
    (application, model): (&str, &Path),
    validation: &Path,
    more: &[&str],
) -> Output {
    let (name, model) = (model.file_stem().expect("a name"), model.to_string_lossy());
    let arguments = [
        "register",
        "--application",
        application,
        "--name",
        &name.to_string_lossy(),
        "--model",
        &model,
        "--validation",
        &validation.to_string_lossy(),
        "--json",
    ];
    cluster.client(&[&arguments, more].concat())
}

/// The accuracy of each variant, by the name of its configuration.
fn accuracies(registered: &Value) -> Vec<(String, f64)> {
    let variants = registered["variants"].as_array().expect("a list");
    let mut all: Vec<(String, f64)> = variants
        .iter()
        .filter_map(|variant| {
            let accuracy = variant["accuracy"]["value"].as_f64()?;
            Some((variant["name"].as_str()?.to_owned(), accuracy))
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn parquet_scores_as_the_arrays_do() {
    let cluster = TestCluster::start(Settings::default());
    let folder = tempfile::tempdir().expect("a folder");
    let frame = folder.path().join("digits.parquet");
    digits::write_parquet(&frame, "validation");
    let model = digits::file("logistic.onnx");
    let of_frame = register(&cluster, ("frames", &model), &frame, &[]);
    let of_frame = accuracies(&document(&of_frame));
    let arrays = digits::file("validation.npz");
    let other = folder.path().join("other.onnx");
    fs::copy(&model, &other).expect("a copy");
    let of_arrays = register(&cluster, ("arrays", &other), &arrays, &[]);
    let of_arrays = accuracies(&document(&of_arrays));
    let best = |of: &[(String, f64)]| of.iter().map(|it| it.1).fold(0.0, f64::max);
    assert!(best(&of_frame) > 0.9, "{of_frame:?}");
    assert_eq!(best(&of_frame), best(&of_arrays));

    let unused = register(&cluster, ("frames", &model), &frame, &["--image-size", "8"]);
    assert!(
        told(&unused).contains("folders of images"),
        "{}",
        told(&unused)
    );
    fs::write(&frame, "PAR1 and no more").expect("a file");
    let broken = register(&cluster, ("frames", &model), &frame, &[]);
    assert_eq!(broken.status.code(), Some(2), "{}", told(&broken));
    assert!(told(&broken).contains("Parquet"), "{}", told(&broken));
}

#[test]
fn folders_of_images_are_the_classes() {
    let cluster = TestCluster::start(Settings::default());
    let folder = tempfile::tempdir().expect("a folder");
    let images = folder.path().join("images");
    for (class, colour) in [
        ("apple", [250, 9, 9]),
        ("leaf", [9, 250, 9]),
        ("sky", [9, 9, 250]),
    ] {
        fs::create_dir_all(images.join(class)).expect("a folder");
        for size in 4..24 {
            let image = RgbImage::from_pixel(size, 27 - size, Rgb(colour));
            let suffix = if size % 2 == 0 { "png" } else { "jpg" };
            let saved = image.save(images.join(class).join(format!("{size}.{suffix}")));
            saved.expect("an image");
        }
    }
    let model = folder.path().join("colours.onnx");
    fs::write(&model, onnx::colours()).expect("a model");
    let colours = ("colours", &*model);
    let missing = register(&cluster, colours, &images, &[]);
    assert_eq!(missing.status.code(), Some(2), "{}", told(&missing));
    assert!(
        told(&missing).contains("`--image-size`"),
        "{}",
        told(&missing)
    );

    let how = [
        "--image-size",
        "4",
        "--image-mean",
        "0.5",
        "--image-std",
        "0.25",
    ];
    let registered = register(&cluster, colours, &images, &how);
    let all = accuracies(&document(&registered));
    assert!(
        !all.is_empty() && all.iter().all(|(_, accuracy)| *accuracy == 1.0),
        "{all:?}"
    );

    // One red pixel as a float.
    let arguments = [
        "query",
        "--application",
        "colours",
        "--json",
        "--classification",
        "1",
    ];
    let pixel = ["--input", "image=[[[[0.1]],[[0.9]],[[0.2]]]]"];
    let answer = document(&cluster.client(&[&arguments[..], &pixel].concat()));
    assert_eq!(answer["classification"][0][0]["name"], "leaf", "{answer}");
}
