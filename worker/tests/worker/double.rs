//! An engine for tests: it doubles its input, records each call with its time and thread, and can
//! be held at every step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Condvar, Mutex},
    thread::ThreadId,
    time::{Duration, Instant},
};

use sextant_engine::{
    Capabilities, Device, Engine, Error, Interrupt, LoadRequest, LoadedModel, StagedBatch,
};
use sextant_types::{
    DataType, NamedTensor, Optimization, Precision, Signature, Tensor, TensorSpec,
};

/// Longest wait for a state.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A batch with this value fails.
pub const FAILS: i64 = -1;

/// A batch with this value is refused because of the query.
pub const REFUSED: i64 = -6;

/// A batch with this value panics.
pub const PANICS: i64 = -2;

/// A batch with this value loses the engine.
pub const LOSES: i64 = -3;

/// Added to the keys of loads in a process of their own.
pub const ISOLATED: i64 = 1000;

/// The step for which the engine is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Load,
    Input,
    Exec,
    Output,
}

/// A row of this value is answered with two rows.
pub const SPLITS: i64 = -4;

/// A row of this value is answered with no row.
pub const VANISHES: i64 = -5;

/// One call. `key` is the first value of the batch, or the first number in the artefact.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub step: Step,
    pub key: i64,
    pub begun: Instant,
    pub ended: Option<Instant>,
    pub thread: ThreadId,
}

/// The record of calls and the holds, shared by all handles of an engine.
#[derive(Default)]
pub struct Record {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    /// Keys that are held at a step; `None` holds all.
    held: BTreeMap<Step, Option<i64>>,
    /// Whether runs end when they are asked to.
    heeds: bool,
    /// Whether runs that are asked to end go on until they are released, and end then.
    dallies: bool,
    /// Runs that were asked to end, by key.
    ended: BTreeSet<i64>,
}

impl Record {
    /// Holds calls from now on: all calls of a step, or those with one key.
    pub fn hold(&self, step: Step, key: Option<i64>) {
        self.state.lock().unwrap().held.insert(step, key);
    }

    pub fn release(&self, step: Step) {
        self.state.lock().unwrap().held.remove(&step);
        self.changed.notify_all();
    }

    pub fn release_all(&self) {
        self.state.lock().unwrap().held.clear();
        self.changed.notify_all();
    }

    /// From now on runs end when they are asked to.
    pub fn heed(&self) {
        self.state.lock().unwrap().heeds = true;
    }

    /// From now on runs that are asked to end do so when they are released.
    pub fn dally(&self) {
        self.state.lock().unwrap().dallies = true;
    }

    /// Whether the run of the key was asked to end.
    pub fn is_asked(&self, key: i64) -> bool {
        self.state.lock().unwrap().ended.contains(&key)
    }

    fn end(&self, key: i64) {
        self.state.lock().unwrap().ended.insert(key);
        self.changed.notify_all();
    }

    /// Whether the run of the key was asked to end. Forgets the request.
    fn has_ended(&self, key: i64) -> bool {
        self.state.lock().unwrap().ended.remove(&key)
    }

    /// Calls of a step, in order of their start.
    pub fn calls(&self, step: Step) -> Vec<Call> {
        let state = self.state.lock().unwrap();
        let of_step = state.calls.iter().filter(|call| call.step == step);
        of_step.copied().collect()
    }

    pub fn keys(&self, step: Step) -> Vec<i64> {
        self.calls(step).iter().map(|call| call.key).collect()
    }

    /// Waits until a call has begun.
    pub async fn begun(&self, step: Step, key: i64) {
        crate::until(|| self.keys(step).contains(&key)).await;
    }

    /// Waits until so many calls have begun.
    pub async fn count(&self, step: Step, calls: usize) {
        crate::until(|| self.calls(step).len() >= calls).await;
    }

    fn call<T>(&self, step: Step, key: i64, work: impl FnOnce() -> T) -> T {
        let call = Call {
            step,
            key,
            begun: Instant::now(),
            ended: None,
            thread: std::thread::current().id(),
        };
        let mut state = self.state.lock().unwrap();
        state.calls.push(call);
        let at = state.calls.len() - 1;
        let is_held = |state: &mut State| {
            let held = state.held.get(&step);
            held.is_some_and(|held| held.is_none_or(|held| held == key))
                && !(step == Step::Exec && !state.dallies && state.ended.contains(&key))
        };
        drop(self.changed.wait_while(state, is_held).unwrap());
        let result = work();
        self.state.lock().unwrap().calls[at].ended = Some(Instant::now());
        result
    }
}

/// See the module.
pub struct Double {
    pub device: Device,
    /// Whether batches are staged.
    pub staged: bool,
    /// Whether it counts as an engine in a process of its own.
    pub is_isolated: bool,
    pub record: Arc<Record>,
}

struct Loaded {
    staged: bool,
    record: Arc<Record>,
    signature: Signature,
}

struct OnDevice {
    key: i64,
    record: Arc<Record>,
    inputs: Vec<NamedTensor>,
}

