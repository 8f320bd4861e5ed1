//! A loaded emulated model, on the host or on a device.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_types::{NamedTensor, Signature, Tensor};

use super::{
    Resident, answer, device::DeviceState, duration, emulate, failures::FailureModel, pace::Pace,
};
use crate::{Error, LoadedModel, StagedBatch, check_inputs};

pub(super) struct Loaded {
    pub(super) weights: Arc<Resident>,
    pub(super) pace: Pace,
    pub(super) device: Option<Arc<DeviceState>>,
    pub(super) failing: Option<Arc<FailureModel>>,
}

/// A batch on a device. Its answer is known from the start; only its time remains.
struct Batch {
    device: Arc<DeviceState>,
    pace: Pace,
    time: Duration,
    outputs: Vec<Tensor>,
    failing: Option<Arc<FailureModel>>,
    /// Keeps the weights' pages.
    _weights: Arc<Resident>,
}

impl Loaded {
    /// The outputs, and the time that a run takes without delays.
    fn work(&self, inputs: &[NamedTensor]) -> Result<(Vec<Tensor>, Duration), Error> {
        let model = &self.weights.model;
        check_inputs(&model.signature, inputs)?;
        let outputs = emulate(&model.signature, inputs)?;
        let rows = answer::rows(&model.signature, inputs) as f64;
        Ok((outputs, duration(model.alpha_ms * rows + model.beta_ms)))
    }

    fn batch(&self, device: &Arc<DeviceState>, inputs: &[NamedTensor]) -> Result<Batch, Error> {
        let started = Instant::now();
        let (outputs, time) = self.work(inputs)?;
        let bytes = inputs.iter().map(|input| input.tensor.byte_len()).sum();
        self.pace.pass(started, duration(device.copy_ms(bytes)));
        Ok(Batch {
            device: Arc::clone(device),
            pace: self.pace.clone(),
            time,
            outputs,
            failing: self.failing.clone(),
            _weights: Arc::clone(&self.weights),
        })
    }
}

impl LoadedModel for Loaded {
    fn signature(&self) -> &Signature {
        &self.weights.model.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let started = Instant::now();
        let Some(device) = &self.device else {
            let (outputs, time) = self.work(inputs)?;
            self.pace.pass(started, time);
            self.failing.as_ref().map_or(Ok(()), |it| it.run())?;
            return Ok(outputs);
        };
        let mut batch = Box::new(self.batch(device, inputs)?);
        batch.exec()?;
        batch.collect()
    }

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        match &self.device {
            Some(device) => Ok(Some(Box::new(self.batch(device, inputs)?))),
            None => Ok(None),
        }
    }

    fn weights_bytes(&self) -> u64 {
        self.weights.model.weights_bytes
    }

    /// A device's pages hold weights alone, and nothing is computed.
    fn working_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

impl StagedBatch for Batch {
    fn exec(&mut self) -> Result<Option<Duration>, Error> {
        let _alone = self.device.executing();
        let started = Instant::now();
        let time = self.time + self.device.device.runs.draw(&self.device.runs);
        self.pace.pass(started, time);
        self.failing.as_ref().map_or(Ok(()), |it| it.run())?;
        Ok(Some(time))
    }

    fn collect(self: Box<Self>) -> Result<Vec<Tensor>, Error> {
        let started = Instant::now();
        let bytes = self.outputs.iter().map(Tensor::byte_len).sum();
        let time = duration(self.device.copy_ms(bytes));
        self.pace.pass(started, time);
        Ok(self.outputs)
    }
}
