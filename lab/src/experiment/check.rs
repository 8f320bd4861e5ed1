//! Checks of a cell before anything is run.

use super::{Arrivals, Cell, DeviceType, Group, Kind, Segment};

/// Checks a cell, and says what is wrong with it.
pub(super) fn check(kind: Kind, cell: &Cell) -> Result<(), String> {
    let numbers = [
        ("devices_per_model", cell.devices_per_model),
        ("jitter_share", cell.jitter_share),
        ("warm_up_s", cell.warm_up_s),
        ("measured_s", cell.measured_s),
        ("rate_rps", cell.rate_rps),
        ("most_missed_share", cell.most_missed_share),
        ("window_ms", cell.window_ms),
        ("hold", cell.hold),
    ];
    let loads = cell.loads.iter().map(|load| ("loads", *load));
    let targets = cell.targets_ms.iter().map(|target| ("targets_ms", *target));
    for (key, value) in numbers.into_iter().chain(loads).chain(targets) {
        if !value.is_finite() || value < 0.0 {
            return Err(format!(
                "`{key}` is `{value}`: it must be finite and not negative"
            ));
        }
    }
    check_fleet(kind, cell)?;
    if cell.devices == 0 && cell.devices_per_model <= 0.0 && cell.fleet.is_empty() {
        return Err("`devices` is `0`: there must be at least one".to_owned());
    }
    if cell.targets_ms.contains(&0.0) {
        return Err("`targets_ms` holds `0`: a target must be more than zero".to_owned());
    }
    if kind == Kind::Spread {
        return check_spread(cell);
    }
    if cell.measured_s <= 0.0 && cell.requests_per_model == 0 {
        return Err("neither `measured_s` nor `requests_per_model` is set".to_owned());
    }
    match (&cell.memory, kind) {
        (Some(memory), Kind::Timeline) => super::memory::check(memory)?,
        (None, Kind::Timeline) => {
            return Err("`memory` is not set: say how many `pages` a device has".to_owned());
        }
        (Some(_), _) => return Err("only `timeline` experiments have `memory`".to_owned()),
        (None, _) => {}
    }
    cell.group.iter().try_for_each(check_group)
}

fn check_fleet(kind: Kind, cell: &Cell) -> Result<(), String> {
    if kind != Kind::Prices {
        return match cell.fleet.is_empty() {
            true => Ok(()),
            false => Err("only `prices` experiments have a `fleet`".to_owned()),
        };
    }
    if cell.fleet.len() < 2 {
        return Err("`fleet` names fewer than two types of devices".to_owned());
    }
    if cell.devices > 0 || cell.devices_per_model > 0.0 {
        return Err("`devices` is set beside `fleet`".to_owned());
    }
    for of in &cell.fleet {
        let numbers = [
            ("devices", f64::from(of.devices)),
            ("hour_usd", of.hour_usd),
            ("slowdown", of.slowdown),
        ];
        for (key, value) in numbers {
            if !value.is_finite() || value <= 0.0 {
                let name = &of.name;
                return Err(format!(
                    "`{key}` of `{name}` is `{value}`: it must be finite and more than zero"
                ));
            }
        }
    }
    let run_cost = |of: &DeviceType| of.hour_usd * of.slowdown;
    let first = run_cost(&cell.fleet[0]);
    if let Some(less) = cell.fleet.iter().find(|of| run_cost(of) < first) {
        return Err(format!(
            "a run costs less on `{}` than on the first of `fleet`",
            less.name
        ));
    }
    Ok(())
}

fn check_spread(cell: &Cell) -> Result<(), String> {
    for (key, value) in [("window_ms", cell.window_ms), ("rate_rps", cell.rate_rps)] {
        if value <= 0.0 {
            return Err(format!("`{key}` is `{value}`: it must be more than zero"));
        }
    }
    Ok(())
}

fn check_group(group: &Group) -> Result<(), String> {
    let target = group.target_ms.unwrap_or(1.0);
    let numbers = [
        ("target_ms", target),
        ("rate_rps", group.rate_rps),
        ("zipf_exponent", group.zipf_exponent),
        ("begin_s", group.begin_s),
        ("shape", group.shape),
    ];
    for (key, value) in numbers {
        if !value.is_finite() || value < 0.0 {
            return Err(format!(
                "`{key}` is `{value}`: it must be finite and not negative"
            ));
        }
    }
    let least = [
        ("shape", group.shape),
        ("minute_s", group.minute_s),
        ("step_s", group.step_s),
        ("minutes", group.minutes as f64),
        ("copies", f64::from(group.copies)),
        ("max_rows", f64::from(group.max_rows)),
    ];
    for (key, value) in least {
        if value <= 0.0 {
            return Err(format!("`{key}` is `{value}`: it must be more than zero"));
        }
    }
    if group.arrivals == Arrivals::Closed && group.clients == 0 {
        return Err("`clients` is `0`: a closed loop needs at least one".to_owned());
    }
    for segment in &group.pattern {
        for value in [segment.seconds, segment.from, segment.to] {
            if !value.is_finite() || value < 0.0 {
                return Err(format!(
                    "`pattern` holds `{value}`: it must be finite and not negative"
                ));
            }
        }
    }
    let area = |segment: &Segment| segment.seconds * (segment.from + segment.to);
    if !group.pattern.is_empty() && group.pattern.iter().map(area).sum::<f64>() <= 0.0 {
        return Err("`pattern` has no requests".to_owned());
    }
    if group.profile.is_empty() {
        return Err("a group has no `profile`".to_owned());
    }
    Ok(())
}
