//! INPUT, EXEC and OUTPUT of one batch (Clockwork, section 5.2).
//!
//! The parts of a batch are queries of different users, and no part may spoil the others. A part that the model does
//! not accept is answered alone, before EXEC. The others run joined. If they cannot be joined, or if the joined run
//! fails, EXEC is one run for each part. These runs are the way in which this batch is executed, inside its window, and
//! not a second attempt: no part that has been answered runs again, and the times in the result cover all runs. The
//! time limit holds for each run: if one part does not end and the joined run is ended for that reason, the other parts
//! are still answered.
//!
//! A joined run counts only if each output has exactly as many rows as were put in. With any other number the rows
//! cannot be assigned to queries. Then the parts run one by one, and so do the parts of all later batches of the
//! instance.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sextant_engine::{Error, Interrupt, StagedBatch, check_inputs};
use sextant_rpc::InferError;
use sextant_types::{Amounts, InvalidTensor, NamedTensor, Padding, Tensor};

use super::open::{WatchSlot, failure};
use crate::instance::Instance;

/// The outputs of each part, or the error of that part alone.
pub(super) type Outputs = Vec<PartOutputs>;

/// The outputs of one part, or the error of that part alone.
type PartOutputs = Result<Vec<Tensor>, InferError>;

/// A batch after INPUT.
pub(super) struct PreparedBatch {
    pub(super) instance: Arc<Instance>,
    parts: Vec<Vec<NamedTensor>>,
    /// For the parts that the model does not accept, by index: the reason.
    faults: BTreeMap<usize, String>,
    /// `None` if the parts run one by one.
    joined: Option<BatchInputs>,
    /// The length to which the parts of the joined inputs were padded.
    padded: Option<u64>,
    /// Duration of INPUT.
    pub(super) took: Duration,
}

/// The parts' inputs as one batch.
pub(super) struct BatchInputs {
    /// Empty for a lone part, whose own inputs are used, and if the engine has joined the inputs.
    inputs: Vec<NamedTensor>,
    /// The length to which the parts were padded.
    padded: Option<u64>,
    staged: Option<Box<dyn StagedBatch>>,
}

/// A batch after EXEC.
pub(super) enum ExecutedBatch {
    /// The joined outputs on the device, and the duration of EXEC on the device's clock.
    Staged(Box<dyn StagedBatch>, Option<Duration>),
    /// The joined outputs.
    Joined(Vec<Tensor>),
    /// The outputs of each part.
    Apart(Outputs),
}

impl PreparedBatch {
    /// INPUT: checks the parts, joins them and takes them to the device. The caller notes its duration.
    pub(super) fn new(
        instance: Arc<Instance>,
        parts: Vec<Vec<NamedTensor>>,
    ) -> Result<Self, Error> {
        let signature = instance.model.signature();
        let mut faults = BTreeMap::new();
        for (at, part) in parts.iter().enumerate() {
            if let Err(error) = check_inputs(signature, part) {
                faults.insert(at, fault_text(error));
            }
        }
        let good = parts.len() - faults.len();
        if good == 0 {
            let fault = faults.pop_first().map(|(_, fault)| fault);
            let reason = fault.unwrap_or_else(|| "the batch has no parts".to_owned());
            return Err(Error::InvalidInput(reason));
        }
        let mut prepared = Self {
            instance,
            parts,
            faults,
            joined: None,
            padded: None,
            took: Duration::ZERO,
        };
        prepared.joined = match prepared.stage() {
            Err(error) if error.is_loss() || matches!(error, Error::OutOfMemory(_)) => {
                return Err(error);
            }
            Err(error) if good == 1 => return Err(error),
            // The inputs of one part alone may have caused the failure.
            Err(_) => None,
            Ok(joined) => joined,
        };
        prepared.padded = prepared.joined.as_ref().and_then(|joined| joined.padded);
        Ok(prepared)
    }

    fn stage(&self) -> Result<Option<BatchInputs>, Error> {
        let (inputs, padded) = match self.lone() {
            Some(_) => (Vec::new(), None),
            None if !self.instance.shares_batches() => return Ok(None),
            None => {
                let staged = self.stage_joined()?;
                if staged.is_some() {
                    let (inputs, padded) = (Vec::new(), None);
                    return Ok(Some(BatchInputs {
                        inputs,
                        padded,
                        staged,
                    }));
                }
                match self.join() {
                    Some(joined) => joined,
                    None => return Ok(None),
                }
            }
        };
        let given = self.lone().unwrap_or(&inputs);
        let staged = self.instance.call(|| self.instance.model.stage(given))?;
        Ok(Some(BatchInputs {
            inputs,
            padded,
            staged,
        }))
    }

