//! Rooms of a unit have an order, and a file may name modules of its own room and of rooms below it only.
//!
//! The order is a table ([`UNITS`]): one list of rooms per unit, from the bottom to the top. A room is a few
//! files and folders. A path that goes up is an error, unless its pair of rooms is a known exception. An
//! exception that no path needs any more is an error too, so their number only shrinks.
//!
//! A room that needs something from above declares a trait, which a room above implements: see
//! ARCHITECTURE.md.

mod cycles;
mod paths;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use cycles::check as check_files;

use crate::rooms;
use crate::root;
use paths::{Named, named};
use table::{UNITS, Unit};

/// A path in one file that names a module in another.
#[derive(Debug, PartialEq, Eq)]
struct Arrow<'s> {
    from: &'s str,
    to: &'s str,
    line: usize,
    path: Vec<String>,
}

/// Returns whether no path of any unit goes up, and prints those that do.
pub fn check() -> Result<bool> {
    let mut good = true;
    for unit in &UNITS {
        let complaints = unit.complaints(&unit.read()?)?;
        complaints.iter().for_each(|complaint| println!("{complaint}"));
        good &= complaints.is_empty();
    }
    Ok(good)
}

/// Returns whether ARCHITECTURE.md shows the rooms as the table has them.
pub fn check_pictures() -> Result<bool> {
    let page = fs::read_to_string(root().join(PAGE))?;
    let good = UNITS.iter().all(|unit| page.contains(&unit.picture()));
    if !good {
        println!("{PAGE} does not show the rooms of xtask/src/arrows/table.rs: run cargo xtask doc");
    }
    Ok(good)
}

const PAGE: &str = "ARCHITECTURE.md";

/// Writes the rooms into ARCHITECTURE.md.
pub fn write_pictures() -> Result<()> {
    let mut page = fs::read_to_string(root().join(PAGE))?;
    for unit in &UNITS {
        page =
            with_picture(&page, unit).with_context(|| format!("{PAGE} has no place for {}", unit.source))?;
    }
    Ok(fs::write(root().join(PAGE), page)?)
}

/// Returns `page` with the unit's picture in the place of the one that it has.
fn with_picture(page: &str, unit: &Unit) -> Option<String> {
    let (before, rest) = page.split_once(&unit.mark())?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{}{after}", unit.picture()))
}

/// Prints each unit's rooms, from the top to the bottom, and how often each names the others.
pub fn print() -> Result<bool> {
    for unit in &UNITS {
        let sources = unit.read()?;
        let arrows = unit.arrows(&sources)?;
        println!("{}", unit.source);
        for (at, room) in unit.rooms.iter().enumerate().rev() {
            let mut uses = BTreeMap::new();
            for (_, to, _) in arrows.iter().filter(|(from, ..)| *from == at) {
                *uses.entry(*to).or_insert(0) += 1;
            }
            let shown: Vec<String> = uses
                .into_iter()
                .rev()
                .map(|(to, times)| {
                    format!("{}{} {times}", if to > at { "UP " } else { "" }, unit.rooms[to].name)
                })
                .collect();
            println!("  {:10} -> {}", room.name, shown.join(", "));
        }
    }
    Ok(true)
}

/// A source file: its path below the unit's folder, and its text.
type Source = (String, String);

const END: &str = "<!-- end of rooms -->";

impl Unit {
    fn read(&self) -> Result<Vec<Source>> {
        read(&root().join(self.source))
    }

    /// Returns the room of a file: the one with the longest path that leads to it.
    fn room_of(&self, file: &str) -> Option<usize> {
        let length = |path: &str| Path::new(file).starts_with(path).then_some(path.len());
        let rooms = self.rooms.iter().enumerate();
        let lengths = rooms
            .filter_map(|(at, room)| Some((room.paths.iter().filter_map(|path| length(path)).max()?, at)));
        lengths.max().map(|(_, at)| at)
    }

