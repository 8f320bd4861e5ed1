//! Every message comes out of a frame as it went in.

use std::{collections::VecDeque, fmt::Debug};

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};
use prost::Message;
use sextant_rpc::{
    Assignment, Candidate, Explanation, QueryError, Route, Ticket,
    front::wire::{
        FromDispatcher, FromMailbox, FrontReport, FrontRequest, PartOutputs, ToDispatcher,
        ToMailbox, WireAsk,
    },
    link::wire::{
        Batch, FromWorker, Outputs, Report, Request, Stamp, ToWorker, Window, WireData, WireError,
        WireLoadTimings, WireNamedTensor, WirePart, WireTensor, WireTimings,
    },
};
use sextant_types::{ApplicationId, Code, DataType, ModelId, Targets, VariantId, WorkerId};

use super::{Wire, check_frame};
use crate::proto::{self, work_request};

/// Through the bytes of a frame.
fn round_trip<W: Wire + Clone + PartialEq + Debug>(messages: &[W], token: u64) {
    let bytes = W::pack(messages.iter().cloned(), token).encode_to_vec();
    let frame = W::Frame::decode(Bytes::from(bytes)).expect("a frame");
    let mut unpacked = VecDeque::new();
    W::unpack(frame, &mut unpacked).expect("sound messages");
    assert_eq!(Vec::from(unpacked), messages);
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u64>(), any::<Option<i64>>()).prop_map(|(sent_at_ns, least_delta_ns)| Stamp {
        sent_at_ns,
        least_delta_ns,
    })
}

fn ticket() -> impl Strategy<Value = Ticket> {
    (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(holder, query, attempt)| Ticket {
        holder,
        query,
        attempt,
    })
}

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9_.-]{0,20}"
}

fn variant() -> impl Strategy<Value = VariantId> {
    name().prop_map(|it| VariantId::new(it).expect("a name"))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..64).prop_map(Bytes::from)
}

fn tensor() -> impl Strategy<Value = WireTensor> {
    let data = prop_oneof![
        bytes().prop_map(WireData::Plain),
        vec(bytes(), 0..4).prop_map(WireData::Strings),
    ];
    let data_type = prop::sample::select(DataType::ALL.to_vec());
    (data_type, vec(any::<usize>(), 0..4), data).prop_map(|(data_type, shape, data)| WireTensor {
        data_type,
        shape,
        data,
    })
}

fn inputs() -> impl Strategy<Value = Vec<WireNamedTensor>> {
    let input = (".{0,12}", tensor()).prop_map(|(name, tensor)| WireNamedTensor { name, tensor });
    vec(input, 0..3)
}

fn outputs() -> impl Strategy<Value = Result<Vec<WireTensor>, String>> {
    prop_oneof![vec(tensor(), 0..3).prop_map(Ok), ".{0,20}".prop_map(Err)]
}

fn error() -> impl Strategy<Value = WireError> {
    let pages = option::of(any::<[u64; 3]>());
    (name(), option::of(variant()), ".{0,20}", pages).prop_map(|(code, variant, reason, pages)| {
        WireError {
            code,
            variant,
            reason,
            pages,
        }
    })
}

fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![0.0..1e9, Just(0.0), Just(f64::INFINITY), Just(-1.5)]
}

