//! Versions of a name: which exist, which one is current, and who may change that.

use sextant_types::{Code, Stage};

use super::*;
use crate::{Act, Audit, AuditFilter, Model, Registrant, VersionChange, sql::Sql};

on_both! {
    other_content_is_the_next_version,
    two_applications_have_models_of_one_name,
    one_version_is_current_whoever_switches,
    one_version_is_current_whichever_registrations_end_at_once,
    what_was_judged_of_a_trial_that_has_ended_is_not_done,
    a_change_and_its_entry_are_made_together,
    a_rollback_goes_back_once,
    a_registration_may_ask_to_become_current,
    a_row_of_the_version_before_is_version_1,
    a_variant_is_read_with_the_release_and_the_registrant_of_its_model,
}

/// Makes the audit record accept no entries.
static HIDE_AUDIT: Sql = in_both("alter table audit rename to hidden");
static SHOW_AUDIT: Sql = in_both("alter table hidden rename to audit");

const fn in_both(statement: &'static str) -> Sql {
    Sql {
        sqlite: statement,
        #[cfg(feature = "postgres")]
        postgres: statement,
    }
}

fn other(byte: u8) -> NewModel {
    NewModel {
        digest: Digest::from_bytes([byte; 32]),
        ..new_model("m")
    }
}

/// A registry in which two versions of `m` are ready.
async fn with_two(place: &Place) -> (Registry, Model, Model) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    let first = create_model(&registry, &new_model("m"), 1).await.unwrap();
    finish_registrations(&registry).await;
    let second = create_model(&registry, &other(7), 2).await.unwrap();
    finish_registrations(&registry).await;
    (registry, first.model, second.model)
}

fn change(model: &Model, act: Act, seen: Option<u32>) -> VersionChange {
    VersionChange {
        model: model.id.clone(),
        act,
        rules: None,
        seen,
        since_ms: None,
    }
}

async fn stages(registry: &Registry) -> Vec<&'static str> {
    let line = registry.versions(&model_id("m")).await.unwrap();
    line.iter().map(|it| it.release.stage.as_str()).collect()
}

async fn other_content_is_the_next_version(place: Place) {
    let (registry, first, second) = with_two(&place).await;
    assert_eq!((first.id.as_str(), first.release.version), ("m", 1));
    assert_eq!((second.id.as_str(), second.release.version), ("m.v2", 2));
    assert_eq!(stages(&registry).await, ["current", "candidate"]);
    // The job and its contents name the model by its id.
    let job = create_model(&registry, &other(7), 3).await.unwrap().job;
    assert_eq!(job.model, Some(second.id.clone()));
    assert_eq!(job.spec["model"], "m.v2");
    // Either content again is the existing version.
    for (new, id) in [(new_model("m"), &first.id), (other(7), &second.id)] {
        let again = create_model(&registry, &new, 4).await.unwrap();
        assert_eq!((again.created, &again.model.id), (false, id));
    }
    for (reference, id) in [
        ("m", "m"),
        ("m@2", "m.v2"),
        ("digits:m@1", "m"),
        ("m.v2", "m.v2"),
    ] {
        let found = registry.resolve(&reference.parse().unwrap()).await;
        assert_eq!(found.unwrap().as_str(), id, "{reference}");
    }
    let none = registry.resolve(&"m@3".parse().unwrap()).await;
    assert_eq!(none.unwrap_err().code(), Code::ModelNotFound);
    // Ready variants state their model's release.
    registry.put_variants(&[variant("m.v2", 8)]).await.unwrap();
    let ready = registry.ready_variants().await.unwrap();
    assert_eq!(
        (ready[0].release.version, ready[0].release.stage),
        (2, Stage::Candidate)
    );
}

async fn a_variant_is_read_with_the_release_and_the_registrant_of_its_model(place: Place) {
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    create_model(&registry, &new_model("m"), 1).await.unwrap();
    let foreign = NewModel {
        registered_by: Some(Registrant {
            name: "key".to_owned(),
            is_administrator: false,
        }),
        ..other(7)
    };
    finish_registrations(&registry).await;
    create_model(&registry, &foreign, 2).await.unwrap();
    finish_registrations(&registry).await;
    let put = variant("m.v2", 8);
    registry
        .put_variants(std::slice::from_ref(&put))
        .await
        .unwrap();
    let wanted = Variant {
        foreign: true,
        release: registry.model(&put.model).await.unwrap().release,
        ..put.clone()
    };
    let seen = (wanted.release.version, wanted.release.stage);
    assert_eq!(seen, (2, Stage::Candidate));
    assert_eq!(registry.variant(&put.id).await.unwrap(), wanted);
    let of_model = registry.variants_of(&put.model).await.unwrap();
    assert_eq!(of_model, std::slice::from_ref(&wanted));
    assert_eq!(registry.ready_variants().await.unwrap(), [wanted]);
}

