//! Random messages.

use std::sync::Arc;

use proptest::{collection::vec, option, prelude::*};
use sextant_rpc::{
    ActionKind, ActionStats, Answer, Assignment, CacheHit, Candidate, Composite, CompositeChoice,
    Explanation, ForStep, InferError, KeptAnswer, LoadTimings, Mispredictions, Pages, Part,
    QueryError, Ticket, Timings, VariantUsage, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{
    ApplicationId, Code, DataType, Digest, EngineName, ModelId, NamedTensor, Prefer, Route, StepOf,
    Targets, Tensor, VariantId, WholeAccuracy, WorkerId,
};

use super::variants::{kind, whole_variant};
use crate::{
    front::{FrontReport, FrontRequest, QueryInputs, QueryMessage},
    link::{Batch, Done, Outputs, Report, Request, Stamp, State, Steps, Window},
    mailbox::{FromMailbox, PartOutputs, ToMailbox},
};

pub(super) fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u64>(), any::<Option<i64>>()).prop_map(|(sent_at_ns, least_delta_ns)| Stamp {
        sent_at_ns,
        least_delta_ns,
    })
}

pub(super) fn ticket() -> impl Strategy<Value = Ticket> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(holder, query, attempt)| Ticket {
        holder,
        query,
        attempt,
    })
}

pub(super) fn name() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9_.-]{0,20}"
}

pub(super) fn variant() -> impl Strategy<Value = VariantId> {
    name().prop_map(|it| VariantId::new(it).expect("a name"))
}

pub(super) fn tensor() -> impl Strategy<Value = Tensor> {
    (
        prop::sample::select(DataType::ALL.to_vec()),
        vec(0usize..4, 0..3),
        any::<u8>(),
    )
        .prop_map(|(data_type, shape, fill)| {
            let count: usize = shape.iter().product();
            let tensor = match data_type.size() {
                Some(size) => {
                    let bytes = vec![fill % 2; count * size];
                    Tensor::from_bytes(data_type, shape, bytes.into())
                }
                None => Tensor::from_strings(shape, vec![vec![fill; 3]; count]),
            };
            tensor.expect("as many as it says")
        })
}

pub(super) fn inputs() -> impl Strategy<Value = Vec<NamedTensor>> {
    let input = (".{0,12}", tensor()).prop_map(|(name, tensor)| NamedTensor::new(name, tensor));
    vec(input, 0..3)
}

pub(super) fn outputs() -> impl Strategy<Value = Result<Vec<Tensor>, InferError>> {
    prop_oneof![vec(tensor(), 0..3).prop_map(Ok), failure().prop_map(Err)]
}

pub(super) fn failure() -> impl Strategy<Value = InferError> {
    let code = prop::sample::select(Code::ALL.to_vec());
    let lost = || (variant(), ".{0,20}");
    prop_oneof![
        Just(InferError::TooEarly),
        Just(InferError::TooLate),
        variant().prop_map(InferError::NotLoaded),
        ".{0,20}".prop_map(InferError::NoMemory),
        variant().prop_map(InferError::WeightsChanged),
        ".{0,20}".prop_map(InferError::BadShape),
        Just(InferError::InputsMissing),
        (code, ".{0,20}").prop_map(|(code, reason)| InferError::Failed { code, reason }),
        lost().prop_map(|(variant, reason)| InferError::Lost { variant, reason }),
        lost().prop_map(|(variant, reason)| InferError::Disconnected { variant, reason }),
        Just(InferError::ShuttingDown),
    ]
}

pub(super) fn order_failure() -> impl Strategy<Value = WorkError> {
    let lost = || (variant(), ".{0,20}");
    let memory = (variant(), any::<[u64; 3]>());
    prop_oneof![
        Just(WorkError::TooEarly),
        Just(WorkError::TooLate),
        lost().prop_map(|(variant, reason)| WorkError::Unknown { variant, reason }),
        memory.prop_map(
            |(variant, [needed, free, page_bytes])| WorkError::NoMemory {
                variant,
                needed,
                free,
                page_bytes
            }
        ),
        lost().prop_map(|(variant, reason)| WorkError::Failed { variant, reason }),
        ".{0,20}".prop_map(WorkError::Rejected),
        Just(WorkError::ShuttingDown),
    ]
}

pub(super) fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1e9, Just(0.0), Just(f64::INFINITY), Just(-1.5)]
}

