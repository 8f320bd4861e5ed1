//! What a history is played on.

use sextant_controller::{OnKind, VariantSpec};
use sextant_placement::{self as placement, Shared};
use sextant_profile::Surface;
use sextant_schedule::{LatencyTable, Nanos, QueueSpec};
use sextant_types::index::{KindIx, TenantIx, VariantIx};

use super::KINDS;

/// What a history is played on.
#[derive(Debug, Clone)]
pub struct Setting {
    pub scheduling: sextant_baselines::Options,
    pub placing: placement::Options,
    /// By device: pages and slots.
    pub devices: Vec<(u32, u16)>,
    /// By variant: pages, time of a LOAD, run time of one row, and of each further one.
    pub variants: Vec<(u32, Nanos, Nanos, Nanos)>,
    /// By variant: what it holds together with the others of its group; nothing beyond the list.
    pub shared: Vec<Option<Shared>>,
    pub max_rows: u32,
    /// Variants whose queries come in several sizes: run times are those of a query of size 100 and grow
    /// with the size.
    pub shaped: Vec<u32>,
    /// So many tenants share the variants.
    pub tenants: u32,
    /// Whether LOADs and batches take exactly as long as expected and all succeed.
    pub exact: bool,
}

// === impl Setting ===

impl Setting {
    pub(super) fn shared(&self, variant: VariantIx) -> Option<Shared> {
        self.shared.get(variant.get() as usize).copied().flatten()
    }

    pub(super) fn surface(&self, variant: VariantIx) -> Option<Surface> {
        let (_, _, first, more) = self.variants[variant.get() as usize];
        let table = |size: u64| {
            let rows = 0..u64::from(self.max_rows);
            let nanos = rows.map(|row| (first + row * more) * size / 100);
            (size, LatencyTable::new(nanos.collect()).unwrap())
        };
        let tables = [50, 100, 200, 400].map(table).to_vec();
        let surface = Surface::new(tables, self.max_rows);
        surface.filter(|_| self.shaped.contains(&variant.get()))
    }

    pub(super) fn variant(&self, variant: VariantIx) -> VariantSpec {
        let (pages, load, first, more) = self.variants[variant.get() as usize];
        let rows = 0..u64::from(self.max_rows);
        let latency = LatencyTable::new(rows.map(|row| first + row * more).collect()).unwrap();
        VariantSpec {
            pages,
            shared: self.shared(variant),
            surface: self.surface(variant),
            load,
            first_load: 0,
            kinds: (0..KINDS)
                .map(|kind| OnKind {
                    kind: KindIx::new(kind),
                    latency: None,
                    surface: None,
                    load: 0,
                    price: 1.0,
                    planned_rows: u32::MAX,
                })
                .collect(),
            queue: QueueSpec {
                max_rows: self.max_rows,
                planned_rows: u32::MAX,
                batched: true,
                slots: 1,
                latency,
                max_waiting_rows: 500,
                tenant: TenantIx::new(variant.get() % self.tenants.max(1)),
                priority: 100,
                weight: 1.0,
                price: 1.0,
            },
        }
    }
}
