//! The layers: file, environment, flags. Each becomes a checked table; later tables win.

use std::{fs, path::PathBuf};

use toml::{Table, Value};

use super::{
    error::Error,
    section::{Field, Section},
    sections::SECTIONS,
};

/// Variables with the prefix that are no settings.
const OTHER_VARIABLES: [&str; 5] = [
    "SEXTANT_CONFIG",
    "SEXTANT_SERVER",
    "SEXTANT_CACHE",
    "SEXTANT_BLESS",
    "SEXTANT_BIN",
];

/// Where settings come from, beside the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The TOML file.
    pub file: Option<PathBuf>,
    /// The process's environment.
    pub environment: Vec<(String, String)>,
    /// Keys and values from flags, with the flag they came from.
    pub flags: Vec<Flag>,
    /// `key=value` of `--set`.
    pub set: Vec<String>,
}

/// A setting with a flag of its own.
#[derive(Debug, Clone)]
pub struct Flag {
    /// `--listen`.
    pub name: &'static str,
    /// `listen`, `log.level`.
    pub key: &'static str,
    /// As typed.
    pub value: String,
}

impl Sources {
    /// The environment of this process.
    pub fn environment_of_process() -> Vec<(String, String)> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("SEXTANT_"))
            .collect()
    }
}

/// All layers in one table, without the defaults.
pub fn merge(sources: &Sources) -> Result<Table, Error> {
    let mut merged = match &sources.file {
        Some(path) => from_file(path)?,
        None => Table::new(),
    };
    for (variable, text) in &sources.environment {
        let origin = format!("the environment variable `{variable}`");
        if let Some((section, field)) = of_variable(variable, &origin)? {
            insert(
                &mut merged,
                section,
                field,
                parse(section, field, text, &origin)?,
            );
        }
    }
    for flag in &sources.flags {
        set(
            &mut merged,
            flag.key,
            &flag.value,
            &format!("`{}`", flag.name),
        )?;
    }
    for pair in &sources.set {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Error::NoValue(pair.clone()))?;
        set(&mut merged, key.trim(), value, "`--set`")?;
    }
    Ok(merged)
}

fn from_file(path: &PathBuf) -> Result<Table, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        path: path.clone(),
        source,
    })?;
    let origin = format!("`{}`", path.display());
    let table: Table = text
        .parse()
        .map_err(|source: toml::de::Error| Error::Unreadable {
            origin: origin.clone(),
            reason: source.to_string().trim_end().to_owned(),
        })?;
    for (name, value) in &table {
        check_top(name, value, &origin)?;
    }
    Ok(table)
}

fn check_top(name: &str, value: &Value, origin: &str) -> Result<(), Error> {
    if SECTIONS.iter().any(|section| section.name == name) {
        let Value::Table(fields) = value else {
            return Err(Error::InvalidValue {
                key: name.to_owned(),
                origin: origin.to_owned(),
                value: shown(value),
                rule: format!("a table, `[{name}]`"),
            });
        };
        return fields
            .iter()
            .try_for_each(|(field, value)| check_value(&format!("{name}.{field}"), value, origin));
    }
    check_value(name, value, origin)
}

fn check_value(key: &str, value: &Value, origin: &str) -> Result<(), Error> {
    let (section, field) = find(key, origin)?;
    refuse(section, field, value, origin)
}

fn set(table: &mut Table, key: &str, text: &str, origin: &str) -> Result<(), Error> {
    let (section, field) = find(key, origin)?;
    let value = parse(section, field, text, origin)?;
    insert(table, section, field, value);
    Ok(())
}

fn parse(section: &Section, field: &Field, text: &str, origin: &str) -> Result<Value, Error> {
    let value = field.kind.parse(text).ok_or_else(|| Error::InvalidValue {
        key: section.key(field),
        origin: origin.to_owned(),
        value: shown(&Value::String(text.to_owned())),
        rule: field.rule(),
    })?;
    refuse(section, field, &value, origin)?;
    Ok(value)
}

fn refuse(section: &Section, field: &Field, value: &Value, origin: &str) -> Result<(), Error> {
    match field.refuses(value) {
        None => Ok(()),
        Some(rule) => Err(Error::InvalidValue {
            key: section.key(field),
            origin: origin.to_owned(),
            value: shown(value),
            rule,
        }),
    }
}

fn insert(table: &mut Table, section: &Section, field: &Field, value: Value) {
    if section.name.is_empty() {
        table.insert(field.name.to_owned(), value);
        return;
    }
    let entry = table
        .entry(section.name)
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(fields) = entry {
        fields.insert(field.name.to_owned(), value);
    }
}

fn fields() -> impl Iterator<Item = (&'static Section, &'static Field)> {
    SECTIONS
        .iter()
        .flat_map(|section| section.fields.iter().map(move |field| (section, field)))
}

fn find(key: &str, origin: &str) -> Result<(&'static Section, &'static Field), Error> {
    fields()
        .find(|(section, field)| section.key(field) == key)
        .ok_or_else(|| Error::UnknownKey {
            key: key.to_owned(),
            origin: origin.to_owned(),
            nearest: nearest(key, fields().map(|(section, field)| section.key(field)))
                .map(|(nearest, _)| nearest),
        })
}

/// The field that a variable sets. Container platforms add variables such as `SEXTANT_PORT` for a
/// service of this name, so a name without `__` is only refused when it is a misspelt setting.
fn of_variable(
    variable: &str,
    origin: &str,
) -> Result<Option<(&'static Section, &'static Field)>, Error> {
    if OTHER_VARIABLES.contains(&variable) || !variable.starts_with("SEXTANT_") {
        return Ok(None);
    }
    let known = fields().find(|(section, field)| section.variable(field) == variable);
    if known.is_some() {
        return Ok(known);
    }
    let names = fields().map(|(section, field)| section.variable(field));
    let nearest = nearest(variable, names);
    let misspelt = nearest.as_ref().is_some_and(|(_, edits)| *edits <= 1);
    if !misspelt && !variable.contains("__") {
        return Ok(None);
    }
    Err(Error::UnknownKey {
        key: variable.to_owned(),
        origin: if variable.contains("__") {
            "the environment".to_owned()
        } else {
            origin.to_owned()
        },
        nearest: nearest.map(|(nearest, _)| nearest),
    })
}

/// The candidate spelt most alike and its distance, unless more than half of it differs.
fn nearest(key: &str, candidates: impl Iterator<Item = String>) -> Option<(String, usize)> {
    candidates
        .map(|candidate| {
            let edits = strsim::damerau_levenshtein(key, &candidate);
            (candidate, edits)
        })
        .min_by_key(|(_, edits)| *edits)
        .filter(|(candidate, edits)| 2 * edits <= candidate.len().max(key.len()))
}

fn shown(value: &Value) -> String {
    let text: String = value.to_string().chars().take(64).collect();
    format!("`{text}`")
}
