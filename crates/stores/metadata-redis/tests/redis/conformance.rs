//! The properties of every store and of every rate limit.

mod store {
    use sextant_metadata::{bind_metadata_conformance, conformance::Store};
    use sextant_test_servers::redis::Redis;

    use crate::fixtures::connect;

    bind_metadata_conformance!(async {
        let server = Redis::start();
        (connect(&server).await as Store, server)
    });
}

mod rates {
    use std::sync::Arc;

    use sextant_metadata::{bind_rate_conformance, conformance::rate::Rates};
    use sextant_metadata_redis::RedisRates;
    use sextant_test_servers::redis::Redis;

    use crate::fixtures::config;

    bind_rate_conformance!(async {
        let server = Redis::start();
        let rates = RedisRates::connect(config(&server)).await;
        (Arc::new(rates.expect("connect")) as Rates, server)
    });
}
