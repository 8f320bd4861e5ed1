//! Versions of models: their names, and the part of each in answering.
//!
//! The models of one application with one name are a *line*; each is a version of it. One version of a line is current.
//! A query names a line, or a version of it, by a *reference*: `name`, `application:name`, `name@version` or
//! `application:name@version`. All of these can be used unchanged in a URL's path. Only [`Releases`] determines what a
//! reference stands for; callers build one from the models that they know.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::{ApplicationId, ModelId};

/// The part of a version in answering.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It answers only queries that name the version.
    Candidate,
    /// It runs a share of the queries that the current version has answered once more, and the answers are compared.
    Shadow {
        /// The share, percent: above 0, at most 100.
        percent: f64,
    },
    /// It answers a share of the queries.
    Canary {
        /// The share, percent: above 0, at most 100.
        percent: f64,
    },
    /// It answers the queries.
    #[default]
    Current,
    /// It was current or tried, and is kept so that it can become current again.
    Retired,
}

/// A share that is out of range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`percent` is `{0}`: it must be above 0 and at most 100")]
pub struct InvalidPercent(pub f64);

/// A model's name, version and stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Its name, which it shares with its other versions; `None` if that is its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ModelId>,
    /// Its number, from 1.
    pub version: u32,
    /// Its part in answering.
    pub stage: Stage,
    /// When it entered this stage, milliseconds since the Unix epoch; 0 if it always was in it.
    #[serde(default)]
    pub since_ms: u64,
}

/// The versions of one name in one application.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The application.
    pub application: ApplicationId,
    /// The name.
    pub name: ModelId,
    /// By number.
    pub versions: BTreeMap<u32, (ModelId, Release)>,
}

/// What references stand for.
#[derive(Debug, Clone, Default)]
pub struct Releases {
    lines: Vec<Line>,
    /// By reference and by id.
    meanings: HashMap<ModelId, Meaning>,
    /// By application: the positions of its lines.
    applications: HashMap<ApplicationId, Vec<usize>>,
}

/// What a reference stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    /// A line: its current version.
    Line(usize),
    /// A single model.
    Version(usize, ModelId),
}

/// The number of a key that a client sends, for [`draw`] (FNV-1a over its bytes).
pub fn sticky(key: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    key.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The position of a number in a trial, from 0 to 1, excluding 1. It is the same for a number within one trial, and
/// independent between trials.
pub fn draw(number: u64, trial: &str) -> f64 {
    let mixed = mixed(number ^ sticky(trial));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

/// A pseudo-random number, one for each number (SplitMix64's finaliser, Steele et al. 2014).
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

// === impl Stage ===

impl Stage {
    /// `candidate`, `shadow`, `canary`, `current`, `retired`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Shadow { .. } => "shadow",
            Self::Canary { .. } => "canary",
            Self::Current => "current",
            Self::Retired => "retired",
        }
    }

    /// The inverse of [`Self::as_str`]. `percent` is the share of stages that have one, 100 if it is not given.
    pub fn parse(name: &str, percent: Option<f64>) -> Option<Self> {
        let percent = percent.unwrap_or(100.0);
        Some(match name {
            "candidate" => Self::Candidate,
            "shadow" => Self::Shadow { percent },
            "canary" => Self::Canary { percent },
            "current" => Self::Current,
            "retired" => Self::Retired,
            _ => return None,
        })
    }

    /// The share of queries that it gets, if it gets a share.
    pub fn percent(self) -> Option<f64> {
        match self {
            Self::Shadow { percent } | Self::Canary { percent } => Some(percent),
            Self::Candidate | Self::Current | Self::Retired => None,
        }
    }

    /// Refuses shares that are out of range.
    pub fn validate(self) -> Result<(), InvalidPercent> {
        match self.percent() {
            Some(percent) if !(percent > 0.0 && percent <= 100.0) => Err(InvalidPercent(percent)),
            _ => Ok(()),
        }
    }

    /// Whether it is tried: it gets a share of the queries that name another version or none.
    pub fn is_tried(self) -> bool {
        self.percent().is_some()
    }

    /// Whether it is current or tried, so that it gets queries that do not name it.
    pub fn answers(self) -> bool {
        self == Self::Current || self.is_tried()
    }
}

