//! The devices of this process: which engines run where, and under which worker's name.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context;
use sextant_engine::{
    Device, DeviceMemory, Engine,
    emulated::{self, EmulatedDevice, EmulatedEngine, Failures, Jitter},
};
use sextant_types::{
    DeviceType, DeviceTypeName, EngineName, PriceSource, Prices, WorkerId,
    device::ACCELERATOR_HOUR_USD,
};

use super::{cuda, engines, host, remote};
use sextant_config::{Config, DeviceSpec};

/// A device with the engines that run on it: one worker.
pub(super) struct Place {
    pub(super) worker: WorkerId,
    /// `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub(super) device: String,
    pub(super) device_type: Arc<DeviceType>,
    pub(super) engines: Vec<Arc<dyn Engine>>,
}

/// All devices, and what registration makes variants for.
#[derive(Default)]
pub(super) struct Fleet {
    pub(super) places: Vec<Place>,
    /// One engine of each name.
    pub(super) measured: Vec<Arc<dyn Engine>>,
    /// The types of the devices, in the order in which they are listed.
    pub(super) types: Vec<Arc<DeviceType>>,
    /// Types whose price is assumed.
    unpriced: BTreeSet<DeviceTypeName>,
}

/// Opens the configured devices. One that cannot be used is an error that says what is missing.
pub(super) fn open(config: &Config) -> anyhow::Result<Fleet> {
    let devices = &config.worker.devices.0;
    let emulates = |device: &DeviceSpec| matches!(device, DeviceSpec::Emulated(..));
    let mut fleet = Fleet::default();
    for device in devices {
        match device {
            DeviceSpec::Cpu => fleet.add_cpu(config, devices.iter().any(emulates))?,
            DeviceSpec::Cuda(ordinal) => fleet.add_gpus(config, *ordinal)?,
            DeviceSpec::Emulated(count, name) => {
                fleet.add_emulated(config, *count, name.as_ref())?;
            }
        }
    }
    for engine in remote::build(&config.worker.remote)? {
        let name = DeviceTypeName::new(engine.name())?;
        fleet.add(config, (vec![engine], name), true)?;
    }
    fleet.check()?;
    fleet.warn();
    Ok(fleet)
}

impl Fleet {
    fn add_cpu(&mut self, config: &Config, emulated_elsewhere: bool) -> anyhow::Result<()> {
        let mut engines = engines::build(config)?;
        engines.retain(|engine| engine.name() != emulated::NAME || !emulated_elsewhere);
        self.measured.extend(engines.iter().cloned());
        let device_type = Arc::new(processor(config, &engines));
        self.types.push(Arc::clone(&device_type));
        self.places.push(Place {
            worker: config.worker_name(),
            device: DeviceSpec::Cpu.to_string(),
            device_type,
            engines: host::isolatable(config, fallible(config, engines))?,
        });
        Ok(())
    }

    fn add_gpus(&mut self, config: &Config, ordinal: Option<u32>) -> anyhow::Result<()> {
        for (number, engines) in cuda::open(ordinal, config)?.into_iter().enumerate() {
            // The GPUs of one process are assumed to be alike: registration measures on the first.
            let first = number == 0 && !engines.iter().any(|engine| self.has(engine.name()));
            let model = engines.first().and_then(|engine| engine.device_model());
            let model = model.as_deref().and_then(DeviceTypeName::from_model);
            let name = config.worker.cuda.device_type.clone().or(model);
            let name = name.map_or_else(|| DeviceTypeName::new("cuda"), Ok)?;
            self.add(config, (engines, name), first)?;
        }
        Ok(())
    }

    fn add_emulated(
        &mut self,
        config: &Config,
        count: u32,
        name: Option<&DeviceTypeName>,
    ) -> anyhow::Result<()> {
        let first = self.emulated();
        let settings = name.and_then(|name| config.worker.emulated.types.get(name));
        let speed = settings.map_or(1.0, |settings| settings.speed);
        let name = name.map_or_else(|| DeviceTypeName::new(emulated::NAME), |it| Ok(it.clone()))?;
        for ordinal in first..first.saturating_add(count) {
            let device = emulated_device(config, ordinal, speed);
            let engine = EmulatedEngine::new(engines::describe).on(device);
            let engine = match failures(config) {
                Some(failures) => engine.failing(failures),
                None => engine,
            };
            let measured = config.worker.emulated.measured && !self.has(emulated::NAME);
            self.add(config, (vec![Arc::new(engine)], name.clone()), measured)?;
        }
        if !self.has(emulated::NAME) {
            // It measures beside the devices, without their delays and without occupying them.
            let engine = EmulatedEngine::new(engines::describe).at_speed(speed);
            self.measured.push(Arc::new(engine));
        }
        Ok(())
    }