    /// Returns the paths that lead from one room to another, each with the two rooms.
    fn arrows<'s>(&self, sources: &'s [Source]) -> Result<Vec<(usize, usize, Arrow<'s>)>> {
        let room =
            |file: &str| self.room_of(file).with_context(|| format!("{}/{file} is in no room", self.source));
        for (file, _) in sources {
            room(file)?;
        }
        let with_rooms = |arrow: Arrow<'s>| Ok((room(arrow.from)?, room(arrow.to)?, arrow));
        let all: Result<Vec<_>> = arrows(sources)?.into_iter().map(with_rooms).collect();
        Ok(all?.into_iter().filter(|(from, to, _)| from != to).collect())
    }

    /// Returns the errors: paths that go up, and exceptions that nothing needs.
    fn complaints(&self, sources: &[Source]) -> Result<Vec<String>> {
        let arrows = self.arrows(sources)?;
        let name = |room: usize| self.rooms[room].name;
        let up = arrows
            .iter()
            .filter(|(from, to, _)| to > from)
            .map(|(from, to, arrow)| (name(*from), name(*to), arrow));
        let is_known = |(from, to, _): &(&str, &str, &Arrow)| {
            self.exceptions.iter().any(|known| (known.from, known.to) == (*from, *to))
        };
        let (known, new): (Vec<_>, Vec<_>) = up.partition(is_known);
        let mut complaints: Vec<String> = new
            .into_iter()
            .map(|(from, to, arrow)| {
                let (file, line, path) = (arrow.from, arrow.line, arrow.path.join("::"));
                format!("{}/{file}:{line}: room {from} names {path}, of room {to} above it", self.source)
            })
            .collect();
        for exception in self.exceptions {
            let (from, to) = (exception.from, exception.to);
            if !known.iter().any(|known| (known.0, known.1) == (from, to)) {
                complaints.push(format!(
                    "{}: no path goes from {from} up to {to}: remove the exception",
                    self.source
                ));
            }
        }
        Ok(complaints)
    }

    fn mark(&self) -> String {
        format!("<!-- rooms of {} -->\n", self.source)
    }

    /// Returns the rooms, from the top to the bottom, as ARCHITECTURE.md shows them.
    fn picture(&self) -> String {
        let width = self.rooms.iter().map(|room| room.name.len()).max().unwrap_or(0);
        let mut picture = self.mark() + "```text\n";
        for room in self.rooms.iter().rev() {
            picture += &format!("{:width$}  {}\n", room.name, room.what);
        }
        picture += "```\n";
        for exception in self.exceptions {
            picture += &format!(
                "\nKnown exception: `{}` names `{}`: {}\n",
                exception.from, exception.to, exception.why
            );
        }
        picture + END
    }
}

/// Returns the sources in `folder`, in the order of their paths.
fn read(folder: &Path) -> Result<Vec<Source>> {
    let mut files = Vec::new();
    rooms::sources(folder, &mut files)?;
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.strip_prefix(folder)?.to_string_lossy().into_owned();
        Ok((name, fs::read_to_string(file)?))
    };
    files.iter().map(read).collect()
}

/// Returns the paths that lead from one file to another.
fn arrows(sources: &[Source]) -> Result<Vec<Arrow<'_>>> {
    let modules: BTreeMap<Vec<String>, &str> =
        sources.iter().map(|(file, _)| (module(file), file.as_str())).collect();
    let offered = offered_by_root(sources);
    let mut arrows = Vec::new();
    for (from, text) in sources {
        for Named { path, line, .. } in named(&module(from), text) {
            let path = match path.first().and_then(|name| offered.get(name)) {
                Some(whole) if !modules.contains_key(&path[..1]) => [whole, &path[1..]].concat(),
                _ => path,
            };
            let longest = (0..=path.len()).rev().find_map(|length| modules.get(&path[..length]));
            let to = *longest.context("a unit has a main.rs or lib.rs")?;
            if to != from {
                arrows.push(Arrow { from, to, line, path });
            }
        }
    }
    Ok(arrows)
}

/// Returns the names that the root of a unit brings in from its modules, each with the whole path: `crate::A`
/// is `crate::a::A` if the root says `pub use a::A`.
fn offered_by_root(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let root = sources.iter().find(|(file, _)| module(file).is_empty());
    let named = root.map_or_else(Vec::new, |(_, text)| named(&[], text));
    let imports = named.into_iter().filter(|found| found.is_import && found.path.len() > 1);
    imports.filter_map(|found| Some((found.path.last()?.clone(), found.path))).collect()
}

