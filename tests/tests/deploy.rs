//! The descriptions of a fleet agree with the service.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::json;
use sextant_tests::{digits, root};

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Everything in `text` that looks like the variable of a setting.
fn variables(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    let settings = words.filter(|word| word.starts_with("SEXTANT_"));
    settings.map(str::to_owned).collect()
}

#[test]
fn the_variables_of_the_images_are_settings() {
    let known = variables(&text("docs/config.md"));
    let known_elsewhere = [
        "SEXTANT_IMAGE",
        "SEXTANT_PORT",
        "SEXTANT_GPU_IMAGE",
        "SEXTANT_CONFIG",
        "SEXTANT_SERVER",
        "SEXTANT_CUDA_LIBRARIES",
    ];
    let files = [
        "Dockerfile",
        "docker-compose.yml",
        "deploy/compose/autoscale.yml",
        "docs/fleet.md",
        "docs/security.md",
        "deploy/helm/sextant/templates/_environment.tpl",
        "deploy/helm/sextant/templates/NOTES.txt",
        "deploy/helm/sextant/values.yaml",
    ];
    for file in files {
        for variable in variables(&text(file)) {
            let is_known = known.contains(&variable)
                || known_elsewhere.contains(&variable.as_str())
                || variable == "SEXTANT_API_KEY"
                || variable == "SEXTANT_CA";
            assert!(is_known, "`{variable}` in {file} is not a setting");
        }
    }
}

#[test]
fn the_images_hold_the_libraries_that_the_engines_were_tested_with() {
    for (name, file, before) in [
        ("ONNXRUNTIME", "onnxruntime", "const VERSION: &str = \""),
        ("OPENVINO", "openvino", "const VERSION: &str = \""),
        // The first of several: the image has CUDA 12.
        ("NVRTC", "nvrtc", "version: \""),
    ] {
        let pinned = text(&format!("xtask/src/provision/{file}.rs"));
        let version = pinned.split(before).nth(1);
        let version = version
            .and_then(|rest| rest.split('"').next())
            .expect("a version");
        let argument = format!("ARG {name}_VERSION={version}\n");
        assert!(text("Dockerfile").contains(&argument), "{argument}");
    }
}

/// Without the second role nothing measures the models that are registered on a GPU.
#[test]
fn workers_with_gpus_make_the_variants_for_them() {
    let compose = text("docker-compose.yml");
    let service = compose.split("\n  worker-gpu:\n").nth(1);
    let service = service.and_then(|rest| rest.split("\n\n").next());
    let service = service.expect("a service");
    for wanted in [
        r#"command: ["serve", "--role", "worker,variant-gen"]"#,
        "target: gpu",
        "capabilities: [gpu]",
        r#"SEXTANT_VARIANTS__REGISTER: "false""#,
    ] {
        assert!(service.contains(wanted), "{wanted}");
    }
    let chart = text("deploy/helm/sextant/templates/deployments.yaml");
    let roles = r#""roles" "worker,variant-gen" "name" "worker-gpu""#;
    assert!(chart.contains(roles), "{chart}");
    let values = text("deploy/helm/sextant/values.yaml");
    let gpu = values.split("\nworkerGpu:\n").nth(1).expect("values");
    for wanted in ["register: false", "nvidia.com/gpu: 1", "devices: cuda"] {
        assert!(gpu.contains(wanted), "{wanted}");
    }
}

/// A chart reads no file outside its folder.
#[test]
fn the_chart_has_the_alerts_of_prometheus() {
    let rules = text("deploy/prometheus/rules.yml");
    assert_eq!(text("deploy/helm/sextant/files/alerts.yml"), rules);
    for alert in [
        "NoWorkers",
        "NoLeader",
        "StoreAway",
        "TargetDown",
        "TargetsMissed",
    ] {
        assert!(rules.contains(&format!("- alert: {alert}\n")), "{alert}");
    }
    // Whose name the alert of targets asks for.
    let job = r#"up{job="sextant"}"#;
    assert!(rules.contains(job));
    assert!(text("deploy/prometheus/prometheus.yml").contains("job_name: sextant\n"));
    let monitor = text("deploy/helm/sextant/templates/monitoring.yaml");
    assert!(monitor.contains("targetLabel: job, replacement: sextant"));
}

