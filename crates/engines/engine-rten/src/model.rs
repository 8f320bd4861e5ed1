//! A handle: shared weights and threads of its own.

use std::sync::Arc;

use rten::{NodeId, RunErrorKind, RunOptions, ThreadPool, ValueOrView};
use sextant_engine::{Error, LoadedModel, blame_empty, check_indices, check_inputs};
use sextant_types::{NamedTensor, Signature, Tensor, TensorSpec};

use crate::{Shared, guarded, shorten, values};

/// rten's message about an operator that does not accept the value of an input.
const INVALID_VALUE: &str = "has invalid value";

pub(crate) struct RtenModel {
    shared: Arc<Shared>,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    options: RunOptions,
}

impl RtenModel {
    pub(crate) fn new(shared: Arc<Shared>, pool: Arc<ThreadPool>) -> Result<Self, Error> {
        let ids = |specs: &[TensorSpec]| {
            specs
                .iter()
                .map(|spec| shared.model.node_id(&spec.name))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| Error::InvalidModel(shorten(&error.to_string())))
        };
        Ok(Self {
            inputs: ids(&shared.signature.inputs)?,
            outputs: ids(&shared.signature.outputs)?,
            options: RunOptions::default().with_thread_pool(Some(pool)),
            shared,
        })
    }
}

impl LoadedModel for RtenModel {
    fn signature(&self) -> &Signature {
        &self.shared.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        check_inputs(&self.shared.signature, inputs)?;
        check_indices(&self.shared.indices, inputs)?;
        let values = self
            .inputs
            .iter()
            .zip(inputs)
            .map(|(id, input)| Ok((*id, values::input(input)?)))
            .collect::<Result<Vec<(NodeId, ValueOrView<'_>)>, Error>>()?;
        let options = Some(self.options.clone());
        let outputs = guarded("run", || {
            self.shared.model.run(values, &self.outputs, options)
        })?
        .map_err(|error| blame_empty(run_error(&error), inputs))?;
        self.shared
            .signature
            .outputs
            .iter()
            .zip(outputs)
            .map(|(spec, value)| values::output(spec, value))
            .collect()
    }

    fn weights_bytes(&self) -> u64 {
        self.shared.weights_bytes
    }
}

fn run_error(error: &rten::RunError) -> Error {
    let message = shorten(&error.to_string());
    match error.kind() {
        RunErrorKind::InvalidInput => Error::InvalidInput(message),
        // An index that was computed from the inputs lies outside the table.
        RunErrorKind::OperatorError if message.contains(INVALID_VALUE) => {
            Error::InvalidInput(message)
        }
        _ => Error::Failed(message),
    }
}
