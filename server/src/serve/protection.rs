//! Who may ask the HTTP API, and how its connections are encrypted.

use anyhow::Context;
use sextant_api::{
    Tls, TlsFiles,
    auth::{self, AdminKey, Mode},
};

use crate::config::{AuthMode, Config};

/// Who may ask. Refuses to leave the service open to others unless that was said.
pub(super) fn auth(config: &Config) -> anyhow::Result<auth::Config> {
    let mode = config.auth.mode.map(|mode| match mode {
        AuthMode::Off => Mode::Off,
        AuthMode::Keys => Mode::Keys,
    });
    let admin_key = config.auth.admin_key.as_deref().map(AdminKey::new);
    Ok(auth::Config {
        mode: auth::check(config.listen, mode)?,
        admin_key: admin_key.transpose().context("`auth.admin_key`")?,
        metrics: config.auth.metrics,
        max_concurrent_per_key: None,
    })
}

/// What encrypts connections, where a certificate is configured.
pub(super) fn tls(config: &Config) -> anyhow::Result<Option<Tls>> {
    let settings = &config.tls;
    let (certificate, key) = match (&settings.certificate, &settings.key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (None, None) if settings.client_ca.is_none() => return Ok(None),
        _ => anyhow::bail!("`tls.certificate` and `tls.key` belong together: set both or neither"),
    };
    let files = TlsFiles {
        certificate,
        key,
        client_ca: settings.client_ca.clone(),
    };
    Ok(Some(Tls::load(files)?))
}