// === impl Release ===

impl Default for Release {
    fn default() -> Self {
        Self {
            name: None,
            version: 1,
            stage: Stage::Current,
            since_ms: 0,
        }
    }
}

impl Release {
    /// Whether it says only that a model is the one version of its name.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

// === impl Line ===

impl Line {
    /// The version that answers. While a switch is being published, several versions may be marked as current; it is
    /// the one that has become current last.
    pub fn current(&self) -> Option<&ModelId> {
        let current = self.versions.values();
        let current = current.filter(|(_, release)| release.stage == Stage::Current);
        let newest = current.max_by_key(|(_, release)| (release.since_ms, release.version));
        newest.map(|(id, _)| id)
    }

    /// The version that the current one has replaced, and when.
    pub fn outgoing(&self) -> Option<(&ModelId, u64)> {
        let current = self.current()?;
        let release = |id: &ModelId| self.versions.values().find(|(of, _)| of == id);
        let since = release(current)?.1.since_ms;
        let others = self.versions.values().filter(|(id, _)| id != current);
        // A version that is still marked as current has not been updated yet.
        let mut left = others.filter(|(_, it)| match it.stage {
            Stage::Retired => it.since_ms == since,
            Stage::Current => true,
            _ => false,
        });
        left.next().filter(|_| since > 0).map(|(id, _)| (id, since))
    }

    /// The version that answers a share of the queries, and the share, percent.
    pub fn canary(&self) -> Option<(&ModelId, f64)> {
        self.tried(|stage| matches!(stage, Stage::Canary { .. }))
    }

    /// The version that runs a share of the queries once more, and the share, percent.
    pub fn shadow(&self) -> Option<(&ModelId, f64)> {
        self.tried(|stage| matches!(stage, Stage::Shadow { .. }))
    }

    /// The model that the bare name stands for: the current version, or the first one if none is current.
    pub fn model(&self) -> Option<&ModelId> {
        let first = || self.versions.values().next().map(|(id, _)| id);
        self.current().or_else(first)
    }

    /// The reference that names only this version.
    pub fn reference(&self, id: &ModelId) -> Option<ModelId> {
        let (number, _) = self.versions.iter().find(|(_, (of, _))| of == id)?;
        Some(ModelId::qualified(&self.application, &self.name).at_version(*number))
    }

    /// Whether the line has versions that take part beside the current one.
    pub fn has_others(&self) -> bool {
        let tried = self
            .versions
            .values()
            .any(|(_, release)| release.stage.is_tried());
        tried || self.outgoing().is_some()
    }

    /// The probability with which a model of the line answers a query of the line: less than 1 while a canary is tried.
    pub fn propensity(&self, model: &ModelId) -> f64 {
        match self.canary() {
            Some((canary, percent)) if canary == model => percent / 100.0,
            Some((_, percent)) => 1.0 - percent / 100.0,
            None => 1.0,
        }
    }

    fn tried(&self, is: impl Fn(Stage) -> bool) -> Option<(&ModelId, f64)> {
        let mut tried = self.versions.values();
        let (id, release) = tried.find(|(_, release)| is(release.stage))?;
        Some((id, release.stage.percent()?))
    }
}

// === impl Releases ===

impl Releases {
    /// Made from models, each with its application and its release. A model may appear several times, once for each of
    /// its variants; the latest release counts.
    pub fn of<'a>(
        models: impl IntoIterator<Item = (&'a ApplicationId, &'a ModelId, &'a Release)>,
    ) -> Self {
        let mut lines: BTreeMap<(&ApplicationId, &ModelId), Line> = BTreeMap::new();
        for (application, id, release) in models {
            let name = release.name.as_ref().unwrap_or(id);
            let line = lines.entry((application, name)).or_insert_with(|| Line {
                application: application.clone(),
                name: name.clone(),
                versions: BTreeMap::new(),
            });
            let known = line.versions.get(&release.version);
            if known.is_none_or(|(_, known)| known.since_ms < release.since_ms) {
                let of = (id.clone(), release.clone());
                line.versions.insert(release.version, of);
            }
        }
        let mut releases = Self {
            lines: lines.into_values().collect(),
            ..Self::default()
        };
        releases.name_all();
        releases
    }

