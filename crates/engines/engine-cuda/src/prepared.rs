//! An artefact at one precision, prepared on the host before it is on the device: the graph, the contents of the pages,
//! and a program for each set of input shapes.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use sextant_engine::{Error, Shortage};
use sextant_types::{DataType, Signature, TensorSpec};

use crate::{
    arena::SpaceLease,
    device::Images,
    lower::{Graph, Target, Weights, lower},
    parked::ParkedState,
    plan::{Packing, Program},
};

/// Sizes that are tried for dynamic dimensions other than the batch. So the weights are known, and unsupported
/// operators are reported, before a batch comes.
const TRIALS: [u64; 5] = [8, 32, 224, 128, 1];

/// Rows of a batch while sizes are tried. Hardly any other dimension has this size.
const ROWS_TRIED: u64 = 3;

/// Shapes of all inputs.
pub(crate) type Shapes = Vec<Vec<u64>>;

/// How batches are fitted to planned programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Largest batch that is planned in advance.
    pub largest_batch: u64,
    pub workspace_bytes: u64,
}

/// What a model has besides its weights, whichever pages they get.
pub(crate) struct Places {
    /// The contents of the pages, on the host.
    pub images: Images,
    /// Where the model reads its pages; `None` where it reads them in the arena.
    pub window: Option<SpaceLease>,
}

/// A prepared artefact; see the module.
pub(crate) struct PreparedModel {
    pub signature: Signature,
    graph: Graph,
    target: Target,
    weights: Mutex<Weights>,
    pub weights_bytes: u64,
    pub packing: Packing,
    pub places: Places,
    /// What the model left on the device the last time.
    pub parked: Mutex<ParkedState>,
    /// The programs that were planned while the artefact was prepared.
    pub programs: BTreeMap<Shapes, Arc<Program>>,
    /// Whether a batch may run in a program for more rows.
    pub padded: bool,
    limits: Limits,
}

// === impl PreparedModel ===

impl PreparedModel {
    /// Reads, lowers and packs a file.
    ///
    /// `place` finds places for the contents of the pages.
    pub fn new(
        file: &Bytes,
        target: Target,
        limits: Limits,
        place: impl FnOnce(Vec<Bytes>) -> Places,
    ) -> Result<Self, Error> {
        let (signature, graph) = read(file)?;
        let mut weights = Weights::default();
        let (programs, padded) = plan_all(&graph, &signature, target, limits, &mut weights)?;
        weights.freeze();
        let sizes: Vec<u64> = weights
            .contents()
            .iter()
            .map(|it| it.len() as u64)
            .collect();
        let packing = Packing::new(&sizes, target.page_bytes);
        let places = place(packing.images(weights.contents()));
        let weights_bytes = weights.bytes();
        weights.drop_contents();
        Ok(Self {
            signature,
            graph,
            target,
            weights: Mutex::new(weights),
            weights_bytes,
            packing,
            places,
            parked: Mutex::default(),
            programs,
            padded,
            limits,
        })
    }

    /// The shapes of the program that runs inputs of these shapes. They are the same, except that a batch is rounded up
    /// to the next planned size.
    pub fn shapes(&self, inputs: &[Vec<usize>]) -> Shapes {
        let rows = inputs.first().and_then(|dims| dims.first().copied());
        let padded = planned_rows(rows.unwrap_or(1) as u64, self.limits.largest_batch);
        let shape = |dims: &Vec<usize>| {
            let mut dims: Vec<u64> = dims.iter().map(|it| *it as u64).collect();
            if self.padded {
                dims[0] = padded;
            }
            dims
        };
        inputs.iter().map(shape).collect()
    }

    /// Plans a program while a batch waits for it.
    pub fn plan(&self, shapes: &[Vec<u64>]) -> Result<Arc<Program>, Error> {
        if let Some(program) = self.programs.get(shapes) {
            return Ok(Arc::clone(program));
        }
        let mut weights = self.weights.lock();
        let program = plan(&self.graph, shapes, self.target, &mut weights);
        let program = program.map_err(|error| match error {
            Error::InvalidModel(reason) => Error::InvalidInput(reason),
            other => other,
        })?;
        if program.workspace_bytes > self.limits.workspace_bytes {
            return Err(Error::OutOfMemory(Shortage::fixed(format!(
                "inputs of shapes {shapes:?} need {} bytes of workspace, there are {}",
                program.workspace_bytes, self.limits.workspace_bytes
            ))));
        }
        Ok(Arc::new(program))
    }
}

