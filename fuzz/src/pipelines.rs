//! A definition of a pipeline.

use std::{collections::BTreeMap, sync::LazyLock};

use bytes::Bytes;
use sextant_pipeline::{CheckContext, Definition, Graph, Target};
use sextant_rpc::QueryError;
use sextant_types::{DataType, Metric, Route, Signature, Targets, TensorSpec};

/// The files that a definition may name.
static FILES: LazyLock<BTreeMap<String, Bytes>> = LazyLock::new(|| {
    let files = [
        ("f.py", "def f(x):\n    return x\n"),
        ("l.txt", "-\na\nb\n"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), Bytes::from(text)));
    files.into_iter().collect()
});

/// A definition in JSON or YAML that is checked, or refused with a reason. What is accepted can be drawn, and is the same when
/// it is written and read again.
pub fn pipeline(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let definition: Definition = match serde_saphyr::from_str(text) {
        Ok(definition) => definition,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let known = CheckContext {
        targets: &target,
        files: &FILES,
    };
    match Graph::new(definition.clone(), &known) {
        Ok(graph) => {
            assert!(!graph.text().is_empty() && graph.svg().contains("</svg>"));
            assert!(!graph.signature.outputs.is_empty());
            let written = serde_json::to_string(&definition).expect("a definition is JSON");
            let read: Definition =
                serde_json::from_str(&written).expect("what was written is read");
            assert!(
                Graph::new(read, &known).is_ok(),
                "what was accepted is refused: {written}"
            );
        }
        Err(invalid) => assert!(!invalid.why.is_empty()),
    }
}

/// Whatever is asked takes two rows of numbers and gives scores.
fn target(_: &Route) -> Result<Target, QueryError> {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(2)],
    };
    Ok(Target {
        signature: Signature {
            inputs: vec![spec("x")],
            outputs: vec![spec("scores")],
            batched: true,
        },
        metric: Some(Metric::Top1),
        defaults: Targets::default(),
    })
}
