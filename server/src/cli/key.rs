//! `sextant key`: manages keys, their rights and their limits.

use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};
use sextant_types::{ApplicationId, time::unix_ms};

use super::{
    Client, Error, Output,
    listing::or,
    output::{Table, cell, rows, tell},
    targets::number,
};

/// A day, ms.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Create, list and revoke API keys.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Create a key and print it; the service shows the key only once.
    Create(Box<Create>),
    /// List keys, including revoked and expired ones.
    List,
    /// Revoke a key: the service refuses it from then on.
    Revoke {
        /// Its id, as `sextant key list` shows it.
        id: String,
    },
}

/// Create a key and print it; the service shows the key only once.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// Whose key it is, for people.
    #[arg(long)]
    name: String,
    /// What the key allows; may be repeated. Every key allows reading, `admin` allows everything.
    #[arg(long, required = true, value_name = "SCOPE")]
    scope: Vec<Scope>,
    /// The only application for which the key is valid.
    #[arg(long, value_name = "NAME")]
    application: Option<ApplicationId>,
    /// Requests a second in the long run.
    #[arg(long, value_name = "PER_SECOND", value_parser = number)]
    rate: Option<f64>,
    /// Requests at once after a pause [default: the requests of a second].
    #[arg(long, value_name = "REQUESTS", requires = "rate")]
    burst: Option<u64>,
    /// Requests a day, from midnight UTC on.
    #[arg(long, value_name = "PER_DAY")]
    quota: Option<u64>,
    /// Days after which the key expires.
    #[arg(long, value_name = "DAYS")]
    expires_in_days: Option<u32>,
}

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// Asking queries.
    Query,
    /// Registering and removing applications, models, artefacts and offline jobs.
    Register,
    /// Registering pipelines with steps in Python, together with `register`.
    Python,
    /// Everything, including keys and the audit record.
    Admin,
}

impl Key {
    /// Does it.
    pub async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        match self {
            Self::Create(create) => create.run(client, output).await,
            Self::List => list(client, output).await,
            Self::Revoke { id } => {
                let request = client.request(Method::DELETE, &["v1", "keys", &id]);
                let key: Value = client.answer(request).await?;
                output.either(&key, || format!("key `{id}` is revoked"))
            }
        }
    }
}

impl Create {
    async fn run(self, client: &Client, output: Output) -> Result<(), Error> {
        let created: Value = client.post(&["v1", "keys"], &self.document()).await?;
        // The JSON answer contains it as well.
        if created["enforced"] == false && !output.json {
            tell("note: `auth.mode` is `off`: this service asks nobody for a key");
        }
        // Only the secret is on the line, so that a script can read it.
        output.either(&created, || cell(&created, "/secret"))
    }

    fn document(&self) -> Value {
        let scopes = self.scope.iter().filter_map(Scope::to_possible_value);
        let scopes: Vec<_> = scopes.map(|scope| scope.get_name().to_owned()).collect();
        let mut key = Map::new();
        key.insert("name".to_owned(), json!(self.name));
        key.insert("scopes".to_owned(), json!(scopes));
        let days = self.expires_in_days.map(u64::from);
        let optional = [
            (
                "application",
                self.application.as_ref().map(|name| json!(name.as_str())),
            ),
            ("rate_per_s", self.rate.map(Value::from)),
            ("burst", self.burst.map(Value::from)),
            ("quota_per_day", self.quota.map(Value::from)),
            (
                "expires_ms",
                days.map(|days| json!(unix_ms() + days * DAY_MS)),
            ),
        ];
        for (name, value) in optional {
            key.extend(value.map(|value| (name.to_owned(), value)));
        }
        Value::Object(key)
    }
}

async fn list(client: &Client, output: Output) -> Result<(), Error> {
    let answer: Value = client.get(&["v1", "keys"]).await?;
    output.either(&answer, || {
        let headings = [
            "key",
            "name",
            "scopes",
            "application",
            "#rate",
            "#quota",
            "state",
        ];
        let mut table = Table::new(&headings);
        let now_ms = unix_ms();
        for key in rows(&answer, "/keys") {
            table.row(vec![
                cell(key, "/id"),
                cell(key, "/name"),
                scopes(key),
                cell(key, "/application"),
                cell(key, "/rate_per_s"),
                cell(key, "/quota_per_day"),
                state(key, now_ms).to_owned(),
            ]);
        }
        or(&table, "no keys; `sextant key create` makes one")
    })
}

fn scopes(key: &Value) -> String {
    let scopes = rows(key, "/scopes").iter().filter_map(Value::as_str);
    scopes.collect::<Vec<_>>().join(" ")
}

fn state(key: &Value, now_ms: u64) -> &'static str {
    let time = |name: &str| key.get(name).and_then(Value::as_u64);
    match (time("revoked_ms"), time("expires_ms")) {
        (Some(_), _) => "revoked",
        (None, Some(end)) if end <= now_ms => "expired",
        _ => "valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_asked_for_with_what_was_said() {
        let create = Create {
            name: "camera".to_owned(),
            scope: vec![Scope::Query, Scope::Register],
            application: Some(ApplicationId::new("digits").expect("a name")),
            rate: Some(2.5),
            burst: None,
            quota: Some(1000),
            expires_in_days: None,
        };
        let wanted = json!({"name": "camera", "scopes": ["query", "register"],
            "application": "digits", "rate_per_s": 2.5, "quota_per_day": 1000});
        assert_eq!(create.document(), wanted);
    }

    #[test]
    fn a_key_is_valid_until_it_is_revoked_or_ends() {
        let at = |key: Value| state(&key, 1000);
        assert_eq!(at(json!({})), "valid");
        assert_eq!(at(json!({"expires_ms": 1001})), "valid");
        assert_eq!(at(json!({"expires_ms": 1000})), "expired");
        assert_eq!(at(json!({"expires_ms": 1001, "revoked_ms": 5})), "revoked");
    }
}
