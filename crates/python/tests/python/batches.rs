//! Rows of several queries in one call.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use serde_json::{Value, json};
use sextant_pipeline::{Call, CallResult, Function, Interpreter, UnboundedMemory};
use sextant_python::Python;
use sextant_rpc::QueryError;
use sextant_types::Code;

use super::{LONG, batched, call, failure, floats, python};

/// Most rows of a call.
const MOST: u32 = 8;

/// A function that tells of each row which call it was in, where `bad` is done about negative numbers.
fn counting(bad: &str) -> Arc<Function> {
    let file = format!(
        "import os\n\ncalls = []\n\ndef run(x):\n    calls.append(len(x))\n    if (x < 0).any():\n        {bad}\n    \
         return {{'y': x * 2, 'call': [float(len(calls))] * len(x)}}\n"
    );
    let (of, number) = (json!(["FP32", [-1, 1]]), json!(["FP32", [-1]]));
    batched(
        &file,
        &json!({"x": of}),
        &json!({"y": of, "call": number}),
        MOST,
    )
}

/// Asks with each of these at the same time.
async fn all(
    python: &Python,
    function: &Arc<Function>,
    values: &[f32],
) -> Vec<Result<CallResult, QueryError>> {
    let calls = values
        .iter()
        .map(|value| call(python, function, vec![floats("x", &[1, 1], &[*value])]));
    join_all(calls).await
}

fn number(called: &CallResult, name: &str) -> f32 {
    let output = called.outputs.iter().find(|it| it.name == name);
    output.unwrap().tensor.to_vec::<f32>().unwrap()[0]
}

#[tokio::test]
async fn what_waits_runs_together_and_each_gets_its_own_rows() {
    let python = python(1, LONG);
    let function = counting("pass");
    let values: Vec<f32> = (0..30u8).map(f32::from).collect();
    let answers = all(&python, &function, &values).await;
    let mut calls = 0.0f32;
    for (value, answer) in values.iter().zip(answers) {
        let called = answer.unwrap();
        assert_eq!(number(&called, "y"), value * 2.0);
        assert!(
            (1..=MOST).contains(&called.batch_rows),
            "{}",
            called.batch_rows
        );
        calls = calls.max(number(&called, "call"));
    }
    // At most eight share a call, and the first may have run before the others came.
    assert!((4.0..=6.0).contains(&calls), "{calls} calls for 30 queries");
    let many: Vec<f32> = (0..20u8).map(f32::from).collect();
    let gave = call(&python, &function, vec![floats("x", &[20, 1], &many)])
        .await
        .unwrap();
    assert_eq!(
        (gave.batch_rows, gave.outputs[1].tensor.rows()),
        (20, 20),
        "a query with more rows than that runs alone, whole"
    );
}

