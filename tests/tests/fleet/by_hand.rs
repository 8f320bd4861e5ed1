//! Follows docs/fleet.md to the letter, as an operator who starts a fleet by hand, over real stores. The blocks are run
//! line by line, until the last one answers a query.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sextant_test_servers::process::free_port;
use sextant_tests::{
    Block, Fleet, FleetSettings, Process, command_behind, digits, root, sextant, until,
};
use tempfile::TempDir;

const PAGE: &str = "docs/fleet.md";
const HEADING: &str = "\n## By hand\n";
/// A process that needs a GPU, which not every machine has.
const WITH_GPUS: &str = "worker.devices=cuda";
/// The port in the page at which clients query.
const FRONT: &str = ":8080";
/// Ports in the page that belong to one process.
const OWN: [&str; 5] = [":7070", ":8081", ":8082", ":8083", ":8084"];
/// Settings that make registering faster, with the same result.
const QUICKLY: [(&str, &str); 4] = [
    ("SEXTANT_VARIANTS__ENGINES", "ort"),
    ("SEXTANT_VARIANTS__MAX_THREADS", "1"),
    ("SEXTANT_VARIANTS__MAX_BATCH", "8"),
    ("SEXTANT_VARIANTS__PROFILE_MS_PER_BATCH", "2"),
];

/// The blocks of the section.
struct Guide {
    /// The settings that all processes share.
    settings: Vec<String>,
    /// The commands that start one process on each machine.
    apart: Vec<String>,
    /// The commands that start all processes on one machine.
    together: Vec<String>,
    /// The commands that use the fleet.
    uses: Vec<String>,
}

/// A reader who follows the guide.
struct Reader {
    /// The stores for which the page has names.
    stores: Fleet,
    folder: TempDir,
    front: u16,
    /// The variables that were exported in the shell.
    exports: Vec<String>,
    processes: Vec<Process>,
}

// === impl Guide ===

impl Guide {
    fn read() -> Self {
        let page = fs::read_to_string(root().join(PAGE)).expect("the page can be read");
        let (_, section) = page.split_once(HEADING).expect("the section is there");
        let section = section.split("\n## ").next().unwrap_or_default();
        let blocks = Block::all(section);
        let blocks: Vec<_> = blocks.iter().map(Block::commands).collect();
        let [settings, apart, together, uses] =
            blocks.try_into().expect("the section has four blocks");
        Self {
            settings,
            apart,
            together,
            uses,
        }
    }
}

// === impl Reader ===

