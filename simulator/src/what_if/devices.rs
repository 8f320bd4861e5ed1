//! The file that describes what a user has: kinds of devices and models with their profiles.

use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};

use serde::Deserialize;
use sextant_schedule::LatencyTable;
use toml::Spanned;

use super::MOST_DEVICES;
use crate::{
    Error,
    profiles::{self, Curve, Profile, nanos},
};

/// A kind of device and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// The number of devices of it, at least 1.
    pub count: u32,
}

/// A model that may be asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Time within which an answer counts, ms.
    pub target_ms: f64,
    /// Run times by kind of device; `None` if it cannot run there.
    pub latency: Vec<Option<Arc<LatencyTable>>>,
}

/// The contents of a devices file.
#[derive(Debug, Clone, PartialEq)]
pub struct Devices {
    /// The kinds, by name.
    pub kinds: Vec<Kind>,
    /// The models, by name.
    pub models: Vec<Candidate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    devices: BTreeMap<String, KindTable>,
    #[serde(default)]
    models: BTreeMap<String, Spanned<ModelTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindTable {
    count: Spanned<u32>,
    #[serde(default)]
    profile: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ModelTable {
    target_ms: Option<Spanned<f64>>,
    max_batch: Option<Spanned<u32>>,
    profiles: BTreeMap<String, Spanned<ProfileTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileTable {
    alpha_ms: Option<Spanned<f64>>,
    beta_ms: Option<Spanned<f64>>,
    table_ms: Option<Vec<Spanned<f64>>>,
}

/// The largest batch by default.
const MOST_ROWS: u32 = 256;

impl Devices {
    /// Reads a devices file; paths of profiles in it are relative to its folder.
    ///
    /// # Errors
    /// When a file cannot be read or is malformed: with its name, the line and the value.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file, path.parent().unwrap_or(Path::new("."))),
            Err(source) => Err(Error::Read { file, source }),
        }
    }

    /// Reads the text of a devices file that is called `file` in errors.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn parse(text: &str, file: &str, folder: &Path) -> Result<Self, Error> {
        let place = Place { text, file };
        let read: File = toml::from_str(text).map_err(|error| place.syntax(&error))?;
        if read.devices.is_empty() {
            return Err(Error::experiment(file, "`devices` names no kind of device"));
        }
        let mut kinds = Vec::new();
        let mut shelves = Vec::new();
        for (name, table) in &read.devices {
            let count = *table.count.get_ref();
            if count == 0 {
                return Err(place.error(&table.count, "devices are none at all"));
            }
            if count > MOST_DEVICES {
                let problem = format!("devices are more than the {MOST_DEVICES} that can be tried");
                return Err(place.error(&table.count, &problem));
            }
            kinds.push(Kind {
                name: name.clone(),
                count,
            });
            shelves.push(match &table.profile {
                Some(profile) => place.shelf(profile, folder)?,
                None => Vec::new(),
            });
        }
        let models = Builder {
            place: &place,
            kinds: &kinds,
            shelves: &shelves,
        }
        .models(&read.models)?;
        Ok(Self { kinds, models })
    }
}

/// Makes models from a file's tables and from the profile files that its devices name.
struct Builder<'a> {
    place: &'a Place<'a>,
    kinds: &'a [Kind],
    /// By kind: the profiles of its file.
    shelves: &'a [Vec<Profile>],
}

impl Builder<'_> {
    fn models(
        &self,
        tables: &BTreeMap<String, Spanned<ModelTable>>,
    ) -> Result<Vec<Candidate>, Error> {
        let shelved = self.shelves.iter().flatten().map(|profile| &profile.model);
        let names: std::collections::BTreeSet<&String> = tables.keys().chain(shelved).collect();
        let mut models = Vec::new();
        for name in names {
            models.extend(self.model(name, tables.get(name))?);
        }
        if models.is_empty() {
            let problem = "describes no model: add `[models.NAME]`, or a `profile` to a device";
            return Err(Error::experiment(self.place.file, problem));
        }
        Ok(models)
    }

    /// Returns `None` for a model of a profile file that has no target, because it cannot be asked
    /// for.
    fn model(
        &self,
        name: &str,
        table: Option<&Spanned<ModelTable>>,
    ) -> Result<Option<Candidate>, Error> {
        let own = table.map(Spanned::get_ref);
        for (kind, entry) in own.iter().flat_map(|own| &own.profiles) {
            if !self.kinds.iter().any(|known| known.name == *kind) {
                let known: Vec<&str> = self.kinds.iter().map(|kind| kind.name.as_str()).collect();
                let problem = format!("is not a kind of device; known: {}", known.join(", "));
                return Err(self.place.named(&entry.span(), kind, &problem));
            }
        }
        let max_batch = match own.and_then(|own| own.max_batch.as_ref()) {
            Some(rows) if *rows.get_ref() == 0 => {
                return Err(self.place.error(rows, "as `max_batch` leaves no batch"));
            }
            Some(rows) => *rows.get_ref(),
            None => MOST_ROWS,
        };
        let mut latency = Vec::new();
        for (kind, shelf) in self.kinds.iter().zip(self.shelves) {
            let written = own.and_then(|own| own.profiles.get(&kind.name));
            latency.push(match written {
                Some(written) => Some(self.place.table(written, name, max_batch)?),
                None => shelf
                    .iter()
                    .find(|profile| profile.model == name)
                    .map(|profile| profile.latency(max_batch))
                    .transpose()?,
            });
        }
        let target = own.and_then(|own| own.target_ms.as_ref());
        let target = target.map(|target| self.place.positive(target, "target_ms"));
        let shelved = self.shelves.iter().flatten();
        let shelved = shelved.filter(|profile| profile.model == name);
        let target = match target.transpose()? {
            Some(target) => Some(target),
            None => shelved.filter_map(|profile| profile.target_ms).next(),
        };
        match (target, table) {
            (None, None) => return Ok(None),
            (None, Some(table)) => {
                return Err(self.place.named(&table.span(), name, "has no `target_ms`"));
            }
            (Some(_), Some(table)) if latency.iter().all(Option::is_none) => {
                let problem = "has no profile: it runs on no device";
                return Err(self.place.named(&table.span(), name, problem));
            }
            _ => {}
        }
        Ok(target.map(|target_ms| Candidate {
            name: name.to_owned(),
            target_ms,
            latency,
        }))
    }
}