/// Returns the path of a file's module: `a::b` for `a/b.rs` and `a/b/mod.rs`, none for `main.rs` and
/// `lib.rs`.
fn module(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod") || ["main.rs", "lib.rs"].contains(&file) {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::table::{Exception, Room};
    use super::*;

    const ROOMS: &[Room] = &[
        Room { name: "low", paths: &["low", "low.rs"], what: "the bottom" },
        Room { name: "high", paths: &["high", "low/part.rs"], what: "above it" },
        Room { name: "main", paths: &["main.rs"], what: "the top" },
    ];

    fn unit(exceptions: &'static [Exception]) -> Unit {
        Unit { source: "unit/src", rooms: ROOMS, exceptions }
    }

    fn files(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    const DOWN: (&str, &str) = ("high/mod.rs", "use crate::low::Thing;\nuse self::inner::X;");
    const TOP: (&str, &str) = ("main.rs", "mod low;\nmod high;\nuse high::A;");

    #[test]
    fn arrows_go_down() {
        let sources = files(&[TOP, DOWN, ("low.rs", "use super::low::inner::X;"), ("high/inner.rs", "")]);
        assert_eq!(unit(&[]).complaints(&sources).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_that_goes_up_is_named_with_its_line() {
        let sources = files(&[
            TOP,
            DOWN,
            ("low.rs", "mod a;"),
            ("low/a.rs", "//\nuse crate::{low::B,\n    high::{C, d::E}};"),
        ]);
        let expected = [
            "unit/src/low/a.rs:3: room low names high::C, of room high above it",
            "unit/src/low/a.rs:3: room low names high::d::E, of room high above it",
        ];
        assert_eq!(unit(&[]).complaints(&sources).unwrap(), expected);
    }

    #[test]
    fn an_item_of_the_root_is_the_roots() {
        let sources = files(&[TOP, DOWN, ("low.rs", "fn f() { crate::start() }")]);
        let expected = ["unit/src/low.rs:1: room low names start, of room main above it"];
        assert_eq!(unit(&[]).complaints(&sources).unwrap(), expected);
    }

    #[test]
    fn a_name_that_the_root_brings_in_is_of_its_own_room() {
        let low = ("low.rs", "use crate::{A, B};");
        let high = ("high/mod.rs", "use crate::B::C;");
        let top = ("main.rs", "mod low;\nmod high;\npub use high::A;\npub use low::B;");
        let expected = ["unit/src/low.rs:1: room low names high::A, of room high above it"];
        assert_eq!(unit(&[]).complaints(&files(&[top, high, low])).unwrap(), expected);
    }

    #[test]
    fn a_file_may_be_in_another_room_than_its_folder() {
        let sources =
            files(&[TOP, ("low.rs", "mod part;\npub use part::X;"), ("low/part.rs", "use super::Y;")]);
        let expected = ["unit/src/low.rs:2: room low names low::part::X, of room high above it"];
        assert_eq!(unit(&[]).complaints(&sources).unwrap(), expected);
    }

    #[test]
    fn an_exception_excuses_its_pair_as_long_as_it_is_needed() {
        const KNOWN: &[Exception] = &[Exception { from: "low", to: "high", why: "history" }];
        let up = ("low.rs", "use crate::high::A;");
        assert_eq!(unit(KNOWN).complaints(&files(&[TOP, DOWN, up])).unwrap(), Vec::<String>::new());
        let expected = ["unit/src: no path goes from low up to high: remove the exception"];
        assert_eq!(unit(KNOWN).complaints(&files(&[TOP, DOWN, ("low.rs", "")])).unwrap(), expected);
    }

    #[test]
    fn a_file_without_a_room_is_an_error() {
        assert!(unit(&[]).complaints(&files(&[TOP, ("attic.rs", "")])).is_err());
    }

    #[test]
    fn the_picture_replaces_the_one_of_the_page() {
        let page = "before\n<!-- rooms of unit/src -->\nold\n<!-- end of rooms -->\nafter\n";
        let new = with_picture(page, &unit(&[])).unwrap();
        let rooms = "main  the top\nhigh  above it\nlow   the bottom\n";
        assert_eq!(
            new,
            format!(
                "before\n<!-- rooms of unit/src -->\n```text\n{rooms}```\n<!-- end of rooms -->\nafter\n"
            )
        );
        assert_eq!(with_picture(&new, &unit(&[])).unwrap(), new);
    }
}
