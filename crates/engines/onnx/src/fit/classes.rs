//! Classes: the same order of columns, names and type of labels in all models of an application.

use bytes::Bytes;
use sextant_types::{DataType, Names, Signature};

use super::names::{collect, free_name, substitute};
use crate::{
    Error,
    adapt::Plain,
    decode, encode,
    proto::{
        AttributeProto, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
        TensorProto, attribute_type, data_type, dimension, type_proto,
    },
    tensor::element_type,
};

/// The operator set with `LabelEncoder`.
const ML: &str = "ai.onnx.ml";

/// Its first version whose `LabelEncoder` has keys and values.
const KEYS_AND_VALUES: i64 = 2;

/// Most classes that an error lists.
const MOST_NAMED: usize = 10;

/// Most numbers of classes that are looked up in a table.
const MOST_NUMBERS: usize = 1 << 20;

/// In place of the number of a class that does not exist.
const NO_CLASS: i64 = -1;

/// The known names of classes.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The output whose columns the classes are.
    pub output: &'a str,
    /// A user's names, in the application's order; empty if there are none.
    pub stated: &'a [String],
    /// The names in the application's models, in the order of their columns; empty if there are none.
    pub known: &'a [String],
    /// The signature of the application's models.
    pub application: Option<&'a Signature>,
}

/// The classes of a model, with those of its application.
struct Order {
    /// The classes of its columns in the present order.
    columns: Vec<String>,
    /// The same in the application's order.
    ordered: Vec<String>,
    /// The application's names of these.
    shown: Vec<String>,
}

/// Puts the columns of an output in the application's order, and gives labels the application's type. Returns the
/// model's own names of its columns, in that order, if the application has other names.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model, [`Error::OtherClasses`] if the application's models have other
/// classes.
pub fn classes(
    mut plain: Plain,
    vocabulary: Vocabulary<'_>,
) -> Result<(Plain, Vec<String>), Error> {
    let of_file = plain
        .classes
        .iter()
        .find(|(name, _)| name == vocabulary.output)
        .map(|(_, classes)| classes.clone())
        .unwrap_or_default();
    let Some(order) = vocabulary.order(&of_file)? else {
        return Ok((plain, Vec::new()));
    };
    let mut model = decode(&plain.model)?;
    let before = plain.changes.len();
    if let Some(graph) = &mut model.graph {
        reorder(graph, vocabulary.output, &order, &mut plain);
        renumber(graph, vocabulary, (&of_file, &order), &mut plain);
    }
    encode_labels(&mut model, vocabulary, (&of_file, &order), &mut plain);
    if plain.changes.len() > before {
        plain.model = encode(&model);
    }
    let others = plain.classes.into_iter();
    plain.classes = others
        .filter(|(name, _)| name != vocabulary.output)
        .collect();
    let own = match order.ordered == order.shown {
        true => Vec::new(),
        false => order.ordered,
    };
    plain
        .classes
        .push((vocabulary.output.to_owned(), order.shown));
    Ok((plain, own))
}

// === impl Vocabulary ===

impl Vocabulary<'_> {
    /// `None` if no class has a name.
    fn order(&self, of_file: &[String]) -> Result<Option<Order>, Error> {
        let (stated, known) = (self.stated, self.known);
        let columns = match stated.is_empty() || are_same(of_file, stated) {
            true => of_file,
            false => stated,
        };
        let as_stated = match are_same(columns, stated) {
            true => stated,
            false => columns,
        };
        let (ordered, shown) = if columns.is_empty() {
            (known, known)
        } else if known.is_empty() {
            (as_stated, as_stated)
        } else if are_same(columns, known) {
            (known, known)
        } else if self.stands_for(columns) {
            (as_stated, known)
        } else {
            let (own, known) = (listed(columns), listed(known));
            return Err(Error::OtherClasses { own, known });
        };
        let columns = match columns.is_empty() {
            true => ordered,
            false => columns,
        };
        Ok((!shown.is_empty()).then(|| Order {
            columns: columns.to_vec(),
            ordered: ordered.to_vec(),
            shown: shown.to_vec(),
        }))
    }

    /// Whether a user stated that classes that are numbers on one side and words on the other are the same.
    fn stands_for(&self, columns: &[String]) -> bool {
        let lengths = [columns.len(), self.stated.len(), self.known.len()];
        lengths.iter().all(|it| *it == lengths[0])
            && are_numbers(self.known) != are_numbers(self.stated)
    }
}

/// Whether two lists have the same names, in any order.
fn are_same(a: &[String], b: &[String]) -> bool {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    a.len() == b.len() && sorted(a) == sorted(b)
}

fn are_numbers(names: &[String]) -> bool {
    names.iter().all(|name| name.parse::<i64>().is_ok())
}

/// The numbers of classes: the classes themselves if all are numbers, else their positions.
fn numbers(names: &[String]) -> Vec<i64> {
    let are_numbers = are_numbers(names);
    let each = names.iter().zip(0i64..);
    each.map(|(name, at)| match are_numbers {
        true => name.parse().unwrap_or(at),
        false => at,
    })
    .collect()
}

