//! Which version of a model answers a query, and the results of the versions that are tried.
//!
//! One version of a name is current and answers. Others may take part:
//!
//! - A *canary* answers a share of the queries. It gets a query if the query's number falls into the share. The number
//!   comes from the key that the client sent, so that a key keeps its version, or is random if there is no key. The
//!   canary answers only queries that it can answer at once. If anything goes wrong with it, the current version
//!   answers in its place while there is time.
//! - An *outgoing* version is the one that the current version has replaced. It answers queries for which the current
//!   version would have to be loaded first, so the switch interrupts nothing. It does so for [`KEPT_MS`] after a
//!   switch, as long as it is loaded.
//! - A *shadow* runs a share of the queries that the current version has answered once more, on a worker that has
//!   nothing else to do ([`agreement`](crate::agreement)). Nobody waits for it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use sextant_metadata::{MOST_DEMAND_ROWS, TrialRow};
use sextant_picture::IndexedVariant;
use sextant_rpc::QueryError;
use sextant_types::{Code, Line, ModelId, Route, release, time::unix_ms};

use crate::{
    Dispatcher,
    ask::Ask,
    pending::Done,
    place::{MayPassOn, Source, Unanswered},
    query::{Selection, is_for_time},
    snapshot::Snapshot,
};

/// How long after a switch the version before it may answer, milliseconds.
const KEPT_MS: u64 = 10 * 60 * 1000;

/// The results of the versions that are tried and of the current versions beside them, since this dispatcher began to
/// lead.
#[derive(Default)]
pub(crate) struct Trials {
    /// Numbers for queries that come without a key.
    queries: AtomicU64,
    rows: Mutex<BTreeMap<ModelId, TrialRow>>,
}

/// The result of a query that was run on a version.
pub(crate) struct VersionRun {
    pub(crate) chosen: Selection,
    pub(crate) done: Done,
    /// The query as it was put to the version, if it differs from the original query.
    pub(crate) ask: Option<Ask>,
}

/// The versions beside the current ones that may answer a query.
struct OtherVersions {
    canary: Option<OtherVersion>,
    outgoing: Vec<OtherVersion>,
}

/// A version beside the current one.
#[derive(Clone)]
struct OtherVersion {
    id: ModelId,
    /// The reference that names only this version.
    reference: ModelId,
    /// Why it answers, for explanations.
    reason: String,
}

/// The outcome of a query to a version.
pub(crate) enum Outcome {
    /// It took this long to compute, microseconds, and was in time or late.
    Answered { compute_us: f64, late: bool },
    /// It was refused because there was no time for it.
    NoTime,
    /// It failed.
    Failed,
    /// A shadow's answer was compared: rows, and how many of them agree.
    Compared {
        rows: u64,
        agreeing: u64,
        compute_us: f64,
    },
    /// No worker had time for a shadow.
    PassedOver,
}

// === impl Trials ===

impl Trials {
    pub(crate) fn note(&self, model: &ModelId, outcome: &Outcome) {
        let mut rows = self.rows.lock();
        let row = rows.entry(model.clone());
        let row = row.or_insert_with(|| TrialRow::of(model.clone()));
        match outcome {
            Outcome::Answered { compute_us, late } => {
                // Queries that found no time before the first answer count in the mean with the first answer's time.
                let counted = match row.compute_us {
                    0 => row.queries - row.errors + 1,
                    _ => 1,
                };
                row.queries += 1;
                row.late += u64::from(*late);
                row.compute_us += *compute_us as u64 * counted;
            }
            // The mean time of the answers stays the same.
            Outcome::NoTime => {
                let answers = row.queries - row.errors;
                row.compute_us += row.compute_us.checked_div(answers).unwrap_or(0);
                row.queries += 1;
                row.late += 1;
            }
            Outcome::Failed => {
                row.queries += 1;
                row.errors += 1;
            }
            Outcome::Compared {
                rows,
                agreeing,
                compute_us,
            } => {
                row.queries += 1;
                row.rows += rows;
                row.agreeing += agreeing;
                row.compute_us += *compute_us as u64;
            }
            Outcome::PassedOver => row.passed_over += 1,
        }
    }

