use sextant_config::Sources;
use sextant_types::Prices;

use super::*;

/// A fleet with a pool of containers, as a file of the autoscaler says it.
const FILE: &str = "
listen = '127.0.0.1:0'
[metadata]
url = 'redis://user:secret@redis:6379/0'
[registry]
url = 'postgres://user:hidden@postgres/sextant'
[objects]
url = 's3://models/here'
endpoint = 'http://s3:9000'
[auth]
admin_key = 'hidden'
[fleet]
name = 'ours'
listen = '0.0.0.0:7070'
advertise = 'autoscaler:7070'
certificate = '/run/tls/tls.crt'
key = '/run/tls/tls.key'
ca = '/run/tls/ca.crt'
server_name = 'sextant.example'
[worker]
cores = 7
pin = [1, 2]
[prices]
core_hour_usd = 0.02
[prices.devices.cpu-8]
hour_usd = 0.384
start_s = 5
[autoscaler.pools.cpu-8]
provider = 'docker'
image = 'sextant:test'
network = 'fleet'
alias = 'worker'
labels = ['team=vision']
settings = ['limits.drain_timeout_ms=1234']
cores = 8
total_memory_bytes = 4294967296
";

fn config(set: &[&str]) -> Config {
    let set: Vec<String> = set.iter().map(|pair| (*pair).to_owned()).collect();
    Config::read(FILE, "the test", &set).expect("valid")
}

fn made(config: &Config) -> anyhow::Result<Template> {
    let (name, pool) = config.autoscaler.pools.first_key_value().expect("a pool");
    template(config, name, pool)
}

/// What a container reads that is made from this template: its file from a disk, its flags from its command.
fn read(template: &Template) -> Config {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("worker.toml");
    let Content::Text(text) = &template.files["/etc/sextant/worker.toml"] else {
        panic!("no text: {template:?}");
    };
    std::fs::write(&file, text).expect("written");
    let pairs = template.command.iter().zip(template.command.iter().skip(1));
    let set = pairs.filter(|(flag, _)| *flag == "--set");
    let sources = Sources {
        file: Some(file),
        set: set
            .map(|(_, pair)| pair.replace("{name}", "cpu-8-01"))
            .collect(),
        ..Sources::default()
    };
    Config::load(&sources).expect("a worker reads it")
}

#[test]
fn workers_have_the_type_and_the_prices_of_their_pool() {
    let template = made(&config(&[])).expect("a template");
    let worker = read(&template);
    let name = worker.device_type();
    assert_eq!(name.as_str(), "cpu-8");
    assert_eq!(worker.worker_name().as_str(), "cpu-8-01");
    let prices = Prices::from(worker.prices.clone());
    assert_eq!(prices.processor(&name, 8, 1 << 30).0, 0.384);
    assert_eq!(prices.start_ms(&name), 5000);
    assert_eq!(worker.prices.core_hour_usd, 0.02);
    assert_eq!(worker.limits.drain_timeout_ms, 1234);
}

#[test]
fn workers_join_the_fleet_and_can_be_watched() {
    let template = made(&config(&[])).expect("a template");
    let worker = read(&template);
    assert_eq!(worker.listen, everywhere(8080));
    assert_eq!(worker.fleet.listen, Some(everywhere(7070)));
    assert_eq!(worker.fleet.advertise, None);
    assert_eq!(
        worker.auth.mode,
        Some(AuthMode::Keys),
        "it may listen there"
    );
    assert_eq!(worker.fleet.name, "ours");
    assert_eq!(worker.fleet.server_name.as_deref(), Some("sextant.example"));
    assert_eq!(
        worker.metadata.url.as_deref(),
        Some("redis://user:secret@redis:6379/0")
    );
    assert_eq!(worker.objects.endpoint.as_deref(), Some("http://s3:9000"));
    let files = [
        (&worker.fleet.certificate, "/run/tls/tls.crt"),
        (&worker.fleet.key, "/run/tls/tls.key"),
        (&worker.fleet.ca, "/run/tls/ca.crt"),
    ];
    for (there, here) in files {
        let there = there.as_deref().and_then(|it| it.to_str()).expect("a path");
        assert_eq!(template.files[there], Content::Of(here.into()), "{there}");
    }
    assert_eq!(template.aliases, ["worker"]);
    assert_eq!(template.labels["team"], "vision");
}

/// The worker asks its own machine, which is the container.
#[test]
fn workers_have_what_their_container_has() {
    let template = made(&config(&[])).expect("a template");
    let worker = read(&template).worker;
    assert_eq!((worker.cores, worker.pin), (Some(8), Vec::new()));
    assert_eq!(worker.memory_bytes, Some(2 << 30));
    let limits = Limits {
        cores: Some(8),
        memory_bytes: Some(4 << 30),
        threads: Some(4096),
    };
    assert_eq!(template.limits, limits);
}

#[test]
fn workers_are_not_told_what_they_do_not_need() {
    let template = made(&config(&[])).expect("a template");
    let text = format!("{template:?}");
    assert!(
        text.contains("secret") && !text.contains("hidden"),
        "{text}"
    );
}

#[test]
fn what_workers_would_refuse_is_refused_before_any_is_started() {
    let refused = |set: &[&str]| format!("{:#}", made(&config(set)).expect_err("refused"));
    let misspelt = refused(&["autoscaler.pools.cpu-8.settings=worker.coers=2"]);
    assert!(misspelt.contains("`autoscaler.pools.cpu-8`"), "{misspelt}");
    assert!(
        misspelt.contains("worker.cores"),
        "names the nearest: {misspelt}"
    );
    let folder = refused(&["objects.url=file:///models"]);
    assert!(folder.contains("set `objects.url` to a bucket"), "{folder}");
    let label = refused(&["autoscaler.pools.cpu-8.labels=team"]);
    assert!(label.contains("`name=value`"), "{label}");
}
