use std::sync::Arc;

use sextant_objects::{bind_object_conformance, conformance::Store};
use sextant_test_servers::s3::S3;

use super::support::start;

async fn fresh() -> (Store, S3) {
    let (store, server) = start().await;
    (Arc::new(store), server)
}

bind_object_conformance!(fresh());
