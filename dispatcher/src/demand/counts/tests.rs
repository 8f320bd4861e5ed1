//! Tests that what is counted is reported once.

use sextant_types::Route;

use super::*;

fn name(application: u32) -> ApplicationId {
    ApplicationId::new(format!("app-{application}")).expect("a name")
}

fn add(counts: &Counts, application: u32, variant: Option<u32>, ended: QueryOutcome) {
    let id = variant.map(|of| VariantId::new(format!("v-{of}")).expect("a name"));
    let variant = variant.map(VariantIx::new).zip(id.as_ref());
    let asked = QueryRows {
        rows: 2,
        worth: 2.5,
        runs: 0.0,
    };
    let ended = (ended, asked, Duration::from_millis(3));
    let of = name(application);
    let target = application == 0;
    let target = target.then_some(20.0 + variant.map_or(0.0, |(of, _)| f64::from(of.get())));
    counts.add(
        (ApplicationIx::new(application), &of),
        (TargetClass::default(), None),
        variant,
        ended,
        target,
    );
}

#[test]
fn what_was_told_is_not_told_again_and_what_was_not_is_kept() {
    let counts = Counts::default();
    add(&counts, 0, Some(1), QueryOutcome::Answered);
    let lost = counts.unreported();
    assert_eq!(lost.demand().len(), 1);
    add(&counts, 0, Some(1), QueryOutcome::Refused(Code::Overloaded));
    add(&counts, 0, Some(1), QueryOutcome::GivenUp);
    let unreported = counts.unreported();
    let [row] = &unreported.demand()[..] else {
        panic!("one row")
    };
    assert_eq!((row.offered, row.answered, row.late), (3, 1, 0));
    assert_eq!(row.refused, BTreeMap::from([(Code::Overloaded, 1)]));
    assert_eq!((row.queueing_ms, row.input_rows), (9, 6));
    assert_eq!(row.sized_rows, 15.0);
    assert_eq!(row.latency_ms, Some((21.0, 21.0)));
    add(&counts, 0, Some(1), QueryOutcome::Late);
    counts.told(&unreported);
    let next = counts.unreported().demand();
    assert_eq!((next[0].offered, next[0].late), (1, 1));
    assert_eq!(counts.totals()[&name(0)].offered(), 4);
}

#[test]
fn what_needed_no_device_is_answered_and_brings_no_rows() {
    let counts = Counts::default();
    add(&counts, 0, Some(1), QueryOutcome::Kept);
    add(&counts, 0, Some(1), QueryOutcome::Answered);
    let unreported = counts.unreported();
    let demand = unreported.demand();
    let row = &demand[0];
    assert_eq!((row.offered, row.answered, row.kept), (2, 2, 1));
    assert_eq!(row.input_rows, 2, "two rows of the one that ran");
    counts.told(&unreported);
    assert!(counts.unreported().demand().is_empty());
}

#[test]
fn a_run_of_a_step_that_asks_for_each_of_thousands_of_rows_is_one() {
    const ROWS: u32 = 4096;
    let counts = Counts::default();
    let of = StepOf {
        pipeline: name(0),
        step: "read".to_owned(),
        after: Vec::new(),
        asks: Route::Application(name(1)),
    };
    let step = ForStep {
        of: Arc::new(of),
        share: 1.0 / f64::from(ROWS),
        whole_ms: None,
        patience_ms: None,
        accuracy: None,
    };
    for _ in 0..ROWS {
        let asked = QueryRows {
            rows: 1,
            worth: 1.0,
            runs: step.share,
        };
        counts.add(
            (ApplicationIx::new(1), &name(1)),
            (TargetClass::default(), Some(&step)),
            None,
            (QueryOutcome::Answered, asked, Duration::ZERO),
            None,
        );
    }
    let demand = counts.unreported().demand();
    let runs = demand[0].step.as_ref().expect("a step").runs;
    assert!((runs - 1.0).abs() < 0.01, "{runs}");
}

#[test]
fn rows_that_do_not_fit_are_counted_without_their_variant_and_then_not_at_all() {
    let counts = Counts::default();
    let most = u32::try_from(MOST_DEMAND_ROWS).expect("a few thousand");
    for variant in 0..most {
        add(&counts, 0, Some(variant), QueryOutcome::Answered);
    }
    let rows = counts.unreported().demand();
    assert_eq!(rows.len(), MOST_QUEUED_ROWS + 1);
    assert_eq!(rows[0].variant, None);
    let fitted = MOST_QUEUED_ROWS as u64;
    assert_eq!(rows[0].offered, u64::from(most) - fitted);
    for application in 1..most {
        add(&counts, application, None, QueryOutcome::Answered);
    }
    let rows = counts.unreported().demand();
    assert_eq!(rows.len(), MOST_DEMAND_ROWS);
    let room = (MOST_DEMAND_ROWS - MOST_QUEUED_ROWS - 1) as u64;
    assert_eq!(counts.uncounted(), u64::from(most) - 1 - room);
}

#[test]
fn rows_that_nothing_is_counted_in_make_room_and_stay_in_the_totals() {
    let counts = Counts::default();
    add(&counts, 0, Some(0), QueryOutcome::Answered);
    for _ in 0..=IDLE_WINDOWS {
        counts.told(&counts.unreported());
    }
    assert!(counts.rows.load().by_key.is_empty());
    add(&counts, 0, Some(0), QueryOutcome::Answered);
    assert_eq!(counts.unreported().demand()[0].offered, 1);
    assert_eq!(counts.totals()[&name(0)].answered, 2);
}

#[test]
fn what_was_counted_for_a_deleted_application_is_forgotten() {
    let counts = Counts::default();
    add(&counts, 0, Some(0), QueryOutcome::Answered);
    add(&counts, 1, Some(1), QueryOutcome::Answered);
    for _ in 0..=IDLE_WINDOWS {
        counts.told(&counts.unreported());
    }
    for application in [0, 1] {
        add(
            &counts,
            application,
            None,
            QueryOutcome::Refused(Code::Overloaded),
        );
    }
    counts.forget_deleted(|application| *application != name(1));
    let totals = counts.totals();
    assert_eq!(totals.keys().collect::<Vec<_>>(), [&name(0)]);
    assert_eq!(totals[&name(0)].offered(), 2);
    // An application of the same name starts at zero.
    add(&counts, 1, Some(2), QueryOutcome::Answered);
    assert_eq!(counts.totals()[&name(1)].offered(), 1);
}
