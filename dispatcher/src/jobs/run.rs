//! Runs one offline job, chunk by chunk.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::FutureExt;
use serde_json::{Value, json};
use sextant_health::throttle::{Observation, Verdict};
use sextant_objects::ObjectPath;
use sextant_records::{Chunk, PartHeader, Reader, RecordAnswer, Tally};
use sextant_registry::{Failure, Job};
use sextant_types::{
    Code, OfflineSpec, Route, Signature,
    offline::{OfflineStep, RecordFormat},
    time::unix_ms,
};
use tokio::sync::watch;

use super::{
    JobService,
    answer::Addressee,
    ledger::{self, Ledger},
    owner,
    plan::{Layout, Place, Plan},
    stop::{Pauses, Stop, patiently},
};

/// The longest wait until the job's variant or pipeline is known. Every front end reads a new pipeline within this
/// time.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of records that are read at a time. Reading occupies a core for which online queries would have to wait.
const PIECE_BYTES: u64 = 4 << 20;

/// Records that are read at a time if their size is not known.
const PIECE_RECORDS: u64 = 16;

/// A job under way.
struct Run<'a> {
    service: &'a JobService,
    job: &'a Job,
    spec: &'a OfflineSpec,
    layout: &'a Layout,
    ledger: &'a Ledger,
    signature: &'a Signature,
    tally: Tally,
    /// The open source, and its position.
    reader: Option<(usize, Reader)>,
    /// The message about the first record that could not be answered.
    first_refusal: Option<String>,
    /// When this run began, and how many records were committed at that time.
    began: (Instant, u64),
}

impl JobService {
    /// Runs a claimed job to its end, or until it is cancelled.
    pub(crate) async fn run_job(&self, job: &Job, changed: &mut watch::Receiver<u64>) {
        let (id, owner) = (&job.id, owner(job));
        let ended = {
            let keep_lease = self.keep_lease(job, changed);
            // A panic over one job must not end the runner, because the next runner would claim the same job.
            let all_chunks = AssertUnwindSafe(self.all_chunks(job)).catch_unwind();
            tokio::select! {
                ended = all_chunks => ended.unwrap_or_else(|_| Err(Stop::panicked())),
                () = keep_lease => Err(Stop::NotOurs),
            }
        };
        let recorded = match ended {
            Ok(result) => patiently(|| self.registry.finish(id, owner, &result, unix_ms())).await,
            Err(Stop::NotOurs) => Ok(()),
            Err(Stop::Failed { code, message }) => {
                tracing::warn!(job = %id, %code, %message, "an offline job failed");
                let failure = Failure { code, message };
                patiently(|| self.registry.fail(id, owner, &failure, unix_ms())).await
            }
        };
        if let Err(error) = recorded {
            tracing::warn!(job = %id, %error, "the end of a job could not be recorded");
        }
        // This includes a job that was cancelled, and one whose end was recorded by a call whose answer got lost.
        if ledger::is_over(&self.registry, id).await
            && let Ok(spec) = specification(job)
        {
            Ledger::remove(&self.files, &spec.output, id).await;
        }
    }

