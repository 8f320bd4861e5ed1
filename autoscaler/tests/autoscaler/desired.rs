//! Warm variants, with workers that come and go and a store that several autoscalers share.

use super::{world::*, *};

#[tokio::test]
async fn what_is_desired_follows_what_is_published_and_the_workers_that_stay() {
    let store = Arc::new(UnsteadyStore::new(256));
    for name in ["m-b", "m-a"] {
        publish(&store, variant(name)).await;
    }
    start(&store, None);
    wants(&store, 0, &[]).await;
    beat(&store, "draining", 1000, true).await;
    beat(&store, "here", 400, false).await;
    wants(&store, 0, &["m-a", "m-b"]).await;
    let desired = recorded(&store).await.unwrap();
    assert_eq!(desired.idle_unload_ms, 600_000);
    let everywhere =
        |it: &sextant_metadata::DesiredVariant| it.workers == Count::Everywhere && !it.pinned;
    assert!(desired.variants.iter().all(everywhere), "{desired:?}");
    // Half of the smallest worker's memory has room for one variant.
    beat(&store, "small", 399, false).await;
    wants(&store, 0, &["m-a"]).await;
    beat(&store, "small", 399, true).await;
    wants(&store, 0, &["m-a", "m-b"]).await;
    retire(&store, "m-a").await;
    wants(&store, 0, &["m-b"]).await;
}

#[tokio::test]
async fn weights_that_variants_share_count_once_and_each_model_has_one_variant() {
    let store = Arc::new(UnsteadyStore::new(256));
    // 50 bytes of weights, and 10 for each of two variants.
    for name in ["m-1", "m-2"] {
        let mut sharing = variant(name);
        sharing.artefact = Digest::from_bytes([0; 32]);
        sharing.profile.weights_bytes = 50;
        sharing.profile.peak_memory_bytes = 60;
        publish(&store, sharing).await;
    }
    // Another model of the application: it is worse, and its second variant is the cheapest.
    for (name, cost_per_1k_usd) in [("n-1", 5.0), ("n-2", 4.0), ("n-3", 6.0)] {
        let mut worse = variant(name);
        worse.model = ModelId::new("n").unwrap();
        worse.dominated_by = Some(VariantId::new("m-1").unwrap());
        worse.cost_per_1k_usd = cost_per_1k_usd;
        publish(&store, worse).await;
    }
    beat(&store, "w", 340, false).await;
    start(&store, None);
    wants(&store, 0, &["m-1", "m-2", "n-2"]).await;
    beat(&store, "w", 338, false).await;
    wants(&store, 0, &["m-1", "m-2"]).await;
}

#[tokio::test]
async fn only_who_has_the_token_says_what_is_desired() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    beat(&store, "w", 1000, false).await;
    let tokens = [watch::Sender::new(None), watch::Sender::new(None)];
    let [first, second] = [&tokens[0], &tokens[1]].map(watch::Sender::subscribe);
    start(&store, Some(first));
    start(&store, Some(second));
    tokens[1].send_replace(Some(1));
    wants(&store, 1, &["m-a"]).await;
    tokens[1].send_replace(None);
    tokens[0].send_replace(Some(2));
    publish(&store, variant("m-b")).await;
    wants(&store, 2, &["m-a", "m-b"]).await;
    // A process that believes to lead and does not is refused.
    tokens[1].send_replace(Some(1));
    retire(&store, "m-a").await;
    wants(&store, 2, &["m-b"]).await;
}

/// Only the leadership has changed: earlier leaders are fenced all the same.
#[tokio::test]
async fn who_leads_again_shuts_out_those_before() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    beat(&store, "w", 1000, false).await;
    let token = watch::Sender::new(Some(5));
    start(&store, Some(token.subscribe()));
    wants(&store, 5, &["m-a"]).await;
    token.send_replace(Some(9));
    let desired = recorded(&store).await.unwrap();
    let begun = std::time::Instant::now();
    // Any process that is not fenced may write the present state again.
    while store
        .set_desired(DesiredState::clone(&desired))
        .await
        .is_ok()
    {
        assert!(begun.elapsed() < PATIENCE, "a former leader is let in");
        tokio::task::yield_now().await;
    }
    assert_eq!(recorded(&store).await.unwrap().token, 5);
}

#[tokio::test]
async fn a_store_that_forgets_is_told_again_and_one_that_was_away_when_it_is_back() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    beat(&store, "w", 1000, false).await;
    start(&store, None);
    wants(&store, 0, &["m-a"]).await;
    store.lose_everything();
    // This holds before the variant or the worker was announced again.
    wants(&store, 0, &["m-a"]).await;
    store.set_away(true);
    store.lose_everything();
    store.set_away(false);
    for name in ["m-a", "m-b"] {
        publish(&store, variant(name)).await;
    }
    beat(&store, "w", 1000, false).await;
    wants(&store, 0, &["m-a", "m-b"]).await;
}
