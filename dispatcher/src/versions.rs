//! Which version of a model answers a query, and what those that are tried have done.
//!
//! One version of a name is current and answers. Beside it
//!
//! - a *canary* answers a share of the queries. A query is its business where the query's number falls into the share: the
//!   number is that of the key which the client sent along, so that a key keeps its version, or else one by chance. The
//!   canary answers only what it can answer at once; whatever goes wrong with it, the current version answers in its place
//!   while there is time.
//! - the version whose place the current one has taken, *outgoing*, answers what the current one would have to be loaded for
//!   first: so nothing is broken before the new is made. It does so for [`KEPT_MS`] behind a switch, as long as it is
//!   loaded.
//! - a *shadow* runs a share of what the current version has answered once more, where a worker has nothing else to do
//!   ([`agreement`](crate::agreement)). Nobody waits for that.

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

/// For so long behind a switch the version before it may answer, milliseconds.
const KEPT_MS: u64 = 10 * 60 * 1000;

/// What the versions that are tried have done, and the current ones beside them, since this dispatcher began to lead.
#[derive(Default)]
pub(crate) struct Trials {
    /// Numbers for queries that bring none.
    queries: AtomicU64,
    rows: Mutex<BTreeMap<ModelId, TrialRow>>,
}

/// What a query that was run as one of a version has come to.
pub(crate) struct VersionRun {
    pub(crate) chosen: Selection,
    pub(crate) done: Done,
    /// What was asked of the version, where that is not what the query says itself.
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
    /// What names it and nothing else.
    reference: ModelId,
    /// Why it answers, for who asks why.
    reason: String,
}

/// One more answer of a version, or none.
pub(crate) enum Outcome {
    /// It took so long to compute, microseconds, and was there in time or not.
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
                // Those that found no time before the first answer count as it does in the mean.
                let counted = match row.compute_us {
                    0 => row.queries - row.errors + 1,
                    _ => 1,
                };
                row.queries += 1;
                row.late += u64::from(*late);
                row.compute_us += *compute_us as u64 * counted;
            }
            // The mean time of the answers stays what it is.
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

    /// Nothing that comes is counted together with what was: another leads, or led meanwhile.
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
    /// Places a query until a worker has run it, as a query of the version whose business it is.
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
            // Seldom, so that the futures of queries have no room for it.
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

    /// Runs a query as one of another version than the current, which answers it where `may_pass_on` says so.
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

    /// What is asked of another version, where it can answer at once.
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

    /// Whether a query is answered without waiting for a load. What would have to be loaded for it is asked for.
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

    /// The versions beside the current ones that may answer a query; `None` where none is, as nearly always.
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

    /// The shadow that is to run a query once more, where the query falls into its share.
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

    /// What the versions that are tried have done, for whoever shows or judges it.
    pub(crate) fn trial_rows(&self) -> Vec<TrialRow> {
        let snapshot = self.snapshot.load();
        let mut rows = self.trials.rows.lock();
        rows.retain(|model, _| snapshot.model_exactly(model).is_some());
        rows.values().take(MOST_DEMAND_ROWS).cloned().collect()
    }

    /// Whether a variant is one of the current versions.
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

    /// Of a query that was not answered: where devices are full, that is no fault of the version's.
    fn refused(error: &QueryError) -> Self {
        match is_for_time(error) {
            true => Self::NoTime,
            false => Self::Failed,
        }
    }
}

/// Whether the current version may answer what a canary has not: there is time, and the inputs are here. Those that a front
/// end keeps have gone to a worker.
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

    /// A query of a step of a pipeline with a target of 100 ms, which came so long ago.
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
