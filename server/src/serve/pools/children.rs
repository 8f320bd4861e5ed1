//! Child processes of this binary, each with a worker.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity};
use sextant_autoscaler::PoolConfig;
use sextant_provider::{
    Provider,
    process::{self, NAME, Processes, Template},
};
use sextant_types::DeviceTypeName;

use super::{super::process::Process, inherited, shares};
use sextant_config::{Config, Pool, ProviderKind};

/// Most child processes on a machine, of all pools together.
const MOST_PROCESSES: u32 = 256;

/// Time between two looks at workers that end.
const LOOK: Duration = Duration::from_millis(200);

/// Starts them with this process's own settings.
pub(super) fn open(config: &Config) -> anyhow::Result<Processes> {
    let folder = std::path::absolute(config.data_dir.join("workers"))?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let program = std::env::current_exe().context("this program's own path is not known")?;
    let file = write_settings(config, &folder)?;
    let text = fs::read_to_string(&file).context("the settings cannot be read again")?;
    let mut places = shares::places(config, &own_cores()?);
    let mut template = |name: &DeviceTypeName, pool: &Pool| -> anyhow::Result<Template> {
        let set = settings(config, name, pool);
        let roles = inherited::roles_of(config, pool);
        inherited::check(name, (&text, &set), roles)?;
        Ok(Template {
            program: program.display().to_string(),
            arguments: arguments(&set, (&file, &folder), roles),
            environment: BTreeMap::new(),
            // This variable names the address of this process.
            without: vec!["SEXTANT_FLEET__ADVERTISE".to_owned()],
            places: places.remove(name).unwrap_or_default(),
        })
    };
    let pools = config.autoscaler.pools.iter();
    let pools = pools.filter(|(_, pool)| pool.provider == ProviderKind::Process);
    let templates: anyhow::Result<BTreeMap<_, _>> = pools
        .map(|(name, pool)| Ok((name.clone(), template(name, pool)?)))
        .collect();
    let settings = process::Settings {
        folder: folder.clone(),
        most: MOST_PROCESSES,
        template: Template::default(),
        pools: templates?,
    };
    Ok(Processes::open(settings)?)
}

/// The cores that this process may run on, in order.
fn own_cores() -> anyhow::Result<Vec<usize>> {
    let own = sched_getaffinity(None).context("the cores of this process")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| own.is_set(*core))
        .collect())
}

/// Writes this process's settings for its children; only its owner can read them.
fn write_settings(config: &Config, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut own = config.clone();
    // Pools are of no use to a worker, and their paths are relative to this process's folder.
    own.autoscaler.pools.clear();
    let libraries = [&mut own.onnxruntime_library, &mut own.openvino_library];
    for library in libraries.into_iter().flatten() {
        *library = std::path::absolute(&library)?;
    }
    own.worker.name = None;
    if own.objects.url.is_none() {
        let folder = std::path::absolute(config.data_dir.join("objects"))?;
        own.objects.url = Some(format!("file://{}", folder.display()));
    }
    own.fleet.advertise = None;
    let text = toml::to_string(&own).context("the settings cannot be written down")?;
    let file = folder.join("settings.toml");
    let fresh = folder.join("settings.toml.new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options
        .open(&fresh)
        .and_then(|mut open| open.write_all(text.as_bytes()));
    written
        .and_then(|()| fs::rename(&fresh, &file))
        .with_context(|| format!("cannot write `{}`", file.display()))?;
    Ok(file)
}

/// Settings of a worker over those of the file.
fn settings(config: &Config, name: &DeviceTypeName, pool: &Pool) -> Vec<String> {
    let host = config.fleet.listen.map(|listen| listen.ip().to_string());
    let host = host.unwrap_or_else(|| "127.0.0.1".to_owned());
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let mut set = vec![format!("fleet.listen={host}:0")];
    set.extend(inherited::of_pool(config, name, pool));
    set
}

/// What a worker is started with. The flags win over its environment and over the file.
fn arguments(set: &[String], (file, folder): (&Path, &Path), roles: &str) -> Vec<String> {
    let mut arguments: Vec<String> = vec![
        "serve".to_owned(),
        "--config".to_owned(),
        file.display().to_string(),
        "--roles".to_owned(),
        roles.to_owned(),
        "--listen".to_owned(),
        "127.0.0.1:0".to_owned(),
        "--data-dir".to_owned(),
        folder.join(NAME).display().to_string(),
    ];
    for pair in set {
        arguments.extend(["--set".to_owned(), pair.clone()]);
    }
    arguments
}

/// Has the child processes end with this one, as a service stops with all its processes. Those of a
/// process that was killed are found by the next.
pub(in crate::serve) fn end_with(
    process: &mut Process,
    pools: &BTreeMap<DeviceTypeName, PoolConfig>,
) {
    let children = pools
        .iter()
        .filter(|(_, it)| it.provider.name() == "process");
    let children: Vec<(sextant_provider::Pool, Arc<dyn Provider>)> = children
        .map(|(name, it)| {
            let pool = sextant_provider::Pool {
                device_type: name.clone(),
                end_ms: it.end_ms,
            };
            (pool, Arc::clone(&it.provider))
        })
        .collect();
    if children.is_empty() {
        return;
    }
    process.spawn_late(|stop| async move {
        stop.cancelled().await;
        for (pool, provider) in &children {
            if let Err(error) = end_all(pool, provider.as_ref()).await {
                tracing::warn!(%error, pool = %pool.device_type, "workers could not be ended");
            }
        }
    });
}

/// Tells all machines of a pool to end, and waits until they have.
async fn end_all(
    pool: &sextant_provider::Pool,
    provider: &dyn Provider,
) -> Result<(), sextant_provider::Error> {
    let patience = Duration::from_millis(pool.end_ms) + LOOK;
    let begun = Instant::now();
    let machines = provider.list(pool).await?;
    let ids: Vec<_> = machines.into_iter().map(|machine| machine.id).collect();
    provider.end(pool, &ids).await?;
    while begun.elapsed() < patience && !provider.list(pool).await?.is_empty() {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
