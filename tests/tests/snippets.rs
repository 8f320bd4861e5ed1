//! Everything that a reader copies from the documents works: commands do what they say against a running service,
//! configuration is valid, JSON is valid.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use sextant_tests::{
    Block, PATIENCE, Settings, TestCluster, digits, documents, root, sextant, sextant_lab,
};

/// The TOML of this document is not configuration but is simulated: devices, fleets and experiments.
const FLEETS: &str = "docs/simulator.md";
const EXPERIMENTS: &str = "docs/lab.md";

/// The service's address as the documents write it.
const ADDRESSES: [&str; 3] = [
    "http://127.0.0.1:8080",
    "http://localhost:8080",
    "localhost:8080",
];

/// Codes with which a busy service refuses a query.
const BUSY: [&str; 3] = ["deadline_exceeded", "overloaded", "warming"];

/// Commands that cannot succeed here, and how they end.
const OTHERWISE: [(&str, End); 18] = [
    ("artefact put centre.py", End::NoFile),
    ("pipeline register centred.yaml", End::NoFile),
    ("pipeline register cascade.yaml", End::NoFile),
    ("--model manifest.json", End::NoFile),
    ("feedback send labels.jsonl", End::NotOurs),
    ("/v1/queries/q-17", End::NotFound),
    ("job follow 0199f7c2", End::NotFound),
    ("--model resnet.onnx", End::NoFile),
    ("-F data=@mlp.onnx.data", End::NoFile),
    ("/v1/applications/images/variants", End::NotFound),
    ("worker drain cpu-8-0a1b2c3d", End::NotFound),
    ("/v1/workers/cpu-8-0a1b2c3d/drain", End::NotFound),
    ("/v1/scaling/events", End::Never),
    ("key revoke 0199f7c2", End::NotFound),
    ("--model encoder.onnx", End::NoFile),
    ("--python venv/bin/python", End::NoFile),
    ("backup /backups/monday", End::NoFile),
    ("restore /backups/monday", End::NoFile),
];

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It succeeds.
    Well,
    /// It names something that an earlier run made, such as a query, and finds nothing.
    NotFound,
    /// It needs a user's own file.
    NoFile,
    /// It gives feedback on answers of another service, which is refused item by item.
    NotOurs,
    /// It follows events until the reader has seen enough.
    Never,
}

/// Names and texts of all pages.
fn pages() -> impl Iterator<Item = (String, String)> {
    documents().into_iter().map(|page| {
        let text = fs::read_to_string(root().join(&page)).expect("a readable page");
        (page.display().to_string(), text)
    })
}

/// A folder with the files that the documents name.
struct Desk {
    folder: tempfile::TempDir,
    address: String,
}

impl Desk {
    fn new(cluster: &TestCluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let exports = root().join("tests/exports");
        for (from, to) in [
            (digits::file("mlp.onnx"), "mlp.onnx"),
            (digits::file("logistic.onnx"), "mlp-2.onnx"),
            (digits::file("logistic.onnx"), "logistic.onnx"),
            (digits::file("cnn-small.onnx"), "cnn-small.onnx"),
            (digits::file("validation.npz"), "validation.npz"),
            (exports.join("sklearn-class-names.onnx"), "forest.onnx"),
            (exports.join("sklearn-class-names.npz"), "flowers.npz"),
        ] {
            fs::copy(from, at(to)).expect("the file can be copied");
        }
        let pipelines = root().join("examples/pipelines");
        for name in [
            "photos.yaml",
            "tuned.yaml",
            "sentences.yaml",
            "digit.png",
            "tokenizer.json",
            "sentiment.onnx",
            "sentiment.npz",
        ] {
            fs::copy(pipelines.join(name), at(name)).expect("the file can be copied");
        }
        let images = digits::Images::load("test");
        digits::write_npy(&at("image.npy"), &[64], images.pixels(0));
        let several: Vec<f32> = (0..4).flat_map(|of| images.pixels(of)).copied().collect();
        digits::write_npy(&at("images.npy"), &[4, 64], &several);
        let records = (0..4).map(|of| json!({"inputs": {"pixels": images.pixels(of)}}));
        let records: Vec<String> = records.map(|record| record.to_string()).collect();
        fs::write(at("records.jsonl"), records.join("\n")).expect("a file");
        // Of no answer of this service: it is refused item by item.
        let label = json!({"token": "AQEAAACx8dhg", "row": 0, "label": 7});
        fs::write(at("labels.jsonl"), label.to_string()).expect("a file");
        let arrivals = "timestamp,application\n0.0,digits\n0.2,digits\n0.25,digits\n1.0,digits\n";
        fs::write(at("arrivals.csv"), arrivals).expect("a file");
        let programs = at("bin");
        fs::create_dir(&programs).expect("a folder");
        for (name, program) in [("sextant", sextant()), ("sextant-lab", sextant_lab())] {
            std::os::unix::fs::symlink(program, programs.join(name)).expect("a link");
        }
        Self {
            folder,
            address: cluster.address().to_owned(),
        }
    }