pub(super) fn steps() -> impl Strategy<Value = Steps> {
    let figures = (figure(), figure(), figure(), figure());
    (figures, option::of(figure())).prop_map(
        |((queue_us, input_us, exec_us, output_us), device_us)| Steps {
            queue_us,
            input_us,
            exec_us,
            output_us,
            device_us,
        },
    )
}

pub(super) fn window() -> impl Strategy<Value = Window> {
    (any::<u64>(), any::<Option<u64>>(), any::<u64>()).prop_map(
        |(earliest_ns, latest_ns, expected_ns)| Window {
            earliest_ns,
            latest_ns,
            expected_ns,
        },
    )
}

pub(super) fn request() -> impl Strategy<Value = Request> {
    let part = prop_oneof![
        inputs().prop_map(Part::Inputs),
        ticket().prop_map(Part::Held)
    ];
    let batch = (variant(), vec(part, 0..3), any::<u32>(), window()).prop_map(
        |(variant, parts, offline_rows, window)| Batch {
            variant,
            parts,
            offline_rows,
            window,
        },
    );
    let batch = prop_oneof![batch.prop_map(Ok), failure().prop_map(Err)];
    let load = (any::<u64>(), whole_variant(), window());
    let unload = (any::<u64>(), variant());
    prop_oneof![
        Just(Request::Beat),
        Just(Request::Look),
        (any::<u64>(), batch).prop_map(|(id, batch)| Request::Infer { id, batch }),
        load.prop_map(|(id, variant, window)| Request::Load {
            id,
            variant: Box::new(variant),
            window
        }),
        unload.prop_map(|(id, variant)| Request::Unload { id, variant }),
        any::<u64>().prop_map(|id| Request::Stats { id }),
        any::<u64>().prop_map(|id| Request::Repin { id }),
        any::<u64>().prop_map(|id| Request::Leave { id }),
        any::<u64>().prop_map(|id| Request::Unknown { id }),
    ]
}

pub(super) fn stats() -> impl Strategy<Value = WorkerStats> {
    let errors = || {
        (any::<u64>(), figure()).prop_map(|(count, us)| Mispredictions {
            count,
            p50_us: us,
            p99_us: 2.0 * us,
            p999_us: 3.0 * us,
            max_us: 4.0 * us,
        })
    };
    let code = prop::sample::select(vec!["too_late", "disconnected", "rejected"]);
    let failed = prop::collection::btree_map(code, any::<u64>(), 0..3);
    let of = (any::<u64>(), failed, errors(), errors(), errors()).prop_map(
        |(succeeded, failed, under_predicted, over_predicted, late_completion)| ActionStats {
            succeeded,
            failed,
            under_predicted,
            over_predicted,
            late_completion,
        },
    );
    let kinds = vec![ActionKind::Infer, ActionKind::Load, ActionKind::Unload];
    let actions = prop::collection::btree_map(prop::sample::select(kinds), of, 0..3);
    actions.prop_map(|actions| WorkerStats { actions })
}

pub(super) fn state() -> impl Strategy<Value = State> {
    let usage =
        (variant(), any::<u64>()).prop_map(|(variant, idle_ms)| VariantUsage { variant, idle_ms });
    let info = (
        name(),
        any::<u16>(),
        vec(name(), 0..3),
        any::<[u64; 3]>(),
        figure(),
    )
        .prop_map(
            |(worker, cores, engines, [page_bytes, total, free], utilization)| WorkerInfo {
                worker: WorkerId::new(worker).expect("a name"),
                cores,
                engines: engines.into_iter().map(EngineName).collect(),
                pages: Pages {
                    page_bytes,
                    total,
                    free,
                },
                utilization,
            },
        );
    (info, any::<bool>(), vec(usage, 0..3)).prop_map(|(info, draining, usage)| State {
        info,
        draining,
        usage,
    })
}

pub(super) fn report() -> impl Strategy<Value = Report> {
    let ran =
        (vec(outputs(), 0..3), any::<u64>(), steps()).prop_map(|(parts, started_ns, steps)| {
            Outputs {
                parts,
                started_ns,
                steps,
            }
        });
    let outcome = prop_oneof![ran.prop_map(Ok), failure().prop_map(Err)];
    let loaded = (0.0..1e9, 0.0..1e9, 0.0..1e9).prop_map(|(queue_us, fetch_us, load_us)| {
        Done::Loaded(LoadTimings {
            queue_us,
            fetch_us,
            load_us,
        })
    });
    let done = prop_oneof![
        loaded,
        Just(Done::Unloaded),
        vec(any::<u16>(), 0..4).prop_map(Done::Repinned),
        Just(Done::Leaves),
        stats().prop_map(Done::Stats),
        Just(Done::Unknown),
    ];
    let done = prop_oneof![done.prop_map(Ok), order_failure().prop_map(Err)];
    prop_oneof![
        Just(Report::Beat),
        state().prop_map(Report::State),
        (any::<u64>(), outcome).prop_map(|(id, outcome)| Report::Inferred { id, outcome }),
        (any::<u64>(), done).prop_map(|(id, outcome)| Report::Ended { id, outcome }),
    ]
}

