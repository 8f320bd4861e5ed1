//! What can be run: tuples and configurations (SERF, sections III and V).

/// Limits on parallelism: at most `service` requests run at once on a serving unit of `inter`
/// machines, each on `intra` threads of every machine. Predictions and schedules use
/// configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Configuration {
    /// The most requests that run side by side.
    pub service: u16,
    /// The number of machines over which one request is spread.
    pub inter: u16,
    /// Threads of one request on each machine.
    pub intra: u16,
}

/// *Exactly* `running` requests side by side. Profiles measure tuples. A configuration needs the
/// tuples of 1 up to its service degree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Requests that run side by side.
    pub running: u16,
    /// The number of machines over which one request is spread.
    pub inter: u16,
    /// Threads of one request on each machine.
    pub intra: u16,
}

/// All configurations whose threads fit the `cores` of each machine, spread over 1 to `max_inter`
/// machines; sorted.
pub fn configurations(cores: u16, max_inter: u16) -> Vec<Configuration> {
    let on = |inter: u16| {
        (1..=cores).flat_map(move |service| {
            (1..=cores / service).map(move |intra| Configuration {
                service,
                inter,
                intra,
            })
        })
    };
    let mut all: Vec<_> = (1..=max_inter).flat_map(on).collect();
    all.sort_unstable();
    all
}

/// Requests per second that reach one serving unit when `load_per_s` come to `machines` machines.
pub fn unit_load(load_per_s: f64, inter: u16, machines: u32) -> f64 {
    load_per_s * f64::from(inter) / f64::from(machines.max(1))
}

// === impl Configuration ===

impl Configuration {
    /// A configuration on one machine.
    pub fn local(service: u16, intra: u16) -> Self {
        Self {
            service,
            inter: 1,
            intra,
        }
    }

    /// The most threads that run at once on each machine.
    pub fn threads(&self) -> u32 {
        u32::from(self.service) * u32::from(self.intra)
    }

    /// The tuple with as many requests as this configuration allows.
    pub fn full(&self) -> Tuple {
        Tuple {
            running: self.service,
            inter: self.inter,
            intra: self.intra,
        }
    }

    /// The tuples that occur in this configuration, starting with one running request.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple> + use<> {
        let Self { inter, intra, .. } = *self;
        (1..=self.service).map(move |running| Tuple {
            running,
            inter,
            intra,
        })
    }
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}, {}, {})", self.service, self.inter, self.intra)
    }
}
