//! Draws a graph for people: as text with one step a line, and as a picture.

use std::fmt::Write as _;

use sextant_types::Route;

use crate::{
    Graph,
    graph::{Node, Origin, Work},
};

/// Width and height of a step's box, and the gaps between boxes, pixels.
const BOX: (usize, usize) = (168, 46);
const GAP: (usize, usize) = (56, 18);

/// The style of the stand-alone picture. It follows the colours of the viewer.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:currentColor}.what{font-size:11px;opacity:.7}\
                     rect{fill:none;stroke:currentColor;rx:6}.end rect{stroke-dasharray:4 3}\
                     path{fill:none;stroke:currentColor;opacity:.6}.maybe{stroke-dasharray:4 3}";

/// A shape in the picture.
struct Shape {
    title: String,
    what: String,
    column: usize,
    row: usize,
    is_end: bool,
}

// === impl Graph ===

impl Graph {
    /// The graph as text, one step a line: its name, its work and the origins of its inputs.
    pub fn text(&self) -> String {
        let wide = self
            .nodes
            .iter()
            .map(|node| node.name.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for spec in &self.signature.inputs {
            line(
                &mut text,
                format_args!("<- {}: {} {}", spec.name, spec.data_type, spec.shape_text()),
            );
        }
        for node in &self.nodes {
            let specs = node.signature.inputs.iter().zip(&node.inputs).enumerate();
            let inputs = specs.map(|(at, (spec, origins))| {
                let each = if node.cut.contains(&at) {
                    "each row of "
                } else {
                    ""
                };
                format!("{} <- {each}{}", spec.name, self.named(origins))
            });
            let when = node
                .condition
                .as_ref()
                .map(|it| format!("  when {}", it.text()));
            line(
                &mut text,
                format_args!(
                    "{:wide$}  {}  {}{}",
                    node.name,
                    what(node),
                    inputs.collect::<Vec<_>>().join(", "),
                    when.unwrap_or_default()
                ),
            );
        }
        for (spec, origins) in self.signature.outputs.iter().zip(&self.outputs) {
            line(
                &mut text,
                format_args!(
                    "-> {}: {} {}  <- {}",
                    spec.name,
                    spec.data_type,
                    spec.shape_text(),
                    self.named(origins)
                ),
            );
        }
        text
    }

    /// The graph as a picture from left to right, in SVG. The picture stands alone.
    pub fn svg(&self) -> String {
        self.drawn(&format!("<style>{STYLE}</style>"))
    }

    /// The picture for a page with styles of its own. Steps are boxes, inputs and outputs have the class `end`, and
    /// lines that a query may not take have the class `maybe`.
    pub fn figure(&self) -> String {
        self.drawn("")
    }

    fn drawn(&self, style: &str) -> String {
        let (shapes, lines) = self.shapes();
        let columns = shapes
            .iter()
            .map(|shape| shape.column + 1)
            .max()
            .unwrap_or(1);
        let rows = shapes.iter().map(|shape| shape.row + 1).max().unwrap_or(1);
        let width = columns * (BOX.0 + GAP.0) + 8 - GAP.0 + 8;
        let height = rows * (BOX.1 + GAP.1) + 8 - GAP.1 + 8;
        let place = |shape: &Shape| {
            (
                8 + shape.column * (BOX.0 + GAP.0),
                8 + shape.row * (BOX.1 + GAP.1),
            )
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\"><title>{}</title>{style}",
            escaped(&self.definition.name)
        );
        for (from, to, is_certain) in lines {
            let ((x, y), (end_x, end_y)) = (place(&shapes[from]), place(&shapes[to]));
            let (x, y, end_y) = (x + BOX.0, y + BOX.1 / 2, end_y + BOX.1 / 2);
            let middle = (x + end_x) / 2;
            let class = if is_certain { "" } else { " class=\"maybe\"" };
            let _ = write!(
                svg,
                "<path{class} d=\"M{x} {y}C{middle} {y} {middle} {end_y} {end_x} {end_y}\"/>"
            );
        }
        for shape in &shapes {
            let (x, y) = place(shape);
            let class = if shape.is_end { " class=\"end\"" } else { "" };
            let _ = write!(
                svg,
                "<g{class}><rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\
                 <text class=\"what\" x=\"{}\" y=\"{}\">{}</text></g>",
                BOX.0,
                BOX.1,
                x + 10,
                y + 19,
                escaped(&cut(&shape.title)),
                x + 10,
                y + 36,
                escaped(&cut(&shape.what))
            );
        }
        svg.push_str("</svg>");
        svg
    }

    /// The shapes with their positions, and the lines between them; the flag says whether every query takes the line.
    fn shapes(&self) -> (Vec<Shape>, Vec<(usize, usize, bool)>) {
        let (inputs, nodes) = (self.signature.inputs.len(), self.nodes.len());
        let mut columns = Vec::with_capacity(nodes);
        for node in &self.nodes {
            let before = node.after.iter().map(|at| columns[*at]).max();
            columns.push(before.unwrap_or(0) + 1);
        }
        let last = columns.iter().max().copied().unwrap_or(0) + 1;
        let ends = |specs: &[sextant_types::TensorSpec], column| {
            let specs = specs.iter().map(move |spec| {
                (
                    spec.name.clone(),
                    format!("{} {}", spec.data_type, spec.shape_text()),
                    column,
                    true,
                )
            });
            specs.collect::<Vec<_>>()
        };
        let steps = self
            .nodes
            .iter()
            .zip(&columns)
            .map(|(node, column)| (node.name.to_string(), what(node), *column, false));
        let all = ends(&self.signature.inputs, 0)
            .into_iter()
            .chain(steps)
            .chain(ends(&self.signature.outputs, last));
        let mut taken = vec![0; last + 1];
        let shapes = all.map(|(title, what, column, is_end)| {
            taken[column] += 1;
            Shape {
                title,
                what,
                column,
                row: taken[column] - 1,
                is_end,
            }
        });
        let shapes: Vec<Shape> = shapes.collect();
        let at = |origin: &Origin| match origin {
            Origin::Input(input) => *input,
            Origin::Output(node, _) => inputs + node,
        };
        let mut lines = Vec::new();
        for (to, node) in self.nodes.iter().enumerate() {
            let from = node.inputs.iter().flatten().map(at);
            lines.extend(from.map(|from| (from, inputs + to, node.condition.is_none())));
        }
        for (to, origins) in self.outputs.iter().enumerate() {
            let is_certain = origins.len() == 1;
            lines.extend(
                origins
                    .iter()
                    .map(|origin| (at(origin), inputs + nodes + to, is_certain)),
            );
        }
        lines.sort_unstable();
        lines.dedup();
        (shapes, lines)
    }

    /// `step.output`, or the name of an input, for each of the origins.
    fn named(&self, origins: &[Origin]) -> String {
        let names = origins.iter().map(|origin| match origin {
            Origin::Input(at) => self.signature.inputs[*at].name.clone(),
            Origin::Output(node, at) => format!(
                "{}.{}",
                self.nodes[*node].name, self.nodes[*node].gives[*at].name
            ),
        });
        names.collect::<Vec<_>>().join(" or ")
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{arguments}");
}

/// The work of a step as text.
fn what(node: &Node) -> String {
    match &node.work {
        Work::Transform(transform) => transform.name().to_owned(),
        Work::Python(function) => format!("python {}:{}", function.path, function.name),
        Work::Ask(asked) => {
            let all: Vec<String> = asked.iter().map(|it| whom(&it.route)).collect();
            all.join(" or ")
        }
    }
}

pub(crate) fn whom(route: &Route) -> String {
    match route {
        Route::Application(id) => format!("application {id}"),
        Route::Model(id) => format!("model {id}"),
        Route::Variant(id) => format!("variant {id}"),
    }
}

/// The part of a text that fits into a box.
fn cut(text: &str) -> String {
    match text.chars().count() > 24 {
        true => text.chars().take(23).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
