//! A section of the configuration and its fields, as data.
//!
//! The [`section!`] macro writes the serde struct, its defaults and the table of its fields from
//! one text, so that the documentation, the environment and the file cannot know different keys.

use std::{ops::RangeInclusive, path::PathBuf};

use sextant_types::byte_size;
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
    /// Yes or no.
    Flag,
    /// A list of whole numbers.
    Integers,
    /// A list of texts, described so.
    Texts(&'static str),
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
    /// The table's name; a dot leads into a table within a table.
    pub name: &'static str,
    /// What stands in documents for a name, where the table holds one table for each of something
    /// that has a name.
    pub each: Option<&'static str>,
    /// What the section is about.
    pub about: &'static str,
    /// Its keys in the order of the document.
    pub fields: &'static [Field],
    /// The defaults of its keys.
    pub defaults: fn() -> Option<Value>,
}

/// A key as it was written, and what it sets.
#[derive(Debug, Clone)]
pub struct Place {
    /// The section of the key.
    pub section: &'static Section,
    /// The field of the key.
    pub field: &'static Field,
    /// Whose table, where the section has a table for each name.
    pub owner: Option<String>,
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
            Self::Flag => text.trim().parse().ok().map(Value::Boolean),
            Self::Integers => items(text)
                .map(|item| item.parse().ok().map(Value::Integer))
                .collect::<Option<_>>()
                .map(Value::Array),
            Self::Words(_) | Self::Texts(_) => Some(Value::Array(
                items(text)
                    .map(|word| Value::String(word.to_owned()))
                    .collect(),
            )),
            Self::Text | Self::Address | Self::Name | Self::Path | Self::Word(_) => {
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
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Integers => "list of whole numbers".to_owned(),
            Self::Texts(which) => format!("list of {which}"),
            Self::Word(words) => format!("one of {}", quoted(words)),
            Self::Words(words) => format!("list of {}", quoted(words)),
        }
    }

    /// What goes before the description in a sentence.
    fn article(self) -> &'static str {
        match self {
            Self::Address => "an ",
            // "`true` or `false`", "one of ..", "text".
            Self::Flag | Self::Word(_) | Self::Text => "",
            _ => "a ",
        }
    }

    /// The words that may stand in a value of this kind.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Word(words) | Self::Words(words) => words,
            _ => &[],
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

/// An address in which `localhost` is the address that it stands for.
pub fn local(address: &str) -> String {
    match address.trim().strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => address.to_owned(),
    }
}

/// The items of a list in one line of text.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

// === impl Field ===

impl Field {
    /// Reads text from the environment or a flag; `None` where it is not of the field's kind.
    pub fn parse(&self, text: &str) -> Option<Value> {
        self.restated(text).or_else(|| self.kind.parse(text))
    }

    /// What a text stands for that people write in place of the value: a size with its unit, or a name of this machine.
    pub fn restated(&self, text: &str) -> Option<Value> {
        match self.kind {
            Kind::Address => Some(Value::String(local(text))),
            Kind::Integer if self.is_size() => {
                let bytes = i64::try_from(byte_size::parse(text)?).ok()?;
                Some(Value::Integer(bytes))
            }
            _ => None,
        }
    }

    /// Whether it is a number of bytes.
    fn is_size(&self) -> bool {
        self.kind == Kind::Integer && self.name.ends_with("bytes")
    }

    /// Whether values may hold what nobody should read in an error or a log.
    pub fn is_secret(&self) -> bool {
        let secret = [
            "admin_key",
            "webhook_secret",
            "url",
            "headers",
            "environment",
        ];
        secret.contains(&self.name)
    }

    /// The rule that `value` breaks, in words; `None` where it may be used.
    pub fn refuses(&self, value: &Value) -> Option<String> {
        let fits = self.is_within(value) && self.kind.allows(value) && (self.reads)(value);
        (!fits).then(|| self.broken_rule())
    }

    /// The rule, as it goes on from "it must be".
    pub fn broken_rule(&self) -> String {
        format!("{}{}", self.kind.article(), self.rule())
    }

    fn is_within(&self, value: &Value) -> bool {
        let number = match value {
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            Value::Array(items) => return items.iter().all(|item| self.is_within(item)),
            _ => return true,
        };
        let range = self.within.as_ref();
        range.is_none_or(|range| number.is_finite() && range.contains(&number))
    }

