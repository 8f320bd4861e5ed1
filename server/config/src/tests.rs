//! Precedence, unknown keys, refused values, and the generated page.

use std::{fs, net::SocketAddr, path::Path};

use sextant_health::Thresholds;

use super::{
    autoscaler::Autoscaler,
    fleet::{Auth, Fleet, Metadata, Objects, Registry, Tls},
    pipelines::{Pipelines, Python},
    schedule::{Claims, Dispatcher, Schedule},
    sections::{Cors, Grpc, Jobs, Variants},
    worker::{Emulated, EmulatedType, Worker},
    *,
};

mod devices;
mod table;

use table::{application, device_type};

fn with_file(text: &str) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sextant.toml");
    fs::write(&file, text).expect("the file is written");
    let sources = Sources {
        file: Some(file),
        ..Sources::default()
    };
    (folder, sources)
}

fn in_environment(name: &str, value: &str) -> Sources {
    Sources {
        environment: vec![(name.to_owned(), value.to_owned())],
        ..Sources::default()
    }
}

fn message(sources: &Sources) -> String {
    Config::load(sources).expect_err("refused").to_string()
}

#[test]
fn later_layers_win() {
    let text =
        "listen = '0.0.0.0:1'\n[worker]\ncores = 1\nname = 'a'\n[jobs]\npause_utilization = 0.8\n";
    let (_folder, mut sources) = with_file(text);
    sources.environment = vec![
        ("SEXTANT_LISTEN".to_owned(), "0.0.0.0:2".to_owned()),
        ("SEXTANT_WORKER__CORES".to_owned(), "2".to_owned()),
    ];
    sources.flags = vec![Flag {
        name: "--listen",
        key: "listen",
        value: "0.0.0.0:3".to_owned(),
    }];
    sources.set = vec!["worker.memory_bytes=3000000".to_owned()];
    let config = Config::load(&sources).expect("valid");
    assert_eq!(config.listen, SocketAddr::from(([0, 0, 0, 0], 3)));
    assert_eq!(config.worker_cores(), 2);
    assert_eq!(config.worker_name().as_str(), "a");
    assert_eq!(config.worker_memory_bytes(), 3_000_000);
    assert_eq!(config.jobs.pause_utilization, 0.8);
    assert_eq!(config.autoscaler.warm_memory_share, 0.5);
}

#[test]
fn nothing_set_is_the_default() {
    let config = Config::load(&Sources::default()).expect("valid");
    assert_eq!(config, Config::default());
    assert!(
        Role::ALL
            .into_iter()
            .all(|role| config.roles.contains(role))
    );
}

#[test]
fn resolving_fills_what_the_machine_decides() {
    let mut config = Config::default();
    config.worker.cores = Some(3);
    config.variants.max_threads = Some(16);
    let config = config.resolved();
    assert_eq!(config.variants.max_threads, Some(3));
    assert!(config.worker.memory_bytes.is_some() && config.runtime.threads.is_some());
}

#[test]
fn unknown_keys_name_the_nearest() {
    let (_folder, sources) = with_file("[worker]\ncore = 1\n");
    assert!(message(&sources).contains("did you mean `worker.cores`?"));
    let (_folder, sources) = with_file("[workers]\ncores = 1\n");
    assert!(message(&sources).contains("unknown key `[workers]`"));
    assert!(message(&sources).contains("did you mean `[worker]`?"));
    let sources = in_environment("SEXTANT_AUTOSCALER__PERIODMS", "5");
    assert!(message(&sources).contains("`SEXTANT_AUTOSCALER__PERIOD_MS`"));
    let sources = in_environment("SEXTANT_LISTN", "0.0.0.0:1");
    assert!(
        message(&sources)
            .contains("`SEXTANT_LISTN` in the environment: did you mean `SEXTANT_LISTEN`?")
    );
    let sources = Sources {
        set: vec!["jobs.pause_utilisation=1".to_owned()],
        ..Sources::default()
    };
    assert!(message(&sources).contains("did you mean `jobs.pause_utilization`?"));
}

