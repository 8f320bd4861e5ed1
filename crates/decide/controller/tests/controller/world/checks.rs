//! What holds after each event.

use super::*;

impl World {
    /// Devices of a kind with the same variants ready are a pool, and no others are.
    pub(super) fn check_pools(&self) {
        let ready = |device: DeviceIx| -> BTreeSet<VariantIx> {
            let here = self.there.iter().filter(|((on, _), _)| *on == device);
            let loaded = here.filter(|(_, of)| **of == Residency::Loaded);
            loaded.map(|((_, variant), _)| *variant).collect()
        };
        let mut pools = BTreeMap::new();
        for (device, kind) in &self.up {
            let pool = self.controller.pool_of(*device).expect("it is up");
            let content = (*kind, ready(*device));
            let known = pools.entry(pool).or_insert_with(|| content.clone());
            assert_eq!(*known, content, "device {device} in pool {pool}");
        }
        let contents: BTreeSet<_> = pools.values().collect();
        assert_eq!(contents.len(), pools.len(), "pools that are alike");
        for variant in (0..self.setting.variants.len() as u32).map(VariantIx::new) {
            let with = pools
                .iter()
                .filter(|(_, (_, ready))| ready.contains(&variant));
            let with: BTreeSet<_> = with.map(|(pool, _)| *pool).collect();
            let known = self.controller.pools_of(variant).iter().copied();
            assert_eq!(
                known.collect::<BTreeSet<_>>(),
                with,
                "pools of variant {variant}"
            );
        }
    }

    /// The allocations of a variant are its demand, where it has a replica, and those to a device are
    /// the device's load.
    pub(super) fn check_demand(&self) {
        let demand = self.controller.placement().demand();
        let (variants, devices) = (self.setting.variants.len(), self.setting.devices.len());
        let (variants, devices) = (
            (0..variants as u32).map(VariantIx::new),
            (0..devices as u32).map(DeviceIx::new),
        );
        for device in devices.clone() {
            let load: Nanos = variants.clone().map(|m| demand.allocation(m, device)).sum();
            assert_eq!(demand.load(device), load, "device {device}");
        }
        for variant in variants {
            let parts = devices
                .clone()
                .map(|device| demand.allocation(variant, device));
            let placed = devices.clone().any(|device| {
                let presence = self.controller.placement().presence(device, variant);
                matches!(presence, Presence::Loading | Presence::Loaded)
            });
            let expected = if placed { demand.of(variant) } else { 0 };
            assert_eq!(parts.sum::<Nanos>(), expected, "variant {variant}");
        }
    }

    pub(super) fn check(&mut self, action: Action<u64>) {
        match action {
            Action::Drop {
                request, reason, ..
            } => self.answer(request.payload, Answer::Dropped(reason)),
            Action::Move(placement::Action::Load {
                device,
                variant,
                earliest,
                latest,
                expected,
            }) => {
                assert!(self.up.contains_key(&device), "a device that is down");
                assert!(self.now <= earliest && earliest <= latest, "the window");
                assert_eq!(expected, self.setting.variants[variant.get() as usize].1);
                let before = self.there.get(&(device, variant));
                assert_eq!(before, None, "variant {variant} is on device {device}");
                let pages = self.needed(device, variant);
                assert!(self.free(device) >= pages, "no room on device {device}");
                self.check_load_window(device, earliest);
                let until = earliest + expected;
                let from = earliest;
                self.there
                    .insert((device, variant), Residency::Loading { from, until });
                self.loads += 1;
            }
            Action::Move(placement::Action::Unload { device, variant }) => {
                let before = self.there.insert((device, variant), Residency::Leaving);
                assert_eq!(
                    before,
                    Some(Residency::Loaded),
                    "what is not loaded is unloaded"
                );
                let mut running = self.running.values();
                let used = running.any(|of| (of.device, of.variant) == (device, variant));
                assert!(!used, "variant {variant} runs on device {device}");
                self.unloads += 1;
            }
            Action::Infer {
                device,
                variant,
                requests,
                earliest,
                latest,
                expected,
                id,
            } => {
                assert!(earliest <= latest, "a window that is closed");
                assert_eq!(
                    self.there.get(&(device, variant)),
                    Some(&Residency::Loaded),
                    "variant {variant} is not loaded on device {device}"
                );
                self.check_shapes(variant, &requests, expected);
                let end = earliest.max(self.now) + expected;
                self.sizes.push(
                    requests
                        .iter()
                        .map(|it| self.shapes[&it.payload].size)
                        .collect(),
                );
                for request in &requests {
                    let late = end > request.deadline;
                    self.answer(request.payload, Answer::Served { at: end, late });
                }
                let running = RunningBatch {
                    device,
                    variant,
                    end,
                    requests,
                };
                assert!(self.running.insert(id, running).is_none(), "a batch twice");
            }
        }
    }

