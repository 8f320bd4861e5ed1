//! Answers the records of a chunk. Neighbouring records of the same shape are asked together as rows of one query.

use std::time::Instant;

use sextant_records::{Record, RecordAnswer, RecordFailure};
use sextant_registry::Job;
use sextant_rpc::{Answer, Query, QueryError};
use sextant_types::{Code, NamedTensor, OfflineSpec, Route, Signature, Tensor, VariantId};

use super::{
    JobService,
    plan::Plan,
    stop::{Stop, Trial},
};

/// The route that answers a job's records.
pub(crate) struct Addressee {
    route: Route,
    /// The variant whose answers are accepted.
    variant: VariantId,
    /// Whether records may share a query.
    batched: bool,
}

impl JobService {
    /// The addressee of the job's records.
    pub(crate) fn addressee(
        &self,
        spec: &OfflineSpec,
        plan: &Plan,
        signature: &Signature,
    ) -> Addressee {
        let route = self.offline.route(spec, &plan.variant);
        Addressee {
            route,
            variant: plan.variant.clone(),
            batched: signature.batched,
        }
    }

    /// Answers records in order.
    ///
    /// Online queries may come at any time, so the job makes room before each of its queries.
    pub(crate) async fn answer_all(
        &self,
        job: &Job,
        addressee: &Addressee,
        records: Vec<Record>,
    ) -> Result<Vec<RecordAnswer>, Stop> {
        let mut answers = Vec::with_capacity(records.len());
        let mut group: Vec<Vec<NamedTensor>> = Vec::new();
        let mut most = 1;
        for record in records {
            let inputs = match record {
                Ok(inputs) => inputs,
                Err(message) => {
                    self.answer_group(job, addressee, (&mut group, &mut answers))
                        .await?;
                    let code = Code::InvalidRecord;
                    answers.push(Err(RecordFailure { code, message }));
                    continue;
                }
            };
            let alike = group
                .first()
                .is_none_or(|first| same_shapes(first, &inputs));
            if group.len() >= most || !alike {
                self.answer_group(job, addressee, (&mut group, &mut answers))
                    .await?;
            }
            if group.is_empty() {
                most = self.most_together(addressee);
            }
            group.push(inputs);
        }
        self.answer_group(job, addressee, (&mut group, &mut answers))
            .await?;
        Ok(answers)
    }

    /// The most records of the next query.
    pub(crate) fn most_together(&self, addressee: &Addressee) -> usize {
        match addressee.batched {
            true => self.offline.most_together(&addressee.route).max(1) as usize,
            false => 1,
        }
    }

    /// Answers records as rows of one query. If the query fails, or its outputs do not have one row per record, each
    /// half of the records is asked for by itself: one record may be at fault.
    async fn answer_group(
        &self,
        job: &Job,
        addressee: &Addressee,
        (group, answers): (&mut Vec<Vec<NamedTensor>>, &mut Vec<RecordAnswer>),
    ) -> Result<(), Stop> {
        // The list is a stack: its last element comes first.
        let mut parts = vec![std::mem::take(group)];
        while let Some(mut records) = parts.pop() {
            if records.is_empty() {
                continue;
            }
            match self.ask(job, &addressee.route, &records).await? {
                Ok(answer) if answer.variant != addressee.variant => {
                    let message = format!(
                        "the job began with `{}`, and now `{}` answers: start it again",
                        addressee.variant, answer.variant
                    );
                    return Err(Stop::failed(Code::PreconditionFailed, message));
                }
                Err(error) if error.code.kind().is_retryable() => {
                    return Err(Stop::from_query(error));
                }
                Ok(answer) if are_rows(&answer.outputs, records.len()) => {
                    let rows = rows(&answer.outputs, records.len());
                    answers.extend(rows.into_iter().map(Ok));
                }
                Err(error) if records.len() == 1 => answers.push(Err(RecordFailure {
                    code: error.code,
                    message: error.message,
                })),
                _ => {
                    let rest = records.split_off(records.len() / 2);
                    parts.extend([rest, records]);
                }
            }
        }
        Ok(())
    }

    /// Asks until there is an answer, or an error that another attempt would not change. Other jobs have their turn
    /// between two attempts.
    async fn ask(
        &self,
        job: &Job,
        route: &Route,
        records: &[Vec<NamedTensor>],
    ) -> Result<Result<Answer, QueryError>, Stop> {
        let inputs = match join_rows(records) {
            Ok(inputs) => inputs,
            Err(error) => return Ok(Err(error)),
        };
        let (mut trial, mut paused) = (Trial::new(self.look()), false);
        loop {
            self.make_room(job, route, &mut paused).await?;
            self.show_paused(job, &mut paused, trial.is_waiting())
                .await?;
            let turn = self.turn.lock().await;
            if self.is_needed(route, paused) {
                continue;
            }
            let asked = self.ask_once(route, inputs.clone()).await;
            drop(turn);
            let error = asked.as_ref().err();
            let Some(pause) = error.and_then(|error| trial.pause_after(error)) else {
                self.show_paused(job, &mut paused, false).await?;
                return Ok(asked);
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask_once(
        &self,
        route: &Route,
        inputs: Vec<NamedTensor>,
    ) -> Result<Answer, QueryError> {
        let query = Query {
            offline: true,
            ..Query::new(route.clone(), inputs, Instant::now())
        };
        self.offline.answer(query).await
    }
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

/// Whether the outputs have one row for each of this many records. The outputs of a single record are its own in any
/// case.
fn are_rows(outputs: &[NamedTensor], count: usize) -> bool {
    let has_them = |output: &NamedTensor| output.tensor.shape().first() == Some(&count);
    count == 1 || outputs.iter().all(has_them)
}

/// Cuts the outputs into one list per record.
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
