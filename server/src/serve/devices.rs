//! The devices of this process: which engines run where, and under which worker's name.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context;
use sextant_engine::{
    Device, DeviceMemory, Engine,
    emulated::{self, EmulatedDevice, EmulatedEngine, Jitter},
};
use sextant_types::WorkerId;

use super::{cuda, engines, remote};
use crate::config::{Config, DeviceSpec};

/// A device with the engines that run on it: one worker.
pub(super) struct Place {
    pub(super) worker: WorkerId,
    /// `cpu`, `cuda:0`, `emulated:3` or the name of a runtime.
    pub(super) device: String,
    pub(super) engines: Vec<Arc<dyn Engine>>,
}

/// All devices, and what registration makes variants for.
#[derive(Default)]
pub(super) struct Fleet {
    pub(super) places: Vec<Place>,
    /// One engine of each name.
    pub(super) measured: Vec<Arc<dyn Engine>>,
}

/// Opens the configured devices. One that cannot be used is an error that says what is missing.
pub(super) fn open(config: &Config) -> anyhow::Result<Fleet> {
    let devices = &config.worker.devices.0;
    let emulates = |device: &DeviceSpec| matches!(device, DeviceSpec::Emulated(_));
    let mut fleet = Fleet {
        places: Vec::new(),
        measured: Vec::new(),
    };
    for device in devices {
        match device {
            DeviceSpec::Cpu => fleet.add_cpu(config, devices.iter().any(emulates))?,
            DeviceSpec::Cuda(ordinal) => fleet.add_gpus(config, *ordinal)?,
            DeviceSpec::Emulated(count) => fleet.add_emulated(config, *count)?,
        }
    }
    for engine in remote::build(&config.worker.remote)? {
        fleet.add(config, engine, true)?;
    }
    fleet.check()?;
    Ok(fleet)
}

impl Fleet {
    fn add_cpu(&mut self, config: &Config, emulated_elsewhere: bool) -> anyhow::Result<()> {
        let mut engines = engines::build(config)?;
        engines.retain(|engine| engine.name() != emulated::NAME || !emulated_elsewhere);
        self.measured.extend(engines.iter().cloned());
        self.places.push(Place {
            worker: config.worker_name(),
            device: DeviceSpec::Cpu.to_string(),
            engines,
        });
        Ok(())
    }

    fn add_gpus(&mut self, config: &Config, ordinal: Option<u32>) -> anyhow::Result<()> {
        for (number, engine) in cuda::open(ordinal, &config.worker.cuda)?
            .into_iter()
            .enumerate()
        {
            // GPUs of one process are taken to be alike: the first one is measured on.
            let first = number == 0 && !self.has(engine.name());
            self.add(config, engine, first)?;
        }
        Ok(())
    }

    fn add_emulated(&mut self, config: &Config, count: u32) -> anyhow::Result<()> {
        for ordinal in 0..count {
            let engine =
                EmulatedEngine::new(engines::describe).on(emulated_device(config, ordinal));
            self.add(config, Arc::new(engine), false)?;
        }
        // Measured beside the devices, without their delays and without keeping them busy.
        self.measured
            .push(Arc::new(EmulatedEngine::new(engines::describe)));
        Ok(())
    }

    /// Adds a device of its own.
    fn add(
        &mut self,
        config: &Config,
        engine: Arc<dyn Engine>,
        measured: bool,
    ) -> anyhow::Result<()> {
        let Device::Dedicated { name: device, .. } = engine.device() else {
            anyhow::bail!("engine `{}` has no device of its own", engine.name());
        };
        let name = format!("{}-{}", config.worker_name(), device.replace(':', "-"));
        let worker = WorkerId::new(&name).with_context(|| format!("worker of `{device}`"))?;
        if measured {
            self.measured.push(Arc::clone(&engine));
        }
        self.places.push(Place {
            worker,
            device,
            engines: vec![engine],
        });
        Ok(())
    }

    fn has(&self, engine: &str) -> bool {
        self.measured.iter().any(|other| other.name() == engine)
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

fn emulated_device(config: &Config, ordinal: u32) -> EmulatedDevice {
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
        runs,
        loads,
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Devices, Remote};

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
        let devices = [DeviceSpec::Cpu, DeviceSpec::Emulated(2)];
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
    fn a_runtime_cannot_have_the_name_of_an_engine() {
        let opened = open(&config(&[DeviceSpec::Cpu], &["emulated"]));
        let text = opened.err().expect("refused").to_string();
        assert!(text.contains("rename `[worker.remote.emulated]`"), "{text}");
    }
}
