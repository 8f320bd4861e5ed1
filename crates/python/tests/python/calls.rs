//! What functions take and give.

use std::{
    pin::pin,
    sync::{Arc, mpsc},
    time::Instant,
};

use serde_json::json;
use sextant_pipeline::{Call, Interpreter, UnboundedMemory};
use sextant_types::{Code, DataType, NamedTensor, Tensor};

use super::{LONG, call, failure, floats, function, named, python};

#[tokio::test]
async fn arrays_of_every_type_go_there_and_back() {
    let python = python(1, LONG);
    for data_type in DataType::ALL {
        let Some(size) = data_type.size().filter(|_| data_type != DataType::Bf16) else {
            continue;
        };
        let bytes: Vec<u8> = (0..6 * size).map(|it| u8::from(it % 3 == 0)).collect();
        let tensor = Tensor::from_bytes(data_type, vec![2, 3], bytes.into()).unwrap();
        let of = json!([data_type.name(), [2, -1]]);
        let same = function(
            "def run(x):\n    return x\n",
            &json!({"x": of}),
            &json!({"y": of}),
        );
        let gave = call(&python, &same, vec![NamedTensor::new("x", tensor.clone())])
            .await
            .unwrap();
        assert_eq!(gave.outputs[0].tensor, tensor, "{data_type}");
        assert_eq!(gave.outputs[0].name, "y");
    }
}

#[tokio::test]
async fn strings_are_objects_and_may_be_any_bytes() {
    let python = python(1, LONG);
    let file = "def run(texts):\n    assert texts.dtype == object and texts.shape == (2, 2)\n    \
                return [[it + b'\\xff' for it in row] for row in texts], ['\\u00e9', b'']\n";
    let takes = json!({"texts": ["BYTES", [-1, 2]]});
    let function = function(
        file,
        &takes,
        &json!({"a": ["BYTES", [-1, 2]], "b": ["BYTES", [2]]}),
    );
    let texts = Tensor::from_strings(vec![2, 2], ["one", "", "\u{e9}", "a\0"]).unwrap();
    // Rows that were cut from others keep the places of those.
    let more = Tensor::concat(&[&texts, &texts])
        .unwrap()
        .slice_rows(2, 2)
        .unwrap();
    for texts in [texts, more] {
        let gave = call(&python, &function, vec![NamedTensor::new("texts", texts)])
            .await
            .unwrap();
        let first: Vec<&[u8]> = gave.outputs[0].tensor.texts().unwrap().iter().collect();
        assert_eq!(
            first,
            [&b"one\xff"[..], b"\xff", b"\xc3\xa9\xff", b"a\0\xff"]
        );
        let second: Vec<&[u8]> = gave.outputs[1].tensor.texts().unwrap().iter().collect();
        assert_eq!(second, ["\u{e9}".as_bytes(), b""]);
    }
}

#[tokio::test]
async fn large_tensors_and_empty_ones_are_whole() {
    let python = python(1, LONG);
    let of = json!(["FP32", [-1, 1000]]);
    let function = function(
        "def run(x):\n    return {'y': x * 2}\n",
        &json!({"x": of}),
        &json!({"y": of}),
    );
    for rows in [0, 1, 1500] {
        let values: Vec<f32> = (0..rows * 1000).map(|it| it as f32).collect();
        let gave = call(
            &python,
            &function,
            vec![floats("x", &[rows, 1000], &values)],
        )
        .await
        .unwrap();
        let doubled: Vec<f32> = values.iter().map(|it| it * 2.0).collect();
        assert_eq!(gave.outputs[0].tensor.to_vec::<f32>().unwrap(), doubled);
        assert_eq!(gave.outputs[0].tensor.shape(), [rows, 1000]);
    }
}

#[tokio::test]
async fn what_a_function_raises_is_told_with_its_line() {
    let python = python(1, LONG);
    let of = json!(["FP32", [-1]]);
    let file = "def run(x):\n    if x[0] < 0:\n        raise ValueError('a negative\\nand a second line')\n    return x\n";
    let function = function(file, &json!({"x": of}), &json!({"x": of}));
    let error = failure(&python, &function, vec![floats("x", &[1], &[-1.0])]).await;
    assert_eq!(error.code, Code::StepFailed);
    assert!(
        error
            .message
            .contains("steps/file.py, line 3: ValueError: a negative"),
        "{error}"
    );
    // The process is as good as before.
    call(&python, &function, vec![floats("x", &[1], &[1.0])])
        .await
        .unwrap();
}

