//! Values as users write them, the expected results, and values that are refused.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::manifests::{Manifests, items, text};

/// A file of values; together the cases render every branch of the templates. It is a file because Helm reads its
/// numbers differently from those of `--set`.
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    /// The file's content.
    pub values: &'static str,
    /// Checks of the result, besides those that hold for every case.
    pub expect: fn(&Manifests) -> Result<()>,
    /// Whether a test starts these processes.
    pub is_recorded: bool,
}

macro_rules! case {
    ($name:literal, $expect:expr) => {
        Case {
            name: $name,
            values: include_str!(concat!("values/", $name, ".yaml")),
            expect: $expect,
            is_recorded: false,
        }
    };
}

/// All cases.
pub const CASES: &[Case] = &[
    case!("defaults", defaults),
    case!("scaled", scaled),
    case!("scaled-by-keda", scaled_by_keda),
    Case {
        is_recorded: true,
        ..case!("encrypted", encrypted)
    },
    case!("encrypted-by-hand", encrypted_by_hand),
    case!("numbers", numbers),
    case!("placed", placed),
];

/// Values that are refused, and a part of the message.
pub const REFUSED: &[(&str, &str)] = &[
    ("fleetTls: { secret: fleet-tls }", "'secret' not allowed"),
    (
        "settings: { SEXTANT_LOG: { LEVEL: debug } }",
        "/settings/SEXTANT_LOG",
    ),
    ("worker: { diskSize: 16Q }", "`16Q` is no size"),
    ("worker: { cacheSize: 16Gi }", "'cacheSize' not allowed"),
    (
        "autoscaler: { pools: { a: {}, b: {} } }",
        "`a` and `b` are both",
    ),
    (
        "autoscaler: { pools: { a: { workload: job/a } } }",
        "neither `deployment/NAME` nor",
    ),
];

/// Values, and parts of the notes after an installation with them.
pub const NOTES: &[(&[&str], &[&str])] = &[
    (
        &[],
        &[
            "nobody can do anything",
            "sextant key create",
            "No registry is named",
            "not encrypted",
        ],
    ),
    (
        &[
            "auth.mode=off",
            "fleetTls.enabled=true",
            "image.repository=r.example/sextant",
        ],
        &[
            "Everybody who reaches the Service",
            "sextant-fleet-dispatcher",
        ],
    ),
];

impl Case {
    /// The path of its values.
    pub fn file(&self) -> String {
        format!("xtask/src/chart_test/values/{}.yaml", self.name)
    }
}

fn defaults(manifests: &Manifests) -> Result<()> {
    ensure!(
        manifests.deployment("worker-gpu").is_err(),
        "a Deployment without pods"
    );
    let budgets = manifests.of_kind("PodDisruptionBudget").count();
    ensure!(budgets == 3, "{budgets} budgets of disruption");
    ensure!(
        manifests.of_kind("Role").count() == 0,
        "a Role that nobody needs"
    );
    for deployment in manifests.deployments() {
        ensure!(
            deployment.pod()["automountServiceAccountToken"] == false,
            "a token"
        );
        let spread = &deployment.pod()["topologySpreadConstraints"][0];
        ensure!(spread["whenUnsatisfiable"] == "ScheduleAnyway", "{spread}");
    }
    Ok(())
}

