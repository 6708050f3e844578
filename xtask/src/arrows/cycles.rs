//! The files of a crate under `crates/` have an order too: no chain of paths leads from a file back to it.
//!
//! So each file can be read, and its protocol checked, with no more than the files below it. A file that
//! needs something from above takes it as an argument.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;

use super::{Arrow, Source, arrows, read};
use crate::root;

/// The crates whose files have cycles, most of them because the crate's root, or a folder's, has items that
/// the files below it name.
const CYCLIC: &[&str] = &["baselines", "bonsai", "rcu", "refcache", "sync", "vm", "vm-testkit", "vm-trees"];

/// Returns whether the files of each crate have an order, but for those that are known to have none, and
/// prints the others' cycles.
pub fn check() -> Result<bool> {
    let mut crates = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?;
        if folder.path().join("src").is_dir() {
            crates.push(folder.file_name().to_string_lossy().into_owned());
        }
    }
    crates.sort();
    let mut good = true;
    for name in crates {
        let found = complaint(&name, &read(&root().join("crates").join(&name).join("src"))?, CYCLIC)?;
        found.iter().for_each(|complaint| println!("{complaint}"));
        good &= found.is_none();
    }
    Ok(good)
}

/// Returns the error of a crate: a cycle, or that it is among the `known` crates with cycles and has none.
fn complaint(name: &str, sources: &[Source], known: &[&str]) -> Result<Option<String>> {
    let arrows = arrows(sources)?;
    Ok(match (cycle(&arrows), known.contains(&name)) {
        (None, true) => Some(format!("crates/{name}: no cycle is left: remove it from CYCLIC")),
        (Some(cycle), false) => {
            let steps = cycle.iter().map(|Arrow { from, line, path, to }| {
                format!("\n  crates/{name}/src/{from}:{line} names {}, of {to}", path.join("::"))
            });
            Some(format!("crates/{name}: a cycle of files:{}", steps.collect::<String>()))
        }
        _ => None,
    })
}

/// Returns arrows that lead from a file back to it, if there are any.
fn cycle<'a, 's>(arrows: &'a [Arrow<'s>]) -> Option<Vec<&'a Arrow<'s>>> {
    let rest = unordered(arrows);
    let next = |file: &str| arrows.iter().find(|arrow| arrow.from == file && rest.contains(arrow.to));
    let mut way: Vec<&Arrow> = vec![next(rest.first()?)?];
    loop {
        let at = way[way.len() - 1].to;
        if let Some(start) = way.iter().position(|arrow| arrow.from == at) {
            return Some(way.split_off(start));
        }
        way.push(next(at)?);
    }
}

/// Returns the files that are left when those that name none of the rest are taken away, as long as there are
/// any. Each of them is in a cycle, or leads to one.
fn unordered<'s>(arrows: &[Arrow<'s>]) -> BTreeSet<&'s str> {
    let mut rest: BTreeSet<&str> = arrows.iter().map(|arrow| arrow.from).collect();
    loop {
        let next: BTreeSet<&str> =
            arrows.iter().filter(|arrow| rest.contains(arrow.to)).map(|arrow| arrow.from).collect();
        if next.len() == rest.len() {
            return rest;
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    fn found(sources: &[(&str, &str)]) -> Option<String> {
        complaint("map", &files(sources), &["old"]).unwrap()
    }

    const LIB: (&str, &str) = ("lib.rs", "mod lock;\nmod node;\nmod slot;\npub use slot::Slot;");
    const LOCK: (&str, &str) = ("lock.rs", "use crate::node::Node;\nuse crate::Slot;");
    const SLOT: (&str, &str) = ("slot.rs", "use core::fmt;\n#[cfg(test)] mod tests { use super::*; }");

    #[test]
    fn files_that_name_only_those_below_are_in_order() {
        let node = ("node.rs", "//! See [`crate::lock`].\nuse crate::slot::Slot;");
        assert_eq!(found(&[LIB, LOCK, node, SLOT]), None);
    }

    #[test]
    fn a_cycle_is_shown_from_file_to_file() {
        let node = ("node.rs", "use crate::slot::Slot;\nuse crate::fold::collapse;");
        let fold = ("fold.rs", "use crate::lock::Here;");
        let expected = "crates/map: a cycle of files:\
            \n  crates/map/src/fold.rs:1 names lock::Here, of lock.rs\
            \n  crates/map/src/lock.rs:1 names node::Node, of node.rs\
            \n  crates/map/src/node.rs:2 names fold::collapse, of fold.rs";
        assert_eq!(found(&[LIB, LOCK, node, fold, SLOT]).unwrap(), expected);
    }

    #[test]
    fn an_item_of_the_root_makes_a_cycle() {
        let slot = ("slot.rs", "fn f() -> crate::OutOfMemory {}");
        let expected = "crates/map: a cycle of files:\
            \n  crates/map/src/lib.rs:4 names slot::Slot, of slot.rs\
            \n  crates/map/src/slot.rs:1 names OutOfMemory, of lib.rs";
        assert_eq!(found(&[LIB, slot]).unwrap(), expected);
    }

    #[test]
    fn a_file_that_leads_to_a_cycle_is_not_shown() {
        let sources =
            [("lib.rs", "mod a; mod b; use a::A;"), ("a.rs", "use crate::b;"), ("b.rs", "use super::a;")];
        let shown = found(&sources).unwrap();
        assert!(
            shown.contains("src/a.rs:1") && shown.contains("src/b.rs:1") && !shown.contains("src/lib.rs")
        );
    }

    #[test]
    fn a_known_crate_is_excused_as_long_as_it_has_a_cycle() {
        let slot = ("slot.rs", "use crate::OutOfMemory;");
        assert_eq!(complaint("old", &files(&[LIB, slot]), &["old"]).unwrap(), None);
        let expected = "crates/old: no cycle is left: remove it from CYCLIC";
        assert_eq!(complaint("old", &files(&[LIB, SLOT]), &["old"]).unwrap().unwrap(), expected);
    }
}
