//! The limits of the search, and which method answers when the search reaches them.

use sextant_partition::{
    Effort, Finder, Limits, MilpLimits, Model, Policy, Problem, heuristic, milp,
};
use sextant_types::random::Random;

use super::{STEPS, drawn, model};

#[test]
fn work_ends_when_the_caller_says_so_or_the_steps_are_spent() {
    let mut draws = Random::new(3);
    let models: Vec<Model> = (0..60)
        .map(|_| model(draws.exponential(), 1 + draws.below(9) as u64, 1))
        .collect();
    let problem = Problem::new(&models, Limits::none(6)).unwrap();
    let rough = heuristic(&problem, &mut Effort::new(0, &mut || false)).unwrap();
    let mut asked = 0;
    let mut stop = || {
        asked += 1;
        asked > 1
    };
    let stopped = heuristic(&problem, &mut Effort::new(u64::MAX, &mut stop)).unwrap();
    assert!(asked > 1);
    let mut go_on = || false;
    let mut effort = Effort::new(20 * STEPS, &mut go_on);
    let finished = heuristic(&problem, &mut effort).unwrap();
    assert!(effort.steps < 20 * STEPS);
    assert!(finished.objective < stopped.objective && stopped.objective < rough.objective);
    let again = heuristic(&problem, &mut Effort::new(20 * STEPS, &mut || false)).unwrap();
    assert_eq!(finished, again, "the same every time");
    let drawn = drawn(&models, Limits::none(6), 20_000).unwrap();
    assert!(finished.objective < drawn.objective);
}

#[test]
fn without_nodes_the_heuristic_answers_for_the_solver() {
    let mut draws = Random::new(5);
    let models: Vec<Model> = (0..30)
        .map(|_| model(draws.exponential(), 1 + draws.below(9) as u64, 1))
        .collect();
    let problem = Problem::new(&models, Limits::none(5)).unwrap();
    let ours = heuristic(&problem, &mut Effort::new(STEPS, &mut || false)).unwrap();
    let none = MilpLimits {
        nodes: Some(0),
        ..MilpLimits::default()
    };
    let solved = milp(&problem, &none, &mut Effort::new(STEPS, &mut || false)).unwrap();
    assert_eq!((solved.found, solved.nodes), (Finder::Heuristic, 0));
    assert_eq!(solved.partition, ours);
    assert!(solved.bound <= ours.objective);
    // A solver that begins with the heuristic's answer finds none that is worse.
    let warm = MilpLimits {
        is_warm: true,
        ..none
    };
    let solved = milp(&problem, &warm, &mut Effort::new(STEPS, &mut || false)).unwrap();
    assert!(solved.own.unwrap().objective <= ours.objective + 1e-9);
}

#[test]
fn policies_have_names() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse::<Policy>(), Ok(*policy));
    }
    assert!(
        "lpt"
            .parse::<Policy>()
            .unwrap_err()
            .to_string()
            .contains("`milp`")
    );
}