#[test]
fn variables_of_container_platforms_are_ignored() {
    for name in [
        "SEXTANT_PORT",
        "SEXTANT_SERVICE_HOST",
        "SEXTANT_PORT_8080_TCP_ADDR",
    ] {
        let sources = in_environment(name, "tcp://10.0.0.1:8080");
        assert_eq!(Config::load(&sources).expect("valid"), Config::default());
    }
}

#[test]
fn empty_variables_set_nothing() {
    let (_folder, mut sources) = with_file("[registry]\nurl = 'postgres://host/database'\n");
    let variables = [
        "SEXTANT_AUTH__ADMIN_KEY",
        "SEXTANT_AUTH__MODE",
        "SEXTANT_FLEET__LISTEN",
        "SEXTANT_JOBS__WEBHOOK_SECRET",
        "SEXTANT_METADATA__URL",
        "SEXTANT_OBJECTS__ENDPOINT",
        "SEXTANT_REGISTRY__URL",
        "SEXTANT_TLS__CERTIFICATE",
        "SEXTANT_WORKER__CORES",
    ];
    sources.environment = variables
        .map(|name| (name.to_owned(), String::new()))
        .into();
    let config = Config::load(&sources).expect("valid");
    let url = config.registry.url.as_deref();
    assert_eq!(url, Some("postgres://host/database"));
    let unset = Config {
        registry: config.registry.clone(),
        ..Config::default()
    };
    assert_eq!(config, unset);
    // What has a value in any case is not emptied by chance.
    assert!(message(&in_environment("SEXTANT_LISTEN", "")).contains("`listen`"));
}