fn scaled(manifests: &Manifests) -> Result<()> {
    for component in ["worker", "worker-gpu"] {
        let deployment = manifests.deployment(component)?;
        let replicas = &deployment.0["spec"]["replicas"];
        ensure!(
            replicas.is_null(),
            "`{component}` has {replicas} replicas at every upgrade"
        );
    }
    let device = |component: &str, variable| -> Result<_> {
        Ok(manifests.deployment(component)?.variable(variable))
    };
    ensure!(
        device("worker", "SEXTANT_WORKER__DEVICE_TYPE")? == Some("cpu-2"),
        "another type"
    );
    let gpu = device("worker-gpu", "SEXTANT_WORKER__CUDA__DEVICE_TYPE")?;
    ensure!(gpu == Some("nvidia-h200"), "{gpu:?}");
    let autoscaler = manifests.deployment("autoscaler")?;
    for wanted in [
        "autoscaler.pools.cpu-2.provider=kubernetes",
        "autoscaler.pools.cpu-2.workload=deployment/sextant-worker",
        "autoscaler.pools.cpu-2.most=10",
        "autoscaler.pools.cpu-8.workload=statefulset/large",
        "autoscaler.pools.cpu-8.engines=ort,openvino",
        "autoscaler.pools.cpu-8.memory_bytes=34359738368",
        "autoscaler.pools.nvidia-h200.provider=keda",
    ] {
        ensure!(
            autoscaler.arguments().contains(&wanted),
            "`{wanted}` is missing"
        );
    }
    ensure!(
        autoscaler.pod()["serviceAccountName"] == "sextant-autoscaler",
        "no account"
    );
    ensure!(
        autoscaler.pod()["automountServiceAccountToken"] == true,
        "no token"
    );
    let rules = &manifests.named("Role", "sextant-autoscaler")?["rules"];
    let scales = |resource: &str, name: &str| {
        let verbs = json!(["get", "patch"]);
        items(rules).any(|rule| {
            rule["resources"] == json!([resource])
                && rule["resourceNames"] == json!([name])
                && rule["verbs"] == verbs
        })
    };
    ensure!(scales("deployments/scale", "sextant-worker"), "{rules}");
    ensure!(scales("statefulsets/scale", "large"), "{rules}");
    manifests.named("PodDisruptionBudget", "sextant-worker-gpu")?;
    let object = manifests.named("ScaledObject", "sextant-nvidia-h200")?;
    let address = &object["spec"]["triggers"][0]["metadata"]["scalerAddress"];
    ensure!(address == "sextant-keda.default:7071", "{address}");
    answers_keda(
        manifests,
        &json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}]),
    )
}

fn scaled_by_keda(manifests: &Manifests) -> Result<()> {
    ensure!(
        manifests.of_kind("ScaledObject").count() == 0,
        "a ScaledObject"
    );
    ensure!(
        manifests.of_kind("Role").count() == 0,
        "a Role that nobody needs"
    );
    let autoscaler = manifests.deployment("autoscaler")?;
    ensure!(
        autoscaler.pod()["automountServiceAccountToken"] == false,
        "a token"
    );
    answers_keda(manifests, &Value::Null)
}

/// Checks that KEDA reaches the port of the autoscalers.
fn answers_keda(manifests: &Manifests, from: &Value) -> Result<()> {
    let autoscaler = manifests.deployment("autoscaler")?;
    ensure!(autoscaler.port("keda") == Some(7071), "no port for KEDA");
    let listens = autoscaler.variable("SEXTANT_AUTOSCALER__KEDA_LISTEN");
    ensure!(listens == Some("0.0.0.0:7071"), "{listens:?}");
    manifests.named("Service", "sextant-keda")?;
    let policy = manifests.named("NetworkPolicy", "sextant")?;
    let rule =
        items(&policy["spec"]["ingress"]).find(|it| it["ports"] == json!([{"port": "keda"}]));
    let rule = rule.context("the NetworkPolicy lets KEDA in nowhere")?;
    ensure!(rule["from"] == *from, "{rule}");
    Ok(())
}

fn encrypted(manifests: &Manifests) -> Result<()> {
    ensure!(
        manifests.of_kind("Certificate").count() == 4,
        "not one for each Deployment"
    );
    let names = |name: &str| -> Result<&Value> {
        Ok(&manifests.named("Certificate", name)?["spec"]["dnsNames"])
    };
    ensure!(
        *names("sextant-fleet-api")? == json!(["api.sextant"]),
        "of the front end"
    );
    let dispatcher = names("sextant-fleet-dispatcher")?;
    ensure!(
        *dispatcher == json!(["fleet.sextant", "dispatcher.sextant"]),
        "{dispatcher}"
    );
    for component in ["api", "dispatcher", "worker", "worker-gpu"] {
        let deployment = manifests.deployment(component)?;
        let name = deployment.variable("SEXTANT_FLEET__SERVER_NAME");
        ensure!(
            name == Some("fleet.sextant"),
            "`{component}` checks addresses of pods"
        );
        let roles = deployment.variable("SEXTANT_FLEET__ROLE_NAMES");
        ensure!(
            roles == Some("true"),
            "`{component}` does not ask for roles"
        );
    }
    let api = manifests.deployment("api")?;
    ensure!(
        api.container()["livenessProbe"]["httpGet"]["scheme"] == "HTTPS",
        "a probe"
    );
    let scheme = &api.0["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scheme"];
    ensure!(scheme == "https", "metrics are read by {scheme}");
    Ok(())
}

fn encrypted_by_hand(manifests: &Manifests) -> Result<()> {
    ensure!(
        manifests.of_kind("Certificate").count() == 0,
        "certificates"
    );
    let secret = |component: &str| -> Result<&str> {
        let deployment = manifests.deployment(component)?;
        Ok(text(
            &deployment.volume("fleet-tls")["secret"]["secretName"],
        ))
    };
    ensure!(
        secret("api")? == "front" && secret("dispatcher")? == "lead",
        "other Secrets"
    );
    let name = manifests
        .deployment("worker")?
        .variable("SEXTANT_FLEET__SERVER_NAME");
    ensure!(name == Some("inside.example"), "{name:?}");
    Ok(())
}

