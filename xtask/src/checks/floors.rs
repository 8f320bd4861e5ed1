//! Checks the order of the floors: a package may depend on packages of its own floor and of lower floors.

use std::path::Path;

use crate::{
    floors::{LABORATORY, ROLES, of},
    packages::Packages,
};

#[test]
fn nothing_is_built_of_what_lies_above() {
    let packages = Packages::of_workspace().unwrap();
    // A package inside a role's folder is a part of the role.
    let role = |folder: &Path| ROLES.iter().find(|role| folder.starts_with(role));
    let mut wrong = Vec::new();
    for (name, package) in packages.iter() {
        let Some(here) = of(&package.folder) else {
            wrong.push(format!("`{name}` lies on no floor"));
            continue;
        };
        for dependency in package.built_of.iter().filter_map(|it| packages.get(it)) {
            let folder = dependency.folder.display();
            let roles = role(&package.folder).zip(role(&dependency.folder));
            if of(&dependency.folder).is_none_or(|below| below > here) {
                wrong.push(format!("`{name}` is built of `{folder}`, which lies above"));
            } else if roles.is_some_and(|(own, other)| own != other) {
                wrong.push(format!("`{name}` is built of another role, `{folder}`"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn nothing_outside_the_laboratory_is_built_of_it() {
    let packages = Packages::of_workspace().unwrap();
    let is_inside = |folder: &Path| folder.starts_with(LABORATORY);
    let inside = packages.iter().filter(|(_, it)| is_inside(&it.folder));
    assert!(
        inside.count() > 1,
        "the laboratory is not in `{LABORATORY}`"
    );
    let mut wrong = Vec::new();
    for (name, package) in packages.iter().filter(|(_, it)| !is_inside(&it.folder)) {
        let inside = |it: &&String| packages.get(it).is_some_and(|of| is_inside(&of.folder));
        let built_of = package.built_of.iter().filter(inside);
        wrong.extend(built_of.map(|it| format!("`{name}` is built of `{it}`")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}
