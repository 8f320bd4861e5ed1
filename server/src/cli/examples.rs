//! Examples of each command, at the end of its help. A test checks that the parser accepts them
//! all.

use clap::Command;

/// By the command's words behind `sextant`.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "serve",
        &[
            "sextant serve --data-dir ./data",
            "sextant serve --role worker --set metadata.url=redis://10.0.0.5:6379",
        ],
    ),
    ("config", &["sextant config --config sextant.toml"]),
    ("doctor", &["sextant doctor --config sextant.toml"]),
    (
        "register",
        &[
            "sextant register --application digits --name mlp --model mlp.onnx --validation validation.npz",
            "sextant register -a texts --name encoder --model ./export --metric f1 --mask attention_mask",
        ],
    ),
    (
        "query",
        &[
            "sextant query -a digits --latency-ms 5 --min-accuracy 0.95 --input pixels=@image.npy",
            "sextant query --model mlp --input 'pixels=[0, 1, 2]' --explain",
        ],
    ),
    ("status", &["sextant status digits"]),
    ("top", &["sextant top --every 1"]),
    (
        "bench",
        &["sextant bench --application digits --rate 50 --duration 2s"],
    ),
    ("variants", &["sextant variants --application digits"]),
    ("inspect", &["sextant inspect mlp.onnx --metric top1"]),
    (
        "application create",
        &["sextant application create digits --metric top1 --latency-ms 20 --min-accuracy 0.9"],
    ),
    ("application get", &["sextant application get digits"]),
    (
        "application set",
        &[
            "sextant application set digits --budget-per-hour 2.5 --most-workers 4",
            "sextant application set digits --preset fast:latency_ms=5",
        ],
    ),
    ("application delete", &["sextant application delete digits"]),
    (
        "pipeline register",
        &[
            "sextant pipeline register photo.yaml",
            "sextant pipeline register cascade.yaml --variant-of digits",
        ],
    ),
    ("pipeline check", &["sextant pipeline check photo.yaml"]),
    ("pipeline show", &["sextant pipeline show photo"]),
    ("pipeline ask", &["sextant pipeline ask photo @photo.png"]),
    (
        "pipeline measure",
        &["sextant pipeline measure photo --validation validation.npz"],
    ),
    (
        "pipeline tune",
        &["sextant pipeline tune cascade.yaml --validation validation.npz --min-accuracy 0.95"],
    ),
    ("pipeline delete", &["sextant pipeline delete photo"]),
    ("model show", &["sextant model show mlp"]),
    ("model delete", &["sextant model delete mlp"]),
    ("version list", &["sextant version list mlp"]),
    (
        "version shadow",
        &["sextant version shadow mlp 2 --percent 20 --judge --min-agreement 0.95"],
    ),
    (
        "version canary",
        &["sextant version canary mlp 2 --percent 5 --judge --auto-promote"],
    ),
    ("version candidate", &["sextant version candidate mlp 2"]),
    ("version trials", &["sextant version trials mlp"]),
    ("version promote", &["sextant version promote mlp 2"]),
    ("version rollback", &["sextant version rollback mlp"]),
    ("feedback give", &["sextant feedback give $TOKEN --label 7"]),
    ("feedback send", &["sextant feedback send labels.jsonl"]),
    ("feedback accuracy", &["sextant feedback accuracy digits"]),
    (
        "feedback export",
        &["sextant feedback export digits --format csv > feedback.csv"],
    ),
    (
        "feedback erase",
        &["sextant feedback erase digits --subject user-7"],
    ),
    (
        "plan",
        &["sextant plan photo --trace arrivals.csv --latency-ms 200 --min-accuracy 0.9"],
    ),
    (
        "job submit",
        &[
            "sextant job submit -a digits --input in/records.jsonl --output out/answers.jsonl --wait",
        ],
    ),
    (
        "job show",
        &["sextant job show 01a21bef-e4f0-7244-abda-122338eecd8b"],
    ),
    (
        "job follow",
        &["sextant job follow 01a21bef-e4f0-7244-abda-122338eecd8b"],
    ),
    (
        "job cancel",
        &["sextant job cancel 01a21bef-e4f0-7244-abda-122338eecd8b"],
    ),
    (
        "job delete",
        &["sextant job delete 01a21bef-e4f0-7244-abda-122338eecd8b"],
    ),
    (
        "artefact put",
        &["sextant artefact put records.jsonl in/records.jsonl"],
    ),
    (
        "artefact get",
        &["sextant artefact get out/answers.jsonl answers.jsonl"],
    ),
    ("artefact list", &["sextant artefact list out/"]),
    (
        "artefact delete",
        &["sextant artefact delete in/records.jsonl"],
    ),
    (
        "key create",
        &["sextant key create --name shop --scope query --application digits --rate 100"],
    ),
    ("key revoke", &["sextant key revoke 5f0c2a9e"]),
    ("storage sweep", &["sextant storage sweep --grace 3600"]),
    ("backup", &["sextant backup ./backup --data-dir ./data"]),
    ("restore", &["sextant restore ./backup --data-dir ./other"]),
    (
        "worker drain",
        &["sextant worker drain cpu-8-0a1b2c3d --wait"],
    ),
    ("worker stats", &["sextant worker stats local"]),
    ("explain scaling", &["sextant explain scaling --limit 1"]),
    (
        "completions",
        &["sextant completions bash > ~/.local/share/bash-completion/completions/sextant"],
    ),
    (
        "simulate",
        &[
            "sextant simulate --what-if --workload requests.csv --devices devices.toml",
            "sextant simulate --what-if --registered --workload queries.csv --latency-ms 20,50",
        ],
    ),
];