/// The position of an error.
struct Place<'a> {
    text: &'a str,
    file: &'a str,
}

impl Place<'_> {
    fn line(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    fn named(&self, span: &Range<usize>, value: &str, problem: &str) -> Error {
        Error::line(self.file, self.line(span.start), value, problem)
    }

    fn error<T>(&self, value: &Spanned<T>, problem: &str) -> Error {
        let written = self.text.get(value.span()).unwrap_or_default();
        self.named(&value.span(), written, problem)
    }

    fn syntax(&self, error: &toml::de::Error) -> Error {
        let span = error.span().unwrap_or(0..0);
        let written = self.text.get(span.clone()).unwrap_or_default();
        let written = written.lines().next().unwrap_or_default();
        let problem = format!("cannot be understood: {}", error.message());
        self.named(&span, written, &problem)
    }

    fn positive(&self, value: &Spanned<f64>, name: &str) -> Result<f64, Error> {
        let number = *value.get_ref();
        if number.is_finite() && number > 0.0 {
            return Ok(number);
        }
        Err(self.error(value, &format!("as `{name}` is not a number above zero")))
    }

    fn not_negative(&self, value: &Spanned<f64>, name: &str) -> Result<f64, Error> {
        let number = *value.get_ref();
        if number.is_finite() && number >= 0.0 {
            return Ok(number);
        }
        Err(self.error(
            value,
            &format!("as `{name}` is not zero or a number above it"),
        ))
    }

    fn shelf(&self, profile: &Spanned<String>, folder: &Path) -> Result<Vec<Profile>, Error> {
        let name = profile.get_ref();
        if profiles::names().contains(&name.as_str()) {
            return profiles::load(name);
        }
        let path = folder.join(name);
        let shown = path.display().to_string();
        match std::fs::read_to_string(&path) {
            Ok(text) => profiles::read(&text, &shown),
            Err(error) => {
                let shipped = profiles::names().join(", ");
                let problem = format!(
                    "is neither a readable file (`{shown}`: {error}) nor a shipped profile: {shipped}"
                );
                Err(self.error(profile, &problem))
            }
        }
    }

    fn table(
        &self,
        written: &Spanned<ProfileTable>,
        model: &str,
        max_batch: u32,
    ) -> Result<Arc<LatencyTable>, Error> {
        let table = written.get_ref();
        let curve = match (&table.alpha_ms, &table.beta_ms, &table.table_ms) {
            (Some(alpha), Some(beta), None) => Curve::Line {
                alpha_ms: self.not_negative(alpha, "alpha_ms")?,
                beta_ms: self.not_negative(beta, "beta_ms")?,
            },
            (None, None, Some(values)) => self.points(values)?,
            _ => {
                let problem = "needs either `alpha_ms` and `beta_ms`, or `table_ms`";
                return Err(self.error(written, problem));
            }
        };
        if let Curve::Points(points) = &curve
            && points.is_empty()
        {
            return Err(self.error(written, "has an empty `table_ms`"));
        }
        let profile = Profile {
            model: model.to_owned(),
            curve,
            target_ms: None,
            load_ms: None,
            weights_mb: None,
        };
        profile
            .latency(max_batch)
            .map_err(|error| self.error(written, &format!("makes no profile: {error}")))
    }

    fn points(&self, values: &[Spanned<f64>]) -> Result<Curve, Error> {
        let mut points: Vec<(u32, f64)> = Vec::new();
        for (rows, value) in (1..).zip(values) {
            let ms = self.positive(value, "table_ms")?;
            if points.last().is_some_and(|(_, before)| ms < *before) {
                let problem = format!("for {rows} rows is less than for one row less");
                return Err(self.error(value, &problem));
            }
            points.push((rows, ms));
        }
        Ok(Curve::Points(points))
    }
}

// === impl Candidate ===

impl Candidate {
    /// Run time of one row on the kind where it is shortest, ms.
    pub fn least_ms(&self) -> f64 {
        let times = self.latency.iter().flatten().map(|table| table.of(1));
        times
            .min()
            .map_or(f64::INFINITY, |nanos| nanos as f64 / 1e6)
    }

    /// The target, ns.
    pub fn target(&self) -> u64 {
        nanos(self.target_ms)
    }
}
