//! `/v1/costs`: the costs of device time, by application and variant.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;
use sextant_metadata::{CostRow, Costs};
use sextant_types::Code;
use utoipa::ToSchema;

use crate::{
    ApiState,
    problem::{Problem, ProblemBody},
};

/// What device time has cost since the dispatcher began to lead, renewed once a second.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Costs)]
pub struct CostsBody {
    /// When the dispatcher began to lead, milliseconds since the Unix epoch.
    since_ms: u64,
    /// Until when it is counted, milliseconds since the Unix epoch.
    until_ms: u64,
    /// The whole cost, including idle time, US dollars.
    total_usd: f64,
    /// The part of it in which nothing ran, US dollars.
    idle_usd: f64,
    /// The part of the idle cost that belongs to no application, of devices with nothing loaded, US dollars.
    unattributed_usd: f64,
    /// Sorted by name.
    applications: Vec<ApplicationCostBody>,
    /// Sorted by application, variant and type of device.
    variants: Vec<VariantCostBody>,
}

/// What an application has cost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApplicationCost)]
pub struct ApplicationCostBody {
    /// Its name.
    application: String,
    /// Price of the device time of its batches, US dollars.
    usd: f64,
    /// The part of it that offline jobs have cost, US dollars.
    offline_usd: f64,
    /// Price of the idle time of the devices on which its variants are loaded, by their share of the memory
    /// of all loaded variants there, US dollars.
    idle_usd: f64,
    /// Queries that were answered.
    queries: u64,
    /// Those of them that belong to offline jobs.
    offline_queries: u64,
    /// Price of a thousand of its queries without idle time, US dollars; absent before the first query.
    #[serde(skip_serializing_if = "Option::is_none")]
    usd_per_1000_queries: Option<f64>,
}

/// What a variant has cost on devices of one type.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = VariantCost)]
pub struct VariantCostBody {
    /// The application to which it belongs.
    application: String,
    /// Its name; absent for applications that are added up because there were too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    /// The type of the devices; absent if they do not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_type: Option<String>,
    /// Price of the device time of its batches, US dollars.
    usd: f64,
    /// The part of it that offline jobs have cost, US dollars.
    offline_usd: f64,
    /// Price of the idle time of the devices on which it is loaded, by its share of the memory of all loaded
    /// variants there, US dollars.
    idle_usd: f64,
    /// Time that its batches took of whole devices, seconds: one of eight slots for 8 s counts as 1 s.
    device_seconds: f64,
    /// Queries that its batches have answered.
    queries: u64,
    /// Those of them that belong to offline jobs.
    offline_queries: u64,
}

/// What device time has cost, by application and variant.
#[utoipa::path(get, operation_id = "costs_get", path = "/v1/costs", tag = "cluster",
    responses(
        (status = 200, description = "Since the dispatcher began to lead", body = CostsBody),
        (status = 503, description = "No dispatcher has told its costs yet", body = ProblemBody,
            content_type = "application/problem+json"),
    ))]
pub async fn get(State(state): State<ApiState>) -> Result<Json<CostsBody>, Problem> {
    let demand = state.metadata().snapshot().await?.demand;
    let demand = demand.ok_or_else(|| {
        let detail = "no dispatcher has told its costs yet";
        Problem::new(Code::Unavailable, detail).retry_after_ms(1000)
    })?;
    Ok(Json(CostsBody::from(&demand.costs)))
}

impl From<&Costs> for CostsBody {
    fn from(costs: &Costs) -> Self {
        let mut applications: BTreeMap<_, ApplicationCostBody> = BTreeMap::new();
        for row in &costs.rows {
            let name = row.application.as_str();
            let of = applications.entry(name);
            of.or_insert_with(|| ApplicationCostBody::new(name))
                .add(row);
        }
        let used: f64 = costs.rows.iter().map(|row| row.usd).sum();
        let idle: f64 = costs.rows.iter().map(|row| row.idle_usd).sum();
        let idle_usd = idle + costs.unattributed_usd;
        Self {
            since_ms: costs.since_ms,
            until_ms: costs.until_ms,
            total_usd: used + idle_usd,
            idle_usd,
            unattributed_usd: costs.unattributed_usd,
            applications: applications.into_values().collect(),
            variants: costs.rows.iter().map(VariantCostBody::from).collect(),
        }
    }
}

impl ApplicationCostBody {
    fn new(application: &str) -> Self {
        Self {
            application: application.to_owned(),
            usd: 0.0,
            offline_usd: 0.0,
            idle_usd: 0.0,
            queries: 0,
            offline_queries: 0,
            usd_per_1000_queries: None,
        }
    }

    fn add(&mut self, row: &CostRow) {
        self.usd += row.usd;
        self.offline_usd += row.offline_usd;
        self.idle_usd += row.idle_usd;
        self.queries += row.queries;
        self.offline_queries += row.offline_queries;
        let queries = self.queries as f64;
        self.usd_per_1000_queries = (self.queries > 0).then(|| self.usd / queries * 1000.0);
    }
}

impl From<&CostRow> for VariantCostBody {
    fn from(row: &CostRow) -> Self {
        Self {
            application: row.application.to_string(),
            variant: row.variant.as_ref().map(ToString::to_string),
            device_type: row.device_type.as_ref().map(ToString::to_string),
            usd: row.usd,
            offline_usd: row.offline_usd,
            idle_usd: row.idle_usd,
            device_seconds: row.device_seconds,
            queries: row.queries,
            offline_queries: row.offline_queries,
        }
    }
}
