//! The addresses to which no message is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of clouds' metadata services, which hand out a machine's keys, in addition to the
/// link-local ones.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same over IPv6.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Whether an address is link-local, belongs to a cloud's metadata service, or cannot receive a
/// message. Loopback and private addresses are permitted: receivers are often on the same network.
pub fn is_refused(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_link_local()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_broadcast()
                || METADATA_V4.contains(&address)
        }
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            let link_local = first & 0xffc0 == 0xfe80;
            // Deprecated, but with the same meaning.
            let site_local = first & 0xffc0 == 0xfec0;
            link_local
                || site_local
                || address.is_unspecified()
                || address.is_multicast()
                || METADATA_V6.contains(&address)
                || within(address).is_some_and(|inner| is_refused(IpAddr::V4(inner)))
        }
    }
}

/// The IPv4 address that an IPv6 address contains: mapped, compatible, translated or tunnelled.
fn within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // `::1` is loopback, not 0.0.0.1.
        [0, 0, 0, 0, 0, 0, 0, 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(of(high, low)),
        // The second one is for local translators, whose prefixes share 96 bits.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_has_for_itself_is_refused() {
        for refused in [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "fec0::1",
            "fd00:ec2::254",
            "::",
            "ff02::1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(
                is_refused(refused.parse().expect("an address")),
                "{refused}"
            );
        }
        for fine in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.1.1",
            "8.8.8.8",
            "::1",
            "2001:db8::1",
            "fd12::1",
        ] {
            assert!(!is_refused(fine.parse().expect("an address")), "{fine}");
        }
    }
}