    /// Emulated devices so far.
    fn emulated(&self) -> u32 {
        let emulates = |place: &&Place| {
            let mut engines = place.engines.iter();
            engines.any(|it| it.name() == emulated::NAME && it.device() != Device::Cpu)
        };
        self.places.iter().filter(emulates).count() as u32
    }

    /// Adds a device of its own, with the engines that run on it.
    fn add(
        &mut self,
        config: &Config,
        (engines, name): (Vec<Arc<dyn Engine>>, DeviceTypeName),
        measured: bool,
    ) -> anyhow::Result<()> {
        let place = engines.first().map(|engine| engine.device());
        let Some(Device::Dedicated {
            name: device,
            memory,
        }) = place
        else {
            anyhow::bail!("an engine of `{name}` has no device of its own");
        };
        let names = engines.iter().map(|engine| engine.name().to_owned());
        let names: BTreeSet<EngineName> = names.map(EngineName).collect();
        let prices = Prices::from(config.prices.clone());
        let (price_per_hour_usd, source) = prices.accelerator(&name);
        if source == PriceSource::Assumed {
            self.unpriced.insert(name.clone());
        }
        let device_type = Arc::new(DeviceType {
            start_ms: prices.start_ms(&name),
            engines: names.into_iter().collect(),
            slots: 1,
            memory_bytes: memory.pages.saturating_mul(memory.page_bytes),
            price_per_hour_usd,
            name,
        });
        self.types.push(Arc::clone(&device_type));
        let name = format!("{}-{}", config.worker_name(), device.replace(':', "-"));
        let worker = WorkerId::new(&name).with_context(|| format!("worker of `{device}`"))?;
        if measured {
            self.measured.extend(engines.iter().cloned());
        }
        self.places.push(Place {
            worker,
            device,
            device_type,
            engines,
        });
        Ok(())
    }

    fn has(&self, engine: &str) -> bool {
        self.measured.iter().any(|other| other.name() == engine)
    }