pub(super) fn ask() -> impl Strategy<Value = FrontRequest> {
    let route = prop_oneof![
        name().prop_map(|it| Route::Application(ApplicationId::new(it).expect("a name"))),
        name().prop_map(|it| Route::Model(ModelId::new(it).expect("a name"))),
        variant().prop_map(Route::Variant),
    ];
    let targets = (
        option::of(figure()),
        option::of(figure()),
        option::of(figure()),
        option::of(figure()),
    );
    let flags = (any::<bool>(), any::<bool>());
    let kept = (any::<u32>(), vec(any::<u64>(), 0..3));
    let sent = prop_oneof![
        (kept, vec(kept_answer(), 0..3)).prop_map(|((rows, dims), kept)| QueryInputs::Kept {
            rows,
            dims,
            kept
        }),
        inputs().prop_map(|inputs| QueryInputs::Here(Ok(inputs))),
    ];
    let rest = (flags, any::<u64>(), sent);
    let ask = (ticket(), route, targets, rest).prop_map(
        |(ticket, route, targets, ((best_effort, explain), arrived_ns, inputs))| {
            FrontRequest::Ask(Box::new(QueryMessage {
                ticket,
                step: explain.then(|| step(&route)),
                route,
                inputs,
                targets: Targets {
                    latency_ms: targets.0,
                    min_quality: targets.1,
                    max_cost_per_1k_usd: targets.2,
                    min_relative_accuracy: targets.3,
                    min_agreement: None,
                    prefer: [None, Some(Prefer::Accuracy)][usize::from(explain)],
                },
                best_effort,
                explain,
                sticky: arrived_ns.checked_sub(1 << 63),
                serial: arrived_ns.checked_sub(1 << 62),
                composites: vec![composite(); usize::from(best_effort)],
                offline: explain,
                arrived_ns,
            }))
        },
    );
    prop_oneof![
        Just(FrontRequest::Beat),
        ask,
        any::<u64>().prop_map(|query| FrontRequest::GiveUp { query }),
    ]
}

/// A step that asks this.
fn step(asks: &Route) -> Box<ForStep> {
    Box::new(ForStep {
        of: Arc::new(StepOf {
            pipeline: ApplicationId::new("pages").expect("a name"),
            step: "read".to_owned(),
            after: vec!["find".to_owned(), "turn".to_owned()],
            asks: asks.clone(),
        }),
        share: 0.25,
        whole_ms: Some(500.0),
        patience_ms: Some(0.0),
        accuracy: Some(WholeAccuracy {
            least: 0.8,
            measured: 0.85,
            answered: vec![VariantId::new("m-b").expect("a name")],
        }),
    })
}

fn kept_answer() -> impl Strategy<Value = KeptAnswer> {
    (variant(), any::<[u8; 32]>()).prop_map(|(variant, file)| KeptAnswer {
        variant,
        file: Digest::from_bytes(file),
    })
}

fn composite() -> Composite {
    Composite {
        variant: VariantId::new("careful-v1").expect("a name"),
        quality_bound: 0.9,
        latency_ms: 7.5,
        cost_per_1k_usd: 0.001,
    }
}

pub(super) fn candidate() -> impl Strategy<Value = Candidate> {
    let device = option::of(Just("cpu-8").prop_map(|name| name.parse().expect("a name")));
    let words = (name(), name(), any::<bool>(), device, kind());
    (variant(), figure(), figure(), figure(), words).prop_map(
        |(
            variant,
            quality_bound,
            expected_ms,
            cost_per_1k_usd,
            (state, verdict, estimated, device_type, kind),
        )| {
            Candidate {
                variant,
                quality_bound,
                expected_ms,
                cost_per_1k_usd,
                state: state.into(),
                verdict: verdict.into(),
                estimated,
                device_type,
                kind,
            }
        },
    )
}

