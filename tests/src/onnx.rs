//! ONNX files that nobody would train: one node, written field by field as the ONNX format defines
//! them (`onnx.proto`, messages ModelProto, GraphProto, NodeProto, TensorProto).

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
    /// File beside the model in which the weights lie; inside the model where there is none.
    pub weights_file: Option<&'static str>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            operator: "MatMul",
            domain: "",
            input: "pixels",
            weights_file: None,
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

/// A float tensor of any number of rows.
fn value(name: &str, columns: usize) -> Message {
    let mut rows = Message::default();
    rows.text(2, "N");
    let mut width = Message::default();
    width.number(1, columns as u64);
    let mut shape = Message::default();
    shape.message(1, &rows).message(1, &width);
    let mut tensor = Message::default();
    tensor.number(1, 1).message(2, &shape);
    let mut kind = Message::default();
    kind.message(1, &tensor);
    let mut value = Message::default();
    value.text(1, name).message(2, &kind);
    value
}

/// A protocol buffer under construction.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn text(&mut self, field: u64, value: &str) -> &mut Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(&mut self, field: u64, value: &Self) -> &mut Self {
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
