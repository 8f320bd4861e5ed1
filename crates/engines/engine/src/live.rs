//! Values that exist once per key for as long as they are referenced.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// A map that owns nothing: its values live as long as the callers' references.
pub struct LiveMap<K, V> {
    slots: Mutex<HashMap<K, Arc<Slot<V>>>>,
}

/// Held while its value is made, so that two callers never make it twice.
type Slot<V> = Mutex<Weak<V>>;

impl<K, V> Default for LiveMap<K, V> {
    fn default() -> Self {
        Self {
            slots: Mutex::default(),
        }
    }
}

impl<K: Eq + Hash, V> LiveMap<K, V> {
    /// The live value of `key`, or the result of `make`. Waits while another caller makes it.
    pub fn get_or_make<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let slot = self.slot(key);
        let mut slot = slot.lock();
        if let Some(value) = slot.upgrade() {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        *slot = Arc::downgrade(&value);
        Ok(value)
    }

    /// The value of `key` if it exists now; never waits.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        let slot = Arc::clone(self.slots.lock().get(key)?);
        slot.try_lock()?.upgrade()
    }

    /// All existing values, unordered; values that are being made are left out.
    pub fn values(&self) -> Vec<Arc<V>> {
        let slots = self.slots.lock();
        let upgrade = |slot: &Arc<Slot<V>>| slot.try_lock()?.upgrade();
        slots.values().filter_map(upgrade).collect()
    }

    fn slot(&self, key: K) -> Arc<Slot<V>> {
        let mut slots = self.slots.lock();
        // A slot that another caller holds is in use; the others can be locked at once.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.lock().strong_count() > 0);
        Arc::clone(slots.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once_and_die_with_their_last_holder() {
        let map = LiveMap::<u8, u8>::default();
        let make = |value| move || Ok::<u8, ()>(value);
        let first = map.get_or_make(1, make(10)).unwrap();
        let second = map.get_or_make(1, make(20)).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(map.values().len(), 1);
        drop((first, second));
        assert!(map.get(&1).is_none());
        assert_eq!(*map.get_or_make(1, make(30)).unwrap(), 30);
    }

    #[test]
    fn a_failure_leaves_the_key_usable() {
        let map = LiveMap::<u8, u8>::default();
        assert_eq!(map.get_or_make(1, || Err::<u8, _>("no")).unwrap_err(), "no");
        assert_eq!(*map.get_or_make(1, || Ok::<u8, ()>(1)).unwrap(), 1);
    }
}
