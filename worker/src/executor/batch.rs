//! INPUT, EXEC and OUTPUT of one batch (Clockwork, section 5.2).
//!
//! The parts of a batch are queries of different users, and one must not spoil the others. A part
//! that the model does not take is answered alone, before EXEC. The others run joined; where they
//! cannot be joined, or the joined run fails, EXEC is one run for each part. That is how this batch
//! is executed, inside its window, and not another attempt at it: no part that has been answered runs
//! again, and the result's times cover all of it. The time limit is that of one run: where one part
//! takes for ever and the joined run was ended for it, the others are answered none the less.
//!
//! A joined run counts only if each output has exactly the rows that were put in. With any other number nobody can tell
//! which row belongs to which query, so the parts run one by one, as all later ones of the instance do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sextant_engine::{Error, Interrupt, StagedBatch, check_inputs};
use sextant_rpc::InferError;
use sextant_types::{Amounts, InvalidTensor, NamedTensor, Padding, Tensor};

use super::open::{WatchSlot, failure};
use crate::instance::Instance;

/// Outputs of each part, or why it alone failed.
pub(super) type Outputs = Vec<PartOutputs>;

/// Outputs of one part, or why it alone failed.
type PartOutputs = Result<Vec<Tensor>, InferError>;

/// A batch after INPUT.
pub(super) struct PreparedBatch {
    pub(super) instance: Arc<Instance>,
    parts: Vec<Vec<NamedTensor>>,
    /// Why the model does not take some of them, by index.
    faults: BTreeMap<usize, String>,
    /// `None`: the parts run one by one.
    joined: Option<BatchInputs>,
    /// The length to which the parts of the joined inputs were padded.
    padded: Option<u64>,
    /// How long INPUT took.
    pub(super) took: Duration,
}

/// The parts' inputs as one batch.
pub(super) struct BatchInputs {
    /// Empty for a lone part, whose inputs are those of the part, and where the engine put them together.
    inputs: Vec<NamedTensor>,
    /// The length to which parts were padded.
    padded: Option<u64>,
    staged: Option<Box<dyn StagedBatch>>,
}

/// A batch after EXEC.
pub(super) enum ExecutedBatch {
    /// The joined outputs are on the device; with EXEC's time on the device's clock.
    Staged(Box<dyn StagedBatch>, Option<Duration>),
    /// The joined outputs.
    Joined(Vec<Tensor>),
    /// The outputs of each part.
    Apart(Outputs),
}

impl PreparedBatch {
    /// INPUT: checks the parts, joins them and takes them to the device. How long it took is the
    /// caller's to note.
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
            // Perhaps only one of the parts is to blame.
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

    /// Has the engine put parts together on their way to the device, where nothing is padded.
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

    /// The parts as one batch, and the length to which they are padded, if they are. `None` where
    /// their sizes differ and nothing says how to pad them.
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
        // Parts of several lengths each share a batch with their equals.
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

    /// The parts that the model takes.
    fn good(&self) -> impl Iterator<Item = &[NamedTensor]> {
        let parts = self.parts.iter().enumerate();
        let good = parts.filter(|(at, _)| !self.faults.contains_key(at));
        good.map(|(_, part)| part.as_slice())
    }

    /// The only part that the model takes.
    fn lone(&self) -> Option<&[NamedTensor]> {
        let mut good = self.good();
        let first = good.next()?;
        good.next().is_none().then_some(first)
    }

    /// Rows of the parts that the model takes.
    pub(super) fn rows(&self) -> usize {
        self.good().map(rows_of).sum()
    }

    /// What the parts that the model takes need beside EXEC.
    pub(super) fn amounts(&self) -> Amounts {
        let inputs = self.good().flatten();
        let bytes: usize = inputs.map(|input| input.tensor.held_bytes()).sum();
        Amounts {
            queries: (self.parts.len() - self.faults.len()) as f64,
            rows: self.rows() as f64,
            bytes: bytes as f64,
        }
    }

    /// Takes out what holds memory of the device, for a batch whose instance has left.
    pub(super) fn leave(&mut self) -> (Option<BatchInputs>, Arc<Instance>) {
        (self.joined.take(), Arc::clone(&self.instance))
    }

    /// Undoes INPUT, for a batch whose instance has left.
    pub(super) fn into_parts(self) -> Vec<Vec<NamedTensor>> {
        self.parts
    }

    /// EXEC. Fails as a whole only where no part can be answered.
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

    /// Refuses joined outputs of which nobody can tell whose a row is.
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

    /// What `good` says of each part that the model takes, and the fault of each that it does not.
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

/// What ends the run that begins now.
fn next_run(watched: &WatchSlot) -> Result<Interrupt, Error> {
    // Nobody waits for the answer any more.
    let given_up = || Error::Lost("it was given up".to_owned());
    watched.next_run().ok_or_else(given_up)
}

/// The complaint itself: that it is about the inputs is what the batch's error says.
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
