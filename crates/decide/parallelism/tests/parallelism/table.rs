//! The table of the best configurations, and the fewest machines.

use proptest::prelude::*;
use sextant_parallelism::{
    Configuration, Model, Profile, Summary, Table, best, configurations, unit_load,
};

fn summary(per_s: f64) -> Summary {
    Summary {
        samples: 10,
        mean_s: 1.0 / per_s,
        scv: 0.0,
    }
}

/// One request on two threads at 15 per second against two on one thread each.
pub fn crossing() -> Profile {
    let mut profile = Profile::default();
    let wide = Configuration::local(1, 2);
    profile.insert(wide.full(), summary(15.0));
    for (tuple, per_s) in Configuration::local(2, 1).tuples().zip([10.0, 9.5]) {
        profile.insert(tuple, summary(per_s));
    }
    profile
}

#[test]
fn the_choice_changes_at_the_crossover() {
    let table = Table::build(&crossing(), 1, Model::Serf).unwrap().unwrap();
    let (wide, many) = (Configuration::local(1, 2), Configuration::local(2, 1));
    assert_eq!(table.at(0.0), wide);
    assert_eq!(table.at(9.256), wide);
    assert_eq!(table.at(9.258), many);
    assert_eq!(table.steps().len(), 2);
    let crossover = table.steps()[1].0;
    assert!((crossover - 9.257).abs() < 1e-3, "{crossover}");
    let mean = |configuration, load| {
        let rates = crossing().rates(configuration).unwrap();
        Model::Serf.mean_s(&rates, load)
    };
    let (a, b) = (
        mean(wide, crossover).unwrap(),
        mean(many, crossover).unwrap(),
    );
    assert!((a - b).abs() < 1e-9, "{a} {b}");
    for (load, expected) in [(4.0, [0.0788, 0.1046]), (13.0, [0.2833, 0.1513])] {
        let found = [mean(wide, load).unwrap(), mean(many, load).unwrap()];
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 1e-4),
            "{found:?}"
        );
    }
    assert_eq!(mean(wide, 16.0), None);
}

#[test]
fn overload_takes_what_completes_most() {
    let table = Table::build(&crossing(), 1, Model::Serf).unwrap().unwrap();
    assert!((table.capacity_per_s() - 19.0).abs() < 1e-9);
    assert_eq!(table.at(1000.0), Configuration::local(2, 1));
    let choice = best(&crossing(), 1000.0, 1, Model::Serf).unwrap().unwrap();
    assert_eq!(
        (choice.configuration, choice.mean_s),
        (Configuration::local(2, 1), None)
    );
}

#[test]
fn a_profile_with_holes_offers_what_is_whole() {
    let mut profile = crossing();
    profile.insert(Configuration::local(3, 1).full(), summary(9.0));
    profile.insert(Configuration::local(5, 1).full(), summary(9.0));
    assert!(
        !profile
            .configurations()
            .contains(&Configuration::local(5, 1))
    );
    assert!(
        profile
            .configurations()
            .contains(&Configuration::local(3, 1))
    );
    assert!(profile.rates(Configuration::local(5, 1)).is_err());
    assert_eq!(Table::build(&Profile::default(), 1, Model::Serf), Ok(None));
    profile.insert(
        Configuration::local(1, 4).full(),
        Summary {
            mean_s: 0.0,
            ..summary(1.0)
        },
    );
    let error = Table::build(&profile, 1, Model::Serf).unwrap_err();
    assert!(error.to_string().contains("`4` threads"), "{error}");
}

/// A profile of a machine with `cores` cores in 1 or 2 parts, with any rates.
fn any_profile(cores: u16) -> impl Strategy<Value = Profile> {
    let all = configurations(cores, 2);
    proptest::collection::vec(1.0..20.0_f64, all.len()).prop_map(move |per_s| {
        let mut profile = Profile::default();
        for (configuration, per_s) in all.iter().zip(per_s) {
            profile.insert(configuration.full(), summary(per_s));
        }
        profile
    })
}

proptest! {
    #[test]
    fn what_is_unstable_is_not_chosen_beside_what_is_stable(
        profile in any_profile(4), load in 0.1..200.0_f64, machines in 1..4_u32,
    ) {
        let choice = best(&profile, load, machines, Model::Serf).unwrap().unwrap();
        let predicted = profile.configurations().into_iter()
            .filter(|c| u32::from(c.inter) <= machines)
            .filter_map(|c| {
                let unit = unit_load(load, c.inter, machines);
                Model::Serf.mean_s(&profile.rates(c).unwrap(), unit)
            });
        let least = predicted.reduce(f64::min);
        prop_assert_eq!(choice.mean_s, least);
    }

    #[test]
    fn the_table_chooses_as_well_as_a_search(
        profile in any_profile(4), share in 0.0..0.99_f64,
    ) {
        let table = Table::build(&profile, 1, Model::Serf).unwrap().unwrap();
        let load = share * table.capacity_per_s();
        let choice = best(&profile, load, 1, Model::Serf).unwrap().unwrap();
        let looked_up = Model::Serf.mean_s(&profile.rates(table.at(load)).unwrap(), load);
        // A narrow range in which a third one is best may be missed; what is then taken is as good.
        let (a, b) = (looked_up.unwrap_or(f64::INFINITY), choice.mean_s.unwrap());
        prop_assert!(a <= 1.02 * b, "{a} {b}");
    }

}
