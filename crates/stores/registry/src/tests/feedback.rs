//! Feedback: stored and counted once, exported in order, bounded, erased.

use sextant_feedback::{Alarm, AlarmKind, Kind, Prediction, Sums};

use super::*;
use crate::{
    Entity, ErasureScope, Fate, Feedback, FeedbackBounds, FeedbackKey, ShadowAnswer, rows::Columns,
};

on_both! {
    a_row_is_kept_and_counted_once,
    rows_that_are_given_at_once_count_once,
    rows_of_an_application_that_is_gone_are_not_kept,
    a_comparison_is_kept_whole_or_not_at_all,
    an_export_has_every_row_in_order,
    the_oldest_go_where_there_is_too_much,
    what_is_erased_is_gone_and_stays_counted,
    the_first_key_of_a_number_is_kept,
    one_takes_an_alarm_at_a_time,
    what_a_shadow_answers_is_kept_while_feedback_may_come,
    a_model_inherits_nothing_of_one_that_was_deleted,
    what_a_deleted_model_answered_does_not_count_for_its_successor,
}

const HOUR_MS: u64 = 3_600_000;

fn row(query: &str, at: u32, value: &str) -> Feedback {
    Feedback {
        query: query.to_owned(),
        row: at,
        kind: Kind::Label,
        application: app(),
        model: model_id("m"),
        version: 0,
        variant: VariantId::new("m-ort").unwrap(),
        answered_ms: 5 * HOUR_MS + 1,
        given_ms: 5 * HOUR_MS + 2,
        value: value.to_owned(),
        score: Some(1.0),
        propensity: 1.0,
        subject: None,
        actor: "anonymous".to_owned(),
    }
}

async fn with_application(place: &Place) -> Registry {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    registry
}

async fn sums(registry: &Registry) -> Vec<(u64, Sums)> {
    let sums = registry.feedback_sums(&app()).await.unwrap();
    sums.into_iter().map(|it| (it.hour, it.sums)).collect()
}

async fn a_row_is_kept_and_counted_once(place: Place) {
    let registry = with_application(&place).await;
    let first = [
        row("q", 0, "7"),
        row("q", 1, "3"),
        row("r", 0, "\"odd\u{1f9ed}\""),
    ];
    let kept = registry.give_feedback(&first).await.unwrap();
    assert_eq!(kept, [Fate::Kept; 3]);
    let wrong = Feedback {
        score: Some(0.0),
        ..row("s", 0, "1")
    };
    let unscored = Feedback {
        score: None,
        ..row("t", 0, "1")
    };
    let reward = Feedback {
        kind: Kind::Reward,
        score: Some(0.1 + 0.2),
        ..row("q", 0, "0.3")
    };
    let mixed = [row("q", 0, "7"), row("q", 1, "4"), wrong, unscored, reward];
    let fates = registry.give_feedback(&mixed).await.unwrap();
    assert_eq!(
        fates,
        [
            Fate::Repeated,
            Fate::Differs,
            Fate::Kept,
            Fate::Kept,
            Fate::Kept
        ]
    );
    let labels = Sums {
        rows: 4,
        sum: 3.0,
        squares: 3.0,
    };
    let mut reward = Sums::default();
    reward.add(0.1 + 0.2);
    assert_eq!(sums(&registry).await, [(5, labels), (5, reward)]);
    registry.close().await;
    assert_eq!(sums(&place.open().await).await.len(), 2);
}

async fn rows_that_are_given_at_once_count_once(place: Place) {
    let registry = with_application(&place).await;
    let rows: Vec<Feedback> = (0..50).map(|at| row("q", at, "7")).collect();
    let givers: Vec<_> = (0..6)
        .map(|turn: usize| {
            let (registry, mut rows) = (registry.clone(), rows.clone());
            rows.rotate_left(turn * 7);
            tokio::spawn(async move { registry.give_feedback(&rows).await })
        })
        .collect();
    let mut kept = 0;
    for giver in givers {
        let fates = giver.await.unwrap().unwrap();
        kept += fates.iter().filter(|fate| **fate == Fate::Kept).count();
    }
    assert_eq!(kept, 50);
    assert_eq!(sums(&registry).await[0].1.rows, 50);
}