    /// The line that a reference names, or to which the version that it names belongs.
    pub fn line(&self, reference: &ModelId) -> Option<&Line> {
        match self.meanings.get(reference)? {
            Meaning::Line(at) | Meaning::Version(at, _) => self.lines.get(*at),
        }
    }

    /// The line that a reference names as a whole.
    pub fn whole(&self, reference: &ModelId) -> Option<&Line> {
        match self.meanings.get(reference)? {
            Meaning::Line(at) => self.lines.get(*at),
            Meaning::Version(..) => None,
        }
    }

    /// The model that a reference stands for. For a line it is the current version, or the first one if none is
    /// current.
    pub fn model(&self, reference: &ModelId) -> Option<&ModelId> {
        match self.meanings.get(reference)? {
            Meaning::Line(at) => self.lines.get(*at)?.model(),
            Meaning::Version(_, id) => Some(id),
        }
    }

    /// The lines of an application.
    pub fn lines_of(&self, application: &ApplicationId) -> impl Iterator<Item = &Line> {
        let at = self.applications.get(application).into_iter().flatten();
        at.filter_map(|at| self.lines.get(*at))
    }

    /// All lines, by application and name.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The applications that have a model of this name.
    pub fn applications_with<'a>(
        &'a self,
        name: &'a ModelId,
    ) -> impl Iterator<Item = &'a ApplicationId> {
        let lines = self.lines.iter().filter(move |line| line.name == *name);
        lines.map(|line| &line.application)
    }

    /// Enters ids first, then the names of lines: a name stands for a line before it stands for an id. A bare name
    /// stands for the line with a version of that id, or for the only line of that name.
    fn name_all(&mut self) {
        let mut bare: HashMap<&ModelId, Vec<usize>> = HashMap::new();
        for (at, line) in self.lines.iter().enumerate() {
            bare.entry(&line.name).or_default().push(at);
            let application = line.application.clone();
            self.applications.entry(application).or_default().push(at);
            for (id, _) in line.versions.values() {
                let meaning = Meaning::Version(at, id.clone());
                self.meanings.insert(id.clone(), meaning);
            }
        }
        let has_id = |at: &&usize| {
            let line = &self.lines[**at];
            line.versions.values().any(|(id, _)| *id == line.name)
        };
        let mut named = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let all = &bare[&line.name];
            let owner = all.iter().find(has_id);
            let owner = owner.or_else(|| all.first().filter(|_| all.len() == 1));
            let qualified = ModelId::qualified(&line.application, &line.name);
            let names = [
                Some(qualified),
                (owner == Some(&at)).then(|| line.name.clone()),
            ];
            for name in names.into_iter().flatten() {
                for (version, (id, _)) in &line.versions {
                    named.push((name.at_version(*version), Meaning::Version(at, id.clone())));
                }
                named.push((name, Meaning::Line(at)));
            }
        }
        self.meanings.extend(named);
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.application, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ModelId {
        text.parse().expect("a reference")
    }

    fn application(text: &str) -> ApplicationId {
        ApplicationId::new(text).expect("a name")
    }

    fn release(name: &str, version: u32, stage: Stage) -> Release {
        Release {
            name: Some(id(name)),
            version,
            stage,
            since_ms: 0,
        }
    }

    fn of(models: &[(&str, &str, Release)]) -> Releases {
        let models: Vec<_> = models
            .iter()
            .map(|(of, model, release)| (application(of), id(model), release.clone()))
            .collect();
        Releases::of(
            models
                .iter()
                .map(|(of, model, release)| (of, model, release)),
        )
    }

    #[test]
    fn a_bare_name_is_the_current_version() {
        let releases = of(&[
            ("a", "forest", release("forest", 1, Stage::Retired)),
            ("a", "forest.v2", release("forest", 2, Stage::Current)),
        ]);
        let model = |text: &str| releases.model(&id(text)).map(ModelId::to_string);
        for text in ["forest", "a:forest", "forest@2", "a:forest@2", "forest.v2"] {
            assert_eq!(model(text).as_deref(), Some("forest.v2"), "{text}");
        }
        for text in ["forest@1", "a:forest@1"] {
            assert_eq!(model(text).as_deref(), Some("forest"), "{text}");
        }
        for text in ["b:forest", "forest@3", "tree"] {
            assert_eq!(model(text), None, "{text}");
        }
    }

    #[test]
    fn a_later_application_takes_no_name_away() {
        let releases = of(&[
            ("b", "forest", release("forest", 1, Stage::Current)),
            ("a", "forest.a", release("forest", 1, Stage::Current)),
        ]);
        let model = |text: &str| releases.model(&id(text)).map(ModelId::to_string);
        assert_eq!(model("forest").as_deref(), Some("forest"));
        assert_eq!(model("forest@1").as_deref(), Some("forest"));
        assert_eq!(model("a:forest").as_deref(), Some("forest.a"));
        assert_eq!(model("b:forest").as_deref(), Some("forest"));
    }

    #[test]
    fn what_two_share_and_neither_has_as_its_id_is_nobodys() {
        let releases = of(&[
            ("a", "forest.a", release("forest", 1, Stage::Current)),
            ("b", "forest.b", release("forest", 1, Stage::Current)),
        ]);
        assert_eq!(releases.model(&id("forest")), None);
        let forest = id("forest");
        let both: Vec<_> = releases.applications_with(&forest).collect();
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn of_a_switch_that_is_being_published_the_later_version_is_current() {
        let now = |version, stage| Release {
            since_ms: 7,
            ..release("forest", version, stage)
        };
        for old in [release("forest", 1, Stage::Current), now(1, Stage::Retired)] {
            let releases = of(&[
                ("a", "forest", old),
                ("a", "forest.v2", now(2, Stage::Current)),
                ("a", "forest.v2", release("forest", 2, Stage::Candidate)),
            ]);
            let line = releases.whole(&id("forest")).expect("a line");
            assert_eq!(line.current(), Some(&id("forest.v2")));
            assert_eq!(line.outgoing(), Some((&id("forest"), 7)));
        }
    }

    #[test]
    fn references_are_read_strictly() {
        for text in [
            "a:",
            ":a",
            "a@",
            "a@0",
            "a@01",
            "a@x",
            "a:b:c",
            "a@1@2",
            "A",
            "a/b",
            "a@12345678901",
        ] {
            assert!(text.parse::<ModelId>().is_err(), "{text}");
        }
        assert!(ModelId::new("a@1").is_err(), "no model is called so");
        assert!(ModelId::new("a:b").is_err(), "no model is called so");
    }

    #[test]
    fn a_key_keeps_its_side_and_a_share_is_drawn() {
        let within = |percent: f64| {
            let keys = (0..20_000).map(|key| sticky(&format!("user-{key}")));
            keys.filter(|key| draw(*key, "forest.v2") * 100.0 < percent)
                .count()
        };
        for percent in [0.5, 5.0, 50.0] {
            let (drawn, wanted) = (within(percent) as f64, percent * 200.0);
            assert!(
                (drawn - wanted).abs() < 4.0 * wanted.sqrt(),
                "{drawn} of {wanted}"
            );
        }
        let both = (0..20_000).filter(|key| draw(*key, "a") < 0.1 && draw(*key, "b") < 0.1);
        assert!(
            (100..=300).contains(&both.count()),
            "trials are independent"
        );
    }
}
