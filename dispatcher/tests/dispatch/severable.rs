//! A worker behind a connection that can break, with a mailbox; and a front end that holds inputs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use sextant_rpc::{
    Assignment, BatchResult, Holder, Infer, InferError, InferOutcome, Load, LoadTimings, Part,
    Ticket, VariantUsage, Work, WorkError, WorkerClient, WorkerInfo, WorkerStats,
};
use sextant_types::{NamedTensor, VariantId};

/// Called with the outcome of a batch.
type Done = Box<dyn FnOnce(InferOutcome) + Send>;

/// What front ends and workers send each other without the dispatcher.
#[derive(Default)]
pub struct Post {
    inputs: Mutex<HashMap<Ticket, Vec<NamedTensor>>>,
    outputs: Mutex<HashMap<Ticket, Vec<f32>>>,
}

/// A connection that can break; see the module.
pub struct Severable {
    inner: WorkerClient,
    post: Arc<Post>,
    calls: Arc<Mutex<Calls>>,
}

#[derive(Default)]
struct Calls {
    cut: bool,
    refusing: bool,
    next: u64,
    waiting: HashMap<u64, (VariantId, Done)>,
}

/// The front end of one query.
pub struct HoldingFrontEnd {
    pub post: Arc<Post>,
    /// Nothing is sent if there are none.
    pub inputs: Vec<NamedTensor>,
    pub assignments: Mutex<Vec<Assignment>>,
}

impl Severable {
    pub fn new(inner: WorkerClient, post: &Arc<Post>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            post: Arc::clone(post),
            calls: Arc::default(),
        })
    }

    /// A new connection to the same worker.
    pub fn again(&self) -> Arc<Self> {
        Self::new(Arc::clone(&self.inner), &self.post)
    }

    /// Breaks the connection: everything that waits is lost, and nothing passes any longer.
    pub fn cut(&self) {
        let waiting = {
            let mut calls = self.calls.lock().unwrap();
            calls.cut = true;
            std::mem::take(&mut calls.waiting)
        };
        for (variant, done) in waiting.into_values() {
            done(Err(lost(variant)));
        }
    }

    /// Hands all new work back, like a worker that drains.
    pub fn refuse(&self) {
        self.calls.lock().unwrap().refusing = true;
    }

    fn is_cut(&self) -> bool {
        self.calls.lock().unwrap().cut
    }

    /// Collects the inputs that the front ends have sent. Returns which parts they were, or `None`
    /// if one has not sent its inputs.
    fn collect(&self, parts: Vec<Part>) -> Option<(Vec<Part>, Vec<Option<Ticket>>)> {
        let mut inputs = self.post.inputs.lock().unwrap();
        let collect = |part| match part {
            Part::Held(ticket) => Some((Part::Inputs(inputs.remove(&ticket)?), Some(ticket))),
            here => Some((here, None)),
        };
        parts.into_iter().map(collect).collect()
    }
}

fn lost(variant: VariantId) -> InferError {
    InferError::Disconnected {
        variant,
        reason: "cut on purpose".to_owned(),
    }
}

/// Sends the outputs of held parts to their front ends.
fn deliver(post: &Post, tickets: &[Option<Ticket>], mut result: BatchResult) -> BatchResult {
    for (ticket, outputs) in tickets.iter().zip(&mut result.outputs) {
        if let (Some(ticket), Ok(tensors)) = (ticket, outputs) {
            let values = tensors[0].to_vec().unwrap();
            post.outputs.lock().unwrap().insert(*ticket, values);
            tensors.clear();
        }
    }
    result
}

#[async_trait]
impl Work for Severable {
    fn info(&self) -> WorkerInfo {
        self.inner.info()
    }

    fn usage(&self) -> Vec<VariantUsage> {
        self.inner.usage()
    }

    fn infer(&self, infer: Infer) {
        let mut calls = self.calls.lock().unwrap();
        let (cut, refusing) = (calls.cut, calls.refusing);
        if cut || refusing {
            drop(calls);
            let refusal = match cut {
                true => lost(infer.variant),
                false => InferError::ShuttingDown,
            };
            return (infer.done)(Err(refusal));
        }
        let Some((parts, tickets)) = self.collect(infer.parts) else {
            drop(calls);
            return (infer.done)(Err(InferError::InputsMissing));
        };
        calls.next += 1;
        let id = calls.next;
        calls
            .waiting
            .insert(id, (infer.variant.clone(), infer.done));
        drop(calls);
        let (calls, post) = (Arc::clone(&self.calls), Arc::clone(&self.post));
        self.inner.infer(Infer {
            parts,
            done: Box::new(move |outcome| {
                let waiting = calls.lock().unwrap().waiting.remove(&id);
                if let Some((_, done)) = waiting {
                    done(outcome.map(|result| deliver(&post, &tickets, result)));
                }
            }),
            ..infer
        });
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        if self.is_cut() {
            let reason = "cut on purpose".to_owned();
            let variant = load.variant.id.clone();
            return Err(WorkError::Failed { variant, reason });
        }
        self.inner.load(load).await
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        match self.is_cut() {
            true => Err(WorkError::ShuttingDown),
            false => self.inner.unload(variant).await,
        }
    }

    fn is_draining(&self) -> bool {
        self.inner.is_draining()
    }

    async fn leave(&self) -> Result<(), WorkError> {
        match self.is_cut() {
            true => Err(WorkError::Rejected("cut on purpose".to_owned())),
            false => self.inner.leave().await,
        }
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        self.inner.stats().await
    }
}

impl HoldingFrontEnd {
    pub fn new(post: &Arc<Post>, inputs: Vec<NamedTensor>) -> Arc<Self> {
        Arc::new(Self {
            post: Arc::clone(post),
            inputs,
            assignments: Mutex::default(),
        })
    }

    /// The outputs that came for the last assignment.
    pub fn outputs(&self) -> Option<Vec<f32>> {
        let assignments = self.assignments.lock().unwrap();
        let ticket = assignments.last()?.ticket;
        self.post.outputs.lock().unwrap().get(&ticket).cloned()
    }
}

impl Holder for HoldingFrontEnd {
    fn assign(&self, assignment: Assignment) {
        if !self.inputs.is_empty() {
            let mut inputs = self.post.inputs.lock().unwrap();
            inputs.insert(assignment.ticket, self.inputs.clone());
        }
        self.assignments.lock().unwrap().push(assignment);
    }
}
