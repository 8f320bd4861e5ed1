//! The kit of the GPU suite, to its end on emulated hardware: its script, its program, and CUDA 13's libraries where
//! `pip` puts them. There is no PyTorch: its parts fail and the others go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use sextant_engine_ort::OrtEngine;
use tempfile::TempDir;

use crate::packages::Packages;

/// The parts in the order in which they run.
const PARTS: [&str; 12] = [
    "device",
    "operators",
    "copies",
    "throughput",
    "operations",
    "pytorch",
    "pytorch-compile",
    "loads",
    "infer-and-load",
    "two-models",
    "networks",
    "jitter",
];

/// What `cargo xtask gpu-kit` puts into the folder, with the program that was built beside this test.
struct Kit {
    folder: TempDir,
    packages: Packages,
}

// === impl Kit ===

impl Kit {
    fn new(program: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("kit");
        for name in ["run.sh", "pytorch.py"] {
            std::fs::copy(kit.join(name), folder.path().join(name)).expect("a copy");
        }
        let place = folder.path().join("gpu_suite");
        std::os::unix::fs::symlink(program, place).expect("a link");
        let packages = Packages::new(&[13]);
        let library = OrtEngine::find_library(None)
            .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
        packages.link("onnxruntime/capi", &library);
        Self { folder, packages }
    }

    /// Runs the script; nothing but the path says where anything lies.
    fn run(&self, words: &[&str]) -> Run {
        let out = self.folder.path().join("out");
        let mut command = Command::new("sh");
        command
            .arg(self.folder.path().join("run.sh"))
            .args(words)
            .current_dir(self.folder.path())
            .env("OUT", &out)
            .env("STAND_IN_CUDA", "13")
            // So that nothing that was provisioned is found.
            .env("SEXTANT_CACHE", self.folder.path().join("nothing"));
        for name in [
            "ORT_DYLIB_PATH",
            "SEXTANT_CUDA_LIBRARIES",
            "SEXTANT_TORCH_PYTHON",
            "SEXTANT_GPU_ONNXRUNTIME",
        ] {
            command.env_remove(name);
        }
        let output = self.packages.put(&mut command).output();
        Run::new(output.expect("`sh` starts"), &out)
    }
}

/// What a run printed.
struct Run {
    output: Output,
    lines: Vec<Value>,
    log: String,
}

// === impl Run ===

impl Run {
    fn new(output: Output, out: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(out.join(name)).expect("it is written");
        let printed = String::from_utf8(output.stdout.clone()).expect("text");
        assert_eq!(printed, read("results.jsonl"));
        let parse = |line: &str| serde_json::from_str(line).expect("every line is JSON");
        Self {
            lines: printed.lines().map(parse).collect(),
            log: read("log.txt"),
            output,
        }
    }

    /// The exit status of each part, in order.
    fn statuses(&self) -> Vec<(String, i64)> {
        let ends = self.lines.iter();
        let ends = ends.filter(|line| line["metric"] == "exit_status");
        ends.map(|line| {
            let part = line["part"].as_str().expect("a name").to_owned();
            (part, line["value"].as_i64().expect("a number"))
        })
        .collect()
    }

    fn explain(&self) -> String {
        let errors = String::from_utf8_lossy(&self.output.stderr);
        format!("{:?}\n{errors}\n{}", self.statuses(), self.log)
    }

    /// Names of the figures of a part that are above 0, by cell.
    fn figures(&self, part: &str) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut figures: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line["part"] == part) {
            let text = |key: &str| line[key].as_str().expect("a text");
            if line["value"].as_f64().is_some_and(|value| value > 0.0) {
                figures
                    .entry(text("cell"))
                    .or_default()
                    .insert(text("metric"));
            }
        }
        figures
    }

    fn has(&self, part: &str, cell: &str, metrics: &[&str]) {
        let figures = self.figures(part);
        let found = figures.get(cell);
        let has = |metric: &&str| found.is_some_and(|found| found.contains(metric));
        assert!(metrics.iter().all(has), "{part}, {cell}: {figures:?}");
    }
}

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_gpu_suite").into()
}

