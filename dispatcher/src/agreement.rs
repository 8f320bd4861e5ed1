//! Measures on live queries how often variants agree with the uploaded file.
//!
//! A validation set says what a cheaper variant costs in accuracy on its own records. It cannot say whether queries
//! resemble those records. The dispatcher therefore takes a few of the queries that a variant in another precision has
//! answered, has a variant of the same model in single precision run them once more, and compares the answers.
//!
//! A validation set also cannot say how the queries of one batch affect each other. The dispatcher therefore has the
//! same variant run a few of the queries that shared a batch once more, each alone ([`company`]).
//!
//! It also cannot say whether the next version of a model answers as the current one does. The queries that a shadow is
//! to run once more take the same path ([`versions`](crate::versions)).
//!
//! No client waits for these runs, and nothing is loaded for them. Only a variant that is already loaded runs them, on
//! a worker that has little to do, in a batch of its own that lapses if it cannot start soon. One comparison runs at a
//! time. A query is passed over if it comes while [`MOST_WAITING`] wait or if its tensors are larger than
//! [`MOST_BYTES`].

mod company;
mod compare;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sextant_metadata::{AgreementRow, MOST_DEMAND_ROWS, MetadataStore};
use sextant_rpc::{Infer, InferError, InferOutcome, Part, WorkerClient};
use sextant_types::{ModelId, NamedTensor, Precision, Tensor, Variant, VariantId, release};
use tokio::sync::{mpsc, oneshot};

use crate::{Dispatcher, versions::Outcome};
use sextant_picture::IndexedVariant;

/// Which queries are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Share of the answered queries that are compared, 0 to 1.
    pub share: f64,
    /// A worker whose slots are busier than this, as a share, runs no comparison.
    pub quiet_utilization: f64,
}

/// The most comparisons that wait.
const MOST_WAITING: usize = 4;

/// While a variant has few comparisons of company, one query in this many is drawn for them.
const EARLY: u64 = 16;

/// The largest inputs and outputs of a query that is compared, in bytes together.
const MOST_BYTES: usize = 1 << 22;

/// How long a comparison may wait for its device.
const WINDOW: Duration = Duration::from_millis(500);

/// Why a query was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    /// By the share that is set.
    Usual,
    /// For a comparison of company alone: little is known of a variant that shares batches.
    Early,
}

/// A query and its answer.
pub(crate) struct Sample {
    /// Why the query was drawn for comparison with the uploaded file and with itself alone, if it was.
    pub(crate) draw: Option<Draw>,
    /// The shadow that is to answer the query as well.
    pub(crate) shadow: Option<ModelId>,
    pub(crate) known: Arc<IndexedVariant>,
    pub(crate) rows: u32,
    /// Rows of the batch in which the query was answered.
    pub(crate) batch_rows: u32,
    /// The number under which a shadow's answer is kept until feedback comes.
    pub(crate) serial: Option<u64>,
    /// In the order of the signature.
    pub(crate) inputs: Vec<NamedTensor>,
    /// In the order of the signature.
    pub(crate) outputs: Vec<Tensor>,
}

/// What has been compared.
pub(crate) struct Agreements {
    sampling: Sampling,
    answered: AtomicU64,
    /// Whether little is known of some variant that shares batches.
    is_early: AtomicBool,
    waiting: mpsc::Sender<Sample>,
    compared: Mutex<BTreeMap<VariantId, ComparisonCounts>>,
    /// Variants that were taken out of batches, with the reasons, until the registry has stored them.
    apart: Mutex<BTreeMap<VariantId, String>>,
}

/// The counts of one variant.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ComparisonCounts {
    /// Rows whose answers were compared.
    pub(crate) rows: u64,
    /// Those of these rows whose answers agree.
    pub(crate) agreeing: u64,
    /// Queries that were drawn and not compared.
    pub(crate) passed_over: u64,
    /// Queries that shared a batch and were run once more alone.
    pub(crate) alone: u64,
    /// Those of these queries that were answered differently alone.
    pub(crate) differing: u64,
    /// Whether each of the last comparisons differed, the latest in the lowest bit.
    latest: u32,
    /// Whether the variant has left batches because of it.
    has_left: bool,
}

