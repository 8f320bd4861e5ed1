//! Open-loop load: each query is sent when it is due, whatever the outcomes of those before it.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::arrivals::Arrival;
use crate::{http::Connection, shell};

/// Connections that suffice where queries have targets.
const CLIENTS: usize = 256;

/// The query for an application.
pub struct Question {
    /// The request's body.
    pub body: Vec<u8>,
    /// Longest time from sending it to the answer's last byte, ms.
    pub target_ms: f64,
}

/// The outcomes of the queries that count.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of queries.
    pub sent: u64,
    /// Answered in time.
    pub in_time: u64,
    /// Answered too late.
    pub late: u64,
    /// Refused, by the code of the problem; `broken` without an answer.
    pub refused: BTreeMap<String, u64>,
    /// By how much queries were sent later than they were due, ms, in increasing order.
    pub lag_ms: Vec<f64>,
    /// How long answers took, ms, in increasing order.
    pub took_ms: Vec<f64>,
    /// For each application, the number of queries and how many of them were late or refused.
    pub applications: BTreeMap<usize, (u64, u64)>,
    /// A line for each query in order of time: when it was due (s), its application's position, by how much it was sent
    /// late (ms), how long its answer took (ms), and its outcome.
    pub lines: Vec<(f64, String)>,
}

/// The outcome of one query.
pub struct End {
    /// When it was due.
    pub arrival: Arrival,
    /// By how much later it was sent, ms.
    pub lag_ms: f64,
    /// The time from sending it to its answer, ms.
    pub took_ms: f64,
    /// The longest time that its answer may take, ms.
    target_ms: f64,
    /// The problem's code if it was not answered.
    pub refused: Option<String>,
}

/// Sends all queries, the first at `begin`, and tallies those that are due from `from_s` on.
pub fn run(
    address: SocketAddr,
    questions: &[Question],
    arrivals: &[Arrival],
    times: (Instant, f64),
) -> Tally {
    run_with(CLIENTS, address, questions, arrivals, times)
}

/// The same over `clients` connections, each with one query under way. If all are busy, queries are sent later than
/// they are due, which [`Tally::lag_ms`] shows.
pub fn run_with(
    clients: usize,
    address: SocketAddr,
    questions: &[Question],
    arrivals: &[Arrival],
    (begin, from_s): (Instant, f64),
) -> Tally {
    let mut tally = Tally::default();
    let ends = ends(
        clients,
        (address, "/v1/queries"),
        questions,
        (arrivals, begin),
    );
    let counting = ends.into_iter().filter(|end| end.arrival.at_s >= from_s);
    counting.for_each(|end| tally.add(end));
    tally.lag_ms.sort_by(f64::total_cmp);
    tally.took_ms.sort_by(f64::total_cmp);
    tally.lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    tally
}

/// The outcomes of all queries, in no order.
pub fn ends(
    clients: usize,
    to: (SocketAddr, &str),
    questions: &[Question],
    (arrivals, begin): (&[Arrival], Instant),
) -> Vec<End> {
    let next = AtomicUsize::new(0);
    let client = || {
        let mut ends = Vec::new();
        let mut connection = None;
        while let Some(arrival) = arrivals.get(next.fetch_add(1, Ordering::Relaxed)) {
            let due = begin + Duration::from_secs_f64(arrival.at_s);
            shell::pause(due.saturating_duration_since(Instant::now()));
            let question = &questions[arrival.application];
            ends.push(ask(to, &mut connection, question, (*arrival, due)));
        }
        ends
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        let ends = clients.into_iter().map(|client| client.join());
        ends.flat_map(|ends| ends.expect("a client does not panic"))
            .collect()
    })
}

