//! Amounts by application, variant and type of device; bounded.

use std::collections::BTreeMap;

use sextant_types::{ApplicationId, DeviceTypeName, Variant, VariantId};

use super::Tariff;

/// One in this many rows is reserved for variants that have no row of their own.
const KEPT_SHARE: usize = 4;

/// What has been counted for one payer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) usd: f64,
    pub(crate) offline_usd: f64,
    pub(crate) idle_usd: f64,
    pub(crate) device_seconds: f64,
    pub(crate) queries: u64,
    pub(crate) offline_queries: u64,
}

/// Who pays. It is borrowed, because most payers have a row already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payer<'a> {
    application: &'a ApplicationId,
    variant: &'a VariantId,
    device_type: Option<&'a DeviceTypeName>,
}

/// Who pays, as the key of a row. It has no variant in the row for variants without a row of their
/// own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PayerKey {
    pub(crate) application: ApplicationId,
    pub(crate) variant: Option<VariantId>,
    pub(crate) device_type: Option<DeviceTypeName>,
}

/// Amounts in a limited number of rows. An amount for which there is no row is charged to its
/// application. If there is no room for that row either, it is charged to nobody.
pub(crate) struct Book {
    most: usize,
    /// By variant, then by type of device; a variant has few types.
    variants: BTreeMap<VariantId, Vec<(PayerKey, Tally)>>,
    /// How many rows `variants` has.
    named: usize,
    others: BTreeMap<ApplicationId, (PayerKey, Tally)>,
    unattributed_usd: f64,
}

// === impl Tally ===

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.usd += other.usd;
        self.offline_usd += other.offline_usd;
        self.idle_usd += other.idle_usd;
        self.device_seconds += other.device_seconds;
        self.queries += other.queries;
        self.offline_queries += other.offline_queries;
    }
}

// === impl Payer ===

impl<'a> Payer<'a> {
    pub(crate) fn new(variant: &'a Variant, tariff: &'a Tariff) -> Self {
        Self {
            application: &variant.application,
            variant: &variant.id,
            device_type: tariff.device_type.as_ref(),
        }
    }
}

// === impl Book ===

impl Book {
    /// An empty book of at most `most` rows.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            variants: BTreeMap::new(),
            named: 0,
            others: BTreeMap::new(),
            unattributed_usd: 0.0,
        }
    }

    pub(crate) fn add(&mut self, payer: Payer<'_>, tally: &Tally) {
        match self.row(payer) {
            Some(row) => row.add(tally),
            None => self.unattributed_usd += tally.usd + tally.idle_usd,
        }
    }

    pub(crate) fn add_unattributed(&mut self, usd: f64) {
        self.unattributed_usd += usd;
    }

    /// The amount that is charged to nobody, US dollars.
    pub(crate) fn unattributed_usd(&self) -> f64 {
        self.unattributed_usd
    }

    /// Forgets the rows of variants for which `stays` is false.
    pub(crate) fn retain(&mut self, stays: impl Fn(&VariantId) -> bool) {
        self.variants.retain(|variant, _| stays(variant));
        self.named = self.variants.values().map(Vec::len).sum();
    }

    /// The rows, sorted by payer.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&PayerKey, &Tally)> {
        let named = self.variants.values().flatten();
        let mut rows: Vec<_> = named.chain(self.others.values()).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows.into_iter().map(|(named, tally)| (named, tally))
    }

    fn row(&mut self, payer: Payer<'_>) -> Option<&mut Tally> {
        let kept = self.most / KEPT_SHARE;
        let rows = self.variants.get_mut(payer.variant);
        let found = rows.as_ref().and_then(|rows| payer.find(rows));
        if found.is_none() && self.named >= self.most - kept {
            return self.other(payer.application, kept);
        }
        let rows = self.variants.entry(payer.variant.clone()).or_default();
        let at = found.unwrap_or_else(|| {
            rows.push((payer.named(), Tally::default()));
            self.named += 1;
            rows.len() - 1
        });
        rows.get_mut(at).map(|(_, tally)| tally)
    }

    /// The row for those variants of an application that have no row of their own.
    fn other(&mut self, application: &ApplicationId, most: usize) -> Option<&mut Tally> {
        if !self.others.contains_key(application) {
            if self.others.len() >= most {
                return None;
            }
            let named = PayerKey {
                application: application.clone(),
                variant: None,
                device_type: None,
            };
            let row = (named, Tally::default());
            self.others.insert(application.clone(), row);
        }
        self.others.get_mut(application).map(|(_, tally)| tally)
    }
}

impl Payer<'_> {
    fn find(&self, rows: &[(PayerKey, Tally)]) -> Option<usize> {
        let is_same = |named: &PayerKey| {
            named.device_type.as_ref() == self.device_type && named.application == *self.application
        };
        rows.iter().position(|(named, _)| is_same(named))
    }

    fn named(&self) -> PayerKey {
        PayerKey {
            application: self.application.clone(),
            variant: Some(self.variant.clone()),
            device_type: self.device_type.cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(book: &mut Book, application: &str, variant: &str, device_type: &str) {
        let payer = Payer {
            application: &ApplicationId::new(application).expect("a name"),
            variant: &VariantId::new(variant).expect("a name"),
            device_type: Some(&DeviceTypeName::new(device_type).expect("a name")),
        };
        let tally = Tally {
            usd: 1.0,
            idle_usd: 0.5,
            queries: 2,
            ..Tally::default()
        };
        book.add(payer, &tally);
    }

    /// Application, variant, US dollars.
    fn rows(book: &Book) -> Vec<(&str, &str, f64)> {
        let rows = book.rows().map(|(named, tally)| {
            let variant = named.variant.as_ref().map_or("", VariantId::as_str);
            (named.application.as_str(), variant, tally.usd)
        });
        rows.collect()
    }

    #[test]
    fn each_variant_has_a_row_for_each_type_of_device() {
        let mut book = Book::new(100);
        for (variant, device_type) in [("b", "x"), ("a", "y"), ("a", "x"), ("a", "y")] {
            add(&mut book, "app", variant, device_type);
        }
        let wanted = [("app", "a", 1.0), ("app", "a", 2.0), ("app", "b", 1.0)];
        assert_eq!(rows(&book), wanted);
        let (_, tally) = book.rows().nth(1).expect("three rows");
        assert_eq!((tally.idle_usd, tally.queries), (1.0, 4));
    }

    #[test]
    fn what_has_no_room_is_counted_to_its_application_and_then_to_nobody() {
        let mut book = Book::new(8);
        for variant in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            add(&mut book, "app", variant, "x");
        }
        assert_eq!(book.rows().count(), 7);
        assert_eq!(rows(&book)[0], ("app", "", 2.0));
        add(&mut book, "app", "a", "x");
        assert_eq!(rows(&book)[1], ("app", "a", 2.0), "it has its row");
        add(&mut book, "two", "i", "x");
        add(&mut book, "three", "j", "x");
        assert_eq!(book.rows().count(), 8);
        assert_eq!(book.unattributed_usd(), 1.5);
    }
}