// === impl Sampling ===

impl Default for Sampling {
    fn default() -> Self {
        Self {
            share: 0.001,
            quiet_utilization: 0.3,
        }
    }
}

// === impl Agreements ===

impl Agreements {
    /// Returns an empty record, and the receiving end of the queue for [`Dispatcher::compare_samples`].
    pub(crate) fn new(sampling: Sampling) -> (Self, mpsc::Receiver<Sample>) {
        let (waiting, samples) = mpsc::channel(MOST_WAITING);
        let agreements = Self {
            sampling,
            answered: AtomicU64::new(0),
            is_early: AtomicBool::new(true),
            waiting,
            compared: Mutex::default(),
            apart: Mutex::default(),
        };
        (agreements, samples)
    }

    /// Returns whether the next query is compared, and why. It mixes a counter into a random number, so it takes no
    /// lock.
    pub(crate) fn draws(&self) -> Option<Draw> {
        if self.sampling.share <= 0.0 {
            return None;
        }
        let count = self.answered.fetch_add(1, Ordering::Relaxed);
        let drawn = (release::mixed(count) >> 11) as f64 / (1u64 << 53) as f64;
        if drawn < self.sampling.share {
            return Some(Draw::Usual);
        }
        let is_early = count % EARLY == EARLY - 1 && self.is_early.load(Ordering::Relaxed);
        is_early.then_some(Draw::Early)
    }

    /// Takes a query that was drawn and has been answered. If the queue has no room for it, returns its shadow, if it
    /// has one.
    pub(crate) fn offer(&self, sample: Sample) -> Option<ModelId> {
        // A variant in single precision that ran the query alone is what the answer would be compared with.
        if sample.shadow.is_none() && !sample.is_shared() && !sample.is_held_to_upload() {
            return None;
        }
        let (variant, shadow) = (sample.known.variant.id.clone(), sample.shadow.clone());
        let is_drawn = sample.draw.is_some();
        if sample.bytes() <= MOST_BYTES && self.waiting.try_send(sample).is_ok() {
            return None;
        }
        if is_drawn {
            self.count(&variant, None);
        }
        shadow
    }

    /// Returns the counts of each variant that `is_known`, and forgets the others.
    pub(crate) fn compared(
        &self,
        is_known: impl Fn(&VariantId) -> bool,
    ) -> Vec<(VariantId, ComparisonCounts)> {
        let mut compared = self.compared.lock();
        compared.retain(|variant, _| is_known(variant));
        compared.iter().map(|(id, of)| (id.clone(), *of)).collect()
    }

    fn count(&self, variant: &VariantId, compared: Option<(u64, u64)>) {
        let mut all = self.compared.lock();
        let of = all.entry(variant.clone()).or_default();
        match compared {
            Some((rows, agreeing)) => {
                of.rows += rows;
                of.agreeing += agreeing;
            }
            None => of.passed_over += 1,
        }
    }
}

impl Sample {
    fn is_shared(&self) -> bool {
        self.draw.is_some() && self.batch_rows > self.rows
    }

    /// Whether the sample counts towards the variant's agreement with the uploaded file.
    fn is_held_to_upload(&self) -> bool {
        self.draw == Some(Draw::Usual) && self.is_in_other_precision()
    }

    fn is_in_other_precision(&self) -> bool {
        self.known.variant.spec.precision != Precision::Fp32
    }

