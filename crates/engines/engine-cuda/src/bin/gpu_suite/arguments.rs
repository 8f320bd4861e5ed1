//! What is asked for.

use std::time::Duration;

/// What the program can do. A process does one part: what an error of the device spoils is that part alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Device,
    Operators,
    Networks,
    Copies,
    Throughput,
    Operations,
    Loads,
    InferAndLoad,
    TwoModels,
    Jitter,
    Providers,
    Compile,
}

/// Each part with its name and what it does.
pub const PARTS: [(Part, &str, &str); 12] = [
    (
        Part::Device,
        "device",
        "what the device is, and what was found",
    ),
    (
        Part::Operators,
        "operators",
        "every operator at each precision against ONNX Runtime on the processor",
    ),
    (Part::Networks, "networks", "the same for whole networks"),
    (
        Part::Copies,
        "copies",
        "bandwidth of copies from and to pinned memory and on the device",
    ),
    (
        Part::Throughput,
        "throughput",
        "ResNet-50 and a BERT-like encoder at batch 16 in fp16",
    ),
    (
        Part::Operations,
        "operations",
        "where the time of the two networks goes, by kind of operation",
    ),
    (
        Part::Loads,
        "loads",
        "LOAD into the same pages, into others, for the first time",
    ),
    (
        Part::InferAndLoad,
        "infer-and-load",
        "INFER alone and while LOADs run",
    ),
    (
        Part::TwoModels,
        "two-models",
        "two models alone and by turns",
    ),
    (
        Part::Jitter,
        "jitter",
        "how far single runs at batch 1 are from the usual one",
    ),
    (
        Part::Providers,
        "providers",
        "operators, networks and throughput with ONNX Runtime's providers of GPUs",
    ),
    (
        Part::Compile,
        "compile",
        "the kernels for compute capabilities 8.0 and 9.0; needs no device",
    ),
];

/// The command line.
#[derive(Debug, Clone)]
pub struct Arguments {
    pub part: Part,
    pub device: u32,
    /// How long a part measures.
    pub time: Duration,
    /// Most runs of the jitter.
    pub runs: usize,
    /// Of operators' shapes.
    pub seed: u64,
    /// Pages of 16 MiB.
    pub pages: u64,
    /// Pinned memory for models.
    pub host_bytes: u64,
    /// Small networks in little memory.
    pub small: bool,
    /// Every how manyth case of the operators is compared.
    pub every: usize,
    /// The first case that is compared.
    pub from: usize,
}

/// What to do with a command line.
pub enum Invocation {
    Run(Arguments),
    Help,
}

// === impl Part ===

impl Part {
    /// As it is asked for.
    pub fn name(self) -> &'static str {
        let mut parts = PARTS.iter();
        let found = parts.find(|(part, ..)| *part == self);
        found.map_or("", |(_, name, _)| name)
    }

    fn named(name: &str) -> Result<Self, String> {
        let mut parts = PARTS.iter();
        let found = parts.find(|(_, known, _)| *known == name);
        let names: Vec<&str> = PARTS.iter().map(|(_, name, _)| *name).collect();
        let unknown = || {
            format!(
                "there is no part `{name}`: name one of {}",
                names.join(", ")
            )
        };
        found.map(|(part, ..)| *part).ok_or_else(unknown)
    }
}

// === impl Arguments ===

impl Arguments {
    /// Reads a command line.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Invocation, String> {
        let mut part = None;
        let mut arguments = Self {
            part: Part::Device,
            device: 0,
            time: Duration::from_secs(20),
            runs: 1_000_000,
            seed: 20_260,
            pages: 256,
            host_bytes: 1 << 30,
            small: false,
            every: 1,
            from: 0,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word.as_str() {
                "--help" | "-h" => return Ok(Invocation::Help),
                "--small" => arguments.small = true,
                "--only" => part = Some(Part::named(&value())?),
                "--device" => arguments.device = number(&word, &value())?,
                "--seconds" => arguments.time = Duration::from_secs(number(&word, &value())?),
                "--runs" => arguments.runs = number(&word, &value())?,
                "--seed" => arguments.seed = number(&word, &value())?,
                "--pages" => arguments.pages = number(&word, &value())?,
                "--host-bytes" => arguments.host_bytes = number(&word, &value())?,
                "--every" => arguments.every = number(&word, &value())?,
                "--from" => arguments.from = number(&word, &value())?,
                _ => return Err(format!("`{word}` is not known: `--help` lists what is")),
            }
        }
        arguments.part = part.ok_or("name a part with `--only`: `--help` lists them")?;
        arguments.every = arguments.every.max(1);
        arguments.runs = arguments.runs.max(1);
        Ok(Invocation::Run(arguments))
    }

    /// The same as words, for a process that goes on at case `from`.
    pub fn words(&self, from: usize) -> Vec<String> {
        let numbers = [
            ("--device", u64::from(self.device)),
            ("--seconds", self.time.as_secs()),
            ("--runs", self.runs as u64),
            ("--seed", self.seed),
            ("--pages", self.pages),
            ("--host-bytes", self.host_bytes),
            ("--every", self.every as u64),
            ("--from", from as u64),
        ];
        let mut words = vec!["--only".to_owned(), self.part.name().to_owned()];
        words.extend(self.small.then(|| "--small".to_owned()));
        for (name, value) in numbers {
            words.extend([name.to_owned(), value.to_string()]);
        }
        words
    }
}

fn number<T: std::str::FromStr>(word: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("`{word}` needs a whole number, not `{value}`"))
}

/// What `--help` prints.
pub fn help() -> String {
    let mut text = "usage: gpu_suite --only PART [OPTION..]\n\n\
        Prints one JSON object per line: `part`, `cell`, `metric`, `value`, `unit`. Exits with 2 where there is no\n\
        device or a library is missing, with 1 where something is wrong or an answer differs by more than its tolerance.\n\
        \nparts:\n"
        .to_owned();
    for (_, name, what) in PARTS {
        text += &format!("  {name:<16}{what}\n");
    }
    text += "\noptions:\n\
        \x20 --device N        which device (0)\n\
        \x20 --seconds N       how long a part measures (20)\n\
        \x20 --runs N          most runs of the jitter (1000000)\n\
        \x20 --seed N          of the operators' shapes and inputs (20260)\n\
        \x20 --every N         compare every Nth case of the operators (1)\n\
        \x20 --from N          begin at case N of the operators (0)\n\
        \x20 --pages N         pages of 16 MiB for weights (256)\n\
        \x20 --host-bytes N    pinned memory for models (1073741824)\n\
        \x20 --small           small networks in little memory, for emulated devices\n";
    text
}
