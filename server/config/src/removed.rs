//! Settings that there were: whoever still has one is told what to do, and not that it is misspelt.

/// The service has one scheduling policy.
const BY_ONE_POLICY: &str = "the service schedules by its own policy; remove it. The policies of others are run by \
    experiments, with `sextant-lab`";

/// Keys, and what is to be done about each.
const REMOVED: [(&str, &str); 8] = [
    ("dispatcher.schedule.policy", BY_ONE_POLICY),
    ("dispatcher.schedule.beta_lambda", BY_ONE_POLICY),
    ("dispatcher.schedule.preferred_rows", BY_ONE_POLICY),
    ("dispatcher.schedule.max_queue_delay_ms", BY_ONE_POLICY),
    ("dispatcher.schedule.look_ahead_ms", BY_ONE_POLICY),
    ("dispatcher.schedule.batch_sizes", BY_ONE_POLICY),
    ("dispatcher.schedule.frontends", BY_ONE_POLICY),
    ("dispatcher.schedule.epoch_ms", BY_ONE_POLICY),
];

/// What is to be done about a key; `None` where there never was one of that name.
pub fn instead_of(key: &str) -> Option<&'static str> {
    let mut removed = REMOVED.iter();
    removed
        .find(|(known, _)| *known == key)
        .map(|(_, instead)| *instead)
}

/// The same by the name of the key's environment variable.
pub fn instead_of_variable(variable: &str) -> Option<&'static str> {
    let key = variable.strip_prefix("SEXTANT_")?;
    instead_of(&key.to_lowercase().replace("__", "."))
}
