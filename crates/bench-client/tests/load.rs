//! Loads against real servers on free ports: what is sent when, and how each end is counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use sextant_bench_client::{
    Arrivals, Endpoint, Error, Message, Pace, Plan, Progress, Stream, Summary, Tally, run,
};
use tokio::sync::Mutex;

/// What a server has seen, and how it answers.
#[derive(Default)]
struct ServerLog {
    requests: AtomicUsize,
    now: AtomicUsize,
    most_at_once: AtomicUsize,
    /// Every third is refused.
    refuses: bool,
    /// The connection is closed after each answer.
    closes: bool,
    /// Before this one is answered, and for how long, no request is.
    stall: Option<(usize, Duration)>,
    turn: Mutex<()>,
    /// Nothing is ever answered.
    is_silent: bool,
}

async fn answer(State(seen): State<Arc<ServerLog>>) -> Response {
    let number = seen.requests.fetch_add(1, Ordering::Relaxed);
    let now = seen.now.fetch_add(1, Ordering::Relaxed) + 1;
    seen.most_at_once.fetch_max(now, Ordering::Relaxed);
    if seen.is_silent {
        std::future::pending::<()>().await;
    }
    let turn = seen.turn.lock().await;
    if let Some((at, length)) = seen.stall
        && at == number
    {
        tokio::time::sleep(length).await;
    }
    drop(turn);
    seen.now.fetch_sub(1, Ordering::Relaxed);
    if seen.refuses && number % 3 == 0 {
        let problem = r#"{"code":"overloaded","detail":"busy"}"#;
        return (StatusCode::TOO_MANY_REQUESTS, problem).into_response();
    }
    let body = r#"{"variant":"m-1","outputs":[],"targets_met":true}"#;
    match seen.closes {
        true => ([(header::CONNECTION, "close")], body).into_response(),
        false => body.into_response(),
    }
}

/// Runs a load against a server of its own, and returns what it counted.
fn load(seen: ServerLog, change: impl FnOnce(&mut Plan)) -> (Arc<ServerLog>, Tally, Arc<Progress>) {
    let seen = Arc::new(seen);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("it can be changed");
    let address = listener.local_addr().expect("it is bound");
    let router = Router::new().route("/v1/queries", post(answer));
    let router = router.with_state(Arc::clone(&seen));
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        axum::serve(listener, router).await
    });
    let mut plan = plan();
    change(&mut plan);
    let progress = Arc::new(Progress::default());
    let server = format!("http://{address}");
    let endpoint = Endpoint::new(&server, None, HeaderMap::new()).expect("an address");
    let (mut tallies, _) = run(&endpoint, &plan, &progress).expect("it runs");
    (seen, tallies.remove(0), progress)
}

fn plan() -> Plan {
    Plan {
        streams: vec![Stream {
            name: "digits".to_owned(),
            path: "/v1/queries".to_owned(),
            messages: vec![Message::json("{}")],
            pace: Pace::Closed { concurrency: 3 },
            reads_answers: true,
            latency_ms: Some(60_000.0),
        }],
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(300),
        threads: 2,
        most_connections: 64,
        timeout: Duration::from_secs(60),
        seed: 1,
    }
}

/// Queries that are due so many milliseconds after the beginning.
fn due(ms: impl Iterator<Item = u64>) -> Pace {
    Pace::Open(Arrivals::Recorded(ms.map(Duration::from_millis).collect()))
}

#[test]
fn what_no_clock_can_measure_is_refused() {
    // Nobody is asked before.
    let endpoint = Endpoint::new("http://127.0.0.1:9", None, HeaderMap::new());
    let endpoint = endpoint.expect("an address");
    let refused = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan();
        change(&mut plan);
        let ran = run(&endpoint, &plan, &Arc::new(Progress::default()));
        matches!(ran, Err(Error::Plan(_)))
    };
    for ms in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let change = |plan: &mut Plan| plan.streams[0].latency_ms = Some(ms);
        assert!(refused(&change), "{ms}");
    }
    assert!(refused(&|plan: &mut Plan| plan.duration = Duration::MAX));
    assert!(refused(&|plan: &mut Plan| plan.warm_up = Duration::MAX));
    assert!(refused(&|plan: &mut Plan| plan.timeout = Duration::MAX));
}

