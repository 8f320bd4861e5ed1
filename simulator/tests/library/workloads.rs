use sextant_simulator::{
    Arrival, Source,
    workload::{
        ClosedLoop, Gaps, MixedSource, OpenLoop, Piece, Rate, Spread, Spreading, Stream,
        Superposition, equal, open_loop, zipf,
    },
};

fn take(source: &mut dyn Source, count: usize) -> Vec<Arrival> {
    let mut all = Vec::new();
    while all.len() < count && source.peek().is_some() {
        all.push(source.next());
    }
    all
}

fn one(gaps: Gaps, rps: f64) -> Stream {
    Stream {
        model: 0,
        gaps,
        rate: Rate::Constant(rps),
    }
}

/// Mean, s, and squared coefficient of variation of the gaps.
fn statistics(arrivals: &[Arrival]) -> (f64, f64) {
    let gaps: Vec<f64> = arrivals
        .windows(2)
        .map(|pair| (pair[1].at - pair[0].at) as f64 / 1e9)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let squares = gaps
        .iter()
        .map(|gap| (gap - mean) * (gap - mean))
        .sum::<f64>();
    (mean, squares / gaps.len() as f64 / (mean * mean))
}

#[test]
fn gamma_gaps_have_their_mean_and_variation() {
    for shape in [0.05, 0.1, 0.3, 1.0, 2.5, 10.0] {
        let stream = one(Gaps::Gamma { shape }, 100.0);
        let mut source = OpenLoop::new(&[stream], 7).unwrap();
        let (mean, variation) = statistics(&take(&mut source, 60_000));
        assert!(
            (mean * 100.0 - 1.0).abs() < 0.03,
            "shape {shape}: mean {mean}"
        );
        assert!(
            (variation * shape - 1.0).abs() < 0.1,
            "shape {shape}: variation {variation}"
        );
    }
}

#[test]
fn exponential_and_constant_gaps_likewise() {
    let mut source = OpenLoop::new(&[one(Gaps::Exponential, 1_000.0)], 3).unwrap();
    let (mean, variation) = statistics(&take(&mut source, 50_000));
    assert!((mean * 1_000.0 - 1.0).abs() < 0.02 && (variation - 1.0).abs() < 0.05);
    let mut source = OpenLoop::new(&[one(Gaps::Constant, 1_000.0)], 3).unwrap();
    let (mean, variation) = statistics(&take(&mut source, 1_000));
    assert!((mean * 1_000.0 - 1.0).abs() < 1e-6 && variation < 1e-9);
}

#[test]
fn superposed_streams_keep_their_shares_and_gaps() {
    let rates: Vec<(u32, f64)> = zipf(8, 0.9)
        .iter()
        .enumerate()
        .map(|(at, share)| (at as u32, share * 5_000.0))
        .collect();
    let mut source = Superposition::new(&rates, 11).unwrap();
    let arrivals = take(&mut source, 150_000);
    let (mean, variation) = statistics(&arrivals);
    assert!((mean * 5_000.0 - 1.0).abs() < 0.015 && (variation - 1.0).abs() < 0.03);
    for (model, rps) in rates {
        let own: Vec<Arrival> = arrivals
            .iter()
            .copied()
            .filter(|a| a.model == model)
            .collect();
        let share = own.len() as f64 / arrivals.len() as f64;
        assert!(
            (share * 5_000.0 / rps - 1.0).abs() < 0.03,
            "model {model}: {share}"
        );
        let (_, variation) = statistics(&own);
        assert!((variation - 1.0).abs() < 0.08, "model {model}: {variation}");
    }
}

#[test]
fn the_same_seed_gives_the_same_arrivals_and_another_other_ones() {
    let streams: Vec<Stream> = (0..5)
        .map(|model| Stream {
            model,
            ..one(Gaps::Gamma { shape: 0.5 }, 100.0)
        })
        .collect();
    let arrivals = |seed| take(open_loop(&streams, seed).unwrap().as_mut(), 2_000);
    assert_eq!(arrivals(1), arrivals(1));
    assert_ne!(arrivals(1), arrivals(2));
    // An additional model does not change the arrivals of the others.
    let of = |all: &[Arrival], model: u32| -> Vec<u64> {
        all.iter()
            .filter(|a| a.model == model)
            .map(|a| a.at)
            .take(100)
            .collect()
    };
    let fewer = take(open_loop(&streams[..4], 1).unwrap().as_mut(), 2_000);
    assert_eq!(of(&arrivals(1), 2), of(&fewer, 2));
}

#[test]
fn arrivals_never_go_back_in_time() {
    let streams: Vec<Stream> = (0..50)
        .map(|model| Stream {
            model,
            ..one(Gaps::Gamma { shape: 0.05 }, 100.0)
        })
        .collect();
    let arrivals = take(&mut OpenLoop::new(&streams, 5).unwrap(), 50_000);
    assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
}

#[test]
fn pieces_and_ramps_have_as_many_requests_as_their_area() {
    let pieces = vec![
        Piece::flat(10.0, 1_000.0),
        Piece::flat(5.0, 0.0),
        Piece {
            seconds: 20.0,
            from_rps: 0.0,
            to_rps: 2_000.0,
        },
        Piece {
            seconds: 10.0,
            from_rps: 2_000.0,
            to_rps: 500.0,
        },
    ];
    let rate = Rate::Pieces {
        pieces: pieces.into(),
        repeats: false,
    };
    assert_eq!(rate.mean_rps(), (10_000.0 + 20_000.0 + 12_500.0) / 45.0);
    let stream = Stream {
        rate,
        ..one(Gaps::Exponential, 0.0)
    };
    let arrivals = take(&mut OpenLoop::new(&[stream], 9).unwrap(), usize::MAX);
    let within = |from: f64, to: f64| {
        let inside = |a: &&Arrival| (from * 1e9..to * 1e9).contains(&(a.at as f64));
        arrivals.iter().filter(inside).count() as f64
    };
    for (from, to, expected) in [
        (0.0, 10.0, 10_000.0),
        (10.0, 15.0, 0.0),
        (15.0, 25.0, 5_000.0),
        (25.0, 35.0, 15_000.0),
        (35.0, 45.0, 12_500.0),
        (45.0, 1e6, 0.0),
    ] {
        let found = within(from, to);
        let off = (found - expected).abs();
        assert!(off <= 5.0 * f64::sqrt(expected), "{from}..{to}: {found}");
    }
}

