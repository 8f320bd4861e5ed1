//! Running one offline job, chunk by chunk.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_objects::ObjectPath;
use sextant_policies::throttle::{Observation, Verdict};
use sextant_registry::{Failure, Job};
use sextant_rpc::{Dispatch, OfflineSpec, Query, QueryError, Route};
use sextant_types::{Code, NamedTensor, Signature, Targets, Tensor};
use tokio::sync::watch;

use super::{
    JobService,
    plan::{Plan, part_path},
    records, unix_ms,
};

/// How often a chunk is tried again when the service is busy or a store does not answer.
const ATTEMPTS: u32 = 20;

/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why a run ended before the job did.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The job is cancelled, or another runner has it.
    NotOurs,
    /// It cannot be done.
    Failed { code: Code, message: String },
}

/// A job whose output is written.
struct Done {
    spec: OfflineSpec,
    plan: Plan,
    result: Value,
}

/// One record of a chunk: its inputs, or why it has none.
type Record = Result<Vec<NamedTensor>, String>;

impl JobService {
    /// Runs a claimed job to its end, or until it is cancelled.
    pub(crate) async fn run_job(&self, job: Job, changed: &mut watch::Receiver<u64>) {
        let id = job.id.clone();
        let ended = {
            let keep_lease = self.keep_lease(&job, changed);
            tokio::select! {
                ended = self.all_chunks(&job) => ended,
                () = keep_lease => Err(Stop::NotOurs),
            }
        };
        let owner = &self.config.owner;
        let recorded = match ended {
            Ok(done) => match self
                .registry
                .finish(&id, owner, &done.result, unix_ms())
                .await
            {
                Ok(()) => return self.remove_parts(&done).await,
                Err(error) => Err(error),
            },
            Err(Stop::NotOurs) => Ok(()),
            Err(Stop::Failed { code, message }) => {
                tracing::warn!(job = %id, %code, %message, "an offline job failed");
                let failure = Failure { code, message };
                self.registry.fail(&id, owner, &failure, unix_ms()).await
            }
        };
        if let Err(error) = recorded {
            tracing::warn!(job = %id, %error, "the end of a job could not be recorded");
        }
    }

    /// Renews the lease until the job is no longer ours.
    async fn keep_lease(&self, job: &Job, changed: &mut watch::Receiver<u64>) {
        let period = Duration::from_millis((self.config.lease_ms / 3).max(100));
        loop {
            drop(tokio::time::timeout(period, changed.changed()).await);
            let (owner, lease) = (&self.config.owner, self.config.lease_ms);
            match self.registry.renew(&job.id, owner, lease, unix_ms()).await {
                Ok(()) => {}
                Err(
                    sextant_registry::Error::Cancelled { .. }
                    | sextant_registry::Error::LeaseLost { .. }
                    | sextant_registry::Error::NotFound { .. },
                ) => return,
                Err(error) => tracing::warn!(job = %job.id, %error, "the lease was not renewed"),
            }
        }
    }

    async fn all_chunks(&self, job: &Job) -> Result<Done, Stop> {
        let spec: OfflineSpec = serde_json::from_value(job.spec.clone())
            .map_err(|error| Stop::failed(Code::InvalidRequest, error.to_string()))?;
        let (input, output) = (path(&spec.input)?, path(&spec.output)?);
        let bytes = self.objects.get(&input).await?;
        let lines = lines(&bytes);
        self.await_variants(&spec.route).await;
        let plan = self
            .plan(job.id.as_str(), &spec, lines.len() as u64)
            .await?;
        if plan.records != lines.len() as u64 {
            let message = format!(
                "input `{input}` had `{}` records when the job began and has `{}` now",
                plan.records,
                lines.len()
            );
            return Err(Stop::failed(Code::InvalidRecord, message));
        }
        let first = job.progress_done / u64::from(plan.chunk);
        for number in first..plan.chunks() {
            self.make_room(job).await?;
            self.one_chunk(job, &spec, &plan, &lines, number).await?;
        }
        let result = self.join(&spec, &plan, &output).await?;
        Ok(Done { spec, plan, result })
    }

    /// After a restart the index fills a moment later than the runner starts.
    async fn await_variants(&self, route: &Route) {
        let mut revisions = self.dispatcher.revision.subscribe();
        let known = async {
            while self.dispatcher.signature(route).is_err() {
                if revisions.changed().await.is_err() {
                    break;
                }
            }
        };
        drop(tokio::time::timeout(LONGEST_PAUSE, known).await);
    }

