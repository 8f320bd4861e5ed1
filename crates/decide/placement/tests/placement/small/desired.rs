//! What is to be kept loaded, whoever asks for it.

use sextant_placement::{Action, DesiredPlacement, Policy};
use sextant_schedule::NEVER;

use super::{DEVICES, Driver, MS, VARIANTS};

#[test]
fn a_load_that_is_desired_is_never_too_late() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 10, &[4]);
        driver.bring(0);
        let everywhere = DesiredPlacement {
            devices: u32::MAX,
            pinned: false,
            order: 0,
        };
        driver.event(|p, now, out| p.on_desired(now, &[(VARIANTS[0], everywhere)], NEVER, out));
        // The device that has the variant keeps up with it.
        driver.request(0, 50 * MS);
        assert_eq!(driver.take(), [], "{policy}");
        driver.up(1, 0, 10);
        let load = Action::Load {
            device: DEVICES[1],
            variant: VARIANTS[0],
            earliest: driver.now,
            latest: NEVER,
            expected: 8 * MS,
        };
        assert_eq!(driver.take(), [load], "{policy}");
    }
}

#[test]
fn each_device_that_failed_is_asked_again() {
    for policy in Policy::ALL {
        let mut driver = Driver::new(*policy, 9, &[3]);
        driver.up(1, 0, 9);
        let desired = DesiredPlacement {
            devices: 2,
            pinned: false,
            order: 0,
        };
        driver.event(|p, now, out| p.on_desired(now, &[(VARIANTS[0], desired)], NEVER, out));
        let loads = driver.take();
        driver.carry_out(&loads);
        driver.event(|p, now, out| p.on_lost(now, DEVICES[0], VARIANTS[0], out));
        driver.pass(10 * MS);
        assert_eq!(driver.loads(), [0], "{policy}");
        // From its second failure on the pause is twice as long as that of the other device.
        driver.event(|p, now, out| p.on_load_result(now, DEVICES[0], VARIANTS[0], false, out));
        driver.event(|p, now, out| p.on_lost(now, DEVICES[1], VARIANTS[0], out));
        driver.pass(10 * MS);
        assert_eq!(driver.loads(), [0], "{policy}: the other device");
        driver.event(|p, now, out| p.on_load_result(now, DEVICES[1], VARIANTS[0], true, out));
        driver.pass(10 * MS);
        assert_eq!(driver.loads(), [0], "{policy}: the first device");
    }
}
