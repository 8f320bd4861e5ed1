//! Which outputs a request wants, and in which form.

use sextant_registry::ScoredOutput;
use sextant_types::{Code, NamedTensor, Tensor, TensorSpec, convert};

use crate::{
    classification::{LikelyClass, likely},
    codec::{Part, short},
    problem::Problem,
};

/// Which outputs are wanted and how.
#[derive(Debug, Default)]
pub struct Selection {
    /// All in the same form where it is empty.
    pub wanted: Vec<SelectedOutput>,
    /// Whether outputs are binary of which nothing else is said.
    pub binary: bool,
}

/// An output that is wanted.
#[derive(Debug)]
pub struct SelectedOutput {
    /// Its name in the graph.
    pub name: String,
    /// Whether it is binary; `None`: as the others.
    pub binary: Option<bool>,
    /// So many of its greatest elements in place of all; 0 for all.
    pub classes: usize,
    /// Where in shared memory it is wanted.
    pub part: Option<Part>,
}

/// What the columns of outputs stand for.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Whether the first dimension counts rows.
    pub batched: bool,
    /// The output whose columns have names.
    pub scored: Option<&'a ScoredOutput>,
}

/// A wanted output, ready to be written.
pub struct Output {
    /// Its name and its elements.
    pub named: NamedTensor,
    /// Whether it is binary.
    pub binary: bool,
    /// Where in shared memory it is; its length there is that of the output.
    pub part: Option<Part>,
}

// === impl Selection ===

impl Selection {
    /// Refuses outputs that the model does not have, and those that are wanted twice.
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

    /// Whether classes are wanted, which may have names.
    pub fn any_classes(&self) -> bool {
        self.wanted.iter().any(|chosen| chosen.classes > 0)
    }

    /// The wanted outputs of all, in the model's order.
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

/// The classification extension: of each row its `k` greatest elements as `score:position:name`, all that a row
/// has counted through.
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
