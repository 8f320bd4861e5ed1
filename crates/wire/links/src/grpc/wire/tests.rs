//! Every message is the same after a frame as before.

use std::{collections::VecDeque, fmt::Debug};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use prost::Message;
use sextant_rpc::{InferError, Ticket};
use sextant_types::{Data, NamedTensor, Tensor};

use self::messages::{ask, delivery, placement, receipt, report, request, stamp};
use super::{Wire, check_frame};
use crate::{
    front::{FromDispatcher, ToDispatcher},
    grpc::proto::{self, order, work_request},
    link::{FromWorker, Request, ToWorker},
    mailbox::ToMailbox,
};

mod messages;
mod variants;

/// Converts messages through the bytes of a frame.
fn round_trip<W: Wire + Clone + PartialEq + Debug>(messages: &[W], token: u64) {
    let bytes = W::pack(messages.iter().cloned(), token).encode_to_vec();
    let frame = W::Frame::decode(Bytes::from(bytes)).expect("a frame");
    let mut unpacked = VecDeque::new();
    W::unpack(frame, &mut unpacked).expect("sound messages");
    assert_eq!(Vec::from(unpacked), messages);
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

/// The messages of a frame for a worker that has only this body.
fn unpacked(body: work_request::Body) -> Result<Option<Request>, super::MalformedFrame> {
    let message = proto::WorkRequest {
        stamp: Some(proto::Stamp::default()),
        body: Some(body),
    };
    let frame = proto::WorkRequests {
        messages: vec![message],
        token: 0,
    };
    let mut unpacked = VecDeque::new();
    ToWorker::unpack(frame, &mut unpacked)?;
    Ok(unpacked.pop_front().map(|it| it.request))
}

#[test]
fn orders_of_later_versions_can_be_answered() {
    // Field 9 is not an order of this version.
    let order = proto::Order::decode(&[0x08, 0x07, 0x4a, 0x00][..]).expect("an order");
    let read = unpacked(work_request::Body::Order(order)).expect("a message");
    assert_eq!(read, Some(Request::Unknown { id: 7 }));
    let nameless = proto::Order {
        id: 7,
        order: Some(order::Order::Unload(String::new())),
    };
    assert!(unpacked(work_request::Body::Order(nameless)).is_err());
}

/// A tensor of two elements with three bytes.
fn liar() -> proto::Tensor {
    proto::Tensor {
        name: "x".to_owned(),
        data_type: proto::DataType::Fp32.into(),
        shape: vec![2],
        data: Some(proto::tensor::Data::Plain(Bytes::from_static(&[1, 2, 3]))),
    }
}

#[test]
fn tensors_that_are_not_what_they_say_spoil_their_own_message_only() {
    let part = proto::Part {
        body: Some(proto::part::Body::Inputs(proto::Tensors {
            tensors: vec![liar()],
        })),
    };
    let batch = proto::Batch {
        id: 9,
        variant: "m".to_owned(),
        parts: vec![part],
        window: Some(proto::Window::default()),
        ..proto::Batch::default()
    };
    match unpacked(work_request::Body::Infer(batch)).expect("a message") {
        Some(Request::Infer {
            id: 9,
            batch: Err(InferError::BadShape(_)),
        }) => {}
        other => panic!("{other:?}"),
    }

    let inputs = proto::Inputs {
        ticket: Some(proto::Ticket::default()),
        inputs: vec![liar()],
        rows: 1,
    };
    let frame = proto::Deliveries {
        messages: vec![proto::Delivery {
            body: Some(proto::delivery::Body::Inputs(inputs)),
        }],
    };
    let mut unpacked = VecDeque::new();
    ToMailbox::unpack(frame, &mut unpacked).expect("a message");
    assert!(matches!(
        unpacked.pop_front(),
        Some(ToMailbox::Withheld {
            reason: InferError::BadShape(_),
            ..
        })
    ));
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
        inputs: vec![NamedTensor::new(
            "x",
            Tensor::from_elements(vec![1 << 16], &vec![7u8; 1 << 16]).expect("as many"),
        )],
    };
    let frame = ToMailbox::pack([message].into_iter(), 0).encode_to_vec();
    let frame = Bytes::from(frame);
    let range = frame.as_ptr_range();
    let decoded = <ToMailbox as Wire>::Frame::decode(frame).expect("a frame");
    let mut unpacked = VecDeque::new();
    ToMailbox::unpack(decoded, &mut unpacked).expect("a message");
    match unpacked.pop_front() {
        Some(ToMailbox::Inputs { inputs, .. }) => match inputs[0].tensor.data() {
            Data::Plain(bytes) => assert!(range.contains(&bytes.as_ptr())),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}
