//! The memory of what steps make.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use serde_json::json;
use sextant_pipeline::{Memory, Part};
use sextant_rpc::{Dispatch, QueryError};
use sextant_types::{Code, NamedTensor, Tensor};

use crate::worker::{Worker, query, service_in};

/// A store with this many bytes.
struct Bounded(Arc<AtomicU64>);

/// Bytes that are given back on drop.
struct BytesGuard(Arc<AtomicU64>, u64);

impl Drop for BytesGuard {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Ordering::Relaxed);
    }
}

impl Memory for Bounded {
    fn take(&self, bytes: u64) -> Result<Part, QueryError> {
        let order = Ordering::Relaxed;
        let taken = self
            .0
            .fetch_update(order, order, |left| left.checked_sub(bytes));
        taken.map_err(|_| QueryError::new(Code::Overloaded, "there is no room"))?;
        Ok(Box::new(BytesGuard(Arc::clone(&self.0), bytes)))
    }
}

#[tokio::test]
async fn what_steps_make_is_counted_before_it_is_made_and_given_back() {
    let left = Arc::new(AtomicU64::new(100_000));
    let memory = Arc::new(Bounded(Arc::clone(&left)));
    let cuts = json!({"name": "p", "steps": [
        {"name": "cut", "image": {"width": 100, "height": 100, "channels": 1, "layout": "flat"},
            "inputs": {"boxes": "best.boxes"}},
        {"name": "best", "nms": {"min_score": 0.5}},
    ], "outputs": {"pixels": "cut.pixels"}});
    let service = service_in(memory, Worker::new(), &cuts);
    let floats = |name: &str, shape: Vec<usize>, value: f32| {
        let values = vec![value; shape.iter().product()];
        NamedTensor::new(name, Tensor::from_elements(shape, &values).expect("floats"))
    };
    // The boxes lie apart; each cut takes 40,000 bytes.
    let ask = async |count: usize| {
        let corners: Vec<f32> = (0..count)
            .flat_map(|at| [at as f32, 0.0, at as f32 + 1.0, 1.0])
            .collect();
        let boxes = Tensor::from_elements(vec![count, 4], &corners).expect("boxes");
        let image = Tensor::from_strings(vec![1], [PIXELS]).expect("bytes");
        let inputs = vec![
            NamedTensor::new("boxes", boxes),
            floats("scores", vec![count, 1], 0.9),
            NamedTensor::new("image", image),
        ];
        service.pipelines.query(query(inputs)).await
    };
    let answer = ask(2).await.expect("there is room for two");
    assert_eq!(answer.outputs[0].tensor.shape(), [2, 10_000]);
    let refused = ask(3).await.expect_err("there is none for three");
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (Code::Overloaded, "step `cut`: there is no room")
    );
    assert_eq!(left.load(Ordering::Relaxed), 100_000);
}

/// A grey picture of four pixels in a row.
const PIXELS: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0xdc, 0x57, 0x50,
    0x11, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x10, 0x50, 0x30, 0x70,
    0x00, 0x00, 0x01, 0x45, 0x00, 0xa1, 0x8e, 0xd8, 0x34, 0x5f, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45,
    0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

#[tokio::test]
async fn what_a_step_made_stays_counted_until_the_answer() {
    let left = Arc::new(AtomicU64::new(1000));
    let chain = json!({"name": "p", "outputs": {"y": "second.probabilities"}, "steps": [
        {"name": "first", "softmax": {}},
        {"name": "second", "softmax": {}, "inputs": {"scores": "first.probabilities"}},
    ]});
    let service = service_in(Arc::new(Bounded(Arc::clone(&left))), Worker::new(), &chain);
    // A step needs eight times the size of its input while it runs, and keeps the size once.
    let ask = async |elements: usize| {
        let scores = Tensor::from_elements(vec![1, elements], &vec![0.0f32; elements]);
        let inputs = vec![NamedTensor::new("scores", scores.expect("floats"))];
        service.pipelines.query(query(inputs)).await
    };
    assert!(
        ask(27).await.is_ok(),
        "864 bytes beside the 108 of the step before"
    );
    let refused = ask(30).await.expect_err("960 bytes, and 120 are held");
    assert_eq!(refused.message, "step `second`: there is no room");
    assert_eq!(left.load(Ordering::Relaxed), 1000);
}

#[test]
fn a_query_that_is_given_up_holds_its_memory_until_its_thread_has_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build();
    runtime.expect("a runtime").block_on(async {
        // The only thread is busy, so the work of the step waits.
        let (free, wait) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || wait.recv());
        let left = Arc::new(AtomicU64::new(1_000_000));
        let cut = json!({"name": "p", "steps": [
            {"name": "cut", "image": {"width": 100, "height": 100, "channels": 1, "layout": "flat"}},
        ]});
        let memory = Arc::new(Bounded(Arc::clone(&left)));
        let service = service_in(memory, Worker::new(), &cut);
        let image = Tensor::from_strings(vec![1], [PIXELS]).expect("bytes");
        let inputs = vec![NamedTensor::new("image", image)];
        let is_held = || left.load(Ordering::Relaxed) < 1_000_000;
        {
            let asking = pin!(service.pipelines.query(query(inputs)));
            assert!(futures::poll!(asking).is_pending() && is_held());
        }
        assert!(is_held(), "the picture may still be decoded");
        free.send(()).expect("it waits");
        busy.await.expect("it ends").expect("told");
        // Threads take work in the order in which it came.
        let behind = tokio::task::spawn_blocking(|| ());
        behind.await.expect("it ends");
        assert!(!is_held());
    });
}