    /// Pauses while online queries need the device.
    async fn make_room(&self, job: &Job) -> Result<(), Stop> {
        let mut paused = false;
        let look = Duration::from_millis(self.config.look_ms.max(10));
        loop {
            let online_utilization = self.dispatcher.online.utilization();
            let slow_down = self.dispatcher.online.slow_down();
            let seen = Observation {
                online_utilization,
                slow_down,
            };
            let verdict = self.config.throttle.decide(paused, seen);
            if paused != (verdict == Verdict::Pause) {
                paused = !paused;
                let (id, owner) = (&job.id, &self.config.owner);
                self.registry
                    .set_paused(id, owner, paused, unix_ms())
                    .await?;
            }
            if !paused {
                return Ok(());
            }
            tokio::time::sleep(look).await;
        }
    }

    async fn one_chunk(
        &self,
        job: &Job,
        spec: &OfflineSpec,
        plan: &Plan,
        lines: &[Bytes],
        number: u64,
    ) -> Result<(), Stop> {
        let chunk = u64::from(plan.chunk);
        let start = number * chunk;
        let end = (start + chunk).min(plan.records);
        let route = Route::Variant(plan.variant.clone());
        let signature = self
            .dispatcher
            .signature(&route)
            .map_err(Stop::from_query)?;
        let records: Vec<Record> = lines[start as usize..end as usize]
            .iter()
            .map(|line| records::parse(line, &signature))
            .collect();
        let answers = self.answer_all(&route, &signature, start, records).await?;
        let text: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
        let part = part_path(spec, &format!("{number:08}.jsonl"))?;
        self.objects.put(&part, Bytes::from(text)).await?;
        let step = format!(
            "chunk {} of {} by {}",
            number + 1,
            plan.chunks(),
            plan.variant
        );
        let progress = (end, plan.records);
        let owner = &self.config.owner;
        self.registry
            .advance(&job.id, owner, &step, progress, unix_ms())
            .await?;
        Ok(())
    }

    /// Answers records in order; neighbours of the same shape go together as rows of one query.
    async fn answer_all(
        &self,
        route: &Route,
        signature: &Signature,
        start: u64,
        records: Vec<Record>,
    ) -> Result<Vec<Value>, Stop> {
        let most = self.dispatcher.most_rows(route).max(1) as usize;
        let most = if signature.batched { most } else { 1 };
        let mut answers = Vec::with_capacity(records.len());
        let mut group: Vec<Vec<NamedTensor>> = Vec::new();
        for (index, record) in records.into_iter().enumerate() {
            let inputs = match record {
                Ok(inputs) => inputs,
                Err(message) => {
                    self.answer_group(route, signature, start, &mut group, &mut answers)
                        .await?;
                    let index = start + index as u64;
                    answers.push(records::refusal(index, Code::InvalidRecord, &message));
                    continue;
                }
            };
            let alike = group
                .first()
                .is_none_or(|first| same_shapes(first, &inputs));
            if group.len() == most || !alike {
                self.answer_group(route, signature, start, &mut group, &mut answers)
                    .await?;
            }
            group.push(inputs);
        }
        self.answer_group(route, signature, start, &mut group, &mut answers)
            .await?;
        Ok(answers)
    }

    async fn answer_group(
        &self,
        route: &Route,
        signature: &Signature,
        start: u64,
        group: &mut Vec<Vec<NamedTensor>>,
        answers: &mut Vec<Value>,
    ) -> Result<(), Stop> {
        let records = std::mem::take(group);
        if records.is_empty() {
            return Ok(());
        }
        let index = start + answers.len() as u64;
        match self.query(route, &records).await {
            Ok(outputs) => {
                for (offset, row) in rows(&outputs, records.len()).iter().enumerate() {
                    answers.push(records::answer(
                        index + offset as u64,
                        row,
                        signature.batched,
                    ));
                }
                Ok(())
            }
            Err(error) if error.code.kind().is_retryable() => Err(Stop::from_query(error)),
            Err(error) => {
                for offset in 0..records.len() as u64 {
                    answers.push(records::refusal(index + offset, error.code, &error.message));
                }
                Ok(())
            }
        }
    }

