use sextant_simulator::{Source, trace::Trace};

#[test]
fn a_trace_is_replayed_in_order_from_its_first_request() {
    let text = "timestamp,model\n10.5,b\n10.0,a\n10.25,b\n";
    let trace = Trace::read(text, "t.csv").unwrap();
    assert_eq!(trace.models, ["b", "a"]);
    assert_eq!(trace.requests, [(0, 1), (250_000_000, 0), (500_000_000, 0)]);
    assert_eq!(trace.seconds(), 0.5);
    let mut replay = trace.replay(2.0);
    let mut times = Vec::new();
    while replay.peek().is_some() {
        times.push(replay.next().at);
    }
    assert_eq!(times, [0, 125_000_000, 250_000_000]);
}

#[test]
fn malformed_traces_name_file_line_and_value() {
    for (text, said) in [
        (
            "time,model\n1,a\n",
            "line 1: `time,model` has no column `timestamp`",
        ),
        (
            "timestamp,model\n1,a\nsoon,a\n",
            "line 3: `soon` as `timestamp`",
        ),
        (
            "timestamp,model\n1,a\n\nNaN,a\n",
            "line 4: `NaN` as `timestamp`",
        ),
        ("timestamp,model\n1,\n", "line 2: `` as `model`"),
        ("timestamp,model\n1\n", "line 2: `1` has 1 values, not 2"),
        ("timestamp,model\n", "followed by no request"),
    ] {
        let message = Trace::read(text, "t.csv").unwrap_err().to_string();
        assert!(message.starts_with("t.csv, "), "{message}");
        assert!(message.contains(said), "{message}");
    }
}