    /// Names the keys of prices that nobody has set.
    fn warn(&self) {
        for name in &self.unpriced {
            tracing::warn!(
                code = "price_missing",
                "`prices.devices.{name}.hour_usd` is not set: {ACCELERATOR_HOUR_USD} US dollars an hour \
                 are taken for it"
            );
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let mut names = BTreeSet::new();
        for engine in &self.measured {
            let name = engine.name();
            anyhow::ensure!(
                names.insert(name),
                "runtime `{name}` has the name of an engine: rename `[worker.remote.{name}]`"
            );
        }
        let mut workers = BTreeSet::new();
        for Place { worker, device, .. } in &self.places {
            anyhow::ensure!(
                workers.insert(worker),
                "two devices want the worker's name `{worker}`: rename the runtime `{device}`"
            );
        }
        Ok(())
    }
}

/// This machine as a device.
fn processor(config: &Config, engines: &[Arc<dyn Engine>]) -> DeviceType {
    let (cores, memory_bytes) = (config.worker_cores(), config.worker_memory_bytes());
    let name = config.device_type();
    let prices = Prices::from(config.prices.clone());
    let names = engines.iter().map(|engine| engine.name().to_owned());
    let engines: BTreeSet<EngineName> = names.map(EngineName).collect();
    DeviceType {
        price_per_hour_usd: prices.processor(&name, cores, memory_bytes).0,
        start_ms: prices.start_ms(&name),
        engines: engines.into_iter().collect(),
        slots: cores.max(1),
        memory_bytes,
        name,
    }
}

/// The failures of emulated work, where there are to be any.
fn failures(config: &Config) -> Option<Failures> {
    let settings = &config.worker.emulated;
    let failures = Failures {
        loads: settings.failing_loads,
        runs: settings.failing_runs,
        seed: settings.seed,
    };
    (failures.loads > 0.0 || failures.runs > 0.0).then_some(failures)
}

/// These engines, of which the emulated one fails where it is to: where it serves, not where it is measured.
fn fallible(config: &Config, mut engines: Vec<Arc<dyn Engine>>) -> Vec<Arc<dyn Engine>> {
    if let Some(failures) = failures(config) {
        let emulated = engines
            .iter_mut()
            .filter(|engine| engine.name() == emulated::NAME);
        for engine in emulated {
            *engine = Arc::new(EmulatedEngine::new(engines::describe).failing(failures));
        }
    }
    engines
}

fn emulated_device(config: &Config, ordinal: u32, speed: f64) -> EmulatedDevice {
    let settings = &config.worker.emulated;
    let usual = EmulatedDevice::v100(ordinal, settings.seed);
    let [runs, loads] = match settings.delays {
        true => [usual.runs, usual.loads],
        false => [Jitter::NONE; 2],
    };
    EmulatedDevice {
        memory: DeviceMemory {
            page_bytes: settings.page_bytes,
            pages: settings.pages,
        },
        bytes_per_s: settings.copy_bytes_per_s,
        speed,
        runs,
        loads,
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sextant_config::{DevicePrice, Devices, GpuEngines, Remote};

    fn config(devices: &[DeviceSpec], runtimes: &[&str]) -> Config {
        let mut config = Config::default();
        config.variants.engines.0 = vec![emulated::NAME.to_owned()];
        config.worker.devices = Devices(devices.to_vec());
        for name in runtimes {
            let remote = Remote {
                url: Some("http://localhost:1".to_owned()),
                ..Remote::default()
            };
            config.worker.remote.insert((*name).to_owned(), remote);
        }
        config
    }

    /// Workers with their engines, and what is measured.
    fn names(fleet: &Fleet) -> (Vec<String>, Vec<&str>) {
        let engine = |engine: &Arc<dyn Engine>| engine.name();
        let places = fleet.places.iter().map(|place| {
            let engines: Vec<&str> = place.engines.iter().map(engine).collect();
            format!("{} {}", place.worker, engines.join(" "))
        });
        (
            places.collect(),
            fleet.measured.iter().map(engine).collect(),
        )
    }

    #[test]
    fn emulated_models_run_on_the_cpu_unless_devices_are_emulated() {
        let fleet = open(&config(&[DeviceSpec::Cpu], &[])).expect("usable");
        let wanted = vec!["local emulated".to_owned()];
        assert_eq!(names(&fleet), (wanted, vec!["emulated"]));
        let devices = [DeviceSpec::Cpu, DeviceSpec::Emulated(2, None)];
        let fleet = open(&config(&devices, &["triton"])).expect("usable");
        let wanted = [
            "local ",
            "local-emulated-0 emulated",
            "local-emulated-1 emulated",
            "local-triton triton",
        ];
        assert_eq!(
            names(&fleet),
            (
                wanted.map(str::to_owned).to_vec(),
                vec!["emulated", "triton"]
            )
        );
    }

    #[test]
    fn devices_have_types_and_prices() {
        let slow = DeviceTypeName::new("slow").expect("valid");
        let mut config = config(&[], &["triton"]);
        config.worker.cores = Some(4);
        config.worker.memory_bytes = Some(8 << 30);
        config.worker.devices.0 = vec![
            DeviceSpec::Cpu,
            DeviceSpec::Emulated(1, None),
            DeviceSpec::Emulated(2, Some(slow.clone())),
        ];
        let price = DevicePrice {
            hour_usd: Some(0.5),
            ..DevicePrice::default()
        };
        config.prices.devices.insert(slow, price);
        let fleet = open(&config).expect("usable");
        let types = fleet.places.iter().map(|place| {
            let of = &place.device_type;
            format!("{} {} {:.3}", place.device, of.name, of.price_per_hour_usd)
        });
        let wanted = [
            // 4 x 0.036 + 8 x 0.003
            "cpu cpu-4 0.168",
            "emulated:0 emulated 3.060",
            "emulated:1 slow 0.500",
            "emulated:2 slow 0.500",
            "triton triton 3.060",
        ];
        assert_eq!(types.collect::<Vec<_>>(), wanted);
        let unpriced: Vec<&str> = fleet.unpriced.iter().map(DeviceTypeName::as_str).collect();
        assert_eq!(unpriced, ["emulated", "triton"]);
    }

    #[test]
    fn engines_of_a_gpu_do_not_mix_where_one_takes_its_memory() {
        let mut config = config(&[DeviceSpec::Cuda(Some(0))], &[]);
        for names in [&["cuda", "ort-cuda"][..], &[]] {
            let names = names.iter().map(|name| (*name).to_owned());
            config.worker.cuda.engines = GpuEngines(names.collect());
            let text = open(&config).err().expect("refused").to_string();
            assert!(text.contains("name `cuda` alone"), "{text}");
        }
    }

    #[test]
    fn a_runtime_cannot_have_the_name_of_an_engine() {
        let opened = open(&config(&[DeviceSpec::Cpu], &["emulated"]));
        let text = opened.err().expect("refused").to_string();
        assert!(text.contains("rename `[worker.remote.emulated]`"), "{text}");
    }
}
