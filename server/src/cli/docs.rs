//! `docs/cli.md`: the text of every command's `--help`.

use clap::{Command, CommandFactory};

use super::{Arguments, examples};

const OPENING: &str = "\
# Command line

Generated from the commands' help; a test compares the two, and `SEXTANT_BLESS=1 cargo test -p
sextant cli` rewrites this page.

Answers go to standard output, progress and errors to standard error. `--json` makes both JSON. Exit
codes: 0 done, 1 refused or failed, 2 used wrongly, 130 interrupted while a job was followed or a
model converted. Progress bars are drawn on a terminal only.

```console
$ sextant serve --data-dir ./data
$ sextant register --application digits --name mlp --model mlp.onnx --validation validation.npz
$ sextant variants --application digits
$ sextant query --application digits --latency-ms 5 --min-accuracy 0.95 --input pixels=@image.npy
$ sextant artefact put records.jsonl in/records.jsonl
$ sextant job submit --application digits --input in/records.jsonl --output out/answers.jsonl --wait
$ sextant worker stats local
$ sextant bench --application digits --rate 50 --duration 2s
$ sextant simulate --what-if --workload requests.csv --devices devices.toml
```
";

#[test]
fn the_page_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let page = render();
    if std::env::var_os("SEXTANT_BLESS").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/cli.md differs from the commands: SEXTANT_BLESS=1 rewrites it"
    );
}

fn render() -> String {
    let mut command = examples::add(Arguments::command()).term_width(96);
    command.build();
    let mut page = OPENING.to_owned();
    describe(&command, &mut page);
    page
}

fn describe(command: &Command, page: &mut String) {
    let mut shown = command.clone();
    if command.get_bin_name() != Some("sextant") {
        shown = shown.mut_args(|argument| {
            let everywhere = ["server", "json", "help"].contains(&argument.get_id().as_str());
            argument.hide(everywhere)
        });
    }
    let help = shown.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    page.push_str(&format!(
        "\n## `{name}`\n\n```text\n{}\n```\n",
        lines.join("\n").trim()
    ));
    for child in command
        .get_subcommands()
        .filter(|child| child.get_name() != "help" && !child.is_hide_set())
    {
        describe(child, page);
    }
}

#[test]
fn the_commands_are_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn a_registration_that_is_tried_again_takes_nothing_new() {
    let mut command = Arguments::command();
    command.build();
    let register = command.find_subcommand("register").expect("a command");
    let of = |id: &str| register.get_arguments().find(|it| it.get_id() == id);
    let retry = of("retry").expect("an argument");
    let refused = register.get_arg_conflicts_with(retry);
    for argument in register.get_arguments() {
        let id = argument.get_id().as_str();
        let is_of_both = ["retry", "name", "no_wait", "server", "json", "help"].contains(&id);
        let is_refused = refused.iter().any(|it| it.get_id() == id);
        assert!(is_of_both || is_refused, "`{id}` would be ignored");
    }
}
