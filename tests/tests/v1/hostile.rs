//! Registrations that are made to do harm.

use sextant_tests::hostile;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_registration_ends_the_service_or_keeps_others_from_theirs() {
    let survival = hostile::survive_all(|_| {}).await;
    assert_eq!(survival.restarts, 0, "{survival:?}");
    assert!(survival.wrong.is_empty(), "{survival:?}");
    assert!(survival.tried >= 60, "{survival:?}");
}
