//! Registrations that are made to do harm.

use sextant_tests::hostile;

/// The most memory that a registration may take in the service, bytes.
const MOST_BYTES: u64 = 64 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_registration_ends_the_service_or_keeps_others_from_theirs() {
    let survival = hostile::survive_all(|_| {}).await;
    assert_eq!(survival.restarts, 0, "{survival:?}");
    assert!(survival.wrong.is_empty(), "{survival:?}");
    assert!(survival.tried >= 60, "{survival:?}");
}

/// The process that measures reads the sets and adapts the models; the service only passes them on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_registration_takes_memory_of_the_service() {
    for growth in hostile::growths().await {
        let why = growth.error["message"].as_str().unwrap_or_default();
        let (state, reason) = match growth.name {
            "two-gigabytes-in-two-megabytes" => ("failed", "larger than `1073741824` bytes"),
            "one-line-of-eighty-megabytes" => ("failed", "line 1 is longer than"),
            "two-million-nodes" => ("failed", "a quarter of `variants.memory_bytes`"),
            "one-file-for-forty-tensors" => ("failed", "what is made of the model has"),
            "one-row-of-forty-megabytes" => ("failed", "line 2 is longer than"),
            _ => ("succeeded", ""),
        };
        assert_eq!(growth.state, state, "{growth:?}");
        assert!(why.contains(reason), "{growth:?}");
        assert!(growth.bytes <= MOST_BYTES, "{growth:?}");
    }
}

/// That process also reads the outlines of mapped models and determines what is made of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mapped_model_takes_memory_of_the_service() {
    for growth in hostile::growths_of_mapped().await {
        let why = growth.error["message"].as_str().unwrap_or_default();
        let reason = match growth.name {
            "two-million-nodes" => "a quarter of `variants.memory_bytes`",
            _ => "what is made of the model has",
        };
        assert_eq!(growth.state, "failed", "{growth:?}");
        assert!(why.contains(reason), "{growth:?}");
        assert!(growth.bytes <= MOST_BYTES, "{growth:?}");
    }
}