pub(super) fn explanation() -> impl Strategy<Value = Option<Explanation>> {
    let explanation = (".{0,20}", vec(candidate(), 0..3), any::<usize>()).prop_map(
        |(reason, candidates, considered)| Explanation {
            reason,
            candidates,
            considered,
            steps: Vec::new(),
        },
    );
    option::of(explanation)
}

pub(super) fn refusal() -> impl Strategy<Value = QueryError> {
    let code = prop::sample::select(Code::ALL.to_vec());
    let closest = vec(candidate(), 0..3);
    let numbers = (any::<Option<u64>>(), any::<Option<u32>>());
    let instead = (variant(), explanation()).prop_map(|(variant, explanation)| {
        Box::new(CompositeChoice {
            variant,
            explanation,
        })
    });
    (code, ".{0,20}", numbers, closest, option::of(instead)).prop_map(
        |(code, message, (retry_after_ms, most_rows), closest, instead)| QueryError {
            code,
            message,
            retry_after_ms,
            closest,
            most_rows,
            instead,
        },
    )
}

pub(super) fn placement() -> impl Strategy<Value = FrontReport> {
    let names = (name(), variant(), name());
    let price = || (any::<bool>(), figure());
    let times = (figure(), figure(), figure(), figure());
    let ran = (times, any::<u32>()).prop_map(
        |((queue_us, load_us, compute_us, total_us), batch_rows)| Timings {
            queue_us,
            load_us,
            compute_us,
            total_us,
            batch_rows,
        },
    );
    let ran = (any::<u32>(), ran);
    let answer = (variant(), name(), inputs(), ran, price(), explanation()).prop_map(
        |(variant, model, outputs, (rows, timings), (targets_met, cost_usd), explanation)| Answer {
            variant,
            model: ModelId::new(model).expect("a name"),
            outputs,
            rows,
            timings,
            targets_met,
            cost_usd,
            explanation,
        },
    );
    let price_and_load = (price(), any::<bool>());
    let assign = (ticket(), names, price_and_load, explanation()).prop_map(
        |(ticket, (worker, variant, model), ((suits, second_usd), load), explanation)| {
            FrontReport::Assign(Box::new(Assignment {
                ticket,
                worker: WorkerId::new(worker).expect("a name"),
                variant,
                model: ModelId::new(model).expect("a name"),
                file: load.then(|| Digest::from_bytes([7; 32])),
                suits,
                load,
                second_usd,
                explanation,
            }))
        },
    );
    let has = (ticket(), variant(), name(), any::<bool>(), explanation());
    let has = has.prop_map(|(ticket, variant, model, suits, explanation)| {
        FrontReport::Has(Box::new(CacheHit {
            ticket,
            variant,
            model: ModelId::new(model).expect("a name"),
            suits,
            explanation,
        }))
    });
    let outcome = prop_oneof![Just(Ok(())), refusal().prop_map(Err)];
    let answered = prop_oneof![
        answer.prop_map(|answer| Ok(Box::new(answer))),
        refusal().prop_map(Err)
    ];
    prop_oneof![
        (figure(), any::<bool>())
            .prop_map(|(utilization, leads)| FrontReport::Beat { utilization, leads }),
        assign,
        has,
        (any::<u64>(), outcome).prop_map(|(query, outcome)| FrontReport::Done { query, outcome }),
        (any::<u64>(), answered)
            .prop_map(|(query, outcome)| FrontReport::Answered { query, outcome }),
        any::<u64>().prop_map(|query| FrontReport::Declined { query }),
    ]
}

pub(super) fn delivery() -> impl Strategy<Value = ToMailbox> {
    prop_oneof![
        Just(ToMailbox::Beat),
        (ticket(), any::<u32>(), inputs()).prop_map(|(ticket, rows, inputs)| ToMailbox::Inputs {
            ticket,
            rows,
            inputs
        }),
        (ticket(), failure()).prop_map(|(ticket, reason)| ToMailbox::Withheld { ticket, reason }),
    ]
}

pub(super) fn receipt() -> impl Strategy<Value = FromMailbox> {
    let part = (vec(tensor(), 0..3), figure(), figure(), any::<u32>()).prop_map(
        |(outputs, queue_us, compute_us, batch_rows)| {
            Ok(PartOutputs {
                outputs,
                queue_us,
                compute_us,
                batch_rows,
            })
        },
    );
    let outcome = prop_oneof![part, failure().prop_map(Err)];
    prop_oneof![
        Just(FromMailbox::Beat),
        (ticket(), outcome).prop_map(|(ticket, outcome)| FromMailbox::Outputs { ticket, outcome }),
    ]
}
