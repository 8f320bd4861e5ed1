//! The limits of connections to the port: their number, and the time without a call.

use std::time::Duration;

use sextant_links::grpc::{Caller, CallerLimits, ConnectorConfig, GrpcConfig, GrpcConnector};
use sextant_rpc::Work;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::process::{FIRST, Process, config, hello, reach};

/// The first bytes of an HTTP/2 client: the preface, and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Longest wait for a state.
const DEADLINE: Duration = Duration::from_secs(60);

/// Time without a call after which a connection is closed. A caller on a busy machine makes its call before.
const PATIENCE: Duration = Duration::from_secs(1);

fn held_to(most: usize) -> GrpcConfig {
    GrpcConfig {
        callers: CallerLimits {
            most,
            patience: PATIENCE,
        },
        ..config()
    }
}

/// A leading dispatcher that waits for its turn.
fn dispatcher() -> GrpcConnector {
    let config = ConnectorConfig {
        patience: DEADLINE,
        ..ConnectorConfig::new(hello(Caller::Dispatcher, Some(FIRST)))
    };
    GrpcConnector::new(config).expect("no certificates are to be read")
}

/// Waits until the other end closes the connection.
async fn closed(mut stream: TcpStream) {
    let read = async {
        let mut bytes = [0; 4096];
        while matches!(stream.read(&mut bytes).await, Ok(1..)) {}
    };
    timeout(DEADLINE, read).await.expect("it is closed");
}

#[tokio::test]
async fn connections_without_a_call_are_closed_and_those_with_one_stay() {
    let process = Process::start(held_to(64)).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    let mut idle = Vec::new();
    for said in [&b""[..], &PREFACE[..9], PREFACE] {
        let stream = TcpStream::connect(&*process.endpoint).await;
        let mut stream = stream.expect("a connection");
        stream.write_all(said).await.expect("taken");
        idle.push(stream);
    }
    for stream in idle {
        closed(stream).await;
    }
    // The link is older than the connections.
    assert!(!reached.connection.is_finished());
    let stats = timeout(DEADLINE, reached.worker.stats()).await;
    stats.expect("in time").expect("answered");
    process.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_those_that_say_nothing() {
    let process = Process::start(held_to(4)).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let stream = TcpStream::connect(&*process.endpoint).await;
        idle.push(stream.expect("a connection"));
    }
    // The attempt fails unless there is a place in the end.
    let reached = reach(&dispatcher(), &process.endpoint).await;
    for stream in idle {
        closed(stream).await;
    }
    assert!(!reached.connection.is_finished());
    process.stop().await;
}
