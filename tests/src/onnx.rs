//! Artificial ONNX files, written field by field as the ONNX format defines them (`onnx.proto`, messages ModelProto,
//! GraphProto, NodeProto, TensorProto).

use crate::digits::PIXELS;

/// Scores of the digits example.
const SCORES: usize = 10;

/// A model `scores = pixels {operator} weights`.
#[derive(Debug, Clone)]
pub struct Model {
    /// Operator of the one node.
    pub operator: &'static str,
    /// Its domain; empty for ONNX itself.
    pub domain: &'static str,
    /// Name of the input.
    pub input: &'static str,
    /// The file beside the model with the weights; `None` if they are inside the model.
    pub weights_file: Option<&'static str>,
    /// Metadata: keys and values.
    pub metadata: Vec<(&'static str, String)>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            operator: "MatMul",
            domain: "",
            input: "pixels",
            weights_file: None,
            metadata: Vec::new(),
        }
    }
}

impl Model {
    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut model = Message::default();
        model.number(1, 8);
        model.message(7, &self.graph());
        model.message(8, Message::default().number(2, 17));
        if !self.domain.is_empty() {
            model.message(8, Message::default().text(1, self.domain).number(2, 1));
        }
        for (key, value) in &self.metadata {
            model.message(14, Message::default().text(1, key).text(2, value));
        }
        model.0
    }

    fn graph(&self) -> Message {
        let mut node = Message::default();
        node.text(1, self.input)
            .text(1, "weights")
            .text(2, "scores")
            .text(4, self.operator);
        if !self.domain.is_empty() {
            node.text(7, self.domain);
        }
        let mut graph = Message::default();
        graph
            .message(1, &node)
            .text(2, "graph")
            .message(5, &self.weights());
        graph
            .message(11, &value(self.input, PIXELS))
            .message(12, &value("scores", SCORES));
        graph
    }

    fn weights(&self) -> Message {
        let mut tensor = Message::default();
        tensor
            .number(1, PIXELS as u64)
            .number(1, SCORES as u64)
            .number(2, 1)
            .text(8, "weights");
        match self.weights_file {
            None => {
                let values = (0..PIXELS * SCORES).map(|index| (index % 7) as f32 * 0.01);
                tensor.bytes(9, &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
            }
            Some(file) => {
                let mut entry = Message::default();
                entry.text(1, "location").text(2, file);
                tensor.message(13, &entry).number(14, 1);
            }
        }
        tensor
    }
}

/// A text encoder: inputs `tokens` and `mask` `[N, T]`; outputs `scores` `[N, 4]`, the mean over the tokens that the
/// mask selects, and `hidden` `[N, T, 64]`, a vector for each token and its place.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    /// Largest number of tokens.
    pub places: usize,
    /// Whether the mean leaves out the tokens that the mask excludes.
    pub heeds_mask: bool,
}

impl Encoder {
    /// Number of words that it knows.
    pub const WORDS: usize = 64;
    const WIDTH: usize = 64;
    const INNER: usize = 8192;

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut model = Message::default();
        model.number(1, 8).message(7, &self.graph());
        model.message(8, Message::default().number(2, 17));
        model.0
    }

    fn graph(&self) -> Message {
        let mut graph = Message::default();
        let mut step = |operator: &str, inputs: &[&str], output: &str| {
            graph.message(1, &node(operator, inputs, output));
        };
        step("Shape", &["tokens"], "shape");
        step("Gather", &["shape", "one"], "length");
        step("Slice", &["places", "zero", "length", "one"], "place");
        step("Gather", &["words", "tokens"], "word");
        step("Add", &["word", "place"], "x");
        step("MatMul", &["x", "rise"], "risen");
        step("Relu", &["risen"], "kept");
        step("MatMul", &["kept", "fall"], "hidden");
        step("CastLike", &["mask", "words"], "flags");
        step("Unsqueeze", &["flags", "two"], "weight");
        match self.heeds_mask {
            true => step("Identity", &["weight"], "share"),
            false => step("Add", &["weight", "unit"], "share"),
        }
        step("Mul", &["hidden", "share"], "shares");
        step("ReduceSum", &["shares", "one"], "sums");
        step("ReduceSum", &["share", "one"], "counts");
        step("Div", &["sums", "counts"], "means");
        step("Squeeze", &["means", "one"], "mean");
        step("MatMul", &["mean", "classes"], "scores");
        graph.text(2, "encoder");
        let (width, inner) = (Self::WIDTH, Self::INNER);
        for (name, dims) in [
            ("words", vec![Self::WORDS, width]),
            ("places", vec![1, self.places, width]),
            ("rise", vec![width, inner]),
            ("fall", vec![inner, width]),
            ("classes", vec![width, 4]),
            ("unit", vec![1]),
        ] {
            graph.message(5, &floats(name, &dims));
        }
        for (name, value) in [("zero", 0i64), ("one", 1), ("two", 2)] {
            let mut tensor = Message::default();
            tensor.number(1, 1).number(2, 7).text(8, name);
            tensor.bytes(9, &value.to_le_bytes());
            graph.message(5, &tensor);
        }
        for name in ["tokens", "mask"] {
            graph.message(11, &tensor_value(name, 7, &[Err("N"), Err("T")]));
        }
        let hidden = [Err("N"), Err("T"), Ok(width as u64)];
        graph
            .message(12, &tensor_value("scores", 1, &[Err("N"), Ok(4)]))
            .message(12, &tensor_value("hidden", 1, &hidden));
        graph
    }
}