    /// Lets the engine join the parts on their way to the device, if none is padded.
    fn stage_joined(&self) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        let (instance, variant) = (&self.instance, &self.instance.variant);
        let parts: Vec<&[NamedTensor]> = self.good().collect();
        if variant.padding.is_some() {
            let lengths = parts.iter();
            let mut lengths = lengths.map(|part| Padding::length(&variant.signature, part));
            let first = lengths.next().flatten();
            if first.is_none() || lengths.any(|length| length != first) {
                return Ok(None);
            }
        }
        instance.call(|| instance.model.stage_joined(&parts))
    }

    /// The parts as one batch, and the length to which they are padded, if they are padded. `None` if their sizes
    /// differ and the variant does not say how to pad them.
    fn join(&self) -> Option<(Vec<NamedTensor>, Option<u64>)> {
        let parts: Vec<&[NamedTensor]> = self.good().collect();
        let variant = &self.instance.variant;
        let Some(padding) = &variant.padding else {
            return Some((join(&parts)?, None));
        };
        let lengths = parts.iter();
        let lengths: Option<Vec<u64>> = lengths
            .map(|part| Padding::length(&variant.signature, part))
            .collect();
        // A part with several lengths shares a batch only with parts of equal lengths.
        let Some(longest) = lengths.as_ref().and_then(|of| of.iter().copied().max()) else {
            return Some((join(&parts)?, None));
        };
        if lengths.is_some_and(|of| of.iter().all(|length| *length == longest)) {
            return Some((join(&parts)?, None));
        }
        let padded = parts.iter();
        let padded = padded.map(|part| padding.pad(&variant.signature, part, longest));
        let padded: Vec<Vec<NamedTensor>> = padded.collect::<Result<_, _>>().ok()?;
        let parts: Vec<&[NamedTensor]> = padded.iter().map(Vec::as_slice).collect();
        Some((join(&parts)?, Some(longest)))
    }

    /// The parts that the model accepts.
    fn good(&self) -> impl Iterator<Item = &[NamedTensor]> {
        let parts = self.parts.iter().enumerate();
        let good = parts.filter(|(at, _)| !self.faults.contains_key(at));
        good.map(|(_, part)| part.as_slice())
    }

    /// The only part that the model accepts, if there is exactly one.
    fn lone(&self) -> Option<&[NamedTensor]> {
        let mut good = self.good();
        let first = good.next()?;
        good.next().is_none().then_some(first)
    }

    /// Rows of the parts that the model accepts.
    pub(super) fn rows(&self) -> usize {
        self.good().map(rows_of).sum()
    }

    /// What the parts that the model accepts need beside EXEC.
    pub(super) fn amounts(&self) -> Amounts {
        let inputs = self.good().flatten();
        let bytes: usize = inputs.map(|input| input.tensor.held_bytes()).sum();
        Amounts {
            queries: (self.parts.len() - self.faults.len()) as f64,
            rows: self.rows() as f64,
            bytes: bytes as f64,
        }
    }

    /// Takes out what holds memory of the device. For a batch whose instance has left.
    pub(super) fn leave(&mut self) -> (Option<BatchInputs>, Arc<Instance>) {
        (self.joined.take(), Arc::clone(&self.instance))
    }

    /// Undoes INPUT. For a batch whose instance has left.
    pub(super) fn into_parts(self) -> Vec<Vec<NamedTensor>> {
        self.parts
    }

    /// EXEC. Fails as a whole only if no part can be answered.
    pub(super) fn exec(&mut self, watched: &WatchSlot) -> Result<ExecutedBatch, Error> {
        let Some(joined) = self.joined.take() else {
            return self.exec_apart(watched);
        };
        match self.exec_joined(joined, watched) {
            Ok(ran) => Ok(ran),
            Err(error) if error.is_loss() => Err(error),
            Err(error) if self.lone().is_some() => Err(error),
            Err(_) => self.exec_apart(watched),
        }
    }

    fn exec_joined(
        &self,
        joined: BatchInputs,
        watched: &WatchSlot,
    ) -> Result<ExecutedBatch, Error> {
        let (instance, interrupt) = (&self.instance, next_run(watched)?);
        if let Some(mut staged) = joined.staged {
            let device = instance.run(|| staged.exec())?;
            return Ok(ExecutedBatch::Staged(staged, device));
        }
        let inputs = self.lone().unwrap_or(&joined.inputs);
        let outputs = instance.run(|| instance.model.run_interruptible(inputs, &interrupt))?;
        self.check_rows(&outputs)?;
        Ok(ExecutedBatch::Joined(outputs))
    }

    /// Refuses joined outputs whose rows cannot be assigned to parts.
    fn check_rows(&self, outputs: &[Tensor]) -> Result<(), Error> {
        let rows = self.rows();
        let has_them = |output: &Tensor| output.shape().first() == Some(&rows);
        if self.lone().is_some() || outputs.iter().all(has_them) {
            return Ok(());
        }
        self.instance.keep_apart();
        Err(other_rows())
    }

    fn exec_apart(&self, watched: &WatchSlot) -> Result<ExecutedBatch, Error> {
        let mut alone = |part: &[NamedTensor]| match self.exec_alone(part, watched) {
            Err(error) if error.is_loss() || matches!(error, Error::Restarted(_)) => Err(error),
            outputs => Ok(outputs.map_err(|error| failure(&error))),
        };
        self.answer(&mut alone).map(ExecutedBatch::Apart)
    }

    /// Maps each part that the model accepts with `good`, and each other part to its fault.
    fn answer(
        &self,
        good: &mut dyn FnMut(&[NamedTensor]) -> Result<PartOutputs, Error>,
    ) -> Result<Outputs, Error> {
        let parts = self.parts.iter().enumerate();
        parts
            .map(|(at, part)| match self.faults.get(&at) {
                Some(fault) => Ok(Err(InferError::BadShape(fault.clone()))),
                None => good(part),
            })
            .collect()
    }

    fn exec_alone(&self, part: &[NamedTensor], watched: &WatchSlot) -> Result<Vec<Tensor>, Error> {
        let (model, interrupt) = (&self.instance.model, next_run(watched)?);
        self.instance.run(|| match model.stage(part)? {
            None => model.run_interruptible(part, &interrupt),
            Some(mut staged) => {
                staged.exec()?;
                staged.collect()
            }
        })
    }

    /// Cuts a part's outputs back to the part's own length.
    fn crop(&self, part: &[NamedTensor], outputs: &mut [Tensor]) -> Result<(), InvalidTensor> {
        let variant = &self.instance.variant;
        let length = Padding::length(&variant.signature, part);
        match (&variant.padding, self.padded, length) {
            (Some(padding), Some(padded), Some(length)) => padding.crop(outputs, length, padded),
            _ => Ok(()),
        }
    }

    /// OUTPUT: takes the outputs from the device and cuts them, one list for each part.
    pub(super) fn output(self, ran: ExecutedBatch) -> Result<Outputs, Error> {
        let mut joined = match ran {
            ExecutedBatch::Apart(outputs) => return Ok(outputs),
            ExecutedBatch::Joined(outputs) => outputs,
            ExecutedBatch::Staged(staged, _) => {
                let outputs = self.instance.call(|| staged.collect())?;
                self.check_rows(&outputs)?;
                outputs
            }
        };
        let lone = self.lone().is_some();
        let mut start = 0;
        self.answer(&mut |part| {
            if lone {
                return Ok(Ok(std::mem::take(&mut joined)));
            }
            let (from, count) = (start, rows_of(part));
            start += count;
            let rows = joined.iter().map(|output| output.slice_rows(from, count));
            let rows = rows.collect::<Result<_, _>>();
            let mut rows: Vec<Tensor> = rows.map_err(|_| other_rows())?;
            match self.crop(part, &mut rows) {
                Ok(()) => Ok(Ok(rows)),
                Err(error) => Ok(Err(InferError::failed(error.to_string()))),
            }
        })
    }
}

/// The handle that ends the run that begins now.
fn next_run(watched: &WatchSlot) -> Result<Interrupt, Error> {
    // The batch was given up and answered.
    let given_up = || Error::Lost("it was given up".to_owned());
    watched.next_run().ok_or_else(given_up)
}

/// The text of the error alone: the batch's error says that it is about the inputs.
fn fault_text(error: Error) -> String {
    match error {
        Error::InvalidInput(text) => text,
        error => error.to_string(),
    }
}

fn other_rows() -> Error {
    Error::Failed("an output has more or fewer rows than its inputs".to_owned())
}

fn join(parts: &[&[NamedTensor]]) -> Option<Vec<NamedTensor>> {
    let first = parts.first()?;
    let column = |(index, input): (usize, &NamedTensor)| {
        let tensors: Option<Vec<&Tensor>> = parts
            .iter()
            .map(|part| part.get(index).map(|input| &input.tensor))
            .collect();
        let tensor = Tensor::concat(&tensors?).ok()?;
        Some(NamedTensor::new(input.name.clone(), tensor))
    };
    first.iter().enumerate().map(column).collect()
}

fn rows_of(part: &[NamedTensor]) -> usize {
    part.first().map_or(1, |input| input.tensor.rows())
}
