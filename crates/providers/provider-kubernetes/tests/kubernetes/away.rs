//! No API server, with the real transport.

use kube::{Client, Config};
use sextant_provider::Provider;
use sextant_provider_kubernetes::{Kind, Kubernetes, Workload};
use tokio::net::TcpListener;

use super::support::{absence, pool, settings};

/// A port on which nothing listens.
async fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[tokio::test]
async fn server_that_is_not_there_is_away() {
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://127.0.0.1:{}", closed_port().await);
        let config = Config::new(url.parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let workload = Workload {
            kind: Kind::Deployment,
            name: "workers".to_owned(),
        };
        let provider = Kubernetes::new(client, settings([("cpu-8".to_owned(), workload)]));
        let reason = absence(provider.grow(&pool(), 1).await);
        assert!(reason.contains("reading the scale of"), "{reason}");
    }
}