fn listed(names: &[String]) -> String {
    let named = names.iter().take(MOST_NAMED);
    let named: Vec<_> = named.map(|name| format!("`{name}`")).collect();
    let more = match names.len() > MOST_NAMED {
        true => format!(" and {} more", names.len() - MOST_NAMED),
        false => String::new(),
    };
    format!("{}{more}", named.join(", "))
}

// === impl Order ===

impl Order {
    /// The column of each class in the application's order.
    fn columns(&self) -> Vec<i64> {
        let column = |name: &String| self.columns.iter().position(|it| it == name);
        let columns = self.ordered.iter().filter_map(column);
        columns.map(|at| at as i64).collect()
    }

    /// The class of each column in the application's order, by position.
    fn classes(&self) -> Vec<usize> {
        let class = |name: &String| self.ordered.iter().position(|it| it == name);
        self.columns.iter().filter_map(class).collect()
    }

    /// The application's number of each class, at the model's number of it; `own` has the model's number of each
    /// column. `None` if all are the same, or cannot be positions.
    fn table(&self, own: &[i64]) -> Option<Vec<i64>> {
        let shown = numbers(&self.shown);
        let classes = self.classes();
        let theirs: Vec<i64> = classes.iter().map(|at| shown[*at]).collect();
        if theirs == own || theirs.len() != own.len() {
            return None;
        }
        let most = usize::try_from(*own.iter().max()?).ok()?;
        let mut table = vec![NO_CLASS; (most < MOST_NUMBERS).then_some(most + 1)?];
        for (from, to) in own.iter().zip(&theirs) {
            *table.get_mut(usize::try_from(*from).ok()?)? = *to;
        }
        Some(table)
    }
}

/// Puts the columns of an output in order.
fn reorder(graph: &mut GraphProto, output: &str, order: &Order, plain: &mut Plain) {
    let columns = order.columns();
    let is_in_order = columns.iter().zip(0..).all(|(column, at)| *column == at);
    let is_there = graph.output.iter().any(|it| it.name() == output);
    if is_in_order || !is_there {
        return;
    }
    let indices = format!("{output}/columns");
    let tensor = TensorProto::from_elements(&indices, &[columns.len()], &columns);
    graph.initializer.push(tensor);
    put_behind(graph, output, |from, to| {
        NodeProto::new("Gather", &indices, &[from, &indices], &[to])
            .with(AttributeProto::int("axis", -1))
    });
    plain.changes.push(format!(
        "the columns of output `{output}` are put in the application's order of classes: {}",
        listed(&order.shown)
    ));
}

/// Gives classes the application's numbers in outputs that have one number for each vector of the scored output, as
/// `ArgMax` makes them.
fn renumber(
    graph: &mut GraphProto,
    vocabulary: Vocabulary<'_>,
    (of_file, order): (&[String], &Order),
    plain: &mut Plain,
) {
    let Some(application) = vocabulary.application else {
        return;
    };
    let own: Vec<i64> = match of_file.len() == order.columns.len() {
        true => numbers(of_file),
        // The file knows no classes: its numbers are the positions of columns.
        false => (0..).take(order.columns.len()).collect(),
    };
    let Some(table) = order.table(&own) else {
        return;
    };
    let mut outputs = graph.output.iter();
    let Some(scored) = outputs.position(|it| it.name() == vocabulary.output) else {
        return;
    };
    for at in 0..graph.output.len() {
        let name = graph.output[at].name().to_owned();
        let theirs = application.outputs.iter().find(|it| it.name == name);
        let mine = declared_type(graph, at);
        if theirs.map(|it| it.data_type) != mine || !is_choice(graph, (at, scored)) {
            continue;
        }
        let table_name = format!("{name}/classes");
        let size = [table.len()];
        let tensor = match mine {
            Some(DataType::Int64) => TensorProto::from_elements(&table_name, &size, &table),
            Some(DataType::Int32) => {
                let table: Vec<i32> = table.iter().map(|it| *it as i32).collect();
                TensorProto::from_elements(&table_name, &size, &table)
            }
            _ => continue,
        };
        graph.initializer.push(tensor);
        put_behind(graph, &name, |from, to| {
            NodeProto::new("Gather", &table_name, &[&table_name, from], &[to])
                .with(AttributeProto::int("axis", 0))
        });
        plain.changes.push(format!(
            "the classes in output `{name}` get the application's numbers: {} are {}",
            listed(&order.shown),
            listed(&texts(&numbers(&order.shown))),
        ));
    }
}

/// Whether an output has one element for each vector of another.
fn is_choice(graph: &GraphProto, (at, of): (usize, usize)) -> bool {
    let (Some(own), Some(of)) = (declared_dims(graph, at), declared_dims(graph, of)) else {
        return false;
    };
    let is_one = |it: &Dimension| it.value == Some(dimension::Value::DimValue(1));
    own.len() + 1 == of.len() || (own.len() == of.len() && own.last().is_some_and(is_one))
}

fn texts(numbers: &[i64]) -> Vec<String> {
    numbers.iter().map(i64::to_string).collect()
}

