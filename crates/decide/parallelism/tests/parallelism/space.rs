//! What there is to choose from.

use sextant_parallelism::{Configuration, Tuple, configurations, unit_load};

#[test]
fn the_space_has_the_papers_sizes() {
    for (cores, inter, expected) in [(2, 1, 3), (4, 1, 8), (8, 1, 20), (16, 1, 50), (8, 2, 40)] {
        assert_eq!(
            configurations(cores, inter).len(),
            expected,
            "{cores} {inter}"
        );
    }
    assert_eq!(configurations(8, 4).len(), 80);
    assert!(configurations(0, 1).is_empty());
}

#[test]
fn threads_fit_the_cores() {
    let all = configurations(16, 3);
    assert!(all.iter().all(|it| (1..=16).contains(&it.threads())));
    assert!(all.is_sorted());
    let two = configurations(2, 1);
    let expected = [(1, 1), (1, 2), (2, 1)];
    assert_eq!(
        two,
        expected.map(|(service, intra)| Configuration::local(service, intra))
    );
}

#[test]
fn a_configuration_passes_through_the_tuples_up_to_its_own() {
    let configuration = Configuration {
        service: 3,
        inter: 2,
        intra: 4,
    };
    let running: Vec<Tuple> = configuration.tuples().collect();
    assert_eq!(running.len(), 3);
    assert_eq!(running.last(), Some(&configuration.full()));
    assert!(
        running
            .iter()
            .all(|tuple| (tuple.inter, tuple.intra) == (2, 4))
    );
}

#[test]
fn load_is_divided_among_units() {
    assert!((unit_load(50.0, 4, 20) - 10.0).abs() < 1e-12);
}