#[test]
fn a_rate_that_repeats_goes_on_and_one_of_nothing_ends() {
    let repeating = |rps| Stream {
        rate: Rate::Pieces {
            pieces: vec![Piece::flat(1.0, rps), Piece::flat(1.0, 0.0)].into(),
            repeats: true,
        },
        ..one(Gaps::Constant, 0.0)
    };
    let mut source = OpenLoop::new(&[repeating(10.0)], 1).unwrap();
    let last = take(&mut source, 1_000).last().copied().unwrap();
    assert!((last.at as f64 / 1e9 - 199.0).abs() < 1.5, "{}", last.at);
    let mut source = OpenLoop::new(&[repeating(0.0)], 1).unwrap();
    assert_eq!(source.peek(), None);
}

#[test]
fn rates_and_shapes_that_make_no_sense_are_refused() {
    for stream in [
        one(Gaps::Exponential, f64::NAN),
        one(Gaps::Gamma { shape: 2.0 }, -1.0),
        one(Gaps::Gamma { shape: 0.0 }, 1.0),
        one(Gaps::Gamma { shape: f64::NAN }, 1.0),
    ] {
        assert!(
            open_loop(std::slice::from_ref(&stream), 1).is_err(),
            "{stream:?}"
        );
    }
}

#[test]
fn popularity_sums_to_one_and_falls() {
    for shares in [equal(7), zipf(7, 0.9)] {
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    let shares = zipf(20, 0.9);
    assert!(shares.windows(2).all(|pair| pair[0] > pair[1]));
    assert!((shares[0] / shares[9] - 10f64.powf(0.9)).abs() < 1e-9);
}

#[test]
fn a_client_sends_again_when_it_was_answered() {
    let mut source = ClosedLoop::new(&[4], 2, 500_000);
    let first = take(&mut source, 10);
    assert_eq!(first.len(), 2, "both clients wait");
    source.on_answer(7_000_000, 4, first[1].client);
    let next = take(&mut source, 10);
    assert_eq!(next.len(), 1);
    assert_eq!((next[0].at, next[0].client), (7_500_000, first[1].client));
}

#[test]
fn a_client_that_is_refused_at_once_does_not_stop_time() {
    let mut source = ClosedLoop::new(&[0], 1, 0);
    let mut sent = 0;
    while source.peek().is_some_and(|at| at < 1_000_000_000) {
        let arrival = source.next();
        source.on_answer(arrival.at, 0, arrival.client);
        sent += 1;
    }
    assert_eq!(sent, 1_000);
}

#[test]
fn mixed_sources_come_in_order_and_hear_of_their_own_answers() {
    let open = open_loop(&[one(Gaps::Constant, 1_000.0)], 1).unwrap();
    let closed = ClosedLoop::new(&[1], 1, 0);
    let mut mixed = MixedSource::new(vec![(vec![0], open), (vec![1], Box::new(closed))]);
    let mut last = 0;
    let mut by_model = [0, 0];
    for _ in 0..1_000 {
        mixed.peek();
        let arrival = mixed.next();
        assert!(arrival.at >= last);
        last = arrival.at;
        by_model[arrival.model as usize] += 1;
        mixed.on_answer(arrival.at + 3_000_000, arrival.model, arrival.client);
    }
    assert!(
        (by_model[0] as f64 / by_model[1] as f64 - 3.0).abs() < 0.1,
        "{by_model:?}"
    );
}

#[test]
fn a_load_spreads_over_one_more_model_at_every_step() {
    let spread = Spread {
        rps: 1_000.0,
        begin_s: 5.0,
        step_s: 2.0,
    };
    let models: Vec<u32> = (10..14).collect();
    let mut source = Spreading::new(models, spread, 3).unwrap();
    let arrivals = take(&mut source, 20_000);
    let (mean, variation) = statistics(&arrivals);
    assert!((mean * 1_000.0 - 1.0).abs() < 0.03 && (variation - 1.0).abs() < 0.05);
    assert!(arrivals[0].at >= 5_000_000_000);
    for (from_s, count) in [(5, 1), (7, 2), (9, 3), (11, 4), (13, 4)] {
        let within = from_s * 1_000_000_000..(from_s + 2) * 1_000_000_000;
        let asked: Vec<u32> = arrivals
            .iter()
            .filter(|arrival| within.contains(&arrival.at))
            .map(|arrival| arrival.model)
            .collect();
        for model in 10..14 {
            let own = asked.iter().filter(|asked| **asked == model).count() as f64;
            let expected = if model < 10 + count {
                2_000.0 / f64::from(count)
            } else {
                0.0
            };
            let off = (own - expected).abs();
            assert!(
                off <= 5.0 * expected.sqrt(),
                "{model} from {from_s} s: {own}"
            );
        }
    }
    for (rps, step_s) in [(f64::NAN, 1.0), (-1.0, 1.0), (1.0, 0.0)] {
        let bad = Spread {
            rps,
            step_s,
            ..spread
        };
        assert!(Spreading::new(vec![1], bad, 1).is_err(), "{bad:?}");
    }
}
