//! Names and dimensions of inputs and outputs.

use std::collections::BTreeSet;

use sextant_types::{DataType, Names, Renames, Signature, TensorSpec};

use crate::{
    Error,
    adapt::{Plain, dead, shape_mut, tensor},
    decode, encode,
    proto::{
        AttributeProto, Dimension, GraphProto, NodeProto, ValueInfoProto, dimension, type_proto,
    },
    tensor::element_type,
};

/// A file with the names of its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenamedModel {
    /// The file, and what was changed.
    pub plain: Plain,
    /// The inputs that have new names, by the old ones.
    pub inputs: Names,
    /// Whether the application's models take one record at a time, and this one is declared so as well.
    pub is_lone: bool,
}

/// The graph's declaration of an input or output.
struct Value {
    name: String,
    data_type: Option<DataType>,
    /// `None` if not even the number of dimensions is declared.
    shape: Option<Vec<Option<u64>>>,
}

/// The inputs and outputs of a file that match those of its application, by position.
struct NameMatch {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// Applies the stated names, then those of the application's signature where the match is unambiguous: an input or
/// output whose name the application does not have matches the only remaining one with the same type and shape. Only
/// the stated names are applied if something of the application's would remain unmatched.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model, [`Error::NoSuchInput`] and [`Error::NoSuchOutput`] if it has none
/// with a stated name, [`Error::NameTaken`] if two would have one name.
pub fn names(
    mut plain: Plain,
    stated: &Renames,
    chosen: &[String],
    application: Option<&Signature>,
) -> Result<RenamedModel, Error> {
    let mut model = decode(&plain.model)?;
    let Some(graph) = &mut model.graph else {
        return Err(Error::NotOnnx("it has no graph".to_owned()));
    };
    let before = plain.changes.len();
    check(graph, stated)?;
    rename(graph, stated, "as stated", &mut plain);
    let mut inputs = stated.inputs.clone();
    let matched = application.and_then(|it| Some((it, NameMatch::of(graph, it)?)));
    let mut is_lone = false;
    if let Some((application, matched)) = matched {
        let given = matched.renames(graph, application);
        rename(graph, &given, "as the application's is", &mut plain);
        for (old, new) in given.inputs {
            let of_file = inputs.iter().find(|(_, named)| **named == old);
            let of_file = of_file.map(|(file, _)| file.clone());
            inputs.insert(of_file.unwrap_or(old), new);
        }
        order(graph, &matched, chosen.is_empty(), &mut plain);
        is_lone = fix(graph, application, &mut plain);
    }
    if plain.changes.len() > before {
        plain.model = encode(&model);
    }
    Ok(RenamedModel {
        plain,
        inputs,
        is_lone,
    })
}

/// Refuses names that do not exist, and names that two would have.
fn check(graph: &GraphProto, stated: &Renames) -> Result<(), Error> {
    let each = [
        ("input", &graph.input, &stated.inputs),
        ("output", &graph.output, &stated.outputs),
    ];
    for (direction, values, names) in each {
        let known = || {
            let names = values.iter().map(|it| format!("`{}`", it.name()));
            names.collect::<Vec<_>>().join(", ")
        };
        let has = |name: &str| values.iter().any(|it| it.name() == name);
        if let Some(given) = names.keys().find(|name| !has(name)) {
            let (given, known) = (given.chars().take(64).collect(), known());
            return Err(match direction {
                "input" => Error::NoSuchInput { given, known },
                _ => Error::NoSuchOutput { given, known },
            });
        }
        let mut taken = BTreeSet::new();
        let after = values.iter().map(|it| it.name());
        let after = after.map(|name| names.get(name).map_or(name, String::as_str));
        if let Some(name) = after
            .into_iter()
            .find(|name| !taken.insert(name.to_owned()))
        {
            let name = name.chars().take(64).collect();
            return Err(Error::NameTaken { direction, name });
        }
    }
    Ok(())
}

// === impl NameMatch ===

impl NameMatch {
    /// `None` if an input or output of the application is missing here, or an input here is not the application's.
    fn of(graph: &GraphProto, application: &Signature) -> Option<Self> {
        let (inputs, outputs) = (values(&graph.input), values(&graph.output));
        let skip = usize::from(application.batched);
        let takes = |mine: &Value, theirs: &TensorSpec| {
            mine.has_type(theirs) && mine.fits(theirs, skip, |mine, _| mine.is_none())
        };
        let gives = |mine: &Value, theirs: &TensorSpec| {
            mine.has_type(theirs) && mine.fits(theirs, skip, |_, _| true)
        };
        let labels = |mine: &Value, theirs: &TensorSpec| {
            mine.are_labels_like(theirs) && mine.fits(theirs, skip, |_, _| true)
        };
        let mut of_outputs = pairs(&outputs, &application.outputs, gives);
        complete(&mut of_outputs, (&outputs, &application.outputs), labels);
        let whole = |pairs: Vec<Option<usize>>| pairs.into_iter().collect::<Option<Vec<_>>>();
        let matched = Self {
            inputs: whole(pairs(&inputs, &application.inputs, takes))?,
            outputs: whole(of_outputs)?,
        };
        (matched.inputs.len() == inputs.len()).then_some(matched)
    }

