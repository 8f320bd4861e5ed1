//! Weights in 8 or 4 bits, everything else unchanged: `MatMulNBits`, an operator of ONNX Runtime.
//!
//! Each output's weights are cut into blocks of [`BLOCK`]. A block has one scale: its element of the greatest
//! magnitude, with its sign, becomes the lowest number, so both ends of the range are used. The bytes that a lone query
//! reads from memory, which limit the speed of large matrices, become a quarter or an eighth. Small matrices gain
//! nothing and stay unchanged.
//!
//! Tables that rows are gathered from, such as embeddings of words, are most of the bytes of many text models. They are
//! stored in 8 bits whatever the rest has, each row with a scale of its own; the gathered rows become floats again.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Error,
    proto::{AttributeProto, NodeProto, data_type},
};

use super::{
    QuantizedModel, Source,
    dynamic::label,
    editor::Editor,
    linear::{Kind, Linear},
};

/// Number of weights with one scale.
const BLOCK: usize = 32;

/// Least number of elements of a matrix that is quantised.
const LEAST: usize = 1 << 14;

/// Least number of elements of all of them together that justifies a variant.
const LEAST_IN_ALL: usize = 1 << 20;

/// The oldest operator set in which `MatMul` and `Gemm` have their present form.
const OLDEST: i64 = 9;

/// Steps of an element of a table on either side of zero.
const STEPS: f32 = 127.0;

/// The set of ONNX Runtime's own operators.
const DOMAIN: &str = "com.microsoft";

/// The required accuracy of inputs: 8 bits suffice, and the fast kernels use them.
const ACCURACY_LEVEL: i64 = 4;

/// Converts the constant weights of every large `MatMul` and `Gemm` to `bits` bits, 4 or 8, and the large tables of
/// `Gather` to 8 bits.
///
/// # Errors
/// [`Error::SmallWeights`] if there are too few of them, and the errors of
/// [`quantize_dynamic`](super::quantize_dynamic).
pub fn quantize_weights_only<'a>(
    model: impl Into<Source<'a>>,
    bits: u8,
) -> Result<QuantizedModel, Error> {
    let mut editor = Editor::open(model.into(), "weight-only quantisation", OLDEST)?;
    let (mut nodes, mut quantized, mut elements) = (Vec::new(), Vec::new(), 0);
    let mut tables = Tables::find(&editor);
    for node in std::mem::take(&mut editor.graph.node) {
        if let Some(table) = tables.of(&node, &mut editor) {
            elements += table.elements;
            quantized.push(label(&node));
            table.gather(&node, &mut editor, &mut nodes);
            continue;
        }
        let matrix = Linear::read(&node, &editor).and_then(|it| Matrix::read(&it, &editor));
        match matrix.filter(|it| it.values.len() >= LEAST) {
            Some(matrix) => {
                elements += matrix.values.len();
                quantized.push(label(&node));
                matrix.write(&node, bits, &mut editor, &mut nodes);
            }
            None => nodes.push(node),
        }
    }
    if elements < LEAST_IN_ALL {
        return Err(Error::SmallWeights {
            elements,
            needed: LEAST_IN_ALL,
        });
    }
    editor.graph.node = nodes;
    editor.import(DOMAIN, 1);
    Ok(QuantizedModel {
        model: editor.finish(),
        nodes: quantized,
    })
}

/// The weights of a node, grouped by output.
struct Matrix {
    input: String,
    output: String,
    weight: String,
    /// `[outputs, inputs]`.
    values: Vec<f32>,
    outputs: usize,
    inputs: usize,
    bias: Option<Vec<f32>>,
}

// === impl Matrix ===

impl Matrix {
    fn read(linear: &Linear, editor: &Editor<'_>) -> Option<Self> {
        let weights = linear.weights(editor)?;
        let [rows, columns] = weights.dims[..] else {
            return None;
        };
        let (outputs, inputs, values) = match linear.kind {
            Kind::Conv => return None,
            Kind::Gemm { transposed: true } => (rows, columns, weights.values),
            Kind::MatMul | Kind::Gemm { transposed: false } => {
                let at = |of: usize| weights.values[(of % rows) * columns + of / rows];
                (columns, rows, (0..rows * columns).map(at).collect())
            }
        };
        let bias = match &linear.bias {
            None => None,
            Some(_) => {
                let bias = linear.bias(editor)?;
                (bias.values.len() == outputs).then_some(())?;
                Some(bias.values)
            }
        };
        Some(Self {
            input: linear.input.clone(),
            output: linear.output.clone(),
            weight: linear.weight.clone(),
            values,
            outputs,
            inputs,
            bias,
        })
    }