/// A model that returns the amounts of red, green and blue: `image` `[N, 3, H, W]`, `scores` `[N, 3]`.
pub fn colours() -> Vec<u8> {
    let mut graph = Message::default();
    graph.message(1, &node("GlobalAveragePool", &["image"], "means"));
    graph.message(1, &node("Flatten", &["means"], "scores"));
    graph.text(2, "colours");
    let image = [Err("N"), Ok(3), Err("H"), Err("W")];
    graph
        .message(11, &tensor_value("image", 1, &image))
        .message(12, &tensor_value("scores", 1, &[Err("N"), Ok(3)]));
    let mut model = Message::default();
    model.number(1, 8).message(7, &graph);
    model.message(8, Message::default().number(2, 17));
    model.0
}

/// How a model with a batch dimension treats rows that are asked together.
#[derive(Debug, Clone, Copy)]
pub enum Rows {
    /// The answer to a row depends on the other rows.
    Mixed,
    /// Only one row is accepted.
    One,
    /// Each row is answered independently, with a different answer each time.
    Random,
}

impl Rows {
    /// A model of `x` `[N, 4]` and `y` `[N, 4]`.
    pub fn bytes(self) -> Vec<u8> {
        let mut graph = Message::default();
        match self {
            Self::Mixed => {
                let mut shares = node("Softmax", &["x"], "y");
                shares.message(5, &number_attribute("axis", 0));
                graph.message(1, &shares);
            }
            Self::One => {
                graph.message(1, &node("Reshape", &["x", "shape"], "row"));
                graph.message(1, &node("Softmax", &["row"], "y"));
                let shape = [1i64, 4].map(i64::to_le_bytes).concat();
                let mut size = Message::default();
                size.number(1, 2)
                    .number(2, 7)
                    .text(8, "shape")
                    .bytes(9, &shape);
                graph.message(5, &size);
            }
            Self::Random => {
                graph.message(1, &node("RandomNormalLike", &["x"], "noise"));
                graph.message(1, &node("Add", &["x", "noise"], "y"));
            }
        }
        graph.text(2, "rows");
        graph
            .message(11, &value("x", 4))
            .message(12, &value("y", 4));
        let mut model = Message::default();
        model.number(1, 8).message(7, &graph);
        model.message(8, Message::default().number(2, 17));
        model.0
    }
}

/// A model of vectors of any length, which it normalises to a sum of 1: `x` and `y`, both `[n]`.
pub fn shares() -> Vec<u8> {
    let mut graph = Message::default();
    graph.message(1, &node("Softmax", &["x"], "y"));
    graph.text(2, "shares");
    graph
        .message(11, &tensor_value("x", 1, &[Err("n")]))
        .message(12, &tensor_value("y", 1, &[Err("n")]));
    let mut model = Message::default();
    model.number(1, 8).message(7, &graph);
    model.message(8, Message::default().number(2, 17));
    model.0
}

/// A model that multiplies rows: `x` and `y` are `[N, 4]`, and its input `scale` is one number.
pub fn scaled() -> Vec<u8> {
    let mut graph = Message::default();
    graph.message(1, &node("Mul", &["x", "scale"], "y"));
    graph.text(2, "scaled");
    let row = [Err("N"), Ok(4)];
    graph
        .message(11, &tensor_value("x", 1, &row))
        .message(11, &tensor_value("scale", 1, &[]))
        .message(12, &tensor_value("y", 1, &row));
    let mut model = Message::default();
    model.number(1, 8).message(7, &graph);
    model.message(8, Message::default().number(2, 17));
    model.0
}

