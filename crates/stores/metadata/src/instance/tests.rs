use super::InstanceState::{Active, Draining, Failed, Inactive, Interfered, Loading, Overloaded};
use super::*;
use proptest::prelude::*;

fn instance(state: InstanceState) -> Instance {
    Instance {
        key: InstanceKey::new(VariantId::new("v").unwrap(), WorkerId::new("w").unwrap()),
        application: ApplicationId::new("app").unwrap(),
        state,
        version: 3,
        since_ms: 100,
        lease_until_ms: 200,
        load: 0.25,
        reason: None,
    }
}

fn commands() -> Vec<Command> {
    let reason = || "because".to_owned();
    vec![
        Command::Load,
        Command::Loaded,
        Command::LoadFailed { reason: reason() },
        Command::Overload,
        Command::Interfere,
        Command::Recover,
        Command::Drain,
        Command::Unloaded,
        Command::Fail { reason: reason() },
        Command::Expire,
        Command::Report { load: 0.5 },
    ]
}

/// Rows: commands; columns: states in the order of [`InstanceState::ALL`]; `None` is refused.
const TABLE: [(&str, [Option<InstanceState>; 7]); 11] = {
    const NO: Option<InstanceState> = None;
    const LOADING: Option<InstanceState> = Some(Loading);
    const ACTIVE: Option<InstanceState> = Some(Active);
    const OVERLOADED: Option<InstanceState> = Some(Overloaded);
    const INTERFERED: Option<InstanceState> = Some(Interfered);
    const DRAINING: Option<InstanceState> = Some(Draining);
    const FAILED: Option<InstanceState> = Some(Failed);
    const GONE: Option<InstanceState> = Some(Inactive);
    [
        // from:         inactive  loading active      overloaded  interfered  draining  failed
        ("load", [LOADING, NO, NO, NO, NO, NO, LOADING]),
        ("loaded", [NO, ACTIVE, NO, NO, NO, NO, NO]),
        ("load_failed", [NO, FAILED, NO, NO, NO, NO, NO]),
        ("overload", [NO, NO, OVERLOADED, NO, OVERLOADED, NO, NO]),
        ("interfere", [NO, NO, INTERFERED, INTERFERED, NO, NO, NO]),
        ("recover", [NO, NO, NO, ACTIVE, ACTIVE, NO, NO]),
        ("drain", [NO, NO, DRAINING, DRAINING, DRAINING, NO, NO]),
        ("unloaded", [NO, NO, NO, NO, NO, GONE, GONE]),
        ("fail", [NO, NO, FAILED, FAILED, FAILED, FAILED, NO]),
        ("expire", [NO, GONE, GONE, GONE, GONE, GONE, GONE]),
        (
            "report",
            [NO, NO, ACTIVE, OVERLOADED, INTERFERED, DRAINING, NO],
        ),
    ]
};

#[test]
fn every_state_and_command_is_in_the_table() {
    let now_ms = 200;
    for (command, (name, row)) in commands().iter().zip(TABLE) {
        assert_eq!(command.name(), name);
        for (state, expected) in InstanceState::ALL.into_iter().zip(row) {
            let result = apply(&instance(state), command, now_ms);
            match (expected, result) {
                (Some(expected), Ok(next)) => assert_eq!(next.state, expected, "{state} {name}"),
                (
                    None,
                    Err(Rejection::State {
                        state: told,
                        command,
                        ..
                    }),
                ) => {
                    assert_eq!((told, command), (state, name));
                }
                (expected, result) => panic!("{state} {name}: {result:?} instead of {expected:?}"),
            }
        }
    }
}

#[test]
fn expiry_waits_for_the_end_of_the_lease() {
    let active = instance(Active);
    let early = apply(&active, &Command::Expire, 199);
    assert!(
        matches!(early, Err(Rejection::LeaseHeld { .. })),
        "{early:?}"
    );
    let gone = apply(&active, &Command::Expire, 200).unwrap();
    assert_eq!((gone.state, gone.load), (Inactive, 0.0));
    assert!(gone.reason.is_some());
}

#[test]
fn a_report_changes_the_load_and_neither_state_nor_since() {
    let next = apply(&instance(Overloaded), &Command::Report { load: 1.0 }, 900).unwrap();
    assert_eq!(
        (next.state, next.load, next.since_ms),
        (Overloaded, 1.0, 100)
    );
    for load in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
        let refused = apply(&instance(Active), &Command::Report { load }, 900);
        assert!(matches!(refused, Err(Rejection::Load { .. })), "{load}");
    }
}

#[test]
fn a_failure_keeps_its_reason_until_the_next_load() {
    let reason = "no memory".to_owned();
    let failed = apply(
        &instance(Loading),
        &Command::LoadFailed {
            reason: reason.clone(),
        },
        1,
    );
    let failed = failed.unwrap();
    assert_eq!(failed.reason, Some(reason));
    let loading = apply(&failed, &Command::Load, 2).unwrap();
    assert_eq!((loading.reason, loading.since_ms), (None, 2));
}

#[test]
fn names_round_trip() {
    for state in InstanceState::ALL {
        assert_eq!(InstanceState::parse(state.as_str()), Some(state));
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(json, format!("\"{state}\""));
    }
    assert_eq!(InstanceState::parse("asleep"), None);
}

fn any_command() -> impl Strategy<Value = Command> {
    let reports = (-0.5..1.5f64).prop_map(|load| Command::Report { load });
    prop_oneof![4 => prop::sample::select(commands()), 1 => reports]
}

proptest! {
    #[test]
    fn versions_grow_by_one_and_refusals_change_nothing(
        steps in prop::collection::vec((any_command(), 0u64..400), 0..200),
    ) {
        let mut current = Instance { version: 0, ..instance(Inactive) };
        for (command, now_ms) in steps {
            let before = current.clone();
            match apply(&current, &command, now_ms) {
                Ok(next) => {
                    prop_assert_eq!(next.version, before.version + 1);
                    prop_assert_eq!(&next.key, &before.key);
                    prop_assert_eq!(next.lease_until_ms, before.lease_until_ms);
                    prop_assert!((0.0..=1.0).contains(&next.load));
                    let moved = next.state != before.state;
                    prop_assert_eq!(next.since_ms, if moved { now_ms } else { before.since_ms });
                    prop_assert!(moved || command.name() == "report");
                    current = next;
                }
                Err(_) => prop_assert_eq!(&current, &before),
            }
        }
    }

    #[test]
    fn nothing_serves_that_was_not_loaded(
        steps in prop::collection::vec(any_command(), 0..100),
    ) {
        let mut current = instance(Inactive);
        let mut loaded = false;
        for command in steps {
            if let Ok(next) = apply(&current, &command, 1000) {
                loaded = match next.state {
                    Inactive | Loading | Failed => false,
                    _ => loaded || command == Command::Loaded,
                };
                prop_assert!(!next.state.is_serving() || loaded);
                current = next;
            }
        }
    }
}