#[test]
fn the_kit_runs_to_its_end_on_emulated_hardware() {
    let run = Kit::new(&program()).run(&["--small", "--every", "9", "--seconds", "3600"]);
    let statuses = run.statuses();
    let expected = PARTS.map(|part| {
        let status = i64::from(part.starts_with("pytorch"));
        (part.to_owned(), status)
    });
    assert_eq!(statuses, expected, "{}", run.explain());
    assert_eq!(run.output.status.code(), Some(0), "{}", run.explain());
    run.has("device", "emulated", &["memory", "memory_free", "clock"]);
    let notes = run.lines.iter().filter(|line| line["unit"] == "text");
    let notes: Vec<String> = notes.map(|line| line["value"].to_string()).collect();
    for wanted in [
        "nvidia/cu13/lib/libnvrtc.so.13",
        "onnxruntime/capi/libonnxruntime",
    ] {
        assert!(notes.iter().any(|it| it.contains(wanted)), "{notes:?}");
    }
    let operators = run.figures("operators");
    let passed = operators.values().filter(|it| it.contains("passed"));
    assert!(passed.count() > 30, "{operators:?}");
    for cell in ["host to device", "device to host", "on the device"] {
        run.has("copies", cell, &["bandwidth"]);
    }
    let throughput = ["exec_throughput", "run_throughput", "overlapped_throughput"];
    let latency = [
        "runs",
        "exec_median",
        "exec_p99",
        "exec_p999",
        "exec_p9999",
        "run_p9999",
    ];
    let mapping = ["alone", "beside_a_copy"].map(|it| format!("{it}_map_us"));
    let mapping = mapping.each_ref().map(String::as_str);
    run.has("loads", "mapping of 4 pages", &mapping);
    let loads = ["same_pages", "other_pages", "first_time"].map(|it| format!("{it}_share_of_copy"));
    let loads = loads.each_ref().map(String::as_str);
    for network in ["ResNet-50", "BERT-like encoder"] {
        let batch = format!("{network} fp16 batch 4, sextant");
        run.has("throughput", &batch, &throughput);
        run.has("loads", &format!("{network} fp16 load"), &loads);
        run.has(
            "loads",
            &format!("{network} fp16 load"),
            &[
                "other_pages_same_answers",
                "other_pages_map_us",
                "pages_can_be_mapped",
            ],
        );
        for how in ["alone", "by turns", "from two threads"] {
            run.has(
                "two-models",
                &format!("{network} fp16 batch 1, {how}"),
                &latency,
            );
        }
        run.has("networks", &format!("{network} bf16"), &["passed"]);
    }
    for how in [
        "alone",
        "while pages are loaded",
        "while new models are loaded",
        "while other pages are loaded",
    ] {
        let cell = format!("ResNet-50 fp16 batch 1, {how}");
        run.has("infer-and-load", &cell, &latency);
    }
    run.has("jitter", "ResNet-50 fp16 batch 1", &latency);
    let said = |part: &str| {
        let mut lines = run.lines.iter();
        lines.any(|line| {
            line["part"] == part
                && line["stderr"]
                    .as_str()
                    .is_some_and(|it| it.contains("PyTorch"))
        })
    };
    assert!(said("pytorch"), "{}", run.explain());
}

#[test]
fn a_part_that_there_is_not_is_refused() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kit/run.sh");
    let mut command = Command::new("sh");
    let output = command
        .arg(script)
        .args(["--only", "device latency"])
        .output();
    let output = output.expect("`sh` starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("there is no part `latency`") && said.contains("jitter"),
        "{said}"
    );
}

/// A part that ends badly leaves a line that says so, and the next ones run.
#[test]
fn a_part_that_fails_is_recorded_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("suite");
    let text = "#!/bin/sh\ncase $2 in\n\
        operators) echo '{\"part\":\"operators\"}'; printf 'a \"quoted\"\\n\\\\ \\tend\\n' >&2; kill -9 $$ ;;\n\
        copies) exit 2 ;;\n\
        jitter) exec tail -f /dev/null ;;\n\
        esac\n";
    std::fs::write(&program, text).expect("a file");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("its mode");
    let kit = Kit::new(&program);
    let run = kit.run(&[
        "--seconds",
        "20",
        "--only",
        "device operators copies jitter",
    ]);
    let expected = [
        ("device", 0),
        ("operators", 137),
        ("copies", 2),
        ("jitter", 124),
    ];
    let expected = expected.map(|(part, status)| (part.to_owned(), status));
    assert_eq!(run.statuses(), expected, "{}", run.explain());
    assert_eq!(run.output.status.code(), Some(1));
    let ends = run.lines.iter().filter(|line| line["part"] == "operators");
    let said = ends.filter_map(|line| line["stderr"].as_str()).next();
    assert!(
        said.is_some_and(|it| it.contains("a \"quoted\"|\\  end")),
        "{said:?}"
    );
}
