//! The most likely classes of an answer, by name if the model's classes have names.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_registry::{Registry, ScoredOutput};
use sextant_types::{Code, DataType, ModelId, NamedTensor, Tensor, convert};

use crate::{codec::write, problem::Problem};

/// How long the outputs of a model are remembered: another process may delete the model and register another one under
/// its name.
const BELIEVED: Duration = Duration::from_secs(10);

/// Most models that are remembered.
const MOST_MODELS: usize = 1024;

/// Which outputs of models have classes, and the names of the classes.
#[derive(Debug, Default)]
pub struct Classes(Mutex<HashMap<ModelId, (Instant, Named)>>);

/// `None`: it is not known which output is scored.
type Named = Option<Arc<ScoredOutput>>;

/// One of the most likely classes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LikelyClass {
    /// The class's column.
    pub class: usize,
    /// The model's value for the class.
    pub score: f64,
}

/// The `k` greatest elements of each row, the first of equal ones first. A row has `columns` elements.
pub fn likely(tensor: &Tensor, columns: usize, k: usize) -> Option<Vec<Vec<LikelyClass>>> {
    let scores: Vec<f64> = convert::numbers(tensor)?
        .map(convert::Number::real)
        .collect();
    let of_row = |row: &[f64]| {
        let each = row.iter().enumerate();
        let mut all: Vec<LikelyClass> = each
            .map(|(class, score)| LikelyClass {
                class,
                score: *score,
            })
            .collect();
        // NaN never ranks first.
        let rank = |of: &LikelyClass| match of.score.is_nan() {
            true => f64::NEG_INFINITY,
            false => of.score,
        };
        let greater = |a: &LikelyClass, b: &LikelyClass| {
            let by_score = rank(b).total_cmp(&rank(a));
            by_score.then_with(|| a.class.cmp(&b.class))
        };
        let k = k.min(all.len());
        if k > 0 && k < all.len() {
            all.select_nth_unstable_by(k - 1, greater);
        }
        all.truncate(k);
        all.sort_unstable_by(greater);
        all
    };
    Some(scores.chunks(columns.max(1)).map(of_row).collect())
}

/// The `k` most likely classes of an answer: from the output that is scored, or else from the first output.
pub struct Top<'a> {
    /// Number of classes for each row.
    pub k: usize,
    /// All outputs of the answer.
    pub outputs: &'a [NamedTensor],
    /// Whether the first dimension counts rows.
    pub batched: bool,
    /// The output that is scored; `None` if that is not known.
    pub scored: Option<&'a ScoredOutput>,
}

impl Top<'_> {
    /// Appends `[[{"class":3,"name":"three","score":0.9},..],..]`: a list for each vector along the last axis.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let named = |name: &str| self.outputs.iter().find(|it| it.name == name);
        let scored = self.scored.and_then(|scored| named(&scored.output));
        let Some(output) = scored.or_else(|| self.outputs.first()) else {
            return Err(refuse("the model has no outputs"));
        };
        let shape = output.tensor.shape();
        let axes = &shape[usize::from(self.batched).min(shape.len())..];
        let columns = axes.last().filter(|columns| **columns > 0);
        let likely = columns.and_then(|columns| likely(&output.tensor, *columns, self.k));
        let Some(likely) = likely else {
            return Err(refuse(&format!(
                "output `{}` has no axis of numbers whose greatest could be its classes",
                output.name
            )));
        };
        let names = self
            .scored
            .filter(|scored| scored.output == output.name)
            .map_or(&[][..], |scored| &scored.classes);
        write::list(out, &likely, |out, row| {
            write::list(out, row, |out, likely| {
                out.extend_from_slice(b"{\"class\":");
                write::integer(out, likely.class);
                if let Some(name) = names.get(likely.class) {
                    out.extend_from_slice(b",\"name\":");
                    write::string(out, name);
                }
                out.extend_from_slice(b",\"score\":");
                // The scores are written as the outputs are: the shortest decimal of their own width.
                match output.tensor.data_type() {
                    DataType::Fp32 | DataType::Fp16 | DataType::Bf16 => {
                        write::float(out, likely.score as f32);
                    }
                    _ => write::float(out, likely.score),
                }
                out.push(b'}');
            });
        });
        Ok(())
    }
}

fn refuse(detail: &str) -> Problem {
    Problem::new(Code::InvalidRequest, detail).field("classification")
}

// === impl Classes ===

impl Classes {
    /// The output of a model that is scored, and its classes.
    pub async fn of(&self, model: &ModelId, registry: &Registry) -> Result<Named, Problem> {
        let known = self.0.lock().get(model).cloned();
        if let Some((read, named)) = known
            && read.elapsed() < BELIEVED
        {
            return Ok(named);
        }
        let named = match registry.scored_output(model).await {
            // The model was deleted after it answered.
            Err(sextant_registry::Error::NotFound { .. }) => None,
            read => read?.map(Arc::new),
        };
        let mut models = self.0.lock();
        if models.len() >= MOST_MODELS {
            models.clear();
        }
        models.insert(model.clone(), (Instant::now(), named.clone()));
        Ok(named)
    }
}