#[test]
fn errors_and_what_is_printed_show_no_secrets() {
    for text in [
        "[auth]\nadmin_key = 'hush",
        "[auth]\nadmin_key = ['hush']",
        "[metadata]\nurl = ['redis://:hush@host']",
        "[worker.remote.a]\nheaders = 'authorization: hush'",
        "[jobs]\nwebhook_secret = \"hush\" 1",
    ] {
        let (_folder, sources) = with_file(text);
        let text = message(&sources);
        assert!(!text.contains("hush"), "{text}");
    }
    let (_folder, sources) = with_file("listen = '127.0.0.1:1'\n[auth]\nadmin_key = hush\n");
    assert!(message(&sources).contains("line 3, column 13"));
    let text = "[auth]\nadmin_key = 'hush'\n[jobs]\nwebhook_secret = 'hush'\n\
        [metadata]\nurl = 'redis://:hush@host/1'\n\
        [registry]\nurl = 'postgres://host/database?user=a&password=hush'\n\
        [worker.remote.a]\nurl = 'http://a:hush@host'\nheaders = ['authorization: hush']\n\
        environment = ['TOKEN=hush']\n";
    let (_folder, sources) = with_file(text);
    let config = Config::load(&sources).expect("valid").resolved();
    let shown = toml::to_string(&config).expect("TOML");
    assert!(!shown.contains("hush"), "{shown}");
    for part in ["user=a&password=***", "authorization: ***", "TOKEN=***"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn an_unknown_role_lists_the_valid_ones() {
    let sources = in_environment("SEXTANT_ROLES", "api,gateway");
    let text = message(&sources);
    for role in Role::ALL {
        assert!(text.contains(&format!("`{role}`")), "{text}");
    }
    let sources = in_environment("SEXTANT_ROLES", "worker, api");
    let roles = Config::load(&sources).expect("valid").roles;
    assert!(roles.contains(Role::Api) && !roles.contains(Role::Autoscaler));
}

#[test]
fn localhost_is_an_address() {
    let expected: SocketAddr = "127.0.0.1:8095".parse().expect("an address");
    let sources = in_environment("SEXTANT_LISTEN", "localhost:8095");
    assert_eq!(Config::load(&sources).expect("valid").listen, expected);
    let (_folder, sources) =
        with_file("listen = 'localhost:8095'\n[fleet]\nlisten = 'localhost:1'\n");
    let config = Config::load(&sources).expect("valid");
    assert_eq!(config.listen, expected);
    assert_eq!(config.fleet.listen.map(|it| it.port()), Some(1));
}

#[test]
fn sizes_have_units() {
    let (_folder, mut sources) =
        with_file("[objects]\ncache_bytes = '16MB'\n[fleet]\ninline_bytes = 4096\n");
    sources.set = vec!["dispatcher.cache.max_bytes=1.5 GiB".to_owned()];
    let config = Config::load(&sources).expect("valid");
    assert_eq!(config.objects.cache_bytes, 16_000_000);
    assert_eq!(config.fleet.inline_bytes, 4096);
    assert_eq!(config.dispatcher.cache.max_bytes, 3 << 29);
}

#[test]
fn values_of_the_wrong_kind_or_range_are_refused() {
    for (name, value, part) in [
        (
            "SEXTANT_FLEET__INLINE_BYTES",
            "16 many",
            "must be a number of bytes (`16777216`, `16MiB`) from",
        ),
        (
            "SEXTANT_WORKER__CORES",
            "many",
            "must be a whole number from",
        ),
        ("SEXTANT_WORKER__CORES", "0", "from 1 to 65535"),
        ("SEXTANT_WORKER__CORES", "70000", "from 1 to 65535"),
        ("SEXTANT_JOBS__PAUSE_UTILIZATION", "1.5", "from 0 to 1"),
        ("SEXTANT_JOBS__PAUSE_UTILIZATION", "nan", "from 0 to 1"),
        ("SEXTANT_WORKER__NAME", "My Worker", "`a-z 0-9 - _ .`"),
        ("SEXTANT_LISTEN", "nowhere", "must be an address and port"),
        ("SEXTANT_LOG__FORMAT", "xml", "`json`"),
        ("SEXTANT_ROLES", "", "`api`"),
        ("SEXTANT_VARIANTS__ENGINES", "ort,tensorrt", "`rten`"),
        ("SEXTANT_PRICES__CORE_HOUR_USD", "inf", "at least 0"),
    ] {
        let text = message(&in_environment(name, value));
        assert!(text.contains(part) && text.contains(name), "{text}");
    }
    let (_folder, sources) = with_file("worker = 3\n");
    assert!(message(&sources).contains("[worker]"));
    let (_folder, sources) = with_file("[worker\n");
    assert!(message(&sources).contains("is not a valid configuration"));
}

#[test]
fn health_is_configured_and_left_below_the_level_at_which_it_is_entered() {
    let (_folder, mut sources) =
        with_file("[worker.health]\noverload_enter = 0.7\noverload_leave = 0.6\nenter_looks = 5\n");
    sources.set = vec!["worker.health.interfere_enter=3".to_owned()];
    let thresholds = Config::load(&sources)
        .expect("valid")
        .worker
        .health
        .thresholds();
    let expected = Thresholds {
        overload_enter: 0.7,
        overload_leave: 0.6,
        interfere_enter: 3.0,
        enter_windows: 5,
        ..Thresholds::default()
    };
    assert_eq!(thresholds, expected);
    for (key, value, upper) in [
        ("overload_leave", "0.95", "overload_enter"),
        ("interfere_leave", "2.5", "interfere_enter"),
    ] {
        let sources = Sources {
            set: vec![format!("worker.health.{key}={value}")],
            ..Sources::default()
        };
        let text = message(&sources);
        let parts = [key, value, upper];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains("must be less than"), "{text}");
    }
    // Each level alone would do with another one for the other.
    let lower = "SEXTANT_WORKER__HEALTH__OVERLOAD_ENTER";
    let text = message(&in_environment(lower, "0.5"));
    assert!(
        text.contains("`worker.health.overload_leave` is `0.8`"),
        "{text}"
    );
    let text = message(&in_environment(lower, "1.5"));
    assert!(text.contains("from 0.01 to 1"), "{text}");
}

#[test]
fn scheduling_is_set_by_file_environment_and_flag() {
    let text = "[dispatcher.schedule]\nhold = 0.25\ncontrol_delay_us = 100\n\
        [dispatcher.schedule.applications.fraud]\npriority = 200\n\
        [dispatcher.schedule.applications.'my.app']\nweight = 2\n";
    let (_folder, mut sources) = with_file(text);
    sources.environment = vec![(
        "SEXTANT_DISPATCHER__SCHEDULE__HOLD".to_owned(),
        "0.5".to_owned(),
    )];
    sources.set = vec![
        "dispatcher.schedule.applications.my.app.priority=7".to_owned(),
        "dispatcher.schedule.response_delay_us=20".to_owned(),
    ];
    let schedule = Config::load(&sources).expect("valid").dispatcher.schedule;
    let options = schedule.options();
    assert_eq!(options.hold, 0.5);
    assert_eq!(
        (options.delay.control, options.delay.response),
        (100_000, 20_000)
    );
    let tenants = schedule.tenants();
    let of = |name| {
        (
            tenants[&application(name)].priority,
            tenants[&application(name)].weight,
        )
    };
    assert_eq!((of("fraud"), of("my.app")), ((200, 1.0), (7, 2.0)));
}

#[test]
fn nothing_set_answers_as_soon_as_possible() {
    assert_eq!(Config::default().dispatcher.schedule.options().hold, 0.0);
}

#[test]
fn settings_that_there_were_are_refused_with_what_to_do() {
    let (_folder, file) = with_file("[dispatcher.schedule]\npolicy = 'eager'\n");
    let flag = Sources {
        set: vec!["dispatcher.schedule.batch_sizes=1,2".to_owned()],
        ..Sources::default()
    };
    let variable = Sources {
        environment: vec![(
            "SEXTANT_DISPATCHER__SCHEDULE__EPOCH_MS".to_owned(),
            "5".to_owned(),
        )],
        ..Sources::default()
    };
    for (sources, key) in [
        (file, "dispatcher.schedule.policy"),
        (flag, "dispatcher.schedule.batch_sizes"),
        (variable, "SEXTANT_DISPATCHER__SCHEDULE__EPOCH_MS"),
    ] {
        let text = message(&sources);
        assert!(text.contains(&format!("`{key}`")), "{text}");
        assert!(
            text.contains("remove it") && text.contains("sextant-lab"),
            "{text}"
        );
    }
    let planner = Sources {
        set: vec!["autoscaler.policy=infaas".to_owned()],
        ..Sources::default()
    };
    assert!(message(&planner).contains("`sextant`, `ilp`"));
}

#[test]
fn what_scheduling_does_not_know_is_refused_with_key_and_value() {
    for (pair, parts) in [
        ("hold=1.5", &["`1.5`", "from 0 to 1"][..]),
        (
            "run_times=profil",
            &["`\"profil\"`", "did you mean `profile`?"],
        ),
        ("applications.a.priority=256", &["`256`", "from 0 to 255"]),
        ("applications.a.weight=nan", &["`nan`", "0.001"]),
    ] {
        let sources = Sources {
            set: vec![format!("dispatcher.schedule.{pair}")],
            ..Sources::default()
        };
        let text = message(&sources);
        let key = pair.split('=').next().expect("a key");
        assert!(
            text.contains(&format!("`dispatcher.schedule.{key}`")),
            "{text}"
        );
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    let (_folder, sources) = with_file("[dispatcher.schedule.applications.a]\npriorty = 1\n");
    let text = message(&sources);
    assert!(
        text.contains("did you mean `dispatcher.schedule.applications.NAME.priority`?"),
        "{text}"
    );
    let (_folder, sources) = with_file("[dispatcher]\nschedule = 3\n");
    assert!(message(&sources).contains("[dispatcher.schedule]"));
    let (_folder, sources) = with_file("[dispatcher.schedule.applications]\na = 3\n");
    assert!(message(&sources).contains("[dispatcher.schedule.applications.a]"));
}

#[test]
fn the_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let page = docs::render();
    if std::env::var_os("SEXTANT_BLESS").is_some() {
        fs::write(&path, &page).expect("the page is written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/config.md differs from the structs: SEXTANT_BLESS=1 rewrites it"
    );
}