/// Sends one query over a connection, which is opened if there is none.
fn ask(
    (address, path): (SocketAddr, &str),
    connection: &mut Option<Connection>,
    question: &Question,
    (arrival, due): (Arrival, Instant),
) -> End {
    let sent = Instant::now();
    if connection.is_none() {
        *connection = Connection::open(address, Duration::from_secs(30)).ok();
    }
    let answer = connection
        .as_mut()
        .map(|it| it.send("POST", path, "application/json", &question.body));
    let took_ms = sent.elapsed().as_secs_f64() * 1e3;
    let refused = match answer {
        Some(Ok(answer)) if answer.status == 200 => None,
        Some(Ok(answer)) => {
            let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let code = problem["code"].as_str().map(str::to_owned);
            Some(code.unwrap_or_else(|| answer.status.to_string()))
        }
        _ => {
            *connection = None;
            Some("broken".to_owned())
        }
    };
    End {
        arrival,
        lag_ms: (sent - due).as_secs_f64() * 1e3,
        took_ms,
        target_ms: question.target_ms,
        refused,
    }
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, end: End) {
        self.sent += 1;
        self.lag_ms.push(end.lag_ms);
        let is_late = end.took_ms > end.target_ms;
        let how = match &end.refused {
            Some(code) => code.as_str(),
            None if is_late => "late",
            None => "in_time",
        };
        let Arrival { at_s, application } = end.arrival;
        let (lag_ms, took_ms) = (end.lag_ms, end.took_ms);
        let line = format!("{at_s:.3},{application},{lag_ms:.1},{took_ms:.1},{how}");
        self.lines.push((at_s, line));
        let (sent, bad) = self.applications.entry(application).or_default();
        *sent += 1;
        *bad += u64::from(how != "in_time");
        match end.refused {
            Some(code) => *self.refused.entry(code).or_default() += 1,
            None => {
                self.took_ms.push(took_ms);
                *(if is_late {
                    &mut self.late
                } else {
                    &mut self.in_time
                }) += 1;
            }
        }
    }

    /// Late or refused queries, percent of all.
    pub fn violation_percent(&self) -> f64 {
        100.0 * (self.sent - self.in_time) as f64 / self.sent.max(1) as f64
    }
}

/// The value below which this share of the values lies; NaN if there are none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// Answers every query on every connection with what `answer` returns for its body.
    fn server(answer: fn(&[u8]) -> &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut writer = stream.try_clone().unwrap();
                    let mut reader = BufReader::new(stream);
                    let mut line = String::new();
                    let mut length = 0;
                    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                        let head = line.trim_end().to_ascii_lowercase();
                        line.clear();
                        if let Some(value) = head.strip_prefix("content-length: ") {
                            length = value.parse().unwrap();
                        } else if head.is_empty() {
                            let mut body = vec![0; length];
                            reader.read_exact(&mut body).unwrap();
                            writer.write_all(answer(&body).as_bytes()).unwrap();
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn queries_are_counted_by_how_they_end_once_they_count() {
        let address = server(|body| match body {
            b"good" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            b"bad" => "HTTP/1.1 503 Busy\r\ncontent-length: 21\r\n\r\n{\"code\":\"overloaded\"}",
            _ => "nonsense\r\n",
        });
        let question = |body: &str, target_ms| Question {
            body: body.into(),
            target_ms,
        };
        let questions = [
            question("good", 1e6),
            question("good", 0.0),
            question("bad", 1e6),
            question("broken", 1e6),
        ];
        let arrivals: Vec<Arrival> = [0, 0, 1, 2, 2, 3]
            .into_iter()
            .enumerate()
            .map(|(at, application)| Arrival {
                at_s: at as f64 * 0.001,
                application,
            })
            .collect();
        let tally = run(address, &questions, &arrivals, (Instant::now(), 0.001));
        assert_eq!((tally.sent, tally.in_time, tally.late), (5, 1, 1));
        let refused: Vec<_> = tally
            .refused
            .iter()
            .map(|(code, n)| (&**code, *n))
            .collect();
        assert_eq!(refused, [("broken", 1), ("overloaded", 2)]);
        assert_eq!((tally.lag_ms.len(), tally.took_ms.len()), (5, 2));
        assert_eq!(tally.violation_percent(), 80.0);
        let each: Vec<_> = tally.applications.into_iter().collect();
        assert_eq!(each, [(0, (1, 0)), (1, (1, 1)), (2, (2, 2)), (3, (1, 1))]);
        let ends = tally.lines.iter().map(|(_, line)| line.rsplit(',').next());
        let ends: Vec<&str> = ends.flatten().collect();
        let expected = ["in_time", "late", "overloaded", "overloaded", "broken"];
        assert_eq!(ends, expected);
    }

    #[test]
    fn a_quantile_is_the_value_at_its_place() {
        let sorted = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(quantile(&sorted, 0.5), 3.0);
        assert_eq!(quantile(&sorted, 1.0), 5.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