    /// The application's names of those with other names.
    fn renames(&self, graph: &GraphProto, application: &Signature) -> Renames {
        let of = |pairs: &[usize], mine: &[ValueInfoProto], theirs: &[TensorSpec]| {
            let named = pairs.iter().zip(theirs);
            let named = named.map(|(at, it)| (mine[*at].name().to_owned(), it.name.clone()));
            named.filter(|(old, new)| old != new).collect()
        };
        Renames {
            inputs: of(&self.inputs, &graph.input, &application.inputs),
            outputs: of(&self.outputs, &graph.output, &application.outputs),
        }
    }
}

/// For each of `theirs` the position of the one of `mine` with its name, or else the only remaining one that fits it,
/// if that one fits no other remaining one.
fn pairs(
    mine: &[Value],
    theirs: &[TensorSpec],
    fits: impl Fn(&Value, &TensorSpec) -> bool,
) -> Vec<Option<usize>> {
    let by_name = |spec: &TensorSpec| mine.iter().position(|it| it.name == spec.name);
    let mut pairs: Vec<Option<usize>> = theirs.iter().map(by_name).collect();
    complete(&mut pairs, (mine, theirs), fits);
    pairs
}

fn complete(
    pairs: &mut [Option<usize>],
    (mine, theirs): (&[Value], &[TensorSpec]),
    fits: impl Fn(&Value, &TensorSpec) -> bool,
) {
    let taken: BTreeSet<usize> = pairs.iter().flatten().copied().collect();
    let left: Vec<usize> = (0..theirs.len())
        .filter(|at| pairs[*at].is_none())
        .collect();
    let free = |at: &usize| !taken.contains(at);
    for at in &left {
        let mut fitting = (0..mine.len()).filter(free);
        let mut fitting = fitting.by_ref().filter(|it| fits(&mine[*it], &theirs[*at]));
        let (Some(only), None) = (fitting.next(), fitting.next()) else {
            continue;
        };
        let others = left.iter().filter(|it| fits(&mine[only], &theirs[**it]));
        if others.count() == 1 {
            pairs[*at] = Some(only);
        }
    }
}

// === impl Value ===

impl Value {
    fn has_type(&self, theirs: &TensorSpec) -> bool {
        self.data_type == Some(theirs.data_type)
    }

    /// Whether one has labels as text and the other as numbers.
    fn are_labels_like(&self, theirs: &TensorSpec) -> bool {
        let pair = (self.data_type, theirs.data_type);
        matches!(
            pair,
            (Some(DataType::Bytes), DataType::Int64) | (Some(DataType::Int64), DataType::Bytes)
        )
    }

