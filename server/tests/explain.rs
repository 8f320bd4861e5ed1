//! `sextant explain scaling` against a server that answers what it is told to.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    thread::JoinHandle,
};

const SCALING: &str = r#"{"desired_token":4,"pools":[{"device_type":"cpu-8","desired":3,"least":1,
    "most":8,"up":1,"leaving":0,"draining":1,"provider":"process","price_per_hour_usd":0.5,"start_s":60.0}],
    "variants":[],"demand":null,"cost_per_hour_usd":{"desired":1.5,"actual":1.0}}"#;

const GONE: &str = r#"{"type":"/docs/errors/unavailable","title":"away","status":503,
    "detail":"the service is shutting down","instance":"/","code":"unavailable"}"#;

fn decision(number: u64, subject: &str) -> String {
    format!(
        r#"{{"number":{number},"at_ms":64991000,"subject":{{"kind":"pool","name":"{subject}"}},"action":"add_workers","from":2,"to":3,"reason":"because","inputs":[],"alternatives":[]}}"#
    )
}

fn event(number: u64, subject: &str) -> String {
    let data = decision(number, subject);
    format!("event: decision\nid: {number}\ndata: {data}\n\n")
}

/// An answer to one request: status, content type, body.
type Reply = (&'static str, &'static str, String);

fn ok(body: impl Into<String>) -> Reply {
    ("200 OK", "application/json", body.into())
}

fn events(text: String) -> Reply {
    ("200 OK", "text/event-stream", text)
}

fn gone() -> Reply {
    let problem = "application/problem+json";
    ("503 Service Unavailable", problem, GONE.to_owned())
}

/// The connection is closed without an answer.
fn cut() -> Reply {
    ("", "", String::new())
}

/// Answers one request after the other, and returns their lines.
fn serve(replies: Vec<Reply>) -> (String, JoinHandle<Vec<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let serving = std::thread::spawn(move || {
        let answer = |reply| {
            let (stream, _) = listener.accept().expect("a connection");
            answer(stream, reply)
        };
        replies.into_iter().map(answer).collect()
    });
    (server, serving)
}

fn answer(mut stream: TcpStream, (status, kind, body): Reply) -> Vec<String> {
    let lines = BufReader::new(&stream).lines();
    let lines = lines.map(|line| line.expect("a request"));
    let request = lines.take_while(|line| !line.is_empty()).collect();
    if status.is_empty() {
        return request;
    }
    // Without a length the body ends with the connection, as that of a stream may.
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    stream
        .write_all((head + &body).as_bytes())
        .expect("an answer");
    request
}

fn explain(server: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sextant"));
    command.env_remove("SEXTANT_API_KEY");
    let arguments = ["--server", server, "explain", "scaling"];
    command.args(arguments).args(more);
    command.output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn pools_come_first_and_decisions_with_the_newest_at_the_end() {
    let list = [decision(12, "cpu-8"), decision(11, "cpu-8")].join(",");
    let list = format!(r#"{{"decisions":[{list}]}}"#);
    let (server, serving) = serve(vec![ok(SCALING), ok(list)]);
    let output = explain(&server, &["--limit", "2", "--subject", "cpu-8"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    let expected = "\
pool   desired  up  leaving  draining  least  most  $/h each  provider
cpu-8        3   1        0         1      1     8     0.500  process
all workers cost 1.00 $/h, those that are desired 1.50 $/h

#11 1970-01-01 18:03:11 cpu-8: 2 -> 3 workers (add_workers)
    because

#12 1970-01-01 18:03:11 cpu-8: 2 -> 3 workers (add_workers)
    because
";
    assert_eq!(text, expected);
    let asked = serving.join().expect("all were asked for");
    assert!(asked[0][0].starts_with("GET /v1/scaling "), "{asked:?}");
    let query = "GET /v1/scaling/decisions?limit=2&subject=cpu-8 ";
    assert!(asked[1][0].starts_with(query), "{asked:?}");
}

#[test]
fn new_decisions_are_followed_also_over_a_cut_stream() {
    let list = format!(r#"{{"decisions":[{}]}}"#, decision(11, "cpu-8"));
    let begun = event(12, "gpu") + &event(13, "cpu-8");
    let (server, serving) = serve(vec![
        ok(SCALING),
        ok(list),
        events(begun),
        cut(),
        events(":\n\n".to_owned() + &event(14, "cpu-8")),
        gone(),
    ]);
    let arguments = ["--follow", "--json", "--subject", "cpu-8"];
    let output = explain(&server, &arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the service is shutting down"), "{told}");
    let text = stdout(&output);
    let lines = text.lines().rev().take(2);
    let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let numbers: Vec<_> = lines.map(|line| read(line)["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(14), Some(13)], "a line each:\n{text}");
    assert!(!text.contains("gpu"), "another subject:\n{text}");
    let asked = serving.join().expect("all were asked for");
    let known = |request: &Vec<String>| {
        let header = request
            .iter()
            .find_map(|line| line.strip_prefix("last-event-id: "));
        header.map(str::to_owned)
    };
    let known: Vec<_> = asked[2..].iter().filter_map(known).collect();
    assert_eq!(known, ["11", "13", "13", "14"]);
}
