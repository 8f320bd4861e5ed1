//! An engine that doubles its input, with a gate to hold it.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sextant_engine::{Capabilities, Engine, Error, LoadRequest, LoadedModel};
use sextant_types::{
    DataType, NamedTensor, Optimization, Precision, Signature, Tensor, TensorSpec,
};

/// Holds runs while closed, and counts them.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    pub entered: AtomicUsize,
    /// The first number of each run.
    pub order: Mutex<Vec<f32>>,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.changed.notify_all();
    }

    /// Occupies the calling thread.
    fn spend(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut closed = self.closed.lock().unwrap();
        while Instant::now() < until {
            closed = self.changed.wait_timeout(closed, time).unwrap().0;
        }
    }

    fn pass(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let closed = self.closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// A number that takes [`SLOW_RUN`] to double.
pub const SLOW: f32 = 5.0;

/// An artefact whose answers have the larger of two numbers first.
pub const SWAPPED: &[u8] = b"swapped";

/// An artefact that adds the number of rows in a batch to each answer, unless the row is alone.
pub const MIXES: &[u8] = b"mixes";

/// An artefact whose answers differ each time.
pub const DRAWS: &[u8] = b"draws";

/// See [`SLOW`].
const SLOW_RUN: Duration = Duration::from_millis(20);

/// Doubles its input. It fails on a batch with a negative number in it.
pub(super) struct Doubling {
    pub(super) gate: Arc<Gate>,
}

struct Loaded {
    gate: Arc<Gate>,
    /// Answers the larger number first.
    swaps: bool,
    mixes: bool,
    draws: bool,
    signature: Signature,
}

impl Engine for Doubling {
    fn name(&self) -> &'static str {
        "doubling"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: vec![DataType::Fp32],
        }
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        if request.model.graph.as_ref() == b"broken" {
            return Err(Error::InvalidModel("broken on purpose".to_owned()));
        }
        Ok(Arc::new(Loaded {
            gate: Arc::clone(&self.gate),
            swaps: request.model.graph.as_ref() == SWAPPED,
            mixes: request.model.graph.as_ref() == MIXES,
            draws: request.model.graph.as_ref() == DRAWS,
            signature: signature(),
        }))
    }
}

impl LoadedModel for Loaded {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let values: Vec<f32> = inputs[0].tensor.to_vec().unwrap();
        self.gate.order.lock().unwrap().push(values[0]);
        self.gate.pass();
        if values.contains(&SLOW) {
            self.gate.spend(SLOW_RUN);
        }
        if values.iter().any(|value| *value < 0.0) {
            return Err(Error::Failed("negative".to_owned()));
        }
        let mut doubled: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
        if self.swaps {
            doubled
                .chunks_exact_mut(2)
                .for_each(|pair| pair.sort_by(|a, b| b.total_cmp(a)));
        }
        let rows = inputs[0].tensor.rows();
        if self.mixes && rows > 1 {
            doubled.iter_mut().for_each(|value| *value += rows as f32);
        }
        if self.draws {
            let run = self.gate.entered.load(Ordering::SeqCst) as f32;
            doubled.iter_mut().for_each(|value| *value += run);
        }
        Ok(vec![
            Tensor::from_elements(inputs[0].tensor.shape().to_vec(), &doubled).unwrap(),
        ])
    }

    fn weights_bytes(&self) -> u64 {
        10
    }
}

pub fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(2)],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}
