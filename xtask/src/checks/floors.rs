//! The order of the floors: a package is built of packages of its own floor and of floors below.

use std::path::Path;

use crate::packages::Packages;

/// From below, as ARCHITECTURE.md has them from above. Packages of one row may be built of each other.
const FLOORS: &[&[&str]] = &[
    &["crates/types"],
    &["crates/decide"],
    &["crates/engines", "crates/providers"],
    &["crates/stores"],
    &["crates/picture"],
    &["crates/wire"],
    &["crates/formats"],
    &["crates/pages", "crates/pipeline", "crates/python"],
    ROLES,
    &["server/config"],
    &["crates/bench-client", "simulator"],
    &["server"],
    &["crates/test-servers", "fuzz", "tests", "xtask"],
];
/// They reach each other by the traits and messages of `crates/wire` alone.
const ROLES: &[&str] = &["worker", "dispatcher", "autoscaler", "variant-gen", "api"];

/// The number of the floor on which a folder lies.
fn floor(folder: &Path) -> Option<usize> {
    let rows = FLOORS.iter().enumerate();
    let around = rows.flat_map(|(at, row)| row.iter().map(move |it| (at, Path::new(it))));
    let around = around.filter(|(_, it)| folder.starts_with(it));
    let innermost = around.max_by_key(|(_, it)| it.components().count());
    innermost.map(|(at, _)| at)
}

#[test]
fn nothing_is_built_of_what_lies_above() {
    let packages = Packages::of_workspace().unwrap();
    let is_role = |folder: &Path| ROLES.iter().any(|role| Path::new(role) == folder);
    let mut wrong = Vec::new();
    for (name, package) in packages.iter() {
        let Some(here) = floor(&package.folder) else {
            wrong.push(format!("`{name}` lies on no floor"));
            continue;
        };
        for dependency in package.built_of.iter().filter_map(|it| packages.get(it)) {
            let folder = dependency.folder.display();
            if floor(&dependency.folder).is_none_or(|below| below > here) {
                wrong.push(format!("`{name}` is built of `{folder}`, which lies above"));
            } else if is_role(&package.folder) && is_role(&dependency.folder) {
                wrong.push(format!("`{name}` is built of another role, `{folder}`"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