    fn write(
        self,
        node: &NodeProto,
        bits: u8,
        editor: &mut Editor<'_>,
        nodes: &mut Vec<NodeProto>,
    ) {
        let blocks = self.inputs.div_ceil(BLOCK);
        let packed_block = BLOCK * usize::from(bits) / 8;
        let mut packed = Vec::with_capacity(self.outputs * blocks * packed_block);
        let mut scales = Vec::with_capacity(self.outputs * blocks);
        for row in self.values.chunks_exact(self.inputs) {
            for block in row.chunks(BLOCK) {
                let scale = pack(block, bits, &mut packed);
                scales.push(scale);
            }
        }
        let shape = [self.outputs, blocks, packed_block];
        let weight = editor.add(&format!("{}_int{bits}", self.weight), &shape, &packed);
        let scale = editor.add(&format!("{}_scales", self.weight), &[scales.len()], &scales);
        let product = match self.bias {
            Some(_) => editor.fresh(&format!("{}_product", self.output)),
            None => self.output.clone(),
        };
        let name = editor.fresh(&format!("{}_MatMulNBits", label(node)));
        let inputs = [self.input.as_str(), &weight, &scale];
        let mut product_node = NodeProto::new("MatMulNBits", &name, &inputs, &[&product]);
        product_node.domain = Some(DOMAIN.to_owned());
        for (name, value) in [
            ("K", self.inputs as i64),
            ("N", self.outputs as i64),
            ("bits", bits.into()),
            ("block_size", BLOCK as i64),
            ("accuracy_level", ACCURACY_LEVEL),
        ] {
            product_node = product_node.with(AttributeProto::int(name, value));
        }
        nodes.push(product_node);
        if let Some(bias) = self.bias {
            let bias = editor.add(&format!("{}_bias", self.output), &[bias.len()], &bias);
            let name = editor.fresh(&format!("{}_Add", label(node)));
            nodes.push(NodeProto::new(
                "Add",
                &name,
                &[&product, &bias],
                &[&self.output],
            ));
        }
    }
}

/// Tables that only `Gather` reads, row by row.
struct Tables {
    names: BTreeSet<String>,
    made: BTreeMap<String, Table>,
}

/// A table in 8 bits.
#[derive(Clone)]
struct Table {
    rows: String,
    scales: String,
    /// Number of elements that are new to the graph.
    elements: usize,
}

// === impl Tables ===

impl Tables {
    fn find(editor: &Editor<'_>) -> Self {
        let (mut gathered, mut other) = (BTreeSet::new(), BTreeSet::new());
        for node in &editor.graph.node {
            for (at, input) in node.input.iter().enumerate() {
                let by = match at == 0 && gathers_rows(node) {
                    true => &mut gathered,
                    false => &mut other,
                };
                by.insert(input.clone());
            }
        }
        let is_table = |name: &String| {
            let large = |dims: &[i64]| matches!(dims, [rows, width] if rows.saturating_mul(*width) >= LEAST as i64);
            !other.contains(name)
                && !editor.is_output(name)
                && !editor.is_captured(name)
                && editor.dims(name).is_some_and(large)
        };
        Self {
            names: gathered.into_iter().filter(is_table).collect(),
            made: BTreeMap::new(),
        }
    }

