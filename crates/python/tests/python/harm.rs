//! Functions that hang, leak, die or look around.

use std::{fs, time::Duration};

use serde_json::json;
use sextant_types::{Code, NamedTensor, Tensor};

use super::{LONG, call, failure, floats, function, is_there, python};

fn one() -> Vec<NamedTensor> {
    vec![floats("x", &[1], &[1.0])]
}

#[tokio::test]
async fn one_that_never_ends_is_ended_and_others_go_on() {
    let of = json!({"x": ["FP32", [-1]]});
    let python = python(2, Duration::from_millis(1500));
    let endless = function("def run(x):\n    while True:\n        pass\n", &of, &of);
    let good = function("def run(x):\n    return x\n", &of, &of);
    let (ended, _) = tokio::join!(failure(&python, &endless, one()), async {
        // The limit is short: on a busy machine a good one may need several turns.
        while call(&python, &good, one()).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(ended.code, Code::TimeExceeded, "{ended}");
}

#[tokio::test]
async fn one_that_leaks_is_refused_memory_and_begins_anew() {
    let of = json!({"x": ["FP32", [-1]]});
    let python = python(1, LONG);
    let file = "kept = []\n\ndef run(x):\n    while x[0] > 0:\n        kept.append(bytearray(1 << 26))\n    return [float(len(kept))]\n";
    let leaking = function(file, &of, &of);
    let error = failure(&python, &leaking, one()).await;
    assert_eq!(error.code, Code::MemoryExceeded, "{error}");
    let gave = call(&python, &leaking, vec![floats("x", &[1], &[0.0])])
        .await
        .unwrap();
    assert_eq!(
        gave.outputs[0].tensor.to_vec::<f32>().unwrap(),
        [0.0],
        "another process has nothing of the first"
    );
}

#[tokio::test]
async fn one_that_dies_is_told_and_started_again_with_pauses() {
    let of = json!({"x": ["FP32", [-1]]});
    let python = python(1, LONG);
    let dying = function("import os\n\ndef run(x):\n    os._exit(3)\n", &of, &of);
    let mut codes = Vec::new();
    for _ in 0..6 {
        codes.push(failure(&python, &dying, one()).await.code);
    }
    assert_eq!(codes[0], Code::StepFailed);
    assert!(
        codes.contains(&Code::Unavailable),
        "it is refused while it rests: {codes:?}"
    );
    let fault = "import ctypes\n\ndef run(x):\n    ctypes.string_at(0)\n";
    let error = failure(&python, &function(fault, &of, &of), one()).await;
    assert!(
        error.message.contains("its process ended by signal 11"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_answers_nonsense_is_ended() {
    let of = json!({"x": ["FP32", [-1]]});
    let python = python(1, LONG);
    let file = "import gc, io, os, struct\n\ndef run(x):\n    \
                link = next(it for it in gc.get_objects() if isinstance(it, io.FileIO))\n    \
                link.write(struct.pack('<I', 7) + b'{\"a\":1}')\n    return x\n";
    let error = failure(&python, &function(file, &of, &of), one()).await;
    assert_eq!(error.code, Code::StepFailed, "{error}");
}

/// What was sent behind an input of which no array can be made is not taken for a message.
#[tokio::test]
async fn an_input_that_is_no_array_leaves_nothing_to_the_next_call() {
    let takes = json!({"a": ["FP32", [-1, -1]], "b": ["UINT8", [-1]]});
    let python = python(1, LONG);
    let file = "def run(a, b):\n    return [float(len(b))]\n";
    let counting = function(file, &takes, &json!({"count": ["FP32", [1]]}));
    let other = "def run(a, b):\n    return [-1.0]\n";
    let head = json!({"load": {"path": "other.py", "bytes": other.len(), "files": []}}).to_string();
    let message = [
        &(head.len() as u32).to_le_bytes()[..],
        head.as_bytes(),
        other.as_bytes(),
    ]
    .concat();
    let bytes = |bytes: &[u8]| {
        let tensor = Tensor::from_elements(vec![bytes.len()], bytes).unwrap();
        NamedTensor::new("b", tensor)
    };
    // It has no elements, and more columns than Python counts.
    let no_array = floats("a", &[0, 1 << 63], &[]);
    let error = failure(&python, &counting, vec![no_array, bytes(&message)]).await;
    assert_eq!(error.code, Code::StepFailed, "{error}");
    let inputs = vec![floats("a", &[1, 1], &[0.0]), bytes(&[1, 2, 3])];
    let gave = call(&python, &counting, inputs).await.unwrap();
    assert_eq!(gave.outputs[0].tensor.to_vec::<f32>().unwrap(), [3.0]);
}

/// Each line is an expression that must not come to its end.
const TRIES: &str = r#"
import ctypes, os, socket, subprocess, sys, threading

LIBC = ctypes.CDLL(None, use_errno=True)

def refused(number):
    if number < 0:
        raise OSError(ctypes.get_errno(), "refused")

TRIES = {
    "a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "a local socket": lambda: socket.socketpair(),
    "a process": lambda: os.fork(),
    "a program": lambda: subprocess.run(["/bin/true"]),
    "another program": lambda: os.execv("/bin/true", ["true"]),
    "a secret": lambda: open(SECRET).read(),
    "its folder": lambda: os.listdir(os.path.dirname(SECRET)),
    "a file": lambda: open(TRACE, "w"),
    "shared memory": lambda: os.memfd_create("x"),
    "a signal to others": lambda: os.kill(os.getppid(), 0),
    "what others have in memory": lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
    "the environment of others": lambda: open(f"/proc/{os.getppid()}/environ", "rb"),
    "a limit": lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_AS, (-1, -1)),
    "its user": lambda: refused(LIBC.setuid(0)),
    "a namespace": lambda: refused(LIBC.unshare(0x10000000)),
    "a trace": lambda: refused(LIBC.ptrace(16, os.getppid(), 0, 0)),
}

def run(x):
    came = []
    for name, step in TRIES.items():
        try:
            step()
            came.append(name)
        except (OSError, ValueError):
            pass
    return ["; ".join(came), "; ".join(sorted(os.environ)), "; ".join(sys.argv)]
"#;

#[tokio::test]
async fn one_that_looks_around_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "for nobody").unwrap();
    let python = python(1, LONG);
    let trace = folder.path().join("trace");
    let file = format!(
        "SECRET = {:?}\nTRACE = {:?}\n{TRIES}",
        secret.to_str().unwrap(),
        trace.to_str().unwrap()
    );
    let function = function(
        &file,
        &json!({"x": ["FP32", [-1]]}),
        &json!({"a": ["BYTES", [3]]}),
    );
    let gave = call(&python, &function, one()).await.unwrap();
    let told = gave.outputs[0].tensor.texts().unwrap();
    let told: Vec<_> = told.iter().map(String::from_utf8_lossy).collect();
    assert_eq!(told[0], "", "these were not refused");
    let known = [
        "LC_ALL",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    ];
    assert_eq!(told[1], known.join("; "));
    assert_eq!(told[2], "-c");
    assert!(!is_there(&trace));
}
