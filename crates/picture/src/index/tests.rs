//! Over random changes, an index that is made from the previous one equals an index that is made from nothing. Tests
//! also which parts a change makes anew.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_metadata::{Instance, InstanceKey, conformance::sample_variant};

use super::*;
const SEED: u64 = 17;

/// Applications, each of two models with two variants each.
const APPLICATIONS: usize = 40;

/// The store's view and the workers, which change.
struct World {
    view: View,
    random: ChaCha8Rng,
    workers: Vec<(WorkerId, bool)>,
    engines: Vec<EngineName>,
    types: DeviceTypes,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            view: View::default(),
            random: ChaCha8Rng::seed_from_u64(SEED),
            workers: ["a", "b"]
                .map(|name| (name.parse().expect("a name"), false))
                .to_vec(),
            engines: Vec::new(),
            types: DeviceTypes::default(),
        };
        for number in 0..4 * APPLICATIONS {
            world.publish(number);
        }
        let engine = |variant: &Arc<Variant>| variant.spec.engine.clone();
        world.engines = world.view.variants.values().take(1).map(engine).collect();
        world
    }

    /// Publishes a variant with another accuracy and price than before.
    fn publish(&mut self, number: usize) {
        let name = format!("v-{number}");
        let mut variant =
            Variant::clone(&sample_variant(&name, self.random.random_range(1.0..2.0)));
        variant.application = format!("app-{}", number / 4).parse().expect("a name");
        variant.model = format!("model-{}", number / 2).parse().expect("a name");
        variant.accuracy.lower = self.random.random_range(0.5..0.9);
        let other = (number + 1) / 4 == number / 4 && self.random.random_range(0..3) == 0;
        let other = other.then(|| format!("v-{}", number + 1).parse().expect("a name"));
        variant.dominated_by = other;
        self.view
            .variants
            .insert(variant.id.clone(), Arc::new(variant));
    }

    fn change(&mut self) {
        let number = self.random.random_range(0..4 * APPLICATIONS);
        let id: VariantId = format!("v-{number}").parse().expect("a name");
        match self.random.random_range(0..10) {
            0..3 => self.publish(number),
            3 => drop(self.view.variants.remove(&id)),
            4 => {
                let at = self.random.random_range(0..self.workers.len());
                self.workers[at].1 ^= true;
            }
            _ => self.load(&id),
        }
    }

    fn load(&mut self, id: &VariantId) {
        let at = self.random.random_range(0..self.workers.len());
        let states = InstanceState::ALL;
        let state = states[self.random.random_range(0..states.len())];
        self.set(id, at, state);
    }

    /// Sets the state of a variant's instance on a worker.
    fn set(&mut self, id: &VariantId, at: usize, state: InstanceState) {
        let key = InstanceKey::new(id.clone(), self.workers[at].0.clone());
        let instance = Instance {
            key: key.clone(),
            application: "app".parse().expect("a name"),
            state,
            version: 1,
            since_ms: 0,
            lease_until_ms: u64::MAX,
            load: 0.0,
            reason: None,
        };
        self.view.instances.insert(key, instance);
    }

    fn build(&self, interner: &mut Interner, before: &Snapshot) -> Snapshot {
        let usable = (0..).zip(&self.workers).map(|(at, (id, slowed))| {
            let usable = Usable {
                at: DeviceIx::new(at),
                kind: KindIx::new(u32::from(*slowed)),
                device_type: None,
                engines: &self.engines,
                slowed: *slowed,
            };
            (id, usable)
        });
        let around = Surroundings {
            workers: usable.collect(),
            types: &self.types,
            round_trip: 0,
            slowdowns: Slowdowns::of(self.view.variants.values().map(|it| &**it), 1.0),
        };
        Snapshot::build(&self.view, &around, interner, before)
    }
}

/// Everything that an index decides, in order.
fn shown(snapshot: &Snapshot) -> Vec<String> {
    let known = snapshot.all().map(|known| {
        let hosts = known
            .hosts
            .iter()
            .map(|host| (host.kind, host.readiness, &host.workers));
        let hosts: Vec<_> = hosts.collect();
        let (id, quality) = (&known.variant.id, known.quality);
        format!(
            "{id} {quality:?} {:?} {:?} {hosts:?}",
            known.readiness, known.workers
        )
    });
    let scope = |name: String, scope: &Scope| {
        let entries = scope.index.entries();
        let (usual, uploaded) = (scope.usual_quality, scope.uploaded_quality);
        format!("{name} {entries:?} {usual:?} {uploaded:?}")
    };
    let applications = snapshot.applications.iter();
    let applications = applications.map(|(id, of)| scope(id.to_string(), of));
    let models = snapshot.models.iter();
    let models = models.map(|(id, of)| scope(id.to_string(), of));
    let mut shown: Vec<String> = known.chain(applications).chain(models).collect();
    shown.sort();
    shown
}

