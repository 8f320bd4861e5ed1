//! The processes that the Helm chart renders with encryption between roles, started on this machine.
//!
//! `tests/chart/encrypted.json` records what the chart renders, and `cargo xtask chart-test` keeps it true: the
//! environments of the Deployments, the Secrets that they mount, and the names of the certificates in these.

use std::{collections::BTreeMap, fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde::Deserialize;
use sextant_tests::root;
use tempfile::TempDir;

use super::*;

#[derive(Deserialize)]
struct Record {
    processes: Vec<Process>,
    certificates: Vec<Certificate>,
}

#[derive(Deserialize)]
struct Process {
    name: String,
    roles: Vec<String>,
    environment: BTreeMap<String, String>,
    /// Secrets by the folders in which a pod mounts them.
    secrets: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Certificate {
    secret: String,
    names: Vec<String>,
    usages: Vec<String>,
}

impl Record {
    fn read() -> Self {
        let file = root().join("tests/chart/encrypted.json");
        let text = fs::read(&file).expect("`SEXTANT_BLESS=1 cargo xtask chart-test` writes it");
        serde_json::from_slice(&text).expect("a record")
    }

    fn process(&self, name: &str) -> &Process {
        let found = self.processes.iter().find(|it| it.name == name);
        found.unwrap_or_else(|| panic!("no Deployment `{name}`"))
    }

    /// The Secrets as folders. One authority issues their certificates, as an issuer of the cluster does.
    fn secrets(&self) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::new(Vec::new()).expect("sound");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = authority.self_signed(&key).expect("signed").pem();
        let issuer = Issuer::new(authority, key);
        for certificate in &self.certificates {
            let secret = folder.path().join(&certificate.secret);
            fs::create_dir(&secret).expect("made");
            let write = |name: &str, text: &str| {
                fs::write(secret.join(name), text).expect("written");
            };
            let own = KeyPair::generate().expect("a key");
            let signed = certificate.params().signed_by(&own, &issuer);
            write("tls.crt", &signed.expect("signed").pem());
            write("tls.key", &own.serialize_pem());
            write("ca.crt", &ca);
        }
        folder
    }
}

impl Certificate {
    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::new(self.names.clone()).expect("sound names");
        let purposes = self.usages.iter().filter_map(|usage| match usage.as_str() {
            "client auth" => Some(ExtendedKeyUsagePurpose::ClientAuth),
            "server auth" => Some(ExtendedKeyUsagePurpose::ServerAuth),
            _ => None,
        });
        params.extended_key_usages = purposes.collect();
        params
    }
}

impl Process {
    /// The environment with Secrets as folders in `secrets`. Each process gets ports and devices of its own, because
    /// all run on one machine.
    fn environment(&self, secrets: &Path) -> Vec<(String, String)> {
        let settings = self.environment.iter();
        let settings = settings.filter(|(name, _)| {
            // The machine determines the addresses of the service. The clients' connections to `api` are not encrypted
            // here.
            let is_of_place = ["SEXTANT_LISTEN", "SEXTANT_FLEET__ADVERTISE"].contains(&&***name);
            name.starts_with("SEXTANT_") && !is_of_place && !name.starts_with("SEXTANT_TLS__")
        });
        let here = |(name, value): (&String, &String)| {
            let mut value = value.replace("0.0.0.0:7070", "127.0.0.1:0");
            if name == "SEXTANT_WORKER__DEVICES" {
                value = "cpu".to_owned();
            }
            for (mount, secret) in &self.secrets {
                if let Some(file) = value.strip_prefix(&format!("{mount}/")) {
                    value = secrets.join(secret).join(file).display().to_string();
                }
            }
            (name.clone(), value)
        };
        settings.map(here).collect()
    }

    fn start(&self, fleet: &mut Fleet, name: &str, secrets: &Path) {
        fleet.spawn_contained(name, &self.roles.join(","), &self.environment(secrets));
    }

    /// The same process with the Secrets of another one, and with a log level that shows why its peers refuse it.
    fn with_secrets_of(&self, other: &Self) -> Self {
        let mut environment = self.environment.clone();
        let level = "info,sextant_links=debug".to_owned();
        environment.insert("SEXTANT_LOG__LEVEL".to_owned(), level);
        Self {
            name: self.name.clone(),
            roles: self.roles.clone(),
            environment,
            secrets: other.secrets.clone(),
        }
    }
}

#[tokio::test]
async fn the_charts_encrypted_roles_reach_each_other_and_nobody_else_may_lead() {
    let record = Record::read();
    let secrets = record.secrets();
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    for process in &record.processes {
        process.start(&mut fleet, &process.name, secrets.path());
    }
    let api = fleet.api_of("sextant-api");
    until("the front end reaches the dispatcher", || async {
        let ready = api.get("/health/ready").await;
        ready.status.is_success().then_some(())
    })
    .await;
    learn(&api).await;
    let worker = &record.process("sextant-worker").environment["SEXTANT_WORKER__NAME"];
    loaded_on(&api, &[worker]).await;

    // A process that has the front end's certificate and reaches the stores may lead, but no process follows its
    // orders.
    fleet.stop("sextant-dispatcher");
    let stolen = record.process("sextant-dispatcher");
    let stolen = stolen.with_secrets_of(record.process("sextant-api"));
    stolen.start(&mut fleet, "impostor", secrets.path());
    until("the front end finds no dispatcher", || async {
        let ready = api.get("/health/ready").await;
        (ready.status.as_u16() == 503).then_some(())
    })
    .await;
    until("the impostor leads", || async {
        let metrics = fleet.api_of("impostor").get("/metrics").await.text();
        metrics
            .contains("sextant_dispatcher_leading 1")
            .then_some(())
    })
    .await;
    until("workers refuse its orders", || async {
        let log = fleet.log("impostor");
        log.contains("lacks the name `dispatcher.sextant`")
            .then_some(())
    })
    .await;
    let ready = api.get("/health/ready").await;
    ready.problem(503, "unavailable");
}
