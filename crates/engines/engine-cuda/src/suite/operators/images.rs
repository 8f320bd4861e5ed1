//! Convolutions and pooling.

use super::{AttributeProto, Case, Model, Random};

pub(super) fn cases(random: &mut Random) -> Vec<Case> {
    let mut cases: Vec<Case> = (0..8).map(|_| conv(random)).collect();
    cases.extend([
        depthwise(random),
        pointwise(random),
        uneven(),
        line(),
        line_and_image(),
        normalised(random),
        normalised_twice(),
    ]);
    for operator in ["MaxPool", "AveragePool"] {
        cases.extend((0..4).map(|_| pool(operator, random)));
    }
    for operator in ["GlobalAveragePool", "GlobalMaxPool"] {
        let dims = [
            random.between(1, 9),
            random.between(1, 9),
            random.between(1, 9),
        ];
        cases.push(
            Model::new(operator, "", &dims)
                .call(&["x"], Vec::new())
                .finish(4),
        );
    }
    cases
}

fn ints(name: &str, values: [u64; 2]) -> AttributeProto {
    AttributeProto::ints(name, &values.map(|it| it as i64))
}

fn pads(values: [u64; 4]) -> AttributeProto {
    AttributeProto::ints("pads", &values.map(|it| it as i64))
}

fn conv(random: &mut Random) -> Case {
    let groups = random.one(&[1, 1, 2]);
    let (depth, out) = (random.between(1, 5), groups * random.between(1, 6));
    let kernel = [random.between(1, 3), random.between(1, 4)];
    let strides = [random.between(1, 2), random.between(1, 3)];
    let dilations = [random.between(1, 2), random.between(1, 2)];
    let padding = [random.between(0, 2), random.between(0, 2)];
    let size = [random.between(7, 12), random.between(7, 12)];
    let detail = format!(
        "{size:?}, channels {}..{out}, groups {groups}, kernel {kernel:?}, strides {strides:?}, \
         dilations {dilations:?}, padding {padding:?}",
        depth * groups
    );
    let mut model = Model::new("Conv", detail, &[depth * groups, size[0], size[1]]);
    model
        .weights("w", &[out, depth, kernel[0], kernel[1]])
        .weights("b", &[out]);
    let [top, left] = padding;
    let attributes = vec![
        AttributeProto::int("group", groups as i64),
        ints("strides", strides),
        ints("dilations", dilations),
        pads([top, left, top, left]),
    ];
    let inputs = if random.between(0, 1) == 1 {
        &["x", "w", "b"][..]
    } else {
        &["x", "w"]
    };
    model.builder.node_with("Conv", inputs, &["c"], attributes);
    let last = random.one(&["Relu", "Identity"]);
    model.node(last, &["c"], "y").finish(4)
}

fn depthwise(random: &mut Random) -> Case {
    let channels = random.between(2, 9);
    let mut model = Model::new("Conv", format!("{channels} depthwise"), &[channels, 9, 8]);
    model
        .weights("w", &[channels, 1, 3, 3])
        .weights("b", &[channels]);
    let attributes = vec![
        AttributeProto::int("group", channels as i64),
        pads([1, 1, 1, 1]),
    ];
    model.call(&["x", "w", "b"], attributes).finish(4)
}

fn pointwise(random: &mut Random) -> Case {
    let (channels, out) = (random.between(1, 9), random.between(1, 9));
    let mut model = Model::new("Conv", format!("1x1, {channels}..{out}"), &[channels, 5, 6]);
    model.weights("w", &[out, channels, 1, 1]);
    model.call(&["x", "w"], Vec::new()).finish(4)
}

fn uneven() -> Case {
    let mut model = Model::new("Conv", "uneven padding", &[3, 8, 7]);
    model.weights("w", &[4, 3, 3, 2]).weights("b", &[4]);
    model
        .call(&["x", "w", "b"], vec![pads([0, 1, 2, 0])])
        .finish(4)
}

