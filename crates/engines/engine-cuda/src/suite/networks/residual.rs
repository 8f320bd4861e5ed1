//! Residual networks for images (He et al., 2016, table 1).

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_types::DataType;

/// A network of four stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residual {
    /// Blocks of each stage.
    pub depths: [usize; 4],
    /// Whether a block has three convolutions with a narrow middle one, instead of two.
    pub bottleneck: bool,
    /// Channels of the first stage; each later stage has twice as many as the one before.
    pub width: u64,
    /// Height and width of the images.
    pub size: u64,
    /// Outputs.
    pub classes: u64,
}

/// Input `image` `[batch, 3, size, size]`, output `logits` `[batch, classes]`. Batch normalisation follows every
/// convolution.
pub fn resnet(network: &Residual, seed: u64) -> Bytes {
    let mut model = ModelBuilder::new("resnet", seed);
    let size = Dim::Fixed(network.size);
    model.input("image", DataType::Fp32, &[BATCH, Dim::Fixed(3), size, size]);
    model.output(
        "logits",
        DataType::Fp32,
        &[BATCH, Dim::Fixed(network.classes)],
    );
    let mut stem = Conv::new("stem", "image", [3, network.width]);
    (stem.kernel, stem.stride) = (7, 2);
    stem.add(&mut model);
    model.node("Relu", &["stem"], &["stem_relu"]);
    let pool = vec![
        AttributeProto::ints("kernel_shape", &[3, 3]),
        AttributeProto::ints("strides", &[2, 2]),
        AttributeProto::ints("pads", &[1, 1, 1, 1]),
    ];
    model.node_with("MaxPool", &["stem_relu"], &["pooled"], pool);
    let (mut previous, mut channels) = ("pooled".to_owned(), network.width);
    for (stage, depth) in network.depths.iter().enumerate() {
        for block in 0..*depth {
            let name = format!("s{stage}b{block}");
            let width = network.width << stage;
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let out = if network.bottleneck { 4 * width } else { width };
            let body = match network.bottleneck {
                true => narrow(&mut model, &name, &previous, [channels, width, out], stride),
                false => plain(&mut model, &name, &previous, [channels, out], stride),
            };
            let shortcut = match (channels == out, stride) {
                (true, 1) => previous,
                _ => {
                    let name = format!("{name}_shortcut");
                    let mut conv = Conv::new(&name, &previous, [channels, out]);
                    (conv.kernel, conv.stride) = (1, stride);
                    conv.add(&mut model);
                    name
                }
            };
            let (sum, relu) = (format!("{name}_sum"), format!("{name}_relu"));
            model.node("Add", &[&body, &shortcut], &[&sum]);
            model.node("Relu", &[&sum], &[&relu]);
            (previous, channels) = (relu, out);
        }
    }
    model.node("GlobalAveragePool", &[&previous], &["mean"]);
    model.node("Flatten", &["mean"], &["features"]);
    let bound = (3.0 / channels as f32).sqrt();
    model.random(
        "fc_w",
        &[network.classes as usize, channels as usize],
        bound,
    );
    model.random("fc_b", &[network.classes as usize], 0.1);
    let turned = vec![AttributeProto::int("transB", 1)];
    model.node_with("Gemm", &["features", "fc_w", "fc_b"], &["logits"], turned);
    model.build()
}

fn plain(
    model: &mut ModelBuilder,
    name: &str,
    input: &str,
    [from, to]: [u64; 2],
    stride: u64,
) -> String {
    let (first, second) = (format!("{name}_1"), format!("{name}_2"));
    let relu = format!("{first}_relu");
    Conv {
        stride,
        ..Conv::new(&first, input, [from, to])
    }
    .add(model);
    model.node("Relu", &[&first], &[&relu]);
    Conv {
        last: true,
        ..Conv::new(&second, &relu, [to, to])
    }
    .add(model);
    second
}

fn narrow(
    model: &mut ModelBuilder,
    name: &str,
    input: &str,
    [from, middle, to]: [u64; 3],
    stride: u64,
) -> String {
    let names = [1, 2, 3].map(|index| format!("{name}_{index}"));
    let relus = [0, 1].map(|index: usize| format!("{}_relu", names[index]));
    Conv {
        kernel: 1,
        ..Conv::new(&names[0], input, [from, middle])
    }
    .add(model);
    model.node("Relu", &[&names[0]], &[&relus[0]]);
    Conv {
        stride,
        ..Conv::new(&names[1], &relus[0], [middle, middle])
    }
    .add(model);
    model.node("Relu", &[&names[1]], &[&relus[1]]);
    Conv {
        kernel: 1,
        last: true,
        ..Conv::new(&names[2], &relus[1], [middle, to])
    }
    .add(model);
    let [.., last] = names;
    last
}

/// A convolution followed by batch normalisation.
struct Conv<'a> {
    name: &'a str,
    input: &'a str,
    channels: [u64; 2],
    kernel: u64,
    stride: u64,
    /// The last convolution of a block is scaled down, so that sums do not grow from block to block.
    last: bool,
}

// === impl Conv ===

impl<'a> Conv<'a> {
    fn new(name: &'a str, input: &'a str, channels: [u64; 2]) -> Self {
        Self {
            name,
            input,
            channels,
            kernel: 3,
            stride: 1,
            last: false,
        }
    }

    fn add(&self, model: &mut ModelBuilder) {
        let Self {
            name,
            input,
            channels: [from, to],
            kernel,
            stride,
            last,
        } = self;
        let part = |what: &str| format!("{name}_{what}");
        let count = *to as usize;
        let bound = (6.0 / (from * kernel * kernel) as f32).sqrt();
        let dims = [*to, *from, *kernel, *kernel].map(|dim| dim as usize);
        model.random(&part("w"), &dims, bound);
        let (kernel, stride) = (*kernel as i64, *stride as i64);
        let pad = kernel / 2;
        let attributes = vec![
            AttributeProto::ints("kernel_shape", &[kernel; 2]),
            AttributeProto::ints("strides", &[stride; 2]),
            AttributeProto::ints("pads", &[pad; 4]),
        ];
        let conv = part("conv");
        model.node_with("Conv", &[input, &part("w")], &[&conv], attributes);
        let scale = if *last { 0.3 } else { 1.0 };
        let near = |from: f32| {
            (0..count)
                .map(|at| from + (at % 5) as f32 / 50.0)
                .collect::<Vec<_>>()
        };
        model.constant(&part("scale"), &[count], &near(scale));
        model.random(&part("shift"), &[count], 0.1);
        model.random(&part("mean"), &[count], 0.1);
        model.constant(&part("variance"), &[count], &near(1.0));
        let vectors = ["scale", "shift", "mean", "variance"].map(part);
        let [scale, shift, mean, variance] = &vectors;
        let inputs = [conv.as_str(), scale, shift, mean, variance];
        model.node("BatchNormalization", &inputs, &[name]);
    }
}
