//! Remote runtimes: an engine for each table `[worker.remote.NAME]`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use sextant_engine::{DeviceMemory, Engine};
use sextant_engine_remote::{
    Binary as EngineBinary, Load, Program, RemoteConfig, RemoteEngine, Source,
};

use sextant_config::{Binary, Remote};

/// Size of the pages that a runtime's memory is counted in, bytes.
const PAGE_BYTES: u64 = 16 << 20;

/// One engine for each runtime; nothing is started or reached yet.
pub(super) fn build(runtimes: &BTreeMap<String, Remote>) -> anyhow::Result<Vec<Arc<dyn Engine>>> {
    let build = |(name, remote): (&String, &Remote)| {
        let key = || format!("`[worker.remote.{name}]`");
        let config = config(name, remote).with_context(key)?;
        let engine = RemoteEngine::new(config).with_context(key)?;
        Ok(Arc::new(engine) as Arc<dyn Engine>)
    };
    runtimes.iter().map(build).collect()
}

fn config(name: &str, remote: &Remote) -> anyhow::Result<RemoteConfig> {
    Ok(RemoteConfig {
        ready_timeout: Duration::from_millis(remote.ready_timeout_ms),
        request_timeout: Duration::from_millis(remote.request_timeout_ms),
        binary: match remote.binary {
            Binary::Auto => EngineBinary::Auto,
            Binary::Always => EngineBinary::Always,
            Binary::Never => EngineBinary::Never,
        },
        headers: pairs(&remote.headers, ':', "headers")?.collect(),
        load: match remote.loads_models {
            true => Load::Repository,
            false => Load::None,
        },
        memory: DeviceMemory {
            page_bytes: PAGE_BYTES,
            pages: remote.memory_bytes / PAGE_BYTES,
        },
        max_response_bytes: remote.max_response_bytes,
        ..RemoteConfig::new(name, source(remote)?)
    })
}

fn source(remote: &Remote) -> anyhow::Result<Source> {
    match (&remote.url, remote.command.as_slice()) {
        (None, []) => anyhow::bail!("neither `url` nor `command` is set: set one of them"),
        (Some(url), []) => Ok(Source::Address(url.clone())),
        (url, command) => Ok(Source::Command(Program {
            command: command.to_vec(),
            environment: pairs(&remote.environment, '=', "environment")?.collect(),
            folder: remote.folder.clone(),
            url: url.clone(),
        })),
    }
}

/// `NAME=value`, `name: value`.
fn pairs<'a>(
    texts: &'a [String],
    separator: char,
    key: &str,
) -> anyhow::Result<impl Iterator<Item = (String, String)> + use<'a>> {
    let cut = move |text: &'a String| text.split_once(separator);
    if let Some(wrong) = texts.iter().position(|text| cut(text).is_none()) {
        // The message names its position, because it may be a secret.
        anyhow::bail!("`{key}`: number {} of them has no `{separator}`", wrong + 1);
    }
    let trimmed = |(name, value): (&str, &str)| (name.trim().to_owned(), value.trim().to_owned());
    Ok(texts.iter().filter_map(cut).map(trimmed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(remote: Remote) -> String {
        let built = build(&[("triton".to_owned(), remote)].into());
        format!("{:#}", built.err().expect("refused"))
    }

    #[test]
    fn a_runtime_is_an_address_or_a_command() {
        let neither = text(Remote::default());
        assert!(neither.contains("neither `url` nor `command`"), "{neither}");
        assert!(neither.contains("[worker.remote.triton]"), "{neither}");
        let https = text(Remote {
            url: Some("https://localhost".to_owned()),
            ..Remote::default()
        });
        assert!(https.contains("TLS"), "{https}");
        let header = text(Remote {
            url: Some("http://localhost:1".to_owned()),
            headers: vec!["x-team: a".to_owned(), "Bearer secret".to_owned()],
            ..Remote::default()
        });
        assert!(
            header.contains("`headers`: number 2 of them has no `:`"),
            "{header}"
        );
        assert!(!header.contains("secret"), "{header}");
        let started = Remote {
            command: vec!["serve".to_owned()],
            environment: vec!["MODEL=a=b".to_owned()],
            ..Remote::default()
        };
        let source = source(&started).expect("a command");
        let Source::Command(program) = source else {
            panic!("{source:?}");
        };
        assert_eq!(program.environment["MODEL"], "a=b");
        let engines = build(&[("own".to_owned(), started)].into()).expect("usable");
        assert_eq!(engines[0].name(), "own");
    }
}
