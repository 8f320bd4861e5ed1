//! Checks what a service needs, before it is started or while it runs, and changes nothing.

use serde::Serialize;

use sextant_config::{Config, Role};

use super::{backup, engines, front, pools, python, roles};

mod machine;
mod stores;

/// What was found of one thing that a service needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do; absent where nothing is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// The service starts; something about it may surprise.
    Warn,
    /// The service does not start, or cannot do its work.
    Fail,
}

/// Looks at everything that a service with this configuration needs here.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![configuration(config)];
    let runs_models = [Role::Worker, Role::VariantGen];
    if runs_models.iter().any(|role| config.roles.contains(*role)) {
        findings.extend(engines(config));
    }
    if config.roles.contains(Role::Api) {
        findings.extend(python(config));
    }
    findings.extend(machine::look(config));
    findings.extend(stores::look(config).await);
    findings.extend(pair(config).await);
    findings
}

/// What `serve` refuses before it does anything.
fn configuration(config: &Config) -> Finding {
    let checked = roles::check(config)
        .and_then(|()| pools::check(config))
        .and_then(|()| front::check_access(config).map(drop));
    match checked {
        Ok(()) => {
            let roles: Vec<String> = config.roles.0.iter().map(ToString::to_string).collect();
            Finding::ok("configuration", format!("roles {}", roles.join(", ")))
        }
        Err(error) => Finding::fail("configuration", format!("{error:#}"), "change the setting"),
    }
}

/// The registry and the artefact store, where both are there.
async fn pair(config: &Config) -> Option<Finding> {
    const CHECK: &str = "registry and store";
    Some(match backup::belong_together(config).await? {
        true => Finding::ok(CHECK, "they belong together"),
        false => Finding::warn(
            CHECK,
            "the registry is not the one that the artefact store belongs to: no file is stored or removed",
            "correct `registry.url`, `objects.url` or `data_dir`, put the registry back, or say `sextant storage adopt`",
        ),
    })
}

/// The engines of the configuration, each loaded.
fn engines(config: &Config) -> Vec<Finding> {
    let names = config.variants.engines.0.iter();
    let engine = |name: &String| {
        let check = format!("engine {name}");
        match engines::look(name, config) {
            Ok(found) => Finding::ok(check, found),
            Err(error) if engines::is_left_out(name, config) => Finding::warn(
                check,
                "its library is missing, and models run without it",
                format!("{error:#}"),
            ),
            Err(error) => Finding::fail(
                check,
                format!("{error:#}"),
                format!("mend it, or leave `{name}` out of `variants.engines`"),
            ),
        }
    };
    names.map(engine).collect()
}

/// The interpreter of Python steps, where they are allowed: the service starts without it, and pipelines that have such steps
/// do not run.
fn python(config: &Config) -> Option<Finding> {
    const CHECK: &str = "python";
    Some(match python::look(config) {
        Ok(None) => return None,
        Ok(Some(found)) => {
            let numpy = found.numpy.as_deref().unwrap_or("none");
            let executable = found.executable.display();
            Finding::ok(
                CHECK,
                format!("`{executable}` is Python {}, NumPy {numpy}", found.version),
            )
        }
        Err(error) => Finding::fail(
            CHECK,
            format!("{error:#}"),
            "correct `pipelines.python.interpreter` or `pipelines.python.packages`, or set `pipelines.python.enabled = false`",
        ),
    })
}

// === impl Finding ===

impl Finding {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            state: State::Ok,
            found: found.into(),
            advice: None,
        }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: State::Warn,
            advice: Some(advice.into()),
            ..Self::ok(check, found)
        }
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: State::Fail,
            ..Self::warn(check, found, advice)
        }
    }
}