/// The numbers of variants, applications and models that were not taken from the previous index.
fn made_anew(before: &Snapshot, after: &Snapshot) -> [usize; 3] {
    let known = after.all().filter(|known| {
        let known_before = before.known(known.ordinal);
        known_before.is_none_or(|before| !Arc::ptr_eq(before, known))
    });
    fn others<I: std::hash::Hash + Eq>(
        before: &HashMap<I, Arc<Scope>>,
        after: &HashMap<I, Arc<Scope>>,
    ) -> usize {
        let is_new = |(id, scope): &(&I, &Arc<Scope>)| {
            let known = before.get(*id);
            known.is_none_or(|known| !Arc::ptr_eq(known, scope))
        };
        after.iter().filter(is_new).count()
    }
    [
        known.count(),
        others(&before.applications, &after.applications),
        others(&before.models, &after.models),
    ]
}

#[test]
fn an_index_made_from_the_one_before_is_the_one_made_from_nothing() {
    let mut world = World::new();
    let mut interner = Interner::default();
    let mut before = Snapshot::default();
    for step in 0..300 {
        world.change();
        let after = world.build(&mut interner, &before);
        let afresh = world.build(&mut interner, &Snapshot::default());
        assert_eq!(shown(&after), shown(&afresh), "step {step} of seed {SEED}");
        before = after;
    }
}

#[test]
fn a_change_makes_anew_what_it_concerns() {
    let mut world = World::new();
    let mut interner = Interner::default();
    let first = world.build(&mut interner, &Snapshot::default());
    assert_eq!(
        made_anew(&Snapshot::default(), &first),
        [4 * APPLICATIONS, APPLICATIONS, 2 * APPLICATIONS]
    );
    let same = world.build(&mut interner, &first);
    assert_eq!(made_anew(&first, &same), [0, 0, 0]);
    // First an instance changes, then a variant.
    world.load(&"v-5".parse().expect("a name"));
    let loaded = world.build(&mut interner, &same);
    assert_eq!(made_anew(&same, &loaded), [1, 1, 1]);
    world.view.variants.remove(&"v-9".parse().expect("a name"));
    let retired = world.build(&mut interner, &loaded);
    let [known, applications, models] = made_anew(&loaded, &retired);
    assert!(known <= 1, "what was compared with its file: {known}");
    assert_eq!((applications, models), (1, 1));
    // A worker is slowed down, which concerns every variant that it can run.
    world.workers[0].1 = true;
    let slowed = world.build(&mut interner, &retired);
    assert_eq!(made_anew(&retired, &slowed)[0], 4 * APPLICATIONS - 1);
}

/// The time of a variant's first LOAD is expected until a worker has had it.
#[test]
fn a_load_takes_what_the_first_takes_until_a_worker_has_had_the_variant() {
    let mut world = World::new();
    let id: VariantId = "v-5".parse().expect("a name");
    let mut variant = Variant::clone(&world.view.variants[&id]);
    variant.profile.first_load_ms = Some(500.0);
    let again_ms = variant.profile.load_ms;
    world.view.variants.insert(id.clone(), Arc::new(variant));
    let mut interner = Interner::default();
    let mut snapshot = Snapshot::default();
    let mut expected_ms = |world: &World| {
        snapshot = world.build(&mut interner, &snapshot);
        let known = snapshot.all().find(|known| known.variant.id == id);
        known.expect("it is published").load_ms()
    };
    assert_eq!(expected_ms(&world), 500.0);
    for (state, ms) in [
        (InstanceState::Loading, 500.0),
        (InstanceState::Failed, 500.0),
        (InstanceState::Active, again_ms),
        (InstanceState::Inactive, again_ms),
    ] {
        world.set(&id, 0, state);
        assert_eq!(expected_ms(&world), ms, "{state}");
    }
    world.view.instances.clear();
    assert_eq!(expected_ms(&world), 500.0, "the worker is gone");
}