    /// Kind and range in words.
    pub fn rule(&self) -> String {
        let kind = match self.is_size() {
            true => "number of bytes (`16777216`, `16MiB`)".to_owned(),
            false => self.kind.describe(),
        };
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
    /// `worker`, or with the placeholder `dispatcher.schedule.applications.NAME`.
    pub fn title(&self) -> String {
        match self.each {
            Some(each) => format!("{}.{each}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// `worker.cores`; top-level keys have no dot.
    pub fn key(&self, field: &Field) -> String {
        if self.name.is_empty() {
            return field.name.to_owned();
        }
        format!("{}.{}", self.title(), field.name)
    }

    /// `SEXTANT_WORKER__CORES`, `SEXTANT_LISTEN`; names of one's own do not fit into variables.
    pub fn variable(&self, field: &Field) -> Option<String> {
        if self.each.is_some() {
            return None;
        }
        let key = self.key(field).replace('.', "__");
        Some(format!("SEXTANT_{}", key.to_ascii_uppercase()))
    }

    /// Whether `name` within the table `outer` is this table, one around it, or the table of one
    /// name.
    pub fn is_table(&self, outer: &str, name: &str) -> bool {
        if self.each.is_some() && outer == self.name {
            return is_name(name);
        }
        let key = join(outer, name);
        let rest = self.name.strip_prefix(key.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// What `key` sets in this section.
    pub fn place(&'static self, key: &str) -> Option<Place> {
        self.fields.iter().find_map(|field| {
            let owner = match self.each {
                None => (self.key(field) == key).then_some(None)?,
                Some(_) => {
                    let name = key.strip_prefix(self.name)?.strip_prefix('.')?;
                    let name = name.strip_suffix(field.name)?.strip_suffix('.')?;
                    is_name(name).then(|| Some(name.to_owned()))?
                }
            };
            Some(Place {
                section: self,
                field,
                owner,
            })
        })
    }
}

/// The key of `name` within the table `outer`.
pub fn join(outer: &str, name: &str) -> String {
    if outer.is_empty() {
        return name.to_owned();
    }
    format!("{outer}.{name}")
}

fn is_name(name: &str) -> bool {
    sextant_types::ApplicationId::new(name).is_ok()
}

// === impl Place ===

impl Place {
    /// The key as it was written.
    pub fn key(&self) -> String {
        match &self.owner {
            Some(name) => format!("{}.{name}.{}", self.section.name, self.field.name),
            None => self.section.key(self.field),
        }
    }

    /// The tables around the key, from the outside.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        let section = self.section.name.split('.').filter(|name| !name.is_empty());
        section.chain(self.owner.as_deref())
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
    sextant_types::DeviceTypeName => Kind::Name;
    PathBuf => Kind::Path;
    std::net::SocketAddr => Kind::Address;
    bool => Kind::Flag;
    Vec<u32> => Kind::Integers;
    u8 => Kind::Integer;
    u16 => Kind::Integer;
    u32 => Kind::Integer;
    u64 => Kind::Integer;
    usize => Kind::Integer;
    f64 => Kind::Number;
    LogFormat => Kind::Word(LogFormat::NAMES);
    super::Effort => Kind::Word(super::Effort::NAMES);
    super::Parallelism => Kind::Word(super::Parallelism::NAMES);
    super::PlacementPolicy => Kind::Word(super::PlacementPolicy::NAMES);
    super::RunTimes => Kind::Word(super::RunTimes::NAMES);
    Roles => Kind::Words(Role::NAMES);
    super::sections::Engines => Kind::Words(super::sections::Engines::NAMES);
    super::Devices => Kind::Texts(super::Devices::FORMS);
    Vec<String> => Kind::Texts("texts");
    super::ScalingPolicy => Kind::Word(super::ScalingPolicy::NAMES);
    super::ProviderKind => Kind::Word(super::ProviderKind::NAMES);
    super::AuthMode => Kind::Word(super::AuthMode::NAMES);
    super::GpuEngines => Kind::Words(super::GpuEngines::NAMES);
    super::Binary => Kind::Word(super::Binary::NAMES);
    super::WorkerIsolation => Kind::Word(super::WorkerIsolation::NAMES);
}

impl<T: Setting> Setting for Option<T> {
    const KIND: Kind = T::KIND;
}

/// Writes a section: struct, defaults, table of fields.
///
/// `Type in "table" [each "NAME"] { .. }`, and in it for each field
/// `name: Type = default [, unset "what holds then"] [, within low..=high];`
macro_rules! section {
    ($(#[doc = $about:literal])+ $type:ident in $section:literal $(each $each:literal)? {
        $($(#[doc = $doc:literal])+ $field:ident: $kind:ty = $default:expr
            $(, unset $unset:literal)? $(, within $within:expr)?;)*
        $(sections { $($(#[doc = $part_doc:literal])+ $part:ident: $part_type:ty;)+ })?
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $field: $kind,)*
            $($($(#[doc = $part_doc])+ pub $part: $part_type,)+)?
        }

        impl Default for $type {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    $($($part: <$part_type>::default(),)+)?
                }
            }
        }

        impl $type {
            /// The section and its fields, as data.
            pub(super) const SECTION: $crate::section::Section =
                $crate::section::Section {
                    name: $section,
                    each: section!(@option $($each)?),
                    about: concat!($($about),+),
                    fields: &[$($crate::section::Field {
                        name: stringify!($field),
                        kind: <$kind as $crate::section::Setting>::KIND,
                        within: section!(@option $($within)?),
                        unset: section!(@option $($unset)?),
                        doc: concat!($($doc),+),
                        reads: |value| value.clone().try_into::<$kind>().is_ok(),
                    },)*],
                    defaults: || toml::Value::try_from(Self::default()).ok(),
                };
        }
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}

pub(super) use section;
