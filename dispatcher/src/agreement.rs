//! How often what answers agrees with the file as it was uploaded, on queries as they come.
//!
//! A validation set says what a cheaper variant costs in accuracy on the records that it has. Whether queries
//! are like those, it cannot say. So of the queries that a variant in another precision has answered, a few are
//! run once more by one in single precision of the same model, and the answers are compared.
//!
//! Nor can a validation set say what strangers do to each other in a batch. So of the queries that shared one, a few
//! are run once more alone by the same variant ([`company`]).
//!
//! Nobody waits for that. Nothing is loaded for it: only a variant that is loaded already is asked, on a
//! worker that has little to do, by a batch of its own that lapses where it cannot start soon. One comparison
//! runs at a time, and a query that comes while [`MOST_WAITING`] wait, or with tensors larger than
//! [`MOST_BYTES`], is passed over.

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
use sextant_rpc::{Infer, InferOutcome, Part, WorkerClient};
use sextant_types::{NamedTensor, Precision, Tensor, Variant, VariantId};
use tokio::sync::{mpsc, oneshot};

use crate::Dispatcher;
use sextant_picture::Known;

/// Which queries are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Share of the answered queries, 0 to 1.
    pub share: f64,
    /// A worker whose slots are busier than this, as a share, is left alone.
    pub quiet_utilization: f64,
}

/// Comparisons that wait at most.
const MOST_WAITING: usize = 4;

/// While a variant has few comparisons of company, one query of so many is drawn for them.
const EARLY: u64 = 16;

/// Largest inputs and outputs of a query that is compared, bytes together.
const MOST_BYTES: usize = 1 << 22;

/// How long a comparison may wait for its device.
const WINDOW: Duration = Duration::from_millis(500);

/// Why a query was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    /// By the share that is set.
    Usual,
    /// For company alone: of a variant that shares batches little is known.
    Early,
}

/// A query and its answer.
pub(crate) struct Sample {
    pub(crate) draw: Draw,
    pub(crate) known: Arc<Known>,
    pub(crate) rows: u32,
    /// Rows of the batch that it was answered in.
    pub(crate) batch_rows: u32,
    /// In the order of the signature.
    pub(crate) inputs: Vec<NamedTensor>,
    /// In the order of the signature.
    pub(crate) outputs: Vec<Tensor>,
}

/// What has been compared.
pub(crate) struct Agreements {
    sampling: Sampling,
    answered: AtomicU64,
    /// Whether of a variant that shares batches little is known.
    is_early: AtomicBool,
    waiting: mpsc::Sender<Sample>,
    compared: Mutex<BTreeMap<VariantId, Compared>>,
    /// Variants that were taken out of batches, and why, until the registry has it.
    apart: Mutex<BTreeMap<VariantId, String>>,
}

/// Of one variant.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Compared {
    /// Rows whose answers were compared.
    pub(crate) rows: u64,
    /// Of these, those that agree.
    pub(crate) agreeing: u64,
    /// Queries that were drawn and not compared.
    pub(crate) passed_over: u64,
    /// Queries that shared a batch and were run once more alone.
    pub(crate) alone: u64,
    /// Those of them that were answered otherwise.
    pub(crate) differing: u64,
    /// Whether each of the last ones was, the latest in the lowest bit.
    latest: u32,
    /// Whether the variant has left batches for it.
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
    /// None so far, and the other end of the queue, for [`Dispatcher::compare_samples`].
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

    /// Whether the next query is one to compare: numbers are drawn by counting, so that no lock is taken.
    pub(crate) fn draws(&self) -> Option<Draw> {
        if self.sampling.share <= 0.0 {
            return None;
        }
        let count = self.answered.fetch_add(1, Ordering::Relaxed);
        let drawn = (scattered(count) >> 11) as f64 / (1u64 << 53) as f64;
        if drawn < self.sampling.share {
            return Some(Draw::Usual);
        }
        let is_early = count % EARLY == EARLY - 1 && self.is_early.load(Ordering::Relaxed);
        is_early.then_some(Draw::Early)
    }

    /// Takes a query that was drawn and has been answered.
    pub(crate) fn offer(&self, sample: Sample) {
        // Alone and in single precision it is what it would be compared with.
        if !sample.is_shared() && !sample.is_held_to_upload() {
            return;
        }
        let variant = sample.known.variant.id.clone();
        if sample.bytes() > MOST_BYTES || self.waiting.try_send(sample).is_err() {
            self.count(&variant, None);
        }
    }

    /// What was compared of each variant that `is_known`; the others are forgotten.
    pub(crate) fn compared(
        &self,
        is_known: impl Fn(&VariantId) -> bool,
    ) -> Vec<(VariantId, Compared)> {
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

/// Numbers that look random, one for each count (SplitMix64's finaliser, Steele et al. 2014).
fn scattered(count: u64) -> u64 {
    let mut mixed = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Sample {
    fn is_shared(&self) -> bool {
        self.batch_rows > self.rows
    }

    /// Whether it says how often the variant agrees with the uploaded file.
    fn is_held_to_upload(&self) -> bool {
        self.draw == Draw::Usual && self.is_in_other_precision()
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
    /// Compares what comes, one query after the other. Never returns.
    pub(crate) async fn compare_samples(
        &self,
        mut samples: mpsc::Receiver<Sample>,
        metadata: &dyn MetadataStore,
    ) {
        while let Some(sample) = samples.recv().await {
            let variant = &sample.known.variant;
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

    /// What was compared, for whoever shows it.
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

    /// What the uploaded file answers to a query that a variant in another precision has answered.
    async fn run_uploaded(&self, sample: &Sample) -> Option<Vec<Tensor>> {
        let (uploaded, worker) = match sample.is_in_other_precision() {
            true => self.uploaded(sample)?,
            false => return None,
        };
        run(&uploaded, &worker, sample).await
    }

    /// The most accurate variant in single precision of the same model that a quiet worker has loaded.
    fn uploaded(&self, sample: &Sample) -> Option<(Arc<Known>, WorkerClient)> {
        let snapshot = self.snapshot.load();
        let model = &sample.known.variant.model;
        let mut able: Vec<&Arc<Known>> = snapshot
            .all()
            .filter(|it| it.variant.model == *model)
            .filter(|it| it.variant.spec.precision == Precision::Fp32)
            .filter(|it| it.max_rows() >= sample.rows && !it.workers.is_empty())
            .collect();
        able.sort_by(|a, b| {
            let quality = |known: &Known| known.variant.accuracy.quality();
            quality(b).total_cmp(&quality(a))
        });
        let mut able = able.into_iter();
        able.find_map(|known| Some((Arc::clone(known), self.quiet_worker(known)?)))
    }

    /// A worker that has a variant loaded and little to do.
    fn quiet_worker(&self, known: &Known) -> Option<WorkerClient> {
        let members = self.driver.workers().load();
        let workers = known.workers.iter().filter_map(|at| members.get(*at));
        let mut clients = workers.filter_map(|member| member.client.as_ref());
        let limit = self.agreements.sampling.quiet_utilization;
        let quiet =
            clients.find(|worker| !worker.is_draining() && worker.info().utilization <= limit);
        quiet.map(Arc::clone)
    }
}

/// The outputs of the uploaded file; nothing where the worker has no time or it fails.
async fn run(uploaded: &Known, worker: &WorkerClient, sample: &Sample) -> Option<Vec<Tensor>> {
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
            // Whoever asked has stopped to lead.
            done.send(outcome).ok();
        }),
    });
    let mut outputs = answer.await.ok()?.ok()?.outputs.into_iter();
    outputs.next()?.ok()
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