    /// Whether the shape fits from dimension `skip` on; `differ` judges unequal dimensions.
    fn fits(
        &self,
        theirs: &TensorSpec,
        skip: usize,
        differ: impl Fn(Option<u64>, Option<u64>) -> bool,
    ) -> bool {
        let Some(shape) = &self.shape else {
            return true;
        };
        let mut dims = shape.iter().zip(&theirs.shape).skip(skip);
        let both_fixed = |a: &Option<u64>, b: &Option<u64>| a.is_some() && b.is_some();
        shape.len() == theirs.shape.len()
            && dims.all(|(a, b)| a == b || (!both_fixed(a, b) && differ(*a, *b)))
    }
}

fn values(declared: &[ValueInfoProto]) -> Vec<Value> {
    let value = |it: &ValueInfoProto| {
        let tensor = tensor(it);
        let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
        Value {
            name: it.name().to_owned(),
            data_type: tensor.and_then(|it| element_type(it.elem_type.unwrap_or_default())),
            shape: shape.map(|shape| shape.dim.iter().map(size).collect()),
        }
    };
    declared.iter().map(value).collect()
}

fn size(dim: &Dimension) -> Option<u64> {
    match dim.value {
        Some(dimension::Value::DimValue(size)) => u64::try_from(size).ok(),
        _ => None,
    }
}

// === rewriting ===

/// Renames inputs and outputs.
fn rename(graph: &mut GraphProto, renames: &Renames, how: &str, plain: &mut Plain) {
    if renames.is_empty() {
        return;
    }
    let mut used = BTreeSet::new();
    collect(graph, &mut used);
    let copies = set_apart(graph, renames, &mut used);
    let both = [("input", &renames.inputs), ("output", &renames.outputs)];
    for (direction, names) in both {
        for (old, new) in names {
            let change = format!("{direction} `{old}` is called `{new}`, {how}");
            plain.changes.push(change);
        }
    }
    let mut exchanged = renames.inputs.clone();
    let of_copies = copies
        .iter()
        .map(|(name, copy)| (copy.clone(), name.clone()));
    exchanged.extend(of_copies);
    for (old, new) in &renames.outputs {
        let made = copies.get(old).unwrap_or(old);
        exchanged.insert(made.clone(), new.clone());
    }
    let new: Vec<String> = exchanged.values().cloned().collect();
    for new in new {
        if used.contains(&new) && !exchanged.contains_key(&new) {
            let free = free_name(&new, &used);
            used.insert(free.clone());
            exchanged.insert(new, free);
        }
    }
    substitute(graph, &exchanged);
    for (name, _) in &mut plain.classes {
        if let Some(new) = renames.outputs.get(name) {
            name.clone_from(new);
        }
    }
}

/// Outputs that are inputs too, and of which one gets a new name, become copies with names of their own: returns the
/// names of the copies, by those of the outputs.
fn set_apart(graph: &mut GraphProto, renames: &Renames, used: &mut BTreeSet<String>) -> Names {
    let mut copies = Names::new();
    let given: BTreeSet<String> = graph.input.iter().map(|it| it.name().to_owned()).collect();
    for output in &mut graph.output {
        let name = output.name().to_owned();
        let is_renamed = renames.inputs.contains_key(&name) || renames.outputs.contains_key(&name);
        if !is_renamed || !given.contains(&name) {
            continue;
        }
        let copy = free_name(&name, used);
        used.insert(copy.clone());
        let node = NodeProto::new("Identity", &copy, &[&name], &[&copy]);
        graph.node.push(node);
        output.name = Some(copy.clone());
        copies.insert(name, copy);
    }
    copies
}

pub(super) fn free_name(name: &str, used: &BTreeSet<String>) -> String {
    let numbered = (2_u64..).map(|number| format!("{name}/{number}"));
    let mut free = numbered.filter(|it| !used.contains(it));
    free.next().unwrap_or_else(|| format!("{name}/"))
}

/// All names of values in a graph.
pub(super) fn collect(graph: &GraphProto, used: &mut BTreeSet<String>) {
    let declared = graph.input.iter().chain(&graph.output);
    used.extend(declared.map(|it| it.name().to_owned()));
    used.extend(graph.initializer.iter().map(|it| it.name().to_owned()));
    for node in &graph.node {
        used.extend(node.input.iter().chain(&node.output).cloned());
        for graph in node.attribute.iter().flat_map(graphs) {
            collect(graph, used);
        }
    }
}

fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.as_deref().into_iter().chain(&attribute.graphs)
}

/// Replaces names everywhere at once.
pub(super) fn substitute(graph: &mut GraphProto, names: &Names) {
    let put = |name: &mut Option<String>| {
        if let Some(new) = name.as_ref().and_then(|old| names.get(old)) {
            *name = Some(new.clone());
        }
    };
    let declared = graph.input.iter_mut().chain(&mut graph.output);
    for value in declared.chain(&mut graph.value_info) {
        put(&mut value.name);
    }
    graph
        .initializer
        .iter_mut()
        .for_each(|it| put(&mut it.name));
    for sparse in &mut graph.sparse_initializer {
        if let Some(values) = &mut sparse.values {
            put(&mut values.name);
        }
    }
    for annotation in &mut graph.quantization_annotation {
        put(&mut annotation.tensor_name);
    }
    graph
        .node
        .iter_mut()
        .for_each(|node| substitute_node(node, names));
}

