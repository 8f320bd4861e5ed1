//! Pictures: well-formed whatever the names, the same for the same charts.

use sextant_simulator::{
    experiment::Record,
    plot::{Bars, Body, Chart, Line, charts, svg},
};

fn bars(groups: usize, names: &[&str]) -> Chart {
    Chart {
        title: "Goodput <by> \"policy\" & cell".to_owned(),
        x_label: String::new(),
        y_label: "requests per second".to_owned(),
        body: Body::Bars {
            groups: (0..groups).map(|at| format!("cell-{at}")).collect(),
            series: names
                .iter()
                .enumerate()
                .map(|(series, name)| Bars {
                    name: (*name).to_owned(),
                    values: (0..groups)
                        .map(|at| Some(100.0 * (series + 1) as f64 + at as f64))
                        .collect(),
                })
                .collect(),
            bounds: (0..groups).map(|at| Some(900.0 + at as f64)).collect(),
            bound_name: "fluid bound".to_owned(),
        },
    }
}

fn lines(points: &[(f64, f64)], log_x: bool) -> Chart {
    Chart {
        title: "Sweep".to_owned(),
        x_label: "devices".to_owned(),
        y_label: "goodput".to_owned(),
        body: Body::Lines {
            series: vec![
                Line {
                    name: "sextant".to_owned(),
                    points: points.to_vec(),
                    reference: false,
                },
                Line {
                    name: "bound".to_owned(),
                    points: points.iter().map(|(x, y)| (*x, y * 1.1)).collect(),
                    reference: true,
                },
            ],
            log_x,
        },
    }
}

/// The names of all elements; panics where tags don't nest or an entity is unknown.
fn elements(document: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = document;
    while let Some(at) = rest.find('<') {
        let (text, tail) = rest.split_at(at);
        check_text(text);
        let end = tail.find('>').expect("a tag ends");
        let tag = &tail[1..end];
        assert!(!tag.contains('<'), "`<` within `{tag}`");
        check_text(tag);
        let name = tag.trim_start_matches('/');
        let name = name.split([' ', '/']).next().unwrap_or_default().to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "tags nest");
        } else {
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes pair in `{tag}`");
            all.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        rest = &tail[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
    all
}

fn check_text(text: &str) {
    for part in text.split('&').skip(1) {
        let entity = part.split(';').next().unwrap_or_default();
        assert!(
            ["amp", "lt", "gt", "quot", "apos"].contains(&entity),
            "`&{entity}`"
        );
    }
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(!text.contains("NaN") && !text.contains("inf"), "`{text}`");
}

#[test]
fn names_are_text_and_not_markup() {
    let picture = svg(&[bars(3, &["<script>", "a & b", "bell\u{7}"])]);
    let elements = elements(&picture);
    assert!(!elements.iter().any(|name| name == "script"));
    assert!(picture.contains("&lt;script&gt;") && picture.contains("a &amp; b"));
}

#[test]
fn every_value_has_a_bar_and_every_group_a_bound() {
    let picture = svg(&[bars(6, &["sextant", "eager"])]);
    elements(&picture);
    assert_eq!(picture.matches("<title>sextant, ").count(), 6);
    assert_eq!(picture.matches("<title>fluid bound, ").count(), 6);
}

#[test]
fn many_groups_go_into_several_rows_and_none_is_lost() {
    let picture = svg(&[bars(176, &["a", "b", "c"])]);
    elements(&picture);
    assert_eq!(picture.matches("<title>b, ").count(), 176);
    assert!(picture.contains("(continued)"));
}

#[test]
fn odd_values_leave_a_picture() {
    let points = [(1.0, f64::NAN), (2.0, f64::INFINITY), (3.0, 5.0)];
    for log_x in [false, true] {
        let picture = svg(&[lines(&points, log_x), lines(&[], log_x)]);
        elements(&picture);
        assert_eq!(picture.matches("<circle").count(), 1);
    }
    elements(&svg(&[bars(0, &[]), bars(2, &[])]));
    elements(&svg(&[]));
}

#[test]
fn the_same_charts_give_the_same_bytes() {
    let charts = [bars(4, &["x"]), lines(&[(1.0, 2.0), (10.0, 4.0)], true)];
    assert_eq!(svg(&charts), svg(&charts));
}

fn figure(cell: &str, policy: Option<&str>, metric: &str, value: f64) -> Record {
    Record {
        experiment: "e".to_owned(),
        cell: Some(cell.to_owned()),
        policy: policy.map(str::to_owned),
        metric: metric.to_owned(),
        value,
        unit: "rps".to_owned(),
        seed: None,
    }
}

#[test]
fn cells_that_differ_in_a_number_become_curves_over_it() {
    let mut records = Vec::new();
    for (at, target) in [50.0, 20.0, 100.0, 25.0].into_iter().enumerate() {
        for load in ["poisson", "gamma0.05"] {
            let cell = format!("zipf-{load}-{target}ms");
            records.push(figure(&cell, None, "fluid_bound_rps", 100.0));
            records.push(figure(&cell, Some("sextant"), "goodput_rps", at as f64));
            records.push(figure(&cell, Some("eager"), "goodput_rps", 2.0));
        }
    }
    let charts = charts("fig", &records);
    assert_eq!(charts.len(), 2);
    assert_eq!(charts[1].title, "fig (simulated): zipf-gamma0.05");
    assert_eq!(charts[1].x_label, "target, ms");
    let Body::Lines { series, .. } = &charts[0].body else {
        panic!("curves");
    };
    let names: Vec<&str> = series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["sextant", "eager", "fluid bound"]);
    assert_eq!(
        series[0].points,
        [(20.0, 1.0), (25.0, 3.0), (50.0, 0.0), (100.0, 2.0)]
    );
    elements(&svg(&charts));
}

#[test]
fn other_cells_become_bars_and_very_many_a_curve_of_ranks() {
    let cells = |count: usize| -> Vec<Record> {
        (0..count)
            .flat_map(|at| {
                let cell = format!("cell-{}", "x".repeat(at + 1));
                [
                    figure(&cell, None, "fluid_bound_rps", 10.0),
                    figure(&cell, Some("sextant"), "goodput_rps", 9.0),
                ]
            })
            .collect()
    };
    assert!(matches!(charts("t", &cells(6))[0].body, Body::Bars { .. }));
    let many = charts("t", &cells(300));
    let Body::Lines { series, .. } = &many[0].body else {
        panic!("curves");
    };
    assert_eq!(series[0].points.len(), 300);
    assert_eq!(series[0].points[299], (1.0, 0.9));
}

#[test]
fn bounds_far_apart_are_drawn_as_one() {
    let records = [("small", 10.0), ("large", 1000.0)].map(|(cell, bound)| {
        [
            figure(cell, None, "fluid_bound_rps", bound),
            figure(cell, Some("sextant"), "goodput_rps", bound / 2.0),
        ]
    });
    let charts = charts("zoo", records.as_flattened());
    let Body::Bars { series, bounds, .. } = &charts[0].body else {
        panic!("bars");
    };
    assert_eq!(series[0].values, [Some(0.5), Some(0.5)]);
    assert_eq!(bounds[..], [Some(1.0), Some(1.0)]);
}
