//! Which outputs a request asks for, and in which form.

use sextant_registry::ScoredOutput;
use sextant_types::{Code, NamedTensor, Tensor, TensorSpec, convert};

use crate::{
    classification::{LikelyClass, likely},
    codec::{Part, short},
    problem::Problem,
};

/// The outputs that a request asks for, and their form.
#[derive(Debug, Default)]
pub struct Selection {
    /// The outputs; if empty, all outputs in the same form.
    pub wanted: Vec<SelectedOutput>,
    /// Whether outputs without a form of their own are binary.
    pub binary: bool,
}

/// An output that a request asks for.
#[derive(Debug)]
pub struct SelectedOutput {
    /// Its name in the graph.
    pub name: String,
    /// Whether it is binary; `None`: as `Selection::binary` says.
    pub binary: Option<bool>,
    /// The number of its greatest elements that replace the whole output; 0 for the whole output.
    pub classes: usize,
    /// The part of shared memory that it is written to.
    pub part: Option<Part>,
}

/// The meaning of the columns of outputs.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Whether the first dimension counts rows.
    pub batched: bool,
    /// The output whose columns have names.
    pub scored: Option<&'a ScoredOutput>,
}

/// An output that is ready to be written.
pub struct Output {
    /// Its name and its elements.
    pub named: NamedTensor,
    /// Whether it is binary.
    pub binary: bool,
    /// The part of shared memory that it is written to; the length is that of the output.
    pub part: Option<Part>,
}

// === impl Selection ===

impl Selection {
    /// Refuses outputs that the model does not have, and outputs that are named twice.
    pub fn check(&self, known: &[TensorSpec]) -> Result<(), Problem> {
        let refuse = |detail: String| {
            let problem = Problem::new(Code::InvalidTensor, detail);
            Err(problem.field("outputs"))
        };
        for (index, chosen) in self.wanted.iter().enumerate() {
            let name = short(&chosen.name);
            if known.iter().all(|spec| spec.name != chosen.name) {
                return refuse(format!("the model has no output `{name}`"));
            }
            let before = &self.wanted[..index];
            if before.iter().any(|other| other.name == chosen.name) {
                return refuse(format!("output `{name}` is asked for twice"));
            }
        }
        Ok(())
    }

    /// Whether a selected output has classes, which may have names.
    pub fn any_classes(&self) -> bool {
        self.wanted.iter().any(|chosen| chosen.classes > 0)
    }

    /// The selected outputs out of all, in the model's order.
    pub fn of(
        &self,
        outputs: Vec<NamedTensor>,
        columns: Columns<'_>,
    ) -> Result<Vec<Output>, Problem> {
        let mut wanted = Vec::with_capacity(outputs.len());
        for named in outputs {
            let chosen = self.wanted.iter().find(|chosen| chosen.name == named.name);
            if chosen.is_none() && !self.wanted.is_empty() {
                continue;
            }
            let named = match chosen.map_or(0, |chosen| chosen.classes) {
                0 => named,
                k => classified(&named, k, columns)?,
            };
            wanted.push(Output {
                named,
                part: chosen.and_then(|chosen| chosen.part.clone()),
                binary: chosen
                    .and_then(|chosen| chosen.binary)
                    .unwrap_or(self.binary),
            });
        }
        Ok(wanted)
    }
}

/// The classification extension: the `k` greatest elements of each row as `score:position:name`. The position counts
/// through all elements of the row.
fn classified(
    output: &NamedTensor,
    k: usize,
    Columns { batched, scored }: Columns<'_>,
) -> Result<NamedTensor, Problem> {
    let refuse = || {
        let name = short(&output.name);
        let detail = format!("output `{name}` has no numbers whose greatest could be its classes");
        Problem::new(Code::InvalidTensor, detail).field("outputs")
    };
    let tensor = &output.tensor;
    let rows = if batched { tensor.rows().max(1) } else { 1 };
    let columns = tensor.len() / rows;
    let likely = likely(tensor, columns, k).filter(|_| columns > 0);
    let likely = likely.ok_or_else(refuse)?;
    let names = scored
        .filter(|scored| scored.output == output.name)
        .map_or(&[][..], |scored| &scored.classes);
    let is_float = convert::is_float(tensor.data_type());
    let text = |of: &LikelyClass| {
        let LikelyClass { class, score } = *of;
        let score = match is_float {
            true => format!("{score:.6}"),
            false => format!("{score}"),
        };
        match names.get(class) {
            Some(name) => format!("{score}:{class}:{name}"),
            None => format!("{score}:{class}"),
        }
    };
    let width = likely.first().map_or(0, Vec::len);
    let texts = likely.iter().flatten().map(text);
    let shape = match batched {
        true => vec![likely.len(), width],
        false => vec![width],
    };
    let tensor = Tensor::from_strings(shape, texts);
    let tensor = tensor.map_err(|_| refuse())?;
    Ok(NamedTensor::new(output.name.clone(), tensor))
}
