//! Registrations that are made to do harm.

use sextant_tests::hostile;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_registration_ends_the_service_or_keeps_others_from_theirs() {
    let survival = hostile::survive_all(|_| {}).await;
    assert_eq!(survival.restarts, 0, "{survival:?}");
    assert!(survival.wrong.is_empty(), "{survival:?}");
    assert!(survival.tried >= 60, "{survival:?}");
}

/// Sets are read in the process that measures, and models are adapted there: the service passes them on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_registration_takes_memory_of_the_service() {
    const MOST_BYTES: u64 = 64 << 20;
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