    /// Starts the counts anew: another dispatcher leads, or led meanwhile.
    pub(crate) fn begin_again(&self) {
        self.rows.lock().clear();
    }

    fn number(&self, ask: &Ask) -> u64 {
        let by_chance = || release::mixed(self.queries.fetch_add(1, Ordering::Relaxed));
        ask.sticky.unwrap_or_else(by_chance)
    }
}

// === impl OtherVersion ===

impl OtherVersion {
    fn new(line: &Line, id: &ModelId, reason: String) -> Option<Self> {
        Some(Self {
            id: id.clone(),
            reference: line.reference(id)?,
            reason,
        })
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Places a query until a worker has run it, on the version that is to answer it.
    pub(crate) async fn run_version(
        &self,
        ask: &Ask,
        source: &Source,
    ) -> Result<VersionRun, QueryError> {
        let others = match ask.offline {
            false => self.others(ask),
            true => None,
        };
        match others {
            None => {
                let (chosen, done) = self.run_query(ask, source).await?;
                Ok(VersionRun {
                    chosen,
                    done,
                    ask: None,
                })
            }
            // This is rare, so the future is boxed and takes no room in the futures of all queries.
            Some(others) => Box::pin(self.run_beside(others, ask, source)).await,
        }
    }

    async fn run_beside(
        &self,
        others: OtherVersions,
        ask: &Ask,
        source: &Source,
    ) -> Result<VersionRun, QueryError> {
        if let Some(canary) = &others.canary
            && let Some(tried) = self.able(canary, ask)
        {
            let ran = self.run_as(canary, tried, source, may_be_answered_by_another);
            match ran.await {
                Err(Unanswered {
                    error,
                    is_passed_on: true,
                }) => {
                    tracing::debug!(model = %canary.id, code = error.code.as_str(), "a canary has not answered");
                }
                ran => return ran.map_err(|unanswered| unanswered.error),
            }
        }
        if !self.answers_at_once(ask) {
            let mut outgoing = others.outgoing.iter();
            let able = outgoing.find_map(|it| Some((it, self.able(it, ask)?)));
            if let Some((outgoing, tried)) = able {
                let ran = self.run_as(outgoing, tried, source, |_, _, _| false);
                return ran.await.map_err(|unanswered| unanswered.error);
            }
        }
        let ran = self.run_query(ask, source).await;
        let (chosen, done) = ran?;
        self.trials
            .note(&chosen.known.variant.model, &Outcome::answered(ask, &done));
        Ok(VersionRun {
            chosen,
            done,
            ask: None,
        })
    }

    /// Runs a query on another version than the current one. The current version answers it instead where `may_pass_on`
    /// allows.
    async fn run_as(
        &self,
        other: &OtherVersion,
        tried: Ask,
        source: &Source,
        may_pass_on: MayPassOn,
    ) -> Result<VersionRun, Unanswered> {
        let ran = self.run_query_or(&tried, source, may_pass_on).await;
        let outcome = match &ran {
            Ok((_, done)) => Outcome::answered(&tried, done),
            Err(unanswered) => Outcome::refused(&unanswered.error),
        };
        self.trials.note(&other.id, &outcome);
        let (mut chosen, done) = ran?;
        if let Some(explanation) = &mut chosen.explanation {
            explanation.reason = format!("{}; {}", other.reason, explanation.reason);
        }
        let ask = Some(tried);
        Ok(VersionRun { chosen, done, ask })
    }

    /// The query as it is put to another version; `None` if that version cannot answer at once.
    fn able(&self, other: &OtherVersion, ask: &Ask) -> Option<Ask> {
        let snapshot = self.snapshot.load();
        let is_named = matches!(ask.route, Route::Model(_));
        let tried = Ask {
            route: Route::Model(other.reference.clone()),
            targets: snapshot.in_figures_of(&other.id, is_named, (ask.asked, ask.extent)),
            ..ask.clone()
        };
        drop(snapshot);
        let strict = Ask {
            best_effort: false,
            ..tried.clone()
        };
        self.answers_at_once(&strict).then_some(tried)
    }

    /// Whether a query can be answered without waiting for a load. If a variant would have to be loaded for it, a load
    /// is requested.
    fn answers_at_once(&self, ask: &Ask) -> bool {
        match self.choose(ask) {
            Ok(chosen) if chosen.load => {
                self.driver.on_missed(chosen.known.ordinal);
                false
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// The versions beside the current ones that may answer a query; `None` if there are none, which is the usual case.
    fn others(&self, ask: &Ask) -> Option<OtherVersions> {
        let snapshot = self.snapshot.load();
        let now_ms = snapshot.has_others().then(unix_ms)?;
        let mut others = OtherVersions {
            canary: None,
            outgoing: Vec::new(),
        };
        let mut is_tried = false;
        for line in snapshot.lines(&ask.route) {
            if let Some((id, percent)) = line.canary() {
                is_tried = true;
                let drawn = release::draw(self.trials.number(ask), id.as_str()) * 100.0;
                if drawn < percent && others.canary.is_none() {
                    let reason = format!("a canary answers {percent} % of the queries");
                    others.canary = OtherVersion::new(line, id, reason);
                }
            }
            if let Some((id, since_ms)) = line.outgoing()
                && now_ms.saturating_sub(since_ms) < KEPT_MS
            {
                let reason = "the current version is being loaded".to_owned();
                others.outgoing.extend(OtherVersion::new(line, id, reason));
            }
        }
        (is_tried || !others.outgoing.is_empty()).then_some(others)
    }

    /// Whether a canary gets a share of such queries.
    pub(crate) fn tries_canary(&self, ask: &Ask) -> bool {
        let snapshot = self.snapshot.load();
        let mut lines = snapshot.lines(&ask.route);
        snapshot.has_others() && lines.any(|line| line.canary().is_some())
    }

    /// The shadow that is to run a query once more, if the query falls into its share.
    pub(crate) fn shadow_of(&self, ask: &Ask) -> Option<ModelId> {
        let snapshot = self.snapshot.load();
        if !snapshot.has_others() {
            return None;
        }
        let mut lines = snapshot.lines(&ask.route);
        lines.find_map(|line| {
            let (id, percent) = line.shadow()?;
            let drawn = release::draw(self.trials.number(ask), id.as_str()) * 100.0;
            (drawn < percent).then(|| id.clone())
        })
    }

    /// The results of the versions that are tried, to be shown or judged.
    pub(crate) fn trial_rows(&self) -> Vec<TrialRow> {
        let snapshot = self.snapshot.load();
        let mut rows = self.trials.rows.lock();
        rows.retain(|model, _| snapshot.model_exactly(model).is_some());
        rows.values().take(MOST_DEMAND_ROWS).cloned().collect()
    }

    /// Whether a variant belongs to one of the current versions.
    pub(crate) fn is_current(&self, known: &IndexedVariant) -> bool {
        let snapshot: &Snapshot = &self.snapshot.load();
        snapshot.is_current(&known.variant.model)
    }
}

// === impl Outcome ===

impl Outcome {
    fn answered(ask: &Ask, done: &Done) -> Self {
        let most_ms = ask.longest_ms().unwrap_or(f64::INFINITY);
        Self::Answered {
            compute_us: done.timings.input_us + done.timings.exec_us + done.timings.output_us,
            late: ask.arrived.elapsed().as_secs_f64() * 1e3 > most_ms,
        }
    }

    /// The outcome of a query that was not answered. Full devices are not the version's fault.
    fn refused(error: &QueryError) -> Self {
        match is_for_time(error) {
            true => Self::NoTime,
            false => Self::Failed,
        }
    }
}

/// Whether the current version may answer a query that a canary has not answered: there is time, and the inputs are in
/// this process. Inputs that a front end keeps have been sent to a worker.
fn may_be_answered_by_another(error: &QueryError, ask: &Ask, source: &Source) -> bool {
    let in_time = ask
        .deadline()
        .is_none_or(|by| std::time::Instant::now() < by);
    in_time && matches!(source, Source::Here(_)) && error.code != Code::InvalidTensor
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    use sextant_picture::InputSize;
    use sextant_rpc::{BatchTimings, ForStep};
    use sextant_types::{ApplicationId, StepOf, Targets};

    use super::*;

    /// A query of a step of a pipeline with a target of 100 ms, which arrived `ago`.
    fn ask(ago: Duration, patience_ms: Option<f64>) -> Ask {
        let route = Route::Model(ModelId::new("m").unwrap());
        let step = StepOf {
            pipeline: ApplicationId::new("whole").unwrap(),
            step: "part".to_owned(),
            after: Vec::new(),
            asks: route.clone(),
        };
        let targets = Targets {
            latency_ms: Some(100.0),
            ..Targets::default()
        };
        Ask {
            route,
            targets,
            asked: targets,
            rows: 1,
            extent: InputSize::default(),
            best_effort: false,
            explain: false,
            sticky: None,
            composites: Vec::new(),
            offline: false,
            step: Some(Box::new(ForStep {
                of: Arc::new(step),
                share: 1.0,
                whole_ms: None,
                patience_ms,
                accuracy: None,
            })),
            arrived: Instant::now().checked_sub(ago).expect("a time"),
        }
    }

    #[test]
    fn a_step_is_late_when_its_patience_is_over() {
        let done = Done {
            outputs: Vec::new(),
            timings: BatchTimings {
                started: Instant::now(),
                queue_us: 0.0,
                input_us: 10.0,
                exec_us: 20.0,
                output_us: 30.0,
                device_us: None,
            },
            batch_rows: 1,
            second_usd: 0.0,
        };
        let ago = Duration::from_millis(200);
        for (patience_ms, wanted) in [(None, true), (Some(150.0), true), (Some(6e7), false)] {
            let (trials, model) = (Trials::default(), ModelId::new("m.v2").unwrap());
            let answered = Outcome::answered(&ask(ago, patience_ms), &done);
            trials.note(&model, &answered);
            let late = trials.rows.lock().get(&model).map(|row| row.late);
            assert_eq!(late, Some(u64::from(wanted)), "{patience_ms:?}");
        }
    }

    #[test]
    fn what_is_refused_for_want_of_time_is_late_and_no_error() {
        let (trials, model) = (Trials::default(), ModelId::new("m.v2").unwrap());
        let refused = |code| Outcome::refused(&QueryError::new(code, "refused"));
        let (compute_us, late) = (100.0, false);
        trials.note(&model, &refused(Code::EngineFailed));
        trials.note(&model, &refused(Code::Overloaded));
        trials.note(&model, &Outcome::Answered { compute_us, late });
        trials.note(&model, &Outcome::Answered { compute_us, late });
        trials.note(&model, &refused(Code::DeadlineExceeded));
        let count = || {
            let rows = trials.rows.lock();
            let row = rows.get(&model)?;
            Some((row.queries, row.errors, row.late, row.compute_us))
        };
        assert_eq!(count(), Some((5, 1, 2, 400)), "100 us each in the mean");
        trials.begin_again();
        assert_eq!(count(), None);
        trials.note(&model, &refused(Code::EngineFailed));
        assert_eq!(count(), Some((1, 1, 0, 0)));
    }
}
