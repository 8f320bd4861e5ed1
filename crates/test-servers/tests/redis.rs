//! The life of a Redis server, seen through its clients' socket.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use sextant_test_servers::redis::Redis;

/// Sends one command and reads as many bytes as `wanted` has.
fn answers(redis: &Redis, command: &str, wanted: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("it listens");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("a time limit");
    let sent = stream.write_all(format!("{command}\r\n").as_bytes());
    sent.expect("it reads");
    let mut answer = vec![0; wanted.len()];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&answer), wanted, "to `{command}`");
}

#[test]
fn keeps_or_loses_its_data_as_told() {
    let mut redis = Redis::start();
    let url = redis.url();
    answers(&redis, "SET a 1", "+OK\r\n");
    redis.restart();
    answers(&redis, "GET a", "$1\r\n1\r\n");
    redis.flush();
    answers(&redis, "GET a", "$-1\r\n");
    answers(&redis, "SET a 2", "+OK\r\n");
    redis.restart_empty();
    answers(&redis, "GET a", "$-1\r\n");
    assert_eq!(redis.url(), url);
}

#[test]
fn stops_and_goes_on() {
    let redis = Redis::start();
    answers(&redis, "SET a 1", "+OK\r\n");
    redis.stop();
    let stat = format!("/proc/{}/stat", redis.process_id());
    let stat = std::fs::read_to_string(stat).expect("it runs");
    assert!(stat.contains(") T "), "{stat}");
    redis.cont();
    answers(&redis, "GET a", "$1\r\n1\r\n");
}
