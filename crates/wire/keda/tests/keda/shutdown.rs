//! The end of the server, and reasons why it cannot start.

use std::{sync::Arc, time::Duration};

use sextant_keda::{Error, KedaConfig, KedaServer};
use tokio::{net::TcpStream, sync::watch, time::Instant};

use super::support::{Ground, in_time, next, object};

/// KEDA reopens a stream that ends without an error after two seconds, and later after an error.
#[tokio::test]
async fn streams_end_without_an_error() {
    let ground = Ground::with(&[("cpu-8", 2)]).await;
    let mut stream = ground.stream("cpu-8").await;
    assert_eq!(next(&mut stream).await, Some(true));
    ground.stop.cancel();
    assert_eq!(next(&mut stream).await, None);
    let served = in_time(ground.served).await;
    served.expect("no panic").expect("no error");
    TcpStream::connect(&ground.endpoint)
        .await
        .expect_err("nobody listens");
}

/// A client that keeps its connection open does not keep the server.
#[tokio::test]
async fn open_connections_do_not_delay_the_end_for_long() {
    let ground = Ground::with(&[("cpu-8", 2)]).await;
    let mut client = ground.client().await;
    client.is_active(object("cpu-8")).await.expect("an answer");
    let raw = TcpStream::connect(&ground.endpoint)
        .await
        .expect("connected");
    let told = Instant::now();
    ground.stop.cancel();
    let served = in_time(ground.served).await;
    served.expect("no panic").expect("no error");
    assert!(told.elapsed() < Duration::from_secs(30));
    drop((client, raw));
}

#[tokio::test]
async fn taken_port_is_named() {
    let ground = Ground::with(&[]).await;
    let config = KedaConfig {
        listen: ground.endpoint.parse().expect("an address"),
        tls: None,
    };
    let (_wanted, pools) = watch::channel(Arc::default());
    let error = KedaServer::bind(config, pools).await.expect_err("taken");
    assert!(matches!(error, Error::Listen { .. }), "{error}");
    assert!(error.to_string().contains(&ground.endpoint), "{error}");
}