#[tokio::test]
async fn a_fault_is_that_of_the_query_that_has_it() {
    for (bad, code) in [
        ("raise ValueError('a negative')", Code::StepFailed),
        ("os._exit(3)", Code::StepFailed),
        ("return {'y': x[1:], 'call': [0.0]}", Code::StepFailed),
    ] {
        let python = python(1, LONG);
        let function = counting(bad);
        let values = [1.0, 2.0, 3.0, -4.0, 5.0, 6.0];
        let answers = all(&python, &function, &values).await;
        for (value, answer) in values.iter().zip(answers) {
            match answer {
                Ok(called) => assert_eq!(number(&called, "y"), value * 2.0, "{bad}"),
                Err(error) => {
                    assert!(*value < 0.0, "{bad}: {value}: {error}");
                    assert_eq!(error.code, code, "{bad}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_ends_its_processes_in_batches_rests_longer_and_longer() {
    let python = python(1, LONG);
    let dying = counting("os._exit(3)");
    let begun = Instant::now();
    loop {
        let answers = all(&python, &dying, &[-1.0, -2.0, -3.0]).await;
        let mut errors = answers.into_iter().filter_map(Result::err);
        if errors.any(|it| it.message.contains("has ended `4` times in a row")) {
            return;
        }
        assert!(begun.elapsed() < LONG, "it is started again and again");
    }
}

#[tokio::test]
async fn rows_that_are_not_alike_share_no_call() {
    let python = python(1, LONG);
    let of = json!(["FP32", [-1, -1]]);
    let file = "def run(x):\n    return x + len(x)\n";
    let function = batched(file, &json!({"x": of}), &json!({"y": of}), MOST);
    let calls = (1..=6).map(|wide| {
        let row = vec![0.0; wide];
        let (python, function) = (&python, &function);
        async move { call(python, function, vec![floats("x", &[1, wide], &row)]).await }
    });
    for (wide, answer) in (1..=6).zip(join_all(calls).await) {
        let called = answer.unwrap();
        assert_eq!(called.outputs[0].tensor.shape(), [1, wide]);
        assert_eq!((called.batch_rows, number(&called, "y")), (1, 1.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_is_answered_whoever_gets_a_place_first() {
    let python = Arc::new(python(2, LONG));
    let of = json!(["FP32", [-1, 1]]);
    let file = "def run(x):\n    return x + 1\n";
    // No two fit into one call, so that who gets a place runs whoever came before.
    let function = batched(file, &json!({"x": of}), &json!({"y": of}), 1);
    let calls = (0..200u8).map(|number| {
        let (python, function) = (Arc::clone(&python), Arc::clone(&function));
        let row = floats("x", &[1, 1], &[f32::from(number)]);
        tokio::spawn(async move { (number, call(&python, &function, vec![row]).await) })
    });
    for answered in join_all(calls).await {
        let (sent, called) = answered.unwrap();
        let called = called.unwrap();
        assert_eq!(
            (number(&called, "y"), called.batch_rows),
            (f32::from(sent) + 1.0, 1)
        );
    }
}

#[tokio::test]
async fn one_that_gives_other_rows_than_it_takes_is_refused() {
    let python = python(1, LONG);
    let of: Value = json!({"x": ["FP32", [-1, 1]]});
    let function = batched("def run(x):\n    return x[1:]\n", &of, &of, MOST);
    let error = failure(
        &python,
        &function,
        vec![floats("x", &[3, 1], &[1.0, 2.0, 3.0])],
    )
    .await;
    assert_eq!(error.code, Code::StepFailed);
    assert!(
        error
            .message
            .contains("it took 3 rows, and gave `x` with 2"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_gives_up_in_its_line_leaves_nothing_there() {
    // The only place is taken until this time is over.
    let python = python(1, Duration::from_millis(1500));
    let of = json!({"x": ["FP32", [-1, 1]]});
    let endless = batched(
        "def run(x):\n    while True:\n        pass\n",
        &of,
        &of,
        MOST,
    );
    let other = batched("def run(x):\n    return x\n", &of, &of, MOST);
    let row = || vec![floats("x", &[1, 1], &[1.0])];
    let mut first = pin!(call(&python, &endless, row()));
    assert!(futures::poll!(&mut first).is_pending());
    let room = Arc::new(());
    {
        let held = Call {
            inputs: row(),
            sent: Box::new(Arc::clone(&room)),
            memory: Arc::new(UnboundedMemory),
            until: None,
        };
        let given_up = pin!(python.call(&other, held));
        assert!(futures::poll!(given_up).is_pending());
        assert_eq!(Arc::strong_count(&room), 2, "it waits");
    }
    assert_eq!(Arc::strong_count(&room), 1, "nobody calls this again");
    let ended = first.await.map(|called| called.batch_rows);
    assert_eq!(ended.unwrap_err().code, Code::TimeExceeded);
}

#[tokio::test]
async fn one_whose_time_is_over_is_not_called() {
    let python = python(1, LONG);
    let function = counting("pass");
    let late = Call {
        inputs: vec![floats("x", &[1, 1], &[1.0])],
        sent: Box::new(()),
        memory: Arc::new(UnboundedMemory),
        until: Some(Instant::now()),
    };
    let error = match python.call(&function, late).await {
        Ok(_) => panic!("it was called"),
        Err(error) => error,
    };
    assert_eq!(error.code, Code::DeadlineExceeded);
    let gave = call(&python, &function, vec![floats("x", &[1, 1], &[1.0])]).await;
    assert_eq!(number(&gave.unwrap(), "call"), 1.0, "nothing ran before");
}