async fn rows_of_an_application_that_is_gone_are_not_kept(place: Place) {
    let registry = with_application(&place).await;
    let strange = Feedback {
        application: ApplicationId::new("gone").unwrap(),
        ..row("s", 0, "1")
    };
    let given = [row("q", 0, "7"), strange];
    let fates = registry.give_feedback(&given).await.unwrap();
    assert_eq!(fates, [Fate::Kept, Fate::Gone]);
    delete_application(&registry).await.unwrap();
    registry.create_application(&application()).await.unwrap();
    assert_eq!(sums(&registry).await, []);
    assert_eq!(registry.feedback(&app(), None, 9).await.unwrap(), []);
}

async fn a_comparison_is_kept_whole_or_not_at_all(place: Place) {
    let registry = with_application(&place).await;
    let half = |query: &str, role: &str, other: &str, score: f64| Feedback {
        kind: Kind::Preference,
        score: Some(score),
        ..row(query, 0, &serde_json::json!({role: other}).to_string())
    };
    let pair = |better: &str, worse: &str| {
        [
            half(better, "over", worse, 1.0),
            half(worse, "under", better, 0.0),
        ]
    };
    let give = async |rows: &[Feedback]| registry.give_feedback(rows).await.unwrap();
    assert_eq!(give(&pair("a", "b")).await, [Fate::Kept; 2]);
    // Other rows of the same transaction stay.
    let [better, worse] = pair("c", "b");
    let fates = give(&[row("x", 0, "7"), better, worse, row("y", 0, "7")]).await;
    assert_eq!(
        fates,
        [Fate::Kept, Fate::Withdrawn, Fate::Differs, Fate::Kept]
    );
    let fates = give(&pair("a", "d")).await;
    assert_eq!(fates, [Fate::Differs, Fate::Withdrawn]);
    assert_eq!(give(&pair("a", "b")).await, [Fate::Repeated; 2]);
    assert_eq!(give(&pair("c", "d")).await, [Fate::Kept; 2]);
    let counted: u64 = sums(&registry).await.iter().map(|(_, it)| it.rows).sum();
    assert_eq!(counted, 6);
    assert_eq!(registry.feedback(&app(), None, 99).await.unwrap().len(), 6);
}

async fn an_export_has_every_row_in_order(place: Place) {
    let registry = with_application(&place).await;
    let given: Vec<Feedback> = (0..25)
        .map(|at| Feedback {
            given_ms: 100 + u64::from(at / 10),
            score: (at % 2 == 0).then_some(f64::from(at) / 3.0),
            subject: (at == 3).then(|| "user-7".to_owned()),
            ..row(&format!("q{}", at % 5), at, "[1,2.5]")
        })
        .collect();
    registry.give_feedback(&given).await.unwrap();
    let mut wanted = given.clone();
    wanted.sort_by_key(Feedback::place);
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let page = registry.feedback(&app(), after.as_ref(), 4).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.place());
        read.extend(page);
    }
    assert_eq!(read, wanted);
}

async fn the_oldest_go_where_there_is_too_much(place: Place) {
    let registry = with_application(&place).await;
    let given: Vec<Feedback> = (0..100)
        .map(|at| Feedback {
            given_ms: 1000 + u64::from(at),
            ..row("q", at, "7")
        })
        .collect();
    registry.give_feedback(&given).await.unwrap();
    let all = held(&registry).await;
    let prune = async |since_ms, max_bytes, most| {
        let bounds = FeedbackBounds {
            since_ms,
            max_bytes,
        };
        registry
            .prune_feedback(&app(), &bounds, most)
            .await
            .unwrap()
    };
    assert_eq!(prune(1000, u64::MAX, 1000).await, 0);
    // A number of rows at a time.
    for removed in [4, 4, 2, 0] {
        assert_eq!(prune(1010, u64::MAX, 4).await, removed);
    }
    assert_eq!(
        held(&registry).await,
        all / 100 * 90,
        "those of before are gone"
    );
    let mut removed = Vec::new();
    while removed.last().is_none_or(|last| *last == 30) {
        removed.push(prune(1010, all / 4, 30).await);
    }
    assert_eq!(removed, [30, 30, 5]);
    assert_eq!(held(&registry).await, all / 4);
    let rows = registry.feedback(&app(), None, 1000).await.unwrap();
    assert_eq!(
        rows.first().map(|row| row.row),
        Some(75),
        "the oldest go first"
    );
    assert_eq!(sums(&registry).await[0].1.rows, 100);
    prune(6 * HOUR_MS, u64::MAX, 1000).await;
    assert_eq!(sums(&registry).await, []);
}