/// The examples of one command.
fn of(path: &str) -> Option<&'static [&'static str]> {
    let found = EXAMPLES.iter().find(|(command, _)| *command == path);
    found.map(|(_, lines)| *lines)
}

/// The command with examples behind the help of all below it.
pub fn add(command: Command) -> Command {
    below(command, "")
}

fn below(mut command: Command, path: &str) -> Command {
    if let Some(lines) = of(path) {
        command = command.after_help(format!("Examples:\n  {}", lines.join("\n  ")));
    }
    let names = command.get_subcommands().map(|it| it.get_name().to_owned());
    for name in names.collect::<Vec<_>>() {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(name, |it| below(it, path.trim_start()));
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Arguments, snippets::ours};

    /// Commands that do something and take something, by their words.
    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let children = command.get_subcommands();
        let children: Vec<_> = children.filter(|it| !it.is_hide_set()).collect();
        for child in &children {
            let path = format!("{path} {}", child.get_name());
            leaves(child, path.trim_start(), found);
        }
        let is_global = |id: &str| ["server", "json", "help", "version"].contains(&id);
        let takes = command
            .get_arguments()
            .any(|it| !is_global(it.get_id().as_str()));
        if children.is_empty() && takes {
            found.push(path.to_owned());
        }
    }

    #[test]
    fn every_command_that_takes_something_has_an_example() {
        let mut found = Vec::new();
        leaves(&Arguments::command(), "", &mut found);
        let missing: Vec<_> = found.iter().filter(|it| of(it).is_none()).collect();
        assert!(missing.is_empty(), "no example: {missing:?}");
        let is_there = |it: &&str| found.iter().any(|leaf| leaf == it);
        let unknown: Vec<_> = EXAMPLES
            .iter()
            .map(|it| it.0)
            .filter(|it| !is_there(it))
            .collect();
        assert!(unknown.is_empty(), "no such command: {unknown:?}");
    }

    #[test]
    fn examples_are_understood() {
        for (path, lines) in EXAMPLES {
            for line in *lines {
                assert!(line.starts_with(&format!("sextant {path}")), "{line}");
                let why = Arguments::try_parse_from(ours(line)).err();
                assert!(why.is_none(), "{line}: {why:?}");
            }
        }
    }
}
