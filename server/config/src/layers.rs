//! The layers: file, environment, flags. Each becomes a checked table; later tables win.

use std::{fs, path::PathBuf};

use toml::{Table, Value};

use super::{
    error::Error,
    removed,
    section::{Field, Place, Section, join},
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
    ///
    /// # Errors
    /// When a setting has a value that is no Unicode.
    pub fn environment_of_process() -> Result<Vec<(String, String)>, Error> {
        let mut environment = Vec::new();
        for (name, value) in std::env::vars_os() {
            // Names of settings are Unicode.
            let name = name.into_string().ok();
            let Some(variable) = name.filter(|name| name.starts_with("SEXTANT_")) else {
                continue;
            };
            match value.into_string() {
                Ok(value) => environment.push((variable, value)),
                Err(_) if of_variable(&variable)?.is_some() => {
                    return Err(Error::NotUnicode { variable });
                }
                // It is for something else.
                Err(_) => {}
            }
        }
        Ok(environment)
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
        if let Some(place) = of_variable(variable)? {
            // Container platforms pass on what was never set as an empty text.
            if text.trim().is_empty() && place.field.unset.is_some() {
                continue;
            }
            let value = parse(&place, text, &origin)?;
            insert(&mut merged, &place, value);
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
    set_all(&mut merged, &sources.set)?;
    Ok(merged)
}

/// The layers of a text in place of a file, and of `--set`.
pub fn merge_text(text: &str, origin: &str, set: &[String]) -> Result<Table, Error> {
    let mut merged = from_text(text, origin)?;
    set_all(&mut merged, set)?;
    Ok(merged)
}

fn set_all(merged: &mut Table, pairs: &[String]) -> Result<(), Error> {
    for pair in pairs {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Error::NoValue(pair.clone()))?;
        set(merged, key.trim(), value, "`--set`")?;
    }
    Ok(())
}

fn from_file(path: &PathBuf) -> Result<Table, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        path: path.clone(),
        source,
    })?;
    from_text(&text, &format!("`{}`", path.display()))
}

fn from_text(text: &str, origin: &str) -> Result<Table, Error> {
    let mut table: Table = text
        .parse()
        .map_err(|source: toml::de::Error| Error::Unreadable {
            origin: origin.to_owned(),
            reason: unreadable(text, &source),
        })?;
    restate("", &mut table);
    check_table("", &table, origin)?;
    Ok(table)
}

/// Where and why, without the line itself, which the parser would quote: it may hold a secret.
fn unreadable(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let place = before.map(|before| {
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[start..].chars().count() + 1;
        format!("line {line}, column {column}: ")
    });
    format!(
        "{}{}",
        place.unwrap_or_default(),
        error.message().trim_end()
    )
}

/// Sizes with units become numbers, `localhost` the address that it stands for.
fn restate(outer: &str, table: &mut Table) {
    for (name, value) in table {
        let key = join(outer, name);
        if let Value::Table(inner) = value {
            restate(&key, inner);
            continue;
        }
        let place = SECTIONS.iter().find_map(|section| section.place(&key));
        let text = value.as_str();
        if let Some(restated) = place.and_then(|place| place.field.restated(text?)) {
            *value = restated;
        }
    }
}

fn check_table(outer: &str, table: &Table, origin: &str) -> Result<(), Error> {
    for (name, value) in table {
        let key = join(outer, name);
        let is_table = SECTIONS.iter().any(|section| section.is_table(outer, name));
        match value {
            Value::Table(table) if is_table => check_table(&key, table, origin)?,
            value if is_table => {
                return Err(Error::InvalidValue {
                    rule: format!("a table, `[{key}]`"),
                    key,
                    origin: origin.to_owned(),
                    value: shown(value),
                    nearest: None,
                });
            }
            Value::Table(_) if !is_field(&key) => return Err(unknown_table(&key, origin)),
            value => refuse(&find(&key, origin)?, value, origin)?,
        }
    }
    Ok(())
}

fn is_field(key: &str) -> bool {
    SECTIONS.iter().any(|section| section.place(key).is_some())
}