    /// The table that a node reads.
    fn of(&mut self, node: &NodeProto, editor: &mut Editor<'_>) -> Option<Table> {
        let name = node.input.first()?;
        if !gathers_rows(node) || !self.names.contains(name) {
            return None;
        }
        if let Some(made) = self.made.get(name) {
            return Some(Table {
                elements: 0,
                ..made.clone()
            });
        }
        let floats = editor.floats(name)?;
        let [rows, width] = floats.dims[..] else {
            return None;
        };
        let (mut numbers, mut scales) =
            (Vec::with_capacity(rows * width), Vec::with_capacity(rows));
        for row in floats.values.chunks_exact(width.max(1)) {
            let most = row.iter().fold(0f32, |most, value| most.max(value.abs()));
            let inverse = match most > 0.0 {
                true => STEPS / most,
                false => 0.0,
            };
            // The cast saturates.
            numbers.extend(row.iter().map(|value| (value * inverse).round() as i8));
            scales.push(most / STEPS);
        }
        let table = Table {
            rows: editor.add(&format!("{name}_int8"), &[rows, width], &numbers),
            scales: editor.add(&format!("{name}_scales"), &[rows, 1], &scales),
            elements: numbers.len(),
        };
        self.made.insert(name.clone(), table.clone());
        Some(table)
    }
}

// === impl Table ===

impl Table {
    /// Gathers rows and their scales in place of `node`.
    fn gather(&self, node: &NodeProto, editor: &mut Editor<'_>, nodes: &mut Vec<NodeProto>) {
        let (Some(index), Some(output)) = (node.input.get(1), node.output.first()) else {
            nodes.push(node.clone());
            return;
        };
        let mut made = |kind: &str, inputs: &[&str], output: Option<&str>| {
            let name = editor.fresh(&format!("{}_{kind}", label(node)));
            let output = match output {
                Some(output) => output.to_owned(),
                None => editor.fresh(&format!("{name}_output")),
            };
            let node = NodeProto::new(kind, &name, inputs, &[&output]);
            nodes.push(match kind {
                "Cast" => node.with(AttributeProto::int("to", data_type::FLOAT.into())),
                _ => node,
            });
            output
        };
        let rows = made("Gather", &[&self.rows, index], None);
        let floats = made("Cast", &[&rows], None);
        let scales = made("Gather", &[&self.scales, index], None);
        made("Mul", &[&floats, &scales], Some(output));
    }
}

/// Whether a node gathers along the first axis.
fn gathers_rows(node: &NodeProto) -> bool {
    let axis = node.attribute("axis").and_then(|axis| axis.i);
    node.is("Gather") && axis.unwrap_or(0) == 0
}

/// Appends a block, padded with zeros; returns its scale.
fn pack(block: &[f32], bits: u8, packed: &mut Vec<u8>) -> f32 {
    let middle = f32::from(1_u8 << (bits - 1));
    let further = |most: f32, value: &f32| match value.abs() > most.abs() {
        true => *value,
        false => most,
    };
    let scale = block.iter().fold(0.0, further) / -middle;
    let inverse = Some(scale.recip())
        .filter(|it| it.is_finite())
        .unwrap_or(0.0);
    let number = |at: usize| {
        let value = block.get(at).copied().unwrap_or(0.0);
        // The cast saturates.
        (value * inverse + middle)
            .round()
            .clamp(0.0, 2.0 * middle - 1.0) as u8
    };
    match bits {
        4 => packed.extend(
            (0..BLOCK)
                .step_by(2)
                .map(|at| number(at) | (number(at + 1) << 4)),
        ),
        _ => packed.extend((0..BLOCK).map(number)),
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_as_near_as_its_steps_are() {
        let block: Vec<f32> = (0..29)
            .map(|at| (at as f32 * 0.7).sin() * 0.3 - 0.05)
            .collect();
        for bits in [4_u8, 8] {
            let mut packed = Vec::new();
            let scale = pack(&block, bits, &mut packed);
            assert_eq!(packed.len(), BLOCK * usize::from(bits) / 8);
            let middle = i32::from(1_u8 << (bits - 1));
            let number = |at: usize| match bits {
                4 => i32::from((packed[at / 2] >> (4 * (at % 2))) & 0xf),
                _ => i32::from(packed[at]),
            };
            for (at, value) in block.iter().enumerate() {
                let back = (number(at) - middle) as f32 * scale;
                // The side of zero without the greatest element has one number less.
                assert!(
                    (back - value).abs() <= scale.abs() * 1.001,
                    "{back} for {value}"
                );
            }
            assert!((block.len()..BLOCK).all(|at| number(at) == middle));
        }
        let mut packed = Vec::new();
        assert_eq!(pack(&[0.0; BLOCK], 4, &mut packed), -0.0);
        assert_eq!(packed, [0x88; BLOCK / 2]);
    }
}
