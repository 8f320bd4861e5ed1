//! Operators that work element by element.

use super::{AttributeProto, Case, DataType, Model, Random};

pub(super) fn cases(random: &mut Random) -> Vec<Case> {
    let mut cases = unary(random);
    cases.extend(binary(random));
    cases.extend(logic(random));
    cases.extend(others(random));
    cases
}

fn dims(random: &mut Random) -> [u64; 2] {
    [random.between(1, 9), random.between(1, 70)]
}

/// For operators that take any float, and those that take positive ones only.
fn unary(random: &mut Random) -> Vec<Case> {
    const ANY: [&str; 21] = [
        "Abs",
        "Ceil",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Neg",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Tanh",
    ];
    const POSITIVE: [&str; 3] = ["Log", "Reciprocal", "Sqrt"];
    let any = ANY.map(|operator| {
        // The values are wider than -1..1, so that all branches are reached.
        let mut model = Model::new(operator, "", &dims(random));
        model
            .number("wide", 4.0)
            .node("Mul", &["x", "wide"], "scaled");
        model.call(&["scaled"], Vec::new()).finish(3)
    });
    let positive = POSITIVE.map(|operator| {
        let mut model = Model::new(operator, "", &dims(random));
        model.number("half", 0.5).node("Abs", &["x"], "above");
        model.node("Add", &["above", "half"], "raised");
        model.call(&["raised"], Vec::new()).finish(3)
    });
    let alpha = |operator, alpha| {
        let mut model = Model::new(operator, format!("alpha {alpha}"), &[40]);
        let attributes = vec![AttributeProto::float("alpha", alpha)];
        model.call(&["x"], attributes).finish(2)
    };
    let mut cases: Vec<Case> = any.into_iter().chain(positive).collect();
    cases.extend([
        alpha("LeakyRelu", 0.3),
        alpha("Elu", 0.5),
        alpha("HardSigmoid", 0.9),
    ]);
    for approximate in ["none", "tanh"] {
        let mut model = Model::new("Gelu", approximate, &[50]);
        let attributes = vec![AttributeProto::string("approximate", approximate)];
        cases.push(model.opset(20).call(&["x"], attributes).finish(2));
    }
    cases
}

fn binary(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for operator in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"] {
        let [rows, columns] = dims(random);
        let mut shapes = vec![vec![rows, columns], vec![columns], vec![1, rows, 1], vec![]];
        for shape in shapes.drain(..) {
            let mut model = Model::new(operator, format!("{shape:?}"), &[rows, columns]);
            // The values are away from zero, for division.
            model.weights("w", &shape).number("two", 2.0);
            model.node("Add", &["w", "two"], "b");
            cases.push(model.call(&["x", "b"], Vec::new()).finish(3));
        }
        let mut model = Model::new(operator, "two inputs", &[1, columns]);
        model
            .input("z", DataType::Fp32, &[rows, 1])
            .number("two", 2.0);
        model.node("Add", &["z", "two"], "b");
        cases.push(model.call(&["x", "b"], Vec::new()).finish(3));
    }
    for exponent in [2.0, 0.5, 3.0, -1.5] {
        let mut model = Model::new("Pow", format!("{exponent}"), &[33]);
        model
            .number("half", 0.5)
            .number("e", exponent)
            .node("Abs", &["x"], "above");
        model.node("Add", &["above", "half"], "raised");
        cases.push(model.call(&["raised", "e"], Vec::new()).finish(2));
    }
    let mut whole = Model::new("Pow", "integers", &[4]);
    whole
        .number("four", 4.0)
        .node("Mul", &["x", "four"], "scaled")
        .integers("w", &[1, -1, 2, -3]);
    let to = vec![AttributeProto::int("to", 7)];
    whole.builder.node_with("Cast", &["scaled"], &["e"], to);
    let whole = whole.call(&["w", "e"], Vec::new());
    cases.push(whole.finish_as(DataType::Int64, 2));
    let mut fused = Model::new("Add", "then Relu", &[3, 20]);
    fused.weights("w", &[20]).node("Add", &["x", "w"], "sum");
    cases.push(fused.node("Relu", &["sum"], "y").finish(3));
    let mut integers = Model::new("Mul", "integers", &[4]);
    integers
        .input("z", DataType::Int64, &[4])
        .integers("w", &[3, -2, 7, 100]);
    integers
        .call(&["z", "w"], Vec::new())
        .output("y", DataType::Int64, 2);
    integers.node("Relu", &["x"], "r");
    let mut case = integers.finish_named("r", 2);
    case.detail = "integers".to_owned();
    cases.push(case);
    cases
}