fn unknown_table(key: &str, origin: &str) -> Error {
    let titles = SECTIONS.iter().map(Section::title);
    let nearest = nearest(key, titles.filter(|title| !title.is_empty()));
    Error::UnknownKey {
        key: format!("[{key}]"),
        origin: origin.to_owned(),
        nearest: nearest.map(|(title, _)| format!("[{title}]")),
    }
}

fn set(table: &mut Table, key: &str, text: &str, origin: &str) -> Result<(), Error> {
    let place = find(key, origin)?;
    let value = parse(&place, text, origin)?;
    insert(table, &place, value);
    Ok(())
}

fn parse(place: &Place, text: &str, origin: &str) -> Result<Value, Error> {
    let Some(value) = place.field.parse(text) else {
        let value = Value::String(text.to_owned());
        return Err(invalid(place, &value, place.field.broken_rule(), origin));
    };
    refuse(place, &value, origin)?;
    Ok(value)
}

fn refuse(place: &Place, value: &Value, origin: &str) -> Result<(), Error> {
    match place.field.refuses(value) {
        None => Ok(()),
        Some(rule) => Err(invalid(place, value, rule, origin)),
    }
}

fn invalid(place: &Place, value: &Value, rule: String, origin: &str) -> Error {
    let words = place.field.kind.words();
    let wrong = match value {
        Value::Array(items) => items.iter().find_map(|item| {
            let word = item.as_str()?;
            (!words.contains(&word)).then_some(word)
        }),
        value => value.as_str(),
    };
    let candidates = words.iter().map(|word| (*word).to_owned());
    Error::InvalidValue {
        key: place.key(),
        origin: origin.to_owned(),
        value: match place.field.is_secret() {
            true => "no such value".to_owned(),
            false => shown(value),
        },
        rule,
        nearest: wrong
            .and_then(|wrong| nearest(wrong, candidates))
            .map(|(nearest, _)| nearest),
    }
}

fn insert(table: &mut Table, place: &Place, value: Value) {
    let mut inner = table;
    for name in place.tables() {
        let entry = inner
            .entry(name)
            .or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(next) = entry else {
            return;
        };
        inner = next;
    }
    inner.insert(place.field.name.to_owned(), value);
}

fn fields() -> impl Iterator<Item = (&'static Section, &'static Field)> {
    SECTIONS
        .iter()
        .flat_map(|section| section.fields.iter().map(move |field| (section, field)))
}

fn find(key: &str, origin: &str) -> Result<Place, Error> {
    SECTIONS
        .iter()
        .find_map(|section| section.place(key))
        .ok_or_else(|| match removed::instead_of(key) {
            Some(instead) => Error::Removed {
                key: key.to_owned(),
                origin: origin.to_owned(),
                instead,
            },
            None => Error::UnknownKey {
                key: key.to_owned(),
                origin: origin.to_owned(),
                nearest: nearest(key, fields().map(|(section, field)| section.key(field)))
                    .map(|(nearest, _)| nearest),
            },
        })
}

/// The field that a variable sets. Container platforms add variables such as `SEXTANT_PORT` for a
/// service of this name, so a name without `__` is only refused when it is a misspelt setting.
fn of_variable(variable: &str) -> Result<Option<Place>, Error> {
    if OTHER_VARIABLES.contains(&variable) || !variable.starts_with("SEXTANT_") {
        return Ok(None);
    }
    let known =
        fields().find(|(section, field)| section.variable(field).as_deref() == Some(variable));
    if let Some((section, field)) = known {
        return Ok(Some(Place {
            section,
            field,
            owner: None,
        }));
    }
    if let Some(instead) = removed::instead_of_variable(variable) {
        return Err(Error::Removed {
            key: variable.to_owned(),
            origin: "the environment".to_owned(),
            instead,
        });
    }
    let names = fields().filter_map(|(section, field)| section.variable(field));
    let nearest = nearest(variable, names);
    let misspelt = nearest.as_ref().is_some_and(|(_, edits)| *edits <= 1);
    if !misspelt && !variable.contains("__") {
        return Ok(None);
    }
    Err(Error::UnknownKey {
        key: variable.to_owned(),
        origin: "the environment".to_owned(),
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