fn numbers(manifests: &Manifests) -> Result<()> {
    let worker = manifests.deployment("worker")?;
    for (variable, wanted) in [
        ("SEXTANT_WORKER__MEMORY_BYTES", "8589934592"),
        ("SEXTANT_LIMITS__MAX_MODEL_BYTES", "9007199254740991"),
        ("SEXTANT_METADATA__HISTORY", "1000000"),
        ("SEXTANT_FLEET__INLINE_BYTES", "0"),
        ("SEXTANT_WORKER__STUCK_FACTOR", "12.5"),
        ("SEXTANT_WORKER__PIN", "0,1"),
        ("SEXTANT_AUTH__METRICS", "true"),
        ("SEXTANT_OBJECTS__CACHE_BYTES", "34359738368"),
        ("SEXTANT_FLEET__START_PATIENCE_MS", "60000"),
    ] {
        let found = worker.variable(variable);
        ensure!(
            found == Some(wanted),
            "`{variable}` is {found:?}, not `{wanted}`"
        );
    }
    for wanted in [
        "worker.io_bytes=1048576",
        "worker.cuda.host_bytes=68719476736",
        "worker.stuck_load_ms=86400000",
        "cors.origins=https://one.example,https://two.example",
    ] {
        let arguments = worker.arguments();
        ensure!(
            arguments.contains(&wanted),
            "`{wanted}` is not in {arguments:?}"
        );
    }
    let delay = manifests
        .deployment("api")?
        .variable("SEXTANT_LIMITS__SHUTDOWN_DELAY_MS");
    ensure!(delay == Some("600000"), "{delay:?}");
    Ok(())
}

fn placed(manifests: &Manifests) -> Result<()> {
    let account = manifests.named("ServiceAccount", "sextant")?;
    let role = &account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"];
    ensure!(role == "arn:aws:iam::1:role/sextant", "{role}");
    // The service account opens the bucket, too.
    let own = &manifests.named("ServiceAccount", "sextant-autoscaler")?["metadata"]["annotations"];
    ensure!(own["eks.amazonaws.com/role-arn"] == *role, "{own}");
    for deployment in manifests.deployments() {
        let pod = deployment.pod();
        let name = deployment.name();
        ensure!(
            pod["serviceAccountName"].is_string(),
            "`{name}` has no account"
        );
        ensure!(
            pod["priorityClassName"] == "high",
            "`{name}` has no priority"
        );
        ensure!(
            !deployment.volume("authority").is_null(),
            "`{name}` lacks a volume"
        );
        let bundle = deployment.variable("AWS_CA_BUNDLE");
        ensure!(
            bundle == Some("/etc/authority/ca.crt"),
            "`{name}`: {bundle:?}"
        );
        let spread = &pod["topologySpreadConstraints"][0]["topologyKey"];
        ensure!(
            spread == "topology.kubernetes.io/zone",
            "`{name}`: {spread}"
        );
    }
    let worker = manifests.deployment("worker")?;
    ensure!(
        worker.variable("OMP_NUM_THREADS") == Some("1"),
        "a variable of its own"
    );
    ensure!(
        worker.volume("data")["ephemeral"].is_object(),
        "another volume"
    );
    ensure!(worker.pod()["affinity"].is_object(), "no affinity");
    let selector = &worker.pod()["topologySpreadConstraints"][0]["labelSelector"];
    let labels = selector["matchLabels"].as_object();
    ensure!(
        labels.is_some_and(|labels| labels.len() == 1),
        "pods of other Deployments are left out: {selector}"
    );
    let backend =
        &manifests.named("Ingress", "sextant")?["spec"]["rules"][0]["http"]["paths"][0]["backend"];
    ensure!(backend["service"]["name"] == "sextant", "{backend}");
    manifests.named("ServiceMonitor", "sextant")?;
    let groups = &manifests.named("PrometheusRule", "sextant")?["spec"]["groups"];
    let alerts: Vec<&str> = items(&groups[0]["rules"])
        .map(|it| text(&it["alert"]))
        .collect();
    for wanted in ["NoLeader", "StoreAway", "TargetDown"] {
        ensure!(
            alerts.contains(&wanted),
            "no alert `{wanted}` among {alerts:?}"
        );
    }
    Ok(())
}