    /// Runs a command, again while the service is too busy for it: the documents ask for answers as fast as an idle
    /// machine gives them.
    fn run_patiently(&self, command: &str, end: End) -> Output {
        let begun = Instant::now();
        loop {
            let output = self.run(command, end);
            let said = [&*output.stdout, &*output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let is_busy = BUSY.iter().any(|code| said.contains(code));
            if !is_busy || begun.elapsed() > PATIENCE {
                return output;
            }
        }
    }

    /// Runs a command as a reader would, against the service.
    fn run(&self, command: &str, end: End) -> Output {
        let mut command = command.to_owned();
        for address in ADDRESSES {
            // The other names are parts of it.
            command = command.replace(address, "ADDRESS");
        }
        let patience = match end {
            End::Never => 1,
            _ => 60,
        };
        let curl = format!("curl --silent --show-error --fail-with-body --max-time {patience} ");
        let command = command
            .replace("ADDRESS", &self.address)
            .replacen("curl ", &curl, 1);
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.folder.path().join("bin");
        Command::new("bash")
            .args(["-c", &command])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("SEXTANT_SERVER", &self.address)
            .stdin(Stdio::null())
            .output()
            .expect("bash is there")
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

/// What to run of a command; `None` where it needs another machine, another program or another test.
fn to_run(command: &str) -> Option<String> {
    let mut words = command.split_whitespace();
    match (words.next()?, words.next()) {
        // What reads the answer may not be installed.
        ("curl", _) => command.split(" | jq").next().map(str::to_owned),
        // These run for long: that their flags exist is enough.
        ("sextant", Some("serve" | "simulate")) | ("sextant-lab", _) => {
            let command = command.split(" #").next().unwrap_or_default();
            let command = command.trim_end().trim_end_matches('&');
            Some(format!("{command} --help"))
        }
        ("sextant", _) => Some(command.to_owned()),
        _ => None,
    }
}

/// Whether a command has ended so; what it said otherwise.
fn check(end: End, output: &Output) -> Result<(), String> {
    let text = [&*output.stdout, b"\n", &*output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_right = match end {
        End::Well => output.status.success(),
        End::NotFound => !output.status.success() && text.contains("not_found"),
        End::NoFile => {
            let says = ["No such file", "Failed to open", "it is not there"];
            !output.status.success() && says.iter().any(|word| text.contains(word))
        }
        End::NotOurs => output.status.code() == Some(1) && text.contains("1 refused"),
        End::Never => output.status.code() == Some(28),
    };
    is_right
        .then_some(())
        .ok_or_else(|| format!("{}, not {end:?}: {text}", output.status))
}

#[tokio::test]
async fn every_command_in_the_documents_does_what_it_says() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, text) in pages() {
        let to_run: Vec<(usize, String, String)> = Block::all(&text)
            .iter()
            .filter(|block| ["console", "sh"].contains(&block.language))
            .flat_map(|block| block.commands().into_iter().map(|it| (block.line, it)))
            .filter_map(|(line, command)| Some((line, to_run(&command)?, command)))
            .collect();
        if to_run.is_empty() {
            continue;
        }
        let cluster = digits::with_mlp(&[]).await;
        digits::warm(&cluster.api()).await;
        let desk = Desk::new(&cluster);
        for (line, run, command) in to_run {
            let known = OTHERWISE.iter().find(|(part, _)| command.contains(part));
            seen.extend(known.map(|(part, _)| *part));
            let end = known.map_or(End::Well, |(_, end)| *end);
            if let Err(said) = check(end, &desk.run_patiently(&run, end)) {
                wrong.push(format!("{name}:{line}: {command}{said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let unused = OTHERWISE.iter().filter(|(part, _)| !seen.contains(part));
    assert_eq!(unused.count(), 0, "every exception is needed: {seen:?}");
}

#[tokio::test]
async fn every_piece_of_configuration_and_json_in_the_documents_is_read() {
    let cluster = TestCluster::start(Settings::default());
    let desk = Desk::new(&cluster);
    let mut wrong = Vec::new();
    for (name, text) in pages() {
        for block in Block::all(&text) {
            let said = match block.language {
                "toml" => {
                    let file = desk.write("described.toml", &block.lines.join("\n"));
                    let file = file.display();
                    let command = match &*name {
                        FLEETS if block.lines[0].starts_with("[devices.") => {
                            let requests = "timestamp,model\n0.0,resnet50\n0.1,bert\n0.2,bert\n";
                            let requests = desk.write("requests.csv", requests);
                            let requests = requests.display();
                            format!(
                                "sextant simulate --what-if --workload {requests} --devices {file}"
                            )
                        }
                        FLEETS => format!(
                            "sextant simulate --fleet {file} --quick --seeds 1 --policy sextant"
                        ),
                        EXPERIMENTS => format!(
                            "sextant-lab experiment {file} --quick --seeds 1 --policy sextant"
                        ),
                        _ => format!("sextant config --config {file}"),
                    };
                    check(End::Well, &desk.run(&command, End::Well))
                }
                "json" => serde_json::from_str::<Value>(&block.lines.join("\n"))
                    .map(drop)
                    .map_err(|error| error.to_string()),
                _ => Ok(()),
            };
            if let Err(said) = said {
                wrong.push(format!("{name}:{}: {said}", block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
