//! Which roles a process may have with the configured stores and addresses.

use anyhow::ensure;

use sextant_config::{Config, Role};

/// Whether other processes play roles of the same service.
pub(super) fn is_split(config: &Config) -> bool {
    let together = [Role::Api, Role::Dispatcher, Role::Worker];
    let all = together.into_iter().all(|role| config.roles.contains(role));
    config.fleet.listen.is_some() || !all
}

/// Refuses what cannot work, and says what is missing.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    ensure!(!config.roles.0.is_empty(), "`roles` names no role");
    check_tls(config)?;
    if !is_split(config) {
        return Ok(());
    }
    for role in [Role::Api, Role::Dispatcher, Role::Worker] {
        ensure!(
            config.metadata.url.is_some() || config.roles.contains(role),
            "role `{role}` is missing: without `metadata.url` one process plays `api`, \
             `dispatcher` and `worker` together; with it, each may be played by another"
        );
    }
    ensure!(
        config.metadata.url.is_some(),
        "`fleet.listen` is set and `metadata.url` is not: processes find each other there"
    );
    let with_registry = [Role::Api, Role::Dispatcher, Role::VariantGen];
    let played = with_registry
        .iter()
        .filter(|it| config.roles.contains(**it));
    // The registry may be a file of this process if all other processes are workers of this
    // machine.
    let keeps_files = played.clone().count() == with_registry.len();
    if let (Some(role), false) = (played.clone().next(), keeps_files) {
        ensure!(
            config.registry.url.is_some(),
            "role `{role}` needs `registry.url`: the processes of a fleet share one registry"
        );
    }
    ensure!(
        keeps_files
            || config.objects.url.is_some()
            || config.roles.0.iter().all(|it| *it == Role::Autoscaler),
        "`objects.url` is not set: the processes of a fleet share one artefact store"
    );
    for role in [Role::Dispatcher, Role::Worker] {
        ensure!(
            config.fleet.listen.is_some() || !config.roles.contains(role),
            "role `{role}` needs `fleet.listen`: the others must reach it"
        );
    }
    let files = [
        &config.fleet.certificate,
        &config.fleet.key,
        &config.fleet.ca,
    ];
    let given = files.iter().filter(|file| file.is_some()).count();
    ensure!(
        given == 0 || given == files.len(),
        "`fleet.certificate`, `fleet.key` and `fleet.ca` belong together: {given} of 3 are set"
    );
    Ok(())
}

/// Half of what encryption needs must not end in none.
fn check_tls(config: &Config) -> anyhow::Result<()> {
    let tls = &config.tls;
    ensure!(
        tls.certificate.is_some() == tls.key.is_some(),
        "`tls.certificate` and `tls.key` belong together"
    );
    ensure!(
        tls.client_ca.is_none() || tls.certificate.is_some(),
        "`tls.client_ca` is set and `tls.certificate` is not: clients show certificates only over \
         TLS"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sextant_config::Roles;

    fn roles(names: &[Role]) -> Config {
        Config {
            roles: Roles(names.iter().copied().collect()),
            ..Config::default()
        }
    }

    fn refusal(config: &Config) -> String {
        check(config).expect_err("refused").to_string()
    }

    #[test]
    fn one_process_needs_nothing() {
        check(&Config::default()).expect("the default works");
        check(&roles(&[Role::Api, Role::Dispatcher, Role::Worker])).expect("these are enough");
    }

    #[test]
    fn half_of_encryption_is_refused_in_one_process_as_well() {
        let mut config = Config::default();
        config.tls.certificate = Some("tls.crt".into());
        assert!(refusal(&config).contains("`tls.key` belong together"));
        config.tls.key = Some("tls.key".into());
        check(&config).expect("both");
        config.tls.certificate = None;
        assert!(refusal(&config).contains("`tls.key` belong together"));
        config.tls.key = None;
        config.tls.client_ca = Some("ca.crt".into());
        assert!(refusal(&config).contains("`tls.client_ca`"));
    }

    #[test]
    fn a_role_alone_is_told_what_it_needs() {
        let mut config = roles(&[Role::Dispatcher]);
        assert!(refusal(&config).contains("`metadata.url`"));
        config.metadata.url = Some("redis://localhost".to_owned());
        assert!(refusal(&config).contains("`registry.url`"));
        config.registry.url = Some("postgres://localhost".to_owned());
        assert!(refusal(&config).contains("`objects.url`"));
        config.objects.url = Some("s3://bucket".to_owned());
        assert!(refusal(&config).contains("`fleet.listen`"));
        config.fleet.listen = Some(([127, 0, 0, 1], 0).into());
        check(&config).expect("that is all");
        config.fleet.ca = Some("ca.pem".into());
        assert!(refusal(&config).contains("1 of 3"));
    }

    #[test]
    fn a_worker_needs_no_registry_and_an_autoscaler_nothing_but_metadata() {
        let mut config = roles(&[Role::Worker]);
        config.metadata.url = Some("redis://localhost".to_owned());
        config.objects.url = Some("s3://bucket".to_owned());
        config.fleet.listen = Some(([127, 0, 0, 1], 0).into());
        check(&config).expect("a worker");
        let mut config = roles(&[Role::Autoscaler]);
        config.metadata.url = Some("redis://localhost".to_owned());
        check(&config).expect("an autoscaler");
    }
}