#[test]
fn a_closed_loop_has_one_query_under_way_on_each_connection() {
    let (seen, tally, progress) = load(ServerLog::default(), |_| {});
    assert!(seen.most_at_once.load(Ordering::Relaxed) <= 3);
    assert_eq!(seen.requests.load(Ordering::Relaxed) as u64, tally.sent);
    assert_eq!((tally.answered(), tally.broken.len()), (tally.sent, 0));
    assert_eq!(progress.answered(), tally.sent);
    assert_eq!((tally.in_time, tally.targets_met), (tally.sent, tally.sent));
    assert_eq!(tally.variants["m-1"], tally.sent);
    assert!(tally.sent >= 3);
}

#[test]
fn an_open_loop_sends_what_is_due_and_counts_none_of_the_warm_up() {
    let (seen, tally, _) = load(ServerLog::default(), |plan| {
        plan.warm_up = Duration::from_millis(100);
        plan.duration = Duration::from_millis(200);
        // The last twenty are due when the load is over.
        plan.streams[0].pace = due((0..320).step_by(1));
    });
    assert_eq!(seen.requests.load(Ordering::Relaxed), 300);
    assert_eq!((tally.sent, tally.answered()), (200, 200));
    assert_eq!(tally.lag.len(), 200);
}

#[test]
fn refusals_are_counted_by_their_code() {
    let refusing = ServerLog {
        refuses: true,
        ..ServerLog::default()
    };
    let (_, tally, progress) = load(refusing, |plan| plan.streams[0].pace = due(0..90));
    assert_eq!(tally.refused["overloaded"], 30);
    assert_eq!((tally.answered(), tally.in_time), (60, 60));
    assert_eq!((progress.answered(), progress.unanswered()), (60, 30));
}

#[test]
fn a_server_that_closes_its_connections_loses_no_query() {
    let closing = ServerLog {
        closes: true,
        ..ServerLog::default()
    };
    let (_, tally, _) = load(closing, |plan| plan.streams[0].pace = due(0..60));
    assert_eq!((tally.answered(), tally.broken.len()), (60, 0), "{tally:?}");
}

/// While a server stalls, queries go on to be due: those of the first half of the stall wait at least its second
/// half, however few of them were sent meanwhile.
#[test]
fn a_stall_is_seen_by_all_queries_that_are_due_meanwhile() {
    const STALL_MS: u64 = 400;
    let stalling = ServerLog {
        stall: Some((100, Duration::from_millis(STALL_MS))),
        ..ServerLog::default()
    };
    let (_, tally, _) = load(stalling, |plan| {
        plan.threads = 1;
        plan.most_connections = 1;
        plan.duration = Duration::from_millis(700);
        plan.streams[0].pace = due(0..700);
    });
    assert_eq!(tally.answered(), 700);
    let half_ns = STALL_MS / 2 * 1_000_000;
    let longer = |histogram: &hdrhistogram::Histogram<u64>| {
        histogram.count_between(half_ns, histogram.high())
    };
    let (waited, sent) = (longer(&tally.latency), longer(&tally.from_sending));
    assert!(waited >= STALL_MS / 2 - 1, "{waited} waited for the stall");
    assert!(sent >= 1, "the query that stalled is among them");
    assert!(sent < waited, "{sent} of {waited} were under way");
}

#[test]
fn what_is_not_answered_in_time_is_given_up() {
    let silent = ServerLog {
        is_silent: true,
        ..ServerLog::default()
    };
    let (_, tally, _) = load(silent, |plan| {
        plan.timeout = Duration::from_millis(50);
        plan.streams[0].pace = due(0..20);
    });
    assert_eq!((tally.sent, tally.broken["timeout"]), (20, 20));
    let summary = Summary::of("digits", &tally, Duration::from_secs(1), Some(1.0));
    assert_eq!(summary.in_time_share, Some(0.0));
    assert_eq!(
        (summary.latency_ms, summary.targets_met_share),
        (None, None)
    );
}

/// However long the last answers are waited for.
#[test]
fn a_load_that_is_stopped_is_counted_until_then() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("http://{}", listener.local_addr().expect("it is bound"));
    let endpoint = Endpoint::new(&server, None, HeaderMap::new()).expect("an address");
    let progress = Arc::<Progress>::default();
    progress.stop();
    let (tallies, counted) = run(&endpoint, &plan(), &progress).expect("it runs");
    assert_eq!((tallies[0].sent, counted), (0, Duration::ZERO));
}

#[test]
fn an_absent_server_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let server = format!("http://{address}");
    let endpoint = Endpoint::new(&server, None, HeaderMap::new()).expect("an address");
    let error = run(&endpoint, &plan(), &Arc::default()).expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&server), "{error}");
}
