//! The floors of the workspace: the folders of each floor, from the bottom up.

use std::path::Path;

/// A floor.
pub struct Floor {
    /// Its name in ARCHITECTURE.md.
    pub name: &'static str,
    /// Its folders. A folder inside may lie on another floor.
    pub folders: &'static [&'static str],
}

/// The roles. They reach each other only through the traits and messages of `crates/wire`. Packages inside the folder
/// of a role are parts of it.
pub const ROLES: &[&str] = &["worker", "dispatcher", "autoscaler", "variant-gen", "api"];

/// The laboratory. Nothing outside depends on it, except that tests of decisions may run the policies of others.
pub const LABORATORY: &str = "lab";

/// The floors from the bottom up; ARCHITECTURE.md lists them from the top. Packages of one floor may depend on each
/// other.
pub const FLOORS: &[Floor] = &[
    floor("types", &["crates/types"]),
    floor("decisions", &["crates/decide"]),
    floor(
        "engines and providers",
        &["crates/engines", "crates/providers"],
    ),
    floor("stores", &["crates/stores"]),
    floor("picture", &["crates/picture"]),
    floor("wire", &["crates/wire"]),
    floor("formats", &["crates/formats"]),
    floor(
        "surroundings of a query",
        &["crates/pages", "crates/pipeline", "crates/python"],
    ),
    floor("roles", ROLES),
    floor("configuration", &["server/config"]),
    floor("simulation and load", &["crates/bench-client", "simulator"]),
    floor("program", &["server"]),
    floor("laboratory", &[LABORATORY]),
    floor("proof", &["crates/test-servers", "fuzz", "tests", "xtask"]),
];

const fn floor(name: &'static str, folders: &'static [&'static str]) -> Floor {
    Floor { name, folders }
}

/// The number of the floor of a folder or file.
pub fn of(path: &Path) -> Option<usize> {
    let floors = FLOORS.iter().enumerate();
    let around = floors.flat_map(|(at, of)| of.folders.iter().map(move |it| (at, Path::new(it))));
    let around = around.filter(|(_, it)| path.starts_with(it));
    let innermost = around.max_by_key(|(_, it)| it.components().count());
    innermost.map(|(at, _)| at)
}
