//! The table of fields knows every key of the structs, and no other.

use super::*;

#[test]
fn the_table_of_fields_matches_the_structs() {
    let remote = Remote {
        url: Some("http://localhost:1".to_owned()),
        folder: Some("runtime".into()),
        ..Remote::default()
    };
    let price = DevicePrice {
        hour_usd: Some(1.0),
        ..DevicePrice::default()
    };
    let pool = Pool {
        cores: Some(1),
        total_memory_bytes: Some(1 << 30),
        network: Some("network".to_owned()),
        alias: Some("worker".to_owned()),
        registers: Some(true),
        workload: Some("deployment/worker".to_owned()),
        ..Pool::default()
    };
    let all = Config {
        onnxruntime_library: Some("lib.so".into()),
        openvino_library: Some("libopenvino_c.so".into()),
        metadata: Metadata {
            url: Some("redis://host".to_owned()),
            ..Metadata::default()
        },
        registry: Registry {
            url: Some("postgres://host/database".to_owned()),
            ..Registry::default()
        },
        objects: Objects {
            url: Some("s3://bucket".to_owned()),
            endpoint: Some("http://host".to_owned()),
            region: Some("region".to_owned()),
            path_style: Some(true),
            ..Objects::default()
        },
        fleet: every_fleet_setting(),
        auth: Auth {
            mode: Some(AuthMode::Keys),
            admin_key: Some("key".to_owned()),
            max_concurrent_per_key: Some(1),
            ..Auth::default()
        },
        tls: Tls {
            certificate: Some("tls.crt".into()),
            key: Some("tls.key".into()),
            client_ca: Some("ca.crt".into()),
        },
        jobs: Jobs {
            webhook_secret: Some("secret".to_owned()),
            ..Jobs::default()
        },
        limits: Limits {
            storage_bytes: Some(1),
            ..Limits::default()
        },
        worker: Worker {
            remote: [("name".to_owned(), remote)].into(),
            cuda: Cuda {
                device_type: Some(device_type("gpu")),
                pages: Some(1),
                ..Cuda::default()
            },
            emulated: Emulated {
                types: [(device_type("name"), EmulatedType::default())].into(),
                ..Emulated::default()
            },
            ..Worker::default()
        },
        variants: Variants {
            budget_s: Some(60),
            ..Variants::default()
        },
        prices: Prices {
            devices: [(device_type("name"), price)].into(),
            ..Prices::default()
        },
        pipelines: Pipelines {
            python: Python {
                packages: Some("packages".into()),
                ..Python::default()
            },
        },
        cors: Cors {
            origins: vec!["https://app.example.com".to_owned()],
        },
        grpc: Grpc {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 8001))),
        },
        autoscaler: Autoscaler {
            budget_per_hour_usd: Some(1.0),
            cold_start_s: Some(60.0),
            kubernetes_namespace: Some("namespace".to_owned()),
            keda_listen: Some(SocketAddr::from(([0, 0, 0, 0], 7071))),
            pools: [(device_type("name"), pool)].into(),
            ..Autoscaler::default()
        },
        dispatcher: Dispatcher {
            schedule: Schedule {
                applications: [(application("name"), Claims::default())].into(),
                ..Schedule::default()
            },
            ..Dispatcher::default()
        },
        ..Config::default()
    };
    let value = toml::Value::try_from(all.resolved()).expect("TOML");
    let mut serialised = Vec::new();
    keys("", &value, &mut serialised);
    let mut listed: Vec<String> = sections::SECTIONS
        .iter()
        .flat_map(|section| section.fields.iter().map(|field| section.key(field)))
        .collect();
    for key in &mut serialised {
        *key = key.replace(".applications.name.", ".applications.NAME.");
        for each in ["remote", "devices", "types", "pools"] {
            *key = key.replace(&format!(".{each}.name."), &format!(".{each}.NAME."));
        }
    }
    serialised.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, serialised);
}

pub(super) fn device_type(name: &str) -> DeviceTypeName {
    DeviceTypeName::new(name).expect("a name")
}

fn every_fleet_setting() -> Fleet {
    Fleet {
        listen: Some(SocketAddr::from(([0, 0, 0, 0], 7070))),
        advertise: Some("host:7070".to_owned()),
        certificate: Some("fleet.crt".into()),
        key: Some("fleet.key".into()),
        ca: Some("ca.crt".into()),
        server_name: Some("sextant".to_owned()),
        ..Fleet::default()
    }
}

/// The keys of everything in `value` that is not a table.
fn keys(outer: &str, value: &toml::Value, found: &mut Vec<String>) {
    let Some(table) = value.as_table() else {
        return found.push(outer.to_owned());
    };
    for (name, value) in table {
        let dot = if outer.is_empty() { "" } else { "." };
        keys(&format!("{outer}{dot}{name}"), value, found);
    }
}

pub(super) fn application(name: &str) -> sextant_types::ApplicationId {
    sextant_types::ApplicationId::new(name).expect("a name")
}
