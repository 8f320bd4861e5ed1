//! Batches and inputs that do not arrive together.

use std::{sync::Arc, time::Duration};

use sextant_links::{
    link::{Link, pair},
    mailbox::{FromMailbox, Mailbox, MailboxOptions, PartOutputs, ToMailbox, serve_mailbox},
};
use sextant_rpc::{BatchResult, BatchTimings, Infer, InferError, InferOutcome, Part, Ticket, Work};
use sextant_types::{NamedTensor, Tensor};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use crate::double::{Double, id, part};

type FrontEnd = Arc<dyn Link<ToMailbox, FromMailbox>>;

struct World {
    mailbox: Arc<Mailbox>,
    double: Arc<Double>,
    front: FrontEnd,
}

fn world(options: MailboxOptions) -> World {
    let double = Arc::<Double>::default();
    let mailbox = Mailbox::new(Arc::clone(&double) as _, options);
    let (front, end) = pair();
    let serving = serve_mailbox(Arc::clone(&mailbox), end, std::future::pending());
    tokio::spawn(serving);
    World {
        mailbox,
        double,
        front,
    }
}

fn ticket(query: u64) -> Ticket {
    Ticket {
        holder: 7,
        query,
        attempt: Ticket::PLACEMENTS,
    }
}

/// Outputs of a batch, and plausible times.
pub fn result(outputs: Vec<Result<Vec<Tensor>, InferError>>) -> BatchResult {
    BatchResult {
        outputs,
        timings: BatchTimings {
            started: Instant::now().into_std(),
            queue_us: 1.0,
            input_us: 2.0,
            exec_us: 3.0,
            output_us: 4.0,
            device_us: None,
        },
    }
}

impl World {
    fn inputs(&self, query: u64, value: f32) {
        let message = ToMailbox::Inputs {
            ticket: ticket(query),
            rows: 1,
            inputs: part(value),
        };
        self.front.send(message).expect("sent");
    }

    fn infer(&self, parts: Vec<Part>, latest_ms: Option<u64>) -> oneshot::Receiver<InferOutcome> {
        let (done, outcome) = oneshot::channel();
        let now = Instant::now().into_std();
        self.mailbox.infer(Infer {
            variant: id("m-a"),
            parts,
            earliest: now,
            latest: latest_ms.map(|ms| now + Duration::from_millis(ms)),
            expected: Duration::from_millis(1),
            offline_rows: 0,
            done: Box::new(move |outcome| drop(done.send(outcome))),
        });
        outcome
    }

    async fn outputs(&self) -> (Ticket, Result<PartOutputs, InferError>) {
        match self.front.receive().await.expect("the link holds") {
            FromMailbox::Outputs { ticket, outcome } => (ticket, outcome),
            FromMailbox::Beat => panic!("nobody asked for it"),
        }
    }
}