async fn two_applications_have_models_of_one_name(place: Place) {
    let (registry, ..) = with_two(&place).await;
    let id = ApplicationId::new("others").unwrap();
    let others = Application {
        id: id.clone(),
        ..application()
    };
    registry.create_application(&others).await.unwrap();
    let theirs = NewModel {
        application: id,
        ..new_model("m")
    };
    let theirs = create_model(&registry, &theirs, 5).await.unwrap();
    assert_eq!(
        (theirs.created, theirs.model.id.as_str()),
        (true, "m.others")
    );
    for (reference, id) in [
        ("m", "m"),
        ("others:m", "m.others"),
        ("others:m@1", "m.others"),
    ] {
        let found = registry.resolve(&reference.parse().unwrap()).await;
        assert_eq!(found.unwrap().as_str(), id, "{reference}");
    }
}

async fn one_version_is_current_whoever_switches(place: Place) {
    let (registry, first, second) = with_two(&place).await;
    // Two of the three have connections of their own, as other processes have.
    let handles = [registry.clone(), place.open().await, place.open().await];
    let promote = change(&second, Act::To(Stage::Current), Some(1));
    let retire = change(&first, Act::To(Stage::Retired), Some(1));
    let asked = (0..6).map(|index| {
        let handle = handles[index % 3].clone();
        let change = if index % 2 == 0 {
            promote.clone()
        } else {
            retire.clone()
        };
        tokio::spawn(async move { handle.change_version(&change, 10).await })
    });
    let asked: Vec<_> = asked.collect();
    let mut made = 0;
    for asked in asked {
        match asked.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert_eq!(error.code(), Code::VersionConflict, "{error}"),
        }
    }
    assert_eq!(made, 1, "the others have not seen it");
    assert_eq!(stages(&registry).await, ["retired", "current"]);
    let line = registry.versions(&first.id).await.unwrap();
    assert_eq!(line[0].release.since_ms, line[1].release.since_ms);
    assert_eq!(line[1].replaced, Some(1));
    let kept = registry.delete_model(&second.id, 20).await.unwrap_err();
    assert_eq!(kept.code(), Code::InUse, "a name would stand for none");
    registry.delete_model(&first.id, 20).await.unwrap();
    registry.delete_model(&second.id, 20).await.unwrap();
}

async fn one_version_is_current_whichever_registrations_end_at_once(place: Place) {
    const VERSIONS: u8 = 6;
    let registry = place.open().await;
    registry.create_application(&application()).await.unwrap();
    for byte in 1..=VERSIONS {
        create_model(&registry, &other(byte), 1).await.unwrap();
    }
    let handles = [registry.clone(), place.open().await];
    let mut ending = Vec::new();
    while let Some(job) = registry
        .claim(JobKind::Register, "me", 100, 2)
        .await
        .unwrap()
    {
        let handle = handles[ending.len() % 2].clone();
        ending.push(async move {
            let nothing = serde_json::Value::Null;
            handle.finish(&job.id, "me", &nothing, 3).await
        });
    }
    assert_eq!(ending.len(), usize::from(VERSIONS));
    let ending: Vec<_> = ending.into_iter().map(tokio::spawn).collect();
    for ended in ending {
        ended.await.unwrap().unwrap();
    }
    let stages = stages(&registry).await;
    let current = stages.iter().filter(|stage| **stage == "current").count();
    assert_eq!(current, 1, "{stages:?}");
}

async fn what_was_judged_of_a_trial_that_has_ended_is_not_done(place: Place) {
    let (registry, _, second) = with_two(&place).await;
    let canary = change(&second, Act::To(Stage::Canary { percent: 5.0 }), None);
    let line = registry.change_version(&canary, 10).await.unwrap();
    let judged = VersionChange {
        since_ms: Some(line[1].release.since_ms),
        ..change(&second, Act::To(Stage::Current), Some(1))
    };
    let ended = change(&second, Act::To(Stage::Candidate), None);
    registry.change_version(&ended, 20).await.unwrap();
    let refused = registry.change_version(&judged, 30).await.unwrap_err();
    assert_eq!(refused.code(), Code::VersionConflict, "{refused}");
    assert_eq!(stages(&registry).await, ["current", "candidate"]);
}