    fn bytes(&self) -> usize {
        let inputs = self.inputs.iter().map(|input| input.tensor.byte_len());
        let outputs = self.outputs.iter().map(Tensor::byte_len);
        inputs.chain(outputs).sum()
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Compares the samples that come, one query after the other. Never returns.
    pub(crate) async fn compare_samples(
        &self,
        mut samples: mpsc::Receiver<Sample>,
        metadata: &dyn MetadataStore,
    ) {
        while let Some(sample) = samples.recv().await {
            let variant = &sample.known.variant;
            if let Some(shadow) = &sample.shadow {
                self.run_shadow(shadow, &sample).await;
            }
            if !sample.is_shared() && !sample.is_held_to_upload() {
                continue;
            }
            let compared = self.run_uploaded(&sample).await;
            if sample.is_shared() {
                self.check_company(&sample, compared.as_deref(), metadata)
                    .await;
            }
            if !sample.is_held_to_upload() {
                continue;
            }
            let agreeing = compared.and_then(|outputs| {
                let answers = (&sample.outputs[..], &outputs[..]);
                compare::agreeing(variant, answers, sample.rows)
            });
            let compared = agreeing.map(|agreeing| (sample.rows.into(), agreeing));
            self.agreements.count(&variant.id, compared);
        }
    }

    /// The counts of the comparisons, to be shown.
    pub(crate) fn agreement_rows(&self) -> Vec<AgreementRow> {
        let snapshot = self.snapshot.load();
        let compared = self
            .agreements
            .compared(|variant| snapshot.variant(variant).is_some());
        let rows = compared.into_iter().map(|(variant, of)| AgreementRow {
            variant,
            rows: of.rows,
            agreeing: of.agreeing,
        });
        rows.take(MOST_DEMAND_ROWS).collect()
    }

    /// Runs a query that a variant in another precision has answered with the uploaded file, and returns its outputs.
    async fn run_uploaded(&self, sample: &Sample) -> Option<Vec<Tensor>> {
        let (uploaded, worker) = match sample.is_in_other_precision() {
            true => self.uploaded(sample)?,
            false => return None,
        };
        run(&uploaded, &worker, sample).await
    }

    /// The most accurate variant in single precision of the same model that a quiet worker has loaded.
    fn uploaded(&self, sample: &Sample) -> Option<(Arc<IndexedVariant>, WorkerClient)> {
        let snapshot = self.snapshot.load();
        let model = &sample.known.variant.model;
        let able = snapshot
            .all()
            .filter(|it| it.variant.model == *model)
            .filter(|it| it.variant.spec.precision == Precision::Fp32);
        self.quiet(able.collect(), sample)
    }

    /// The most accurate of these variants that a quiet worker has loaded.
    fn quiet(
        &self,
        mut able: Vec<&Arc<IndexedVariant>>,
        sample: &Sample,
    ) -> Option<(Arc<IndexedVariant>, WorkerClient)> {
        able.retain(|it| it.max_rows() >= sample.rows && !it.workers.is_empty());
        able.sort_by(|a, b| {
            let quality = |known: &IndexedVariant| known.variant.accuracy.quality();
            quality(b).total_cmp(&quality(a))
        });
        let mut able = able.into_iter();
        able.find_map(|known| Some((Arc::clone(known), self.quiet_worker(known)?)))
    }

    /// Has a shadow answer a query that the current version has answered. Prefers the shadow's variant with the same
    /// specification as the one that answered, if a quiet worker has it loaded, else takes its most accurate variant.
    async fn run_shadow(&self, shadow: &ModelId, sample: &Sample) {
        let outcome = match self.shadow(shadow, sample) {
            Some((known, worker)) => {
                let ran = run_once(&known, &worker, sample).await;
                let (outcome, outputs) = outcome(sample, ran);
                if let Some(outputs) = outputs {
                    let of = (shadow, &*known.variant);
                    self.shadows.note(of, sample, &outputs);
                }
                outcome
            }
            None => Outcome::PassedOver,
        };
        self.trials.note(shadow, &outcome);
    }

    fn shadow(
        &self,
        model: &ModelId,
        sample: &Sample,
    ) -> Option<(Arc<IndexedVariant>, WorkerClient)> {
        let snapshot = self.snapshot.load();
        let all = snapshot.all().filter(|it| it.variant.model == *model);
        let all: Vec<&Arc<IndexedVariant>> = all.collect();
        let is_like = |it: &&Arc<IndexedVariant>| it.variant.spec == sample.known.variant.spec;
        let like = all.iter().copied().filter(|it| is_like(it)).collect();
        self.quiet(like, sample).or_else(|| self.quiet(all, sample))
    }

    /// A worker that has a variant loaded and little to do.
    fn quiet_worker(&self, known: &IndexedVariant) -> Option<WorkerClient> {
        let members = self.driver.workers().load();
        let workers = known.workers.iter().filter_map(|at| members.get(*at));
        let mut clients = workers.filter_map(|member| member.client.as_ref());
        let limit = self.agreements.sampling.quiet_utilization;
        let quiet =
            clients.find(|worker| !worker.is_draining() && worker.info().utilization <= limit);
        quiet.map(Arc::clone)
    }
}

/// Returns the outputs of the uploaded file, or `None` if the worker has no time or the run fails.
async fn run(
    uploaded: &IndexedVariant,
    worker: &WorkerClient,
    sample: &Sample,
) -> Option<Vec<Tensor>> {
    let result = run_once(uploaded, worker, sample).await?.ok()?;
    result.outputs.into_iter().next()?.ok()
}

/// Has a worker run a query once more. Returns `None` if the worker does not answer.
async fn run_once(
    uploaded: &IndexedVariant,
    worker: &WorkerClient,
    sample: &Sample,
) -> Option<InferOutcome> {
    let (done, answer) = oneshot::channel::<InferOutcome>();
    let now = Instant::now();
    let variant: &Variant = &uploaded.variant;
    worker.infer(Infer {
        variant: variant.id.clone(),
        parts: vec![Part::Inputs(sample.inputs.clone())],
        earliest: now,
        latest: Some(now + WINDOW),
        expected: expected(variant, sample.rows),
        offline_rows: sample.rows,
        done: Box::new(move |outcome| {
            // The receiver is gone if the dispatcher has stopped leading.
            done.send(outcome).ok();
        }),
    });
    answer.await.ok()
}

/// Returns the outcome of a shadow's run, and its outputs if there are any. A worker that had no time or is gone says
/// nothing about the version.
fn outcome(sample: &Sample, ran: Option<InferOutcome>) -> (Outcome, Option<Vec<Tensor>>) {
    let Some(ran) = ran else {
        return (Outcome::PassedOver, None);
    };
    let (timings, mut outputs) = match ran {
        Ok(result) => (result.timings, result.outputs.into_iter()),
        Err(error) => return (failed(&error), None),
    };
    let outputs = match outputs.next() {
        Some(Ok(outputs)) => outputs,
        Some(Err(error)) => return (failed(&error), None),
        None => return (Outcome::Failed, None),
    };
    let answers = (&sample.outputs[..], &outputs[..]);
    let outcome = match compare::agreeing(&sample.known.variant, answers, sample.rows) {
        Some(agreeing) => Outcome::Compared {
            rows: sample.rows.into(),
            agreeing,
            compute_us: timings.input_us + timings.exec_us + timings.output_us,
        },
        None => Outcome::PassedOver,
    };
    (outcome, Some(outputs))
}

fn failed(error: &InferError) -> Outcome {
    match error {
        InferError::Failed { .. } | InferError::BadShape(_) | InferError::Lost { .. } => {
            Outcome::Failed
        }
        _ => Outcome::PassedOver,
    }
}

fn expected(variant: &Variant, rows: u32) -> Duration {
    let ms = variant.profile.latency_ms(rows);
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_asked_for_is_drawn() {
        for (share, least, most) in [(0.0, 0, 0), (0.001, 60, 140), (0.1, 9_700, 10_300)] {
            let (agreements, _samples) = Agreements::new(Sampling {
                share,
                ..Sampling::default()
            });
            agreements.is_early.store(false, Ordering::Relaxed);
            let drawn = (0..100_000)
                .filter(|_| agreements.draws().is_some())
                .count();
            assert!((least..=most).contains(&drawn), "{drawn} of share {share}");
        }
        let (all, _samples) = Agreements::new(Sampling {
            share: 1.0,
            ..Sampling::default()
        });
        assert!((0..1000).all(|_| all.draws() == Some(Draw::Usual)));
    }
}