#[tokio::test]
async fn what_does_not_fit_the_definition_is_refused() {
    let python = python(1, LONG);
    let takes = json!({"x": ["FP32", [-1]]});
    let one = json!({"a": ["FP32", [-1, 2]]});
    let cases = [
        ("x", &one, "shape [1]"),
        ("None", &one, "gave `a` as object"),
        ("[['a', 'b']]", &one, "gave `a` as <U1"),
        ("{'b': x}", &one, "gave nothing for `a`"),
        ("(x, x)", &one, "gave 2 values, and says 1"),
        ("[[1, 2], [3]]", &one, "ValueError"),
    ];
    for (expression, gives, expected) in cases {
        let function = function(
            &format!("def run(x):\n    return {expression}\n"),
            &takes,
            gives,
        );
        let error = failure(&python, &function, vec![floats("x", &[1], &[1.0])]).await;
        assert_eq!(error.code, Code::StepFailed, "{expression}: {error}");
        assert!(error.message.contains(expected), "{expression}: {error}");
    }
    let cast = function("def run(x):\n    return [[1.5, 2.5]]\n", &takes, &one);
    let gave = call(&python, &cast, vec![floats("x", &[1], &[1.0])])
        .await
        .unwrap();
    assert_eq!(gave.outputs[0].tensor.to_vec::<f32>().unwrap(), [1.5, 2.5]);
}

#[tokio::test]
async fn files_are_looked_at_before_they_are_used() {
    let python = python(1, LONG);
    let of = json!({"x": ["FP32", [-1]]});
    let good = function("def run(x):\n    return x\n", &of, &of);
    python.check(&good).await.unwrap();
    for (file, expected) in [
        ("def other(x):\n    return x\n", "has no function `run`"),
        ("def run(x)\n", "line 1: SyntaxError"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "SystemExit"),
    ] {
        let error = python.check(&function(file, &of, &of)).await.unwrap_err();
        assert_eq!(error.code, Code::StepFailed);
        assert!(error.message.contains(expected), "{file}: {error}");
    }
}

#[tokio::test]
async fn pipelines_share_no_process_and_places_are_kept() {
    let python = python(2, LONG);
    let of = json!({"x": ["FP32", [-1]]});
    let file = "seen = []\n\ndef run(x):\n    seen.append(x[0])\n    return [float(len(seen))]\n";
    let functions = ["a", "b", "c"].map(|pipeline| named((pipeline, "run"), file, &of, &of));
    for round in 1..=3 {
        for (at, function) in functions.iter().enumerate() {
            let gave = call(&python, function, vec![floats("x", &[1], &[1.0])])
                .await
                .unwrap();
            let count = gave.outputs[0].tensor.to_vec::<f32>().unwrap()[0];
            // There are places for two, so that the third ends the one that was idle for longest.
            assert_eq!(
                count, 1.0,
                "pipeline {at} in round {round} saw what was another's, or an earlier process's"
            );
        }
    }
    let gave = call(&python, &functions[2], vec![floats("x", &[1], &[1.0])])
        .await
        .unwrap();
    assert_eq!(
        gave.outputs[0].tensor.to_vec::<f32>().unwrap(),
        [2.0],
        "the process of the same file stays"
    );
}

#[tokio::test]
async fn a_call_whose_turn_comes_too_late_is_not_made() {
    let python = python(1, LONG);
    let of = json!({"x": ["FP32", [-1]]});
    let file = "seen = []\n\ndef run(x):\n    seen.append(x[0])\n    return [float(len(seen))]\n";
    let counting = function(file, &of, &of);
    let late = Call {
        inputs: vec![floats("x", &[1], &[1.0])],
        sent: Box::new(()),
        memory: Arc::new(UnboundedMemory),
        until: Some(Instant::now()),
    };
    let error = match python.call(&counting, late).await {
        Ok(_) => panic!("it was called"),
        Err(error) => error,
    };
    assert_eq!(error.code, Code::DeadlineExceeded);
    let gave = call(&python, &counting, vec![floats("x", &[1], &[1.0])]).await;
    let count = gave.unwrap().outputs[0].tensor.to_vec::<f32>().unwrap();
    assert_eq!(count, [1.0], "nothing ran before");
}

#[test]
fn a_call_that_is_given_up_holds_its_memory_until_its_thread_has_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build();
    runtime.unwrap().block_on(async {
        // The only thread is busy, so the call waits for it.
        let (free, wait) = mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || wait.recv());
        let python = python(1, LONG);
        let of = json!({"x": ["FP32", [1]]});
        let same = function("def run(x):\n    return x\n", &of, &of);
        let room = Arc::new(());
        {
            let call = Call {
                inputs: vec![floats("x", &[1], &[1.0])],
                sent: Box::new(Arc::clone(&room)),
                memory: Arc::new(UnboundedMemory),
                until: None,
            };
            let calling = pin!(python.call(&same, call));
            assert!(futures::poll!(calling).is_pending());
        }
        assert_eq!(Arc::strong_count(&room), 2, "the inputs may still be sent");
        free.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // Threads take work in its order.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(Arc::strong_count(&room), 1);
    });
}
