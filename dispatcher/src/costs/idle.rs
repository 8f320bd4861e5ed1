//! To whom the idle time of a device is charged.
//!
//! Memory is what keeps a device: a variant that holds more of it leaves less for others, and a device with nothing
//! loaded could be given back. The loaded variants therefore pay in proportion to the memory that each needs,
//! regardless of which of them was used.

/// What is loaded on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Resident<T> {
    /// The payer.
    pub(crate) by: T,
    /// Memory that it needs.
    pub(crate) bytes: u64,
}

/// Splits an amount by memory, or equally if no payer needs any. The parts add up to the amount. There are no parts if
/// nothing is loaded.
pub(crate) fn split<T: Copy>(usd: f64, kept: &[Resident<T>]) -> Vec<(T, f64)> {
    let all: f64 = kept.iter().map(|one| one.bytes as f64).sum();
    let part = |one: &Resident<T>| match all > 0.0 {
        true => usd * (one.bytes as f64 / all),
        false => usd / kept.len() as f64,
    };
    kept.iter().map(|one| (one.by, part(one))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[u64]) -> Vec<Resident<usize>> {
        let kept = bytes.iter().enumerate();
        kept.map(|(by, bytes)| Resident { by, bytes: *bytes })
            .collect()
    }

    #[test]
    fn who_needs_more_memory_pays_more() {
        assert_eq!(
            split(8.0, &kept(&[1, 0, 3])),
            [(0, 2.0), (1, 0.0), (2, 6.0)]
        );
        assert_eq!(split(8.0, &kept(&[5])), [(0, 8.0)]);
    }

    #[test]
    fn without_memory_all_pay_alike_and_nobody_pays_where_nothing_is_loaded() {
        assert_eq!(split(8.0, &kept(&[0, 0])), [(0, 4.0), (1, 4.0)]);
        assert_eq!(split(8.0, &kept(&[])), []);
    }

    #[test]
    fn the_parts_add_up() {
        for bytes in [&[1, 1, 1][..], &[u64::MAX, 7, u64::MAX], &[0; 9]] {
            let sum: f64 = split(0.1, &kept(bytes)).iter().map(|(_, usd)| usd).sum();
            assert!((sum - 0.1).abs() < 1e-15, "{bytes:?}: {sum}");
        }
    }
}