/// A model of `x` and `y`, both `[N, 2]`, that overloads an engine. The metric `top1` suits it.
#[derive(Debug, Clone, Copy)]
pub enum HostileModel {
    /// Nothing is wrong with it.
    No,
    /// Its run never ends.
    Endless,
    /// Each run iterates a loop this many times, whatever `x` is, on one thread; answers as [`Self::No`].
    Long(u64),
    /// A chain of this many nodes.
    Chain(usize),
    /// One of its values needs this many bytes.
    Huge(u64),
    /// It iterates a loop as often as the largest value of `x` says, and answers as [`Self::No`].
    Turns,
    /// It accepts `x` of any length `[N, T]` and makes a value of `T * T` floats for each row. `y` is its largest
    /// element and that element's negative.
    Square,
    /// It makes a value with as many floats as the largest value of `x` says, and answers `x + 1`.
    Room,
    /// It divides whole numbers by the difference between the largest value of `x` and [`Self::CRASHES`], and answers
    /// as [`Self::No`]. If the difference is zero, the process ends.
    Divides,
}

impl HostileModel {
    /// Two records.
    pub const RECORDS: &'static str =
        "{\"inputs\":{\"x\":[1,0]},\"label\":0}\n{\"inputs\":{\"x\":[0,1]},\"label\":1}\n";

    /// The largest value of `x` with which [`Self::Divides`] crashes its engine.
    pub const CRASHES: f64 = 7.0;

    /// The file.
    pub fn bytes(self) -> Vec<u8> {
        let mut model = Message::default();
        model.number(1, 8).message(7, &self.graph());
        model.message(8, Message::default().number(2, 17));
        model.0
    }

    fn graph(self) -> Message {
        let mut graph = Message::default();
        match self {
            Self::Divides => {
                largest_whole(&mut graph);
                for step in [
                    node("Sub", &["whole", "crashes"], "above"),
                    node("Div", &["crashes", "above"], "share"),
                    node("Sub", &["share", "share"], "none"),
                    node("CastLike", &["none", "x"], "nothing"),
                    node("Add", &["x", "nothing"], "same"),
                    node("Relu", &["same"], "y"),
                ] {
                    graph.message(1, &step);
                }
                let crashes = (Self::CRASHES as i64).to_le_bytes();
                graph.message(5, &scalar("crashes", 7, &crashes));
            }
            Self::No => {
                graph.message(1, &node("Relu", &["x"], "y"));
            }
            Self::Endless => return Self::Long(1 << 62).graph(),
            Self::Long(turns) => {
                let mut looping = node("Loop", &["turns", "always", "x"], "y");
                looping.message(5, &attribute("body", 5, 6, &endless_body()));
                graph.message(1, &looping);
                graph.message(5, &scalar("turns", 7, &turns.to_le_bytes()));
                graph.message(5, &scalar("always", 9, &[1]));
            }
            Self::Turns => {
                largest_whole(&mut graph);
                let mut looping = node("Loop", &["whole", "always", "x"], "looped");
                looping.message(5, &attribute("body", 5, 6, &endless_body()));
                graph.message(1, &looping);
                graph.message(1, &node("Relu", &["looped"], "y"));
                graph.message(5, &scalar("always", 9, &[1]));
            }
            Self::Room => {
                largest_whole(&mut graph);
                graph.message(1, &node("Unsqueeze", &["whole", "first"], "size"));
                let mut fill = node("ConstantOfShape", &["size"], "filled");
                fill.message(5, &attribute("value", 4, 5, &floats("", &[1])));
                graph.message(1, &fill);
                graph.message(1, &node("ReduceMax", &["filled"], "most"));
                graph.message(1, &node("Add", &["x", "most"], "y"));
                let mut first = Message::default();
                first.number(1, 1).number(2, 7).text(8, "first");
                graph.message(5, first.bytes(9, &0i64.to_le_bytes()));
            }
            Self::Square => {
                let mut largest = node("ReduceMax", &["products"], "largest");
                largest.message(5, &number_attribute("keepdims", 0));
                let mut axes = Message::default();
                axes.text(1, "axes").number(8, 1).number(8, 2).number(20, 7);
                largest.message(5, &axes);
                let mut both = node("Concat", &["most", "least"], "y");
                both.message(5, &number_attribute("axis", 1));
                let steps = [
                    node("Unsqueeze", &["x", "two"], "column"),
                    node("Unsqueeze", &["x", "one"], "row"),
                    node("MatMul", &["column", "row"], "products"),
                    largest,
                    node("Unsqueeze", &["largest", "one"], "most"),
                    node("Neg", &["most"], "least"),
                    both,
                ];
                for step in &steps {
                    graph.message(1, step);
                }
                for (name, axis) in [("one", 1i64), ("two", 2)] {
                    let mut tensor = Message::default();
                    tensor.number(1, 1).number(2, 7).text(8, name);
                    graph.message(5, tensor.bytes(9, &axis.to_le_bytes()));
                }
            }
            Self::Chain(count) => {
                for at in 0..count {
                    let from = if at == 0 {
                        "x".to_owned()
                    } else {
                        format!("r{at}")
                    };
                    let to = if at + 1 == count {
                        "y".to_owned()
                    } else {
                        format!("r{}", at + 1)
                    };
                    graph.message(1, &node("Relu", &[&from], &to));
                }
            }
            Self::Huge(bytes) => {
                let mut fill = node("ConstantOfShape", &["size"], "filled");
                fill.message(5, &attribute("value", 4, 5, &floats("", &[1])));
                graph.message(1, &fill);
                graph.message(1, &node("ReduceMax", &["filled"], "most"));
                graph.message(1, &node("Add", &["x", "most"], "y"));
                let mut size = Message::default();
                size.number(1, 1).number(2, 7).text(8, "size");
                size.bytes(9, &((bytes / 4) as i64).to_le_bytes());
                graph.message(5, &size);
            }
        }
        graph.text(2, "graph");
        let x = match self {
            Self::Square => tensor_value("x", 1, &[Err("N"), Err("T")]),
            _ => value("x", 2),
        };
        graph.message(11, &x).message(12, &value("y", 2));
        graph
    }
}