fn timings() -> impl Strategy<Value = WireTimings> {
    let figures = (figure(), figure(), figure(), figure());
    (any::<u64>(), figures, option::of(figure())).prop_map(
        |(started_ns, (queue_us, input_us, exec_us, output_us), device_us)| WireTimings {
            started_ns,
            queue_us,
            input_us,
            exec_us,
            output_us,
            device_us,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let part = prop_oneof![
        inputs().prop_map(WirePart::Inputs),
        ticket().prop_map(WirePart::Held)
    ];
    let window = (any::<u64>(), any::<Option<u64>>(), any::<u64>());
    let batch = (vec(part, 0..3), any::<u32>());
    let infer = (any::<u64>(), variant(), batch, window).prop_map(
        |(id, variant, (parts, offline_rows), (earliest_ns, latest_ns, expected_ns))| {
            Request::Infer {
                id,
                batch: Batch {
                    variant,
                    parts,
                    offline_rows,
                    window: Window {
                        earliest_ns,
                        latest_ns,
                        expected_ns,
                    },
                },
            }
        },
    );
    let unload = (any::<u64>(), variant());
    prop_oneof![
        Just(Request::Beat),
        Just(Request::Look),
        infer,
        unload.prop_map(|(id, variant)| Request::Unload { id, variant }),
        any::<u64>().prop_map(|id| Request::Stats { id }),
        any::<u64>().prop_map(|id| Request::Repin { id }),
        any::<u64>().prop_map(|id| Request::Leave { id }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let ran = (vec(outputs(), 0..3), timings());
    let outcome = prop_oneof![
        ran.prop_map(|(parts, timings)| Ok(Outputs { parts, timings })),
        error().prop_map(Err),
    ];
    let loaded = prop_oneof![
        (0.0..1e9, 0.0..1e9, 0.0..1e9).prop_map(|(queue_us, fetch_us, load_us)| {
            Ok(WireLoadTimings {
                queue_us,
                fetch_us,
                load_us,
            })
        }),
        error().prop_map(Err),
    ];
    let unloaded = prop_oneof![Just(Ok(())), error().prop_map(Err)];
    let repinned = prop_oneof![vec(any::<u16>(), 0..4).prop_map(Ok), error().prop_map(Err)];
    prop_oneof![
        Just(Report::Beat),
        (any::<u64>(), outcome).prop_map(|(id, outcome)| Report::Inferred { id, outcome }),
        (any::<u64>(), loaded).prop_map(|(id, outcome)| Report::Loaded { id, outcome }),
        (any::<u64>(), unloaded.clone()).prop_map(|(id, outcome)| Report::Unloaded { id, outcome }),
        (any::<u64>(), unloaded).prop_map(|(id, outcome)| Report::Leaves { id, outcome }),
        (any::<u64>(), name()).prop_map(|(id, order)| Report::Unknown { id, order }),
        (any::<u64>(), repinned).prop_map(|(id, outcome)| Report::Repinned { id, outcome }),
    ]
}

fn ask() -> impl Strategy<Value = FrontRequest> {
    let route = prop_oneof![
        name().prop_map(|it| Route::Application(ApplicationId::new(it).expect("a name"))),
        name().prop_map(|it| Route::Model(ModelId::new(it).expect("a name"))),
        variant().prop_map(Route::Variant),
    ];
    let targets = (
        option::of(figure()),
        option::of(figure()),
        option::of(figure()),
    );
    let flags = (any::<bool>(), any::<bool>());
    let rest = (any::<u32>(), flags, any::<u64>(), vec(any::<u64>(), 0..3));
    let ask = (ticket(), route, targets, rest).prop_map(
        |(ticket, route, targets, (rows, (best_effort, explain), arrived_ns, dims))| {
            FrontRequest::Ask(WireAsk {
                ticket,
                route,
                rows,
                dims,
                targets: Targets {
                    latency_ms: targets.0,
                    min_quality: targets.1,
                    max_cost_per_1k_usd: targets.2,
                },
                best_effort,
                explain,
                arrived_ns,
            })
        },
    );
    prop_oneof![
        Just(FrontRequest::Beat),
        ask,
        any::<u64>().prop_map(|query| FrontRequest::GiveUp { query }),
    ]
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let device = option::of(Just("cpu-8").prop_map(|name| name.parse().expect("a name")));
    let words = (name(), name(), any::<bool>(), device);
    (variant(), figure(), figure(), figure(), words).prop_map(
        |(
            variant,
            quality_bound,
            expected_ms,
            cost_per_1k_usd,
            (state, verdict, estimated, device_type),
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
            }
        },
    )
}

fn placement() -> impl Strategy<Value = FrontReport> {
    let explanation = (".{0,20}", vec(candidate(), 0..3), any::<usize>()).prop_map(
        |(reason, candidates, considered)| Explanation {
            reason,
            candidates,
            considered,
        },
    );
    let names = (name(), variant(), name());
    let price = (any::<bool>(), figure());
    let assign = (ticket(), names, price, option::of(explanation)).prop_map(
        |(ticket, (worker, variant, model), (suits, second_usd), explanation)| {
            FrontReport::Assign(Box::new(Assignment {
                ticket,
                worker: WorkerId::new(worker).expect("a name"),
                variant,
                model: ModelId::new(model).expect("a name"),
                suits,
                second_usd,
                explanation,
            }))
        },
    );
    let code = prop::sample::select(Code::ALL.to_vec());
    let refusal = (
        code,
        ".{0,20}",
        any::<Option<u64>>(),
        vec(candidate(), 0..3),
    )
        .prop_map(|(code, message, retry_after_ms, closest)| {
            Err(QueryError {
                code,
                message,
                retry_after_ms,
                closest,
            })
        });
    let outcome = prop_oneof![Just(Ok(())), refusal];
    prop_oneof![
        (figure(), any::<bool>())
            .prop_map(|(utilization, leads)| FrontReport::Beat { utilization, leads }),
        assign,
        (any::<u64>(), outcome).prop_map(|(query, outcome)| FrontReport::Done { query, outcome }),
        any::<u64>().prop_map(|query| FrontReport::Declined { query }),
    ]
}

fn delivery() -> impl Strategy<Value = ToMailbox> {
    prop_oneof![
        Just(ToMailbox::Beat),
        (ticket(), any::<u32>(), inputs()).prop_map(|(ticket, rows, inputs)| ToMailbox::Inputs {
            ticket,
            rows,
            inputs
        }),
        ticket().prop_map(|ticket| ToMailbox::GivenUp { ticket }),
    ]
}

fn receipt() -> impl Strategy<Value = FromMailbox> {
    let part = (outputs(), figure(), figure(), any::<u32>()).prop_map(
        |(outputs, queue_us, compute_us, batch_rows)| {
            Ok(PartOutputs {
                outputs,
                queue_us,
                compute_us,
                batch_rows,
            })
        },
    );
    let outcome = prop_oneof![part, error().prop_map(Err)];
    prop_oneof![
        Just(FromMailbox::Beat),
        (ticket(), outcome).prop_map(|(ticket, outcome)| FromMailbox::Outputs { ticket, outcome }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn orders_to_workers(messages in vec((stamp(), request()), 0..4), token in any::<u64>()) {
        let messages = messages.into_iter().map(|(stamp, request)| ToWorker { stamp, request });
        round_trip(&messages.collect::<Vec<_>>(), token);
    }

    #[test]
    fn reports_of_workers(messages in vec((stamp(), report()), 0..4)) {
        let messages = messages.into_iter().map(|(stamp, report)| FromWorker { stamp, report });
        round_trip(&messages.collect::<Vec<_>>(), 0);
    }

    #[test]
    fn questions_to_dispatchers(messages in vec((stamp(), ask()), 0..4)) {
        let messages = messages.into_iter().map(|(stamp, body)| ToDispatcher { stamp, body });
        round_trip(&messages.collect::<Vec<_>>(), 0);
    }

    #[test]
    fn answers_of_dispatchers(messages in vec((stamp(), placement()), 0..4)) {
        let messages = messages.into_iter().map(|(stamp, body)| FromDispatcher { stamp, body });
        round_trip(&messages.collect::<Vec<_>>(), 0);
    }

    #[test]
    fn deliveries_to_mailboxes(messages in vec(delivery(), 0..4)) {
        round_trip(&messages, 0);
    }

    #[test]
    fn receipts_of_mailboxes(messages in vec(receipt(), 0..4)) {
        round_trip(&messages, 0);
    }

    #[test]
    fn bytes_that_are_no_message_do_no_harm(bytes in vec(any::<u8>(), 0..256)) {
        check_frame(&bytes);
    }
}

#[test]
fn orders_of_later_versions_can_be_answered() {
    let unpacked = |document: &'static str| {
        let message = proto::WorkRequest {
            stamp: Some(proto::Stamp::default()),
            body: Some(work_request::Body::Order(Bytes::from(document))),
        };
        let frame = proto::WorkRequests {
            messages: vec![message],
            token: 0,
        };
        let mut unpacked = VecDeque::new();
        ToWorker::unpack(frame, &mut unpacked).map(|()| unpacked.pop_front())
    };
    let read = unpacked(r#"{"compress":{"id":7,"level":{"of":[1,2]}}}"#).expect("a message");
    let order = "compress".to_owned();
    let wanted = Request::Unknown { id: 7, order };
    assert_eq!(read.map(|it| it.request), Some(wanted));
    for document in ["", "{}", "7", r#"{"compress":{"level":7}}"#] {
        assert!(unpacked(document).is_err(), "{document}");
    }
}

#[test]
fn elements_are_not_copied() {
    let message = ToMailbox::Inputs {
        ticket: Ticket {
            holder: 1,
            query: 2,
            attempt: 3,
        },
        rows: 1,
        inputs: vec![WireNamedTensor {
            name: "x".to_owned(),
            tensor: WireTensor {
                data_type: DataType::Uint8,
                shape: vec![1 << 16],
                data: WireData::Plain(Bytes::from(vec![7; 1 << 16])),
            },
        }],
    };
    let frame = ToMailbox::pack([message].into_iter(), 0).encode_to_vec();
    let frame = Bytes::from(frame);
    let range = frame.as_ptr_range();
    let decoded = <ToMailbox as Wire>::Frame::decode(frame).expect("a frame");
    let mut unpacked = VecDeque::new();
    ToMailbox::unpack(decoded, &mut unpacked).expect("a message");
    match unpacked.pop_front() {
        Some(ToMailbox::Inputs { inputs, .. }) => match &inputs[0].tensor.data {
            WireData::Plain(bytes) => assert!(range.contains(&bytes.as_ptr())),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