async fn a_change_and_its_entry_are_made_together(place: Place) {
    let (registry, _, second) = with_two(&place).await;
    let entry = Audit::new(10, "judge", "version.promote", "m@2", "why".into());
    let any = |_: &[Model]| Ok::<_, &str>(());
    let recorded = async || registry.audit(&AuditFilter::default()).await.unwrap();
    // A refused change is not in the audit record.
    let unseen = change(&second, Act::To(Stage::Current), Some(7));
    let refused = registry
        .change_version_on_record(&unseen, 10, (any, |_: &[Model]| entry.clone()))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::VersionConflict);
    let promote = change(&second, Act::To(Stage::Current), Some(1));
    let check = |line: &[Model]| match line[0].release.stage {
        Stage::Current => Err("seen"),
        _ => Ok(()),
    };
    let refused = registry
        .change_version_on_record(&promote, 10, (check, |_: &[Model]| entry.clone()))
        .await;
    assert_eq!(refused.unwrap().unwrap_err(), "seen");
    assert_eq!(recorded().await, []);
    // A change that cannot be recorded is not made.
    run(&registry, &HIDE_AUDIT).await;
    let failed = registry
        .change_version_on_record(&promote, 10, (any, |_: &[Model]| entry.clone()))
        .await;
    failed.unwrap_err();
    run(&registry, &SHOW_AUDIT).await;
    assert_eq!(stages(&registry).await, ["current", "candidate"]);
    let line = registry
        .change_version_on_record(&promote, 10, (any, |_: &[Model]| entry.clone()))
        .await;
    assert_eq!(line.unwrap().unwrap()[1].release.since_ms, 10);
    assert_eq!(stages(&registry).await, ["retired", "current"]);
    assert_eq!(recorded().await, [entry]);
}

async fn run(registry: &Registry, statement: &'static Sql) {
    let mut tx = registry.begin().await.unwrap();
    tx.run(statement.into()).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_rollback_goes_back_once(place: Place) {
    let (registry, first, second) = with_two(&place).await;
    let back = change(&second, Act::RollBack, None);
    let refused = registry.change_version(&back, 9).await.unwrap_err();
    assert_eq!(refused.code(), Code::VersionConflict);
    let promote = change(&second, Act::To(Stage::Current), None);
    registry.change_version(&promote, 10).await.unwrap();
    // A repetition is no error and changes nothing.
    let again = registry.change_version(&promote, 11).await.unwrap();
    assert_eq!(again[1].release.since_ms, 10);
    registry.change_version(&back, 10).await.unwrap();
    assert_eq!(stages(&registry).await, ["current", "retired"]);
    let line = registry.versions(&first.id).await.unwrap();
    assert!(line[0].release.since_ms > 10, "later than ever before");
    for model in [&first, &second] {
        let back = change(model, Act::RollBack, None);
        let refused = registry.change_version(&back, 12).await.unwrap_err();
        assert_eq!(refused.code(), Code::VersionConflict);
    }
    // A canary in addition to another one is refused.
    let third = create_model(&registry, &other(8), 13).await.unwrap().model;
    let early = change(&third, Act::To(Stage::Canary { percent: 5.0 }), None);
    let refused = registry.change_version(&early, 14).await.unwrap_err();
    assert!(
        refused.to_string().contains("wait for its job"),
        "{refused}"
    );
    finish_registrations(&registry).await;
    registry.change_version(&early, 15).await.unwrap();
    let two = change(&second, Act::To(Stage::Canary { percent: 5.0 }), None);
    let refused = registry.change_version(&two, 16).await.unwrap_err();
    assert!(
        refused.to_string().contains("is a canary already"),
        "{refused}"
    );
    assert_eq!(
        registry.tried().await.unwrap(),
        [],
        "it is judged by nobody"
    );
}

async fn a_registration_may_ask_to_become_current(place: Place) {
    let (registry, ..) = with_two(&place).await;
    let third = NewModel {
        current: true,
        version: Some(7),
        ..other(9)
    };
    let third = create_model(&registry, &third, 5).await.unwrap().model;
    assert_eq!((third.id.as_str(), third.release.version), ("m.v7", 7));
    assert_eq!(
        registry.resolve(&model_id("m")).await.unwrap().as_str(),
        "m"
    );
    finish_registrations(&registry).await;
    assert_eq!(stages(&registry).await, ["retired", "candidate", "current"]);
    assert_eq!(
        registry.resolve(&model_id("m")).await.unwrap().as_str(),
        "m.v7"
    );
    let back = change(&third, Act::RollBack, Some(7));
    registry.change_version(&back, 9).await.unwrap();
    assert_eq!(stages(&registry).await, ["current", "candidate", "retired"]);
}

/// A row that a process of the previous version writes has none of the columns.
async fn a_row_of_the_version_before_is_version_1(place: Place) {
    let (registry, first, _) = with_two(&place).await;
    let mut tx = registry.begin().await.unwrap();
    let old = crate::sql::SET_STAGE
        .bind(first.id.as_str())
        .bind(None::<&str>)
        .bind(None::<f64>)
        .bind(None::<i64>)
        .bind(None::<i64>)
        .bind(None::<crate::database::Json>);
    tx.run(old).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(stages(&registry).await, ["current", "candidate"]);
    let again = create_model(&registry, &new_model("m"), 4).await.unwrap();
    assert_eq!((again.created, again.model.id.as_str()), (false, "m"));
}