fn line() -> Case {
    let mut model = Model::new("Conv", "one dimension, same size", &[3, 11]);
    model.weights("w", &[4, 3, 3]).weights("b", &[4]);
    let same = vec![AttributeProto::string("auto_pad", "SAME_UPPER")];
    model.call(&["x", "w", "b"], same).finish(3)
}

/// The sum of a one-dimensional and a two-dimensional convolution. Where channels come last, their positions differ.
fn line_and_image() -> Case {
    let mut model = Model::new("Conv", "one dimension and two", &[8, 8, 5]);
    model.weights("w", &[8, 8, 1, 1]).weights("v", &[8, 8, 3]);
    model.builder.constant("first", &[], &[0i64]);
    model
        .node("Conv", &["x", "w"], "image")
        .node("Gather", &["x", "first"], "lines");
    let padding = vec![AttributeProto::ints("pads", &[1, 1])];
    model
        .builder
        .node_with("Conv", &["lines", "v"], &["line"], padding);
    model.node("Add", &["image", "line"], "y").finish(4)
}

/// Batch normalisation behind a convolution and alone.
fn normalised(random: &mut Random) -> Case {
    let channels = random.between(2, 6);
    let mut model = Model::new(
        "BatchNormalization",
        format!("{channels} channels"),
        &[3, 6, 6],
    );
    model.weights("w", &[channels, 3, 3, 3]);
    model.node("Conv", &["x", "w"], "c");
    for part in ["scale", "bias", "mean"] {
        model.weights(part, &[channels]);
    }
    let variance: Vec<f32> = (0..channels).map(|at| 0.5 + at as f32 / 4.0).collect();
    model
        .builder
        .constant("variance", &[channels as usize], &variance);
    let vectors = ["scale", "bias", "mean", "variance"];
    let call = |input| [vec![input], vectors.to_vec()].concat();
    model.node("BatchNormalization", &call("c"), "n");
    model.node("Relu", &["n"], "r").node("Sigmoid", &["r"], "s");
    model.node("BatchNormalization", &call("s"), "y").finish(4)
}

/// Two batch normalisations behind one convolution.
fn normalised_twice() -> Case {
    let mut model = Model::new("BatchNormalization", "behind another one", &[3, 6, 6]);
    model.weights("w", &[4, 3, 3, 3]);
    model.node("Conv", &["x", "w"], "c");
    for [input, output] in [["c", "n"], ["n", "y"]] {
        let vectors =
            ["scale", "bias", "mean", "variance"].map(|part| format!("{part} of {output}"));
        for vector in &vectors[..3] {
            model.weights(vector, &[4]);
        }
        let variance = [0.5f32, 0.75, 1.0, 1.25];
        model.builder.constant(&vectors[3], &[4], &variance);
        let inputs = [vec![input], vectors.iter().map(String::as_str).collect()].concat();
        model.node("BatchNormalization", &inputs, output);
    }
    model.finish(4)
}

fn pool(operator: &'static str, random: &mut Random) -> Case {
    let kernel = [random.between(2, 3), random.between(1, 3)];
    let strides = [random.between(1, 3), random.between(1, 2)];
    let padding = [random.between(0, 1), random.between(0, kernel[1] - 1)];
    let size = [random.between(5, 10), random.between(5, 10)];
    let (counted, ceiling) = (random.between(0, 1), random.between(0, 1));
    let detail = format!(
        "{size:?}, kernel {kernel:?}, strides {strides:?}, padding {padding:?}, counted {counted}, \
         ceiling {ceiling}"
    );
    let [top, left] = padding;
    let mut attributes = vec![
        ints("kernel_shape", kernel),
        ints("strides", strides),
        pads([top, left, top, left]),
        AttributeProto::int("ceil_mode", ceiling as i64),
    ];
    if operator == "AveragePool" {
        attributes.push(AttributeProto::int("count_include_pad", counted as i64));
    }
    let mut model = Model::new(operator, detail, &[random.between(1, 4), size[0], size[1]]);
    model.opset(19).call(&["x"], attributes).finish(4)
}