impl Reader {
    fn new() -> Self {
        let reader = Self {
            stores: Fleet::over_stores(FleetSettings::default()),
            folder: tempfile::tempdir().expect("a folder"),
            front: free_port(),
            exports: Vec::new(),
            processes: Vec::new(),
        };
        for name in ["mlp.onnx", "validation.npz"] {
            fs::copy(digits::file(name), reader.at(name)).expect("the file can be copied");
        }
        let images = digits::Images::load("test");
        digits::write_npy(&reader.at("image.npy"), &[64], images.pixels(0));
        fs::create_dir(reader.at("bin")).expect("a folder");
        std::os::unix::fs::symlink(sextant(), reader.at("bin/sextant")).expect("a link");
        reader
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A line of the page with real values in place of its examples: stores, secrets, free ports.
    fn filled(&self, line: &str) -> String {
        let Fleet {
            redis,
            postgres,
            s3,
            ..
        } = &self.stores;
        let (redis, postgres) = (redis.url(), postgres.url());
        let bucket = format!("s3://{}/", s3.bucket());
        let [key, secret] = [
            ("AWS_ACCESS_KEY_ID", s3.access_key()),
            ("AWS_SECRET_ACCESS_KEY", s3.secret_key()),
        ]
        .map(|(name, value)| format!("{name}={value}"));
        let mut filled = line.trim_end().to_owned();
        for (example, own) in [
            ("redis://redis.example:6379/0", &*redis),
            (
                "postgres://sextant:password@postgres.example/sextant",
                &postgres,
            ),
            ("http://s3.example:9000", &s3.endpoint()),
            ("s3://models/", &bucket),
            ("AWS_ACCESS_KEY_ID=sextant", &key),
            ("AWS_SECRET_ACCESS_KEY=password", &secret),
            (FRONT, &format!(":{}", self.front)),
        ] {
            filled = filled.replace(example, own);
        }
        for port in OWN {
            filled = filled.replace(port, ":0");
        }
        assert!(
            !filled.contains(".example"),
            "no value replaces the example: {filled}"
        );
        filled
    }

    /// A shell in `folder` that runs a line after the exports.
    fn shell(&self, line: &str, folder: &Path) -> Command {
        let script = format!("set -eu\n{}\n{line}", self.exports.join("\n"));
        let mut command = command_behind(&["bash".to_owned(), "-c".to_owned(), script]);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", self.at("bin").display()))
            .envs(QUICKLY);
        command
    }

    /// Starts a process on a machine. A line that leaves the shell free ends with `&`.
    fn serve(&mut self, line: &str, machine: &Path) {
        let line = line.trim_end().trim_end_matches('&');
        let mut command = self.shell(&format!("exec {line}"), machine);
        // Each machine has this port, so the processes on one machine need other ones.
        command.env("SEXTANT_LISTEN", "127.0.0.1:0");
        let log = self.folder.path().join("serve.log");
        self.processes.push(Process::start(command, &log));
    }

    /// Runs a line to its end and returns its output.
    async fn run(&self, line: &str) -> String {
        let said = self.at("said");
        let output = || File::options().create(true).append(true).open(&said);
        fs::write(&said, "").expect("a file");
        let mut child = self
            .shell(line, self.folder.path())
            .stdin(Stdio::null())
            .stdout(output().expect("a file"))
            .stderr(output().expect("a file"))
            .spawn()
            .expect("bash is there");
        let ended = until(line, || {
            let status = child.try_wait().expect("it can be asked");
            async move { status }
        });
        let status = ended.await;
        let said = fs::read_to_string(&said).expect("what it said");
        assert!(status.success(), "`{line}` ended with {status}: {said}");
        said
    }

    /// Follows a line; `machine` is the folder in which a process runs.
    async fn follow(&mut self, line: &str, machine: &Path) -> String {
        let line = self.filled(line);
        if line.starts_with("export ") {
            self.exports.push(line);
        } else if line.starts_with("sextant serve ") {
            self.serve(&line, machine);
        } else {
            return self.run(&line).await;
        }
        String::new()
    }

    /// The last step: the fleet learns a model and answers.
    async fn try_out(&mut self, lines: &[String]) {
        let here = self.folder.path().to_owned();
        let mut said = String::new();
        for line in lines {
            said = self.follow(line, &here).await;
        }
        let last = lines.last().expect("the page uses the fleet");
        assert!(last.starts_with("sextant query "), "{last}");
        assert!(
            said.contains("mlp"),
            "the answer names the variant that gave it: {said}"
        );
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The front end was started last.
        for process in std::mem::take(&mut self.processes).into_iter().rev() {
            let status = process.stop();
            if !std::thread::panicking() {
                assert!(status.success(), "a process ended with {status}");
            }
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.at("serve.log")).unwrap_or_default();
            eprintln!("--- what the processes logged\n{log}");
        }
    }
}

#[tokio::test]
async fn a_fleet_by_hand_with_a_machine_for_each_process_answers() {
    let guide = Guide::read();
    let mut reader = Reader::new();
    let here = reader.folder.path().to_owned();
    for line in &guide.settings {
        reader.follow(line, &here).await;
    }
    let (skipped, apart): (Vec<_>, Vec<_>) =
        guide.apart.iter().partition(|it| it.contains(WITH_GPUS));
    assert_eq!(skipped.len(), 1, "one process needs GPUs: {skipped:?}");
    for (number, line) in apart.into_iter().enumerate() {
        let machine = reader.at(&format!("machine-{number}"));
        fs::create_dir(&machine).expect("a folder");
        reader.follow(line, &machine).await;
    }
    reader.try_out(&guide.uses).await;
}

#[tokio::test]
async fn a_fleet_by_hand_on_one_machine_answers() {
    let guide = Guide::read();
    let mut reader = Reader::new();
    let here = reader.folder.path().to_owned();
    for line in guide.settings.iter().chain(&guide.together) {
        reader.follow(line, &here).await;
    }
    reader.try_out(&guide.uses).await;
}
