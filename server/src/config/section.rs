//! A section of the configuration and its fields, as data.
//!
//! The [`section!`] macro writes the serde struct, its defaults and the table of its fields from
//! one text, so that the documentation, the environment and the file cannot know different keys.

use std::{ops::RangeInclusive, path::PathBuf};

use toml::Value;

use super::{LogFormat, Role, Roles};

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A name as all names of the service are.
    Name,
    /// `address:port`.
    Address,
    /// A path of the local file system.
    Path,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words.
    Words(&'static [&'static str]),
}

/// One key.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name inside the section.
    pub name: &'static str,
    /// What a value looks like.
    pub kind: Kind,
    /// Accepted numbers, bounds included.
    pub within: Option<RangeInclusive<f64>>,
    /// What holds where it is not set and has no constant default.
    pub unset: Option<&'static str>,
    /// What it is for, with its unit.
    pub doc: &'static str,
    /// Whether a value can be read as the field's type.
    pub reads: fn(&Value) -> bool,
}

/// A table of the file; the empty name is the file's top.
#[derive(Debug, Clone)]
pub struct Section {
    /// The table's name.
    pub name: &'static str,
    /// What the section is about.
    pub about: &'static str,
    /// Its keys in the order of the document.
    pub fields: &'static [Field],
}

/// A Rust type that can be configured.
pub trait Setting {
    /// What its values look like.
    const KIND: Kind;
}

// === impl Kind ===

impl Kind {
    /// Reads text from the environment or a flag; `None` where it is not of this kind.
    pub fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Integer => text.trim().parse().ok().map(Value::Integer),
            Self::Number => text.trim().parse().ok().map(Value::Float),
            Self::Words(_) => Some(Value::Array(
                text.split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(|word| Value::String(word.to_owned()))
                    .collect(),
            )),
            Self::Text | Self::Name | Self::Address | Self::Path | Self::Word(_) => {
                Some(Value::String(text.to_owned()))
            }
        }
    }

    /// How the kind is called in documents.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Name => "name of `a-z 0-9 - _ .`".to_owned(),
            Self::Address => "address and port, such as `127.0.0.1:8080`".to_owned(),
            Self::Path => "path".to_owned(),
            Self::Integer => "whole number".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Word(words) => format!("one of {}", quoted(words)),
            Self::Words(words) => format!("list of {}", quoted(words)),
        }
    }

    fn allows(self, value: &Value) -> bool {
        let known = |words: &[&str], value: &Value| {
            value.as_str().is_some_and(|word| words.contains(&word))
        };
        match (self, value) {
            (Self::Word(words), value) => known(words, value),
            (Self::Words(words), Value::Array(values)) => {
                !values.is_empty() && values.iter().all(|value| known(words, value))
            }
            (Self::Words(_), _) => false,
            _ => true,
        }
    }
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

// === impl Field ===

impl Field {
    /// The rule that `value` breaks, in words; `None` where it may be used.
    pub fn refuses(&self, value: &Value) -> Option<String> {
        let number = match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let inside = match (&self.within, number) {
            (Some(range), Some(number)) => number.is_finite() && range.contains(&number),
            _ => true,
        };
        let fits = inside && self.kind.allows(value) && (self.reads)(value);
        (!fits).then(|| self.rule())
    }

    /// Kind and range in words.
    pub fn rule(&self) -> String {
        let kind = self.kind.describe();
        match &self.within {
            None => kind,
            Some(range) if range.end().is_infinite() => {
                format!("{kind}, at least {}", range.start())
            }
            Some(range) => format!("{kind} from {} to {}", range.start(), range.end()),
        }
    }
}

// === impl Section ===

impl Section {
    /// `worker.cores`; top-level keys have no dot.
    pub fn key(&self, field: &Field) -> String {
        if self.name.is_empty() {
            return field.name.to_owned();
        }
        format!("{}.{}", self.name, field.name)
    }

    /// `SEXTANT_WORKER__CORES`, `SEXTANT_LISTEN`.
    pub fn variable(&self, field: &Field) -> String {
        let key = self.key(field).replace('.', "__");
        format!("SEXTANT_{}", key.to_ascii_uppercase())
    }
}

// === impl Setting ===

macro_rules! setting {
    ($($type:ty => $kind:expr;)+) => {
        $(impl Setting for $type { const KIND: Kind = $kind; })+
    };
}

setting! {
    String => Kind::Text;
    sextant_types::WorkerId => Kind::Name;
    PathBuf => Kind::Path;
    std::net::SocketAddr => Kind::Address;
    u16 => Kind::Integer;
    u32 => Kind::Integer;
    u64 => Kind::Integer;
    usize => Kind::Integer;
    f64 => Kind::Number;
    LogFormat => Kind::Word(LogFormat::NAMES);
    Roles => Kind::Words(Role::NAMES);
    super::sections::Engines => Kind::Words(super::sections::Engines::NAMES);
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = T::KIND;
}

/// Writes a section: struct, defaults, table of fields.
///
/// `name: Type = default [, unset "what holds then"] [, within low..=high];`
macro_rules! section {
    ($(#[doc = $about:literal])+ $type:ident in $section:literal {
        $($(#[doc = $doc:literal])+ $field:ident: $kind:ty = $default:expr
            $(, unset $unset:literal)? $(, within $within:expr)?;)+
        $(sections { $($(#[doc = $part_doc:literal])+ $part:ident: $part_type:ty;)+ })?
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $field: $kind,)+
            $($($(#[doc = $part_doc])+ pub $part: $part_type,)+)?
        }

        impl Default for $type {
            fn default() -> Self {
                Self {
                    $($field: $default,)+
                    $($($part: <$part_type>::default(),)+)?
                }
            }
        }

        impl $type {
            /// The section and its fields, as data.
            pub(super) const SECTION: $crate::config::section::Section =
                $crate::config::section::Section {
                    name: $section,
                    about: concat!($($about),+),
                    fields: &[$($crate::config::section::Field {
                        name: stringify!($field),
                        kind: <$kind as $crate::config::section::Setting>::KIND,
                        within: section!(@option $($within)?),
                        unset: section!(@option $($unset)?),
                        doc: concat!($($doc),+),
                        reads: |value| value.clone().try_into::<$kind>().is_ok(),
                    },)+],
                };
        }
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}

pub(super) use section;