impl Engine for Double {
    fn name(&self) -> &'static str {
        "double"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: vec![DataType::Fp32],
        }
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn isolated(&self) -> Option<Arc<dyn Engine>> {
        let is_of_the_processor = matches!(self.device, Device::Cpu);
        is_of_the_processor.then(|| {
            let isolated: Arc<dyn Engine> = Arc::new(Self {
                device: self.device.clone(),
                staged: self.staged,
                is_isolated: true,
                record: Arc::clone(&self.record),
            });
            isolated
        })
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        let file = request.model.whole()?;
        let text = String::from_utf8_lossy(&file);
        let key = text.trim_start_matches(|c: char| !c.is_ascii_digit());
        let key = key.parse().unwrap_or(0) + i64::from(self.is_isolated) * ISOLATED;
        self.record.call(Step::Load, key, || {
            if text.contains("broken") || (self.is_isolated && text.contains("only here")) {
                return Err(Error::InvalidModel("broken on purpose".to_owned()));
            }
            assert!(!text.contains("panics"), "panics on purpose");
            let loaded: Arc<dyn LoadedModel> = Arc::new(Loaded {
                staged: self.staged,
                record: Arc::clone(&self.record),
                signature: signature(),
            });
            Ok(loaded)
        })
    }
}

impl LoadedModel for Loaded {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let key = key(inputs);
        self.record.call(Step::Exec, key, || exec(inputs))?;
        Ok(doubled(inputs))
    }

    fn run_interruptible(
        &self,
        inputs: &[NamedTensor],
        interrupt: &Interrupt,
    ) -> Result<Vec<Tensor>, Error> {
        if !self.record.state.lock().unwrap().heeds {
            return self.run(inputs);
        }
        let (record, key) = (Arc::clone(&self.record), key(inputs));
        let outputs = interrupt.over(move || record.end(key), || self.run(inputs));
        match self.record.has_ended(key) {
            true => Err(Error::Interrupted),
            false => outputs,
        }
    }

    fn stage(&self, inputs: &[NamedTensor]) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        if !self.staged {
            return Ok(None);
        }
        let key = key(inputs);
        self.record.call(Step::Input, key, || ());
        Ok(Some(Box::new(OnDevice {
            key,
            record: Arc::clone(&self.record),
            inputs: inputs.to_vec(),
        })))
    }

    /// Joins the parts on the device, if they have the same shape.
    fn stage_joined(
        &self,
        parts: &[&[NamedTensor]],
    ) -> Result<Option<Box<dyn StagedBatch>>, Error> {
        let tensors: Vec<&Tensor> = parts.iter().map(|part| &part[0].tensor).collect();
        match Tensor::concat(&tensors) {
            Ok(joined) => self.stage(&[NamedTensor::new("x", joined)]),
            Err(_) => Ok(None),
        }
    }

    fn weights_bytes(&self) -> u64 {
        100
    }
}

impl StagedBatch for OnDevice {
    fn exec(&mut self) -> Result<Option<Duration>, Error> {
        self.record
            .call(Step::Exec, self.key, || exec(&self.inputs))?;
        Ok(Some(Duration::from_micros(7)))
    }

    fn collect(self: Box<Self>) -> Result<Vec<Tensor>, Error> {
        self.record.call(Step::Output, self.key, || ());
        Ok(doubled(&self.inputs))
    }
}

pub fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, None],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}

/// One query: a row of equal values.
pub fn row(key: i64, width: usize) -> Vec<NamedTensor> {
    let values = vec![key as f32; width];
    let tensor = Tensor::from_elements(vec![1, width], &values).unwrap();
    vec![NamedTensor::new("x", tensor)]
}

fn values(inputs: &[NamedTensor]) -> Vec<f32> {
    inputs[0].tensor.to_vec().unwrap()
}

fn key(inputs: &[NamedTensor]) -> i64 {
    values(inputs)[0] as i64
}

fn exec(inputs: &[NamedTensor]) -> Result<(), Error> {
    let has = |wanted: i64| values(inputs).iter().any(|value| *value as i64 == wanted);
    if has(FAILS) {
        return Err(Error::Failed("failed on purpose".to_owned()));
    }
    if has(REFUSED) {
        return Err(Error::InvalidInput("refused on purpose".to_owned()));
    }
    assert!(!has(PANICS), "panics on purpose");
    if has(LOSES) {
        return Err(Error::Lost("lost on purpose".to_owned()));
    }
    Ok(())
}

fn doubled(inputs: &[NamedTensor]) -> Vec<Tensor> {
    let (values, width) = (values(inputs), inputs[0].tensor.shape()[1]);
    let rows = values.chunks(width).flat_map(|row| {
        let times = match row[0] as i64 {
            SPLITS => 2,
            VANISHES => 0,
            _ => 1,
        };
        std::iter::repeat_n(row, times)
    });
    let doubled: Vec<f32> = rows.flatten().map(|value| value * 2.0).collect();
    let shape = vec![doubled.len() / width, width];
    vec![Tensor::from_elements(shape, &doubled).unwrap()]
}