    /// Renews the lease until the job no longer belongs to this runner.
    async fn keep_lease(&self, job: &Job, changed: &mut watch::Receiver<u64>) {
        let period = Duration::from_millis((self.config.lease_ms / 3).max(100));
        loop {
            drop(tokio::time::timeout(period, changed.changed()).await);
            let (owner, lease) = (owner(job), self.config.lease_ms);
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

    async fn all_chunks(&self, job: &Job) -> Result<Value, Stop> {
        let spec = specification(job)?;
        ledger::sweep(&self.files, &self.registry, &spec.output, &job.id).await;
        self.await_known(&spec.route).await;
        let mut ledger = Ledger::open(&self.files, &spec.output, job).await?;
        let known = ledger.plan(job.progress_done).await?;
        let committed = if known.is_some() {
            job.progress_done
        } else {
            0
        };
        let (number, plan, signature) = match known {
            Some((number, plan)) => {
                let signature = self.signature_of(&spec, &plan).await?;
                (number, plan, signature)
            }
            None => self.plan(&spec, &ledger).await?,
        };
        let layout = Layout::new(&spec, plan)?;
        ledger.begin(committed, number).await?;
        let mut run = Run {
            service: self,
            job,
            spec: &spec,
            layout: &layout,
            ledger: &ledger,
            signature: &signature,
            tally: Tally::default(),
            reader: None,
            first_refusal: None,
            began: (Instant::now(), committed),
        };
        run.finish(committed).await?;
        let (failed, why) = (run.tally.failed, run.first_refusal.take());
        let joined = self.join(job, &layout, &ledger, &signature).await?;
        if failed == layout.records && failed > 0 {
            return Err(nothing_answered(&spec, failed, why));
        }
        let mut result = json!({
            "records": layout.records, "failed": failed, "variant": layout.plan.variant,
            "output": spec.output, "files": layout.targets.len(), "bytes": joined.bytes
        });
        if !joined.errors.is_empty() {
            result["errors"] = json!(joined.errors);
        }
        Ok(result)
    }

    async fn plan(
        &self,
        spec: &OfflineSpec,
        ledger: &Ledger,
    ) -> Result<(u32, Plan, Signature), Stop> {
        let variant = self.offline.choose(spec).map_err(Stop::from_query)?;
        let route = self.offline.route(spec, &variant);
        let signature = self.offline.signature(&route);
        let signature = signature.map_err(Stop::from_query)?;
        let plan = Plan::scan(&self.files, spec, variant, &signature).await?;
        let number = ledger.put_plan(&plan).await?;
        Ok((number, plan, signature))
    }

    async fn signature_of(&self, spec: &OfflineSpec, plan: &Plan) -> Result<Signature, Stop> {
        let route = self.offline.route(spec, &plan.variant);
        self.await_known(&route).await;
        let signature = self.offline.signature(&route);
        signature.map_err(Stop::from_query)
    }

    /// Waits until the route is known. After a restart or a registration this happens a moment later than the job
    /// starts.
    async fn await_known(&self, route: &Route) {
        let known = async {
            let mut pauses = Pauses::new();
            while self.offline.signature(route).is_err() {
                pauses.next().await;
            }
        };
        drop(tokio::time::timeout(KNOWN_WITHIN, known).await);
    }

    /// Waits while online queries need every worker that has the variant. `paused` is what the job's row says.
    pub(crate) async fn make_room(
        &self,
        job: &Job,
        route: &Route,
        paused: &mut bool,
    ) -> Result<(), Stop> {
        while self.is_needed(route, *paused) {
            self.show_paused(job, paused, true).await?;
            tokio::time::sleep(self.look()).await;
        }
        Ok(())
    }

    /// Whether online queries need all the workers.
    pub(crate) fn is_needed(&self, route: &Route, paused: bool) -> bool {
        let load = self.offline.online_load(route);
        let seen = Observation {
            online_utilization: load.utilization,
            slow_down: load.slow_down,
        };
        self.config.throttle.decide(paused, seen) == Verdict::Pause
    }

    /// Updates the job's row to say whether the job waits.
    pub(crate) async fn show_paused(
        &self,
        job: &Job,
        paused: &mut bool,
        now: bool,
    ) -> Result<(), Stop> {
        if *paused != now {
            let (id, owner) = (&job.id, owner(job));
            patiently(|| self.registry.set_paused(id, owner, now, unix_ms())).await?;
            *paused = now;
        }
        Ok(())
    }

    /// Time between two looks while the job waits.
    pub(crate) fn look(&self) -> Duration {
        Duration::from_millis(self.config.look_ms.max(10))
    }
}

/// The error if none of the records could be answered. `why` is the message about one of them.
fn nothing_answered(spec: &OfflineSpec, records: u64, why: Option<String>) -> Stop {
    let why = why.map_or_else(String::new, |why| format!("; of one: {why}"));
    let message = format!(
        "none of its {records} records could be answered, `{}` says why of each{why}",
        spec.output
    );
    Stop::failed(Code::InvalidRecord, message)
}

fn specification(job: &Job) -> Result<OfflineSpec, Stop> {
    serde_json::from_value(job.spec.clone())
        .map_err(|error| Stop::failed(Code::InvalidRequest, error.to_string()))
}

// === impl Run ===

impl Run<'_> {
    async fn finish(&mut self, committed: u64) -> Result<(), Stop> {
        let first = self.layout.chunk_at(committed);
        self.recall(first).await?;
        self.advance(first, committed).await?;
        for chunk in first..self.layout.chunks {
            let end = self.one_chunk(chunk).await?;
            self.advance(chunk + 1, end).await?;
        }
        Ok(())
    }

    /// Restores the tally as the committed chunks left it.
    async fn recall(&mut self, first: u64) -> Result<(), Stop> {
        let Some(last) = first.checked_sub(1) else {
            return Ok(());
        };
        let path = self.ledger.part(last, self.layout.place(last).first)?;
        let header = PartHeader::read(&self.service.files, &path).await?;
        self.tally = header.tally;
        Ok(())
    }

    /// Answers one chunk and writes its part. Returns the number of records that are done then.
    async fn one_chunk(&mut self, chunk: u64) -> Result<u64, Stop> {
        let place = self.layout.place(chunk);
        let plan = &self.layout.plan;
        let addressee = self.service.addressee(self.spec, plan, self.signature);
        let mut answers = Vec::with_capacity(place.records as usize);
        let mut left = place;
        while left.records > 0 {
            let most = self.piece_of(place.source, &addressee).min(left.records);
            let records = self.read(left, most).await?;
            left.take(records.len() as u32);
            let service = self.service;
            answers.extend(service.answer_all(self.job, &addressee, records).await?);
        }
        let target = self.layout.target(chunk);
        if chunk == target.chunks.start {
            self.tally.begin_output();
        }
        let outline = &plan.sources[place.source].outline;
        let names = outline.names(place.first_in_source, place.records);
        let mut refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        if self.first_refusal.is_none() {
            self.first_refusal = refused.next().map(|it| it.message.clone());
        }
        let first = place.first - target.first_record;
        let part = self.encode(target.format, (first, answers, names)).await?;
        let path = self.ledger.part(chunk, place.first)?;
        self.service.files.put(&path, part).await?;
        Ok(place.first + u64::from(place.records))
    }

    /// The part with the answers to the records from `first` on. `names` are the files of these records, if each is a
    /// file.
    async fn encode(
        &mut self,
        format: RecordFormat,
        (first, answers, names): (u64, Vec<RecordAnswer>, Vec<String>),
    ) -> Result<Bytes, Stop> {
        let (mut tally, batched) = (self.tally.clone(), self.signature.batched);
        let encode = move || {
            let chunk = Chunk {
                first,
                answers: &answers,
                batched,
                names: &names,
            };
            let part = tally.encode(format, chunk);
            (tally, part)
        };
        let (tally, part) = self.service.aside.run(encode).await?;
        self.tally = tally;
        Ok(part?)
    }

    /// Records of a source that are read at a time, at least one batch.
    fn piece_of(&self, source: usize, addressee: &Addressee) -> u32 {
        let count = match self.layout.plan.sources[source].outline.record_bytes {
            0 => PIECE_RECORDS,
            bytes => PIECE_BYTES / bytes,
        };
        let batch = self.service.most_together(addressee) as u64;
        count.max(batch).try_into().unwrap_or(u32::MAX)
    }

    /// Reads the next records at a place: up to `most`, fewer if they are large, but at least one.
    async fn read(
        &mut self,
        place: Place,
        most: u32,
    ) -> Result<Vec<sextant_records::Record>, Stop> {
        let source = &self.layout.plan.sources[place.source];
        if self
            .reader
            .as_ref()
            .is_none_or(|(open, _)| *open != place.source)
        {
            let path = ObjectPath::parse(&source.path)?;
            let files = &self.service.files;
            let first = place.first_in_source;
            let reader = Reader::open(files, &path, &source.outline, self.signature, first).await?;
            self.reader = Some((place.source, reader));
        }
        match &mut self.reader {
            Some((_, reader)) => {
                let unparsed = reader.fetch(most).await?;
                self.service.aside.run(move || unparsed.parse()).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// Advances the job's row.
    async fn advance(&self, chunks: u64, records: u64) -> Result<(), Stop> {
        let step = OfflineStep {
            chunk: chunks,
            chunks: self.layout.chunks,
            variant: self.layout.plan.variant.clone(),
            failed: self.tally.failed,
            left_s: self.left_s(records),
        };
        let (step, progress) = (step.to_string(), (records, self.layout.records));
        let (id, owner) = (&self.job.id, owner(self.job));
        let registry = &self.service.registry;
        patiently(|| registry.advance(id, owner, &step, progress, unix_ms())).await?;
        Ok(())
    }

    /// The remaining time, estimated from the pace of this run, including pauses; `None` if nothing remains.
    fn left_s(&self, records: u64) -> Option<u64> {
        let left = self.layout.records.checked_sub(records);
        let left = left.filter(|left| *left > 0)?;
        let (began, before) = self.began;
        let done = records.saturating_sub(before);
        let pace_s = began.elapsed().as_secs_f64() / done as f64;
        (done > 0).then(|| (left as f64 * pace_s).ceil() as u64)
    }
}
