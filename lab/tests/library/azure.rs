//! Arrivals that follow a published trace.

use sextant_lab::azure::{self, Mapping, Synthetic};

const DAY: &str = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\n\
    o,a,quiet,http,0,1,0\n\
    o,a,busy,http,60,120,0\n\
    o,a,middle,timer,6,6,6\n";

#[test]
fn functions_are_sorted_and_dealt_out() {
    let counts = azure::read(DAY, "day.csv").unwrap();
    assert_eq!(counts, [vec![60, 120, 0], vec![6, 6, 6], vec![0, 1, 0]]);
    let means = |mapping| -> Vec<f64> {
        azure::rates(&counts, 2, mapping)
            .iter()
            .map(|rate| (rate.mean_rps() * 180.0).round())
            .collect()
    };
    assert_eq!(means(Mapping::Stripe), [181.0, 18.0]);
    assert_eq!(means(Mapping::Block), [198.0, 1.0]);
}

#[test]
fn malformed_days_name_file_line_and_value() {
    let bad = DAY.replace("6,6,6", "6,x,6");
    let message = azure::read(&bad, "day.csv").unwrap_err().to_string();
    assert_eq!(message, "day.csv, line 4: `x` as `2` is not a count");
    let message = azure::read("a,b,c\n1,2,3\n", "day.csv").unwrap_err();
    assert!(message.to_string().contains("line 1"), "{message}");
}

#[test]
fn invented_functions_are_the_same_for_the_same_seed_and_skewed() {
    let synthetic = Synthetic::default();
    let counts = synthetic.counts(2_000, 1);
    assert_eq!(counts, synthetic.counts(2_000, 1));
    assert_ne!(counts, synthetic.counts(2_000, 2));
    let totals: Vec<u64> = counts
        .iter()
        .map(|minutes| minutes.iter().map(|count| u64::from(*count)).sum())
        .collect();
    assert!(totals.windows(2).all(|pair| pair[0] >= pair[1]));
    let all: u64 = totals.iter().sum();
    let first: u64 = totals[..200].iter().sum();
    assert!(first as f64 > 0.6 * all as f64, "a tenth has most of it");
    let silent = counts.iter().flatten().filter(|count| **count == 0).count();
    let share = silent as f64 / (2_000.0 * 60.0);
    assert!((0.1..0.9).contains(&share), "{share}");
}

#[test]
fn aligned_timers_make_spikes_of_the_sum() {
    let sums = |aligned| -> Vec<f64> {
        let synthetic = Synthetic {
            aligned,
            ..Synthetic::default()
        };
        let counts = synthetic.counts(5_000, 1);
        (0..60)
            .map(|minute| counts.iter().map(|of| f64::from(of[minute])).sum())
            .collect()
    };
    let (spread, aligned) = (sums(false), sums(true));
    let mean = aligned.iter().sum::<f64>() / 60.0;
    assert!((spread.iter().sum::<f64>() / 60.0 / mean - 1.0).abs() < 0.05);
    let between = aligned[1].max(aligned[7]).max(aligned[22]);
    assert!(aligned[15] > 1.02 * between, "{aligned:?}");
    assert!(aligned[0] > 1.1 * between, "{aligned:?}");
    assert!(spread[0] < 1.1 * spread[1], "{spread:?}");
}