fn substitute_node(node: &mut NodeProto, names: &Names) {
    for name in node.input.iter_mut().chain(&mut node.output) {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    }
    for attribute in &mut node.attribute {
        let inner = attribute.g.as_deref_mut().into_iter();
        for graph in inner.chain(&mut attribute.graphs) {
            substitute(graph, names);
        }
    }
}

/// Uses the application's order; leaves out outputs that it does not have, unless a user has named the outputs to
/// serve.
fn order(graph: &mut GraphProto, matched: &NameMatch, may_leave_out: bool, plain: &mut Plain) {
    let in_order = |from: &[ValueInfoProto], order: &[usize]| -> Vec<ValueInfoProto> {
        order.iter().map(|at| from[*at].clone()).collect()
    };
    let inputs = in_order(&graph.input, &matched.inputs);
    if inputs != graph.input {
        let change = "its inputs are in another order, and take the application's";
        plain.changes.push(change.to_owned());
        graph.input = inputs;
    }
    if !may_leave_out {
        return;
    }
    let outputs = in_order(&graph.output, &matched.outputs);
    if outputs == graph.output {
        return;
    }
    let kept: BTreeSet<&str> = outputs.iter().map(|it| it.name()).collect();
    let others = graph.output.iter().map(|it| it.name());
    let others: Vec<String> = others
        .filter(|name| !kept.contains(name))
        .map(|name| format!("`{name}`"))
        .collect();
    plain.changes.push(match others.is_empty() {
        true => "its outputs are in another order, and take the application's".to_owned(),
        false => format!(
            "the application has no output {}, so it is left out",
            others.join(", ")
        ),
    });
    plain
        .classes
        .retain(|(name, _)| kept.contains(name.as_str()));
    graph.output = outputs;
    dead::take_out(graph);
}

/// Fixes dimensions of inputs that the application's models fix. Outputs with another declaration lose their shape,
/// which is found by running. Returns whether the model takes one record at a time because the application's models do.
fn fix(graph: &mut GraphProto, application: &Signature, plain: &mut Plain) -> bool {
    let skip = usize::from(application.batched);
    let mut is_lone = false;
    for (input, theirs) in graph.input.iter_mut().zip(&application.inputs) {
        let name = input.name().to_owned();
        let Some(shape) = shape_mut(input) else {
            continue;
        };
        let dims = shape.dim.iter_mut().zip(&theirs.shape).enumerate();
        for (at, (dim, wanted)) in dims.skip(skip) {
            let Some(wanted) = wanted.filter(|_| size(dim).is_none()) else {
                continue;
            };
            dim.value = i64::try_from(wanted).ok().map(dimension::Value::DimValue);
            is_lone |= at == 0;
            plain.changes.push(format!(
                "dimension `{at}` of input `{name}` takes any size and is `{wanted}`, as the application's is"
            ));
        }
    }
    for output in &mut graph.output {
        let theirs = application
            .outputs
            .iter()
            .find(|it| it.name == output.name());
        let Some(theirs) = theirs else {
            continue;
        };
        let declared = values(std::slice::from_ref(output));
        let is_known = declared[0].fits(theirs, skip, |mine, _| mine.is_some());
        let found = output.r#type.as_mut().and_then(|it| it.value.as_mut());
        if let (false, Some(type_proto::Value::TensorType(tensor))) = (is_known, found) {
            tensor.shape = None;
        }
    }
    is_lone
}

/// Opens dimensions of outputs that the application leaves open: an answer of one size is valid where any size is.
///
/// # Errors
/// [`Error::NotOnnx`] if the bytes are not a model.
pub fn relax(plain: &mut Plain, application: &Signature) -> Result<(), Error> {
    let mut model = decode(&plain.model)?;
    let skip = usize::from(application.batched);
    let outputs = model.graph.iter_mut().flat_map(|graph| &mut graph.output);
    let mut is_changed = false;
    for output in outputs {
        let theirs = application
            .outputs
            .iter()
            .find(|it| it.name == output.name());
        let (Some(theirs), Some(shape)) = (theirs, shape_mut(output)) else {
            continue;
        };
        if shape.dim.len() != theirs.shape.len() {
            continue;
        }
        let dims = shape.dim.iter_mut().zip(&theirs.shape).skip(skip);
        for (dim, _) in dims.filter(|(dim, wanted)| wanted.is_none() && size(dim).is_some()) {
            dim.value = None;
            is_changed = true;
        }
    }
    if is_changed {
        plain.model = encode(&model);
    }
    Ok(())
}