/// Bytes that the rows take.
async fn held(registry: &Registry) -> u64 {
    let bytes = crate::sql::FEEDBACK_BYTES.bind(app().as_str().to_owned());
    let row = registry.read().await.unwrap().one(bytes).await.unwrap();
    let columns = Columns::new(&row, Entity::Feedback, "application").unwrap();
    columns.count("bytes").unwrap()
}

async fn what_is_erased_is_gone_and_stays_counted(place: Place) {
    let registry = with_application(&place).await;
    let about = |query: &str, subject: &str| Feedback {
        subject: Some(subject.to_owned()),
        ..row(query, 0, "1")
    };
    let given = [
        about("a", "u"),
        about("b", "u"),
        about("c", "v"),
        row("d", 0, "1"),
    ];
    registry.give_feedback(&given).await.unwrap();
    let application = app();
    let erase = |whose| registry.erase_feedback(&application, whose);
    assert_eq!(erase(ErasureScope::Subject("u")).await.unwrap(), 2);
    assert_eq!(erase(ErasureScope::Subject("u")).await.unwrap(), 0);
    assert_eq!(erase(ErasureScope::Query("d")).await.unwrap(), 1);
    let left = registry.feedback(&app(), None, 9).await.unwrap();
    assert_eq!(left, [about("c", "v")]);
    assert_eq!(sums(&registry).await[0].1.rows, 4);
}

async fn the_first_key_of_a_number_is_kept(place: Place) {
    let registry = place.open().await;
    let key = |number, secret: &str| FeedbackKey {
        number,
        secret: secret.repeat(32),
        created_ms: 1,
        from_ms: 2,
    };
    for made in [key(1, "aa"), key(1, "bb"), key(2, "cc")] {
        registry.put_feedback_key(&made).await.unwrap();
    }
    let keys = [key(1, "aa"), key(2, "cc")];
    assert_eq!(registry.feedback_keys().await.unwrap(), keys);
    assert!(
        !format!("{keys:?}").contains("aaaa"),
        "a secret is not shown"
    );
    registry.forget_feedback_keys(2).await.unwrap();
    assert_eq!(registry.feedback_keys().await.unwrap(), [key(2, "cc")]);
}

async fn one_takes_an_alarm_at_a_time(place: Place) {
    let registry = with_application(&place).await;
    let alarm = |seen| Alarm {
        kind: AlarmKind::Level,
        seen,
        limit: 0.9,
        rows: 100,
    };
    let (application, model) = (app(), model_id("m"));
    let of = (&application, &model);
    registry.raise_alarm(of, &alarm(0.8), 10).await.unwrap();
    registry.raise_alarm(of, &alarm(0.7), 20).await.unwrap();
    let known = registry.feedback_alarms(&application).await.unwrap();
    assert_eq!((known[0].since_ms, known[0].alarm), (10, alarm(0.7)));
    let of = (&application, &model, AlarmKind::Level);
    assert!(registry.take_alarm(of, 0, 100).await.unwrap());
    assert!(!registry.take_alarm(of, 99, 101).await.unwrap());
    assert!(
        registry.take_alarm(of, 100, 200).await.unwrap(),
        "nobody told"
    );
    registry.told_alarm(of, 250).await.unwrap();
    assert!(!registry.take_alarm(of, 1000, 1000).await.unwrap());
    registry.clear_alarm(of).await.unwrap();
    assert_eq!(registry.feedback_alarms(&application).await.unwrap(), []);
}