    async fn query(
        &self,
        route: &Route,
        records: &[Vec<NamedTensor>],
    ) -> Result<Vec<NamedTensor>, QueryError> {
        let inputs = join_rows(records)?;
        let mut pause = Duration::from_millis(5);
        let mut attempt = 1;
        loop {
            let query = Query {
                route: route.clone(),
                inputs: inputs.clone(),
                targets: Targets::default(),
                best_effort: false,
                explain: false,
                arrived: Instant::now(),
            };
            match self.dispatcher.answer(query, false).await {
                Ok(answer) => return Ok(answer.outputs),
                Err(error) if error.code.kind().is_retryable() && attempt < ATTEMPTS => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Joins the parts into the output. The parts stay until the job's end is recorded: a crash
    /// before that comes here again.
    async fn join(
        &self,
        spec: &OfflineSpec,
        plan: &Plan,
        output: &ObjectPath,
    ) -> Result<Value, Stop> {
        let mut whole = Vec::new();
        for number in 0..plan.chunks() {
            let part = part_path(spec, &format!("{number:08}.jsonl"))?;
            whole.extend_from_slice(&self.objects.get(&part).await?);
        }
        let bytes = whole.len();
        self.objects.put(output, Bytes::from(whole)).await?;
        Ok(json!({
            "records": plan.records, "variant": plan.variant, "output": spec.output, "bytes": bytes
        }))
    }

    /// Removes what only the running job needed. What a crash leaves behind is replaced by the
    /// next job with the same output.
    async fn remove_parts(&self, done: &Done) {
        let parts = (0..done.plan.chunks()).map(|number| format!("{number:08}.jsonl"));
        for name in parts.chain(["plan.json".to_owned()]) {
            let Ok(part) = part_path(&done.spec, &name) else {
                continue;
            };
            if let Err(error) = self.objects.delete(&part).await {
                tracing::warn!(%part, %error, "a part of a finished job was not removed");
            }
        }
    }
}

fn path(text: &str) -> Result<ObjectPath, Stop> {
    ObjectPath::parse(text).map_err(|error| Stop::failed(Code::InvalidPath, error.to_string()))
}

/// Lines that hold something, in order.
fn lines(bytes: &Bytes) -> Vec<Bytes> {
    bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(|line| bytes.slice_ref(line))
        .collect()
}

fn same_shapes(a: &[NamedTensor], b: &[NamedTensor]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.name == b.name && a.tensor.shape() == b.tensor.shape())
}

fn join_rows(records: &[Vec<NamedTensor>]) -> Result<Vec<NamedTensor>, QueryError> {
    let Some(first) = records.first() else {
        return Ok(Vec::new());
    };
    let column = |at: usize| {
        let parts: Vec<&Tensor> = records.iter().map(|record| &record[at].tensor).collect();
        Tensor::concat(&parts)
            .map(|tensor| NamedTensor::new(first[at].name.clone(), tensor))
            .map_err(|error| QueryError::new(Code::InvalidRecord, error.to_string()))
    };
    (0..first.len()).map(column).collect()
}

/// Cuts outputs into one list per record.
fn rows(outputs: &[NamedTensor], count: usize) -> Vec<Vec<NamedTensor>> {
    if count == 1 {
        return vec![outputs.to_vec()];
    }
    (0..count)
        .map(|row| {
            outputs
                .iter()
                .filter_map(|output| {
                    let tensor = output.tensor.slice_rows(row, 1).ok()?;
                    Some(NamedTensor::new(output.name.clone(), tensor))
                })
                .collect()
        })
        .collect()
}

// === impl Stop ===

impl Stop {
    pub(crate) fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
        }
    }

    fn from_query(error: QueryError) -> Self {
        Self::Failed {
            code: error.code,
            message: error.message,
        }
    }
}

impl From<sextant_registry::Error> for Stop {
    fn from(error: sextant_registry::Error) -> Self {
        match error {
            sextant_registry::Error::Cancelled { .. }
            | sextant_registry::Error::LeaseLost { .. }
            | sextant_registry::Error::NotFound { .. } => Self::NotOurs,
            error => Self::failed(error.code(), error.to_string()),
        }
    }
}

impl From<sextant_objects::Error> for Stop {
    fn from(error: sextant_objects::Error) -> Self {
        Self::failed(error.code(), error.to_string())
    }
}