#[test]
fn alerts_ring_when_they_should() {
    let tested = Command::new("promtool")
        .args(["test", "rules"])
        .arg(root().join("deploy/prometheus/rules_test.yml"))
        .output();
    let tested = tested.expect("`promtool` is there: Debian's package `prometheus` has it");
    let said = [tested.stdout, tested.stderr].concat();
    assert!(
        tested.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// The services of the Compose file: their names and what is said of each.
fn services() -> Vec<(String, String)> {
    let compose = text("docker-compose.yml");
    let services = compose.split("\nservices:\n").nth(1).expect("services");
    let services = services.split("\nvolumes:\n").next().expect("services");
    let mut found: Vec<(String, String)> = Vec::new();
    for line in services.lines() {
        let name = line
            .strip_prefix("  ")
            .and_then(|line| line.strip_suffix(':'));
        match name.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
            Some(name) => found.push((name.to_owned(), String::new())),
            None => found.last_mut().expect("a service").1 += &format!("{line}\n"),
        }
    }
    found
}

/// What a service says itself and takes over from above.
fn whole(of: &str) -> String {
    let compose = text("docker-compose.yml");
    let shared = compose
        .split("\nservices:\n")
        .next()
        .expect("what services share");
    let part = |name: &str| {
        let part = shared.split(&format!("\nx-{name}: &{name}\n")).nth(1);
        let part = part.and_then(|rest| rest.split("\nx-").next());
        part.expect("a shared part").to_owned()
    };
    let mut whole = of.to_owned();
    for name in ["sextant", "bounded"] {
        if whole.contains(&format!("<<: *{name}\n")) {
            whole += &part(name);
        }
    }
    whole
}

#[test]
fn every_container_has_bounds_and_no_capabilities() {
    let services = services();
    assert!(services.len() > 9, "{services:?}");
    for (name, text) in services {
        let whole = whole(&text);
        for wanted in [
            "cap_drop: [ALL]",
            "no-new-privileges:true",
            "mem_limit: ${",
            "cpus: ${",
            "pids_limit: ${",
            "max-size: ",
        ] {
            assert!(whole.contains(wanted), "{name} has no `{wanted}`");
        }
        // Caches of models go with their containers; Grafana's image has not been tried so.
        let writes = [
            "dispatcher",
            "dispatcher-standby",
            "worker",
            "worker-gpu",
            "grafana",
        ];
        let is_read_only = whole.contains("read_only: true");
        assert_ne!(writes.contains(&name.as_str()), is_read_only, "{name}");
    }
}

/// What is released can do what the documents say, and what the tests compile is what is released.
#[test]
fn every_feature_ships_and_is_tested() {
    let manifest = text("server/Cargo.toml");
    let features = manifest.split("\n[features]\n").nth(1);
    let features = features.and_then(|rest| rest.split("\n[").next());
    let lines = features.expect("features").lines();
    let names = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let mut names: BTreeSet<&str> = names.filter_map(|line| line.split(" = ").next()).collect();
    assert!(names.remove("default"), "{names:?}");
    let default = manifest.split("\ndefault = [").nth(1);
    let default = default.and_then(|rest| rest.split(']').next());
    let default = default.expect("default features").split(',');
    let default: BTreeSet<&str> = default.map(|name| name.trim().trim_matches('"')).collect();
    assert_eq!(default, names);
    let dockerfile = text("Dockerfile");
    let build = dockerfile.lines().find(|line| line.contains("cargo build"));
    let build = build.expect("a build");
    assert!(build.contains("--package sextant"), "{build}");
    assert!(!build.contains("features"), "{build}");
    let checks = text("xtask/src/checks.rs");
    for step in [
        r#"command.arg("--workspace")"#,
        "clippy --workspace --all-targets",
    ] {
        assert!(checks.contains(step), "{step}");
    }
}

/// The autoscaler takes for its own what is labelled as its fleet's.
#[test]
fn fleets_that_start_containers_have_names_of_their_own() {
    let scaled = text("deploy/compose/autoscale.yml");
    for (name, text) in services() {
        if text.contains("\"serve\", \"--role\"") {
            let named = [format!("\n  {name}: *fleet\n"), format!("\n  {name}:\n")];
            assert!(named.iter().any(|it| scaled.contains(it)), "{name}");
        }
    }
    for wanted in [
        "SEXTANT_FLEET__NAME: ${COMPOSE_PROJECT_NAME}",
        "replicas: 0",
        "ROOT ON THIS MACHINE",
    ] {
        assert!(scaled.contains(wanted), "{wanted}");
    }
}

#[test]
fn prometheus_looks_for_every_service_that_plays_a_role() {
    let watched = text("deploy/prometheus/prometheus.yml");
    let services = services();
    let playing = services
        .iter()
        .filter(|(_, text)| text.contains("\"serve\", \"--role\""));
    let playing: Vec<&str> = playing.map(|(name, _)| name.as_str()).collect();
    assert!(playing.len() > 5, "{playing:?}");
    for name in playing {
        assert!(watched.contains(&format!("- {name}\n")), "{name}");
    }
}

#[test]
fn what_is_published_stays_on_the_machine_and_can_move() {
    let mut published = 0;
    for (name, text) in services() {
        for line in text.lines().filter(|line| line.contains("ports: ")) {
            published += 1;
            assert!(line.contains("\"127.0.0.1:${"), "{name}: {line}");
        }
    }
    assert_eq!(published, 3);
}

/// A registry that has an image of the same name would be asked for it before ours is built.
#[test]
fn nobody_pulls_the_image_that_is_built_here() {
    let compose = text("docker-compose.yml");
    let shared = compose
        .split("\nservices:\n")
        .next()
        .expect("what services share");
    assert!(shared.contains("\n  pull_policy: never\n"), "{shared}");
    for (name, text) in services() {
        let is_built = text.contains("    build: ");
        assert_eq!(text.contains("pull_policy: missing"), is_built, "{name}");
    }
}

/// While PostgreSQL makes its database, a server answers on the socket alone and then ends.
#[test]
fn postgres_is_healthy_once_others_reach_it() {
    let services = services();
    let (_, postgres) = services
        .iter()
        .find(|(name, _)| name == "postgres")
        .expect("a service");
    assert!(
        postgres.contains("pg_isready --host 127.0.0.1 "),
        "{postgres}"
    );
}

/// A volume without a name stays behind, with all models that were cached in it, for each container that goes.
#[test]
fn containers_leave_no_volumes_behind() {
    assert!(!text("Dockerfile").contains("\nVOLUME"));
    let services = services();
    let (_, keeper) = services
        .iter()
        .find(|(name, _)| name == "variant-gen")
        .expect("a service");
    assert!(keeper.contains("variant-gen:/var/lib/sextant"), "{keeper}");
}

/// A `syntax` line has BuildKit fetch a front end from Docker Hub before anything else; `rust-toolchain.toml`
/// has rustup fetch lints and a formatter that a build does not need.
#[test]
fn the_image_is_built_without_fetching_tools() {
    assert!(!text("Dockerfile").contains("# syntax="));
    assert!(
        text(".dockerignore")
            .lines()
            .any(|line| line == "rust-toolchain.toml")
    );
}

#[tokio::test]
async fn the_dashboard_shows_metrics_that_exist() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    // A metric is shown once there is something to show.
    let inputs = digits::Images::load("test").input(0);
    let query = json!({"application": "digits", "inputs": inputs});
    api.post("/v1/queries", &query).await.json(200);
    let nobody = json!({"application": "nobody", "inputs": inputs});
    api.post("/v1/queries", &nobody)
        .await
        .problem(404, "application_not_found");
    let metrics = api.get("/metrics").await.text();
    let shown = [
        text("deploy/grafana/dashboards/sextant.json"),
        text("deploy/prometheus/rules.yml"),
    ];
    for word in shown
        .join(" ")
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
    {
        let Some(name) = word.strip_prefix("sextant_") else {
            continue;
        };
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        assert!(
            metrics.contains(&format!("# TYPE sextant_{name} ")),
            "no metric `sextant_{name}`"
        );
    }
}
