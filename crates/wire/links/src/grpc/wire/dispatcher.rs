//! Messages between front ends and dispatchers.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use sextant_rpc::{
    Answer, Assignment, CacheHit, Candidate, Composite, CompositeChoice, Explanation, ForStep,
    KeptAnswer, QueryError, Timings,
};
use sextant_types::{
    ApplicationId, Code, DeviceTypeName, Digest, ModelId, Route, StepOf, Targets, VariantId,
    WholeAccuracy, WorkerId,
};

use super::{
    ENVELOPE_BYTES, MalformedFrame, Wire, field,
    tensors::{named_weight_bytes, pack_named, unpack_named},
    variant::unpack_kind,
};
use crate::{
    front::{FromDispatcher, FrontReport, FrontRequest, QueryInputs, QueryMessage, ToDispatcher},
    grpc::proto::{self, answered, ask, ask_message, placement},
};

impl Wire for ToDispatcher {
    type Frame = proto::Asks;

    fn pack(messages: impl ExactSizeIterator<Item = Self>, _token: u64) -> Self::Frame {
        let messages = messages.map(|it| proto::AskMessage {
            stamp: Some(it.stamp.into()),
            body: Some(match it.body {
                FrontRequest::Beat => ask_message::Body::Beat(proto::Nothing {}),
                FrontRequest::Ask(ask) => ask_message::Body::Ask(Box::new(pack_ask(*ask))),
                FrontRequest::GiveUp { query } => ask_message::Body::GiveUp(query),
            }),
        });
        proto::Asks {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame> {
        for message in frame.messages {
            into.push_back(Self {
                stamp: field(message.stamp, "stamp")?.into(),
                body: match field(message.body, "ask")? {
                    ask_message::Body::Beat(_) => FrontRequest::Beat,
                    ask_message::Body::Ask(ask) => FrontRequest::Ask(Box::new(unpack_ask(*ask)?)),
                    ask_message::Body::GiveUp(query) => FrontRequest::GiveUp { query },
                },
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match &self.body {
            FrontRequest::Ask(ask) => match &ask.inputs {
                QueryInputs::Here(Ok(inputs)) => ENVELOPE_BYTES + named_weight_bytes(inputs),
                _ => ENVELOPE_BYTES,
            },
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let FrontRequest::Ask(ask) = &mut self.body
            && let QueryInputs::Here(inputs) = &mut ask.inputs
        {
            *inputs = Err(reason.to_owned());
        }
    }
}

impl Wire for FromDispatcher {
    type Frame = proto::Placements;

    fn pack(messages: impl ExactSizeIterator<Item = Self>, _token: u64) -> Self::Frame {
        let messages = messages.map(|it| proto::Placement {
            stamp: Some(it.stamp.into()),
            body: Some(pack_report(it.body)),
        });
        proto::Placements {
            messages: messages.collect(),
        }
    }

    fn unpack(frame: Self::Frame, into: &mut VecDeque<Self>) -> Result<(), MalformedFrame> {
        for message in frame.messages {
            into.push_back(Self {
                stamp: field(message.stamp, "stamp")?.into(),
                body: unpack_report(field(message.body, "placement")?)?,
            });
        }
        Ok(())
    }

    fn weight_bytes(&self) -> usize {
        match &self.body {
            FrontReport::Assign(assignment) if assignment.explanation.is_some() => 32 * 256,
            FrontReport::Has(has) if has.explanation.is_some() => 32 * 256,
            FrontReport::Done {
                outcome: Err(error),
                ..
            }
            | FrontReport::Answered {
                outcome: Err(error),
                ..
            } => ENVELOPE_BYTES + error.message.len() + 256 * error.closest.len(),
            FrontReport::Answered {
                outcome: Ok(answer),
                ..
            } => {
                let explained = answer.explanation.as_ref().map_or(0, |_| 32 * 256);
                ENVELOPE_BYTES + named_weight_bytes(&answer.outputs) + explained
            }
            _ => ENVELOPE_BYTES,
        }
    }

    fn strip(&mut self, reason: &str) {
        if let FrontReport::Answered { outcome, .. } = &mut self.body {
            *outcome = Err(QueryError::new(Code::EngineFailed, reason));
        }
    }
}

fn pack_ask(ask: QueryMessage) -> proto::Ask {
    let mut kept = Vec::new();
    let (rows, dims, inputs) = match ask.inputs {
        QueryInputs::Kept {
            rows,
            dims,
            kept: own,
        } => {
            kept.extend(own.into_iter().map(pack_kept));
            (rows, dims, None)
        }
        QueryInputs::Here(inputs) => {
            // A stripped message has no tensors, which every model requires.
            let tensors = pack_named(inputs.unwrap_or_default());
            (0, Vec::new(), Some(proto::Tensors { tensors }))
        }
    };
    proto::Ask {
        ticket: Some(ask.ticket.into()),
        rows,
        dims,
        inputs,
        latency_ms: ask.targets.latency_ms,
        min_quality: ask.targets.min_quality,
        min_relative_accuracy: ask.targets.min_relative_accuracy,
        max_cost_per_1k_usd: ask.targets.max_cost_per_1k_usd,
        prefer: ask.targets.prefer.map(|prefer| prefer.name().to_owned()),
        best_effort: ask.best_effort,
        explain: ask.explain,
        arrived_ns: ask.arrived_ns,
        sticky: ask.sticky,
        kept,
        serial: ask.serial,
        composites: ask.composites.into_iter().map(pack_composite).collect(),
        offline: ask.offline,
        step: ask.step.map(|step| pack_step(&step)),
        route: Some(match ask.route {
            Route::Application(id) => ask::Route::Application(id.into()),
            Route::Model(id) => ask::Route::Model(id.into()),
            Route::Variant(id) => ask::Route::Variant(id.into()),
        }),
    }
}

fn unpack_ask(ask: proto::Ask) -> Result<QueryMessage, MalformedFrame> {
    let route = match field(ask.route, "route")? {
        ask::Route::Application(id) => Route::Application(ApplicationId::new(id)?),
        ask::Route::Model(id) => Route::Model(id.parse()?),
        ask::Route::Variant(id) => Route::Variant(VariantId::new(id)?),
    };
    let step = ask.step.map(|step| unpack_step(step, &route)).transpose()?;
    Ok(QueryMessage {
        ticket: field(ask.ticket, "ticket")?.into(),
        route,
        step,
        inputs: match ask.inputs {
            None => QueryInputs::Kept {
                rows: ask.rows,
                dims: ask.dims,
                kept: unpack_all_kept(ask.kept)?,
            },
            Some(inputs) => {
                let inputs = unpack_named(inputs.tensors)?;
                QueryInputs::Here(inputs.map_err(|error| error.to_string()))
            }
        },
        targets: Targets {
            latency_ms: ask.latency_ms,
            min_quality: ask.min_quality,
            min_relative_accuracy: ask.min_relative_accuracy,
            max_cost_per_1k_usd: ask.max_cost_per_1k_usd,
            min_agreement: None,
            // A preference of a later version is read as none.
            prefer: ask.prefer.and_then(|prefer| prefer.parse().ok()),
        },
        best_effort: ask.best_effort,
        explain: ask.explain,
        sticky: ask.sticky,
        serial: ask.serial,
        composites: unpack_composites(ask.composites)?,
        offline: ask.offline,
        arrived_ns: ask.arrived_ns,
    })
}

fn pack_report(report: FrontReport) -> placement::Body {
    match report {
        FrontReport::Beat { utilization, leads } => {
            placement::Body::Beat(proto::DispatcherBeat { utilization, leads })
        }
        FrontReport::Assign(assignment) => placement::Body::Assign(proto::Assign {
            ticket: Some(assignment.ticket.into()),
            worker: assignment.worker.into(),
            variant: assignment.variant.into(),
            model: assignment.model.into(),
            suits: assignment.suits,
            load: assignment.load,
            second_usd: assignment.second_usd,
            explanation: assignment.explanation.map(pack_explanation),
            file: assignment.file.map(pack_file).unwrap_or_default(),
        }),
        FrontReport::Has(has) => placement::Body::Has(proto::KeptHere {
            ticket: Some(has.ticket.into()),
            variant: has.variant.into(),
            model: has.model.into(),
            suits: has.suits,
            explanation: has.explanation.map(pack_explanation),
        }),
        FrontReport::Done { query, outcome } => placement::Body::Done(proto::Done {
            query,
            error: outcome.err().map(pack_error),
        }),
        FrontReport::Answered { query, outcome } => {
            let outcome = match outcome {
                Ok(answer) => answered::Outcome::Answer(pack_answer(*answer)),
                Err(error) => answered::Outcome::Error(pack_error(error)),
            };
            placement::Body::Answered(proto::Answered {
                query,
                outcome: Some(outcome),
            })
        }
        FrontReport::Declined { query } => placement::Body::Declined(query),
    }
}

fn unpack_report(body: placement::Body) -> Result<FrontReport, MalformedFrame> {
    Ok(match body {
        placement::Body::Beat(beat) => FrontReport::Beat {
            utilization: beat.utilization,
            leads: beat.leads,
        },
        placement::Body::Assign(assign) => FrontReport::Assign(Box::new(Assignment {
            ticket: field(assign.ticket, "ticket")?.into(),
            worker: WorkerId::new(assign.worker)?,
            variant: VariantId::new(assign.variant)?,
            model: ModelId::new(assign.model)?,
            suits: assign.suits,
            load: assign.load,
            second_usd: assign.second_usd,
            explanation: assign.explanation.map(unpack_explanation).transpose()?,
            // A dispatcher of an earlier release does not state it.
            file: unpack_file(&assign.file).ok(),
        })),
        placement::Body::Has(has) => FrontReport::Has(Box::new(CacheHit {
            ticket: field(has.ticket, "ticket")?.into(),
            variant: VariantId::new(has.variant)?,
            model: ModelId::new(has.model)?,
            suits: has.suits,
            explanation: has.explanation.map(unpack_explanation).transpose()?,
        })),
        placement::Body::Done(done) => FrontReport::Done {
            query: done.query,
            outcome: match done.error {
                Some(error) => Err(unpack_error(error)?),
                None => Ok(()),
            },
        },
        placement::Body::Answered(answered) => FrontReport::Answered {
            query: answered.query,
            outcome: match field(answered.outcome, "outcome")? {
                answered::Outcome::Answer(answer) => unpack_answer(answer)?.map(Box::new),
                answered::Outcome::Error(error) => Err(unpack_error(error)?),
            },
        },
        placement::Body::Declined(query) => FrontReport::Declined { query },
    })
}

fn pack_kept(kept: KeptAnswer) -> proto::KeptAnswer {
    proto::KeptAnswer {
        variant: kept.variant.into(),
        file: pack_file(kept.file),
    }
}

fn unpack_all_kept(kept: Vec<proto::KeptAnswer>) -> Result<Vec<KeptAnswer>, MalformedFrame> {
    let unpack = |kept: proto::KeptAnswer| {
        Ok(KeptAnswer {
            variant: VariantId::new(kept.variant)?,
            file: unpack_file(&kept.file)?,
        })
    };
    kept.into_iter().map(unpack).collect()
}

fn pack_file(file: Digest) -> Bytes {
    Bytes::copy_from_slice(file.as_bytes())
}

fn unpack_file(bytes: &Bytes) -> Result<Digest, MalformedFrame> {
    let bytes: Result<[u8; 32], _> = (&**bytes).try_into();
    Ok(Digest::from_bytes(field(bytes.ok(), "file")?))
}

fn pack_answer(answer: Answer) -> proto::Answer {
    proto::Answer {
        variant: answer.variant.into(),
        model: answer.model.into(),
        outputs: pack_named(answer.outputs),
        rows: answer.rows,
        queue_us: answer.timings.queue_us,
        load_us: answer.timings.load_us,
        compute_us: answer.timings.compute_us,
        total_us: answer.timings.total_us,
        batch_rows: answer.timings.batch_rows,
        targets_met: answer.targets_met,
        cost_usd: answer.cost_usd,
        explanation: answer.explanation.map(pack_explanation),
    }
}

/// Invalid outputs are a fault of the engine.
fn unpack_answer(answer: proto::Answer) -> Result<Result<Answer, QueryError>, MalformedFrame> {
    let outputs = match unpack_named(answer.outputs)? {
        Ok(outputs) => outputs,
        Err(error) => {
            return Ok(Err(QueryError::new(Code::EngineFailed, error.to_string())));
        }
    };
    Ok(Ok(Answer {
        variant: VariantId::new(answer.variant)?,
        model: ModelId::new(answer.model)?,
        outputs,
        rows: answer.rows,
        timings: Timings {
            queue_us: answer.queue_us,
            load_us: answer.load_us,
            compute_us: answer.compute_us,
            total_us: answer.total_us,
            batch_rows: answer.batch_rows,
        },
        targets_met: answer.targets_met,
        cost_usd: answer.cost_usd,
        explanation: answer.explanation.map(unpack_explanation).transpose()?,
    }))
}

fn pack_error(error: QueryError) -> proto::Refusal {
    proto::Refusal {
        code: error.code.as_str().to_owned(),
        message: error.message,
        retry_after_ms: error.retry_after_ms,
        closest: error.closest.into_iter().map(pack_candidate).collect(),
        most_rows: error.most_rows,
        instead: error.instead.map(|instead| proto::Instead {
            variant: instead.variant.into(),
            explanation: instead.explanation.map(pack_explanation),
        }),
    }
}

/// An unknown code is a fault of the service.
fn unpack_error(refusal: proto::Refusal) -> Result<QueryError, MalformedFrame> {
    Ok(QueryError {
        code: Code::parse(&refusal.code).unwrap_or(Code::Internal),
        message: refusal.message,
        retry_after_ms: refusal.retry_after_ms,
        closest: unpack_candidates(refusal.closest)?,
        most_rows: refusal.most_rows,
        instead: refusal.instead.map(unpack_instead).transpose()?,
    })
}

fn unpack_instead(instead: proto::Instead) -> Result<Box<CompositeChoice>, MalformedFrame> {
    Ok(Box::new(CompositeChoice {
        variant: VariantId::new(instead.variant)?,
        explanation: instead.explanation.map(unpack_explanation).transpose()?,
    }))
}

fn pack_composite(composite: Composite) -> proto::Composite {
    proto::Composite {
        variant: composite.variant.into(),
        quality_bound: composite.quality_bound,
        latency_ms: composite.latency_ms,
        cost_per_1k_usd: composite.cost_per_1k_usd,
    }
}

fn pack_step(step: &ForStep) -> proto::ForStep {
    proto::ForStep {
        pipeline: step.of.pipeline.to_string(),
        step: step.of.step.clone(),
        after: step.of.after.clone(),
        share: step.share,
        whole_ms: step.whole_ms,
        patience_ms: step.patience_ms,
        accuracy: step.accuracy.as_ref().map(pack_whole_accuracy),
    }
}

fn pack_whole_accuracy(of: &WholeAccuracy) -> proto::WholeAccuracy {
    proto::WholeAccuracy {
        least: of.least,
        measured: of.measured,
        answered: of.answered.iter().map(VariantId::to_string).collect(),
    }
}

/// A step asks what its query asks.
fn unpack_step(step: proto::ForStep, asks: &Route) -> Result<Box<ForStep>, MalformedFrame> {
    let of = StepOf {
        pipeline: ApplicationId::new(step.pipeline)?,
        step: step.step,
        after: step.after,
        asks: asks.clone(),
    };
    // An invalid time counts as none left.
    let time = |ms: Option<f64>| ms.filter(|ms| ms.is_finite()).map(|ms| ms.max(0.0));
    Ok(Box::new(ForStep {
        of: Arc::new(of),
        share: step.share,
        whole_ms: time(step.whole_ms),
        patience_ms: time(step.patience_ms),
        accuracy: step.accuracy.map(unpack_whole_accuracy).transpose()?,
    }))
}

fn unpack_whole_accuracy(of: proto::WholeAccuracy) -> Result<WholeAccuracy, MalformedFrame> {
    // An invalid number asks for nothing.
    let share = |of: f64| {
        if of.is_finite() {
            of.clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    let answered = of.answered.into_iter().map(VariantId::new);
    Ok(WholeAccuracy {
        least: share(of.least),
        measured: share(of.measured),
        answered: answered.collect::<Result<_, _>>()?,
    })
}

fn unpack_composites(composites: Vec<proto::Composite>) -> Result<Vec<Composite>, MalformedFrame> {
    let unpack = |it: proto::Composite| {
        Ok(Composite {
            variant: VariantId::new(it.variant)?,
            quality_bound: it.quality_bound,
            latency_ms: it.latency_ms,
            cost_per_1k_usd: it.cost_per_1k_usd,
        })
    };
    composites.into_iter().map(unpack).collect()
}

fn pack_explanation(explanation: Explanation) -> proto::Explanation {
    let candidates = explanation.candidates.into_iter();
    proto::Explanation {
        reason: explanation.reason,
        candidates: candidates.map(pack_candidate).collect(),
        considered: explanation.considered as u64,
    }
}

fn unpack_explanation(explanation: proto::Explanation) -> Result<Explanation, MalformedFrame> {
    let considered = usize::try_from(explanation.considered);
    Ok(Explanation {
        reason: explanation.reason,
        candidates: unpack_candidates(explanation.candidates)?,
        considered: considered.map_err(|_| MalformedFrame::Field("considered"))?,
        // Only front ends know pipelines; dispatchers do not.
        steps: Vec::new(),
    })
}

fn pack_candidate(candidate: Candidate) -> proto::Candidate {
    proto::Candidate {
        variant: candidate.variant.into(),
        quality_bound: candidate.quality_bound,
        expected_ms: candidate.expected_ms,
        cost_per_1k_usd: candidate.cost_per_1k_usd,
        state: candidate.state.into_owned(),
        verdict: candidate.verdict.into_owned(),
        estimated: candidate.estimated,
        device_type: candidate.device_type.map(Into::into),
        kind: candidate.kind.name().to_owned(),
    }
}

fn unpack_candidates(candidates: Vec<proto::Candidate>) -> Result<Vec<Candidate>, MalformedFrame> {
    let unpack = |it: proto::Candidate| {
        Ok(Candidate {
            variant: VariantId::new(it.variant)?,
            quality_bound: it.quality_bound,
            expected_ms: it.expected_ms,
            cost_per_1k_usd: it.cost_per_1k_usd,
            state: it.state.into(),
            verdict: it.verdict.into(),
            estimated: it.estimated,
            device_type: it.device_type.map(DeviceTypeName::new).transpose()?,
            kind: unpack_kind(&it.kind)?,
        })
    };
    candidates.into_iter().map(unpack).collect()
}