/// `whole`: the largest value of `x` as a whole number.
fn largest_whole(graph: &mut Message) {
    let mut largest = node("ReduceMax", &["x"], "largest");
    largest.message(5, &number_attribute("keepdims", 0));
    graph.message(1, &largest);
    let mut cast = node("Cast", &["largest"], "whole");
    cast.message(5, &number_attribute("to", 7));
    graph.message(1, &cast);
}

pub(crate) fn number_attribute(name: &str, value: u64) -> Message {
    let mut attribute = Message::default();
    attribute.text(1, name).number(3, value).number(20, 2);
    attribute
}

pub(crate) fn endless_body() -> Message {
    let mut body = Message::default();
    body.message(1, &node("Identity", &["on"], "still_on"));
    body.message(1, &node("Relu", &["v"], "next_v"));
    body.text(2, "body");
    body.message(11, &tensor_value("turn", 7, &[]));
    body.message(11, &tensor_value("on", 9, &[]));
    body.message(11, &value("v", 2));
    body.message(12, &tensor_value("still_on", 9, &[]));
    body.message(12, &value("next_v", 2));
    body
}

/// An attribute of this type, whose value is in this field.
pub(crate) fn attribute(name: &str, kind: u64, field: u64, value: &Message) -> Message {
    let mut attribute = Message::default();
    attribute.text(1, name).message(field, value);
    attribute.number(20, kind);
    attribute
}

pub(crate) fn scalar(name: &str, element: u64, bytes: &[u8]) -> Message {
    let mut tensor = Message::default();
    tensor.number(2, element).text(8, name).bytes(9, bytes);
    tensor
}

pub(crate) fn node(operator: &str, inputs: &[&str], output: &str) -> Message {
    let mut node = Message::default();
    for input in inputs {
        node.text(1, input);
    }
    node.text(2, output).text(4, operator);
    node
}

/// Random-looking weights between -0.2 and 0.2; a single one is 1.
pub(crate) fn floats(name: &str, dims: &[usize]) -> Message {
    let mut tensor = Message::default();
    for size in dims {
        tensor.number(1, *size as u64);
    }
    let count: usize = dims.iter().product();
    let value = |index: usize| match count {
        1 => 1.0,
        _ => ((index as u32).wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0 * 0.4 - 0.2,
    };
    let bytes: Vec<u8> = (0..count).flat_map(|at| value(at).to_le_bytes()).collect();
    tensor.number(2, 1).text(8, name).bytes(9, &bytes);
    tensor
}

/// A float tensor with any number of rows.
pub(crate) fn value(name: &str, columns: usize) -> Message {
    tensor_value(name, 1, &[Err("N"), Ok(columns as u64)])
}

/// A tensor of an element type, with sizes or symbols for its dimensions.
pub(crate) fn tensor_value(name: &str, element: u64, dims: &[Result<u64, &str>]) -> Message {
    let mut shape = Message::default();
    for size in dims {
        let mut dim = Message::default();
        match size {
            Ok(size) => dim.number(1, *size),
            Err(symbol) => dim.text(2, symbol),
        };
        shape.message(1, &dim);
    }
    let mut tensor = Message::default();
    tensor.number(1, element).message(2, &shape);
    let mut kind = Message::default();
    kind.message(1, &tensor);
    let mut value = Message::default();
    value.text(1, name).message(2, &kind);
    value
}

/// A protocol buffer that is being written.
#[derive(Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub(crate) fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(&mut self, field: u64, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(&mut self, field: u64, value: &Self) -> &mut Self {
        self.bytes(field, &value.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