fn held(queries: &[u64]) -> Vec<Part> {
    queries
        .iter()
        .map(|query| Part::Held(ticket(*query)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn inputs_and_batches_meet_in_any_order() {
    let world = world(MailboxOptions::default());
    world.inputs(1, 1.0);
    sleep(Duration::from_millis(5)).await;
    let mut parts = held(&[1, 2]);
    parts.push(Part::Inputs(part(5.0)));
    let outcome = world.infer(parts, None);
    assert!(world.double.windows.lock().expect("sound").is_empty());
    world.inputs(2, 2.0);
    let result = outcome.await.expect("an answer").expect("a result");
    assert_eq!(result.outputs[..2], [Ok(Vec::new()), Ok(Vec::new())]);
    assert_eq!(result.outputs[2], Ok(vec![part(5.0)[0].tensor.clone()]));
    for (query, value) in [(1, 1.0), (2, 2.0)] {
        let (of, outcome) = world.outputs().await;
        let outputs = outcome.expect("ran");
        assert_eq!(of, ticket(query));
        assert_eq!(outputs.outputs, [part(value)[0].tensor.clone()]);
        assert_eq!((outputs.batch_rows, outputs.compute_us), (3, 9.0));
    }
    assert_eq!(world.mailbox.held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_inputs_take_no_other_with_them() {
    for (latest_ms, least_ms, most_ms) in
        [(None, 50, 52), (Some(20), 18, 20), (Some(30_000), 50, 52)]
    {
        let world = world(MailboxOptions::default());
        let begun = Instant::now();
        let outcome = world.infer(held(&[1, 2]), latest_ms);
        world.inputs(2, 2.0);
        let result = outcome.await.expect("an answer").expect("a result");
        let took_ms = begun.elapsed().as_millis();
        assert!((least_ms..=most_ms).contains(&took_ms), "{took_ms} ms");
        let missing = Err(InferError::InputsMissing);
        assert_eq!(result.outputs, [missing, Ok(Vec::new())]);
        assert!(world.outputs().await.1.is_ok());
        // Inputs that arrive now find no batch, and are not kept for ever.
        world.inputs(1, 1.0);
        let (of, outcome) = world.outputs().await;
        assert_eq!(of, ticket(1));
        assert_eq!(outcome.expect_err("dropped"), InferError::TooLate);
        assert_eq!(world.mailbox.held_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn inputs_that_were_missed_are_waited_for_longer() {
    let world = world(MailboxOptions::default());
    for (placed_before, least_ms) in [(0, 50), (1, 100), (2, 200), (3, 400), (4, 500), (9, 500)] {
        let begun = Instant::now();
        let missed = Ticket {
            attempt: 3 * Ticket::PLACEMENTS + placed_before,
            ..ticket(1)
        };
        let parts = vec![Part::Held(missed), Part::Inputs(part(5.0))];
        let outcome = world.infer(parts, Some(30_000));
        let result = outcome.await.expect("an answer").expect("a result");
        assert_eq!(result.outputs[0], Err(InferError::InputsMissing));
        assert_eq!(result.outputs[1], Ok(vec![part(5.0)[0].tensor.clone()]));
        let took_ms = begun.elapsed().as_millis();
        assert!((least_ms..=least_ms + 2).contains(&took_ms), "{took_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn large_inputs_are_waited_for_longer() {
    let world = world(MailboxOptions::default());
    let begun = Instant::now();
    let pixels = Tensor::from_elements(vec![1, 1_000_000], &vec![0.5f32; 1_000_000]);
    let large = vec![NamedTensor::new("x", pixels.expect("as many"))];
    let parts = vec![Part::Held(ticket(1)), Part::Inputs(large)];
    let outcome = world.infer(parts, Some(30_000));
    let result = outcome.await.expect("an answer").expect("a result");
    assert_eq!(result.outputs[0], Err(InferError::InputsMissing));
    // Two parts of 4 MB.
    let took_ms = begun.elapsed().as_millis();
    assert!((130..=132).contains(&took_ms), "{took_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_any_inputs_is_answered() {
    for (latest_ms, placed_before, least_ms) in [
        (None, 0, 500),
        (Some(30_000), 0, 500),
        (Some(30_000), 3, 4000),
    ] {
        let world = world(MailboxOptions::default());
        let begun = Instant::now();
        let again = Ticket {
            attempt: placed_before,
            ..ticket(2)
        };
        let parts = vec![Part::Held(ticket(1)), Part::Held(again)];
        let outcome = world.infer(parts, latest_ms);
        let error = outcome
            .await
            .expect("an answer")
            .expect_err("nothing to run");
        assert_eq!(error, InferError::InputsMissing);
        let took_ms = begun.elapsed().as_millis();
        assert!((least_ms..=least_ms + 2).contains(&took_ms), "{took_ms} ms");
        assert!(world.double.windows.lock().expect("sound").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_does_not_wait_for_what_was_given_up() {
    let world = world(MailboxOptions::default());
    let begun = Instant::now();
    let outcome = world.infer(held(&[1, 2]), None);
    let given_up = ToMailbox::Withheld {
        ticket: ticket(1),
        reason: InferError::InputsMissing,
    };
    world.front.send(given_up).expect("sent");
    world.inputs(2, 2.0);
    let result = outcome.await.expect("an answer").expect("a result");
    assert_eq!(result.outputs[1], Ok(Vec::new()));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn inputs_that_cannot_be_read_spoil_their_part_only() {
    let world = world(MailboxOptions::default());
    let outcome = world.infer(held(&[1, 2]), None);
    let spoiled = ToMailbox::Withheld {
        ticket: ticket(1),
        reason: InferError::BadShape("too few bytes".to_owned()),
    };
    world.front.send(spoiled).expect("sent");
    world.inputs(2, 2.0);
    let result = outcome.await.expect("an answer").expect("a result");
    assert!(result.outputs[0].is_err());
    assert_eq!(result.outputs[1], Ok(Vec::new()));
    let (of, refused) = world.outputs().await;
    assert_eq!(
        (of, refused.expect_err("refused").code()),
        (ticket(1), "bad_shape")
    );
    assert!(world.outputs().await.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_worker_reach_both_sides() {
    let world = world(MailboxOptions::default());
    *world.double.refuse_infer.lock().expect("sound") = Some(InferError::ShuttingDown);
    let outcome = world.infer(held(&[1]), None);
    world.inputs(1, 1.0);
    let refused = outcome.await.expect("an answer");
    assert_eq!(refused.expect_err("refused"), InferError::ShuttingDown);
    let (of, refused) = world.outputs().await;
    assert_eq!(
        (of, refused.expect_err("refused").code()),
        (ticket(1), "shutting_down")
    );
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded() {
    let world = world(MailboxOptions {
        max_bytes: 20,
        ..MailboxOptions::default()
    });
    (1..=3).for_each(|query| world.inputs(query, 1.0));
    let (of, refused) = world.outputs().await;
    assert_eq!(
        (of, refused.expect_err("refused").code()),
        (ticket(3), "no_memory")
    );
    assert_eq!(world.mailbox.held_bytes(), 16);
    let begun = Instant::now();
    for query in [1, 2] {
        let (of, refused) = world.outputs().await;
        assert!(
            refused.is_err() && (of == ticket(1) || of == ticket(2)),
            "{query}"
        );
    }
    assert!(begun.elapsed() >= Duration::from_millis(1_900));
    assert_eq!(world.mailbox.held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn inputs_that_complete_a_batch_find_room_in_a_full_mailbox() {
    let world = world(MailboxOptions {
        max_bytes: 20,
        ..MailboxOptions::default()
    });
    let outcome = world.infer(held(&[3]), None);
    let others = world.infer(held(&[4, 5]), None);
    (1..=4).for_each(|query| world.inputs(query, 1.0));
    let result = outcome.await.expect("an answer").expect("a result");
    assert_eq!(result.outputs, [Ok(Vec::new())]);
    assert!(world.outputs().await.1.is_ok());
    // A batch that only waits for more inputs is refused as before.
    let (of, refused) = world.outputs().await;
    assert_eq!(
        (of, refused.expect_err("refused").code()),
        (ticket(4), "no_memory")
    );
    assert_eq!(world.mailbox.held_bytes(), 16);
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_mailbox_answers_what_waits() {
    let mailbox = Mailbox::new(Arc::<Double>::default(), MailboxOptions::default());
    let (done, outcome) = oneshot::channel();
    mailbox.infer(Infer {
        variant: id("m-a"),
        parts: held(&[1]),
        earliest: Instant::now().into_std(),
        latest: None,
        expected: Duration::ZERO,
        offline_rows: 0,
        done: Box::new(move |outcome| drop(done.send(outcome))),
    });
    drop(mailbox);
    let outcome = outcome.await.expect("an answer");
    assert_eq!(outcome.expect_err("refused"), InferError::ShuttingDown);
}
