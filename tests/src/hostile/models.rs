//! Hostile models.

use super::Case;
use crate::onnx::{
    HostileModel, Message, attribute, endless_body, floats, node, number_attribute, scalar,
    tensor_value, value,
};

/// Files that are no models, models that lie, and models that overload an engine.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = no_models();
    cases.extend(outer());
    cases.extend(graphs());
    cases.extend(interfaces());
    cases.extend(weights());
    cases.extend(runs());
    cases
}

/// Files that are no model, or only a part of one.
fn no_models() -> Vec<Case> {
    let good = HostileModel::No.bytes();
    let mut nested = Vec::new();
    for _ in 0..4000 {
        let mut outer = Message::default();
        outer.bytes(7, &nested);
        nested = outer.0;
    }
    let mut too_long = good.clone();
    too_long.extend([0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    vec![
        Case::model("empty", Vec::new()),
        Case::model("text", b"not a model".to_vec()),
        Case::model("zip", b"PK\x03\x04rest".to_vec()),
        Case::model("gzip", b"\x1f\x8b\x08\0\0\0\0\0".to_vec()),
        Case::model("zeros", vec![0; 1 << 20]),
        Case::model("cut-in-half", good[..good.len() / 2].to_vec()),
        Case::model("cut-at-the-end", good[..good.len() - 1].to_vec()),
        Case::model("graphs-in-graphs", nested),
        Case::model("longer-than-the-file", too_long),
        Case::model("endless-number", vec![0xff; 64]),
        many_nodes(),
    ]
}

/// Two million nodes of eight bytes each, which take some hundred bytes each when they are read.
pub(super) fn many_nodes() -> Case {
    const NODES: usize = 2 << 20;
    let mut nodes = Message::default();
    for _ in 0..NODES {
        nodes.message(1, Message::default().text(4, "Relu"));
    }
    Case::model("two-million-nodes", model(&nodes))
}

/// Forty tensors that all have their data in one file of 16 MiB: expanded, the model has 640 MiB.
pub(super) fn one_file_for_all() -> Case {
    const BYTES: usize = 16 << 20;
    let graph = relu(|graph| {
        for number in 0..40 {
            let mut entry = Message::default();
            entry.text(1, "location").text(2, "weights.bin");
            let mut tensor = Message::default();
            tensor.number(1, BYTES as u64 / 4).number(2, 1);
            tensor.text(8, &format!("w{number}"));
            tensor.message(13, &entry).number(14, 1);
            graph.message(5, &tensor);
        }
    });
    Case {
        data: Some(("weights.bin", vec![0; BYTES])),
        ..Case::model("one-file-for-forty-tensors", model(&graph))
    }
}

/// Faults in what surrounds a graph.
fn outer() -> Vec<Case> {
    let graph = || relu(|_| {});
    let versions = |ir: u64, opset: u64| {
        let mut model = Message::default();
        model.number(1, ir).message(7, &graph());
        model.message(8, Message::default().number(2, opset));
        model.0
    };
    let mut no_sets = Message::default();
    no_sets.number(1, 8).message(7, &graph());
    let mut no_graph = Message::default();
    no_graph.number(1, 8);
    no_graph.message(8, Message::default().number(2, 17));
    let mut notes = model(&graph());
    let mut big = Message::default();
    big.message(
        14,
        Message::default()
            .text(1, "note")
            .text(2, &"x".repeat(8 << 20)),
    );
    notes.extend(big.0);
    vec![
        Case::model("no-graph", no_graph.0),
        Case::model("no-operator-set", no_sets.0),
        Case::model("operator-set-0", versions(8, 0)),
        Case::model("operator-set-999", versions(8, 999)),
        Case::model("ir-999", versions(999, 17)),
        Case::model("eight-megabytes-of-notes", notes),
        Case::model("function-that-calls-itself", recursive()),
        Case::model("functions-that-double", doubling()),
    ]
}

/// Nodes that are invalid.
fn graphs() -> Vec<Case> {
    let of = |name, nodes: &[Message]| Case::model(name, model(&graph(nodes, |_| {})));
    let mut foreign = node("Relu", &["x"], "y");
    foreign.text(7, "com.example");
    let chain = |count| HostileModel::Chain(count).bytes();
    let mut self_made = node("Relu", &["x"], "y");
    self_made.message(5, &attribute("body", 5, 6, &relu(|_| {})));
    vec![
        of("no-nodes", &[]),
        of("no-such-operator", &[node("Teleport", &["x"], "y")]),
        of("foreign-operator", &[foreign]),
        of("operator-without-a-name", &[node("", &["x"], "y")]),
        of("from-nowhere", &[node("Relu", &["nowhere"], "y")]),
        of("nobody-makes-the-output", &[node("Relu", &["x"], "z")]),
        of(
            "a-circle",
            &[
                node("Add", &["x", "b"], "a"),
                node("Relu", &["a"], "b"),
                node("Relu", &["b"], "y"),
            ],
        ),
        of(
            "two-make-one",
            &[node("Relu", &["x"], "y"), node("Neg", &["x"], "y")],
        ),
        of("too-few-inputs", &[node("MatMul", &["x"], "y")]),
        of("an-attribute-too-many", &[self_made]),
        Case::model("chain-of-20000", chain(20_000)),
        Case::model("ifs-in-ifs-20", model(&nested_ifs(20))),
        Case::model("ifs-in-ifs-90", model(&nested_ifs(90))),
        of(
            "a-name-of-a-megabyte",
            &[
                node("Relu", &["x"], &"n".repeat(1 << 20)),
                node("Relu", &[&"n".repeat(1 << 20)], "y"),
            ],
        ),
        of(
            "control-characters",
            &[
                node("Relu", &["x"], "\u{1b}[2J\0\n"),
                node("Relu", &["\u{1b}[2J\0\n"], "y"),
            ],
        ),
    ]
}

/// Inputs and outputs that no query can provide.
fn interfaces() -> Vec<Case> {
    let with = |name, inputs: Vec<Message>, outputs: Vec<Message>| {
        let mut graph = Message::default();
        graph
            .message(1, &node("Relu", &["x"], "y"))
            .text(2, "graph");
        for input in &inputs {
            graph.message(11, input);
        }
        for output in &outputs {
            graph.message(12, output);
        }
        Case::model(name, model(&graph))
    };
    let x = |dims: &[Result<u64, &str>]| vec![tensor_value("x", 1, dims)];
    let y = || vec![value("y", 2)];
    let many = |prefix: &'static str| (0..5000).map(move |at| value(&format!("{prefix}{at}"), 2));
    let mut untyped = Message::default();
    untyped.text(1, "x");
    vec![
        with("no-inputs", vec![], y()),
        with("no-outputs", vec![value("x", 2)], vec![]),
        with("input-without-a-type", vec![untyped], y()),
        with(
            "unknown-element-type",
            vec![tensor_value("x", 77, &[Ok(2)])],
            y(),
        ),
        with("negative-dimension", x(&[Ok(u64::MAX)]), y()),
        with("enormous-dimension", x(&[Err("N"), Ok(1 << 62)]), y()),
        with(
            "enormous-product",
            x(&[Err("N"), Ok(1 << 40), Ok(1 << 40)]),
            y(),
        ),
        with("rank-500", x(&[Ok(1); 500]), y()),
        with(
            "the-same-input-twice",
            vec![value("x", 2), value("x", 2)],
            y(),
        ),
        with(
            "five-thousand-inputs",
            std::iter::once(value("x", 2)).chain(many("i")).collect(),
            y(),
        ),
        with(
            "five-thousand-outputs",
            vec![value("x", 2)],
            y().into_iter().chain(many("o")).collect(),
        ),
        with(
            "another-shape-than-declared",
            vec![value("x", 2)],
            vec![value("y", 7)],
        ),
        with(
            "another-type-than-declared",
            vec![value("x", 2)],
            vec![tensor_value("y", 7, &[Err("N"), Ok(2)])],
        ),
        with("input-without-a-name", vec![value("", 2)], y()),
    ]
}

/// Constants with wrong descriptions or wrong places.
fn weights() -> Vec<Case> {
    let with = |name, tensor: Message| {
        let nodes = [node("Add", &["x", "w"], "y")];
        Case::model(
            name,
            model(&graph(&nodes, |graph| {
                graph.message(5, &tensor);
            })),
        )
    };
    let tensor = |dims: &[u64], element: u64, bytes: &[u8]| {
        let mut tensor = Message::default();
        for dim in dims {
            tensor.number(1, *dim);
        }
        tensor.number(2, element).text(8, "w").bytes(9, bytes);
        tensor
    };
    let elsewhere = |place: &str| {
        let mut tensor = Message::default();
        let mut entry = Message::default();
        entry.text(1, "location").text(2, place);
        tensor.number(1, 2).number(2, 1).text(8, "w");
        tensor.message(13, &entry).number(14, 1);
        tensor
    };
    vec![
        with("weights-too-short", tensor(&[1000], 1, &[0; 8])),
        with("weights-too-long", tensor(&[2], 1, &[0; 4000])),
        with("weights-of-an-unknown-type", tensor(&[2], 99, &[0; 8])),
        with(
            "weights-without-end",
            tensor(&[1 << 62, 1 << 62], 1, &[0; 8]),
        ),
        with("weights-of-negative-size", tensor(&[u64::MAX], 1, &[0; 8])),
        with(
            "weights-above-the-folder",
            elsewhere("../../../../etc/passwd"),
        ),
        with("weights-of-the-system", elsewhere("/etc/passwd")),
        with("weights-of-a-process", elsewhere("/proc/self/mem")),
        with("weights-in-memory", elsewhere("*/_ORT_MEM_ADDR_/*")),
        with("weights-that-do-not-broadcast", floats("w", &[3])),
    ]
}

/// Models whose runs fail, never end or take all memory.
fn runs() -> Vec<Case> {
    let of = |name, nodes: &[Message], tensors: &[Message]| {
        let graph = graph(nodes, |graph| {
            for tensor in tensors {
                graph.message(5, tensor);
            }
        });
        Case::model(name, model(&graph))
    };
    let whole = |name: &str, value: i64| {
        let mut tensor = Message::default();
        tensor
            .number(1, 1)
            .number(2, 7)
            .text(8, name)
            .bytes(9, &value.to_le_bytes());
        tensor
    };
    let mut cast = node("Cast", &["x"], "whole");
    cast.message(5, &number_attribute("to", 7));
    let mut back = node("Cast", &["divided"], "y");
    back.message(5, &number_attribute("to", 1));
    vec![
        Case::model("endless", HostileModel::Endless.bytes()),
        Case::model("endless-and-growing", growing()),
        Case::model("four-gigabytes", HostileModel::Huge(4 << 30).bytes()),
        Case::model("a-hundred-gigabytes", HostileModel::Huge(100 << 30).bytes()),
        Case::model("more-than-there-is", HostileModel::Huge(1 << 62).bytes()),
        of(
            "whole-division-by-zero",
            &[cast, node("Div", &["whole", "zero"], "divided"), back],
            &[whole("zero", 0)],
        ),
        of(
            "index-out-of-bounds",
            &[node("Gather", &["x", "far"], "y")],
            &[whole("far", 1 << 40)],
        ),
        of(
            "shape-that-does-not-fit",
            &[node("Reshape", &["x", "seven"], "y")],
            &[whole("seven", 7)],
        ),
        of(
            "shape-of-negatives",
            &[node("Reshape", &["x", "minus"], "y")],
            &[whole("minus", -7)],
        ),
        of(
            "repeated-a-million-million-times",
            &[node("Tile", &["x", "often"], "y")],
            &[whole("often", 1 << 40)],
        ),
        of(
            "not-a-number",
            &[
                node("Sqrt", &["minus"], "y"),
                node("Sub", &["zeros", "x"], "minus"),
            ],
            &[floats("zeros", &[2])],
        ),
        of(
            "as-many-as-there-are-stars",
            &[
                node("Range", &["zero", "far", "one"], "all"),
                node("Relu", &["x"], "y"),
            ],
            &[
                scalar("zero", 7, &[0; 8]),
                scalar("far", 7, &(1i64 << 60).to_le_bytes()),
                scalar("one", 7, &1i64.to_le_bytes()),
            ],
        ),
        of("batches-are-mixed", &[node("Transpose", &["x"], "y")], &[]),
    ]
}

/// A loop that keeps the value of every iteration.
fn growing() -> Vec<u8> {
    let mut body = endless_body();
    body.message(1, &node("Identity", &["v"], "kept"));
    body.message(12, &value("kept", 2));
    let mut looping = node("Loop", &["turns", "always", "x"], "y");
    looping
        .text(2, "all")
        .message(5, &attribute("body", 5, 6, &body));
    model(&graph(&[looping], |graph| {
        graph.message(5, &scalar("turns", 7, &(1i64 << 62).to_le_bytes()));
        graph.message(5, &scalar("always", 9, &[1]));
    }))
}

fn nested_ifs(depth: usize) -> Message {
    let mut inner = Message::default();
    inner
        .message(1, &node("Relu", &["x"], "y0"))
        .text(2, "branch");
    inner.message(12, &value("y0", 2));
    for level in 1..=depth {
        let name = format!("y{level}");
        let mut choice = node("If", &["always"], &name);
        choice.message(5, &attribute("then_branch", 5, 6, &inner));
        let mut other = Message::default();
        let made = format!("e{level}");
        other
            .message(1, &node("Neg", &["x"], &made))
            .text(2, "other");
        other.message(12, &value(&made, 2));
        choice.message(5, &attribute("else_branch", 5, 6, &other));
        inner = Message::default();
        inner.message(1, &choice).text(2, "branch");
        inner.message(12, &value(&name, 2));
    }
    let last = format!("y{depth}");
    inner.message(1, &node("Identity", &[&last], "y"));
    inner.message(5, &scalar("always", 9, &[1]));
    inner.message(11, &value("x", 2));
    // The outermost branch is the graph: its output is passed to `y`.
    inner.message(12, &value("y", 2));
    inner
}

/// A function in the model that calls itself.
fn recursive() -> Vec<u8> {
    let of_itself = function(0, &[call(0, "a", "b")]);
    calling_first(&[of_itself])
}

/// Functions in the model that each call the next one twice: expanded, 2^40 nodes.
fn doubling() -> Vec<u8> {
    const DEPTH: usize = 40;
    let twice = |at| function(at, &[call(at + 1, "a", "t"), call(at + 1, "t", "b")]);
    let mut functions: Vec<Message> = (0..DEPTH).map(twice).collect();
    functions.push(function(DEPTH, &[node("Relu", &["a"], "b")]));
    calling_first(&functions)
}

/// A node that calls a function in the model, by its number.
fn call(number: usize, input: &str, output: &str) -> Message {
    let mut call = node(&format!("Own{number}"), &[input], output);
    call.text(7, "local");
    call
}

/// A function in the model from `a` to `b`.
fn function(number: usize, nodes: &[Message]) -> Message {
    let mut function = Message::default();
    function
        .text(1, &format!("Own{number}"))
        .text(4, "a")
        .text(5, "b");
    for node in nodes {
        function.message(7, node);
    }
    function.message(9, Message::default().number(2, 17));
    function.message(9, Message::default().text(1, "local").number(2, 1));
    function.text(10, "local");
    function
}

/// A model that calls the first of its functions.
fn calling_first(functions: &[Message]) -> Vec<u8> {
    let mut model = Message::default();
    let graph = graph(&[call(0, "x", "y")], |_| {});
    model.number(1, 8).message(7, &graph);
    model.message(8, Message::default().number(2, 17));
    model.message(8, Message::default().text(1, "local").number(2, 1));
    for function in functions {
        model.message(25, function);
    }
    model.0
}

/// A graph from `x` to `y`, both `[N, 2]`, with these nodes and whatever `add` adds.
fn graph(nodes: &[Message], add: impl FnOnce(&mut Message)) -> Message {
    let mut graph = Message::default();
    for node in nodes {
        graph.message(1, node);
    }
    graph.text(2, "graph");
    add(&mut graph);
    graph
        .message(11, &value("x", 2))
        .message(12, &value("y", 2));
    graph
}

fn relu(add: impl FnOnce(&mut Message)) -> Message {
    graph(&[node("Relu", &["x"], "y")], add)
}

fn model(graph: &Message) -> Vec<u8> {
    let mut model = Message::default();
    model.number(1, 8).message(7, graph);
    model.message(8, Message::default().number(2, 17));
    model.0
}
