//! Simulates the same requests without processors of a job's own: each processor has the models of all jobs loaded, and
//! the scheduler of the live service decides which request it runs next.
//!
//! The requests, run times, routers, target and figures are the same. Different are: the number of processors never
//! changes, all of them serve from the beginning, and memory is no limit. The scheduler drops what it cannot answer in
//! time. A dropped request counts as refused, as does a request that a full queue refuses in [`super::World`]. The
//! scheduler knows the mean run time, not how long a request will run.

use std::sync::Arc;

use sextant_baselines::{Options, Policy};
use sextant_schedule::LatencyTable;

use super::{Nanos, Report, SECOND, Setting, metric::report, routers::Routers};
use sextant_simulator::{Device, Error, Model, Network, Shape, Span, World, profiles::nanos};

/// Part of the target that is reserved for each pass of a router: twice its measured mean time, because requests may
/// wait there.
const ROUTER: Nanos = 10_000_000;

/// After the last minute, all requests end within this time.
const REST: Nanos = 600 * SECOND;

/// Plays all minutes on the setting's processors, and lets all requests end. [`Setting::initial`] and
/// [`Setting::queue`] have no effect here.
///
/// # Errors
/// When a request takes no time under the setting's law.
pub fn pooled(setting: &Setting, policy: Policy) -> Result<Report, Error> {
    let service_ns = nanos(setting.law.service().mean_s * 1e3);
    let latency = LatencyTable::new(vec![service_ns])
        .map_err(|invalid| Error::Setting(format!("a request on a replica: {invalid}")))?;
    let world = world(setting, policy, &Arc::new(latency));
    let minutes = setting.rates.minutes();
    let span = Span {
        from: 0,
        until: minutes as Nanos * 60 * SECOND + REST,
        most_missed: Vec::new(),
    };
    let mut routers = Routers::new(setting);
    World::new(&world).run(&mut routers, span);
    let serving = (f64::from(setting.processors), Vec::new());
    let records = routers.into_records();
    Ok(report(records, minutes, setting.target_ms, serving))
}

/// The models of all jobs on devices of one kind.
fn world(setting: &Setting, policy: Policy, latency: &Arc<LatencyTable>) -> crate::Setting {
    let model = |job: usize| Model {
        name: format!("job-{job}"),
        target: nanos(setting.target_ms).saturating_sub(ROUTER),
        latency: vec![Some(Arc::clone(latency))],
        priority: 0,
        weight: 1.0,
    };
    let mut options = Options::of(policy);
    options.delay.response = ROUTER;
    crate::Setting {
        models: (0..setting.rates.jobs()).map(model).collect(),
        devices: vec![Device { kind: 0 }; setting.processors as usize],
        prices: Vec::new(),
        shape: Shape::Fleet,
        options,
        // The routers are part of the source.
        network: Network::default(),
        jitter: setting.law.jitter(),
        failures: Vec::new(),
        seed: setting.seed,
        histograms: false,
    }
}