/// The signature and the graph of a file.
pub(crate) fn read(file: &Bytes) -> Result<(Signature, Graph), Error> {
    let info = sextant_onnx::inspect(file);
    let info = info.map_err(|error| Error::InvalidModel(error.to_string()))?;
    let signature = info.signature;
    let ports = |specs: &[TensorSpec]| -> Vec<(String, DataType)> {
        let port = |spec: &TensorSpec| (spec.name.clone(), spec.data_type);
        specs.iter().map(port).collect()
    };
    let graph = Graph::read(file, ports(&signature.inputs), ports(&signature.outputs))?;
    Ok((signature, graph))
}

/// The sizes 1, 2, 4, .. up to the largest batch, and that itself.
pub(crate) fn batch_sizes(largest: u64) -> Vec<u64> {
    let powers = (0..64).map(|power| 1u64 << power);
    let mut sizes: Vec<u64> = powers.take_while(|size| *size < largest).collect();
    sizes.push(largest.max(1));
    sizes
}

/// Rows of the program that runs a batch: the next planned size. A batch above the largest planned size has a program
/// of its own.
fn planned_rows(rows: u64, largest: u64) -> u64 {
    let sizes = batch_sizes(largest);
    sizes.into_iter().find(|size| *size >= rows).unwrap_or(rows)
}

/// Programs for all shapes that are known now, and whether every output has the rows of the batch. Batch sizes whose
/// workspace is too large are left out; the smallest size must fit.
fn plan_all(
    graph: &Graph,
    signature: &Signature,
    target: Target,
    limits: Limits,
    weights: &mut Weights,
) -> Result<(BTreeMap<Shapes, Arc<Program>>, bool), Error> {
    let inner = signature.inputs.iter().flat_map(|spec| {
        let skipped = usize::from(signature.batched);
        spec.shape.iter().skip(skipped)
    });
    if inner.clone().any(Option::is_none) {
        let tried = try_sizes(graph, signature, target, weights)?;
        return Ok((
            BTreeMap::new(),
            signature.batched && tried.has_rows(ROWS_TRIED),
        ));
    }
    let sizes = if signature.batched {
        batch_sizes(limits.largest_batch)
    } else {
        vec![1]
    };
    let mut programs = BTreeMap::new();
    let mut padded = signature.batched;
    for rows in sizes {
        let shapes = shapes(signature, rows, 1);
        let program = plan(graph, &shapes, target, weights)?;
        padded &= program.has_rows(rows);
        if program.workspace_bytes <= limits.workspace_bytes {
            programs.insert(shapes, Arc::new(program));
            continue;
        }
        if programs.is_empty() {
            return Err(Error::OutOfMemory(Shortage::fixed(format!(
                "a batch of {rows} needs {} bytes of workspace, there are {}",
                program.workspace_bytes, limits.workspace_bytes
            ))));
        }
        break;
    }
    Ok((programs, padded))
}

/// Lowers a graph with the first trial size of its dynamic dimensions that it accepts.
fn try_sizes(
    graph: &Graph,
    signature: &Signature,
    target: Target,
    weights: &mut Weights,
) -> Result<Program, Error> {
    let mut last = None;
    for size in TRIALS {
        let mut tried = Weights::default();
        let rows = if signature.batched { ROWS_TRIED } else { size };
        match plan(graph, &shapes(signature, rows, size), target, &mut tried) {
            Ok(program) => {
                *weights = tried;
                return Ok(program);
            }
            Err(Error::InvalidModel(reason)) => last = Some(reason),
            Err(other) => return Err(other),
        }
    }
    Err(Error::Unsupported(format!(
        "its dynamic dimensions accept none of the sizes {TRIALS:?}: {}",
        last.unwrap_or_default()
    )))
}

/// Shapes of all inputs for a batch of `rows`; other open dimensions have the size `inner`.
pub(crate) fn shapes(signature: &Signature, rows: u64, inner: u64) -> Shapes {
    let shape = |spec: &TensorSpec| {
        let dims = spec.shape.iter().enumerate();
        dims.map(|(axis, size)| size.unwrap_or(if axis == 0 { rows } else { inner }))
            .collect()
    };
    signature.inputs.iter().map(shape).collect()
}

fn plan(
    graph: &Graph,
    shapes: &[Vec<u64>],
    target: Target,
    weights: &mut Weights,
) -> Result<Program, Error> {
    Ok(Program::plan(lower(graph, shapes, &target, weights)?))
}
