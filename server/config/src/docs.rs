//! `docs/config.md`, written from the table of fields.

use super::{
    section::{Field, Section},
    sections::SECTIONS,
};

const OPENING: &str = "\
# Configuration

Generated from the structs in `server/config/src`; a test compares, and `SEXTANT_BLESS=1 cargo test -p
sextant-config` rewrites this page.

A setting comes from one of four layers; a later layer wins:

1. the defaults below,
2. a TOML file, named by `--config` or `SEXTANT_CONFIG`,
3. the environment: `SEXTANT_{KEY}` for a key of the file's top, `SEXTANT_{SECTION}__{KEY}` for a key
   of a section, with `__` for every dot; lists are separated by commas; an empty variable of a
   setting without a constant default counts as not set,
4. flags of `sextant serve` and `sextant config`: `--listen`, `--roles`, `--data-dir`, `--log-level`,
   `--log-format`, `--onnxruntime-library`, and `--set section.key=value` for any other.

An unknown key is an error that names the nearest key, and the service does not start. Variables that
begin with `SEXTANT_` and contain no `__` are ignored unless they are one edit away from a setting,
because container platforms add some of their own. `sextant config` prints the resulting configuration,
and `sextant config --describe` prints this page.

A process uses at most the cores on which it may run (its affinity) and the whole cores that the quotas of its control
groups allow. It uses at most the memory of the machine and the lowest limit of its control groups. It reads `cpu.max`
and `memory.max`, the corresponding files of the first version of control groups, and the same files of the groups
around its own. So the limits of a container (`docker run --memory 8g --cpus 4`), of a pod or of a systemd unit hold.
If several processes share a machine, limit the memory of each.
";

/// The whole page.
pub fn render() -> String {
    let with_keys = SECTIONS.iter().filter(|section| !section.fields.is_empty());
    let sections = with_keys.map(table);
    format!("{OPENING}{}", sections.collect::<String>())
}

fn table(section: &Section) -> String {
    let title = match section.title() {
        title if title.is_empty() => "Top of the file".to_owned(),
        title => format!("`[{title}]`"),
    };
    let defaults = (section.defaults)();
    let rows = section
        .fields
        .iter()
        .map(|field| row(section, field, defaults.as_ref()));
    format!(
        "\n## {title}\n\n{}\n\n| key | value | default | environment | meaning |\n|---|---|---|---|---|\n{}",
        section.about.trim(),
        rows.collect::<String>()
    )
}

fn row(section: &Section, field: &Field, defaults: Option<&toml::Value>) -> String {
    let constant = defaults.and_then(|defaults| defaults.get(field.name));
    let variable = section.variable(field);
    let default = match (constant, field.unset) {
        (Some(value), _) => format!("`{value}`"),
        (None, Some(unset)) => unset.to_owned(),
        (None, None) => "none".to_owned(),
    };
    format!(
        "| `{}` | {} | {default} | {} | {} |\n",
        field.name,
        field.rule(),
        variable.map_or_else(|| "none".to_owned(), |variable| format!("`{variable}`")),
        field.doc.trim(),
    )
}