/// Adds a node after the one that makes an output.
fn put_behind(graph: &mut GraphProto, output: &str, node: impl FnOnce(&str, &str) -> NodeProto) {
    let mut used = Default::default();
    collect(graph, &mut used);
    let made = free_name(output, &used);
    let names = Names::from([(output.to_owned(), made.clone())]);
    let declared = std::mem::take(&mut graph.output);
    substitute(graph, &names);
    graph.output = declared;
    graph.node.push(node(&made, output));
}

/// Converts text labels to the numbers of the application's classes, or the reverse.
fn encode_labels(
    model: &mut ModelProto,
    vocabulary: Vocabulary<'_>,
    (of_file, order): (&[String], &Order),
    plain: &mut Plain,
) {
    let Some(application) = vocabulary.application else {
        return;
    };
    if (vocabulary.stated.is_empty() && vocabulary.known.is_empty()) || !has_keys(model) {
        return;
    }
    let mut encoded = 0;
    let Some(graph) = &mut model.graph else {
        return;
    };
    for at in 0..graph.output.len() {
        let name = graph.output[at].name().to_owned();
        let theirs = application.outputs.iter().find(|it| it.name == name);
        let (Some(theirs), Some(mine)) = (theirs, declared_type(graph, at)) else {
            continue;
        };
        let own = match of_file.len() == order.columns.len() {
            true => of_file,
            false => &order.columns,
        };
        let Some(attributes) = keys_and_values((mine, theirs.data_type), own, order) else {
            continue;
        };
        put_behind(graph, &name, |from, to| NodeProto {
            domain: Some(ML.to_owned()),
            attribute: attributes,
            ..NodeProto::new("LabelEncoder", &format!("{name}/labels"), &[from], &[to])
        });
        declare_type(graph, at, theirs.data_type);
        encoded += 1;
        plain.changes.push(format!(
            "the labels of output `{name}` are {mine} and become the application's {}: {} for {}",
            theirs.data_type,
            listed(&order.shown),
            listed(&order.ordered),
        ));
    }
    if encoded > 0 {
        import_keys(model);
    }
}

/// Attributes of a `LabelEncoder` from the model's names of its columns to the application's.
fn keys_and_values(
    types: (DataType, DataType),
    own: &[String],
    order: &Order,
) -> Option<Vec<AttributeProto>> {
    let classes = order.classes();
    if own.len() != classes.len() {
        return None;
    }
    let shown: Vec<String> = classes.iter().map(|at| order.shown[*at].clone()).collect();
    match types {
        (DataType::Bytes, DataType::Int64) => {
            let known = numbers(&order.shown);
            let values: Vec<i64> = classes.iter().map(|at| known[*at]).collect();
            Some(vec![
                strings("keys_strings", own),
                AttributeProto::ints("values_int64s", &values),
                AttributeProto::int("default_int64", NO_CLASS),
            ])
        }
        (DataType::Int64, DataType::Bytes) => Some(vec![
            AttributeProto::ints("keys_int64s", &numbers(own)),
            strings("values_strings", &shown),
        ]),
        _ => None,
    }
}

fn strings(name: &str, values: &[String]) -> AttributeProto {
    let values = values.iter().map(|it| Bytes::from(it.clone().into_bytes()));
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(attribute_type::STRINGS),
        strings: values.collect(),
        ..AttributeProto::default()
    }
}

/// Whether a `LabelEncoder` with keys and values can be added: an older one in the file would change its meaning.
fn has_keys(model: &ModelProto) -> bool {
    let is_old = |set: &OperatorSetIdProto| {
        set.domain() == ML && set.version.unwrap_or_default() < KEYS_AND_VALUES
    };
    let is_encoder = |node: &NodeProto| node.domain() == ML && node.op_type() == "LabelEncoder";
    let mut nodes = model.graph.iter().flat_map(|graph| &graph.node);
    !(model.opset_import.iter().any(is_old) && nodes.any(is_encoder))
}

fn import_keys(model: &mut ModelProto) {
    let mut sets = model.opset_import.iter_mut();
    match sets.find(|set| set.domain() == ML) {
        Some(set) => set.version = set.version.max(Some(KEYS_AND_VALUES)),
        None => model.opset_import.push(OperatorSetIdProto {
            domain: Some(ML.to_owned()),
            version: Some(KEYS_AND_VALUES),
        }),
    }
}

fn declared_type(graph: &GraphProto, at: usize) -> Option<DataType> {
    match graph.output[at].r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => element_type(tensor.elem_type.unwrap_or_default()),
        _ => None,
    }
}

fn declared_dims(graph: &GraphProto, at: usize) -> Option<&[Dimension]> {
    match graph.output[at].r#type.as_ref()?.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => Some(&tensor.shape.as_ref()?.dim),
        _ => None,
    }
}

fn declare_type(graph: &mut GraphProto, at: usize, to: DataType) {
    let held = graph.output[at].r#type.as_mut();
    if let Some(type_proto::Value::TensorType(tensor)) = held.and_then(|it| it.value.as_mut()) {
        tensor.elem_type = Some(match to {
            DataType::Bytes => data_type::STRING,
            _ => data_type::INT64,
        });
    }
}