fn logic(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for operator in ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"] {
        let [rows, columns] = dims(random);
        let mut model = Model::new(operator, "", &[rows, columns]);
        model.node("Round", &["x"], "whole").number("zero", 0.0);
        let case = model.call(&["whole", "zero"], Vec::new());
        cases.push(case.finish_as(DataType::Bool, 3));
    }
    for operator in ["And", "Or", "Xor"] {
        let mut model = Model::new(operator, "", &[60]);
        model.number("zero", 0.0).number("some", 0.3);
        model
            .node("Less", &["x", "zero"], "a")
            .node("Less", &["x", "some"], "b");
        cases.push(
            model
                .call(&["a", "b"], Vec::new())
                .finish_as(DataType::Bool, 2),
        );
    }
    let mut not = Model::new("Not", "", &[60]);
    not.number("zero", 0.0).node("Less", &["x", "zero"], "a");
    cases.push(not.call(&["a"], Vec::new()).finish_as(DataType::Bool, 2));
    let mut choose = Model::new("Where", "", &[5, 20]);
    choose
        .number("zero", 0.0)
        .weights("w", &[5, 1])
        .node("Less", &["x", "zero"], "a");
    cases.push(choose.call(&["a", "x", "w"], Vec::new()).finish(3));
    cases
}

fn others(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for (low, high) in [("low", "high"), ("low", ""), ("", "high")] {
        let mut model = Model::new("Clip", format!("{low} {high}"), &dims(random));
        model.number("low", -0.25).number("high", 0.5);
        cases.push(model.call(&["x", low, high], Vec::new()).finish(3));
    }
    let mut large = Model::new("Clip", "integers beyond 32-bit floats", &[4]);
    large
        .number("wide", 8.0)
        .node("Mul", &["x", "wide"], "scaled")
        .integers("base", &[16_777_216]);
    let to = vec![AttributeProto::int("to", 7)];
    large.builder.node_with("Cast", &["scaled"], &["c"], to);
    large
        .builder
        .constant("low", &[], &[16_777_213i64])
        .constant("high", &[], &[16_777_219i64]);
    let large = large.node("Add", &["c", "base"], "b");
    let large = large.call(&["b", "low", "high"], Vec::new());
    cases.push(large.finish_as(DataType::Int64, 2));
    let mut early = Model::new("Clip", "by attributes", &[40]);
    let bounds = vec![
        AttributeProto::float("min", -0.5),
        AttributeProto::float("max", 0.1),
    ];
    cases.push(early.opset(9).call(&["x"], bounds).finish(2));
    for (data_type, onnx) in [
        (DataType::Int64, 7),
        (DataType::Int32, 6),
        (DataType::Bool, 9),
    ] {
        let mut model = Model::new("Cast", format!("to {data_type}"), &[45]);
        model
            .number("wide", 8.0)
            .node("Mul", &["x", "wide"], "scaled");
        let to = vec![AttributeProto::int("to", onnx)];
        cases.push(model.call(&["scaled"], to).finish_as(data_type, 2));
    }
    let mut back = Model::new("Cast", "from integers", &[4]);
    back.input("z", DataType::Int64, &[4]);
    back.builder
        .node_with("Cast", &["z"], &["c"], vec![AttributeProto::int("to", 1)]);
    cases.push(back.node("Add", &["x", "c"], "y").finish(2));
    let mut dropout = Model::new("Dropout", "", &[8]);
    cases.push(dropout.call(&["x"], Vec::new()).finish(2));
    let mut prelu = Model::new("PRelu", "", &[4, 3, 5]);
    prelu.weights("w", &[4, 1, 1]);
    cases.push(prelu.call(&["x", "w"], Vec::new()).finish(4));
    cases
}

impl Model {
    /// As [`Self::finish`], with a second output.
    fn finish_named(&mut self, name: &str, rank: usize) -> Case {
        self.output(name, DataType::Fp32, rank);
        Case {
            operator: self.operator,
            detail: String::new(),
            model: self.builder.build(),
            dynamic: vec![self.rows],
            seed: 0,
        }
    }
}
