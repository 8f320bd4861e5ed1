//! The table of [docs/security.md](../../../../docs/security.md): which key may do what.

use sextant_registry::KeyScope;

use super::{Bound, Need, RULES, Rule, operations};
use crate::v2::grpc;

const BEGIN: &str = "<!-- begin: written by a test from api/src/auth/rules.rs -->\n";
const END: &str = "<!-- end -->\n";

const HEAD: &str = "\
| operation | asked by | no key | `query` | `register` | `python` | `admin` | key bound to an application | in the audit record as |
|---|---|---|---|---|---|---|---|---|
";

#[test]
fn the_page_says_which_key_may_do_what() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
    let page = std::fs::read_to_string(path).expect("docs/security.md exists");
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (_, after) = rest.split_once(END).expect("where the table ends");
    let current = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("SEXTANT_BLESS").is_some() {
        std::fs::write(path, &current).expect("written");
    }
    let page = std::fs::read_to_string(path).expect("docs/security.md exists");
    assert!(
        page == current,
        "docs/security.md differs from the rules: SEXTANT_BLESS=1 rewrites its table"
    );
}

/// A key that may only query must not read a model's files or the inputs and outputs of jobs.
#[test]
fn files_are_for_those_who_register() {
    for name in [
        "models_file",
        "artefacts_get",
        "artefacts_head",
        "artefacts_list",
    ] {
        let rule = RULES.iter().find(|rule| rule.operation == name);
        let need = rule.map(|rule| rule.need);
        assert_eq!(need, Some(Need::Scope(KeyScope::Register)), "{name}");
    }
}

fn table() -> String {
    let described = crate::openapi();
    let mut asked = Vec::new();
    for (path, item) in &described.paths.paths {
        for (method, operation) in operations(item) {
            if let Some(name) = operation.and_then(|it| it.operation_id.as_deref()) {
                asked.push((name.to_owned(), format!("`{method} {path}`")));
            }
        }
    }
    for (call, operation) in grpc::RULES {
        let call = call.rsplit('/').next().unwrap_or(call);
        asked.push(((*operation).to_owned(), format!("gRPC `{call}`")));
    }
    let rows = RULES.iter().map(|rule| row(rule, &asked));
    format!("{HEAD}{}", rows.collect::<String>())
}

/// Marks a request that is allowed without the scope `python`.
const WITHOUT_PYTHON: &str = "without Python";

/// Whether a request carries a pipeline's definition, which may have steps in Python.
fn takes_steps(rule: &Rule) -> bool {
    ["pipelines_create", "pipelines_replace", "pipelines_change"].contains(&rule.operation)
}

fn row(rule: &Rule, asked: &[(String, String)]) -> String {
    let ways = asked.iter().filter(|(name, _)| name == rule.operation);
    let ways: Vec<&str> = ways.map(|(_, way)| way.as_str()).collect();
    let (without, scopes) = match rule.need {
        Need::Nothing => ("yes", ["yes"; 4]),
        Need::Metrics => ("unless `auth.metrics`", ["yes"; 4]),
        Need::Key => ("-", ["yes"; 4]),
        Need::Scope(KeyScope::Query) => ("-", ["yes", "-", "-", "yes"]),
        Need::Scope(KeyScope::Register) if takes_steps(rule) => {
            ("-", ["-", WITHOUT_PYTHON, "with `register`", "yes"])
        }
        Need::Scope(KeyScope::Register) => ("-", ["-", "yes", "-", "yes"]),
        Need::Scope(KeyScope::Python) => ("-", ["-", "-", "yes", "yes"]),
        Need::Scope(KeyScope::Admin) => ("-", ["-", "-", "-", "yes"]),
    };
    let bound = match (rule.need, rule.bound) {
        (Need::Nothing, _) => "as others",
        (_, Bound::Refused) => "-",
        (_, Bound::Path) => "where it is its own",
        (_, Bound::Handler) => "its own alone",
    };
    let audited = rule.audited.map(|name| format!("`{name}`"));
    format!(
        "| `{}` | {} | {without} | {} | {bound} | {} |\n",
        rule.operation,
        ways.join(", "),
        scopes.join(" | "),
        audited.as_deref().unwrap_or("-")
    )
}
