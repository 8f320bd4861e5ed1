//! Loaded models: the parsed file, and the sessions that are made from it.

use std::{ops::RangeInclusive, sync::Arc, thread};

use openvino::{Core, Model};
use parking_lot::Mutex;
use sextant_engine::{
    Error, GRAPH_FILE, LiveMap, LoadRequest, LoadedModel, ModelFile, Pool, WeightsFolder,
    blame_empty, check_indices, check_inputs, check_integers,
};
use sextant_types::{Digest, NamedTensor, Precision, Signature, Tensor};

use crate::{
    failure,
    session::{Session, runs_by_sizes},
    tensors,
};

/// The models that are loaded now.
#[derive(Default)]
pub(crate) struct Models {
    read: LiveMap<Digest, ParsedModel>,
    models: LiveMap<(Digest, Precision, u16), OpenvinoModel>,
}

/// A parsed file, with its weights.
pub(crate) struct ParsedModel {
    /// Locked by the thread that makes a session from it.
    pub(crate) model: Mutex<Model>,
    pub(crate) signature: Signature,
    /// Whether only the sizes of inputs can make a run fail.
    pub(crate) by_sizes: bool,
    /// The allowed values of inputs that are looked up in tables: for other values, OpenVINO answers zeros silently.
    indices: Vec<(String, RangeInclusive<i64>)>,
    weights_bytes: u64,
    /// The folder of a large model: OpenVINO reads weights in place until it has reordered them.
    _folder: Option<Arc<WeightsFolder>>,
}

/// One way to run an artefact.
struct OpenvinoModel {
    read: Arc<ParsedModel>,
    pool: Arc<Pool<Session>>,
}

impl Models {
    /// The live model of the request, or a new one.
    pub(crate) fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let threads = request.threads.max(1);
        let key = (request.artefact, request.precision, threads);
        let open = || {
            let read = self
                .read
                .get_or_make(request.artefact, || ParsedModel::open(request))?;
            OpenvinoModel::new(read, request.precision, threads)
        };
        let model = self.models.get_or_make(key, open)?;
        Ok(model)
    }

    /// Bytes of the weights that were read and are held now.
    pub(crate) fn resident_weights_bytes(&self) -> u64 {
        let read = self.read.values();
        read.iter().map(|read| read.weights_bytes).sum()
    }
}

// === impl ParsedModel ===

impl ParsedModel {
    fn open(request: &LoadRequest) -> Result<Self, Error> {
        let info = sextant_onnx::inspect(&request.model.graph)
            .map_err(|error| Error::InvalidModel(error.to_string()))?;
        tensors::refuse_types(&info.signature)?;
        check_integers(info.wide_output.as_deref())?;
        // OpenVINO treats `layout` 1 as 0, and answers wrongly.
        if let Some(operator) = &info.batch_first {
            let reason = format!("operator `{operator}` with the attribute `layout` other than 0");
            return Err(Error::Unsupported(reason));
        }
        let mut core = Core::new().map_err(|error| Error::Failed(error.to_string()))?;
        let model = match mapped(&request.model)? {
            Some(file) => core.read_model_from_file(&file, ""),
            None => core.read_model_from_buffer(&request.model.whole()?, None),
        };
        Ok(Self {
            model: Mutex::new(model.map_err(|error| failure::load(&error))?),
            _folder: request.model.weights.clone(),
            by_sizes: runs_by_sizes(&info.op_types),
            indices: info.indices,
            signature: info.signature,
            weights_bytes: info.weights_bytes,
        })
    }
}

/// The path of a large model's graph, whose weights are mapped; `None` for other models, and for a graph that is not
/// the file's.
fn mapped(model: &ModelFile) -> Result<Option<String>, Error> {
    let Some((graph, folder)) = model.located()? else {
        return Ok(None);
    };
    let file = folder.path().join(GRAPH_FILE);
    let is_same = std::fs::read(&file).is_ok_and(|it| it == graph);
    Ok(file.to_str().filter(|_| is_same).map(str::to_owned))
}

// === impl OpenvinoModel ===

impl OpenvinoModel {
    fn new(read: Arc<ParsedModel>, precision: Precision, threads: u16) -> Result<Self, Error> {
        let first = Session::open(&read, precision, threads)?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let source = Arc::clone(&read);
        let limit = (cores / usize::from(threads)).max(1);
        let open = move || Session::open(&source, precision, threads);
        Ok(Self {
            read,
            pool: Arc::new(Pool::new(first, limit, open)),
        })
    }
}

impl LoadedModel for OpenvinoModel {
    fn signature(&self) -> &Signature {
        &self.read.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        check_inputs(&self.read.signature, inputs)?;
        inputs.iter().try_for_each(tensors::check_range)?;
        check_indices(&self.read.indices, inputs)?;
        let outputs = &self.read.signature.outputs;
        let ran = self.pool.with(|session| session.run(inputs, outputs));
        ran.map_err(|error| blame_empty(error, inputs))
    }

    fn weights_bytes(&self) -> u64 {
        self.read.weights_bytes
    }
}