    /// Only what may share a batch does, and it is expected to run as long as its sizes take.
    fn check_shapes(&self, variant: VariantIx, requests: &[Request<u64>], expected: Nanos) {
        let Some(surface) = self.setting.surface(variant) else {
            return;
        };
        let shapes = requests.iter().map(|it| self.shapes[&it.payload]);
        let shapes: Vec<Shape> = shapes.collect();
        let rows = requests.iter().map(|it| it.rows).sum();
        let first = shapes[0];
        match first.sharing {
            Sharing::Near => {
                let bucket = surface.bucket(first.size);
                assert!(shapes.iter().all(|it| surface.bucket(it.size) == bucket));
            }
            Sharing::Equal(_) => assert!(shapes.iter().all(|it| *it == first)),
        }
        let least = surface.of(rows, first.size);
        assert!(
            expected >= least,
            "{expected} ns for {rows} rows of {first:?}, not {least}"
        );
    }

    /// LOADs of a device follow each other, and one is issued only with less than the look-ahead
    /// before it.
    fn check_load_window(&self, device: DeviceIx, earliest: Nanos) {
        let here = self.there.iter().filter(|((on, _), _)| *on == device);
        for (_, of) in here {
            if let Residency::Loading { from, until } = *of {
                assert!(
                    !self.setting.exact || until <= earliest,
                    "two LOADs at once: from {from} until {until}, and from {earliest}"
                );
            }
        }
        let ahead = self.setting.placing.look_ahead;
        let outstanding = earliest - self.now;
        assert!(
            !self.setting.exact || outstanding < ahead,
            "{outstanding} ns of LOADs are outstanding, more than {ahead}"
        );
    }

    pub(super) fn free(&self, device: DeviceIx) -> u32 {
        let on = |place: &(DeviceIx, VariantIx), of: &Residency| {
            place.0 == device && *of != Residency::Leaving
        };
        let here = self.there.iter().filter(|(place, of)| on(place, of));
        let (mut taken, mut groups) = (0, BTreeMap::new());
        for ((_, variant), _) in here {
            taken += self.setting.variants[variant.get() as usize].0;
            if let Some(shared) = self.setting.shared(*variant) {
                groups.insert(shared.group, shared.pages);
            }
        }
        self.setting.devices[device.get() as usize].0 - taken - groups.values().sum::<u32>()
    }

    /// Pages that a LOAD takes, with what its group does not hold already.
    pub(super) fn needed(&self, device: DeviceIx, variant: VariantIx) -> u32 {
        let own = self.setting.variants[variant.get() as usize].0;
        let Some(shared) = self.setting.shared(variant) else {
            return own;
        };
        let held = self.there.iter().any(|((on, other), of)| {
            let group = self.setting.shared(*other).map(|shared| shared.group);
            *on == device && *of != Residency::Leaving && group == Some(shared.group)
        });
        own + if held { 0 } else { shared.pages }
    }
}