async fn what_a_shadow_answers_is_kept_while_feedback_may_come(place: Place) {
    let registry = with_application(&place).await;
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    finish_registrations(&registry).await;
    let answer = |serial: u64, class: u16| ShadowAnswer {
        model: model_id("m"),
        serial,
        answered_ms: 100 + serial,
        rows: 2,
        prediction: Prediction::Classes {
            best: 1,
            classes: vec![class, 300],
        },
    };
    let of_none = ShadowAnswer {
        model: model_id("gone"),
        ..answer(7, 1)
    };
    let texts = ["0000000000000001", "00000000000000ff", "0000000000000007"];
    let model = model_id("m");
    let there = || async {
        let found = registry.shadow_answers(&model, &texts).await.unwrap();
        found.into_keys().collect::<Vec<_>>()
    };
    // If no feedback is accepted, nothing is stored.
    registry.put_shadow_answers(&[answer(1, 5)]).await.unwrap();
    assert_eq!(there().await, [""; 0]);
    let take = |known| {
        Ok::<_, std::convert::Infallible>(Application {
            feedback: Some(Default::default()),
            ..known
        })
    };
    let changed = registry.change_application(&app(), take).await.unwrap();
    assert!(changed.is_ok_and(|it| it.feedback.is_some()));
    let answers = [answer(1, 5), answer(1, 6), answer(255, 4), of_none];
    registry.put_shadow_answers(&answers[..1]).await.unwrap();
    registry.put_shadow_answers(&answers[1..]).await.unwrap();
    let found = registry.shadow_answers(&model, &texts).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found["0000000000000001"], answer(1, 5).prediction);
    registry.prune_shadow_answers(102, 9).await.unwrap();
    assert_eq!(there().await, ["00000000000000ff"]);
    registry.put_shadow_answers(&[answer(7, 1)]).await.unwrap();
    registry.prune_shadow_answers(0, 1).await.unwrap();
    assert_eq!(there().await, ["00000000000000ff"], "the latest stays");
    registry.prune_shadow_answers(0, 0).await.unwrap();
    registry.delete_model(&model, 9).await.unwrap();
    assert_eq!(there().await, [""; 0]);
}

async fn a_model_inherits_nothing_of_one_that_was_deleted(place: Place) {
    let registry = with_application(&place).await;
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    finish_registrations(&registry).await;
    registry.give_feedback(&[row("q", 0, "7")]).await.unwrap();
    let alarm = Alarm {
        kind: AlarmKind::Level,
        seen: 0.8,
        limit: 0.9,
        rows: 100,
    };
    let (application, model) = (app(), model_id("m"));
    let of = (&application, &model);
    registry.raise_alarm(of, &alarm, 10).await.unwrap();
    registry.delete_model(&model, 20).await.unwrap();
    assert_eq!(sums(&registry).await.len(), 1, "it is still told");
    let other = NewModel {
        digest: Digest::from_bytes([7; 32]),
        ..new_model("m")
    };
    let again = create_model(&registry, &other, 30).await.unwrap();
    assert_eq!((again.created, &again.model.id), (true, &model));
    assert_eq!(sums(&registry).await, []);
    assert_eq!(registry.feedback_alarms(&application).await.unwrap(), []);
    let rows = registry.feedback(&app(), None, 9).await.unwrap();
    assert_eq!(rows, [row("q", 0, "7")], "what was given stays");
}

async fn what_a_deleted_model_answered_does_not_count_for_its_successor(place: Place) {
    let registry = with_application(&place).await;
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    finish_registrations(&registry).await;
    registry.give_feedback(&[row("q", 0, "7")]).await.unwrap();
    registry.delete_model(&model_id("m"), 20).await.unwrap();
    let other = NewModel {
        digest: Digest::from_bytes([7; 32]),
        ..new_model("m")
    };
    let again = create_model(&registry, &other, 6 * HOUR_MS).await.unwrap();
    assert!(again.created);
    let own = Feedback {
        answered_ms: 7 * HOUR_MS,
        ..row("r", 0, "7")
    };
    let of_none = Feedback {
        model: model_id("n"),
        ..row("s", 0, "7")
    };
    let given = [row("q", 1, "7"), own, row("q", 0, "7"), of_none];
    let fates = registry.give_feedback(&given).await.unwrap();
    let wanted = [Fate::Replaced, Fate::Kept, Fate::Repeated, Fate::Kept];
    assert_eq!(fates, wanted);
    let sums = registry.feedback_sums(&app()).await.unwrap();
    let of_successor = sums.iter().filter(|it| it.model == model_id("m"));
    let hours: Vec<u64> = of_successor.map(|it| it.hour).collect();
    assert_eq!(hours, [7]);
}
